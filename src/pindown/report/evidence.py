"""What refits show on rows they have not seen: scores beside what chance would score, and controls that must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown import metrics
from pindown.checks.assembled import partners_of
from pindown.estimators import Classify, Contrast, Dictionary, Forget
from pindown.estimators.base import BaseEncoder
from pindown.metrics import PROBES, Leakage, inject_leak, leakage
from pindown.report.refits import MIN_ROWS_OF_VALUE, Data, Refits, exchange

Matrix = NDArray[np.float64]

N_PERMUTATIONS = 999
PAIRED_ROWS = 1_000
"""Held-out pairs that are compared with each other."""

MIN_PAIRS = 50
"""Groups from which on one pair of each is enough."""

LEVEL, CONTROL_LEVEL = 0.01, 1 / (1 + N_PERMUTATIONS)
"""p-values up to which chance is ruled out: for a score, and for a control, of which each is a chance to fail."""

REBUILT_MORE = 0.5
"""Share of what permuted columns leave unexplained that a dictionary must explain."""

LEAK_SHARE = 0.1
"""Variance of one direction of the codes that a leak is given which the probes must find."""

QUICK = tuple(probe for probe in PROBES if probe.name in ("linear", "quadratic"))
"""Probes for what is told loudly, such as a nuisance in X."""


@dataclass(frozen=True)
class Score:
    """A number measured on held-out rows, what chance would score, and how likely chance is to score as much.

    ``p_value`` is exact, by permutation; None where there is no such test. The least of the refits counts. What a
    nuisance can be told by is a ``leak``: there, less is better.
    """

    name: str
    value: float
    chance: float
    p_value: float | None = None
    unit: str = ""
    leak: bool = False

    @property
    def good(self) -> bool:
        """Whether it beats chance; a leak, whether it does not."""
        beats = self.value > self.chance and (self.p_value is None or self.p_value <= LEVEL)
        return beats != self.leak

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        return f"{self.name}: {self.value:.3f}{self.unit and ' ' + self.unit} (chance {self.chance:.3f}{p})"


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
class Evidence:
    """Scores, controls, leakage where there is a nuisance; and why nothing was learned, if so."""

    scores: tuple[Score, ...]
    controls: tuple[Control, ...]
    learned_nothing: tuple[str, ...]
    leakage: Leakage | None = None


def evidence(refits: Refits, rng: np.random.Generator) -> Evidence:
    """Measure what the refits show."""
    match refits.others[0]:
        case Contrast():
            return _with_side_information(refits, _partner_test, rng)
        case Classify():
            test = _partner_test if refits.held_out.paired else _label_test
            return _with_side_information(refits, test, rng)
        case Forget():
            return _of_forgetting(refits, rng)
        case _:
            return _of_rebuilding(refits, rng)


# ---- signal: pairs and labels ---------------------------------------------------------------------------------------

Test = Callable[[BaseEncoder, Data, np.random.Generator], Score]


def _with_side_information(refits: Refits, test: Test, rng: np.random.Generator) -> Evidence:
    held_out, null = refits.held_out, refits.null
    assert null is not None
    score = min((test(fit, held_out, rng) for fit in refits.others), key=lambda score: score.value)
    found = test(null, held_out.shuffled(rng), rng)
    torn = test(refits.others[0], held_out.torn(rng), rng)
    controls = (
        _must_find_nothing("shuffled side information", "a fit to it does not beat chance.", found),
        _must_find_nothing("permuted X", "with each column permuted on its own the score is chance.", torn),
    )
    why = []
    if not score.good:
        why.append(f"the fit learned nothing that shows on held-out rows ({score})")
    elif score.value <= found.value:
        why.append(f"a fit to shuffled side information scores as much ({found.value:.3f})")
    more = (_information(refits),) if isinstance(refits.others[0], Contrast) else ()
    return Evidence((score, *more), controls, tuple(why))


def _must_find_nothing(name: str, expected: str, score: Score) -> Control:
    passed = score.p_value is None or score.p_value > CONTROL_LEVEL
    return Control(name, expected, f"{score}.", passed)


def _partner_test(fit: BaseEncoder, data: Data, rng: np.random.Generator) -> Score:
    """Is a partner nearer than a stranger? Chance is one half."""
    anchors, partners = _one_pair_each(data)
    some = rng.permutation(len(anchors))[:PAIRED_ROWS]
    a, b = (
        np.asarray(fit.transform(rows[some].astype(data.X.dtype)), dtype=np.float64) for rows in (anchors, partners)
    )
    rank = _ranks(-_distances(a, b, getattr(fit, "p", 2)))
    return _permutation_score("a partner is nearer than a stranger", rank, rng)


def _one_pair_each(data: Data) -> tuple[Matrix, Matrix]:
    """Return pairs of rows; where many small groups hold the partners, one pair of each, so that pairs share no row."""
    anchors, partners = partners_of(data.X.astype(np.float64), data.side)
    if data.side is None or data.side.ndim > 1:
        return anchors, partners
    _, group, count = np.unique(data.side, return_inverse=True, return_counts=True)
    of_anchor = np.sort(group.reshape(-1))  # partners_of has rows of one group together, and none that are alone
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


def _permutation_score(name: str, worth: Matrix, rng: np.random.Generator) -> Score:
    """Compare the mean of worth[i, i] with that of worth[i, π(i)] for random permutations π."""
    n = len(worth)
    permuted = np.array([worth[np.arange(n), rng.permutation(n)].mean() for _ in range(N_PERMUTATIONS)])
    value = float(np.trace(worth) / n)
    p_value = (1 + (permuted >= value).sum()) / (1 + N_PERMUTATIONS)
    return Score(name, value, float(permuted.mean()), float(p_value))


def _label_test(fit: BaseEncoder, data: Data, rng: np.random.Generator) -> Score:
    """How often is the class of a row recognised? Chance is how often that of another row is."""
    assert isinstance(fit, Classify)
    assert data.side is not None
    said, true = fit.predict(data.X), data.side
    permuted = np.array(
        [(said == true[exchange(true, data.units, rng)]).mean() for _ in range(N_PERMUTATIONS)], dtype=np.float64
    )
    value = float((said == true).mean())
    p_value = (1 + (permuted >= value - 1e-12).sum()) / (1 + N_PERMUTATIONS)
    return Score("class recognised", value, float(permuted.mean()), float(p_value))


def _information(refits: Refits) -> Score:
    data = refits.held_out
    found = min(fit.score(data.X, data.side) for fit in refits.others if isinstance(fit, Contrast))
    return Score("information between partners", found, 0.0, unit="nats")


# ---- a nuisance -----------------------------------------------------------------------------------------------------


def _of_forgetting(refits: Refits, rng: np.random.Generator) -> Evidence:
    fit, data = refits.others[0], refits.held_out
    assert isinstance(fit, Forget)
    seed = int(rng.integers(2**31))
    codes = fit.transform(data.X)

    def read(code: NDArray[Any], label: NDArray[Any], **effort: Any) -> Leakage:
        return leakage(code, label, groups=data.units, given=data.given, continuous=False, random_state=seed, **effort)

    quick = {"probes": QUICK, "n_seeds": 1, "n_permutations": N_PERMUTATIONS}
    of_x, of_codes = read(data.X, data.strata, **quick), read(codes, data.strata, n_seeds=1)
    silent = read(codes, data.strata[exchange(data.strata, data.units, rng)], **quick)
    loud = read(inject_leak(codes, data.strata, LEAK_SHARE, random_state=seed), data.strata, **quick)
    scores = (
        Score("nuisance told by the codes", of_codes.worst, of_codes.chance, of_codes.p_value, leak=True),
        Score("nuisance told by X", of_x.worst, of_x.chance, of_x.p_value),
        _rebuilt_beside(fit, data),
    )
    controls = (
        Control(
            "shuffled nuisance", "probes read nothing.", f"p = {silent.p_value:.2g}.", silent.p_value > CONTROL_LEVEL
        ),
        Control(
            f"a leak of {LEAK_SHARE:.0%} put into the codes",
            "probes find it.",
            f"p = {loud.p_value:.2g}.",
            loud.p_value <= LEVEL * 5,
        ),
    )
    why = []
    if of_x.p_value > LEVEL:
        why.append("X does not tell the nuisance, so that there was nothing to forget")
    elif of_codes.excess >= of_x.excess:
        why.append("the codes tell the nuisance as well as X does")
    if of_codes.collapsed:
        why.append("the codes have collapsed, and a constant is blind to everything")
    return Evidence(scores, controls, tuple(why), of_codes)


def what_leaks(found: Leakage) -> str:
    """Return in a sentence how far the best reader of a nuisance gets; whether that is too far the verdicts say."""
    if found.collapsed:
        return found.verdict
    return (
        f"The best reader, {found.worst_probe}, gets {found.excess:.1%} of the way from chance to certainty "
        f"(p = {found.p_value:.2g} for none); the best bound is {found.bits:.3f} bits."
    )


def _rebuilt_beside(fit: Forget, data: Data) -> Score:
    """Return R² of observations rebuilt from codes and nuisance; chance is what the nuisance alone tells."""
    codes = fit.transform(data.X)
    rebuilt = fit.inverse_transform(codes, data.side)
    guess = fit.inverse_transform(np.broadcast_to(codes.mean(0), codes.shape).copy(), data.side)
    return Score("X rebuilt from codes and nuisance (R²)", _r2(data.X, rebuilt), _r2(data.X, guess))


def _r2(x: NDArray[Any], rebuilt: NDArray[Any]) -> float:
    """Return the share of variance that is rebuilt, columns in standard units."""
    spread = np.maximum(x.std(0), 1e-12 * max(float(np.abs(x).max()), 1e-300))
    return float(1 - np.mean(((x - rebuilt) / spread) ** 2))


# ---- nothing but observations ---------------------------------------------------------------------------------------


def _of_rebuilding(refits: Refits, rng: np.random.Generator) -> Evidence:
    data, null = refits.held_out, refits.null
    torn = data.torn(rng)
    chance = _rebuilt(null, torn)
    value = min(_rebuilt(fit, data) for fit in refits.others)
    elsewhere = _rebuilt(refits.others[0], torn)
    bounds = min(fit.score(data.X) for fit in refits.others if isinstance(fit, Dictionary))
    assert isinstance(null, Dictionary)
    scores = (
        Score("X rebuilt from the codes (R²)", value, chance),
        Score("evidence lower bound", bounds, null.score(torn.X), unit="nats per row"),
    )
    controls = (
        Control(
            "permuted X",
            "what was learned does not hold for columns that were permuted, each on its own.",
            f"R² {elsewhere:.3f}.",
            elsewhere <= chance + REBUILT_MORE * (1 - chance),
        ),
    )
    gain = (value - chance) / max(1 - chance, 1e-12)
    why = () if gain >= REBUILT_MORE else (f"columns that were permuted are rebuilt about as well ({scores[0]})",)
    return Evidence(scores, controls, why)


def _rebuilt(fit: Any, data: Data) -> float:
    return _r2(data.X, fit.inverse_transform(fit.transform(data.X)))


def recovery(fit: BaseEncoder, data: Data) -> tuple[Score, ...]:
    """Compare codes of held-out rows with the truth, where it is known."""
    if data.truth is None:
        return ()
    codes, truth = np.asarray(fit.transform(data.X), dtype=np.float64), data.truth
    chance = metrics.chance_linear_r2(len(codes), codes.shape[1])
    scores = [Score("latents by a linear map of the codes (R²)", metrics.linear_r2(codes, truth), chance)]
    if isinstance(fit, Forget):
        common = (np.bincount(data.strata) >= MIN_ROWS_OF_VALUE)[data.strata]
        by_value = metrics.recovery_by_value(codes[common], truth[common], data.strata[common])
        scores.append(Score("latents within each value, the least (R²)", min(by_value.values()), 0.0))
    elif (codes.std(0) > 0).all():
        level = metrics.chance_mcc(truth.shape[1], codes.shape[1])
        scores.append(Score("latents matched one to one (MCC)", metrics.mcc(codes, truth), level))
    return tuple(scores)
