r"""Body-specific linear maps from displacements to latent actions, in closed form.

An arm also swings, sags and turns its wrist, as much as it follows its command, so the leading directions of
displacements are not those of the action. But such motion follows from earlier displacements, and the action does not:
the leading directions of *innovations*, the residuals of displacements given earlier ones, are those of the action.
With pairs, latents are what motions of several bodies share.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import eigh
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from pindown import networks
from pindown.errors import IdentifiabilityWarning, InputError, warn
from pindown.methods.alignment import PolynomialRidge
from pindown.methods.forget import Forget
from pindown.methods.held_out import HeldOut
from pindown.methods.latent_action.frames import N_COMPONENTS, SlowFeatures, ridge
from pindown.methods.latent_action.inverse_dynamics import SCORE
from pindown.methods.latent_action.transitions import (
    Body,
    Observations,
    Pairs,
    Transitions,
    explained,
    listed,
    read_pairs,
)
from pindown.methods.transport import matrix_power, monge_map
from pindown.metrics import Effort, Leakage, leakage
from pindown.metrics.arrays import Labels, Mask, Matrix, pooled_r2

N_LAGS = 2  # earlier displacements that innovations are given
SAMPLES_PER_REGRESSOR = 5  # transitions with earlier ones that a regression on these needs, for each regressor
MIN_VARIANCE = 0.01  # variance of innovations, relative to the largest, that counts as zero
N_ROUNDS = 8  # in which bodies agree on latents of their pairs; chosen on recordings of which nothing is reported
PENALTIES = np.logspace(-4, 4, 17)  # of ridge regressions, from which leave-one-out error chooses
FORWARD_PENALTY = 1e-4  # of the forward model, relative to the mean square of its inputs
DECODABLE, STRONG = 0.1, 0.2  # balanced accuracies above chance that are worth a warning; and if they may be chance
PREDICTABLE = 0.1  # fraction of the variance of latents that earlier displacements may predict without a warning
SLOW, SWINGS = 0.5, 0.1  # actions are slow if earlier latents predict this fraction, and other directions add no more
TOLERATED = 0.05  # balanced accuracy above chance up to which latents count as invariant: true actions reach as much
MIN_GAIN = 0.01  # by which the removal must lower the accuracy of the worst probe
MAX_LOSS = 0.02  # of R², within bodies and of transfer between them, that the removal may cost
N_FOLDS = 5  # folds of the pairs, each of which is predicted by a map fitted to the others
MIN_TRANSITIONS = 4  # transitions of a body, of two episodes, that probes need
MIN_HELD_OUT = 10  # held-out transitions of a body: with fewer, all transitions are probed

PairedLatents = list[tuple[Matrix, Matrix]]
"""For some pairs of bodies, latents of the same motions in the first and in the second."""


@dataclass(frozen=True, eq=False)
class BodyMap:
    r"""A body's latents, :math:`z = W^\top (c - m)` of changes c, and its forward model.

    A displacement is predicted linearly from the latents, with coefficients linear in the observation. ``fitted_to``
    is ``"innovations"``, ``"displacements"`` if no transition has earlier ones, ``"pairs"``, or ``"latents"``.
    """

    centre: Matrix  # m, the mean displacement, or mean of what moves in frames; (c,)
    weights: Matrix  # W; (c, k)
    fitted_to: str
    place: Matrix = field(default_factory=lambda: np.zeros(0))  # mean of observations; (d,)
    unit: Matrix = field(default_factory=lambda: np.zeros(0))  # standard deviation of observations; (d,)
    forward: Matrix = field(default_factory=lambda: np.zeros((0, 0)))  # coefficients; ((1 + k)(1 + d), d)

    def encode(self, transitions: Transitions) -> Matrix:
        """Return latents; (n, k)."""
        return (transitions.change - self.centre) @ self.weights

    def predict(self, before: Observations, latents: Matrix) -> Matrix:
        """Return predicted observations; (n, d) and (n, k) → (n, d)."""
        return before + _bilinear((before - self.place) / self.unit, latents) @ self.forward

    def with_forward(self, transitions: Transitions, latents: Matrix) -> BodyMap:
        """Return the map with a forward model fitted to latents."""
        place, unit = transitions.before.mean(0), _scale(transitions.before)
        step = transitions.after - transitions.before
        forward = ridge(_bilinear((transitions.before - place) / unit, latents), step, FORWARD_PENALTY)
        return replace(self, place=place, unit=unit, forward=forward)


def _bilinear(x: Observations, latents: Matrix) -> Matrix:
    """Return 1, latents, observations, and all products of the last two; (n, (1 + k)(1 + d))."""
    one = np.ones((len(x), 1))
    return (np.hstack([one, latents])[:, :, None] * np.hstack([one, x])[:, None, :]).reshape(len(x), -1)


def _scale(x: Observations) -> Matrix:
    return np.where((spread := x.std(0)) > 0, spread, 1.0)


# ---- innovations ------------------------------------------------------------------------------------------------


def with_past(transitions: Transitions) -> tuple[Observations, Observations] | None:
    """Return displacements that have earlier ones, (m, d), and the earlier ones, (m, lags, d); None with too few."""
    change, follows = transitions.change, transitions.follows()
    known = np.all([np.roll(follows, lag) for lag in range(N_LAGS)], axis=0)
    known[:N_LAGS] = False
    which = np.flatnonzero(known)
    if len(which) < SAMPLES_PER_REGRESSOR * (N_LAGS * change.shape[1] + 1):
        return None
    return change[which], np.stack([change[which - lag] for lag in range(1, N_LAGS + 1)], 1)


def _residuals(now: Observations, past: Observations) -> Matrix:
    """Return what a regression on earlier values, (m, lags, d), does not predict; (m, d)."""
    known = np.hstack([np.ones((len(now), 1)), past.reshape(len(now), -1)])
    return np.asarray(now - known @ np.linalg.lstsq(known, now, rcond=None)[0], dtype=np.float64)


def innovations(transitions: Transitions) -> Matrix | None:
    """Return the residuals of displacements given the earlier ones, (m, d); None with too few."""
    found = with_past(transitions)
    return None if found is None else _residuals(*found)


def innovation_variances(transitions: Transitions) -> Matrix:
    """Return variances of innovations, or else of displacements, along their principal axes, the largest first."""
    new = innovations(transitions)
    moments = _moments(transitions.change if new is None else new)
    return np.asarray(np.linalg.eigvalsh(moments)[::-1], dtype=np.float64)


def count_action_dimensions(spectra: Sequence[Matrix]) -> int:
    """Return the number of dimensions of the action: the k after which log variances fall most, in the mean of bodies.

    The fall is weighted by √k, since long lever arms make the first variance large.

    Examples
    --------
    >>> count_action_dimensions([np.array([9, 5, 4, 0.3, 0.1]), np.array([7, 6, 2, 0.1, 0.05, 0.02])])
    3
    """
    logs = [np.log(np.maximum(np.append(each, 0.0) / each[0], MIN_VARIANCE)) for each in spectra]
    falls = [k**0.5 * np.mean([each[k - 1] - each[k] for each in logs]) for k in range(1, min(map(len, logs)))]
    return 1 + int(np.argmax(falls))


def fit_to_innovations(transitions: Transitions, n_components: int) -> BodyMap:
    """Project displacements onto the leading directions of innovations."""
    change, new = transitions.change, innovations(transitions)
    centre = change.mean(0)
    axes = np.linalg.eigh(_moments(change - centre if new is None else new))[1][:, ::-1][:, :n_components]
    return BodyMap(centre, axes, "displacements" if new is None else "innovations")


def _warn_if_predictable(transitions: Mapping[Body, Transitions], n_components: int) -> None:
    """Warn if much of some latents follows from earlier displacements, and not because the actions change slowly."""
    follows = {}
    for body, each in transitions.items():
        if (found := with_past(each)) is not None:
            now, past = found
            new = _residuals(now, past)
            axes = np.linalg.eigh(_moments(new))[1][:, -n_components:]
            latents = now @ axes
            whole, own = (
                1 - float(rest.var(0).sum() / latents.var(0).sum())
                for rest in (new @ axes, _residuals(latents, past @ axes))
            )
            if own < SLOW or whole - own > SWINGS:
                follows[body] = whole
    if follows and (fraction := follows[body := max(follows, key=lambda name: follows[name])]) > PREDICTABLE:
        message = f"{fraction:.0%} of the variance of the latents of {body} follows from earlier displacements"
        advice = "Actions that change slowly and a body that swings on look alike, and pairs or labels tell them apart."
        warn(IdentifiabilityWarning(f"LatentAction: {message}. {advice}", "predictable actions"))


# ---- pairs ------------------------------------------------------------------------------------------------------


def fit_to_pairs(
    learned: Mapping[Body, Transitions],
    paired: Mapping[Body, Transitions],
    motions: Mapping[Body, Labels],
    n_components: int,
) -> dict[Body, BodyMap]:
    r"""Fit a map for each body to latents of motions on which all bodies agree.

    At first the latents Z of the motions, (motions, k), maximise :math:`\sum_e \mathrm{tr}\, Z_e^\top H_e Z_e` with
    :math:`\sum_e Z_e^\top Z_e = I`, where :math:`H_e` is the regression on the latents of body e by innovations
    (Kettenring, 1971). In a few rounds Z is then regressed on each body, and becomes the mean over bodies. More rounds
    would find what bodies share besides actions.
    """
    n_motions = 1 + max(int(own.max()) for own in motions.values())
    agreement, count = np.zeros((n_motions, n_motions)), np.zeros(n_motions)
    for body, own in motions.items():
        z = fit_to_innovations(learned[body], n_components).encode(paired[body])
        np.add.at(agreement, (own[:, None], own[None, :]), z @ np.linalg.pinv(z))
        np.add.at(count, own, 1.0)
    latents = eigh(agreement, np.diag(count))[1][:, ::-1][:, :n_components]
    for _ in range(N_ROUNDS):
        latents = latents @ matrix_power(_moments(latents), -0.5)
        maps = {b: regress_latents(learned[b], paired[b], latents[own], "pairs") for b, own in motions.items()}
        latents = np.zeros_like(latents)
        for body, own in motions.items():
            np.add.at(latents, own, maps[body].encode(paired[body]))
        latents /= count[:, None]
    return maps


def regress_latents(transitions: Transitions, known: Transitions, latents: Matrix, fitted_to: str) -> BodyMap:
    """Fit a map to latents of some transitions by ridge regression; all transitions standardise the inputs."""
    centre, unit = transitions.change.mean(0), _scale(transitions.change)
    if transitions.motion is not None:  # one unit for all, since what moves little is mostly noise
        unit = np.full_like(unit, np.sqrt((transitions.change.std(0) ** 2).mean()) or 1.0)
    model = RidgeCV(PENALTIES, fit_intercept=False).fit((known.change - centre) / unit, latents)
    return BodyMap(centre, np.reshape(model.coef_, (latents.shape[1], -1)).T / unit[:, None], fitted_to)


def match_covariances(maps: Mapping[Body, BodyMap], transitions: Mapping[Body, Transitions]) -> dict[Body, BodyMap]:
    """Give the latents of all bodies the covariance I by the smallest maps: to the mean covariance, then to I."""
    own = {body: _moments(maps[body].encode(each)) for body, each in transitions.items()}
    common = np.mean(list(own.values()), axis=0)
    whitening = matrix_power(common, -0.5)
    return {
        body: replace(maps[body], weights=maps[body].weights @ (monge_map(each, common) @ whitening))
        for body, each in own.items()
    }


def _moments(x: Observations) -> Matrix:
    return np.asarray(x.T @ x / len(x), dtype=np.float64)


# ---- removal of the body ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BodyRemoval:
    """Whether `Forget` was applied to the latents, and what was measured on held-out episodes."""

    applied: bool
    reason: str
    chance: float  # balanced accuracy of a guess of the body
    before: float  # that of the worst probe, without the removal
    after: float | None = None  # and with it; None if it was not tried

    def __str__(self) -> str:
        return f"body removal {'applied' if self.applied else 'not applied'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class LabelledLatents:
    """Latents with the number of the body and of the episode of each transition; (n, k), (n,), (n,)."""

    latents: Matrix
    body: Labels
    episode: Labels

    def take(self, which: Mask) -> LabelledLatents:
        """Return some of them."""
        return LabelledLatents(self.latents[which], self.body[which], self.episode[which])

    def bodies(self, min_transitions: int) -> Labels:
        """Return the bodies with so many transitions, of two episodes or more."""
        own = {body: self.body == body for body in np.unique(self.body)}
        enough = [b for b, o in own.items() if o.sum() >= min_transitions and len(np.unique(self.episode[o])) > 1]
        return np.array(enough, dtype=np.int64)

    def leakage(self, seed: int) -> Leakage:
        """Return how well probes predict the body."""
        effort = Effort(n_seeds=1, n_permutations=199)
        return leakage(self.latents, self.body, groups=self.episode, effort=effort, random_state=seed)


def remove_body(
    forget: Forget, data: LabelledLatents, held_out: Mask, pairs: PairedLatents, seed: int, *, required: bool = False
) -> tuple[BodyRemoval, Forget | None]:
    """Decide whether to remove the body, and return `Forget`, fitted, if so.

    It is tried if probes predict the body, and kept if it lowers the accuracy of the worst one, is nearly linear within
    each body, and costs no transfer between bodies. It is always kept if ``required``.
    """
    bodies = data.bodies(MIN_TRANSITIONS)
    if len(bodies) < 2:
        message = f"probes need {MIN_TRANSITIONS} transitions, of two episodes, of two bodies at least. Give more"
        raise InputError("body", f"LatentAction: {message}.")
    known = np.isin(data.body, bodies)
    if not known.all():
        message = f"LatentAction: {(~known).sum()} transitions are of bodies that are too rare to be probed."
        warn(IdentifiabilityWarning(message, "rare bodies"))
    enough = set(bodies) <= set(data.take(held_out).bodies(MIN_HELD_OUT))
    shown = data.take(known & held_out if enough else known)
    where = "held-out transitions" if enough else "all transitions, since too few are held out"
    found = shown.leakage(seed)
    before, chance = found.worst, found.chance
    if not required and (not found.leaks or before <= chance + TOLERATED):
        if before > chance + STRONG:
            _warn_decodable(before, chance)
        doubt = f"; this may be chance, p = {found.p_value:.2g}" if before > chance + TOLERATED else ""
        reason = f"the worst probe predicts the body with balanced accuracy {before:.3f} (chance {chance:.3f}"
        return BodyRemoval(False, f"{reason}{doubt}) on {where}.", chance, before), None
    learned = data.take(~held_out)
    if forget.encoder is None:
        forget.set_params(encoder=networks.skip_mlp)  # one map for all bodies: later the body is unknown
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # what remains is measured below
        forget.fit(learned.latents, learned.body)
    made = forget.transform(shown.latents)
    after = LabelledLatents(made, shown.body, shown.episode).leakage(seed).worst
    linear = min(
        pooled_r2(shown.latents[own], PolynomialRidge().fit(made[own], shown.latents[own]).predict(made[own]))
        for own in (shown.body == body for body in bodies)
    )
    transfer = _transfer(pairs)
    loss, cost = 1 - linear, f"linear within bodies up to R² {linear:.3f}"
    if transfer is not None:
        transferred = _transfer([(forget.transform(x), forget.transform(y)) for x, y in pairs]) or 0.0
        loss, cost = max(loss, transfer - transferred), f"{cost}, transfer R² {transfer:.3f} → {transferred:.3f}"
    accuracy = f"balanced accuracy of the worst probe {before:.3f} → {after:.3f} (chance {chance:.3f})"
    reason = f"{accuracy} on {where}, {cost}."
    if required:
        reason = f"n_components asks for {made.shape[1]} of {data.latents.shape[1]} latents; {reason}"
    applied = required or (after <= before - MIN_GAIN and loss <= MAX_LOSS)
    if (left := after if applied else before) > chance + DECODABLE:
        _warn_decodable(left, chance)
    return BodyRemoval(applied, reason, chance, before, after), forget if applied else None


def _warn_decodable(accuracy: float, chance: float) -> None:
    message = f"the body can be predicted from the latents: balanced accuracy {accuracy:.2f} (chance {chance:.2f})"
    warn(IdentifiabilityWarning(f"LatentAction: {message}. See `removal_`.", "decodable body"))


def _transfer(pairs: PairedLatents) -> float | None:
    """Return the mean R² of latents of one body, predicted from another's by affine maps; None with too few pairs."""
    scores = [
        pooled_r2(y, cross_val_predict(PolynomialRidge(), x, y, cv=N_FOLDS)) for x, y in pairs if len(x) >= 2 * N_FOLDS
    ]
    return float(np.mean(scores)) if scores else None


# ---- all bodies -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BodyMaps:
    """The map of each body, `Forget` if it is applied to the latents, and the features of bodies with frames."""

    maps: dict[Body, BodyMap]
    forget: Forget | None
    features: dict[Body, SlowFeatures] = field(default_factory=dict)

    @property
    def n_components(self) -> int:
        """Number of latents."""
        return next(iter(self.maps.values())).weights.shape[1]

    def shape(self, body: Body) -> tuple[int, ...]:
        """Return the shape of a body's observations."""
        return self.features[body].shape if self.features else self.maps[body].place.shape

    def encode(self, body: Body, transitions: Transitions) -> Matrix:
        """Return the latents of a body's transitions; (n, k)."""
        latents = self.maps[body].encode(self.inputs(body, transitions))
        return (
            latents if self.forget is None or self.maps[body].fitted_to == "latents" else self.forget.transform(latents)
        )

    def inputs(self, body: Body, transitions: Transitions) -> Transitions:
        """Return a body's transitions as its map takes them: frames as features."""
        return self.features[body].transitions(transitions) if self.features else transitions

    def predict(self, body: Body, before: Observations, latents: Matrix) -> Observations:
        """Return predicted observations of a body: vectors, or frames."""
        if not self.features:
            return self.maps[body].predict(before, latents)
        features = self.features[body]
        return features.decode(before, self.maps[body].predict(features.encode(before), latents))

    def check(self, body: Body, before: Observations) -> None:
        """Raise if a body has no map, or other observations than in the fit."""
        if body not in self.maps:
            message = f"{body} did not occur in `fit`, only {listed(self.maps)}. Let it join by `adopt`"
            raise InputError("X_t", f"LatentAction: {message}.")
        if before.shape[1:] != self.shape(body):
            message = f"observations of {body} must have shape {self.shape(body)}, as in `fit`, got {before.shape[1:]}"
            raise InputError("X_t", f"LatentAction: {message}.")

    def with_body(self, body: Body, transitions: Transitions, known: Labels, latents: Matrix) -> BodyMaps:
        """Return the maps with that of another body, fitted to latents of some of its transitions."""
        if transitions.are_frames != bool(self.features):
            raise InputError("X_t", f"LatentAction: {body} must have {'frames' if self.features else 'vectors'}.")
        features = self.features
        if transitions.are_frames:
            features = {**features, body: SlowFeatures.fitted(transitions)}
            transitions = features[body].transitions(transitions)
        fitted = regress_latents(transitions, transitions.take(known), latents, "latents")
        own = _moments(fitted.encode(transitions))  # the latents of all others have covariance I
        fitted = replace(fitted, weights=fitted.weights @ monge_map(own, np.eye(len(own))))
        fitted = fitted.with_forward(transitions, fitted.encode(transitions))
        return replace(self, maps={**self.maps, body: fitted}, features=features)


def _fit_maps(
    learned: Mapping[Body, Transitions], whole: Mapping[Body, Transitions], pairs: Pairs | None, n_components: int
) -> tuple[dict[Body, BodyMap], PairedLatents]:
    """Return maps to latents of one covariance, and the latents of pairs, which are of the whole data."""
    if pairs is None:
        alone = {body: fit_to_innovations(each, n_components) for body, each in learned.items()}
        return match_covariances(alone, learned), []
    motions = read_pairs(pairs, whole)
    in_pairs = {body: whole[body].take(own >= 0) for body, own in motions.items()}
    numbers = {body: own[own >= 0] for body, own in motions.items()}
    maps = match_covariances(fit_to_pairs(learned, in_pairs, numbers, n_components), learned)
    paired = []
    for (first, second), links in pairs.items():
        of_first, of_second = np.asarray(links).T
        x, y = whole[first].take(of_first), whole[second].take(of_second)
        paired.append((maps[first].encode(x), maps[second].encode(y)))
    return maps, paired


def fit_body_maps(
    transitions: Mapping[Body, Transitions], pairs: Pairs | None, n_components: int | None, forget: Forget, seed: int
) -> tuple[BodyMaps, BodyRemoval, HeldOut]:
    """Fit maps to most episodes of each body, and use the others to decide whether `Forget` is applied."""
    rng = np.random.default_rng(seed)
    out = {body: each.held_out(rng) for body, each in transitions.items()}
    learned = {body: each.take(~out[body]) for body, each in transitions.items()}
    features: dict[Body, SlowFeatures] = {}
    if next(iter(transitions.values())).are_frames:
        features = {body: SlowFeatures.fitted(each) for body, each in learned.items()}
        transitions = {body: features[body].transitions(each) for body, each in transitions.items()}
        learned = {body: each.take(~out[body]) for body, each in transitions.items()}
    width, narrowest = min((each.change.shape[1], str(body)) for body, each in transitions.items())
    if n_components is None:
        n_components = (
            min(N_COMPONENTS, width)
            if features
            else count_action_dimensions([innovation_variances(each) for each in learned.values()])
        )
    if n_components > width:
        message = f"n_components={n_components} must be at most {width}, the features of {narrowest}"
        raise InputError("n_components", f"LatentAction: {message}.")
    if pairs is None and not features:
        _warn_if_predictable(learned, n_components)
    maps, paired = _fit_maps(learned, transitions, pairs, n_components)
    number = np.repeat(np.arange(len(maps)), [len(each) for each in transitions.values()])
    latents = np.concatenate([maps[body].encode(each) for body, each in transitions.items()])
    episode = np.concatenate([each.episode for each in transitions.values()]) * len(maps) + number
    data, held_out = LabelledLatents(latents, number, episode), np.concatenate(list(out.values()))
    removal, applied = remove_body(forget.set_params(n_components=n_components), data, held_out, paired, seed)
    fitted = BodyMaps(maps, applied)
    maps = {body: maps[body].with_forward(each, fitted.encode(body, each)) for body, each in learned.items()}
    fitted = BodyMaps(maps, applied)
    score, trained = (
        np.mean(
            [explained(b.before, b.after, fitted.predict(e, b.before, fitted.encode(e, b))) for e, b in part.items()]
        )
        for part in ({body: each.take(out[body]) for body, each in transitions.items()}, learned)
    )
    found = HeldOut(SCORE, float(score), float(trained), 0.0, n_samples=int(held_out.sum()), n_folds=1, n_steps=0)
    return replace(fitted, features=features), removal, found
