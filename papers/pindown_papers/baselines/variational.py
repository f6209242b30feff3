"""The variational autoencoder behind the baselines: one or two views, a diagonal posterior, perhaps a penalty."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pindown import networks
from pindown.losses import Penalty
from pindown.methods.dictionary.autoencoder import START_SPREAD, EncoderDecoder, random_numbers, samples_at_once
from pindown.networks.encoder import Encoder
from pindown_papers.baselines.divergences import Posterior, adapted


class Variational(EncoderDecoder):
    r"""Minus a bound of the likelihood, in nats per row, with a divergence that is a module, and a penalty.

    .. math:: \mathbb E_q \frac{\lVert x - g(z) \rVert^2}{2\sigma^2} + m \log \sigma + \text{divergence}

    Observations are in standardised units, images as a whole. The noise σ is learned.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: nn.Module,
        d: int,
        x: Tensor,
        *,
        divergence: nn.Module,
        penalty: Penalty | None,
        adapts: bool = False,
    ) -> None:
        super().__init__(encoder, decoder, d, x)
        self.divergence, self.penalty, self.adapts = divergence, penalty, adapts
        self.spread = networks.zero_network(encoder.preprocess.shape_out, d)

    def posterior(self, x: Tensor) -> Posterior:
        """Return the law of the latents of rows."""
        white = self.encoder.preprocess(x)
        log_std = self.spread(white).to(self.log_noise) + math.log(START_SPREAD)
        return Posterior(self.encoder.space(self.body(white)).to(self.log_noise), log_std)

    @property
    def body(self) -> nn.Module:
        """What gives the means of posteriors."""
        return self.encoder.body

    @property
    def generator(self) -> nn.Module:
        """What decodes draws of posteriors."""
        return self.decoder

    def forward(self, *batch: Tensor) -> Tensor:
        """Return what is minimised of views (n, …), normal numbers (n, views · d) and uniform ones (n, d)."""
        *views, normal, uniform = batch
        posteriors = tuple(self.posterior(x) for x in views)
        if self.adapts:
            posteriors = adapted(*posteriors)
        codes = tuple(each.sample(part) for each, part in zip(posteriors, normal.chunk(len(views), 1), strict=True))
        misfit, cost = torch.zeros((), device=normal.device), torch.zeros((), device=normal.device)
        for x, z in zip(views, codes, strict=True):
            rebuilt, more = (
                (self.generator(z), 0.0) if self.penalty is None else self.penalty(self.generator, z, uniform)
            )
            misfit, cost = misfit + self.misfit(x, rebuilt) / len(views), cost + more / len(views)
        return misfit + self.divergence(posteriors, codes, uniform) + cost

    def misfit(self, x: Tensor, rebuilt: Tensor) -> Tensor:
        """Return minus the log likelihood of rebuilt rows, but for a constant."""
        variance = self.noise() ** 2
        error = (self.standardised(x) - rebuilt).flatten(1)
        return 0.5 * (error.square().sum(1).mean() / variance + error.shape[1] * torch.log(variance))

    @torch.no_grad()
    def bound(self, x: Tensor, seed: int) -> float:
        """Return the evidence lower bound with a standard normal prior, in nats per row, one draw of each."""
        generator = torch.Generator(x.device).manual_seed(seed)
        normal, _ = random_numbers(len(x), self.d, generator)
        total = 0.0
        for part, chance in zip(x.split(samples_at_once(x)), normal.split(samples_at_once(x)), strict=True):
            posterior = self.posterior(part)
            z = posterior.sample(chance.to(self.log_noise.dtype))
            divergence = 0.5 * (posterior.mean.square() + posterior.variance - 1) - posterior.log_std
            total -= len(part) * float(self.misfit(part, self.generator(z)) + divergence.sum(1).mean())
        return total / len(x)
