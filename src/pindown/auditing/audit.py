"""`audit`: refit an estimator, check assumptions, and say which claims are supported."""

from __future__ import annotations

import dataclasses
import numbers
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from pindown import _random, theory
from pindown.auditing.agreement import Agreement
from pindown.auditing.audit_page import pictures_of
from pindown.auditing.checks.noise import Band, Noise, band, moved_by_noise
from pindown.auditing.checks.verdict import Verdict, with_better
from pindown.auditing.claims import compared_part, conditions_on, latents_of, not_shown, reasons_not_to_claim, sentence
from pindown.auditing.refits import Refits, Samples, encoder_of, refit
from pindown.auditing.result import Audit
from pindown.auditing.spec import Estimator, spec_of
from pindown.data.data import Data

Matrix = NDArray[np.float64]

CHECKED_ROWS = 20_000
"""Rows that are looked at before training: more would take minutes, and change little."""


def audit(
    est: Estimator,
    X: Any = None,
    y: Any = None,
    *,
    given: Any = None,
    groups: Any = None,
    truth: Any = None,
    floor: Any = None,
    pairs: Any = None,
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

    Any estimator on `BaseEncoder` can be audited: what is measured is what it says of itself (``est.spec``). So can
    `LatentAction`: then ``X`` and ``y`` map each body to its observations before and after, and so do ``groups``,
    ``truth`` and ``floor``.

    Parameters
    ----------
    est : estimator
        Fitted.
    X, y
        Observations and side variable, as in ``est.fit``; best those it was fitted to. Or a `pindown.data.data.Data`
        with all that belongs to them, and nothing else.
    given : array (n,), optional
        For `Forget`: the label within whose values the nuisance was to be forgotten.
    groups : array (n,), optional
        Subject, session, episode …: rows of one group are never on both sides of a division.
    truth : array (n, d), optional
        The latents, if they are known: recovery is then reported beside the rest.
    floor : array (n, k), optional
        What a code that is blind to the nuisance would be: what probes read off it is what may be read off codes. The
        true displacement of robots, say, tells a little of the robot, too.
    pairs : mapping, optional
        For `LatentAction`: transitions of two bodies that made the same motion, as in its ``fit``.
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
    >>> from pindown.simulate import Clusters
    >>> sample = Clusters.on_sphere(3, 8, 10.0, random_state=0).sample(2_400, random_state=1)
    >>> classify = Classify(3, max_iter=200, random_state=0).fit(sample.x, sample.u)
    >>> found = audit(classify, sample.x, sample.u, n_fits=2, random_state=0)
    >>> found.claims, found.scores[0].name, found.agreement[0].worst > 0.9
    (True, 'class recognised', True)
    """
    spec = spec_of(est, "audit")
    check_is_fitted(est)
    if X is None:
        raise TypeError(
            f"audit: X is missing: what {type(est).__name__} has learned is measured on rows that were held out. Give "
            "the observations it was fitted to, and what belongs to them: audit(est, X, y)."
        )
    check_scalar(n_fits, "n_fits", numbers.Integral, min_val=2)
    rng = np.random.default_rng(_random.draw_seed(random_state) % 2**63)
    rows = spec.refitting.read(est, X, y, {"given": given, "groups": groups, "truth": truth, "floor": floor}, pairs)
    grouped = (X.groups if isinstance(X, Data) else groups) is not None
    n_stages = n_fits + 5  # fits, halves, a control; and two of measurements
    with stages(f"Audit of {type(est).__name__}", n_stages, show=verbose) as begin:
        return _audited(est, rows, n_fits=n_fits, rng=rng, grouped=grouped, begin=begin)


def _audited(
    est: Estimator,
    rows: Samples,
    *,
    n_fits: int,
    rng: np.random.Generator,
    grouped: bool,
    begin: Callable[[str], None],
) -> Audit:
    refits = refit(est, rows, n_fits=n_fits, rng=rng, begin=begin)
    begin("what agrees, and what is told")
    spec, held_out = est.spec, refits.held_out
    codes, other = (latents_of(fit, held_out) for fit in (est, refits.others[0]))
    found = spec.evidence(refits, rng)
    begin("which assumptions hold")
    some = rows.data.take(np.sort(rng.permutation(len(rows))[:CHECKED_ROWS]))
    before = spec.checks_before(est, some, est.n_components_, rows.data)
    after = with_better(spec.checks_after(refits.others[0], held_out.data, found.verdicts), *found.verdicts)
    seen, waived = _together(before, after), spec.waived(est, rows.data)
    part, agreement = compared_part(est, refits, codes, found.block, seen, waived)
    theorem: theory.Theorem | None = est.guarantee if part is None else part.theorem
    verdicts, without = conditions_on(part, seen, waived)
    noise = refits.noise
    lies = None if noise is None or noise.is_nil or part is not None else _band(refits, noise, agreement, rng)
    reasons = reasons_not_to_claim(theorem, verdicts, agreement, found.controls, found.learned_nothing, without, lies)
    within = "the given label" if rows.data.given is not None else ""
    return Audit(
        estimator=f"{type(est).__name__}({codes.shape[1]})",
        theorem=theorem,
        verdicts=verdicts,
        scores=found.scores,
        held_out=getattr(est, "held_out_", None),
        agreement=agreement,
        controls=found.controls,
        block=found.block,
        leakage=found.leakage,
        noise=refits.noise_fraction,
        band=lies,
        recovery=spec.comparison.recovery(other, held_out),
        strips=found.strips,
        waived=without,
        reasons=reasons,
        claim=sentence(
            theorem,
            reasons,
            verdicts,
            found.scores,
            agreement,
            len(held_out),
            without=without,
            within=within,
            band=lies,
            rest="" if part is None else part.rest,
        ),
        not_shown=not_shown(theorem, verdicts, without, noise),
        warned=refits.warned,
        n_samples=len(rows),
        n_learned_from=len(refits.train),
        n_held_out=len(held_out),
        n_fits=n_fits + 2 + (refits.null is not None),
        pictures=pictures_of(est, refits, codes, other, grouped=grouped),
    )


def _band(refits: Refits, noise: Noise, agreement: Sequence[Agreement], rng: np.random.Generator) -> Band:
    """Return where the score of the true latents lies: below what noise lets through, by what fits disagree in."""
    fit, held_out = refits.others[0], refits.held_out
    found = moved_by_noise(encoder_of(fit, held_out.data), held_out.X, noise, rng)
    most = fit.spec.comparison.ceiling(fit, found, held_out)
    return band(most, min(each.worst for each in agreement), noise.fraction)


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


@contextmanager
def stages(title: str, total: int, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Yield ``begin(what)``: it says which stage comes now, if there is a terminal to say it on.

    Examples
    --------
    >>> with stages("Audit", 2, show=False) as begin:
    ...     begin("fit with another seed")
    ...     begin("what leaks")
    """
    if not (show and sys.stderr.isatty()):
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.fields[number]}/{task.total}  {task.fields[what]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, number = progress.add_task(title, total=total, number=0, what=""), 0

        def begin(what: str) -> None:
            nonlocal number
            number += 1
            progress.update(task, completed=number - 1, number=number, what=what)

        yield begin
