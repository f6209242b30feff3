"""What is read off a trained autoencoder: moments of its gradients, and which latent reaches which variable."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pindown.auditing.checks.supports import DEPENDENT, SHARED, dependence_of_blocks, shared_by_blocks
from pindown.methods.dictionary import derivatives
from pindown.methods.dictionary.autoencoder import Autoencoder
from pindown.methods.dictionary.decoder_supports import bent_enough, held_by, supported
from pindown.theory import structure

N_CODES, N_PIXELS = 512, 500
"""Codes at which derivatives by pictures are taken, and pixels that are counted, at most."""

TOLD = 0.9
"""Share of a latent's variance that its codes must tell for blocks of pictures to be claimed: .96 and more of all five
factors of rooms (seeds 10 and 11), .63 to .88 of a code that noise has hidden or that follows others."""

Settled = tuple[np.ndarray, np.ndarray, float, tuple[structure.Block, ...]]
"""Strengths of dependence, the support, the threshold between, and the blocks that it tells apart."""


def moments_of(model: Autoencoder, x: Tensor) -> np.ndarray:
    """Return mean outer products of gradients in standardised units, of pictures those of some pixels; (m, d, d)."""
    if x.ndim == 4:
        return _of_pixels(model, x)[2]
    dependence = model.dependence(x).double()
    return (torch.einsum("nij,nik->ijk", dependence, dependence) / len(dependence)).cpu().numpy()


def settled(model: Autoencoder, x: Tensor, more: Tensor) -> Settled:
    """Return what reaches what, as rows see it, and which blocks are told apart, by the codes of more rows."""
    if x.ndim == 4:
        return _settled_pixels(model, x, more)
    dependence = model.dependence(x).double().abs().mean(0).cpu().numpy()
    reached, threshold = supported(dependence)
    support = reached.astype(int)
    return dependence, support, threshold, independent(structure.identified_blocks(support), model.codes(more))


def _settled_pixels(model: Autoencoder, x: Tensor, more: Tensor) -> Settled:
    seen, counted, moments = _of_pixels(model, x)
    z = model.codes(x[:N_CODES])
    strength = derivatives.reach(model.decoder, z, seen, np.eye(model.d))
    reached, threshold = supported(strength, seen.lively)
    bent = bent_enough(moments, reached[counted])
    blocks = independent(structure.identified_blocks(held_by(reached[counted][bent])), model.codes(more))
    if bool((model.share_told(x[:N_CODES]) < TOLD).any()):
        blocks = (_all_of(blocks),)
    shape = (*x.shape[1:], model.d)
    return strength.reshape(shape), reached.astype(int).reshape(shape), threshold, blocks


def independent(blocks: tuple[structure.Block, ...], codes: Tensor) -> tuple[structure.Block, ...]:
    """Return blocks as they are if they are independent, as the theorem assumes, and else all latents as one.

    Examples
    --------
    >>> z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> for codes in (z, z @ torch.tensor([[1.0, 1, 0], [0, 1, 0], [0, 0, 1]])):
    ...     print([sorted(block.latents) for block in independent(structure.identified_blocks(np.eye(3)), codes)])
    [[0], [1], [2]]
    [[0, 1, 2]]
    """
    array, members = codes.double().cpu().numpy(), [sorted(block.latents) for block in blocks]
    if dependence_of_blocks(array, members)[0] <= DEPENDENT and shared_by_blocks(array, members)[0] <= SHARED:
        return blocks
    return (_all_of(blocks),)


def _all_of(blocks: tuple[structure.Block, ...]) -> structure.Block:
    latents, reach = (frozenset().union(*(getattr(block, name) for block in blocks)) for name in ("latents", "reach"))
    return structure.Block(latents, reach, frozenset())


def _of_pixels(model: Autoencoder, x: Tensor) -> tuple[derivatives.Outputs, np.ndarray, np.ndarray]:
    """Return how decoded pictures vary, which pixels are counted, and their moments."""
    z = model.codes(x[:N_CODES])
    seen = derivatives.outputs(model.decoder, z)
    lively = np.flatnonzero(seen.lively)
    counted = np.sort(np.random.default_rng(0).permutation(lively)[:N_PIXELS])
    return seen, counted, derivatives.moments(model.decoder, z, seen, counted)
