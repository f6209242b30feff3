"""From strengths of dependence to a support, and which outputs may say what is told apart."""

from __future__ import annotations

import numpy as np

from pindown.auditing.checks.supports import NEARLY_LINEAR

FAINT, STRONG = 0.05, 0.15
"""Where the threshold of the support is looked for: weaker derivatives are noise, stronger ones are not."""

FEW = 0.01
"""Share of the outputs that must have a pattern of latents for it to count: single ones are found in any decoder."""


def widest_gap(dependence: np.ndarray, least: float = FAINT, most: float = STRONG) -> float:
    """Return the middle, on a logarithmic scale, of the widest gap between strengths within bounds.

    Examples
    --------
    >>> round(widest_gap(np.array([[1.0, 0.03], [0.06, 0.5]])), 3)
    0.095
    """
    inside = np.sort(dependence[(dependence > least) & (dependence < most)])
    edges = np.log(np.concatenate([[least], inside, [most]]))
    widest = np.diff(edges).argmax()
    return float(np.exp((edges[widest] + edges[widest + 1]) / 2))


def supported(dependence: np.ndarray, lively: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """Return which of d latents reach which of m outputs, and the strength above which they do; (m, d) → (m, d).

    Every output that varies is reached by a latent, and every latent reaches one.

    Parameters
    ----------
    dependence
        Strengths, (m, d).
    lively
        Which outputs vary; None: all.

    Examples
    --------
    >>> supported(np.array([[1.0, 0.03], [0.01, 0.5]]))[0].astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    lively = np.ones(len(dependence), dtype=bool) if lively is None else lively
    threshold = widest_gap(dependence[lively])
    reached = dependence > threshold
    reached[np.arange(len(reached)), dependence.argmax(1)] = True
    reached[~lively] = False
    strongest = np.where(lively[:, None], dependence, -1.0).argmax(0)
    reached[strongest, np.arange(reached.shape[1])] = True
    return reached, threshold


def held_by(support: np.ndarray) -> np.ndarray:
    """Return the different patterns of latents that outputs have, without those that few have; (k, d).

    Beside them one of all latents, which tells none apart, so that none is left out.

    Examples
    --------
    >>> held_by(np.array([[1, 0]] * 300 + [[0, 1]])).tolist()
    [[1, 1], [1, 0]]
    """
    array = np.asarray(support).astype(int)
    patterns, counts = np.unique(array, axis=0, return_counts=True)
    return np.vstack([np.ones((1, array.shape[1]), dtype=int), patterns[counts >= FEW * len(array)]])


def bent_enough(moments: np.ndarray, support: np.ndarray) -> np.ndarray:
    r"""Return which outputs have gradients that span all the latents that reach them; (m,).

    That is :math:`\sqrt{\lambda_{\min} / \lambda_{\max}}` of the moments (m, d, d) on the support (m, d), in units of
    the gradients, is above what is as good as straight. Outputs that one latent reaches need not bend.

    Examples
    --------
    >>> straight, bent = np.ones((2, 2)), np.eye(2)
    >>> bent_enough(np.stack([straight, bent, straight]), np.array([[1, 1], [1, 1], [1, 0]])).tolist()
    [False, True, True]
    """
    mask = np.asarray(support, dtype=bool)
    size = np.sqrt(np.maximum(moments.diagonal(axis1=1, axis2=2), 1e-300))
    unit = moments / (size[:, :, None] * size[:, None, :])
    both = mask[:, :, None] & mask[:, None, :]
    # Latents that do not reach an output are set apart with moments between the least and the largest.
    inside = np.where(both, unit, 0.0) + np.where(mask, 0.0, 1.0)[:, :, None] * np.eye(mask.shape[1])
    values = np.linalg.eigvalsh(inside)
    return np.sqrt(np.maximum(values[:, 0], 0) / values[:, -1]) > NEARLY_LINEAR
