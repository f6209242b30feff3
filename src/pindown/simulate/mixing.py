"""Mixings g: z → x with known latents: invertible networks, and sparse maps with a given Jacobian support.

A mixing holds buffers only, so it has no parameters to train. Weights are stored in float64 and used in the precision
of the input: a simulation is the same at every precision. Renderers, whose x are images, are in
`pindown_papers.simulations`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import structural_rank
from torch import Tensor, nn

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.networks.spaces import Space
from pindown.theory import Assumption
from pindown.theory.structure import as_support


@dataclass(frozen=True)
class LeakyReLU:
    """The leaky ReLU: x where positive, slope · x elsewhere."""

    slope: float = 0.2

    def __post_init__(self) -> None:
        if not self.slope > 0:
            raise InputError("slope", f"`slope` must be positive to be invertible, got {self.slope}.")

    def forward(self, x: Tensor) -> Tensor:
        """Apply the leaky ReLU."""
        return nn.functional.leaky_relu(x, self.slope)

    def inverse(self, y: Tensor) -> Tensor:
        """Apply its inverse."""
        return nn.functional.leaky_relu(y, 1 / self.slope)


@dataclass(frozen=True)
class SinhArcsinh:
    r"""A smooth leaky ReLU, s · sinh(arcsinh(x / s) + ε), with slopes e^{−ε} far left and e^{ε} far right.

    ε is the ``strength`` of the nonlinearity (0: the identity) and s its ``softness`` (→ 0: a kink). The inverse is
    the same map with −ε. Jones and Pewsey, Sinh-arcsinh distributions, Biometrika 2009.
    """

    strength: float = 0.8
    softness: float = 0.3

    def __post_init__(self) -> None:
        if not math.isfinite(self.strength):
            raise InputError("strength", f"`strength` must be finite, got {self.strength}.")
        if not self.softness > 0:
            raise InputError("softness", f"`softness` must be positive, got {self.softness}.")

    def forward(self, x: Tensor) -> Tensor:
        """Apply the activation."""
        return self.softness * torch.sinh(torch.asinh(x / self.softness) + self.strength)

    def inverse(self, y: Tensor) -> Tensor:
        """Apply its inverse."""
        return self.softness * torch.sinh(torch.asinh(y / self.softness) - self.strength)


Activation = LeakyReLU | SinhArcsinh
"""An elementwise increasing bijection of the real line."""


class Mixing(nn.Module, ABC):
    """Abstract map g from latents (n, d) to observations (n, …)."""

    domain: Space | None = None
    """Space of the latents; None takes any."""

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of latents."""

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions of `pindown.theory` about the mixing that hold."""
        return frozenset()


class InvertibleNetwork(Mixing):
    """Square linear layers with an activation between them, x = W_L b(… b(W_1 z)).

    Created by `leaky_relu_mlp`, `smooth`, `orthogonal` and `identity`.

    Parameters
    ----------
    weights : Tensor of shape (n_layers, d, d)
        Invertible matrices, first layer first.
    activation : Activation
        The elementwise map b between layers.
    """

    weights: Tensor

    def __init__(self, weights: Tensor, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.register_buffer("weights", weights.to(torch.float64))  # (n_layers, d, d)

    @property
    def d(self) -> int:
        return self.weights.shape[-1]

    @property
    def assumptions(self) -> frozenset[Assumption]:
        kinked = isinstance(self.activation, LeakyReLU) and self.activation.slope != 1 and len(self.weights) > 1
        return frozenset({theory.INJECTIVE_MIXING} | (set() if kinked else {theory.DIFFEOMORPHIC_MIXING}))

    def forward(self, z: Tensor) -> Tensor:
        """Return x = g(z); (n, d) → (n, d)."""
        first, *others = self.weights.to(z.dtype).unbind()
        x = z @ first.mT
        for w in others:
            x = self.activation.forward(x) @ w.mT
        return x

    def inverse(self, x: Tensor) -> Tensor:
        """Return z = g⁻¹(x), computed in float64; (n, d) → (n, d)."""
        *others, first = self.weights.flip(0).unbind()
        z = x.to(self.weights.dtype)
        for w in others:
            z = self.activation.inverse(torch.linalg.solve(w, z.mT).mT)
        return torch.linalg.solve(first, z.mT).mT.to(x.dtype)

    def extra_repr(self) -> str:
        """Return size and activation, for ``print``."""
        return f"d={self.d}, n_layers={len(self.weights)}, activation={self.activation}"


def leaky_relu_mlp(
    d: int, *, n_layers: int = 2, slope: float = 0.2, n_candidates: int = 25_000, random_state: RandomState = None
) -> InvertibleNetwork:
    """Return the random mixing of Hyvärinen and Morioka (NeurIPS 2016) and Zimmermann et al. (ICML 2021).

    Bias-free d×d layers with weights from U(−1, 1) and unit columns, each the best-conditioned of `n_candidates` draws,
    and a leaky ReLU between them. More layers are harder to invert.

    Examples
    --------
    >>> g = leaky_relu_mlp(3, n_candidates=100, random_state=0)
    >>> z = torch.tensor([[1.0, -2.0, 0.5]])
    >>> torch.allclose(g.inverse(g(z)), z, atol=1e-5)
    True
    """
    check_positive(d=d, n_layers=n_layers, n_candidates=n_candidates)
    rng = generator(random_state)
    layers = [_best_conditioned(d, n_candidates, rng) for _ in range(n_layers)]
    return InvertibleNetwork(torch.stack(layers), LeakyReLU(slope))


def orthogonal(d: int, *, random_state: RandomState = None) -> InvertibleNetwork:
    """Return a rotation or reflection x = Q z, uniform (Haar) over the orthogonal group.

    Examples
    --------
    >>> x = orthogonal(3, random_state=0)(torch.tensor([[3.0, 4.0, 0.0]]))
    >>> round(x.norm().item(), 4)
    5.0
    """
    check_positive(d=d)
    return InvertibleNetwork(haar(1, d, generator(random_state)), LeakyReLU(1.0))


def smooth(d: int, *, n_layers: int = 2, strength: float = 0.8, random_state: RandomState = None) -> InvertibleNetwork:
    """Return an infinitely differentiable mixing: orthogonal layers with a `SinhArcsinh` between them.

    The default strength gives the two slopes about the ratio 1 : 5 of the papers' leaky ReLU.

    Examples
    --------
    >>> g = smooth(3, n_layers=4, random_state=0)
    >>> z = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    >>> torch.allclose(g.inverse(g(z)), z, atol=1e-10)
    True
    """
    check_positive(d=d, n_layers=n_layers)
    return InvertibleNetwork(haar(n_layers, d, generator(random_state)), SinhArcsinh(strength))


def identity(d: int) -> InvertibleNetwork:
    """Return x = z: the latents are observed directly.

    Examples
    --------
    >>> identity(2)(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """
    check_positive(d=d)
    return InvertibleNetwork(torch.eye(d, dtype=torch.float64)[None], LeakyReLU(1.0))


def haar(n: int, d: int, rng: torch.Generator) -> Tensor:
    """Draw n orthogonal matrices from the Haar measure; (n, d, d)."""
    q, r = torch.linalg.qr(torch.randn(n, d, d, generator=rng, dtype=torch.float64))
    # QR leaves the signs open. Without fixing them the distribution is not Haar (Mezzadri 2007).
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]


def _best_conditioned(d: int, n_candidates: int, rng: torch.Generator) -> Tensor:
    best, lowest = torch.eye(d, dtype=torch.float64), math.inf
    for start in range(0, n_candidates, 1000):
        w = 2 * torch.rand(min(1000, n_candidates - start), d, d, generator=rng, dtype=torch.float64) - 1
        w = nn.functional.normalize(w, dim=-1).mT  # unit columns
        gram = w.mT @ w
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(gram).L)
        # λ_max(A) ≥ tr A² / tr A bounds the condition number from below, so few candidates need singular values.
        promising = w[(_top_bound(gram) * _top_bound(inverse)).sqrt() < lowest]
        if len(promising):
            condition, index = torch.linalg.cond(promising).min(0)
            if condition < lowest:
                best, lowest = promising[index], condition.item()
    return best


def _top_bound(a: Tensor) -> Tensor:
    return a.square().sum((-2, -1)) / a.diagonal(dim1=-2, dim2=-1).sum(-1)


class SparseMixing(Mixing):
    """A map whose outputs each depend on some latents only: x_i = Σ_k c_ik φ(a_ik·z + b_ik), a_ik = 0 off I_i.

    Created by `sparse`. The support of its Jacobian is exactly `support`. It is smooth, but not always injective; more
    observed variables than latents help.

    Parameters
    ----------
    inner : Tensor of shape (m, width, d)
        The vectors a_ik, zero off the support.
    offset, outer : Tensor of shape (m, width)
        The numbers b_ik and c_ik.
    activation : Activation
        The elementwise map φ.
    """

    inner: Tensor
    offset: Tensor
    outer: Tensor

    def __init__(self, inner: Tensor, offset: Tensor, outer: Tensor, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        for name, values in (("inner", inner), ("offset", offset), ("outer", outer)):
            self.register_buffer(name, values.to(torch.float64))

    @property
    def d(self) -> int:
        return self.inner.shape[-1]

    @property
    def support(self) -> NDArray[np.int32]:
        """Which latent affects which observed variable; (m, d) zeros and ones."""
        return (self.inner != 0).any(dim=1).int().numpy(force=True)

    def forward(self, z: Tensor) -> Tensor:
        """Return x = g(z); (n, d) → (n, m)."""
        m, width, d = self.inner.shape
        before = z @ self.inner.to(z.dtype).view(m * width, d).mT  # (n, m · width)
        hidden = self.activation.forward(before.unflatten(-1, (m, width)) + self.offset.to(z.dtype))  # (n, m, width)
        return (hidden * self.outer.to(z.dtype)).sum(-1)

    def gradients(self, z: Tensor) -> Tensor:
        """Return the Jacobian at each sample; (n, d) → (n, m, d)."""
        before = torch.einsum("nd,mwd->nmw", z, self.inner.to(z.dtype)) + self.offset.to(z.dtype)
        with torch.enable_grad():
            before.requires_grad_()
            (slope,) = torch.autograd.grad(self.activation.forward(before).sum(), before)
        return torch.einsum("nmw,mw,mwd->nmd", slope, self.outer.to(z.dtype), self.inner.to(z.dtype))

    def nonlinearity(self, z: Tensor) -> NDArray[np.float64]:
        r"""Return how far each observed variable is from a function of one direction of z; (m,).

        .. math:: \sqrt{\lambda_{\min}(M_i) / \lambda_{\max}(M_i)}, \qquad
                  M_i = \mathbb E\, \nabla g_i \nabla g_i^\top \text{ on } I_i

        The gradients of x_i span its support ("sufficient nonlinearity") exactly if this is positive. If it is small,
        finite data can hardly distinguish x_i from a function of fewer latents. A single latent gives 1.
        """
        own = [gradients[:, row] for gradients, row in zip(self.gradients(z).unbind(1), self.support > 0, strict=True)]
        values = [torch.linalg.eigvalsh(gradients.mT @ gradients) for gradients in own]
        return np.array([math.sqrt(max(0.0, float(each[0] / each[-1]))) for each in values])

    def extra_repr(self) -> str:
        """Return sizes and activation, for ``print``."""
        m, width, d = self.inner.shape
        return f"d={d}, m={m}, width={width}, activation={self.activation}"


def sparse(
    support: ArrayLike,
    *,
    width: int = 16,
    strength: float = 0.8,
    n_candidates: int = 1,
    random_state: RandomState = None,
) -> SparseMixing:
    """Return a random smooth map whose Jacobian has the given support.

    Parameters
    ----------
    support : array of zeros and ones of shape (m, d)
        Entry (i, j) is 1 if latent j affects observed variable i.
    width : int
        Hidden units per observed variable. At least the number of latents in a row, so that the gradients of that row
        can span all directions of its support ("sufficient nonlinearity").
    strength : float
        See `SinhArcsinh`.
    n_candidates : int
        Each observed variable is the most nonlinear of this many draws, for standard normal latents: see
        `SparseMixing.nonlinearity`. A single draw is often nearly linear if it depends on many latents.
    random_state : int, RandomState, Generator or None

    Examples
    --------
    >>> g = sparse([[1, 0], [1, 1], [0, 1]], random_state=0)
    >>> torch.func.jacrev(g)(torch.zeros(2)).ne(0).int()
    tensor([[1, 0],
            [1, 1],
            [0, 1]], dtype=torch.int32)
    """
    check_positive(n_candidates=n_candidates)
    mask = torch.from_numpy(as_support(support).astype(np.float64))
    m, d = mask.shape
    if m < d:
        few = f"`support` has fewer observed variables ({m}) than latents ({d}), so no such map is injective"
        raise InputError("support", f"{few}. Rows are observed variables: is it transposed?")
    if (rank := structural_rank(csr_array(mask.numpy()))) < d:
        why = "some latents affect fewer observed variables than they are, so no such map is injective"
        raise InputError("support", f"`support` has structural rank {rank}: {why}. Add observed variables.")
    if width < (fewest := int(mask.sum(1).max())):
        raise InputError("width", f"`width` must be at least {fewest}, the latents in one row, got {width}.")
    rng = generator(random_state)
    best = _random_sparse(mask, width, SinhArcsinh(strength), rng)
    if n_candidates == 1:
        return best
    z = torch.randn(500, d, generator=rng, dtype=torch.float64)
    most = best.nonlinearity(z)
    for _ in range(n_candidates - 1):
        other = _random_sparse(mask, width, SinhArcsinh(strength), rng)
        score = other.nonlinearity(z)
        better = torch.from_numpy(score > most)
        for name in ("inner", "offset", "outer"):
            getattr(best, name)[better] = getattr(other, name)[better]
        most = np.maximum(score, most)
    return best


def _random_sparse(mask: Tensor, width: int, activation: Activation, rng: torch.Generator) -> SparseMixing:
    m, d = mask.shape
    inner = torch.randn(m, width, d, generator=rng, dtype=torch.float64) * mask[:, None, :]
    inner = nn.functional.normalize(inner, dim=-1)  # each hidden unit has unit variance if z is standard normal
    offset = torch.randn(m, width, generator=rng, dtype=torch.float64)
    outer = torch.randn(m, width, generator=rng, dtype=torch.float64) / math.sqrt(width)
    return SparseMixing(inner, offset, outer, activation)
