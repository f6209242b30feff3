"""Is a dependency structure diverse, are its rows bent enough, its blocks independent? What a fitted decoder shows."""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import mutual_info_score

from pindown import theory
from pindown.auditing.checks.verdict import Outcome, Verdict, above, estimate
from pindown.metrics import distance_correlation
from pindown.theory.structure import as_support, identified_blocks, is_diverse

STRAIGHT = 0.02
"""Least singular value of a variable's gradients, relative to the largest, below which they are too much alike."""

CLEAR = 1.25
"""How much wider a gap between strengths must be than the widest that gives another answer.

It was 2.2 to 20 times as wide in worlds with a diverse support, and .25 to .71 times in dense ones (seeds 100 to 104).
"""

FLOOR, STRONG = 0.03, 0.3
"""Strengths that are taken for none; and those that no cut takes away."""

N_RESAMPLES = 30

DEPENDENT = 0.25
"""Distance correlation of a latent with those of other blocks above which these are not independent: .38 to .80 in
dense worlds of pictures, whose sparse codes were bought with it (three fits), and .11 to .15 in rooms (two)."""

DEPENDENCE_ROWS = 1_000
"""Rows by which dependence is measured, at most."""

SHARED, MOST_BINS = 0.15, 8
"""Nats that two latents of different blocks share above which these are not independent, as two normal ones do that
correlate by .51; and bins of equally many rows by which they are counted, at most. With a code to spare, as where noise
hides a factor or a factor is a category, a hue goes around its circle in two codes: .22 to .72 in such rooms (five
fits, seeds 0, 10 and 11), and .12 at most between other codes of these and of rooms whose codes are single factors."""


def diverse_support(dependence: Any, threshold: float) -> Verdict:
    """Say whether every latent is singled out by the observed variables it reaches, wherever the edges are cut off.

    Where edges are missing, strengths come in two kinds with a gap between them. Every cut between neighbouring
    strengths gives a support, and its gap, the ratio of the two, says how far the data speak for it. The statistic is
    the widest gap of a cut that leaves a diverse support over the widest of those that do not.

    Parameters
    ----------
    dependence : array (m, d)
        How much each observed variable depends on each latent, such as ``Dictionary.dependence_``; or a support.
    threshold : float
        The cut in use: above it there is an edge. If its answer is not the clear one, the verdict is undecided.

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
    return Verdict(theory.DIVERSE_SUPPORT, ratio, CLEAR, outcome, _told(outcome, ratio, in_use))


def _gap_ratio(strength: NDArray[np.float64]) -> float:
    """Return the widest gap of a cut that leaves a diverse support, over the widest of those that do not."""
    steps = np.unique([FLOOR, *np.maximum(strength, FLOOR).ravel()])
    widest = {True: 1.0, False: 1.0}
    for below, above_it in pairwise(steps):
        if below <= STRONG:
            diverse = _is_diverse(as_support(strength > below, allow_empty=True))
            widest[diverse] = max(widest[diverse], float(above_it / below))
    return widest[True] / widest[False]


def _told(outcome: Outcome, ratio: float, support: NDArray[np.bool_]) -> str:
    gaps = f"the widest gap that leaves a diverse support is {ratio:.2g} times the widest that does not"
    if outcome == "holds":
        return f"every latent is singled out by what it reaches: {gaps}."
    if outcome == "fails":
        return _not_singled_out(support)
    return f"some edges are faint: {gaps}. Fit longer, or give more data."


def _is_diverse(support: NDArray[np.bool_]) -> bool:
    return bool(support.any(0).all()) and is_diverse(support[support.any(1)])


def _not_singled_out(support: NDArray[np.bool_]) -> str:
    if not support.any(0).all():
        unused = np.flatnonzero(~support.any(0)).tolist()
        return f"latent(s) {unused} reach nothing: the fit has not used them. More steps, or another seed, may help."
    blocks = [sorted(block.latents) for block in identified_blocks(support[support.any(1)]) if not block.is_single]
    if not blocks:
        return "no condition singles out every latent, though their reaches differ: claim what rests on independence."
    return f"latents {' and '.join(map(str, blocks))} reach the same variables: claim them as blocks."


def independent_blocks(codes: Any, support: Any) -> Verdict:
    """Say whether blocks of latents that reach different observed variables are independent, as far as codes show.

    Where every latent reaches everything, a fit that looks for few dependencies can make some by latents that depend on
    each other, such as the levels of red and of blue in place of brightness and warmth; and with more codes than
    latents one of these can bend through two. The statistic is the largest distance correlation of a latent with all
    those of other blocks, by the ranks of their codes; where that is small, the most information that two of them
    share, unless it is small as well.

    Parameters
    ----------
    codes : array (n, d)
        Of rows that were held out, best a thousand.
    support : array (m, d)
        Zeros and ones: which latent reaches what.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> [independent_blocks(codes, np.eye(2)).outcome for codes in (z, z @ [[1, 1], [0, 1]])]
    ['holds', 'fails']
    """
    mask = as_support(support, allow_empty=True)
    blocks = [sorted(block.latents) for block in identified_blocks(mask[mask.any(1)])]
    largest, latent = dependence_of_blocks(codes, blocks)
    shared, pair = shared_by_blocks(codes, blocks)
    if shared > SHARED and largest <= DEPENDENT:
        why = (
            f"latents {pair[0]} and {pair[1]} reach other variables, and share {shared:.2f} nats, as two codes of one "
            "angle do: there may be fewer latents than codes. Claim all of them together at most, or ask for fewer."
        )
        return Verdict(theory.INDEPENDENT_BLOCKS, shared, SHARED, "fails", why)
    outcome: Outcome = "fails" if largest > DEPENDENT else "holds"
    why = f"the distance correlation of a latent with those of other blocks is at most {largest:.2f}."
    if outcome == "fails":
        why = (
            f"latent {latent} depends on latents that reach other variables (distance correlation {largest:.2f}), so "
            "that sparsity may be bought with it: claim all of them together at most."
        )
    return Verdict(theory.INDEPENDENT_BLOCKS, largest, DEPENDENT, outcome, why)


def dependence_of_blocks(codes: Any, blocks: Sequence[Sequence[int]]) -> tuple[float, int]:
    """Return the largest distance correlation of a latent with all those of other blocks, by ranks, and which it is.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 200)
    >>> codes = np.stack([x, x**2, np.random.default_rng(0).normal(size=200)], axis=1)
    >>> [round(dependence_of_blocks(codes, blocks)[0], 1) for blocks in ([[0], [1], [2]], [[0, 1], [2]])]
    [0.4, 0.0]
    """
    ranks = rankdata(codes, axis=0) / len(codes)
    if len(blocks) < 2 or len(ranks) < 4:
        return 0.0, 0

    def dependence(latent: int, block: Sequence[int]) -> float:
        others = sorted(set(range(ranks.shape[1])) - set(block))
        # The same rows for every latent, drawn from all of them: the first may be those of one day.
        return distance_correlation(ranks[:, [latent]], ranks[:, others], max_samples=DEPENDENCE_ROWS, random_state=0)

    found = {latent: dependence(latent, block) for block in blocks for latent in block}
    latent = max(found, key=lambda each: found[each])
    return found[latent], latent


def shared_by_blocks(codes: Any, blocks: Sequence[Sequence[int]]) -> tuple[float, tuple[int, int]]:
    """Return the most nats that two latents of different blocks share, counted in bins, and which they are.

    What chance adds on average is taken off. It sees two latents on a curve, of which correlations see little.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 5, 1_000)
    >>> codes = np.stack([np.cos(angle), rng.normal(size=1_000), np.sin(angle)], axis=1)
    >>> nats, pair = shared_by_blocks(codes, [[0], [1], [2]])
    >>> nats > 0.8, pair
    (True, (0, 2))
    """
    ranks = rankdata(codes, axis=0)
    n, d = ranks.shape
    n_bins = min(MOST_BINS, math.isqrt(n // 12))  # a dozen rows in each cell of two
    if len(blocks) < 2 or n_bins < 2:
        return 0.0, (0, 0)
    bins = np.minimum(((ranks - 0.5) / n * n_bins).astype(int), n_bins - 1)
    apart = [pair for pair in combinations(range(d), 2) if not any(set(pair) <= set(block) for block in blocks)]
    nats = [mutual_info_score(bins[:, first], bins[:, second]) for first, second in apart]
    most = int(np.argmax(nats))
    return float(nats[most]) - (n_bins - 1) ** 2 / (2 * n), apart[most]


def sufficient_nonlinearity(jacobians: Any, support: Any, *, random_state: int = 0) -> Verdict:
    r"""Say whether each observed variable's gradients span all the latents it depends on.

    With G the gradients of :math:`x_i` by the latents :math:`I_i`, one row per sample and columns of unit mean square,
    the statistic is the least over i of :math:`\sigma_{\min}(G) / \sigma_{\max}(G)`. It is 0 where a variable with
    several latents depends on them through one fixed combination, as in a linear world.

    Parameters
    ----------
    jacobians : array (n, m, d)
        Derivatives of observed variables by latents, such as ``Dictionary.jacobian(X)``.
    support : array (m, d)
        Zeros and ones.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> bent = np.stack([np.cos(z[:, :1] + [[0.0, 1.0]]), 1 + 0 * z[:, None][:, 0]], axis=1)  # (n, 2, 2)
    >>> [sufficient_nonlinearity(j, np.ones((m, 2))).outcome for j, m in ((bent[:, :1], 1), (bent, 2))]
    ['holds', 'fails']
    """
    array = np.asarray(jacobians.detach().cpu() if hasattr(jacobians, "detach") else jacobians, dtype=float)
    mask = as_support(support, allow_empty=True)
    if array.ndim != 3 or array.shape[1:] != mask.shape:
        raise ValueError(f"jacobians must be (n, {mask.shape[0]}, {mask.shape[1]}) to suit support, got {array.shape}.")
    several = [i for i in range(len(mask)) if mask[i].sum() > 1]
    if not several:
        why = "each observed variable depends on one latent only, so nothing needs to bend."
        return Verdict(theory.SUFFICIENT_NONLINEARITY, 1.0, STRAIGHT, "holds", why)
    rng = np.random.default_rng(random_state)
    moments = {i: _outer(array[:, i, mask[i]]) for i in several}
    by_variable = {i: estimate(_bending(outer, rng)) for i, outer in moments.items()}
    worst = min(several, key=lambda i: by_variable[i].value)
    bend = by_variable[worst]
    outcome = above(bend, 2 * STRAIGHT, unless_below=STRAIGHT)
    why = f"gradients of variable {worst}, the straightest, reach {bend} across their main direction."
    if outcome != "holds":
        why += " Where variables are linear in their latents a rotation may be as sparse: claim the structure only."
    return Verdict(theory.SUFFICIENT_NONLINEARITY, bend.value, STRAIGHT, outcome, why)


def _outer(gradients: np.ndarray) -> np.ndarray:
    """Return the outer product of each row, columns of unit mean square; (n, k) → (n, k, k)."""
    unit = gradients / np.maximum(np.sqrt((gradients**2).mean(0)), 1e-300)
    return unit[:, :, None] * unit[:, None, :]


def _bending(outer: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Return ratios of least to largest singular value of resampled gradients."""
    ratios = []
    for _ in range(N_RESAMPLES):
        weights = rng.multinomial(len(outer), np.full(len(outer), 1 / len(outer))) / len(outer)
        values = np.linalg.eigvalsh(np.tensordot(weights, outer, axes=1))
        ratios.append(math.sqrt(max(values[0], 0.0) / values[-1]) if values[-1] > 0 else 0.0)
    return ratios
