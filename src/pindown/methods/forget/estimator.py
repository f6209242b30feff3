"""`Forget`: latents without a nuisance, such as a batch."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import Tags, check_array, check_consistent_length, check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import _random, networks, theory
from pindown._random import RandomState
from pindown.data import as_source
from pindown.data.data import from_torch
from pindown.data.labels import read_labels
from pindown.errors import warn
from pindown.methods.base import BaseEncoder
from pindown.methods.fitting import Trained, Training
from pindown.methods.forget.adversarial import History, Rebuild
from pindown.methods.forget.approach import ForgetSummary, Learned
from pindown.methods.forget.audit import ForgetSpec
from pindown.methods.forget.batch_maps import BatchMaps
from pindown.methods.forget.closed_form import batch_map_summary
from pindown.methods.forget.curve import RemovalPoint, removal_curve
from pindown.methods.forget.images import encoder_behind, whitened
from pindown.methods.forget.initialisation import AdversarialSummary, adversarial_summary
from pindown.methods.forget.nuisance import Column, NuisanceReader, as_table
from pindown.methods.inputs import ArrayOrTensor, DataLike, Encoded, TrainingInput, is_in_memory, preprocessed
from pindown.methods.transport import SlicedTransport
from pindown.metrics import StructureKept
from pindown.networks import preprocessing
from pindown.networks.encoder import ENCODED_AT_ONCE, Encoder, Make
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.training import Trainer, TrainingDefaults, optimizers, waiting_cosine


class Forget(BaseEncoder):
    r"""Remove a nuisance, such as a batch, from data, and keep the rest.

    **Tables** (``encoder=None``) get batch-specific maps in closed form. Each batch shifts and scales features, and
    shifts clusters of samples; clusters are shared by all batches, but their proportions are not:

    .. math:: p = V^\top\, \frac{x - b_e}{s_e}, \qquad p \mid e \sim \sum_c \pi_{c \mid e}\,
              N(\mu_c + \delta_{ec}, S_c), \qquad \hat z = p - E[\delta_{ec} \mid p, e]

    So a difference in composition is kept, and a cluster that occurs in one batch only has no shift of its own; both
    need most clusters to be shared. If batches do not differ by more than shuffled ones, nothing is removed, and
    latents are principal components. With ``given``, known classes take the place of clusters.

    **With an encoder**, and for images and streams, one map for all levels of the nuisance e is trained against a
    classifier D of e, together with a decoder g that rebuilds x from latents and e:

    .. math:: \min_f\, \max_D\; -\lambda L_D(f) + L_g(f), \qquad
              \min_D L_D = H(e \mid \hat z) = H(e) - I(e; \hat z)

    **The theorem** (`guarantee`) is about the second. A linear embedding of clusters
    :math:`\tilde a \mid e \sim \mathrm{vMF}(v_e, \kappa)` is independent of e if and only if its rows are orthogonal to
    :math:`V = \mathrm{span}\{v_e - v_{e'}\}`; with d − dim V rows it keeps all the rest. **It does not say** that a
    latent means the same in two levels. And a classifier that fails in training proves nothing: ``history_.probe`` is
    trained afterwards, from scratch, on held-out samples.

    Parameters
    ----------
    n_components : int or None
        Number of latents. None, for tables: all components of up to 30 features or of principal components, otherwise
        those above noise. None, with an encoder: d − dim V, by the numerical rank of the means of the levels (and, for
        a linear encoder, of their covariances).
    encoder : callable or None
        None chooses batch-specific maps for tables, and a convolutional encoder for images. Otherwise called as
        ``encoder(n_features, n_components)``; returns a module, which is trained adversarially. An `nn.Linear`, as from
        ``networks.linear``, keeps orthonormal rows: see ``components_``.
    strength : float
        λ of adversarial training, in nats of the classifier's loss per whitened unit of squared error. Batch-specific
        maps remove all effects of batches from 0.5 on, nothing at 0, and between them a part: see `curve`.
    n_bins : int or None
        None: y holds labels. A number: y holds quantities, which are cut into this many bins with about equally many
        samples; the decoder receives the quantity itself.
    preprocess : callable
        Preprocessing of observations: see `Contrast`. For images, 128 leading directions are whitened. With
        ``preprocess=preprocessing.whiten`` images are flattened.
    classifier, decoder : callable
        Called as ``(n_in, n_out)``, return modules. A linear encoder has a linear decoder.
    batch_size, max_iter : int or None, int
        Samples per step (None: 512, or all if there are fewer); steps. The encoder is not trained in the first tenth of
        the steps.
    learning_rate : float
        Of the encoder, at its maximum. That of classifier and decoder is an argument of ``optimizers.rivals``:
        ``functools.partial(optimizers.rivals, answer_rate=5e-3)``.
    trainer : Trainer
        Weight decay (None: 10,000 / n_samples, at most 2), optimizer (None: `optimizers.rivals`), fraction of the
        samples to hold out, precision, checkpoint, callbacks …: see `pindown.training.Trainer`.
    device, verbose, random_state : str or None, bool, int or RandomState or None
        Device (None: a GPU if there is one); whether to print progress and results to a terminal; seed.

    Attributes
    ----------
    n_components_ : int
        Number of latents.
    batch_maps_ : BatchMaps or None
        The batch-specific maps; None if an encoder was trained.
    alone_ : dict of str
        Of batch-specific maps: the classes or clusters that occur in one level only, and their levels. They stay where
        they are.
    structure_kept_ : StructureKept or None
        Structure of the data within each level that held-out latents keep: neighbours, clusters and variance.
    held_out_ : HeldOut or None
        How well the best probe predicts the nuisance from held-out latents. None if there were too few samples.
    history_ : History
        ``classifier_loss``, ``classifier_accuracy``, ``reconstruction`` of each step, ``chance_loss``, and ``probe``,
        a `pindown.metrics.Leakage`.
    n_nuisance_directions_ : tuple of int
        Number of directions of the data in which means differ between levels, and of further directions in which
        covariances differ (0 unless the encoder is linear).
    components_ : ndarray of shape (n_components_, n_features)
        Of a linear encoder: rows M, orthonormal where features are in units of their spread; the latents of x are
        M (x − mean).
    transport_ : SlicedTransport or None
        For images with 2,000 samples of two levels: the transport that gives latents of all levels one distribution.
    encoder_, decoder_, objective_ : torch.nn.Module
        The map for samples of unknown batch; the map from latents and nuisance to x (None if there are batch-specific
        maps, which have their own inverse); the training objective.
    loss_curve_ : ndarray of shape (n_iter_,)
        Sum of the losses, each step. Adversarial losses do not fall; see ``history_``.
    n_iter_ : int
        Steps taken; a closed form takes one.

    Warns
    -----
    IdentifiabilityWarning
        If the nuisance can still be predicted, next to nothing of the data is left, levels are rare, more latents are
        requested than directions are invariant, held-out samples do not show the given label, or the classifier has
        memorised its samples.

    References
    ----------
    Ganin and Lempitsky, Unsupervised domain adaptation by backpropagation, ICML 2015. Korsunsky et al., Fast, sensitive
    and accurate integration of single-cell data with Harmony, 2019. Liu et al., SCAR, 2026.

    Examples
    --------
    A site that shifts and scales all features:

    >>> rng = np.random.default_rng(0)
    >>> site = np.arange(1_000) % 2
    >>> X = rng.normal(size=(1_000, 4))
    >>> X[site == 1] = 3 + 2 * X[site == 1]
    >>> Z = Forget(verbose=False, random_state=0).fit(X, site).transform(X, site)
    >>> bool(abs(Z[site == 1].mean(0) - Z[site == 0].mean(0)).max() < 0.3)
    True
    """

    spec = ForgetSpec()
    training_defaults = TrainingDefaults(optimizer=optimizers.rivals, schedule=waiting_cosine, adversarial=True)
    encoder: Make | None  # None: chosen by the kind of data
    batch_maps_: BatchMaps | None = None
    structure_kept_: StructureKept | None = None
    transport_: SlicedTransport | None = None
    decoder_: Rebuild | None
    columns_: list[Column]
    alone_: dict[str, str]
    history_: History
    reader_: NuisanceReader

    def __init__(
        self,
        n_components: int | None = None,
        *,
        encoder: Make | None = None,
        strength: float = 0.5,
        n_bins: int | None = None,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        classifier: Make = networks.small_mlp,
        decoder: Make = networks.skip_mlp,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float = 1e-3,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.encoder = encoder
        self.strength = strength
        self.n_bins = n_bins
        self.preprocess = preprocess
        self.classifier = classifier
        self.decoder = decoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def guarantee(self) -> theory.Theorem:
        """The theorem that applies if the data satisfy its assumptions."""
        return theory.FORGET if self._is_linear else theory.FORGET_NONLINEAR

    def fit(self, X: DataLike, y: ArrayOrTensor | None = None, given: ArrayOrTensor | None = None) -> Self:
        """Estimate batch-specific maps, or train the encoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The observations.
        y : array or tensor of shape (n_samples,) or (n_samples, n_columns)
            The nuisance: labels, or quantities (``n_bins``). Of several columns each is removed, and their
            combinations.
        given : array of shape (n_samples,), optional
            A label to keep although it depends on the nuisance, such as the cell type. Latents then have no
            batch effect *within* each of its classes. In closed form it may be missing (None or NaN) for some samples;
            an encoder is also trained to predict it.
        """
        if hasattr(X, "obs") and hasattr(X, "obsm"):
            raise TypeError(
                "Forget: X is an AnnData object. Call pindown.forget(adata, batch_key=...), or pass an array, such as "
                "Forget().fit(adata.obsm['X_pca'], adata.obs['batch'])."
            )
        return self._fit(X, {"nuisance": y, "given": given})

    def transform(self, X: DataLike, y: ArrayOrTensor | None = None) -> Encoded:
        """Encode observations; with their nuisance, use the map of each sample's batch.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features), or Source
            The observations.
        y : array of shape (n_samples,) or (n_samples, n_columns), optional
            The nuisance of each sample, of levels that were there in `fit` (see `add_batch` for others). None: unknown,
            as in a pipeline. Then one linear map encodes all samples, the nearest to the batch-specific ones along
            directions in which batches have the same mean. An encoder that was trained needs no y.
        """
        check_is_fitted(self)
        if y is None:
            return super().transform(X)
        level = self._levels(from_torch(y))
        if self.batch_maps_ is None:
            latents = super().transform(X)
            return latents if self.transport_ is None else self._like(latents, latents, self.transport_(latents, level))
        if not is_in_memory(X):
            X = np.concatenate([block["x"] for block in as_source(X).blocks(ENCODED_AT_ONCE)])
        array = self._validated(X, reset=False)
        check_consistent_length(array, level)
        return self._like(X, array, torch.as_tensor(self.batch_maps_.encode(array, level)))

    def curve(
        self,
        X: ArrayOrTensor,
        y: ArrayOrTensor,
        given: ArrayOrTensor | None = None,
        *,
        fractions: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    ) -> tuple[RemovalPoint, ...]:
        """Return leakage and structure kept of batch-specific maps that remove these fractions, and of plain tools.

        The plain tools are a z-score per batch, ComBat and LEACE, fitted to the same samples.

        Parameters
        ----------
        X, y, given : array
            Samples, their nuisance, and perhaps their class; leakage is that within classes, or within clusters.
        fractions : sequence of float
            What to remove of the effects of batches, from 0 to 1.
        """
        check_is_fitted(self)
        if self.batch_maps_ is None:
            raise ValueError("Forget: curve needs batch-specific maps (encoder=None).")
        array = np.asarray(self._validated(X, reset=False), dtype=np.float64)
        within = None if given is None else read_labels("given", from_torch(given), len(array))
        return removal_curve(self.batch_maps_, array, self._levels(from_torch(y)), within, fractions, seed=0)

    def add_batch(self, X: ArrayOrTensor, level: object) -> Self:
        """Add a batch to a fit in closed form, from some of its samples (a few hundred); all other maps stay.

        Warns if half of the samples, by the map of the other half, are unlike the samples of the fit.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Samples of the new batch.
        level : str or int
            Its level of the nuisance, which `transform` then knows.
        """
        check_is_fitted(self)
        if self.batch_maps_ is None or len(self.columns_) != 1 or not self.columns_[0].is_label:
            raise ValueError("Forget: add_batch needs a fit in closed form (encoder=None) with one column of labels.")
        column, new = self.columns_[0], np.asarray([level])
        if new[0] in column.values:
            raise ValueError(f"Forget: level {level!r} was there in fit. Call transform(X, y).")
        array = np.asarray(self._validated(X, reset=False), dtype=np.float64)
        maps, half = self.batch_maps_, np.arange(len(array)) % 2 == 0
        own = maps.with_batch(array[half]).density(array[~half], np.full(len(array) // 2, len(maps.shift)))
        if maps.typical is not None and own.mean() < maps.typical[0] - maps.typical[1]:
            found = f"mean log-density {own.mean():.1f}, in the fit {maps.typical[0]:.1f} ± {maps.typical[1]:.1f}"
            warn(
                f"Forget: samples of {level!r} are unlike the others after they are mapped ({found}). They may have "
                "new types, or differ by more than shifts and scales. Fit all batches together."
            )
        levels = np.concatenate([column.values, new])
        order = np.argsort(levels, kind="stable")
        self.columns_ = [replace(column, values=levels[order])]
        self.batch_maps_ = maps.with_batch(array).reordered(order)
        return self

    def _levels(self, y: Any) -> np.ndarray:
        """Return the index of each sample's level of the nuisance, or raise; (n,)."""
        table = as_table(y, len(y))
        if table.shape[1] != len(self.columns_):
            raise ValueError(f"Forget: y must have {len(self.columns_)} column(s), as in fit, got {table.shape[1]}.")
        numbers = np.stack([kind.numbers(column) for kind, column in zip(self.columns_, table.T, strict=True)], 1)
        one_map = self.batch_maps_ is None and self.transport_ is None
        return numbers[:, 0] if one_map or numbers.shape[1] == 1 else self.reader_.combined(numbers)

    def inverse_transform(self, Z: ArrayOrTensor, y: ArrayOrTensor) -> Encoded:
        """Rebuild observations from latents and the nuisance of each sample; dropped components are at their mean.

        With one reference batch for all samples, the result is corrected features. That a latent means the same in two
        batches is an assumption of the mixture; no theorem says so.
        """
        check_is_fitted(self)
        latents = check_array(from_torch(Z), dtype=[np.float64, np.float32])
        if latents.shape[1] != self.n_components_:
            raise ValueError(
                f"Forget: Z must have {self.n_components_} columns, one per latent, got {latents.shape[1]}."
            )
        table = as_table(from_torch(y), len(latents))
        level = self._levels(table)
        if self.batch_maps_ is not None:
            rebuilt = torch.as_tensor(self.batch_maps_.decode(latents.astype(np.float64), level))
            return self._like(Z, latents, rebuilt.unflatten(1, self.shape_in_))
        shown = np.hstack([kind.seen(column) for kind, column in zip(self.columns_, table.T, strict=True)])
        device = self.encoder_.device
        z, seen = (torch.as_tensor(a, dtype=torch.float64, device=device) for a in (latents, shown))
        assert self.decoder_ is not None
        with torch.no_grad():
            rebuilt = self.decoder_(z if self.transport_ is None else self.transport_.inverse(z, level), seen)
        return self._like(Z, latents, rebuilt.unflatten(1, self.shape_in_))

    def __sklearn_tags__(self) -> Tags:
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        images = self.preprocess is preprocessing.default_preprocessing and not self._is_linear
        return len(shape) == 1 or (images and is_image(shape))

    @property
    def _is_linear(self) -> bool:
        """Whether the encoder makes a linear layer."""
        if self.encoder is None:
            return False
        if isinstance(self.encoder, nn.Module):
            return isinstance(self.encoder, nn.Linear)
        with _random.forked(0):
            try:
                return isinstance(self.encoder(getattr(self, "n_features_in_", 2), 1), nn.Linear)
            except Exception:  # `built` raises with the reason
                return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_scalar(self.strength, "strength", numbers.Real, min_val=0)
        if self.trainer.patience is not None:
            raise ValueError(
                f"Forget: trainer has patience={self.trainer.patience}, but adversarial losses do not fall. "
                "Leave it out, and set the number of steps by max_iter."
            )
        if self.n_bins is not None:
            check_scalar(self.n_bins, "n_bins", numbers.Integral, min_val=2)

    def _training_samples(self, inputs: TrainingInput, first: Preprocessing) -> TrainingInput:
        return preprocessed(first, inputs)

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> ForgetSummary:
        if self.n_components is not None:
            self._requested_components()
        images = is_image(first.shape_in)
        if images and self.n_components is None:
            raise ValueError(
                "Forget: n_components is required for images, since it cannot be estimated from their directions. "
                "Pass the number of latents besides the nuisance, such as Forget(4)."
            )
        if self.encoder is None and inputs.source is None and not images:
            return batch_map_summary(self, inputs, first, seed)
        return adversarial_summary(self, inputs, first, seed)

    def _preprocess_for(self, shape: tuple[int, ...]) -> Preprocess:
        default = self.preprocess is preprocessing.default_preprocessing
        return whitened if is_image(shape) and default else self.preprocess

    def _encoder_for(self, first: Preprocessing, device: torch.device) -> Make:
        if is_image(first.shape_in) and self.encoder in (None, networks.convolutional):
            return encoder_behind(first, device)
        return networks.skip_mlp if self.encoder is None else self.encoder

    def _targets(self, summary: ForgetSummary, sides: Mapping[str, Any]) -> tuple[object, ...]:
        return summary.targets(sides)

    def _objective(
        self, encoder: Encoder, summary: AdversarialSummary, batches: Iterator[tuple[Tensor, ...]]
    ) -> nn.Module:
        return summary.objective(self, encoder, batches)

    def _optimise(self, training: Training, seed: int) -> Trained:
        assert isinstance(training.summary, ForgetSummary)
        return training.summary.train(training, seed)

    def _store(self, trained: Trained) -> None:
        learned, summary = trained.details, trained.summary
        assert isinstance(learned, Learned)
        assert isinstance(summary, ForgetSummary)
        self.columns_, self.reader_ = list(summary.reader.kinds), summary.reader
        self.n_nuisance_directions_ = summary.n_nuisance_directions
        self.encoder_, self.decoder_, self.batch_maps_ = learned.encoder, learned.decoder, learned.batch_maps
        self.transport_ = learned.transport
        if learned.components is not None:
            self.components_ = learned.components
        self.history_, self.structure_kept_ = learned.history, learned.structure
        self.held_out_, self.alone_ = learned.held_out, dict(learned.alone)
        if self.verbose and sys.stderr.isatty():
            for note in filter(None, (*learned.notes, self.held_out_, self.structure_kept_)):
                print(f"Forget: {note}", file=sys.stderr)
        for doubt in learned.doubts:
            warn(f"Forget: {doubt}")
