"""`Classify`: recover latents from labels, or from instance ids, that are signal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import theory
from pindown._names import counted
from pindown.data.batches import Augment
from pindown.data.data import Data, as_array, from_torch
from pindown.errors import warn
from pindown.losses import cross_entropy
from pindown.methods.base import Incremental
from pindown.methods.classify.audit import ClassifySpec
from pindown.methods.classify.classes import ClassSummary, read_classes, spanned, start_at_means
from pindown.methods.fitting import Trained
from pindown.methods.inputs import ArrayOrTensor, DataLike, Encoded, TrainingInput, preprocessed
from pindown.methods.parameters import check_positive_number
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder, Make
from pindown.networks.preprocessing import SAMPLES_PER_FEATURE, Preprocess, Preprocessing
from pindown.networks.spaces import Reals, Space, Sphere
from pindown.simulate import Process

PREDICT_ENTRIES, COUNTED_NUMBERS = 1 << 22, 1 << 25
"""Number of logits held at once in `predict`; maximum size of the array by which latents are counted."""

SHORT = 0.02  # size of the entries of class vectors at initialisation

FLAT = 0.15
"""A direction counts as a dimension of the class vectors if their spread along it, relative to the largest, is at least
this. Where the true vectors lie in a hyperplane, learned ones of unit norm had .02 to .11, free ones up to .4, so that
these may pass unnoticed. Of twice as many uniform classes as latents, one draw in thirty has less."""


@dataclass(eq=False, repr=False)
class Classify(ClassifierMixin, Incremental):
    r"""Recover latents from labels that are signal, by classification (cross-entropy).

    If samples are :math:`x = g(z)` with injective g, the latents of class c follow :math:`\mathrm{vMF}(v_c, \kappa)`,
    and the class vectors lie in no affine hyperplane, then the minimiser of the cross-entropy of
    :math:`\mathrm{softmax}_c(\beta\, w_c^\top f(x) + \log \pi_c)` is z, up to a map that depends on what is kept at
    unit norm:

    ===================  ===================  ==============================  ==================================
    ``space``            ``vector_space``     latents f(x)                     class vectors w_c
    ===================  ===================  ==============================  ==================================
    ``Sphere()``         ``Sphere()``         Q z, Q orthogonal               Q v_c; and β = κ
    ``Sphere()``         ``Reals()``          Q z                             (κ/β) Q v_c + t
    ``Reals()``          either               A z, A invertible               (κ/β) A⁻ᵀ v_c + t
    ===================  ===================  ==============================  ==================================

    The priors π_c are the frequencies of the classes, which therefore need not be equal. `guarantee` is the theorem
    that applies. A label may also be an instance: then all its views have one id, in ``y``, or ``augment`` makes them
    (DIET), and ``class_vectors_`` of instances of one class agree.

    Parameters
    ----------
    n_components : int or None
        Number of latents. None takes as many as labels can identify: one less than there are classes, and at most the
        number of directions of X above the noise. With fewer than a hundred samples per feature it takes as many as
        the class means span, which after a nonlinear mixing may be fewer than there are latents.
    space : Space
        The latent space: ``Sphere()`` or ``Reals()``. The space of a single latent is always the real line.
    vector_space : Space
        The space of the class vectors: ``Sphere()`` or ``Reals()``; with a single latent the real line.
    scale : float or None
        The factor β. None learns it; with latents and class vectors on the sphere it then estimates the concentration
        κ, the only value for which the model can be exact.
    augment : callable or None
        Called as ``augment(x, generator)`` with a batch (n, n_features) and the only source of randomness it may use,
        returns another view of each sample. With it ``y=None`` means that each sample is a class of its own.
    encoder
        See `Contrast`.
    preprocess : callable
        Preprocessing of the observations: see `Contrast`. The default is the same, except that with few samples faint
        directions are scaled up less: see `preprocessing.tempered`.
    learning_rate : float or None
        Learning rate at the top of a cosine schedule. None takes .01, or .003 for vectors with fewer than a hundred
        samples per feature.
    batch_size, max_iter, trainer, device, verbose, random_state
        See `pindown.training.TrainingParameters`. By default 512 samples per step, and a weight decay of
        10,000 / n_samples, at most 2.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; without labels the numbers of the samples.
    class_vectors_ : ndarray of shape (n_classes, n_components)
        One vector per class, in the coordinates of the latents.
    class_prior_ : ndarray of shape (n_classes,)
        The frequency of each class.
    scale_ : float
        The factor β, given or learned.
    encoder_, objective_, held_out_, loss_curve_, n_iter_
        See `Contrast`; the objective maps samples and the numbers of their classes to the loss.

    Warns
    -----
    IdentifiabilityWarning
        If the theorem cannot apply to these labels: there are no more classes than latents, a class has a single
        sample, or the learned class vectors lie near a hyperplane.

    References
    ----------
    Reizinger et al., Cross-Entropy Is All You Need To Invert the Data Generating Process, 2024.

    Examples
    --------
    >>> from pindown.metrics import linear_r2
    >>> from pindown.simulate import Clusters
    >>> simulation = Clusters.on_sphere(3, 20, 10.0, random_state=0)
    >>> train, test = (simulation.sample(5_000, random_state=s) for s in (1, 2))
    >>> classify = Classify(3, max_iter=300, random_state=0).fit(train.x, train.u)
    >>> linear_r2(test.x, test.z) < 0.95 < 0.98 < linear_r2(classify.transform(test.x), test.z)
    True
    """

    spec = ClassifySpec()

    n_components: int | None = None
    _: KW_ONLY
    space: Space = Sphere()  # noqa: RUF009 (a frozen value)
    vector_space: Space = Sphere()  # noqa: RUF009
    scale: float | None = None
    augment: Augment | None = None
    encoder: Make | None = None
    preprocess: Preprocess = preprocessing.tempered
    learning_rate: float | None = None

    @property
    def guarantee(self) -> theory.Theorem:
        """The theorem that applies if the data meet its assumptions."""
        d = getattr(self, "n_components_", None) if self.n_components is None else self.n_components
        space, vector_space = self._spaces(d)
        if space != Sphere():
            return theory.CLASSIFY_FREE
        return theory.CLASSIFY_NORMALISED if vector_space == Sphere() else theory.CLASSIFY_UNIT_FEATURES

    def _spaces(self, n_components: int | None) -> tuple[Space, Space]:
        """Return the spaces of latents and class vectors: the real line for a single latent."""
        return (Reals(), Reals()) if n_components == 1 else (self.space, self.vector_space)

    def partial_fit(self, X: DataLike, y: ArrayOrTensor | None = None, classes: ArrayOrTensor | None = None) -> Self:
        """Train on more samples: one pass at the full learning rate.

        After `fit`, or on an estimator that was loaded, training starts again.

        Parameters
        ----------
        X, y
            See `fit`. The first call decides the preprocessing.
        classes : array of shape (n_classes,), optional
            All labels of this and later calls, assumed equally frequent; by default those of the first call.
        """

        def with_classes(summary: ClassSummary) -> ClassSummary:
            if classes is None:
                return summary
            all_classes = np.unique(as_array(classes))
            if len(missing := np.setdiff1d(summary.classes, all_classes)):
                raise ValueError(f"Classify: classes must have all classes of y, but lacks {missing[:5].tolist()}.")
            return replace(summary, classes=all_classes, prior=np.full(len(all_classes), 1 / len(all_classes)))

        return self._partial_fit(X, {"signal": y}, with_classes)

    def predict_proba(self, X: ArrayOrTensor | Data) -> Encoded:
        """Return the probability of each class; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        array = self._validated(X, reset=False)
        return self._like(X, array, self._scores(self._encode(torch.as_tensor(array))).softmax(1))

    def predict(self, X: ArrayOrTensor | Data) -> np.ndarray:
        """Return the most probable class of each sample; after a fit without ``y``, the number of a training sample."""
        check_is_fitted(self)
        z = self._encode(torch.as_tensor(self._validated(X, reset=False)))
        at_once = max(1, PREDICT_ENTRIES // len(self.classes_))
        best = torch.cat([self._scores(some).argmax(1) for some in z.split(at_once)])
        return self.classes_[best.cpu().numpy()]

    def score(
        self, X: ArrayOrTensor | Data, y: ArrayOrTensor | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the accuracy of `predict`.

        Labels that were not in the training data count as errors. After a fit without ``y`` the labels are the numbers
        of the samples, and ``y=None`` means 0, 1, 2, …
        """
        predicted = self.predict(X)
        y = X.signal if y is None and isinstance(X, Data) else y
        if y is None and self.augment is not None:
            y = np.arange(len(predicted))
        if y is None:
            raise ValueError(
                "Classify: score needs labels, but y is None. Give score(X, y), or score(Data(X, signal=y))."
            )
        return float(accuracy_score(from_torch(y), predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.augment is None
        return tags

    def _scores(self, z: Tensor) -> Tensor:
        """Return log p(c | x) up to a number per sample; (n, n_components) to (n, n_classes)."""
        vectors, prior = (torch.as_tensor(a).to(z) for a in (self.class_vectors_, self.class_prior_))
        return torch.addmm(prior.log(), z, vectors.T, alpha=self.scale_)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.scale is not None:
            check_positive_number(self.scale, "scale")
        for name in ("space", "vector_space"):
            if getattr(self, name) not in (Sphere(), Reals()):
                raise ValueError(f"Classify: {name} must be Sphere() or Reals(), got {getattr(self, name)!r}.")
        if self.augment is not None and not callable(self.augment):
            raise TypeError(
                f"Classify: augment must be a function (x, generator) -> another view of x, got {self.augment!r}."
            )

    def _space(self, n_components: int) -> Space:
        return self._spaces(n_components)[0]

    def _training_samples(self, inputs: TrainingInput, preprocessing: Preprocessing) -> TrainingInput:
        return preprocessed(preprocessing, inputs) if self.augment is None else inputs

    def _check_inputs(self, inputs: TrainingInput) -> None:
        if inputs.source is not None and inputs.data.signal is None:
            raise ValueError(
                f"Classify: {type(inputs.source).__name__} has no labels that are signal. Give a simulation of "
                "Clusters or Instances, or a source of (x, label)."
            )
        if isinstance(inputs.source, Process) and inputs.source.prior is not None:
            return  # the classes are known
        read_classes(inputs.data.signal, len(inputs.data), augmented=self.augment is not None)

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> ClassSummary:
        source, data = inputs.source, inputs.data
        known = source.prior if isinstance(source, Process) else None
        reasons: tuple[str, ...] = ()
        if known is not None:  # the classes of a simulation are known, but a sample may lack some
            classes, prior = np.arange(len(known)), known
        else:
            (classes, _, counts), reasons = read_classes(data.signal, len(data), augmented=self.augment is not None)
            prior = counts / counts.sum()
        d, notes = self._counted(inputs, preprocessing, len(classes))
        if len(classes) <= d:
            reasons += (
                f"{len(classes)} classes cannot identify {counted(d, 'latent')}: at least {d + 1} in general position "
                "are needed. Give more classes, or ask for fewer latents.",
            )
        # From random directions of the data an encoder may fold, and stay so.
        return ClassSummary(
            d,
            warnings=reasons,
            notes=notes,
            classes=classes,
            prior=prior,
            by_number=known is not None,
            from_means=source is None and self.augment is None,
        )

    def _counted(
        self, inputs: TrainingInput, preprocessing: Preprocessing, n_classes: int
    ) -> tuple[int, tuple[str, ...]]:
        """Return the number of latents as requested, or how many the labels can identify, and why."""
        if self.n_components is not None:
            return self._requested_components(), ()
        data, n_features = inputs.data, math.prod(preprocessing.shape_in)
        if data.signal is None:
            raise ValueError(
                "Classify: n_components=None counts latents by labels, and there are none. Give n_components."
            )
        most = max(1, min(math.prod(preprocessing.shape_out), n_classes - 1))
        if inputs.n_samples >= SAMPLES_PER_FEATURE * n_features:
            return most, (
                f"{n_classes} classes identify at most {counted(n_classes - 1, 'latent')}, and X has "
                f"{counted(math.prod(preprocessing.shape_out), 'direction')} above the noise.",
            )
        rows = inputs.splits[0].learned if len(inputs.splits) == 1 else np.arange(len(data))
        rows = rows[:: -(-len(rows) * n_features // COUNTED_NUMBERS)]
        found = spanned(np.asarray(data.X[rows]).reshape(len(rows), -1), np.reshape(data.signal, -1)[rows])
        found_of = "so many latents" if found else "a single latent is fitted"
        return min(max(1, found), most), (
            f"the means of {n_classes} classes span {counted(found, 'dimension')}: {found_of}.",
        )

    def _targets(self, summary: ClassSummary, sides: Mapping[str, Any]) -> tuple[object, ...]:
        signal = sides.get("signal")
        numbers = np.arange(len(summary.classes)) if signal is None else signal
        return (numbers if signal is None or summary.by_number else summary.numbers(signal),)

    def _objective(self, encoder: Encoder, summary: ClassSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        means = start_at_means(encoder, batches, len(summary.classes)) if summary.from_means else None
        # Equal offsets cancel in the softmax.
        balanced = np.ptp(summary.prior) <= 1e-9 * summary.prior.max()
        offsets = None if balanced else torch.as_tensor(np.log(summary.prior), dtype=torch.float32)
        shape = len(summary.classes), summary.n_components
        objective = ClassifyObjective(encoder, self._spaces(shape[1])[1], self.scale, offsets, shape)
        if means is not None:
            objective.start_at(means)
        return objective

    def _store(self, trained: Trained) -> None:
        objective, summary = trained.objective, trained.summary
        assert isinstance(objective, ClassifyObjective)
        assert isinstance(summary, ClassSummary)
        self.classes_, self.class_prior_ = summary.classes, summary.prior
        with torch.no_grad():
            self.class_vectors_ = objective.vectors().cpu().numpy()
            self.scale_ = float(objective.scale())

    def _diagnose(self, x: Tensor) -> None:
        super()._diagnose(x)
        sizes = np.linalg.svd(self.class_vectors_ - self.class_vectors_.mean(0), compute_uv=False)
        rank = int((sizes > FLAT * sizes[0]).sum())
        least = sizes[-1] / (sizes[0] or 1)
        if rank < self.n_components_ < len(self.classes_):
            warn(
                f"Classify: the {len(self.classes_)} learned class vectors lie near an affine subspace of "
                f"{counted(rank, 'dimension')}, not {self.n_components_} (numerical rank {rank}: other singular values "
                f"are below {FLAT} of the largest; the least is {least:.2g} of it). Latents across that subspace are "
                "not identified. Give more classes, in general position, or ask for fewer latents."
            )


class ClassifyObjective(nn.Module):
    """The loss of a batch of samples and their classes, with a scale that is given or learned."""

    given: float | None  # the scale
    offsets: Tensor | None

    def __init__(
        self, encoder: Encoder, vector_space: Space, scale: float | None, offsets: Tensor | None, shape: tuple[int, int]
    ) -> None:
        super().__init__()
        self.encoder, self.vector_space, self.given = encoder, vector_space, scale
        self.register_buffer("offsets", offsets)
        # Short, since a step changes the direction of a short vector much.
        self.weight = nn.Parameter(SHORT * torch.randn(shape))
        if scale is None:
            self.log_scale = nn.Parameter(torch.zeros(()))

    def start_at(self, means: Tensor) -> None:
        """Set class vectors to the means of latents, scaled to the same size."""
        away = means - means.mean(0) if self.encoder.space == Reals() else means
        self.weight.data.copy_(SHORT * away * math.sqrt(away.numel()) / away.norm().clamp_min(1e-12))

    def vectors(self) -> Tensor:
        """Return the class vectors, (n_classes, n_components)."""
        return self.vector_space(self.weight)

    def scale(self) -> float | Tensor:
        """Return the factor β."""
        # One number must travel as far as ten thousand weights do together: give it ten times their speed.
        return torch.exp(10 * self.log_scale) if self.given is None else self.given

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return cross_entropy(self.encoder(x), self.vectors(), labels, scale=self.scale(), offsets=self.offsets)
