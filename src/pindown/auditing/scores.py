"""What refits show on rows they have not seen: scores beside what chance would score, and controls that must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pindown import metrics
from pindown._names import printed
from pindown.auditing.agreement import SharedBlock, encoded_pairs
from pindown.auditing.checks.arrays import paired_samples
from pindown.auditing.checks.noise import LINEAR as BY_A_LINEAR_MAP
from pindown.auditing.checks.noise import MATCHED, WITHIN
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.refits import MIN_SAMPLES_OF_LEVEL, Refits, Samples, exchange
from pindown.data.data import as_array
from pindown.data.labels import as_numbers, combined, is_quantity
from pindown.metrics import Leakage

Matrix = NDArray[np.float64]

N_PERMUTATIONS = 999
PAIRED_ROWS = 1_000
"""Held-out pairs that are compared with each other."""

MIN_PAIRS = 50
"""Groups from which on one pair of each is enough."""

LEVEL, CONTROL_LEVEL = 0.01, 1 / (1 + N_PERMUTATIONS)
"""p-values up to which chance is ruled out: for a score, and for a control, of which each is a chance to fail."""


@dataclass(frozen=True)
class Score:
    """A number measured on held-out rows, what chance would score, and how likely chance is to score as much.

    ``p_value`` is exact, by permutation; None where there is no such test. The least of the refits counts. What a
    nuisance can be told by is a ``leak``: there, less is better, and what may be told is its ``floor``.
    """

    name: str
    value: float
    chance: float
    p_value: float | None = None
    unit: str = ""
    leak: bool = False
    floor: float | None = None

    @property
    def good(self) -> bool:
        """Whether it beats chance, and its floor; a leak, whether it does not."""
        ground = self.chance if self.floor is None else max(self.chance, self.floor)
        beats = self.value > ground and (self.p_value is None or self.p_value <= LEVEL)
        return beats != self.leak

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        floor = "" if self.floor is None else f", floor {printed(self.floor)}"
        value = f"{printed(self.value)}{self.unit and ' ' + self.unit}"
        return f"{self.name}: {value} (chance {printed(self.chance)}{floor}{p})"


class HeldOutScore(Protocol):
    """The score that a fit has on its own validation set."""

    @property
    def name(self) -> str:
        """What is measured."""

    @property
    def score(self) -> float:
        """The score on the validation set."""

    @property
    def chance(self) -> float | None:
        """The score at chance, if it is known."""

    @property
    def rows(self) -> str:
        """Which samples these are."""


@dataclass(frozen=True)
class Control:
    """A trial whose outcome is known beforehand: where nothing is to be found nothing must be, and a leak must be."""

    name: str
    expected: str
    found: str
    passed: bool

    def __str__(self) -> str:
        return f"{'passed' if self.passed else 'FAILED'}     {self.name}: {self.found} Expected: {self.expected}"


@dataclass(frozen=True, eq=False)
class Strip:
    """Pictures side by side, bytes (height, width, 3), and what they show."""

    picture: NDArray[np.uint8]
    caption: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores, controls, why nothing was learned, if so; leakage where there is a nuisance, verdicts on all this.

    ``block`` is the part of the latents that positives share, where that is not all of them. ``strips`` go to the page.
    """

    scores: tuple[Score, ...]
    controls: tuple[Control, ...]
    learned_nothing: tuple[str, ...]
    leakage: Leakage | None = None
    verdicts: tuple[Verdict, ...] = ()
    block: SharedBlock | None = None
    strips: tuple[Strip, ...] = ()


Test = Callable[[Any, Samples, np.random.Generator], Score]
"""Says how well a fit does on rows, beside what chance would."""


def side_information_evidence(refits: Refits, test: Test, rng: np.random.Generator, *more: Score) -> Evidence:
    """Test refits, one to shuffled side information, and one on rows that tell nothing; ``more`` stands beside."""
    held_out = refits.held_out
    score = min((test(fit, held_out, rng) for fit in refits.others), key=lambda score: score.value)
    found = test(refits.null, held_out.shuffled(rng), rng)
    permuted = test(refits.others[0], held_out.with_permuted_columns(rng), rng)
    controls = (
        _must_find_nothing("shuffled side information", "a fit to it does not beat chance.", found),
        _must_find_nothing("permuted X", "with each column permuted on its own the score is chance.", permuted),
    )
    why = []
    if not score.good:
        why.append(f"the fit learned nothing that shows on held-out rows ({score})")
    elif score.value <= found.value:
        why.append(f"a fit to shuffled side information scores as much ({printed(found.value)})")
    return Evidence((score, *more), controls, tuple(why))


def _must_find_nothing(name: str, expected: str, score: Score) -> Control:
    passed = score.p_value is None or score.p_value > CONTROL_LEVEL
    return Control(name, expected, f"{score}.", passed)


# ---- partners -------------------------------------------------------------------------------------------------------


def pair_test(fit: Any, rows: Samples, rng: np.random.Generator) -> Score:
    """Is a partner nearer than an unrelated row? Chance is one half.

    Beside a nuisance unrelated rows have the same value of it, so that to tell the nuisance is no help.
    """
    beside = rows.data.nuisance
    value = np.zeros(len(rows)) if beside is None else combined(*np.atleast_2d(beside.T)).astype(np.float64)
    anchors, partners = _one_pair_each(rows, value)
    some = rng.permutation(len(anchors))[:PAIRED_ROWS]
    a, b = encoded_pairs(fit, *(_as_rows(part[some, :-1], rows) for part in (anchors, partners)))
    among = [np.flatnonzero(anchors[some, -1] == v) for v in np.unique(anchors[some, -1])]
    ranks = [_ranks(-_distances(a[rows], b[rows], getattr(fit, "p", 2))) for rows in among if len(rows) > 1]
    return _permutation_score("a partner is nearer than an unrelated row", ranks, rng)


def held_out_pairs(rows: Samples) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows and their partners, as observations."""
    anchors, partners = _one_pair_each(rows, np.zeros(len(rows)))
    return _as_rows(anchors[:, :-1], rows), _as_rows(partners[:, :-1], rows)


def _as_rows(vectors: Matrix, like: Samples) -> NDArray[Any]:
    return vectors.reshape(-1, *like.X.shape[1:]).astype(like.X.dtype)


def _one_pair_each(rows: Samples, value: Matrix) -> tuple[Matrix, Matrix]:
    """Return pairs of rows, as vectors with a value at the end; where many small groups hold the partners, one of each.

    Then pairs share no row.
    """
    side = rows.side
    with_value = np.column_stack([rows.X.reshape(len(rows), -1).astype(np.float64), value])
    if side is not None and side.ndim > 1:
        side = np.column_stack([side.reshape(len(rows), -1).astype(np.float64), value])
    anchors, partners = paired_samples(with_value, side)
    if side is None or side.ndim > 1:
        return anchors, partners
    _, group, count = np.unique(side, return_inverse=True, return_counts=True)
    of_anchor = np.sort(group.reshape(-1))  # paired_samples has rows of one group together, and none that are alone
    first = np.unique(of_anchor[count[of_anchor] > 1], return_index=True)[1]
    return (anchors, partners) if len(first) < MIN_PAIRS else (anchors[first], partners[first])


def _distances(a: Matrix, b: Matrix, p: float) -> Matrix:
    return np.stack([(np.abs(row - b) ** p).sum(1) for row in a])


def _ranks(similarity: Matrix) -> Matrix:
    """Return for each row the share of its entries that are less than each, ties counted half."""
    n = similarity.shape[1]
    sorted_rows = np.sort(similarity, axis=1)
    low, high = (
        np.stack([np.searchsorted(row, values, side) for row, values in zip(sorted_rows, similarity, strict=True)])
        for side in ("left", "right")
    )
    return (low + high - 1) / 2 / max(n - 1, 1)


def _permutation_score(name: str, blocks: list[Matrix], rng: np.random.Generator) -> Score:
    """Compare the mean of worth[i, i] over blocks with that of worth[i, π(i)] for random permutations π of each."""
    n = sum(map(len, blocks))
    permuted = [
        sum(worth[np.arange(len(worth)), rng.permutation(len(worth))].sum() for worth in blocks) / n
        for _ in range(N_PERMUTATIONS)
    ]
    return permutation_score(name, float(sum(map(np.trace, blocks)) / n), np.array(permuted))


def permutation_score(name: str, value: float, permuted: Matrix) -> Score:
    """Return a score beside what permutations score: their mean is chance, and their share above it the p-value."""
    p_value = (1 + (permuted >= value - 1e-12).sum()) / (1 + len(permuted))
    return Score(name, value, float(permuted.mean()), float(p_value))


# ---- measurements, or labels, by a linear map -----------------------------------------------------------------------


def linear_test(fit: Any, rows: Samples, rng: np.random.Generator) -> Score:
    """How much of the variance of y does a linear map of the codes tell? Chance is what it tells of others' y."""
    assert rows.side is not None
    codes = np.asarray(fit.transform(rows.X), dtype=np.float64).reshape(len(rows), -1)
    frame, _ = np.linalg.qr(codes - codes.mean(0))
    told = measured(rows.side)
    told = told - told.mean(0)
    spread = max(float((told**2).sum()), 1e-300)
    orders = (exchange(rows.side, rows.units, rng) for _ in range(N_PERMUTATIONS))
    permuted = np.array([((frame.T @ told[order]) ** 2).sum() / spread for order in orders])
    return permutation_score(LINEAR, float(((frame.T @ told) ** 2).sum() / spread), permuted)


LINEAR = "y told by a linear map of the codes (R²)"


def measured(side: NDArray[Any]) -> Matrix:
    """Return measurements in standard units, or a label as zeros and ones; (n, k).

    Examples
    --------
    >>> measured(np.array(["a", "b", "a"])).tolist(), measured(np.array([0.5, 1.5])).tolist()
    ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[-1.0], [1.0]])
    """
    side = as_array(side)
    if side.ndim == 1 and not is_quantity(side):
        labels = as_numbers(side)
        return np.eye(labels.max() + 1)[labels]
    table = side.reshape(len(side), -1).astype(np.float64)
    spread = table.std(0)
    return (table - table.mean(0)) / np.where(spread > 0, spread, 1)


# ---- observations, rebuilt ------------------------------------------------------------------------------------------


def r2(x: NDArray[Any], rebuilt: NDArray[Any]) -> float:
    """Return the share of variance that is rebuilt, columns in standard units."""
    spread = np.maximum(x.std(0), 1e-12 * max(float(np.abs(x).max()), 1e-300))
    return float(1 - np.mean(((x - rebuilt) / spread) ** 2))


# ---- against the truth ----------------------------------------------------------------------------------------------


def recovery(codes: Matrix, rows: Samples) -> tuple[Score, ...]:
    """Compare codes of held-out rows with the truth, where it is known."""
    scores, truth = _by_a_linear_map(codes, rows), rows.data.truth
    if scores and (codes.std(0) > 0).all():
        level = metrics.chance_mcc(truth.shape[1], codes.shape[1])
        return (*scores, Score(MATCHED, metrics.mcc(codes, truth), level))
    return scores


def recovery_within_levels(codes: Matrix, rows: Samples) -> tuple[Score, ...]:
    """Compare codes of held-out rows with the truth, where it is known, within each stratum."""
    if not (scores := _by_a_linear_map(codes, rows)):
        return ()
    common = (np.bincount(rows.strata) >= MIN_SAMPLES_OF_LEVEL)[rows.strata]
    by_value = metrics.recovery_by_level(codes[common], rows.data.truth[common], rows.strata[common])
    return (*scores, Score(WITHIN, min(by_value.values()), 0.0))


def _by_a_linear_map(codes: Matrix, rows: Samples) -> tuple[Score, ...]:
    if rows.data.truth is None:
        return ()
    chance = metrics.chance_linear_r2(len(codes), codes.shape[1])
    told = metrics.linear_r2(codes, rows.data.truth)
    return (Score(BY_A_LINEAR_MAP, told, chance),)
