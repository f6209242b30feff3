"""The papers' tables as values, one file per paper, with the paper's numbers next to what we measure.

>>> [experiment.name for experiment in EXPERIMENTS][:3]
['zimmermann2021/table1', 'zimmermann2021/identification', 'zimmermann2021/sprites']
>>> print(zimmermann2021.TABLE_1.rows[0].unsupervised)
99.42±0.05
"""

from typing import Any

from pindown_papers import (
    antidiversity,
    antidiversity_bodies,
    antidiversity_robots,
    antidiversity_worlds,
    reizinger2024,
    reizinger2024_figures,
    reizinger2024_frozen,
    reizinger2024_images,
    zheng2025,
    zheng2025_activations,
    zheng2025_images,
    zheng2025_penalties,
    zimmermann2021,
    zimmermann2021_identification,
    zimmermann2021_images,
)
from pindown_papers._experiment import (
    Axes,
    Experiment,
    Profile,
    Published,
    Record,
    Row,
    pending,
    reproduce,
    shared,
)
from pindown_papers._figure import draw
from pindown_papers._results import Results
from pindown_papers._table import Line, Table, compare

EXPERIMENTS: tuple[Experiment[Any], ...] = (
    *zimmermann2021.EXPERIMENTS,
    *zimmermann2021_identification.EXPERIMENTS,
    *zimmermann2021_images.EXPERIMENTS,
    *reizinger2024.EXPERIMENTS,
    *reizinger2024_figures.EXPERIMENTS,
    *reizinger2024_images.EXPERIMENTS,
    *reizinger2024_frozen.EXPERIMENTS,
    *antidiversity.EXPERIMENTS,
    *antidiversity_bodies.EXPERIMENTS,
    *antidiversity_robots.EXPERIMENTS,
    *antidiversity_worlds.EXPERIMENTS,
    *zheng2025.EXPERIMENTS,
    *zheng2025_activations.EXPERIMENTS,
    *zheng2025_images.EXPERIMENTS,
    *zheng2025_penalties.EXPERIMENTS,
)

__all__ = [
    "EXPERIMENTS",
    "Axes",
    "Experiment",
    "Line",
    "Profile",
    "Published",
    "Record",
    "Results",
    "Row",
    "Table",
    "antidiversity",
    "antidiversity_bodies",
    "antidiversity_robots",
    "antidiversity_worlds",
    "compare",
    "draw",
    "pending",
    "reizinger2024",
    "reizinger2024_figures",
    "reizinger2024_frozen",
    "reizinger2024_images",
    "reproduce",
    "shared",
    "zheng2025",
    "zheng2025_activations",
    "zheng2025_images",
    "zheng2025_penalties",
    "zimmermann2021",
    "zimmermann2021_identification",
    "zimmermann2021_images",
]
