"""What is taken from a decoder: how its outputs vary, and outer products of their gradients, a few codes at a time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pindown.data.data import from_torch
from pindown.losses import pushforward
from pindown.losses.jacobian import Decoder, check_samples_apart

AT_ONCE = 1 << 24
"""Numbers of derivatives that are taken at once; the layers inside a decoder hold some times as many."""

SAME = 1e-2
"""Share of the largest output up to which two are the same: bfloat16 has two digits."""

STILL = 0.05
"""Share of the largest standard deviation below which an output hardly varies, and is not counted: in units of its own
it would be what the decoder gets wrong."""


class Outputs(NamedTuple):
    """How the outputs of a decoder vary with its codes."""

    shape: tuple[int, ...]  # of a row
    spread: np.ndarray  # standard deviation of each, (m,)
    unit: float  # standard deviation of codes, over all directions

    @property
    def lively(self) -> np.ndarray:
        """Which outputs vary, and are counted; (m,)."""
        return self.spread > STILL * self.spread.max()


def read_codes(decoder: Decoder, codes: object) -> Tensor:
    """Return codes as the decoder takes them, or say what is wrong with them."""
    array = np.asarray(from_torch(codes))
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not np.isfinite(array).all() or len(array) < 2:
        raise ValueError(
            "disentangle: codes must be a matrix (n, d) of finite numbers, two rows or more, such as an encoder gives "
            f"or the prior draws, got {array.dtype} of shape {array.shape}."
        )
    given = codes if isinstance(codes, Tensor) and codes.is_floating_point() else torch.zeros(())
    like: Tensor = next(decoder.parameters(), given) if isinstance(decoder, nn.Module) else given
    z = torch.as_tensor(array).to(like.device, like.dtype)
    try:
        check_samples_apart(decoder)
    except ValueError as error:
        raise ValueError(f"disentangle: {error}") from error
    try:
        with torch.no_grad():
            x, again, alone = decoder(z[:2]), decoder(z[:2]), decoder(z[[0, 0]])
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ValueError(
            f"disentangle: the decoder does not take codes of {z.shape[1]} columns ({str(error).splitlines()[0]}). "
            "Give the codes that it decodes, (n, d), one row for each."
        ) from error
    if not isinstance(x, Tensor) or x.ndim < 2 or len(x) != 2:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"disentangle: the decoder must map codes (n, d) to a tensor (n, …), one row for each, but of two codes it "
            f"makes {shape}. Wrap it in a function that returns what it shows."
        )
    if not x.isfinite().all():
        raise ValueError("disentangle: what the decoder makes of codes has NaN or infinity. Does it take a logarithm?")
    if _differ(x, again):
        raise ValueError(
            "disentangle: the decoder makes other outputs of the same codes when it is asked again: it is random. Put "
            "it into evaluation mode, or fix the noise that it draws."
        )
    if _differ(x[0], alone[0]):
        raise ValueError(
            "disentangle: what the decoder makes of a row depends on the rows beside it, as with batch normalisation "
            "in training mode. Put it into evaluation mode, or let it decode each row by itself."
        )
    return z


def _differ(x: Tensor, other: Tensor) -> bool:
    """Say whether outputs differ by more than low precision, or a device that adds in any order, would make them."""
    return bool((x - other).abs().max() > SAME * torch.maximum(x.abs().max(), other.abs().max()))


@torch.no_grad()
def outputs(decoder: Decoder, z: Tensor) -> Outputs:
    """Return how a decoder's outputs vary."""
    one = decoder(z[:2])[:1]
    first = one.double().flatten(1)  # taken off, so that small changes of large numbers are seen
    total, squares = torch.zeros_like(first[0]), torch.zeros_like(first[0])
    for part in z.split(max(1, AT_ONCE // first.numel())):
        off = decoder(part).double().flatten(1) - first
        total, squares = total + off.sum(0), squares + off.square().sum(0)
    variance = (squares / len(z) - (total / len(z)).square()).clamp_min(0)
    unit = float((z - z.mean(0)).double().square().mean().sqrt())
    return Outputs(tuple(one.shape[1:]), variance.sqrt().cpu().numpy(), unit)


@torch.no_grad()
def moments(decoder: Decoder, z: Tensor, seen: Outputs, which: np.ndarray) -> np.ndarray:
    """Return mean outer products of the gradients of some outputs, in standardised units; (k, d, d)."""
    index = torch.as_tensor(which, device=z.device)
    found = torch.zeros(len(which), z.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
    for part in _parts(z, seen):
        columns = pushforward(decoder, part).columns.flatten(2)[:, :, index].double()  # (d, n, k)
        found += torch.einsum("ank,bnk->kab", columns, columns)
    scale = seen.unit / seen.spread[which]
    return found.cpu().numpy() * scale[:, None, None] ** 2 / len(z)


@torch.no_grad()
def reach(decoder: Decoder, z: Tensor, seen: Outputs, axes: np.ndarray) -> np.ndarray:
    """Return the mean absolute derivative of each output along axes (d, k), in standardised units; (m, k)."""
    directions = torch.as_tensor(axes.T.copy(), device=z.device, dtype=z.dtype)[:, None]  # (k, 1, d)
    found = torch.zeros(axes.shape[1], math.prod(seen.shape), dtype=torch.float64, device=z.device)
    for part in _parts(z, seen):
        found += pushforward(decoder, part, directions.expand(-1, *part.shape)).columns.flatten(2).double().abs().sum(1)
    return found.cpu().numpy().T / len(z) * (seen.unit / np.maximum(seen.spread, 1e-300))[:, None]


@torch.no_grad()
def changed(decoder: Decoder, z: Tensor, seen: Outputs, axes: np.ndarray) -> np.ndarray:
    """Return by how much each output changes, in its spreads, if one new code is that of another row; (m, d).

    It sees what derivatives do not: jumps, rounding, parts of a decoder that hide from differentiation.
    """
    turn = torch.as_tensor(axes, device=z.device, dtype=z.dtype)
    new, size = z @ turn, max(2, AT_ONCE // math.prod(seen.shape))
    found = torch.zeros(z.shape[1], math.prod(seen.shape), dtype=torch.float64, device=z.device)
    for j in range(z.shape[1]):
        swapped = new.clone()
        swapped[:, j] = new[:, j].roll(1)  # rows are in no order
        for part, other in zip(z.split(size), (swapped @ turn.mT).split(size), strict=True):
            found[j] += (decoder(other) - decoder(part)).double().flatten(1).abs().sum(0)
    return found.cpu().numpy().T / len(z) / np.maximum(seen.spread, 1e-300)[:, None]


def _parts(z: Tensor, seen: Outputs) -> tuple[Tensor, ...]:
    return z.split(max(1, AT_ONCE // (z.shape[1] * math.prod(seen.shape))))
