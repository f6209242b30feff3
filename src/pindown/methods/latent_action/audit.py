"""What `LatentAction` says of itself: what codes tell of the body, beside what they still know, in each and across."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils import check_array

from pindown.auditing.checks.nuisances import leakage_sentence
from pindown.auditing.plans import Plan
from pindown.auditing.refits import exchange
from pindown.auditing.result import Findings, Section
from pindown.auditing.scores import CONTROL_LEVEL, LEVEL, N_PERMUTATIONS, Control, Score
from pindown.auditing.spec import MethodSpec, Roles, Verdicts
from pindown.data.data import Data, from_torch
from pindown.data.labels import combined
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.methods.alignment import PolynomialRidge
from pindown.methods.latent_action.recordings import Recording, read_pairs, read_recordings
from pindown.methods.latent_action.rollouts import rollout_section
from pindown.metrics import PROBES, Effort, Leakage, inject_leak, leakage

if TYPE_CHECKING:
    from pindown.methods.latent_action.estimator import LatentAction

HELD_OUT = 0.25
"""Share of the episodes that refits do not see, of those that bodies share and of each body's own."""

N_PAIRS = (0, 10, 50, 200)
"""Pairs by which codes are carried from body to body, as far as there are so many."""

LEAST_TOLD = 0.1
"""Share of a body's displacements that codes must tell: less is an empty code."""

AGREED_BY_HALVES = 0.8
"""R² by which codes of fits to halves of the episodes must agree within a body."""

LEAK_SHARE = 0.1
"""Variance of one direction of the codes that a leak is given which probes must find."""

QUICK = tuple(probe for probe in PROBES if probe.name in ("linear", "quadratic"))

Codes = dict[Any, np.ndarray]
Bodies = Mapping[Any, Recording]


@dataclass(frozen=True, eq=False)
class Divided:
    """Transitions to learn from and held out, what belongs to them, and pairs as rows of each."""

    learned: Bodies
    held: Bodies
    truth: tuple[Codes, Codes] | None
    floor: Codes | None
    pairs: dict[tuple[Any, Any], np.ndarray]
    held_pairs: dict[tuple[Any, Any], np.ndarray]


def audited(
    est: LatentAction, X: Any, y: Any, *, groups: Any, truth: Any, floor: Any, pairs: Any, rng: np.random.Generator
) -> Findings:
    """Refit to three quarters of the episodes and to halves of these, and measure on the others.

    ``X`` and ``y`` are mappings from body to observations before and after; ``truth`` and ``floor`` from body to what
    was done, and to what a blind code would be.
    """
    if not isinstance(X, Mapping):
        raise ValueError("audit: give X and y of LatentAction as mappings from body to observations before and after.")
    recordings = read_recordings(X, y, groups)
    units = _units(recordings, pairs)
    data = _divided(recordings, units, truth, floor, pairs, rng)
    fit = _refitted(est, data.learned, data.pairs, int(rng.integers(2**31)))
    halves = [_refitted(est, part, None, int(rng.integers(2**31))) for part in _halved(data.learned, rng)]
    known, new = (_encoded(fit, part) for part in (data.learned, data.held))
    seed = int(rng.integers(2**31))
    of_codes, controls = _read(new, data, seed, rng)
    rebuilt = {
        _changed(body, each): _rebuilt(fit, k, body, data, known, new)
        for k, (body, each) in enumerate(data.held.items())
    }
    agree = min(_affine(a, b) for a, b in zip(*(_encoded(half, data.held).values() for half in halves), strict=True))
    told = _told_section(rebuilt, known, new, data)
    curve = _curve(known, new, data, rng)
    led = None if fit.own_ is None else rollout_section(fit.own_, data.held)
    reasons = _against(of_codes, controls, rebuilt, agree)
    worst = min(rebuilt.values())
    free = "one code need not be one action in all bodies"
    return Findings(
        estimator=f"{type(est).__name__}({fit.n_components_})",
        promise=f"{est.guarantee.source}: {est.guarantee.promises}",
        claim="" if reasons else _claim(est, of_codes, worst, agree, curve),
        reasons=reasons,
        sections=(
            _leakage_section(of_codes, fit, data, seed),
            told,
            Section(
                "Do fits agree?",
                "Two fits to halves of the episodes, without pairs: R² of an affine map from the codes of one to those "
                "of the other on held-out transitions, the worst body's.",
                (Score("fits to halves agree (R²)", agree, 0.0),),
                (str(fit.second_stage_),),
            ),
            *((_curve_section(curve),) if curve else ()),
            *((led,) if led else ()),
        ),
        controls=controls,
        not_shown=(
            f"not promised: {free}; {'pairs carry them' if curve else 'give pairs to see what carries them'}",
            *(() if truth is not None else ("the truth was not given, so that recovery was not measured",)),
            *(() if floor is not None else ("no floor was given: what true actions tell of the body is not known",)),
        ),
        n_samples=sum(map(len, recordings.values())),
        n_held_out=sum(map(len, data.held.values())),
        n_fits=3,
    )


# ---- rows -----------------------------------------------------------------------------------------------------------


def _units(recordings: Bodies, pairs: Any) -> Codes:
    """Return numbers of episodes, of all bodies: those with transitions of one motion have one."""
    starts = dict(zip(recordings, np.cumsum([0, *map(len, recordings.values())]), strict=False))
    unit = np.concatenate([combined(each.episode) + starts[body] for body, each in recordings.items()])
    if pairs is not None:
        read_pairs(pairs, recordings)  # or say what is wrong with them
        for (a, b), rows in pairs.items():
            for i, j in np.asarray(from_torch(rows)):
                unit[unit == unit[starts[b] + j]] = unit[starts[a] + i]
    return {body: unit[start : start + len(recordings[body])] for body, start in starts.items()}


def _divided(recordings: Bodies, units: Codes, truth: Any, floor: Any, pairs: Any, rng: np.random.Generator) -> Divided:
    whose: dict[int, set[Any]] = {}
    for body, own in units.items():
        for unit in np.unique(own).tolist():
            whose.setdefault(unit, set()).add(body)
    held: list[int] = []
    for kind in {frozenset(bodies): None for bodies in whose.values()}:
        of_kind = rng.permutation([unit for unit, bodies in whose.items() if bodies == kind])
        held += of_kind[: round(HELD_OUT * len(of_kind))].tolist()
    out = {body: np.isin(own, held) for body, own in units.items()}
    for body, each in recordings.items():
        if min(len(np.unique(each.episode[side])) for side in (out[body], ~out[body])) < 2:
            raise ValueError(
                f"audit: {body} has too few episodes to hold a quarter out, two at least, and to halve the rest. Give "
                "eight."
            )
    parts = {name: _rows_of(name, values, recordings) for name, values in (("truth", truth), ("floor", floor))}
    learned = {body: ~rows for body, rows in out.items()}
    true, blind = parts["truth"], parts["floor"]
    return Divided(
        {body: each.take(learned[body]) for body, each in recordings.items()},
        {body: each.take(out[body]) for body, each in recordings.items()},
        None if true is None else ({b: true[b][learned[b]] for b in true}, {b: true[b][out[b]] for b in true}),
        None if blind is None else {b: blind[b][out[b]] for b in blind},
        _within(pairs, learned),
        _within(pairs, out),
    )


def _rows_of(name: str, values: Any, recordings: Bodies) -> Codes | None:
    if values is None:
        return None
    if not isinstance(values, Mapping) or set(values) != set(recordings):
        raise ValueError(f"audit: {name} must be a mapping of the same bodies as X.")
    found = {body: check_array(from_torch(part), dtype=np.float64, input_name=name) for body, part in values.items()}
    for body, part in found.items():
        if len(part) != len(recordings[body]):
            raise ValueError(
                f"audit: {name} of {body} has {len(part)} rows, but X has {len(recordings[body])}. Give one for each."
            )
    return found


def _within(pairs: Any, rows: Codes) -> dict[tuple[Any, Any], np.ndarray]:
    """Return the pairs whose transitions are among these, as numbers among them."""
    number = {body: np.cumsum(some) - 1 for body, some in rows.items()}
    found = {}
    for (a, b), both in ({} if pairs is None else pairs).items():
        i, j = np.asarray(from_torch(both)).T
        there = rows[a][i] & rows[b][j]
        if there.any():
            found[a, b] = np.stack([number[a][i[there]], number[b][j[there]]], 1)
    return found


def _halved(bodies: Bodies, rng: np.random.Generator) -> list[Bodies]:
    first = {body: rng.permutation(np.unique(each.episode)) for body, each in bodies.items()}
    some = {body: np.isin(each.episode, first[body][: len(first[body]) // 2]) for body, each in bodies.items()}
    return [{body: each.take(some[body] == side) for body, each in bodies.items()} for side in (True, False)]


# ---- fits -----------------------------------------------------------------------------------------------------------


def _refitted(est: LatentAction, bodies: Bodies, pairs: Any, seed: int) -> LatentAction:
    fresh = clone(est).set_params(random_state=seed, n_components=est.n_components_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # what leaks is measured
        if est.own_ is None:
            before, after, episode, body = _stacked(bodies)
            return fresh.fit(before, after, body, groups=episode)
        parts = [{b: getattr(each, name) for b, each in bodies.items()} for name in ("before", "after", "episode")]
        return fresh.fit(*parts[:2], groups=parts[2], pairs=pairs or None)


def _stacked(bodies: Bodies) -> tuple[np.ndarray, ...]:
    number = np.repeat(np.arange(len(bodies)), [len(each) for each in bodies.values()])
    parts = [[getattr(each, name) for each in bodies.values()] for name in ("before", "after", "episode")]
    before, after, episode = map(np.concatenate, parts)
    return before, after, combined(episode, number), number


def _encoded(fit: LatentAction, bodies: Bodies) -> Codes:
    if fit.own_ is None:
        return {body: np.asarray(fit.transform(each.before, each.after)) for body, each in bodies.items()}
    return {body: fit.own_.encode(body, each) for body, each in bodies.items()}


def _changed(body: Any, each: Recording) -> str:
    return f"motion in frames of {body}" if each.filmed else f"displacements of {body}"


def _rebuilt(fit: LatentAction, number: int, body: Any, data: Divided, known: Codes, new: Codes) -> float:
    """Return the share of squared displacements that codes tell, by the fit's own forward model.

    Of frames it is how far their parts moved, by a line that the other episodes taught: pixels change by as much for a
    long way as for a short one, so that they say little of whether a code is empty.
    """
    each = data.held[body]
    if fit.own_ is None:
        made = fit.predict_next(each.before, new[body], np.full(len(each), number))
    elif not each.filmed:
        made = fit.own_.lead(body, each.before, new[body])
    else:
        first, second = (fit.own_.seen(body, part[body]).change for part in (data.learned, data.held))
        return _r2(second, PolynomialRidge().fit(known[body], first).predict(new[body]))
    return 1 - float(((each.after - made) ** 2).sum() / (each.change**2).sum())


# ---- what is measured -----------------------------------------------------------------------------------------------


def _read(codes: Codes, data: Divided, seed: int, rng: np.random.Generator) -> tuple[Leakage, tuple[Control, ...]]:
    rows, body, episode = _labelled(codes, data)
    effort = Effort(n_seeds=1, n_permutations=N_PERMUTATIONS)
    measure = partial(leakage, groups=episode, continuous=False, effort=effort, random_state=seed)
    found = measure(rows, body)
    if data.floor is not None:
        found = found.with_floor(measure(np.concatenate(list(data.floor.values())), body))
    silent = measure(rows, body[exchange(body, episode, rng)], probes=QUICK)
    loud = measure(inject_leak(rows, body, LEAK_SHARE, random_state=seed), body, probes=QUICK)
    return found, (
        Control(
            "shuffled bodies", "probes read nothing.", f"p = {silent.p_value:.2g}.", silent.p_value > CONTROL_LEVEL
        ),
        Control(
            f"a leak of {LEAK_SHARE:.0%} put into the codes",
            "probes find it.",
            f"p = {loud.p_value:.2g}.",
            loud.p_value <= LEVEL * 5,
        ),
    )


def _labelled(codes: Codes, data: Divided) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width = max(part.shape[1] for part in codes.values())
    rows = np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in codes.values()])
    body = np.repeat(np.arange(len(codes)), [len(part) for part in codes.values()])
    return rows, body, combined(np.concatenate([each.episode for each in data.held.values()]), body)


def _leakage_section(found: Leakage, fit: LatentAction, data: Divided, seed: int) -> Section:
    own = fit.own_
    seen = data.held if own is None else {body: own.seen(body, each) for body, each in data.held.items()}
    changes, body, episode = _labelled({b: each.change for b, each in seen.items()}, data)
    of_x = leakage(
        changes, body, groups=episode, probes=QUICK, effort=Effort(n_seeds=1, n_permutations=99), random_state=seed
    )
    return Section(
        "What codes tell of the body",
        "Probes trained from scratch on some held-out episodes and scored on others; the worst counts. "
        + leakage_sentence(found),
        (
            Score("body told by the codes", found.worst, found.chance, found.p_value, leak=True, floor=found.floor),
            Score("body told by displacements", of_x.worst, of_x.chance, of_x.p_value),
        ),
    )


def _told_section(rebuilt: Mapping[str, float], known: Codes, new: Codes, data: Divided) -> Section:
    """Say what codes still know: an empty code is blind, too."""
    scores = [Score(f"{changed} rebuilt (R²)", value, 0.0) for changed, value in rebuilt.items()]
    if data.truth is not None:
        first, second = data.truth
        reader = {body: PolynomialRidge(2).fit(known[body], first[body]) for body in known}
        scores += [
            Score(f"truth of {body} (R²)", _r2(second[body], reader[body].predict(new[body])), 0.0) for body in new
        ]
        one = PolynomialRidge(2).fit(_all(known), _all(first))
        scores.append(Score("truth, one reader for all bodies (R²)", _r2(_all(second), one.predict(_all(new))), 0.0))
        for body in new:
            others = [other for other in new if other != body]
            read = PolynomialRidge(2).fit(*(np.concatenate([part[o] for o in others]) for part in (known, first)))
            scores.append(
                Score(
                    f"truth of {body}, by a reader of the others (R²)", _r2(second[body], read.predict(new[body])), 0.0
                )
            )
    return Section(
        "What codes still know",
        "A constant is blind to everything. How much of each body's held-out displacements its forward model rebuilds "
        "from codes, or, of frames, how much a line tells of how far their parts moved; and, of the truth, what a "
        "regression with squares reads in each body, in all, and in one of which it has seen no truth.",
        tuple(scores),
    )


def _curve(known: Codes, new: Codes, data: Divided, rng: np.random.Generator) -> dict[int, float]:
    """Carry codes from body to body by so many pairs, and score on held-out ones: means over pairs of bodies."""
    both = {**data.pairs, **{(b, a): rows[:, ::-1] for (a, b), rows in data.pairs.items()}}
    held = {**data.held_pairs, **{(b, a): rows[:, ::-1] for (a, b), rows in data.held_pairs.items()}}
    found: dict[int, list[float]] = {}
    for a, b in permutations(new, 2):
        if (a, b) not in both or len(held.get((a, b), ())) < 10:
            continue
        (i, j), (k, m) = both[a, b].T, held[a, b].T
        for n in N_PAIRS:
            if n > len(i):
                continue
            some = rng.permutation(len(i))[:n]
            carried = PolynomialRidge().fit(known[a][i[some]], known[b][j[some]]).predict(new[a][k]) if n else new[a][k]
            found.setdefault(n, []).append(_r2(new[b][m], carried))
    return {n: float(np.mean(scores)) for n, scores in found.items()}


def _curve_section(curve: Mapping[int, float]) -> Section:
    scores = tuple(Score(f"carried by {n} pairs (R²)", value, 0.0) for n, value in curve.items())
    text = (
        "Codes of a body, predicted from another's by an affine map fitted to so many pairs; 0 takes them as they are."
    )
    return Section("From body to body", text, scores)


def _against(
    found: Leakage, controls: tuple[Control, ...], rebuilt: Mapping[str, float], agree: float
) -> tuple[str, ...]:
    reasons = [f"a control failed: {control.name}" for control in controls if not control.passed]
    if found.leaks:
        reasons.append(f"codes tell the body: {found.verdict.rstrip('.')}")
    changed, least = min(rebuilt.items(), key=lambda pair: pair[1])
    if found.collapsed or least < LEAST_TOLD:
        reasons.append(f"the code is nearly empty: it tells {least:.2f} of {changed}")
    if agree < AGREED_BY_HALVES:
        reasons.append(f"fits to halves of the episodes agree by R² {agree:.2f} only, and {AGREED_BY_HALVES} is asked")
    return tuple(reasons)


def _claim(est: LatentAction, found: Leakage, rebuilt: float, agree: float, curve: Mapping[int, float]) -> str:
    floor = "" if found.floor is None else f", floor {found.floor:.3f}"
    most = max(curve, default=0)
    carried = f", and {most} pairs carry them to another body by R² {curve[most]:.2f}" if most else ""
    return (
        f"If actions determine codes within each body, these are the actions up to {est.guarantee.indeterminacy.name} "
        f"({est.guarantee.source}): on held-out episodes the worst probe reads the body off {found.worst:.3f} (chance "
        f"{found.chance:.3f}{floor}), codes tell at least {rebuilt:.2f} of how each body moved, fits to halves "
        f"agree by R² {agree:.2f}{carried}."
    )


def _affine(a: np.ndarray, b: np.ndarray) -> float:
    return _r2(b, PolynomialRidge().fit(a, b).predict(a))


def _r2(truth: np.ndarray, made: np.ndarray) -> float:
    return float(r2_score(truth, np.reshape(made, truth.shape), multioutput="variance_weighted"))


def _all(parts: Codes) -> np.ndarray:
    return np.concatenate(list(parts.values()))


class LatentActionSpec(MethodSpec["LatentAction"]):
    """The specification of `LatentAction`, whose data are transitions of several bodies."""

    roles = Roles("pairs")

    def own_audit(
        self, est: LatentAction, X: Any, y: Any, sides: Mapping[str, Any], rng: np.random.Generator
    ) -> Findings:
        if sides["given"] is not None:
            raise InputError("given", "audit: LatentAction does not use `given`. Leave it out.")
        return audited(est, X, y, **{name: side for name, side in sides.items() if name != "given"}, rng=rng)

    def checks_before(self, est: Any, data: Data, n_components: int, whole: Data) -> Verdicts:
        raise TypeError(ONLY_AUDITED)

    def checks_after(self, est: LatentAction, data: Data, known: Verdicts = ()) -> Verdicts:
        raise TypeError(ONLY_AUDITED)

    def plan(self, est: Any, data: Data, n_components: int | None) -> Plan:
        raise TypeError(ONLY_AUDITED)


ONLY_AUDITED = (
    "LatentAction: transitions of several bodies are not samples of one table, so that assumptions cannot be checked "
    "on them. Use audit(est, X_t, X_next, groups=…)."
)
