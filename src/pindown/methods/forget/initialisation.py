"""Where a game of `Forget` starts: at the linear code that closed forms find."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from pindown import networks
from pindown.methods.forget.charts import Charts
from pindown.methods.forget.game import Game
from pindown.methods.forget.linear_erasure import Directions
from pindown.methods.forget.nuisance import Nuisance
from pindown.networks import Frame, SkipMLP, built
from pindown.networks.encoder import Encoder
from pindown.networks.images import is_image

TELLING_WEIGHT = 0.01
"""Weight of the decoder's error in directions in which means differ: codes are to be spent on the others.

With equal weights codes also hold how a row deviates, along these directions, from the mean of its value. That can be
hidden, too, and takes the place of what the nuisance does not touch."""


class Initialisation(NamedTuple):
    """The nuisance, the directions of whitened data that tell it, the rows of a code to start at, and the whitening."""

    nuisance: Nuisance
    found: Directions
    rows: np.ndarray  # (n_components, d)
    matrix: np.ndarray  # (n_features, d)
    tells_label: bool  # whether codes are asked to tell the given label
    counts: np.ndarray | float = 1.0  # what each column of the data counts when it is rebuilt; or a matrix (d, d)

    def at_charts(self, size: np.ndarray) -> Initialisation:
        """Start at codes in closed form instead, in units of their spread (k,), each counting by it."""
        same = np.eye(len(size))
        counts = size / np.sqrt((size**2).mean())
        return self._replace(found=Directions(same, 0, 0), rows=same, matrix=same, counts=counts)

    def game(
        self,
        encoder: Encoder,
        classifier: Callable[[int, int], nn.Module],
        decoder: Callable[[int, int], nn.Module],
        *,
        linear: bool,
        strength: float,
        max_iter: int,
        charts: Charts | None = None,
    ) -> Game:
        """Initialise an encoder, and build its adversaries around it: the classifier, and the decoder."""
        nuisance, n_components = self.nuisance, len(self.rows)
        n_strata = nuisance.n_strata if nuisance.n_strata > 1 else 0
        n_shown = n_components + nuisance.shown.shape[1]
        counts = self.counts if np.ndim(self.counts) == 2 else self.counts * np.eye(len(self.found.basis))
        worth = counts @ self._initialise(encoder, linear)
        return Game(
            encoder,
            built("Forget", "classifier", classifier, n_components + n_strata, sum(nuisance.sizes)),
            built("Forget", "decoder", networks.linear if linear else decoder, n_shown, encoder.n_features),
            sizes=nuisance.sizes,
            n_strata=nuisance.n_strata,
            # Nothing pulls a linear code the other way, so that there is nothing to weigh.
            strength=float(strength > 0) if linear else strength,
            worth=torch.as_tensor(worth, dtype=torch.float32),
            label_reader=networks.linear(n_components, n_strata) if self.tells_label else None,
            label_weights=torch.as_tensor(nuisance.label_weights()),
            max_iter=max_iter,
            charts=charts,
            pictures=charts is None and is_image(encoder.preprocess.shape_in),
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
        worth[: len(found.basis) - found.n_blind] = TELLING_WEIGHT**0.5
        return found.basis.T * worth
