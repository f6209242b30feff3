"""Draw docs/figures/folding.png: how an encoder that starts folded climbs in steps, and one that does not.

Run ``python docs/figures/folding.py`` (about two minutes on one thread; matplotlib comes with the ``bench`` extra).

World, loss, learning rate and batch size are the same for all, and R² is that of fresh samples. The perceptron is deep,
since shallow ones hardly stall in so small a world. A control, only printed: a perceptron of the default's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from pindown import _random, networks
from pindown.data import ArraySource
from pindown.losses import infonce
from pindown.networks.folding import THRESHOLD, Folding, find_folding
from pindown.networks.preprocessing import whiten
from pindown.networks.spaces import Sphere
from pindown.simulate import Pairs, Sample
from pindown.training import Trainer, TrainingDefaults, constant

D, KAPPA, STEPS, EVERY = 5, 10.0, 2_500, 25
DEEP, DEFAULT = (32,) * 8, (128,) * 3
PAPER, INK, GREY = "#fdfcf7", "#2b2b33", "#8a8a92"
BANDS = ["#0b3c5d", "#1f6f8b", "#4fa3a5", "#9ccfb0", "#e3ecb8"]
RUST, TEAL = "#c8553d", "#1f6f8b"


@dataclass(frozen=True)
class Moment:
    """What was seen after some steps."""

    step: int
    recovered: np.ndarray  # (d,): R² of each canonical direction of the latents, best first
    folding: Folding | None

    @property
    def r2(self) -> float:
        """R² of all directions together."""
        return float(self.recovered.mean())


class Objective(nn.Module):
    """InfoNCE at the world's own concentration."""

    def __init__(self, make, hidden: tuple[int, ...], x: Tensor, seed: int) -> None:
        super().__init__()
        self.whiten = whiten(ArraySource(x))
        with _random.forked(seed):
            self.body = make(D, D, hidden=hidden)

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes, in the precision of the weights."""
        dtype = next(self.body.parameters()).dtype
        return Sphere()(self.body(self.whiten(x).to(dtype)))

    def forward(self, x: Tensor, x_pos: Tensor) -> Tensor:
        """Return the loss."""
        return infonce(self.encode(x), self.encode(x_pos), temperature=1 / KAPPA)


def recovered(z_hat: Tensor, z: Tensor) -> np.ndarray:
    """Squared canonical correlations: how much of each direction of the latents is linear in the codes."""
    q = [torch.linalg.qr((a - a.mean(0)).double()).Q for a in (z_hat, z)]
    return torch.linalg.svdvals(q[0].T @ q[1]).square().clamp(0, 1).numpy()


def story(make, hidden: tuple[int, ...], seed: int, *, look: bool = False) -> list[Moment]:
    """Train, and look at the encoder now and then."""
    world = Pairs.on_sphere(D, KAPPA, random_state=0)
    test: Sample = world.sample(4_000, random_state=1)
    objective = Objective(make, hidden, test.x, seed)
    moments: list[Moment] = []

    def remember(step: int) -> None:
        with torch.no_grad():
            seen = recovered(objective.encode(test.x), test.z)
        folding = None
        if look and step % (2 * EVERY) == 0:
            objective.double()
            folding = find_folding(objective.encode, test.x[:1_000], Sphere())
            objective.float()
        moments.append(Moment(step, seen, folding))

    def draw(step: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if step % EVERY == 0:
            remember(step)
        sample = world.sample(256, random_state=generator)
        return sample.x, sample.x_pos

    Trainer().train(
        objective,
        draw,
        max_iter=STEPS,
        learning_rate=5e-4,
        seed=seed,
        defaults=TrainingDefaults(weight_decay=0.0, schedule=constant),
    )
    remember(STEPS)
    return moments


def draw_recovery(ax: Axes, moments: list[Moment], others: list[list[Moment]]) -> None:
    """Draw R² as a stack of directions, each at most 1/d high."""
    steps = [m.step for m in moments]
    ax.stackplot(steps, np.stack([m.recovered for m in moments], 1) / D, colors=BANDS, linewidth=0)
    ax.plot(steps, [m.r2 for m in moments], color=INK, linewidth=1.6)
    for other in others:
        ax.plot([m.step for m in other], [m.r2 for m in other], color=INK, linewidth=0.8, alpha=0.4)
    if others:
        ax.text(0.98, 0.03, f"thin: {len(others)} other starts", transform=ax.transAxes, ha="right", color=PAPER)
    for k in range(1, D + 1):
        ax.axhline(k / D, color=PAPER if k < D else GREY, linewidth=0.8, linestyle=(0, (1, 3)))
    ax.set(xlim=(0, STEPS), xticks=range(0, STEPS, 500), ylim=(0, 1.04), yticks=[k / D for k in range(D + 1)])
    ax.set_yticklabels(["0", *(f"{k}/{D}" for k in range(1, D)), "1"])


def draw_folding(ax: Axes, moments: list[Moment], colour: str) -> None:
    """Draw what the detector saw, without knowing the latents."""
    seen = [(m.step, m.folding) for m in moments if m.folding is not None]
    steps, share = [s for s, _ in seen], np.array([f.share for _, f in seen])
    doubt = np.array([f.doubt for _, f in seen])
    ax.fill_between(steps, np.clip(share - doubt, 0, 1), share + doubt, color=colour, alpha=0.2, linewidth=0)
    ax.plot(steps, share, color=colour, linewidth=1.8, clip_on=False, zorder=3)
    ax.axhline(THRESHOLD, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.text(STEPS, THRESHOLD + 0.02, "a fit that ends above this line warns", ha="right", color=GREY, fontsize=8)
    ax.set(ylim=(0, 0.62), yticks=[0, 0.25, 0.5])
    ax.set_xlabel("steps", color=GREY)
    ax.set_yticklabels(["0", "25 %", "50 %"])


def paint(folded: list[list[Moment]], unfolded: list[Moment], path: Path) -> None:
    """Draw both starts side by side, recovery above and detector below."""
    plt.rcParams |= {
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
    }
    figure, axes = plt.subplots(
        2, 2, figsize=(10, 5.6), height_ratios=(5, 2), sharex=True, sharey="row", facecolor=PAPER, layout="constrained"
    )
    for ax in axes.flat:
        ax.set_facecolor(PAPER)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(length=0)
    shown, *others = folded
    draw_recovery(axes[0, 0], shown, others)
    draw_recovery(axes[0, 1], unfolded, [])
    draw_folding(axes[1, 0], shown, RUST)
    draw_folding(axes[1, 1], unfolded, TEAL)
    titles = ("Starts folded: a deep random perceptron", "Starts unfolded: the default, A x + m(x)")
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
    axes[0, 0].set_ylabel("R² of the latents, one band per direction", color=GREY)
    axes[1, 0].set_ylabel("samples turned over", color=GREY)
    figure.savefig(path, dpi=140, facecolor=PAPER)


if __name__ == "__main__":
    torch.set_num_threads(1)
    folded = [story(networks.mlp, DEEP, seed, look=seed == 0) for seed in range(4)]
    unfolded = story(networks.skip_mlp, DEFAULT, 0, look=True)
    control = story(networks.mlp, DEFAULT, 0)
    named = {f"deep perceptron, seed {i}": run for i, run in enumerate(folded)}
    for name, run in (named | {"default": unfolded, "perceptron of the default's size": control}).items():
        print(f"{name}: R² after every 250 steps", *(f"{m.r2:.3f}" for m in run[:: 250 // EVERY]))
    paint(folded, unfolded, Path(__file__).with_suffix(".png"))
