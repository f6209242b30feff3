"""What `SparsePair` says of itself: how much both dictionaries rebuild; atoms are compared as those of `Sparse`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pindown.data import Data
from pindown.estimators.answers import FitScore
from pindown.estimators.sparse import answers as sparse

if TYPE_CHECKING:
    from pindown.estimators.sparse.pair import SparsePair


def _score(est: SparsePair, data: Data) -> FitScore:
    return FitScore("share of variance that is rebuilt, mean of both sides", est.score(data.X), 0.0)


ANSWERS = replace(
    sparse.ANSWERS,
    codes=lambda est, data: est.transform(data.X),
    exported=lambda est, data: sparse.ANSWERS.exported(est.before_, data),
    after=lambda est, data: sparse.ANSWERS.after(est.before_, data),
    score=_score,
)
