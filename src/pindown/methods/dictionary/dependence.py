"""Which latent reaches which output of a decoder: derivatives, a threshold, supports and blocks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
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
from pindown.metrics.arrays import Labels, Mask, Matrix
from pindown.simulate.images import Bytes, contact_sheet
from pindown.theory import structure

AT_ONCE = 1 << 24  # derivatives in memory; the layers inside a decoder hold several times as many numbers
CONSTANT = 0.05  # standard deviation, relative to the largest, below which an output counts as constant
FAINT, STRONG = 0.05, 0.15  # bounds of the threshold of the support: weaker derivatives are noise, stronger are not
RARE = 0.01  # fraction of the outputs that must have the same set of latents for it to count
N_LATENTS, N_PIXELS = 512, 500  # latents at which derivatives by images are taken, and pixels, at most
EXPLAINED = 0.9  # fraction of its variance that a latent's encoding must explain, for blocks of images to be claimed


class Outputs(NamedTuple):
    """How the outputs of a decoder vary with its latents."""

    shape: tuple[int, ...]  # of a sample
    spread: Matrix  # standard deviation of each, (m,)
    unit: float  # standard deviation of the latents, over all directions

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
    unit = float((z - z.mean(0)).double().square().mean().sqrt())
    return Outputs(tuple(one.shape[1:]), variance.sqrt().cpu().numpy(), unit)


@torch.no_grad()
def gradient_moments(decoder: Decoder, z: Tensor, found: Outputs, which: Labels) -> Matrix:
    """Return mean outer products of the gradients of some outputs, in standardised units; (k, d, d)."""
    index = torch.as_tensor(which, device=z.device)
    moments = torch.zeros(len(which), z.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
    for part in _parts(z, found):
        columns = pushforward(decoder, part).columns.flatten(2)[:, :, index].double()  # (d, n, k)
        moments += torch.einsum("ank,bnk->kab", columns, columns)
    scale = found.unit / found.spread[which]
    return moments.cpu().numpy() * scale[:, None, None] ** 2 / len(z)


@torch.no_grad()
def mean_derivatives(decoder: Decoder, z: Tensor, found: Outputs, axes: Matrix) -> Matrix:
    """Return the mean absolute derivative of each output along axes (d, k), in standardised units; (m, k)."""
    directions = torch.as_tensor(axes.T.copy(), device=z.device, dtype=z.dtype)[:, None]  # (k, 1, d)
    total = torch.zeros(axes.shape[1], math.prod(found.shape), dtype=torch.float64, device=z.device)
    for part in _parts(z, found):
        total += pushforward(decoder, part, directions.expand(-1, *part.shape)).columns.flatten(2).double().abs().sum(1)
    return total.cpu().numpy().T / len(z) * (found.unit / np.maximum(found.spread, 1e-300))[:, None]


@torch.no_grad()
def mean_changes(decoder: Decoder, z: Tensor, found: Outputs, axes: Matrix) -> Matrix:
    """Return how much each output changes, in its spreads, if one new latent is that of another sample; (m, d).

    It sees what derivatives do not: jumps, rounding, parts of a decoder that hide from differentiation.
    """
    rotation = torch.as_tensor(axes, device=z.device, dtype=z.dtype)
    new, size = z @ rotation, max(2, AT_ONCE // math.prod(found.shape))
    total = torch.zeros(z.shape[1], math.prod(found.shape), dtype=torch.float64, device=z.device)
    for j in range(z.shape[1]):
        swapped = new.clone()
        swapped[:, j] = new[:, j].roll(1)  # samples are in no order
        for part, other in zip(z.split(size), (swapped @ rotation.mT).split(size), strict=True):
            total[j] += (decoder(other) - decoder(part)).double().flatten(1).abs().sum(0)
    return total.cpu().numpy().T / len(z) / np.maximum(found.spread, 1e-300)[:, None]


def _parts(z: Tensor, found: Outputs) -> tuple[Tensor, ...]:
    return z.split(max(1, AT_ONCE // (z.shape[1] * math.prod(found.shape))))


# ---- supports -------------------------------------------------------------------------------------------------------


def widest_gap(dependence: Matrix, least: float = FAINT, most: float = STRONG) -> float:
    """Return the middle, on a logarithmic scale, of the widest gap between strengths within bounds.

    Examples
    --------
    >>> round(widest_gap(np.array([[1.0, 0.03], [0.06, 0.5]])), 3)
    0.095
    """
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


# ---- of a trained autoencoder ---------------------------------------------------------------------------------------


class Structure(NamedTuple):
    """What a trained autoencoder shows of the dependency structure."""

    dependence: Matrix  # (m, d), or (c, h, w, d)
    support: NDArray[np.int64]
    threshold: float
    blocks: tuple[structure.Block, ...]


def moments_of(model: Autoencoder, x: Tensor) -> Matrix:
    """Return mean outer products of gradients in standardised units, of images those of some pixels; (m, d, d)."""
    if x.ndim == 4:
        return _pixels(model, x)[2]
    dependence = model.dependence(x).double()
    return (torch.einsum("nij,nik->ijk", dependence, dependence) / len(dependence)).cpu().numpy()


def structure_of(model: Autoencoder, x: Tensor, more: Tensor) -> Structure:
    """Return the dependency structure at samples x, with blocks that are independent in more samples."""
    if x.ndim == 4:
        found, counted, moments = _pixels(model, x)
        strength = mean_derivatives(model.decoder, model.encode(x[:N_LATENTS]), found, np.eye(model.d))
        support, threshold = support_of(strength, found.varying)
        kinds = common_rows(support[counted][is_nonlinear(moments, support[counted])])
    else:
        strength = model.dependence(x).double().abs().mean(0).cpu().numpy()
        support, threshold = support_of(strength)
        kinds = support.astype(np.int64)
    blocks = independent(structure.identified_blocks(kinds), model.encode(more))
    if x.ndim == 4 and bool((model.explained_variance(x[:N_LATENTS]) < EXPLAINED).any()):
        blocks = (_joined(blocks),)
    shape = (*x.shape[1:], model.d)
    return Structure(strength.reshape(shape), support.astype(int).reshape(shape), threshold, blocks)


def _pixels(model: Autoencoder, x: Tensor) -> tuple[Outputs, Labels, Matrix]:
    """Return how decoded images vary, which pixels are counted, and their moments."""
    z = model.encode(x[:N_LATENTS])
    found = outputs(model.decoder, z)
    counted = np.sort(np.random.default_rng(0).permutation(np.flatnonzero(found.varying))[:N_PIXELS])
    return found, counted, gradient_moments(model.decoder, z, found, counted)


def independent(blocks: tuple[structure.Block, ...], latents: Tensor) -> tuple[structure.Block, ...]:
    """Return the blocks if they are independent in these latents, as the theorem assumes, and else one of them all.

    Examples
    --------
    >>> z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> for latents in (z, z @ torch.tensor([[1.0, 1, 0], [0, 1, 0], [0, 0, 1]])):
    ...     print([sorted(block.latents) for block in independent(structure.identified_blocks(np.eye(3)), latents)])
    [[0], [1], [2]]
    [[0, 1, 2]]
    """
    array, members = latents.double().cpu().numpy(), [sorted(block.latents) for block in blocks]
    if dependence_of_blocks(array, members)[0] <= DEPENDENT and shared_by_blocks(array, members)[0] <= SHARED:
        return blocks
    return (_joined(blocks),)


def _joined(blocks: tuple[structure.Block, ...]) -> structure.Block:
    latents, reach = (frozenset().union(*(getattr(block, name) for block in blocks)) for name in ("latents", "reach"))
    return structure.Block(latents, reach, frozenset())


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
