"""`InverseDynamics`: actions from what is seen before and after."""

from __future__ import annotations

import copy
import numbers
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from pindown import _random, networks
from pindown._random import RandomState
from pindown.data.batches import IndexedSamples, ShuffledBatches
from pindown.data.data import Data, from_torch
from pindown.data.splits import Split, divided
from pindown.errors import warn
from pindown.methods.held_out import HeldOut
from pindown.methods.latent_action.dynamics import Axes, Dynamics, read_bodies, read_groups, transitions, with_noise
from pindown.methods.parameters import check_positive, check_trainer
from pindown.networks.encoder import Make
from pindown.saving import Saves
from pindown.training import Trainer, TrainerMixin, TrainingLog, Validation, best_device

COUNTING_STEPS, MOST_COUNTED, COUNTED_ROWS = 500, 16, 4_000
"""How long codes are trained to be counted, how many there can be, and on how many observations noise is looked at."""


class InverseDynamics(Saves, TrainerMixin, BaseEstimator):
    r"""Codes of actions from transitions: what must be known beside :math:`x_t` to tell :math:`x_{t+1}`.

    An inverse model reads the action off two observations as a displacement in a learned chart c, and a forward model
    g rebuilds the second observation from the first and the action:

    .. math:: \tilde a = c(x_{t+1}) - c(x_t), \qquad
              L = E\,\lVert x_{t+1} - g(x_t, \tilde a + \varepsilon) \rVert^2
              + \beta\, \mathrm{KL}\bigl(N(\tilde a, \Sigma(x_t)) \,\Vert\, N(0, I)\bigr)
              + \lambda\, \mathcal E(\tilde a; e), \qquad \varepsilon \sim N(0, \Sigma(x_t))

    with observations in units of their mean displacement, so that the error is the share of it that is missed, and
    :math:`\mathcal E` the energy distance between the codes of different bodies e, if ``fit`` is told them.

    **Why β.** Reconstruction alone leaves ã free to be another function of the action at each :math:`x_t`, since g
    knows where it is. The KL term bounds :math:`I(\tilde a + \varepsilon; x_t) + I(\tilde a + \varepsilon; x_{t+1}
    \mid x_t)` from above, of which g needs the second part only: so it pays for what codes tell of :math:`x_t`. If
    states are places in a flat space, and actions small displacements whose law is the same everywhere and in all
    directions, then codes that have one law everywhere make c an isometry up to a scale on each connected part of the
    states: ã is the action, turned, perhaps by another angle for each body.

    **How many codes.** It is the noisy code that the KL term makes independent of :math:`x_t`. With more codes than the
    action has dimensions noise fills the rest, and in which of them an action lies may differ from body to body, and
    from place to place, for free: ã tells the body although ã + ε does not. With just as many nothing is left to fill.
    Of three planar arms the worst probe reads the body off two codes for 37 % of the transitions, and off true actions
    for 34 %. Without a bottleneck two codes tell it for 49 %.

    **Why λ.** The chart sees all of :math:`x_t`, and so can mend what tells the body where it arises; whatever is done
    to the codes afterwards sees nothing but them. Told the body, `LatentAction` comes to 35 % with a bottleneck, and to
    36 % without. If bodies do not act by one law, codes are not to have one either: leave the body out, or take 0.

    Parameters
    ----------
    n_actions : int or None
        Number of codes. None counts the directions in which codes are more signal than noise, in 500 steps with as many
        codes as observations have columns (16 at most), and starts again with so many; for that it takes a bottleneck.
    bottleneck : float
        β, what a nat of code costs, as a share of the squared displacement. 0 turns the noise off, too.
    strength : float
        λ, what hiding the body is worth, if it is told: squared displacements per unit of the energy distance between
        codes in standard units.
    chart, forward : callable
        Called as ``(n_in, n_out)``, return modules: the chart c, and what g adds to :math:`x_t`.
    batch_size : int or None
        Transitions per step; None takes 256, or all if there are fewer.
    max_iter : int
        Steps.
    learning_rate : float
        Of Adam, at the top of a cosine schedule.
    trainer : Trainer
        Weight decay (0 by default), optimizer, fraction of the transitions held out …: see `pindown.training.Trainer`.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    n_actions_ : int
        Number of codes.
    model_ : torch.nn.Module
        The trained pair.
    held_out_ : HeldOut or None
        How much of transitions held out the codes tell, with the same of those learned from. None if none were.
    kept_back_ : ndarray of int
        Numbers of the transitions that were held out.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.
    n_features_in_ : int
        Number of observed variables.

    References
    ----------
    Liu et al., SCAR: self-supervised continuous action representation learning, 2026. Alemi et al., Deep variational
    information bottleneck, ICLR 2017. Székely and Rizzo, Energy statistics, J. Stat. Plan. Inference 2013.

    Examples
    --------
    One arm: its actions come back, up to an affine map.

    >>> from pindown.metrics import linear_r2
    >>> from pindown.simulate import Bodies
    >>> first, _ = Bodies.different(2, random_state=0).same_motions(4_000, random_state=1)
    >>> dynamics = InverseDynamics(2, max_iter=300, random_state=0).fit(first.x, first.x_pos)
    >>> linear_r2(dynamics.transform(first.x, first.x_pos), first.z) > 0.95
    True
    """

    def __init__(
        self,
        n_actions: int | None = None,
        *,
        bottleneck: float = 0.1,
        strength: float = 3.0,
        chart: Make = networks.smooth,
        forward: Make = networks.smooth,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float = 5e-3,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_actions = n_actions
        self.bottleneck = bottleneck
        self.strength = strength
        self.chart = chart
        self.forward = forward
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @_random.torch_defaults()
    def fit(self, X_t, X_next, body=None, *, groups=None) -> Self:
        """Train both models.

        Parameters
        ----------
        X_t, X_next : array or tensor of shape (n_samples, n_features)
            Observations before and after each transition, row by row.
        body : array or tensor of shape (n_samples,), optional
            Whose transition it is: labels, each of several rows. Codes are then held to one law for all bodies.
        groups : array of shape (n_samples,), optional
            The episode of each transition: those of one are kept back together.
        """
        self._check_parameters()
        before, after = self._read(X_t, X_next, reset=True)
        whose = np.zeros(len(before), dtype=np.int64) if body is None else read_bodies(body, before)
        device, seed = best_device(self.device), _random.draw_seed(self.random_state)
        rows = transitions(device, before, after, whose)
        assert isinstance(rows.x, Tensor)
        if self.n_actions is None:
            most = min(rows.x.shape[1], MOST_COUNTED)
            model, _ = self._train(rows, most, COUNTING_STEPS, seed)
            self.n_actions_ = max(1, model.heard(rows.x[:: -(-len(rows) // COUNTED_ROWS)]))
        else:
            self.n_actions_ = self.n_actions
        data = Data(before, pairs=after, groups=read_groups(groups, len(before)))
        division = divided(data, share=self.trainer.validation_fraction, seed=seed, paired=True, folds=False)
        self.model_, log = self._train(rows, self.n_actions_, self.max_iter, seed, *division)
        self.loss_curve_, self.n_iter_ = log.loss_curve, log.n_iter
        self.kept_back_ = division[0].held_out if division else np.zeros(0, dtype=np.int64)
        self.held_out_ = self._held_out(before, after, division[0]) if division else None
        if self.held_out_ is not None and self.held_out_.overfits:
            warn(f"InverseDynamics: {self.held_out_.warning}")
        return self

    def _held_out(self, before: np.ndarray, after: np.ndarray, division: Split) -> HeldOut:

        def told(x: np.ndarray, x_next: np.ndarray) -> float:
            missed = x_next - self.predict_next(x, self.transform(x, x_next))
            return 1 - float((missed**2).sum() / ((x_next - x) ** 2).sum())

        score, trained = (told(before[rows], after[rows]) for rows in (division.held_out, division.compared))
        name, n_samples = "share of the squared displacement that codes tell", len(division.held_out)
        return HeldOut(name, score, trained, 0.0, n_samples=n_samples, n_folds=1, n_steps=self.n_iter_)

    def transform(self, X_t, X_next):
        """Return the code ã of each transition; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        before, after = self._read(X_t, X_next, reset=False)
        return self._like(X_t, self._run("action", before, after), before.dtype)

    def predict_next(self, X_t, actions):
        """Return where actions lead from each observation; (n, n_features) and (n, n_actions) → (n, n_features)."""
        check_is_fitted(self)
        before = self._read_one(X_t, reset=False)
        codes = _columns(actions, "actions", len(before), self.n_actions_)
        return self._like(X_t, self._run("lead", before, codes), before.dtype)

    def _train(
        self, rows: IndexedSamples, n_actions: int, max_iter: int, seed: int, division: Split | None = None
    ) -> tuple[Dynamics, TrainingLog]:
        if self.batch_size is not None and self.batch_size > len(rows):
            raise ValueError(
                f"InverseDynamics: batch_size={self.batch_size} is larger than the {len(rows)} transitions."
            )
        noisy = with_noise(rows, n_actions, None if division is None else division.learned)
        size = min(256 if self.batch_size is None else self.batch_size, len(noisy))
        prices = {"bottleneck": self.bottleneck, "strength": self.strength if int(rows.fields[1].max()) else 0.0}
        assert isinstance(rows.x, Tensor)
        with _random.forked(seed):
            model = Dynamics(Axes(rows.x, rows.fields[0]), n_actions, self.chart, self.forward, **prices)
        log = self.trainer.train(
            model,
            ShuffledBatches(noisy, size),
            max_iter=max_iter,
            learning_rate=self.learning_rate,
            seed=seed,
            device=rows.x.device,
            verbose=self.verbose,
            title=type(self).__name__,
            validation=None if division is None else _validation(with_noise(rows, n_actions, division.held_out)),
        )
        return model, log

    def _run(self, method: str, *arrays: np.ndarray) -> Tensor:
        model = copy.deepcopy(self.model_).double()
        device: torch.device = model.axes.centre.device
        with torch.no_grad():  # in float64, so that a row's code does not depend on the rows beside it
            return getattr(model, method)(*(torch.as_tensor(a, device=device).double() for a in arrays))

    @staticmethod
    def _like(X: Any, result: Tensor, dtype: np.dtype) -> Any:
        result = result.to(torch.float32 if dtype == np.float32 else torch.float64)
        return result.to(X.device) if isinstance(X, Tensor) else result.cpu().numpy()

    def _read(self, X_t: Any, X_next: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        before = self._read_one(X_t, reset=reset)
        return before, _columns(X_next, "X_next", len(before), before.shape[1])

    def _read_one(self, X_t: Any, *, reset: bool) -> np.ndarray:
        if getattr(X_t, "ndim", 2) == 4:
            raise ValueError(
                f"InverseDynamics: X_t are frames, of shape {tuple(X_t.shape)}, and it takes columns. Fit LatentAction "
                "to mappings from body to frames, or give what is measured of them, (n, d)."
            )
        least = 2 if reset else 1
        kinds = [np.float64, np.float32]
        return validate_data(self, from_torch(X_t), reset=reset, dtype=kinds, order="C", ensure_min_samples=least)

    def _check_parameters(self) -> None:
        check_scalar(self.max_iter, "max_iter", numbers.Integral, min_val=1)
        if self.n_actions is not None:
            check_scalar(self.n_actions, "n_actions", numbers.Integral, min_val=1)
        if self.batch_size is not None:
            check_scalar(self.batch_size, "batch_size", numbers.Integral, min_val=2)
        check_positive(self.learning_rate, "learning_rate")
        for name in ("bottleneck", "strength"):
            check_scalar(getattr(self, name), name, numbers.Real, min_val=0)
        check_trainer(self)
        if self.n_actions is None and not self.bottleneck:
            raise ValueError(
                "InverseDynamics: n_actions=None counts the codes that the noise of a bottleneck leaves heard, but "
                "bottleneck=0 has no noise. Give n_actions, or a bottleneck."
            )


def _validation(rows: IndexedSamples) -> Validation:
    """Return all rows, in one batch: they are few."""
    generator = _random.generator(0, rows.device)
    return Validation((rows.take(torch.arange(len(rows), device=rows.device), generator),))


def _columns(values: Any, name: str, n_samples: int, n_columns: int) -> np.ndarray:
    """Return a finite float array of this shape, or say which is wrong."""
    array = check_array(from_torch(values), dtype=[np.float64, np.float32], order="C", input_name=name)
    if array.shape != (n_samples, n_columns):
        raise ValueError(
            f"{name} must have shape {(n_samples, n_columns)}, a row for each row of X_t, got {array.shape}."
        )
    return array
