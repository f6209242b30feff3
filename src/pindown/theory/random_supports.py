"""Random supports of a known kind: diverse or nested.

Both have m ≥ d, no empty row or column, and structural rank d, without which no map with that support is
injective. ``random_state`` is an int, a numpy generator, or None for fresh entropy.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank

from pindown.errors import InputError
from pindown.theory.structure import Support, is_diverse

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
    _check_sizes(m, d)
    if not 0 < density < 1:
        raise InputError("density", f"`density` must lie strictly between 0 and 1, got {density}.")
    rng = np.random.default_rng(random_state)
    for _ in range(MAX_DRAWS):
        support = _without_empty_rows(m, d, density, rng)
        if _is_usable(support) and is_diverse(support):
            return support.astype(int)
    raise InputError(
        "density",
        f"none of {MAX_DRAWS} supports of shape ({m}, {d}) with `density={density}` was diverse and of full structural "
        "rank. Use a density nearer to 1/2, or more observed variables.",
    )


def nested(m: int, d: int, *, random_state: RandomState = None) -> NDArray[np.int_]:
    """Draw a support whose index sets form a chain, I_a ⊂ I_b ⊂ …, of all sizes from 1 to d.

    Every latent has an atomic region of its own: what one set adds to the next. But only the innermost meets
    the condition that needs no independence. Rows, columns, and the m − d sizes that repeat are random.

    Examples
    --------
    >>> sizes = nested(4, 3, random_state=0).sum(1)
    >>> sorted(set(sizes.tolist()))
    [1, 2, 3]
    """
    _check_sizes(m, d)
    rng = np.random.default_rng(random_state)
    sizes = np.concatenate([np.arange(1, d + 1), rng.integers(1, d + 1, m - d)])
    rank = rng.permutation(d)  # the place of each latent in the chain
    return (rank[None, :] < rng.permutation(sizes)[:, None]).astype(int)


def _without_empty_rows(m: int, d: int, density: float, rng: np.random.Generator) -> Support:
    """Draw independent edges given that no row is empty: the first edge of each row, then the places after it.

    Among many rows one is nearly always empty, so rejection would not do.
    """
    # The first edge is at j with probability ∝ (1 − p)^j: a truncated geometric distribution, drawn by inversion.
    cut = 1 - rng.random((m, 1)) * -np.expm1(d * np.log1p(-density))
    first = np.minimum(np.floor(np.log(cut) / np.log1p(-density)), d - 1)  # rounding may carry it to d
    place = np.arange(d)
    return np.asarray((place == first) | ((place > first) & (rng.random((m, d)) < density)), dtype=bool)


def _is_usable(support: Support) -> bool:
    """Return whether no row is empty and some map with this support is injective (so that no column is empty)."""
    return bool(support.any(1).all() and structural_rank(csr_array(support.astype(int))) == support.shape[1])


def _check_sizes(m: int, d: int) -> None:
    if not 1 <= d <= m:
        raise InputError(
            "m",
            f"`m` must be at least `d`, and `d` at least 1, got m={m}, d={d}: with fewer observed variables than "
            "latents no map is injective.",
        )
