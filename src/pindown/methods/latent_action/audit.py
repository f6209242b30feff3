"""The specification of `LatentAction`: transitions of several bodies as samples of one table, and what is measured."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.utils import check_array

from pindown.auditing.checks.nuisances import leakage_verdict
from pindown.auditing.checks.samples import common_levels, enough_samples
from pindown.auditing.evidence import CONTROL_LEVEL, LEVEL, N_PERMUTATIONS, Control, Evidence, Score, Strip
from pindown.auditing.plans import Plan
from pindown.auditing.refits import Refits, Samples, exchange
from pindown.auditing.spec import Comparison, Figure, MethodSpec, Refitting, Roles, Verdicts
from pindown.data.data import Data, Sides, from_torch
from pindown.data.labels import combined
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.methods.alignment import PolynomialRidge
from pindown.methods.latent_action.recordings import Recording, are_connected, components, read_pairs, read_recordings
from pindown.metrics import PROBES, Effort, Leakage, inject_leak, leakage
from pindown.simulate.images import contact_sheet

if TYPE_CHECKING:
    from pindown.methods.latent_action.estimator import LatentAction

N_PAIRS = (0, 10, 50, 200)
"""Pairs with which latents are mapped from body to body, as far as there are so many."""

MIN_EXPLAINED = 0.1
"""Fraction of a body's displacements that latents must explain: with less they are nearly empty."""

MIN_EPISODES = 8
"""Episodes of a body: a quarter is held out, and the rest halved."""

MIN_PAIRS = 10
"""Held-out pairs on which a map between two bodies is scored."""

N_FOLDS = 4
"""Folds of the held-out episodes, in which a regression predicts the ground truth from the latents."""

N_STEPS = 10
"""Steps that are predicted ahead, where episodes are as long."""

LEAK_FRACTION = 0.1
"""Variance of one direction of the latents that a leak has which probes must find."""

QUICK = tuple(probe for probe in PROBES if probe.name in ("linear", "quadratic"))

Matrix = NDArray[np.float64]
Bodies = Mapping[Any, Recording]


# ---- transitions as samples -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Transitions(Samples):
    """Transitions of several bodies: X is observations before and after, flat, with zeros where a body has fewer."""

    bodies: tuple[Any, ...] = ()

    has_noise: ClassVar[bool] = False
    """Positions before and after are not noise, though latents explain no position."""

    def masks(self) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
        """Yield each body, and which transitions are its own."""
        for number in np.unique(self.data.nuisance):
            yield self.bodies[number], self.data.nuisance == number

    def padded(self, parts: Mapping[Any, Matrix]) -> Matrix:
        """Return one table of features of each body, with zeros where a body has fewer."""
        table = np.zeros((len(self), max(part.shape[1] for part in parts.values())))
        for body, own in self.masks():
            table[own, : parts[body].shape[1]] = parts[body]
        return table

    def drawn(self, fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Choose a fraction of the units of each body, and of those that several bodies have in common."""
        unit, number = np.unique(self.data.groups, return_inverse=True)
        bodies = np.zeros((len(unit), int(self.strata.max()) + 1), dtype=bool)
        bodies[number, self.strata] = True
        chosen: list[NDArray[Any]] = []
        for kind in np.unique(bodies, axis=0):
            same = rng.permutation(unit[(bodies == kind).all(1)])
            chosen.append(same[: round(fraction * len(same))])
        return np.isin(self.data.groups, np.concatenate(chosen))


def bodies_of(est: LatentAction, data: Data) -> dict[Any, Recording]:
    """Return the transitions of each body that is there."""
    d = data.X.shape[1] // 2
    found = {}
    for number in np.unique(data.nuisance):
        body, own = est.bodies_[number], data.nuisance == number
        shape = est.shape_of(body)
        before, after = (part[:, : np.prod(shape)].reshape(-1, *shape) for part in (data.X[own, :d], data.X[own, d:]))
        found[body] = Recording(before, after, data.groups[own])
    return found


class LatentActionRefitting(Refitting["LatentAction"]):
    """Clones of `LatentAction` are fitted to mappings from body to array, or to arrays of one width, as it was."""

    def read(self, est: LatentAction, X: Any, y: Any, sides: Sides) -> Samples:
        if sides.get("given") is not None:
            raise InputError("given", "audit: LatentAction does not use `given`. Leave it out.")
        if not isinstance(X, Mapping):
            raise InputError("X", "audit: `X` of LatentAction must be a mapping from body to `Data`, or to an array.")
        pairs = None
        if all(isinstance(each, Data) for each in X.values()):
            pairs, data = y, X
            X, y, groups, truth, floor = (_by_body(data, role) for role in ("X", "pairs", "groups", "truth", "floor"))
            sides = {"groups": groups, "truth": truth, "floor": floor}
        recordings = read_recordings(X, y, sides.get("groups"))
        for body, each in recordings.items():
            if body not in est.bodies_:
                raise InputError("X", f"audit: {body} did not occur in `fit`. Leave it out, or fit it, too.")
            if len(np.unique(each.episode)) < MIN_EPISODES:
                message = f"audit: {body} has too few episodes to hold some out and halve the rest. Give 8."
                raise InputError("groups", message)
        motion = _motions(recordings, pairs)
        flat = [[a.reshape(len(a), -1) for a in (each.before, each.after)] for each in recordings.values()]
        d = max(before.shape[1] for before, _ in flat)
        x = np.concatenate([np.hstack([np.pad(a, ((0, 0), (0, d - a.shape[1]))) for a in both]) for both in flat])
        number = np.repeat([est.bodies_.index(body) for body in recordings], [*map(len, recordings.values())])
        units = _units(np.concatenate([each.episode for each in recordings.values()]), number, motion)
        table = Data(
            x,
            nuisance=number,
            pairs=motion,
            groups=units,
            truth=_stacked("truth", sides.get("truth"), recordings),
            floor=_stacked("floor", sides.get("floor"), recordings),
        )
        strata = np.unique(number, return_inverse=True)[1].reshape(-1)
        return Transitions(table, "nuisance", strata, units, est.bodies_)

    def fit(self, est: LatentAction, data: Data, *, seed: int, elsewhere: bool) -> LatentAction:
        fresh = clone(est).set_params(random_state=seed, n_components=est.n_components_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)  # leakage is measured
            if est.own_ is None:
                d = data.X.shape[1] // 2
                body = np.array([est.bodies_[number] for number in data.nuisance])
                return fresh.fit(data.X[:, :d], data.X[:, d:], body, groups=data.groups)
            bodies = bodies_of(est, data)
            before, after, episode = ({b: getattr(each, name) for b, each in bodies.items()} for name in FIELDS)
            pairs = dict(_pairs(est, data))
            return fresh.fit(before, after, groups=episode, pairs=pairs if are_connected(pairs, bodies) else None)


FIELDS = ("before", "after", "episode")


def _by_body(data: Mapping[Any, Data], role: str) -> dict[Any, NDArray[Any]] | None:
    """Return a part of each body's data; None if no body has it."""
    found = {body: getattr(each, role) for body, each in data.items()}
    return None if all(part is None for part in found.values()) else found


def _motions(recordings: Bodies, pairs: Any) -> NDArray[np.int64] | None:
    """Return the number of the motion that each transition makes, −1 if it is in no pair; None without pairs."""
    if pairs is None:
        return None
    ties = read_pairs(pairs, recordings)
    motion = {body: np.full(len(each), -1) for body, each in recordings.items()}
    for body, rows in ties.rows.items():
        motion[body][rows] = ties.motions[body]
    return np.concatenate(list(motion.values()))


def _units(episode: NDArray[Any], body: NDArray[Any], motion: NDArray[Any] | None) -> NDArray[np.int64]:
    """Return the number of each episode, one for those of several bodies with transitions of one motion."""
    unit = combined(episode, body)
    if motion is None:
        return unit
    paired = motion >= 0
    _, first, same = np.unique(motion[paired], return_index=True, return_inverse=True)
    links = np.stack([unit[paired], unit[paired][first][same.reshape(-1)]], 1)
    return components(int(unit.max()) + 1, links)[unit]


def _stacked(name: str, values: Any, recordings: Bodies) -> Matrix | None:
    if values is None:
        return None
    if not isinstance(values, Mapping) or set(values) != set(recordings):
        raise InputError(name, f"audit: `{name}` must be a mapping of the same bodies as X.")
    found = {b: check_array(from_torch(values[b]), dtype=np.float64, input_name=name) for b in recordings}
    for body, part in found.items():
        if len(part) != len(recordings[body]):
            message = f"audit: {name} of {body} has {len(part)} samples, but X has {len(recordings[body])}."
            raise InputError(name, message)
    return np.concatenate(list(found.values()))


def _pairs(est: LatentAction, data: Data) -> Iterator[tuple[tuple[Any, Any], NDArray[np.int64]]]:
    """Yield pairs of bodies with numbers of their transitions that made the same motion, if there are some."""
    if data.pairs is None:
        return
    own = {est.bodies_[number]: data.pairs[data.nuisance == number] for number in np.unique(data.nuisance)}
    rows = {body: np.flatnonzero(motion >= 0) for body, motion in own.items()}
    for a, b in combinations(own, 2):
        same = np.argwhere(own[a][rows[a]][:, None] == own[b][rows[b]])
        if len(same):
            yield (a, b), np.stack([rows[a][same[:, 0]], rows[b][same[:, 1]]], 1)


# ---- what is measured -----------------------------------------------------------------------------------------------


class OfBodies(Comparison["LatentAction"]):
    """Latents are compared with ground truth in each body, in all, and in each with a probe fitted to the others."""

    def recovery(self, latents: Matrix, samples: Samples) -> tuple[Score, ...]:
        assert isinstance(samples, Transitions)
        truth, groups = samples.data.truth, samples.data.groups
        if truth is None:
            return ()
        probe, folds = PolynomialRidge(2), GroupKFold(N_FOLDS)

        def within(some: NDArray[np.bool_] | slice) -> float:
            return _r2(truth[some], cross_val_predict(probe, latents[some], truth[some], groups=groups[some], cv=folds))

        scores = [Score("truth, one probe for all bodies (R²)", within(slice(None)), 0.0)]
        for body, own in samples.masks():
            others = probe.fit(latents[~own], truth[~own]).predict(latents[own])
            scores += [
                Score(f"truth of {body} (R²)", within(own), 0.0),
                Score(f"truth of {body}, probe fitted to the others (R²)", _r2(truth[own], others), 0.0),
            ]
        return tuple(scores)


class LatentActionSpec(MethodSpec["LatentAction"]):
    """The specification of `LatentAction`, whose data are transitions of several bodies."""

    roles = Roles("pairs")
    comparison = OfBodies()
    refitting = LatentActionRefitting()

    def latents(self, est: LatentAction, data: Data) -> Matrix:
        latents = np.empty((len(data), est.n_components_))
        for body, each in bodies_of(est, data).items():
            latents[data.nuisance == est.bodies_.index(body)] = est.encode(body, each)
        return latents

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        fit, held_out = refits.others[0], refits.held_out
        assert isinstance(held_out, Transitions)
        latents, known = (self.latents(fit, each.data) for each in (held_out, refits.train))
        bodies, learned = (bodies_of(fit, each.data) for each in (held_out, refits.train))
        changes = {body: fit.features(body, each).change for body, each in bodies.items()}
        body, measure = held_out.strata, partial(leakage, groups=held_out.units, continuous=False)
        measure = partial(measure, random_state=int(rng.integers(2**31)))
        effort = Effort(n_seeds=1, n_permutations=N_PERMUTATIONS)
        quick = partial(measure, probes=QUICK, effort=effort)
        found = measure(latents, body, effort=effort)
        if held_out.data.floor is not None:
            found = found.with_floor(measure(held_out.data.floor, body, effort=effort))
        seen = quick(held_out.padded(changes), body)
        silent = quick(latents, body[exchange(body, held_out.units, rng)])
        loud = quick(inject_leak(latents, body, LEAK_FRACTION), body)
        explained = [
            Score(f"{what} of {name} reconstructed (R²)", value, 0.0)
            for name, what, value in _explained(fit, refits, bodies, learned, latents, known)
        ]
        least = min(explained, key=lambda score: score.value)
        empty = found.collapsed or least.value < MIN_EXPLAINED
        ahead, strips = _steps_ahead(fit, bodies)
        return Evidence(
            (
                Score(BODY, found.worst, found.chance, found.p_value, leak=True, floor=found.floor),
                Score("body decodable from displacements", seen.worst, seen.chance, seen.p_value),
                *explained,
                *_with_pairs(fit, refits, latents, known, rng),
                *ahead,
            ),
            (
                Control("shuffled bodies", "no probe finds anything.", _p(silent), silent.p_value > CONTROL_LEVEL),
                Control(
                    f"a leak of {LEAK_FRACTION:.0%} added to the latents",
                    "probes find it.",
                    _p(loud),
                    loud.p_value <= LEVEL * 5,
                ),
            ),
            (f"the latents are nearly empty ({least})",) if empty else (),
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

    def plan(self, est: LatentAction, data: Data, n_components: int | None) -> Plan:
        raise TypeError(ONLY_AUDITED)


BODY = "body decodable from the latents"

ONLY_AUDITED = (
    "LatentAction: transitions of several bodies are not samples of one table, so assumptions cannot be checked on "
    "them. Use audit(est, X_t, X_next, groups=…)."
)


def _explained(
    fit: LatentAction, refits: Refits, bodies: Bodies, learned: Bodies, latents: Matrix, known: Matrix
) -> Iterator[tuple[Any, str, float]]:
    """Yield for each body the R² of held-out displacements, predicted by the forward model of the fit.

    For frames: of how far their parts moved, predicted by a linear map fitted to the other episodes. Pixels change as
    much for a long way as for a short one.
    """
    for body, each in bodies.items():
        own, train = (part.nuisance == fit.bodies_.index(body) for part in (refits.held_out.data, refits.train.data))
        if each.filmed:
            moved, learned_from = (fit.features(body, part[body]).change for part in (bodies, learned))
            probe = PolynomialRidge().fit(known[train], learned_from)
            yield body, "motion in frames", _r2(moved, probe.predict(latents[own]))
        else:
            missed = each.after - fit.predict(body, each.before, latents[own])
            yield body, "displacements", 1 - float((missed**2).sum() / (each.change**2).sum())


def _with_pairs(
    fit: LatentAction, refits: Refits, latents: Matrix, known: Matrix, rng: np.random.Generator
) -> Iterator[Score]:
    """Yield the R² of a body's latents, predicted from another's by an affine map fitted to so many pairs.

    Scored on held-out pairs; means over pairs of bodies. 0 pairs compare latents as they are.
    """
    train, held_out = refits.train.data, refits.held_out.data
    held = dict(_pairs(fit, held_out))
    found: dict[int, list[float]] = {}
    for (a, b), rows in _pairs(fit, train):
        if len(held.get((a, b), ())) < MIN_PAIRS:
            continue
        for first, second, columns in ((a, b, [0, 1]), (b, a, [1, 0])):
            x, y, new_x, new_y = (
                part[data.nuisance == fit.bodies_.index(body)][pairs[:, column]]
                for part, data, pairs in ((known, train, rows), (latents, held_out, held[a, b]))
                for body, column in zip((first, second), columns, strict=True)
            )
            for n in (n for n in N_PAIRS if n <= len(x)):
                some = rng.permutation(len(x))[:n]
                mapped = PolynomialRidge().fit(x[some], y[some]).predict(new_x) if n else new_x
                found.setdefault(n, []).append(_r2(new_y, mapped))
    for n, scores in found.items():
        yield Score(f"latents of another body, mapped with {n} pairs (R²)", float(np.mean(scores)), 0.0)


def _steps_ahead(fit: LatentAction, bodies: Bodies) -> tuple[list[Score], tuple[Strip, ...]]:
    """Predict held-out episodes several steps ahead from their first observation, and say what is explained."""
    follows = {body: each.follows() for body, each in bodies.items()}
    n_steps = min(N_STEPS, *(int(_lengths(rows).max()) for rows in follows.values()))
    scores: list[Score] = []
    strips: list[Strip] = []
    if fit.dynamics_ is not None or n_steps < 2:
        return scores, ()
    for body, each in bodies.items():
        first = np.flatnonzero(~follows[body])[_lengths(follows[body]) >= n_steps]
        latents, here = fit.encode(body, each), each.before[first]
        true, predicted = [here], [here]
        for step in range(n_steps):
            here = fit.predict(body, here, latents[first + step])
            true.append(each.after[first + step])
            predicted.append(here)
        missed = sum(float(((a - b) ** 2).sum()) for a, b in zip(true, predicted, strict=True))
        moved = sum(float(((a - true[0]) ** 2).sum()) for a in true)
        scores.append(Score(f"{n_steps} steps of {body} predicted (R²)", 1 - missed / moved, 0.0))
        if each.filmed:
            shown = np.stack([frames[0] for part in (true, predicted) for frames in part])
            picture = contact_sheet(shown.clip(each.before.min(), each.before.max()), columns=n_steps + 1)
            strips.append(Strip(picture, f"{body}: observed above, predicted below."))
    return scores, tuple(strips)


def _lengths(follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many transitions follow on each other, from each that follows on none.

    Examples
    --------
    >>> _lengths(np.array([False, True, True, False, False, True]))
    array([3, 1, 2])
    """
    return np.diff(np.append(np.flatnonzero(~follows), len(follows)))


def _p(found: Leakage) -> str:
    return f"p = {found.p_value:.2g}."


def _r2(truth: Matrix, predicted: Matrix) -> float:
    return float(r2_score(truth, np.reshape(predicted, truth.shape), multioutput="variance_weighted"))
