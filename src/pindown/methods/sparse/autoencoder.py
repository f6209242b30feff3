"""One dictionary while it is trained: an encoder of one pass, a gate, atoms of unit length, and what revives codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the name it goes by)

from pindown.networks.encoder import Encoder
from pindown.networks.gates import Gate, GateModule, chosen, combined
from pindown.training import optimizers
from pindown.training.convergence import FIRST_ROUND

REVIVED = 64
"""Codes that are revived in a step, at most."""

SILENT_TURNS, SILENT_SHARE = 64, 0.1
"""A code is dead if it was silent for so many times the rows in which codes that share evenly fire once, and for this
share of all rows seen so far: the longer a training, the rarer what it may wait for."""

REVIVING = 0.75
"""Share of a training in which codes are revived: one that starts anew in the last steps, whose rates are small, does
not find its place any more, and fires where others should."""


class Codes(NamedTuple):
    """Codes of rows: values (n, c), and which they are (n, c); or all of them, (n, n_codes), and None."""

    values: Tensor
    indices: Tensor | None
    scores: Tensor  # that the gate was shown


class Autoencoder(nn.Module):
    r"""A dictionary of atoms :math:`d_j`, and the encoder that finds codes in one pass.

    .. math:: z = \mathrm{gate}(W x + b), \qquad \hat x = \sum_j z_j d_j, \qquad \lVert d_j \rVert = 1

    Rows come centred and in a common unit, see `pindown.networks.preprocessing.common_scale`. W starts at the atoms,
    which are random directions. A code that stays silent is revived: its atom, and its row of W, become what is left of
    a row that is rebuilt badly.
    """

    unit: Tensor
    silent: Tensor
    seen: Tensor
    leftover: Tensor
    gate: GateModule | None
    revives: bool = True  # also of those that were saved before this could be chosen
    until: int | None = None  # rows after which none is revived

    def __init__(self, n_features: int, n_codes: int) -> None:
        super().__init__()
        start = F.normalize(torch.randn(n_codes, n_features))
        self.atoms = nn.Parameter(start)
        self.weight = nn.Parameter(start.clone())
        self.bias = nn.Parameter(torch.zeros(n_codes))
        self.gate = None
        self.register_buffer("unit", torch.ones(()))  # of a code, in the units of X
        self.register_buffer("silent", torch.zeros(n_codes, dtype=torch.int64))  # rows since a code fired
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("leftover", torch.zeros(min(REVIVED, n_codes), n_features))

    @property
    def n_codes(self) -> int:
        """Number of codes."""
        return len(self.atoms)

    def opened(self, gate: Gate, unit: Tensor, *, revives: bool = True, until: int | None = None) -> Autoencoder:
        """Give it its gate, the unit of its codes, whether dead ones are revived, and up to how many rows."""
        self.gate, self.revives, self.until = gate(self.n_codes), revives, until
        self.unit.copy_(unit)
        return self

    # ---- codes ------------------------------------------------------------------------------------------------------

    def codes(self, x: Tensor) -> Codes:
        """Return the codes of rows, in the unit of rows: those that may fire, where the gate bounds their number."""
        assert self.gate is not None
        if self.gate.n_candidates is None:
            scores = F.linear(x, self.weight, self.bias)
            return Codes(self.gate(scores), None, scores)
        scores, indices = chosen(x, self.weight, self.bias, self.gate.n_candidates)
        return Codes(self.gate(scores), indices, scores)

    def forward(self, x: Tensor) -> Tensor:
        """Return all codes, in the units of X; (n, n_codes)."""
        if self.gate is None:  # before it is opened, to be looked at
            return F.linear(x, self.weight, self.bias)
        values, indices, _ = self.codes(x)
        if indices is not None:
            values = values.new_zeros(len(x), self.n_codes).scatter_(1, indices, values)
        return values * self.unit

    # ---- training ---------------------------------------------------------------------------------------------------

    def loss(self, x: Tensor) -> Tensor:
        """Return the share of the variance of rows that is not rebuilt, and what the gate charges."""
        return self.step(x)[0]

    def step(self, x: Tensor) -> tuple[Tensor, Codes]:
        """Return the loss, and the codes that it was computed with."""
        assert self.gate is not None
        if self.training:
            self._ready()
        codes = self.codes(x)
        error, losses, first = x, [], 0
        for last in self.gate.levels(self.n_codes):
            error = error - self._rebuilt(codes, first, last)
            losses.append(error.square().mean())
            first = last
        if self.training:
            self._remember(codes, error.detach())
        loss = torch.stack(losses).mean()
        price = self.gate.penalty(codes.scores, codes.values, x.shape[1])
        return loss if price is None else loss + price, codes

    def _rebuilt(self, codes: Codes, first: int, last: int) -> Tensor:
        """Return what the codes of these numbers add to rows."""
        values, indices, _ = codes
        if indices is None:
            return values[:, first:last] @ self.atoms[first:last]
        if (first, last) != (0, self.n_codes):
            values = values * ((indices >= first) & (indices < last))
        return combined(values, indices, self.atoms)

    @torch.no_grad()
    def _ready(self) -> None:
        """Give atoms unit length, and revive dead codes by what the last batch left unexplained."""
        self.settle()
        if not self.revives:
            return
        assert self.gate is not None
        turns = int(SILENT_TURNS * self.n_codes / self.gate.n_expected)
        longest, which = self.silent.topk(len(self.leftover))
        length = torch.linalg.vector_norm(self.leftover, dim=1, keepdim=True)
        dead = ((longest > turns) & (longest > SILENT_SHARE * self.seen))[:, None] & (length > 0)  # (revived, 1)
        if self.until is not None:
            dead = dead & (self.seen < self.until)
        direction = self.leftover / length.clamp(min=1e-12)
        for part in (self.atoms, self.weight):
            part.index_copy_(0, which, torch.where(dead, direction, part[which]))
        self.bias.index_copy_(0, which, torch.where(dead[:, 0], 0.0, self.bias[which]))
        self.silent.index_copy_(0, which, torch.where(dead[:, 0], 0, longest))

    @torch.no_grad()
    def _remember(self, codes: Codes, error: Tensor) -> None:
        """Keep which codes fired, and what is left of the rows that are rebuilt worst."""
        n, open_ = len(error), codes.values > 0
        if codes.indices is None:
            fired = open_.any(0)
        else:
            counts = torch.zeros(self.n_codes, device=error.device)
            fired = counts.index_add_(0, codes.indices.reshape(-1), open_.reshape(-1).float()) > 0
        self.silent.copy_(torch.where(fired, 0, self.silent + n))
        self.seen.add_(n)
        worst = error.square().sum(1).argsort(descending=True, stable=True)
        self.leftover.copy_(error[worst[torch.arange(len(self.leftover), device=worst.device) % n]])

    @torch.no_grad()
    def settle(self) -> None:
        """Give atoms unit length."""
        self.atoms.div_(torch.linalg.vector_norm(self.atoms, dim=1, keepdim=True).clamp(min=1e-12))


def reviving(max_iter: int | None, batches: Iterator[tuple[Tensor, ...]]) -> int:
    """Return the rows of a training in which codes are revived.

    Examples
    --------
    >>> reviving(100, iter([(torch.zeros(8, 3),)])), reviving(None, iter([(torch.zeros(8, 3),)]))
    (600, 12000)
    """
    return int(REVIVING * (FIRST_ROUND if max_iter is None else max_iter) * len(next(batches)[0]))


class Seeds(nn.Module):
    """Dictionaries from several seeds, trained on the same rows: the mean of their losses. The first is the fit."""

    encoder: Encoder

    def __init__(self, encoder: Encoder, others: Sequence[Autoencoder]) -> None:
        super().__init__()
        self.encoder, self.others = encoder, nn.ModuleList(others)

    @property
    def all(self) -> list[Autoencoder]:
        """All dictionaries, the fit first."""
        found = [self.encoder.body, *self.others]
        return [each for each in found if isinstance(each, Autoencoder)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean loss."""
        rows = self.encoder.preprocess(x)
        return torch.stack([each.loss(rows) for each in self.all]).mean()


def turning(objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    r"""Return Adam whose learning rate is an angle: that by which an atom turns in a step, in radians, at most.

    Adam moves every entry by about its rate, and so an atom of unit length in m dimensions by :math:`\sqrt m` times as
    much. By angle one rate serves rows of any width.

    Examples
    --------
    >>> steps = turning(Autoencoder(64, 100), 0.08, 0.0)
    >>> round(steps.param_groups[0]["peak"], 6)
    0.01
    """
    width = max(weight.shape[1] for weight in objective.parameters() if weight.ndim == 2)
    steps = optimizers.adam(objective, learning_rate / width**0.5, weight_decay)
    for group in steps.param_groups:
        group["peak"] = learning_rate / width**0.5
    return steps
