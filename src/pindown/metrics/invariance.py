r"""Invariance: what a code Z (n, d) still tells of a nuisance e, to readers trained from scratch on other rows.

That a classifier failed while an encoder was trained against it proves nothing. `leakage` trains several families of
probes afterwards, on half of the rows, and scores them on the other half; the worst counts. The maximum of many scores
is above chance even for a code that knows nothing, so it is compared with the same maximum under permutations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown.data.labels import combined
from pindown.metrics._exchange import Codes, Exchange, Mask, halve, largest_test, thin
from pindown.metrics._nuisance import Nuisance, auditable, read_labels, read_nuisances
from pindown.metrics._probes import PROBES, Probe, Views, predictions, read_probes
from pindown.metrics._scores import DISTANCE_ROWS, LabelReading, QuantityReading, deviations, normal_scale, value_shares
from pindown.metrics.dependence import Confounding, confounding, effective_rank
from pindown.metrics.reading import Matrix, RandomState, read_matrix

LEVEL = 0.05  # of the p-value, for the verdict


@dataclass(frozen=True)
class ProbeScore:
    """What one family of probes reads: held-out score, an interval that holds for all families at once, and bits."""

    score: float
    interval: tuple[float, float]
    bits: float

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.score:6.3f}  [{low:6.3f}, {high:6.3f}]  {self.bits:6.3f}"


@dataclass(frozen=True, eq=False)
class Leakage:
    """What a code tells of a nuisance: the worst probe's score, and how likely that is by chance.

    Attributes
    ----------
    nuisance : str
        Name of the nuisance, ``"e"`` or its column.
    measure : str
        What is scored: ``"balanced accuracy"`` of labels, ``"R²"`` of quantities.
    worst, interval, worst_probe
        The highest held-out score, a 95 % interval for the score of the truly worst of these probes, and its family.
    chance : float
        Score of a guess: 1 / number of values (averaged over strata), or 0.
    chance_of_worst : float
        Mean of ``worst`` over permutations of the nuisance: what the best of so many guesses scores. An R² can be far
        below 0 there, if the probes are sure of themselves.
    p_value, evidence
        Of independence (given ``given``), exact for the largest of all statistics of all probes; and which that is.
    smallest_p : float
        The smallest p-value that these rows, groups and permutations allow.
    bits, bits_interval
        Lower bound of I(e; Z) by the best probe, at least 0: H(e) less its held-out cross-entropy.
    nuisance_bits : float or None
        H(e), all that could leak; given ``given``, if that is passed. None for a quantity.
    by_probe : dict
        `ProbeScore` of each family (its worst seed).
    distance_correlation : float or None
        For quantities, bias-corrected, on at most 800 held-out rows.
    effective_rank, n_columns, collapsed
        How many of its dimensions the code fills, and whether that is none, or hardly more than one of several.
    n_samples, n_used : int
        Rows given, and rows used (half to fit, half to score).
    confounding : Confounding or None
        What the nuisance shares with ``given``.
    notes : tuple of str
        What was left out, and why.
    floor : float or None
        The worst probe's score off what was handed over as a floor; None if nothing was.
    columns : tuple of Leakage
        One result per column of ``e`` if there are several; this result is then the worst column's, its p-value
        multiplied by their number.
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
    bits_interval: tuple[float, float]
    nuisance_bits: float | None
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
        """Whether the code is constant, or has several columns that fill hardly more than one dimension."""
        return self.effective_rank < (1.1 if self.n_columns > 1 else 0.5)

    @property
    def leaks(self) -> bool:
        """Whether independence is rejected at the 5 % level and, with a floor, the worst probe is for sure above it."""
        return self.p_value <= LEVEL and (self.floor is None or self.interval[0] > self.floor)

    @property
    def ground(self) -> float:
        """What a code that is blind scores: the floor if there is one, and chance at least."""
        return self.chance if self.floor is None else max(self.chance, self.floor)

    @property
    def excess(self) -> float:
        """How far from chance (0) to certainty (1) the worst probe gets."""
        return (self.worst - self.chance) / (1 - self.chance)

    @property
    def verdict(self) -> str:
        """One sentence on what was found: leaks, collapsed, undecided, or no leak found."""
        name, rank = self.nuisance, f"effective rank {self.effective_rank:.1f} of {self.n_columns}"
        floor = "" if self.floor is None else f", floor {self.floor:.3f}"
        levels = f"{self.measure} {self.worst:.3f} (chance {self.chance:.3f}{floor})"
        if self.leaks:
            dead = f" And Z has nearly collapsed, {rank}." if self.collapsed else ""
            return (
                f"{name} leaks (p = {self.p_value:.3g}, strongest evidence: {self.evidence}); the worst probe, "
                f"{self.worst_probe}, has {levels}, the best bound is {self.bits:.3f} bits.{dead}"
            )
        if self.collapsed:
            return f"Z has collapsed, {rank}: a constant is invariant to everything, so nothing follows for {name}."
        if self.smallest_p > LEVEL:
            return f"Undecided: so few groups allow no p-value below {self.smallest_p:.2g}. Give more groups."
        return (
            f"No leak of {name} found (p = {self.p_value:.3g}): the worst of {len(self.by_probe)} families of probes "
            f"has {levels}; for these, scores above {self.interval[1]:.3f} are excluded with 95 % confidence."
        )

    def __str__(self) -> str:
        if self.columns:
            return "\n\n".join([*(str(column) for column in self.columns), f"Overall: {self.verdict}"])
        head = f"Leakage of {self.nuisance}, {self.n_used} of {self.n_samples} rows, half of them held out"
        lines = [head, f"  {'probe':<12} {self.measure} [95 %]  bits"]
        lines += [f"  {name:<12} {score}" for name, score in self.by_probe.items()]
        lines.append(f"  {'chance':<12} {self.chance:6.3f}  (the worst, e shuffled: {self.chance_of_worst:.3f})")
        lines += [] if self.floor is None else [f"  {'floor':<12} {self.floor:6.3f}"]
        if self.distance_correlation is not None:
            lines.append(f"  distance correlation {self.distance_correlation:.3f}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [str(self.confounding)] if self.confounding is not None else []
        return "\n".join([*lines, self.verdict])


def leakage(
    Z: ArrayLike,
    e: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    given: ArrayLike | None = None,
    floor: ArrayLike | None = None,
    continuous: bool | None = None,
    probes: str | Probe | Sequence[str | Probe] = PROBES,
    n_seeds: int = 3,
    n_permutations: int = 999,
    max_samples: int = 20_000,
    random_state: RandomState = None,
) -> Leakage:
    r"""Audit a code for a nuisance: train probes on half of the rows, score them on the other, the worst counts.

    For labels the score is balanced accuracy, the mean over values of the share of their rows that is recognised, and

    .. math:: \text{bits} = \max\Bigl(0,\; H(e) - \min_{\text{probes}} \tfrac1n \sum_i -\log_2 q(e_i | z_i)\Bigr)
              \;\lesssim\; I(e; Z)

    on held-out rows. For quantities it is R², and bits are :math:`-\frac12 \log_2(1 - r^2)` with r the correlation of
    e and its prediction, both on the scale of Gaussian ranks. All bounds are from below: an unseen kind of reader may
    know more.

    **The p-value** is exact, although the maximum over probes and seeds is taken. Once the probes are trained their
    predictions are fixed; if e is independent of Z, permuting e among the held-out rows changes nothing in law. So
    every statistic (for each probe the score and the log-likelihood; the distance correlation) is recomputed under
    permutations, and the largest is compared with the largest. The intervals, too, hold for all probes at once.

    Rows that the encoder was trained on can look blind, or leaky, only there: pass rows it has not seen. Blind to
    invertible affine maps of Z for most probes, and so to where an encoder hides what it knows; blind to what only
    several columns of ``e`` together would show (join them into one label for that).

    Parameters
    ----------
    Z : array (n, d)
        The code.
    e : array (n,) or (n, columns)
        The nuisance. Numbers with fractional parts are quantities, anything else labels; each column is audited.
    groups : array (n,), optional
        Subject, episode …: rows of one group are never on both sides of the split, and count as dependent. A group
        with one value of e is permuted as a whole, and a value needs two groups; in other groups rows are permuted, so
        these are taken as exchangeable: thin a time series.
    given : array (n,), optional
        A label. Leakage is then that within its strata, I(e; Z | given), with permutations within them: what a code
        tells of e beyond what it may tell through the label. See `confounding`.
    floor : array (n, k), optional
        What a code that is blind would be, such as the true displacement of robots that were told alike: it is read
        by the same probes, and what they score is the floor. Where e goes a little with everything, the p-value alone
        misleads.
    continuous : bool, optional
        True makes whole numbers quantities, False fractional ones labels.
    probes : sequence of str or Probe
        The families, by name; by default all: linear, quadratic, kernel, neighbours, boosting and network.
    n_seeds, n_permutations, max_samples : int
        Seeds for families that draw; permutations; rows to use. With 20,000 the error of a balanced accuracy is below
        .005, so that more would change little.
    random_state : int, numpy.random.Generator or None
        Seed of the split, the probes and the permutations.

    Examples
    --------
    The second column has the same mean for both values of e, and another spread: only the linear probe is deceived.

    >>> rng = np.random.default_rng(0)
    >>> e = np.repeat(["left", "right"], 300)
    >>> Z = rng.normal(size=(600, 2)) * np.where(e == "left", 1, 3)[:, None] ** [0, 1]
    >>> found = leakage(Z, e, random_state=0)
    >>> found.leaks, found.chance, found.worst > 0.7, found.by_probe["linear"].score < 0.6
    (True, 0.5, True, True)

    The first column knows nothing, and a constant is no evidence of anything:

    >>> leakage(Z[:, :1], e, random_state=0).leaks
    False
    >>> print(leakage(np.ones((600, 2)), e, random_state=0).verdict)
    Z has collapsed, effective rank 0.0 of 2: a constant is invariant to everything, so nothing follows for e.
    """
    effort = _Effort(read_probes("leakage", probes), n_seeds, n_permutations, max_samples)
    code = read_matrix("leakage", "Z", Z)
    nuisances = read_nuisances("leakage", e, len(code), continuous)
    own = np.arange(len(code)) if groups is None else read_labels("leakage", "groups", groups, len(code))
    label = None if given is None else read_labels("leakage", "given", given, len(code))
    streams = np.random.default_rng(random_state).spawn(len(nuisances))
    results = [_audit(code, each, own, label, effort, rng) for each, rng in zip(nuisances, streams, strict=True)]
    if floor is not None:
        blind = read_matrix("leakage", "floor", floor)
        if len(blind) != len(code):
            raise ValueError(f"leakage: floor has {len(blind)} rows, but Z has {len(code)}. Give a row for each.")
        streams = np.random.default_rng(streams[0]).spawn(len(nuisances))
        floors = [_audit(blind, each, own, label, effort, rng) for each, rng in zip(nuisances, streams, strict=True)]
        results = [replace(found, floor=least.worst) for found, least in zip(results, floors, strict=True)]
    if len(results) == 1:
        return results[0]
    worst = min(results, key=lambda result: (result.p_value, -result.excess))
    corrected, smallest = (min(1.0, len(results) * p) for p in (worst.p_value, worst.smallest_p))
    return replace(worst, p_value=corrected, smallest_p=smallest, columns=tuple(results))


@dataclass(frozen=True)
class _Effort:
    """How hard to look."""

    probes: tuple[Probe, ...]
    n_seeds: int
    n_permutations: int
    max_samples: int

    def __post_init__(self) -> None:
        least = {"n_seeds": 1, "n_permutations": 19, "max_samples": 100}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                why = ": with fewer no p-value can reach .05" if name == "n_permutations" else ""
                raise ValueError(f"leakage: {name} must be at least {bound}, got {getattr(self, name)}{why}.")
        if not self.probes:
            raise ValueError("leakage: probes is empty, so nothing would be read. Leave it out for all families.")


def _audit(
    code: Matrix, nuisance: Nuisance, groups: Codes, given: Codes | None, effort: _Effort, rng: np.random.Generator
) -> Leakage:
    """Audit one nuisance: choose the rows, halve them, read the second half, permute."""
    usable, notes = auditable("leakage", nuisance, groups, given)
    strata = np.zeros(len(code), dtype=int) if given is None else given
    cells = nuisance.cells(strata)
    rows = usable[thin(combined(groups[usable]), cells[usable], effort.max_samples, rng)]
    fit = halve(combined(groups[rows]), combined(cells[rows]), rng)
    if fit is None:
        raise ValueError(
            f"leakage: no split of the {len(np.unique(groups[rows]))} groups has every value of {nuisance.name} on "
            "both sides. Collect more groups, or join values."
        )
    e = combined(nuisance.coded[rows]) if nuisance.is_label else nuisance.coded[rows]
    names, reading = _readings(code[rows], e, combined(strata[rows]), fit, effort, rng)
    return Leakage(
        nuisance=nuisance.name,
        **_evaluated(names, reading, combined(groups[rows[~fit]]), effort, rng),
        effective_rank=effective_rank(code),
        n_columns=code.shape[1],
        n_samples=len(code),
        n_used=len(rows),
        confounding=None if given is None else confounding(given, nuisance.values),
        notes=notes,
    )


def _readings(
    code: Matrix, e: NDArray[Any], strata: Codes, fit: Mask, effort: _Effort, rng: np.random.Generator
) -> tuple[list[str], LabelReading | QuantityReading]:
    """Train the probes on the rows to fit, and let them speak of the others; their names beside."""
    held, is_label = ~fit, e.dtype.kind != "f"
    views = Views.of(code, strata, fit)
    if is_label:
        prior = value_shares(e[fit], strata[fit])
        without_code = prior[strata[held]]
    else:
        e = _standardised(e, strata, fit)
        without_code = np.zeros(held.sum())
    if views.standardised.shape[1]:
        seeds = rng.integers(2**31, size=effort.n_seeds).tolist()
        names, said = predictions(effort.probes, views, e, fit, n_values=e.max() + 1 if is_label else 0, seeds=seeds)
    else:
        names, said = ["constant"], without_code[None]
    if is_label:
        return names, LabelReading(said, e[held], strata[held], prior)
    near = rng.permutation(held.sum())[:DISTANCE_ROWS]
    normal = normal_scale(e[held], strata[held], e[fit], strata[fit])
    return names, QuantityReading(said, e[held], strata[held], normal, views.standardised[held][near], near)


def _standardised(e: Matrix, strata: Codes, fit: Mask) -> Matrix:
    """Scale a quantity by its mean and its spread within strata, on the rows to fit."""
    spread = [deviations(e[side], strata[side]).std() for side in (fit, ~fit)]
    if min(spread) <= 1e-12 * np.abs(e).max():
        raise ValueError(
            "leakage: e does not vary within one half of the rows, so that it cannot be scored. Its values are too "
            "rare, or groups too few: give more rows or groups, or make it a label with continuous=False."
        )
    return (e - e[fit].mean()) / spread[0]


def _evaluated(
    names: list[str],
    reading: LabelReading | QuantityReading,
    groups: Codes,
    effort: _Effort,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Compare the observed statistics with permuted ones, and collect what `Leakage` says of the probes."""
    exchange = Exchange.within(groups, reading.strata, reading.e)
    kinds = [f"{kind} of {name}" for kind in reading.kinds for name in names] + ["distance correlation"]
    permuted = [reading.statistics(exchange.draw(rng)) for _ in range(effort.n_permutations)]
    statistics = np.stack([reading.statistics(), *permuted])  # (1 + permutations, statistics)
    p_value, strongest = largest_test(statistics)
    score, low, high = reading.scores(groups, rng)
    bits, bits_low, bits_high = (np.maximum(0, b) + 0.0 for b in reading.bits(groups, rng))
    by_probe = {}
    for family in dict.fromkeys(names):
        best = max((i for i, name in enumerate(names) if name == family), key=lambda i: score[i])
        by_probe[family] = ProbeScore(float(score[best]), (float(low[best]), float(high[best])), float(bits[best]))
    return {
        "measure": reading.measure,
        "worst": float(score.max()),
        "interval": (float(low.max()), float(high.max())),
        "worst_probe": names[score.argmax()],
        "chance": reading.chance,
        "chance_of_worst": float(statistics[1:, : len(names)].max(axis=1).mean()),
        "p_value": p_value,
        "evidence": kinds[strongest],
        "smallest_p": max(1 / len(statistics), 1 / exchange.n_distinct(reading.e)),
        "bits": float(bits.max()),
        "bits_interval": (float(bits_low.max()), float(bits_high.max())),
        "nuisance_bits": reading.nuisance_bits,
        "by_probe": by_probe,
        "distance_correlation": reading.distance_correlation,
    }


def inject_leak(Z: ArrayLike, e: ArrayLike, share: float = 0.05, *, random_state: RandomState = None) -> Matrix:
    r"""Return the code with a known leak: e explains ``share`` of the variance of one random direction of it.

    .. math:: Z' = Z + (t' - t)\, b^\top, \qquad t' = \sqrt{1 - s}\; t + \sqrt{s}\; c(e)

    with t the coordinate of Z along a random direction, c(e) the nuisance (labels by their rank), both of variance 1,
    and b = Cov(Z, t). What is uncorrelated with t stays; and if Z is independent of e its covariance does not change,
    so that the leak cannot be seen without e. For Gaussian codes it is worth at most :math:`-\frac12 \log_2(1 - s)`
    bits. The positive control of an audit: one that finds nothing here would have found nothing in Z.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, e = rng.normal(size=(2000, 3)), rng.integers(4, size=2000)
    >>> [leakage(code, e, n_seeds=1, random_state=0).leaks for code in (Z, inject_leak(Z, e, 0.05, random_state=1))]
    [False, True]
    """
    a = read_matrix("inject_leak", "Z", Z).astype(np.float64)
    nuisances = read_nuisances("inject_leak", e, len(a), None)
    if len(nuisances) > 1 or not 0 <= share <= 1:
        raise ValueError(
            f"inject_leak: e must have one column, got {len(nuisances)}, and share must be from 0 to 1, got {share}."
        )
    spread = a.std(axis=0)
    if not spread.any():
        raise ValueError("inject_leak: Z is constant, so it has no direction to leak along. Pass a code that varies.")
    rng = np.random.default_rng(random_state)
    along = (a - a.mean(axis=0)) @ (rng.normal(size=len(spread)) * (spread > 0) / np.where(spread > 0, spread, 1))
    along /= along.std()
    told = nuisances[0].coded - nuisances[0].coded.mean()
    told = told / told.std()
    moved = np.sqrt(1 - share) * along + np.sqrt(share) * told
    return a + np.outer(moved - along, (a - a.mean(axis=0)).T @ along / len(a))
