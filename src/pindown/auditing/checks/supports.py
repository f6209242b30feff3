"""Dependency structures: diverse supports, independent blocks, and features that are nonlinear enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.metrics import mutual_info_score

from pindown import theory
from pindown._names import listed
from pindown.auditing.checks.verdict import Outcome, Verdict, at_least, estimate, judge
from pindown.data.data import as_array
from pindown.errors import InputError
from pindown.metrics import distance_correlation
from pindown.metrics.arrays import Matrix
from pindown.theory.structure import as_support, identified_blocks, is_diverse

NEARLY_LINEAR = 0.02  # relative smallest singular value of gradients that are too much alike
CLEAR = 1.25  # how much wider a gap between strengths must be than the widest that gives another answer
FLOOR, STRONG = 0.03, 0.3  # strengths up to which there is no edge, and from which there is one

N_RESAMPLES = 30

DEPENDENT = 0.25  # distance correlation of a latent with those of other blocks above which these are not independent
DEPENDENCE_SAMPLES = 1_000  # largest number of samples from which dependence is measured
SHARED, MOST_BINS = 0.7, 8  # nats that two latents share at most (.7: normal, correlation .87); bins to count them


EXPLAINED, MISSING = 0.02, 1.5  # unexplained variance that is none; shared residuals, over those of noise, of a latent


def diverse_support(dependence: ArrayLike, threshold: float) -> Verdict:
    """Say whether each latent is identified by the features that it reaches, whatever the threshold of edges is.

    Where edges are missing, strengths come in two kinds with a gap between them. Every threshold between neighbouring
    strengths gives a support, and its gap, the ratio of the two, says how far the data support it. The statistic is
    the widest gap of a threshold that leaves a diverse support over the widest of those that do not.

    ``dependence`` (m, d) says how much each feature depends on each latent, such as ``Dictionary.dependence_``. There
    is an edge above ``threshold``, the one in use: if its answer is not the clear one, the verdict is undecided.

    Examples
    --------
    >>> [diverse_support([[1, edge], [1, 1]], threshold=0.3).outcome for edge in (0.01, 0.9, 0.2)]
    ['holds', 'fails', 'undecided']
    """
    strength = np.abs(np.asarray(dependence, dtype=float))
    in_use = as_support(strength > threshold, allow_empty=True)
    ratio = _gap_ratio(strength)
    outcome: Outcome = "undecided"
    if ratio > CLEAR and _is_diverse(in_use):
        outcome = "holds"
    elif ratio < 1 / CLEAR and not _is_diverse(in_use):
        outcome = "fails"
    found = {
        "holds": "the features that each latent reaches single it out.",
        "fails": _not_singled_out(in_use),
        "undecided": f"some edges are faint: the gap for a diverse support is {ratio:.2g} times that against it.",
    }[outcome]
    return judge(theory.DIVERSE_SUPPORT, ratio, CLEAR, outcome, found, undecided="Train longer, or give more samples.")


def _gap_ratio(strength: Matrix) -> float:
    """Return the widest gap between strengths that leaves a diverse support, over the widest that leaves another."""
    steps = np.unique([FLOOR, *np.maximum(strength, FLOOR).ravel()])
    widest = {True: 1.0, False: 1.0}
    for low, high in pairwise(steps):
        if low <= STRONG:
            diverse = _is_diverse(as_support(strength > low, allow_empty=True))
            widest[diverse] = max(widest[diverse], float(high / low))
    return widest[True] / widest[False]


def _is_diverse(support: NDArray[np.bool_]) -> bool:
    return bool(support.any(0).all()) and is_diverse(support[support.any(1)])


def _not_singled_out(support: NDArray[np.bool_]) -> str:
    if not support.any(0).all():
        unused = np.flatnonzero(~support.any(0)).tolist()
        return f"latent(s) {unused} reach no feature: the fit does not use them. Ask for fewer, or train longer."
    blocks = [sorted(block.latents) for block in identified_blocks(support[support.any(1)]) if not block.is_single]
    if not blocks:
        return "no two latents reach the same features, but some are not singled out: claim what independence gives."
    return f"latents {' and '.join(map(str, blocks))} reach the same features: claim them as blocks."


def independent_blocks(gain: float, margin: float, latents: ArrayLike, support: ArrayLike) -> Verdict:
    """Say whether latents are independent, as far as a claim rests on it.

    The prior of a fit makes its latents uncorrelated, whether those of the data are or not. What shows dependence is an
    oblique basis, of correlated latents, that is clearly sparser than the best rotation; or latents that depend on each
    other nonlinearly. Then a latent may contain a part of those that reach all that it reaches, and more. If there are
    none, nothing rests on independence. Two latents that nearly determine each other are refused in any case. ``gain``
    is how many latents fewer reach a feature in the best oblique basis, and ``margin`` above what it is clear.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> for support in (np.eye(2), [[1, 1], [0, 1]]):  # in the second, latent 1 reaches all that latent 0 reaches
    ...     print([independent_blocks(gain, 0.025, z, support).outcome for gain in (0.0, 0.5)])
    ['holds', 'holds']
    ['holds', 'fails']
    """
    mask = as_support(support, allow_empty=True)
    blocks = identified_blocks(mask[mask.any(1)])
    members = [sorted(block.latents) for block in blocks]
    nats, pair = shared_by_blocks(latents, members)
    if nats > SHARED:
        why = (
            f"latents {pair[0]} and {pair[1]} share {nats:.2f} nats, as two functions of one angle do. There may be "
            "fewer latents: ask for fewer."
        )
        return Verdict(theory.INDEPENDENT_BLOCKS, nats, SHARED, "fails", why)
    correlation, latent = dependence_of_blocks(latents, members)
    found = f"an oblique basis saves {gain:.2f} latents per feature (threshold {margin:g})"
    if correlation > DEPENDENT:
        found += f", and latent {latent} has a distance correlation of {correlation:.2f} with others"
    if gain <= margin and correlation <= DEPENDENT:
        return Verdict(theory.INDEPENDENT_BLOCKS, gain, margin, "holds", f"{found}.")
    nested = [sorted(block.latents) for block in blocks if block.needs_independence]
    if not nested:
        why = f"{found}: latents depend on each other, but no claim rests on their independence."
        return Verdict(theory.INDEPENDENT_BLOCKS, gain, margin, "holds", why)
    names = listed([str(each) for each in nested])
    why = f"{found}: latents {names} may contain a part of those that reach the same features and more."
    return Verdict(theory.INDEPENDENT_BLOCKS, gain, margin, "fails", why)


def dependence_of_blocks(latents: ArrayLike, blocks: Sequence[Sequence[int]]) -> tuple[float, int]:
    """Return the largest distance correlation of a latent with all those of other blocks, by ranks, and which it is.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 200)
    >>> latents = np.stack([x, x**2, np.random.default_rng(0).normal(size=200)], axis=1)
    >>> [round(dependence_of_blocks(latents, blocks)[0], 1) for blocks in ([[0], [1], [2]], [[0, 1], [2]])]
    [0.4, 0.0]
    """
    array = np.asarray(latents)
    ranks = rankdata(array, axis=0) / len(array)
    if len(blocks) < 2 or len(ranks) < 4:
        return 0.0, 0
    found = {}
    for block in blocks:
        others = np.delete(ranks, block, axis=1)
        for latent in block:
            own = ranks[:, [latent]]
            found[latent] = distance_correlation(own, others, max_samples=DEPENDENCE_SAMPLES, random_state=0)
    latent = max(found, key=lambda each: found[each])
    return found[latent], latent


def shared_by_blocks(latents: ArrayLike, blocks: Sequence[Sequence[int]]) -> tuple[float, tuple[int, int]]:
    """Return the most nats that two latents of different blocks share, counted in bins, and which they are.

    What chance adds on average is subtracted. It detects two latents on a curve, which correlations hardly do.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 5, 1_000)
    >>> latents = np.stack([np.cos(angle), rng.normal(size=1_000), np.sin(angle)], axis=1)
    >>> nats, pair = shared_by_blocks(latents, [[0], [1], [2]])
    >>> nats > 0.8, pair
    (True, (0, 2))
    """
    ranks = rankdata(latents, axis=0)
    n, d = ranks.shape
    n_bins = min(MOST_BINS, math.isqrt(n // 12))  # a dozen samples in each cell of two
    if len(blocks) < 2 or n_bins < 2:
        return 0.0, (0, 0)
    bins = np.minimum(((ranks - 0.5) / n * n_bins).astype(int), n_bins - 1)
    apart = [pair for pair in combinations(range(d), 2) if not any(set(pair) <= set(block) for block in blocks)]
    nats = [mutual_info_score(bins[:, first], bins[:, second]) for first, second in apart]
    most = int(np.argmax(nats))
    return float(nats[most]) - (n_bins - 1) ** 2 / (2 * n), apart[most]


def unshared_residuals(residuals: ArrayLike, d: int) -> Verdict:
    r"""Say whether what d latents leave unexplained is noise of single features, or a latent that is missing.

    The statistic is the leading eigenvalue of the correlations of residuals (n, m) of standardised features, over what
    independent noise has: :math:`\frac{m}{m - d} (1 + \sqrt{m / n})^2`, since d latents absorb d directions of it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise, missing = 0.3 * rng.normal(size=(1_000, 10)), 0.3 * rng.normal(size=(1_000, 1))
    >>> [unshared_residuals(residuals, 2).outcome for residuals in (noise, noise + missing)]
    ['holds', 'fails']
    """
    array = np.asarray(residuals, dtype=float)
    (n, m), unexplained = array.shape, float(array.var(0).mean())
    ratio = float(np.linalg.eigvalsh(np.corrcoef(array.T))[-1]) * max(m - d, 0) / m / (1 + math.sqrt(m / n)) ** 2
    found = f"latents leave {unexplained:.0%} of X unexplained; residuals share {ratio:.1f} times as much as noise."
    fails = "A latent is missing: ask for more."
    outcome: Outcome = "holds" if unexplained < EXPLAINED or ratio <= MISSING else "fails"
    if outcome == "fails" and (m - d) ** 2 <= m + d:
        outcome = "undecided"  # so few features cannot tell noise from a latent
    return judge(
        theory.SAME_DISTRIBUTION, ratio, MISSING, outcome, found, fails=fails, undecided="Measure more features."
    )


def sufficient_nonlinearity(jacobians: ArrayLike, support: ArrayLike, *, random_state: int = 0) -> Verdict:
    r"""Say whether each feature's gradients span all the latents it depends on.

    With G the gradients of :math:`x_i` by the latents :math:`I_i`, one row per sample and columns of unit mean square,
    the statistic is the least over i of :math:`\sigma_{\min}(G) / \sigma_{\max}(G)`. It is 0 where a feature with
    several latents depends on them through one fixed combination, as with a linear mixing.

    ``jacobians`` (n, m, d) are derivatives of features by latents, such as ``Dictionary.jacobian(X)``.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> curved = np.stack([np.cos(z[:, :1] + [[0.0, 1.0]]), 1 + 0 * z[:, None][:, 0]], axis=1)  # (n, 2, 2)
    >>> [sufficient_nonlinearity(j, np.ones((m, 2))).outcome for j, m in ((curved[:, :1], 1), (curved, 2))]
    ['holds', 'fails']
    """
    array = as_array(jacobians, "jacobians").astype(float)
    mask = as_support(support, allow_empty=True)
    if array.ndim != 3 or array.shape[1:] != mask.shape:
        message = f"jacobians must be (n, {mask.shape[0]}, {mask.shape[1]}) to suit support, got {array.shape}."
        raise InputError("jacobians", message)
    several = [i for i in range(len(mask)) if mask[i].sum() > 1]
    if not several:
        why = "each feature depends on one latent only, so none needs to be nonlinear."
        return Verdict(theory.SUFFICIENT_NONLINEARITY, 1.0, NEARLY_LINEAR, "holds", why)
    rng = np.random.default_rng(random_state)
    by_feature = {i: estimate(_gradient_ratios(array[:, i, mask[i]], rng)) for i in several}
    worst = min(several, key=lambda i: by_feature[i].value)
    ratio = by_feature[worst]
    found = f"gradients of feature {worst}, the most linear, vary across their main direction by {ratio} of it."
    fails = "Where features are linear in their latents a rotation may be as sparse: claim the structure only."
    limit = NEARLY_LINEAR
    return at_least(theory.SUFFICIENT_NONLINEARITY, ratio, 2 * limit, found, fails=fails, unless_below=limit)


def _gradient_ratios(gradients: Matrix, rng: np.random.Generator) -> list[float]:
    """Return ratios of least to largest singular value of resampled gradients (n, k), columns of unit mean square."""
    n = len(gradients)
    unit = gradients / np.maximum(np.sqrt((gradients**2).mean(0)), 1e-300)
    products = unit[:, :, None] * unit[:, None, :]
    ratios = []
    for _ in range(N_RESAMPLES):
        weights = rng.multinomial(n, np.full(n, 1 / n)) / n
        values = np.linalg.eigvalsh(np.tensordot(weights, products, axes=1))
        ratios.append(math.sqrt(max(values[0], 0.0) / values[-1]) if values[-1] > 0 else 0.0)
    return ratios
