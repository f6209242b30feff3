"""`Sparse`: dictionaries of directions of which few add up to each row; `SparseBasis`: one with a theorem.

`SparsePair`: one before and one after a map.
"""

from pindown.methods.sparse.agreement import SeedAgreement
from pindown.methods.sparse.basis import SparseBasis
from pindown.methods.sparse.estimator import Sparse
from pindown.methods.sparse.graph import Arrow, CodeGraph
from pindown.methods.sparse.pair import SparsePair

__all__ = ["Arrow", "CodeGraph", "SeedAgreement", "Sparse", "SparseBasis", "SparsePair"]
