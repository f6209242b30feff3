"""`probe`: what linear probes decode from frozen features, next to chance, control tasks and other features."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student
from sklearn.utils import check_scalar

from pindown._names import counted, listed, printed
from pindown.auditing.page import Drawing, fill, write_whole
from pindown.data.data import as_array
from pindown.data.labels import as_numbers, is_quantity, missing
from pindown.data.splits import assign_folds, hold_out
from pindown.errors import InputError
from pindown.metrics.arrays import Labels, Matrix, read_matrix

__all__ = ["Compared", "Probed", "Probing", "holm", "probe"]

LEVEL = 0.05  # corrected p-value up to which something counts as found
N_CONTROLS = 20  # control tasks whose scores are averaged
MIN_SAMPLES, MOST_CLASSES = 40, 50  # that a factor must have, and may have
MOST_WHOLE = 20  # more different whole numbers are a count, and not classes
TEST_FRACTION, LEAST, TRIES = 0.3, 4, 20  # samples to score on; of each class on both sides; splits tried for that
PENALTIES = np.logspace(6, -6, 25)  # of the ridge regression, by the mean variance along a direction, largest first
INNER_FOLDS = 5  # that choose a penalty
PERFECT = 1e-3  # error, relative to the variance, below which the smallest penalty needs no remark

ACCURACY, R2 = "balanced accuracy", "R²"


# ---- results --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probed:
    """How well a linear probe decodes one factor from the features of one model.

    Attributes
    ----------
    model, factor : str
        Whose features, and of what.
    measure : str
        Balanced accuracy of a label, or R² of a quantity, on samples of held-out groups.
    score, error : float
        Mean over resamples, and its standard error, corrected for samples that resamples share.
    chance : float
        What a guess scores: one over the number of classes, or 0.
    p_value, holm, bonferroni : float
        Of a score as high by permutation, and corrected for all models and factors.
    control, selectivity : float
        What random labels of the groups score, and how much more the factor does.
    n_samples, n_groups, least : int
        Samples and groups used, and samples of the rarest class.
    at_edge : int
        Splits in which the penalty was the smallest of the grid, so that a smaller one might score more.
    """

    model: str
    factor: str
    measure: str
    score: float
    error: float
    chance: float
    p_value: float
    holm: float
    bonferroni: float
    control: float
    selectivity: float
    n_samples: int
    n_groups: int
    least: int
    at_edge: int

    @property
    def found(self) -> bool:
        """Whether chance is ruled out, after Holm's correction."""
        return self.holm <= LEVEL


@dataclass(frozen=True)
class Compared:
    """The difference of two models in one factor, on the same resamples; positive if the first decodes it better."""

    factor: str
    first: str
    second: str
    difference: float
    error: float
    p_value: float
    holm: float

    @property
    def decided(self) -> bool:
        """Whether one is better, after Holm's correction."""
        return self.holm <= LEVEL


@dataclass(frozen=True)
class Probing:
    """What probes of some models found. Prints as a table; `save` writes a page, a table or the numbers.

    Attributes
    ----------
    probed : tuple of Probed
        One for each factor and model.
    compared : tuple of Compared
        The first model against each other one, factor by factor.
    notes : tuple of str
        Factors that were left out, and why; counts taken as quantities; too few permutations; penalties at the edge of
        the grid.
    """

    probed: tuple[Probed, ...]
    compared: tuple[Compared, ...]
    notes: tuple[str, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in their order."""
        return tuple(dict.fromkeys(each.model for each in self.probed))

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the factors that were probed."""
        return tuple(dict.fromkeys(each.factor for each in self.probed))

    @property
    def sentence(self) -> str:
        """What may be written: what the first model contains beyond chance, and where others contain more or less."""
        first = self.models[0]
        own = [each for each in self.probed if each.model == first]
        found = [each.factor for each in own if each.found]
        text = (
            f"A linear probe decodes {len(found)} of {counted(len(own), 'factor')} from {first} beyond chance"
            + (f" ({listed(found)})" if found else "")
            + f", on held-out groups (permutation tests, Holm, {LEVEL})"
        )
        for other in self.models[1:]:
            decided = [each for each in self.compared if each.second == other and each.decided]
            signs = ([each.factor for each in decided if sign * each.difference > 0] for sign in (1, -1))
            better, worse = (f"{len(some)} ({listed(some)})" if some else "none" for some in signs)
            text += f"; better than from {other} in {better}, worse in {worse}"
        if len(self.models) == 1:
            text += ". This does not show that training is the reason: add a random network and the raw inputs"
        return f"{text}."

    @property
    def tables(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """The scores and the differences of models as rows of text after a header; a star marks a finding."""
        scores: list[tuple[str, ...]] = [
            ("factor", "model", "score", "±", "chance", "p", "Holm", "Bonf.", "control", "samples", "least")
        ]
        for each in self.probed:
            values = (each.score, each.error, each.chance, each.p_value, each.holm, each.bonferroni, each.control)
            name = each.model + "*" * each.found
            scores.append((each.factor, name, *map(printed, values), str(each.n_samples), str(each.least)))
        differences: list[tuple[str, ...]] = [("factor", "difference", "", "±", "p", "Holm")]
        for one in self.compared:
            name = f"{one.first} − {one.second}" + "*" * one.decided
            differences.append((one.factor, name, *map(printed, (one.difference, one.error, one.p_value, one.holm))))
        return (tuple(scores), *([tuple(differences)] if self.compared else []))

    def __str__(self) -> str:
        parts = []
        for rows in self.tables:  # words are aligned to the left of their columns, numbers to the right
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            pattern = "  ".join(f"{{:{'<' if k < 2 else '>'}{width}}}" for k, width in enumerate(widths))
            parts.append("\n".join(pattern.format(*row).rstrip() for row in rows))
        return "\n\n".join([*parts, *(["\n".join(self.notes)] if self.notes else []), self.sentence])

    def to_dict(self) -> dict[str, object]:
        """Return all of it as dictionaries, lists, text and numbers."""
        return {"sentence": self.sentence, **dataclasses.asdict(self)}

    def save(self, path: str | Path) -> Path:
        """Write a page with a figure (``.html``), a table (``.csv``) or the numbers (``.json``); return the path."""
        path = Path(path)
        match path.suffix.lower():
            case ".json":
                text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
            case ".csv":
                text = pd.DataFrame(list(self.probed)).to_csv(index=False)
            case ".html":
                text = fill("probes.html.j2", title="What linear probes decode", found=self, figure=self._figure())
            case ending:
                raise InputError("path", f"`path` must end in .html, .csv or .json, not in {ending or 'nothing'!r}.")
        write_whole(text, path)
        return path

    def _figure(self) -> Drawing:
        models = []
        for name in self.models:
            own = [each for each in self.probed if each.model == name]
            errors = [2 * each.error for each in own]
            scores, chances = [each.score for each in own], [each.chance for each in own]
            models.append({"name": name, "score": scores, "error": errors, "chance": chances})
        low = min(0.0, *(each.score - 2 * each.error for each in self.probed))
        return Drawing(
            "probes",
            "Scores on held-out groups, with two standard errors; the tick is chance. Labels have a balanced accuracy, "
            "quantities an R².",
            f"Scores of {len(self.models)} models for {len(self.factors)} factors",
            {"factors": list(self.factors), "models": models, "low": low},
            wide=True,
        )


# ---- probing --------------------------------------------------------------------------------------------------------


class Factor(NamedTuple):
    """A factor in the samples that have it: classes, numbered from 0, or quantities."""

    name: str
    values: Labels | Matrix  # (n,)
    samples: Labels  # (n,)
    n_classes: int  # 0 for a quantity

    def suits(self, some: Labels) -> bool:
        """Return whether samples have enough of each class, or a quantity that varies."""
        if not self.n_classes:
            return bool(np.ptp(self.values[some]) > 0)
        return bool(np.bincount(self.values[some], minlength=self.n_classes).min() >= LEAST)


def probe(
    features: ArrayLike | Mapping[str, ArrayLike],
    factors: ArrayLike | Mapping[str, ArrayLike] | pd.DataFrame,
    *,
    groups: ArrayLike | None = None,
    quantities: Collection[str] = (),
    n_resamples: int = 10,
    n_permutations: int | None = None,
    random_state: int = 0,
) -> Probing:
    """Measure how well linear probes decode known factors from frozen features, and from others to compare with.

    Each factor is resampled so that its classes have equally many samples, and whole groups are held out. A ridge
    regression is trained on the others; five folds of them, which keep groups together, choose its penalty. Next to its
    score on the held-out samples stand chance, the score of a control task (random labels of the groups, which no
    feature can predict in groups that were not seen), and the scores of other features on the same splits: of a network
    that was not trained, and of the raw inputs. Only these comparisons show what training has added.

    Parameters
    ----------
    features : array of shape (n, …), or mapping of names to such arrays
        What probes are trained on. The first of several is the one that others are compared with:
        ``{"trained": F, "random network": R, "raw inputs": X}``.
    factors : mapping of names to arrays (n,), DataFrame, or array (n,) or (n, k)
        What is decoded: labels (balanced accuracy) or quantities (R²). Numbers with fractions are quantities, and so
        are counts: whole numbers with more than 20 different values, or with three or more of which one is too rare
        for a class. Give labels as text if they are not. NaN and None are left out.
    groups : array of shape (n,), optional
        Objects, subjects, documents …, whose samples are alike: none is on both sides of a split.
    quantities : collection of str
        Factors that are quantities, though their values look like labels.
    n_resamples : int
        Splits of the samples.
    n_permutations : int or None
        Permutations of the held-out labels in each: no p-value is below 2 / (1 + n_permutations). None takes 999, or
        as many as the correction for all models and factors needs.
    random_state : int
        Of the resamples, permutations and control tasks.

    Returns
    -------
    Probing
        A table, a picture and a sentence.

    Notes
    -----
    Resamples share samples, so that their spread understates the error: it is corrected after Nadeau and Bengio (2003).
    A probe is fixed once it is trained, so that permuting the held-out labels is an exact test. p-values of resamples
    are averaged, and twice the mean is one, whatever their dependence (Vovk and Wang, 2020): where there is nothing to
    be found it is near 1, and weak effects are missed rather than made up.

    Examples
    --------
    The sign of a column can be decoded from features that contain it, and not from others:

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
    group = np.arange(n) if groups is None else as_numbers(_column("groups", groups, n))
    chosen, notes = _read_factors(factors, n, quantities)
    needed = math.ceil(2 * len(chosen) * len(models) / LEVEL)
    n_permuted = max(999, needed) if n_permutations is None else int(n_permutations)
    probed: list[Probed] = []
    compared: list[Compared] = []
    for k, factor in enumerate(chosen):
        rng = np.random.default_rng([random_state, k])
        own = as_numbers(group[factor.samples])
        splits = _drawn_splits(factor, own, n_resamples, rng)
        if splits is None:
            notes.append(f"left out: {factor.name}: too few samples or groups of a class for both sides of a split.")
            continue
        tasks = [_tasks(factor, own, split, n_permuted, rng) for split in splits]
        scores = {}
        for model, rows in models.items():
            found, scores[model] = _scored(model, factor, rows[factor.samples], own, tasks)
            probed.append(found)
            if found.at_edge > n_resamples / 2:
                at = f"the smallest penalty was chosen in {found.at_edge} of {n_resamples} splits"
                notes.append(f"{factor.name}, {model}: {at}, and a smaller one might score more.")
        compared += _comparisons(factor.name, scores, tasks[0].ratio)
    if not probed:
        raise ValueError(f"probe: there is no factor to decode: {' '.join(notes)}")
    if n_permuted < needed:
        notes.append(f"{n_permuted} permutations allow no p-value that survives the correction for all: take {needed}.")
    p_values = np.array([each.p_value for each in probed])
    corrected = zip(probed, holm(p_values), np.minimum(1, len(p_values) * p_values), strict=True)
    adjusted = zip(compared, holm(np.array([each.p_value for each in compared])), strict=True)
    return Probing(
        tuple(dataclasses.replace(each, holm=float(h), bonferroni=float(b)) for each, h, b in corrected),
        tuple(dataclasses.replace(each, holm=float(h)) for each, h in adjusted),
        tuple(notes),
    )


def _read_models(features: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, Matrix]:
    models = {}
    for name, values in (features if isinstance(features, Mapping) else {"features": features}).items():
        array = as_array(values, str(name))
        models[str(name)] = read_matrix(str(name), array.reshape(len(array), -1) if array.ndim > 2 else array)
    lengths = {name: len(array) for name, array in models.items()}
    if not models or len(set(lengths.values())) > 1:
        raise ValueError(f"probe: all features must be of the same samples, got {lengths} samples.")
    return models


def _read_factors(
    factors: ArrayLike | Mapping[str, ArrayLike] | pd.DataFrame, n: int, quantities: Collection[str]
) -> tuple[list[Factor], list[str]]:
    """Return the factors that can be decoded, and notes on those that cannot and on counts."""
    if isinstance(factors, Mapping | pd.DataFrame):
        named = {str(name): factors[name] for name in factors}
    else:
        table = as_array(factors)
        named = {"factor": table} if table.ndim == 1 else {f"factor {k}": column for k, column in enumerate(table.T)}
    if not named:
        raise ValueError("probe: there are no factors. Give one column per factor.")
    if unknown := [name for name in quantities if name not in named]:
        raise InputError("quantities", f"`quantities` names {listed(unknown)}, which is no factor.")
    chosen, notes = [], []
    for name, values in named.items():
        column = _column(name, values, n)
        samples = np.flatnonzero(~missing(column))
        some = column[samples]
        if len(some) < MIN_SAMPLES:
            have = counted(len(some), "sample")
            notes.append(f"left out: {name}: {have} with a value, and {MIN_SAMPLES} are needed.")
            continue
        classes = as_numbers(some)
        n_classes, rarest = int(classes.max()) + 1, int(np.bincount(classes).min())
        numeric = some.dtype.kind in "iuf"
        is_count = numeric and (n_classes > MOST_WHOLE or (n_classes > 2 and rarest < 2 * LEAST))
        if is_count and not is_quantity(some) and name not in quantities:
            notes.append(f"{name}: {n_classes} different whole numbers are a quantity; give text if they are labels.")
        if n_classes < 2:
            notes.append(f"left out: {name}: has one value only.")
        elif is_quantity(some) or is_count or (numeric and name in quantities):
            chosen.append(Factor(name, some.astype(np.float64), samples, 0))
        elif n_classes > MOST_CLASSES:
            notes.append(f"left out: {name}: {n_classes} classes are too many, {MOST_CLASSES} are possible.")
        else:
            chosen.append(Factor(name, classes, samples, n_classes))
    return chosen, notes


def _column(name: str, values: ArrayLike, n: int) -> NDArray[np.generic]:
    column = as_array(values)
    if column.shape != (n,):
        raise ValueError(f"probe: {name} must have one value for each of the {n} samples, got shape {column.shape}.")
    return column


def _drawn_splits(
    factor: Factor, groups: Labels, n_splits: int, rng: np.random.Generator
) -> list[tuple[Labels, Labels]] | None:
    """Draw samples to train and to score on, by groups, of equally many of each class; None if there are too few."""
    found: list[tuple[Labels, Labels]] = []
    for _ in range(n_splits * TRIES):
        samples, strata = np.arange(len(groups)), None
        if factor.n_classes:
            least = np.bincount(factor.values).min()
            parts = [rng.permutation(np.flatnonzero(factor.values == c))[:least] for c in range(factor.n_classes)]
            samples = np.sort(np.concatenate(parts))
            strata = factor.values[samples].astype(np.int64)
        held_out = hold_out(as_numbers(groups[samples]), TEST_FRACTION, rng, strata)
        split = (samples[~held_out], samples[held_out])
        found += [split] if all(factor.suits(side) for side in split) else []
        if len(found) == n_splits:
            return found
    return None


class Tasks(NamedTuple):
    """What probes are trained for in one split: the factor first, then control tasks; the same for all models."""

    train: Labels  # (n_train,)
    test: Labels  # (n_test,)
    outputs: Matrix  # (n_train, tasks, classes) zeros and ones, or (n_train, tasks, 1)
    truth: Matrix  # (n_test, tasks)
    permuted: Matrix  # (permutations, n_test), of the factor
    folds: Labels  # (n_train,)

    @property
    def ratio(self) -> float:
        """Samples scored on, by samples trained on."""
        return len(self.test) / len(self.train)


def _tasks(
    factor: Factor, groups: Labels, split: tuple[Labels, Labels], n_permutations: int, rng: np.random.Generator
) -> Tasks:
    k, n_groups, labels = factor.n_classes, int(groups.max()) + 1, [factor.values]
    for _ in range(N_CONTROLS):
        labels.append((rng.integers(k, size=n_groups) if k else rng.normal(size=n_groups))[groups])
    table, (train, test) = np.stack(labels, axis=1).astype(np.float64), split
    values, own = table[test, 0], groups[test]
    permuted = np.stack([_permuted(values, own, rng) for _ in range(n_permutations)])
    folds = assign_folds(as_numbers(groups[train]), INNER_FOLDS, rng)
    if not folds.any():  # one group only: its samples are all there is
        folds = np.arange(len(folds)) % INNER_FOLDS
    targets = table[train][:, :, None]
    outputs = (targets == np.arange(k)).astype(np.float64) if k else targets
    return Tasks(train, test, outputs, table[test], permuted, folds)


def _permuted(values: Matrix, groups: Labels, rng: np.random.Generator) -> Matrix:
    """Exchange values between samples; between groups, where all samples of a group have one."""
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    if len(first) == len(groups) or (values[first][number] != values).any():
        return values[rng.permutation(len(values))]
    return values[first[rng.permutation(len(first))]][number]


def _scored(model: str, factor: Factor, rows: Matrix, groups: Labels, tasks: Sequence[Tasks]) -> tuple[Probed, Matrix]:
    """Return what probes of one model find of a factor, with p-values that are not corrected; and the scores."""
    found = []
    for task in tasks:
        predicted, at_edge = ridge_predictions(rows[task.train], task.outputs, rows[task.test], task.folds)
        own, *controls = (
            float(_score(predicted[:, k], task.truth[None, :, k], factor.n_classes)[0])
            for k in range(predicted.shape[1])
        )
        chance = _score(predicted[:, 0], task.permuted, factor.n_classes)
        found.append((own, np.mean(controls), (1 + (chance >= own - 1e-12).sum()) / (1 + len(chance)), at_edge))
    used = np.unique(np.concatenate([np.concatenate([task.train, task.test]) for task in tasks]))
    scores, controls, p_values, at_edge = np.array(found, dtype=np.float64).T
    score, control, p_value = float(scores.mean()), float(controls.mean()), min(1.0, 2 * float(p_values.mean()))
    probed = Probed(
        model=model,
        factor=factor.name,
        measure=ACCURACY if factor.n_classes else R2,
        score=score,
        error=_error(scores, tasks[0].ratio),
        chance=1 / factor.n_classes if factor.n_classes else 0.0,
        p_value=p_value,
        holm=p_value,
        bonferroni=p_value,
        control=control,
        selectivity=score - control,
        n_samples=len(tasks[0].train) + len(tasks[0].test),
        n_groups=len(np.unique(groups[used])),
        least=int(np.bincount(factor.values).min()) if factor.n_classes else len(factor.samples),
        at_edge=int(at_edge.sum()),
    )
    return probed, scores


def _score(predicted: Matrix, truths: Matrix, n_classes: int) -> Matrix:
    """Return the balanced accuracy or R² of predictions (n, outputs) for each of several truths (k, n); (k,)."""
    if not n_classes:
        spread = truths - truths.mean(1, keepdims=True)
        return 1 - ((truths - predicted[:, 0]) ** 2).sum(1) / np.maximum((spread**2).sum(1), 1e-300)
    right = predicted.argmax(1) == truths
    of_class = truths[:, :, None] == np.arange(n_classes)  # a class that a control task lacks here does not count
    recall = (right[:, :, None] & of_class).sum(1) / np.maximum(of_class.sum(1), 1)
    return recall.sum(1) / of_class.any(1).sum(1)


def ridge_predictions(train: Matrix, outputs: Matrix, test: Matrix, folds: Labels) -> tuple[Matrix, bool]:
    r"""Predict the outputs (n_train, tasks, k) of new samples by ridge regression; (n_test, tasks, k).

    .. math:: \min_w \; \lVert y - F w \rVert^2 + \alpha \lVert w \rVert^2

    Features are standardised on the samples to train on. Each task has the α of the grid with the least error in left
    out folds; of equals, the largest. Also returns whether the first task took the smallest of all, and needs it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 5))
    >>> predicted, _ = ridge_predictions(x[:150], (x[:150, 0] - x[:150, 1])[:, None, None], x[150:], np.arange(150) % 5)
    >>> round(float(np.corrcoef(predicted[:, 0, 0], x[150:, 0] - x[150:, 1])[0, 1]), 3)
    1.0
    """
    mean, spread = train.mean(0), train.std(0)
    scale = np.where(spread > 1e-12 * np.maximum(np.abs(mean), 1e-300), spread, np.inf)
    u, s, vt = np.linalg.svd((train - mean) / scale, full_matrices=False)
    x, new = u * s, (test - mean) / scale @ vt.T  # coordinates in the span of the samples, (n, r)
    penalties = PENALTIES * max(float((s**2).mean()), 1e-300)
    y = outputs.reshape(len(outputs), -1)
    errors = np.zeros((len(penalties), outputs.shape[1]))
    for fold in np.unique(folds):
        held = folds == fold
        for k, predicted in enumerate(_ridge_path(x[~held], y[~held], x[held], penalties)):
            errors[k] += ((predicted - y[held]) ** 2).reshape(held.sum(), *outputs.shape[1:]).sum((0, 2))
    best = errors.argmin(0)
    found = np.empty((len(test), *outputs.shape[1:]))
    for k, predicted in enumerate(_ridge_path(x, y, new, penalties)):
        found[:, best == k] = predicted.reshape(found.shape)[:, best == k]
    variance = ((outputs[:, 0] - outputs[:, 0].mean(0)) ** 2).sum()
    still_falls = errors[-1, 0] < 0.99 * errors[-2, 0] and errors[-1, 0] > PERFECT * variance
    return found, bool(best[0] == len(penalties) - 1 and still_falls)


def _ridge_path(x: Matrix, y: Matrix, new: Matrix, penalties: Matrix) -> Iterator[Matrix]:
    """Yield predictions for new samples, one penalty after another."""
    mean, y_mean = x.mean(0), y.mean(0)
    u, s, vt = np.linalg.svd(x - mean, full_matrices=False)
    along, coordinates = u.T @ (y - y_mean), (new - mean) @ vt.T
    for penalty in penalties:
        yield coordinates @ ((s / (s**2 + penalty))[:, None] * along) + y_mean


def _error(scores: Matrix, ratio: float) -> float:
    """Return the standard error of a mean over resamples that share samples."""
    return math.sqrt((1 / len(scores) + ratio) * float(scores.var(ddof=1)))


def _comparisons(factor: str, scores: Mapping[str, Matrix], ratio: float) -> Iterator[Compared]:
    """Yield the first model against each other one, with p-values that are not corrected."""
    first, *others = scores
    for other in others:
        difference = scores[first] - scores[other]
        error, mean = _error(difference, ratio), float(difference.mean())
        t = abs(mean) / error if error > 0 else (math.inf if mean else 0.0)
        p_value = 2 * float(student.sf(t, len(difference) - 1))
        yield Compared(factor, first, other, mean, error, p_value, holm=p_value)


def holm(p_values: Matrix) -> Matrix:
    """Return p-values corrected for their number, step by step: the least by all, the next by all but one, and so on.

    Examples
    --------
    >>> holm(np.array([0.04, 0.01, 0.03])).tolist()
    [0.06, 0.03, 0.06]
    """
    n = len(p_values)
    order = np.argsort(p_values)
    adjusted = np.empty(n)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * (n - np.arange(n))), 1)
    return adjusted
