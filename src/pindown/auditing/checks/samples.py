"""Is a label diverse enough? How many values it has, how many rows each, and in how many directions they differ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks.arrays import N_SPLITS, Codes, Matrix, halves, read, without_rare
from pindown.auditing.checks.conditions import COMMON_LEVELS, ENOUGH_SAMPLES, SPLITTABLE_SAMPLES
from pindown.auditing.checks.verdict import Estimate, Verdict, above, estimate
from pindown.data.labels import read_labels
from pindown.metrics.arrays import mean_by_label
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.theory import Assumption, Theorem

FLAT = 0.15
"""Least spread of parameters along any direction, relative to the largest, that counts as a dimension."""

LEAST_CHANGE = 0.3
"""Root mean square change between values, of precisions relative to themselves, that counts as a change at all."""

FLAT_BENT = 0.2
"""The same before training, when a nonlinear mixing lifts what is flat.

Intervals of the ratio reached up to .2 with class vectors in a hyperplane, and down to .25 with others (two layers of
mixing, 3 to 5 latents, four classes per latent, seeds 100 to 129).
"""

MIN_ROWS = 4
"""Rows of a value below which its parameters are not estimated: two in each half."""

COMMON = 30
"""Rows of the rarest value from which it can be compared with the others."""

ROWS_PER_LATENT, ROWS_PER_VALUE = 100, 10
"""Rows below which an estimate is mostly noise: a rule of thumb; with a fifth of them nothing can be learned."""


N_PARTS, MIN_AUDITED_ROWS, MIN_AUDITED_GROUPS = 4, 60, 8
"""An audit holds out one part in so many; rows, and groups of rows, below which it has nothing to divide."""


def enough_levels(labels: Any, theorem: Theorem, d: int, k: int | None = None) -> Verdict:
    """Compare the number of values of a label with the count that a theorem needs.

    Necessary, never sufficient: see `diverse_levels`. It is undecided if the count is reached only with values of
    fewer than :data:`MIN_ROWS` rows.

    Parameters
    ----------
    labels : array (n,)
        A class, segment, domain or intervention of each row.
    theorem : Theorem
        One that counts, such as `theory.CLASSIFY_NORMALISED`.
    d, k : int
        The number of latents, and what ``theorem.diversity.k_means`` says where the formula has a k.

    Examples
    --------
    Two latents need three classes; five values are needed for `theory.AUXILIARY_ICA`:

    >>> labels = ["a", "b", "c"] * 20
    >>> enough_levels(labels, theory.CLASSIFY_FREE, d=2).outcome
    'holds'
    >>> print(enough_levels(labels, theory.AUXILIARY_ICA, d=2))
    fails      at least 2d + 1 values of u: 3 of 5 that 2 latents need. Give 2 more values of u, in general position.
    """
    if theorem.diversity is None:
        raise ValueError(f"enough_levels: {theorem.name} counts nothing. Give a theorem whose diversity is not None.")
    counts = np.bincount(read_labels("labels", labels, len(labels)))
    needed, usable = theorem.diversity.needed(d, k), int((counts >= MIN_ROWS).sum())
    latents = f"{len(counts)} of {needed} that {counted(d, 'latent')} need{'' if d > 1 else 's'}."
    unit = theorem.diversity.unit
    if len(counts) < needed:
        more = f"Give {needed - len(counts)} more {unit}, in general position."
        return Verdict(theorem.diversity, len(counts), needed, "fails", f"{latents} {more}")
    if usable < needed:
        why = f"{latents} But only {usable} have {MIN_ROWS} rows or more, so little is known of the others."
        return Verdict(theorem.diversity, usable, needed, "undecided", f"{why} Give more rows of these.")
    return Verdict(theorem.diversity, usable, needed, "holds", latents)


def enough_samples(n_samples: int, d: int, labels: Any = None) -> Verdict:
    """Compare the number of rows, in all and of a typical value of a label, with a rule of thumb.

    It fails below a fifth of :data:`ROWS_PER_LATENT` or :data:`ROWS_PER_VALUE`, and is undecided below these.

    Examples
    --------
    >>> [enough_samples(n, d=5).outcome for n in (50, 200, 1_000)]
    ['fails', 'undecided', 'holds']
    >>> enough_samples(1_000, d=5, labels=np.arange(1_000)).why
    'there are 1000 rows for 5 latents, half of the 1000 values have 1 or fewer. Give more rows, or fewer values.'
    """
    share = n_samples / (ROWS_PER_LATENT * d)
    why = f"there are {n_samples} rows for {counted(d, 'latent')}"
    remedy = "Give more rows."
    if labels is not None:
        counts = np.bincount(read_labels("labels", labels, n_samples))
        typical = int(np.median(counts))
        share = min(share, typical / ROWS_PER_VALUE)
        why += f", half of the {len(counts)} values have {typical} or fewer"
        remedy = "Give more rows, or fewer values."
    outcome = above(Estimate(share, share, share), 1 - 1e-9, unless_below=0.2)
    return Verdict(ENOUGH_SAMPLES, share, 1.0, outcome, f"{why}." if outcome == "holds" else f"{why}. {remedy}")


def splittable_samples(n_samples: int, *, groups: Any = None, nuisance: Any = None) -> Verdict:
    """Say whether an audit can divide the rows: hold a quarter out, by whole groups if there are any, halve the rest.

    Where it fails a fit goes through, and nothing can be claimed of it. Fits of `Forget` are compared within a value of
    the nuisance, so that one value at least must have rows enough.

    Examples
    --------
    >>> subjects = np.repeat(["anna", "ben", "cem"], 100)
    >>> [splittable_samples(n).outcome for n in (300, 30)], splittable_samples(300, groups=subjects).outcome
    (['holds', 'fails'], 'fails')
    """
    demands = [(n_samples, MIN_AUDITED_ROWS, "rows", "Give more rows.")]
    if nuisance is not None:
        common = int(np.bincount(read_labels("nuisance", nuisance, n_samples)).max())
        joined = "Give more rows, or join values."
        demands.append((common, N_PARTS * MIN_SAMPLES_PER_LEVEL, "rows of the commonest value of the nuisance", joined))
    if groups is not None:
        n_groups = int(read_labels("groups", groups, n_samples).max()) + 1
        alone = "Give more groups, or leave them out if rows are independent."
        demands.append((n_groups, MIN_AUDITED_GROUPS, "groups", alone))
    found, least, what, remedy = next((demand for demand in demands if demand[0] < demand[1]), demands[-1])
    why = f"an audit, which holds some out and halves the rest, needs {least} {what}, and there are {found}."
    return Verdict(
        SPLITTABLE_SAMPLES, found, least, *(("holds", why) if found >= least else ("fails", f"{why} {remedy}"))
    )


def common_levels(labels: Any) -> Verdict:
    """Say whether even the rarest value of a label has rows enough to be compared with the others.

    It holds from :data:`COMMON` rows on, and fails below :data:`MIN_ROWS`.

    Examples
    --------
    >>> [common_levels(["a"] * 500 + ["b"] * rare).outcome for rare in (100, 17, 2)]
    ['holds', 'undecided', 'fails']
    """
    numbers = read_labels("labels", labels, len(labels))
    counts = np.bincount(numbers)
    rarest = float(counts.min())
    outcome = above(Estimate(rarest, rarest, rarest), COMMON - 0.5, unless_below=MIN_ROWS)
    why = f"of {len(counts)} values the rarest has {counts.min()} of {len(numbers)} rows."
    if outcome != "holds":
        why += " Give more of it, merge it with another, or leave it out."
    return Verdict(COMMON_LEVELS, rarest, COMMON, outcome, why)


Table = Callable[[Matrix, Codes, Matrix], Matrix]
"""Maps codes (n, d), labels (n,) and weights (n,) to parameters, a row per value."""


@dataclass(frozen=True)
class _Parameters:
    """What a theorem says of p(z|u): which numbers describe it, how many per latent, and what is assumed of them."""

    assumption: Assumption
    per_latent: int
    table: Table
    what: str


def _precisions(codes: Matrix, labels: Codes, weights: Matrix) -> Matrix:
    """Return −1/(2σ²) of each value and latent, in units of its mean over values."""
    spread = mean_by_label(codes**2, labels, weights) - mean_by_label(codes, labels, weights) ** 2
    precision = -0.5 / np.maximum(spread, 1e-12)
    return precision / np.abs(precision).mean(0)


def _natural(codes: Matrix, labels: Codes, weights: Matrix) -> Matrix:
    """Return μ/σ² and −1/(2σ²) of each value and latent, each kind in units of its largest singular value.

    Unless that is small: what hardly varies must not be blown up.
    """
    means, precision = mean_by_label(codes, labels, weights), _precisions(codes, labels, weights)
    within = np.sqrt(np.average((codes - means[labels]) ** 2, axis=0, weights=weights))
    blocks = [-2 * precision * means / np.maximum(within, 1e-12), precision]
    least = LEAST_CHANGE * np.sqrt(len(means))
    return np.hstack([block / max(np.linalg.norm(block - block.mean(0), 2), least) for block in blocks])


_MEANS = _Parameters(theory.AFFINE_GENERATORS, 1, mean_by_label, "class means")
_PARAMETERS = {
    theory.CLASSIFY_NORMALISED: _MEANS,
    theory.CLASSIFY_UNIT_FEATURES: _MEANS,
    theory.CLASSIFY_FREE: _MEANS,
    theory.ROEDER: _Parameters(theory.INDEPENDENT_DIFFERENCES, 1, mean_by_label, "class means"),
    theory.TCL: _Parameters(theory.MODULATED_SEGMENTS, 1, _precisions, "precisions"),
    theory.IVAE: _Parameters(theory.NATURAL_PARAMETERS, 2, _natural, "natural parameters"),
    theory.AUXILIARY_ICA: _Parameters(theory.VARIABILITY, 2, _natural, "natural parameters"),
}


def diverse_levels(
    codes: Any,
    labels: Any,
    theorem: Theorem = theory.CLASSIFY_NORMALISED,
    d: int | None = None,
    *,
    encoded: bool = True,
    random_state: int = 0,
) -> Verdict:
    r"""Say whether the values of a label differ in as many directions as a theorem needs.

    The parameters of :math:`p(\hat z | u)` that the theorem speaks of are estimated for each value: means (`Classify`,
    Roeder et al.), precisions (`theory.TCL`), or both, as for normal laws (`theory.IVAE`, `theory.AUXILIARY_ICA`).
    Singular values of noise are never 0, so directions come from one half of the rows, :math:`A = U S V^\top`, and what
    they are worth from the other,

    .. math:: s_j = u_j^\top B v_j, \qquad \text{statistic} = s_r / s_1,

    which is 0 on average where the parameters have rank below r. It is compared with :data:`FLAT` over many halves,
    whose rows are reweighted at random (the Bayesian bootstrap of Rubin, 1981). Before training (``encoded=False``) the
    mixing bends the space the means lie in, and lifts what is flat: then it is compared with :data:`FLAT_BENT`. Blind
    to rotations, shifts and one scale of the codes.

    Examples
    --------
    Six classes around a circle differ in two directions, not in three:

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(6), 200)
    >>> angle = labels[:, None] * np.pi / 3
    >>> codes = np.hstack([np.cos(angle), np.sin(angle), 0 * angle]) + 0.3 * rng.normal(size=(1200, 3))
    >>> [diverse_levels(codes, labels, d=d).outcome for d in (2, 3)]
    ['holds', 'fails']
    """
    if theorem not in _PARAMETERS:
        names = ", ".join(t.name for t in _PARAMETERS)
        raise ValueError(f"diverse_levels: no parameters are known for {theorem.name}. Give one of {names}.")
    rows = read("codes", codes)
    numbers = read_labels("labels", labels, len(rows))
    parameters, flat = _PARAMETERS[theorem], FLAT if encoded else FLAT_BENT
    rank = parameters.per_latent * (rows.shape[1] if d is None else d)
    common = without_rare(numbers, MIN_ROWS)
    n_values = len(np.unique(numbers[common]))
    if n_values < 2 or rank > min(n_values, parameters.per_latent * rows.shape[1]):
        of = f"{counted(n_values, 'value')} of {MIN_ROWS} rows or more in {counted(rows.shape[1], 'column')}"
        why = f"{of} cannot span {counted(rank, 'dimension')}."
        return Verdict(parameters.assumption, 0.0, flat, "fails", why)
    numbers = np.unique(numbers[common], return_inverse=True)[1]
    ratios = split_ratios(rows[common], numbers, parameters.table, np.random.default_rng(random_state))
    ratio = estimate(ratios[:, rank - 1])
    outcome = above(ratio, flat)
    dimensions = int((np.median(ratios, axis=0) > flat).sum())
    why = f"the {parameters.what} of {n_values} values vary along direction {rank} by {ratio} of the most."
    if outcome != "holds":
        why += f" They span about {counted(dimensions, 'dimension')}. {_remedy(dimensions, rank)}"
    return Verdict(parameters.assumption, ratio.value, flat, outcome, why)


def _remedy(spanned: int, asked: int) -> str:
    if spanned >= asked:  # about as many, but not for sure
        return "Give more rows of each value, or values that lie further apart."
    return f"Give values that differ in other directions, too, or ask for at most {counted(max(1, spanned), 'latent')}."


def split_ratios(rows: Matrix, labels: Codes, table: Table, rng: np.random.Generator) -> Matrix:
    """Return singular values of the parameters as other rows see them, relative to the first; (splits, rank)."""
    rows = (rows - rows.mean(0)) / rows.std()
    ratios = []
    for _ in range(N_SPLITS):
        half, weights = halves(labels, rng), rng.exponential(size=len(rows))
        here, there = (table(rows[some], labels[some], weights[some]) for some in (half, ~half))
        pull = _pull(here)
        here, there = ((some - np.average(some, axis=0, weights=pull**2)) * pull[:, None] for some in (here, there))
        u, _, vt = np.linalg.svd(here, full_matrices=False)
        worth = np.einsum("ij,ik,jk->j", u, there, vt)
        ratios.append(worth / worth[0])
    return np.array(ratios)


def _pull(table: Matrix) -> Matrix:
    """Return factors that pull far rows to the distance of the middle one: what rows span stays the same."""
    distance = np.linalg.norm(table - np.median(table, axis=0), axis=1)
    return 1 / np.maximum(1, distance / max(float(np.median(distance)), 1e-300))


def spanned_dimensions(codes: Any, labels: Any, *, encoded: bool = True, random_state: int = 0) -> int:
    """Return in how many directions the class means differ, by the measure of `diverse_levels`.

    Examples
    --------
    >>> labels = np.repeat([0, 1, 2], 100)
    >>> spanned_dimensions(np.eye(3)[labels] + 0.1 * np.random.default_rng(0).normal(size=(300, 3)), labels)
    2
    """
    rows = read("codes", codes)
    numbers = read_labels("labels", labels, len(rows))
    common = without_rare(numbers, MIN_ROWS)
    numbers = np.unique(numbers[common], return_inverse=True)[1]
    if not len(numbers) or numbers.max() == 0:
        return 0
    ratios = split_ratios(rows[common], numbers, mean_by_label, np.random.default_rng(random_state))
    return int((np.median(ratios, axis=0) > (FLAT if encoded else FLAT_BENT)).sum())
