"""
Clothes, by small shifts
========================

Real pictures from a package of the system: Fashion-MNIST, 28 × 28 pixels, ten kinds of clothes. On
Debian ``apt install dataset-fashion-mnist`` puts the files where this page looks for them; elsewhere
the variable ``FASHION_MNIST`` names their folder. Without them the page says so and draws nothing.
"""

import gzip
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from pindown import Contrast
from pindown.networks.spaces import Reals
from pindown.simulate.images import contact_sheet, nearest_traversals

N_TRAIN, STEPS = 6_000, 500
FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
CODES = 6
SHIFT = 2  # pixels


def entries(name: str, header: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first entries of a file, bytes behind a header."""
    with gzip.open(FOLDER / name) as file:
        file.read(header)
        return np.frombuffer(file.read(int(np.prod(shape))), np.uint8).reshape(shape)


# %%
# The pictures, and each one again: shifted by up to two pixels, and darker. The two are partners, so
# that `Contrast` learns what such a change leaves alone. It never sees a label.
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return pictures and partners."""
    n, rng = N_TRAIN * 4 // 3, np.random.default_rng(0)
    images = entries("train-images-idx3-ubyte.gz", 16, (n, 1, 28, 28)).astype(np.float32) / 255
    wide = np.pad(images, ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
    places = rng.integers(0, 2 * SHIFT + 1, size=(n, 2))
    shifted = np.stack([x[:, i : i + 28, j : j + 28] for x, (i, j) in zip(wide, places, strict=True)])
    return images, (shifted * rng.uniform(0.6, 1.0, size=(n, 1, 1, 1))).astype(np.float32)


train, test = slice(N_TRAIN), slice(N_TRAIN, None)
if FOLDER.is_dir():
    images, partners = pairs()
    contrast = Contrast(CODES, space=Reals(), batch_size=128, max_iter=STEPS, verbose=False, random_state=0)
    codes = contrast.fit(images[train], partners[train]).transform(images)
    print(contrast.held_out_)
else:
    print(f"There is no folder {FOLDER}: install dataset-fashion-mnist, or set FASHION_MNIST.")

# %%
# What six numbers tell of the kind that nobody named, beside six principal components, and beside
# all pixels with labels to learn from.
told = {}
if FOLDER.is_dir():
    kinds, pixels = entries("train-labels-idx1-ubyte.gz", 8, (len(images),)), images.reshape(len(images), -1)
    leading = PCA(CODES, random_state=0).fit(pixels[train]).transform(pixels)
    for name, columns in ("codes", codes), ("principal components", leading), ("pixels", pixels):
        few = columns.shape[1] == CODES
        reader = KNeighborsClassifier(15) if few else LogisticRegression(C=0.01, max_iter=500)
        told[name] = reader.fit(columns[train], kinds[train]).score(columns[test], kinds[test])
        print(f"kind read from {columns.shape[1]} {name}: {told[name]:.2f} (chance 0.10)")

# %%
# Some of the pictures, and what changes along each code, by the nearest of them.
if FOLDER.is_dir():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    left.imshow(contact_sheet(images[test][:48]))
    left.set_title("some of the pictures")
    right.imshow(nearest_traversals(codes[test], images[test]))
    right.set_title("along each code")
    for axes in (left, right):
        axes.set_axis_off()
    plt.show()

# %%
# What may be claimed: codes that were never told a kind tell it nearly as well as all pixels do, on
# pictures that no fit saw. No theorem speaks of them: what clothes look like has no uniform law, and
# the partners' law is our own. At p = 2 a rotation stays, so that no single code means anything.
