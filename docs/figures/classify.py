"""Draw docs/figures/classify.png: class vectors and codes before and after training, in two worlds.

Run ``python docs/figures/classify.py`` (about a minute on one thread; matplotlib comes with the ``bench`` extra).

Above, the class vectors lie in general position and V = span{v_c − v_a} is all of space; below, they lie in a plane,
which is V. Both worlds have the same mixing, the same number of classes and samples, and the same fit.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba_array
from pindown_papers.demo import colours, sphere_net
from pindown_papers.simulations import in_hyperplane
from scipy.linalg import null_space

from pindown import Classify
from pindown.auditing.page import shown
from pindown.errors import IdentifiabilityWarning
from pindown.metrics import linear_r2, procrustes
from pindown.simulate import Clusters
from pindown.simulate.process import span_of_differences

N_CLASSES, KAPPA, SEED, STEPS = 16, 10.0, 6, 2_000
N_TRAIN, N_TEST, N_DRAWN = 100_000, 8_000, 1_500
YAW, PITCH = -0.6, 0.35
PAPER, INK, GREY = "#fdfcf7", "#2b2b33", "#8a8a92"


@dataclass(frozen=True)
class Shape:
    """Codes, class vectors and a net over them, turned so that the world's V is level; and what to write below."""

    codes: np.ndarray  # (n, 3)
    vectors: np.ndarray  # (n_classes, 3)
    surface: np.ndarray  # (n_parallels, n_meridians, 3)
    note: str


@dataclass(frozen=True)
class Story:
    """The truth, the start of the fit and its end, with the colours of samples, classes and net."""

    shapes: tuple[Shape, Shape, Shape]
    labels: np.ndarray  # (n,)
    flat: bool


def story(world: Clusters) -> Story:
    """Sample a world, and look at it, at the untrained encoder and at the trained one."""
    train, test = (world.sample(n, random_state=SEED + i) for i, n in ((1, N_TRAIN), (2, N_TEST)))
    along = span_of_differences(world.vectors).numpy()  # (3, dim V)
    basis = np.hstack([along, null_space(along.T)])  # in these coordinates V is level
    grid = sphere_net()
    if along.shape[1] < 3:
        grid = grid[4:-4]  # no samples where the poles are
    z, grid_x = test.z.numpy(), world.mixing(torch.from_numpy(grid @ basis.T)).numpy()

    def fitted(max_iter: int, learning_rate: float) -> Shape:
        classify = Classify(3, max_iter=max_iter, learning_rate=learning_rate, random_state=SEED, verbose=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)  # of the plane: what the picture is about
            classify.set_params(device="cpu").fit(train.x, train.u)
        codes = classify.transform(test.x.numpy())
        turn = procrustes(codes, z).rotation @ basis
        carried = classify.transform(grid_x.reshape(-1, 3)).reshape(grid.shape)
        return Shape(codes @ turn, classify.class_vectors_ @ turn, carried @ turn, described(codes, z, along))

    truth = Shape(z @ basis, world.vectors.numpy() @ basis, grid, "")
    start, end = fitted(1, 1e-12), fitted(STEPS, 1e-2)  # a step of no length shows the start
    return Story((truth, start, end), test.u.numpy(), flat=along.shape[1] < 3)


def described(codes: np.ndarray, z: np.ndarray, along: np.ndarray) -> str:
    """Say how much of the latents is in the codes, along V and across it."""
    r2 = shown(linear_r2(codes, z @ along), 3)
    if along.shape[1] == z.shape[1]:
        return f"R² {r2}"
    return f"R² {r2} along V, {shown(linear_r2(codes, z @ null_space(along.T)), 3)} across it"


def projected(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where places are seen on the paper, and how near, from 0 to 1; (…, 3) → (…, 2), (…)."""
    x, y, z = np.moveaxis(places, -1, 0)
    across, away = np.cos(YAW) * x - np.sin(YAW) * y, np.sin(YAW) * x + np.cos(YAW) * y
    near = np.sin(PITCH) * z - np.cos(PITCH) * away
    return np.stack([across, np.cos(PITCH) * z + np.sin(PITCH) * away], -1), np.clip((near + 1) / 2, 0, 1)


def draw_surface(ax: Axes, surface: np.ndarray, hues: np.ndarray) -> None:
    """Draw a net of coloured meshes, far ones first."""
    at, near = projected(surface)
    corners = np.stack([at[:-1, :-1], at[:-1, 1:], at[1:, 1:], at[1:, :-1]], 2).reshape(-1, 4, 2)
    near = (near[:-1, :-1] + near[1:, 1:]).ravel() / 2
    ink = to_rgba_array(np.ravel(colours(hues[1:, 1:])))
    ink[:, 3] = 0.05 + 0.2 * near
    order = np.argsort(near)
    ax.add_collection(PolyCollection(corners[order], facecolors=ink[order], linewidths=0))
    for lines, hue in ((surface[::4], hues[::4]), (surface[:, ::4].swapaxes(0, 1), hues[:, ::4].swapaxes(0, 1))):
        at, near = projected(lines)
        ink = to_rgba_array(np.ravel(colours(hue[:, 1:])))
        ink[:, 3] = (0.08 + 0.5 * near[:, 1:]).ravel()
        ax.add_collection(
            LineCollection(np.stack([at[:, :-1], at[:, 1:]], 2).reshape(-1, 2, 2), colors=ink, linewidths=0.7)
        )


def draw_points(ax: Axes, points: np.ndarray, hues: np.ndarray) -> None:
    """Draw samples, far ones small and pale."""
    at, near = projected(points)
    ink = to_rgba_array(colours(hues))
    ink[:, 3] = 0.1 + 0.7 * near
    order = np.argsort(near)
    ax.scatter(*at[order].T, s=1 + 4 * near[order], color=ink[order], linewidths=0)


def draw_vectors(ax: Axes, vectors: np.ndarray, hues: np.ndarray, truth: np.ndarray | None) -> None:
    """Draw class vectors from the origin, and rings where the true ones end."""
    at, near = projected(vectors)
    ink = to_rgba_array(colours(hues))
    order = np.argsort(near)
    stems = np.stack([np.zeros_like(at), at], 1)[order]
    ax.add_collection(LineCollection(stems, colors=ink[order], linewidths=0.8 + 1.2 * near[order], zorder=3))
    ax.scatter(*at[order].T, s=22 + 30 * near[order], color=ink[order], edgecolors=INK, linewidths=0.8, zorder=4)
    if truth is not None:
        ax.scatter(*projected(truth)[0].T, s=110, facecolors="none", edgecolors=INK, linewidths=0.8, zorder=5)


def draw_plane(ax: Axes) -> None:
    """Draw V, where it is a plane."""
    angle = np.linspace(0, 2 * np.pi, 200)
    at, _ = projected(1.12 * np.stack([np.cos(angle), np.sin(angle), 0 * angle], -1))
    ax.fill(*at.T, facecolor=INK, alpha=0.07, zorder=2)
    ax.plot(*at.T, color=INK, alpha=0.5, linewidth=0.8, zorder=2)
    ax.text(*(at[np.argmax(at[:, 0])] + [0.02, 0.04]), "V", color=INK, fontsize=12, style="italic", zorder=6)


def draw(ax: Axes, shape: Shape, story: Story) -> None:
    """Draw one panel."""
    truth = story.shapes[0]
    few = slice(N_DRAWN)
    draw_surface(ax, shape.surface, truth.surface)
    draw_points(ax, shape.codes[few], truth.vectors[story.labels[few]])
    if story.flat:
        draw_plane(ax)
    draw_vectors(ax, shape.vectors, truth.vectors, None if shape is truth else truth.vectors)
    ax.text(0, -1.24, shape.note, ha="center", color=INK, fontsize=11)
    ax.set(xlim=(-1.2, 1.2), ylim=(-1.3, 1.1), aspect="equal")
    ax.axis("off")


def paint(stories: tuple[Story, Story], path: Path) -> None:
    """Draw two worlds, each before, after and as it is."""
    figure, axes = plt.subplots(2, 3, figsize=(10, 7.4), facecolor=PAPER)
    figure.subplots_adjust(left=0.05, right=0.99, top=0.93, bottom=0.02, wspace=0.02, hspace=0.06)
    for row, story in zip(axes, stories, strict=True):
        for ax, shape in zip(row, story.shapes, strict=True):
            draw(ax, shape, story)
    columns = ("the truth", "before: a linear image", "after: the codes")
    for ax, title in zip(axes[0], columns, strict=True):
        ax.set_title(title, fontsize=12, fontweight="bold", color=INK)
    for ax, title in zip(
        axes[:, 0], ("in general position: V is all of space", "in a plane: V is that plane"), strict=True
    ):
        ax.text(-1.28, -0.1, title, rotation=90, ha="center", va="center", color=GREY, fontsize=11)
    figure.savefig(path, dpi=140, facecolor=PAPER)


if __name__ == "__main__":
    torch.set_num_threads(1)
    general = Clusters.on_sphere(3, N_CLASSES, KAPPA, n_layers=4, random_state=SEED)
    flat = replace(general, vectors=in_hyperplane(general.vectors, offset=0.0))
    stories = story(general), story(flat)
    for each in stories:
        print([shape.note for shape in each.shapes])
    paint(stories, Path(__file__).with_suffix(".png"))
