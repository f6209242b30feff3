"""The specification of `LatentAction`: transitions of several bodies as samples of one table, and their scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_predict

from pindown.auditing.checks.nuisances import leakage_verdict
from pindown.auditing.checks.samples import common_levels, enough_samples
from pindown.auditing.evidence import N_PERMUTATIONS, AuditScore, Evidence, Objection, leak_controls, leak_score
from pindown.auditing.page import Drawing, picture
from pindown.auditing.plans import Plan, Summary
from pindown.auditing.refits import Refits, Samples
from pindown.auditing.spec import Comparison, Figure, MethodSpec, Refitting, Roles, Verdicts
from pindown.data.data import Data
from pindown.data.labels import as_numbers, combined
from pindown.data.splits import hold_out
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.methods.alignment import PolynomialRidge
from pindown.methods.forget.audit import QUICK
from pindown.methods.latent_action.transitions import (
    Body,
    Transitions,
    components,
    components_of_bodies,
    explained,
    read_mapping,
    read_pairs,
    read_transitions,
)
from pindown.metrics import Effort, leakage
from pindown.metrics.arrays import Labels, Mask, Matrix, pooled_r2
from pindown.simulate.images import contact_sheet

if TYPE_CHECKING:
    from pindown.methods.latent_action.estimator import LatentAction

N_PAIRS = (0, 10, 50, 200)  # pairs with which latents are mapped from body to body, as far as there are so many
MIN_PAIRS = 10  # held-out pairs on which such a map is scored
MIN_EXPLAINED = 0.1  # fraction of a body's displacements that latents must explain: with less they are nearly empty
MIN_EPISODES = 8  # episodes of a body: a quarter is held out, and the rest halved
N_FOLDS = 4  # folds of held-out episodes, in which a regression predicts the ground truth from the latents
N_STEPS = 10  # steps that are predicted ahead, where episodes are as long

ONLY_AUDITED = (
    "LatentAction: transitions of several bodies are not samples of one table, so assumptions cannot be checked on "
    "them. Use audit(est, X_t, X_next, groups=…)."
)


# ---- transitions as samples -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TransitionSamples(Samples):
    """Transitions of several bodies: X has observations before and after, flat, with zeros where a body has fewer."""

    bodies: tuple[Body, ...] = ()

    has_noise: ClassVar[bool] = False
    """Positions before and after are not noise, though latents explain no position."""

    def drawn(self, fraction: float, rng: np.random.Generator) -> Mask:
        """Choose a fraction of the units, evenly over bodies."""
        assert self.units is not None
        return hold_out(as_numbers(self.units), fraction, rng, self.strata)


def masks(bodies: Sequence[Body], data: Data) -> dict[Body, Mask]:
    """Return each body that occurs, and which transitions are its own."""
    return {bodies[number]: data.nuisance == number for number in np.unique(data.nuisance)}


def bodies_of(est: LatentAction, data: Data) -> dict[Body, Transitions]:
    """Return the transitions of each body that occurs."""
    halves, found = np.hsplit(data.X, 2), {}
    for body, own in masks(est.bodies_, data).items():
        shape = est.shape_of(body)
        before, after = (half[own, : np.prod(shape)].reshape(-1, *shape) for half in halves)
        found[body] = Transitions(before, after, data.groups[own])
    return found


class LatentActionRefitting(Refitting["LatentAction"]):
    """Clones of `LatentAction` are fitted to mappings from body to array, or to arrays of one width, as it was."""

    def read(self, est: LatentAction, X: object, y: object, groups: object) -> Samples:
        if not isinstance(X, Mapping):
            raise InputError("X", "audit: `X` of LatentAction must be a mapping from body to `Data`, or to an array.")
        if all(isinstance(each, Data) for each in X.values()):
            data, pairs = X, y
        else:
            roles = {"pairs": y, "groups": groups}
            given = {role: read_mapping(role, part, X) for role, part in roles.items() if part is not None}
            data = {body: Data(x, **{role: part[body] for role, part in given.items()}) for body, x in X.items()}
            pairs = None
        transitions = read_transitions(*({b: getattr(d, r) for b, d in data.items()} for r in ("X", "pairs", "groups")))
        for body, each in transitions.items():
            if body not in est.bodies_:
                raise InputError("X", f"audit: {body} did not occur in `fit`. Leave it out, or fit it, too.")
            if len(np.unique(each.episode)) < MIN_EPISODES:
                message = f"audit: {body} has too few episodes to hold some out and halve the rest. Give 8."
                raise InputError("groups", message)
        motion = None if pairs is None else np.concatenate(list(read_pairs(pairs, transitions).values()))
        before, after = (
            _padded([getattr(each, part).reshape(len(each), -1) for each in transitions.values()])
            for part in ("before", "after")
        )
        number = np.repeat([est.bodies_.index(body) for body in transitions], [*map(len, transitions.values())])
        units = _units(np.concatenate([each.episode for each in transitions.values()]), number, motion)
        truth, floor = (_stacked([getattr(each, role) for each in data.values()]) for role in ("truth", "floor"))
        table = Data(np.hstack([before, after]), nuisance=number, pairs=motion, groups=units, truth=truth, floor=floor)
        return TransitionSamples(table, "nuisance", as_numbers(number), units, est.bodies_)

    def fit(self, est: LatentAction, data: Data, *, seed: int, elsewhere: bool) -> LatentAction:
        fresh = clone(est).set_params(random_state=seed, n_components=est.n_components_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)  # leakage is measured
            if est.body_maps_ is None:
                body = np.array([est.bodies_[number] for number in data.nuisance])
                return fresh.fit(*np.hsplit(data.X, 2), body, groups=data.groups)
            bodies, pairs = bodies_of(est, data), dict(_pairs(est, data))
            return fresh.fit(
                {body: each.before for body, each in bodies.items()},
                {body: each.after for body, each in bodies.items()},
                groups={body: each.episode for body, each in bodies.items()},
                pairs=pairs if len({*components_of_bodies(pairs, bodies).values()}) == 1 else None,
            )


def _padded(parts: Sequence[NDArray[np.floating]]) -> Matrix:
    """Return tables of several bodies as one, with zeros where a body has fewer columns."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def _stacked(parts: Sequence[NDArray[Any] | None]) -> Matrix | None:
    known = [part.reshape(len(part), -1).astype(np.float64) for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _units(episode: Labels, body: Labels, motion: Labels | None) -> Labels:
    """Return the number of each episode, one for those of several bodies with transitions of one motion."""
    unit = combined(episode, body)
    if motion is None:
        return unit
    paired = motion >= 0
    _, first, same = np.unique(motion[paired], return_index=True, return_inverse=True)
    links = np.stack([unit[paired], unit[paired][first][same.reshape(-1)]], 1)
    return components(int(unit.max()) + 1, links)[unit]


def _pairs(est: LatentAction, data: Data) -> Iterator[tuple[tuple[Body, Body], Labels]]:
    """Yield pairs of bodies with numbers of their transitions that made the same motion, if there are some."""
    if data.pairs is None:
        return
    own = {body: data.pairs[mask] for body, mask in masks(est.bodies_, data).items()}
    paired = {body: np.flatnonzero(motion >= 0) for body, motion in own.items()}
    for a, b in combinations(own, 2):
        same = np.argwhere(own[a][paired[a]][:, None] == own[b][paired[b]])
        if len(same):
            yield (a, b), np.stack([paired[a][same[:, 0]], paired[b][same[:, 1]]], 1)


# ---- scores -----------------------------------------------------------------------------------------------------


class BodyComparison(Comparison["LatentAction"]):
    """Latents are compared with ground truth in each body, in all, and in each with a probe fitted to the others."""

    def recovery(self, latents: Matrix, samples: Samples) -> tuple[AuditScore, ...]:
        assert isinstance(samples, TransitionSamples)
        truth, groups = samples.data.truth, samples.data.groups
        if truth is None:
            return ()
        probe, folds = PolynomialRidge(2), GroupKFold(N_FOLDS)

        def within(some: Mask | slice) -> float:
            return pooled_r2(
                truth[some], cross_val_predict(probe, latents[some], truth[some], groups=groups[some], cv=folds)
            )

        scores = [AuditScore("truth, one probe for all bodies (R²)", within(slice(None)), 0.0)]
        for body, own in masks(samples.bodies, samples.data).items():
            others = probe.fit(latents[~own], truth[~own]).predict(latents[own])
            scores += [
                AuditScore(f"truth of {body} (R²)", within(own), 0.0),
                AuditScore(f"truth of {body}, probe fitted to the others (R²)", pooled_r2(truth[own], others), 0.0),
            ]
        return tuple(scores)


class LatentActionSpec(MethodSpec["LatentAction"]):
    """The specification of `LatentAction`, whose data are transitions of several bodies."""

    roles = Roles("pairs")
    comparison = BodyComparison()
    refitting = LatentActionRefitting()

    def latents(self, est: LatentAction, data: Data) -> Matrix:
        latents, own = np.empty((len(data), est.n_components_)), masks(est.bodies_, data)
        for body, each in bodies_of(est, data).items():
            latents[own[body]] = est.encode(body, each)
        return latents

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        fit, held_out = refits.others[0], refits.held_out
        assert isinstance(held_out, TransitionSamples)
        latents, known = (self.latents(fit, each.data) for each in (held_out, refits.train))
        body, bodies, own = held_out.strata, bodies_of(fit, held_out.data), masks(fit.bodies_, held_out.data)
        order = np.concatenate([np.flatnonzero(own[name]) for name in bodies])
        changes = _padded([fit.inputs(name, each).change for name, each in bodies.items()])[np.argsort(order)]
        seed, effort = int(rng.integers(2**31)), Effort(n_seeds=1, n_permutations=N_PERMUTATIONS)
        measure = partial(leakage, groups=held_out.units, continuous=False, effort=effort, random_state=seed)
        found = measure(latents, body)
        if held_out.data.floor is not None:
            found = found.with_floor(measure(held_out.data.floor, body))
        before = measure(changes, body, probes=QUICK)
        controls = leak_controls("bodies", partial(measure, probes=QUICK), latents, held_out, rng, seed)
        explained_scores = [*_explained(fit, refits, bodies, latents, known)]
        least = min(explained_scores, key=lambda score: score.value)
        empty = Objection(f"the latents are nearly empty ({least})", "Ask for more latents, or for less invariance.")
        ahead, strips = _steps_ahead(fit, bodies)
        return Evidence(
            (
                leak_score("body decodable from the latents", found),
                AuditScore("body decodable from displacements", before.worst, before.chance, before.p_value),
                *explained_scores,
                *_with_pairs(fit, refits, latents, known, rng),
                *ahead,
            ),
            controls,
            (empty,) if found.collapsed or least.value < MIN_EXPLAINED else (),
            found,
            (leakage_verdict(found),),
            strips=strips,
        )

    def checks_before(self, est: LatentAction, data: Data, n_components: int, whole: Data) -> Verdicts:
        if data.nuisance is None:
            raise TypeError(ONLY_AUDITED)
        return enough_samples(len(whole), n_components), common_levels(whole.nuisance)

    def checks_after(self, est: LatentAction, data: Data, known: Verdicts = ()) -> Verdicts:
        if data.nuisance is None:
            raise TypeError(ONLY_AUDITED)
        return known

    def figure(self, est: LatentAction) -> Figure:
        return Figure(np.zeros(1) if est.dynamics_ is None else est.dynamics_.loss_curve_)

    def plan(self, est: LatentAction, data: Data, summary: Summary) -> Plan:
        raise TypeError(ONLY_AUDITED)


def _explained(
    fit: LatentAction, refits: Refits, bodies: Mapping[Body, Transitions], latents: Matrix, known: Matrix
) -> Iterator[AuditScore]:
    """Yield for each body the R² of held-out displacements, predicted by the forward model of the fit.

    For frames: of what moved in them, by a linear map fitted to the other episodes.
    """
    train = bodies_of(fit, refits.train.data)
    own, others = (masks(fit.bodies_, part.data) for part in (refits.held_out, refits.train))
    for body, each in bodies.items():
        if each.are_frames:
            motion, learned = (fit.inputs(body, part[body]).change for part in (bodies, train))
            probe = PolynomialRidge().fit(known[others[body]], learned)
            what, value = "motion in frames", pooled_r2(motion, probe.predict(latents[own[body]]))
        else:
            predicted = fit.predict(body, each.before, latents[own[body]])
            what, value = "displacements", explained(each.before, each.after, predicted)
        yield AuditScore(f"{what} of {body} reconstructed (R²)", value, 0.0)


def _with_pairs(
    fit: LatentAction, refits: Refits, latents: Matrix, known: Matrix, rng: np.random.Generator
) -> Iterator[AuditScore]:
    """Yield the R² of a body's latents, predicted from another's by an affine map fitted to so many pairs.

    Scored on held-out pairs; means over pairs of bodies. 0 pairs compare latents as they are.
    """
    held, found = dict(_pairs(fit, refits.held_out.data)), dict[int, list[float]]()
    of_train, of_held = (
        {body: values[own] for body, own in masks(fit.bodies_, part.data).items()}
        for values, part in ((known, refits.train), (latents, refits.held_out))
    )
    for both, links in _pairs(fit, refits.train.data):
        if len(held.get(both, ())) < MIN_PAIRS:
            continue
        x, y = (of_train[body][column] for body, column in zip(both, links.T, strict=True))
        new_x, new_y = (of_held[body][column] for body, column in zip(both, held[both].T, strict=True))
        for (start, goal), (new_start, new_goal) in zip(
            ((x, y), (y, x)), ((new_x, new_y), (new_y, new_x)), strict=True
        ):
            for n in (n for n in N_PAIRS if n <= len(x)):
                some = rng.permutation(len(x))[:n]
                mapped = PolynomialRidge().fit(start[some], goal[some]).predict(new_start) if n else new_start
                found.setdefault(n, []).append(pooled_r2(new_goal, mapped))
    for n, scores in found.items():
        yield AuditScore(f"latents of another body, mapped with {n} pairs (R²)", float(np.mean(scores)), 0.0)


def _steps_ahead(fit: LatentAction, bodies: Mapping[Body, Transitions]) -> tuple[list[AuditScore], tuple[Drawing, ...]]:
    """Predict held-out episodes several steps ahead from their first observation, and score the predictions."""
    follows = {body: each.follows() for body, each in bodies.items()}
    n_steps = min(N_STEPS, *(int(_lengths(each).max()) for each in follows.values()))
    scores: list[AuditScore] = []
    strips: list[Drawing] = []
    if fit.dynamics_ is not None or n_steps < 2:
        return scores, ()
    for body, each in bodies.items():
        first = np.flatnonzero(~follows[body])[_lengths(follows[body]) >= n_steps]
        latents, start = fit.encode(body, each), each.before[first]
        true, predicted = [start], [start]
        for step in range(n_steps):
            true.append(each.after[first + step])
            predicted.append(fit.predict(body, predicted[-1], latents[first + step]))
        value = explained(start[None], np.stack(true), np.stack(predicted))
        scores.append(AuditScore(f"{n_steps} steps of {body} predicted (R²)", value, 0.0))
        if each.are_frames:
            shown = np.stack([frames[0] for part in (true, predicted) for frames in part])
            sheet = contact_sheet(shown.clip(each.before.min(), each.before.max()), columns=n_steps + 1)
            strips.append(picture(sheet, f"{body}: observed above, predicted below."))
    return scores, tuple(strips)


def _lengths(follows: Mask) -> Labels:
    """Return how many transitions each run of consecutive ones has."""
    return np.diff(np.append(np.flatnonzero(~follows), len(follows)))
