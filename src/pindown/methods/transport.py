"""Transport: invertible maps that give the samples of several groups one distribution.

`monge_map` matches two covariances in closed form. `SlicedTransport` matches whole distributions by their quantiles.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from sklearn.utils import check_consistent_length
from torch import Tensor, nn

from pindown.metrics.arrays import Labels, Matrix

N_ROUNDS, N_KNOTS = 300, 64  # rounds, and quantiles along an axis
SHRINKAGE = 0.5  # fraction of the sampling variance of quantiles by which moves are shrunk
MIN_SAMPLES = 2_000  # of a group: the quantiles of fewer err by as much as adversarial training leaves


def matrix_power(covariance: Matrix, exponent: float) -> Matrix:
    """Return a power of a covariance; variances of zero are replaced by tiny ones.

    Examples
    --------
    >>> matrix_power(np.diag([4.0, 9.0]), -0.5).round(3).tolist()
    [[0.5, 0.0], [0.0, 0.333]]
    """
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, 1e-12 * max(values.max(), 1e-300)) ** exponent) @ vectors.T


def monge_map(source: Matrix, target: Matrix) -> Matrix:
    r"""Return the symmetric matrix that maps one covariance to another and moves samples least.

    .. math:: T = S^{-1/2} (S^{1/2} C S^{1/2})^{1/2} S^{-1/2}, \qquad T S T = C

    Examples
    --------
    >>> monge_map(np.diag([1.0, 4.0]), np.diag([9.0, 4.0])).round(6).tolist()
    [[3.0, 0.0], [0.0, 1.0]]
    """
    root, inverse_root = matrix_power(source, 0.5), matrix_power(source, -0.5)
    return inverse_root @ matrix_power(root @ target @ root, 0.5) @ inverse_root


class SlicedTransport(nn.Module):
    r"""A bijection of latents for each group e, after which all groups have one distribution, as far as samples show.

    .. math:: z \mapsto A_t \, T_{e,t}(A_t^\top z), \qquad T_{e,t} = \bar Q_t \circ Q_{e,t}^{-1}, \qquad t = 1, 2, \dots

    with :math:`A_t` a rotation, :math:`Q_{e,t}` the quantiles of group e along each axis after the rounds before, and
    :math:`\bar Q_t` their mean over groups. If nothing moves along any axes, all projections of all groups have the
    same distribution, and so have the latents (Cramér and Wold). Each move is monotone along its axis, so that it can
    be undone. Beyond the outermost quantiles all samples move alike.

    References
    ----------
    Pitié, Kokaram and Dahyot, Automated colour grading using colour distribution transfer, CVIU 2007.
    """

    rotations: Tensor  # A_t; (rounds, k, k)
    quantiles: Tensor  # of each group along each axis; (rounds, groups, k, knots)
    moves: Tensor  # of these quantiles

    def __init__(self, rotations: Tensor, quantiles: Tensor, moves: Tensor) -> None:
        super().__init__()
        self.register_buffer("rotations", rotations)
        self.register_buffer("quantiles", quantiles)
        self.register_buffer("moves", moves)

    @classmethod
    def fitted(
        cls,
        z: Tensor,
        group: Tensor,
        generator: torch.Generator,
        *,
        n_groups: int | None = None,
        n_rounds: int = N_ROUNDS,
        n_knots: int = N_KNOTS,
        min_samples: int = MIN_SAMPLES,
    ) -> Self:
        """Match the quantiles of latents (n, k) with these numbers of groups; a group of few samples stays as it is.

        Rounds use the axes of the latents and random axes alternately.
        """
        counts = torch.bincount(group, minlength=n_groups or 0)
        compared = (counts >= min_samples).nonzero()[:, 0]
        members = [group == v for v in compared]
        levels = (torch.arange(n_knots).to(z) + 0.5) / n_knots
        still = torch.arange(n_knots).to(z).expand(len(counts), z.shape[1], n_knots)
        z, k, rounds = z.clone(), z.shape[1], []
        for t in range(n_rounds):
            rotation = torch.eye(k).to(z) if t % 2 else torch.linalg.qr(torch.randn(k, k, generator=generator).to(z)).Q
            along = z @ rotation
            quantiles, moves = still.clone(), torch.zeros_like(still)
            if len(members) > 1:
                quantiles[compared] = torch.stack([torch.quantile(along[some], levels, dim=0).mT for some in members])
                moves[compared] = _shrunk_moves(quantiles[compared], counts[compared].to(z), levels)
            rounds.append((rotation, quantiles, moves))
            z = _moved(along, group, quantiles, moves) @ rotation.mT
        if not rounds:
            return cls(z.new_zeros(0, k, k), *[z.new_zeros(0, *still.shape)] * 2)
        return cls(*(torch.stack(part) for part in zip(*rounds, strict=True)))

    def forward(self, z: Tensor | Matrix, group: Tensor | Labels) -> Tensor:
        """Map latents (n, k) with these numbers of groups to the distribution of all; in float64."""
        x, level = self._placed(z, group)
        for rotation, quantiles, moves in zip(self.rotations, self.quantiles, self.moves, strict=True):
            x = _moved(x @ rotation, level, quantiles, moves) @ rotation.mT
        return x

    def inverse(self, z: Tensor | Matrix, group: Tensor | Labels) -> Tensor:
        """Return the latents that `forward` maps to these."""
        x, level = self._placed(z, group)
        rounds = (part.flip(0) for part in (self.rotations, self.quantiles, self.moves))
        for rotation, quantiles, moves in zip(*rounds, strict=True):
            x = _moved(x @ rotation, level, quantiles + moves, -moves) @ rotation.mT
        return x

    def _placed(self, z: Tensor | Matrix, group: Tensor | Labels) -> tuple[Tensor, Tensor]:
        check_consistent_length(z, group)
        return torch.as_tensor(z).to(self.rotations), torch.as_tensor(group, device=self.rotations.device)


def _shrunk_moves(quantiles: Tensor, counts: Tensor, levels: Tensor) -> Tensor:
    """Return how far quantiles (groups, k, knots) move to their mean, less what their sampling variance explains."""
    weights = counts / counts.sum()
    mean = (weights[:, None, None] * quantiles).sum(0)
    slope = torch.gradient(mean, spacing=1 / len(levels), dim=1)[0]
    # A quantile of n samples has the variance q (1 − q) Q'(q)² / n.
    noise = (levels * (1 - levels) * slope.square()).mean(1) * (1 / counts - 1 / counts.sum())[:, None]  # (groups, k)
    moves = mean - quantiles
    return moves * (1 - SHRINKAGE * noise / moves.square().mean(2).clamp_min(1e-300)).clamp_min(0)[:, :, None]


def _moved(z: Tensor, group: Tensor, knots: Tensor, moves: Tensor) -> Tensor:
    """Move (n, k) by the moves of each sample's group, interpolated between knots; both (groups, k, knots)."""
    z = z.clone()
    for number in group.unique():
        rows, at, move = group == number, knots[number].contiguous(), moves[number]
        along = z[rows].mT.contiguous()  # (k, n)
        right = torch.searchsorted(at, along).clamp(1, at.shape[1] - 1)
        (low, high), (start, end) = ((part.gather(1, right - 1), part.gather(1, right)) for part in (at, move))
        fraction = ((along - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)
        z[rows] = (along + start + fraction * (end - start)).mT
    return z
