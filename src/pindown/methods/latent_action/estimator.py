"""`LatentAction`: actions from what is seen before and after, blind to whose they are."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from pindown import _random, theory
from pindown._random import RandomState
from pindown.data.data import from_torch
from pindown.data.labels import combined
from pindown.methods.forget import Forget
from pindown.methods.latent_action.audit import LatentActionSpec
from pindown.methods.latent_action.dynamics import read_bodies, read_groups
from pindown.methods.latent_action.inverse import InverseDynamics
from pindown.methods.latent_action.own_charts import OwnCharts, fit_own_charts
from pindown.methods.latent_action.recordings import Recording, read_codes, read_recordings, read_rows
from pindown.methods.latent_action.second_stage import Codes, SecondStage, decided
from pindown.saving import Saves


class LatentAction(Saves, BaseEstimator):
    """Codes of actions that are blind to the body that acts: `InverseDynamics`, then `Forget` of the body, if need be.

    The first stage turns a transition into a code ã, and holds it to one law for all bodies; the second takes from it
    what still tells them, and keeps what a decoder that is told the body needs to rebuild ã. It bends codes, and must
    earn its place: it is tried only where probes read the body off held-out transitions for more than 5 % above chance,
    and kept only if it hides the body better, keeps codes straight within bodies, and costs no transfer where there are
    pairs; or if fewer codes are asked for than the first stage has. ``second_stage_`` says which,
    and why. **Invariance is not
    unification**: within each body the codes are the actions up to a bijection Φ_e, but the bijections may differ, so
    that the code of an action in one body may stand for another action in another. `pindown.methods.alignment.align`
    learns Φ_{e₂}∘Φ_{e₁}⁻¹ from pairs, and says how many it takes.

    **Bodies with charts of their own.** Robots have joints of their own, and more or fewer of them. Given as mappings
    from body to array, each body is read by a matrix of its own, in closed form: along the directions of what its past
    does not tell of its displacements, for an arm that was told to move swings on, and its wrist turns, as its past
    says. Codes of all bodies are given one covariance, which mostly makes them blind, so that nothing is left to the
    second stage. With ``pairs``, motions that two bodies made alike, charts read what bodies share, and one code is one
    action in all. A new body joins by `adopt`.

    **From frames.** The arrays of a mapping may be frames, (n, c, h, w). How far their parts move (`flow.py`) then
    takes the place of displacements of joints, and what is seen of each body, its slow directions within episodes
    (`sight.py`), that of joints; all else is the same, and `predict_next` draws frames. Episodes must have several
    transitions. Codes are not counted there: there are twelve unless ``n_components`` says how many, since frames show
    more of an arm than its hand.

    Parameters
    ----------
    n_components : int or None
        Number of codes: dimensions of the action. None takes those of ``forget`` if it says how many, and otherwise as
        many as the first stage counts, or leaves it to ``forget`` if the first stage was told how many it has. Of
        bodies with charts of their own directions are counted in closed form.
    dynamics : InverseDynamics or None
        The first stage, of which a clone is fitted. None takes the default. If its number of codes is None, and that
        of this estimator is not, it has as many.
    forget : Forget or None
        The second stage, of which a clone is fitted. None takes the default.
    random_state : int, RandomState or None
        Seed of both stages, in place of their own; None leaves them theirs.

    Attributes
    ----------
    dynamics_ : InverseDynamics or None
        The first stage, fitted; None where bodies have charts of their own.
    forget_ : Forget or None
        The second stage, fitted; ``forget_.history_.probe`` says what its codes still tell of the body. None if it was
        left out.
    bodies_ : tuple
        The bodies that there were.
    own_ : OwnCharts or None
        The chart of each body, if they have one each; ``own_.charts[body].by`` says what it was found by.
    second_stage_ : SecondStage or None
        Whether the second stage was played, and what was measured; None in files of versions that always played it.
    held_out_ : HeldOut or None
        How much of held-out displacements the first stage tells.
    n_components_ : int
        Number of codes.

    References
    ----------
    Liu et al., SCAR: self-supervised continuous action representation learning, 2026.

    Examples
    --------
    >>> from pindown.simulate import Bodies
    >>> from pindown.training import Trainer
    >>> sample = Bodies.different(2, random_state=0).sample(2_000, random_state=1)
    >>> forget = Forget(max_iter=100, trainer=Trainer(validation_fraction=0))
    >>> stages = {"dynamics": InverseDynamics(max_iter=100), "forget": forget}
    >>> act = LatentAction(2, random_state=0, **stages).fit(sample.x, sample.x_pos, sample.u)
    >>> codes = act.transform(sample.x, sample.x_pos)
    >>> tuple(codes.shape), tuple(act.predict_next(sample.x, codes, sample.u).shape)
    ((2000, 2), (2000, 6))

    Two carts that are pushed at random, the second with a pendulum that swings on: what was pushed is found.

    >>> push = np.random.default_rng(0).normal(size=(2, 500))
    >>> swing = np.convolve(push[1], [0, 2.0, 2.0])[:500]
    >>> path = {"cart": push[:1].cumsum(1).T, "pendulum": np.stack([push[1], swing]).cumsum(1).T}
    >>> before, after = ({body: rows[part] for body, rows in path.items()} for part in (slice(-1), slice(1, None)))
    >>> episode = {body: np.arange(499) // 20 for body in path}
    >>> own = LatentAction(random_state=0).fit(before, after, groups=episode)
    >>> codes = own.transform(before, after)["pendulum"]
    >>> own.n_components_, bool(abs(np.corrcoef(codes[:, 0], push[1, 1:])[0, 1]) > 0.99)
    (1, True)
    >>> print(own.second_stage_)
    second stage left out: the worst probe reads the body off 0... of held-out transitions (chance 0.500)...
    """

    guarantee: theory.Theorem = theory.FORGET_NONLINEAR
    spec = LatentActionSpec()
    own_: OwnCharts | None = None  # which, like the next, fits of earlier versions, loaded from files, have not
    bodies_: tuple[Any, ...] = ()
    stage_: SecondStage | None = None

    def __init__(
        self,
        n_components: int | None = None,
        *,
        dynamics: InverseDynamics | None = None,
        forget: Forget | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.dynamics = dynamics
        self.forget = forget
        self.random_state = random_state

    @_random.torch_defaults()
    def fit(self, X_t, X_next, body=None, *, groups=None, pairs=None) -> Self:
        """Fit one stage after the other.

        Parameters
        ----------
        X_t, X_next : array or tensor of shape (n_samples, n_features), or mappings from body to such
            Observations before and after each transition, row by row. In a mapping each body has columns of its own,
            or frames (n_samples, c, h, w), and a chart of its own; rows of an episode are in the order of time.
        body : array or tensor of shape (n_samples,)
            Whose transition it is: labels of two bodies or more, each of several rows. Left out with mappings.
        groups : array of shape (n_samples,), or a mapping from body to such, optional
            The episode of each transition: those of one are held out together. With mappings, by default an episode
            ends where a transition does not begin where the one above it ended.
        pairs : mapping, optional
            With mappings: ``{("Panda", "UR5e"): rows}``, numbers of transitions of the first and of the second that
            made the same motion, of shape (n, 2). They tie charts together, so that one code is one action in all.
        """
        if isinstance(X_t, Mapping):
            return self._fit_own(X_t, X_next, body, groups, pairs)
        if pairs is not None:
            raise ValueError(
                "LatentAction: pairs tie charts of bodies together, and bodies have charts of their own if X_t and "
                "X_next are mappings from body to array. Give such, or align codes afterwards."
            )
        if body is None:
            raise ValueError("LatentAction: say by body whose each transition is, or give mappings from body to array.")
        if getattr(X_t, "ndim", 0) == 4:
            raise ValueError(
                "LatentAction: frames are seen by a chart of each body's own. Give X_t and X_next as mappings from "
                "body to frames."
            )
        if _is_ragged(X_t):
            raise ValueError(
                "LatentAction: rows of X_t differ in width. Give X_t and X_next as mappings from body to array: each "
                "body then has a chart of its own."
            )
        whose = read_bodies(body, X_t)
        if len(np.unique(whose)) == 1:
            raise ValueError(
                f"LatentAction: body has one value only, {whose[0]}, so there is nothing to hide. Were the rows "
                "filtered by it? Give transitions of at least two bodies, or fit InverseDynamics."
            )
        dynamics = self._stage("dynamics", InverseDynamics)
        forget = self._stage("forget", Forget)
        n_components = forget.n_components if self.n_components is None else self.n_components
        counts = dynamics.n_actions is None
        if counts:
            dynamics.set_params(n_actions=n_components)
        actions = from_torch(dynamics.fit(X_t, X_next, whose, groups=groups).transform(X_t, X_next))
        n_codes = dynamics.n_actions_ if counts else n_components
        if n_codes is not None and n_codes > dynamics.n_actions_:
            raise ValueError(
                f"LatentAction: n_components={n_codes}, but dynamics has n_actions={dynamics.n_actions_}. The second "
                "stage can only drop codes: ask for as many at most."
            )
        # Nobody says whose transition is encoded, so that one map must do for all bodies.
        forget.set_params(n_components=n_codes, charts=False)
        number = np.unique(whose, return_inverse=True)[1].reshape(-1)
        told = read_groups(groups, len(whose))
        episode = np.arange(len(whose)) if told is None else combined(told, number)
        codes, out = Codes(actions, number, episode), np.isin(np.arange(len(whose)), dynamics.kept_back_)
        seed = _random.draw_seed(self.random_state) % 2**63
        fewer = n_codes is not None and n_codes < dynamics.n_actions_
        stage, played = decided(forget, codes.take(~out), codes.take(out), [], seed, asked=fewer)
        self.dynamics_, self.forget_, self.held_out_ = dynamics, played, dynamics.held_out_
        self.own_, self.stage_, self.bodies_ = None, stage, tuple(np.unique(whose).tolist())
        self.n_components_ = dynamics.n_actions_ if played is None else played.n_components_
        self.n_features_in_ = dynamics.n_features_in_
        return self

    def _fit_own(self, X_t: Mapping, X_next: Any, body: Any, groups: Any, pairs: Any) -> Self:
        if body is not None:
            raise ValueError("LatentAction: mappings say whose transitions they hold: leave body out.")
        if self.dynamics is not None:
            raise ValueError(
                "LatentAction: charts of bodies of their own are found in closed form, and dynamics is one model for "
                "all bodies. Leave it out, or give arrays of one width."
            )
        recordings = read_recordings(X_t, X_next, groups)
        if len(recordings) == 1:
            raise ValueError(
                f"LatentAction: X_t has one body only, {next(iter(recordings))}, so there is nothing to hide. Give "
                "transitions of at least two bodies, or fit InverseDynamics."
            )
        if self.n_components is not None:
            check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1)
        forget = self._stage("forget", Forget)
        n_codes = forget.n_components if self.n_components is None else self.n_components
        seed = _random.draw_seed(self.random_state) % 2**63
        own, self.held_out_ = fit_own_charts(recordings, pairs, n_codes, forget, seed)
        self.dynamics_, self.forget_, self.own_, self.n_components_ = None, own.forget, own, own.n_codes
        self.bodies_ = tuple(own.charts)
        return self

    @property
    def second_stage_(self) -> SecondStage | None:
        """Whether the second stage was played, and why; None in files of versions that always played it."""
        check_is_fitted(self)
        return self.stage_ if self.own_ is None else self.own_.second_stage

    def transform(self, X_t, X_next, body=None):
        """Return the code of each transition, blind to the body; numpy in, numpy out; torch in, torch out.

        Mappings in, a mapping out: whose transitions they are decides by which chart they are read, and bodies that
        were not there in ``fit`` are refused. With arrays ``body`` may be told, and is then held against those of
        ``fit``; codes are the same.
        """
        check_is_fitted(self)
        if self.own_ is None:
            if isinstance(X_t, Mapping):
                raise ValueError("LatentAction: fit was given arrays, and transform a mapping. Give arrays here, too.")
            if body is not None:
                self._check_known(read_bodies(body, X_t).tolist(), self.bodies_)
            codes = self.dynamics_.transform(X_t, X_next)
            return codes if self.forget_ is None else self.forget_.transform(codes)
        recordings = read_recordings(self._mapping(X_t, "X_t"), X_next, None, least_episodes=0)
        codes = {whose: self.own_.encode(whose, each) for whose, each in recordings.items()}
        return {whose: _like(X_t[whose], values) for whose, values in codes.items()}

    def predict_next(self, X_t, Z, body=None):
        """Return where codes lead from each observation, if this body acts.

        The codes may come from another body's transitions; that they then stand for the same action only pairs in
        ``fit`` promise. Without them map codes first, see `pindown.methods.alignment.align`. With mappings, from each
        body to observations and to codes, ``body`` is left out.
        """
        check_is_fitted(self)
        if self.own_ is None:
            if body is None:
                raise ValueError("LatentAction: say by body who acts: codes lead elsewhere in another.")
            self._check_known(read_bodies(body, X_t).tolist(), self.bodies_)
            actions = Z if self.forget_ is None else self.forget_.inverse_transform(Z, body)
            return self.dynamics_.predict_next(X_t, actions)
        places = read_recordings(self._mapping(X_t, "X_t"), X_t, None, least_episodes=0)
        if not isinstance(Z, Mapping) or set(Z) != set(places):
            raise ValueError("LatentAction: Z must be a mapping of the same bodies as X_t.")
        led = {}
        for whose, each in places.items():
            codes = read_codes(f"Z of {whose}", Z[whose], len(each), self.n_components_)
            led[whose] = _like(X_t[whose], self.own_.lead(whose, each.before, codes))
        return led

    def encode(self, body: Any, recording: Recording) -> np.ndarray:
        """Return the latents of a body's transitions; (n, k)."""
        if self.own_ is not None:
            return self.own_.encode(body, recording)
        return np.asarray(self.transform(recording.before, recording.after), dtype=np.float64)

    def predict(self, body: Any, before: np.ndarray, latents: np.ndarray) -> np.ndarray:
        """Return where latents lead from a body's observations."""
        if self.own_ is not None:
            return self.own_.lead(body, before, latents)
        return np.asarray(self.predict_next(before, latents, np.array([body] * len(before))))

    def features(self, body: Any, recording: Recording) -> Recording:
        """Return a body's transitions as its map takes them: of frames, what moves in them."""
        return recording if self.own_ is None else self.own_.seen(body, recording)

    def shape_of(self, body: Any) -> tuple[int, ...]:
        """Return the shape of a body's observations."""
        if self.own_ is None:
            return (self.n_features_in_,)
        return self.own_.sights[body].shape if self.own_.sights else self.own_.charts[body].place.shape

    def roll_out(self, X_t, Z):
        """Return where codes lead one after the other: `predict_next`, again and again from what it gave.

        Parameters
        ----------
        X_t : mapping from body to array of shape (n, n_features) or (n, c, h, w)
            Where each begins.
        Z : mapping from the same bodies to array of shape (n, n_steps, n_components)
            Codes, which may be those of another body: with ``pairs`` in ``fit`` one code is one action in all.

        Returns
        -------
        mapping from body to array of shape (n, n_steps + 1, n_features) or (n, n_steps + 1, c, h, w)
            What is observed, beginning with ``X_t``.
        """
        here = dict(self._mapping(X_t, "X_t"))
        codes = {whose: np.asarray(from_torch(part)) for whose, part in self._mapping(Z, "Z").items()}
        if wrong := {whose: part.shape for whose, part in codes.items() if part.ndim != 3}:
            whose, shape = next(iter(wrong.items()))
            raise ValueError(f"LatentAction: Z of {whose} must have shape (n, n_steps, n_components), got {shape}.")
        if len({part.shape[1] for part in codes.values()}) > 1:
            raise ValueError("LatentAction: Z must have as many steps for every body.")
        seen = [here]
        for step in range(next(iter(codes.values())).shape[1]):
            here = self.predict_next(here, {whose: part[:, step] for whose, part in codes.items()})
            seen.append(here)
        stack = torch.stack if all(isinstance(part, torch.Tensor) for part in here.values()) else np.stack
        return {whose: stack([moment[whose] for moment in seen], 1) for whose in here}

    def adopt(self, body, X_t, X_next, *, rows, codes, groups=None) -> Self:
        """Let another body join, by codes of some of its motions; the charts of all others stay as they are.

        Parameters
        ----------
        body : hashable
            Its name, which none has yet.
        X_t, X_next : array or tensor of shape (n_samples, n_features)
            Its transitions, with columns of its own; one episode will do, for nothing is held out.
        rows : array of shape (n,)
            Numbers of transitions of which the codes are known: 50 do.
        codes : array of shape (n, n_components)
            These codes: what ``transform`` makes of the same motions in a body that was there.
        groups : array of shape (n_samples,), optional
            The episode of each transition.
        """
        check_is_fitted(self)
        if self.own_ is None:
            raise ValueError(
                "LatentAction: adopt gives a body a chart of its own: fit mappings from body to array first."
            )
        if body in self.own_.charts:
            raise ValueError(f"LatentAction: {body} has a chart. Fit anew to find another.")
        episodes = None if groups is None else {body: groups}
        recording = read_recordings({body: X_t}, {body: X_next}, episodes, least_episodes=1)[body]
        numbers_ = read_rows(body, rows, len(recording))
        known = read_codes("codes", codes, len(numbers_), self.n_components_)
        if len(numbers_) < 2 * self.n_components_:
            raise ValueError(
                f"LatentAction: {len(numbers_)} motions with known codes are too few for {body} to join with "
                f"{self.n_components_} codes. Give {2 * self.n_components_} at least; 50 do."
            )
        self.own_ = self.own_.with_body(body, recording, numbers_, known)
        self.bodies_ = tuple(self.own_.charts)
        return self

    @staticmethod
    def _check_known(bodies: list[Any], known: tuple[Any, ...]) -> None:
        if known and (new := [body for body in bodies if body not in known]):
            raise ValueError(
                f"LatentAction: body has a value that was not there in fit: {new[0]}. Those were "
                f"{', '.join(map(str, known))}."
            )

    @staticmethod
    def _mapping(values: Any, name: str) -> Mapping:
        if not isinstance(values, Mapping):
            raise ValueError(
                f"LatentAction: each body has a chart of its own, so {name} must be a mapping from body to array, as "
                f"in fit, got {type(values).__name__}."
            )
        return values

    def _stage(self, name: str, kind: type) -> Any:
        given = getattr(self, name)
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"LatentAction: {name} must be {kind.__name__}(…) or None, got {given!r}.")
        stage = kind() if given is None else clone(given)
        if self.random_state is not None:
            stage.set_params(random_state=_random.draw_seed(self.random_state))
        return stage


def _is_ragged(X: Any) -> bool:
    return isinstance(X, list | tuple) and len({np.shape(row) for row in X}) > 1


def _like(given: Any, values: np.ndarray) -> Any:
    if isinstance(given, torch.Tensor):
        kind = torch.float32 if given.dtype == torch.float32 else torch.float64
        return torch.as_tensor(values, dtype=kind, device=given.device)
    return values.astype(np.float32 if getattr(given, "dtype", None) == np.float32 else np.float64)
