"""Sparse maps: observed variables that each see some latents only, with a Jacobian of a given support."""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank
from torch import Tensor, nn

from pindown._random import RandomState, generator
from pindown.mixing.maps import Bend, SinhArcsinh
from pindown.structure import as_support


class SparseMixing(nn.Module):
    """Observed variables that each see some latents only: x_i = Σ_k c_ik φ(a_ik·z + b_ik), a_ik = 0 off I_i.

    Made by `sparse`. The support of its Jacobian is `support`, exactly. It is smooth, but nothing guarantees
    that it is injective; more observed variables than latents help.

    Parameters
    ----------
    inner : Tensor of shape (m, width, d)
        The vectors a_ik, zero off the support.
    offset, outer : Tensor of shape (m, width)
        The numbers b_ik and c_ik.
    bend : Bend
        The elementwise map φ.
    """

    inner: Tensor
    offset: Tensor
    outer: Tensor

    def __init__(self, inner: Tensor, offset: Tensor, outer: Tensor, bend: Bend) -> None:
        super().__init__()
        self.bend = bend
        self.register_buffer("inner", inner.to(torch.float64))
        self.register_buffer("offset", offset.to(torch.float64))
        self.register_buffer("outer", outer.to(torch.float64))

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.inner.shape[-1]

    @property
    def support(self) -> np.ndarray:
        """The m×d matrix of zeros and ones that says which latent reaches which observed variable."""
        return (self.inner != 0).any(dim=1).int().numpy(force=True)

    def forward(self, z: Tensor) -> Tensor:
        """Return x = g(z); (n, d) → (n, m)."""
        m, width, d = self.inner.shape
        before = z @ self.inner.to(z.dtype).view(m * width, d).mT  # (n, m · width)
        hidden = self.bend.forward(before.unflatten(-1, (m, width)) + self.offset.to(z.dtype))  # (n, m, width)
        return (hidden * self.outer.to(z.dtype)).sum(-1)

    def gradients(self, z: Tensor) -> Tensor:
        """Return the Jacobian of every row of z; (n, d) → (n, m, d)."""
        before = torch.einsum("nd,mwd->nmw", z, self.inner.to(z.dtype)) + self.offset.to(z.dtype)
        with torch.enable_grad():
            before.requires_grad_()
            (slope,) = torch.autograd.grad(self.bend.forward(before).sum(), before)
        return torch.einsum("nmw,mw,mwd->nmd", slope, self.outer.to(z.dtype), self.inner.to(z.dtype))

    def nonlinearity(self, z: Tensor) -> np.ndarray:
        r"""Return how far each observed variable is from linear: 0 if one direction of z says all about it; (m,).

        .. math:: \sqrt{\lambda_{\min}(M_i) / \lambda_{\max}(M_i)}, \qquad
                  M_i = \mathbb E\, \nabla g_i \nabla g_i^\top \text{ on } I_i

        The gradients of x_i span its support ("sufficient nonlinearity") exactly if this is positive; where it is
        small, finite data can hardly tell x_i from a function of fewer latents. A single latent gives 1.
        """
        gradients = self.gradients(z)
        return np.array([_spread(gradients[:, i, row]) for i, row in enumerate(self.support.astype(bool))])

    def extra_repr(self) -> str:
        """Sizes and bend, for ``print``."""
        m, width, d = self.inner.shape
        return f"d={d}, m={m}, width={width}, bend={self.bend}"


def sparse(
    support: ArrayLike,
    *,
    width: int = 16,
    strength: float = 0.8,
    softness: float = 0.3,
    n_candidates: int = 1,
    random_state: RandomState = None,
) -> SparseMixing:
    """Return a random smooth map whose Jacobian has the given support.

    Parameters
    ----------
    support : array of zeros and ones of shape (m, d)
        Entry (i, j) says whether latent j reaches observed variable i.
    width : int
        Hidden units per observed variable; at least as many as latents in a row, so that the gradients of
        that row can span all directions of its support ("sufficient nonlinearity").
    strength, softness : float
        See `SinhArcsinh`.
    n_candidates : int
        Each observed variable is the most nonlinear of so many draws, for standard normal latents: see
        `SparseMixing.nonlinearity`. A single draw is often nearly linear if it sees many latents.
    random_state : int, RandomState, Generator or None

    Examples
    --------
    >>> g = sparse([[1, 0], [1, 1], [0, 1]], random_state=0)
    >>> torch.func.jacrev(g)(torch.zeros(2)).ne(0).int()
    tensor([[1, 0],
            [1, 1],
            [0, 1]], dtype=torch.int32)
    """
    mask = torch.from_numpy(_checked_support(support))  # (m, d)
    d = mask.shape[1]
    if width < (fewest := int(mask.sum(1).max())):
        raise ValueError(
            f"width must be at least {fewest}, the most latents in one row of the support, got {width}: "
            "fewer hidden units cannot be sufficiently nonlinear."
        )
    if n_candidates < 1:
        raise ValueError(f"n_candidates must be at least 1, got {n_candidates}.")
    rng, bend = generator(random_state), SinhArcsinh(strength, softness)
    best = _drawn(mask, width, bend, rng)
    if n_candidates == 1:
        return best
    z = torch.randn(500, d, generator=rng, dtype=torch.float64)
    most = best.nonlinearity(z)
    for _ in range(n_candidates - 1):
        other = _drawn(mask, width, bend, rng)
        score = other.nonlinearity(z)
        better = torch.from_numpy(score > most)
        for name in ("inner", "offset", "outer"):
            getattr(best, name)[better] = getattr(other, name)[better]
        most = np.maximum(score, most)
    return best


def _drawn(mask: Tensor, width: int, bend: Bend, rng: torch.Generator) -> SparseMixing:
    m, d = mask.shape
    inner = torch.randn(m, width, d, generator=rng, dtype=torch.float64) * mask[:, None, :]
    inner = nn.functional.normalize(inner, dim=-1)  # unit variance of each hidden unit when z is standard normal
    offset = torch.randn(m, width, generator=rng, dtype=torch.float64)
    outer = torch.randn(m, width, generator=rng, dtype=torch.float64) / math.sqrt(width)
    return SparseMixing(inner, offset, outer, bend)


def _spread(gradients: Tensor) -> float:
    """Return the least root mean square of gradients (n, k) along any direction, relative to the largest."""
    values = torch.linalg.eigvalsh(gradients.mT @ gradients)
    return math.sqrt(max(0.0, float(values[0] / values[-1])))


def _checked_support(support: ArrayLike) -> np.ndarray:
    mask = as_support(support).astype(np.float64)
    m, d = mask.shape
    if m < d:
        raise ValueError(
            f"support has fewer observed variables ({m}) than latents ({d}), so no map with it is injective. "
            "Rows are observed variables: is it transposed?"
        )
    if (rank := structural_rank(csr_array(mask))) < d:
        raise ValueError(
            f"support has structural rank {rank} with {d} latents: some group of latents reaches fewer "
            "observed variables than it has members, so no map with it is injective. Add observed variables."
        )
    return mask
