"""The models behind `InverseDynamics`: a chart that actions are read off, a forward model, and what a batch costs."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pindown import networks
from pindown.data.batches import IndexedSamples
from pindown.data.data import from_torch
from pindown.data.labels import numbered
from pindown.losses import energy_distance
from pindown.methods.forget.game import ENERGY_ROWS
from pindown.methods.forget.nuisance import MIN_ROWS
from pindown.networks import built

NOBODY = {"None", "nan", "NaT", "<NA>", "inf", "-inf"}
"""How values that name no body print."""


def transitions(device: torch.device, before: np.ndarray, after: np.ndarray, body: np.ndarray) -> IndexedSamples:
    """Return observations before and after, whose they are, and what each counts, so that all bodies do the same."""
    values, labels, counts = numbered(body, "body", "value")
    weight = (len(body) / (len(values) * counts)).astype(np.float32)[labels]
    return IndexedSamples(torch.as_tensor(before, device=device), after, labels, weight)


def with_noise(rows: IndexedSamples, n_actions: int, among: np.ndarray | None = None) -> IndexedSamples:
    """Return the same rows, or some, with noise for so many codes, new whenever they are taken."""

    def noise(n_samples: int, generator: torch.Generator) -> tuple[Tensor]:
        return (torch.randn(n_samples, n_actions, generator=generator, device=generator.device),)

    return IndexedSamples(rows.x, *rows.fields, chance=noise, among=among)


class Axes(nn.Module):
    """Observations along the principal axes of displacements, the longest first, in units of their mean size.

    Not whitened: a chart must follow where states go, and whitening would make as much of the ways they never go.
    """

    centre: Tensor
    unit: Tensor
    axes: Tensor

    def __init__(self, x: Tensor, x_next: Tensor) -> None:
        super().__init__()
        x, x_next = (a.double().cpu() for a in (x, x_next))
        sizes, axes = torch.linalg.eigh((x_next - x).mT @ (x_next - x) / len(x))
        if not sizes[-1] > 0:
            raise ValueError(
                "InverseDynamics: X_next equals X_t in every row, so that nothing moved. Give observations before and "
                "after a step."
            )
        self.register_buffer("centre", x.mean(0))
        self.register_buffer("unit", sizes.sum().sqrt())
        self.register_buffer("axes", axes.flip(1).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return coordinates; (n, d) → (n, d), in the precision of the networks."""
        return ((x - self.centre) @ self.axes / self.unit).to(x.dtype)

    def back(self, change: Tensor) -> Tensor:
        """Return a change of coordinates as one of observations; (n, d) → (n, d)."""
        return self.unit * change @ self.axes.mT.to(change.dtype)


class Dynamics(nn.Module):
    """The chart, the forward model, the noise of the codes, and the loss of a batch of transitions."""

    def __init__(
        self, axes: Axes, n_actions: int, chart: Any, forward: Any, *, bottleneck: float, strength: float
    ) -> None:
        super().__init__()
        n = len(axes.centre)
        self.axes, self.n_actions = axes, n_actions
        self.bottleneck, self.strength = float(bottleneck), float(strength)
        self.chart = built("InverseDynamics", "chart", chart, n, n_actions)
        self.change = built("InverseDynamics", "forward", forward, n + n_actions, n)
        self.spread = networks.zero_mlp(n, n_actions**2, hidden=(64, 64))

    def action(self, x: Tensor, x_next: Tensor) -> Tensor:
        """Return the codes of transitions; (n, n_features) twice → (n, n_actions)."""
        return self.chart(self.axes(x_next)) - self.chart(self.axes(x))

    def lead(self, x: Tensor, action: Tensor) -> Tensor:
        """Return where actions lead; (n, n_features) and (n, n_actions) → (n, n_features)."""
        return x + self.axes.back(self.change(torch.cat([self.axes(x), action], 1)))

    def heard(self, x: Tensor) -> int:
        """Return in how many directions codes are more signal than noise, on average over observations (n, d)."""
        with torch.no_grad():
            factor = self.noise(self.axes(x.to(self.axes.centre.device)).float())[0]
            return int((torch.linalg.eigvalsh(factor @ factor.mT).mean(0) < 0.5).sum())

    def noise(self, here: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factors of the noise's covariances, (n, k, k), and logarithms of their diagonals."""
        made = self.spread(here).unflatten(1, (self.n_actions, self.n_actions))
        log_size = made.diagonal(dim1=1, dim2=2) - 1.5  # so that codes are hardly noisy at first
        return made.tril(-1) + torch.diag_embed(log_size.exp()), log_size

    def forward(self, x: Tensor, x_next: Tensor, body: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
        """Return the loss of transitions, given whose they are, what each counts, and noise for their codes."""
        here, there = (self.axes(a).float() for a in (x, x_next))
        action = self.chart(there) - self.chart(here)
        loss = torch.zeros((), device=action.device)
        if self.strength:
            # In standard units: else a chart would fool the classifier by shrinking its codes.
            said = (action - action.mean(0)) / (action.std(0, correction=0) + 1e-6)
            said, body, weight = (part[:ENERGY_ROWS] for part in (said, body, weight))
            loss = loss + self.strength * energy_distance(said, body, weights=weight)
        if self.bottleneck:
            factor, log_size = self.noise(here)
            rate = action.square().sum(1) + factor.square().sum((1, 2)) - self.n_actions - 2 * log_size.sum(1)
            loss = loss + self.bottleneck * rate.mean() / 2
            action = action + (factor @ noise[:, :, None])[:, :, 0]
        missed = here + self.change(torch.cat([here, action], 1)) - there
        return loss + missed.square().sum(1).mean()


def read_bodies(body: Any, X_t: Any) -> np.ndarray:
    """Return whose each row of X_t is, (n,), or say what is wrong."""
    if isinstance(body, list | tuple) and any(isinstance(value, str) for value in body):
        body = np.asarray(body, dtype=object)  # numpy would make text of the numbers
    whose, shape = np.asarray(from_torch(body)), tuple(np.shape(X_t)[:1])
    if whose.shape != shape:
        raise ValueError(f"body must have shape {shape}, one for each row of X_t, got {whose.shape}.")
    if any(not isinstance(value, str) and str(value) in NOBODY for value in whose.tolist()):
        raise ValueError("body contains NaN, None or infinity. Say of each row whose it is, or leave the row out.")
    try:
        values, counts = np.unique(whose, return_counts=True)
    except TypeError as error:
        raise ValueError(
            f"body mixes types that cannot be compared ({error}). Make its values all text or all numbers."
        ) from error
    fractions = [value for value in values.tolist() if isinstance(value, numbers.Real) and value % 1]
    if fractions:
        raise ValueError(
            f"body has fractions such as {float(fractions[0]):.3g}: it is a quantity, not whose a row is. Cut it "
            "into a few bins, or turn its values into text if they are names."
        )
    if len(values) > 1 and (counts.max() < MIN_ROWS or 2 * np.sum(counts == 1) > len(whose)):
        raise ValueError(
            f"body has {len(values)} values in {len(whose)} rows, most of them in fewer than {MIN_ROWS}: it names rows "
            "rather than bodies. Give all transitions of a body one value, or leave body out if each has its own."
        )
    return whose


def read_groups(groups: Any, n_samples: int) -> np.ndarray | None:
    """Return the episode of each transition, (n,), or None if nobody said; or say what is wrong."""
    if groups is None:
        return None
    said = np.asarray(from_torch(groups))
    if said.shape != (n_samples,):
        raise ValueError(f"groups must have shape {(n_samples,)}, the episode of each row of X_t, got {said.shape}.")
    return said
