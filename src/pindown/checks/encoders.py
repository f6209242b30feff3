"""Could there be an injective mixing, and does an encoder undo it? Directions of data, folds, what codes tell of X."""

import math
from typing import Any

import numpy as np

from pindown import theory
from pindown._names import counted
from pindown.checks.arrays import N_RESAMPLES, Matrix, held_out_r2, read, seen
from pindown.checks.conditions import UNFOLDED_CODES
from pindown.checks.verdict import Estimate, Outcome, Verdict, above, estimate
from pindown.folding import THRESHOLD, Folding
from pindown.theory import Assumption

FAINT, NOTHING = 1e-2, 1e-5
"""Spread along a principal direction, relative to the largest, that counts as one; and below which there is none."""

REBUILT, NOT_REBUILT = 0.9, 0.85
"""Share of the variance of X that codes must tell, and below which they do not: four of five latents tell .8."""

DEAD = 1e-2
"""Spread of codes along any direction, relative to the largest, below which it has been given up."""

ROOM = 1.0
"""Nats that must lie between the information found and the most that so many negatives can show."""


def enough_directions(X: Any, d: int, *, random_state: int = 0) -> Verdict:
    """Say whether the data vary in as many directions as there are to be latents.

    No continuous injective map takes a d-dimensional ball, or the sphere in d dimensions, into fewer than d. The
    statistic is the spread along principal direction d of standardised columns relative to the first; noise is no
    direction: see `metrics.spectrum`.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 2)) @ [[1, 0, 1], [0, 1, 1]]
    >>> [enough_directions(x, d).outcome for d in (2, 3, 4)]
    ['holds', 'fails', 'fails']
    """
    rows = read("X", X)
    if rows.shape[1] < d:
        why = (
            f"X has {counted(rows.shape[1], 'column')}: no injective mixing makes fewer observed than hidden variables."
        )
        return Verdict(theory.INJECTIVE_MIXING, rows.shape[1], d, "fails", f"{why} Ask for fewer latents.")
    along, found = seen(rows)
    if found.n_kept < d:
        why = f"{found.account} There are fewer latents than {d}, or X was reduced: ask for at most {found.n_kept}."
        return Verdict(theory.INJECTIVE_MIXING, found.n_kept, d, "fails", why)
    rng = np.random.default_rng(random_state)
    resampled = (rng.integers(len(rows), size=len(rows)) for _ in range(N_RESAMPLES))
    ratio = estimate([principal_spreads(along[some])[d - 1] for some in resampled])
    outcome = above(ratio, FAINT, unless_below=NOTHING)
    why = f"X varies along its principal direction {d} by {ratio} of the most."
    if outcome == "fails":
        why += " There are fewer latents than that, or X was reduced: ask for fewer."
    elif outcome == "undecided":
        why += " That may be noise: ask for fewer latents."
    return Verdict(theory.INJECTIVE_MIXING, ratio.value, FAINT, outcome, why)


def rebuilt_observations(
    codes: Any, X: Any, assumption: Assumption = theory.INJECTIVE_MIXING, *, random_state: int = 0
) -> Verdict:
    """Say whether codes tell the observations, as they must if both maps are injective.

    The statistic is the held-out R² of a smooth regression of whitened principal components of X (those with at least a
    hundredth of the largest spread) on codes. Noise in X lowers it, and so does a latent that no code stands for, but
    one of many is not missed.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(2_000, 2))
    >>> x = z @ [[1, 1], [1, -1]]
    >>> [rebuilt_observations(code, x).outcome for code in (z, z[:, :1])]
    ['holds', 'fails']
    """
    rows, observed = read("codes", codes), read("X", X)
    u, s, _ = np.linalg.svd(observed - observed.mean(0), full_matrices=False)
    white = u[:, s > FAINT * s[0]] * math.sqrt(len(observed))
    told = held_out_r2(rows, white, np.random.default_rng(random_state))
    outcome = above(told, REBUILT, unless_below=NOT_REBUILT)
    why = f"codes tell {told} of the variance of whitened observations."
    if outcome != "holds":
        why += " X has noise, or more latents than there are components: try more of them."
    return Verdict(assumption, told.value, REBUILT, outcome, why)


def unfolded_codes(folding: Folding) -> Verdict:
    """Turn what `folding.look_for_folds` saw into a verdict.

    Examples
    --------
    >>> unfolded_codes(Folding(share=0.4, doubt=0.01, flat=0, n_samples=2_000)).outcome
    'fails'
    """
    outcomes: dict[str, Outcome] = {"folded": "fails", "flat": "fails", "unfolded": "holds", "undecided": "undecided"}
    return Verdict(UNFOLDED_CODES, folding.share, THRESHOLD, outcomes[folding.verdict], f"the encoder is {folding}.")


def live_codes(codes: Any, assumption: Assumption = theory.INFORMATION_KEPT, *, random_state: int = 0) -> Verdict:
    """Say whether codes vary in all their directions: a constant is invariant, and worth nothing.

    The statistic is the least spread along a principal direction relative to the largest.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> [live_codes(z * size).outcome for size in ([1, 1], [1, 0])]
    ['holds', 'fails']
    """
    rows = read("codes", codes)
    rng = np.random.default_rng(random_state)
    resampled = (rng.integers(len(rows), size=len(rows)) for _ in range(N_RESAMPLES))
    least = estimate([principal_spreads(rows[some])[-1] for some in resampled])
    outcome = above(least, 10 * DEAD, unless_below=DEAD)
    why = f"along the direction in which codes vary least they vary by {least} of the most."
    if outcome == "fails":
        why += " A component was given up: ask for fewer, or for a weaker push towards invariance."
    return Verdict(assumption, least.value, DEAD, outcome, why)


def many_negatives(information: float, n_negatives: int) -> Verdict:
    """Say whether there were enough negatives to show the information between partners, which InfoNCE bounds by log M.

    Examples
    --------
    >>> [many_negatives(information=2.0, n_negatives=m).outcome for m in (512, 16, 4)]
    ['holds', 'undecided', 'fails']
    """
    room = math.log(n_negatives) - information
    outcome = above(Estimate(room, room, room), ROOM, unless_below=ROOM / 4)
    most = math.log(n_negatives)
    why = f"partners share at least {information:.2f} nats, and {n_negatives} negatives show at most {most:.2f}."
    if outcome != "holds":
        why += " Take a larger batch_size."
    return Verdict(theory.MANY_NEGATIVES, room, ROOM, outcome, why)


def principal_spreads(rows: Matrix) -> Matrix:
    """Return standard deviations along principal directions, relative to the first; zeros where nothing varies.

    Examples
    --------
    >>> principal_spreads(np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).tolist()
    [1.0, 0.25]
    """
    centred = rows - rows.mean(0)
    within = centred @ centred.T if len(rows) < rows.shape[1] else centred.T @ centred  # the smaller of the two
    size = np.sqrt(np.linalg.eigvalsh(within)[::-1].clip(0))
    padded = np.pad(size, (0, rows.shape[1] - len(size)))
    return padded / size[0] if size[0] > 0 else padded
