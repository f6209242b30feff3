"""Leading directions of rows that are too wide for a covariance: found by passes over a source, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pindown import _random
from pindown.sources import Source, as_tensor, moments
from pindown.sources.streaming import some_blocks

SPARE, PASSES = 10, 3
"""Directions that are searched beyond those asked for, and passes of the search: they make the last ones exact."""

NONE_LEFT = 1e-10
"""Variance, relative to the largest, up to which a direction holds nothing but the rounding of float32."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Orthonormal directions of rows laid out as vectors, the most variable first."""

    mean: Tensor  # (d,) float64
    directions: Tensor  # (d, k) float32, one per column
    variance: Tensor  # (k,) float64


def leading_directions(
    source: Source, k: int, *, scale: Tensor | None = None, random_state: _random.RandomState = 0
) -> Directions:
    r"""Return the principal directions of a source's rows, k at most, and no more than the rows have.

    With a ``scale`` (d,) columns are divided by it first; infinity leaves a column out.

    Subspace iteration from a random start (Halko, Martinsson and Tropp, 2011): each pass multiplies by the covariance
    :math:`C = \tfrac1n \sum_i (x_i - \mu)(x_i - \mu)^\top`, a block of rows at a time, and a last one finds the
    directions within the space that came out. In memory are k + 10 vectors of d numbers, a few times over, and never
    d × d. Directions in which rows do not differ are left out, so that there are always fewer than rows.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> x = torch.tensor([[0.0, 0, 3], [0, 0, -3], [1, 0, 0], [-1, 0, 0]])
    >>> found = leading_directions(Arrays(x), 3)
    >>> found.variance.float().round(decimals=4)
    tensor([4.5000, 0.5000])
    >>> found.directions.abs().round(decimals=4).T
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    first = moments(source, covariance=False)
    # Squares of data in very large or small units leave float32.
    unit = first.variance.mean().sqrt() if scale is None else scale
    if not (unit > 0).all():
        raise ValueError("whiten: all rows of x are the same, so that there is nothing to learn from.")
    width = min(k + SPARE, first.n, len(first.mean))
    generator = _random.generator(random_state)
    basis = torch.randn(len(first.mean), width, generator=generator)
    for _ in range(PASSES):
        image = torch.zeros_like(basis)
        for rows in _centred(source, first.mean, unit):
            image.addmm_(rows.mT, rows @ basis)
        basis = torch.linalg.qr(image).Q
    within = torch.zeros(width, width, dtype=torch.float64)
    for rows in _centred(source, first.mean, unit):
        codes = (rows @ basis).double()
        within.addmm_(codes.mT, codes, alpha=1 / first.n)
    variance, turn = (part.flip(-1) for part in torch.linalg.eigh(within))  # largest first
    kept = min(k, first.n - 1, int((variance > NONE_LEFT * variance[0]).sum()))
    size = unit**2 if scale is None else 1.0
    return Directions(first.mean, basis @ turn[:, :kept].float(), size * variance[:kept])


def _centred(source: Source, mean: Tensor, unit: Tensor) -> Iterator[Tensor]:
    for _, batch in some_blocks(source, None):
        yield (as_tensor(batch["x"]).cpu().flatten(1) - mean).div_(unit).float()
