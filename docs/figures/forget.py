"""Draw docs/figures/forget.png, and print its table: what probes read off codes that are to be blind, in three worlds.

Run ``python docs/figures/forget.py`` (some minutes on one thread; matplotlib comes with the ``bench`` extra).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pindown import Forget, networks
from pindown.estimators import IdentifiabilityWarning
from pindown.estimators.erasers import ComponentRemoval, MeanProjection, PerValueStandardiser, Untouched
from pindown.metrics import PROBES, leakage, recovery_by_value
from pindown.processes import Nuisance, Process, Sample, ShapeNuisance

SEEDS, N_TRAIN, N_TEST, STEPS = (0, 1, 2), 10_000, 6_000, 1_000
READERS = [probe for probe in PROBES if probe.name in ("linear", "quadratic", "network")]
PAPER, INK, GREY, RED = "#fdfcf7", "#2b2b33", "#8a8a92", "#c8553d"

WORLDS: dict[str, Callable[[int], Process]] = {
    "means differ, linear mixing": lambda seed: Nuisance.on_sphere(8, 4, 10.0, n_layers=1, random_state=seed),
    "spreads differ, linear mixing": lambda seed: ShapeNuisance.spread(8, 3, 3, random_state=seed),
    "means differ, nonlinear mixing": lambda seed: Nuisance.on_sphere(6, 3, 10.0, random_state=seed),
}
METHODS = ("nothing", "components dropped", "own mean and spread", "means projected off", "Forget", "truth")


def codes(name: str, seed: int, train: Sample, test: Sample) -> dict[str, np.ndarray]:
    """Return what each method makes of the test sample."""
    encoder = networks.unfolded if "nonlinear" in name else networks.linear
    forget = Forget(encoder=encoder, max_iter=STEPS, random_state=seed, device="cpu", holdout=0.0)
    x, e = train.x.numpy(), train.u.numpy()
    seen = test.x.numpy()
    made = (
        Untouched().fit(x, e).transform(seen),
        ComponentRemoval().fit(x, e).transform(seen),
        PerValueStandardiser().fit(x, e).transform(seen, test.u.numpy()),
        MeanProjection().fit(x, e).transform(seen),
        forget.fit(x, e).transform(seen),
        test.z.numpy(),
    )
    return dict(zip(METHODS, made, strict=True))


def measured(name: str, seed: int) -> dict[str, tuple[float, float]]:
    """Return excess of the worst probe over chance, and recovery within values, of each method."""
    world = WORLDS[name](seed)
    train, test = world.sample(N_TRAIN, random_state=100 + seed), world.sample(N_TEST, random_state=200 + seed)
    result = {}
    for method, code in codes(name, seed, train, test).items():
        found = leakage(code, test.u, probes=READERS, n_seeds=1, n_permutations=99, random_state=0)
        result[method] = found.worst - found.chance, min(recovery_by_value(code, test.z, test.u).values())
    return result


def main() -> None:
    """Measure, print, draw."""
    warnings.simplefilter("ignore", IdentifiabilityWarning)
    print("| world | method | worst probe above chance | least R² of z within a value |\n|---|---|---|---|")
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, sharex=True, facecolor=PAPER)
    for ax, name in zip(axes, WORLDS, strict=True):
        runs = [measured(name, seed) for seed in SEEDS]
        ax.set_facecolor(PAPER)
        ax.axvline(0, color=GREY, lw=0.8, zorder=0)
        for row, method in enumerate(reversed(METHODS)):
            excess, recovered = np.array([run[method] for run in runs]).T
            ax.plot(excess, [row] * len(excess), "o", ms=6, alpha=0.8, color=RED if method == "Forget" else INK, mew=0)
            said = [" ".join(f"{v:.3f}".replace("0.", ".", 1) for v in values) for values in (excess, recovered)]
            print(f"| {name} | {method} | {said[0]} | {said[1]} |")
        ax.set_title(name, fontsize=10, color=INK)
        ax.set_yticks(range(len(METHODS)), reversed(METHODS), fontsize=9, color=INK)
        ax.tick_params(length=0, labelcolor=INK)
        for side in ax.spines.values():
            side.set_visible(False)
    axes[1].set_xlabel("balanced accuracy of the worst probe, above chance", fontsize=9, color=INK)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130, facecolor=PAPER)


if __name__ == "__main__":
    main()
