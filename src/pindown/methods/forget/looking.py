"""What `Forget` sees before the first step: the nuisance, directions that tell it, charts, and rows held out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import nn

from pindown.data import GeneratorSource
from pindown.data.data import Data
from pindown.data.labels import as_numbers, combined
from pindown.data.splits import assign_folds
from pindown.methods.forget.charts import Charts, again, closed_form, turned
from pindown.methods.forget.choosing import (
    CLOSED,
    EVEN,
    FEWEST_JUDGES,
    N_FOLDS,
    Candidate,
    Choice,
    KeptOut,
    best,
    cross_fitted,
    label_shown,
    seen_in,
    told_of,
)
from pindown.methods.forget.images import worth_rebuilding
from pindown.methods.forget.initialisation import Initialisation
from pindown.methods.forget.linear_erasure import Directions, directions, moment_matched_projection
from pindown.methods.forget.nuisance import Nuisance, NuisanceReader, assemble, read_columns, read_strata
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.methods.transport import MIN_SAMPLES
from pindown.metrics.dependence import Grouping
from pindown.networks.encoder import Encoder
from pindown.networks.preprocessing import Preprocessing
from pindown.networks.spaces import Reals
from pindown.simulate import Process

CLOSED_FORM_ROWS, CLOSED_FORM_NUMBERS = 50_000, 20_000_000
"""Rows from which means and covariances of the start are taken; of wide ones, as many as have so many numbers."""

FEWEST_HELD_OUT, MOST_HELD_OUT = 200, 4_000
"""Rows held out for the probe: of fewer than 2,000 these many or a quarter, and never more than the second."""

LEAST_QUARTER = 50
"""Rows held out below which nothing can be read from them, and none are."""

MOST_HELD_OUT_OF_LINEAR = 500
"""The most for a linear encoder, which cannot learn rows by heart, but whose angles miss every row it does not see."""

MIN_SPREAD = 1e-3
"""Spread of whitened data along a direction up to which they do not vary along it: no code can hold it."""

SHOWN = 0.01
"""p-value up to which rows show a given label: one coin toss in a hundred is taken for one that they show."""

RIDGE = 1e-3
"""What weights of the map for rows of unknown value cost, relative to a direction of unit variance."""


@dataclass(frozen=True)
class Asked:
    """What of its parameters an estimator looks by."""

    n_components: int | None
    n_bins: int | None
    validation_fraction: float
    charts: bool
    linear: bool  # whether the encoder is
    spreads: np.ndarray | None = None  # of pictures: how much they vary along each direction; None: all the same
    settled_on: str | None = None  # charts in closed form that are kept whatever others would tell


@dataclass(frozen=True, eq=False)
class NuisanceSummary(DataSummary):
    """What `Forget` sees before training: directions that tell the nuisance, where to start, rows held out.

    If there are ``charts``, ``choice`` says how closed forms fare, and ``fixed`` is the map that goes with them, for
    rows of unknown value. Where it is settled that they do, or rows held out are too few to judge a game by, none is
    played; where not, there are ``charts_apart``.
    """

    n_told: tuple[int, int] = field(kw_only=True)
    note: str = field(kw_only=True)
    reader: NuisanceReader = field(kw_only=True)
    by_number: bool = field(kw_only=True)  # whether rows come with the numbers of their values
    initialisation: Initialisation = field(kw_only=True)
    held_out: KeptOut = field(kw_only=True)
    compared: KeptOut = field(kw_only=True)
    charts: Charts | None = field(default=None, kw_only=True)
    choice: Choice | None = field(default=None, kw_only=True)
    fixed: Encoder | None = field(default=None, kw_only=True)
    charts_apart: Charts | None = field(default=None, kw_only=True)  # the same, without rows held out
    straight: Candidate | None = field(default=None, kw_only=True)  # and how these fare on rows held out
    missed: float = field(default=math.nan, kw_only=True)  # by codes in closed form, of columns in standard units
    of_fixed: tuple[str, ...] = field(default=(), kw_only=True)  # what stands against one map, where there are charts
    transports: bool = field(default=False, kw_only=True)  # whether a transport follows the game

    @property
    def is_settled(self) -> bool:
        """Whether charts in closed form will do."""
        return self.charts is not None and self.charts_apart is None

    @property
    def can_transport(self) -> bool:
        """Whether codes are to have one law, and rows would show it: not beside a label that goes with the nuisance."""
        told = self.initialisation.nuisance
        second = np.sort(np.bincount(told.groups[:, -1]))[-2]
        return told.n_strata == 1 and self.held_out.n_samples > 0 and int(second) >= MIN_SAMPLES


def look_at(inputs: TrainingInput, first: Preprocessing, seed: int, asked: Asked) -> NuisanceSummary:
    """Look at data before the first step, or say what is wrong with them."""
    data = inputs.data
    if inputs.source is not None and data.nuisance is None:
        raise ValueError(
            f"Forget forgets a nuisance, but {inputs.source_name} has none. Pass a simulation such as Nuisance or "
            "Confounded, or a source of (x, nuisance)."
        )
    columns, kinds = read_columns(data.nuisance, len(data), asked.n_bins)
    nuisance = assemble(columns, kinds, read_strata(data.given, len(data)))
    nuisance.refuse_identical()
    rng = np.random.default_rng(seed % 2**63)
    held, used = _divided(inputs, rng, asked)
    rows = used[rng.permutation(len(used))[: _most_rows(first)]]
    x = np.asarray(data.X[rows])
    white = first(torch.as_tensor(x)).double().numpy()
    groupings, seen = nuisance.take(rows).groupings(), nuisance.take(rows)
    matrix = first.linear_map.numpy()
    found = directions(
        white, groupings, spreads=asked.linear, size=np.linalg.pinv(matrix), rng=np.random.default_rng(0)
    )
    is_given, groups = data.given is not None, data.groups
    of_rows = None if groups is None else groups[rows]
    doubts = _of_rare(nuisance) + _of_blocks(nuisance)
    shown = _of_label(label_shown(white, seen, of_rows, seed)) if nuisance.n_strata > 1 else ()
    doubts, tells_label = (*doubts, *shown), nuisance.n_strata > 1 and not (shown or asked.linear)
    compared = held if len(held) else used[:MOST_HELD_OUT]
    counts = 1.0 if asked.spreads is None else worth_rebuilding(white, asked.spreads, seen.groups[:, -1])
    summary = NuisanceSummary(
        1,
        rows=used if inputs.source is None else None,
        warnings=doubts,
        n_told=(found.n_means, found.n_spreads),
        note="",
        reader=NuisanceReader.of(nuisance, kinds, data.given),
        by_number=isinstance(inputs.source, Process),
        initialisation=Initialisation(nuisance, found, found.basis[:1], matrix, tells_label, counts),
        held_out=KeptOut(data.X[held], nuisance.take(held), is_given, None if groups is None else groups[held]),
        compared=KeptOut(data.X[compared], nuisance.take(compared), is_given),
    )
    if asked.charts and not asked.linear and asked.validation_fraction > 0 and inputs.source is None:
        # Cross-fitted, closed forms need no rows of their own to be judged by, and all can be learned from.
        some = np.sort(np.random.default_rng(seed % 2**63).permutation(len(data))[: _most_rows(first)])
        charts, choice = _charted(Some.of(data, some, nuisance), asked, seed)
        value = seen.groups[:, -1]
        codes = charts.encode(x, value)
        summary = replace(summary, charts=charts, choice=choice, fixed=fixed_map(first, white, codes, found))
        settled = asked.settled_on is not None or (choice.kept.is_blind and choice.kept.name == CLOSED)
        settled = settled or _hidden_from(len(held), choice.kept)
        apart = again(charts, x.astype(np.float64), value, seen.strata, even=choice.kept.name == EVEN)
        straight = None if settled else summary.held_out.of_charts(choice.kept.name, apart, seed)
        if straight is None or not straight.is_of_as_many_values(choice.kept):
            missed = max(0.0, 1 - float(codes.var(0).sum()) / max(1, int((x.std(0) > 0).sum())))
            return replace(summary, n_components=charts.n_codes, missed=missed)
        summary = replace(summary, charts_apart=apart, straight=straight)
    return _with_start(summary, white, groupings, asked, tells_label)


def _hidden_from(n_samples: int, kept: Candidate) -> bool:
    """Say whether rows held out are so few that they would not show what a game could gain, and keep it by chance."""
    if kept.leak is None or not n_samples:
        return True
    return n_samples < FEWEST_JUDGES and kept.excess < seen_in(n_samples, kept.leak.chance)


def _divided(inputs: TrainingInput, rng: np.random.Generator, asked: Asked) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of rows to hold out and of those to learn from, in order."""
    n, groups = len(inputs.data), inputs.data.groups
    order = rng.permutation(n)
    # Rows of a world cost nothing; those of a stream that were looked at first are trained on later.
    share = (
        asked.validation_fraction if inputs.source is None else float(isinstance(inputs.source, GeneratorSource)) / 2
    )
    n_held = min(int(share * n), MOST_HELD_OUT_OF_LINEAR if asked.linear else MOST_HELD_OUT)
    n_held = max(n_held, min(FEWEST_HELD_OUT, n // 4)) if share else 0
    n_held = n_held if n_held >= LEAST_QUARTER else 0
    if groups is not None:  # whole groups, in the order in which one of their rows comes first
        number = np.unique(groups, return_inverse=True)[1].reshape(-1)
        place = np.full(number.max() + 1, n)
        np.minimum.at(place, number[order], np.arange(n))
        order = order[np.argsort(place[number[order]], kind="stable")]
        n_held = int(np.searchsorted(place[number[order]], place[number[order]][n_held], side="left")) if n_held else 0
    held, used = np.split(order, [n_held])
    return held, np.sort(used)


def _most_rows(first: Preprocessing) -> int:
    return min(CLOSED_FORM_ROWS, max(2_000, CLOSED_FORM_NUMBERS // math.prod(first.shape_in)))


def _of_rare(nuisance: Nuisance) -> tuple[str, ...]:
    if not (n_rare := nuisance.n_rare):
        return ()
    return (
        f"{n_rare} rows have a value of y that is too rare, or alone in its stratum, to be compared with "
        "others: they are left out of the game, and what the codes tell of them is unknown. Merge rare values.",
    )


def _of_blocks(nuisance: Nuisance) -> tuple[str, ...]:
    """Say so if labels and values fall apart into blocks, between which nothing tells the one from the other."""
    joint = np.zeros((nuisance.n_strata, nuisance.sizes[-1]), dtype=bool)
    joint[nuisance.strata, nuisance.groups[:, -1]] = True
    n_blocks = connected_components(joint @ joint.T)[0]  # of labels that share a value
    if n_blocks == 1:
        return ()
    return (
        f"given and y fall into {n_blocks} blocks that have no value in common: between these no row says what the "
        "label does and what the nuisance. Collect rows that cross them.",
    )


def _of_label(shown: Any) -> tuple[str, ...]:
    if shown is None or shown.p_value <= SHOWN:
        return ()
    return (
        f"rows that readers have not seen do not show the given label: the best reader of {shown.n_used} rows has "
        f"{shown.worst:.2f}, chance is {shown.chance:.2f} (p = {shown.p_value:.2g}). So codes are not asked to tell "
        "it, and nothing may be claimed of it.",
    )


class Some(NamedTuple):
    """Some rows, with their nuisance, and the groups that they come in, if they do."""

    x: np.ndarray
    nuisance: Nuisance
    is_given: bool
    groups: np.ndarray | None

    @classmethod
    def of(cls, data: Data, rows: np.ndarray, nuisance: Nuisance) -> Some:
        """Take these rows of data."""
        groups = None if data.groups is None else data.groups[rows]
        return cls(np.asarray(data.X[rows], dtype=np.float64), nuisance.take(rows), data.given is not None, groups)


def _charted(some: Some, asked: Asked, seed: int) -> tuple[Charts, Choice]:
    """Return charts in closed form: of standardised columns, or if these tell the nuisance, with even covariances."""
    value, strata = some.nuisance.groups[:, -1], some.nuisance.strata
    charts = closed_form(some.x, value, some.nuisance.sizes[-1], strata, asked.n_components)
    rng = np.random.default_rng(seed % 2**63)
    if some.groups is None:
        fold = assign_folds(np.arange(len(some.x)), N_FOLDS, rng, combined(strata, value))
    else:
        fold = assign_folds(as_numbers(some.groups), N_FOLDS, rng)

    def candidate(name: str) -> Candidate:
        codes = cross_fitted(charts, some.x, some.nuisance, fold, even=name == EVEN)
        leak = told_of(codes, some.nuisance, is_given=some.is_given, groups=some.groups, seed=seed)
        return Candidate(name, leak, 1.0)

    candidates = [candidate(asked.settled_on or CLOSED)]
    if asked.settled_on is None and not candidates[0].is_blind:
        candidates.append(candidate(EVEN))
    choice = best(candidates, len(some.x))
    return turned(charts, some.x, value, strata) if choice.kept.name == EVEN else charts, choice


def fixed_map(first: Preprocessing, white: np.ndarray, codes: np.ndarray, found: Directions) -> Encoder:
    """Return the linear map for rows of unknown value: nearest to the codes of charts, off differences of means."""
    rows = found.basis[found.n_means :] if found.n_blind else found.basis
    shown = white @ rows.T
    shown, target = shown - shown.mean(0), codes - codes.mean(0)
    weight = np.linalg.solve(shown.T @ shown / len(shown) + RIDGE * np.eye(len(rows)), shown.T @ target / len(shown))
    body = nn.utils.skip_init(nn.Linear, white.shape[1], codes.shape[1]).requires_grad_(False)
    body.weight.copy_(torch.as_tensor(weight.T @ rows))
    body.bias.copy_(torch.as_tensor(codes.mean(0) - white.mean(0) @ rows.T @ weight))
    return Encoder(first, body, Reals())


def _with_start(
    summary: NuisanceSummary, white: np.ndarray, groupings: list[Grouping], asked: Asked, tells_label: bool
) -> NuisanceSummary:
    """Count the codes of one map for all values, and say where its game starts."""
    start = summary.initialisation
    n_components, note, doubts = _counted(start.found, white, start.nuisance, asked, tells_label)
    rows = start.found.keep(n_components)
    # Rows that cannot be even would be next to zero, and a label that is to be told must be heard from the start.
    if not asked.linear and (not tells_label or n_components <= start.found.n_blind):
        rows = moment_matched_projection(white, groupings, rows, np.random.default_rng(0))
    start = start._replace(rows=rows)
    summary = replace(summary, n_components=n_components, note=note, initialisation=start)
    if summary.charts is not None:
        return replace(summary, of_fixed=doubts)
    return replace(summary, warnings=(*summary.warnings, *doubts))


def _counted(
    found: Directions, white: np.ndarray, nuisance: Nuisance, asked: Asked, tells_label: bool
) -> tuple[int, str, tuple[str, ...]]:
    """Return the number of codes, why it was chosen, and what stands against it."""
    rest = white @ found.basis[found.n_means + found.n_spreads :].T
    rest -= rest.mean(0)
    blind = int(np.linalg.matrix_rank(rest.T @ rest / len(rest), tol=MIN_SPREAD**2, hermitian=True))
    d = blind + found.n_means + found.n_spreads
    told = f"{found.n_means} of {d} directions means differ between values"
    if asked.linear:
        told += f", and in {found.n_spreads} more covariances"
    if asked.n_components is not None:
        n = asked.n_components
        if n <= blind:
            return n, "", ()
        doubt = (
            f"n_components={n} is more than the {blind} blind directions there are: in {told}. Linear codes "
            "beyond these must leak, and no theorem covers others. Ask for fewer, or leave it out."
        )
        return n, "", (doubt,)
    # A linear reader tells labels apart by one code less; these can be blind even if no direction is.
    n_labels = int(nuisance.label_weights().any(0).sum()) if tells_label else 1
    n = max(1, blind, min(d, n_labels - 1))
    if n <= blind:
        return n, f"{n} codes, since in {told}.", ()
    few = f"only {blind} direction(s) do not tell" if blind else "every direction tells"
    doubt = (
        f"{few} the nuisance: in {told}. {n} code(s) are kept, the least telling, and nothing says that they "
        "can be blind. Join values of y, or give n_components."
    )
    return n, "", (doubt,)
