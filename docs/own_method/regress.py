"""Third file: the estimator, which is its parameters, its batches and its loss. All else is in `BaseEncoder`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array
from torch import Tensor, nn

from own_method.losses import unexplained
from own_method.theory import REGRESS
from pindown import networks, theory
from pindown.methods.base import BaseEncoder
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.preprocessing import Preprocessing
from pindown.training import Trainer, TrainingDefaults


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

    training_defaults = TrainingDefaults(weight_decay=0.2)

    def __init__(
        self,
        n_components=2,
        *,
        encoder=networks.skip_mlp,
        preprocess=preprocessing.default_preprocessing,
        batch_size=None,
        max_iter=400,
        learning_rate=1e-2,
        trainer=Trainer(),  # noqa: B008 (a frozen value)
        device=None,
        verbose=True,
        random_state=None,
    ):
        self.n_components = n_components
        self.encoder = encoder
        self.preprocess = preprocess
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
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

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> DataSummary:
        if inputs.data.signal is None:
            raise ValueError(
                "Regress: this estimator requires y to be passed, but the target y is None. Give measurements, a row "
                "per row of X."
            )
        return self._counted_components(inputs, preprocessing)

    def _targets(self, summary: DataSummary, sides: dict[str, Any]) -> tuple[Any, ...]:
        y = check_array(sides["signal"], ensure_2d=False, dtype=np.float32, input_name="y (the measurements)")
        return (y.reshape(len(y), -1),)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        return _Objective(encoder)


class _Objective(nn.Module):
    """The loss of a batch."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return unexplained(self.encoder(x), y)
