"""Warnings after a fit: collapsed latents, an encoder that is not injective."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from pindown.auditing.spec import folding_of, is_large_image
from pindown.data import IndexedSource
from pindown.errors import warn
from pindown.methods.held_out import ENOUGH
from pindown.methods.parameters import default_learning_rate
from pindown.metrics.arrays import Matrix, whitening
from pindown.networks.folding import Folding

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder
    from pindown.methods.latent_action import InverseDynamics

SMALLEST, MOST_CORRELATED = 1e-3, 0.9999  # spread of a direction of a linear critic; correlation that it assumes

ENOUGH_STEPS, RECENT = 200, 25
"""Number of steps after which latents without information are not merely undertrained; last steps whose loss counts."""

EARLY = 0.01  # fraction of the steps up to which weights that are kept are hardly trained

COLLAPSED, CHECKED_SAMPLES, FOLDING_IMAGES = 1e-3, 2_000, 400
"""Latents have collapsed if their standard deviation is at most this fraction of their size; number of samples used,
and of images that are checked for folding, each of which takes a pass through the network per direction."""


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
    """Warn if latents vary, but have no information about positives: on the validation set, or at the last steps."""
    if (est.max_iter or ENOUGH_STEPS) < ENOUGH_STEPS:
        return
    held_out, chance = est.held_out_, est._chance_loss(len(x))
    if held_out is not None:
        found, where = held_out.score, f"on {held_out.n_samples} held-out samples"
        is_uninformative = held_out.is_uninformative and not held_out.overfits
    else:
        found, where = (chance or math.inf) - float(np.mean(est.loss_curve_[-RECENT:])), "at the last steps"
        is_uninformative = found < ENOUGH
    if is_uninformative:
        spread = latent_std(est, x)
        warn(
            f"{type(est).__name__}: the latents have collapsed, or positives share nothing: {where} the latents show "
            f"{found:.2g} nats of information about positives, no more than chance, and their standard deviations are "
            f"{spread.min():.2g} to {spread.max():.2g}. Check that positives belong to their samples; if they do, try "
            "another random_state or a smaller learning_rate."
        )


def warn_if_hardly_trained(est: BaseEncoder | InverseDynamics, n_steps: int) -> None:
    """Warn if the weights that were kept are those of the first percent of the steps."""
    if est.n_iter_ <= EARLY * n_steps:
        warn(
            f"{type(est).__name__}: the weights of step {est.n_iter_} of about {n_steps:,} were kept, since later ones "
            "validate worse: hardly anything was learned. Try a smaller learning_rate, and check the scale of X.",
            ConvergenceWarning,
        )


def linear_information(known: Sequence[Matrix], held_out: Sequence[Matrix], n_components: int) -> float:
    """Return the information about held-out positives, in nats, of so many canonical directions of known pairs.

    It is log n minus the InfoNCE loss of the critic that is best for normal variables, and a lower bound for any.
    """
    means = [part.mean(0) for part in known]
    white = [whitening(part - mean, SMALLEST) for part, mean in zip(known, means, strict=True)]
    x, y = ((part - mean) @ w for part, mean, w in zip(known, means, white, strict=True))
    u, rho, vt = np.linalg.svd(x.T @ y / len(x))
    u, rho, v = u[:, :n_components], np.clip(rho[:n_components], 0, MOST_CORRELATED), vt[:n_components].T
    z, z_pos = ((part - mean) @ w @ axes for part, mean, w, axes in zip(held_out, means, white, (u, v), strict=True))
    weight = rho / (1 - rho**2)
    critic = (z * weight) @ z_pos.T - 0.5 * z_pos**2 @ (rho * weight)
    return float(np.log(len(z)) + np.mean(np.diag(critic) - logsumexp(critic, axis=1)))


def intrinsic_dimension(x: Matrix) -> float:
    """Return the number of dimensions in which nearest neighbours vary, by the ratio of their distances (TwoNN)."""
    some = x[np.random.default_rng(0).permutation(len(x))[:CHECKED_SAMPLES]]
    first, second = NearestNeighbors(n_neighbors=3).fit(some).kneighbors(some)[0][:, 1:].T
    ratio = second[first > 0] / first[first > 0]
    return float(len(ratio) / max(np.log(ratio).sum(), 1e-12)) if len(ratio) else 0.0


def check_folding(est: BaseEncoder, x: Tensor) -> Folding:
    """Return whether the encoder maps different samples to the same latents, and warn if it does."""
    if is_large_image(x.shape[1:]):
        folding = folding_of(lambda rows: est._encode(rows).cpu(), _thinned(x, CHECKED_SAMPLES), est.encoder_.space)
    else:
        encoder = copy.deepcopy(est.encoder_).double()
        some = _thinned(x, FOLDING_IMAGES) if x.ndim > 2 else x
        folding = folding_of(lambda rows: encoder(rows.to(encoder.device)), some, encoder.space)
    if folding.verdict in ("folded", "flat"):
        warn(
            f"{type(est).__name__}: the encoder is {folding}. It is not injective, so that no theorem applies. With an "
            "encoder that starts as a random perceptron, use encoder=networks.skip_mlp. Otherwise try more steps "
            "(max_iter) or another random_state, and check that X depends on y"
            + (", and that there are as many latents as n_components." if folding.flat else ".")
        )
    return folding
