"""Networks for vectors: linear maps, perceptrons, and perceptrons with a linear skip path."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def linear(n_in: int, n_out: int) -> nn.Module:
    """Return an affine map, initialised with orthonormal rows.

    Examples
    --------
    >>> weight = linear(5, 2).weight
    >>> torch.allclose(weight @ weight.T, torch.eye(2), atol=1e-6)
    True
    """
    layer = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(n_in: int, n_out: int, *, hidden: Sequence[int] = (128, 128, 128)) -> nn.Module:
    """Return a multilayer perceptron with leaky rectifiers and PyTorch's default initialisation.

    Its initialisation is *folded*, that is, not injective: distant inputs share their latents. :func:`skip_mlp` avoids
    this.

    Examples
    --------
    >>> mlp(5, 2, hidden=(8,))(torch.zeros(3, 5)).shape
    torch.Size([3, 2])
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_in, width), nn.LeakyReLU(0.01)]
        n_in = width
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


def zero_mlp(n_in: int, n_out: int, *, hidden: Sequence[int] = (128, 128, 128)) -> nn.Module:
    """Return a perceptron whose last layer, and so its output, is zero at initialisation.

    Examples
    --------
    >>> zero_mlp(5, 2, hidden=(8,))(torch.ones(1, 5)).abs().sum().item()
    0.0
    """
    network = mlp(n_in, n_out, hidden=hidden)
    for weight in list(network.children())[-1].parameters():
        nn.init.zeros_(weight)
    return network


def small_mlp(n_in: int, n_out: int) -> nn.Module:
    """Return a small perceptron with two hidden layers of 64 units, the default adversary of `Forget`.

    Examples
    --------
    >>> small_mlp(5, 2)(torch.zeros(3, 5)).shape
    torch.Size([3, 2])
    """
    return mlp(n_in, n_out, hidden=(64, 64))


class Frame(nn.Module):
    """Linear map whose rows stay orthonormal during training: see :func:`nearest_frame`."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.contiguous())  # as checkpoints store it

    def rows(self) -> Tensor:
        """Return the orthonormal rows; (n_out, n_in)."""
        return nearest_frame(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, n_in) to (n, n_out)."""
        return x @ self.rows().mT


def nearest_frame(matrix: Tensor) -> Tensor:
    r"""Return the nearest matrix with orthonormal rows, :math:`(A A^\top)^{-1/2} A`; (k, d) → (k, d).

    It takes Newton–Schulz steps, :math:`X \mapsto \tfrac32 X - \tfrac12 X X^\top X`. They need no decomposition, so
    that a CUDA graph can capture them. They converge if no singular value is much larger than the mean.

    Examples
    --------
    >>> frame = nearest_frame(torch.tensor([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0]]))
    >>> torch.allclose(frame @ frame.T, torch.eye(2), atol=1e-5)
    True
    """
    x = matrix * (len(matrix) ** 0.5 / torch.linalg.matrix_norm(matrix))
    for _ in range(10):
        x = torch.addmm(x, x @ x.mT, x, beta=1.5, alpha=-0.5)
    return x


class SkipMLP(nn.Module):
    """A network with a linear skip path, f(x) = A x + m(x): see :func:`skip_mlp`."""

    def __init__(self, linear: nn.Module, nonlinear: nn.Module) -> None:
        super().__init__()
        self.linear, self.nonlinear = linear, nonlinear

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, n_in) to (n, n_out)."""
        return self.linear(x) + self.nonlinear(x)


def skip_mlp(n_in: int, n_out: int, *, hidden: Sequence[int] = (128, 128, 128)) -> nn.Module:
    """Return a perceptron with a linear skip path: f(x) = A x + m(x).

    At initialisation m = 0 and A has orthonormal rows, so that the map is injective on the row space of A: it is not
    folded.

    Examples
    --------
    >>> encoder = skip_mlp(5, 5, hidden=(8,))
    >>> x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(x).norm(dim=1), x.norm(dim=1))
    True
    """
    return SkipMLP(linear(n_in, n_out), zero_mlp(n_in, n_out, hidden=hidden))


def smooth(n_in: int, n_out: int, *, hidden: Sequence[int] = (64, 64)) -> nn.Module:
    """Return an infinitely differentiable perceptron with a linear skip path, as :func:`skip_mlp`.

    Examples
    --------
    >>> encoder = smooth(5, 5)
    >>> x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(x).norm(dim=1), x.norm(dim=1))
    True
    """
    widths = [n_in, *hidden]
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.SiLU())]
    return SkipMLP(linear(n_in, n_out), nn.Sequential(*layers, zero_mlp(widths[-1], n_out, hidden=())))


class Residual(nn.Module):
    """The map x + m(x)."""

    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        """Return x + m(x); (n, width)."""
        return x + self.change(x)


def residual(n_in: int, n_out: int, *, width: int = 128, n_blocks: int = 2) -> nn.Module:
    """Return residual blocks with a linear skip path: f(x) = A x + m(x) as in :func:`skip_mlp`, with a deeper m.

    m maps its input linearly to `width` features. Each block adds to them the output of a perceptron with one hidden
    layer. A linear map gives the output. All blocks and the output are zero at initialisation.

    Examples
    --------
    >>> encoder = residual(5, 5, width=8)
    >>> x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(x).norm(dim=1), x.norm(dim=1))
    True
    """
    blocks = [
        Residual(nn.Sequential(nn.LeakyReLU(0.01), *zero_mlp(width, width, hidden=(width,)).children()))
        for _ in range(n_blocks)
    ]
    nonlinear = nn.Sequential(nn.Linear(n_in, width), *blocks, nn.LeakyReLU(0.01), zero_mlp(width, n_out, hidden=()))
    return SkipMLP(linear(n_in, n_out), nonlinear)
