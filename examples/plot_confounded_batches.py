"""
A batch that goes with the condition
====================================

Most controls were measured in batch A, most patients in batch C. Remove the batch, and the disease
goes with it. No method can mend such a design; what pindown can do is say so before the fit, and
offer the one thing that still makes sense.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from pindown import Forget, audit, networks, plan
from pindown.metrics import Effort, leakage
from pindown.simulate import Confounded
from pindown.simulate.mixing import leaky_relu_mlp

N_ROWS, STEPS = 6_000, 300

# %%
# A study, simulated so that the truth is known. Eight measurements; the condition moves two hidden
# variables, the batch moves two others, and every measurement mixes all of them. Of 100 samples,
# this is how many fall where:
design = np.array([[42, 5, 3], [4, 6, 40]])  # control and patient × batch A, B, C
world = Confounded(
    label_vectors=torch.tensor([[-1.0, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]]),
    nuisance_vectors=torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [-2.0, 0.0, 0.0, 0.0]]),
    joint=torch.tensor(design, dtype=torch.float64),
    mixing=leaky_relu_mlp(8, n_layers=1, random_state=0),
)
train, test = (world.sample(N_ROWS, random_state=seed) for seed in (1, 2))
X, batch, condition = train.x.numpy(), train.u.numpy(), train.label.numpy()
X_test, batch_test, condition_test = test.x.numpy(), test.u.numpy(), test.label.numpy()

# %%
# Before any training, `plan` looks at how condition and batch are crossed. It refuses to pretend:
# see the line that fails, and what is needed.
print(plan(X, signal=condition, nuisance=batch))

# %%
# Forget the batch all the same, in two ways. Without ``given`` codes must not tell the batch at
# all, so they may not tell the condition either, which tells the batch. With ``given=condition``
# they must not tell the batch *among patients*, nor among controls: that takes nothing from the
# condition.
settings = dict(encoder=networks.linear, max_iter=STEPS, verbose=False, random_state=0)
blind = Forget(**settings).fit(X, batch)
blind_within = Forget(**settings).fit(X, batch, given=condition)
codes = {
    "as measured": (X, X_test),
    "batch forgotten": (blind.transform(X), blind.transform(X_test)),
    "batch forgotten,\ngiven the condition": (blind_within.transform(X), blind_within.transform(X_test)),
}


# %%
# What is left, on rows that no fit has seen: how often a reader recognises the condition, and how
# often the worst of three probes recognises the batch among samples of one condition.
def condition_read(fitted, held_out):
    """Accuracy of a linear reader of the condition, the two conditions counting the same."""
    reader = LogisticRegression(max_iter=1_000, class_weight="balanced").fit(fitted, condition)
    return np.mean([np.mean(reader.predict(held_out[condition_test == c]) == c) for c in (0, 1)])


found = {}
for name, (fitted, held_out) in codes.items():
    probes = ["linear", "quadratic", "kernel"]
    told = leakage(held_out, batch_test, given=condition_test, probes=probes, effort=Effort(n_seeds=1), random_state=0)
    found[name] = condition_read(fitted, held_out), told.worst, told.chance
    print(f"{' '.join(name.split()):38} condition {found[name][0]:.2f} (chance 0.50)   ", end="")
    print(f"batch within a condition {told.worst:.2f} (chance {told.chance:.2f})")

# %%
# The audit repeats the warning beside the numbers, where a reader of the report will find it.
report = audit(blind_within, X, batch, given=condition, n_fits=2, random_state=0)
print(*(verdict for verdict in report.verdicts if verdict.outcome == "fails"), report.claim, sep="\n\n")

# %%
# The picture: the design on the left, what it does to a code on the right.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=(1, 2), layout="constrained")
left.imshow(design, cmap="Blues", vmax=70)
for (row, column), count in np.ndenumerate(design):
    left.text(column, row, count, ha="center", va="center", fontsize=12)
left.set_xticks(range(3), ["batch A", "batch B", "batch C"])
left.set_yticks(range(2), ["control", "patient"])
left.set_title("the design: samples of 100", fontsize=11)
left.tick_params(length=0)

rows = np.arange(len(found))[::-1]
kept, leaked, chance = np.array(list(found.values())).T
right.hlines(rows, chance, leaked, color="#c8553d", lw=2)
right.plot(leaked, rows, "o", color="#c8553d", ms=9, label="batch, within a condition")
right.plot(kept, rows, "D", color="#1f6fb2", ms=8, label="condition")
right.axvline(chance[0], color="#c8553d", lw=0.8, ls=":")
right.axvline(0.5, color="#1f6fb2", lw=0.8, ls=":")
right.set_yticks(rows, found)
right.set(xlim=(0.25, 1), ylim=(-0.5, 2.5), xlabel="held-out accuracy; dotted: chance")
right.set_title("what a reader recognises", fontsize=11)
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False)
right.spines[["top", "right", "left"]].set_visible(False)
right.tick_params(axis="y", length=0)
plt.show()

# %%
# What may be claimed: that codes do not tell the batch *among samples of one condition*. That a
# difference between patients and controls is not a batch in disguise, no code can show: only a
# design that crosses them can.
