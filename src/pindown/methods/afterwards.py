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

IDLE, BEGUN = 0.1, 25
"""Standard deviation of a code, whose prior has 1, below which its posterior is the prior for every row; and steps
before which codes are where they began."""

ENOUGH_STEPS = 200
"""Steps from which codes that tell nothing of partners have not merely been trained too shortly."""

COLLAPSED, SEEN_ROWS = 1e-3, 2_000
"""Spread of codes, relative to their size, up to which they are one code for all rows; and rows to see it on."""

FOLDED_IMAGES = 400
"""Images in which folds are looked for: each takes a pass through a network for every direction."""


def look_back(est: Any, X: np.ndarray | IndexedSource, *, folds: bool) -> None:
    """Warn if the codes of a fit have collapsed, or, if that is asked for, fold the data."""
    if isinstance(X, IndexedSource):
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[: 5 * SEEN_ROWS])]
    x = torch.as_tensor(X)
    _warn_of_collapse(est, x[:: -(-len(x) // SEEN_ROWS)])
    if folds:
        est.folding_ = _folding(est, x)
        _warn_of_folds(est, est.folding_)


def _warn_of_collapse(est: Any, x: Tensor) -> None:
    codes, curve = est._encode(x), est.loss_curve_
    spread = codes.std(0, correction=0)
    if (x == x[0]).all():
        return
    if spread.max() > COLLAPSED * codes.square().mean().sqrt():
        _warn_of_idle(est, spread)
        _warn_of_nothing(est, spread)
        return
    warn(
        f"{type(est).__name__}: the codes have collapsed, one for all rows. The loss began at {curve[0]:.3g}, was "
        f"{curve.max():.3g} at most, and ended at {curve[-1]:.3g}. Try a smaller learning_rate (now "
        f"{rate(est, len(x)):g}), and see whether X varies with what it is trained against."
    )


def _warn_of_idle(est: Any, spread: Tensor) -> None:
    learned = est._codes_are_normal and est.n_iter_ >= BEGUN
    if idle := (spread < IDLE).nonzero()[:, 0].tolist() if learned else []:
        warn(
            f"{type(est).__name__}: latent(s) {idle} have collapsed: their codes vary by less than {IDLE}, where the "
            "prior has 1, so that they tell nothing of X. Ask for fewer latents, or for a smaller weight of the "
            "divergence."
        )


def _warn_of_nothing(est: Any, spread: Tensor) -> None:
    """Warn where codes vary, be it by how little, but rows held out show that they tell nothing of partners."""
    held_out = est.held_out_ if est._scores_in_nats and (est.max_iter or ENOUGH_STEPS) >= ENOUGH_STEPS else None
    if held_out is not None and held_out.tells_nothing and not held_out.overfits:
        warn(
            f"{type(est).__name__}: the codes have collapsed, or partners share nothing: on {held_out.n_samples} rows "
            f"held out they tell {held_out.score:.2g} nats of partners, no more than chance, and vary by "
            f"{spread.min():.2g} to {spread.max():.2g}. See whether partners belong to their rows; if they do, try "
            "another random_state, a smaller learning_rate, or alpha=None, if it is given."
        )


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
