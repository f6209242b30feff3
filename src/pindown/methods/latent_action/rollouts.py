"""Where codes lead in many steps: what is missed adds up; in each body, and as a film strip where there are frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pindown.auditing.result import Section, Strip
from pindown.auditing.scores import Score
from pindown.methods.latent_action.own_charts import OwnCharts
from pindown.methods.latent_action.recordings import Recording
from pindown.simulate.images import contact_sheet

N_STEPS = 10
"""Steps that are looked ahead, where episodes are as long."""


def rollout_section(own: OwnCharts, held: Mapping[Any, Recording]) -> Section | None:
    """Say how much of the way codes tell after so many steps, each from where the last one led; None without episodes.

    Only the first observation is given: what a step misses, the next begins with.
    """
    goes_on = {body: each.follows() for body, each in held.items()}
    n_steps = min(N_STEPS, *(int(_lengths(rows).max()) for rows in goes_on.values()))
    if n_steps < 2:
        return None
    scores, strips = [], []
    for body, each in held.items():
        starts = np.flatnonzero(~goes_on[body])[_lengths(goes_on[body]) >= n_steps]
        codes, here = own.encode(body, each), each.before[starts]
        true, made = [here], [here]
        for step in range(n_steps):
            here = own.lead(body, here, codes[starts + step])
            true.append(each.after[starts + step])
            made.append(here)
        missed, stood = (_apart(true, part) for part in (made, true[:1] * len(true)))
        scores.append(Score(f"{n_steps} steps of {body} told (R²)", 1 - missed / stood, 0.0))
        if each.filmed:
            shown = np.stack([frames[0] for part in (true, made) for frames in part])
            shown = shown.clip(each.before.min(), each.before.max())
            caption = f"{body}: what was seen, and what codes lead to."
            strips.append(Strip(contact_sheet(shown, columns=n_steps + 1), caption))
    return Section(
        "Where codes lead",
        f"From the first observation of held-out episodes {n_steps} steps on by their codes, each from where the last "
        "led; of the squared way from where it began, the share that is told, over all steps. Below 0 standing still "
        "is nearer.",
        tuple(scores),
        strips=tuple(strips),
    )


def _apart(true: list[np.ndarray], made: list[np.ndarray]) -> float:
    return sum(float(((a - b) ** 2).sum()) for a, b in zip(true, made, strict=True))


def _lengths(follows: np.ndarray) -> np.ndarray:
    """Return how many transitions follow on each other, from each that follows on none.

    Examples
    --------
    >>> _lengths(np.array([False, True, True, False, False, True]))
    array([3, 1, 2])
    """
    return np.diff(np.append(np.flatnonzero(~follows), len(follows)))
