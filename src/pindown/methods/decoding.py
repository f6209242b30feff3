"""`Decodes`: estimators whose objective has a decoder, which maps latents to observations."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor, nn

from pindown import _random
from pindown._random import RandomState
from pindown.data.data import from_torch
from pindown.networks.encoder import Encoder

AT_ONCE = 1 << 23
"""Size of the arrays of images that go through networks at once."""


class Decodes:
    """An estimator whose ``objective_`` has a ``decoder``, with its ``scale`` and ``centre``; abstract."""

    encoder_: Encoder
    objective_: nn.Module
    n_components_: int
    shape_in_: tuple[int, ...]
    n_features_in_: int

    def inverse_transform(self, Z):
        """Decode latents to observations; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        array = check_array(from_torch(Z), dtype=[np.float64, np.float32], order="C", force_writeable=True)
        if array.shape[1] != self.n_components_:
            raise ValueError(
                f"{type(self).__name__}: Z must have {self.n_components_} columns, one per latent, got "
                f"{array.shape[1]}."
            )
        model: Any = self._precise()
        z = self._put(array)
        with torch.no_grad():
            parts = [model.decoder(part) * model.scale + model.centre for part in z.split(self._rows_decoded)]
        x = torch.cat(parts).to(torch.as_tensor(array).dtype)
        return x.to(Z.device) if isinstance(Z, Tensor) else x.cpu().numpy()

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> np.ndarray:
        """Draw latents from the prior, a standard normal distribution, and decode them.

        Parameters
        ----------
        n_samples : int
            Number of observations.
        random_state : int, RandomState or None
            Seed.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"{type(self).__name__}: n_samples must be at least 1, got {n_samples}.")
        rng = _random.generator(random_state, torch.device("cpu"))
        return self.inverse_transform(torch.randn(n_samples, self.n_components_, generator=rng)).numpy()

    @property
    def _rows_decoded(self) -> int:
        return max(1, AT_ONCE // self.n_features_in_)

    def _precise(self) -> nn.Module:
        """Return the model in the precision in which it is used: float64, except for images."""
        if len(self.shape_in_) == 3:
            return self.objective_.eval()
        return copy.deepcopy(self.objective_).double().eval()

    def _put(self, array: np.ndarray) -> Tensor:
        rows = torch.as_tensor(array).to(self.encoder_.device)
        return rows.float() if len(self.shape_in_) == 3 else rows.double()
