"""`LatentAction`: actions from transitions, such that the body that acts cannot be decoded from them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from pindown import _random, theory
from pindown._random import RandomState
from pindown.data.data import as_array, from_torch
from pindown.data.labels import combined
from pindown.errors import InputError
from pindown.methods.forget import Forget
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import ArrayOrTensor, Encoded
from pindown.methods.latent_action.audit import LatentActionSpec
from pindown.methods.latent_action.body_maps import BodyMaps, BodyRemoval, LabelledLatents, fit_body_maps, remove_body
from pindown.methods.latent_action.inverse_dynamics import InverseDynamics
from pindown.methods.latent_action.transitions import (
    Body,
    Observations,
    Transitions,
    like,
    listed,
    read_bodies,
    read_episodes,
    read_mapping,
    read_numbers,
    read_table,
    read_transitions,
)
from pindown.metrics.arrays import Matrix
from pindown.saving import Saves

Stage = TypeVar("Stage", bound=BaseEstimator)
PerBody: TypeAlias = Any  # an array or a tensor of all transitions, or a mapping from body to such


class LatentAction(Saves, BaseEstimator):
    r"""Recover actions from transitions of several bodies, such that the body cannot be decoded from them.

    `InverseDynamics` maps each transition to a latent action with the same distribution in all bodies. `Forget` then
    removes the body, and its decoder, which is given the body, reconstructs the latents. It is nonlinear, so it is
    tried only if probes predict the body from held-out transitions more than 5 % above chance, and kept only if it
    makes them worse, is nearly linear within bodies, and costs no transfer between them; or if ``n_components`` asks
    for fewer latents. ``removal_`` says which, and why.

    **Invariance is not unification.** Within each body the latents are the actions up to a bijection :math:`\Phi_e`,
    which may differ between bodies: the latent of one action may stand for another one elsewhere. `pindown.align`
    learns :math:`\Phi_2 \circ \Phi_1^{-1}` from pairs.

    **Body-specific linear maps.** Robots differ in their joints, and in how many they have. Given mappings from body
    to array, a linear map of each body is fitted in closed form, along the leading directions of the innovations of its
    displacements, and latents of all bodies are given one covariance. With ``pairs``, motions that two bodies both
    made, maps are fitted to what bodies share, and latents of one action agree in all of them. `adopt` adds a body.

    **Frames.** Arrays of a mapping may be frames, (n, c, h, w), in episodes of several transitions. Optical flow then
    replaces displacements, slow features replace joints, and `predict_next` returns frames. There are twelve latents
    unless ``n_components`` says how many.

    Parameters
    ----------
    n_components : int or None
        Dimensions of the action. None takes those of ``forget``, or else counts them: see `InverseDynamics`; with
        mappings, by the variances of innovations.
    dynamics : InverseDynamics or None
        The first stage, which is cloned; None takes the default. Not with mappings.
    forget : Forget or None
        The second stage, which is cloned; None takes the default.
    random_state : int, RandomState or None
        Seed of both stages, in place of their own; None leaves them theirs.

    Attributes
    ----------
    dynamics_ : InverseDynamics or None
        The first stage, fitted; None with mappings.
    forget_ : Forget or None
        The second stage, fitted; None if it is not applied.
    bodies_ : tuple
        The bodies.
    body_maps_ : BodyMaps or None
        The map of each body, with mappings; ``body_maps_.maps[body].fitted_to`` says what it was fitted to.
    removal_ : BodyRemoval or None
        Whether `Forget` is applied, and what was measured. None in files of early versions.
    held_out_ : HeldOut or None
        Explained fraction of squared displacements, on held-out and on training transitions.
    n_components_ : int
        Number of latents.

    References
    ----------
    Liu et al., SCAR: self-supervised continuous action representation learning, 2026.

    Examples
    --------
    >>> from pindown.training import Trainer
    >>> rng = np.random.default_rng(0)
    >>> x, action, body = rng.normal(size=(2_000, 6)), rng.normal(size=(2_000, 2)), rng.integers(2, size=2_000)
    >>> x_next = x + np.tile(np.where(body[:, None] == 0, action, action[:, ::-1]), 3)  # bodies move in different ways
    >>> forget = Forget(max_iter=100, trainer=Trainer(validation_fraction=0))
    >>> stages = {"dynamics": InverseDynamics(max_iter=100), "forget": forget}
    >>> act = LatentAction(2, random_state=0, **stages).fit(x, x_next, body)
    >>> latents = act.transform(x, x_next)
    >>> latents.shape, act.predict_next(x, latents, body).shape
    ((2000, 2), (2000, 6))

    Two carts are pushed at random, the second with a pendulum that swings. The pushes are recovered:

    >>> push = np.random.default_rng(0).normal(size=(2, 500))
    >>> swing = np.convolve(push[1], [0, 2.0, 2.0])[:500]
    >>> path = {"cart": push[:1].cumsum(1).T, "pendulum": np.stack([push[1], swing]).cumsum(1).T}
    >>> before, after = ({body: x[part] for body, x in path.items()} for part in (slice(-1), slice(1, None)))
    >>> episode = {body: np.arange(499) // 20 for body in path}
    >>> act = LatentAction(random_state=0).fit(before, after, groups=episode)
    >>> latents = act.transform(before, after)["pendulum"]
    >>> act.n_components_, bool(abs(np.corrcoef(latents[:, 0], push[1, 1:])[0, 1]) > 0.99)
    (1, True)
    >>> print(act.removal_)
    body removal not applied: the worst probe predicts the body with balanced accuracy 0... (chance 0.500...
    """

    guarantee: ClassVar[theory.Theorem] = theory.FORGET_NONLINEAR
    spec: ClassVar[LatentActionSpec] = LatentActionSpec()
    body_maps_: BodyMaps | None = None  # these are missing in files of early versions
    bodies_: tuple[Body, ...] = ()
    removal_: BodyRemoval | None = None
    dynamics_: InverseDynamics | None
    forget_: Forget | None
    held_out_: HeldOut | None

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
    def fit(
        self,
        X_t: PerBody,
        X_next: PerBody,
        body: ArrayOrTensor | None = None,
        *,
        groups: PerBody | None = None,
        pairs: Mapping[tuple[Body, Body], ArrayLike] | None = None,
    ) -> Self:
        """Fit both stages.

        Parameters
        ----------
        X_t, X_next : array or tensor of shape (n_samples, n_features), or mappings from body to such
            Observations before and after each transition. With mappings each body has features of its own, or frames
            (n_samples, c, h, w), and its transitions are in the order of time within an episode.
        body : array or tensor of shape (n_samples,)
            The body of each transition: labels of two bodies or more. Left out with mappings.
        groups : array of shape (n_samples,), or a mapping from body to such, optional
            The episode of each transition. Whole episodes are held out. With mappings, an episode by default ends where
            the next transition does not begin where the last one ended.
        pairs : mapping, optional
            With mappings: ``{("Panda", "UR5e"): numbers}``, transitions of the first and of the second that made the
            same motion, (n, 2). Latents of one action then agree in all bodies.
        """
        if isinstance(X_t, Mapping):
            return self._fit_mappings(X_t, X_next, body, groups, pairs)
        if pairs is not None:
            raise InputError("pairs", "LatentAction: pairs need mappings from body to array. Otherwise use `align`.")
        if body is None:
            raise InputError("body", "LatentAction: body is missing. Label transitions, or give mappings from body.")
        if getattr(X_t, "ndim", 2) != 2 or (isinstance(X_t, list | tuple) and len({np.shape(x) for x in X_t}) > 1):
            message = "arrays must have shape (n, d). Give frames, or bodies with other features, as mappings from body"
            raise InputError("X_t", f"LatentAction: {message}.")
        bodies = read_bodies(body, len(X_t))
        self._check_several("body", bodies.values)
        dynamics, forget = self._stage("dynamics", InverseDynamics), self._stage("forget", Forget)
        n_components = forget.n_components if self.n_components is None else self.n_components
        is_open = dynamics.n_components is None
        if is_open:
            dynamics.set_params(n_components=n_components)
        latents = from_torch(dynamics.fit(X_t, X_next, body, groups=groups).transform(X_t, X_next))
        n_components = dynamics.n_components_ if is_open else n_components
        required = n_components is not None and n_components < dynamics.n_components_
        if n_components is not None and n_components > dynamics.n_components_:
            message = f"n_components={n_components} must be at most {dynamics.n_components_}, those of dynamics"
            raise InputError("n_components", f"LatentAction: {message}.")
        episodes = read_episodes(groups, len(latents))
        episode = np.arange(len(latents)) if episodes is None else combined(episodes, bodies.labels)
        held_out = np.isin(np.arange(len(latents)), dynamics.held_out_samples_)
        data, seed = LabelledLatents(latents, bodies.labels, episode), _random.draw_seed(self.random_state) % 2**63
        forget.set_params(n_components=n_components)
        self.removal_, self.forget_ = remove_body(forget, data, held_out, [], seed, required=required)
        self.dynamics_, self.held_out_, self.body_maps_ = dynamics, dynamics.held_out_, None
        self.bodies_ = tuple(bodies.values.tolist())
        self.n_components_ = dynamics.n_components_ if self.forget_ is None else self.forget_.n_components_
        self.n_features_in_ = dynamics.n_features_in_
        return self

    def _fit_mappings(self, X_t: PerBody, X_next: PerBody, body: object, groups: PerBody, pairs: Any) -> Self:
        if body is not None:
            raise InputError("body", "LatentAction: mappings have the bodies as keys. Leave body out.")
        if self.dynamics is not None:
            message = "LatentAction: dynamics is one model for all bodies. Leave it out, or give arrays of one width."
            raise InputError("dynamics", message)
        transitions = read_transitions(X_t, X_next, groups)
        self._check_several("X_t", transitions)
        if self.n_components is not None:
            check_scalar(self.n_components, "n_components", numbers.Integral, min_val=1)
        forget = self._stage("forget", Forget)
        n_components = forget.n_components if self.n_components is None else self.n_components
        seed = _random.draw_seed(self.random_state) % 2**63
        maps, self.removal_, self.held_out_ = fit_body_maps(transitions, pairs, n_components, forget, seed)
        self.dynamics_, self.forget_, self.body_maps_ = None, maps.forget, maps
        self.n_components_, self.bodies_ = maps.n_components, tuple(maps.maps)
        return self

    def transform(self, X_t: PerBody, X_next: PerBody, body: ArrayOrTensor | None = None) -> Encoded:
        """Return the latent action of each transition; numpy in, numpy out; torch in, torch out.

        Mappings in, a mapping out, with bodies that occurred in ``fit``. With arrays, ``body`` is optional: it is
        compared with the bodies of ``fit``, and latents are the same.
        """
        check_is_fitted(self)
        if self.body_maps_ is None:
            if isinstance(X_t, Mapping):
                raise InputError("X_t", "LatentAction: X_t must be an array, as in `fit`, got a mapping.")
            if body is not None:
                self._check_known(body)
            return self._encode(X_t, X_next)
        found = self._read(X_t, X_next)
        return {whose: like(X_t[whose], self.encode(whose, each)) for whose, each in found.items()}

    def predict_next(self, X_t: PerBody, Z: PerBody, body: ArrayOrTensor | None = None) -> Encoded:
        """Return predicted observations, if these bodies act.

        Latents may be those of another body: they stand for the same action if there were ``pairs`` in ``fit``, or
        after `pindown.align`. With mappings from body to observations and to latents, ``body`` is left out.
        """
        check_is_fitted(self)
        if self.body_maps_ is None:
            if body is None:
                raise InputError("body", "LatentAction: body is missing. Latents have other effects in other bodies.")
            self._check_known(body)
            return self._predict(X_t, Z, body)
        found, predicted = self._read(X_t, X_t), {}
        latents = read_mapping("Z", Z, found)
        for whose, each in found.items():
            values = read_table("Z", latents[whose], (len(each), self.n_components_)).astype(np.float64)
            predicted[whose] = like(X_t[whose], self.predict(whose, each.before, values))
        return predicted

    def roll_out(self, X_t: PerBody, Z: PerBody) -> Encoded:
        """Return observations predicted over several steps: `predict_next`, applied to its own predictions.

        Parameters
        ----------
        X_t : mapping from body to array of shape (n, n_features) or (n, c, h, w)
            The first observation of each episode.
        Z : mapping from the same bodies to array of shape (n, n_steps, n_components)
            Latents, which may be those of another body if there were ``pairs`` in ``fit``.

        Returns
        -------
        mapping from body to array of shape (n, n_steps + 1, n_features) or (n, n_steps + 1, c, h, w)
            The observations, starting with ``X_t``.
        """
        here = dict(read_mapping("X_t", X_t))
        latents = {whose: np.asarray(from_torch(part)) for whose, part in read_mapping("Z", Z).items()}
        n_steps = {part.shape[1] if part.ndim == 3 else -1 for part in latents.values()}
        if len(n_steps) != 1 or -1 in n_steps:
            message = "Z must have shape (n, n_steps, n_components), with as many steps for every body"
            raise InputError("Z", f"LatentAction: {message}.")
        steps = [here]
        for step in range(n_steps.pop()):
            here = self.predict_next(here, {whose: part[:, step] for whose, part in latents.items()})
            steps.append(here)
        stack = torch.stack if all(isinstance(part, torch.Tensor) for part in here.values()) else np.stack
        return {whose: stack([observed[whose] for observed in steps], 1) for whose in here}

    def adopt(
        self,
        body: Body,
        X_t: ArrayOrTensor,
        X_next: ArrayOrTensor,
        *,
        samples: ArrayLike,
        latents: ArrayOrTensor,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Add a body, given latents of some of its transitions; the maps of all others stay the same.

        Parameters
        ----------
        body : hashable
            Its name, which no other body has.
        X_t, X_next : array or tensor of shape (n_samples, n_features)
            Its transitions, with features of its own; one episode is enough.
        samples : array of shape (n,)
            Numbers of transitions whose latents are known; 50 are enough.
        latents : array of shape (n, n_components)
            Their latents: what ``transform`` returns for the same motions of another body.
        groups : array of shape (n_samples,), optional
            The episode of each transition.
        """
        check_is_fitted(self)
        if self.body_maps_ is None:
            raise InputError("body", "LatentAction: adopt needs a fit to mappings from body to array.")
        if body in self.body_maps_.maps:
            raise InputError("body", f"LatentAction: {body} occurred in `fit`. Fit again to change its map.")
        episodes = None if groups is None else {body: groups}
        transitions = read_transitions({body: X_t}, {body: X_next}, episodes, min_episodes=1)[body]
        known = read_numbers("samples", np.reshape(from_torch(samples), (-1, 1)), {body: len(transitions)})[:, 0]
        if len(np.unique(known)) < max(2 * self.n_components_, len(known)):
            message = f"samples must be {2 * self.n_components_} different numbers or more, 50 are enough"
            raise InputError("samples", f"LatentAction: {message}.")
        values = read_table("latents", latents, (len(known), self.n_components_)).astype(np.float64)
        self.body_maps_ = self.body_maps_.with_body(body, transitions, known, values)
        self.bodies_ = tuple(self.body_maps_.maps)
        return self

    # ---- one body at a time, for audits -------------------------------------------------------------------------

    def encode(self, body: Body, transitions: Transitions) -> Matrix:
        """Return the latents of a body's transitions; (n, k)."""
        if self.body_maps_ is not None:
            return self.body_maps_.encode(body, transitions)
        return np.asarray(self._encode(transitions.before, transitions.after), dtype=np.float64)

    def predict(self, body: Body, before: Observations, latents: Matrix) -> Observations:
        """Return predicted observations of a body."""
        if self.body_maps_ is not None:
            return self.body_maps_.predict(body, before, latents)
        return np.asarray(self._predict(before, latents, np.array([body] * len(before))))

    def inputs(self, body: Body, transitions: Transitions) -> Transitions:
        """Return a body's transitions as its map takes them: frames as features."""
        return transitions if self.body_maps_ is None else self.body_maps_.inputs(body, transitions)

    def shape_of(self, body: Body) -> tuple[int, ...]:
        """Return the shape of a body's observations."""
        return (self.n_features_in_,) if self.body_maps_ is None else self.body_maps_.shape(body)

    def _encode(self, X_t: PerBody, X_next: PerBody) -> Encoded:
        assert self.dynamics_ is not None
        latents = self.dynamics_.transform(X_t, X_next)
        return latents if self.forget_ is None else self.forget_.transform(latents)

    def _predict(self, X_t: PerBody, Z: PerBody, body: ArrayOrTensor | None) -> Encoded:
        assert self.dynamics_ is not None
        return self.dynamics_.predict_next(
            X_t, Z if self.forget_ is None or body is None else self.forget_.inverse_transform(Z, body)
        )

    def _read(self, X_t: PerBody, X_next: PerBody) -> dict[Body, Transitions]:
        assert self.body_maps_ is not None
        found = read_transitions(read_mapping("X_t", X_t), X_next, None, min_episodes=0)
        for whose, each in found.items():
            self.body_maps_.check(whose, each.before)
        return found

    def _check_known(self, body: ArrayLike) -> None:
        labels: Iterable[Body] = as_array(body, "body").tolist()
        if self.bodies_ and (new := set(labels) - set(self.bodies_)):
            message = f"body has values that did not occur in `fit`: {listed(new)}. It knows {listed(self.bodies_)}"
            raise InputError("body", f"LatentAction: {message}.")

    def _check_several(self, argument: str, bodies: Iterable[Body]) -> None:
        if len(names := list(bodies)) == 1:
            message = f"there is one body only, {names[0]}. Give several, or fit InverseDynamics"
            raise InputError(argument, f"LatentAction: {message}.")

    def _stage(self, name: str, kind: type[Stage]) -> Stage:
        given = getattr(self, name)
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"LatentAction: {name} must be {kind.__name__}(…) or None, got {given!r}.")
        stage = kind() if given is None else clone(given)
        if self.random_state is not None:
            stage.set_params(random_state=_random.draw_seed(self.random_state))
        return stage
