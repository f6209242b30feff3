"""Classes as `Classify` sees them before it trains: read or refused, numbered, and counted against latents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from torch import Tensor, nn

from pindown.auditing.checks import spanned_dimensions
from pindown.auditing.checks.arrays import signal_coordinates
from pindown.data.labels import Numbered, numbered
from pindown.methods.inputs import DataSummary
from pindown.networks import SkipMLP
from pindown.networks.encoder import Encoder

START_BATCHES = 4
"""Batches by whose means a linear encoder starts."""

FAINT = 1e-6
"""Share of the largest below which a spread, or a difference of means, is rounding."""


@dataclass(frozen=True, eq=False)
class ClassSummary(DataSummary):
    """What `Classify` sees before training: the classes, sorted, and how often each comes."""

    classes: NDArray[Any] = field(kw_only=True)
    prior: NDArray[np.float64] = field(kw_only=True)
    by_number: bool = field(default=False, kw_only=True)  # whether rows come with the numbers of their classes
    few: bool = field(default=False, kw_only=True)  # whether rows are so few that it matters where training starts

    def numbers(self, labels: Any) -> Any:
        """Return the number of each row's class."""
        labels = np.asarray(labels).reshape(-1)
        number = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
        if (unknown := self.classes[number] != labels).any():
            raise ValueError(
                f"Classify: class {labels[unknown].tolist()[0]!r} was not there in the rows looked at before "
                "training. Let the first rows of the source have all classes."
            )
        return number


def read_classes(y: Any, n_samples: int, *, augmented: bool) -> tuple[Numbered, tuple[str, ...]]:
    """Give each class a number, after checking that classes can be told apart by more than memory; and doubts.

    Examples
    --------
    >>> (values, numbers, counts), doubts = read_classes(["b", "a", "b"], 3, augmented=False)
    >>> values.tolist(), numbers.tolist(), doubts[0][:33]
    (['a', 'b'], [1, 0, 1], '1 of 2 classes have a single row,')
    """
    if y is None:
        if not augmented:
            raise ValueError(
                "Classify: this estimator requires y to be passed, but the target y is None. Without labels each "
                "row is a class of its own, seen in a single view, which an encoder can learn by heart: give "
                "labels, or augment=… to make other views of a row."
            )
        return Numbered(np.arange(n_samples), np.arange(n_samples), np.ones(n_samples, dtype=np.int64)), ()
    y = column_or_1d(y, warn=True)
    labels = numbered(y, "y", "label")
    assert_all_finite(y, input_name="y (the labels)")
    if y.dtype.kind == "f" and (y != y.round()).any():
        raise ValueError(
            "Unknown label type: continuous. y (the labels) has fractions, so these are no classes: "
            "group the values into bins, or turn them into text if they are names."
        )
    if len(labels.values) == 1:
        raise ValueError(
            f"Classify: y puts all {n_samples} rows into a single class, so there is nothing to tell apart. "
            "Give y at least two classes."
        )
    if not augmented and labels.counts.max() == 1:
        raise ValueError(
            f"Classify: no class of y has two rows: there are as many classes as samples, {n_samples}, and each is "
            "seen in a single view, which an encoder can learn by heart. Give related rows one class, or augment=… "
            "to make other views of a row."
        )
    doubts: tuple[str, ...] = ()
    if not augmented and labels.counts.min() == 1:
        alone = labels.values[labels.counts == 1]
        doubts = (
            f"{len(alone)} of {len(labels.values)} classes have a single row, which an encoder can learn by heart: "
            f"{', '.join(map(str, alone[:5]))}{', …' if len(alone) > 5 else ''}. Their class vectors mean little; "
            "give more rows, or leave these out.",
        )
    return labels, doubts


def too_few(n_classes: int, d: int) -> tuple[str, ...]:
    """Say so if there are too few classes for so many latents.

    Examples
    --------
    >>> too_few(3, 2), len(too_few(2, 2))
    ((), 1)
    """
    if n_classes > d:
        return ()
    return (
        f"{n_classes} classes cannot pin down {d} latents, whatever the data: it takes at least {d + 1}, in "
        "general position. Give more classes, or ask for fewer latents.",
    )


def spanned(X: Any, labels: Any) -> int:
    """Return in how many directions of standardised columns classes differ: as many latents can be pinned down.

    Examples
    --------
    Three classes differ in two directions, one of them in other units:

    >>> labels = np.repeat([0, 1, 2], 100)
    >>> spanned((np.eye(3)[labels] + 0.1 * np.random.default_rng(0).normal(size=(300, 3))) * [1, 1, 1000], labels)
    2
    """
    return spanned_dimensions(signal_coordinates(X)[0], labels, encoded=False)


def start_at_means(encoder: Encoder, batches: Iterator[tuple[Tensor, ...]], n_classes: int) -> Tensor | None:
    """Let an encoder start at the directions in which the means of classes differ most; return the means of its codes.

    The directions are Fisher's, whatever the units and whatever invertible linear map stands before the encoder. From
    random ones, few steps, after which few rows are known by heart, would not have come all the way: part of each code
    was where it began; and on a circle, class vectors may not get past each other. Codes beyond the directions that
    classes differ in stay as they are. Of an encoder of pictures or without a linear path, or where a class is not
    among the first rows, None.
    """
    *before, last = encoder.body if isinstance(encoder.body, nn.Sequential) else (encoder.body,)
    last = last.linear if isinstance(last, SkipMLP) else last
    fixed = not any(weight.requires_grad for part in before for weight in part.parameters())
    if not isinstance(last, nn.Linear) or not fixed or len(encoder.preprocess.shape_out) > 1:
        return None
    parts = zip(*islice(batches, START_BATCHES), strict=True)
    rows, numbers = (torch.cat(part).to(encoder.device) for part in parts)
    member = nn.functional.one_hot(numbers, n_classes).double()  # (n, classes)
    member = member / member.sum(0).clamp_min(1)
    if (member.sum(0) == 0).any():
        return None
    with torch.no_grad():
        found = fisher(nn.Sequential(encoder.preprocess, *before)(rows).double(), member)[: last.out_features]
        last.weight[: len(found)] = found.to(last.weight)
        return member.T @ encoder(rows).double()


def fisher(seen: Tensor, member: Tensor) -> Tensor:
    """Return unit directions in which means of classes differ most beside the spread of all rows; (k, d).

    Parameters
    ----------
    seen
        Rows, (n, d).
    member
        One column per class, by which rows are weighed for its mean; (n, n_classes).

    Examples
    --------
    >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).double()
    >>> x[:200, 1] += 5
    >>> fisher(x, nn.functional.one_hot(torch.arange(400) // 200).double() / 200).abs().argmax().item()
    1
    """
    centred = seen - seen.mean(0)
    values, basis = torch.linalg.eigh(centred.T @ centred)
    white = basis / values.clamp_min(FAINT * values[-1]).sqrt()
    weight = (member > 0).sum(0).double().sqrt()
    size, found = torch.linalg.svd(weight[:, None] * (member.T @ centred) @ white, full_matrices=False)[1:]
    found = found[size > FAINT * size[0]] @ white.T
    return found / found.norm(dim=1, keepdim=True)
