"""What `Contrast` minimises: the loss of a batch of pairs, at a temperature that is given or learned."""

from __future__ import annotations

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from pindown.losses import align_uniform, infonce
from pindown.networks.encoder import Encoder

SATURATED = 0.02
"""Loss, in nats, below which the learned temperature rises again: partners are then nearer than all negatives, and a
loss near zero teaches the encoder nothing. On the sphere alone: elsewhere the scale of the codes is free."""


def _turn_back(number: Tensor, *, where: Tensor) -> None:
    """Let a number climb the loss instead of descending it, where this is so."""
    number.register_hook(lambda grad: torch.where(where, -grad, grad))


class PairObjective(nn.Module):
    """The loss of a batch of pairs, with a temperature that is given or learned."""

    given: float | None  # the temperature

    def __init__(
        self,
        encoder: Encoder,
        potential: nn.Module | None,
        *,
        p: float | None,
        temperature: float | None,
        alpha: float | None,
        self_negatives: bool,
        across_processes: bool,
    ) -> None:
        super().__init__()
        self.encoder, self.potential, self.p, self.alpha = encoder, potential, p, alpha
        self.self_negatives, self.across_processes = self_negatives, across_processes
        self.given = temperature
        if temperature is None:
            self.log_temperature = nn.Parameter(torch.zeros(()))

    def temperature(self) -> float | Tensor:
        """Return the temperature, given or learned."""
        # One number must travel as far as ten thousand weights do together: give it ten times their speed.
        return torch.exp(10 * self.log_temperature) if self.given is None else self.given

    def forward(self, x: Tensor, x_pos: Tensor) -> Tensor:
        """Return what is minimised: under several processes, this one's part of it."""
        if self.alpha is None:
            temperature = self.temperature()
            loss = self.infonce(x, x_pos, temperature=temperature, across_processes=self.across_processes)
            if self.p is None and isinstance(temperature, Tensor) and temperature.requires_grad:
                _turn_back(temperature, where=loss.detach() < SATURATED)
            return loss
        # On the sphere ‖a − b‖² = 2 − 2aᵀb: twice the temperature, and its inverse is a concentration here, too.
        p, temperature = (2, 2 * self.temperature()) if self.p is None else (self.p, self.temperature())
        potentials = None
        if self.potential is not None:
            of_samples, of_partners = self._potentials(torch.cat([x, x_pos])).chunk(2)
            potentials = of_samples, of_partners
        return align_uniform(
            *self._codes(x, x_pos),
            alpha=self.alpha,
            temperature=temperature,
            p=p,
            potentials=potentials,
            self_negatives=self.self_negatives,
            across_processes=self.across_processes,
        )

    def infonce(
        self, x: Tensor, x_pos: Tensor, *, temperature: float | Tensor, across_processes: bool = False
    ) -> Tensor:
        """Return InfoNCE, which says what the codes show whatever is minimised."""
        return infonce(
            *self._codes(x, x_pos),
            temperature=temperature,
            p=self.p,
            potential=None if self.potential is None else self._potentials(x_pos),
            self_negatives=self.self_negatives,
            across_processes=across_processes,
        )

    def _codes(self, x: Tensor, x_pos: Tensor) -> tuple[Tensor, Tensor]:
        # One pass over both halves is faster than two passes over one.
        z, z_pos = self.encoder(torch.cat([x, x_pos])).chunk(2)
        return z, z_pos

    def _potentials(self, x: Tensor) -> Tensor:
        assert self.potential is not None
        return self.potential(self.encoder.preprocess(x))[:, 0]


def best_temperature(objective: PairObjective, x: Tensor, x_pos: Tensor) -> float:
    """Return the temperature at which InfoNCE is least: in its inverse the loss is convex."""

    def loss(log_temperature: float) -> float:
        return float(objective.infonce(x, x_pos, temperature=math.exp(log_temperature)))

    learned = math.log(float(objective.temperature()))
    return math.exp(minimize_scalar(loss, bounds=(learned - 30, learned + 30), options={"xatol": 0.01}).x)
