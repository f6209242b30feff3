"""`Generating`: what the generators of the field share, autoencoders and flows; abstract."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted
from torch import nn

from pindown.losses import Penalty
from pindown.methods.base import BaseEncoder
from pindown.methods.dictionary.autoencoder import Decodes
from pindown.methods.inputs import TrainingInput
from pindown.methods.parameters import check_penalty
from pindown.networks import preprocessing
from pindown.networks.images import is_image
from pindown.training import TrainingDefaults
from pindown_papers.baselines.spec import refuse_one_picture


class Generating(Decodes, BaseEncoder):
    """An encoder and a decoder that are trained together, with a penalty on the way back; no theorem speaks of it."""

    penalty: Penalty | None
    training_defaults = TrainingDefaults(learning_rates=(3e-3, 2e-3), weight_decay=0.0)

    @property
    def decoder_(self) -> nn.Module:
        """The trained decoder, to standardised observations: what `pindown.disentangle` takes."""
        check_is_fitted(self)
        decoder = self.objective_.decoder
        assert isinstance(decoder, nn.Module)
        return decoder

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1 or (is_image(shape) and self.preprocess is preprocessing.default_preprocessing)

    def _check_inputs(self, inputs: TrainingInput) -> None:
        refuse_one_picture(type(self).__name__, inputs.data.X)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_penalty(self, self.penalty)
