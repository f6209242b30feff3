"""Invertible maps: square layers with a bend between each two of them."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from pindown._random import RandomState, generator


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
