"""
Digits by their labels, and by small shifts
===========================================

Two kinds of side information for the same images. *Labels* say which digit it is: `Classify` learns
from them. *Pairs* say only that two images are one image, shifted a little: `Contrast` learns from
those, and never sees a label.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from pindown import Classify, Contrast, plan
from pindown.metrics import chance_procrustes, procrustes

N_TRAIN, STEPS = 1_200, 300

# %%
# 1,797 images of 8 × 8 pixels, each also shifted by up to one pixel: nine views. pindown whitens X, so
# pixels that are nearly always white would count as much as others: keep sixteen principal components.
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
images, labels = images[order], labels[order]
wide = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
views = np.stack([wide[:, i : i + 8, j : j + 8].reshape(-1, 64) for i in range(3) for j in range(3)], axis=1)
components = PCA(16).fit(views[:N_TRAIN].reshape(-1, 64))
X = components.transform(views.reshape(-1, 64)).reshape(len(views), 9, 16)  # (image, view, component)
train, test, still = slice(N_TRAIN), slice(N_TRAIN, None), 4  # the fifth view is the image as it is

# %%
# Labels first. Ten classes identify nine latents at most, if they differ in so many directions. `plan`
# says that seven are possible; three can be drawn.
print(plan(X[train, still], signal=labels[train], n_components=7))

# %%
# Recognising digits and *identifying* latents are two things. So each fit is made with two seeds, and
# the latents are compared up to a rotation, which the theorem leaves open.
fits = {}
for d in (7, 3):
    fits[d], again = (
        Classify(d, max_iter=STEPS, verbose=False, random_state=seed).fit(X[train, still], labels[train])
        for seed in (0, 1)
    )
    latents, others = (fit.transform(X[test, still]) for fit in (fits[d], again))
    accuracy, chance = fits[d].score(X[test, still], labels[test]), chance_procrustes(len(latents), d)
    print(f"{d} latents: held-out accuracy {accuracy:.2f} (chance 0.10); ", end="")
    print(f"two fits agree by R² {procrustes(others, latents).r2:.2f} (chance {chance:.2f})")

# %%
# Now pairs. Views of one image are positives: one group per image, no labels. On held-out images the
# score is the information between two views, in nats; it is 0 if nothing was learned. A shift keeps the
# shape, so the latents predict the digit to some extent.
group = np.repeat(np.arange(N_TRAIN), 9)
contrast = Contrast(3, max_iter=3 * STEPS, verbose=False, random_state=0).fit(X[train].reshape(-1, 16), group)
one, other = X[test, 0], X[test, 8]  # shifted up and left, and down and right
print(f"information between views: {contrast.score(one, other):.2f} nats held out (unrelated views: 0 or less)")
for name, a, b in (("latents", *map(contrast.transform, (one, other))), ("components", one, other)):
    nearest = ((a[:, None] - b[None]) ** 2).sum(-1).argmin(1) == np.arange(len(a))
    print(f"the nearest of {len(a)} is the positive, by {name}: {nearest.mean():.2f} (chance {1 / len(a):.3f})")
neighbours = KNeighborsClassifier(5).fit(contrast.transform(X[train, still]), labels[train])
recognised = neighbours.score(contrast.transform(X[test, still]), labels[test])
print(f"the digit, by the five nearest neighbours: {recognised:.2f} (chance 0.10)")

# %%
# Three latents on a sphere, drawn as a map: held-out digits at their latents.
palette = plt.get_cmap("tab10").colors
figure = plt.figure(figsize=(12, 3.7), layout="constrained")
maps = (("by labels: Classify", fits[3]), ("by shifts: Contrast", contrast))
for place, (title, fit) in enumerate(maps, start=1):
    axes = figure.add_subplot(1, 2, place, projection="mollweide")
    x, y, z = fit.transform(X[test, still]).T
    longitude, latitude = np.arctan2(y, x), np.arcsin(np.clip(z, -1, 1))
    axes.scatter(longitude, latitude, s=4, c=[palette[label] for label in labels[test]], alpha=0.35, lw=0)
    for i in range(0, min(300, len(x)), 2):
        ink = np.zeros((8, 8, 4))
        ink[..., :3], ink[..., 3] = palette[labels[test][i]], views[test][i, still].reshape(8, 8) / 16
        thumbnail = OffsetImage(ink, zoom=1.6, interpolation="bilinear")
        axes.add_artist(AnnotationBbox(thumbnail, (longitude[i], latitude[i]), frameon=False))
    axes.set_title(title, fontsize=11)
    axes.set(xticks=[], yticks=[])
plt.show()

# %%
# Supported: digits are recognised on held-out images, and with seven latents two fits agree up to a
# rotation. With three they do not, so the left map is one of many. The right map shows what a shift
# keeps; nothing says that this is the digit.
