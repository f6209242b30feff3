"""`Contrast`: recover latents from pairs of related samples."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import networks, theory
from pindown._random import RandomState
from pindown.data.batches import BatchesWithinLevels, ShuffledBatches
from pindown.data.data import Data, as_array
from pindown.data.labels import combined
from pindown.data.pairing import Pairing, pair_up
from pindown.errors import warn
from pindown.methods.afterwards import folding_of, warn_if_uninformative, warn_of_collapse
from pindown.methods.contrast.audit import ContrastSpec
from pindown.methods.contrast.objective import PairObjective, best_temperature
from pindown.methods.incremental import Incremental
from pindown.methods.inputs import DataSummary, TrainingInput, preprocessed
from pindown.methods.parameters import check_positive
from pindown.methods.unfolding import WIDER
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder, Make, is_cheap
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.networks.spaces import Reals, Space, Sphere
from pindown.training import Trainer, TrainingDefaults, processes

SCORE_ROWS = 4_096
"""Pairs compared with each other in `score`."""

TEMPERATURE_ROWS = 1_024
"""Pairs by which `score` chooses a temperature, where the learned one was not made for it."""


class Contrast(Incremental):
    r"""Recover latents from pairs of related samples, by telling partners from negatives (InfoNCE).

    If samples are :math:`x = g(z)` with injective g, z is uniform on the sphere, and the partner's latent follows
    :math:`p(\tilde z | z) \propto e^{\kappa z^\top \tilde z}`, then the minimiser is z up to a rotation. In
    :math:`\mathbb R^d` with :math:`p(\tilde z | z) \propto e^{-\lambda \lVert \tilde z - z \rVert_p^p}` it is z up to
    an affine map, and for p ≠ 2 up to order, sign and one common scale. `guarantee` is the theorem that applies.

    Parameters
    ----------
    n_components : int
        Number of latents.
    space : Space
        Where the codes live: ``Sphere()`` or ``Reals()``. For latents in a box use ``Reals()``.
    p : float
        Codes are compared by −‖·‖_p^p. On the sphere p = 2 is the dot product.
    temperature : float or None
        Divides the similarity. None learns it; on the sphere its inverse then estimates the concentration κ, unless
        that is so large that partners are nearer than all negatives of a batch: then it is less.
    alpha : float or None
        None trains InfoNCE. A number between 0 and 1 trains alignment and uniformity, `losses.align_uniform`, with
        this weight of uniformity. At 0.5 that is InfoNCE in the limit of many negatives, and the same theorems hold.
        Other weights have no theorem. They change the temperature (in the reals: the size of the codes), and on the
        uniform sphere nothing else that we have seen; in a box they bend the codes. It wants large batches where
        partners lie close: if they are nearer than all negatives, nothing holds the temperature, and a fit warns.
    any_marginal : bool
        Learn the log density of the observations along with the codes. The theorems ask for latents with a uniform
        marginal; with this correction they need not be.
    self_negatives : bool
        Take the samples themselves as negatives, each its own among them, as the paper's code does. Needs
        ``any_marginal=False``. With `alpha` it keeps the loss from running away where partners lie close.
    encoder : callable
        Called as ``encoder(n_features, n_components)``, with the shape of a row in place of ``n_features`` if rows are
        images or sequences; returns a module. Or a module, of which a copy is trained. The default suits the shape, and
        starts unfolded: see `pindown.networks`.
    preprocess : callable
        What is done to observations first: ``whiten``, ``standardise``, ``centre`` or ``nothing`` of
        `pindown.networks.preprocessing`. By default vectors are whitened, images and sequences standardised by channel.
    batch_size : int or None
        Pairs per step; None takes 512, or all if there are fewer. Under ``torchrun`` each process has a share of the
        data and takes so many pairs of it, and each pair is compared with those of all processes.
    max_iter : int or None
        Steps. None takes 2,000, and goes on in rounds twice as long while the loss still clearly falls, up to 32,000
        in all. A number of steps after which more would clearly help is warned of.
    learning_rate : float
        Of the optimiser, at the top of a cosine schedule.
    trainer : Trainer
        Weight decay (None: 2; for images 10,000 / n_samples, at most 2), optimizer, fraction of the samples to hold
        out, precision, checkpoint, callbacks …: see `pindown.training.Trainer`.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    encoder_ : torch.nn.Module
        The trained encoder.
    objective_ : torch.nn.Module
        What was minimised: maps samples and partners to the loss.
    folding_ : Folding
        Whether the encoder folds the data, so that different latents share a code: what `folding.find_folding` saw
        of the rows fitted to.
    temperature_ : float
        The temperature, given or learned.
    held_out_ : HeldOut or None
        The score on rows held out, with that on rows learned from and its chance; and whether the encoder stayed
        straight. None if no row was.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.

    Warns
    -----
    IdentifiabilityWarning
        If the encoder is folded or flat, so that different latents share a code.

    References
    ----------
    Zimmermann et al., Contrastive Learning Inverts the Data Generating Process, ICML 2021.

    Examples
    --------
    >>> from pindown.metrics import linear_r2
    >>> from pindown.simulate import Pairs
    >>> train, test = (Pairs.on_sphere(3, 10.0, random_state=0).sample(5_000, random_state=s) for s in (1, 2))
    >>> contrast = Contrast(3, max_iter=300, random_state=0).fit(train.x, train.x_pos)
    >>> linear_r2(test.x, test.z) < 0.95 < 0.99 < linear_r2(contrast.transform(test.x), test.z)
    True
    """

    spec = ContrastSpec()
    training_defaults = TrainingDefaults(min_weight_decay=2.0)

    def __init__(
        self,
        n_components: int = 2,
        *,
        space: Space = Sphere(),  # noqa: B008 (a frozen value)
        p: float = 2,
        temperature: float | None = None,
        alpha: float | None = None,
        any_marginal: bool = True,
        self_negatives: bool = False,
        encoder: Make = networks.default_network,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        batch_size: int | None = None,
        max_iter: int | None = None,
        learning_rate: float = 2e-3,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.space = space
        self.p = p
        self.temperature = temperature
        self.alpha = alpha
        self.any_marginal = any_marginal
        self.self_negatives = self_negatives
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
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if none covers these parameters."""
        if self.alpha not in (None, 0.5):
            return None
        if self.space == Sphere():
            return theory.CONTRAST_SPHERE if self.p == 2 else None
        if self.space == Reals():
            return theory.CONTRAST_METRIC if self.p == 2 else theory.CONTRAST_LP
        return None

    def fit(self, X, y=None, nuisance=None) -> Self:
        """Train the encoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, …), Data, or Source
            The observations: see `pindown.Data` and `pindown.data` for what they may be beside arrays.
        y : array, tensor or None
            Partners, an array like X; or groups, (n_samples,), whose rows are partners of each other; or None: each
            row's partner is the next row.
        nuisance : array of shape (n_samples,) or (n_samples, n_columns), optional
            A batch, a session, a body … Negatives are then taken from rows of the same value, so that to tell values
            apart is no help in telling partners. Codes are not *made* blind to it: for that, see `Forget`.
        """
        return self._fit(X, {"pairs": y, "nuisance": nuisance})

    def partial_fit(self, X, y=None, nuisance=None) -> Self:
        """Learn from more rows: go through them once, at the full learning rate. See `fit` for what they may be.

        After `fit`, or in an estimator that was loaded, it begins anew.

        The first lot settles the preprocessing, so let it be large enough to show mean and covariance.
        """
        return self._partial_fit(X, {"pairs": y, "nuisance": nuisance})

    def score(self, X, y=None) -> float:
        """Return the information between partners that the codes show, in nats: log n minus InfoNCE.

        A lower bound, at most ``log 4096`` since so many pairs are compared at once. Unrelated partners give 0 or
        less. On data not used in `fit` it says, without ground truth, whether anything was learned. With `alpha` it is
        the same, at the temperature that suits InfoNCE best on the first thousand pairs, because the weight of
        uniformity has moved the learned one; unrelated partners then give about 0.
        """
        check_is_fitted(self)
        if isinstance(X, Data):
            X = X.paired()
            X, y = X.X, self._side_variable(X, y)
        pairing = pair_up(self._validated(X, reset=False), None if y is None else as_array(y))
        generator = torch.Generator().manual_seed(0)
        # Neighbouring rows may be related, and related rows make poor negatives: compare rows from everywhere.
        shuffled = torch.randperm(len(pairing), generator=generator)
        x, x_pos = pairing.take(shuffled, generator)
        n_chunks = math.ceil(len(x) / SCORE_ROWS)
        objective = copy.deepcopy(self.objective_)
        assert isinstance(objective, PairObjective)
        precision = torch.float64 if is_cheap(self.encoder_) else torch.float32  # as `transform` has it
        objective.to(precision)
        device = self.encoder_.device

        def put(rows: Tensor) -> Tensor:
            return rows.to(device, precision)

        with torch.inference_mode():
            temperature = objective.temperature()
            if self.alpha is not None:
                temperature = best_temperature(objective, put(x[:TEMPERATURE_ROWS]), put(x_pos[:TEMPERATURE_ROWS]))
            information = [
                len(a) * (math.log(len(a)) - float(objective.infonce(put(a), put(b), temperature=temperature)))
                for a, b in zip(x.chunk(n_chunks), x_pos.chunk(n_chunks), strict=True)
            ]
        return sum(information) / len(x)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive(self.p, "p")
        check_scalar(self.p, "p", numbers.Real, min_val=1)
        if self.temperature is not None:
            check_positive(self.temperature, "temperature")
        if self.alpha is not None:
            check_scalar(self.alpha, "alpha", numbers.Real, min_val=0, max_val=1, include_boundaries="neither")
        if self.any_marginal and self.self_negatives:
            raise ValueError(
                "Contrast: self_negatives=True takes samples as negatives, and any_marginal=True corrects for the "
                "density of partners. Choose one: the paper's code is self_negatives=True, any_marginal=False."
            )
        if self.space not in (Sphere(), Reals()):
            raise ValueError(
                f"Contrast: space must be Sphere() or Reals(), got {self.space!r}. Codes of latents in a box live "
                "in Reals(): where the box lies is not identified."
            )

    def _space(self) -> Space:
        return self.space

    def _training_samples(self, inputs: TrainingInput, first: Preprocessing) -> TrainingInput:
        return preprocessed(first, inputs)

    def _diagnose(self, x: Tensor) -> None:
        if not warn_of_collapse(self, x):
            warn_if_uninformative(self, x)
        self.folding_ = folding_of(self, x)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        p = None if self.space == Sphere() and self.p == 2 else self.p
        potential = None
        if self.any_marginal:
            potential = networks.zero_network(encoder.preprocess.shape_out)
        return PairObjective(
            encoder,
            potential,
            p=p,
            temperature=self.temperature,
            alpha=self.alpha,
            self_negatives=self.self_negatives,
            across_processes=_this_process()[1] > 1,
        )

    def _with_more_latents(self, first: Preprocessing) -> Self | None:
        room = clone(self).set_params(n_components=WIDER * self.n_components)
        return room if is_image(first.shape_out) else None

    def _chance_loss(self, n_samples: float) -> float | None:
        return (
            math.log(min(self.batch_size or self.training_defaults.batch_size, n_samples))
            if self.alpha is None
            else None
        )

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> DataSummary:
        if inputs.source is not None and "pairs" not in inputs.data.side_variables:
            raise ValueError(f"Contrast learns from pairs, but {inputs.source_name} has no partners.")
        if inputs.source is not None and inputs.data.nuisance is not None:
            raise ValueError(
                "Contrast: with a nuisance negatives are taken from rows of the same value, so that rows must be taken "
                "in any order, but the source is a stream. Give arrays, a memory map, or a Dataset."
            )
        d = self._requested_components()
        doubts: tuple[str, ...] = ()
        if self.space == Sphere() and d == 1:
            doubts = (
                "n_components=1 on the sphere leaves only the two points −1 and 1. "
                "Use space=Reals(), or n_components=2 for an angle.",
            )
        return DataSummary(d, warnings=doubts)

    def _fields(self, summary: DataSummary, sides: dict[str, Any]) -> tuple[Any, ...]:
        return (sides["pairs"],)

    def _samples(self, data: Data, summary: DataSummary, device: torch.device) -> Pairing:
        pairing = pair_up(data.X, data.pairs, device, groups=data.groups, among=summary.rows)
        if summary.rows is None:
            self._samples_per_batch(len(pairing), "pairs", of=len(pairing))
        index, n_processes = _this_process()
        share = _share(pairing, index, n_processes)
        if len(share) < (self.batch_size or 1) and summary.rows is None:
            raise ValueError(
                f"Contrast: of {len(pairing)} pairs {len(share)} fall to each of {n_processes} processes, too few for "
                f"batch_size={self.batch_size}. Leave it at None to take what fits, or start fewer processes."
            )
        return share

    def _epochs(self, rows: Pairing, batch_size: int, data: Data) -> ShuffledBatches | BatchesWithinLevels:
        if data.nuisance is None:
            return ShuffledBatches(rows, batch_size)
        values = combined(*np.atleast_2d(data.nuisance.T))
        return BatchesWithinLevels(rows, batch_size, values[rows.anchors.cpu().numpy()])

    def _store(self, objective: nn.Module, summary: DataSummary) -> None:
        assert isinstance(objective, PairObjective)
        with torch.no_grad():
            self.temperature_ = float(objective.temperature())
        self._warn_if_nothing_held_the_scale()

    def _warn_if_nothing_held_the_scale(self) -> None:
        if self.alpha is None or self.self_negatives or (self.space == Sphere() and self.temperature is not None):
            return
        # Where no common scale of the distances makes the loss smaller, (1 − α) E δ⁺ = α E Σ w_j δ_j with the weights
        # w of the n − 1 negatives in the log-sum-exp, and the loss is −α (log(n − 1) − E H(w)), H the entropy.
        n = (self.batch_size or self.training_defaults.batch_size) * _this_process()[1]
        loss, least = float(np.mean(self.loss_curve_[-25:])), -self.alpha * math.log(n - 1)
        if loss < least:
            warn(
                f"Contrast: with alpha={self.alpha} the loss fell to {loss:.3g}, below {least:.3g}, the least at which "
                f"distances can settle among {n} samples: partners are nearer than all negatives, and temperature or "
                "codes run away. Take a larger batch_size, a smaller alpha, or, where this cannot happen, "
                "self_negatives=True with any_marginal=False, or alpha=None."
            )


def _this_process() -> tuple[int, int]:
    """Return which process of a training this is, and of how many."""
    accelerator = processes()
    return accelerator.process_index, accelerator.num_processes


def _share(pairing: Pairing, index: int, n_processes: int) -> Pairing:
    """Return every n-th anchor, so that no process meets among its negatives a sample of its own."""
    n = len(pairing) // n_processes * n_processes  # the same number for all
    per_anchor = ("anchors", "start", "skip", "size", "choices")
    return replace(pairing, **{name: getattr(pairing, name)[index:n:n_processes] for name in per_anchor})
