"""Warnings after a fit: collapsed latents, an encoder that is not injective."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pindown.auditing.spec import is_large_image
from pindown.data import IndexedSource
from pindown.errors import warn
from pindown.methods.parameters import default_learning_rate
from pindown.networks.folding import Folding, find_flat_directions, find_folding

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder

ENOUGH_STEPS = 200
"""Number of steps after which latents without information are not merely undertrained."""

COLLAPSED, CHECKED_SAMPLES = 1e-3, 2_000
"""Latents have collapsed if their standard deviation is at most this fraction of their size; number of samples used."""

FOLDING_IMAGES = 400
"""Number of images that are checked for folding: each takes a pass through the network per direction."""


def some_samples(X: np.ndarray | IndexedSource) -> Tensor:
    """Return samples, at most 10,000 of a source."""
    if isinstance(X, IndexedSource):
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[: 5 * CHECKED_SAMPLES])]
    return torch.as_tensor(X)


def _thinned(x: Tensor, n_samples: int) -> Tensor:
    return x[:: -(-len(x) // n_samples)]


def latent_std(est: BaseEncoder, x: Tensor) -> Tensor:
    """Return the standard deviation of each latent over some of the samples; (n_components,)."""
    return est._encode(_thinned(x, CHECKED_SAMPLES)).std(0, correction=0)


def warn_of_collapse(est: BaseEncoder, x: Tensor) -> bool:
    """Warn if all samples have the same latents, though they differ; return whether they have."""
    z, curve = est._encode(_thinned(x, CHECKED_SAMPLES)), est.loss_curve_
    if (x == x[0]).all() or z.std(0, correction=0).max() > COLLAPSED * z.square().mean().sqrt():
        return False
    warn(
        f"{type(est).__name__}: the latents have collapsed: they are the same for all samples. The loss began at "
        f"{curve[0]:.3g}, was {curve.max():.3g} at most, and ended at {curve[-1]:.3g}. Try a smaller learning_rate "
        f"(now {default_learning_rate(est, len(x)):g}), and check that X depends on y."
    )
    return True


def warn_if_uninformative(est: BaseEncoder, x: Tensor) -> None:
    """Warn if latents vary, but have no information about positives on the validation set."""
    held_out = est.held_out_ if (est.max_iter or ENOUGH_STEPS) >= ENOUGH_STEPS else None
    if held_out is not None and held_out.is_uninformative and not held_out.overfits:
        spread = latent_std(est, x)
        warn(
            f"{type(est).__name__}: the latents have collapsed, or positives share nothing: on {held_out.n_samples} "
            f"held-out samples the latents show {held_out.score:.2g} nats of information about positives, no more than "
            f"chance, and their standard deviations are {spread.min():.2g} to {spread.max():.2g}. Check that positives "
            "belong to their samples; if they do, try another random_state or a smaller learning_rate."
        )


def check_folding(est: BaseEncoder, x: Tensor) -> Folding:
    """Return whether the encoder maps different samples to the same latents, and warn if it does."""
    shape = x.shape[1:]
    if is_large_image(shape):
        folding = find_flat_directions(est._encode(_thinned(x, CHECKED_SAMPLES)).cpu(), est.encoder_.space)
    else:
        encoder = copy.deepcopy(est.encoder_).double()

        def encode_vectors(rows: Tensor) -> Tensor:
            return encoder(rows.unflatten(1, shape).to(encoder.device))

        some = _thinned(x, FOLDING_IMAGES) if len(shape) > 1 else x
        folding = find_folding(encode_vectors, some.flatten(1), encoder.space)
    if folding.verdict in ("folded", "flat"):
        warn(
            f"{type(est).__name__}: the encoder is {folding}. It is not injective, so that no theorem applies. With an "
            "encoder that starts as a random perceptron, use encoder=networks.skip_mlp. Otherwise try more steps "
            "(max_iter) or another random_state, and check that X depends on y"
            + (", and that there are as many latents as n_components." if folding.flat else ".")
        )
    return folding
