"""Transport: codes of all values of a nuisance brought to one law, by a bijection for each value.

A game leaves differences that its classifier is too coarse for. Of a few codes these can be undone in closed form, and
what codes tell within a value stays.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from sklearn.utils import check_consistent_length
from torch import Tensor, nn

TURNS = 300
"""How often quantiles are matched, along the axes of the codes and along random ones by turns. Four codes of rooms that
readers had .34 from (chance .25) had .30 after 100 turns, .28 after 200 and after 400."""

KNOTS = 64
"""Quantiles that are matched along an axis."""

SHRUNK = 0.5
"""Share of the variance of quantiles that is taken off the mean square of a move. With all of it moves end too early:
of four codes of rooms readers had .29 then, .28 with half, and .28 with none, which took more of what codes tell."""

FEWEST_MOVED = 2_000
"""Rows of a value below which its codes stay: their quantiles err by as much as a game leaves."""


class Transport(nn.Module):
    r"""A bijection of codes for each value e, after which all values have one law, as far as rows show.

    .. math:: z \mapsto A_t \, T_{e,t}(A_t^\top z), \qquad T_{e,t} = \bar Q_t \circ Q_{e,t}^{-1}, \qquad t = 1, 2, \dots

    with :math:`A_t` a rotation, :math:`Q_{e,t}` the quantiles of what value e has by then along each axis, and
    :math:`\bar Q_t` their mean over values. Where nothing moves along any axes all projections of all values have the
    same law, and so have the codes (Cramér and Wold). Each move is shrunk as far as rows leave it open, so that it ends
    by itself; it is monotone along its axis, and can be undone.

    References
    ----------
    Pitié, Kokaram and Dahyot, Automated colour grading using colour distribution transfer, CVIU 2007.
    """

    turns: Tensor  # (t, k, k)
    own: Tensor  # (t, values, k, knots), quantiles of each value
    moves: Tensor  # (t, values, k, knots), how far each is moved

    def __init__(self, turns: Tensor, own: Tensor, moves: Tensor) -> None:
        super().__init__()
        for name, part in {"turns": turns, "own": own, "moves": moves}.items():
            self.register_buffer(name, part)

    @classmethod
    def fitted(cls, z: Tensor, value: Tensor, n_values: int, generator: torch.Generator, *, turns: int = TURNS) -> Self:
        """Match quantiles of (n, k) codes with these numbers of values; a value of few rows is left as it is.

        Examples
        --------
        Two values, of which the second is shifted and stretched; then they are alike, and the way back is known:

        >>> rng = torch.Generator().manual_seed(0)
        >>> z, e = torch.randn(4_000, 2, generator=rng, dtype=torch.float64), torch.arange(4_000) % 2
        >>> seen = z * (1 + e[:, None]) + e[:, None]
        >>> moved = Transport.fitted(seen, e, 2, rng, turns=20)
        >>> left, right = (moved(seen, e)[e == v] for v in (0, 1))
        >>> bool((left.mean(0) - right.mean(0)).abs().max() < 0.05 > (left.std(0) - right.std(0)).abs().max())
        True
        >>> torch.allclose(moved.inverse(moved(seen, e), e), seen)
        True
        """
        counts = torch.bincount(value, minlength=n_values)
        compared = (counts >= FEWEST_MOVED).nonzero()[:, 0]
        rows = [value == v for v in compared]
        share = (torch.arange(KNOTS).to(z) + 0.5) / KNOTS
        z, k, found = z.clone(), z.shape[1], []
        for t in range(turns):
            turn = torch.eye(k).to(z) if t % 2 else torch.linalg.qr(torch.randn(k, k, generator=generator).to(z)).Q
            along = z @ turn
            own, moves = torch.arange(KNOTS).to(z).expand(n_values, k, KNOTS).clone(), z.new_zeros(n_values, k, KNOTS)
            if len(rows) > 1:
                own[compared] = torch.stack([torch.quantile(along[some], share, dim=0).mT for some in rows])
                moves[compared] = _shrunk_moves(own[compared], counts[compared].to(z), share)
            found.append((turn, own, moves))
            z = _moved(along, value, own, moves) @ turn.mT
        return cls(*(torch.stack(part) for part in zip(*found, strict=True)))

    def forward(self, z: Any, value: Any) -> Tensor:
        """Bring (n, k) codes with these numbers of values to the law that all have; in float64."""
        z, value = self._beside(z, value)
        for turn, own, moves in zip(self.turns, self.own, self.moves, strict=True):
            z = _moved(z @ turn, value, own, moves) @ turn.mT
        return z

    def inverse(self, z: Any, value: Any) -> Tensor:
        """Undo it."""
        z, value = self._beside(z, value)
        for turn, own, moves in zip(*(part.flip(0) for part in (self.turns, self.own, self.moves)), strict=True):
            z = _moved(z @ turn, value, own + moves, -moves) @ turn.mT
        return z

    def _beside(self, z: Any, value: Any) -> tuple[Tensor, Tensor]:
        check_consistent_length(z, value)
        return torch.as_tensor(z).to(self.turns), torch.as_tensor(value, device=self.turns.device)


def _shrunk_moves(own: Tensor, counts: Tensor, share: Tensor) -> Tensor:
    r"""Return how far quantiles (values, k, knots) of so many rows each are moved to their mean, along each axis.

    A quantile of n rows has the variance :math:`q (1 - q)\, Q'(q)^2 / n`, and a move keeps the share of its mean square
    that half of this does not explain.
    """
    weights = counts / counts.sum()
    mean = (weights[:, None, None] * own).sum(0)
    slope = torch.gradient(mean, spacing=1 / KNOTS, dim=1)[0]
    noise = (share * (1 - share) * slope.square()).mean(1) * (1 / counts - 1 / counts.sum())[:, None]  # (values, k)
    moves = mean - own
    return moves * (1 - SHRUNK * noise / moves.square().mean(2).clamp_min(1e-300)).clamp_min(0)[:, :, None]


def _moved(z: Tensor, value: Tensor, knots: Tensor, moves: Tensor) -> Tensor:
    """Move (n, k) by what each row's value moves at its knots, both (values, k, knots); beyond them as at the last."""
    z = z.clone()
    for number in value.unique():
        rows, at, move = value == number, knots[number].contiguous(), moves[number]
        along = z[rows].mT.contiguous()  # (k, n)
        right = torch.searchsorted(at, along).clamp(1, KNOTS - 1)
        (low, high), (start, end) = ((part.gather(1, right - 1), part.gather(1, right)) for part in (at, move))
        share = ((along - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)
        z[rows] = (along + start + share * (end - start)).mT
    return z
