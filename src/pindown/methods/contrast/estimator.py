"""`Contrast`: recover latents from pairs of related samples."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import theory
from pindown._names import counted
from pindown.data.batches import BatchesWithinLevels, Pairing, ShuffledBatches, pair_up
from pindown.data.data import Data, as_array
from pindown.data.labels import combined
from pindown.errors import warn
from pindown.methods.base import Incremental
from pindown.methods.contrast.audit import SCORE_PAIRS, ContrastSpec
from pindown.methods.contrast.objective import (
    WIDEST,
    PairLoss,
    PairObjective,
    best_temperature,
    start_at_shared_directions,
)
from pindown.methods.diagnosis import (
    CHECKED_SAMPLES,
    ENOUGH_STEPS,
    check_folding,
    intrinsic_dimension,
    linear_information,
    warn_if_uninformative,
    warn_of_collapse,
)
from pindown.methods.fitting import Trained, Training, batch_size_of
from pindown.methods.inputs import ArrayOrTensor, DataLike, DataSummary, Prepared, TrainingInput, preprocessed
from pindown.methods.parameters import check_positive_number
from pindown.metrics.arrays import Matrix
from pindown.networks import SkipMLP, preprocessing
from pindown.networks.encoder import Encoder, Make, is_cheap
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.networks.spaces import Reals, Space, Sphere
from pindown.training import TrainingDefaults, TrainingLog, processes

TEMPERATURE_PAIRS = 1_024
"""Number of pairs by which `score` chooses a temperature, if the learned one is not that of InfoNCE."""

OVERLAPPING, CLEARLY = 0.9, 0.1
"""Fraction of shifted values that agree from which on samples are windows; nats by which linear latents are better."""

WIDER, WIDE_STEPS, MIN_STEPS, MAX_STARTS = 3, 5, 200, 3
"""Factor by which the number of latents is increased; the widened encoder is trained for so many times fewer steps;
number of steps below which a fit is too short to be checked; maximum number of starts."""

GAIN = 0.15
"""The encoder was folded if more latents lower the loss by so many nats: a folded or lost latent costs half a nat."""

SMALL, LAST = 0.1, 100
"""Size of the weights of new latents, relative to the others: from zero they would not start to grow; number of steps
at the end whose mean loss counts, where samples are always new."""


@dataclass(eq=False, repr=False)
class Contrast(Incremental):
    r"""Recover latents from pairs of related samples, by distinguishing positives from negatives (InfoNCE).

    If samples are :math:`x = g(z)` with injective g, z is uniform on the sphere, and the latent of the positive follows
    :math:`p(\tilde z | z) \propto e^{\kappa z^\top \tilde z}`, then the minimiser is z up to a rotation. In
    :math:`\mathbb R^d` with :math:`p(\tilde z | z) \propto e^{-\lambda \lVert \tilde z - z \rVert_p^p}` it is z up to
    an affine map, and for p ≠ 2 up to order, sign and one common scale. `guarantee` is the theorem that applies.

    Parameters
    ----------
    n_components : int or None
        Number of latents. None takes as many as there are directions of X above the noise.
    space : Space
        The latent space: ``Sphere()`` or ``Reals()``. For latents in a box use ``Reals()``. The space of a single
        latent is always the real line.
    p : float
        The similarity of latents is −‖·‖_p^p. On the sphere p = 2 is the dot product.
    temperature : float or None
        Divides the similarity. None learns it. On the sphere its inverse then estimates the concentration κ; the
        estimate is too low if κ is so large that positives are nearer than all negatives of a batch.
    loss : PairLoss
        Options of the loss: alignment and uniformity in place of InfoNCE, the correction for latents that are not
        uniform, samples as their own negatives: see `pindown.methods.PairLoss`.
    encoder : callable or None
        Called as ``encoder(n_features, n_components)``, with the shape of a sample in place of ``n_features`` for
        images and sequences; returns a module. Or a module, of which a copy is trained. None chooses one by the shape,
        with a linear skip path: see `pindown.networks`.
    preprocess : callable
        Preprocessing of the observations: ``whiten``, ``standardise``, ``centre`` or ``nothing`` of
        `pindown.networks.preprocessing`. By default vectors are whitened, images and sequences standardised by channel.
    batch_size : int or None
        Pairs per step; None takes 512, or all if there are fewer. Under ``torchrun`` each process has a part of the
        data and takes this many pairs of it; each pair is compared with those of all processes.
    learning_rate : float
        Learning rate at the top of a cosine schedule.
    max_iter, trainer, device, verbose, random_state
        See `pindown.training.TrainingParameters`. The default weight decay is 2; for images 10,000 / n_samples, at
        most 2.

    Attributes
    ----------
    encoder_ : torch.nn.Module
        The trained encoder.
    objective_ : torch.nn.Module
        What was minimised: maps samples and positives to the loss.
    folding_ : Folding
        Whether the encoder is injective on samples of the training data: see `networks.folding.find_folding`.
    temperature_ : float
        The temperature, given or learned.
    held_out_ : HeldOut or None
        The score on held-out samples, on training samples, and at chance; and whether a linear encoder was kept. None
        if no sample was held out.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Number of steps that led to the weights that were kept.

    Warns
    -----
    IdentifiabilityWarning
        If the encoder is folded or flat, so that different samples have the same latents; if linear latents have more
        information about held-out positives; if samples without ``y`` are windows that overlap.

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

    n_components: int | None = 2
    _: KW_ONLY
    space: Space = Sphere()  # noqa: RUF009 (a frozen value)
    p: float = 2
    temperature: float | None = None
    loss: PairLoss = PairLoss()  # noqa: RUF009
    encoder: Make | None = None
    preprocess: Preprocess = preprocessing.default_preprocessing
    learning_rate: float | None = 2e-3

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if none covers these parameters."""
        if self.loss.alpha not in (None, 0.5):
            return None
        d = getattr(self, "n_components_", None) if self.n_components is None else self.n_components
        if self._space(d) == Sphere():
            return theory.CONTRAST_SPHERE if self.p == 2 else None
        return theory.CONTRAST_METRIC if self.p == 2 else theory.CONTRAST_LP

    def fit(self, X: DataLike, y: ArrayOrTensor | None = None, nuisance: ArrayOrTensor | None = None) -> Self:
        """Train the encoder.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, …), Data, or Source
            The observations: see `pindown.Data` and `pindown.data` for other sources of samples than arrays.
        y : array, tensor or None
            Positives, an array like X; or groups, (n_samples,), whose samples are positives of each other; or None:
            the positive of each sample is the next one.
        nuisance : array of shape (n_samples,) or (n_samples, n_columns), optional
            A batch, a session, a body … Negatives are then taken from samples of the same level, so that
            distinguishing levels does not lower the loss. The latents are not *made* invariant to it: for that, see
            `Forget`.
        """
        return self._fit(X, {"pairs": y, "nuisance": nuisance})

    def partial_fit(self, X: DataLike, y: ArrayOrTensor | None = None, nuisance: ArrayOrTensor | None = None) -> Self:
        """Train on more samples: one pass at the full learning rate. See `fit` for what they may be.

        The first call decides the preprocessing, so that it should have enough samples to estimate a covariance. After
        `fit`, or on an estimator that was loaded, training starts again.
        """
        return self._partial_fit(X, {"pairs": y, "nuisance": nuisance})

    def score(self, X: ArrayOrTensor | Data, y: ArrayOrTensor | None = None) -> float:
        """Return a lower bound on the information between positives, in nats: log n minus InfoNCE.

        It is at most ``log 4096``, the number of pairs that are compared with each other. Unrelated pairs give 0 or
        less. On data not used in `fit` it shows, without ground truth, whether anything was learned. With
        ``loss.alpha`` the temperature is the best one for the first thousand pairs.
        """
        check_is_fitted(self)
        if isinstance(X, Data):
            data = X.paired()
            X, y = data.X, data.pairs if y is None else y
        pairing = pair_up(self._validated(X, reset=False), None if y is None else as_array(y))
        generator = torch.Generator().manual_seed(0)
        # Neighbouring samples may be related, and then make poor negatives: compare samples from everywhere.
        shuffled = torch.randperm(len(pairing), generator=generator)
        x, x_pos = pairing.take(shuffled, generator)
        n_chunks = math.ceil(len(x) / SCORE_PAIRS)
        precision = torch.float64 if is_cheap(self.encoder_) else torch.float32  # as `transform` has it
        objective = copy.deepcopy(self.objective_).to(precision)
        assert isinstance(objective, PairObjective)
        put, information = partial(torch.Tensor.to, device=self.encoder_.device, dtype=precision), 0.0
        with torch.inference_mode():
            temperature = objective.temperature()
            if self.loss.alpha is not None:
                temperature = best_temperature(objective, put(x[:TEMPERATURE_PAIRS]), put(x_pos[:TEMPERATURE_PAIRS]))
            for a, b in zip(x.chunk(n_chunks), x_pos.chunk(n_chunks), strict=True):
                loss = float(objective.infonce(put(a), put(b), temperature=temperature))
                information += len(a) * (math.log(len(a)) - loss)
        return information / len(x)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive_number(self.p, "p")
        check_scalar(self.p, "p", numbers.Real, min_val=1)
        if self.temperature is not None:
            check_positive_number(self.temperature, "temperature")
        if not isinstance(self.loss, PairLoss):
            raise TypeError(f"Contrast: loss must be a PairLoss(…), got {self.loss!r}.")
        self.loss.check()
        if self.space not in (Sphere(), Reals()):
            raise ValueError(
                f"Contrast: space must be Sphere() or Reals(), got {self.space!r}. For latents in a box take Reals(): "
                "where the box lies is not identified."
            )

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> DataSummary:
        if inputs.source is not None and "pairs" not in inputs.data.side_variables:
            raise ValueError(f"Contrast needs positives, but {type(inputs.source).__name__} has none.")
        if inputs.source is not None and inputs.data.nuisance is not None:
            raise ValueError(
                "Contrast: with a nuisance, negatives are taken from samples of the same level, which needs an index, "
                "but the source is a stream. Give arrays, a memory map, or a Dataset."
            )
        summary = self._counted_components(inputs, preprocessing)
        if inputs.source is not None or len(preprocessing.shape_in) > 2 or inputs.data.is_source:
            return summary
        X, by_order = inputs.data.X, inputs.data.pairs is None or isinstance(inputs.data.pairs, str)
        if by_order and (shared := shared_frames(X)):
            windows = (
                f"the next sample is the positive, and has {shared:.0%} of the sample's values: these are windows that "
                "overlap. What both contain, noise too, distinguishes positives from negatives. Give positives that "
                "have no values in common: windows that do not overlap."
            )
            summary = replace(summary, warnings=(windows,))
        # In a series, and in groups of positives, the nearest neighbours are neighbours in time, or of one group.
        if self.n_components is None and X.ndim == 2 and np.ndim(inputs.data.pairs) > 1:
            near = intrinsic_dimension(preprocessing(torch.as_tensor(X[: 5 * CHECKED_SAMPLES])).double().numpy())
            wanted = max(1, round(near)) + (self.space == Sphere() and near >= 1.5)
            if wanted <= summary.n_components / 3:
                dimensions = f"neighbouring samples differ in about {counted(max(1, round(near)), 'dimension')}"
                note = f"{dimensions}, though the data vary in {counted(summary.n_components, 'direction')}."
                summary = replace(summary, n_components=wanted, notes=(note,))
        return summary

    def _space(self, n_components: int | None) -> Space:
        return Reals() if n_components == 1 else self.space

    def _training_samples(self, inputs: TrainingInput, preprocessing: Preprocessing) -> TrainingInput:
        return preprocessed(preprocessing, inputs)

    def _targets(self, summary: DataSummary, sides: Mapping[str, Any]) -> tuple[object, ...]:
        return (sides["pairs"],)

    def _samples(self, data: Data, summary: DataSummary, device: torch.device) -> Pairing:
        pairing = pair_up(data.X, data.pairs, device, groups=data.groups, among=summary.train_indices)
        if summary.train_indices is None:
            batch_size_of(self, len(pairing), "pairs", of=len(pairing))
        index, n_processes = _this_process()
        mine = _part_of_process(pairing, index, n_processes)
        if len(mine) < (self.batch_size or 1) and summary.train_indices is None:
            raise ValueError(
                f"Contrast: batch_size={self.batch_size} is larger than the {len(mine)} of {len(pairing)} pairs that "
                f"each of {n_processes} processes has. Leave it at None, or start fewer processes."
            )
        return mine

    def _batches(self, rows: Pairing, batch_size: int, data: Data) -> ShuffledBatches | BatchesWithinLevels:
        if data.nuisance is None:
            return ShuffledBatches(rows, batch_size)
        levels = combined(*np.atleast_2d(data.nuisance.T))
        return BatchesWithinLevels(rows, batch_size, levels[rows.anchors.cpu().numpy()])

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        start_at_shared_directions(encoder, batches)
        p = None if encoder.space == Sphere() and self.p == 2 else self.p
        return self.loss(encoder, p=p, temperature=self.temperature, across_processes=_this_process()[1] > 1)

    def _chance_loss(self, n_samples: float) -> float | None:
        if self.loss.alpha is not None:
            return None
        return math.log(min(self.batch_size or self.training_defaults.batch_size, n_samples))

    def _optimise(self, training: Training, seed: int) -> Trained:
        if training.step_plan is None and is_image(training.prepared.preprocessing.shape_out):
            return train_with_restarts(training, seed)
        return super()._optimise(training, seed)

    def _store(self, trained: Trained) -> None:
        assert isinstance(trained.objective, PairObjective)
        with torch.no_grad():
            self.temperature_ = float(trained.objective.temperature())

    def _diagnose(self, x: Tensor) -> None:
        self._warn_if_unbounded()
        if not warn_of_collapse(self, x):
            warn_if_uninformative(self, x)
        self.folding_ = check_folding(self, x)

    def _compare(self, prepared: Prepared) -> None:
        """Warn if linear latents have more information about held-out positives."""
        data, splits, found = prepared.inputs.data, prepared.inputs.splits, self.held_out_
        if found is None or data.is_source or data.X.ndim > 2 or data.nuisance is not None:
            return
        if (self.max_iter or ENOUGH_STEPS) < ENOUGH_STEPS or prepared.preprocessing.shape_out[0] > WIDEST:
            return

        def pairs(indices: NDArray[np.int64]) -> list[Matrix]:
            pairing = pair_up(data.X, data.pairs, groups=data.groups, among=indices)
            both = pairing.take(torch.arange(len(pairing))[:SCORE_PAIRS], torch.Generator().manual_seed(0))
            return [prepared.preprocessing(part).double().numpy() for part in both]

        nats = [linear_information(pairs(s.learned), pairs(s.held_out), self.n_components_) for s in splits]
        linear = float(np.average(nats, weights=[len(split.held_out) for split in splits]))
        if linear > found.score + CLEARLY:
            d, remedy = self.n_components_, "Try another random_state, or a smaller learning_rate."
            if self.encoder_.space == Sphere():
                has = counted(d - 1, "dimension")
                remedy = f"On the sphere {d} components have {has}: take space=Reals(), or one more."
            warn(
                f"Contrast: on held-out samples linear latents in ℝ^{d} have {linear:.2f} nats of information about "
                f"positives, more than these latents ({found.score:.2f}). {remedy}"
            )

    def _warn_if_unbounded(self) -> None:
        alpha, has_scale = self.loss.alpha, self.encoder_.space != Sphere() or self.temperature is None
        if alpha is None or self.loss.self_negatives or not has_scale:
            return
        # Where no common scale of the distances makes the loss smaller, (1 − α) E δ⁺ = α E Σ w_j δ_j with the weights
        # w of the n − 1 negatives in the log-sum-exp, and the loss is −α (log(n − 1) − E H(w)), H the entropy.
        n = (self.batch_size or self.training_defaults.batch_size) * _this_process()[1]
        loss, minimum = float(np.mean(self.loss_curve_[-25:])), -alpha * math.log(n - 1)
        if loss < minimum:
            warn(
                f"Contrast: with alpha={alpha} the loss fell to {loss:.3g}, but at a finite scale it is at least "
                f"{minimum:.3g} with {n} samples: positives are nearer than all negatives, and the temperature or the "
                "latents diverge. Take a larger batch_size, a smaller alpha, or, where this cannot happen, "
                "PairLoss(alpha, self_negatives=True, any_marginal=False), or alpha=None."
            )


def shared_frames(X: NDArray[np.floating]) -> float:
    """Return the fraction of its values that each sample shares with the next, shifted as in a window; 0 if none."""
    flat = X.reshape(len(X), -1)
    some = np.linspace(0, len(X) - 2, 50).astype(np.int64)
    before, after, p = flat[some], flat[some + 1], flat.shape[1]
    if (before == after).mean() > 0.5:  # mostly zeros, say
        return 0.0
    shifts = np.flatnonzero((before == after[:, :1]).mean(0) > OVERLAPPING)
    same = (k for k in shifts if k and (before[:, k:] == after[:, : p - k]).mean() > OVERLAPPING)
    return 1 - next(same, p) / p


def _this_process() -> tuple[int, int]:
    """Return the index of this process, and the number of processes."""
    accelerator = processes()
    return accelerator.process_index, accelerator.num_processes


def _part_of_process(pairing: Pairing, index: int, n_processes: int) -> Pairing:
    """Return every n-th anchor, so that no pair is in two processes."""
    n = len(pairing) // n_processes * n_processes  # the same number for all
    per_anchor = ("anchors", "start", "skip", "size", "choices")
    return replace(pairing, **{name: getattr(pairing, name)[index:n:n_processes] for name in per_anchor})


# ---- restarts on images -------------------------------------------------------------------------------------------


def final_loss(log: TrainingLog) -> float:
    """Return the loss at the end: of the validation set, or of the last steps if samples are always new."""
    return log.validation_loss if log.held_out else float(np.mean(log.loss_curve[-LAST:]))


@torch.no_grad()
def widen(narrow: nn.Module, wide: nn.Module) -> None:
    """Copy the weights of a network, and of all around it, into one with more latents; in place."""
    theirs = wide.state_dict()
    for name, ours in narrow.state_dict().items():
        if theirs[name].shape == ours.shape:
            theirs[name].copy_(ours)
        else:
            theirs[name].mul_(SMALL)[: len(ours)] = ours


def train_with_restarts(training: Training, seed: int) -> Trained:
    """Return the best start of a training on images, which restarts while more latents would lower the loss.

    The loss of an encoder that is folded, or has lost a latent, stays on a plateau however long it is trained. With
    more latents there is room to be injective: if the loss then clearly falls, training restarts from another seed.
    """
    est, n_wide = training.est, WIDER * training.summary.n_components
    objective = training.new_objective(seed)
    found = [training.trained(objective, training.minimise(objective, seed))]
    for number in range(2, MAX_STARTS + 1):
        objective, log = found[-1].objective, found[-1].log
        assert isinstance(objective.encoder, Encoder)
        widens = isinstance(objective.encoder.body, SkipMLP)  # its outputs are sums of linear layers
        if not widens or log.n_iter < MIN_STEPS or log.shortfall:
            break  # where more steps would help, more latents would seem to
        wide = training.new_objective(seed + number, n_wide).to(training.prepared.device)
        widen(objective, wide)
        wide_log = training.minimise(wide, seed, f"wide {number}", max(1, est._n_steps // WIDE_STEPS))
        gain = final_loss(log) - final_loss(wide_log)
        if gain <= GAIN:
            break
        warn(
            f"{type(est).__name__}: the encoder is folded, or has lost a latent: {WIDER} times as many latents lower "
            f"the loss by {gain:.2f} nats. Training restarts: start {number} of at most {MAX_STARTS}. If all starts "
            "end so, ask for more latents."
        )
        objective = training.new_objective(seed + number)
        found.append(training.trained(objective, training.minimise(objective, seed + number, f"start {number}")))
    return min(found, key=lambda each: final_loss(each.log))
