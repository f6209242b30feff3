"""Draw docs/figures/forget.png: what probes read off codes that are to be blind, in three worlds.

The numbers are those of docs/results/antidiversity-worlds-quick.jsonl, which ``pindown reproduce antidiversity/worlds``
writes. Run ``python docs/figures/forget.py`` (matplotlib comes with the ``bench`` extra).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from pindown_papers import Results

HERE = Path(__file__)
RESULTS = HERE.parents[1] / "results" / "antidiversity-worlds-quick.jsonl"
PAPER, INK, GREY, RED = "#fdfcf7", "#2b2b33", "#8a8a92", "#c8553d"

WORLDS = {1: "means differ, linear mixing", 4: "spreads differ, linear mixing", 6: "means differ, nonlinear mixing"}
METHODS = {  # names of scores, and what to call them
    "nothing": "nothing",
    "own mean and spread": "own mean and spread",
    "LEACE": "LEACE",
    "class means": "means projected off",
    "above floor": "Forget",
}


def main() -> None:
    """Draw a panel per world, a row per method, a dot per seed."""
    records = Results(RESULTS).read()
    figure, axes = plt.subplots(1, len(WORLDS), figsize=(11, 2.9), sharey=True, sharex=True, facecolor=PAPER)
    for ax, (row, name) in zip(axes, WORLDS.items(), strict=True):
        ax.set_facecolor(PAPER)
        ax.axvline(0, color=GREY, lw=0.8, zorder=0)
        for height, score in enumerate(reversed(METHODS)):
            excess = [record.scores[score] for record in records if record.row == row and score in record.scores]
            colour = RED if METHODS[score] == "Forget" else INK
            ax.plot(excess, [height] * len(excess), "o", ms=6, alpha=0.7, color=colour, mew=0)
        ax.set_title(name, fontsize=10, color=INK)
        ax.set_yticks(range(len(METHODS)), reversed(METHODS.values()), fontsize=9, color=INK)
        ax.tick_params(length=0, labelcolor=INK)
        for side in ax.spines.values():
            side.set_visible(False)
    axes[1].set_xlabel("balanced accuracy of the worst probe, above that on the true latents", fontsize=9, color=INK)
    figure.tight_layout()
    figure.savefig(HERE.with_suffix(".png"), dpi=130, facecolor=PAPER)


if __name__ == "__main__":
    main()
