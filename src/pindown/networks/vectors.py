"""Networks for vectors: linear maps, perceptrons, and linear paths with a bend that starts at zero."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def linear(n_in: int, n_out: int) -> nn.Module:
    """Affine map with orthonormal rows to start with.

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
    """Multilayer perceptron with leaky rectifiers and PyTorch's own initial weights.

    It starts as a *folded* map: distant inputs share a code, and a contrastive loss then has to unfold one
    direction at a time. Prefer :func:`unfolded` unless that is what you want to see.

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


def flat(n_in: int, n_out: int, *, hidden: Sequence[int] = (128, 128, 128)) -> nn.Module:
    """Perceptron whose last layer starts at zero, so that the whole map does.

    Examples
    --------
    >>> flat(5, 2, hidden=(8,))(torch.ones(1, 5)).abs().sum().item()
    0.0
    """
    network = mlp(n_in, n_out, hidden=hidden)
    last = list(network.children())[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return network


def reader(n_in: int, n_out: int) -> nn.Module:
    """Small perceptron, two layers of 64: what an encoder is trained against when it is to hide something.

    Examples
    --------
    >>> reader(5, 2)(torch.zeros(3, 5)).shape
    torch.Size([3, 2])
    """
    return mlp(n_in, n_out, hidden=(64, 64))


class Frame(nn.Module):
    """Linear map whose rows stay orthonormal whatever step its weight takes: see :func:`nearest_frame`."""

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
    r"""Return the orthonormal rows nearest to those of a matrix, :math:`(A A^\top)^{-1/2} A`; (k, d) → (k, d).

    By Newton–Schulz steps, :math:`X \mapsto \tfrac32 X - \tfrac12 X X^\top X`, which need no decomposition, so that
    they can be captured in a CUDA graph. They converge if no singular value is much larger than their mean.

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


class Unfolded(nn.Module):
    """The map A x + m(x): see :func:`unfolded`."""

    def __init__(self, straight: nn.Module, bend: nn.Module) -> None:
        super().__init__()
        self.straight, self.bend = straight, bend

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, n_in) to (n, n_out)."""
        return self.straight(x) + self.bend(x)


def unfolded(n_in: int, n_out: int, *, hidden: Sequence[int] = (128, 128, 128)) -> nn.Module:
    """Linear path beside a perceptron that starts at zero: f(x) = A x + m(x), m = 0, A with orthonormal rows.

    The map is injective on the span of A from the first step on, so nothing needs to be unfolded.

    Examples
    --------
    >>> encoder = unfolded(5, 5, hidden=(8,))
    >>> x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(x).norm(dim=1), x.norm(dim=1))
    True
    """
    return Unfolded(linear(n_in, n_out), flat(n_in, n_out, hidden=hidden))


def smooth(n_in: int, n_out: int, *, hidden: Sequence[int] = (64, 64)) -> nn.Module:
    """Linear path beside a perceptron that starts at zero, as in :func:`unfolded`, but infinitely differentiable.

    Examples
    --------
    >>> encoder = smooth(5, 5)
    >>> x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(x).norm(dim=1), x.norm(dim=1))
    True
    """
    widths = [n_in, *hidden]
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.SiLU())]
    return Unfolded(linear(n_in, n_out), nn.Sequential(*layers, flat(widths[-1], n_out, hidden=())))


class Residual(nn.Module):
    """The map x + m(x)."""

    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        """Change (n, width) a little."""
        return x + self.change(x)


def residual(n_in: int, n_out: int, *, width: int = 128, n_blocks: int = 2) -> nn.Module:
    """Linear path beside residual blocks: f(x) = A x + m(x) as in :func:`unfolded`, with an m that can be deeper.

    m reads `width` features off its input, changes them in each block by a perceptron with one hidden layer, and reads
    its output off them. All changes and the output start at zero.

    Examples
    --------
    >>> encoder = residual(5, 5, width=8)
    >>> x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(x).norm(dim=1), x.norm(dim=1))
    True
    """
    blocks = [
        Residual(nn.Sequential(nn.LeakyReLU(0.01), *flat(width, width, hidden=(width,)).children()))
        for _ in range(n_blocks)
    ]
    bend = nn.Sequential(nn.Linear(n_in, width), *blocks, nn.LeakyReLU(0.01), flat(width, n_out, hidden=()))
    return Unfolded(linear(n_in, n_out), bend)
