"""`InverseDynamics` and `LatentAction`: actions from what is seen before and after, and blind to whose they are."""

from __future__ import annotations

import copy
import numbers
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from pindown import _random, networks, optimizers, theory
from pindown.estimators._base import as_array, check_positive
from pindown.estimators._drawing import Epochs
from pindown.estimators.forget import Forget
from pindown.training import best_device, train


class InverseDynamics(BaseEstimator):
    r"""Codes of actions from transitions: what must be known beside :math:`x_t` to tell :math:`x_{t+1}`.

    An inverse model reads the action off two observations as a displacement in a learned chart c, and a forward model
    g rebuilds the second observation from the first and the action:

    .. math:: \tilde a = c(x_{t+1}) - c(x_t), \qquad
              L = E\,\lVert x_{t+1} - g(x_t, \tilde a + \sigma(x_t)\, \varepsilon) \rVert^2
              + \beta\, \mathrm{KL}\bigl(N(\tilde a, \sigma^2(x_t)) \,\Vert\, N(0, I)\bigr)

    with observations in units of their mean displacement, so that the error is the share of it that is missed.

    **Why β.** Reconstruction alone leaves ã free to be another function of the action at each :math:`x_t`, since g
    knows where it is. The KL term bounds :math:`I(\tilde a; x_t) + I(\tilde a; x_{t+1} \mid x_t)` from above, of which
    g needs the second part only: so it pays for what ã tells of :math:`x_t`. If states are places in a flat space, and
    actions small displacements whose law is the same everywhere and in all directions, then codes that have one law
    everywhere make c an isometry up to a scale on each connected part of the states: ã is the action, turned, perhaps
    by another angle for each body.

    Parameters
    ----------
    n_actions : int
        Number of codes. More than the action has is harmless to the forward model, and leaves room for what tells
        whose action it was: see `LatentAction`.
    bottleneck : float
        β, what a nat of code costs, as a share of the squared displacement. 0 turns the noise off, too.
    chart, forward : callable
        Called as ``(n_in, n_out)``, return modules: the chart c, and what g adds to :math:`x_t`.
    batch_size : int or None
        Transitions per step; None takes 256, or all if there are fewer.
    max_iter : int
        Steps.
    learning_rate : float
        Of Adam, at the top of a cosine schedule.
    weight_decay : float
        Share of the weights taken off per step, in units of the learning rate.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    model_ : torch.nn.Module
        The trained pair.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps taken.
    n_features_in_ : int
        Number of observed variables.

    References
    ----------
    Liu et al., SCAR: self-supervised continuous action representation learning, 2026. Alemi et al., Deep variational
    information bottleneck, ICLR 2017.

    Examples
    --------
    One arm: its actions come back, up to an affine map.

    >>> from pindown.metrics import linear_r2
    >>> from pindown.processes import Bodies
    >>> first, _ = Bodies.different(2, random_state=0).same_motions(4_000, random_state=1)
    >>> dynamics = InverseDynamics(2, max_iter=300, random_state=0).fit(first.x, first.x_pos)
    >>> linear_r2(dynamics.transform(first.x, first.x_pos), first.z) > 0.95
    True
    """

    def __init__(
        self,
        n_actions=4,
        *,
        bottleneck=0.1,
        chart=networks.smooth,
        forward=networks.smooth,
        batch_size=None,
        max_iter=2_000,
        learning_rate=5e-3,
        weight_decay=0.0,
        device=None,
        verbose=True,
        random_state=None,
    ):
        self.n_actions = n_actions
        self.bottleneck = bottleneck
        self.chart = chart
        self.forward = forward
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X_t, X_next) -> Self:
        """Train both models.

        Parameters
        ----------
        X_t, X_next : array or tensor of shape (n_samples, n_features)
            Observations before and after each transition, row by row.
        """
        self._check_parameters()
        device, seed = best_device(self.device), _random.draw_seed(self.random_state)
        before, after = self._read(X_t, X_next, reset=True)
        rows = _Transitions.on(device, before, after, self.n_actions)
        size = min(256, len(rows)) if self.batch_size is None else self.batch_size
        if size > len(rows):
            raise ValueError(f"InverseDynamics: batch_size={size} is larger than the {len(rows)} transitions.")
        with _random.forked(seed):
            model = _Dynamics(_Axes(rows.x, rows.x_next), self.n_actions, self.chart, self.forward, self.bottleneck)
        log = train(
            model,
            Epochs(rows, size),
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            optimizer=optimizers.adam,
            seed=seed,
            device=device,
            verbose=self.verbose,
            title=type(self).__name__,
        )
        self.model_, self.loss_curve_, self.n_iter_ = model, log.loss_curve, log.n_iter
        return self

    def transform(self, X_t, X_next):
        """Return the code ã of each transition; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        before, after = self._read(X_t, X_next, reset=False)
        return self._like(X_t, self._run("action", before, after), before.dtype)

    def predict_next(self, X_t, actions):
        """Return where actions lead from each observation; (n, n_features) and (n, n_actions) → (n, n_features)."""
        check_is_fitted(self)
        before = self._read_one(X_t, reset=False)
        codes = _columns(actions, "actions", len(before), self.n_actions)
        return self._like(X_t, self._run("lead", before, codes), before.dtype)

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
        least = 2 if reset else 1
        kinds = [np.float64, np.float32]
        return validate_data(self, as_array(X_t), reset=reset, dtype=kinds, order="C", ensure_min_samples=least)

    def _check_parameters(self) -> None:
        for name in ("n_actions", "max_iter"):
            check_scalar(getattr(self, name), name, numbers.Integral, min_val=1)
        if self.batch_size is not None:
            check_scalar(self.batch_size, "batch_size", numbers.Integral, min_val=2)
        check_positive(self.learning_rate, "learning_rate")
        for name in ("bottleneck", "weight_decay"):
            check_scalar(getattr(self, name), name, numbers.Real, min_val=0)


class LatentAction(BaseEstimator):
    """Codes of actions that are blind to the body that acts: `InverseDynamics`, then `Forget` of the body.

    The first stage turns a transition into a code ã that may tell the body as well; the second takes from it what
    does, and keeps what a decoder that is told the body needs to rebuild ã. **Invariance is not unification**: within
    each body the codes are the actions up to a bijection Φ_e, but the bijections may differ, so that the code of an
    action in one body may stand for another action in another. `pindown.alignment.align` learns Φ_{e₂}∘Φ_{e₁}⁻¹ from
    pairs, and says how many it takes.

    Parameters
    ----------
    n_components : int or None
        Number of codes: dimensions of the action. None leaves it to ``forget``.
    dynamics : InverseDynamics or None
        The first stage, of which a clone is fitted. None takes the default.
    forget : Forget or None
        The second stage, of which a clone is fitted. None takes the default.
    random_state : int, RandomState or None
        Seed of both stages, in place of their own; None leaves them theirs.

    Attributes
    ----------
    dynamics_ : InverseDynamics
        The first stage, fitted.
    forget_ : Forget
        The second stage, fitted; ``forget_.history_.probe`` says what its codes still tell of the body.
    n_components_ : int
        Number of codes.

    References
    ----------
    Liu et al., SCAR: self-supervised continuous action representation learning, 2026.

    Examples
    --------
    >>> from pindown.processes import Bodies
    >>> sample = Bodies.different(2, random_state=0).sample(2_000, random_state=1)
    >>> stages = {"dynamics": InverseDynamics(max_iter=100), "forget": Forget(max_iter=100, holdout=0)}
    >>> act = LatentAction(2, random_state=0, **stages).fit(sample.x, sample.x_pos, sample.u)
    >>> codes = act.transform(sample.x, sample.x_pos)
    >>> tuple(codes.shape), tuple(act.predict_next(sample.x, codes, sample.u).shape)
    ((2000, 2), (2000, 6))
    """

    guarantee: theory.Theorem = theory.FORGET_NONLINEAR

    def __init__(self, n_components=None, *, dynamics=None, forget=None, random_state=None):
        self.n_components = n_components
        self.dynamics = dynamics
        self.forget = forget
        self.random_state = random_state

    def fit(self, X_t, X_next, body) -> Self:
        """Fit one stage after the other.

        Parameters
        ----------
        X_t, X_next : array or tensor of shape (n_samples, n_features)
            Observations before and after each transition, row by row.
        body : array or tensor of shape (n_samples,)
            Whose transition it is.
        """
        dynamics = self._stage("dynamics", InverseDynamics)
        forget = self._stage("forget", Forget)
        if self.n_components is not None:
            forget.set_params(n_components=self.n_components)
        actions = dynamics.fit(X_t, X_next).transform(X_t, X_next)
        forget.fit(actions, body)
        self.dynamics_, self.forget_ = dynamics, forget
        self.n_components_, self.n_features_in_ = forget.n_components_, dynamics.n_features_in_
        return self

    def transform(self, X_t, X_next):
        """Return the code of each transition, blind to the body; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        return self.forget_.transform(self.dynamics_.transform(X_t, X_next))

    def predict_next(self, X_t, Z, body):
        """Return where codes lead from each observation, if this body acts.

        The codes may come from another body's transitions; that they then stand for the same action nothing promises:
        map them first, see `pindown.alignment.align`.
        """
        check_is_fitted(self)
        return self.dynamics_.predict_next(X_t, self.forget_.inverse_transform(Z, body))

    def _stage(self, name: str, kind: type) -> Any:
        given = getattr(self, name)
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"LatentAction: {name} must be {kind.__name__}(…) or None, got {given!r}.")
        stage = kind() if given is None else clone(given)
        if self.random_state is not None:
            stage.set_params(random_state=_random.draw_seed(self.random_state))
        return stage


@dataclass(frozen=True)
class _Transitions:
    """Observations before and after, to draw batches from; with noise for the codes, from the batch's generator."""

    x: Tensor  # (n, n_features)
    x_next: Tensor
    n_actions: int

    @classmethod
    def on(cls, device: torch.device, before: np.ndarray, after: np.ndarray, n_actions: int) -> _Transitions:
        return cls(torch.as_tensor(before, device=device), torch.as_tensor(after, device=device), n_actions)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, which: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        noise = torch.randn(len(which), self.n_actions, generator=generator, device=which.device)
        return self.x[which], self.x_next[which], noise


class _Axes(nn.Module):
    """Observations along the principal axes of displacements, the longest first, in units of their mean size.

    Not whitened: a chart must follow where states go, and whitening would make as much of the ways they never go.
    """

    centre: Tensor
    unit: Tensor
    axes: Tensor

    def __init__(self, x: Tensor, x_next: Tensor) -> None:
        super().__init__()
        x, x_next = (a.double().cpu() for a in (x, x_next))
        sizes, axes = torch.linalg.eigh((x_next - x).mT @ (x_next - x) / len(x))
        if not sizes[-1] > 0:
            raise ValueError(
                "InverseDynamics: X_next equals X_t in every row, so that nothing moved. Give observations before and "
                "after a step."
            )
        self.register_buffer("centre", x.mean(0))
        self.register_buffer("unit", sizes.sum().sqrt())
        self.register_buffer("axes", axes.flip(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return coordinates; (n, d) → (n, d), in the precision of the networks."""
        return ((x - self.centre) @ self.axes / self.unit).to(x.dtype)

    def back(self, change: Tensor) -> Tensor:
        """Return a change of coordinates as one of observations; (n, d) → (n, d)."""
        return self.unit * change @ self.axes.mT.to(change.dtype)


class _Dynamics(nn.Module):
    """The chart, the forward model, and the loss of a batch of transitions."""

    def __init__(self, axes: _Axes, n_actions: int, chart: Any, forward: Any, bottleneck: float) -> None:
        super().__init__()
        n = len(axes.centre)
        self.axes, self.bottleneck = axes, float(bottleneck)
        self.chart = _built(chart, "chart", n, n_actions)
        self.change = _built(forward, "forward", n + n_actions, n)
        self.spread = networks.flat(n, n_actions, hidden=(64, 64))

    def action(self, x: Tensor, x_next: Tensor) -> Tensor:
        """Return the codes of transitions; (n, n_features) twice → (n, n_actions)."""
        return self.chart(self.axes(x_next)) - self.chart(self.axes(x))

    def lead(self, x: Tensor, action: Tensor) -> Tensor:
        """Return where actions lead; (n, n_features) and (n, n_actions) → (n, n_features)."""
        return x + self.axes.back(self.change(torch.cat([self.axes(x), action], 1)))

    def forward(self, x: Tensor, x_next: Tensor, noise: Tensor) -> Tensor:
        here, there = (self.axes(a).float() for a in (x, x_next))
        action = self.chart(there) - self.chart(here)
        rate = torch.zeros((), device=action.device)
        if self.bottleneck:
            log_spread = self.spread(here) - 1.5  # so that codes are hardly noisy at first
            rate = (action.square() + (2 * log_spread).exp() - 1 - 2 * log_spread).sum(1).mean() / 2
            action = action + log_spread.exp() * noise
        missed = here + self.change(torch.cat([here, action], 1)) - there
        return missed.square().sum(1).mean() + self.bottleneck * rate


def _built(make: Any, name: str, n_in: int, n_out: int) -> nn.Module:
    module = make(n_in, n_out) if callable(make) else None
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"InverseDynamics: {name} must be a function (n_in, n_out) -> nn.Module, such as pindown.networks.smooth, "
            f"got {make!r}."
        )
    with torch.no_grad():
        shape = tuple(copy.deepcopy(module)(torch.zeros(2, n_in)).shape)
    if shape != (2, n_out):
        raise ValueError(f"InverseDynamics: {name}({n_in}, {n_out}) maps (2, {n_in}) to {shape}, not to (2, {n_out}).")
    return module


def _columns(values: Any, name: str, n_rows: int, n_columns: int) -> np.ndarray:
    """Return a finite float array of this shape, or say which is wrong."""
    array = check_array(as_array(values), dtype=[np.float64, np.float32], order="C", input_name=name)
    if array.shape != (n_rows, n_columns):
        raise ValueError(f"{name} must have shape {(n_rows, n_columns)}, a row for each row of X_t, got {array.shape}.")
    return array
