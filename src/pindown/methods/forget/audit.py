"""The specification of `Forget`: probes find the nuisance in X and not in the latents, which still explain X."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks import before, conditions
from pindown.auditing.checks.arrays import signal_coordinates
from pindown.auditing.checks.encoders import structure_kept
from pindown.auditing.checks.noise import Ceiling, Moved, ceiling_within
from pindown.auditing.checks.nuisances import (
    invariant_latents,
    leakage_verdict,
    touched_dimensions,
    unconfounded,
)
from pindown.auditing.checks.samples import common_levels, enough_samples
from pindown.auditing.checks.verdict import with_better
from pindown.auditing.evidence import (
    LEVEL,
    N_PERMUTATIONS,
    AuditScore,
    Evidence,
    Objection,
    leak_controls,
    leak_score,
    r2,
    recovery_within_levels,
    samples_for,
)
from pindown.auditing.plans import Plan, Summary, missing_in_general, outcome_of
from pindown.auditing.refits import Refits, Samples, encoder_of
from pindown.auditing.spec import (
    ChosenParameters,
    Comparison,
    Figure,
    FitScore,
    Matrix,
    MethodSpec,
    Refitting,
    Roles,
    Verdicts,
)
from pindown.data.data import Data
from pindown.data.labels import IntArray, is_quantity, read_labels
from pindown.errors import InputError, warn
from pindown.methods.forget.approach import ForgetSummary
from pindown.methods.forget.nuisance import Column, as_table, assemble, read_columns, read_strata
from pindown.metrics import PROBES, Effort, leakage
from pindown.theory import NUISANCE_INDEPENDENT, UNIT_FEATURES, UNIT_NORM, Assumption

if TYPE_CHECKING:
    from pindown.methods.forget.estimator import Forget

AT_ONCE = 1_024  # images that are preprocessed at once

QUICK, OF_DATA = (  # the second is enough for a nuisance in X, of which one feature may be full
    tuple(probe for probe in PROBES if probe.name in names)
    for names in (("linear", "quadratic"), ("linear", "quadratic", "sparse"))
)

# With fewer held-out samples than the first, probes are trained from so many seeds, since one may learn nothing
FEW, STARTS = 1_000, 3
DEAD = 1e-3  # spread, relative to the largest, below which a latent counts as constant

MAX_SAMPLES = 4_000  # training samples in which the nuisance must be decodable from X, too

# Assumptions about a linear embedding, which do not concern others
OF_LINEAR = theory.NUISANCE_VMF, theory.LINEAR_ENCODER
BINS = 8  # of a nuisance that is a quantity, by default

_OF_CLASSES = (theory.CLASSIFY_NORMALISED.diversity, theory.AFFINE_GENERATORS)


class WithinLevels(Comparison["Forget"]):
    """Fits of `Forget` are compared with ground truth within each level of the nuisance."""

    def recovery(self, latents: Matrix, rows: Samples) -> tuple[AuditScore, ...]:
        return recovery_within_levels(latents, rows)

    def ceiling(self, est: Forget, found: Moved, rows: Samples) -> Ceiling:
        return ceiling_within(found, rows.strata)


class ForgetRefitting(Refitting["Forget"]):
    """Refits of `Forget` have samples of each level."""

    def samples(self, est: Forget, rows: Samples) -> Samples:
        return replace(rows, strata=joint_label(est, rows.side, len(rows)))


class ForgetSpec(MethodSpec["Forget"]):
    """The specification of `Forget`."""

    roles = Roles("nuisance", also=("given",), plan_only=("signal",))
    comparison = WithinLevels()
    refitting = ForgetRefitting()

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        fit, rows = refits.others[0], refits.held_out
        seed = int(rng.integers(2**31))
        latents = _in_own_units(fit, fit.transform(rows.X, rows.side))

        measure = partial(leakage, groups=rows.units, given=rows.data.given, continuous=False, random_state=seed)
        quick = partial(measure, probes=QUICK, effort=Effort(n_seeds=1, n_permutations=N_PERMUTATIONS))
        effort = Effort(n_seeds=STARTS if len(rows) <= FEW else 1)
        of_x = quick(_as_columns(fit, rows.X), rows.strata, probes=OF_DATA)
        of_latents = measure(latents, rows.strata, effort=effort)
        if rows.data.floor is not None:
            of_latents = of_latents.with_floor(measure(rows.data.floor, rows.strata, effort=effort))
        own = measure(_in_own_units(refits.fit, refits.fit.transform(rows.X, rows.side)), rows.strata, effort=effort)
        controls = leak_controls("nuisance", quick, latents, rows, rng, seed)
        scores: tuple[AuditScore, ...] = (
            leak_score("nuisance decodable from the latents", of_latents, own),
            AuditScore("nuisance decodable from X", of_x.worst, of_x.chance, of_x.p_value),
            _reconstruction(fit, rows),
        )
        why = []
        others = refits.train
        # A nuisance that is decodable by chance is hardly decodable in other samples, too.
        again = quick(
            _as_columns(fit, others.X),
            others.strata,
            probes=OF_DATA,
            groups=others.units,
            given=others.data.given,
            effort=Effort(n_seeds=1, n_permutations=N_PERMUTATIONS, max_samples=MAX_SAMPLES),
        )
        if max(of_x.p_value, again.p_value) > LEVEL:
            probes = f"{' and '.join(probe.name for probe in OF_DATA)} probes"
            reason = f"{probes} do not decode the nuisance from X, so there may be nothing to remove"
            why.append(Objection(reason, "Use X as it is, or give features or samples that show the nuisance."))
        elif of_latents.excess >= of_x.excess:
            reason = "the nuisance is as decodable from the latents as from X"
            why.append(Objection(reason, "Train longer, or give more samples of each level."))
        if of_latents.collapsed:
            reason = "the latents have collapsed, and a constant is invariant to everything"
            why.append(Objection(reason, "Ask for less invariance, or give more samples."))
        if rows.data.given is not None:
            kept = quick(latents, rows.data.given, given=None)
            scores += (AuditScore("given label decodable from the latents", kept.worst, kept.chance, kept.p_value),)
            if not scores[-1].good:
                reason = f"the given label is not decodable from the latents ({scores[-1]})"
                why.append(Objection(reason, samples_for(scores[-1], len(rows))))
        return Evidence(scores, controls, tuple(why), of_latents, (leakage_verdict(of_latents),))

    def checks_before(self, est: Forget, data: Data, d: int, whole: Data) -> Verdicts:
        label = _label(est, data)
        _refuse_confounded(label, data.given)
        counted = enough_samples(len(whole), d, whole.signal), common_levels(_label(est, whole))
        verdicts = with_better(before(data.X, d, signal=data.signal, nuisance=label), *counted)
        if _by_level(est):  # such a fit knows the nuisance, and need not be linear
            verdicts = tuple(verdict for verdict in verdicts if verdict.assumption not in OF_LINEAR)
        return verdicts if data.given is None else (*verdicts, unconfounded(data.given, label))

    def latents(self, est: Forget, data: Data) -> Any:
        if data.nuisance is None and _by_level(est):
            warn(
                "Forget: the nuisance of these samples is missing, so one map encodes all of them. The latents may "
                "depend more on it than those of batch-specific maps."
            )
        return est.transform(data.X, data.nuisance)

    def checks_after(self, est: Forget, data: Data, known: Verdicts = ()) -> Verdicts:
        if known:  # the evidence has measured the leakage
            return (*known, *_kept(est, data))
        latents = encoder_of(est, data)(data.X)
        return (invariant_latents(latents, _label(est, data), data.given), *_kept(est, data))

    def waived(self, est: Forget, data: Data) -> tuple[Assumption, ...]:
        """Return what is met by construction (orthonormal rows); with a given label the nuisance may depend on it."""
        linear = (theory.INFORMATION_KEPT,) if est.guarantee == theory.FORGET else ()
        return (UNIT_NORM, UNIT_FEATURES, *linear, *((NUISANCE_INDEPENDENT,) if data.given is not None else ()))

    def figure(self, est: Forget) -> Figure:
        """Draw the loss of the classifier: adversarial losses do not fall."""
        return Figure(est.history_.classifier_loss, est.history_.chance_loss)

    def score(self, est: Forget, data: Data) -> FitScore:
        found = est.held_out_
        if found is None:
            return FitScore("best probe of the nuisance", rows="held out")
        return FitScore(found.name, found.score, found.chance, found.rows)

    def plan(self, est: Forget, data: Data, summary: Summary) -> Plan:
        nuisance, signal, given = _label(est, data), data.signal, data.given
        _refuse_confounded(nuisance, given)
        rows = signal_coordinates(data.X)[0]
        confounded = given is None and signal is not None and unconfounded(signal, nuisance).outcome == "fails"
        n_directions, touched = touched_dimensions(rows, nuisance)
        left, d = n_directions - touched, est.n_components
        notes: tuple[str, ...] = ()
        if d is None:
            known = summary if isinstance(summary, ForgetSummary) and not confounded else None
            if known is None:  # a fit may refuse the nuisance as it is
                known = _summary(est, data.X, nuisance, signal if confounded else given)
            d = max(1, left) if known is None else known.n_components
            notes = () if known is None else tuple(filter(None, (known.note, *known.warnings)))
        found = before(data.X, d, signal=signal if given is None else None, nuisance=nuisance)
        linear = est.guarantee == theory.FORGET
        other = _OF_CLASSES if linear else (*_OF_CLASSES, *OF_LINEAR)
        verdicts = tuple(verdict for verdict in found if verdict.assumption not in other)
        needs: tuple[str, ...] = ()
        if confounded:
            needs += ("samples in which label and nuisance are crossed, or invariance given the label",)
        if outcome_of(verdicts, theory.LINEAR_ENCODER) == "fails":
            most = f"at most {counted(left, 'latent')}" if left else "other variables"
            needs += (f"{most}, since the nuisance moves {counted(touched, 'dimension')}",)
        if outcome_of(verdicts, conditions.OVERLAPPING_LEVELS) == "fails":
            needs += ("pairs across levels of the nuisance, to map latents from one to another",)
        estimator = f"Forget(n_components={d}{', encoder=networks.linear' if linear else ''}"
        estimator += ")" if (n_bins := _n_bins(est, data.nuisance)) is None else f", n_bins={n_bins})"
        estimator += ".fit(X, nuisance, given=label)" if confounded or given is not None else ""
        if np.ndim(data.X) == 2 and not linear:
            spreads = next(verdict for verdict in found if verdict.assumption == theory.NUISANCE_VMF)
            means_only = "the nuisance shifts means only, as far as can be seen: a linear encoder has a theorem."
            nonlinear = f"linear latents cannot be invariant, since {spreads.why}"
            notes += (nonlinear if spreads.outcome == "fails" else means_only,)
        return Plan(estimator, est.guarantee, d, verdicts, (*needs, *missing_in_general(verdicts)), notes=notes)

    def choose(self, est: Forget, data: Data) -> ChosenParameters:
        """Cut a nuisance with fractions into bins; tables get batch-specific maps, unless an encoder is asked for."""
        if (n_bins := _n_bins(est, data.nuisance)) == est.n_bins:
            return ChosenParameters({})
        note = f"the nuisance has fractions: a quantity, cut into {n_bins} bins (n_bins={n_bins})."
        return ChosenParameters({"n_bins": n_bins}, (note,))


def joint_label(est: Forget, y: Any, n_samples: int) -> IntArray:
    """Return a number for each combination of levels of a nuisance; quantities are cut into bins."""
    table = as_table(y, n_samples)
    columns, kinds = read_columns(table, n_samples, _n_bins(est, table))
    numbers = np.stack([kind.numbers(column) for kind, column in zip(kinds, columns, strict=True)], 1)
    return np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1)


def _label(est: Forget, data: Data) -> IntArray:
    """Return the nuisance as one label, by the name that the caller knows."""
    if np.ndim(data.nuisance) == 1 and _n_bins(est, data.nuisance) is None:
        return read_labels("nuisance", data.nuisance, len(data))
    return joint_label(est, data.nuisance, len(data))


def _refuse_confounded(label: IntArray, given: Any) -> None:
    """Raise as a fit would if a given label determines the nuisance."""
    if given is not None:
        strata = read_strata(given, len(label), may_miss=True)
        assemble([label], [Column(np.unique(label))], np.where(strata < 0, strata.max() + 1, strata)).refuse_identical()


def _in_own_units(fit: Forget, latents: NDArray[Any]) -> NDArray[Any]:
    """Return latents of batch-specific maps with unit spread: they vary as X does, perhaps along one direction most."""
    spread = latents.std(0)
    return latents / np.where(spread > DEAD * spread.max(), spread, np.inf) if _by_level(fit) else latents


def _as_columns(fit: Forget, X: NDArray[Any]) -> NDArray[Any]:
    """Return vectors as they are, and images along the directions that the fit uses of them."""
    if X.ndim == 2:
        return X
    first = fit.encoder_.preprocess
    parts = (torch.as_tensor(X[k : k + AT_ONCE]).to(first.mean.device) for k in range(0, len(X), AT_ONCE))
    return torch.cat([first(part) for part in parts]).cpu().numpy()


def _reconstruction(fit: Forget, rows: Samples) -> AuditScore:
    """Return the R² of observations rebuilt from latents and nuisance; chance is that of the nuisance alone."""
    assert rows.side is not None
    latents = fit.transform(rows.X, rows.side)
    rebuilt = fit.inverse_transform(latents, rows.side)
    guess = fit.inverse_transform(np.broadcast_to(latents.mean(0), latents.shape).copy(), rows.side)
    name, value, chance = "X reconstructed from latents and nuisance (R²)", r2(rows.X, rebuilt), r2(rows.X, guess)
    return AuditScore(name, value, chance, of="a refit", kept=True)


def _kept(est: Forget, data: Data) -> Verdicts:
    """Check whether the latents keep what does not depend on the nuisance."""
    encode = encoder_of(est, data)
    if est.guarantee == theory.FORGET:
        return ()
    label = _label(est, data)
    levels = np.eye(label.max() + 1)[label]  # which the decoder is given, too

    def given(rows: Matrix) -> Matrix:
        z = encode(rows)  # batch-specific maps are inverted by a map of each level
        own = z if est.batch_maps_ is None else (z[:, None] * levels[:, :, None]).reshape(len(z), -1)
        return np.hstack([own, levels])

    return (structure_kept(given, data.X, theory.EXACT_RECONSTRUCTION),)


def _summary(est: Forget, rows: NDArray[Any], nuisance: Any, given: Any) -> ForgetSummary | None:
    """Return the summary that a fit would make before its first step; None if it would raise."""
    try:
        summary = clone(est).set_params(random_state=0, n_bins=None).prepare(Data(rows, nuisance=nuisance, given=given))
    except ValueError:  # the verdicts give the reason
        return None
    assert isinstance(summary.summary, ForgetSummary)
    return summary.summary


def _by_level(est: Forget) -> bool:
    """Return whether samples of each level are encoded by a map of its own."""
    return est.batch_maps_ is not None or est.transport_ is not None


def _n_bins(est: Forget, nuisance: Any) -> int | None:
    """Return the number of bins of a nuisance that is a quantity; None for labels."""
    return BINS if est.n_bins is None and _has_fractions(nuisance) else est.n_bins


def _has_fractions(nuisance: Any) -> bool:
    columns = [np.array(column.tolist()) for column in np.atleast_2d(np.asarray(nuisance).T)]
    if not any(map(is_quantity, columns)):
        return False
    if any(column.dtype.kind not in "buif" for column in columns):
        raise InputError(
            "nuisance",
            "`nuisance`: one column has fractions, another holds text, and a fit removes one or the other. Cut the "
            "quantity into a few bins, in a column of its own.",
        )
    return True
