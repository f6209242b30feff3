"""`probe`: what a linear map reads off frozen features, beside chance, control tasks and other features."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.utils import check_scalar

from pindown._names import counted
from pindown.auditing.probing.readers import Matrix, Reader
from pindown.auditing.probing.result import LEVEL, Compared, Probed, Probing
from pindown.auditing.probing.splits import Numbers, Split, splits
from pindown.data.data import as_array
from pindown.data.labels import as_numbers, is_quantity, missing
from pindown.metrics.arrays import read_matrix

MODEL = "features"
"""What features are called that nobody gave a name."""

N_CONTROLS = 20
"""Control tasks whose scores are averaged."""

MOST_CLASSES, MIN_ROWS = 50, 40
"""Values up to which a column is a label that a probe can be asked for; and rows that a factor must have."""

ACCURACY, R2 = "balanced accuracy", "R²"


class Factor(NamedTuple):
    """A factor in rows that have it: its values, as classes or numbers, and the rows."""

    name: str
    values: NDArray[Any]  # (n,) class numbers, or quantities
    rows: Numbers
    n_classes: int  # 0: a quantity


def probe(
    features: Any,
    factors: Any,
    *,
    groups: Any = None,
    n_resamples: int = 10,
    n_permutations: int | None = None,
    random_state: int = 0,
) -> Probing:
    """Ask linear probes what features of a frozen model tell of known factors, and what others would tell.

    Each factor is resampled so that all of its classes have as many rows, groups are on one side of a division, and a
    ridge regression learned on one side is scored on the other. Beside the score stand what permuted labels score, what
    a control task scores (random labels of the groups, which no feature can tell of groups that were not seen), and the
    scores of other features on the same divisions: of a network that was not trained, and of the raw inputs. Without
    these nobody knows what training has to do with it.

    Parameters
    ----------
    features : array of shape (n, …), or mapping of names to such arrays
        What is read. The first of several is the one that others are compared with:
        ``{"trained": F, "random network": R, "raw inputs": X}``.
    factors : mapping of names to arrays (n,), DataFrame, or array (n,) or (n, k)
        What is asked for: labels (balanced accuracy), or numbers with fractions (R²). NaN and None are left out.
    groups : array of shape (n,), optional
        Objects, subjects, documents …, whose rows are alike: none is learned from and scored on.
    n_resamples : int
        Divisions of the rows.
    n_permutations : int or None
        Permutations of the labels in each: no p-value is below 2 / (1 + n_permutations). None takes 999, or as many as
        it takes for each to be able to stand the correction for all.
    random_state : int
        Of the resamples, permutations and control tasks.

    Returns
    -------
    Probing
        A table, a picture and a sentence.

    Notes
    -----
    Resamples share rows, so that their spread understates the error: it is corrected after Nadeau and Bengio (2003).
    p-values of resamples are averaged, and twice the mean is one, whatever their dependence (Vovk and Wang, 2020);
    where there is nothing to be found it is near 1, and weak effects are missed rather than made up.

    Examples
    --------
    The sign of a column is told by features that have it, and not by others:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 4))
    >>> found = probe({"with": x, "without": x[:, 1:]}, {"sign": x[:, 0] > 0}, n_permutations=99)
    >>> [each.found for each in found.probed], found.compared[0].decided
    ([True, False], True)
    """
    check_scalar(n_resamples, "n_resamples", numbers.Integral, min_val=2)
    if n_permutations is not None:
        check_scalar(n_permutations, "n_permutations", numbers.Integral, min_val=19)
    models = _read_models(features)
    n = len(next(iter(models.values())))
    together = np.arange(n) if groups is None else as_numbers(_column("groups", groups, n))
    asked, left_out = [], []
    for name, column in _read_columns(factors, n).items():
        found = _factor(name, column)
        if isinstance(found, str):
            left_out.append(found)
        else:
            asked.append(found)
    needed = math.ceil(2 * len(asked) * len(models) / LEVEL)
    n_permuted = max(999, needed) if n_permutations is None else int(n_permutations)
    tables: dict[tuple[str, str], Table] = {}
    for k, factor in enumerate(asked):
        rng = np.random.default_rng([random_state, k])
        own = as_numbers(together[factor.rows])
        divisions = splits(own, n_resamples, rng, factor.values if factor.n_classes else None)
        if not divisions:
            left_out.append(
                f"{factor.name}: too few rows or groups of a class to have four on both sides of a division"
            )
            continue
        targets = _targets(factor, own, divisions, n_permuted, rng)
        for model, rows in models.items():
            tables[factor.name, model] = _scored(factor, rows[factor.rows], own, divisions, targets)
    if not tables:
        raise ValueError(f"probe: none of the factors can be asked about: {'; '.join(left_out)}.")
    notes = [f"left out: {why}." for why in left_out]
    if n_permuted < needed:
        notes.append(f"with {n_permuted} permutations no p-value stands the correction for all: take {needed}.")
    return Probing(_corrected(tables), _comparisons(tables, list(models)), tuple(notes))


# ---- reading --------------------------------------------------------------------------------------------------------


def _read_models(features: Any) -> dict[str, Matrix]:
    named = features if isinstance(features, Mapping) else {MODEL: features}
    models = {}
    for name, values in named.items():
        array = as_array(values, str(name))
        models[str(name)] = read_matrix(str(name), array.reshape(len(array), -1) if array.ndim > 2 else array)
    lengths = {name: len(array) for name, array in models.items()}
    if not models or len(set(lengths.values())) > 1:
        raise ValueError(f"probe: all features must be of the same inputs, row by row, got {lengths} rows.")
    return models


def _read_columns(factors: Any, n: int) -> dict[str, NDArray[Any]]:
    if isinstance(factors, Mapping):
        named: dict[Any, Any] = dict(factors)
    elif hasattr(factors, "columns"):
        named = {name: factors[name] for name in factors.columns}
    else:
        table = as_array(factors)
        named = {"factor": table} if table.ndim == 1 else {f"factor {k}": column for k, column in enumerate(table.T)}
    if not named:
        raise ValueError("probe: there are no factors to ask about.")
    return {str(name): _column(str(name), column, n) for name, column in named.items()}


def _column(name: str, values: Any, n: int) -> NDArray[Any]:
    column = as_array(values)
    if column.shape != (n,):
        raise ValueError(
            f"probe: {name} must have one value for each of the {n} rows of the features, got shape {column.shape}."
        )
    return column


def _factor(name: str, column: NDArray[Any]) -> Factor | str:
    """Return a factor in the rows that have it, or why it cannot be asked about."""
    rows = np.flatnonzero(~missing(column))
    values = column[rows]
    if len(rows) < MIN_ROWS:
        return f"{name}: {counted(len(rows), 'row')} with a value, and {MIN_ROWS} are needed"
    if is_quantity(values):
        return Factor(name, values.astype(np.float64), rows, 0)
    classes = as_numbers(values)
    n_classes = int(classes.max()) + 1
    if n_classes < 2:
        return f"{name}: has one value only"
    if n_classes > MOST_CLASSES:
        return f"{name}: {n_classes} values are too many for a label; numbers with fractions are taken as a quantity"
    return Factor(name, classes, rows, n_classes)


# ---- scoring --------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """Labels of rows in a division: the true ones first, then control tasks, then permutations; (n, t)."""

    train: NDArray[Any]
    test: NDArray[Any]


class Table(NamedTuple):
    """Scores of one factor off one model: of each resample, of controls and permutations there; and what was used."""

    factor: Factor
    scores: Matrix  # (resamples,)
    controls: Matrix  # (resamples,)
    permuted: Matrix  # (resamples, permutations)
    ratio: float  # rows scored on, by rows learned from
    n_samples: int
    n_groups: int
    least: int


def _targets(
    factor: Factor, groups: Numbers, divisions: Sequence[Split], n_permutations: int, rng: np.random.Generator
) -> list[Target]:
    """Return what is read in each division; the same for all models, so that they are compared in pairs."""
    found = []
    for train, test in divisions:
        rows = np.concatenate([train, test])
        values = factor.values[rows]
        whole = _constant_within(values, groups[rows])
        columns = [values]
        for _ in range(N_CONTROLS):
            per_group = (
                rng.integers(factor.n_classes, size=groups.max() + 1)
                if factor.n_classes
                else rng.normal(size=groups.max() + 1)
            )
            columns.append(per_group[groups[rows]])
        columns += [_permuted(values, groups[rows], whole, rng) for _ in range(n_permutations)]
        table = np.stack(columns, axis=1)
        found.append(Target(table[: len(train)], table[len(train) :]))
    return found


def _constant_within(values: NDArray[Any], groups: Numbers) -> bool:
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    return len(first) < len(groups) and bool((values[first][number.reshape(-1)] == values).all())


def _permuted(values: NDArray[Any], groups: Numbers, whole: bool, rng: np.random.Generator) -> NDArray[Any]:
    """Exchange values between rows; between groups, where all rows of a group have one."""
    if not whole:
        return values[rng.permutation(len(values))]
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    return values[first[rng.permutation(len(first))]][number.reshape(-1)]


def _scored(
    factor: Factor, rows: Matrix, groups: Numbers, divisions: Sequence[Split], targets: Sequence[Target]
) -> Table:
    scores = np.stack(
        [_read(Reader(rows, split), target, factor.n_classes) for split, target in zip(divisions, targets, strict=True)]
    )
    used = np.unique(np.concatenate([np.concatenate(split) for split in divisions]))
    train, test = divisions[0]
    least = int(np.bincount(factor.values).min()) if factor.n_classes else len(factor.rows)
    return Table(
        factor,
        scores[:, 0],
        scores[:, 1 : 1 + N_CONTROLS].mean(1),
        scores[:, 1 + N_CONTROLS :],
        len(test) / len(train),
        len(train) + len(test),
        len(np.unique(groups[used])),
        least,
    )


def _read(reader: Reader, target: Target, n_classes: int) -> Matrix:
    """Return the score of each column of targets; (t,)."""
    if not n_classes:
        said = reader.read(target.train)
        spread = ((target.test - target.test.mean(0)) ** 2).sum(0)
        return 1 - ((target.test - said) ** 2).sum(0) / np.maximum(spread, 1e-300)
    votes = np.stack([reader.read((target.train == c).astype(np.float64)) for c in range(n_classes)])
    right = votes.argmax(0) == target.test
    recalls = []
    for c in range(n_classes):
        of_class = target.test == c
        hits = (right & of_class).sum(0) / np.maximum(of_class.sum(0), 1)
        recalls.append(np.where(of_class.any(0), hits, np.nan))
    return np.nanmean(recalls, axis=0)


def _corrected(tables: Mapping[tuple[str, str], Table]) -> tuple[Probed, ...]:
    p_values = np.array([_p_value(table) for table in tables.values()])
    adjusted, n = holm(p_values), len(p_values)
    return tuple(
        Probed(
            model=model,
            factor=name,
            measure=ACCURACY if table.factor.n_classes else R2,
            score=float(table.scores.mean()),
            error=_error(table.scores, table.ratio),
            chance=float(table.permuted.mean()),
            p_value=float(p),
            holm=float(h),
            bonferroni=min(1.0, float(p) * n),
            control=float(table.controls.mean()),
            selectivity=float(table.scores.mean() - table.controls.mean()),
            n_samples=table.n_samples,
            n_groups=table.n_groups,
            least=table.least,
        )
        for ((name, model), table), p, h in zip(tables.items(), p_values, adjusted, strict=True)
    )


def _p_value(table: Table) -> float:
    above = (table.permuted >= table.scores[:, None] - 1e-12).sum(1)
    return min(1.0, 2 * float(((1 + above) / (1 + table.permuted.shape[1])).mean()))


def _error(scores: Matrix, ratio: float) -> float:
    """Return the standard error of a mean over resamples that share rows."""
    return math.sqrt((1 / len(scores) + ratio) * float(scores.var(ddof=1)))


def _comparisons(tables: Mapping[tuple[str, str], Table], models: Sequence[str]) -> tuple[Compared, ...]:
    found = []
    for name in dict.fromkeys(name for name, _ in tables):
        for other in models[1:]:
            first, second = tables[name, models[0]], tables[name, other]
            difference = first.scores - second.scores
            error = _error(difference, first.ratio)
            mean = float(difference.mean())
            ratio = abs(mean) / error if error > 0 else (math.inf if mean else 0.0)
            p = 2 * float(student.sf(ratio, len(difference) - 1))
            found.append((name, other, mean, error, p))
    adjusted = holm(np.array([p for *_, p in found]))
    return tuple(
        Compared(name, models[0], other, mean, error, p, float(h))
        for (name, other, mean, error, p), h in zip(found, adjusted, strict=True)
    )


def holm(p_values: Matrix) -> Matrix:
    """Return p-values corrected for their number, step by step: the least by all, the next by all but one, and so on.

    Examples
    --------
    >>> holm(np.array([0.04, 0.01, 0.03])).tolist()
    [0.06, 0.03, 0.06]
    """
    n = len(p_values)
    order = np.argsort(p_values)
    stepped = np.maximum.accumulate(p_values[order] * (n - np.arange(n)))
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted
