"""Tables of latent actions of filmed arms in Markdown: means over recordings, and their spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from _parts import spans

PAIRS = 50
FLOOR, SUPERVISED = "displacement of the hand (floor, ceiling)", "convolutions, supervised"
FITS = {
    "LatentAction(3)": (3, 0, 0),
    "LatentAction()": (None, 0, 0),
    "LatentAction(3), 50 pairs": (3, PAIRS, 0),
    "LatentAction(6), 50 pairs": (6, PAIRS, 0),
    "LatentAction(6), 50 pairs, one law": (6, PAIRS, 80),
    "LatentAction(), 50 pairs": (None, PAIRS, 0),
    "LatentAction(), 50 pairs, one law": (None, PAIRS, 80),
}
"""Number of latents, of pairs with the first robot, and of rounds of `DistributionMatcher`."""


def as_table(rows: list[dict[str, Any]]) -> str:
    """Return means over recordings as tables of Markdown: one for each set of arms and cameras."""
    head = ["latents", "number", "worst arm", "mean", "of supervised, worst arm", "mean", "leakage", "above floor"]
    head += ["transfer 0", str(PAIRS), "ten steps, own", "swapped", "the worst ratio"]
    lines = []
    for arms, cameras in dict.fromkeys((row["robots"], row["cameras"]) for row in rows):
        shown = [row for row in rows if (row["robots"], row["cameras"]) == (arms, cameras)]
        seeds = sorted({row["seed"] for row in shown})
        lines += [
            "",
            f"{arms.replace(' ', ', ')}; {cameras.replace(' ', ' and ')}; "
            f"{'recordings' if len(seeds) > 1 else 'recording'} {spans(seeds)}:",
            "",
        ]
        lines += [f"| {' | '.join(head)} |", f"|---{'|---:' * (len(head) - 1)}|"]
        found = list(dict.fromkeys(row["code"] for row in shown))
        for code in dict.fromkeys(name for name in (FLOOR, *FITS, *found) if name in found):
            lines.append(f"| {' | '.join(_cells(code, shown))} |")
    return "\n".join(lines[1:])


def _cells(code: str, shown: list[dict[str, Any]]) -> list[str]:
    best, floor = ({row["seed"]: row for row in shown if row["code"] == name} for name in (SUPERVISED, FLOOR))
    rows = [row for row in shown if row["code"] == code]
    arms = rows[0]["robots"].split()

    def cell(values: list[float]) -> str:
        if not values:
            return ""
        if np.mean(values) < 0:
            return "< 0"
        return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")

    within = [[row[f"within {arm}"] for arm in arms] for row in rows]
    known = [row for row in rows if row["seed"] in best]
    pairs = [[(row[k], best[row["seed"]][k]) for k in (f"within {arm}" for arm in arms)] for row in known]
    shares = [min(own / told for own, told in each) for each in pairs], [np.divide(*np.sum(each, 0)) for each in pairs]
    above = [row["leakage"] - floor[row["seed"]]["leakage"] for row in rows if row["seed"] in floor]
    led = [
        [[row[f"rollout {arm} {by}"] for arm in arms] for by in ("own", "swapped")]
        for row in rows
        if row["code"] in FITS
    ]
    return [
        code,
        str(rows[0]["n_codes"]),
        *(cell([float(part(each)) for each in within]) for part in (min, np.mean)),
        *map(cell, shares),
        cell([row["leakage"] for row in rows]),
        f"{np.mean(above):.3f}" + (f" ± {np.std(above, ddof=1):.3f}" if len(above) > 1 else "") if above else "",
        *(cell([row[column] for row in rows]) for column in ("transfer 0", f"transfer {PAIRS}")),
        *(cell([float(np.mean(each[by])) for each in led]) for by in (0, 1)),
        cell([max(b / a for a, b in zip(*each, strict=True)) for each in led]),
    ]
