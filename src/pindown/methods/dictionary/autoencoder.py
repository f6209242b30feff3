"""The variational autoencoder of `Dictionary`: a bound of the likelihood that sees no rotation of the latents."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from pindown import networks
from pindown.losses import Penalty, pushforward
from pindown.losses.penalties import batch_scale
from pindown.methods.decoding import AT_ONCE
from pindown.networks.encoder import Encoder

LEAST_NOISE = 0.02
"""Least standard deviation of the observation noise, in units of each observed variable's: a world without noise would
otherwise make the bound ever steeper."""

START_ROWS, START_BATCHES, START_PICTURES = 8_192, 64, 512
"""Rows from which the decoder takes the scales of the observed variables and its linear start; most batches; and
pictures by which the noise is settled."""

START_SPREAD = 0.3
"""Standard deviation of the posterior at the start; that of the prior is 1."""


def random_numbers(n: int, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return standard normal and uniform numbers, (n, d) each."""
    device = generator.device
    return torch.randn(n, d, generator=generator, device=device), torch.rand(n, d, generator=generator, device=device)


class Coding(nn.Module):
    """An encoder and a decoder of standardised observations, vectors variable by variable and pictures as a whole.

    What every autoencoder here has, whatever it minimises: the units of its rows, the noise around what it decodes, and
    paths that can be set.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, encoder: Encoder, decoder: nn.Module, d: int, x: Tensor) -> None:
        super().__init__()
        self.encoder, self.decoder, self.d = encoder, decoder, d
        centre, scale = units_of(x)
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.log_noise = nn.Parameter(torch.zeros(()))

    def standardised(self, x: Tensor) -> Tensor:
        """Return observations in the decoder's units."""
        return ((x - self.centre) / self.scale).to(self.log_noise.dtype)

    def noise(self) -> Tensor:
        """Return the standard deviation of the observation noise."""
        return (torch.exp(2 * self.log_noise) + LEAST_NOISE**2).sqrt()

    @torch.no_grad()
    def codes(self, x: Tensor) -> Tensor:
        """Encode rows (n, …) as they are, a bounded number at a time."""
        return torch.cat([self.encoder(part) for part in x.split(rows_at_once(x))])

    def straighten(self, x: Tensor, z: Tensor) -> None:
        """Set the linear paths of encoder and decoder, where they have one, to the best ones between rows and codes."""
        _straighten(self.encoder.body, self.encoder.preprocess(x), z)
        _straighten(self.decoder, z, self.standardised(x))

    @torch.no_grad()
    def settle_noise(self, x: Tensor) -> None:
        """Set the noise to what decoded codes leave over of the observations."""
        some = x if x.ndim == 2 else x[:START_PICTURES]
        left = (self.standardised(some) - self.decoder(self.encoder(some))).square().mean().sqrt()
        self.log_noise.fill_(math.log(min(max(float(left), LEAST_NOISE), 1.0)))


class Autoencoder(Coding):
    r"""Minus the evidence lower bound of a batch, in nats per row, and a penalty on the decoder.

    .. math:: \mathbb E_q \frac{\lVert x - g(z) \rVert^2}{2\sigma^2} + m \log \sigma
              + \mathrm{KL}\bigl(q(z|x) \,\|\, N(0, I)\bigr), \qquad q(z|x) = N\bigl(f(x), L(x) L(x)^\top\bigr)

    on observations standardised variable by variable, pictures as a whole: a pixel that hardly changes stays faint.
    L(x) is a whole triangle: with the usual diagonal one the bound
    would favour decoders whose Jacobian has orthogonal columns, which a sparse one need not have. So it is the same for
    all rotations of z, and :meth:`turn` may choose one.
    """

    below: Tensor
    penalty: Penalty | None

    def __init__(self, encoder: Encoder, decoder: nn.Module, d: int, x: Tensor) -> None:
        turned, turned_back = (_frozen_identity(d) for _ in range(2))
        encoder.body = nn.Sequential(encoder.body, turned)
        super().__init__(encoder, nn.Sequential(turned_back, decoder), d, x)
        self.penalty = None
        self.turned, self.turned_back = turned, turned_back
        self.spread = _spread(encoder, d * (d + 1) // 2)  # the entries of L
        self.register_buffer("below", _below_diagonal(d))
        self.start(x)

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Set the decoder's linear path, where it has one, and the noise to what suits the codes of rows."""
        if x.ndim == 2:
            _straighten(self.decoder, self.encoder(x), self.standardised(x))
        self.settle_noise(x)

    def forward(self, x: Tensor, normal: Tensor, uniform: Tensor) -> Tensor:
        """Return what is minimised."""
        white = self.encoder.preprocess(x)
        mean = self.encoder.space(self.encoder.body(white)).to(self.log_noise)  # products may have half the digits
        triangle, log_diagonal = self._triangle(white)
        z = mean + self.turned((triangle @ normal[..., None])[..., 0])
        if self.penalty is None:
            x_hat, cost = self.decoder(z), torch.zeros((), device=x.device)
        else:
            x_hat, cost = self.penalty(self.decoder, z, uniform)
        variance = self.noise() ** 2
        error = (self.standardised(x) - x_hat).flatten(1)
        misfit = error.square().sum(1) / variance + error.shape[1] * torch.log(variance)
        divergence = mean.square().sum(1) + triangle.square().sum((1, 2)) - self.d - 2 * log_diagonal.sum(1)
        return 0.5 * (misfit + divergence).mean() + cost

    def _triangle(self, white: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower triangles L (n, d, d), and the logarithms of their diagonals (n, d)."""
        entries = self.spread(white).to(self.log_noise)
        log_diagonal, below = entries[:, : self.d] + math.log(START_SPREAD), entries[:, self.d :]
        # Scattered by a matrix of zeros and ones: an index assignment would be slower in both directions.
        return torch.diag_embed(log_diagonal.exp()) + (below @ self.below).unflatten(1, (self.d, self.d)), log_diagonal

    @torch.no_grad()
    def share_told(self, x: Tensor) -> Tensor:
        """Return how much of each latent's variance lies between rows, and not in the posterior of a row; (d,)."""
        triangle, _ = self._triangle(self.encoder.preprocess(x))
        within = (self.turned.weight @ triangle).square().sum(2).mean(0)
        between = self.codes(x).to(within).var(0)
        return between / (between + within)

    @torch.no_grad()
    def turn(self, rotation: Tensor) -> None:
        """Turn the latents, z → z Q: the decoder turns them back, so that no likelihood changes."""
        turned = self.turned.weight.mT @ rotation.to(self.turned.weight)
        self.turned.weight.copy_(turned.mT)
        self.turned_back.weight.copy_(turned)

    @torch.no_grad()
    def bound(self, x: Tensor, seed: int) -> float:
        """Return the evidence lower bound without penalty, in nats per row, with one draw of the latents each."""
        penalty, self.penalty = self.penalty, None
        generator = torch.Generator(x.device).manual_seed(seed)
        chance = (r.to(self.log_noise.dtype) for r in random_numbers(len(x), self.d, generator))
        parts = zip(*(each.split(rows_at_once(x)) for each in (x, *chance)), strict=True)
        bound = -sum(float(self(*part)) * len(part[0]) for part in parts) / len(x)
        self.penalty = penalty
        return bound

    @torch.no_grad()
    def dependence(self, x: Tensor) -> Tensor:
        """Return the derivative of each standardised observed variable by each standardised latent; (n, m, d)."""
        z = self.encoder(x)
        columns = pushforward(self.decoder, z).columns  # (d, n, m)
        return (columns * batch_scale(z)[:, None, None]).permute(1, 2, 0)


def _spread(encoder: Encoder, n_out: int) -> nn.Module:
    shape = encoder.preprocess.shape_out
    return (
        networks.zero_network(shape, n_out)
        if len(shape) == 3
        else networks.zero_mlp(encoder.n_features, n_out, hidden=(64, 64))
    )


@torch.no_grad()
def _straighten(network: nn.Module, inputs: Tensor, outputs: Tensor) -> None:
    paths = [part.linear for part in network.modules() if isinstance(part, networks.SkipMLP)]
    if paths and isinstance(paths[0], nn.Linear):
        paths[0].weight.copy_(torch.linalg.lstsq(inputs.double(), outputs.double()).solution.mT)


def _below_diagonal(d: int) -> Tensor:
    """Return the matrix that puts d(d − 1)/2 numbers below the diagonal of a flattened d×d matrix."""
    rows, columns = torch.tril_indices(d, d, -1)
    place = torch.zeros(len(rows), d * d)
    place[torch.arange(len(rows)), rows * d + columns] = 1.0
    return place


def units_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and scale of rows: of vectors for each variable, of pictures a mean for each pixel and one scale."""
    if x.ndim == 2:
        return x.double().mean(0), batch_scale(x.double())
    return x.mean(0).double(), x.var(0).mean().sqrt().double()


def rows_at_once(x: Tensor) -> int:
    """Return how many rows go through the networks at once, where nothing is learned from them."""
    return len(x) if x.ndim == 2 else max(1, AT_ONCE // math.prod(x.shape[1:]))


def first_samples(batches: Iterator[tuple[Tensor, ...]]) -> Tensor:
    """Return rows enough to start from, on the CPU."""
    first = next(batches)[0].cpu()
    n_more = min(START_ROWS // len(first), START_BATCHES) - 1
    return torch.cat([first, *(next(batches)[0].cpu() for _ in range(n_more))])


def _frozen_identity(d: int) -> nn.Linear:
    layer = nn.Linear(d, d, bias=False)
    nn.init.eye_(layer.weight)
    return layer.requires_grad_(False)
