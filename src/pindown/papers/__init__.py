"""The papers' tables as values, one file per paper, with the paper's numbers beside what we measure.

>>> [experiment.name for experiment in EXPERIMENTS]
['zimmermann2021/table1']
>>> print(zimmermann2021.TABLE_1.rows[0].unsupervised)
99.42±0.05
"""

from pindown.papers import zimmermann2021
from pindown.papers._experiment import (
    Experiment,
    Profile,
    Published,
    Record,
    Row,
    pending,
    reproduce,
)
from pindown.papers._results import Results
from pindown.papers._table import Line, Table, compare

EXPERIMENTS: tuple[Experiment, ...] = (*zimmermann2021.EXPERIMENTS,)

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Line",
    "Profile",
    "Published",
    "Record",
    "Results",
    "Row",
    "Table",
    "compare",
    "pending",
    "reproduce",
    "zimmermann2021",
]
