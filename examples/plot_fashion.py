"""
Clothes, by small shifts
========================

Fashion-MNIST, 28 × 28 pixels, ten kinds of clothes: an embedding learned from shifted copies, without
labels. On Debian ``apt install dataset-fashion-mnist`` installs the files; elsewhere the variable
``FASHION_MNIST`` names their folder. Without them nothing is drawn.
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
N_LATENTS = 6
SHIFT = 2  # pixels


def entries(name: str, header: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first entries of a file, bytes behind a header."""
    with gzip.open(FOLDER / name) as file:
        file.read(header)
        return np.frombuffer(file.read(int(np.prod(shape))), np.uint8).reshape(shape)


# %%
# The positive of each image is the same image, shifted by up to two pixels and darker. So `Contrast`
# learns what such a change does not affect. It never sees a label.
def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return images and their positives."""
    n, rng = N_TRAIN * 4 // 3, np.random.default_rng(0)
    images = entries("train-images-idx3-ubyte.gz", 16, (n, 1, 28, 28)).astype(np.float32) / 255
    wide = np.pad(images, ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
    places = rng.integers(0, 2 * SHIFT + 1, size=(n, 2))
    shifted = np.stack([x[:, i : i + 28, j : j + 28] for x, (i, j) in zip(wide, places, strict=True)])
    return images, (shifted * rng.uniform(0.6, 1.0, size=(n, 1, 1, 1))).astype(np.float32)


train, test = slice(N_TRAIN), slice(N_TRAIN, None)
if FOLDER.is_dir():
    images, positives = pairs()
    contrast = Contrast(N_LATENTS, space=Reals(), batch_size=128, max_iter=STEPS, verbose=False, random_state=0)
    latents = contrast.fit(images[train], positives[train]).transform(images)
    print(contrast.held_out_)
else:
    print(f"There is no folder {FOLDER}: install dataset-fashion-mnist, or set FASHION_MNIST.")

# %%
# How well six latents predict the kind, compared with six principal components and with all pixels.
accuracy = {}
if FOLDER.is_dir():
    kinds, pixels = entries("train-labels-idx1-ubyte.gz", 8, (len(images),)), images.reshape(len(images), -1)
    leading = PCA(N_LATENTS, random_state=0).fit(pixels[train]).transform(pixels)
    for name, columns in ("latents", latents), ("principal components", leading), ("pixels", pixels):
        few = columns.shape[1] == N_LATENTS
        probe = KNeighborsClassifier(15) if few else LogisticRegression(C=0.01, max_iter=500)
        accuracy[name] = probe.fit(columns[train], kinds[train]).score(columns[test], kinds[test])
        print(f"kind predicted from {columns.shape[1]} {name}: {accuracy[name]:.2f} (chance 0.10)")

# %%
# Some of the images, and what changes along each latent.
if FOLDER.is_dir():
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    left.imshow(contact_sheet(images[test][:48]))
    left.set_title("some of the pictures")
    right.imshow(nearest_traversals(latents[test], images[test]))
    right.set_title("along each latent")
    for axes in (left, right):
        axes.set_axis_off()
    plt.show()

# %%
# Supported: on held-out images the latents predict the kind nearly as well as all pixels do. No theorem
# applies: we do not know the distribution of clothes, and we chose that of the positives. With p = 2 a
# rotation is not identified, so a single latent has no meaning.
