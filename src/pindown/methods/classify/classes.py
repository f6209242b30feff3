"""The classes of `Classify` before training: read, numbered, and compared with the number of latents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from torch import Tensor, nn

from pindown.auditing.checks.arrays import signal_coordinates
from pindown.auditing.checks.samples import spanned_dimensions
from pindown.data.labels import Numbered, numbered
from pindown.methods.fitting import linear_path
from pindown.methods.inputs import DataSummary
from pindown.networks.encoder import Encoder

START_BATCHES, FAINT = 4, 1e-6
"""Number of batches by whose class means a linear encoder is initialised; fraction of the largest below which a spread,
or a difference of means, is rounding."""


@dataclass(frozen=True, eq=False)
class ClassSummary(DataSummary):
    """The data summary of `Classify`: with the classes, sorted, and their frequencies."""

    classes: NDArray[Any] = field(kw_only=True)
    prior: NDArray[np.float64] = field(kw_only=True)
    by_number: bool = field(default=False, kw_only=True)  # whether samples come with the numbers of their classes
    from_means: bool = field(default=False, kw_only=True)  # whether the encoder starts at directions of class means

    def numbers(self, labels: ArrayLike) -> NDArray[np.int64]:
        """Return the number of each sample's class."""
        labels = np.asarray(labels).reshape(-1)
        number = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
        if (unknown := self.classes[number] != labels).any():
            raise ValueError(
                f"Classify: class {labels[unknown].tolist()[0]!r} was not among the samples read before training. "
                "Let the first samples of the source have all classes."
            )
        return number


def read_classes(y: ArrayLike | None, n_samples: int, *, augmented: bool) -> tuple[Numbered, tuple[str, ...]]:
    """Return the numbered classes, with reasons not to make claims; raise if there is nothing to learn from them."""
    if y is None:
        if not augmented:
            raise ValueError(
                "Classify: this estimator requires y to be passed, but the target y is None. Give labels, or augment=… "
                "to make views of each sample, which is then a class of its own."
            )
        return Numbered(np.arange(n_samples), np.arange(n_samples), np.ones(n_samples, dtype=np.int64)), ()
    column = column_or_1d(y, warn=True)
    labels = numbered(column, "y", "label")
    assert_all_finite(column, input_name="y (the labels)")
    if column.dtype.kind == "f" and (column != np.round(column)).any():
        raise ValueError(
            "Unknown label type: continuous. y (the labels) has fractions: group the values into bins, or turn them "
            "into text if they are names."
        )
    if len(labels.values) == 1:
        raise ValueError(
            f"Classify: y must have at least two classes, but has a single class for all {n_samples} samples."
        )
    if not augmented and labels.counts.max() == 1:
        raise ValueError(
            f"Classify: no class of y has two samples: there are as many classes as samples, {n_samples}, which an "
            "encoder can memorise. Give related samples one class, or augment=… to make views of each sample."
        )
    if augmented or labels.counts.min() > 1:
        return labels, ()
    alone = labels.values[labels.counts == 1]
    return labels, (
        f"{len(alone)} of {len(labels.values)} classes have a single sample, which an encoder can memorise: "
        f"{', '.join(map(str, alone[:5]))}{', …' if len(alone) > 5 else ''}. Their class vectors mean little: give "
        "more samples, or leave these out.",
    )


def spanned(X: ArrayLike, labels: ArrayLike) -> int:
    """Return the number of directions that class means of standardised features span."""
    return spanned_dimensions(signal_coordinates(X)[0], labels, encoded=False)


def start_at_means(encoder: Encoder, batches: Iterator[tuple[Tensor, ...]], n_classes: int) -> Tensor | None:
    """Initialise an encoder at the directions in which class means differ most; return the class means of its latents.

    The directions are those of Fisher's discriminant, which do not depend on an invertible linear map of the features.
    From random ones an encoder may fold, or memorise few samples first. Other latents stay as they are. Return None for
    an encoder of images or without a linear path, or if a class is missing.
    """
    path = linear_path(encoder)
    if path is None:
        return None
    before, last = path
    parts = zip(*islice(batches, START_BATCHES), strict=True)
    rows, numbers = (torch.cat(part).to(encoder.device) for part in parts)
    member = nn.functional.one_hot(numbers, n_classes).double()  # (n, classes)
    member = member / member.sum(0).clamp_min(1)
    if (member.sum(0) == 0).any():
        return None
    with torch.no_grad():
        found = fisher(before(rows).double(), member)[: last.out_features]
        last.weight[: len(found)] = found.to(last.weight)
        return member.T @ encoder(rows).double()


def fisher(seen: Tensor, member: Tensor) -> Tensor:
    """Return unit directions in which class means differ most, relative to the spread of all samples; (k, d).

    ``seen`` are samples (n, d), and ``member`` their weights in the mean of each class (n, n_classes).
    """
    centred = seen - seen.mean(0)
    values, basis = torch.linalg.eigh(centred.T @ centred)
    white = basis / values.clamp_min(FAINT * values[-1]).sqrt()
    weight = (member > 0).sum(0).double().sqrt()
    size, found = torch.linalg.svd(weight[:, None] * (member.T @ centred) @ white, full_matrices=False)[1:]
    found = found[size > FAINT * size[0]] @ white.T
    return found / found.norm(dim=1, keepdim=True)
