"""Agreement of independent fits on held-out samples, up to what a theorem leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import special_ortho_group

from pindown import metrics, theory
from pindown._names import counted, printed
from pindown.auditing.checks.arrays import held_out_r2
from pindown.auditing.refits import Estimator, Refits
from pindown.metrics.arrays import Matrix, best_matching, correlations, standardise, whitening
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.theory import Freedom, Indeterminacy
from pindown.theory.structure import Block

CONSTANT = 1e-9  # spread of a latent, relative to its size, below which it is constant
N_ROTATIONS = 5  # random rotations whose agreement is averaged for a level of chance
HALVES = "fits to two halves of the samples"  # name of the comparison between fits that share no samples
AGREED, AGREED_BY_HALVES = 0.9, 0.8  # least agreement of fits to the same samples, and to half as many
SAME_DIRECTION = 0.95  # correlation from which on two sets of latents share a direction
MOST_SHOWN = 24  # latents in a picture of a matching


def bounded(value: float, unit: str = "") -> str:
    """Return a score as it is printed; one without a unit that is far below 0 only as such."""
    return "below -1" if value < -1 and not unit else printed(value)


@dataclass(frozen=True)
class Agreement:
    """How well the latents of independent fits match, pair by pair."""

    between: str  # which fits were compared
    metric: str  # the score; it ignores what the theorem leaves open
    values: tuple[float, ...]  # one for each pair, the lower of both directions
    chance: float  # the score of latents that need not agree; see the metric
    shuffled: float | None = None  # the score of a fit to shuffled side information

    @property
    def worst(self) -> float:
        """The lowest of the values."""
        return min(self.values)

    @property
    def threshold(self) -> float:
        """The least agreement of these fits for a claim."""
        return AGREED_BY_HALVES if self.between == HALVES else AGREED

    @property
    def enough(self) -> bool:
        """Whether these fits agree well enough for a claim."""
        return self.worst >= self.threshold

    def __str__(self) -> str:
        null = "" if self.shuffled is None else f", fit to shuffled data {bounded(self.shuffled)}"
        return f"{self.between}: {self.metric} at least {bounded(self.worst)} (chance {printed(self.chance)}{null})"


@dataclass(frozen=True)
class Measure:
    """A score of two sets of latents (n, d) of the same samples, and its level at chance."""

    name: str
    compare: Callable[[Matrix, Matrix], float]
    chance: Callable[[Matrix], float] = lambda latents: 0.0
    in_order: bool = False  # whether latents must be brought into a common order first
    of_latents: bool = True  # of which a constant one agrees with nothing

    def __call__(self, first: Matrix, second: Matrix) -> float:
        """Return the lower of both directions; 0 if a latent is constant, since it agrees with nothing."""
        if self.of_latents and (_has_constant(first) or _has_constant(second)):
            return 0.0
        return min(self.compare(first, second), self.compare(second, first))


def measure_for(
    free: Indeterminacy, levels: NDArray[np.generic] | None = None, blocks: Sequence[Block] | None = None
) -> Measure:
    """Return the score that ignores exactly what is free; per level of a nuisance, or per block, if the freedom is.

    Examples
    --------
    >>> [measure_for(free).name for free in (theory.SIGNED_PERMUTATION, theory.ORTHOGONAL, theory.LINEAR)]
    ['MCC', 'R² after a rotation', 'R² after a linear map']
    """
    if not free.allows:
        return Measure("R²", _plain_r2, of_latents=False)
    if free.within(theory.SCALED_PERMUTATION):
        return Measure("MCC", metrics.mcc, _chance_mcc)
    if free.within(theory.ORTHOGONAL):
        rotated = "R² after a rotation"
        return Measure(rotated, lambda a, b: metrics.procrustes(a, b).r2, lambda z: metrics.chance_procrustes(*z.shape))
    if free.within(theory.AFFINE):
        linear = "R² after a linear map"
        return Measure(linear, metrics.linear_r2, lambda z: metrics.chance_linear_r2(*z.shape))
    smooth = "R² after a smooth map"
    if Freedom.PER_LEVEL in free.allows and levels is not None:
        return Measure(f"{smooth} per level", lambda a, b: _by_level(a, b, levels))
    if free == theory.BLOCKWISE and blocks is not None:
        by_block = partial(_by_block, blocks=blocks)
        return Measure(f"{smooth} per block", by_block, partial(_rotated, blocks=blocks), in_order=True)
    if free.within(theory.ELEMENTWISE):
        by_rank = partial(metrics.mcc, method="spearman")
        return Measure("MCC of ranks", by_rank, partial(_chance_mcc, method="spearman"))
    return Measure(smooth, _by_level)


def _plain_r2(first: Matrix, second: Matrix) -> float:
    spread = max(float(((second - second.mean(0)) ** 2).sum()), 1e-300)
    return 1 - float(((first - second) ** 2).sum()) / spread


def _chance_mcc(latents: Matrix, method: Literal["pearson", "spearman"] = "pearson") -> float:
    """Return the MCC of a random rotation; of a single latent, which has none, that of unrelated samples."""
    n, d = latents.shape
    return math.sqrt(2 / (math.pi * max(n // 2, 1))) if d == 1 else metrics.chance_mcc(d, method=method)


def _by_level(first: Matrix, second: Matrix, levels: NDArray[np.generic] | None = None) -> float:
    """Return the mean R² over levels with enough samples, weighted by their number; by default there is one level."""
    levels = np.zeros(len(first), dtype=np.int64) if levels is None else levels
    found, number, counts = np.unique(levels, return_inverse=True, return_counts=True)
    usable = counts >= MIN_SAMPLES_PER_LEVEL
    rows = usable[number.reshape(-1)]
    scores = metrics.recovery_by_level(first[rows], second[rows], levels[rows])
    return float(np.average([scores[level] for level in found[usable].tolist()], weights=counts[usable]))


def _by_block(first: Matrix, second: Matrix, blocks: Sequence[Block]) -> float:
    """Return the mean over latents of the R² between their block in both fits."""
    members = [sorted(block.latents) for block in blocks]
    scores = [_by_level(first[:, some], second[:, some]) for some in members]
    return float(np.average(scores, weights=[*map(len, members)]))


def _rotated(latents: Matrix, blocks: Sequence[Block]) -> float:
    """Return the agreement of latents with random rotations of themselves; 0 for one block, which may be rotated."""
    d = latents.shape[1]
    if len(blocks) == 1:
        return 0.0
    white = standardise(latents)
    rotations = special_ortho_group.rvs(d, size=N_ROTATIONS, random_state=0).reshape(N_ROTATIONS, d, d)
    return float(np.mean([_by_block(matched_order(white, white @ each), white, blocks) for each in rotations]))


def matched_order(latents: Matrix, others: Matrix) -> Matrix:
    """Return another fit's latents in the order in which their ranks match those of a fit best."""
    if _has_constant(latents) or _has_constant(others):
        return others
    return others[:, metrics.match_latents(others, latents, method="spearman")]


def _has_constant(latents: Matrix) -> bool:
    return bool((latents.std(0) <= CONSTANT * max(np.abs(latents).max(), CONSTANT)).any())


class LatentSets(NamedTuple):
    """Latents, or what is compared in their place: of a fit, of refits, of fits to halves and to shuffled data."""

    fit: Matrix
    others: tuple[Matrix, ...]
    halves: tuple[Matrix, ...]
    null: Matrix | None = None

    @classmethod
    def of(cls, fit: Estimator, refits: Refits, what: Callable[[Estimator], Matrix]) -> LatentSets:
        """Compute the same for all fits."""
        others, halves = (tuple(map(what, fits)) for fits in (refits.others, refits.halves))
        return cls(what(fit), others, halves, None if refits.null is None else what(refits.null))

    @property
    def n_columns(self) -> int:
        """Columns that all have."""
        every = (self.fit, *self.others, *self.halves, self.fit if self.null is None else self.null)
        return min(each.shape[1] for each in every)

    def first(self, k: int) -> LatentSets:
        """Return the first columns alone."""
        others, halves = (tuple(each[:, :k] for each in fits) for fits in (self.others, self.halves))
        return LatentSets(self.fit[:, :k], others, halves, None if self.null is None else self.null[:, :k])


def agreements(measure: Measure, compared: LatentSets) -> tuple[Agreement, ...]:
    """Compare a fit with refits, these with each other, and fits to halves."""
    fit, others, halves, null = compared
    pairs = [("your fit and refits", [(fit, other) for other in others])]
    pairs += [("refits with other seeds", list(combinations(others, 2))), (HALVES, [(halves[0], halves[1])])]
    chance = measure.chance(fit)
    shuffled = None if null is None else max(measure(null, other) for other in others)
    return tuple(
        Agreement(name, measure.name, tuple(measure(a, b) for a, b in both), chance, shuffled) for name, both in pairs
    )


# ---- directions that two sets of latents share ----------------------------------------------------------------------


def n_shared_directions(first: Matrix, second: Matrix) -> int:
    """Count the directions that two sets of latents have in common, found in half of the samples."""
    return int((_shared_correlations(*_along_canonical(first, second)) >= SAME_DIRECTION).sum())


def _shared_correlations(a: Matrix, b: Matrix) -> Matrix:
    """Return correlations of columns, at least 0."""
    size = np.maximum(a.std(0) * b.std(0), 1e-300)
    return np.clip(((a - a.mean(0)) * (b - b.mean(0))).mean(0) / size, 0, 1)


def _along_canonical(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Return half of the samples along directions that correlate most in the other half; (n / 2, k) each."""
    half = np.zeros(len(first), dtype=bool)
    half[np.random.default_rng(0).permutation(len(first))[: len(first) // 2]] = True
    u, v = canonical(first[half], second[half])
    return first[~half] @ u, second[~half] @ v


def canonical(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """Return the directions of two sets of latents that correlate most, of unit variance; (d, k) each."""
    centred = [latents - latents.mean(0) for latents in (first, second)]
    maps = [whitening(latents) for latents in centred]
    u, _, vt = np.linalg.svd((centred[0] @ maps[0]).T @ (centred[1] @ maps[1]))
    k = min(len(u), len(vt))
    return maps[0] @ u[:, :k], maps[1] @ vt[:k].T


def matching(first: Matrix, second: Matrix) -> Matrix:
    """Return absolute correlations of latents with those of another fit, in the order that matches them best."""
    correlation = np.abs(correlations(first, second))
    matched = best_matching(correlation.T)
    order = np.concatenate([matched[matched >= 0], np.setdiff1d(np.arange(correlation.shape[1]), matched)])
    return correlation[:MOST_SHOWN, order[:MOST_SHOWN]]


# ---- the block that positives share ---------------------------------------------------------------------------------

SHARED = 0.5  # relative squared correlation of positives along a shared direction; and what must be new in it
POWER = 0.02  # what a correlation may exceed the square of the largest by, along a power of other directions
N_SHUFFLES = 20  # times that positives are exchanged to see what unrelated samples share


@dataclass(frozen=True)
class SharedBlock:
    """A block of directions of the latents that positives share; they share nothing along the others."""

    n_shared: int
    n_latents: int
    least: float  # correlation between positives inside the block
    most_left: float  # the same outside
    negatives: float  # the largest correlation between unrelated samples

    def __str__(self) -> str:
        return (
            f"positives share {self.n_shared} of {counted(self.n_latents, 'direction')} of the latents: they correlate "
            f"by at least {printed(self.least)} along these, by at most {printed(self.most_left)} along the others, "
            f"which the block mostly predicts, and negatives by at most {printed(self.negatives)}"
        )

    @property
    def rest(self) -> str:
        """What is not recovered."""
        left = self.n_latents - self.n_shared
        return f"the other {counted(left, 'direction')} of the latents {'is' if left == 1 else 'are'} not recovered"

    def part(self, latents: Matrix, anchors: Matrix, positives: Matrix) -> Matrix:
        """Return the block of a fit's latents, whose directions show in latents of positives; (n, n_shared)."""
        return (latents - anchors.mean(0)) @ canonical(anchors, positives)[0][:, : self.n_shared]


def shared_block(pairs: Sequence[tuple[Matrix, Matrix]], rng: np.random.Generator) -> SharedBlock | None:
    """Count the directions that positives share, in the latents of anchors and positives by each refit.

    Return None if they share all, if they share none for sure, or if refits differ in the number.
    """
    found = [_counted(anchors, positives, rng) for anchors, positives in pairs]
    least = min(found, key=lambda block: block.least - block.negatives)
    if least.n_shared == least.n_latents or least.least <= least.negatives:
        return None
    return least if len({block.n_shared for block in found}) == 1 else None


def _counted(anchors: Matrix, positives: Matrix, rng: np.random.Generator) -> SharedBlock:
    along, others = _along_canonical(anchors, positives)
    together = _shared_correlations(along, others)
    orders = (rng.permutation(len(positives)) for _ in range(N_SHUFFLES))
    negatives = max(float(_shared_correlations(*_along_canonical(anchors, positives[order])).max()) for order in orders)
    k = next((j for j in range(1, len(together)) if not _is_new(j, together, along)), len(together))
    return SharedBlock(k, len(together), float(together[:k].min()), float(together[k:].max(initial=0.0)), negatives)


def _is_new(j: int, together: Matrix, along: Matrix) -> bool:
    """Return whether positives share direction j, and it is no function of those before it, such as a square."""
    most = together[0]
    if most == 0 or together[j] ** 2 < SHARED * most**2:
        return False
    if together[j] > most**2 + POWER:  # squares and products of what correlates by ρ correlate by ρ² at most
        return True
    explained = held_out_r2(along[:, :j], along[:, j : j + 1], np.random.default_rng(0)).value
    return bool(together[j] / most - max(explained, 0.0) >= SHARED)
