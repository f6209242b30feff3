"""The page of an audit: its numbers and pictures, put into parts of plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from pindown.auditing.agreement import MOST_SHOWN, Agreement, matching, principal_angles
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.nuisances import leakage_sentence
from pindown.auditing.claims import threshold
from pindown.auditing.evidence import Control, Score
from pindown.auditing.page import (
    Colouring,
    Curve,
    Curves,
    Drawing,
    Figure,
    Latents,
    fill,
    protractor,
    sheet,
    shown,
    slid,
    sliders,
    squares,
)
from pindown.auditing.refits import Refits, Samples, can_vary_initialisation, varies_initialisation
from pindown.simulate.images import contact_sheet, nearest_traversals, swaps

if TYPE_CHECKING:
    from pindown.auditing.agreement import SharedBlock
    from pindown.auditing.checks.noise import Band
    from pindown.auditing.checks.verdict import Verdict
    from pindown.auditing.result import Audit
    from pindown.metrics import Leakage


@dataclass(frozen=True)
class Ruler:
    """A number on a scale from 0 to 1, beside what chance scores; off the scale it is only written."""

    name: str
    value: float
    chance: float
    note: str
    unit: str = ""
    status: str = ""
    interval: tuple[float, float] | None = None
    others: tuple[float, ...] = ()
    shuffled: float | None = None

    @property
    def on_scale(self) -> bool:
        """Whether there is a scale to draw it on."""
        return not self.unit


@dataclass(frozen=True)
class Line:
    """A row of a table; its status is one of holds, fails, undecided and beside."""

    name: str
    cells: tuple[str, ...]
    status: str


@dataclass(frozen=True, eq=False)
class Part:
    """One part of the page: text, then whatever it has of rulers, a table, pictures and points."""

    title: str
    text: str
    rulers: tuple[Ruler, ...] = ()
    header: tuple[str, ...] = ()
    table: tuple[Line, ...] = ()
    figures: tuple[Figure, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    points: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class AuditPage:
    """All that the page says."""

    title: str
    kicker: str
    lead: str
    footer: str
    claims: bool
    claim: str
    reasons: tuple[str, ...]
    warned: tuple[str, ...]
    parts: tuple[Part, ...]


def render(audit: Audit) -> str:
    """Return an audit as HTML that needs nothing else."""
    return fill("audit.html.j2", page=page_of(audit))


def page_of(audit: Audit) -> AuditPage:
    """Put an audit into the parts of its page."""
    theorem = audit.theorem
    promise = "No theorem covers these parameters." if theorem is None else f"{theorem.source}: {theorem.promises}"
    return AuditPage(
        title="This may be claimed" if audit.claims else "Nothing is claimed",
        kicker=f"pindown audit · {audit.estimator} · {audit.n_samples:,} rows",
        lead=promise,
        footer=f"{audit.n_fits} fits beside the one that was audited; refits learned from {audit.n_learned_from:,} "
        f"rows, and all was measured on {audit.n_held_out:,} others. This page is one file and asks nothing of the "
        "network.",
        claims=audit.claims,
        claim=audit.claim,
        reasons=audit.reasons,
        warned=audit.warned,
        parts=tuple(part for part in _parts(audit) if part is not None),
    )


def _parts(audit: Audit) -> tuple[Part | None, ...]:
    pictures = audit.pictures
    return (
        Part(
            "What was learned",
            "Measured on rows that were held out, with refits that have not seen them: the least of these counts. The "
            "tick is what chance scores.",
            rulers=tuple(map(score_ruler, audit.scores)),
            points=(f"The fit itself, on rows that it kept back: {audit.held_out}.",) if audit.held_out else (),
        ),
        Part(
            "Do independent fits agree?",
            _on_agreement(audit),
            rulers=tuple(map(_agreement_ruler, audit.agreement)),
            drawings=(_matching(pictures), _angles(pictures)),
        ),
        _block_part(audit.block),
        _leakage_part(audit.leakage),
        _noise_part(audit.band),
        controls_part(audit.controls),
        Part(
            "Assumptions",
            "What the data say of each. That one holds means that no break was seen where a break of the size of the "
            "threshold would have been. Those without a mark are not needed for this claim.",
            header=("assumption", "outcome", "measured", "threshold", "why"),
            table=_verdict_lines(audit),
        ),
        Part(
            "The latents",
            "The codes of the fit. Choose which of them to see, and what colours them.",
            figures=(_latents(pictures), _curves(pictures)),
        ),
        _sheet_part(pictures),
        _strips_part(audit),
        _support_part(pictures),
        _truth_part(audit),
        Part("What was not shown", "An audit cannot show these. A claim rests on them.", points=audit.not_shown),
    )


def _on_agreement(audit: Audit) -> str:
    starts = ", and all but the first start at another map of the data" if audit.pictures.starts_elsewhere else ""
    null = any(found.shuffled is not None for found in audit.agreement)
    return (
        "Two fits of what is identified must agree up to what the theorem leaves open, and are compared up to that and "
        f"no more. Each refit has another seed{starts}. Circles are pairs of fits, the dot is the worst"
        + ("; the dashed tick is a fit to shuffled data." if null else ".")
    )


def score_ruler(score: Score) -> Ruler:
    """Draw a score beside chance."""
    p = "" if score.p_value is None else f", p = {score.p_value:.2g}"
    floor = "" if score.floor is None else f", floor {shown(score.floor, 3)}"
    status = "" if score.good else "behind"
    note = f"chance {shown(score.chance, 3)}{floor}{p}"
    return Ruler(score.name, score.value, score.chance, note, score.unit, status, shuffled=score.floor)


def _agreement_ruler(found: Agreement) -> Ruler:
    null = "" if found.shuffled is None else f", shuffled {shown(found.shuffled, 3)}"
    note = f"{found.metric}; chance {shown(found.chance, 3)}{null}"
    status = "" if found.worst >= threshold(found) else "behind"
    return Ruler(
        found.between,
        found.worst,
        found.chance,
        note,
        status=status,
        others=found.values,
        shuffled=found.shuffled,
    )


def _block_part(block: SharedBlock | None) -> Part | None:
    """Say which part of the codes is spoken of, where partners do not share all of it."""
    if block is None:
        return None
    text = f"{block}; {block.rest}."
    return Part("What partners share", text[0].upper() + text[1:])


def _noise_part(band: Band | None) -> Part | None:
    """Draw the band of the score that the true latents would get; the value is what noise lets through at most."""
    if band is None:
        return None
    text = (
        f"{band}. Fresh noise of that size was added to held-out rows: how far codes move says how much of them is "
        "noise, and so the most that they can tell of the latents, which is written here. How far below it the score "
        "may lie follows from how well independent fits agree."
    )
    note = f"from {shown(band.low, 3)} to {shown(band.high, 3)}"
    ruler = Ruler(band.score, band.ceiling, 0.0, note, interval=(band.low, band.high))
    return Part("What noise leaves", text[0].upper() + text[1:], rulers=(ruler,))


def _leakage_part(leakage: Leakage | None) -> Part | None:
    if leakage is None:
        return None
    rulers = tuple(
        Ruler(
            name,
            probe.score,
            leakage.chance,
            f"{leakage.measure}; 95 % from {shown(probe.interval[0], 3)} to {shown(probe.interval[1], 3)}; "
            f"{probe.bits:.3f} bits",
            interval=probe.interval,
            status="behind" if probe.interval[0] > leakage.chance else "",
        )
        for name, probe in leakage.by_probe.items()
    )
    return Part(
        "What the codes still tell of the nuisance",
        f"Probes of {len(rulers)} families, trained from scratch on held-out codes and scored on others. The tick is "
        f"chance; the worst probe counts. {leakage_sentence(leakage)}",
        rulers=rulers,
        points=leakage.notes,
    )


def controls_part(controls: Sequence[Control]) -> Part:
    """Return the table of controls."""
    return Part(
        "Controls",
        "Trials whose outcome is known beforehand. If one fails, nothing else on this page can be trusted.",
        header=("control", "expected", "found", "outcome"),
        table=tuple(map(_control_line, controls)),
    )


def _control_line(control: Control) -> Line:
    status = "holds" if control.passed else "fails"
    return Line(control.name, (control.expected, control.found, "passed" if control.passed else "failed"), status)


def _verdict_lines(audit: Audit) -> tuple[Line, ...]:
    asked = () if audit.theorem is None else needed(audit.theorem, audit.verdicts, audit.waived)
    ordered = sorted(audit.verdicts, key=lambda v: (v not in asked, ("fails", "undecided", "holds").index(v.outcome)))
    return tuple(_verdict_line(verdict, verdict in asked) for verdict in ordered)


def _verdict_line(verdict: Verdict, asked: bool) -> Line:
    numbers = (_number(verdict.statistic), _number(verdict.threshold))
    return Line(verdict.name, (verdict.outcome, *numbers, verdict.why), verdict.outcome if asked else "beside")


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}").replace("-", "−")


def _latents(pictures: Pictures) -> Latents:
    n, d = pictures.codes.shape
    order = np.argsort(-pictures.codes.std(0), kind="stable")[:MOST_SHOWN] if d > MOST_SHOWN else np.arange(d)
    codes = pictures.codes[:, order]
    centred = codes - (codes.max(0) + codes.min(0)) / 2
    points = centred / max(float(np.abs(centred).max()), 1e-12)
    sample = "" if n == pictures.n_samples else f", a sample of {pictures.n_samples:,}"
    left_out = "" if d <= MOST_SHOWN else f" Of {d} latents the {MOST_SHOWN} that vary most can be chosen."
    return Latents(
        caption=f"{n:,} held-out rows{sample}, at one scale for all latents. Drag it, or use the arrow keys."
        + left_out,
        description=f"A cloud of {n:,} coloured points: the codes of held-out rows.",
        names=tuple(f"ẑ{_subscript(j)}" for j in order.tolist()),
        points=points,
        colourings=tuple(Colouring(name, values) for name, values in pictures.colourings.items()),
    )


def _curves(pictures: Pictures) -> Curves:
    curves = tuple(Curve(name, values) for name, values in pictures.curves.items())
    guess = "" if pictures.guessing is None else " The dotted line is a guess."
    penalty = "" if pictures.support is None else " Where it rises the penalty sets in."
    ends = "; ".join(f"{curve.name} ends at {curve.values[-25:].mean():.2f}" for curve in curves)
    return Curves(
        caption=f"The loss while training.{guess}{penalty}",
        description=f"Loss over {max(len(curve.values) for curve in curves):,} steps: {ends}.",
        curves=curves,
        guessing=pictures.guessing,
    )


def _sheet_part(pictures: Pictures) -> Part | None:
    """Show, of rows that are pictures, some of them, what changes along each latent, and what is swapped with it."""
    if pictures.sheets is None:
        return None
    captions = (
        "Some of the pictures that were held out.",
        "Each row goes along one latent, from low to high, and shows the held-out pictures whose other latents are "
        "nearest to the middle. Where one thing changes in a row, the latent stands for it.",
        "Each row begins with one picture and ends with another. Between them one latent after the other is taken from "
        "the last, and all the others from the first: the nearest picture is shown.",
    )
    drawings = zip(pictures.sheets, captions, strict=True)
    along = "Each slider takes one latent from low to high, while the others stay in the middle."
    moved = () if pictures.sliders is None else (sliders(pictures.sliders, along),)
    return Part(
        "The latents, in pictures",
        "What changes as a latent does.",
        drawings=(*moved, *(sheet(picture, caption) for picture, caption in drawings)),
    )


def _strips_part(audit: Audit) -> Part | None:
    if not audit.strips:
        return None
    drawings = tuple(sheet(strip.picture, strip.caption) for strip in audit.strips)
    return Part("Predictions, in pictures", "Held-out samples, and what is predicted for them.", drawings=drawings)


def _truth_part(audit: Audit) -> Part | None:
    """Show how well the truth was recovered, where it was supplied, and which latent goes with what of it."""
    if not audit.recovery:
        return None
    by_truth = audit.pictures.by_truth
    caption = (
        "Absolute rank correlation of each column of the truth (rows) with each latent (columns). One full square in "
        "a row, and nothing else in it, is a factor that has a latent of its own."
    )
    return Part(
        "Against the truth",
        "The latents were supplied, so that recovery can be measured. Nothing above has seen them.",
        rulers=tuple(map(score_ruler, audit.recovery)),
        drawings=() if by_truth is None else (squares(by_truth, "Truth by latents", caption),),
    )


def _matching(pictures: Pictures) -> Drawing:
    d = len(pictures.angles)
    some = f" The first {MOST_SHOWN} of {d} latents are drawn." if d > MOST_SHOWN else ""
    caption = (
        "Absolute correlation of each latent of this fit (rows) with those of a refit (columns, in the order that "
        f"matches best).{some} One full square in each row means that even the axes agree."
    )
    return squares(pictures.matching, "Matching of latents", caption)


def _angles(pictures: Pictures) -> Drawing:
    angles = pictures.angles
    caption = (
        "Angles between the spaces that the codes of this fit and of a refit span: 0° where both hold the same, 90° "
        f"where one has what the other lacks. The largest is {angles.max():.1f}°, the median {np.median(angles):.1f}°."
    )
    return protractor(angles, caption)


def _support_part(pictures: Pictures) -> Part | None:
    from markupsafe import Markup

    from pindown.theory.drawing import MAX_LATENTS, MAX_OBSERVED, draw_support

    if pictures.support is None:
        return None
    m, d = pictures.support.shape
    title, text = "Which latent reaches what", "The support of the decoder's Jacobian, and what may be claimed of it."
    if m > MAX_OBSERVED or d > MAX_LATENTS:
        reached = pictures.support.sum(0)
        spread = f"a latent reaches {reached.min()} to {reached.max()} of {m} observed variables"
        return Part(title, f"{text} {m} × {d} is too large for a picture: {spread}.")
    return Part(
        title, text, drawings=(Drawing(Markup(draw_support(pictures.support)), "Latents on the left, columns of X."),)
    )


def _subscript(j: int) -> str:
    return "".join(chr(ord("₀") + int(digit)) for digit in str(j))


Matrix = NDArray[np.float64]

DRAWN, MOST_COLUMNS = 2_000, 64
"""Points in a picture of the latents, and columns of a table that can colour them."""

THUMBNAILS = 24
"""Pictures that are shown as they are."""

MOST_CODES = 256
"""Codes of which there are pictures, those that vary most: all, but of a wide dictionary."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """What the page draws beside the numbers."""

    codes: Matrix  # (rows, d) of held-out rows
    colourings: Mapping[str, NDArray[Any]]  # name → (rows,)
    curves: Mapping[str, Matrix]  # name → loss of each step
    guessing: float | None  # the loss of a guess
    matching: Matrix  # |correlation| of latents with those of a refit
    angles: Matrix  # degrees between the spans of both
    support: NDArray[np.int64] | None
    n_samples: int  # of which those drawn are a sample
    starts_elsewhere: bool = False  # whether refits start at another map of the data
    sheets: tuple[NDArray[np.uint8], ...] | None = None  # of rows that are pictures: some, along codes, and swapped
    sliders: NDArray[np.uint8] | None = None  # of rows that are pictures: along codes, (d, steps, height, width, 3)
    by_truth: Matrix | None = None  # |rank correlation| of the truth, if it was supplied, with the codes


def pictures_of(est: Any, refits: Refits, codes: Matrix, other: Matrix, *, grouped: bool) -> Pictures:
    """Gather what is drawn of a fit, whose codes of the held-out rows are given beside those of a refit."""
    rows, drawn = refits.held_out, est.spec.figure(est)
    codes, other = _loudest(codes), _loudest(other)
    curves = {"this fit": np.asarray(drawn.curve, dtype=np.float64)}
    if refits.null is not None:
        null = est.spec.figure(refits.null)
        curves["shuffled" if rows.side is not None else "permuted X"] = np.asarray(null.curve, dtype=np.float64)
    return Pictures(
        codes=codes[:DRAWN],
        colourings=_colourings(est, rows, grouped=grouped),
        curves=curves,
        guessing=drawn.chance,
        matching=matching(codes, other),
        angles=principal_angles(codes, other),
        support=drawn.support,
        n_samples=len(rows),
        sheets=_sheets(codes, rows.X) if rows.X.ndim == 4 else None,
        sliders=_slid(est, codes, rows.X) if rows.X.ndim == 4 else None,
        by_truth=None if rows.data.truth is None else _by_truth(rows.data.truth, codes),
        starts_elsewhere=varies_initialisation(est) and can_vary_initialisation(est.encoder_.preprocess.shape_out),
    )


def _sheets(codes: Matrix, x: NDArray[Any]) -> tuple[NDArray[np.uint8], ...]:
    return contact_sheet(x[:THUMBNAILS]), nearest_traversals(codes, x), swaps(codes, x)


def _slid(est: Any, codes: Matrix, x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pictures along codes: decoded where codes alone can be, else the nearest of those held out."""
    alone = hasattr(est, "inverse_transform") and est.spec.roles.y != "nuisance"  # which the decoder would be told
    decodes = alone and codes.shape[1] == est.n_components_
    return slid(codes, x, est.inverse_transform if decodes else None)


def _by_truth(truth: NDArray[Any], codes: Matrix) -> Matrix | None:
    """Return how codes go with columns of the truth; None if these are no numbers."""
    columns = truth.reshape(len(truth), -1)
    return matching(rankdata(columns, axis=0), rankdata(codes, axis=0)) if columns.dtype.kind in "buif" else None


def _loudest(codes: Matrix) -> Matrix:
    return codes if codes.shape[1] <= MOST_CODES else codes[:, np.sort(np.argsort(-codes.std(0))[:MOST_CODES])]


def _colourings(est: Any, rows: Samples, *, grouped: bool) -> dict[str, NDArray[Any]]:
    """Return the columns that points may be coloured by: side information, then the truth, then X."""
    partners = rows.role == "pairs" and rows.side is not None and rows.side.ndim > 1
    names = getattr(est, "feature_names_in_", None)
    tables = {
        "y": None if partners else rows.side,
        "given": rows.data.given,
        "group": rows.units if grouped else None,
        "truth": rows.data.truth,
        "X": rows.X.reshape(len(rows), -1),
    }
    found: dict[str, NDArray[Any]] = {}
    for name, table in tables.items():
        if table is not None and table.ndim == 1:
            found[name] = table[:DRAWN]
        elif table is not None:
            for j in range(min(MOST_COLUMNS, table.shape[1])):
                called = names[j] if name == "X" and names is not None else f"column {j}"
                found[f"{name}, {called}"] = table[:DRAWN, j]
    return found
