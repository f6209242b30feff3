"""Do partners lie around each other as a theorem assumes? Whether at all, their tails, and whether alike everywhere.

All but `related_partners` look at codes, so they speak after training. They presume that the codes are the latents up
to the map that the theorem leaves open; a code that is something else may pass, or fail, for no reason of the world's.
"""

import math
from typing import Any

import numpy as np
from scipy import optimize, special

from pindown import theory
from pindown.auditing.checks.arrays import N_RESAMPLES, Matrix, cross_predicted, on_sphere, read
from pindown.auditing.checks.conditions import RELATED_PARTNERS
from pindown.auditing.checks.verdict import Estimate, Verdict, above, below, estimate
from pindown.data.labels import read_labels
from pindown.metrics.arrays import mean_by_label
from pindown.metrics.dependence import centred_distances, squared_correlation
from pindown.theory import Assumption

TAILS = 0.3
"""Relative distance of a tail index from the assumed one that counts as another law: Laplace is .5 from normal."""

UNEVEN = 0.12
"""Standard deviation of log distances between partners that place may explain, as a share of the distances.

In boxes and in the reals it explained up to .09, where the spread grows along an axis .13 to .44, though much of that
goes into a bent code (three to five latents, seeds 100 to 117).
"""

MIN_MEMBERS = 4
"""Rows of a class from which its direction can be told."""

RELATED_ROWS, N_SHUFFLES = 1_000, 50
"""Pairs whose distances are compared, and shuffles that say what chance would give."""

RELATED, UNRELATED = 6.0, 3.0
"""Standard deviations above chance from which partners count as related, and up to which they do not."""


def tail_index(distances: Matrix, d: int, *, sphere: bool) -> Estimate:
    r"""Estimate β of the law :math:`p(\tilde z | z) \propto e^{-\lambda \delta^\beta}` from distances δ.

    By maximum likelihood over λ and β. A volume :math:`\delta^{d-1}` goes with a distance in :math:`\mathbb R^d`, and
    :math:`\sin^{d-2}\theta` on the sphere with :math:`\delta = 2 \sin(\theta/2)`, so that β = 2 is vMF there and
    normal here. The interval is where the likelihood ratio is within 90 %.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(4_000, 3))
    >>> print(tail_index(np.linalg.norm(x, axis=1), 3, sphere=False))
    2.1 [2, 2.2]
    """
    if not distances.any() or (sphere and d < 2):  # one code for all, or a sphere of two points
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
    """Negative log likelihood per row at the best λ, of a radius with density ∝ r^{d−1} exp(−λ r^β)."""
    rate = d / (beta * moment)
    return special.gammaln(d / beta) - math.log(beta) - d / beta * math.log(rate) + d / beta


def _angles(largest_chord: float) -> Matrix:
    """Return midpoints to integrate over: up to four times the largest angle seen, beyond which nothing is left."""
    largest = min(math.pi, 8 * math.asin(min(1.0, largest_chord / 2)))
    return (np.arange(1_000) + 0.5) * largest / 1_000


def _sphere_loss(moment: float, beta: float, d: int, angles: Matrix) -> float:
    """Negative log likelihood per row at the best λ, of an angle with density ∝ sin^{d−2} θ exp(−λ (2 sin θ/2)^β)."""
    volume, powers = (d - 2) * np.log(np.sin(angles)), (2 * np.sin(angles / 2)) ** beta

    def loss(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return rate * moment + special.logsumexp(volume - rate * powers)

    near = math.log((d - 1) / (beta * moment))  # as in ℝ^{d−1}, which the sphere is like at short distances
    return optimize.minimize_scalar(loss, bounds=(near - 6, near + 2), method="bounded", options={"xatol": 1e-4}).fun


def _off(index: Estimate, wanted: float) -> Estimate:
    """Return how far an index is from the wanted one, relative to it."""
    ends = sorted(abs(end / wanted - 1) for end in (index.low, index.high))
    inside = index.low <= wanted <= index.high
    return Estimate(abs(index.value / wanted - 1), 0.0 if inside else ends[0], ends[1])


def _has_tails(assumption: Assumption, index: Estimate, wanted: float, law: str) -> Verdict:
    off = _off(index, wanted)
    outcome = below(off, TAILS)
    why = f"the tail index of partners' codes is {index}, that of {law} is {wanted:g}."
    if outcome == "fails":
        why += f" Tails are too {'heavy' if index.value < wanted else 'light'}: try another p, or another space."
    elif outcome == "undecided":
        why += " Give more samples."
    return Verdict(assumption, off.value, TAILS, outcome, why)


def vmf_conditional(codes: Any, partners: Any, assumption: Assumption = theory.VMF_CONDITIONAL) -> Verdict:
    """Say whether partners lie around each other as a vMF law has it, by the tail index of their distances.

    Blind to all but the distance; a normal law that is projected onto the sphere passes, since it hardly differs.

    Parameters
    ----------
    codes, partners : arrays (n, d)
        Unit codes, row i of both a pair; or codes and the class vectors of their classes.
    assumption : Assumption
        What the verdict is about.

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
    a, b = (on_sphere(read(name, values)) for name, values in (("codes", codes), ("partners", partners)))
    return _has_tails(assumption, tail_index(_distance(a, b, 2), a.shape[1], sphere=True), 2.0, "vMF")


def vmf_clusters(codes: Any, labels: Any, vectors: Any = None) -> Verdict:
    """Say whether codes lie around their class vectors as a vMF law has it; see `vmf_conditional`.

    Parameters
    ----------
    codes : array (n, d)
        Unit codes.
    labels : array (n,)
        The class of each.
    vectors : array (n_classes, d), optional
        Class vectors, in the order of the sorted labels. By default each code is seen from the mean direction of the
        others of its class, which a fit that is not quite done does not lead astray; classes of fewer than
        :data:`MIN_MEMBERS` are left out.

    Examples
    --------
    >>> import torch
    >>> from pindown.simulate.distributions import VonMisesFisher
    >>> labels = torch.arange(3).repeat(500)
    >>> vmf_clusters(VonMisesFisher(10.0).sample(torch.eye(3)[labels], random_state=0), labels).outcome
    'holds'
    """
    rows = read("codes", codes)
    numbers = read_labels("labels", labels, len(rows))
    if vectors is not None:
        return vmf_conditional(rows, read("vectors", vectors)[numbers], theory.VMF_CLUSTERS)
    counts = np.bincount(numbers)[numbers]
    others = (mean_by_label(rows, numbers)[numbers] * counts[:, None] - rows)[counts >= MIN_MEMBERS]
    if not len(others):
        why = f"no class has {MIN_MEMBERS} rows. Give more rows of each."
        return Verdict(theory.VMF_CLUSTERS, math.nan, TAILS, "undecided", why)
    return vmf_conditional(rows[counts >= MIN_MEMBERS], others, theory.VMF_CLUSTERS)


def matching_model(codes: Any, partners: Any, p: float) -> Verdict:
    r"""Say whether the norm by which codes are compared is that of the conditional, by the tail index of distances.

    Codes in :math:`\mathbb R^d` with :math:`p(\tilde z | z) \propto e^{-\lambda \lVert \tilde z - z \rVert_p^p}` have
    tail index p.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 3))
    >>> [matching_model(z, z + rng.laplace(size=z.shape), p).outcome for p in (1, 2)]
    ['holds', 'fails']
    """
    a, b = read("codes", codes), read("partners", partners)
    index = tail_index(_distance(a, b, p), a.shape[1], sphere=False)
    return _has_tails(theory.MATCHING_MODEL, index, p, f"the model, ‖·‖_{p:g}^{p:g},")


def lp_conditional(codes: Any, partners: Any) -> Verdict:
    r"""Say whether differences between partners have tails that single out axes: not those of a normal law.

    Their tail index, coordinate by coordinate, is 2 for a normal law in all coordinates that there are; the p of
    `theory.LP_CONDITIONAL` in the right ones, and between the two in others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 3))
    >>> [lp_conditional(z, z + noise).outcome for noise in (rng.laplace(size=z.shape), rng.normal(size=z.shape))]
    ['holds', 'fails']
    """
    away = np.abs(read("partners", partners) - read("codes", codes))
    index = tail_index((away / away.mean(0)).ravel(), 1, sphere=False)
    off = _off(index, 2.0)
    outcome = above(off, TAILS)
    why = f"the tail index of differences between partners is {index} along the codes' axes; 2 is a normal law."
    if outcome != "holds":
        why += " At p = 2 rotations stay free: claim an affine map, no axes."
    return Verdict(theory.LP_CONDITIONAL, off.value, TAILS, outcome, why)


def even_conditional(codes: Any, partners: Any, *, random_state: int = 0) -> Verdict:
    r"""Say whether partners are as far from each other everywhere, as a metric conditional has it.

    With δ the distance between partners and ẑ the place of one of them, the statistic is the standard deviation of
    :math:`\mathrm E[\log \delta \mid \hat z]`, by how much they change from place to place: of a smooth regression,
    scored on rows it has not seen. A box cuts the conditional off at its walls, which explains a little.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z, noise = rng.uniform(size=(2, 2_000, 2))
    >>> [even_conditional(z, z + 0.1 * noise * size).outcome for size in (1, 0.1 + z[:, :1] ** 2)]
    ['holds', 'fails']
    """
    a, b = read("codes", codes), read("partners", partners)
    rng = np.random.default_rng(random_state)
    distance = _distance(a, b, 2)
    target = np.log(np.maximum(distance, max(1e-3 * float(np.median(distance)), 1e-300)))[:, None]
    smooth, flat = cross_predicted(a, target, rng)
    gain = ((target - flat) ** 2 - (target - smooth) ** 2)[:, 0]
    resampled = (rng.integers(len(gain), size=len(gain)) for _ in range(N_RESAMPLES))
    change = estimate([math.sqrt(max(0.0, float(gain[some].mean()))) for some in resampled])
    outcome = below(change, UNEVEN)
    why = f"distances between partners change by {change} of themselves from place to place."
    if outcome == "fails":
        why += " No one metric fits."
    return Verdict(theory.METRIC_CONDITIONAL, change.value, UNEVEN, outcome, why)


def related_partners(X: Any, partners: Any, *, random_state: int = 0) -> Verdict:
    """Say whether partners have anything to do with each other, before any training.

    The statistic is their squared distance correlation in standard deviations of that of shuffled pairs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, noise = rng.normal(size=(2, 500, 3))
    >>> [related_partners(x, partner).outcome for partner in (x + noise, noise)]
    ['holds', 'fails']
    """
    a, b = read("X", X), read("partners", partners)
    if a.shape != b.shape:
        raise ValueError(f"partners must have the shape of X, {a.shape}, got {b.shape}: row i of both is a pair.")
    rng = np.random.default_rng(random_state)
    rows = rng.permutation(len(a))[:RELATED_ROWS]
    here, there = centred_distances(a[rows]), centred_distances(b[rows])
    found = squared_correlation(here, there)
    shuffles = (rng.permutation(len(rows)) for _ in range(N_SHUFFLES))
    chance = [squared_correlation(here, there[np.ix_(order, order)]) for order in shuffles]
    score = float(found - np.mean(chance)) / max(float(np.std(chance)), 1e-12)
    outcome = above(Estimate(score, score, score), RELATED, unless_below=UNRELATED)
    why = f"the squared distance correlation is {found:.2g}, {score:.1f} standard deviations above shuffled pairs'."
    if outcome != "holds":
        why += " Are the rows in the same order?"
    return Verdict(RELATED_PARTNERS, score, RELATED, outcome, why)


def _distance(a: Matrix, b: Matrix, p: float) -> Matrix:
    if a.shape != b.shape:
        raise ValueError(f"partners must have the shape of codes, {a.shape}, got {b.shape}: row i of both is a pair.")
    return np.linalg.norm(b - a, ord=p, axis=1)
