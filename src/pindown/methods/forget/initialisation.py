"""The initialisation of adversarial training: the linear latents that closed forms find."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from pindown import networks
from pindown.methods.forget.adversarial import AdversarialObjective
from pindown.methods.forget.linear_erasure import Directions
from pindown.methods.forget.nuisance import Nuisance
from pindown.networks import Frame, SkipMLP, built
from pindown.networks.encoder import Encoder
from pindown.networks.images import is_image

NUISANCE_WEIGHT = 0.01
"""Weight of the decoder's error in directions in which means differ: latents are to be spent on the others.

With equal weights latents also hold how a sample deviates, along these directions, from the mean of its level. That
can be hidden, too, and takes the place of what the nuisance does not touch."""


class Initialisation(NamedTuple):
    """The nuisance, the directions of whitened data that depend on it, the rows of the first latents, the whitening."""

    nuisance: Nuisance
    found: Directions
    rows: np.ndarray  # (n_components, d)
    matrix: np.ndarray  # (n_features, d)
    predicts_label: bool  # whether latents must predict the given label
    weights: np.ndarray | float = 1.0  # weight of each direction in the reconstruction; or a matrix (d, d)

    def objective(
        self,
        encoder: Encoder,
        classifier: Callable[[int, int], nn.Module],
        decoder: Callable[[int, int], nn.Module],
        *,
        linear: bool,
        strength: float,
        max_iter: int,
    ) -> AdversarialObjective:
        """Initialise an encoder, and build the classifier and the decoder."""
        nuisance, n_components = self.nuisance, len(self.rows)
        n_strata = nuisance.n_strata if nuisance.n_strata > 1 else 0
        n_shown = n_components + nuisance.shown.shape[1]
        weight = self.weights if np.ndim(self.weights) == 2 else self.weights * np.eye(len(self.found.basis))
        worth = weight @ self._initialise(encoder, linear)
        return AdversarialObjective(
            encoder,
            built("Forget", "classifier", classifier, n_components + n_strata, sum(nuisance.sizes)),
            built("Forget", "decoder", networks.linear if linear else decoder, n_shown, encoder.n_features),
            sizes=nuisance.sizes,
            n_strata=nuisance.n_strata,
            # Nothing opposes the classifier of linear latents, so that the strength does not matter.
            strength=float(strength > 0) if linear else strength,
            worth=torch.as_tensor(worth, dtype=torch.float32),
            label_reader=networks.linear(n_components, n_strata) if self.predicts_label else None,
            label_weights=torch.as_tensor(nuisance.label_weights()),
            max_iter=max_iter,
            pictures=is_image(encoder.preprocess.shape_in),
        )

    def _initialise(self, encoder: Encoder, linear: bool) -> np.ndarray:
        """Start the encoder's linear part, if it has one; return what of its data is worth rebuilding, (d, d)."""
        change = np.linalg.pinv(encoder.preprocess.linear_map.numpy()) @ self.matrix
        found = self.found.as_seen_after(change)
        start = torch.as_tensor(found.keep(len(self.rows)) if linear else self.rows @ change.T).float()
        if linear:
            encoder.body = Frame(start)
        elif isinstance(encoder.body, SkipMLP) and isinstance(encoder.body.linear, nn.Linear):
            encoder.body.linear.weight.data.copy_(start)
        worth = np.ones(len(found.basis))
        worth[: len(found.basis) - found.n_blind] = NUISANCE_WEIGHT**0.5
        return found.basis.T * worth
