"""The page of an audit: its answers, numbers as rulers and table rows, and figures. The texts are in the template."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.decomposition import PCA

from pindown._names import listed
from pindown.auditing.agreement import MOST_SHOWN, matching
from pindown.auditing.checks.arrays import signal_coordinates
from pindown.auditing.page import (
    Drawing,
    along_each,
    colouring,
    curves,
    fill,
    latent_cloud,
    matrix,
    picture,
    rounded,
    shown,
    sliders,
)
from pindown.auditing.refits import Refits, Samples, can_vary_initialisation, varies_initialisation
from pindown.metrics.arrays import Matrix
from pindown.simulate.images import contact_sheet, nearest_traversals, swaps

if TYPE_CHECKING:
    from pindown.auditing.evidence import AuditScore
    from pindown.auditing.result import Audit, Names


def render(audit: Audit) -> str:
    """Return an audit as a self-contained page, in the names of the user's file where they are given."""
    pictures, names = audit.pictures, audit.names
    assert pictures is not None
    roles = [f"{role}: {listed(own, most=4)}" for role, own in names.roles.items() if own]
    needs = audit.needed
    ordered = sorted(audit.verdicts, key=lambda v: (v not in needs, ("fails", "undecided", "holds").index(v.outcome)))
    colourings = [colouring(names.of(name), values) for name, values in pictures.colourings.items()]
    return fill(
        "audit.html.j2",
        audit=audit,
        title=names.heading(audit.headline),
        kicker=" · ".join(["pindown audit", audit.estimator, f"{audit.n_samples:,} samples", *roles]),
        maps=_maps(pictures, colourings),
        scores=[_score_ruler(score) for score in audit.scores],
        agreement=_agreement_rulers(audit),
        recovery=[_score_ruler(score) for score in audit.recovery],
        probes=_probe_rulers(audit),
        leakage="" if audit.leakage is None else audit.leakage.verdict,
        band=_band_rulers(audit),
        controls=[(c.name, c.expected, c.found, "passed" if c.passed else "failed") for c in audit.controls],
        control_statuses=["holds" if c.passed else "fails" for c in audit.controls],
        verdicts=[(v.name, v.outcome, _number(v.statistic), _number(v.threshold), v.why) for v in ordered],
        statuses=[v.outcome if v in needs else "beside" for v in ordered],
        matching=_matching(pictures),
        latents=_latents(pictures, colourings),
        curves=_curves(pictures),
        images=[*_images(pictures), *audit.evidence.strips],
        support=None if pictures.support is None else _support(pictures.support),
        by_truth=None if pictures.by_truth is None else _by_truth_figure(pictures.by_truth, names),
    )


# ---- rulers and rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ruler:
    """A number on a scale from 0 to 1, next to chance; a number with a unit has no scale."""

    name: str
    value: float
    chance: float
    note: str
    unit: str = ""
    good: bool = True
    interval: tuple[float, float] | None = None
    others: tuple[float, ...] = ()
    shuffled: float | None = None

    @property
    def text(self) -> str:
        """The number as it is printed."""
        return "below −1" if self.value < -1 and not self.unit else shown(self.value, 3)


def _score_ruler(score: AuditScore) -> Ruler:
    p = "" if score.p_value is None else f", p = {score.p_value:.2g}"
    floor = "" if score.floor is None else f", floor {shown(score.floor, 3)}"
    whose = "" if score.yours is None else f"of {score.of}; your fit {shown(score.yours, 3)}; "
    note, others = f"{whose}chance {shown(score.chance, 3)}{floor}{p}", () if score.yours is None else (score.yours,)
    return Ruler(score.name, score.value, score.chance, note, score.unit, score.good, None, others, score.floor)


def _agreement_rulers(audit: Audit) -> list[Ruler]:
    rulers = []
    for found in audit.agreement:
        null = "" if found.shuffled is None else f", shuffled {shown(found.shuffled, 3)}"
        note = f"{found.metric}; {found.threshold} is needed; chance {shown(found.chance, 3)}{null}"
        others, shuffled = found.values, found.shuffled
        rulers.append(Ruler(found.between, found.worst, found.chance, note, "", found.enough, None, others, shuffled))
    return rulers


def _probe_rulers(audit: Audit) -> list[Ruler]:
    rulers: list[Ruler] = []
    if (found := audit.leakage) is None:
        return rulers
    for name, probe in found.by_probe.items():
        low, high = probe.interval
        note = f"{found.measure}; 95 % from {shown(low, 3)} to {shown(high, 3)}; {probe.bits:.3f} bits"
        rulers.append(Ruler(name, probe.score, found.chance, note, "", low <= found.chance, probe.interval))
    return rulers


def _band_rulers(audit: Audit) -> list[Ruler]:
    if (band := audit.band) is None:
        return []
    note = f"from {shown(band.low, 3)} to {shown(band.high, 3)}"
    return [Ruler(band.score, band.ceiling, 0.0, note, interval=(band.low, band.high))]


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}").replace("-", "−")


# ---- figures --------------------------------------------------------------------------------------------------------


def _maps(pictures: Pictures, colourings: list[dict[str, Any]]) -> Drawing:
    """Return the data and the latents in two dimensions each."""
    how = "UMAP keeps neighbours near each other" if pictures.by_umap else "The two directions in which they vary most"
    caption = (
        f"The same {len(pictures.latents):,} held-out samples before (the data) and after (the latents of your fit). "
        f"{how}. Choose the colours."
    )
    panels = (("Before", "the data"), ("After", "the latents"))
    data = {"points": [rounded(each) for each in pictures.maps], "colourings": colourings}
    return Drawing("maps", caption, "Two clouds of the same coloured points: the data and the latents.", data, panels)


def _latents(pictures: Pictures, colourings: list[dict[str, Any]]) -> Drawing:
    n, d = pictures.latents.shape
    order = np.argsort(-pictures.latents.std(0), kind="stable")[:MOST_SHOWN] if d > MOST_SHOWN else np.arange(d)
    z = pictures.latents[:, order]
    centred = z - (z.max(0) + z.min(0)) / 2
    sample = "" if n == pictures.n_samples else f", a sample of {pictures.n_samples:,}"
    left_out = "" if d <= MOST_SHOWN else f" Of {d} latents, the {MOST_SHOWN} with the largest variance can be chosen."
    return latent_cloud(
        f"{n:,} held-out samples{sample}, at one scale for all latents. Drag to rotate.{left_out}",
        f"A cloud of {n:,} coloured points: the latents of held-out samples.",
        [_latent(j) for j in order.tolist()],
        centred / max(float(np.abs(centred).max()), 1e-12),
        colourings,
    )


def _latent(j: int) -> str:
    return "ẑ" + "".join(chr(ord("₀") + int(digit)) for digit in str(j))


def _curves(pictures: Pictures) -> Drawing:
    guess = "" if pictures.guessing is None else " The dotted line is the loss of guessing."
    penalty = "" if pictures.support is None else " Where it rises, the penalty sets in."
    ends = "; ".join(f"{name} ends at {values[-25:].mean():.2f}" for name, values in pictures.curves.items())
    steps = max(map(len, pictures.curves.values()))
    return curves(
        f"The training loss.{guess}{penalty}", f"Loss over {steps:,} steps: {ends}.", pictures.curves, pictures.guessing
    )


def _matching(pictures: Pictures) -> Drawing:
    d = pictures.latents.shape[1]
    some = f" The first {MOST_SHOWN} of {d} latents are drawn." if d > MOST_SHOWN else ""
    caption = (
        "Absolute correlation of each latent of this fit (rows) with those of a refit (columns, in the order that "
        f"matches best).{some} One full square in each row means that even the axes agree."
    )
    return matrix(pictures.matching, "Matching of latents", caption)


def _by_truth_figure(by_truth: Matrix, names: Names) -> Drawing:
    caption = (
        "Absolute rank correlation of each true latent (rows) with each recovered one (columns, in the order that "
        "matches best). A factor has a latent of its own if its row has one full square and nothing else."
    )
    rows = [names.of(f"truth, column {j}") for j in range(len(by_truth))]
    return matrix(by_truth, "True by recovered latents", caption, rows=rows)


def _images(pictures: Pictures) -> list[Drawing]:
    """Return held-out images, images along each latent, and images with exchanged latents."""
    if pictures.sheets is None:
        return []
    captions = (
        "Some of the held-out images.",
        "Each row follows one latent from low to high, by the held-out images whose other latents are nearest to the "
        "median. If one thing changes along a row, the latent represents it.",
        "Each row begins with one image and ends with another. Between them, one latent after the other is taken from "
        "the last image; the nearest held-out image is shown.",
    )
    along = "Each slider moves one latent from low to high; the others stay at their median."
    moved = [] if pictures.sliders is None else [sliders(pictures.sliders, along)]
    return [*moved, *(picture(sheet, caption) for sheet, caption in zip(pictures.sheets, captions, strict=True))]


def _support(support: NDArray[np.int64]) -> Drawing | str:
    """Return the graph of a support, or a sentence about one that is too large to draw."""
    from markupsafe import Markup

    from pindown.theory.drawing import MAX_LATENTS, MAX_OBSERVED, draw_support

    m, d = support.shape
    if m > MAX_OBSERVED or d > MAX_LATENTS:
        reached = support.sum(0)
        spread = f"a latent affects {reached.min()} to {reached.max()} of {m} observed variables"
        return f"{m} × {d} is too large to draw: {spread}."
    caption = "Latents on the left, observed variables on the right."
    return Drawing("svg", caption, caption, {"svg": Markup(draw_support(support))}, wide=True)


# ---- what an audit gathers for its figures --------------------------------------------------------------------------

DRAWN, MOST_COLUMNS, MOST_LATENTS, THUMBNAILS = 2_000, 64, 256, 24
"""Points in a figure of the latents, columns of a table that can colour them, latents with figures (those of largest
variance), and images that are shown as they are."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """The arrays that the page draws."""

    latents: Matrix  # (n, d) latents of held-out samples
    colourings: Mapping[str, NDArray[Any]]  # name → (n,)
    curves: Mapping[str, Matrix]  # name → loss of each step
    guessing: float | None  # the loss of a guess
    matching: Matrix  # |correlation| of latents with those of a refit
    support: NDArray[np.int64] | None
    n_samples: int  # held out, of which those drawn are a sample
    maps: tuple[Matrix, Matrix]  # (n, 2) of the data and of the latents
    by_umap: bool = False
    starts_elsewhere: bool = False  # whether refits have other initialisations of the map
    sheets: tuple[NDArray[np.uint8], ...] | None = None  # of images: some, along latents, with exchanged latents
    sliders: NDArray[np.uint8] | None = None  # images along latents, (d, steps, height, width, 3)
    by_truth: Matrix | None = None  # |rank correlation| of true with recovered latents


def pictures_of(est: Any, refits: Refits, latents: Matrix, other: Matrix, *, grouped: bool) -> Pictures:
    """Gather the figures of a fit, given the latents of held-out samples by the fit and by a refit."""
    rows, drawn = refits.held_out, est.spec.figure(est)
    latents, other = _of_largest_variance(latents), _of_largest_variance(other)
    losses = {"this fit": np.asarray(drawn.curve, dtype=np.float64)}
    if refits.null is not None:
        null = est.spec.figure(refits.null)
        losses["shuffled" if rows.side is not None else "permuted X"] = np.asarray(null.curve, dtype=np.float64)
    are_images, x = rows.X.ndim == 4, rows.X
    return Pictures(
        latents=latents[:DRAWN],
        colourings=_colourings(est, rows, grouped=grouped),
        curves=losses,
        guessing=drawn.chance,
        matching=matching(latents, other),
        support=drawn.support,
        n_samples=len(rows),
        maps=(_in_the_plane(signal_coordinates(rows.X)[0][:DRAWN]), _in_the_plane(latents[:DRAWN])),
        by_umap=find_spec("umap") is not None,
        sheets=(contact_sheet(x[:THUMBNAILS]), nearest_traversals(latents, x), swaps(latents, x))
        if are_images
        else None,
        sliders=_along_each(est, latents, x) if are_images else None,
        by_truth=None if rows.data.truth is None else _by_truth(rows.data.truth, latents),
        starts_elsewhere=varies_initialisation(est) and can_vary_initialisation(est.encoder_.preprocess.shape_out),
    )


def _in_the_plane(rows: Matrix) -> Matrix:
    """Return a picture of samples in two dimensions from −1 to 1: by UMAP where it is installed, or by PCA."""
    if find_spec("umap") is not None and rows.shape[1] > 2:
        from umap import UMAP  # type: ignore[import-not-found]

        flat = np.asarray(UMAP(random_state=0).fit_transform(rows), dtype=np.float64)
    else:
        k = min(2, *rows.shape)
        flat = np.pad(PCA(k, svd_solver="full").fit_transform(rows), ((0, 0), (0, 2 - k)))
    centred = flat - (flat.max(0) + flat.min(0)) / 2
    return centred / max(float(np.abs(centred).max()), 1e-12)


def _along_each(est: Any, latents: Matrix, x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return images along latents: decoded if the decoder needs nothing else, or else the nearest held-out ones."""
    decodes = hasattr(est, "inverse_transform") and est.spec.roles.y != "nuisance"
    return along_each(latents, x, est.inverse_transform if decodes and latents.shape[1] == est.n_components_ else None)


def _by_truth(truth: NDArray[Any], latents: Matrix) -> Matrix | None:
    """Return the rank correlation of true with recovered latents; None if the true ones are no numbers."""
    columns = truth.reshape(len(truth), -1)
    return matching(rankdata(columns, axis=0), rankdata(latents, axis=0)) if columns.dtype.kind in "buif" else None


def _of_largest_variance(z: Matrix) -> Matrix:
    return z if z.shape[1] <= MOST_LATENTS else z[:, np.sort(np.argsort(-z.std(0))[:MOST_LATENTS])]


def _colourings(est: Any, rows: Samples, *, grouped: bool) -> dict[str, NDArray[Any]]:
    """Return the columns that can colour points: side variables, then the truth, then X."""
    positives = rows.role == "pairs" and rows.side is not None and rows.side.ndim > 1
    names = getattr(est, "feature_names_in_", None)
    tables = {
        "y": None if positives else rows.side,
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
                column = names[j] if name == "X" and names is not None else f"column {j}"
                found[f"{name}, {column}"] = table[:DRAWN, j]
    return found
