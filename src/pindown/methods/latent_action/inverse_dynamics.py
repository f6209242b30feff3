"""`InverseDynamics`: latent actions from observations before and after each transition."""

from __future__ import annotations

import copy
import numbers
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from pindown import _random, networks
from pindown.data.batches import IndexedSamples, ShuffledBatches
from pindown.data.data import Data, from_torch
from pindown.data.splits import Split, divided
from pindown.errors import InputError, warn
from pindown.losses import energy_distance
from pindown.methods.diagnosis import warn_if_hardly_trained
from pindown.methods.forget.adversarial import ENERGY_SAMPLES
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import ArrayOrTensor, Encoded
from pindown.methods.latent_action.transitions import (
    Observations,
    explained,
    like,
    read_bodies,
    read_episodes,
    read_table,
)
from pindown.methods.parameters import check_common
from pindown.metrics.arrays import Labels
from pindown.networks import built
from pindown.networks.encoder import Make
from pindown.networks.images import FIRST_ROUND
from pindown.saving import Saves
from pindown.training import FitPart, TrainingLog, TrainingParameters, Validation, best_device
from pindown.training.callbacks import ProgressBar

SCORE = "explained fraction of squared displacements"
BATCH_SIZE = 256
COUNTING_STEPS, MOST_COUNTED = 500, 16  # steps of the model by which latents are counted, and its latents
COUNTED_SAMPLES = 4_000  # samples at which the noise of these latents is compared with their variance


class PrincipalAxes(nn.Module):
    """Observations along the principal axes of displacements, the longest first, in units of their mean length."""

    centre: Tensor
    unit: Tensor
    axes: Tensor

    def __init__(self, x: Tensor, x_next: Tensor) -> None:
        super().__init__()
        x, x_next = (a.double().cpu() for a in (x, x_next))
        squares, axes = torch.linalg.eigh((x_next - x).mT @ (x_next - x) / len(x))
        if not squares[-1] > 0:
            message = "X_next equals X_t in every sample. Give observations before and after a step."
            raise InputError("X_next", f"InverseDynamics: {message}")
        self.register_buffer("centre", x.mean(0))
        self.register_buffer("unit", squares.sum().sqrt())
        self.register_buffer("axes", axes.flip(1).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Return coordinates; (n, d) → (n, d), in the precision of x."""
        return ((x - self.centre) @ self.axes / self.unit).to(x.dtype)

    def inverse(self, change: Tensor) -> Tensor:
        """Return a change of coordinates as one of observations; (n, d) → (n, d)."""
        return self.unit * change @ self.axes.mT.to(change.dtype)


class DynamicsModel(nn.Module):
    """The encoder, the forward model, the noise of the latents, and the loss of a batch of transitions."""

    def __init__(
        self, axes: PrincipalAxes, n_components: int, encoder: Make, forward: Make, bottleneck: float, strength: float
    ) -> None:
        super().__init__()
        n_features, self.axes, self.n_components = len(axes.centre), axes, n_components
        self.bottleneck, self.strength = float(bottleneck), float(strength)
        self.encoder = built("InverseDynamics", "encoder", encoder, n_features, n_components)
        self.change = built("InverseDynamics", "forward", forward, n_features + n_components, n_features)
        self.spread = networks.zero_mlp(n_features, n_components**2, hidden=(64, 64))

    def action(self, x: Tensor, x_next: Tensor) -> Tensor:
        """Return the latents of transitions; (n, n_features) twice → (n, n_components)."""
        return self.encoder(self.axes(x_next)) - self.encoder(self.axes(x))

    def predict(self, x: Tensor, action: Tensor) -> Tensor:
        """Return predicted observations; (n, n_features) and (n, n_components) → (n, n_features)."""
        return x + self.axes.inverse(self.change(torch.cat([self.axes(x), action], 1)))

    @torch.no_grad()
    def n_informative(self, x: Tensor) -> int:
        """Return the number of directions in which latents have less noise than signal, on average over samples."""
        factor = self.noise(self.axes(x.to(self.axes.centre.device)).float())[0]
        return int((torch.linalg.eigvalsh(factor @ factor.mT).mean(0) < 0.5).sum())

    def noise(self, here: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factors of the noise's covariances, (n, k, k), and logarithms of their diagonals."""
        entries = self.spread(here).unflatten(1, (self.n_components, self.n_components))
        log_diagonal = entries.diagonal(dim1=1, dim2=2) - 1.5  # little noise at initialisation
        return entries.tril(-1) + torch.diag_embed(log_diagonal.exp()), log_diagonal

    def forward(self, x: Tensor, x_next: Tensor, body: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
        """Return the loss of transitions, given the body and weight of each, and noise for their latents."""
        here, there = (self.axes(a).float() for a in (x, x_next))
        action = self.encoder(there) - self.encoder(here)
        loss = torch.zeros((), device=action.device)
        if self.strength:
            # In standard units: otherwise shrinking the latents would lower the distance.
            standardised = (action - action.mean(0)) / (action.std(0, correction=0) + 1e-6)
            some, body, weight = (part[:ENERGY_SAMPLES] for part in (standardised, body, weight))
            loss = loss + self.strength * energy_distance(some, body, weights=weight)
        if self.bottleneck:
            factor, log_diagonal = self.noise(here)
            rate = action.square().sum(1) + factor.square().sum((1, 2)) - self.n_components - 2 * log_diagonal.sum(1)
            loss = loss + self.bottleneck * rate.mean() / 2
            action = action + (factor @ noise[:, :, None])[:, :, 0]
        error = here + self.change(torch.cat([here, action], 1)) - there
        return loss + error.square().sum(1).mean()


@dataclass(eq=False, repr=False)
class InverseDynamics(Saves, TrainingParameters, BaseEstimator):
    r"""Latent actions of transitions: what must be known besides :math:`x_t` to predict :math:`x_{t+1}`.

    An inverse model returns the action as a displacement of an encoder c, and a forward model g predicts the second
    observation from the first and the action:

    .. math:: \tilde a = c(x_{t+1}) - c(x_t), \qquad
              L = E\,\lVert x_{t+1} - g(x_t, \tilde a + \varepsilon) \rVert^2
              + \beta\, \mathrm{KL}\bigl(N(\tilde a, \Sigma(x_t)) \,\Vert\, N(0, I)\bigr)
              + \lambda\, \mathcal E(\tilde a; e), \qquad \varepsilon \sim N(0, \Sigma(x_t))

    Observations are in units of their mean displacement, so the error is the fraction of it that is not explained.
    :math:`\mathcal E` is the energy distance between the latents of different bodies e, if ``fit`` is given them.

    **Bottleneck.** Since g knows :math:`x_t`, prediction alone allows another function of the action at each
    :math:`x_t`. The KL term is an upper bound of :math:`I(\tilde a + \varepsilon; x_t)`. If actions are small
    displacements in a flat space, with the same isotropic distribution everywhere, c becomes an isometry up to scale,
    and :math:`\tilde a` is the action up to a rotation, perhaps another one for each body.

    **Number of components.** With more components than the action has dimensions, noise fills the others. Which of
    them carry the action may then differ from body to body, so that the body is decodable.

    **Bodies.** The encoder sees all of :math:`x_t`, and can remove the body where it arises; a later stage sees the
    latents only. If actions have another distribution in each body, leave the body out, or use ``strength=0``.

    Parameters
    ----------
    n_components : int or None
        Dimensions of the action. None counts the directions in which latents have more signal than noise, after 500
        steps with as many components as features (16 at most). It needs a bottleneck.
    bottleneck : float
        β, the cost of a nat, as a fraction of the squared displacement. 0 also removes the noise.
    strength : float
        λ, the weight of the energy distance between bodies.
    encoder, forward : callable
        Called as ``(n_in, n_out)``, return modules: c, and the change that g adds to :math:`x_t`.
    learning_rate : float
        Learning rate at the top of a cosine schedule.
    batch_size, max_iter, trainer, device, verbose, random_state
        See `pindown.training.TrainingParameters`. By default 256 transitions per step.

    Attributes
    ----------
    n_components_ : int
        Number of components.
    model_ : torch.nn.Module
        The trained models.
    held_out_ : HeldOut or None
        Explained fraction of squared displacements, on held-out and on training transitions. None if none was held out.
    held_out_samples_ : ndarray of int
        Numbers of the held-out transitions.
    loss_curve_, n_iter_
        Loss of each step, and the number of steps that led to the weights.

    References
    ----------
    Liu et al., SCAR: self-supervised continuous action representation learning, 2026. Alemi et al., Deep variational
    information bottleneck, ICLR 2017. Székely and Rizzo, Energy statistics, J. Stat. Plan. Inference 2013.

    Examples
    --------
    A point on a circle turns by an angle, the action, which is recovered up to an affine map:

    >>> from pindown.metrics import linear_r2
    >>> before, action = np.random.default_rng(0).uniform(-0.8, 0.8, size=(2, 4_000, 1))
    >>> x, x_next = (np.hstack([np.cos(angle), np.sin(angle)]) for angle in (before, before + action))
    >>> dynamics = InverseDynamics(1, max_iter=300, random_state=0).fit(x, x_next)
    >>> linear_r2(dynamics.transform(x, x_next), action) > 0.95
    True
    """

    n_components: int | None = None
    _: KW_ONLY
    bottleneck: float = 0.1
    strength: float = 3.0
    encoder: Make = networks.smooth
    forward: Make = networks.smooth
    max_iter: int | None = 2_000
    learning_rate: float = 5e-3

    @_random.torch_defaults()
    def fit(
        self,
        X_t: ArrayOrTensor,
        X_next: ArrayOrTensor,
        body: ArrayOrTensor | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train both models.

        Parameters
        ----------
        X_t, X_next : array or tensor of shape (n_samples, n_features)
            Observations before and after each transition.
        body : array or tensor of shape (n_samples,), optional
            The body of each transition. Latents then get the same distribution in all bodies.
        groups : array of shape (n_samples,), optional
            The episode of each transition. Whole episodes are held out.
        """
        self._check_parameters()
        before, after = self._read(X_t, X_next, reset=True)
        n, k = before.shape
        if self.batch_size is not None and self.batch_size > n:
            message = f"batch_size={self.batch_size} must be at most the number of transitions, {n}"
            raise InputError("batch_size", f"InverseDynamics: {message}.")
        labels, weight = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.float32)
        if body is not None:
            bodies = read_bodies(body, n)
            labels, weight = bodies.labels, (n / (len(bodies.values) * bodies.counts)).astype(np.float32)[bodies.labels]
        device, seed = best_device(self.device), _random.draw_seed(self.random_state)
        fields = torch.as_tensor(before, device=device), after, labels, weight
        data = Data(before, pairs=after, groups=read_episodes(groups, n))
        splits = divided(data, fraction=self.trainer.validation_fraction, seed=seed, paired=True, folds=False)
        split = splits[0] if splits else None
        if self.n_components is None:
            model, _ = self._train(fields, min(k, MOST_COUNTED), COUNTING_STEPS, seed)
            self.n_components_ = max(1, model.n_informative(fields[0][:: -(-n // COUNTED_SAMPLES)]))
        else:
            self.n_components_ = int(self.n_components)
        self.model_, log = self._train(fields, self.n_components_, self.max_iter, seed, split)
        self.loss_curve_, self.n_iter_ = log.loss_curve, log.n_iter
        warn_if_hardly_trained(self, self.max_iter or FIRST_ROUND)
        if log.shortfall:
            warn(f"InverseDynamics: {log.shortfall}", ConvergenceWarning)
        self.held_out_samples_, self.held_out_ = np.zeros(0, dtype=np.int64), None
        if split is not None:
            self.held_out_samples_, self.held_out_ = split.held_out, self._held_out(before, after, split)
        return self

    @torch.no_grad()
    def transform(self, X_t: ArrayOrTensor, X_next: ArrayOrTensor) -> Encoded:
        """Return the latent action of each transition; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        model, x, x_next = self._in_float64(*self._read(X_t, X_next, reset=False))
        return like(X_t, model.action(x, x_next).cpu().numpy())

    @torch.no_grad()
    def predict_next(self, X_t: ArrayOrTensor, actions: ArrayOrTensor) -> Encoded:
        """Return the predicted observations; (n, n_features) and (n, n_components) → (n, n_features)."""
        check_is_fitted(self)
        before = self._read_observations(X_t, reset=False)
        latents = read_table("actions", actions, (len(before), self.n_components_))
        model, x, action = self._in_float64(before, latents)
        return like(X_t, model.predict(x, action).cpu().numpy())

    def _held_out(self, before: Observations, after: Observations, split: Split) -> HeldOut:
        parts = ((before[which], after[which]) for which in (split.held_out, split.compared))
        score, trained = (explained(*part, self.predict_next(part[0], self.transform(*part))) for part in parts)
        n = len(split.held_out)
        found = HeldOut(SCORE, score, trained, 0.0, n_samples=n, n_folds=1, n_steps=self.n_iter_)
        if found.overfits:
            warn(f"InverseDynamics: {found.warning}")
        return found

    def _train(
        self,
        fields: tuple[Tensor, Observations, Labels, NDArray[np.float32]],
        n_components: int,
        max_iter: int | None,
        seed: int,
        split: Split | None = None,
    ) -> tuple[DynamicsModel, TrainingLog]:
        def noise(n_samples: int, generator: torch.Generator) -> tuple[Tensor]:
            return (torch.randn(n_samples, n_components, generator=generator, device=generator.device),)

        x, x_next, labels, _ = fields
        train = IndexedSamples(*fields, chance=noise, among=None if split is None else split.learned)
        validation = None
        if split is not None:  # few enough for one batch
            rest = IndexedSamples(*fields, chance=noise, among=split.held_out)
            every = torch.arange(len(rest), device=x.device)
            validation = Validation((rest.take(every, _random.generator(0, x.device)),))
        strength = self.strength if labels.any() else 0.0
        with _random.forked(seed):
            axes = PrincipalAxes(x, torch.as_tensor(x_next))
            model = DynamicsModel(axes, n_components, self.encoder, self.forward, self.bottleneck, strength)
        callbacks = (*self.trainer.callbacks, *([ProgressBar()] if self.verbose else []))
        log = replace(self.trainer, callbacks=callbacks).train(
            model.to(x.device),
            ShuffledBatches(train, min(self.batch_size or BATCH_SIZE, len(train))),
            max_iter=max_iter,
            learning_rate=self.learning_rate,
            seed=seed,
            validation=validation,
            part=FitPart(type(self).__name__),
        )
        return model, log

    def _in_float64(self, *arrays: Observations) -> tuple[DynamicsModel, Tensor, Tensor]:
        """Return the model and two arrays in float64, so that results do not depend on other samples of a batch."""
        model = copy.deepcopy(self.model_).double()
        first, second = (torch.as_tensor(a, device=model.axes.centre.device).double() for a in arrays)
        return model, first, second

    def _read(self, X_t: ArrayLike, X_next: ArrayLike, *, reset: bool) -> tuple[Observations, Observations]:
        before = self._read_observations(X_t, reset=reset)
        return before, read_table("X_next", X_next, before.shape)

    def _read_observations(self, X_t: ArrayLike, *, reset: bool) -> Observations:
        if getattr(X_t, "ndim", 2) == 4:
            message = "X_t has frames, but must have vectors. Fit LatentAction to mappings from body to frames"
            raise InputError("X_t", f"InverseDynamics: {message}.")
        options = {"reset": reset, "dtype": [np.float64, np.float32], "order": "C", "ensure_min_samples": 1 + reset}
        return validate_data(self, from_torch(X_t), **options)

    def _check_parameters(self) -> None:
        check_common(self)
        if self.n_components is not None:
            check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1)
        for name in ("bottleneck", "strength"):
            check_scalar(getattr(self, name), name, numbers.Real, min_val=0)
        if self.n_components is None and not self.bottleneck:
            message = (
                "`n_components=None` counts latents above the noise of the bottleneck, and `bottleneck=0` has none"
            )
            raise InputError("n_components", f"InverseDynamics: {message}. Set one of them.")
