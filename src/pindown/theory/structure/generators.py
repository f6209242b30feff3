"""Random supports with a promise: diverse, nested, dense but for some edges, dense.

All have m ≥ d, no empty row or column, and structural rank d, without which no map with that support is
injective. ``random_state`` is an int, a numpy generator, or None for fresh entropy.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank

from pindown.theory.structure.conditions import is_diverse
from pindown.theory.structure.sets import Support

RandomState = int | np.random.Generator | None

MAX_DRAWS = 2_000


def diverse(m: int, d: int, *, density: float = 0.5, random_state: RandomState = None) -> NDArray[np.int_]:
    """Draw a support in which every latent meets a diversity condition: independent edges, given that they are.

    Parameters
    ----------
    m, d : int
        Numbers of observed variables and of latents.
    density : float
        Probability of an edge before the conditions are imposed, strictly between 0 and 1.
    random_state : int, Generator or None

    Examples
    --------
    >>> S = diverse(6, 3, random_state=0)
    >>> S.shape, is_diverse(S)
    ((6, 3), True)
    """
    _check_sizes("diverse", m, d)
    if not 0 < density < 1:
        raise ValueError(f"diverse: density must lie strictly between 0 and 1, got {density}.")
    rng = np.random.default_rng(random_state)
    return _drawn(
        lambda: _no_row_empty(m, d, density, rng),
        lambda support: _is_usable(support) and is_diverse(support),
        f"diverse: none of {MAX_DRAWS} supports of shape ({m}, {d}) and density {density} was diverse and of full "
        "structural rank. Take a density nearer to 1/2, or more observed variables.",
    )


def nested(m: int, d: int, *, random_state: RandomState = None) -> NDArray[np.int_]:
    """Draw a support whose index sets form a chain, I_a ⊂ I_b ⊂ …, of all sizes from 1 to d.

    Every latent has an atomic region of its own, as what one set adds to the next; but only the innermost meets
    the condition that does without independence. Rows, columns, and the m − d sizes that repeat are random.

    Examples
    --------
    >>> sizes = nested(4, 3, random_state=0).sum(1)
    >>> sorted(set(sizes.tolist()))
    [1, 2, 3]
    """
    _check_sizes("nested", m, d)
    rng = np.random.default_rng(random_state)
    sizes = np.concatenate([np.arange(1, d + 1), rng.integers(1, d + 1, m - d)])
    rank = rng.permutation(d)  # the place of each latent in the chain
    return (rank[None, :] < rng.permutation(sizes)[:, None]).astype(int)


def dense_minus_edges(m: int, d: int, *, n_missing: int = 1, random_state: RandomState = None) -> NDArray[np.int_]:
    """Draw a support of ones with exactly ``n_missing`` zeros, all places alike.

    One missing edge singles out one latent; d − 1 of them, in as many columns and rows, may single out all.

    Examples
    --------
    >>> int((dense_minus_edges(6, 3, n_missing=2, random_state=0) == 0).sum())
    2
    """
    _check_sizes("dense_minus_edges", m, d)
    if not 0 <= n_missing <= m * d - m:
        raise ValueError(
            f"dense_minus_edges: n_missing must be between 0 and {m * d - m} for {m} observed variables and {d} "
            f"latents, got {n_missing}: each variable needs an edge."
        )
    rng = np.random.default_rng(random_state)

    def draw() -> Support:
        support = np.ones(m * d, dtype=bool)
        support[rng.choice(m * d, n_missing, replace=False)] = False
        return support.reshape(m, d)

    return _drawn(
        draw,
        _is_usable,
        f"dense_minus_edges: none of {MAX_DRAWS} supports of shape ({m}, {d}) with {n_missing} missing edges had full "
        "structural rank. Ask for fewer missing edges.",
    )


def dense(m: int, d: int) -> NDArray[np.int_]:
    """Return the support of ones: all latents in one atomic region, nothing recovered but the whole.

    Examples
    --------
    >>> dense(2, 2)
    array([[1, 1],
           [1, 1]])
    """
    _check_sizes("dense", m, d)
    return np.ones((m, d), dtype=int)


def _no_row_empty(m: int, d: int, density: float, rng: np.random.Generator) -> Support:
    """Draw independent edges given that no row is empty: the first edge of each row, then the places after it.

    Among many rows one is nearly always empty, so these cannot be left to rejection.
    """
    # The first edge is at j with probability ∝ (1 − p)^j: a geometric law, cut off at d and inverted.
    cut = 1 - rng.random((m, 1)) * -np.expm1(d * np.log1p(-density))
    first = np.minimum(np.floor(np.log(cut) / np.log1p(-density)), d - 1)  # rounding may carry it to d
    place = np.arange(d)
    return (place == first) | ((place > first) & (rng.random((m, d)) < density))


def _drawn(draw: Callable[[], Support], keeps: Callable[[Support], bool], otherwise: str) -> NDArray[np.int_]:
    for _ in range(MAX_DRAWS):
        if keeps(support := draw()):
            return support.astype(int)
    raise ValueError(otherwise)


def _is_usable(support: Support) -> bool:
    """Whether no row is empty and some map with this support is injective (which leaves no column empty)."""
    return bool(support.any(1).all()) and structural_rank(csr_array(support.astype(int))) == support.shape[1]


def _check_sizes(caller: str, m: int, d: int) -> None:
    if not 1 <= d <= m:
        raise ValueError(
            f"{caller}: m must be at least d, and d at least 1, got m={m}, d={d}: with fewer observed variables than "
            "latents no map is injective."
        )
