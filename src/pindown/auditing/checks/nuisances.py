"""Nuisances: what they change in X, what they share with a label, and what latents leak of them."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks.arrays import GAMMA, n_landmarks, read, whitened
from pindown.auditing.checks.conditions import INVARIANT_LATENTS, OVERLAPPING_LEVELS
from pindown.auditing.checks.verdict import Estimate, Outcome, Verdict, at_least, at_most, bootstrap, judge
from pindown.data.labels import read_labels
from pindown.errors import InputError
from pindown.metrics import Effort, Leakage, confounding, leakage
from pindown.metrics.arrays import Labels, Matrix, mean_by_label
from pindown.metrics.dependence import LEVEL, Grouping, complement, mean_differences
from pindown.metrics.probes import smooth_features

SURE, UNSURE = 1e-6, 0.05  # levels of Bartlett's test: if they disagree, the number of directions is undecided
SPREADS = 0.1  # difference of covariances between levels, relative to the covariance
APART = 0.02  # fraction of samples that look like another level below which the levels do not overlap
SHARED_BITS = 0.02  # information that a label and a nuisance may share, relative to the smaller entropy
LEAK, SIGNIFICANT = 0.15, 0.01  # part of the range from chance to 1 that a probe may reach, and its p-value

N_SHUFFLES = 40
OVERLAP_SAMPLES, LEAK_SAMPLES = 2_000, 6_000


def surviving_dimensions(X: ArrayLike, nuisance: ArrayLike, n_components: int) -> Verdict:
    """Say whether as many directions of the data as latents have the same mean at all levels: d_z = d_a − dim V.

    dim V is the number of directions in which means differ, by Bartlett's test. A linear encoder with more latents than
    the rest must leak, and one with fewer leaves some of the rest out. Undecided if a strict and a lenient level of the
    test disagree.

    Examples
    --------
    Three levels change a plane of four dimensions, and leave two:

    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(3, size=900)
    >>> x = rng.normal(size=(900, 4)) + np.eye(4)[e] * 3
    >>> [surviving_dimensions(x, e, d).outcome for d in (1, 2, 3)]
    ['fails', 'holds', 'fails']
    """
    (n_directions, least), (_, most) = (touched_dimensions(X, nuisance, level=level) for level in (SURE, UNSURE))
    fewest, left = n_directions - most, n_directions - least
    changed = str(least) if least == most else f"{least} to {most}"
    latents = counted(n_components, "latent")
    found = f"the nuisance changes {changed} of {counted(n_directions, 'dimension')}, for {latents}."
    outcome: Outcome = "holds" if fewest == n_components == left else "undecided"
    fails, undecided = "", "Give more samples, or ask for fewer latents."
    if n_components > left:
        fewer = f": ask for {left}." if left >= 1 else ", since it changes all directions."
        outcome, fails = "fails", f"A linear encoder with more than {left} must leak the nuisance{fewer}"
    elif n_components < fewest:
        outcome, fails = "fails", f"They leave out some of what does not depend on the nuisance: ask for {fewest}."
    return judge(theory.LINEAR_ENCODER, left, n_components, outcome, found, fails=fails, undecided=undecided)


def touched_dimensions(X: ArrayLike, nuisance: ArrayLike, *, level: float = LEVEL) -> tuple[int, int]:
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


def same_covariance(X: ArrayLike, nuisance: ArrayLike, *, random_state: int = 0) -> Verdict:
    r"""Say whether a nuisance changes means only: whether V^⊥ has the same covariance at all its levels.

    Under `theory.NUISANCE_VMF` the distribution of a projection onto V^⊥ does not depend on e. In whitened coordinates
    of V^⊥ the statistic is

    .. math:: \sqrt{\tfrac1{n d} \sum_e n_e \lVert \Sigma_e - \bar\Sigma \rVert_F^2}

    less what shuffled labels give. Where it fails, no linear encoder that keeps all of V^⊥ is invariant. The statistic
    does not depend on linear maps of X.

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
    left = white @ complement(mean_differences(white, Grouping(labels, np.zeros_like(labels)))).T
    left = left - mean_by_label(left, labels)[labels]
    if left.shape[1] == 0:
        why = "means differ in all directions, so no covariances are left to compare."
        return Verdict(theory.NUISANCE_VMF, math.nan, SPREADS, "undecided", why)
    left = whitened(left)
    rng = np.random.default_rng(random_state)
    chance = [_covariance_scatter(left, rng.permutation(labels)) for _ in range(N_SHUFFLES)]
    square, doubt = _covariance_scatter(left, labels) - float(np.mean(chance)), 2 * float(np.std(chance))
    size = Estimate(*(math.sqrt(max(0.0, square + end)) for end in (0, -doubt, doubt)))
    found = f"where means agree, covariances differ by {size} of themselves between levels."
    fails = "A projection keeps this difference: take a nonlinear encoder, and audit its latents."
    return at_most(theory.NUISANCE_VMF, size, SPREADS, found, fails=fails, undecided="Give more samples.")


def overlapping_levels(X: ArrayLike, nuisance: ArrayLike) -> Verdict:
    """Say whether samples of one level of a nuisance sometimes look like those of another.

    The statistic is the fraction of samples that a smooth classifier takes for another level, by cross-validation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=500)
    >>> x = rng.normal(size=(500, 2))
    >>> [overlapping_levels(x + e[:, None] * shift, e).outcome for shift in (1, 20)]
    ['holds', 'fails']
    """
    rows, labels = _read(X, nuisance)
    some = np.random.default_rng(0).permutation(len(rows))[:OVERLAP_SAMPLES]
    some = some[(np.bincount(labels[some]) >= 6)[labels[some]]]
    rows, labels = rows[some], np.unique(labels[some], return_inverse=True)[1]
    if not len(labels) or labels.max() == 0:
        why = "no two levels have 6 samples. Give more samples of each."
        return Verdict(OVERLAPPING_LEVELS, math.nan, APART, "undecided", why)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    classifier = smooth_features(LogisticRegression(C=10.0, max_iter=300), GAMMA, n_landmarks(len(rows)))
    predicted = cross_val_predict(classifier, rows, labels, cv=folds)
    test = binomtest(int((predicted != labels).sum()), len(labels))
    wrong = Estimate(test.statistic, *test.proportion_ci(0.9, method="wilson"))
    found = f"{wrong.percent} of the samples look like those of another level."
    fails = "Where levels do not overlap, only pairs across levels say which latent of one is which of another."
    return at_least(OVERLAPPING_LEVELS, wrong, APART, found, fails=fails)


def unconfounded(label: ArrayLike, nuisance: ArrayLike, *, random_state: int = 0) -> Verdict:
    """Say whether a label depends on a nuisance, so that removing the one would cost the other.

    The statistic is the information they share (`metrics.confounding`), relative to the smaller of their entropies. It
    is about `theory.NUISANCE_INDEPENDENT` as far as this label shows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e, other = rng.integers(2, size=(2, 1_000))
    >>> [unconfounded(label, e).outcome for label in (other, e)]
    ['holds', 'fails']
    """
    y = read_labels("label", label, len(np.asarray(label)))
    e = read_labels("nuisance", nuisance, len(y))
    whole = confounding(y, e)
    smaller = min(whole.label_bits, whole.nuisance_bits)
    if smaller == 0:
        why = "the label, or the nuisance, has one level only."
        return Verdict(theory.NUISANCE_INDEPENDENT, 0.0, SHARED_BITS, "undecided", why)
    # A resample repeats samples, and finds information in that: shift the interval to where the estimate is.
    spread = bootstrap(
        lambda rows: confounding(y[rows], e[rows]).bits, len(y), np.random.default_rng(random_state), N_SHUFFLES
    )
    shared = Estimate(*(max(0.0, whole.bits + bits - spread.value) / smaller for bits in spread))
    found = f"label and nuisance share {shared.percent} of the smaller one's information."
    kept = f"{whole.kept_bits:.2f} of the label's {whole.label_bits:.2f} bits"
    fails = f"Invariant latents keep at most {kept}: remove the nuisance given the label."
    return at_most(theory.NUISANCE_INDEPENDENT, shared, SHARED_BITS, found, fails=fails)


def invariant_latents(
    latents: ArrayLike, nuisance: ArrayLike, given: ArrayLike | None = None, *, random_state: int = 0
) -> Verdict:
    """Say whether a probe trained afterwards predicts the nuisance from the latents (`metrics.leakage`).

    The statistic is the score of the best probe, a balanced accuracy. A fraction ``LEAK`` of the range from chance to 1
    is allowed. The check fails if the score is significantly above chance, by more than half of what is allowed. It
    holds if the score is not significant, and the upper end of its confidence interval is allowed. Latents that have
    collapsed are undecided: a constant is invariant to everything.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = rng.integers(2, size=2_000)
    >>> z = rng.normal(size=(2_000, 2))
    >>> [invariant_latents(latents, e).outcome for latents in (z, z + e[:, None], 0 * z)]
    ['holds', 'fails', 'undecided']
    """
    rows, labels = _read(latents, nuisance)
    some = np.random.default_rng(random_state).permutation(len(rows))[:LEAK_SAMPLES]
    strata = None if given is None else read_labels("given", given, len(rows))[some]
    effort = Effort(n_seeds=1, n_permutations=499)
    return leakage_verdict(leakage(rows[some], labels[some], given=strata, effort=effort, random_state=random_state))


def leakage_verdict(found: Leakage) -> Verdict:
    """Return a verdict on measured leakage: see `invariant_latents`."""
    allowed = found.ground + LEAK * (1 - found.ground)
    if found.collapsed:
        why = f"the latents have collapsed, effective rank {found.effective_rank:.1f} of {found.n_columns}."
        return Verdict(INVARIANT_LATENTS, found.worst, allowed, "undecided", why)
    leaks = found.p_value <= SIGNIFICANT and (found.floor is None or found.interval[0] > found.floor)
    outcome: Outcome = "undecided"
    if leaks and found.worst > found.ground + LEAK / 2 * (1 - found.ground):
        outcome = "fails"
    elif not leaks and found.interval[1] <= allowed:
        outcome = "holds"
    fails = "More steps or more samples may help."
    return judge(INVARIANT_LATENTS, found.worst, allowed, outcome, found.verdict, fails=fails)


def _read(X: ArrayLike, nuisance: ArrayLike) -> tuple[Matrix, Labels]:
    rows = read("X", X)
    labels = read_labels("nuisance", nuisance, len(rows))
    if labels.max() == 0:
        message = "nuisance has one level only, so there is nothing to remove. Were the samples filtered by it?"
        raise InputError("nuisance", message)
    return rows, labels


def _covariance_scatter(rows: Matrix, labels: Labels) -> float:
    n, d = rows.shape
    pooled = rows.T @ rows / n
    parts = [rows[labels == level] for level in np.unique(labels)]
    return float(sum(len(part) * np.sum((part.T @ part / len(part) - pooled) ** 2) for part in parts) / (n * d))
