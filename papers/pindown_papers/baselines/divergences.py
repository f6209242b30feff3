"""What the autoencoders of the field differ in: how posteriors of one or two views are compared with a prior."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from pindown.networks import mlp


class Posterior(NamedTuple):
    """A normal law for each latent of each row."""

    mean: Tensor  # (n, d)
    log_std: Tensor  # (n, d)

    def sample(self, normal: Tensor) -> Tensor:
        """Return a draw, made of standard normal numbers."""
        return self.mean + self.log_std.exp() * normal

    @property
    def variance(self) -> Tensor:
        """The variances, (n, d)."""
        return (2 * self.log_std).exp()


def kl(posterior: Posterior) -> Tensor:
    r"""Divergence of normal laws from N(0, 1), of each latent of each row; (n, d).

    Examples
    --------
    >>> kl(Posterior(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2))).tolist()
    [[0.0, 2.0]]
    """
    return 0.5 * (posterior.mean.square() + posterior.variance - 1) - posterior.log_std


class Weighed(nn.Module):
    r"""β times the divergence from the prior, of each view: `BetaVAE`."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, posteriors: tuple[Posterior, ...], codes: tuple[Tensor, ...], chance: Tensor) -> Tensor:
        """Return the cost of a batch, in nats per row and view."""
        return self.beta * torch.stack([kl(each).sum(1).mean() for each in posteriors]).mean()


class TotalCorrelation(nn.Module):
    r"""The divergence, and γ times an estimate of the total correlation of latents: `FactorVAE`.

    A classifier separates latents from those that are shuffled one by one; the difference of its logits estimates
    the log of their densities' ratio. It learns from the same latents in the same step, with no gradient to them.
    """

    def __init__(self, d: int, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        self.classifier = mlp(d, 2, hidden=(256, 256, 256))

    def forward(self, posteriors: tuple[Posterior, ...], codes: tuple[Tensor, ...], chance: Tensor) -> Tensor:
        """Return the cost of a batch, in nats per row."""
        (posterior,), (z,) = posteriors, codes
        fixed = {name: weight.detach() for name, weight in self.classifier.named_parameters()}
        logits = functional_call(self.classifier, fixed, (z,))
        correlation = (logits[:, 0] - logits[:, 1]).mean()
        mixed = z.detach().gather(0, chance.argsort(0))  # every latent in an order of its own
        both = self.classifier(torch.cat([z.detach(), mixed]))
        real = torch.arange(len(both), device=z.device) >= len(z)
        return kl(posterior).sum(1).mean() + self.gamma * correlation + functional.cross_entropy(both, real.long())


class Slow(nn.Module):
    r"""Two views in time, the second near the first by a Laplace law of each latent: `SlowVAE`.

    .. math:: \beta \, \mathrm{KL}\bigl(q(z|x) \| N(0, I)\bigr)
              + \gamma \, \mathrm{KL}\bigl(q(\tilde z | \tilde x) \,\|\, \mathrm{Laplace}(z, 1 / \text{rate})\bigr)

    with z at the mean of its posterior; the second in closed form, by the mean of a folded normal law.
    """

    def __init__(self, beta: float, gamma: float, rate: float) -> None:
        super().__init__()
        self.beta, self.gamma, self.rate = beta, gamma, rate

    def forward(self, posteriors: tuple[Posterior, ...], codes: tuple[Tensor, ...], chance: Tensor) -> Tensor:
        """Return the cost of a batch, in nats per row."""
        first, second = posteriors
        move, std = second.mean - first.mean, second.log_std.exp()
        folded = std * math.sqrt(2 / math.pi) * torch.exp(-0.5 * (move / std) ** 2)
        length = folded + move * torch.erf(move / (std * math.sqrt(2)))
        entropy = second.log_std + 0.5 * math.log(2 * math.pi * math.e)
        step = self.rate * length - math.log(self.rate / 2) - entropy
        return self.beta * kl(first).sum(1).mean() + self.gamma * step.sum(1).mean()


def adapted(first: Posterior, second: Posterior) -> tuple[Posterior, Posterior]:
    r"""Return posteriors that share the latents in which two views agree: `AdaGVAE`.

    Latents agree whose divergence between the views, made symmetric, lies below the middle between the least and the
    largest of their row. There both have the mean of means and of variances.

    Examples
    --------
    >>> first, second = (Posterior(torch.tensor([[0.0, m]]), torch.zeros(1, 2)) for m in (0.0, 3.0))
    >>> shared = Posterior(torch.tensor([[0.2, 3.0]]), torch.zeros(1, 2))
    >>> [each.mean.tolist() for each in adapted(first, shared)]
    [[[0.10000000149011612, 0.0]], [[0.10000000149011612, 3.0]]]
    """
    gap = (first.mean - second.mean).square()
    ways = [(a.variance + gap) / b.variance - 1 for a, b in ((first, second), (second, first))]
    apart = 0.25 * (ways[0] + ways[1])  # the logarithms cancel
    middle = 0.5 * (apart.amin(1, keepdim=True) + apart.amax(1, keepdim=True))
    same = apart < middle
    mean, log_std = 0.5 * (first.mean + second.mean), 0.5 * torch.log(0.5 * (first.variance + second.variance))
    a, b = (
        Posterior(torch.where(same, mean, each.mean), torch.where(same, log_std, each.log_std))
        for each in (first, second)
    )
    return a, b
