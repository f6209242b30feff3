"""`audit`: what holds, what agrees, what leaks, and what may be claimed; as plain data that prints and saves itself."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from pindown import _random, checks, theory
from pindown.checks.verdict import Verdict
from pindown.estimators import Classify, Contrast, Dictionary, Forget
from pindown.estimators.base import BaseEncoder
from pindown.metrics import Leakage
from pindown.report.agreement import Agreement, agreements, in_order_of, measure_for
from pindown.report.claims import not_shown, refusals, sentence, waived
from pindown.report.evidence import Control, Score, evidence, recovery, what_leaks
from pindown.report.page import check_writable, write_whole
from pindown.report.pictures import Pictures, pictures_of
from pindown.report.refits import Data, Refits, read, refit
from pindown.report.stages import stages

Matrix = NDArray[np.float64]

CHECKED_ROWS = 20_000
"""Rows that are looked at before training: more would take minutes, and change little."""


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What an audit found. Prints as text; `save` writes a page, or the numbers as JSON.

    Attributes
    ----------
    estimator : str
        What was audited.
    theorem : Theorem or None
        What would speak of it.
    verdicts : tuple of Verdict
        What data say of each assumption, before training and after.
    scores : tuple of Score
        On held-out rows, each with its level of chance.
    agreement : tuple of Agreement
        Between independent fits, up to what the theorem leaves open.
    controls : tuple of Control
        Trials whose outcome is known beforehand.
    leakage : Leakage or None
        What the codes still tell of a nuisance.
    recovery : tuple of Score
        Against the truth, if it was given.
    waived : tuple of Assumption
        Assumptions that this estimator meets by construction, or does without.
    reasons : tuple of str
        What stands against a claim; empty if nothing does.
    claim : str
        The sentence that may be quoted, or that nothing is claimed, and why.
    not_shown : tuple of str
        What was left open.
    warned : tuple of str
        What the estimator says against itself.
    n_rows, n_learned_from, n_held_out, n_fits : int
        Rows given, rows that refits learned from, rows that all is measured on, and fits made.
    """

    estimator: str
    theorem: theory.Theorem | None
    verdicts: tuple[Verdict, ...]
    scores: tuple[Score, ...]
    agreement: tuple[Agreement, ...]
    controls: tuple[Control, ...]
    leakage: Leakage | None
    recovery: tuple[Score, ...]
    waived: tuple[theory.Assumption, ...]
    reasons: tuple[str, ...]
    claim: str
    not_shown: tuple[str, ...]
    warned: tuple[str, ...]
    n_rows: int
    n_learned_from: int
    n_held_out: int
    n_fits: int
    pictures: Pictures

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return not self.reasons

    def __str__(self) -> str:
        parts: list[tuple[str, list[str]]] = [
            ("scores on held-out rows", [str(score) for score in self.scores]),
            ("agreement of independent fits", [str(found) for found in self.agreement]),
            ("controls", [str(control) for control in self.controls]),
            ("assumptions", [str(verdict) for verdict in self.verdicts]),
            ("leakage", [what_leaks(self.leakage)] if self.leakage else []),
            ("against the truth", [str(score) for score in self.recovery]),
            ("the estimator warns", list(self.warned)),
            ("claim", [self.claim]),
            ("not shown", list(self.not_shown)),
        ]
        lines = [f"Audit of {self.estimator}, {self.n_rows:,} rows, {self.n_held_out:,} held out, {self.n_fits} fits"]
        for title, entries in parts:
            lines += [title, *(f"  {entry}" for entry in entries)] if entries else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        name = "no theorem" if self.theorem is None else self.theorem.name
        return f"<Audit of {self.estimator}: {name}, {'a claim' if self.claims else 'nothing is claimed'}>"

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(str(self))  # its brackets are intervals, not markup

    def to_dict(self) -> dict[str, Any]:
        """Return all but the pictures as dictionaries, lists, text and numbers; None for what is no number."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "pictures"]
        return {"claims": self.claims} | {name: plain(getattr(self, name)) for name in names}

    def save(self, path: str | Path) -> Path:
        """Write a page (``.html``) or the numbers (``.json``), whole or not at all; return the path.

        Raises
        ------
        ValueError
            If the name has another ending.
        OSError
            If the file cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".json"):
            raise ValueError(
                f"save: {path.name!r} must end in .html, for a page, or in .json, for the numbers, not in "
                f"{path.suffix or 'nothing'!r}."
            )
        check_writable(path)
        if path.suffix.lower() == ".json":
            write_whole(json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False), path)
        else:
            from pindown.report._audit_page import render

            write_whole(render(self), path)
        return path


def audit(
    est: BaseEncoder,
    X: Any,
    y: Any = None,
    *,
    given: Any = None,
    groups: Any = None,
    truth: Any = None,
    n_fits: int = 3,
    verbose: bool = True,
    random_state: Any = None,
) -> Audit:
    """Find out what may be said of a fitted estimator, without ground truth.

    The estimator may have seen all rows. So a quarter of them is held out, clones of it are fitted to the others, and
    all is measured on the quarter: whether the clones beat chance, whether they agree with each other and with ``est``
    up to what its theorem leaves open, whether assumptions hold, and whether controls that must fail do. It takes
    ``n_fits`` fits with other seeds and starts, two to halves of the rows, and one to shuffled side information (to
    columns that were permuted, if there is none; `Forget` needs neither).

    Parameters
    ----------
    est : Contrast, Classify, Forget or Dictionary
        Fitted.
    X, y
        Observations and side variable, as in ``est.fit``; best those it was fitted to.
    given : array (n,), optional
        For `Forget`: the label within whose values the nuisance was to be forgotten.
    groups : array (n,), optional
        Subject, session, episode …: rows of one group are never on both sides of a division.
    truth : array (n, d), optional
        The latents, if they are known: recovery is then reported beside the rest.
    n_fits : int
        Refits with other seeds, at least 2. All but the first also start at another map of the data, so that what they
        agree in was learned.
    verbose : bool
        Show what is being done, if there is a terminal.
    random_state : int, RandomState or None
        Seed of the divisions, the refits and the permutations.

    Examples
    --------
    >>> from pindown.processes import Clusters
    >>> sample = Clusters.on_sphere(3, 8, 10.0, random_state=0).sample(1_600, random_state=1)
    >>> classify = Classify(3, max_iter=150, random_state=0).fit(sample.x, sample.u)
    >>> found = audit(classify, sample.x, sample.u, n_fits=2, random_state=0)
    >>> found.claims, found.scores[0].name, found.agreement[0].worst > 0.9
    (True, 'class recognised', True)
    """
    check_is_fitted(est)
    check_scalar(n_fits, "n_fits", numbers.Integral, min_val=2)
    rng = np.random.default_rng(_random.draw_seed(random_state) % 2**63)
    data = read(est, X, y, given, groups, truth)
    n_stages = n_fits + 2 + (not isinstance(est, Forget)) + 2  # fits, halves, a control; and what is measured
    with stages(f"Audit of {type(est).__name__}", n_stages, show=verbose) as begin:
        return _audited(est, data, n_fits=n_fits, rng=rng, grouped=groups is not None, begin=begin)


def _audited(
    est: BaseEncoder,
    data: Data,
    *,
    n_fits: int,
    rng: np.random.Generator,
    grouped: bool,
    begin: Callable[[str], None],
) -> Audit:
    refits = refit(est, data, n_fits=n_fits, rng=rng, begin=begin)
    begin("what agrees, and what is told")
    held_out = refits.held_out
    theorem: theory.Theorem | None = est.guarantee
    codes = _codes(est, held_out)
    others, halves = ([_codes(fit, held_out, codes) for fit in fits] for fits in (refits.others, refits.halves))
    null = None if refits.null is None else _codes(refits.null, held_out, codes)
    free = theory.AFFINE if theorem is None else theorem.indeterminacy
    measure = measure_for(free, held_out.strata, getattr(est, "blocks_", None))
    agreement = agreements(measure, codes, others, halves, null)
    found = evidence(refits, rng)
    begin("which assumptions hold")
    verdicts = _together(_before(est, data, rng), _after(refits))
    given = data.given is not None
    without = waived(any_marginal=bool(getattr(est, "any_marginal", False)), given=given)
    reasons = refusals(theorem, verdicts, agreement, found.controls, found.learned_nothing, without)
    within = "the given label" if given else ""
    return Audit(
        estimator=f"{type(est).__name__}({codes.shape[1]})",
        theorem=theorem,
        verdicts=verdicts,
        scores=found.scores,
        agreement=agreement,
        controls=found.controls,
        leakage=found.leakage,
        recovery=recovery(refits.others[0], held_out),
        waived=without,
        reasons=reasons,
        claim=sentence(
            theorem, reasons, verdicts, found.scores, agreement, len(held_out), without=without, within=within
        ),
        not_shown=not_shown(theorem, verdicts, without),
        warned=refits.warned,
        n_rows=len(data),
        n_learned_from=refits.n_learned_from,
        n_held_out=len(held_out),
        n_fits=n_fits + 2 + (refits.null is not None),
        pictures=pictures_of(est, refits, codes, others[0], grouped=grouped),
    )


def _codes(fit: BaseEncoder, data: Data, like: Matrix | None = None) -> Matrix:
    """Encode rows; the latents of a dictionary in the order of another's, since their blocks are compared."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # the rows are those it knows
        codes = np.asarray(fit.transform(data.X), dtype=np.float64)
    return in_order_of(like, codes) if like is not None and isinstance(fit, Dictionary) else codes


def _before(est: BaseEncoder, data: Data, rng: np.random.Generator) -> tuple[Verdict, ...]:
    """Check the data; counts of rows are taken from all of them."""
    some = data.take(np.sort(rng.permutation(len(data))[:CHECKED_ROWS]))
    d = est.n_components_
    match est:
        case Contrast():
            return checks.before(some.X, d, pairs=some.side)
        case Classify() if data.paired:
            return checks.before(some.X, d, pairs=some.side)
        case Classify():
            counted = (checks.enough_rows(len(data), d, data.side), checks.enough_values(data.side, est.guarantee, d))
            return _replaced(checks.before(some.X, d, signal=some.side), counted)
        case Forget():
            counted = (checks.enough_rows(len(data), d), checks.common_values(data.strata))
            verdicts = _replaced(checks.before(some.X, d, nuisance=some.strata), counted)
            return verdicts if some.given is None else (*verdicts, checks.unconfounded(some.given, some.strata))
    return _replaced(checks.before(some.X, d), (checks.enough_rows(len(data), d),))


def _replaced(verdicts: tuple[Verdict, ...], better: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    known = {verdict.assumption: verdict for verdict in better}
    return tuple(known.get(verdict.assumption, verdict) for verdict in verdicts)


def _together(before: tuple[Verdict, ...], after: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return both, each once. That classes span all directions shows better in codes: a mixing bends their span."""
    spanned = any(v.assumption == theory.AFFINE_GENERATORS and v.outcome == "holds" for v in after)
    kept = (v for v in before if not (spanned and v.assumption == theory.AFFINE_GENERATORS))
    return tuple({str(verdict): verdict for verdict in (*kept, *after)}.values())


def _after(refits: Refits) -> tuple[Verdict, ...]:
    """Check the first refit on rows that it has not seen."""
    fit, data = refits.others[0], refits.held_out
    if isinstance(fit, Forget):
        return checks.after(fit, data.X, data.strata, given=data.given)
    if isinstance(fit, Classify):  # whose classes were counted before, in all rows
        verdicts = checks.after(fit, data.X, None if data.paired else data.side)
        return tuple(v for v in verdicts if v.assumption != fit.guarantee.diversity)
    return checks.after(fit, data.X, data.side)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: assumptions and theorems by what they say, NaN as None.

    Examples
    --------
    >>> plain({"p": np.float64(0.5), "r2": math.nan, "of": theory.UNIFORM_SPHERE})
    {'p': 0.5, 'r2': None, 'of': 'uniform marginal on the sphere'}
    """
    match value:
        case theory.Assumption():
            return value.name
        case theory.Diversity():
            return f"at least {value.formula} {value.unit}"
        case theory.Theorem():
            return {"name": value.name, "source": value.source, "claim": value.claim()}
        case Mapping():
            return {str(name): plain(entry) for name, entry in value.items()}
        case list() | tuple() | np.ndarray():
            return [plain(entry) for entry in value]
        case bool() | np.bool_():
            return bool(value)
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value) if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value if value is None or isinstance(value, str) else str(value)
