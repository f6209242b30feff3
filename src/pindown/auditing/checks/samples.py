"""Counts: how many samples and levels there are, and in how many directions levels differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.conditions import COMMON_LEVELS, ENOUGH_SAMPLES, SPLITTABLE_SAMPLES
from pindown.auditing.checks.verdict import Verdict, at_least, estimate
from pindown.data.labels import read_labels
from pindown.errors import InputError
from pindown.metrics.arrays import Labels, Matrix, mean_by_label
from pindown.metrics.permutation import shuffled_ranks
from pindown.metrics.recovery import MIN_SAMPLES_PER_LEVEL
from pindown.theory import Theorem

FLAT = 0.15  # least spread of parameters along any direction, relative to the largest, that counts as a dimension
FLAT_BEFORE = 0.2  # the same before training, when a nonlinear mixing lifts what is flat
MIN_SAMPLES = 4  # samples of a level below which its parameters are not estimated: two in each half
N_SPLITS = 40  # random halves that show the noise of an estimate
COMMON = 30  # samples of the rarest level from which it can be compared with the others
SAMPLES_PER_LATENT, SAMPLES_PER_LEVEL = 100, 10  # rule of thumb: with a fifth of them nothing can be learned
N_PARTS = 4  # of the samples, one of which an audit holds out
MIN_AUDITED_SAMPLES, MIN_AUDITED_GROUPS = 60, 8  # that an audit can split


def enough_levels(labels: ArrayLike, theorem: Theorem, d: int, k: int | None = None) -> Verdict:
    """Compare the number of levels of a label with the number that a theorem needs.

    Necessary, never sufficient: see `diverse_levels`. It is undecided if the number is reached only with levels of
    fewer than ``MIN_SAMPLES`` samples. ``k`` is what ``theorem.diversity.k_means`` says where the formula has a k.

    Examples
    --------
    >>> labels = ["a", "b", "c"] * 20
    >>> enough_levels(labels, theory.CLASSIFY_FREE, d=2).outcome
    'holds'
    >>> enough_levels(labels, theory.AUXILIARY_ICA, d=2).why
    '2 latents need 5, and there are 3. Give 2 more values of u, in general position.'
    """
    if theorem.diversity is None:
        message = f"enough_levels: {theorem.name} counts nothing. Give a theorem whose diversity is not None."
        raise InputError("theorem", message)
    counts = _counts("labels", labels)
    needed, usable = theorem.diversity.needed(d, k), int((counts >= MIN_SAMPLES).sum())
    found = f"{counted(d, 'latent')} need{'s' if d == 1 else ''} {needed}, and there are {len(counts)}."
    if len(counts) < needed:
        more = f"Give {needed - len(counts)} more {theorem.diversity.unit}, in general position."
        return at_least(theorem.diversity, len(counts), needed, found, fails=more)
    few = f"But only {usable} have {MIN_SAMPLES} samples or more: give more samples of the others."
    return at_least(theorem.diversity, usable, needed, found, undecided=few, unless_below=0)


def enough_samples(n_samples: int, d: int, labels: ArrayLike | None = None) -> Verdict:
    """Compare the number of samples, in all and of a typical level of a label, with a rule of thumb.

    It fails below a fifth of ``SAMPLES_PER_LATENT`` or ``SAMPLES_PER_LEVEL``, and is undecided below these.

    Examples
    --------
    >>> [enough_samples(n, d=5).outcome for n in (50, 200, 1_000)]
    ['fails', 'undecided', 'holds']
    >>> enough_samples(1_000, d=5, labels=np.arange(1_000)).why
    '1000 samples for 5 latents; half of the 1000 levels have 1 or fewer. Give more samples, or merge levels.'
    """
    fraction = n_samples / (SAMPLES_PER_LATENT * d)
    found, advice = f"{n_samples} samples for {counted(d, 'latent')}", "Give more samples."
    if labels is not None:
        counts = _counts("labels", labels, n_samples)
        typical = int(np.median(counts))
        fraction = min(fraction, typical / SAMPLES_PER_LEVEL)
        found += f"; half of the {len(counts)} levels have {typical} or fewer"
        advice = "Give more samples, or merge levels."
    return at_least(ENOUGH_SAMPLES, fraction, 1.0, f"{found}.", fails=advice, unless_below=0.2)


def splittable_samples(
    n_samples: int, *, groups: ArrayLike | None = None, nuisance: ArrayLike | None = None
) -> Verdict:
    """Say whether an audit can divide the samples: hold out a quarter, by whole groups if any, and halve the rest.

    Where it fails a fit goes through, and an audit raises. Fits of `Forget` are compared within a level of the
    nuisance, so that at least one level must have enough samples.

    Examples
    --------
    >>> subjects = np.repeat(["anna", "ben", "cem"], 100)
    >>> [splittable_samples(n).outcome for n in (300, 30)], splittable_samples(300, groups=subjects).outcome
    (['holds', 'fails'], 'fails')
    """
    demands = [(n_samples, MIN_AUDITED_SAMPLES, "samples", "Give more samples.")]
    if nuisance is not None:
        largest = int(_counts("nuisance", nuisance, n_samples).max())
        unit = "samples of the commonest level of the nuisance"
        demands.append((largest, N_PARTS * MIN_SAMPLES_PER_LEVEL, unit, "Give more samples, or merge levels."))
    if groups is not None:
        n_groups = len(_counts("groups", groups, n_samples))
        advice = "Give more groups, or leave `groups` out if samples are independent."
        demands.append((n_groups, MIN_AUDITED_GROUPS, "groups", advice))
    found, least, unit, advice = next((demand for demand in demands if demand[0] < demand[1]), demands[-1])
    why = f"an audit holds some out and halves the rest. It needs {least} {unit}, and there are {found}."
    return at_least(SPLITTABLE_SAMPLES, found, least, why, fails=advice)


def common_levels(labels: ArrayLike) -> Verdict:
    """Say whether even the rarest level of a label has enough samples to be compared with the others.

    It holds from ``COMMON`` samples on, and fails below ``MIN_SAMPLES``.

    Examples
    --------
    >>> [common_levels(["a"] * 500 + ["b"] * rare).outcome for rare in (100, 17, 2)]
    ['holds', 'undecided', 'fails']
    """
    counts = _counts("labels", labels)
    rarest = int(counts.min())
    found = f"the rarest of {len(counts)} levels has {rarest} of {counts.sum()} samples."
    fails = "Give more of it, merge it with another, or leave it out."
    return at_least(COMMON_LEVELS, rarest, COMMON, found, fails=fails, unless_below=MIN_SAMPLES)


def _counts(name: str, labels: ArrayLike, n_samples: int | None = None) -> Labels:
    """Return the number of samples of each level."""
    return np.bincount(read_labels(name, labels, len(np.asarray(labels)) if n_samples is None else n_samples))


_ASSUMED = {
    theory.CLASSIFY_NORMALISED: theory.AFFINE_GENERATORS,
    theory.CLASSIFY_UNIT_FEATURES: theory.AFFINE_GENERATORS,
    theory.CLASSIFY_FREE: theory.AFFINE_GENERATORS,
    theory.ROEDER: theory.INDEPENDENT_DIFFERENCES,
}
"""What theorems assume about class means."""


def diverse_levels(
    latents: ArrayLike,
    labels: ArrayLike,
    theorem: Theorem = theory.CLASSIFY_NORMALISED,
    d: int | None = None,
    *,
    encoded: bool = True,
    random_state: int = 0,
) -> Verdict:
    r"""Say whether the levels of a label differ in as many directions as a theorem needs.

    The mean of each level is estimated. Singular values of noise are never 0, so directions of means come from one half
    of the samples, :math:`A = U S V^\top`, and their size from the other,

    .. math:: s_j = u_j^\top B v_j, \qquad \text{statistic} = s_r / s_1,

    which is 0 on average where the means have rank below r. It is compared with ``FLAT`` over many halves,
    whose samples are reweighted at random (the Bayesian bootstrap of Rubin, 1981). Before training (``encoded=False``)
    a nonlinear mixing lifts what is flat: then it is compared with ``FLAT_BEFORE``. Blind to rotations, shifts and
    one scale of the latents.

    Examples
    --------
    Six classes around a circle differ in two directions, not in three:

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(6), 200)
    >>> angle = labels[:, None] * np.pi / 3
    >>> latents = np.hstack([np.cos(angle), np.sin(angle), 0 * angle]) + 0.3 * rng.normal(size=(1200, 3))
    >>> [diverse_levels(latents, labels, d=d).outcome for d in (2, 3)]
    ['holds', 'fails']
    """
    if theorem not in _ASSUMED:
        names = ", ".join(t.name for t in _ASSUMED)
        raise InputError("theorem", f"diverse_levels: {theorem.name} is not about class means. Give one of {names}.")
    rows, numbers = _with_common_levels(latents, labels)
    assumption, flat = _ASSUMED[theorem], FLAT if encoded else FLAT_BEFORE
    rank = rows.shape[1] if d is None else d
    n_levels = len(np.unique(numbers))
    if n_levels < 2 or rank > min(n_levels, rows.shape[1]):
        levels = f"{counted(n_levels, 'level')} of {MIN_SAMPLES} samples or more"
        why = f"{levels} in {counted(rows.shape[1], 'dimension')} cannot span {counted(rank, 'dimension')}."
        return at_least(assumption, 0.0, flat, why)
    ratios = _split_ratios(rows, numbers, np.random.default_rng(random_state))
    ratio = estimate(ratios[:, rank - 1])
    spanned = int((np.median(ratios, axis=0) > flat).sum())
    found = f"the spread of {n_levels} class means along direction {rank} is {ratio} of the largest."
    advice = "Give more samples of each level, or levels that are further apart."
    if spanned < rank:
        fewer = counted(max(1, spanned), "latent")
        advice = f"Give levels that differ in other directions, too, or ask for at most {fewer}."
    fails = f"They span about {counted(spanned, 'dimension')}. {advice}"
    return at_least(assumption, ratio, flat, found, fails=fails)


def spanned_dimensions(latents: ArrayLike, labels: ArrayLike, *, encoded: bool = True, random_state: int = 0) -> int:
    """Return in how many directions the class means differ, by the measure of `diverse_levels`.

    Examples
    --------
    >>> labels = np.repeat([0, 1, 2], 100)
    >>> spanned_dimensions(np.eye(3)[labels] + 0.1 * np.random.default_rng(0).normal(size=(300, 3)), labels)
    2
    """
    rows, numbers = _with_common_levels(latents, labels)
    if not len(numbers) or numbers.max() == 0:
        return 0
    ratios = _split_ratios(rows, numbers, np.random.default_rng(random_state))
    return int((np.median(ratios, axis=0) > (FLAT if encoded else FLAT_BEFORE)).sum())


def _with_common_levels(latents: ArrayLike, labels: ArrayLike) -> tuple[Matrix, Labels]:
    """Return the samples of levels that are common enough, and the number of their level."""
    rows = read("latents", latents)
    numbers = read_labels("labels", labels, len(rows))
    common = (np.bincount(numbers) >= MIN_SAMPLES)[numbers]
    return rows[common], np.unique(numbers[common], return_inverse=True)[1]


def _split_ratios(rows: Matrix, labels: Labels, rng: np.random.Generator) -> Matrix:
    """Return singular values of class means as the other half shows them, relative to the first; (splits, rank)."""
    rows = (rows - rows.mean(0)) / rows.std()
    ratios = []
    for _ in range(N_SPLITS):
        half = shuffled_ranks(labels, rng)[0] % 2 == 0  # of the samples of each level
        weights = rng.exponential(size=len(rows))
        first, second = (mean_by_label(rows[some], labels[some], weights[some]) for some in (half, ~half))
        # Pull far rows in to the median distance: what they span stays the same.
        distance = np.linalg.norm(first - np.median(first, axis=0), axis=1)
        pull = 1 / np.maximum(1, distance / max(float(np.median(distance)), 1e-300))
        first, second = ((some - np.average(some, axis=0, weights=pull**2)) * pull[:, None] for some in (first, second))
        u, _, vt = np.linalg.svd(first, full_matrices=False)
        size = np.einsum("ij,ik,jk->j", u, second, vt)
        ratios.append(size / size[0])
    return np.array(ratios)
