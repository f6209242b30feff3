r"""Invariance: what an embedding Z (n, d) still contains of a nuisance e, measured by probes trained on other samples.

A classifier that failed in adversarial training proves nothing. `leakage` trains several families of probes afterwards,
on half of the samples, and scores them on the other half; the best probe counts. The maximum of many scores is above
chance even for an embedding that is independent of e, so it is compared with the same maximum under permutations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from pindown._names import counted, listed, printed
from pindown.data.data import as_array
from pindown.data.labels import combined, is_quantity, missing, read_labels
from pindown.errors import InputError
from pindown.metrics.arrays import (
    Labels,
    Mask,
    Matrix,
    RandomState,
    check_same_samples,
    contingency,
    read_matrix,
)
from pindown.metrics.dependence import Confounding, centred_distances, confounding, effective_rank, squared_correlation
from pindown.metrics.permutation import Exchange, halve, largest_test, margins, n_distinct, thin
from pindown.metrics.probes import PROBES, Probe, Views, predictions, read_probes

LEVEL = 0.05  # of the p-value, for the verdict
UNNAMED = "e"  # a nuisance whose column has no name
MIN_SAMPLES, MIN_QUANTITY_SAMPLES = 4, 8  # of a level: two to fit, two to score; of a quantity
PRIOR_FRACTION = 1e-3  # of the prior in every prediction: no probe may be certain of one level
DISTANCE_SAMPLES = 800


@dataclass(frozen=True)
class ProbeScore:
    """The held-out score of one family of probes, an interval that holds for all families at once, and bits."""

    score: float
    interval: tuple[float, float]
    bits: float

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.score:6.3f}  [{low:6.3f}, {high:6.3f}]  {self.bits:6.3f}"


@dataclass(frozen=True, eq=False)
class Leakage:
    """How much of a nuisance can be predicted from an embedding: the best probe's score, and its p-value.

    Attributes
    ----------
    nuisance : str
        Name of the nuisance, ``"e"`` or its column.
    measure : str
        What is scored: ``"balanced accuracy"`` of labels, ``"R²"`` of quantities.
    worst, interval, worst_probe
        The worst case: the highest held-out score of all probes, a 95 % interval for it, and the family of that probe.
    chance, chance_of_worst : float
        Score of a guess (1 / number of levels, averaged over strata, or 0), and of the best of so many guesses: the
        mean of ``worst`` over permutations of the nuisance.
    p_value, evidence, smallest_p
        Of independence (given ``given``), exact for the largest statistic of all probes; which that is; and the
        smallest p-value that these samples, groups and permutations allow.
    bits : float
        Lower bound of I(e; Z) by the best probe, at least 0: H(e) less its held-out cross-entropy.
    by_probe : dict
        `ProbeScore` of each family (its best seed).
    distance_correlation : float or None
        For quantities, bias-corrected, on at most 800 held-out samples.
    effective_rank, n_columns : float, int
        How many of its dimensions the embedding fills.
    n_samples, n_used : int
        Samples given, and samples used (half to fit, half to score).
    confounding : Confounding or None
        What the nuisance shares with ``given``.
    notes : tuple of str
        What was left out, and why.
    columns : tuple of Leakage
        One result per column of ``e`` if there are several; this result is then that of the column that leaks most,
        its p-value multiplied by their number.
    floor : float or None
        What the same probes score on an embedding that is known to be invariant: see `with_floor`.
    """

    nuisance: str
    measure: str
    worst: float
    interval: tuple[float, float]
    worst_probe: str
    chance: float
    chance_of_worst: float
    p_value: float
    evidence: str
    smallest_p: float
    bits: float
    by_probe: Mapping[str, ProbeScore]
    distance_correlation: float | None
    effective_rank: float
    n_columns: int
    n_samples: int
    n_used: int
    confounding: Confounding | None = None
    notes: tuple[str, ...] = ()
    columns: tuple["Leakage", ...] = ()
    floor: float | None = None

    @property
    def collapsed(self) -> bool:
        """Whether the embedding is constant, or has several dimensions and fills hardly more than one of them."""
        return self.effective_rank < (1.1 if self.n_columns > 1 else 0.5)

    @property
    def leaks(self) -> bool:
        """Whether independence is rejected at the 5 % level and, with a floor, the worst case is surely above it."""
        return self.p_value <= LEVEL and (self.floor is None or self.interval[0] > self.floor)

    @property
    def ground(self) -> float:
        """What an invariant embedding scores: the floor if there is one, and chance at least."""
        return self.chance if self.floor is None else max(self.chance, self.floor)

    @property
    def excess(self) -> float:
        """How far from chance (0) to certainty (1) the best probe gets."""
        return (self.worst - self.chance) / (1 - self.chance)

    def with_floor(self, floor: "Leakage") -> "Leakage":
        """Return this result next to that of an embedding known to be invariant: only what is above it is a leak."""
        if not self.columns:
            return replace(self, floor=floor.worst)
        columns = tuple(one.with_floor(other) for one, other in zip(self.columns, floor.columns, strict=True))
        own = next(one for one in columns if one.nuisance == self.nuisance)
        return replace(self, floor=own.floor, columns=columns)

    @property
    def verdict(self) -> str:
        """One sentence on what was found: a leak, a collapse, nothing decided, or no leak."""
        name = "the nuisance" if self.nuisance == UNNAMED else self.nuisance
        rank = f"effective rank {self.effective_rank:.1f} of {self.n_columns}"
        floor = "" if self.floor is None else f", floor {printed(self.floor)}"
        chance = f"chance {printed(self.chance)}{floor}, {self.worst_probe} probe"
        found = f"{self.measure} {printed(self.worst)} ({chance}), p = {self.p_value:.2g}"
        most = f"at most {printed(self.interval[1])} with 95 % confidence"
        leak = f"{name} can still be predicted from the latents"
        if self.leaks:
            also = f" The latents have nearly collapsed, too: {rank}." if self.collapsed else ""
            return f"{leak}: {found}; {most}, at least {self.bits:.3f} bits.{also}"
        if self.collapsed:
            return f"the latents have collapsed, {rank}: a constant holds nothing, so nothing follows for {name}."
        if self.smallest_p > LEVEL:
            return f"undecided: so few groups allow no p-value below {self.smallest_p:.2g}. Give more groups."
        return f"no probe clearly predicts {name} from the latents: {found}; {most}."

    def __str__(self) -> str:
        if self.columns:
            return "\n\n".join([*(str(column) for column in self.columns), f"Overall: {self.verdict}"])
        lines = [f"Leakage of {self.nuisance}, {self.n_used} of {self.n_samples} samples, half of them held out"]
        lines += [f"  {'probe':<12} {self.measure} [95 %]  bits"]
        lines += [f"  {name:<12} {score}" for name, score in self.by_probe.items()]
        lines += [f"  {'chance':<12} {self.chance:6.3f}  (worst case, e permuted: {self.chance_of_worst:.3f})"]
        lines += [] if self.floor is None else [f"  {'floor':<12} {self.floor:6.3f}"]
        if self.distance_correlation is not None:
            lines.append(f"  distance correlation {self.distance_correlation:.3f}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [] if self.confounding is None else [str(self.confounding)]
        return "\n".join([*lines, self.verdict])


@dataclass(frozen=True)
class Effort:
    """How much work `leakage` does.

    No p-value is below 1 / (1 + n_permutations). With 20,000 samples the error of a balanced accuracy is below .005.
    """

    n_seeds: int = 3  # for each family of probes that is random
    n_permutations: int = 999  # of the nuisance
    max_samples: int = 20_000  # to use at most

    def __post_init__(self) -> None:
        for name, least in (("n_seeds", 1), ("n_permutations", 19), ("max_samples", 100)):
            if (value := getattr(self, name)) < least:
                raise InputError(name, f"`{name}` must be at least {least}, got {value}.")


def leakage(
    Z: ArrayLike,
    e: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    given: ArrayLike | None = None,
    continuous: bool | None = None,
    probes: str | Probe | Sequence[str | Probe] = PROBES,
    effort: Effort = Effort(),  # noqa: B008, a frozen value
    random_state: RandomState = None,
) -> Leakage:
    r"""Measure how much of a nuisance can be predicted from an embedding, by the best of several families of probes.

    Probes are trained on half of the samples and scored on the other half. For labels the score is balanced accuracy,
    the mean over levels of the fraction of their samples that is recognised, and

    .. math:: \text{bits} = \max\Bigl(0,\; H(e) - \min_{\text{probes}} \tfrac1n \sum_i -\log_2 q(e_i | z_i)\Bigr)
              \;\lesssim\; I(e; Z)

    on held-out samples. For quantities it is R², and bits are :math:`-\frac12 \log_2(1 - r^2)` with r the correlation
    of e and its prediction, both on the scale of Gaussian ranks. All bounds are from below: a kind of probe that was
    not tried may find more.

    **The p-value** is exact, although the maximum over probes and seeds is taken: permuting e among the held-out
    samples leaves the distribution unchanged if e is independent of Z, so every statistic (for each probe the score and
    the log-likelihood; the distance correlation) is recomputed under permutations, and the largest is compared with
    the largest. The intervals hold for all probes at once.

    Pass samples that the encoder has not seen. Blind to invertible affine maps of Z for most probes; and to what only
    several columns of ``e`` together would show (join them into one label for that).

    Parameters
    ----------
    Z : array (n, d)
        The embedding.
    e : array (n,) or (n, columns)
        The nuisance. Numbers with fractional parts are quantities, anything else labels; each column is audited.
    groups : array (n,), optional
        Subject, episode …: samples of one group are never on both sides of the split, and count as dependent. A group
        with one level of e is permuted as a whole, and a level needs two groups; in other groups samples are permuted,
        so these are assumed to be exchangeable: thin a time series.
    given : array (n,), optional
        A label. Leakage is then that within its strata, I(e; Z | given), with permutations within them: see
        `confounding`.
    continuous : bool, optional
        True makes whole numbers quantities, False fractional ones labels.
    probes : sequence of str or Probe
        The families, by name; by default all: linear, quadratic, kernel, neighbours, boosting and network.
    effort : Effort
        Numbers of seeds, permutations and samples.
    random_state : int, numpy.random.Generator or None
        Seed of the split, the probes and the permutations.

    Examples
    --------
    The second column has the same mean in both levels of e, and another spread, which a linear probe cannot see. The
    first is independent of e:

    >>> rng = np.random.default_rng(0)
    >>> e = np.repeat(["left", "right"], 300)
    >>> Z = rng.normal(size=(600, 2)) * np.where(e == "left", 1, 3)[:, None] ** [0, 1]
    >>> found = leakage(Z, e, random_state=0)
    >>> found.leaks, found.chance, found.worst > 0.7, found.by_probe["linear"].score < 0.6
    (True, 0.5, True, True)
    >>> leakage(Z[:, :1], e, random_state=0).leaks
    False
    """
    families = read_probes(probes)
    a = read_matrix("Z", Z)
    nuisances = read_nuisances(e, len(a), continuous)
    own = np.arange(len(a)) if groups is None else read_labels("groups", groups, len(a))
    label = None if given is None else read_labels("given", given, len(a))
    streams = np.random.default_rng(random_state).spawn(len(nuisances))
    results = [_audit(a, *each, own, label, families, effort) for each in zip(nuisances, streams, strict=True)]
    if len(results) == 1:
        return results[0]
    worst = min(results, key=lambda result: (result.p_value, -result.excess))
    corrected, smallest = (min(1.0, len(results) * p) for p in (worst.p_value, worst.smallest_p))
    return replace(worst, p_value=corrected, smallest_p=smallest, columns=tuple(results))


def inject_leak(Z: ArrayLike, e: ArrayLike, fraction: float = 0.05, *, random_state: RandomState = None) -> Matrix:
    r"""Return the embedding with a known leak: e explains ``fraction`` of the variance of one random direction of it.

    .. math:: Z' = Z + (t' - t)\, b^\top, \qquad t' = \sqrt{1 - s}\; t + \sqrt{s}\; c(e)

    with s the fraction, t the coordinate of Z along a random direction, c(e) the nuisance (labels by their rank), both
    of variance 1, and b = Cov(Z, t). For Gaussian embeddings it is worth at most :math:`-\frac12 \log_2(1 - s)` bits.
    The positive control of an audit: one that finds nothing here would have found nothing in Z.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, e = rng.normal(size=(2000, 3)), rng.integers(4, size=2000)
    >>> leaky, effort = inject_leak(Z, e, 0.05, random_state=1), Effort(n_seeds=1)
    >>> [leakage(embedding, e, effort=effort, random_state=0).leaks for embedding in (Z, leaky)]
    [False, True]
    """
    a = read_matrix("Z", Z)
    nuisance, *others = read_nuisances(e, len(a), None)
    if others:
        raise InputError("e", f"`e` must have one column, got {1 + len(others)}. Join them into one label.")
    if not 0 <= fraction <= 1:
        raise InputError("fraction", f"`fraction` must be from 0 to 1, got {fraction}.")
    spread = a.std(axis=0)
    if not spread.any():
        raise InputError("Z", "`Z` is constant, so it has no direction to leak along. Pass an embedding that varies.")
    rng = np.random.default_rng(random_state)
    along = (a - a.mean(axis=0)) @ (rng.normal(size=len(spread)) * (spread > 0) / np.where(spread > 0, spread, 1))
    along /= along.std()
    carried = nuisance.coded - nuisance.coded.mean()
    moved = np.sqrt(1 - fraction) * along + np.sqrt(fraction) * carried / carried.std()
    return a + np.outer(moved - along, (a - a.mean(axis=0)).T @ along / len(a))


# ---- which samples can be audited -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NuisanceColumn:
    """One nuisance: its name, the number of each sample's level (n,) with the levels, or a quantity (n,) without."""

    name: str
    coded: Labels | Matrix
    levels: tuple[object, ...]

    def cells(self, strata: Labels) -> Labels:
        """Give each combination of stratum and level a number from 0; a quantity has strata only."""
        return combined(strata, self.coded) if self.levels else combined(strata)


def read_nuisances(e: ArrayLike, n: int, continuous: bool | None) -> list[NuisanceColumn]:
    """Split e into its columns, and decide for each whether it is a label or a quantity."""
    table = as_array(e, "e")
    if table.ndim not in (1, 2) or table.size == 0:
        raise InputError("e", f"`e` must have shape (n_samples,) or (n_samples, columns), got {table.shape}.")
    check_same_samples("e", table, "Z", range(n))
    columns = table.reshape(n, -1).T
    if len(columns) == 1:
        names = [getattr(e, "name", None) or UNNAMED]
    else:
        names = list(getattr(e, "columns", [f"e[:, {j}]" for j in range(len(columns))]))
    return [_nuisance(str(name), column, continuous) for name, column in zip(names, columns, strict=True)]


def _nuisance(name: str, column: NDArray[np.generic], continuous: bool | None) -> NuisanceColumn:
    gaps = ~np.isfinite(column) if column.dtype.kind == "f" else missing(column)
    if gaps.any():
        where = f"{gaps.sum()} sample(s), the first is {gaps.argmax()}"
        raise InputError("e", f"`{name}` is missing or not finite in {where}. Leave them out, or label them 'unknown'.")
    column = np.array(column.tolist()) if column.dtype.kind == "O" else column  # as columns of mixed tables are
    quantity = is_quantity(column) if continuous is None else continuous
    if quantity and column.dtype.kind not in "buif":
        raise InputError("e", f"`{name}` must be numbers if `continuous=True`, got {column[0]!r}. Leave it out.")
    levels, labels = np.unique(column, return_inverse=True)
    if len(levels) < 2:
        raise InputError("e", f"`{name}` has one level only, {column[0]!r}, so nothing could leak. Pass two or more.")
    if quantity:
        return NuisanceColumn(name, column.astype(np.float64), ())
    return NuisanceColumn(name, labels, tuple(levels.tolist()))


def auditable(nuisance: NuisanceColumn, groups: Labels, given: Labels | None) -> tuple[Labels, tuple[str, ...]]:
    """Return the samples that can be audited, and notes on those that cannot.

    Without strata no sample is left out: a level that is too rare is an error. Within strata some combinations of label
    and nuisance are often missing, and only the others can be compared.
    """
    strata = np.zeros(len(groups), dtype=np.int64) if given is None else given
    cells, name = nuisance.cells(strata), nuisance.name
    least = MIN_SAMPLES if nuisance.levels else MIN_QUANTITY_SAMPLES
    enough = np.bincount(cells) >= least
    common = (enough & (n_distinct(cells, groups, cells.max() + 1) >= 2))[cells]
    if given is None and not common.all():
        rare = [repr(nuisance.levels[cell]) for cell in np.unique(cells[~common])] if nuisance.levels else []
        which = f"level(s) {listed(rare, 5)} of `{name}`" if rare else f"`{name}`"
        if not enough.all():
            remedy = "Merge rare levels, leave them out, or pass `continuous=True` for a quantity."
            raise InputError("e", f"{which}: {least} samples are needed, to fit and to score. {remedy}")
        remedy = "Give more groups, or no `groups` if samples are independent."
        raise InputError("groups", f"{which}: in one group only, which is always on one side of the split. {remedy}")
    varied = np.zeros(len(strata), dtype=bool)
    if common.any():
        varied = (n_distinct(strata[common], nuisance.coded[common], strata.max() + 1) >= 2)[strata]
    used = np.flatnonzero(common & varied)
    if not used.size:
        remedy = "Give samples that cross them, or leave `given` out and see metrics.confounding."
        raise InputError("given", f"within every level of `given`, `{name}` has one common level only. {remedy}")
    left_out = {
        "too rare within their stratum": int(np.sum(~common)),
        f"in strata with one level of {name}": int(np.sum(common & ~varied)),
    }
    return used, tuple(f"{counted(count, 'sample')} left out, {why}" for why, count in left_out.items() if count)


# ---- from predictions to scores, bits and statistics ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelPredictions:
    """Probabilities (p, n, k) that p probes give the k levels of e (n,), within strata (n,).

    ``prior`` (s, k) is how often each level occurs in each stratum of the fitted half; 0 where it does not. Statistics
    are functions of e alone once the probes have predicted: a permutation costs no training.
    """

    probabilities: Matrix
    e: Labels
    strata: Labels
    prior: Matrix

    measure = "balanced accuracy"
    statistic_names = ("balanced accuracy", "log-likelihood")  # p each
    distance_correlation = None

    @classmethod
    def of(
        cls, probes: Sequence[Probe], views: Views, e: Labels | Matrix, n_seeds: int, rng: np.random.Generator
    ) -> tuple[list[str], "LabelPredictions"]:
        """Train the probes on half of the samples, and predict the others; return the names of the probes, too."""
        labels, fit, held_out = combined(e), views.fit, views.strata[~views.fit]
        prior = _fractions(views.strata[fit], labels[fit])
        names, probabilities = predictions(probes, views, labels, prior[held_out], n_seeds, rng)
        return names, cls(probabilities, labels[~fit], held_out, prior)

    @cached_property
    def ratio(self) -> Matrix:
        """Bits by which each probe raises each level over the prior, log2 p(e|z) / p(e); (p, n, k)."""
        prior = self.prior[self.strata]  # (n, k)
        possible = self.probabilities * (prior > 0)
        posterior = (1 - PRIOR_FRACTION) * possible / np.maximum(possible.sum(axis=2, keepdims=True), 1e-12)
        posterior += PRIOR_FRACTION * prior
        impossible = np.float32(-50)
        return np.where(prior > 0, np.log2(posterior / np.maximum(prior, 1e-12) + 1e-12), impossible).astype(np.float32)

    @cached_property
    def guess(self) -> Labels:
        """The level that each probe would name if all were equally frequent; (p, n)."""
        return self.ratio.argmax(axis=2)

    def _weights(self, e: Labels) -> Matrix:
        """Weight of each sample in the mean over strata, by their size, of the mean over levels of the hit rate."""
        counts = contingency(self.strata, e)  # (strata, levels seen)
        of_stratum = counts.sum(axis=1) / len(e) / np.maximum((counts > 0).sum(axis=1), 1)
        return of_stratum[self.strata] / counts[self.strata, e]

    @cached_property
    def chance(self) -> float:
        """One over the number of levels, averaged over the strata by their size."""
        counts = contingency(self.strata, self.e)
        return float(np.average(1 / (counts > 0).sum(axis=1), weights=counts.sum(axis=1)))

    def statistics(self, order: Labels | slice = slice(None)) -> Matrix:
        """Balanced accuracies and mean log-ratios (2p,), with sample i given the nuisance of sample ``order[i]``."""
        e = self.e[order]
        hits = (self.guess == e).astype(np.float64) @ self._weights(e)
        return np.concatenate([hits, self.ratio[:, np.arange(len(e)), e].mean(axis=1)])

    def scores(self, groups: Labels, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """Balanced accuracies with the lower and upper ends of simultaneous intervals; (p,) each."""
        weights, hit = self._weights(self.e), self.guess == self.e
        score = hit.astype(np.float64) @ weights
        cell = combined(self.strata, self.e)
        rate = np.stack([np.bincount(cell, h) for h in hit]) / np.bincount(cell)  # (p, cells)
        influence = ((hit - rate[:, cell]) * weights).T
        # As if each cell had one sample more, of unknown outcome: ten hits in ten are not certainty.
        one_more = float(np.sum(weights[np.unique(cell, return_index=True)[1]] ** 2))
        margin = margins(influence, groups, rng, extra=one_more)
        return score, np.clip(score - margin, 0, 1), np.clip(score + margin, 0, 1)

    def bits(self, groups: Labels, rng: np.random.Generator) -> Matrix:
        """H(e) less the held-out cross-entropy, or both given the stratum; (p,).

        An overconfident probe would hide what it knows, so its log-ratios are scaled by a factor fitted
        on one half of the held-out groups and used on the other.
        """
        side = (rng.permutation(groups.max() + 1) % 2 == 0)[groups]
        gain = np.empty((len(self.probabilities), len(self.e)))
        for p, part in ((p, part) for p in range(len(gain)) for part in (side, ~side)):
            gain[p, part] = self._gain(p, part, self._factor(p, ~part))
        # The gain is over the prior of the fitted half; the entropy is that of the held-out half, which is smaller.
        here = _fractions(self.strata, self.e)
        return (gain + np.log2(self.prior[self.strata, self.e] / here[self.strata, self.e])).mean(axis=1)

    def _gain(self, p: int, some: Mask, factor: float) -> Matrix:
        ratio = factor * self.ratio[p, some].astype(np.float64)  # (samples, k)
        total = np.sum(self.prior[self.strata[some]] * np.exp2(ratio), axis=1)
        return ratio[np.arange(len(ratio)), self.e[some]] - np.log2(total)

    def _factor(self, p: int, some: Mask) -> float:
        if not some.any():
            return 1.0
        return float(minimize_scalar(lambda f: -self._gain(p, some, f).mean(), bounds=(0, 3), method="bounded").x)


@dataclass(frozen=True, eq=False)
class QuantityPredictions:
    """Predictions (p, n) of a quantity e (n,) by p probes, within strata (n,); as `LabelPredictions`.

    ``e_normal`` (n,) is e on the scale of a Gaussian, by its rank within its stratum of the fitted half; ``near`` has,
    for some held-out samples of each stratum, their positions and the centred distances between their embeddings.
    """

    predicted: Matrix
    e: Matrix
    strata: Labels
    e_normal: Matrix
    near: list[tuple[Labels, Matrix]]

    measure = "R²"
    statistic_names = ("R²", "rank correlation")  # p each, before that of the distances
    chance = 0.0

    @classmethod
    def of(
        cls, probes: Sequence[Probe], views: Views, e: Labels | Matrix, n_seeds: int, rng: np.random.Generator
    ) -> tuple[list[str], "QuantityPredictions"]:
        """Train the probes on half of the samples, and predict the others; return the names of the probes, too."""
        strata, fit, values = views.strata, views.fit, np.asarray(e, dtype=np.float64)
        spread = [_deviations(values[side], strata[side]).std() for side in (fit, ~fit)]
        if min(spread) <= 1e-12 * np.abs(values).max():
            remedy = "Give more samples or groups, or make it a label by `continuous=False`."
            raise InputError("e", f"`e` does not vary within one half of the samples. {remedy}")
        values = (values - values[fit].mean()) / spread[0]
        held_out = strata[~fit]
        names, predicted = predictions(probes, views, values, np.zeros(len(held_out)), n_seeds, rng)
        some = rng.permutation(len(held_out))[:DISTANCE_SAMPLES]
        parts = [some[held_out[some] == stratum] for stratum in np.unique(held_out[some])]
        near = [(part, centred_distances(views.standardised[~fit][part])) for part in parts if len(part) >= 4]
        e_normal = _normal_scores(values[~fit], held_out, values[fit], strata[fit])
        return names, cls(predicted, values[~fit], held_out, e_normal, near)

    @cached_property
    def predicted_normal(self) -> Matrix:
        """Predictions as Gaussian scores, of mean 0 and variance 1 in each probe; (p, n)."""
        scores = np.stack([_normal_scores(one, self.strata, one, self.strata) for one in self.predicted])
        return scores / np.maximum(scores.std(axis=1, keepdims=True), 1e-12)

    @cached_property
    def distance_correlation(self) -> float:
        """Bias-corrected distance correlation of embedding and nuisance, its square averaged over strata by size."""
        squares = [squared_correlation(a, centred_distances(self.e[some, None])) for some, a in self.near]
        return float(np.sqrt(max(0.0, np.average(squares, weights=[len(some) for some, _ in self.near]))))

    def statistics(self, order: Labels | slice = slice(None)) -> Matrix:
        """R², correlations of Gaussian scores, and distance covariance (2p + 1,), with sample i given ``order[i]``."""
        e, e_normal = self.e[order], self.e_normal[order]
        r2 = 1 - np.sum((e - self.predicted) ** 2, axis=1) / np.sum(_deviations(e, self.strata) ** 2)
        correlation = self.predicted_normal @ (e_normal - e_normal.mean()) / (len(e) * max(e_normal.std(), 1e-12))
        # One side is centred already, so plain distances of the other give the same product.
        near = [np.vdot(a, np.abs(np.subtract.outer(e[some], e[some]))) / len(some) for some, a in self.near]
        return np.concatenate([r2, correlation, [np.sum(near)]])

    def scores(self, groups: Labels, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
        """R² with the lower and upper ends of simultaneous intervals; (p,) each."""
        missed, deviation = (self.e - self.predicted) ** 2, _deviations(self.e, self.strata) ** 2
        r2 = 1 - missed.sum(axis=1) / deviation.sum()
        influence = ((1 - r2)[:, None] * deviation - missed).T / deviation.sum()
        margin = margins(influence, groups, rng)
        return r2, r2 - margin, np.minimum(r2 + margin, 1)

    def bits(self, groups: Labels, rng: np.random.Generator) -> Matrix:
        """Information of two Gaussians correlated as e and the prediction are, on Gaussian scales; (p,).

        Ranks do not change the information, ties broken at random can only lose some, and for a Gaussian e no joint
        distribution with that correlation has less. More than log2 n bits cannot be seen in n samples.
        """
        rank = np.argsort(np.lexsort((rng.random(len(self.e)), self.e))).astype(np.float64)
        e = _normal_scores(rank, self.strata, rank, self.strata)
        r = self.predicted_normal @ (e / e.std()) / len(e)
        return -0.5 * np.log2(1 - np.clip(r, 0, np.sqrt(1 - len(e) ** -2.0)) ** 2)


def _audit(
    a: Matrix,
    nuisance: NuisanceColumn,
    rng: np.random.Generator,
    groups: Labels,
    given: Labels | None,
    probes: Sequence[Probe],
    effort: Effort,
) -> Leakage:
    """Audit one nuisance: choose the samples, halve them, predict the second half, permute."""
    usable, notes = auditable(nuisance, groups, given)
    strata = np.zeros(len(a), dtype=np.int64) if given is None else given
    cells = nuisance.cells(strata)
    used = usable[thin(combined(groups[usable]), cells[usable], effort.max_samples, rng)]
    fit = halve(combined(groups[used]), combined(cells[used]), rng)
    if fit is None:
        what = f"no split of the groups has every level of `{nuisance.name}` on both sides"
        raise InputError("groups", f"{what}. Give more groups, or merge levels.")
    views = Views.of(a[used], combined(strata[used]), fit)
    kind = LabelPredictions if nuisance.levels else QuantityPredictions
    names, found = kind.of(probes, views, nuisance.coded[used], effort.n_seeds, rng)
    held_out = combined(groups[used[~fit]])
    exchange = Exchange.within(held_out, found.strata, found.e)
    permuted = [found.statistics(exchange.draw(rng)) for _ in range(effort.n_permutations)]
    statistics = np.stack([found.statistics(), *permuted])  # (1 + permutations, statistics)
    p_value, strongest = largest_test(statistics)
    evidence = [f"{what} of {name}" for what in found.statistic_names for name in names] + ["distance correlation"]
    score, low, high = found.scores(held_out, rng)
    bits = np.maximum(0, found.bits(held_out, rng)) + 0.0
    by_probe: dict[str, ProbeScore] = {}  # of several seeds, the best
    for name, *one in zip(names, score, low, high, bits, strict=True):
        if name not in by_probe or one[0] > by_probe[name].score:
            by_probe[name] = ProbeScore(float(one[0]), (float(one[1]), float(one[2])), float(one[3]))
    return Leakage(
        nuisance=nuisance.name,
        measure=found.measure,
        worst=float(score.max()),
        interval=(float(low.max()), float(high.max())),
        worst_probe=names[score.argmax()],
        chance=found.chance,
        chance_of_worst=float(statistics[1:, : len(names)].max(axis=1).mean()),
        p_value=p_value,
        evidence=evidence[strongest],
        smallest_p=max(1 / len(statistics), 1 / exchange.n_assignments(found.e)),
        bits=float(bits.max()),
        by_probe=by_probe,
        distance_correlation=found.distance_correlation,
        effective_rank=effective_rank(a),
        n_columns=a.shape[1],
        n_samples=len(a),
        n_used=len(used),
        confounding=None if given is None else confounding(given, nuisance.coded),
        notes=notes,
    )


def _fractions(strata: Labels, e: Labels) -> Matrix:
    """Return how often each level occurs in each stratum; (strata, levels)."""
    counts = contingency(strata, e)
    return counts / counts.sum(axis=1, keepdims=True)


def _deviations(e: Matrix, strata: Labels) -> Matrix:
    """Subtract from each value the mean of its stratum."""
    return e - (np.bincount(strata, e) / np.maximum(np.bincount(strata), 1))[strata]


def _normal_scores(values: Matrix, strata: Labels, reference: Matrix, reference_strata: Labels) -> Matrix:
    """Replace values by Gaussian quantiles, by the fraction of the reference of their stratum that is below them."""
    scores = np.empty(len(values))
    for stratum in np.unique(strata):
        some, others = strata == stratum, np.sort(reference[reference_strata == stratum])
        below = (np.searchsorted(others, values[some], "left") + np.searchsorted(others, values[some], "right")) / 2
        scores[some] = ndtri((below + 0.5) / (len(others) + 1))
    return scores
