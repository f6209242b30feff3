"""Do independent fits agree, and in what? Compared up to what a theorem leaves open, on held-out samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import special_ortho_group

from pindown import metrics, theory
from pindown._names import counted, printed
from pindown.auditing.checks.arrays import held_out_r2
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.refits import Refits
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.theory import Freedom, Indeterminacy, Theorem
from pindown.theory.structure import Block

Matrix = NDArray[np.float64]

CONSTANT = 1e-9
"""Spread of a code, relative to its size, below which it says nothing and agrees with nothing."""

N_TURNS = 5
"""Random rotations whose agreement is averaged for a level of chance."""

HALVES = "fits to two halves of the rows"
"""Name of the comparison between fits that share no rows."""

MOST_SHOWN = 24
"""Latents in a picture of a matching."""


@dataclass(frozen=True)
class Agreement:
    """How well the codes of independent fits match, pair by pair.

    Parameters
    ----------
    between : str
        Which fits were compared.
    metric : str
        By what; it ignores what the theorem leaves open.
    values : tuple of float
        One for each pair, the less of its two directions.
    chance : float
        What codes that need not agree would score; see the metric.
    shuffled : float or None
        What a fit to shuffled side information scores against this one.
    """

    between: str
    metric: str
    values: tuple[float, ...]
    chance: float
    shuffled: float | None = None

    @property
    def worst(self) -> float:
        """The least of the values."""
        return min(self.values)

    def __str__(self) -> str:
        null = "" if self.shuffled is None else f", a fit to shuffled data {printed(self.shuffled)}"
        return f"{self.between}: {self.metric} {printed(self.worst)} at least (chance {printed(self.chance)}{null})"


@dataclass(frozen=True)
class Measure:
    """A comparison of two codes (n, d) of the same rows, and what it scores by chance."""

    name: str
    compare: Callable[[Matrix, Matrix], float]
    chance: Callable[[Matrix], float]
    in_order: bool = False  # whether codes must come in the order in which they match
    of_codes: bool = True  # of which one that is constant agrees with nothing

    def __call__(self, first: Matrix, second: Matrix) -> float:
        """Return the less of both directions; 0 if a code has a constant column, which agrees with nothing.

        Examples
        --------
        >>> z = np.random.default_rng(0).normal(size=(200, 2))
        >>> measure = measure_for(theory.ORTHOGONAL)
        >>> round(measure(z, 3 * z[:, ::-1]), 3), measure(z, 0 * z)
        (1.0, 0.0)
        """
        if self.of_codes and (_is_dead(first) or _is_dead(second)):
            return 0.0
        return min(self.compare(first, second), self.compare(second, first))


def measure_for(
    free: Indeterminacy, values: NDArray[Any] | None = None, blocks: Sequence[Block] | None = None
) -> Measure:
    """Choose the comparison that ignores what is free, and no more.

    Parameters
    ----------
    free : Indeterminacy
        Of the theorem.
    values : array (n,), optional
        The nuisance, where another map is allowed for each of its values.
    blocks : sequence of Block, optional
        Latents that may be mixed among themselves, where that is allowed.

    Examples
    --------
    >>> [measure_for(free).name for free in (theory.SIGNED_PERMUTATION, theory.ORTHOGONAL, theory.LINEAR)]
    ['MCC', 'R² after a rotation', 'R² after a linear map']
    """
    if not free.allows:
        return Measure("R²", _as_it_is, lambda told: 0.0, of_codes=False)
    if free.within(theory.SCALED_PERMUTATION):
        return Measure("MCC", metrics.mcc, lambda code: _chance_mcc(code, "pearson"))
    if free.within(theory.ORTHOGONAL):
        return Measure(
            "R² after a rotation",
            lambda a, b: metrics.procrustes(a, b).r2,
            lambda code: metrics.chance_procrustes(*code.shape),
        )
    if free.within(theory.AFFINE):
        return Measure("R² after a linear map", metrics.linear_r2, lambda code: metrics.chance_linear_r2(*code.shape))
    if Freedom.PER_LEVEL in free.allows and values is not None:
        return Measure("R² after a smooth map per value", lambda a, b: _by_value(a, b, values), lambda code: 0.0)
    if free == theory.BLOCKWISE and blocks is not None:
        return Measure(
            "R² after a smooth map per block",
            lambda a, b: _by_block(a, b, blocks),
            lambda code: _turned(code, blocks),
            in_order=True,
        )
    if free.within(theory.ELEMENTWISE):
        return Measure(
            "MCC of ranks",
            lambda a, b: metrics.mcc(a, b, method="spearman"),
            lambda code: _chance_mcc(code, "spearman"),
        )
    return Measure(
        "R² after a smooth map", lambda a, b: _by_value(a, b, np.zeros(len(a), dtype=np.int64)), lambda code: 0.0
    )


def _as_it_is(first: Matrix, second: Matrix) -> float:
    """Return the share of the variance of one that the other tells as it is: 0 is what its mean would tell."""
    spread = max(float(((second - second.mean(0)) ** 2).sum()), 1e-300)
    return 1 - float(((first - second) ** 2).sum()) / spread


def _chance_mcc(code: Matrix, method: Literal["pearson", "spearman"]) -> float:
    """Return the MCC of a random rotation; of a single latent, which has none, that of rows that are not its own."""
    n, d = code.shape
    return math.sqrt(2 / (math.pi * max(n // 2, 1))) if d == 1 else metrics.chance_mcc(d, method=method)


def _by_value(first: Matrix, second: Matrix, values: NDArray[Any]) -> float:
    """Return the mean of R² over values with rows enough, each weighed by its rows."""
    found, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    usable = counts >= MIN_SAMPLES_PER_LEVEL
    rows = usable[number.reshape(-1)]
    scores = metrics.recovery_by_level(first[rows], second[rows], values[rows])
    return float(np.average([scores[value] for value in found[usable].tolist()], weights=counts[usable]))


def _by_block(first: Matrix, second: Matrix, blocks: Sequence[Block]) -> float:
    """Return the mean over latents of R² by which their block in one code tells the same block of the other."""
    one_value = np.zeros(len(first), dtype=np.int64)
    scores = []
    for block in blocks:
        members = sorted(block.latents)
        scores += [_by_value(first[:, members], second[:, members], one_value)] * len(members)
    return float(np.mean(scores))


def _turned(code: Matrix, blocks: Sequence[Block]) -> float:
    """Return the agreement of codes with random rotations of themselves: right in all but the axes.

    Where all may be mixed, or there is one latent alone, rotations are no harm: there chance knows nothing.
    """
    d = code.shape[1]
    if len(blocks) == 1:
        return 0.0
    white = (code - code.mean(0)) / code.std(0)
    turns = special_ortho_group.rvs(d, size=N_TURNS, random_state=0).reshape(N_TURNS, d, d)
    return float(np.mean([_by_block(matched_order(white, white @ turn), white, blocks) for turn in turns]))


def matched_order(code: Matrix, other: Matrix) -> Matrix:
    """Return another fit's latents in the order in which they match those of a code best, by ranks.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(100, 3))
    >>> np.array_equal(matched_order(z, z[:, [2, 0, 1]]), z)
    True
    """
    if _is_dead(code) or _is_dead(other):
        return other
    return other[:, metrics.match_latents(other, code, method="spearman")]


def _is_dead(code: Matrix) -> bool:
    """Whether a column is constant, but for rounding."""
    return bool((code.std(0) <= CONSTANT * max(np.abs(code).max(), CONSTANT)).any())


@dataclass(frozen=True, eq=False)
class Compared:
    """What is compared, such as codes: of a fit, of refits, of fits to halves, of one to shuffled side information."""

    fit: Matrix
    others: tuple[Matrix, ...]
    halves: tuple[Matrix, ...]
    null: Matrix | None = None

    @classmethod
    def of(cls, fit: Any, refits: Refits, what: Callable[[Any], Matrix | None]) -> Compared | None:
        """Compute the same for all fits; None if the method has no such thing."""
        if (first := what(fit)) is None:
            return None
        others, halves = (
            [each for fit in fits if (each := what(fit)) is not None] for fits in (refits.others, refits.halves)
        )
        return cls(first, tuple(others), tuple(halves), None if refits.null is None else what(refits.null))

    @property
    def n_columns(self) -> int:
        """Columns that all have, at least."""
        every = (self.fit, *self.others, *self.halves, *(() if self.null is None else (self.null,)))
        return min(each.shape[1] for each in every)

    def first(self, k: int) -> Compared:
        """Return the first columns alone."""
        null = None if self.null is None else self.null[:, :k]
        others, halves = (tuple(each[:, :k] for each in fits) for fits in (self.others, self.halves))
        return Compared(self.fit[:, :k], others, halves, null)


def agreements(measure: Measure, compared: Compared) -> tuple[Agreement, ...]:
    """Compare a fit with refits, these with each other, and fits to halves."""
    fit, others, halves, null = compared.fit, compared.others, compared.halves, compared.null
    chance = measure.chance(fit)
    shuffled = None if null is None else max(measure(null, other) for other in others)
    seeds = tuple(measure(a, b) for a, b in combinations(others, 2))
    rows = [("this fit and refits", tuple(measure(fit, other) for other in others))]
    rows += [("refits with other seeds", seeds)] if seeds else []
    rows.append((HALVES, (measure(*halves),)))
    return tuple(Agreement(name, measure.name, values, chance, shuffled) for name, values in rows)


def principal_angles(first: Matrix, second: Matrix) -> Matrix:
    """Return the angles between the spans of two codes, in degrees, the least first: 0 where both hold the same.

    Directions are found in one half of the rows, and what they share is measured in the other: with as many columns as
    rows any two codes span the same, and say nothing of each other.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 3))
    >>> principal_angles(z[:, :2], z[:, 1:]).round(-1).tolist()
    [0.0, 90.0]
    """
    return np.degrees(np.arccos(np.sort(shared_correlations(first, second))[::-1]))


def shared_correlations(first: Matrix, second: Matrix) -> Matrix:
    """Return canonical correlations, found in one half of the rows and measured in the other, at least 0; (least d,).

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 3))
    >>> shared_correlations(z[:, :2], z[:, 1:]).round().tolist()
    [1.0, 0.0]
    """
    a, b = along_canonical(first, second)
    size = np.maximum(a.std(0) * b.std(0), 1e-300)
    return np.clip(((a - a.mean(0)) * (b - b.mean(0))).mean(0) / size, 0, 1)


def along_canonical(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Return half of the rows along directions that correlate most in the other half; (n / 2, k) each."""
    half = np.zeros(len(first), dtype=bool)
    half[np.random.default_rng(0).permutation(len(first))[: len(first) // 2]] = True
    u, v = canonical(first[half], second[half])
    return first[~half] @ u, second[~half] @ v


def canonical(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Return directions of two codes that correlate most, in columns, of unit variance along each; (d, k) each."""
    maps = [_whitening(code) for code in (first, second)]
    seen = [(code - code.mean(0)) @ map for code, map in zip((first, second), maps, strict=True)]
    u, _, vt = np.linalg.svd(seen[0].T @ seen[1])
    k = min(len(u), len(vt))
    return maps[0] @ u[:, :k], maps[1] @ vt[:k].T


def _whitening(code: Matrix) -> Matrix:
    """Return the map to white coordinates, as many as there are columns; 0 along directions that do not vary."""
    _, s, vt = np.linalg.svd(code - code.mean(0), full_matrices=False)
    scale = np.where(s > CONSTANT * max(s[0], CONSTANT), 1 / np.maximum(s, 1e-300), 0)
    return vt.T * scale * math.sqrt(len(code))


def matching(first: Matrix, second: Matrix) -> Matrix:
    """Return absolute correlations of latents with those of another fit, in the order that matches them best.

    Those that match none come last.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> matching(z, -z[:, ::-1]).round().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    d = first.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant correlates with nothing
        correlation = np.nan_to_num(np.abs(np.corrcoef(first, second, rowvar=False)[:d, d:]))
    matched = linear_sum_assignment(correlation, maximize=True)[1]
    order = np.concatenate([matched, np.setdiff1d(np.arange(correlation.shape[1]), matched)])
    return correlation[:MOST_SHOWN, order[:MOST_SHOWN]]


SHARED = 0.5
"""Squared correlation between partners, relative to the largest, from which a direction counts as shared; and what a
direction must hold that partners share and that those before it do not tell, as a share of its variance."""

POWER = 0.02
"""By how much a direction may correlate more than the square of the largest correlation, and be a power of others."""

WARPED = replace(theory.ELEMENTWISE, name="an increasing or decreasing function", statement="ẑ = φ(z), φ invertible")
"""What is left open where fits put rows in the same order, and differ in how far apart."""

N_SHUFFLES = 20
"""Times that partners are exchanged to see what strangers share."""


@dataclass(frozen=True, eq=False)
class SharedBlock:
    """A block of directions of the codes that partners share; the others hold nothing that they do.

    Parameters
    ----------
    n_shared, n_codes : int
        Directions that are shared, and all.
    least, most_left : float
        The least correlation between partners inside the block, and the largest outside.
    strangers : float
        The largest correlation between rows that are no partners.
    """

    n_shared: int
    n_codes: int
    least: float
    most_left: float
    strangers: float

    def __str__(self) -> str:
        return (
            f"partners share {counted(self.n_shared, 'direction')} of {self.n_codes} of the codes: along these they "
            f"correlate by {printed(self.least)} or more; along the others by {printed(self.most_left)} at most, most "
            f"of which the block tells, too; and strangers by {printed(self.strangers)}"
        )

    @property
    def theorem(self) -> Theorem:
        """What speaks of the block."""
        subject = f"the block of {counted(self.n_shared, 'direction')} of the codes that partners share is recovered"
        return replace(theory.CONTRAST_CONTENT, subject=subject)

    @property
    def rest(self) -> str:
        """What is not recovered."""
        left = self.n_codes - self.n_shared
        return f"the other {counted(left, 'direction')} of the codes {'is' if left == 1 else 'are'} not recovered"

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """That there is such a block, as far as correlations show."""
        return (Verdict(theory.SHARED_CONTENT, self.least, self.strangers, "holds", f"{self}."),)

    def part(self, codes: Matrix, anchors: Matrix, partners: Matrix) -> Matrix:
        """Return the block of a fit's codes, whose directions show in codes of partners; (n, n_shared)."""
        return (codes - anchors.mean(0)) @ canonical(anchors, partners)[0][:, : self.n_shared]


@dataclass(frozen=True, eq=False)
class Features:
    """What is spoken of where codes leave part of X untold: features, of which fits agree, and no latents behind X.

    Parameters
    ----------
    theorem : Theorem
        What speaks of them.
    verdicts : tuple of Verdict
        On what it assumes, and others do not.
    rest : str
        What is not claimed.
    """

    theorem: Theorem
    verdicts: tuple[Verdict, ...]
    rest: str = "the latents behind X are not claimed, for X holds more than the codes tell"

    def leading(self, n_kept: int, n_codes: int, *, warped: bool) -> Features:
        """Speak of the directions alone in which classes differ most: up to a linear map, or one of them, warped.

        Examples
        --------
        >>> Features(theory.ROEDER, ()).leading(1, 3, warped=False).theorem.subject
        'of the directions in which features tell classes apart the first is recovered'
        """
        first = "the first is" if n_kept == 1 else f"the first {n_kept} are"
        subject = f"of the directions in which features tell classes apart {first} recovered"
        free = WARPED if warped else self.theorem.indeterminacy
        theorem = replace(self.theorem, subject=subject, indeterminacy=free)
        left = n_codes - n_kept
        rest = f"fits differ in the other {counted(left, 'direction')}; " if left else ""
        return replace(self, theorem=theorem, rest=f"{rest}no latents behind X are claimed")

    def predictions_alone(self) -> Features:
        """Speak of what codes tell of the label, and not of the codes: all that sure labels can decide.

        Examples
        --------
        >>> Features(theory.ROEDER, ()).predictions_alone().theorem.subject
        'what X tells of the label, p(label | X), is recovered'
        """
        subject = "what X tells of the label, p(label | X), is recovered"
        rest = "the codes are not: beyond what they tell of the label, fits differ in them"
        assumes = tuple(each for each in self.theorem.assumes if each != theory.INDEPENDENT_DIFFERENCES)
        told = replace(self.theorem, subject=subject, indeterminacy=theory.IDENTITY, assumes=assumes, diversity=None)
        return Features(told, (), rest)


def shared_block(pairs: Sequence[tuple[Matrix, Matrix]], rng: np.random.Generator) -> SharedBlock | None:
    """Count the directions that partners share, in the codes of each refit; None if they share all, or none for sure.

    None, too, if refits differ in their number.

    Parameters
    ----------
    pairs : sequence of (anchors, partners)
        Codes (n, d) of rows and their partners, by each refit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> content, style, other = rng.normal(size=(3, 800, 2))
    >>> shared_block([(np.hstack([content, style]), np.hstack([content, other]))], rng).n_shared
    2
    >>> shared_block([(content, content + 0.3 * style)], rng) is None
    True
    """
    found = [_counted(anchors, partners, rng) for anchors, partners in pairs]
    least = min(found, key=lambda block: block.least - block.strangers)
    if least.n_shared == least.n_codes or least.least <= least.strangers:
        return None
    return least if len({block.n_shared for block in found}) == 1 else None


def _counted(anchors: Matrix, partners: Matrix, rng: np.random.Generator) -> SharedBlock:
    together = shared_correlations(anchors, partners)
    orders = (rng.permutation(len(partners)) for _ in range(N_SHUFFLES))
    strangers = max(float(shared_correlations(anchors, partners[order]).max()) for order in orders)
    along, _ = along_canonical(anchors, partners)
    k = next((j for j in range(1, len(together)) if not _is_new(j, together, along)), len(together))
    return SharedBlock(k, len(together), float(together[:k].min()), float(together[k:].max(initial=0.0)), strangers)


def _is_new(j: int, together: Matrix, along: Matrix) -> bool:
    """Say whether partners share direction j, and it is no bent image of those before it, such as a square."""
    most = together[0]
    if most == 0 or together[j] ** 2 < SHARED * most**2:
        return False
    if together[j] > most**2 + POWER:  # squares and products of what correlates by ρ correlate by ρ² at most
        return True
    told = held_out_r2(along[:, :j], along[:, j : j + 1], np.random.default_rng(0)).value
    return bool(together[j] / most - max(told, 0.0) >= SHARED)


def encoded_pairs(fit: Any, anchors: Any, partners: Any) -> tuple[Matrix, Matrix]:
    """Return codes of rows and of their partners."""
    first, second = (np.asarray(fit.transform(part), dtype=np.float64) for part in (anchors, partners))
    return first, second
