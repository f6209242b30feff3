"""What is looked at after a fit: have the codes collapsed, do they fold the data; and how a fit warns."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pindown.auditing.spec import is_large_image
from pindown.data import IndexedSource
from pindown.errors import warn
from pindown.methods.parameters import rate
from pindown.networks.folding import Folding, find_flat_directions, find_folding

ENOUGH_STEPS = 200
"""Steps from which codes that tell nothing of partners have not merely been trained too shortly."""

COLLAPSED, SEEN_ROWS = 1e-3, 2_000
"""Spread of codes, relative to their size, up to which they are one code for all rows; and rows to see it on."""

FOLDED_IMAGES = 400
"""Images in which folds are looked for: each takes a pass through a network for every direction."""


def some_of(X: np.ndarray | IndexedSource) -> Tensor:
    """Return samples, at most 10,000 of a source."""
    if isinstance(X, IndexedSource):
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[: 5 * SEEN_ROWS])]
    return torch.as_tensor(X)


def spread_of(est: Any, x: Tensor) -> Tensor:
    """Return the standard deviation of each latent over some of the samples; (n_components,)."""
    return est._encode(x[:: -(-len(x) // SEEN_ROWS)]).std(0, correction=0)


def warn_of_collapse(est: Any, x: Tensor) -> bool:
    """Warn if all samples have the same latents, though they differ; return whether they have."""
    codes, curve = est._encode(x[:: -(-len(x) // SEEN_ROWS)]), est.loss_curve_
    if (x == x[0]).all() or codes.std(0, correction=0).max() > COLLAPSED * codes.square().mean().sqrt():
        return False
    warn(
        f"{type(est).__name__}: the codes have collapsed, one for all rows. The loss began at {curve[0]:.3g}, was "
        f"{curve.max():.3g} at most, and ended at {curve[-1]:.3g}. Try a smaller learning_rate (now "
        f"{rate(est, len(x)):g}), and see whether X varies with what it is trained against."
    )
    return True


def warn_if_uninformative(est: Any, x: Tensor) -> None:
    """Warn where latents vary, but show no information about positives on the validation set."""
    held_out = est.held_out_ if (est.max_iter or ENOUGH_STEPS) >= ENOUGH_STEPS else None
    if held_out is not None and held_out.tells_nothing and not held_out.overfits:
        spread = spread_of(est, x)
        warn(
            f"{type(est).__name__}: the codes have collapsed, or partners share nothing: on {held_out.n_samples} rows "
            f"held out they tell {held_out.score:.2g} nats of partners, no more than chance, and vary by "
            f"{spread.min():.2g} to {spread.max():.2g}. See whether partners belong to their rows; if they do, try "
            "another random_state, a smaller learning_rate, or alpha=None, if it is given."
        )


def folding_of(est: Any, x: Tensor) -> Folding:
    """Return whether the encoder maps different samples to the same latents, and warn if it does."""
    folding = _folding(est, x)
    _warn_of_folds(est, folding)
    return folding


def _folding(est: Any, x: Tensor) -> Folding:
    shape = x.shape[1:]
    if is_large_image(shape):
        return find_flat_directions(est._encode(x[:: -(-len(x) // SEEN_ROWS)]).cpu(), est.encoder_.space)
    encoder = copy.deepcopy(est.encoder_).double()
    if len(shape) > 1:
        x = x[:: -(-len(x) // FOLDED_IMAGES)]

    def of_vectors(rows: Tensor) -> Tensor:
        return encoder(rows.unflatten(1, shape).to(encoder.device))

    return find_folding(of_vectors, x.flatten(1), encoder.space)


def _warn_of_folds(est: Any, folding: Folding) -> None:
    if folding.verdict not in ("folded", "flat"):
        return
    warn(
        f"{type(est).__name__}: the encoder is {folding}. So different latents share a code, and no theorem "
        "holds. If it started as a random perceptron, take encoder=networks.skip_mlp. If not, try more steps "
        "(max_iter) or another random_state, and see whether y says anything about X"
        + (", and whether there are fewer latents than were asked for." if folding.flat else ".")
    )
