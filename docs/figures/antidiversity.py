"""Draw docs/figures/antidiversity.png: one cross-entropy with two signs, and the two subspaces it leads to.

Run ``python docs/figures/antidiversity.py`` (seconds on one thread; matplotlib comes with the ``bench`` extra).

Three clusters on a sphere differ within a plane V. Two linear encoders are trained on them: one to tell the clusters
apart, one to hide them. Above, their rows, drawn with V and its complement; below, their codes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from pindown_papers.antidiversity import SIGNS, SignRow, _angle

SEED, N_DRAWN = 3, 1_500
LONGER = replace(SIGNS.quick, align_iter=3_000)
YAW, PITCH = -0.5, 0.32
PAPER, INK, GREY = "#fdfcf7", "#2b2b33", "#8a8a92"
HUES = ("#c8553d", "#3d7ea6", "#7a9e3f")


def projected(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where places are seen on the paper, and how near, from 0 to 1; (…, 3) → (…, 2), (…)."""
    x, y, z = np.moveaxis(places, -1, 0)
    across, away = np.cos(YAW) * x - np.sin(YAW) * y, np.sin(YAW) * x + np.cos(YAW) * y
    near = np.sin(PITCH) * z - np.cos(PITCH) * away
    return np.stack([across, np.cos(PITCH) * z + np.sin(PITCH) * away], -1), np.clip((near + 1) / 2, 0, 1)


def draw_plane(ax: Axes, basis: np.ndarray, *, filled: bool) -> None:
    """Draw a disc of a plane through the origin, given by two orthonormal columns: V filled, a code's rows dashed."""
    angle = np.linspace(0, 2 * np.pi, 200)
    rim = projected(1.25 * np.stack([np.cos(angle), np.sin(angle)], 1) @ basis.T)[0]
    if filled:
        ax.fill(*rim.T, facecolor=INK, alpha=0.08, zorder=1)
        ax.plot(*rim.T, color=GREY, linewidth=0.8, zorder=1)
    else:
        ax.plot(*rim.T, color=INK, linewidth=1.6, linestyle=(0, (4, 3)), zorder=4)


def draw_line(ax: Axes, direction: np.ndarray, *, filled: bool) -> None:
    """Draw a line through the origin: V^⊥ grey and wide, a code's row dashed."""
    ends = projected(np.array([-1.3, 1.3])[:, None] * direction.ravel())[0]
    style = {"color": GREY, "linewidth": 5, "alpha": 0.5} if filled else {"color": INK, "linewidth": 1.6}
    ax.plot(*ends.T, linestyle="-" if filled else (0, (4, 3)), zorder=1 if filled else 4, **style)


def draw_world(ax: Axes, points: np.ndarray, labels: np.ndarray, vectors: np.ndarray) -> None:
    """Draw the sphere, its samples, far ones small and pale, and the vectors of the clusters."""
    circle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(circle), np.sin(circle), color=GREY, linewidth=0.6, alpha=0.6)
    at, near = projected(points)
    ink = to_rgba_array(np.array(HUES)[labels])
    ink[:, 3] = 0.08 + 0.5 * near
    order = np.argsort(near)
    ax.scatter(*at[order].T, s=1 + 5 * near[order], color=ink[order], linewidths=0, zorder=2)
    for place, hue in zip(projected(vectors)[0], HUES, strict=True):
        ax.annotate("", place, (0, 0), arrowprops={"arrowstyle": "-|>", "color": hue, "linewidth": 2}, zorder=5)
    ax.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.4), aspect="equal")
    ax.axis("off")


def draw_codes(ax: Axes, codes: np.ndarray, labels: np.ndarray) -> None:
    """Draw codes in two dimensions as points, in one as a curve of frequencies per value."""
    for value, hue in enumerate(HUES):
        own = codes[labels == value]
        if codes.shape[1] == 2:
            ax.scatter(*own[:N_DRAWN].T, s=3, color=hue, alpha=0.35, linewidths=0)
            continue
        heights, edges = np.histogram(own[:, 0], bins=40, range=(codes.min(), codes.max()), density=True)
        ax.stairs(heights, edges, color=hue, linewidth=1.6)
    ax.set(xticks=[], yticks=[])
    if codes.shape[1] == 2:
        ax.set_aspect("equal", adjustable="datalim")
    ax.set_facecolor(PAPER)
    for side in ax.spines.values():
        side.set_color(GREY)


def facing(along: np.ndarray, across: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return a basis, in columns, in which V is level and a place is on the near side."""
    angle = np.arctan2(*(along.T @ place)[::-1]) - np.arctan2(-np.cos(YAW), -np.sin(YAW))
    turned = along @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.hstack([turned, across * np.sign(across.T @ place)])


def paint(path: Path) -> None:
    """Train both encoders, and draw them."""
    figure, axes = plt.subplots(2, 2, figsize=(8.6, 8.2), height_ratios=(1.7, 1), facecolor=PAPER)
    figure.subplots_adjust(left=0.03, right=0.97, top=0.93, bottom=0.05, hspace=0.16, wspace=0.06)
    for (above, below), aligns in zip(axes.T, (True, False), strict=True):
        row = SignRow(1, 3, 3, aligns)
        world = row.build(SEED)
        sample = world.sample(SIGNS.quick.n_samples, random_state=SEED + 1)
        x, labels = sample.x.numpy(), sample.u.numpy()
        basis = row.rows(x, labels, LONGER, SEED, "cpu")  # (3, 2) or (3, 1)
        along, across = world.nuisance_space.numpy(), world.complement.numpy()
        turn = facing(along, across, world.clusters.vectors.numpy().mean(0))
        draw_plane(above, turn.T @ along, filled=True)
        draw_line(above, turn.T @ across, filled=True)
        (draw_plane if aligns else draw_line)(above, turn.T @ basis, filled=False)
        draw_world(above, x[:N_DRAWN] @ turn, labels[:N_DRAWN], world.clusters.vectors.numpy() @ turn)
        above.text(1.17, -0.3, "V", fontsize=13, style="italic", color=INK)
        above.text(0.07, 1.14, "V$^⊥$", fontsize=13, style="italic", color=INK)
        sign = "minimise the cross-entropy: align" if aligns else "maximise it: forget"
        above.set_title(sign, y=0.96, fontsize=12, fontweight="bold", color=INK)
        angles = f"rows: {_angle(basis, along):.1f}° from V, {_angle(basis, across):.1f}° from V$^⊥$"
        above.text(0, -1.47, angles, ha="center", fontsize=11, color=INK)
        draw_codes(below, x @ basis, labels)
        below.set_xlabel("codes" if aligns else "codes: how often each, for each value", color=INK, fontsize=10)
        print(sign, angles)
    figure.savefig(path, dpi=140, facecolor=PAPER)


if __name__ == "__main__":
    torch.set_num_threads(1)
    paint(Path(__file__).with_suffix(".png"))
