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

from pindown import _random, theory
from pindown.checks.assembled import answers_of
from pindown.checks.nuisances import what_leaks
from pindown.checks.verdict import Verdict, with_better
from pindown.data import Data
from pindown.estimators.base import BaseEncoder
from pindown.evidence.agreement import Agreement, Measure, agreements, in_order_of
from pindown.evidence.rows import Rows
from pindown.evidence.scores import Control, Score
from pindown.metrics import Leakage
from pindown.report.claims import not_shown, refusals, sentence
from pindown.report.page import check_writable, write_whole
from pindown.report.pictures import Pictures, pictures_of
from pindown.report.refits import gathered, read, refit
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

    def _repr_html_(self) -> str:
        from pindown.report.summary import summary

        return summary(self)  # in a notebook

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

    Any estimator on `BaseEncoder` can be audited: what is measured is what it says of itself (``est.answers``).

    Parameters
    ----------
    est : estimator
        Fitted.
    X, y
        Observations and side variable, as in ``est.fit``; best those it was fitted to. Or a `pindown.data.Data` with
        all that belongs to them, and nothing else.
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
    >>> from pindown import Classify
    >>> from pindown.processes import Clusters
    >>> sample = Clusters.on_sphere(3, 8, 10.0, random_state=0).sample(1_600, random_state=1)
    >>> classify = Classify(3, max_iter=150, random_state=0).fit(sample.x, sample.u)
    >>> found = audit(classify, sample.x, sample.u, n_fits=2, random_state=0)
    >>> found.claims, found.scores[0].name, found.agreement[0].worst > 0.9
    (True, 'class recognised', True)
    """
    answers = answers_of(est, "audit")
    check_is_fitted(est)
    check_scalar(n_fits, "n_fits", numbers.Integral, min_val=2)
    rng = np.random.default_rng(_random.draw_seed(random_state) % 2**63)
    data = X if isinstance(X, Data) else gathered(est, X, y, given, groups, truth)
    rows, grouped = read(est, data), data.groups is not None
    n_stages = n_fits + 2 + (answers.null is not None) + 2  # fits, halves, a control; and what is measured
    with stages(f"Audit of {type(est).__name__}", n_stages, show=verbose) as begin:
        return _audited(est, rows, n_fits=n_fits, rng=rng, grouped=grouped, begin=begin)


def _audited(
    est: BaseEncoder,
    rows: Rows,
    *,
    n_fits: int,
    rng: np.random.Generator,
    grouped: bool,
    begin: Callable[[str], None],
) -> Audit:
    refits = refit(est, rows, n_fits=n_fits, rng=rng, begin=begin)
    begin("what agrees, and what is told")
    answers, held_out = est.answers, refits.held_out
    theorem: theory.Theorem | None = est.guarantee
    measure, codes = answers.measure(est, held_out), _codes(est, held_out)
    others, halves = (
        [_codes(fit, held_out, measure, codes) for fit in fits] for fits in (refits.others, refits.halves)
    )
    null = None if refits.null is None else _codes(refits.null, held_out, measure, codes)
    agreement = agreements(measure, codes, others, halves, null)
    found = answers.evidence(refits, rng)
    begin("which assumptions hold")
    some = rows.data.take(np.sort(rng.permutation(len(rows))[:CHECKED_ROWS]))
    before = answers.before(est, some, est.n_components_, rows.data)
    after = with_better(answers.after(refits.others[0], held_out.data), *found.verdicts)
    verdicts = _together(before, after)
    without = answers.waived(est, rows.data)
    reasons = refusals(theorem, verdicts, agreement, found.controls, found.learned_nothing, without)
    within = "the given label" if rows.data.given is not None else ""
    return Audit(
        estimator=f"{type(est).__name__}({codes.shape[1]})",
        theorem=theorem,
        verdicts=verdicts,
        scores=found.scores,
        agreement=agreement,
        controls=found.controls,
        leakage=found.leakage,
        recovery=answers.recovery(_codes(refits.others[0], held_out), held_out),
        waived=without,
        reasons=reasons,
        claim=sentence(
            theorem, reasons, verdicts, found.scores, agreement, len(held_out), without=without, within=within
        ),
        not_shown=not_shown(theorem, verdicts, without),
        warned=refits.warned,
        n_rows=len(rows),
        n_learned_from=refits.n_learned_from,
        n_held_out=len(held_out),
        n_fits=n_fits + 2 + (refits.null is not None),
        pictures=pictures_of(est, refits, codes, others[0], grouped=grouped),
    )


def _codes(fit: BaseEncoder, rows: Rows, measure: Measure | None = None, like: Matrix | None = None) -> Matrix:
    """Encode rows; in the order of another's latents, where a measure compares them in their order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # the rows are those it knows
        codes = np.asarray(fit.transform(rows.X), dtype=np.float64)
    return in_order_of(like, codes) if measure is not None and measure.in_order and like is not None else codes


def _together(before: tuple[Verdict, ...], after: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return both, each once; what is counted was counted before, in all rows.

    That classes span all directions shows better in codes: a mixing bends their span.
    """
    spanned = next((v for v in after if v.assumption == theory.AFFINE_GENERATORS and v.outcome == "holds"), None)
    kept = [v for v in before if not (spanned and v.assumption == theory.AFFINE_GENERATORS)]
    counted = {v.assumption for v in before if isinstance(v.assumption, theory.Diversity)}
    new = [v for v in after if v.assumption not in counted]
    for v in before:
        if spanned and v.assumption == theory.AFFINE_GENERATORS and v.outcome != "holds":
            seen = f"{spanned.why} Before training it looked otherwise, since a mixing bends what X spans: {v.why}"
            new[new.index(spanned)] = dataclasses.replace(spanned, why=seen)
    return tuple({str(verdict): verdict for verdict in (*kept, *new)}.values())


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
