"""Which latent reaches which output of a decoder: derivatives, a threshold, supports and blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from pindown.auditing.checks.supports import (
    DEPENDENT,
    NEARLY_LINEAR,
    SHARED,
    dependence_of_blocks,
    shared_by_blocks,
)
from pindown.losses import pushforward
from pindown.losses.jacobian import Decoder
from pindown.methods.dictionary.autoencoder import Autoencoder
from pindown.methods.dictionary.rotation import CORRELATED, TRAINED, polished
from pindown.metrics.arrays import Labels, Mask, Matrix
from pindown.simulate.images import Bytes, contact_sheet
from pindown.theory import structure

AT_ONCE = 1 << 24  # derivatives in memory; the layers inside a decoder hold several times as many numbers
CONSTANT = 0.05  # standard deviation, relative to the largest, below which an output counts as constant
FAINT, STRONG = 0.05, 0.15  # bounds of the threshold of the support: weaker derivatives are noise, stronger are not
RARE = 0.01  # fraction of the outputs that must have the same set of latents for it to count
N_LATENTS, N_PIXELS = 512, 500  # latents at which derivatives by images are taken, and pixels, at most
GROUPS = 20  # of samples, which a bootstrap draws whole
INFORMATIVE = {2: 0.5, 4: 0.9}  # fraction of its variance that a latent's encoding explains: of vectors, of images


class Outputs(NamedTuple):
    """How the outputs of a decoder vary with its latents."""

    shape: tuple[int, ...]  # of a sample
    spread: Matrix  # the unit of each output, best its standard deviation, (m,)

    @property
    def varying(self) -> Mask:
        """Which outputs vary, and are counted; (m,)."""
        return self.spread > CONSTANT * self.spread.max()


@torch.no_grad()
def outputs(decoder: Decoder, z: Tensor) -> Outputs:
    """Return how the outputs of a decoder vary."""
    one = decoder(z[:2])[:1]
    first = one.double().flatten(1)  # subtracted, so that small changes of large numbers are seen
    total, squares = torch.zeros_like(first[0]), torch.zeros_like(first[0])
    for part in z.split(max(1, AT_ONCE // first.numel())):
        change = decoder(part).double().flatten(1) - first
        total, squares = total + change.sum(0), squares + change.square().sum(0)
    variance = (squares / len(z) - (total / len(z)).square()).clamp_min(0)
    return Outputs(tuple(one.shape[1:]), variance.sqrt().cpu().numpy())


@torch.no_grad()
def gradient_moments(decoder: Decoder, z: Tensor, found: Outputs, which: Labels, directions: Matrix) -> Matrix:
    """Return mean outer products of the derivatives of some outputs, standardised, along directions; (m, k, k)."""
    index, k = torch.as_tensor(which, device=z.device), len(directions)
    moments = torch.zeros(len(which), k, k, dtype=torch.float64, device=z.device)
    for columns in _derivatives(decoder, z, found, directions):
        some = columns[:, :, index].double()  # (k, n, m)
        moments += torch.einsum("anm,bnm->mab", some, some)
    return moments.cpu().numpy() / found.spread[which, None, None] ** 2 / len(z)


@torch.no_grad()
def mean_derivatives(decoder: Decoder, z: Tensor, found: Outputs, directions: Matrix) -> Matrix:
    """Return the mean absolute derivative of each output, standardised, along directions (k, d); (m, k)."""
    total = sum(columns.double().abs().sum(1) for columns in _derivatives(decoder, z, found, directions))
    return torch.as_tensor(total).cpu().numpy().T / len(z) / np.maximum(found.spread, 1e-300)[:, None]


def _derivatives(decoder: Decoder, z: Tensor, found: Outputs, directions: Matrix) -> Iterator[Tensor]:
    """Yield the derivatives of all outputs along directions (k, d), some samples at a time; (k, n, m)."""
    tangents = torch.as_tensor(directions.copy(), device=z.device, dtype=z.dtype)[:, None]  # (k, 1, d)
    for part in z.split(max(1, AT_ONCE // (len(directions) * math.prod(found.shape)))):
        yield pushforward(decoder, part, tangents).columns.flatten(2)


@torch.no_grad()
def mean_changes(decoder: Decoder, z: Tensor, found: Outputs, directions: Matrix) -> Matrix:
    """Return how much each output changes, jumps too, if one new latent is that of another sample; (m, d)."""
    back = torch.as_tensor(directions.copy(), device=z.device, dtype=z.dtype)  # (d, d): one for each new latent
    new, size = z @ torch.linalg.inv(back.double()).to(z), max(2, AT_ONCE // math.prod(found.shape))
    total = torch.zeros(len(back), math.prod(found.shape), dtype=torch.float64, device=z.device)
    for j, along in enumerate(back):
        other = z + (new[:, j].roll(1) - new[:, j])[:, None] * along  # samples are in no order
        for part, moved in zip(z.split(size), other.split(size), strict=True):
            total[j] += (decoder(moved) - decoder(part)).double().flatten(1).abs().sum(0)
    return total.cpu().numpy().T / len(z) / np.maximum(found.spread, 1e-300)[:, None]


# ---- supports -------------------------------------------------------------------------------------------------------


def widest_gap(dependence: Matrix, least: float = FAINT, most: float = STRONG) -> float:
    """Return the middle, on a logarithmic scale, of the widest gap between strengths within bounds."""
    inside = np.sort(dependence[(dependence > least) & (dependence < most)])
    edges = np.log(np.concatenate([[least], inside, [most]]))
    widest = np.diff(edges).argmax()
    return float(np.exp((edges[widest] + edges[widest + 1]) / 2))


def support_of(dependence: Matrix, varying: Mask | None = None) -> tuple[Mask, float]:
    """Return which of d latents reach which of m outputs, (m, d), and the threshold of the strengths (m, d).

    Every output that varies (None: all) is reached by a latent, and every latent reaches one.

    Examples
    --------
    >>> support_of(np.array([[1.0, 0.03], [0.01, 0.5]]))[0].astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    varying = np.ones(len(dependence), dtype=bool) if varying is None else varying
    threshold = widest_gap(dependence[varying])
    support = dependence > threshold
    support[np.arange(len(support)), dependence.argmax(1)] = True
    support[~varying] = False
    strongest = np.where(varying[:, None], dependence, -1.0).argmax(0)
    support[strongest, np.arange(support.shape[1])] = True
    return support, threshold


def common_rows(support: ArrayLike) -> NDArray[np.int64]:
    """Return the different rows of a support that are not rare, below a row of ones, so that no latent is left out.

    Examples
    --------
    >>> common_rows(np.array([[1, 0]] * 300 + [[0, 1]])).tolist()
    [[1, 1], [1, 0]]
    """
    array = np.asarray(support).astype(np.int64)
    rows, counts = np.unique(array, axis=0, return_counts=True)
    return np.vstack([np.ones((1, array.shape[1]), dtype=np.int64), rows[counts >= RARE * len(array)]])


def is_nonlinear(moments: Matrix, support: ArrayLike) -> Mask:
    r"""Return which outputs have gradients that span all the latents that reach them; (m,).

    :math:`\sqrt{\lambda_{\min} / \lambda_{\max}}` of the moments (m, d, d) on the support (m, d), in units of the
    gradients, must be above that of a nearly linear output. An output of one latent may be linear.

    Examples
    --------
    >>> linear, nonlinear = np.ones((2, 2)), np.eye(2)
    >>> is_nonlinear(np.stack([linear, nonlinear, linear]), np.array([[1, 1], [1, 1], [1, 0]])).tolist()
    [False, True, True]
    """
    mask = np.asarray(support, dtype=bool)
    size = np.sqrt(np.maximum(moments.diagonal(axis1=1, axis2=2), 1e-300))
    unit = moments / (size[:, :, None] * size[:, None, :])
    both = mask[:, :, None] & mask[:, None, :]
    # Latents that do not reach an output get moments between the least and the largest.
    inside = np.where(both, unit, 0.0) + np.where(mask, 0.0, 1.0)[:, :, None] * np.eye(mask.shape[1])
    values = np.linalg.eigvalsh(inside)
    return np.asarray(np.sqrt(np.maximum(values[:, 0], 0) / values[:, -1]) > NEARLY_LINEAR)


def conditional_spread(covariance: Matrix) -> Matrix:
    """Return the standard deviation of each latent given all others, the unit of its derivatives; (d,).

    Examples
    --------
    >>> conditional_spread(np.array([[1.0, 0.6], [0.6, 1.0]])).round(3).tolist()
    [0.8, 0.8]
    """
    ridge = 1e-9 * covariance.diagonal().max() * np.eye(len(covariance))  # where a latent never changes
    return np.asarray(1 / np.sqrt(np.linalg.inv(covariance + ridge).diagonal()))


def without_independence(blocks: tuple[structure.Block, ...]) -> tuple[structure.Block, ...]:
    """Return what supports alone identify: each block joined with the latents that reach all that it reaches, and more.

    Examples
    --------
    Latent 1 reaches what latent 0 reaches, and more; latent 2 reaches something else:

    >>> blocks = structure.identified_blocks([[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    >>> [sorted(block.latents) for block in without_independence(blocks)]
    [[0, 1], [2]]
    """
    above = [[bool(other.latents & block.above) for other in blocks] for block in blocks]
    _, group = connected_components(np.array(above))
    return tuple(joined([blocks[i] for i in np.flatnonzero(group == k)]) for k in range(group.max() + 1))


def joined(blocks: Sequence[structure.Block]) -> structure.Block:
    """Return one block of the latents of several."""
    latents, reach = (frozenset().union(*(getattr(block, name) for block in blocks)) for name in ("latents", "reach"))
    return structure.Block(latents, reach, frozenset())


# ---- of a trained autoencoder ---------------------------------------------------------------------------------------


class Structure(NamedTuple):
    """What a trained autoencoder shows of the dependency structure."""

    dependence: Matrix  # (m, d), or (c, h, w, d)
    support: NDArray[np.int64]
    threshold: float
    blocks: tuple[structure.Block, ...]


def moments_of(model: Autoencoder, x: Tensor) -> Matrix:
    """Return mean outer products of gradients along white latents, of images those of some pixels; (m, d, d)."""
    return gradient_moments(model.decoder, *_counted(model, x), model.white_directions())


def structure_of(model: Autoencoder, x: Tensor, more: Tensor, *, are_dependent: bool) -> Structure:
    """Return the dependency structure at samples x; blocks may rest on independence if more samples show none."""
    z, found, counted = _counted(model, x)
    units = np.diag(conditional_spread(np.cov(z.double().cpu().numpy().T).reshape(model.d, model.d)))
    strength = mean_derivatives(model.decoder, z, found, units)
    support, threshold = support_of(strength, found.varying)
    nonlinear = is_nonlinear(gradient_moments(model.decoder, z, found, counted, units), support[counted])
    blocks = structure.identified_blocks(common_rows(support[counted][nonlinear]))
    latents, members = model.encode(more).double().cpu().numpy(), [sorted(block.latents) for block in blocks]
    if are_dependent or dependence_of_blocks(latents, members)[0] > DEPENDENT:
        blocks = without_independence(blocks)
    informative = model.explained_variance(x[:N_LATENTS]) > INFORMATIVE[x.ndim]
    if not bool(informative.all()) or shared_by_blocks(latents, members)[0] > SHARED:
        blocks = (joined(blocks),)
    shape = (*x.shape[1:], model.d)
    return Structure(strength.reshape(shape), support.astype(int).reshape(shape), threshold, blocks)


class LatentGraph(NamedTuple):
    """Which latents depend on each other: correlations, each given all other latents, and bootstrap intervals of 95 %.

    An edge is a partial correlation whose interval lies above .1 or below -.1: a fit has errors of that size. Gaussian
    latents without an edge are nearly independent given the others. An edge has no direction, and may come from a cause
    that is not among the latents.
    """

    correlation: Matrix  # (d, d)
    interval: Matrix  # (2, d, d), of the correlation
    partial: Matrix  # (d, d), correlation given all other latents
    partial_interval: Matrix  # (2, d, d)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of latents that depend on each other given all others."""
        low, high = self.partial_interval
        first, second = np.nonzero(np.triu((low > CORRELATED) | (high < -CORRELATED), 1))
        return tuple(zip(first.tolist(), second.tolist(), strict=True))


def latent_graph(model: Autoencoder, x: Tensor, *, n_resamples: int, random_state: int) -> LatentGraph:
    """Return the graph between latents. Each resample also moves the axes to where its own count is least."""
    parts = [each for each in x.chunk(GROUPS) if len(each) > 1]
    axes, rng = model.white_directions(), np.random.default_rng(random_state)
    white = [model.encode(part).double().cpu().numpy() @ np.linalg.inv(axes) for part in parts]
    moments, second = np.stack([moments_of(model, part) for part in parts]), np.stack([z.T @ z / len(z) for z in white])
    correlation = _correlation(axes.T @ second.mean(0) @ axes)
    oblique = not np.allclose(axes.T @ axes, np.eye(len(axes)), atol=1e-6)
    found = []
    for weights in (
        np.ones(len(parts)),
        *rng.multinomial(len(parts), np.full(len(parts), 1 / len(parts)), n_resamples),
    ):
        weights = weights / len(parts)
        moved = polished(np.tensordot(weights, moments, 1), axes, epsilon=TRAINED.epsilon, oblique=oblique)
        found.append(_correlation(moved.T @ np.tensordot(weights, second, 1) @ moved))
    spread = np.quantile(np.stack(found[1:]) - found[0], (0.025, 0.975), axis=0)
    partials = np.stack([_partial(each) for each in found])
    of_partials = np.quantile(partials[1:] - partials[0], (0.025, 0.975), axis=0)
    partial = _partial(correlation)
    return LatentGraph(correlation, correlation + spread, partial, partial + of_partials)


def _correlation(covariance: Matrix) -> Matrix:
    spread = np.sqrt(covariance.diagonal())
    return np.asarray(covariance / spread / spread[:, None])


def _partial(correlation: Matrix) -> Matrix:
    """Return correlations given all other latents, with a diagonal of ones."""
    return 2 * np.eye(len(correlation)) - _correlation(np.asarray(np.linalg.inv(correlation), dtype=np.float64))


def _counted(model: Autoencoder, x: Tensor) -> tuple[Tensor, Outputs, Labels]:
    """Return latents, the units of decoded samples, and which of the outputs are counted."""
    if x.ndim == 2:
        return model.encode(x), Outputs(tuple(x.shape[1:]), np.ones(x.shape[1])), np.arange(x.shape[1])
    z = model.encode(x[:N_LATENTS])
    found = outputs(model.decoder, z)
    return z, found, np.sort(np.random.default_rng(0).permutation(np.flatnonzero(found.varying))[:N_PIXELS])


def reach_images(dependence: NDArray[np.float64], support: NDArray[np.bool_]) -> Bytes:
    """Draw which pixels latents reach, side by side, brighter where more; (d, c, h, w) → bytes (height, width, 3).

    Examples
    --------
    >>> reach_images(np.ones((2, 3, 8, 8)), np.ones((2, 3, 8, 8), dtype=bool)).shape
    (8, 18, 3)
    """
    strength = torch.as_tensor(np.where(support, dependence, 0.0)).amax(1, keepdim=True)  # of any colour
    strength = strength / strength.amax((1, 2, 3), keepdim=True).clamp_min(1e-12)
    return contact_sheet(strength.expand(-1, 3, -1, -1), columns=len(strength))
