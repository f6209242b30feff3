"""`Sparse`: dictionaries of directions of which few add up to each row; `SparseBasis`: one with a theorem.

`SparsePair`: one before and one after a map.
"""

from pindown.estimators.sparse.agreement import SeedAgreement
from pindown.estimators.sparse.basis import SparseBasis
from pindown.estimators.sparse.estimator import Sparse
from pindown.estimators.sparse.graph import Arrow, CodeGraph
from pindown.estimators.sparse.pair import SparsePair

__all__ = ["Arrow", "CodeGraph", "SeedAgreement", "Sparse", "SparseBasis", "SparsePair"]
