"""What a table of a paper is, and what a run of one of its rows leaves behind.

An `Experiment` is a value: rows with the paper's numbers, and two profiles that say how large to run them. One
run of a row gives a `Record`, which is one line of a results file. Nothing here imports torch before it trains.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import pindown

EVALUATION_SEEDS = 900_000_000
"""Held-out samples of run s are drawn with this plus s: no simulation and no training starts from a seed up there."""


@dataclass(frozen=True)
class Published:
    """A number as the paper prints it: in percent, with its ± where one is known; NaN where the number is not.

    Examples
    --------
    >>> print(Published(99.42, 0.05), Published(77.58), Published(math.nan))
    99.42±0.05 77.58 –
    """

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f}±{self.spread:.2f}"


@dataclass(frozen=True)
class Profile:
    """How large a reproduction is run; the same for every row, for tuning row by row proves nothing.

    A paper adds its own fields in a final class: all that a score depends on besides row and seed.

    Parameters
    ----------
    name
        What to call it.
    seeds
        One run of a row each, unless others are asked for.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Sized(Profile):
    ...     hidden: tuple[int, ...]
    >>> Sized("quick", (0, 1), hidden=(64, 64)).settings
    {'hidden': [64, 64]}
    """

    name: str
    seeds: tuple[int, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """The fields that a paper has added, as JSON gives them back."""
        own = {key: value for key, value in asdict(self).items() if key not in ("name", "seeds")}
        return json.loads(json.dumps(own, default=lambda function: function.__name__))


ProfileT = TypeVar("ProfileT", bound=Profile)
ProfileT_contra = TypeVar("ProfileT_contra", bound=Profile, contravariant=True)


class Row(Protocol[ProfileT_contra]):
    """A row of a table: what is set, what the paper found, and how to find out again."""

    @property
    def number(self) -> int:
        """Its place in the paper's table, from 1."""

    @property
    def setting(self) -> tuple[str, ...]:
        """Its cells under the experiment's headings."""

    @property
    def published(self) -> tuple[Published, ...]:
        """The paper's scores, in the experiment's order."""

    def measure(self, profile: ProfileT_contra, seed: int, device: str) -> dict[str, float]:
        """Train, and return the scores by name, as fractions; this is where the time goes."""


@dataclass(frozen=True)
class Axes:
    """How to draw an experiment: a panel per score, a line per value of one heading, the values of another along x.

    Parameters
    ----------
    x, line
        Two of the experiment's headings.
    scores
        Of its scores, or of those next to them.
    """

    x: str
    line: str
    scores: tuple[str, ...]


@dataclass(frozen=True)
class Experiment(Generic[ProfileT]):
    """A table of a paper.

    Parameters
    ----------
    name
        Paper and table, as the command line takes it.
    title, source
        What the table shows, in a line, and where it stands.
    headings
        Of the cells in `Row.setting`.
    scores
        The scores the paper prints, in the order of `Row.published`.
    further
        Scores that we add.
    rows
        The table.
    quick, full
        Minutes on two cores; the paper's size on a GPU.
    notes
        What a reader must know before comparing.
    axes
        How to draw it, if the paper has a figure.
    every_seed
        Whether cells show each seed next to the mean: a large ± may be one that collapsed.
    """

    name: str
    title: str
    source: str
    headings: tuple[str, ...]
    scores: tuple[str, ...]
    further: tuple[str, ...]
    rows: tuple[Row[ProfileT], ...]
    quick: ProfileT
    full: ProfileT
    notes: tuple[str, ...]
    axes: Axes | None = None
    every_seed: bool = False


@dataclass(frozen=True)
class Record:
    """One run of one row: what came out, and all that is needed to run it again.

    Examples
    --------
    >>> record = Record("a/table1", 1, 0, "quick", {"d": 5}, {"linear": 0.8}, 2.5, "cpu", {"torch": "2.13.0"})
    >>> Record.from_line(record.to_line()) == record
    True
    """

    experiment: str
    row: int
    seed: int
    profile: str
    settings: Mapping[str, Any]
    scores: Mapping[str, float]
    seconds: float
    device: str
    versions: Mapping[str, str]

    def to_line(self) -> str:
        """Return one line of JSON, without its end."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Read what `to_line` gave.

        Raises
        ------
        ValueError
            If the line is anything else.
        """
        fields = json.loads(line)
        if not isinstance(fields, dict) or set(fields) != set(cls.__dataclass_fields__):
            raise ValueError(f"no record: {line[:40]!r}")
        return cls(**fields)

    def answers(self, experiment: Experiment, profile: Profile) -> bool:
        """Whether this is a run of the experiment with the settings of the profile."""
        return self.experiment == experiment.name and self.settings == profile.settings


Run = tuple[Row, int]
"""A row and a seed."""


def pending(
    experiment: Experiment, profile: Profile, records: Sequence[Record], *, rows: Collection[int], seeds: Sequence[int]
) -> list[Run]:
    """Return the runs that the records do not answer yet, row by row."""
    done = {(record.row, record.seed) for record in records if record.answers(experiment, profile)}
    wanted = [(row, seed) for row in experiment.rows if row.number in rows for seed in seeds]
    return [(row, seed) for row, seed in wanted if (row.number, seed) not in done]


def shared(records: Iterable[Record], lender: Experiment, borrower: Experiment) -> list[Record]:
    """Return the records of one table that answer another one of the same paper, as records of that one.

    Rows whose cells are equal are the same run, which need not be made twice. For tables with the same headings.
    """
    if lender.headings != borrower.headings:
        raise ValueError(
            f"{lender.name} and {borrower.name} have different headings, so that equal cells do not say that rows are "
            "the same run. Run the second table, too."
        )
    place = {row.setting: row.number for row in borrower.rows}
    number = {row.number: place[row.setting] for row in lender.rows if row.setting in place}
    return [
        replace(record, experiment=borrower.name, row=number[record.row])
        for record in records
        if record.experiment == lender.name and record.row in number
    ]


def reproduce(
    experiment: Experiment, profile: Profile, runs: Sequence[Run], *, device: str | None = None
) -> Iterator[Record]:
    """Run one after the other, and give each record as soon as it is there.

    Parameters
    ----------
    experiment, profile
        What to run, and how large.
    runs
        Rows and seeds, as `pending` returns them.
    device
        Where to train; None takes a GPU if there is one.
    """
    import numpy
    import torch

    from pindown.training import best_device

    versions = {module.__name__: str(module.__version__) for module in (pindown, torch, numpy)}
    versions["python"] = platform.python_version()
    place = str(best_device(device))
    for row, seed in runs:
        start = time.monotonic()
        scores = row.measure(profile, seed, place)
        seconds = round(time.monotonic() - start, 1)
        yield Record(
            experiment=experiment.name,
            row=row.number,
            seed=seed,
            profile=profile.name,
            settings=profile.settings,
            scores=scores,
            seconds=seconds,
            device=_device_name(place),
            versions=versions,
        )


def _device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device
