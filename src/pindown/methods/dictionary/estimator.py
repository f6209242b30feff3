"""`Dictionary`: recover latents from observations alone, if they reach different observed variables."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import networks, theory
from pindown._random import RandomState, draw_seed
from pindown.auditing.checks.supports import DEPENDENCE_SAMPLES
from pindown.data import IndexedSource
from pindown.errors import InputError
from pindown.losses import DependencyCount, DependencySparsity, Penalty, pushforward
from pindown.methods.base import BaseEncoder
from pindown.methods.dictionary.audit import DictionarySpec
from pindown.methods.dictionary.autoencoder import Autoencoder, Decodes, first_samples, random_numbers
from pindown.methods.dictionary.dependence import (
    LatentGraph,
    Structure,
    latent_graph,
    moments_of,
    reach_images,
    structure_of,
)
from pindown.methods.dictionary.isomap import FOLDED, explained_by_latents, isomap_init
from pindown.methods.dictionary.rotation import TRAINED, sparsest
from pindown.methods.fitting import Trained, Training
from pindown.methods.inputs import SUMMARY_SAMPLES, ArrayOrTensor, DataLike, DataSummary, Encoded, TrainingInput
from pindown.methods.parameters import check_penalty
from pindown.metrics.arrays import correlations, matched_sum
from pindown.networks import built, preprocessing
from pindown.networks.encoder import Encoder, Make
from pindown.networks.images import decoder_for, is_image
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.simulate.images import Bytes
from pindown.training import Trainer, TrainingDefaults, TrainingLog, best_device

IMAGE_COLUMNS, IMAGE_SAMPLES = 2, 64  # latents and images of a step whose derivatives are taken, unless set otherwise
N_STARTS = {2: 64, 4: 24}  # starts of the search for the rotation, of vectors and of images, which have few optima
COMPARED, MOST_COMPARED = 0.1, 2_000  # fraction and number of samples that compare restarts where none are held out


@dataclass(frozen=True, eq=False)
class DictionarySummary(DataSummary):
    """The data summary of `Dictionary`: with the samples by which restarts are compared."""

    held_out: Tensor = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Found:
    """What a fit learns apart from its networks: see the attributes of `Dictionary`."""

    bounds: np.ndarray
    agreement: np.ndarray
    oblique_gain: float
    structure: Structure


class Dictionary(Decodes, BaseEncoder):
    r"""Recover latents without any side information: a variational autoencoder with a sparse Jacobian.

    Among all decoders that explain the data equally well, find the one in which the fewest latents reach the fewest
    observed variables. A fit has three phases. Several restarts maximise the likelihood, alternately from a linear and
    an Isomap initialisation; the one that explains held-out samples best is kept. Since a Gaussian prior leaves the
    rotation of the latents open, all rotations are then searched for the one with the fewest dependencies. From there
    training goes on with the penalty,

    .. math:: \min\; -\mathrm{ELBO} + \lambda \, \#\bigl\{ (i, j) :
              \tfrac{\partial \hat g_i}{\partial \hat z_j} \ne 0 \text{ anywhere} \bigr\}

    the number of dependencies softened as in `penalties.dependency_count`, and less so in the second half.

    Claims are about `blocks_`: latents that reach the same observed variables are recovered together only.

    Parameters
    ----------
    n_components : int
        Number of latents.
    penalty : Penalty or None
        ``penalties.DependencyCount(weight, epsilon)`` or ``penalties.DependencySparsity(weight, n_columns)``, the L1
        norm of the paper, which costs less with sampled columns. Others have no theorem, such as those of
        `pindown_papers.penalties`: nothing is rotated. With None or weight 0 the fit ends after the restarts.
    n_restarts : int
        Number of initialisations. Training continues from the best. With one, rolled-up data may stay folded.
    encoder : callable
        Called as ``encoder(n_features, n_components)``, returns a module. For images it is called with their shape in
        place of ``n_features``, and the default is convolutional.
    preprocess : callable
        Preprocessing of the encoder's input: see `Contrast`.
    decoder : callable
        Called as ``decoder(n_components, n_features)``, returns a differentiable module. Likewise.
    batch_size : int or None
        Samples per step; None takes 512, or all if there are fewer.
    max_iter : int
        Steps of each restart, and of the phases with the penalty.
    learning_rate : float or None
        Peak of a cosine schedule. None takes .01, and .003 for images.
    trainer : Trainer
        Weight decay (None: 0), optimizer, fraction of the samples to hold out, precision, checkpoint, callbacks …: see
        `pindown.training.Trainer`.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    dependence_ : ndarray of shape (n_features, n_components), or (c, h, w, n_components)
        Mean absolute derivative of each standardised observed variable by each latent, in units of the latent's
        standard deviation given the other latents.
    support_ : ndarray of the same shape
        Zeros and ones: which latent reaches which observed variable. `pictures` draws it.
    threshold_ : float
        What separates them in `dependence_`: the middle of the widest gap on a logarithmic scale.
    blocks_ : tuple of structure.Block
        The latents that are recovered, alone or together: all in one block where those of different blocks depend on
        each other, since the sparsity may come from that; and for images where a latent is only partly explained.
    bounds_ : ndarray of shape (n_restarts,)
        Evidence lower bound of each restart on held-out samples, in nats per sample. The largest is taken, of images
        the largest of those that are not folded.
    agreement_ : ndarray of shape (n_restarts,)
        Mean absolute correlation of each restart's latents, after its own rotation, with those of the best restart. Low
        values with nearly equal bounds show that the data do not decide.
    oblique_gain_ : float
        How many latents fewer reach an observed variable, on average, in the best basis of correlated latents than in
        the best rotation. Above .025 the correlated latents are chosen; 0 if a rotation is as good.
    latent_covariance_ : ndarray of shape (n_components, n_components)
        Covariance of the prior: the identity, unless correlated latents were chosen. `latent_graph` has intervals.
    noise_ : float
        Standard deviation of the observation noise, in units of each observed variable's.
    encoder_ : torch.nn.Module
        The trained encoder.
    decoder_ : torch.nn.Module
        The trained decoder, to standardised observations.
    objective_ : torch.nn.Module
        The loss that was minimised.
    held_out_ : HeldOut or None
        The score on held-out samples and on training samples. None if no sample was held out.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step of the best restart and of the phases with the penalty.
    n_iter_ : int
        Number of these steps.

    References
    ----------
    Zheng et al., Diverse Dictionary Learning.

    Examples
    --------
    >>> from pindown.metrics import mcc
    >>> from pindown.simulate import Structured
    >>> support = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]
    >>> simulation = Structured.well_posed(support, n_candidates=5, random_state=0)
    >>> train, test = (simulation.sample(3_000, random_state=s) for s in (1, 2))
    >>> dictionary = Dictionary(3, n_restarts=2, max_iter=300, random_state=0).fit(train.x)
    >>> mcc(dictionary.transform(test.x), test.z) > 0.95
    True
    """

    spec = DictionarySpec()
    training_defaults = TrainingDefaults(learning_rates=(1e-2, 3e-3), weight_decay=0.0, cross_validated=False)

    def __init__(
        self,
        n_components: int = 2,
        *,
        penalty: Penalty | None = DependencyCount(),  # noqa: B008 (a frozen value)
        n_restarts: int = 3,
        encoder: Make = networks.smooth,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        decoder: Make = networks.smooth,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float | None = None,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.penalty = penalty
        self.n_restarts = n_restarts
        self.encoder = encoder
        self.preprocess = preprocess
        self.decoder = decoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if no penalty makes the Jacobian sparse.

        It is about blocks. Where all `blocks_` are single latents, `theory.DICTIONARY_SINGLE` applies, too.
        """
        return theory.DICTIONARY_BLOCKS if self._seeks_sparsity else None

    def jacobian(self, X: ArrayOrTensor) -> Encoded:
        """Return the derivative of the decoder at the latents of each sample, (n, …, n_components).

        In units of X per unit of latent: see `dependence_` for standardised ones.
        """
        check_is_fitted(self)
        array = self._validated(X, reset=False)
        objective = self._model()
        with torch.no_grad():
            columns = pushforward(objective.decoder, objective.encode(self._put(array))).columns
            return self._like(X, array, (columns * objective.scale).movedim(0, -1))

    def residuals(self, X: ArrayOrTensor) -> Encoded:
        """Return what the latents leave unexplained of X, standardised as the decoder sees it; of the shape of X."""
        check_is_fitted(self)
        array = self._validated(X, reset=False)
        model, x = self._model(), self._put(array)
        with torch.no_grad():
            return self._like(X, array, model.standardised(x) - model.decoder(model.encode(x)))

    def latent_graph(self, X: ArrayOrTensor, *, n_resamples: int = 200, random_state: RandomState = 0) -> LatentGraph:
        """Return which latents depend on each other: correlations and partial correlations, with intervals of 95 %.

        Parameters
        ----------
        X : array (n_samples, …)
            Best thousands of samples that were held out.
        n_resamples : int
            Draws of the bootstrap. Each has samples, derivatives and axes of its own.
        random_state : int, RandomState or None
            Seed.
        """
        check_is_fitted(self)
        model, x = self._model(), self._put(self._validated(X, reset=False))
        return latent_graph(model, x, n_resamples=n_resamples, random_state=draw_seed(random_state))

    def pictures(self) -> Bytes:
        """Draw which pixels each latent reaches, side by side, brighter where more; bytes (height, width, 3)."""
        check_is_fitted(self)
        if len(self.shape_in_) != 3:
            message = f"Dictionary: samples of shape {self.shape_in_} are not images. See `support_`."
            raise InputError("X", message)
        return reach_images(np.moveaxis(self.dependence_, -1, 0), np.moveaxis(self.support_, -1, 0) > 0)

    def score(self, X: DataLike, y: ArrayOrTensor | None = None) -> float:
        """Return the evidence lower bound in nats per sample, of vectors standardised by feature, images as a whole."""
        check_is_fitted(self)
        return self._model().bound(self._put(self._validated(X, reset=False)), seed=0)

    @property
    def _seeks_sparsity(self) -> bool:
        return isinstance(self.penalty, DependencySparsity) and self.penalty.weight > 0

    def _from_white(self, normal: Tensor) -> Tensor:
        return self._model().to_latents(normal.to(self._model().to_latents.weight)).cpu()

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1 or (is_image(shape) and self.preprocess is preprocessing.default_preprocessing)

    def _model(self) -> Autoencoder:
        model = self._precise()
        assert isinstance(model, Autoencoder)
        return model

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_scalar(self.n_restarts, "n_restarts", numbers.Integral, min_val=1)
        check_penalty(self, self.penalty)

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> DictionarySummary:
        X, counted = inputs.data.X, self._counted_components(inputs, preprocessing)
        d, notes = counted.n_components, counted.notes
        constant = _constant_columns(X)
        if len(self.shape_in_) == 1 and len(constant):
            message = f"column(s) {constant.tolist()} of X are constant, so their scale is undefined. Leave them out"
            raise InputError("X", f"Dictionary: {message}.")
        if inputs.splits:
            return DictionarySummary(d, notes=notes, held_out=torch.as_tensor(X[inputs.splits[0].held_out]))
        # Without held-out samples, restarts are compared by some of their training samples.
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0)).numpy()
        n = min(int(COMPARED * len(X)), MOST_COMPARED)
        return DictionarySummary(d, notes=notes, held_out=torch.as_tensor(X[order[:n] if n > 1 else order]))

    def _noise(self, summary: DictionarySummary, n_samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return a normal and a uniform number for each latent of each sample."""
        return random_numbers(n_samples, summary.n_components, generator)

    def _objective(
        self, encoder: Encoder, summary: DictionarySummary, batches: Iterator[tuple[Tensor, ...]]
    ) -> nn.Module:
        make = decoder_for(self.decoder, self.shape_in_, best_device(self.device))
        decoder = built("Dictionary", "decoder", make, summary.n_components, self.shape_in_)
        pushforward(copy.deepcopy(decoder), torch.zeros(2, summary.n_components))  # raises if a layer has no derivative
        return Autoencoder(encoder, decoder, summary.n_components, first_samples(batches))

    def _optimise(self, training: Training, seed: int) -> Trained:
        restarts, logs = [], []
        for k in range(self.n_restarts):
            restarts.append(self._initialised(training, seed, k))
            logs.append(training.minimise(restarts[k], seed + k, f"restart {k}"))
        assert isinstance(training.summary, DictionarySummary)
        held_out = training.summary.held_out.to(restarts[0].centre.device)
        bounds = np.array([restart.bound(held_out, seed=0) for restart in restarts])
        gains = [_choose_axes(restart, held_out) if self._seeks_sparsity else 0.0 for restart in restarts]
        best = _best_of(restarts, bounds, held_out)
        latents = [restart.encode(held_out).double().cpu().numpy() for restart in restarts]
        agreement = np.array(
            [matched_sum(np.abs(correlations(each, latents[best]))) / each.shape[1] for each in latents]
        )
        objective, log, gain = restarts[best], logs[best], gains[best]
        for phase, penalty, max_iter in self._penalty_phases():
            objective.penalty = penalty
            log = _joined(log, training.minimise(objective, seed, phase, max_iter))
            if self._seeks_sparsity:
                gain = _choose_axes(objective, held_out)
        more = first_samples(training.first_batches(seed))[:DEPENDENCE_SAMPLES].to(held_out.device)
        shown = structure_of(objective, held_out, more, are_dependent=gain > TRAINED.margin)
        return training.trained(objective, log, Found(bounds, agreement, gain, shown))

    def _penalty_phases(self) -> list[tuple[str, Penalty, int]]:
        """Return name, penalty and steps of the phases that follow the restarts. A count is sharpened half way."""
        if self.penalty is None or self.penalty.weight == 0:
            return []
        penalty = self._sampled(self.penalty)
        if not isinstance(penalty, DependencyCount):
            return [("sparse", penalty, self._n_steps)]
        half = (self._n_steps + 1) // 2
        return [("sparse", penalty, half), ("sharp", penalty.sharpened(), half)]

    def _sampled(self, penalty: Penalty) -> Penalty:
        """Return a penalty that takes some latents and samples of images, unless it sets others."""
        if len(self.shape_in_) == 1 or not isinstance(penalty, DependencySparsity):
            return penalty
        chosen = (penalty.n_columns, penalty.n_samples) != (None, None)
        return penalty if chosen else replace(penalty, n_columns=IMAGE_COLUMNS, n_samples=IMAGE_SAMPLES)

    def _initialised(self, training: Training, seed: int, k: int) -> Autoencoder:
        """Return the k-th model to train, with linear or Isomap initialisation alternately: each may fail.

        For images Isomap comes first: hues go around a circle, which every projection folds.
        """
        model = training.new_objective(seed + k)
        assert isinstance(model, Autoencoder)
        if (k + (len(self.shape_in_) == 3)) % 2:
            x = first_samples(training.first_batches(seed))
            # Of vectors there is so little to do that a CPU is as fast.
            device = best_device(self.device) if x.ndim == 4 else torch.device("cpu")
            isomap_init(model, x, max_iter=self._n_steps, seed=seed + k, device=device)
        return model

    def _store(self, trained: Trained) -> None:
        objective, found = trained.objective, trained.details
        assert isinstance(objective, Autoencoder)
        assert isinstance(found, Found)
        self.decoder_, self.bounds_, self.agreement_ = objective.decoder, found.bounds, found.agreement
        self.oblique_gain_, self.latent_covariance_ = found.oblique_gain, objective.covariance()
        self.dependence_, self.support_, self.threshold_, self.blocks_ = found.structure
        with torch.no_grad():
            self.noise_ = float(objective.noise())


def _choose_axes(model: Autoencoder, x: Tensor) -> float:
    """Map the latents to the sparsest axes, rotated or oblique; return the gain of oblique ones."""
    found = sparsest(moments_of(model, x), resolution=TRAINED, n_starts=N_STARTS[x.ndim])
    model.map_latents(torch.as_tensor(np.linalg.solve(model.white_directions(), found.optima.maps[0])))
    return found.gain


def _best_of(restarts: list[Autoencoder], bounds: np.ndarray, held_out: Tensor) -> int:
    """Return which restart has the largest bound; of images, among those that are not folded.

    A fold costs little where a factor changes few pixels: the sharpest decoder may be that of folded latents.
    """
    if held_out.ndim == 2 or len(restarts) == 1:
        return int(bounds.argmax())
    explained = np.array([explained_by_latents(restart, held_out) for restart in restarts])
    return int(np.where(explained > explained.max() - FOLDED, bounds, -np.inf).argmax())


def _joined(first: TrainingLog, second: TrainingLog) -> TrainingLog:
    curve = np.concatenate([first.loss_curve, second.loss_curve])
    # Whether the first was long enough: the loss of what follows changes with the penalty.
    return replace(second, loss_curve=curve, seconds=first.seconds + second.seconds, shortfall=first.shortfall)


def _constant_columns(X: np.ndarray | IndexedSource) -> np.ndarray:
    """Return the columns that never change; of a source, in the rows of its first block."""
    some = next(X.blocks(SUMMARY_SAMPLES))["x"] if isinstance(X, IndexedSource) else X
    return np.flatnonzero(np.ptp(np.asarray(some).reshape(len(some), -1), axis=0) == 0)
