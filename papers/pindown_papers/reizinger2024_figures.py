"""Figures 4 and 5 of Reizinger et al. 2024: what fat tails, batches, concentration, classes and dimensions do.

The paper draws these numbers and does not print them. Where a point is a row of its Table 2, that number stands next to
ours; the values along the axes are our choice.
"""

from __future__ import annotations

from functools import partial
from math import nan

from pindown_papers._clusters import FREE, UNIT, ClusterSetting, Row, published
from pindown_papers._experiment import Axes, Experiment
from pindown_papers._laws import projected, truncated_laplace, vmf
from pindown_papers.reizinger2024 import FULL, NOTES, QUICK

_POINTS = "The figure's own numbers are not printed: the paper's points are those of its Table 2, R²_o."

# (scale α, shape β) → R² of z and of w in Table 2, whose Laplace law is the one with α = β = 1.
_LAPLACE = {(1.0, 1.0): (85.2, 99.7)}

FIGURE_4 = Experiment(
    name="reizinger2024/figure4",
    title="Laplace (β = 1) to normal (β = 2) noise, in %",
    source="Reizinger et al. 2024, Figure 4",
    headings=("simulation", "scale α", "shape β", "assumptions hold"),
    scores=("unit z", "unit w"),
    further=("spread", "linear", "unit excess"),
    rows=tuple(
        Row(
            number,
            ("generalised normal, projected", f"α = {scale:g}", f"β = {shape:g}"),
            ClusterSetting(conditional=partial(projected, scale, shape)),
            assumptions_hold=False,
            models=(UNIT,),
            published=published(*_LAPLACE.get((scale, shape), (nan, nan))),
        )
        for number, (scale, shape) in enumerate(
            ((scale, shape) for scale in (0.5, 1.0, 2.0) for shape in (1.0, 1.25, 1.5, 1.75, 2.0)), start=1
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(*NOTES, _POINTS, "spread: mean size of the noise in one dimension, αΓ(2/β)/Γ(1/β), times 100."),
    axes=Axes(x="shape β", line="scale α", scores=("unit z", "unit w", "spread")),
)

_BY_CONCENTRATION = {(5.0, 1_024): 98.6, (10.0, 1_024): 98.6, (50.0, 1_024): 45.0}

FIGURE_5A = Experiment(
    name="reizinger2024/figure5a",
    title="batch size against concentration, in %",
    source="Reizinger et al. 2024, Figure 5, left",
    headings=("simulation", "concentration κ", "batch size", "assumptions hold"),
    scores=("unit z",),
    further=("unit w", "linear", "unit excess"),
    rows=tuple(
        Row(
            number,
            ("vMF", f"κ = {kappa:g}", f"batch = {batch:,}"),
            ClusterSetting(conditional=partial(vmf, kappa)),
            assumptions_hold=True,
            models=(UNIT,),
            published=published(_BY_CONCENTRATION.get((kappa, batch), nan)),
            batch_size=batch,
        )
        for number, (kappa, batch) in enumerate(
            ((kappa, batch) for kappa in (5.0, 10.0, 50.0) for batch in (64, 256, 1_024, 4_096)), start=1
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(*NOTES, _POINTS, "All batches are given the same number of steps; the profile's batch size is not used."),
    axes=Axes(x="batch size", line="concentration κ", scores=("unit z",)),
)

_BY_CLASSES = {(5, 10): 88.6, (5, 100): 98.6, (5, 1_000): 99.3, (10, 100): 92.5, (20, 100): 70.8}

FIGURE_5B = Experiment(
    name="reizinger2024/figure5b",
    title="classes against dimensions, in %",
    source="Reizinger et al. 2024, Figure 5, middle",
    headings=("simulation", "dimensions d", "classes", "assumptions hold"),
    scores=("unit z",),
    further=("unit w", "linear", "unit excess", "warned"),
    rows=tuple(
        Row(
            number,
            ("vMF κ=10", f"d = {d}", f"classes = {n_classes:,}"),
            ClusterSetting(d=d, n_classes=n_classes),
            assumptions_hold=n_classes > d,
            models=(UNIT,),
            published=published(_BY_CLASSES.get((d, n_classes), nan)),
        )
        for number, (d, n_classes) in enumerate(
            ((d, n_classes) for d in (5, 10, 20) for n_classes in (10, 100, 1_000)), start=1
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(
        *NOTES,
        _POINTS,
        "warned: whether the fit said that its classes are too few, without knowing the simulation.",
    ),
    axes=Axes(x="classes", line="dimensions d", scores=("unit z",)),
)

FIGURE_5C = Experiment(
    name="reizinger2024/figure5c",
    title="Laplace noise truncated to [−T, T], in %",
    source="Reizinger et al. 2024, Figure 5, right",
    headings=("simulation", "scale α", "truncation T", "assumptions hold"),
    scores=("free z",),
    further=("free w", "linear", "free excess"),
    rows=tuple(
        Row(
            number,
            ("truncated Laplace, off the sphere", f"α = {scale:g}", f"T = {edge:g}"),
            ClusterSetting(conditional=partial(truncated_laplace, scale, edge)),
            assumptions_hold=False,
            models=(FREE,),
            published=published(nan),
        )
        for number, (scale, edge) in enumerate(
            ((scale, edge) for scale in (0.5, 1.0, 2.0) for edge in (1.0, 2.0, 4.0, 8.0)), start=1
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(
        *NOTES,
        "The figure's own numbers are not printed. As in the paper's public code these latents fill a box and are not"
        " projected onto the sphere, so only free latents can follow them.",
    ),
    axes=Axes(x="truncation T", line="scale α", scores=("free z",)),
)

EXPERIMENTS = (FIGURE_4, FIGURE_5A, FIGURE_5B, FIGURE_5C)
