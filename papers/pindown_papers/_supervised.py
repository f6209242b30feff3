"""The upper bound: an encoder of the same kind that is given the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pindown import _random
from pindown.data import ArraySource
from pindown.data.batches import CapturableBatches
from pindown.methods.inputs import SUMMARY_SAMPLES
from pindown.networks.encoder import Encoder
from pindown.networks.preprocessing import whiten
from pindown.networks.spaces import Space, Sphere
from pindown.simulate import Process
from pindown.training import FitPart, Trainer
from pindown.training.optimizers import MakeOptimizer, adam


class _Regression(nn.Module):
    """Mean squared distance of the learned latents from the true ones, which off the sphere are standardised first.

    An encoder of whitened data starts with latents of unit size, and so do Adam's steps: to shrink all of them to a
    box costs more than to unfold it. R² does not see the difference.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, encoder: Encoder, z: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        on_sphere = encoder.space == Sphere()
        self.register_buffer("mean", torch.zeros_like(z[0]) if on_sphere else z.mean(0))
        self.register_buffer("scale", torch.ones_like(z[0]) if on_sphere else z.std(0))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.encoder(x), (z - self.mean) / self.scale)


@dataclass(frozen=True)
class _FreshTruth(CapturableBatches):
    """Batches of observations with their latents, new at every step."""

    process: Process
    batch_size: int

    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Nothing to make ready."""

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        sample = self.process.sample(self.batch_size, random_state=generator, device=generator.device)
        return sample.x, sample.z


def fit_supervised(
    process: Process,
    *,
    space: Space,
    body: Callable[[int, int], nn.Module],
    batch_size: int,
    max_iter: int,
    learning_rate: float,
    weight_decay: float,
    seed: int,
    device: str,
    optimizer: MakeOptimizer = adam,
) -> Encoder:
    """Train an encoder to give the true latents up to scale and shift, with fresh samples at every step.

    It is made as `BaseEncoder.fit_process` makes its own: whitening, the body, the projection onto the space.

    Examples
    --------
    >>> from pindown import networks
    >>> from pindown.metrics import linear_r2
    >>> from pindown.simulate import Pairs
    >>> from pindown.networks.spaces import Sphere
    >>> simulation = Pairs.on_sphere(3, 10.0, random_state=0)
    >>> encoder = fit_supervised(simulation, space=Sphere(), body=networks.skip_mlp, batch_size=256, max_iter=200,
    ...     learning_rate=5e-3, weight_decay=0.0, seed=0, device="cpu")
    >>> test = simulation.sample(2_000, random_state=1)
    >>> linear_r2(test.x, test.z) < 0.95 < 0.99 < linear_r2(encoder(test.x), test.z)
    True
    """
    rng = _random.generator(seed, device)
    x, z, *_ = process.sample(SUMMARY_SAMPLES, random_state=rng, device=device)
    with _random.forked(seed):
        network = body(x.shape[1], process.d)
    encoder = Encoder(whiten(ArraySource(x.cpu())), network, space)
    Trainer(weight_decay=weight_decay, optimizer=optimizer).train(
        _Regression(encoder, z).to(device),
        _FreshTruth(process, batch_size),
        max_iter=max_iter,
        learning_rate=learning_rate,
        seed=seed,
        part=FitPart("supervised"),
    )
    return encoder
