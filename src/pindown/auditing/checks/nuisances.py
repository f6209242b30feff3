"""Can a nuisance be forgotten, and was it? What it touches, what it shares with a label, what the codes still tell."""

import math
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from pindown import theory
from pindown._names import counted
from pindown._numbers import printed
from pindown.auditing.checks.arrays import read, smooth_classifier, whitened, without_rare
from pindown.auditing.checks.conditions import INVARIANT_LATENTS, OVERLAPPING_LEVELS
from pindown.auditing.checks.verdict import Estimate, Outcome, Verdict, above, below, estimate
from pindown.data.labels import read_labels
from pindown.metrics import Effort, Leakage, confounding, leakage
from pindown.metrics.arrays import Labels, Matrix, mean_by_label
from pindown.metrics.dependence import LEVEL, Grouping, complement, mean_differences

SURE, UNSURE = 1e-6, 0.05
"""Levels of Bartlett's test between which the number of directions that a nuisance moves is undecided."""

SPREADS = 0.1
"""Difference of covariances between values, relative to the covariance, that is not the same law."""

APART = 0.02
"""Share of rows that look like another value below which the values lie apart."""

SHARED_BITS = 0.02
"""Information that a label and a nuisance may share, relative to the smaller entropy."""

LEAK, READ = 0.15, 0.01
"""How far from chance to certainty the best reader of the nuisance may get, and the p-value that rules out chance."""

N_SHUFFLES = 40
OVERLAP_ROWS, LEAK_ROWS = 2_000, 6_000


def surviving_dimensions(X: Any, nuisance: Any, n_components: int) -> Verdict:
    """Say whether so many directions of the data are untouched by the means of a nuisance, d_z ≤ d_a − dim V.

    dim V is the number of directions in which means differ, by Bartlett's test. A linear code with more dimensions than
    the rest must leak. Undecided if a strict and a lenient level of the test disagree.

    Examples
    --------
    Three values move a plane of four dimensions, and leave one of two:

    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(3, size=900)
    >>> x = rng.normal(size=(900, 4)) + np.eye(4)[e] * 3
    >>> [surviving_dimensions(x, e, d).outcome for d in (2, 3)]
    ['holds', 'fails']
    """
    (n_directions, least), (_, most) = (touched_dimensions(X, nuisance, level=level) for level in (SURE, UNSURE))
    left = Estimate(*(n_directions - moved for moved in (least, most, least)))
    outcome = above(left, n_components - 0.5)
    moved = f"{_range(least, most)} of {counted(n_directions, 'dimension')}"
    why = f"the nuisance moves {moved}, and {n_components} {'is' if n_components == 1 else 'are'} asked for."
    if outcome == "fails":
        why += f" A linear code of more than {int(left.high)} must tell the nuisance"
        why += f": ask for {int(left.high)}." if left.high >= 1 else ", since all directions do."
    elif outcome == "undecided":
        why += " Give more rows, or ask for fewer."
    return Verdict(theory.LINEAR_ENCODER, left.value, n_components, outcome, why)


def touched_dimensions(X: Any, nuisance: Any, *, level: float = LEVEL) -> tuple[int, int]:
    """Return in how many directions the data vary, and in how many of these the means of a nuisance differ: dim V.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=500)
    >>> touched_dimensions(rng.normal(size=(500, 3)) + e[:, None], e)
    (3, 1)
    """
    rows, labels = _read(X, nuisance)
    white = whitened(rows)
    return white.shape[1], len(mean_differences(white, Grouping(labels, np.zeros_like(labels)), level=level))


def same_covariance(X: Any, nuisance: Any, *, random_state: int = 0) -> Verdict:
    r"""Say whether a nuisance moves means only: whether what is left off V has one covariance for all its values.

    Under `theory.NUISANCE_VMF` the law of a projection onto V^⊥ does not depend on e. In whitened coordinates of V^⊥
    the statistic is

    .. math:: \sqrt{\tfrac1{n d} \sum_e n_e \lVert \Sigma_e - \bar\Sigma \rVert_F^2}

    less what shuffled labels give. Where it fails, no linear code that keeps all of V^⊥ is blind. Invariant to linear
    maps of X.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=2_000)
    >>> x = rng.normal(size=(2_000, 3))
    >>> [same_covariance(x * size, e).outcome for size in (1, 1 + e[:, None] * [0, 1, 0])]
    ['holds', 'fails']
    """
    rows, labels = _read(X, nuisance)
    white = whitened(rows)
    moved = mean_differences(white, Grouping(labels, np.zeros_like(labels)))
    left = white @ complement(moved).T
    left = left - mean_by_label(left, labels)[labels]
    if left.shape[1] == 0:
        why = "means differ in all directions, so nothing is left to compare."
        return Verdict(theory.NUISANCE_VMF, math.nan, SPREADS, "undecided", why)
    left = whitened(left)
    rng = np.random.default_rng(random_state)
    chance = [_covariance_scatter(left, rng.permutation(labels)) for _ in range(N_SHUFFLES)]
    found = _covariance_scatter(left, labels) - float(np.mean(chance))
    doubt = 2 * float(np.std(chance))
    size = Estimate(*(math.sqrt(max(0.0, square)) for square in (found, found - doubt, found + doubt)))
    outcome = below(size, SPREADS)
    why = f"covariances of what means do not tell differ by {size} of themselves between values."
    if outcome == "fails":
        why += " A projection leaves that to be read: take a nonlinear encoder, and audit its codes."
    elif outcome == "undecided":
        why += " Give more rows."
    return Verdict(theory.NUISANCE_VMF, size.value, SPREADS, outcome, why)


def overlapping_levels(X: Any, nuisance: Any) -> Verdict:
    """Say whether rows of one value of a nuisance look like another's now and then.

    The statistic is the share of rows that a smooth classifier takes for another value, by cross-validation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=500)
    >>> x = rng.normal(size=(500, 2))
    >>> [overlapping_levels(x + e[:, None] * shift, e).outcome for shift in (1, 20)]
    ['holds', 'fails']
    """
    rows, labels = _read(X, nuisance)
    chosen = np.random.default_rng(0).permutation(len(rows))[:OVERLAP_ROWS]
    rows, labels = rows[chosen], labels[chosen]
    common = without_rare(labels, 6)
    rows, labels = rows[common], np.unique(labels[common], return_inverse=True)[1]
    if not len(labels) or labels.max() == 0:
        why = "no two values have 6 rows. Give more rows of each."
        return Verdict(OVERLAPPING_LEVELS, math.nan, APART, "undecided", why)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    said = cross_val_predict(smooth_classifier(len(rows)), rows, labels, cv=folds)
    wrong = _share(int((said != labels).sum()), len(labels))
    outcome = above(wrong, APART)
    why = f"{wrong} of the rows look like those of another value."
    if outcome != "holds":
        why += " Where values never meet, only pairs across values say which latent of one is which of another."
    return Verdict(OVERLAPPING_LEVELS, wrong.value, APART, outcome, why)


def unconfounded(label: Any, nuisance: Any, *, random_state: int = 0) -> Verdict:
    """Say whether a label depends on a nuisance, so that forgetting the one would cost the other.

    The statistic is the information they share (`metrics.confounding`), relative to the smaller of their entropies.
    It speaks of `theory.NUISANCE_INDEPENDENT` as far as this label shows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e, other = rng.integers(2, size=(2, 1_000))
    >>> [unconfounded(label, e).outcome for label in (other, e)]
    ['holds', 'fails']
    """
    y = read_labels("label", label, len(label))
    e = read_labels("nuisance", nuisance, len(y))
    rng = np.random.default_rng(random_state)
    whole = confounding(y, e)
    smaller = min(whole.label_bits, whole.nuisance_bits)
    if smaller == 0:
        why = "the label, or the nuisance, has one value only."
        return Verdict(theory.NUISANCE_INDEPENDENT, 0.0, SHARED_BITS, "undecided", why)
    resampled = (rng.integers(len(y), size=len(y)) for _ in range(N_SHUFFLES))
    # A resample repeats rows, and finds information in that: shift the interval to where the estimate is.
    spread = estimate([confounding(y[rows], e[rows]).bits for rows in resampled])
    shared = Estimate(*(max(0.0, whole.bits + bits - spread.value) / smaller for bits in spread))
    outcome = below(shared, SHARED_BITS)
    why = f"label and nuisance share {shared} of the smaller one's information."
    if outcome != "holds":
        kept = f"{whole.kept_bits:.2f} of the label's {whole.label_bits:.2f} bits"
        why += f" A blind code keeps at most {kept}: forget given the label."
    return Verdict(theory.NUISANCE_INDEPENDENT, shared.value, SHARED_BITS, outcome, why)


def invariant_latents(codes: Any, nuisance: Any, given: Any = None, *, random_state: int = 0) -> Verdict:
    """Say whether codes still tell the nuisance to a reader trained afterwards (`metrics.leakage`).

    The statistic is the score of the best reader, a balanced accuracy. It fails if that is more than half of
    :data:`LEAK` of the way from chance to certainty, and chance is ruled out; it holds if chance is not, and more than
    :data:`LEAK` is. A code that has collapsed is undecided: a constant is blind to everything.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=2_000)
    >>> z = rng.normal(size=(2_000, 2))
    >>> [invariant_latents(code, e).outcome for code in (z, z + e[:, None], 0 * z)]
    ['holds', 'fails', 'undecided']
    """
    rows, labels = _read(codes, nuisance)
    chosen = np.random.default_rng(random_state).permutation(len(rows))[:LEAK_ROWS]
    strata = None if given is None else read_labels("given", given, len(rows))[chosen]
    code, e = rows[chosen], labels[chosen]
    return leakage_verdict(
        leakage(code, e, given=strata, effort=Effort(n_seeds=1, n_permutations=499), random_state=random_state)
    )


def leakage_verdict(found: Leakage) -> Verdict:
    """Turn what readers of a nuisance were found to tell into a verdict: see `invariant_latents`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=500)
    >>> leakage_verdict(leakage(e[:, None] + rng.normal(size=(500, 1)), e, probes="linear", random_state=0)).outcome
    'fails'
    """
    allowed = found.ground + LEAK * (1 - found.ground)
    if found.collapsed:
        why = f"the codes have collapsed, effective rank {found.effective_rank:.1f} of {found.n_columns}."
        return Verdict(INVARIANT_LATENTS, found.worst, allowed, "undecided", why)
    read_for_sure = found.p_value <= READ and (found.floor is None or found.interval[0] > found.floor)
    outcome: Outcome = "undecided"
    if read_for_sure and found.worst > found.ground + LEAK / 2 * (1 - found.ground):
        outcome = "fails"
    elif not read_for_sure and found.interval[1] <= allowed:
        outcome = "holds"
    why = leakage_sentence(found)
    if outcome != "holds":
        why += " More steps or more rows may help."
    return Verdict(INVARIANT_LATENTS, found.worst, allowed, outcome, why)


def leakage_sentence(found: Leakage) -> str:
    """Return in a sentence how far the best reader of a nuisance gets; whether that is too far a verdict says."""
    if found.collapsed:
        return found.verdict
    floor = "" if found.floor is None else f" and the floor {printed(found.floor)}"
    return (
        f"The best reader of the nuisance, {found.worst_probe}, has a {found.measure} of {printed(found.worst)} where "
        f"chance is {printed(found.chance)}{floor}, at most {printed(found.interval[1])} with 95 % confidence "
        f"(p = {found.p_value:.2g} for chance); it reads {found.bits:.3f} bits or more."
    )


def _read(X: Any, nuisance: Any) -> tuple[Matrix, Labels]:
    rows = read("X", X)
    labels = read_labels("nuisance", nuisance, len(rows))
    if labels.max() == 0:
        raise ValueError("nuisance has one value only, so there is nothing to forget. Were the rows filtered by it?")
    return rows, labels


def _covariance_scatter(rows: Matrix, labels: Labels) -> float:
    n, d = rows.shape
    pooled = rows.T @ rows / n
    counts = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    parts = np.split(rows[order], np.cumsum(counts)[:-1])
    return float(sum(len(part) * np.sum((part.T @ part / max(len(part), 1) - pooled) ** 2) for part in parts) / (n * d))


def _share(k: int, n: int) -> Estimate:
    """Return a share with Wilson's 90 % interval."""
    z = 1.645
    middle, half = (k + z * z / 2) / (n + z * z), z * math.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    return Estimate(k / n, max(0.0, middle - half), middle + half)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
