"""What a method says of itself: `report`, `checks`, `planning`, `runs` and the command line ask, and look up nothing.

An estimator has one `Answers` as a class attribute. The defaults are those of a method that nobody here has seen: it
learns from a label or from measurements, and is compared with its refits up to what its theorem leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pindown import theory
from pindown._names import counted
from pindown.checks import (
    Estimate,
    Verdict,
    divisible_rows,
    enough_directions,
    enough_rows,
    signal_told,
    unfolded_codes,
)
from pindown.checks.arrays import held_out_r2
from pindown.checks.verdict import above
from pindown.data import Data
from pindown.estimators.afterwards import is_large_image
from pindown.evidence.agreement import Measure, measure_for
from pindown.evidence.blocks import Features, SharedBlock
from pindown.evidence.findings import Findings
from pindown.evidence.noise import Ceiling, Moved, linear_ceiling, matched_ceiling
from pindown.evidence.plans import Plan, generally_missing, in_words, or_directions
from pindown.evidence.rows import Refits, Rows
from pindown.evidence.scores import (
    LINEAR,
    Control,
    Evidence,
    Score,
    linear_test,
    measured,
    of_side_information,
    r2,
    recovery,
)
from pindown.folding import look_for_flat_directions, look_for_folds
from pindown.theory import UNIT_CODES, UNIT_NORM, Assumption

Matrix = NDArray[np.float64]
Verdicts = tuple[Verdict, ...]
MakePlan = Callable[[Any], Plan]
"""Returns the plan for an estimator, not fitted, and the data at hand."""

REBUILT_MORE = 0.5
"""Share of what permuted columns leave unexplained that a fit without side information must explain."""


class Drawn(NamedTuple):
    """What is drawn of a fit: a number for each step, what a guess would score there, and a support if it has one."""

    curve: NDArray[Any]
    guessing: float | None = None
    support: NDArray[np.int64] | None = None


class FitScore(NamedTuple):
    """One number that says whether anything was learned, or forgotten; and on which rows."""

    name: str
    value: float | None = None
    chance: float | None = None
    rows: str = "learned from"


class Settled(NamedTuple):
    """Parameters that were chosen in view of the data, and notes that say why."""

    parameters: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()


# ---- what a method says that nobody here has seen -------------------------------------------------------------------


def of_codes(est: Any, data: Data) -> Verdicts:
    """Say whether codes are folded, and whether they tell the observations."""
    shape = np.shape(data.X)[1:]
    if is_large_image(shape):
        folding = look_for_flat_directions(torch.as_tensor(encoder_of(est, data)(data.X)), est.encoder_.space)
    else:
        vectors = torch.as_tensor(_flat(data.X))
        folding = look_for_folds(lambda rows: est.transform(rows.reshape(-1, *shape)), vectors, est.encoder_.space)
    return (unfolded_codes(folding), signal_told(encoder_of(est, data), data.X))


def encoder_of(est: Any, data: Data) -> Callable[[NDArray[Any]], Matrix]:
    """Return what encodes the rows of data, or others in their place, told what belongs to each of them."""
    return lambda rows: np.asarray(est.answers.codes(est, replace(data, X=rows)), dtype=np.float64)


def _after(est: Any, data: Data) -> Verdicts:
    """Look for folds where they are a failure: off a surface on which latents lie, an encoder may turn over at will."""
    verdicts = of_codes(est, data)
    return verdicts if est._must_not_fold else verdicts[1:]


def _flat(X: Any) -> NDArray[Any]:
    return np.asarray(X).reshape(len(X), -1)


def _before(est: Any, data: Data, d: int, whole: Data) -> Verdicts:
    verdicts = (enough_directions(_flat(data.X), d), enough_rows(len(whole), d))
    theorem = est.guarantee
    if data.signal is None or theorem is None or theorem.diversity is None or theorem.diversity.k_means:
        return verdicts
    found, needed = _n_independent(data.signal), theorem.diversity.needed(d)
    why = f"y has {found}, and {counted(d, 'latent')} {'needs' if d == 1 else 'need'} {needed}."
    outcome = above(Estimate(found, found, found), needed - 0.5)
    remedy = "" if outcome == "holds" else f" Give {needed - found} more, or ask for fewer latents."
    return (*verdicts, Verdict(theorem.diversity, found, needed, outcome, why + remedy))


def _n_independent(side: Any) -> int:
    """Count measurements that no others tell linearly, or the values of a label."""
    table = measured(side)
    return table.shape[1] if np.asarray(side).ndim == 1 else int(np.linalg.matrix_rank(table, tol=1e-6 * len(table)))


def _plan(est: Any, data: Data, n_components: int | None) -> Plan:
    theorem = est.guarantee
    widest, notes = or_directions(est, data.X, n_components)
    d = widest
    diversity = None if theorem is None else theorem.diversity
    if n_components is None and diversity is not None and not diversity.k_means and data.signal is not None:
        found = _n_independent(data.signal)
        d = max((fewer for fewer in range(1, widest + 1) if diversity.needed(fewer) <= found), default=1)
        notes = (f"y has {found} {diversity.unit}, and the data vary in {counted(widest, 'direction')}.",)
    verdicts = est.answers.before(est, data, d, data)
    missing = [v for v in verdicts if isinstance(v.assumption, theory.Diversity) and v.outcome == "fails"]
    more = [(int(v.threshold - v.statistic), v.assumption.unit) for v in missing]
    needs = tuple(f"{in_words(n)} more {unit.removesuffix('s') if n == 1 else unit}" for n, unit in more)
    call = f"{type(est).__name__}(n_components={d})"
    return Plan(call, theorem, d, verdicts, (*needs, *generally_missing(verdicts)), notes=notes)


def planned_components(est: Any, data: Data, asked: frozenset[str], look: MakePlan) -> Settled:
    """Take as many latents as the plan says, a single one on a line; say what stands against its theorem."""
    parameters: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    d = est.n_components
    if "n_components" not in asked:
        found = look(est)
        d = parameters["n_components"] = found.n_components
        notes = (f"{counted(d, 'latent')}: {found.notes[0].rstrip('.')} (n_components asks for another number).",)
        notes += found.against()
    if d == 1 and est.answers.on_a_line and "space" not in asked:
        parameters |= {name: value for name, value in est.answers.on_a_line.items() if name not in asked}
        notes += ("one latent is looked for on a line, since the sphere of one dimension is two points.",)
    return Settled(parameters, notes)


def _evidence(refits: Refits, rng: np.random.Generator) -> Evidence:
    if refits.held_out.side is not None:
        return of_side_information(refits, linear_test, rng)
    return of_rebuilding(refits, refits.held_out.with_permuted_columns(rng))


def of_rebuilding(refits: Refits, permuted: Rows, *more: Score) -> Evidence:
    """Compare how much of X codes tell with how much they tell of columns that were permuted, each on its own."""
    chance, value = _rebuilt(refits.null, permuted), min(_rebuilt(fit, refits.held_out) for fit in refits.others)
    elsewhere = _rebuilt(refits.others[0], permuted)
    score = Score("X rebuilt from the codes (R²)", value, chance)
    control = Control(
        "permuted X",
        "what was learned does not hold for columns that were permuted, each on its own.",
        f"R² {elsewhere:.3f}.",
        elsewhere <= chance + REBUILT_MORE * (1 - chance),
    )
    gain = (value - chance) / max(1 - refits.noise.share - chance, 1e-12)  # noise cannot be rebuilt
    why = () if gain >= REBUILT_MORE else (f"columns that were permuted are rebuilt about as well ({score})",)
    return Evidence((score, *more), (control,), why)


def _rebuilt(fit: Any, rows: Rows) -> float:
    codes = fit.answers.codes(fit, rows.data)
    if hasattr(fit, "inverse_transform"):
        return r2(rows.X, fit.inverse_transform(codes))
    return held_out_r2(codes.astype(np.float64), _flat(rows.X).astype(np.float64), np.random.default_rng(0)).value


def _score(est: Any, data: Data) -> FitScore:
    if data.signal is None:
        return FitScore("score", float(est.score(data.X))) if hasattr(est, "score") else FitScore("")
    if hasattr(est, "score"):
        return FitScore("score", float(est.score(data.X, data.signal)))
    told = measured(data.signal)
    frame, _ = np.linalg.qr((codes := np.asarray(est.transform(data.X), dtype=np.float64)) - codes.mean(0))
    told = told - told.mean(0)
    return FitScore(LINEAR, float(((frame.T @ told) ** 2).sum() / max((told**2).sum(), 1e-300)), 0.0)


def up_to_indeterminacy(est: Any, rows: Rows) -> Measure:
    """Compare codes up to what the theorem leaves open: an affine map, if there is none."""
    theorem = est.guarantee
    free = theory.AFFINE if theorem is None else theorem.indeterminacy
    return measure_for(free, rows.strata, getattr(est, "blocks_", None))


def ceiling(est: Any, found: Moved, rows: Rows) -> Ceiling:
    """Return what codes with so much noise can tell of latents: one by one, if the theorem gives single ones."""
    theorem = est.guarantee
    single = theorem is not None and theorem.indeterminacy.within(theory.ELEMENTWISE)
    return matched_ceiling(found) if single else linear_ceiling(found)


# ---- the value ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """What a method says of itself. All functions take the estimator first, fitted unless they say otherwise.

    Parameters
    ----------
    side : {"signal", "nuisance", "pairs", None}
        The part that its ``y`` plays.
    also : tuple of str
        Other parts that its ``fit`` takes, as keywords.
    looks_at : tuple of str
        Parts that its plan looks at, though its fit does not.
    labels : bool
        Whether a signal must be a label, without fractions.
    on_a_line : mapping
        Parameters for a single latent, where codes live on a sphere otherwise.
    starts_elsewhere : bool
        Whether refits can start behind another map of the data: ``encoder`` is a parameter, and its start matters.
    codes : (est, Data) -> array
        The codes of rows, told whatever belongs to them that its encoder uses.
    exported : (est, Data) -> array or sparse matrix
        The same as they are written to a file.
    is_told : (est) -> bool
        Whether they are, so that other codes come of rows of which it is not known.
    alike : (est, est not fitted) -> None
        Lets a refit keep what the fit has chosen between, so that both are of one kind.
    ready : (est, Rows) -> Rows
        Rows as they are divided: which are divided evenly, which stay together.
    measurable : (Rows, Rows) -> Rows
        Of the rows held out those on which a fit to the others can be measured.
    null : (est, Rows, Generator) -> (est, Rows), or None
        What to fit, and to what, so that nothing can be learned; None where that would say nothing.
    evidence : (Refits, Generator) -> Evidence
        Scores beside chance, and controls.
    block : (Refits, Generator) -> SharedBlock or None
        The part of the codes that the side variable speaks of, where that is not all of them.
    features : (est, Data, codes) -> Features or None
        What may be said of codes that leave part of X untold, or of some of their directions: that fits agree in them.
    leading : (est, Data, Data) -> array, or None
        Coordinates of the second rows along directions of the codes that the side variable tells most, as the first
        show them, the most telling first: where fits differ in all together, they may agree in these.
    told : (est, Data) -> array, or None
        What codes tell of the side variable, such as a probability of each class: in that fits may agree, if in nothing
        else.
    before : (est not fitted, Data, n_components, Data) -> verdicts
        What data say before training; counts are taken from the second, which has all rows.
    after : (est, Data) -> verdicts
        What codes say of assumptions.
    beside_evidence : (est, Data) -> verdicts, or None
        The same, less what evidence has verdicts on, so that an audit measures nothing twice; None: all of it.
    waived : (est, Data) -> assumptions
        Those it meets by construction, or does without.
    measure : (est, Rows) -> Measure
        How its codes are compared with those of another fit.
    compared : (est, Rows) -> array, or None
        What of a fit is compared by that measure, if not its codes of held-out rows.
    recovery : (codes, Rows) -> scores
        How they are compared with the truth.
    ceiling : (est, Moved, Rows) -> Ceiling
        The most that this comparison can show where X is noisy.
    drawn : (est) -> Drawn
        What is drawn of it.
    score : (est, Data) -> FitScore
        How a fit went.
    plan : (est not fitted, Data, n_components or None) -> Plan
        What to fit, and what could be claimed.
    divisible : (est not fitted, Data) -> Verdict
        Whether an audit can divide the rows.
    reading : (est not fitted, Data) -> Settled
        Parameters without which it could not read its side variables.
    settled : (est not fitted, Data, names of parameters that were asked for, MakePlan) -> Settled
        Parameters that are chosen in view of the data.
    audited : (est, X, y, keywords of `audit`) -> Findings, or None
        All that an audit finds, of a method whose data are no rows of one table: it divides, refits and measures.

    Examples
    --------
    >>> from pindown import Forget
    >>> Forget.answers.side, Forget.answers.also
    ('nuisance', ('given',))
    """

    side: str | None = "signal"
    also: tuple[str, ...] = ()
    looks_at: tuple[str, ...] = ()
    labels: bool = False
    on_a_line: Mapping[str, Any] = field(default_factory=dict)
    starts_elsewhere: bool = True
    codes: Callable[[Any, Data], Any] = lambda est, data: est.transform(data.X)
    exported: Callable[[Any, Data], Any] = lambda est, data: est.answers.codes(est, data)
    is_told: Callable[[Any], bool] = lambda est: False
    alike: Callable[[Any, Any], None] = lambda est, fresh: None
    ready: Callable[[Any, Rows], Rows] = lambda est, rows: rows
    measurable: Callable[[Rows, Rows], Rows] = lambda learned_from, held_out: held_out
    null: Callable[[Any, Rows, np.random.Generator], tuple[Any, Rows]] | None = lambda est, rows, rng: (
        est,
        rows.shuffled(rng),
    )
    evidence: Callable[[Refits, np.random.Generator], Evidence] = _evidence
    block: Callable[[Refits, np.random.Generator], SharedBlock | None] = lambda refits, rng: None
    features: Callable[[Any, Data, Matrix], Features | None] = lambda est, data, codes: None
    leading: Callable[[Any, Data, Data], Matrix] | None = None
    told: Callable[[Any, Data], Matrix] | None = None
    before: Callable[[Any, Data, int, Data], Verdicts] = _before
    after: Callable[[Any, Data], Verdicts] = _after
    beside_evidence: Callable[[Any, Data], Verdicts] | None = None
    waived: Callable[[Any, Data], tuple[Assumption, ...]] = lambda est, data: (UNIT_NORM, UNIT_CODES)
    measure: Callable[[Any, Rows], Measure] = up_to_indeterminacy
    compared: Callable[[Any, Rows], Matrix] | None = None
    recovery: Callable[[Matrix, Rows], tuple[Score, ...]] = recovery
    ceiling: Callable[[Any, Moved, Rows], Ceiling] = ceiling
    drawn: Callable[[Any], Drawn] = lambda est: Drawn(est.loss_curve_)
    score: Callable[[Any, Data], FitScore] = _score
    plan: Callable[[Any, Data, int | None], Plan] = _plan
    divisible: Callable[[Any, Data], Verdict] = lambda est, data: divisible_rows(len(data), groups=data.groups)
    reading: Callable[[Any, Data], Settled] = lambda est, data: Settled()
    settled: Callable[[Any, Data, frozenset[str], MakePlan], Settled] = planned_components
    audited: Callable[..., Findings] | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """The parts of all side variables that it uses."""
        return (*([] if self.side is None else [self.side]), *self.also)

    def fit(self, est: Any, data: Data) -> Any:
        """Fit an estimator to the side variables that it uses."""
        return est.fit(data.only(*self.roles, "groups"))
