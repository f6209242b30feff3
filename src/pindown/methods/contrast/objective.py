"""The loss of `Contrast`: its options, and the module that maps a batch of pairs to it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice

import torch
from scipy.optimize import minimize_scalar
from sklearn.utils import check_scalar
from torch import Tensor, nn

from pindown.losses import align_uniform, infonce
from pindown.methods.fitting import linear_path
from pindown.networks import zero_network
from pindown.networks.encoder import Encoder

START_BATCHES, FAINT, WIDEST = 4, 1e-4, 1_000
"""Number of batches by which an encoder is initialised; variance below which a direction, relative to the largest, is
left out; number of features up to which directions are compared."""

SATURATED = 0.02
"""Loss, in nats, below which a learned temperature rises again: positives are then nearer than all negatives, and a
loss near zero has no gradient. Only on the sphere: elsewhere the scale of the latents is free."""


@dataclass(frozen=True)
class PairLoss:
    """The loss of `Contrast`: InfoNCE, or alignment and uniformity.

    Parameters
    ----------
    alpha : float or None
        None is InfoNCE. A number between 0 and 1 is `losses.align_uniform` with this weight of uniformity. At 0.5 that
        is InfoNCE in the limit of many negatives, and the same theorems hold. Other weights have no theorem: they
        change the temperature (in the reals: the scale of the latents), and in a box they distort the latents. Use
        large batches where positives are close to each other: if they are nearer than all negatives, nothing bounds
        the temperature, and `fit` warns.
    any_marginal : bool
        Learn the log density of the observations along with the latents. The theorems assume latents with a uniform
        marginal; with this correction they need not be uniform.
    self_negatives : bool
        Take the samples themselves as negatives, as the code of the paper does. Needs ``any_marginal=False``. With
        `alpha` it keeps the loss bounded where positives are close to each other.

    Examples
    --------
    >>> from pindown import Contrast
    >>> Contrast(3, loss=PairLoss(alpha=0.5)).set_params(loss__any_marginal=False).loss
    PairLoss(alpha=0.5, any_marginal=False, self_negatives=False)
    """

    alpha: float | None = None
    any_marginal: bool = True
    self_negatives: bool = False

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the parameters by name, so that scikit-learn reaches them: ``loss__alpha``."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        if self.alpha is not None:
            check_scalar(self.alpha, "alpha", numbers.Real, min_val=0, max_val=1, include_boundaries="neither")
        if self.any_marginal and self.self_negatives:
            raise ValueError(
                "PairLoss: self_negatives=True takes samples as negatives, and any_marginal=True corrects for the "
                "density of positives. Choose one: the paper's code is self_negatives=True, any_marginal=False."
            )

    def __call__(
        self, encoder: Encoder, *, p: float | None, temperature: float | None, across_processes: bool
    ) -> PairObjective:
        """Return the module that maps a batch of pairs to this loss."""
        return PairObjective(
            encoder,
            zero_network(encoder.preprocess.shape_out) if self.any_marginal else None,
            p=p,
            temperature=temperature,
            alpha=self.alpha,
            self_negatives=self.self_negatives,
            across_processes=across_processes,
        )


class PairObjective(nn.Module):
    """The loss of a batch of pairs, with a given or learned temperature; ``p=None`` is the dot product."""

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
        """Return the loss: with several processes, this one's part of it."""
        if self.alpha is None:
            temperature = self.temperature()
            loss = self.infonce(x, x_pos, temperature=temperature, across_processes=self.across_processes)
            if self.p is None and isinstance(temperature, Tensor) and temperature.requires_grad:
                saturated = loss.detach() < SATURATED
                temperature.register_hook(lambda grad: torch.where(saturated, -grad, grad))
            return loss
        # On the sphere ‖a − b‖² = 2 − 2aᵀb: with twice the temperature, its inverse is a concentration here, too.
        p, temperature = (2, 2 * self.temperature()) if self.p is None else (self.p, self.temperature())
        potentials = None
        if self.potential is not None:
            of_samples, of_positives = self._potentials(torch.cat([x, x_pos])).chunk(2)
            potentials = of_samples, of_positives
        return align_uniform(
            *self._latents(x, x_pos),
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
        """Return InfoNCE, which measures the information about positives whatever is minimised."""
        return infonce(
            *self._latents(x, x_pos),
            temperature=temperature,
            p=self.p,
            potential=None if self.potential is None else self._potentials(x_pos),
            self_negatives=self.self_negatives,
            across_processes=across_processes,
        )

    def _latents(self, x: Tensor, x_pos: Tensor) -> tuple[Tensor, Tensor]:
        # One pass over both halves is faster than two passes over one.
        z, z_pos = self.encoder(torch.cat([x, x_pos])).chunk(2)
        return z, z_pos

    def _potentials(self, x: Tensor) -> Tensor:
        assert self.potential is not None
        return self.potential(self.encoder.preprocess(x))[:, 0]


@torch.no_grad()
def start_at_shared_directions(encoder: Encoder, batches: Iterator[tuple[Tensor, ...]]) -> None:
    """Initialise an encoder at the directions of whitened samples that positives have in common most.

    From random directions of many features an encoder may fold. With as many features as latents these are a rotation
    of each other, so that nothing is changed; nor is an encoder of images, or one without a linear path.
    """
    path = linear_path(encoder)
    if path is None or not path[1].out_features < path[1].in_features <= WIDEST:
        return
    before, linear = path
    x, x_pos = (torch.cat(part).to(encoder.device) for part in zip(*islice(batches, START_BATCHES), strict=True))
    seen, seen_pos = before(x).double(), before(x_pos).double()
    mean = torch.cat([seen, seen_pos]).mean(0)
    both = torch.cat([seen - mean, seen_pos - mean])
    values, basis = torch.linalg.eigh(both.T @ both / len(both))
    white = basis[:, values > FAINT * values[-1]] / values[values > FAINT * values[-1]].sqrt()
    shared = ((seen - mean) @ white).T @ ((seen_pos - mean) @ white)
    directions = (white @ torch.linalg.eigh(shared + shared.T)[1].flip(1)[:, : linear.out_features]).T
    linear.weight[: len(directions)] = (directions / directions.norm(dim=1, keepdim=True)).to(linear.weight)


def best_temperature(objective: PairObjective, x: Tensor, x_pos: Tensor) -> float:
    """Return the temperature with the least InfoNCE, which is convex in its inverse."""

    def loss(log_temperature: float) -> float:
        return float(objective.infonce(x, x_pos, temperature=math.exp(log_temperature)))

    learned = math.log(float(objective.temperature()))
    return math.exp(minimize_scalar(loss, bounds=(learned - 30, learned + 30), options={"xatol": 0.01}).x)
