"""Evidence: scores of refits on held-out samples next to chance, and controls whose outcome is known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import norm, rankdata

from pindown import metrics
from pindown._names import printed
from pindown.auditing.agreement import SharedBlock, bounded
from pindown.auditing.checks.arrays import held_out_r2, paired_samples
from pindown.auditing.checks.noise import LINEAR as BY_A_LINEAR_MAP
from pindown.auditing.checks.noise import MATCHED, WITHIN
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.page import Drawing
from pindown.auditing.refits import Estimator, Refits, Samples, exchange, latent_matrix
from pindown.data.data import as_array
from pindown.data.labels import as_numbers, combined, is_quantity
from pindown.metrics import Leakage, inject_leak
from pindown.metrics.arrays import Matrix
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL

N_PERMUTATIONS = 999
MAX_PAIRS = 1_000  # held-out pairs that are compared with each other
MIN_PAIRS = 50  # groups from which on one pair of each is enough
MIN_RECONSTRUCTION_GAIN = 0.5  # fraction to explain of the variance that a fit to permuted features leaves
LEAK_FRACTION = 0.1  # variance of one direction of the latents that an added leak has, which probes must find
UNLIKELY = 0.5  # z-score up to which a score is no sign of an effect
LEVEL, CONTROL_LEVEL = 0.01, 1 / (1 + N_PERMUTATIONS)  # p-values that rule out chance: of a score, of a control


@dataclass(frozen=True)
class AuditScore:
    """A number measured on held-out samples, its level at chance, and the p-value of chance."""

    name: str
    value: float  # of the worst refit
    chance: float
    p_value: float | None = None  # exact, by permutation; None if there is no such test
    unit: str = ""
    leak: bool = False  # whether less is better: a nuisance should not be decodable
    floor: float | None = None  # of a leak: what latents score that are known to be free of the nuisance
    of: str = ""  # which fit the value is of
    kept: bool = False  # whether it says how much of X is kept
    yours: float | None = None  # the score of your own fit on the same samples, which it may have learned from

    @property
    def good(self) -> bool:
        """Whether it beats chance, and its floor; a leak, whether it does not."""
        ground = self.chance if self.floor is None else max(self.chance, self.floor)
        beats = self.value > ground and (self.p_value is None or self.p_value <= LEVEL)
        return beats != self.leak

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        floor = "" if self.floor is None else f", floor {printed(self.floor)}"
        value = f"{bounded(self.value, self.unit)}{self.unit and ' ' + self.unit}{self.of and ' in ' + self.of}"
        yours = "" if self.yours is None else f", your fit {bounded(self.yours, self.unit)}"
        return f"{self.name}: {value}{yours} (chance {bounded(self.chance, self.unit)}{floor}{p})"


@dataclass(frozen=True)
class Control:
    """A trial whose outcome is known: nothing must be found where nothing is, and an added leak must be found."""

    name: str
    expected: str
    found: str
    passed: bool

    def __str__(self) -> str:
        return f"{'passed' if self.passed else 'FAILED'}     {self.name}: {self.found} Expected: {self.expected}"


@dataclass(frozen=True)
class Objection:
    """A reason not to claim, and what would change it."""

    reason: str
    change: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores, controls, and the reasons to think that nothing was learned."""

    scores: tuple[AuditScore, ...]  # the first decides; if it is a leak, the second is that of the data
    controls: tuple[Control, ...]
    learned_nothing: tuple[Objection, ...] = ()
    leakage: Leakage | None = None  # of a nuisance
    verdicts: tuple[Verdict, ...] = ()  # on assumptions
    block: SharedBlock | None = None  # the part of the latents that positives share, if not all
    strips: tuple[Drawing, ...] = ()  # pictures for the page


Test = Callable[[Any, Samples, np.random.Generator], AuditScore]
"""Scores a fit on samples, next to chance."""

FindLeak = Callable[[Matrix, NDArray[np.int64]], Leakage]
"""Predicts levels of a nuisance from latents."""


def side_information_evidence(refits: Refits, test: Test, rng: np.random.Generator, *more: AuditScore) -> Evidence:
    """Test refits, a fit to shuffled side information, and a refit on permuted X; ``more`` are further scores."""
    held_out = refits.held_out
    worst = min((test(fit, held_out, rng) for fit in refits.others), key=lambda score: score.value)
    score = replace(worst, of="the worst refit", yours=test(refits.fit, held_out, np.random.default_rng(0)).value)
    found = test(refits.null, held_out.shuffled(rng), rng)
    permuted = test(refits.others[0], held_out.with_permuted_columns(rng), rng)
    controls = tuple(
        Control(name, expected, f"{null}.", null.p_value is None or null.p_value > CONTROL_LEVEL)
        for name, expected, null in (
            ("shuffled side information", "a fit to it does not beat chance.", found),
            ("permuted X", "if each feature is permuted on its own, the score is at chance.", permuted),
        )
    )
    why = []
    if not score.good:
        reason = f"the fit learned nothing that shows on held-out samples ({score})"
        why.append(Objection(reason, samples_for(score, len(held_out))))
    elif score.value <= found.value:
        reason = f"a fit to shuffled side information scores as high ({printed(found.value)})"
        why.append(Objection(reason, "Give features that have to do with the side information."))
    return Evidence((score, *more), controls, tuple(why))


def samples_for(score: AuditScore, n_held_out: int) -> str:
    """Say how many held-out samples would show a score of this size, since its z-score grows with their root.

    Examples
    --------
    >>> samples_for(AuditScore("class accuracy", 0.55, 0.5, p_value=0.1), 100)
    'An effect of this size would show with about 3.3 times as many samples.'
    """
    z = norm.isf(1.0 if score.p_value is None else score.p_value)
    if z <= UNLIKELY:
        return "Check that samples and side information are in the same order, or give other features."
    return f"An effect of this size would show with about {(norm.isf(LEVEL) / z) ** 2:.1f} times as many samples."


def leak_score(name: str, found: Leakage, yours: Leakage | None = None) -> AuditScore:
    """Return the accuracy of the strongest probe of a nuisance; lower is better."""
    own = None if yours is None else yours.worst
    return AuditScore(
        name, found.worst, found.chance, found.p_value, leak=True, floor=found.floor, of="a refit", yours=own
    )


def leak_controls(
    nuisance: str, probe: FindLeak, latents: Matrix, held_out: Samples, rng: np.random.Generator, seed: int
) -> tuple[Control, Control]:
    """Return two controls: probes find nothing of a shuffled nuisance, and find a leak that is added to the latents."""
    levels, added = held_out.strata, f"a leak of {LEAK_FRACTION:.0%} added to the latents"
    shuffled = probe(latents, levels[exchange(levels, held_out.units, rng)]).p_value
    leaky = probe(inject_leak(latents, levels, LEAK_FRACTION, random_state=seed), levels).p_value
    return (
        Control(f"shuffled {nuisance}", "no probe finds anything.", f"p = {shuffled:.2g}.", shuffled > CONTROL_LEVEL),
        Control(added, "probes find it.", f"p = {leaky:.2g}.", leaky <= LEVEL * 5),
    )


def reconstruction_evidence(refits: Refits, permuted: Samples, *more: AuditScore) -> Evidence:
    """Compare how much of X the latents explain with how much they explain of features permuted independently."""
    chance = _reconstructed(refits.null, permuted)
    value = min(_reconstructed(fit, refits.held_out) for fit in refits.others)
    elsewhere = _reconstructed(refits.others[0], permuted)
    yours = _reconstructed(refits.fit, refits.held_out)
    score = AuditScore(
        "X reconstructed from the latents (R²)", value, chance, of="the worst refit", kept=True, yours=yours
    )
    control = Control(
        "permuted X",
        "what was learned does not hold if each feature is permuted on its own.",
        f"R² {elsewhere:.3f}.",
        elsewhere <= chance + MIN_RECONSTRUCTION_GAIN * (1 - chance),
    )
    gain = (value - chance) / max(1 - refits.noise_fraction - chance, 1e-12)  # noise cannot be reconstructed
    enough = gain >= MIN_RECONSTRUCTION_GAIN
    needed = f"{MIN_RECONSTRUCTION_GAIN:.0%} are needed; {score}"
    reason = f"only {max(gain, 0):.0%} of what a fit to permuted features leaves is reconstructed ({needed})"
    why = () if enough else (Objection(reason, "Give features that depend on each other."),)
    return Evidence((score, *more), (control,), why)


def _reconstructed(fit: Estimator, samples: Samples) -> float:
    latents = latent_matrix(fit, samples.data)
    if hasattr(fit, "inverse_transform"):
        return r2(samples.X, fit.inverse_transform(latents))
    target = samples.X.reshape(len(samples), -1).astype(np.float64)
    return held_out_r2(latents, target, np.random.default_rng(0)).value


def r2(x: np.ndarray, reconstructed: np.ndarray) -> float:
    """Return the fraction of the variance of standardised features that is reconstructed."""
    spread = np.maximum(x.std(0), 1e-12 * max(float(np.abs(x).max()), 1e-300))
    return float(1 - np.mean(((x - reconstructed) / spread) ** 2))


# ---- positive pairs -------------------------------------------------------------------------------------------------


def pair_test(fit: Estimator, samples: Samples, rng: np.random.Generator) -> AuditScore:
    """Score how often a positive is nearer than a negative; chance is one half.

    Negatives have the same level of a nuisance, if there is one, so that the nuisance itself is no help.
    """
    anchors, positives = _one_pair_each(samples)
    some = rng.permutation(len(anchors))[:MAX_PAIRS]
    level = anchors[some, -1]
    a, b = _encoded(fit, samples, anchors[some], positives[some])
    within = [np.flatnonzero(level == each) for each in np.unique(level)]
    distances = [cdist(a[rows], b[rows], "minkowski", p=getattr(fit, "p", 2)) for rows in within if len(rows) > 1]
    # The fraction of positives of others that are further away, ties counted half.
    ranks = [(rankdata(-each, axis=1) - 1) / (len(each) - 1) for each in distances]
    n = sum(map(len, ranks))
    permuted = [
        sum(block[np.arange(len(block)), rng.permutation(len(block))].sum() for block in ranks) / n
        for _ in range(N_PERMUTATIONS)
    ]
    value = float(sum(map(np.trace, ranks)) / n)
    return permutation_score("positives nearer than negatives (AUC)", value, np.array(permuted))


def encoded_pairs(fit: Estimator, samples: Samples) -> tuple[Matrix, Matrix]:
    """Return latents of samples, and of a positive of each."""
    return _encoded(fit, samples, *_one_pair_each(samples))


def _encoded(fit: Estimator, samples: Samples, anchors: Matrix, positives: Matrix) -> tuple[Matrix, Matrix]:
    shape, dtype = (-1, *samples.X.shape[1:]), samples.X.dtype
    first, second = (
        np.asarray(fit.transform(part[:, :-1].reshape(shape).astype(dtype)), dtype=np.float64)
        for part in (anchors, positives)
    )
    return first, second


def _one_pair_each(samples: Samples) -> tuple[Matrix, Matrix]:
    """Return pairs as vectors with the level of a nuisance at the end; of many small groups one pair of each."""
    side, nuisance = samples.side, samples.data.nuisance
    level = np.zeros(len(samples)) if nuisance is None else combined(*np.atleast_2d(nuisance.T)).astype(np.float64)
    with_level = np.column_stack([samples.X.reshape(len(samples), -1).astype(np.float64), level])
    if side is not None and side.ndim > 1:
        side = np.column_stack([side.reshape(len(samples), -1).astype(np.float64), level])
    anchors, positives = paired_samples(with_level, side)
    if side is None or side.ndim > 1:
        return anchors, positives
    _, group, count = np.unique(side, return_inverse=True, return_counts=True)
    of_anchor = np.sort(group.reshape(-1))  # paired_samples has samples of one group together, and none that are alone
    first = np.unique(of_anchor[count[of_anchor] > 1], return_index=True)[1]
    return (anchors, positives) if len(first) < MIN_PAIRS else (anchors[first], positives[first])


def permutation_score(name: str, value: float, permuted: Matrix) -> AuditScore:
    """Return a score next to that of permutations: their mean is chance, and the fraction above it the p-value."""
    p_value = (1 + (permuted >= value - 1e-12).sum()) / (1 + len(permuted))
    return AuditScore(name, value, float(permuted.mean()), float(p_value))


# ---- measurements, or labels, by a linear map -----------------------------------------------------------------------

LINEAR = "y explained by a linear map of the latents (R²)"


def linear_test(fit: Estimator, samples: Samples, rng: np.random.Generator) -> AuditScore:
    """Score how much of the variance of y a linear map of the latents explains; chance is the y of other samples."""
    assert samples.side is not None
    value, frame, target = linear_fit(fit.transform(samples.X), samples.side)
    spread = max(float((target**2).sum()), 1e-300)
    orders = (exchange(samples.side, samples.units, rng) for _ in range(N_PERMUTATIONS))
    permuted = np.array([((frame.T @ target[order]) ** 2).sum() / spread for order in orders])
    return permutation_score(LINEAR, value, permuted)


def linear_fit(latents: np.ndarray, side: np.ndarray) -> tuple[float, Matrix, Matrix]:
    """Return R² of a linear map from latents to a side variable, an orthonormal frame of them, and the target."""
    rows = np.asarray(latents, dtype=np.float64).reshape(len(latents), -1)
    frame, _ = np.linalg.qr(rows - rows.mean(0))
    target = measured(side)
    target = target - target.mean(0)
    return float(((frame.T @ target) ** 2).sum() / max(float((target**2).sum()), 1e-300)), frame, target


def measured(side: np.ndarray) -> Matrix:
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


# ---- ground truth ---------------------------------------------------------------------------------------------------


def recovery(latents: Matrix, samples: Samples) -> tuple[AuditScore, ...]:
    """Compare latents of held-out samples with the ground truth, if it is known."""
    scores, truth = _by_a_linear_map(latents, samples), samples.data.truth
    if scores and (latents.std(0) > 0).all():
        level = metrics.chance_mcc(truth.shape[1], latents.shape[1])
        return (*scores, AuditScore(MATCHED, metrics.mcc(latents, truth), level))
    return scores


def recovery_within_levels(latents: Matrix, samples: Samples) -> tuple[AuditScore, ...]:
    """Compare latents of held-out samples with the ground truth, if it is known, within each stratum."""
    if not (scores := _by_a_linear_map(latents, samples)):
        return ()
    common = (np.bincount(samples.strata) >= MIN_SAMPLES_PER_LEVEL)[samples.strata]
    by_level = metrics.recovery_by_level(latents[common], samples.data.truth[common], samples.strata[common])
    return (*scores, AuditScore(WITHIN, min(by_level.values()), 0.0))


def _by_a_linear_map(latents: Matrix, samples: Samples) -> tuple[AuditScore, ...]:
    if samples.data.truth is None:
        return ()
    chance = metrics.chance_linear_r2(len(latents), latents.shape[1])
    return (AuditScore(BY_A_LINEAR_MAP, metrics.linear_r2(latents, samples.data.truth), chance),)
