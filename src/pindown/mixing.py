"""Maps g: z → x whose truth is known; they hold buffers only, so there is nothing in them to train.

Weights are kept in float64 and used in the precision of their input: a world is the same at every precision.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank
from torch import Tensor, nn

from pindown._random import RandomState, generator
from pindown.structure import as_support


class Bend(Protocol):
    """An elementwise increasing bijection of R."""

    def forward(self, x: Tensor) -> Tensor:
        """Bend."""

    def inverse(self, y: Tensor) -> Tensor:
        """Straighten."""


@dataclass(frozen=True)
class Leaky:
    """The leaky ReLU: x where positive, slope · x elsewhere."""

    slope: float = 0.2

    def __post_init__(self) -> None:
        if not self.slope > 0:
            raise ValueError(f"slope must be positive, got {self.slope}: a flat side cannot be inverted.")

    def forward(self, x: Tensor) -> Tensor:
        """Bend."""
        return nn.functional.leaky_relu(x, self.slope)

    def inverse(self, y: Tensor) -> Tensor:
        """Straighten."""
        return nn.functional.leaky_relu(y, 1 / self.slope)


@dataclass(frozen=True)
class SinhArcsinh:
    r"""A smooth leaky ReLU, s · sinh(arcsinh(x / s) + ε), with slopes e^{−ε} far left and e^{ε} far right.

    ε is the strength of the bend (0: the identity) and s the width over which it happens (→ 0: a kink). Its
    inverse is the same map with −ε [1]_.

    References
    ----------
    .. [1] Jones, Pewsey. Sinh-arcsinh distributions. Biometrika, 2009.
    """

    strength: float = 0.8
    softness: float = 0.3

    def __post_init__(self) -> None:
        if not (math.isfinite(self.strength) and self.softness > 0):
            raise ValueError(
                "strength must be finite and softness positive, "
                f"got strength={self.strength}, softness={self.softness}."
            )

    def forward(self, x: Tensor) -> Tensor:
        """Bend."""
        return self._shifted(x, self.strength)

    def inverse(self, y: Tensor) -> Tensor:
        """Straighten."""
        return self._shifted(y, -self.strength)

    def _shifted(self, x: Tensor, by: float) -> Tensor:
        return self.softness * torch.sinh(torch.asinh(x / self.softness) + by)


class Mixing(nn.Module):
    """An invertible map: square linear layers with a bend between each two of them, x = W_L b(… b(W_1 z)).

    Made by `leaky_relu_mlp`, `smooth`, `orthogonal` and `identity`.

    Parameters
    ----------
    weights : Tensor of shape (n_layers, d, d)
        Invertible matrices, first layer first.
    bend : Bend
        The elementwise map between layers.
    """

    weights: Tensor

    def __init__(self, weights: Tensor, bend: Bend) -> None:
        super().__init__()
        self.bend = bend
        self.register_buffer("weights", weights.to(torch.float64))  # (n_layers, d, d)

    @property
    def d(self) -> int:
        """Number of latent dimensions."""
        return self.weights.shape[-1]

    @property
    def condition_numbers(self) -> tuple[float, ...]:
        """Largest over smallest singular value of each layer."""
        return tuple(torch.linalg.cond(self.weights).tolist())

    def forward(self, z: Tensor) -> Tensor:
        """Return x = g(z); (n, d) → (n, d)."""
        first, *others = self.weights.to(z.dtype).unbind()
        x = z @ first.mT
        for w in others:
            x = self.bend.forward(x) @ w.mT
        return x

    def inverse(self, x: Tensor) -> Tensor:
        """Return z = g⁻¹(x), computed in float64; (n, d) → (n, d)."""
        *others, first = self.weights.flip(0).unbind()
        z = x.to(self.weights.dtype)
        for w in others:
            z = self.bend.inverse(torch.linalg.solve(w, z.mT).mT)
        return torch.linalg.solve(first, z.mT).mT.to(x.dtype)

    def extra_repr(self) -> str:
        """Size and bend, for ``print``."""
        return f"d={self.d}, n_layers={len(self.weights)}, bend={self.bend}"


def leaky_relu_mlp(
    d: int,
    *,
    n_layers: int = 2,
    slope: float = 0.2,
    n_candidates: int = 25_000,
    random_state: RandomState = None,
) -> Mixing:
    """Return the random mixing of the contrastive-learning papers [1]_ [2]_.

    Bias-free d×d layers with weights from U(−1, 1) and unit columns, each the best-conditioned of
    `n_candidates` draws, and a leaky ReLU between them. The more layers, the harder: see R² of a linear fit.

    References
    ----------
    .. [1] Hyvärinen, Morioka. Unsupervised feature extraction by time-contrastive learning. NeurIPS 2016.
    .. [2] Zimmermann et al. Contrastive learning inverts the data generating process. ICML 2021.

    Examples
    --------
    >>> g = leaky_relu_mlp(3, n_candidates=100, random_state=0)
    >>> z = torch.tensor([[1.0, -2.0, 0.5]])
    >>> torch.allclose(g.inverse(g(z)), z, atol=1e-5)
    True
    """
    _check_sizes(d, n_layers)
    if n_candidates < 1:
        raise ValueError(f"n_candidates must be at least 1, got {n_candidates}.")
    rng = generator(random_state)
    layers = [_best_conditioned(d, n_candidates, rng) for _ in range(n_layers)]
    return Mixing(torch.stack(layers), Leaky(slope))


def orthogonal(d: int, *, random_state: RandomState = None) -> Mixing:
    """Return a rotation or reflection x = Q z, uniform (Haar) over the orthogonal group.

    Examples
    --------
    >>> x = orthogonal(3, random_state=0)(torch.tensor([[3.0, 4.0, 0.0]]))
    >>> round(x.norm().item(), 4)
    5.0
    """
    _check_sizes(d, 1)
    return Mixing(_haar(1, d, generator(random_state)), Leaky(1.0))


def smooth(
    d: int,
    *,
    n_layers: int = 2,
    strength: float = 0.8,
    softness: float = 0.3,
    random_state: RandomState = None,
) -> Mixing:
    """Return an infinitely differentiable mixing: orthogonal layers with a `SinhArcsinh` bend between them.

    The default strength gives the two slopes about the ratio 1 : 5 of the papers' leaky ReLU.

    Examples
    --------
    >>> g = smooth(3, n_layers=4, random_state=0)
    >>> z = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    >>> torch.allclose(g.inverse(g(z)), z, atol=1e-10)
    True
    """
    _check_sizes(d, n_layers)
    return Mixing(_haar(n_layers, d, generator(random_state)), SinhArcsinh(strength, softness))


def identity(d: int) -> Mixing:
    """Return x = z: the latents are seen as they are.

    Examples
    --------
    >>> identity(2)(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """
    _check_sizes(d, 1)
    return Mixing(torch.eye(d, dtype=torch.float64)[None], Leaky(1.0))


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


def _check_sizes(d: int, n_layers: int) -> None:
    if d < 1 or n_layers < 1:
        raise ValueError(f"d and n_layers must be at least 1, got d={d}, n_layers={n_layers}.")


def _best_conditioned(d: int, n_candidates: int, rng: torch.Generator) -> Tensor:
    best, lowest = torch.eye(d, dtype=torch.float64), math.inf
    for start in range(0, n_candidates, 1000):
        w = 2 * torch.rand(min(1000, n_candidates - start), d, d, generator=rng, dtype=torch.float64) - 1
        w = nn.functional.normalize(w, dim=-1).mT  # unit columns
        gram = w.mT @ w
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(gram).L)
        # λ_max(A) ≥ tr A² / tr A bounds the condition number from below, so most need no singular values.
        promising = w[(_top_bound(gram) * _top_bound(inverse)).sqrt() < lowest]
        if len(promising):
            condition, index = torch.linalg.cond(promising).min(0)
            if condition < lowest:
                best, lowest = promising[index], condition.item()
    return best


def _top_bound(a: Tensor) -> Tensor:
    return a.square().sum((-2, -1)) / a.diagonal(dim1=-2, dim2=-1).sum(-1)


def _haar(n: int, d: int, rng: torch.Generator) -> Tensor:
    q, r = torch.linalg.qr(torch.randn(n, d, d, generator=rng, dtype=torch.float64))
    # QR fixes no signs; without them the law would not be Haar (Mezzadri 2007).
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
