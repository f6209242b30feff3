"""Whether latents and positives have the distributions that a theorem assumes.

All but `related_pairs` use latents, so they need a fitted encoder. They presume that the latents are right up to the
map that the theorem leaves open; other latents may pass or fail for no good reason.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special
from scipy.spatial import cKDTree

from pindown import theory
from pindown.auditing.checks.arrays import cross_predicted, read, whitened
from pindown.auditing.checks.conditions import RELATED_PAIRS
from pindown.auditing.checks.verdict import N_RESAMPLES, Estimate, Verdict, at_least, at_most, bootstrap
from pindown.data.labels import read_labels
from pindown.errors import InputError
from pindown.metrics.arrays import Matrix, mean_by_label
from pindown.metrics.dependence import centred_distances, squared_correlation
from pindown.theory import Assumption

TAILS = 0.3  # relative difference of a tail index from the assumed one: Laplace is .5 from normal
UNEVEN = 0.12  # standard deviation of log distances between positives that their place may explain
MIN_MEMBERS = 4  # samples of a class from which its direction can be estimated
RELATED_SAMPLES, N_SHUFFLES = 1_000, 50  # pairs whose distances are compared, and shuffles that estimate chance
RELATED, UNRELATED = 6.0, 3.0  # standard deviations above chance: more holds, and less fails
LOPSIDED = 0.2  # length of the mean of unit latents, or relative excess of a second moment, that is not uniform
PEAKED = 0.5  # slope of the log density within a body, relative to a normal distribution's: 0 is uniform, 1 is normal

MORE_SAMPLES = "Give more samples."
NOT_UNIFORM = "PairLoss(any_marginal=True), the default, corrects for it; without it the theorem does not apply."


def tail_index(distances: Matrix, d: int, *, sphere: bool) -> Estimate:
    r"""Estimate β of the distribution :math:`p(\tilde z | z) \propto e^{-\lambda \delta^\beta}` from distances δ.

    By maximum likelihood over λ and β. A volume :math:`\delta^{d-1}` goes with a distance in :math:`\mathbb R^d`, and
    :math:`\sin^{d-2}\theta` on the sphere with :math:`\delta = 2 \sin(\theta/2)`, so that β = 2 is vMF there and
    normal here. The interval is where the likelihood ratio is within 90 %.
    """
    if not distances.any() or (sphere and d < 2):  # all latents are equal, or the sphere has two points
        return Estimate(math.nan, math.nan, math.nan)
    scaled = np.maximum(distances, 1e-9 * distances.mean())
    scaled = scaled if sphere else scaled / scaled.mean()
    angles = _angles(scaled.max()) if sphere else scaled

    def loss(log_beta: float) -> float:
        beta = math.exp(log_beta)
        moment = float(np.mean(scaled**beta))
        return len(scaled) * (_sphere_loss(moment, beta, d, angles) if sphere else _reals_loss(moment, beta, d))

    ends = math.log(0.1), math.log(20)
    best = optimize.minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-3})
    drop = 1.353  # half the 90 % quantile of χ² with one degree of freedom

    def excess(log_beta: float) -> float:
        return loss(log_beta) - best.fun - drop

    low, high = (optimize.brentq(excess, end, best.x, xtol=1e-3) if excess(end) > 0 else end for end in ends)
    return Estimate(math.exp(best.x), math.exp(low), math.exp(high))


def _reals_loss(moment: float, beta: float, d: int) -> float:
    """Negative log likelihood per sample at the best λ, of a radius with density ∝ r^{d−1} exp(−λ r^β)."""
    rate = d / (beta * moment)
    return special.gammaln(d / beta) - math.log(beta) - d / beta * math.log(rate) + d / beta


def _angles(largest_chord: float) -> Matrix:
    """Return midpoints to integrate over, up to four times the largest angle in the data."""
    largest = min(math.pi, 8 * math.asin(min(1.0, largest_chord / 2)))
    return (np.arange(1_000) + 0.5) * largest / 1_000


def _sphere_loss(moment: float, beta: float, d: int, angles: Matrix) -> float:
    """Negative log likelihood per sample at the best λ of an angle with density ∝ sin^{d−2} θ exp(−λ (2 sin θ/2)^β)."""
    volume, powers = (d - 2) * np.log(np.sin(angles)), (2 * np.sin(angles / 2)) ** beta

    def loss(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return rate * moment + special.logsumexp(volume - rate * powers)

    near = math.log((d - 1) / (beta * moment))  # as in ℝ^{d−1}, which the sphere is like at short distances
    return optimize.minimize_scalar(loss, bounds=(near - 6, near + 2), method="bounded", options={"xatol": 1e-4}).fun


def _off(index: Estimate, expected: float) -> Estimate:
    """Return the relative difference of an index from the expected one."""
    ends = sorted(abs(end / expected - 1) for end in (index.low, index.high))
    inside = index.low <= expected <= index.high
    return Estimate(abs(index.value / expected - 1), 0.0 if inside else ends[0], ends[1])


def _has_tails(assumption: Assumption, index: Estimate, expected: float, distribution: str) -> Verdict:
    found = f"distances between positives have tail index {index}; {distribution} has {expected:g}."
    fails = f"Tails are too {'heavy' if index.value < expected else 'light'}: try another p, or another space."
    return at_most(assumption, _off(index, expected), TAILS, found, fails=fails, undecided=MORE_SAMPLES)


def vmf_conditional(
    latents: ArrayLike, positives: ArrayLike, assumption: Assumption = theory.VMF_CONDITIONAL
) -> Verdict:
    """Say whether positives lie around each other as in a vMF distribution, by the tail index of their distances.

    Row i of both arrays (n, d) is a pair of unit vectors; or a latent and the class vector of its class. Blind to all
    but the distance. A normal distribution projected onto the sphere passes, since it hardly differs.

    Examples
    --------
    >>> import torch
    >>> from pindown.networks.spaces import Sphere
    >>> from pindown.simulate.distributions import Uniform, VonMisesFisher, laplace
    >>> z = Uniform(3).sample(2_000, random_state=0)
    >>> pairs = VonMisesFisher(10.0).sample(z, random_state=1), Sphere()(laplace(0.2).sample(z, random_state=1))
    >>> [vmf_conditional(z, z_pos).outcome for z_pos in pairs]
    ['holds', 'fails']
    """
    a, b = (_on_sphere(read(name, values)) for name, values in (("latents", latents), ("positives", positives)))
    return _has_tails(assumption, tail_index(_distances(a, b, 2), a.shape[1], sphere=True), 2.0, "vMF")


def vmf_clusters(latents: ArrayLike, labels: ArrayLike) -> Verdict:
    """Say whether unit latents (n, d) lie around the mean of their class as in a vMF distribution.

    Each sample is compared with the mean direction of the others of its class, as in `vmf_conditional`; classes of
    fewer than ``MIN_MEMBERS`` are left out.

    Examples
    --------
    >>> import torch
    >>> from pindown.simulate.distributions import VonMisesFisher
    >>> labels = torch.arange(3).repeat(500)
    >>> vmf_clusters(VonMisesFisher(10.0).sample(torch.eye(3)[labels], random_state=0), labels).outcome
    'holds'
    """
    rows = read("latents", latents)
    numbers = read_labels("labels", labels, len(rows))
    counts = np.bincount(numbers)[numbers]
    others = (mean_by_label(rows, numbers)[numbers] * counts[:, None] - rows)[counts >= MIN_MEMBERS]
    if not len(others):
        why = f"no class has {MIN_MEMBERS} samples. Give more samples of each."
        return Verdict(theory.VMF_CLUSTERS, math.nan, TAILS, "undecided", why)
    return vmf_conditional(rows[counts >= MIN_MEMBERS], others, theory.VMF_CLUSTERS)


def matching_model(latents: ArrayLike, positives: ArrayLike, p: float) -> Verdict:
    r"""Say whether the norm that compares latents is that of the conditional, by the tail index of distances.

    Latents in :math:`\mathbb R^d` with :math:`p(\tilde z | z) \propto e^{-\lambda \lVert \tilde z - z \rVert_p^p}` have
    tail index p.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 3))
    >>> [matching_model(z, z + rng.laplace(size=z.shape), p).outcome for p in (1, 2)]
    ['holds', 'fails']
    """
    a, b = read("latents", latents), read("positives", positives)
    index = tail_index(_distances(a, b, p), a.shape[1], sphere=False)
    return _has_tails(theory.MATCHING_MODEL, index, p, f"the model, ‖·‖_{p:g}^{p:g},")


def lp_conditional(latents: ArrayLike, positives: ArrayLike) -> Verdict:
    r"""Say whether differences between positives have tails that single out axes: not those of a normal distribution.

    Their tail index, coordinate by coordinate, is 2 for a normal distribution in any coordinates; the p of
    `theory.LP_CONDITIONAL` in the right ones, and between the two in others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 3))
    >>> [lp_conditional(z, z + noise).outcome for noise in (rng.laplace(size=z.shape), rng.normal(size=z.shape))]
    ['holds', 'fails']
    """
    differences = np.abs(read("positives", positives) - read("latents", latents))
    index = tail_index((differences / differences.mean(0)).ravel(), 1, sphere=False)
    found = f"differences between positives have tail index {index} along the axes; a normal distribution has 2."
    fails = "At p = 2 rotations stay free: claim an affine map, no axes."
    return at_least(theory.LP_CONDITIONAL, _off(index, 2.0), TAILS, found, fails=fails)


def even_conditional(latents: ArrayLike, positives: ArrayLike, *, random_state: int = 0) -> Verdict:
    r"""Say whether positives are equally far from each other everywhere, as with a metric conditional.

    With δ the distance between positives and ẑ one of them, the statistic is the standard deviation of
    :math:`\mathrm E[\log \delta \mid \hat z]`: of a smooth regression, scored on held-out samples. A box cuts the
    conditional off at its walls, which explains a little.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z, noise = rng.uniform(size=(2, 2_000, 2))
    >>> [even_conditional(z, z + 0.1 * noise * size).outcome for size in (1, 0.1 + z[:, :1] ** 2)]
    ['holds', 'fails']
    """
    a, b = read("latents", latents), read("positives", positives)
    rng = np.random.default_rng(random_state)
    distance = _distances(a, b, 2)
    target = np.log(np.maximum(distance, max(1e-3 * float(np.median(distance)), 1e-300)))[:, None]
    smooth, mean = cross_predicted(a, target, rng)
    gain = ((target - mean) ** 2 - (target - smooth) ** 2)[:, 0]
    change = bootstrap(lambda some: math.sqrt(max(0.0, float(gain[some].mean()))), len(gain), rng)
    found = f"distances between positives vary from place to place by {change} of themselves."
    fails = "No single metric fits: use a nonlinear claim, or pairs of one kind."
    return at_most(theory.METRIC_CONDITIONAL, change, UNEVEN, found, fails=fails, undecided=MORE_SAMPLES)


def related_pairs(X: ArrayLike, positives: ArrayLike, *, random_state: int = 0) -> Verdict:
    """Say whether positives depend on each other, before any training.

    The statistic is their squared distance correlation in standard deviations of that of shuffled pairs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, noise = rng.normal(size=(2, 500, 3))
    >>> [related_pairs(x, positives).outcome for positives in (x + noise, noise)]
    ['holds', 'fails']
    """
    a, b = read("X", X), read("positives", positives)
    _check_paired("X", a, b)
    rng = np.random.default_rng(random_state)
    some = rng.permutation(len(a))[:RELATED_SAMPLES]
    first, second = centred_distances(a[some]), centred_distances(b[some])
    value = squared_correlation(first, second)
    shuffles = (rng.permutation(len(some)) for _ in range(N_SHUFFLES))
    chance = [squared_correlation(first, second[np.ix_(order, order)]) for order in shuffles]
    score = float(value - np.mean(chance)) / max(float(np.std(chance)), 1e-12)
    found = (
        f"positives correlate (squared distance correlation {value:.2g}) {score:.1f} standard deviations above chance."
    )
    fails = "Check that samples and positives are in the same order."
    return at_least(RELATED_PAIRS, score, RELATED, found, fails=fails, unless_below=UNRELATED)


def _distances(a: Matrix, b: Matrix, p: float) -> Matrix:
    _check_paired("latents", a, b)
    return np.linalg.norm(b - a, ord=p, axis=1)


def _check_paired(name: str, a: Matrix, b: Matrix) -> None:
    if a.shape != b.shape:
        message = f"positives must have the shape of {name}, {a.shape}, got {b.shape}: row i of both is a pair."
        raise InputError("positives", message)


def _on_sphere(rows: Matrix) -> Matrix:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def uniform_on_sphere(latents: ArrayLike, *, random_state: int = 0) -> Verdict:
    r"""Say whether unit latents are spread evenly, by their first two moments.

    .. math:: \max\bigl( \lVert \mathrm E z \rVert,\; \lVert d\, \mathrm E z z^\top - I \rVert_2 \bigr)

    less what a uniform sample of this size has. Blind to higher moments.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> [uniform_on_sphere(z + shift).outcome for shift in (0, [1, 0, 0])]
    ['holds', 'fails']
    """
    unit = _on_sphere(read("latents", latents))
    rng = np.random.default_rng(random_state)
    n, d = unit.shape
    resampled = bootstrap(lambda some: _lopsidedness(unit[some]), n, rng)
    chance = float(np.mean([_lopsidedness(_on_sphere(rng.normal(size=(n, d)))) for _ in range(N_RESAMPLES)]))
    value = max(0.0, _lopsidedness(unit) ** 2 - chance**2) ** 0.5
    off = Estimate(*(max(0.0, value + end - resampled.value) for end in resampled))
    found = f"the first two moments of the latents differ from the uniform distribution's by {off}."
    return at_most(theory.UNIFORM_SPHERE, off, LOPSIDED, found, fails=NOT_UNIFORM, undecided=MORE_SAMPLES)


def _lopsidedness(unit: Matrix) -> float:
    moments = np.linalg.eigvalsh(unit.shape[1] * unit.T @ unit / len(unit))
    return float(max(np.linalg.norm(unit.mean(0)), np.abs(moments - 1).max()))


def uniform_in_body(latents: ArrayLike, *, random_state: int = 0) -> Verdict:
    r"""Say whether latents fill a convex body evenly: whether their density decreases away from the middle.

    With r the radius of whitened latents, the statistic is the slope of the log density against :math:`-r^2/2` among
    the inner half of them: 0 for a uniform distribution, 1 for a normal one. Densities come from distances to the tenth
    neighbour.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [uniform_in_body(z).outcome for z in (rng.uniform(size=(2_000, 3)), rng.normal(size=(2_000, 3)))]
    ['holds', 'fails']
    """
    white = whitened(read("latents", latents))
    distance = cKDTree(white).query(white, k=min(11, len(white)))[0][:, -1]
    radius = (white**2).sum(1) / 2
    inner = radius <= np.median(radius)
    sparsity, radius = white.shape[1] * np.log(np.maximum(distance[inner], 1e-12)), radius[inner]
    rng = np.random.default_rng(random_state)
    slope = bootstrap(lambda some: np.polyfit(radius[some], sparsity[some], 1)[0], len(radius), rng)
    found = f"the log density of the latents decreases {slope} times as fast as a normal distribution's."
    return at_most(theory.UNIFORM_CONVEX_BODY, slope, PEAKED, found, fails=NOT_UNIFORM, undecided=MORE_SAMPLES)
