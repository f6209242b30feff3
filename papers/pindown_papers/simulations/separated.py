"""`Structured` simulations in which distant latents have different observations."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.simulate import Structured

N_NEAREST = 10  # neighbours of an observation whose latents are compared
MAX_DRAWS = 500


def separation(process: Structured, n: int = 4_000) -> float:
    r"""Return how close observations of distant latents come; near 0, the mixing is not injective.

    .. math:: \min_{i, j} \lVert x_i - x_j \rVert / \lVert z_i - z_j \rVert, \quad
              j \text{ among the nearest ten of } x_i

    in standardised units, over n samples.
    """
    z = process.marginal.sample(n, random_state=0, dtype=torch.float64)
    x, z_standard = ((values / values.std(0)).numpy() for values in (process.mixing(z), z))
    distance, nearest = cKDTree(x).query(x, k=N_NEAREST + 1)
    latent_distance = np.linalg.norm(z_standard[:, None] - z_standard[nearest[:, 1:]], axis=2)
    return float((distance[:, 1:] / latent_distance).min())


def well_separated(support: ArrayLike, least: float = 0.15, *, random_state: RandomState = None) -> Structured:
    """Return a simulation of `Structured.well_posed` with a `separation` of at least ``least``.

    Examples
    --------
    >>> process = well_separated([[1, 0], [1, 1], [0, 1]], random_state=0)
    >>> separation(process) >= 0.15
    True
    """
    rng = generator(random_state)
    for _ in range(MAX_DRAWS):
        process = Structured.well_posed(support, n_candidates=5, random_state=rng)
        if separation(process) >= least:
            return process
    raise InputError("least", f"none of {MAX_DRAWS} simulations with this `support` has a separation of {least}.")
