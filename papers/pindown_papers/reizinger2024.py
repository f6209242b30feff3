"""Reizinger et al., Cross-Entropy Is All You Need To Invert the Data Generating Process, 2024, arXiv:2410.21869.

Latents lie in clusters around class vectors, and an encoder is trained to tell labels apart: instances, of which each
class has many (`TABLE_2`), or classes (`TABLE_3`). `TABLE_5` varies the law of the class vectors, down to such that
break the theorems' assumption. `pindown_papers.reizinger2024_figures` has Figures 4 and 5.

Torch is imported where a simulation is built, not where the table is read: the command line lists experiments at once.
"""

from __future__ import annotations

from functools import partial
from math import nan

from pindown_papers._clusters import (
    FREE,
    UNIT,
    ClusterSetting,
    Recipe,
    Row,
    around_axis,
    in_plane,
    published,
)
from pindown_papers._experiment import Experiment
from pindown_papers._laws import projected_laplace, projected_normal, vmf
from pindown_papers._optimizers import muon


def _row(number: int, simulation: ClusterSetting, given: str, *percent: float, assumptions_hold: bool = True) -> Row:
    """Return a row of a table, whose fourth cell says what its numbers do not."""
    labels = "classes" if simulation.n_instances is None else f"N = {simulation.n_instances:,}"
    cells = (labels, f"d = {simulation.d}", f"classes = {simulation.n_classes:,}", given)
    models = (UNIT,) if simulation.n_instances is None else (UNIT, FREE)
    return Row(number, cells, simulation, assumptions_hold, models, published(*percent))


# The tables, packed by hand like the paper's. Scores are in percent, and so is the MAE: the paper prints it as .01.
# fmt: off

_LAPLACE, _NORMAL = partial(projected_laplace, 1.0), partial(projected_normal, 1.0)

TABLE_2_ROWS = (
    _row(1, ClusterSetting(), "vMF κ=10", 98.6, 99.9, 1, 99.0, 99.9),
    _row(2, ClusterSetting(n_instances=100_000), "vMF κ=10", 98.2, 99.5, 0, 99.7, 99.8),
    _row(3, ClusterSetting(d=10), "vMF κ=10", 92.5, 99.6, 1, 93.0, 99.6),
    _row(4, ClusterSetting(d=20), "vMF κ=10", 70.8, 97.1, 3, 81.9, 99.7),
    _row(5, ClusterSetting(n_classes=10), "vMF κ=10", 88.6, 85.7, 2, 90.0, 99.0),
    _row(6, ClusterSetting(n_classes=1_000), "vMF κ=10", 99.3, 99.9, 0, 99.2, 99.9),
    _row(7, ClusterSetting(conditional=partial(vmf, 5.0)), "vMF κ=5", 98.6, 99.9, 1, 99.0, 99.8),
    _row(8, ClusterSetting(conditional=partial(vmf, 50.0)), "vMF κ=50", 45.0, 49.7, 30, 72.5, 75.5),
    _row(9, ClusterSetting(conditional=_LAPLACE), "Laplace b=1", 85.2, 99.7, 1, 85.4, 99.5, assumptions_hold=False),
    _row(10, ClusterSetting(conditional=_NORMAL), "Normal σ²=1", 98.7, 99.8, 1, 98.6, 99.6, assumptions_hold=False),
)

TABLE_3_ROWS = (
    _row(1, ClusterSetting(n_instances=None), "vMF κ=10", 99.8),
    _row(2, ClusterSetting(n_instances=None, d=10), "vMF κ=10", 97.2),
    _row(3, ClusterSetting(n_instances=None, d=20), "vMF κ=10", 82.1),
    _row(4, ClusterSetting(n_instances=None, n_classes=10), "vMF κ=10", 97.5),
    _row(5, ClusterSetting(n_instances=None, n_classes=1_000), "vMF κ=10", 99.8),
    _row(6, ClusterSetting(n_instances=None, n_classes=10_000), "vMF κ=10", 99.8),
    _row(7, ClusterSetting(n_instances=None, conditional=partial(vmf, 5.0)), "vMF κ=5", 99.7),
    _row(8, ClusterSetting(n_instances=None, conditional=partial(vmf, 50.0)), "vMF κ=50", 65.5),
    _row(9, ClusterSetting(n_instances=None, conditional=_LAPLACE), "Laplace b=1", 85.4, assumptions_hold=False),
    _row(10, ClusterSetting(n_instances=None, conditional=_NORMAL), "Normal σ²=1", 99.6, assumptions_hold=False),
)

_UNKNOWN = (nan,) * 5
TABLE_5_ROWS = (
    _row(1, ClusterSetting(), "uniform", *_UNKNOWN),
    _row(2, ClusterSetting(class_vectors=partial(around_axis, 1.0)), "Laplace around an axis", *_UNKNOWN),
    _row(3, ClusterSetting(class_vectors=partial(around_axis, 2.0)), "Normal around an axis", *_UNKNOWN),
    _row(4, ClusterSetting(class_vectors=in_plane), "in a hyperplane", *_UNKNOWN, assumptions_hold=False),
    _row(5, ClusterSetting(n_classes=5), "uniform, but no more than d", *_UNKNOWN, assumptions_hold=False),
)

# fmt: on

# Two cores, some 15 s a fit. The simulations are the paper's, and in five dimensions a few hundred steps suffice to be
# near its numbers or above them; ten and twenty dimensions want the full profile.
QUICK = Recipe(
    name="quick",
    seeds=(2,),
    n_layers=4,
    batch_size=512,
    max_iter=600,
    learning_rate=1e-2,
    weight_decay=0.0,
    optimizer=muon,
    width=128,
    n_blocks=2,
    most_instances=10_000,
    n_eval=8_192,
)

# The paper took batches of 1,024 and at least 50,000 steps.
FULL = Recipe(
    name="full",
    seeds=(0, 1, 2, 3, 4),
    n_layers=4,
    batch_size=8_192,
    max_iter=10_000,
    learning_rate=1e-2,
    weight_decay=0.0,
    optimizer=muon,
    width=256,
    n_blocks=2,
    most_instances=100_000,
    n_eval=8_192,
)

_SCORES = ("unit z", "unit w", "unit MAE", "free z", "free w")
NOTES = (
    "unit: latents and class vectors of length 1, and a scale that is learned; free: neither. The paper's R²_o leaves"
    " the latents free and normalises the class vectors alone, its R²_a is our free.",
    "z, w: R² of a linear map from the learned to the true latents, and from the learned vectors to those of their"
    " classes, fitted on one half of the samples (8,192 fresh ones) or vectors and scored on the other. Ours has an"
    " intercept; the paper's R²_o has none.",
    "linear is the R² of the observations themselves: the higher it is, the easier is the simulation.",
    "excess: mean divergence of the fit's class probabilities from the true posterior, which is its cross-entropy above"
    " the least possible, in hundredths of a nat.",
    "The paper trains a perceptron with batch normalisation at a rate of .001, we a linear path next to residual blocks"
    " with a schedule; its ± is left out, for it is printed in other units than its mean.",
    "The quick profile was chosen on seeds 0 and 1, the full one on seed 11.",
)
_ON_LAPLACE = (
    "Laplace and Normal are laws in R^d, projected onto the sphere. Around Laplace clusters the codes of the best"
    " classifier are not linear in z: trained on the latents themselves, without any mixing, they have an R² between 82"
    " and 89 (a slow test, seeds 0 to 2). So that is where a fit that gets better must end, and the paper's did."
)

TABLE_2 = Experiment(
    name="reizinger2024/table2",
    title="latents from telling instances apart, in %",
    source="Reizinger et al. 2024, Table 2",
    headings=("instances", "d", "classes", "latents given the class", "assumptions hold"),
    scores=_SCORES,
    further=("linear", "unit excess"),
    rows=TABLE_2_ROWS,
    quick=QUICK,
    full=FULL,
    notes=(
        *NOTES,
        "MAE: mean distance, times 100, of the singular values of the map β·code → z from 1/κ, as the paper has it;"
        " from their mean where there is no κ (rows 9 and 10).",
        f"The quick profile has at most {QUICK.most_instances:,} instances (row 2).",
        _ON_LAPLACE,
    ),
)

TABLE_3 = Experiment(
    name="reizinger2024/table3",
    title="latents recovered by classification, R² in %",
    source="Reizinger et al. 2024, Table 3",
    headings=("labels", "d", "classes", "latents given the class", "assumptions hold"),
    scores=("unit z",),
    further=("unit w", "linear", "unit excess"),
    rows=TABLE_3_ROWS,
    quick=QUICK,
    full=FULL,
    notes=(
        *NOTES,
        _ON_LAPLACE,
        "Only unit is fitted here. w is left out where there are too few classes to hold out half of them (row 4).",
    ),
)

TABLE_5 = Experiment(
    name="reizinger2024/table5",
    title="other laws of the class vectors, in %",
    source="Reizinger et al. 2024, Table 5",
    headings=("instances", "d", "classes", "class vectors", "assumptions hold"),
    scores=_SCORES,
    further=("linear", "unit excess", "warned"),
    rows=TABLE_5_ROWS,
    quick=QUICK,
    full=FULL,
    notes=(
        *NOTES,
        "We know Table 5 by what the text says of it, not its numbers. Rows 1 to 3 are the laws that the paper's public"
        " code offers, around the first axis and projected; rows 4 and 5 are ours, and break the assumption that the"
        " class vectors are an affine generator system. The encoder starts as a linear map, so that not all is lost of"
        " what the labels say nothing about.",
        "warned: fraction of the fits that said so, without knowing the simulation.",
    ),
)

EXPERIMENTS = (TABLE_2, TABLE_3, TABLE_5)
