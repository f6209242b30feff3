"""Fixed first layers: what an encoder does to observations before its network sees them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Centre(nn.Module):
    """Fixed first layer: take the mean off, and nothing else."""

    mean: Tensor

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)

    def forward(self, x: Tensor) -> Tensor:
        """Centre (n, d)."""
        return x - self.mean


class Whiten(nn.Module):
    """Fixed first layer: centre the data and give their leading directions unit variance.

    Directions below a hundredth of the largest standard deviation are treated as noise and not blown up. All others
    count alike: where most are faint, as pixels that are nearly always empty, give leading principal components.

    Parameters
    ----------
    x
        Data of shape (n, d), of which mean and covariance are taken.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> torch.cov(Whiten(x)(x).T, correction=0).round(decimals=3).abs()
    tensor([[1., 0.],
            [0., 1.]])
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        x = x.double()
        variance, direction = torch.linalg.eigh(torch.cov(x.T, correction=0).reshape(x.shape[1], -1))
        largest = torch.where(variance[-1] > 0, variance[-1], 1.0)  # constant data have no scale to take off
        scaled = direction / variance.clamp_min(1e-4 * largest).sqrt()  # (d, d), a direction per column
        self.register_buffer("mean", x.mean(0))  # in float64: an offset far above the spread must not swallow it
        self.register_buffer("matrix", scaled.flip(1).float().contiguous())  # largest variance first; as files store it

    def forward(self, x: Tensor) -> Tensor:
        """Whiten (n, d)."""
        return (x - self.mean).to(self.matrix.dtype) @ self.matrix
