"""
A table, and nothing else
=========================

Ten measurements of cell nuclei from 569 biopsies, without labels, pairs or time. What can be said about
the latent variables behind such a table? `Dictionary` assumes that latents influence *different*
measurements.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from pindown import Dictionary, audit, plan

N_LATENTS, STEPS = 3, 250

# %%
# The mean of each measurement per biopsy, on a logarithmic scale since all are positive and skewed.
# No fit sees the diagnosis.
data = load_breast_cancer(as_frame=True)
table = data.data.filter(regex="^mean ").rename(columns=lambda name: name.removeprefix("mean "))
X = np.log(table + 0.01 * table.mean()).to_numpy()
malignant = data.target.to_numpy() == 0

print(plan(X, n_components=N_LATENTS))

# %%
# Among all autoencoders that explain the table, the fit searches the one with the fewest edges from
# latents to measurements. `support_` is the graph; `blocks_` are the latents that the theorem
# identifies, alone or together.
dictionary = Dictionary(N_LATENTS, n_restarts=2, max_iter=STEPS, verbose=False, random_state=0).fit(X)
for block in dictionary.blocks_:
    reached = ", ".join(table.columns[measurement] for measurement in sorted(block.reach))
    print(f"latent {sorted(block.latents)}: {reached}")

# %%
# Any table has such a graph. The audit refits with other seeds, on halves of the samples, and on permuted
# features, and compares on held-out samples. With so few samples it may well end with "Nothing is
# claimed". The checks that do not hold are printed, too: three latents do not explain ten measurements,
# and the theorem has no noise.
found = audit(dictionary, X, n_fits=2, random_state=0)
print(*found.scores, *found.agreement, sep="\n")
print(*(verdict for verdict in found.verdicts if verdict.outcome != "holds"), sep="\n")
print(found.claim)

# %%
# How do the latents relate to the diagnosis, which no fit has seen?
latents = dictionary.transform(X)
latents *= np.sign(dictionary.jacobian(X).mean(0).sum(0))  # choose the free sign so that measurements increase
first, second = np.argsort(-dictionary.support_.sum(0))[:2]  # the two with most measurements
for latent in (first, second):
    above = latents[malignant, latent][:, None] > latents[~malignant, latent]
    print(f"latent {latent} is larger in a malignant than in a benign biopsy: {above.mean():.2f} (chance 0.50)")

# %%
# The learned graph, with line widths by dependence; and two latents, coloured by the diagnosis.
colours = ("#1f6fb2", "#c8553d", "#3a8a4f", "#7b5aa6")
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=(1.15, 1), layout="constrained")
height_of_latent = np.linspace(8, 1, N_LATENTS)
strength, strongest = dictionary.dependence_.max(1), dictionary.dependence_.argmax(1)
height = 9.0 - np.argsort(np.lexsort([-strength, strongest]))  # measurements of a latent next to each other
for measurement, latent in np.argwhere(dictionary.support_):
    ends = height_of_latent[latent], height[measurement]
    width = 6 * dictionary.dependence_[measurement, latent]
    left.plot((0, 1), ends, color=colours[latent], lw=width, alpha=0.6, solid_capstyle="round", zorder=1)
for latent, at in enumerate(height_of_latent):
    left.scatter(0, at, s=420, color=colours[latent], zorder=2)
    left.text(0, at, f"$z_{latent}$", color="white", ha="center", va="center_baseline", zorder=3)
for measurement, at in enumerate(height):
    left.text(1.04, at, table.columns[measurement], va="center")
left.set(xlim=(-0.1, 1.5), title="the learned graph")
left.axis("off")

for name, group, colour in (("benign", ~malignant, "#9aa5b1"), ("malignant", malignant, "#b0478a")):
    right.scatter(latents[group, first], latents[group, second], s=14, color=colour, alpha=0.75, lw=0, label=name)
right.set(xlabel=f"$z_{first}$", ylabel=f"$z_{second}$", title="the diagnosis, which the fit has not seen")
right.legend(frameon=False)
right.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Supported is what the audit printed, and no more. That a latent *is* the size of a nucleus is our
# interpretation.
