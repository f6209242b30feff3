"""The variational autoencoder of `Dictionary`: a bound of the likelihood that no linear map of the latents changes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor, nn

from pindown import _random, networks
from pindown._random import RandomState
from pindown.data.data import from_torch
from pindown.losses import Penalty
from pindown.losses.penalties import batch_scale
from pindown.methods.inputs import ArrayOrTensor, Encoded
from pindown.metrics.arrays import Matrix
from pindown.networks.encoder import Encoder

LEAST_NOISE = 0.02  # standard deviation of the noise, standardised; without it the bound would grow without limit
START_SAMPLES, START_BATCHES = 8_192, 64  # from which scales and the linear initialisation are taken, at most
START_IMAGES = 512  # images from which the noise is estimated
START_SPREAD = 0.3  # standard deviation of the posterior at initialisation; that of the prior is 1
AT_ONCE = 1 << 23  # size of the arrays of images that go through networks at once


def random_numbers(n: int, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return standard normal and uniform numbers, (n, d) each."""
    device = generator.device
    return torch.randn(n, d, generator=generator, device=device), torch.rand(n, d, generator=generator, device=device)


class EncoderDecoder(nn.Module):
    """An encoder and a decoder to standardised observations: vectors feature by feature, images as a whole."""

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
        """Return observations in the units of the decoder."""
        return ((x - self.centre) / self.scale).to(self.log_noise.dtype)

    def noise(self) -> Tensor:
        """Return the standard deviation of the observation noise."""
        return (torch.exp(2 * self.log_noise) + LEAST_NOISE**2).sqrt()

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """Encode samples (n, …), a bounded number at a time."""
        return torch.cat([self.encoder(part) for part in x.split(samples_at_once(x))])

    def set_linear_paths(self, x: Tensor, z: Tensor) -> None:
        """Set the linear paths of encoder and decoder, where they have one, by least squares between x and z."""
        _set_linear_path(self.encoder.body, self.encoder.preprocess(x), z)
        _set_linear_path(self.decoder, z, self.standardised(x))

    @torch.no_grad()
    def estimate_noise(self, x: Tensor) -> None:
        """Set the noise to the reconstruction error of these samples."""
        some = x if x.ndim == 2 else x[:START_IMAGES]
        error = (self.standardised(some) - self.decoder(self.encoder(some))).square().mean().sqrt()
        self.log_noise.fill_(math.log(min(max(float(error), LEAST_NOISE), 1.0)))


class Autoencoder(EncoderDecoder):
    r"""Minus the evidence lower bound of a batch, in nats per sample, and a penalty on the decoder.

    .. math:: \mathbb E_q \frac{\lVert x - g(z) \rVert^2}{2\sigma^2} + m \log \sigma
              + \mathrm{KL}\bigl(q(z|x) \,\|\, N(0, A^\top A)\bigr), \qquad q(z|x) = N\bigl(f(x), L(x) L(x)^\top\bigr)

    Observations are standardised feature by feature, images as a whole: a pixel that hardly changes stays faint.
    L(x) is a full lower triangle: with a diagonal one the bound would favour decoders whose Jacobian has orthogonal
    columns, which a sparse one need not have. A is the identity until :meth:`map_latents` chooses another: the bound is
    the same for all. Latents of unit variance keep the unit of the penalty, whatever their covariance is.
    """

    below: Tensor
    penalty: Penalty | None

    def __init__(self, encoder: Encoder, decoder: nn.Module, d: int, x: Tensor) -> None:
        to_latents, from_latents = (_frozen_identity(d) for _ in range(2))
        encoder.body = nn.Sequential(encoder.body, to_latents)
        super().__init__(encoder, nn.Sequential(from_latents, decoder), d, x)
        self.penalty = None
        self.to_latents, self.from_latents = to_latents, from_latents
        self.posterior = _posterior(encoder, d * (d + 1) // 2)  # the entries of L
        self.register_buffer("below", _below_diagonal(d))
        with torch.no_grad():
            if x.ndim == 2:
                _set_linear_path(self.decoder, self.encoder(x), self.standardised(x))
            self.estimate_noise(x)

    def forward(self, x: Tensor, normal: Tensor, uniform: Tensor) -> Tensor:
        """Return the loss of a batch, from normal and uniform random numbers (n, d)."""
        white = self.encoder.preprocess(x)
        mean = self.encoder.space(self.encoder.body(white)).to(self.log_noise)  # products may have half the digits
        triangle, log_diagonal = self._triangle(white)
        z = mean + self.to_latents((triangle @ normal[..., None])[..., 0])
        if self.penalty is None:
            x_hat, cost = self.decoder(z), torch.zeros((), device=x.device)
        else:
            x_hat, cost = self.penalty(self.decoder, z, uniform)
        variance = self.noise() ** 2
        error = (self.standardised(x) - x_hat).flatten(1)
        misfit = error.square().sum(1) / variance + error.shape[1] * torch.log(variance)
        squares = self.from_latents(mean).square().sum(1) + triangle.square().sum((1, 2))  # where the prior is N(0, I)
        divergence = squares - self.d - 2 * log_diagonal.sum(1)
        return 0.5 * (misfit + divergence).mean() + cost

    def _triangle(self, white: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower triangles L (n, d, d), and the logarithms of their diagonals (n, d)."""
        entries = self.posterior(white).to(self.log_noise)
        log_diagonal, below = entries[:, : self.d] + math.log(START_SPREAD), entries[:, self.d :]
        # Scattered by a matrix of zeros and ones: an index assignment would be slower in both directions.
        return torch.diag_embed(log_diagonal.exp()) + (below @ self.below).unflatten(1, (self.d, self.d)), log_diagonal

    @torch.no_grad()
    def explained_variance(self, x: Tensor) -> Tensor:
        """Return the fraction of each latent's variance between samples rather than within their posteriors; (d,)."""
        triangle, _ = self._triangle(self.encoder.preprocess(x))
        within = (self.to_latents.weight @ triangle).square().sum(2).mean(0)
        between = self.encode(x).to(within).var(0)
        return between / (between + within)

    @torch.no_grad()
    def map_latents(self, linear: Tensor) -> None:
        """Map the latents, z → z A; the decoder maps them back, and the prior becomes that of z A: the bound stays."""
        weight = linear.to(self.to_latents.weight).mT @ self.to_latents.weight
        self.to_latents.weight.copy_(weight)
        self.from_latents.weight.copy_(torch.linalg.inv(weight.double()))

    def covariance(self) -> Matrix:
        """Return the covariance AᵀA of the prior, (d, d)."""
        directions = self.white_directions()
        return directions.T @ directions

    def white_directions(self) -> Matrix:
        """Return the directions along which one latent of a white prior changes, as rows (d, d)."""
        return self.to_latents.weight.double().mT.cpu().numpy()

    @torch.no_grad()
    def bound(self, x: Tensor, seed: int) -> float:
        """Return the evidence lower bound without penalty, in nats per sample, with one draw of the latents each."""
        penalty, self.penalty = self.penalty, None
        generator = torch.Generator(x.device).manual_seed(seed)
        noise = (each.to(self.log_noise.dtype) for each in random_numbers(len(x), self.d, generator))
        parts = zip(*(each.split(samples_at_once(x)) for each in (x, *noise)), strict=True)
        bound = -sum(float(self(*part)) * len(part[0]) for part in parts) / len(x)
        self.penalty = penalty
        return bound


def _posterior(encoder: Encoder, n_out: int) -> nn.Module:
    shape = encoder.preprocess.shape_out
    if len(shape) == 3:
        return networks.zero_network(shape, n_out)
    return networks.zero_mlp(encoder.n_features, n_out, hidden=(64, 64))


@torch.no_grad()
def _set_linear_path(network: nn.Module, inputs: Tensor, outputs: Tensor) -> None:
    paths = [part.linear for part in network.modules() if isinstance(part, networks.SkipMLP)]
    if paths and isinstance(paths[0], nn.Linear):
        paths[0].weight.copy_(torch.linalg.lstsq(inputs.double(), outputs.double()).solution.mT)


def _below_diagonal(d: int) -> Tensor:
    """Return the matrix that puts d(d − 1)/2 numbers below the diagonal of a flattened d×d matrix."""
    rows, columns = torch.tril_indices(d, d, -1)
    matrix = torch.zeros(len(rows), d * d)
    matrix[torch.arange(len(rows)), rows * d + columns] = 1.0
    return matrix


def units_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and scale of each feature; of images, a mean for each pixel and one scale for all."""
    if x.ndim == 2:
        return x.double().mean(0), batch_scale(x.double())
    return x.mean(0).double(), x.var(0).mean().sqrt().double()


def samples_at_once(x: Tensor) -> int:
    """Return how many samples go through the networks at once, where no gradients are needed."""
    return len(x) if x.ndim == 2 else max(1, AT_ONCE // math.prod(x.shape[1:]))


def first_samples(batches: Iterator[tuple[Tensor, ...]]) -> Tensor:
    """Return enough samples for an initialisation, on the CPU."""
    first = next(batches)[0].cpu()
    n_more = min(START_SAMPLES // len(first), START_BATCHES) - 1
    return torch.cat([first, *(next(batches)[0].cpu() for _ in range(n_more))])


def _frozen_identity(d: int) -> nn.Linear:
    layer = nn.Linear(d, d, bias=False)
    nn.init.eye_(layer.weight)
    return layer.requires_grad_(False)


class Decodes:
    """An estimator whose ``objective_`` has a ``decoder``, with its ``scale`` and ``centre``; abstract."""

    encoder_: Encoder
    objective_: nn.Module
    n_components_: int
    shape_in_: tuple[int, ...]
    n_features_in_: int

    def inverse_transform(self, Z: ArrayOrTensor) -> Encoded:
        """Decode latents to observations; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        array = check_array(from_torch(Z), dtype=[np.float64, np.float32], order="C", force_writeable=True)
        if array.shape[1] != self.n_components_:
            raise ValueError(
                f"{type(self).__name__}: Z must have {self.n_components_} columns, one per latent, got "
                f"{array.shape[1]}."
            )
        model: Any = self._precise()
        z, n_at_once = self._put(array), max(1, AT_ONCE // self.n_features_in_)
        with torch.no_grad():
            parts = [model.decoder(part) * model.scale + model.centre for part in z.split(n_at_once)]
        x = torch.cat(parts).to(torch.as_tensor(array).dtype)
        return x.to(Z.device) if isinstance(Z, Tensor) else x.cpu().numpy()

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> np.ndarray:
        """Draw latents from the prior, a normal distribution, and decode them.

        Parameters
        ----------
        n_samples : int
            Number of observations.
        random_state : int, RandomState or None
            Seed.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"{type(self).__name__}: n_samples must be at least 1, got {n_samples}.")
        rng = _random.generator(random_state, torch.device("cpu"))
        return self.inverse_transform(
            self._from_white(torch.randn(n_samples, self.n_components_, generator=rng))
        ).numpy()

    def _from_white(self, normal: Tensor) -> Tensor:
        """Return latents of the prior from standard normal numbers."""
        return normal

    def _precise(self) -> nn.Module:
        """Return the model in the precision in which it is used: float64, except for images."""
        if len(self.shape_in_) == 3:
            return self.objective_.eval()
        return copy.deepcopy(self.objective_).double().eval()

    def _put(self, array: np.ndarray) -> Tensor:
        rows = torch.as_tensor(array).to(self.encoder_.device)
        return rows.float() if len(self.shape_in_) == 3 else rows.double()
