"""`Autoencoding` and `Paired`: what the autoencoders of the field share, on the one training loop; abstract."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown.data.batches import SampleSet, pair_up
from pindown.data.data import Data
from pindown.errors import warn
from pindown.methods.diagnosis import latent_std, warn_of_collapse
from pindown.methods.dictionary.autoencoder import first_samples, random_numbers
from pindown.methods.dictionary.isomap import isomap_init
from pindown.methods.inputs import DataSummary
from pindown.networks import built
from pindown.networks.encoder import Encoder, Make
from pindown.networks.images import decoder_for
from pindown.training import best_device
from pindown_papers.baselines.generating import Generating
from pindown_papers.baselines.spec import PairedReconstructionSpec
from pindown_papers.baselines.variational import Variational

INACTIVE, MIN_STEPS = 0.1, 25
"""Standard deviation of a latent, whose prior has 1, below which its posterior is the prior for every sample; and steps
before which latents are as they were initialised."""


class Autoencoding(Generating):
    """A variational autoencoder with a divergence of its own; abstract. No theorem speaks of its latents."""

    decoder: Make
    unrolled: bool
    _n_views = 1
    _adapts = False

    @abstractmethod
    def _divergence(self) -> nn.Module:
        """Return how posteriors are compared with the prior, after checking the parameters for it."""

    def score(self, X, y=None) -> float:
        """Return the evidence lower bound of observations in nats per row, with a standard normal prior."""
        check_is_fitted(self)
        model = self._precise()
        assert isinstance(model, Variational)
        return model.bound(self._put(self._validated(X, reset=False)), seed=0)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._divergence()

    def _diagnose(self, x: Tensor) -> None:
        if warn_of_collapse(self, x) or self.n_iter_ < MIN_STEPS:
            return
        if inactive := (latent_std(self, x) < INACTIVE).nonzero()[:, 0].tolist():
            warn(
                f"{type(self).__name__}: latent(s) {inactive} have collapsed: their standard deviation is below "
                f"{INACTIVE}, where that of the prior is 1, so that they carry no information about X. Use fewer "
                "latents, or a smaller weight of the divergence."
            )

    def _noise(self, summary: DataSummary, n_samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return normal numbers for each latent of each view, and uniform ones for each latent."""
        normal, _ = random_numbers(n_samples, self._n_views * summary.n_components, generator)
        return normal, random_numbers(n_samples, summary.n_components, generator)[1]

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        make = decoder_for(self.decoder, self.shape_in_, best_device(self.device))
        decoder = built(type(self).__name__, "decoder", make, summary.n_components, self.shape_in_)
        d, x = summary.n_components, first_samples(batches)
        model = Variational(
            encoder, decoder, d, x, divergence=self._divergence(), penalty=self.penalty, adapts=self._adapts
        )
        return self._started(model, x)

    def _started(self, model: Variational, x: Tensor) -> Variational:
        """Teach an autoencoder of images Isomap coordinates, if that is requested."""
        if self.unrolled and x.ndim == 4:
            seed = int(torch.randint(2**31, ()))
            isomap_init(model, x, max_iter=self._n_steps, seed=seed, device=best_device(self.device))
        return model


class Paired(Autoencoding):
    """An autoencoder of two views of each row, its positive the second; abstract."""

    spec = PairedReconstructionSpec()
    unrolled = False
    _n_views = 2

    def fit(self, X, y=None) -> Self:
        """Train the autoencoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, …), Data, or Source
            The observations.
        y : array, tensor or None
            Positives, an array like X; or groups, (n_samples,), whose rows are positives of each other; or None: each
            row's positive is the next row.
        """
        return self._fit(X, {"pairs": y})

    def _targets(self, summary: DataSummary, sides: dict[str, Any]) -> tuple[Any, ...]:
        return (sides["pairs"],)

    def _samples(self, data: Data, summary: DataSummary, device: torch.device) -> SampleSet:
        return WithChance(
            pair_up(data.X, data.pairs, device, groups=data.groups, among=summary.train_indices),
            self._draw_noise(summary),
        )


class WithChance:
    """Rows, with random numbers that are new whenever they are taken."""

    def __init__(self, rows: SampleSet, chance: Any) -> None:
        self.rows, self.chance, self.device = rows, chance, rows.device

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the rows at these positions, and what belongs to them."""
        return *self.rows.take(which, generator), *self.chance(len(which), generator)
