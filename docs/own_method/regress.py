"""Third file: the estimator, which is its parameters, its batches and its loss. All else is in `BaseEncoder`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_array, check_consistent_length
from torch import Tensor, nn

from own_method.losses import unexplained
from own_method.theory import REGRESS
from pindown import networks, theory
from pindown.estimators.base import BaseEncoder, Encoder, as_array
from pindown.processes import Process
from pindown.sources.batches import Draw
from pindown.sources.drawing import Epochs
from pindown.spaces import Reals, Space
from pindown.training import optimizers


class Regress(BaseEncoder):
    """Recover latents from measurements y that are linear in them, up to noise: as many as latents, or more.

    The parameters mean what they do in `pindown.Contrast`.

    Examples
    --------
    >>> from own_method.table import drawn
    >>> from pindown.metrics import linear_r2
    >>> train, test = (drawn(4, n_targets=8, n=5_000, seed=0, part=part) for part in (0, 1))
    >>> regress = Regress(4, max_iter=200, verbose=False, random_state=0).fit(train.x, train.y)
    >>> linear_r2(test.x, test.z) < 0.9 < 0.98 < linear_r2(regress.transform(test.x), test.z)
    True
    """

    def __init__(
        self,
        n_components=2,
        *,
        encoder=networks.unfolded,
        batch_size=None,
        max_iter=400,
        learning_rate=1e-2,
        weight_decay=0.2,
        optimizer=optimizers.adam,
        patience=None,
        checkpoint=None,
        device=None,
        verbose=True,
        random_state=None,
    ):
        self.n_components = n_components
        self.encoder = encoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.patience = patience
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def guarantee(self) -> theory.Theorem:
        """The theorem that applies if the data meet its assumptions."""
        return REGRESS

    def __sklearn_tags__(self):
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _space(self) -> Space:
        return Reals()

    def _draw(self, X: np.ndarray, y: Any, device: torch.device) -> Draw:
        if y is None:
            raise ValueError(
                "Regress: this estimator requires y to be passed, but the target y is None. Give measurements, a row "
                "per row of X."
            )
        y = check_array(as_array(y), ensure_2d=False, dtype=np.float32, input_name="y (the measurements)")
        check_consistent_length(X, y)
        rows = Measured(torch.as_tensor(X, device=device), torch.as_tensor(y, device=device).reshape(len(y), -1))
        return Epochs(rows, self._rows_per_batch(len(rows), "rows"))

    def _draw_fresh(self, process: Process, batch_size: int) -> Draw:
        raise ValueError(f"Regress: {type(process).__name__} has no measurements. Give arrays to fit.")

    def _objective(self, encoder: Encoder, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        return _Objective(encoder)

    def _learned(self, objective: nn.Module) -> None:
        """Nothing beside the encoder: the linear map to y is found anew in every batch."""


@dataclass(frozen=True)
class Measured:
    """Rows with their measurements."""

    x: Tensor  # (n, n_features)
    y: Tensor  # (n, n_targets)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the rows at these positions and their measurements."""
        return self.x[which], self.y[which]


class _Objective(nn.Module):
    """The loss of a batch."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return unexplained(self.encoder(x), y)
