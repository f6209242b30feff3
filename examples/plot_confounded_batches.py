"""
A batch that goes with the condition
====================================

Most controls were measured in batch A, most patients in batch C. If the batch is removed, the disease
goes with it. No method repairs such a design. pindown says so before the fit, and offers what still makes
sense: removing the batch within each condition.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from pindown_papers.simulations import Confounded
from sklearn.linear_model import LogisticRegression

from pindown import Data, Forget, audit, networks, plan
from pindown.metrics import Effort, leakage
from pindown.simulate.mixing import leaky_relu_mlp

N_ROWS, STEPS = 6_000, 300

# %%
# A simulated study. The condition shifts two latent variables, the batch two others, and each of eight
# measurements mixes all of them. Of 100 samples, so many are in each cell:
design = np.array([[42, 5, 3], [4, 6, 40]])  # control and patient × batch A, B, C
simulation = Confounded(
    label_vectors=torch.tensor([[-1.0, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]]),
    nuisance_vectors=torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [-2.0, 0.0, 0.0, 0.0]]),
    joint=torch.tensor(design, dtype=torch.float64),
    mixing=leaky_relu_mlp(8, n_layers=1, random_state=0),
)
train, test = (simulation.sample(N_ROWS, random_state=seed) for seed in (1, 2))
X, batch, condition = train.x.numpy(), train.u.numpy(), train.label.numpy()
X_test, batch_test, condition_test = test.x.numpy(), test.u.numpy(), test.label.numpy()

# %%
# Before any training, `plan` checks how condition and batch are crossed. See the line that fails, and
# what is needed.
print(plan(X, signal=condition, nuisance=batch))

# %%
# Remove the batch in two ways. Without ``given`` the latents must not predict the batch at all, so they
# lose the condition, which predicts the batch. With ``given=condition`` they must not predict the batch
# among patients, nor among controls: the condition is kept.
settings = dict(encoder=networks.linear, max_iter=STEPS, verbose=False, random_state=0)
blind = Forget(**settings).fit(X, batch)
blind_within = Forget(**settings).fit(X, batch, given=condition)
embeddings = {
    "as measured": (X, X_test),
    "batch removed": (blind.transform(X), blind.transform(X_test)),
    "batch removed,\ngiven the condition": (blind_within.transform(X), blind_within.transform(X_test)),
}


# %%
# On held-out samples: how often a linear probe recognises the condition, and how often the worst of
# three probes recognises the batch among samples of one condition.
def condition_read(fitted, held_out):
    """Return the balanced accuracy of a linear probe of the condition."""
    probe = LogisticRegression(max_iter=1_000, class_weight="balanced").fit(fitted, condition)
    return np.mean([np.mean(probe.predict(held_out[condition_test == c]) == c) for c in (0, 1)])


found = {}
for name, (fitted, held_out) in embeddings.items():
    probes = ["linear", "quadratic", "kernel"]
    leak = leakage(held_out, batch_test, given=condition_test, probes=probes, effort=Effort(n_seeds=1), random_state=0)
    found[name] = condition_read(fitted, held_out), leak.worst, leak.chance
    print(f"{' '.join(name.split()):38} condition {found[name][0]:.2f} (chance 0.50)   ", end="")
    print(f"batch within a condition {leak.worst:.2f} (chance {leak.chance:.2f})")

# %%
# The audit repeats the warning next to the numbers.
report = audit(blind_within, Data(X, nuisance=batch, given=condition), n_fits=2, random_state=0)
print(*(verdict for verdict in report.verdicts if verdict.outcome == "fails"), report.claim, sep="\n\n")

# %%
# The design (left) and what can be predicted from each embedding (right).
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
right.set_title("what a probe predicts", fontsize=11)
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False)
right.spines[["top", "right", "left"]].set_visible(False)
right.tick_params(axis="y", length=0)
plt.show()

# %%
# Supported: the latents do not predict the batch *among samples of one condition*. No embedding can show
# that a difference between patients and controls is not a batch effect: only a design that crosses
# them can.
