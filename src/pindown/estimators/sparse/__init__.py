"""`Sparse`: dictionaries of directions of which few add up to each row; `SparseBasis`: one with a theorem."""

from pindown.estimators.sparse.agreement import SeedAgreement
from pindown.estimators.sparse.basis import SparseBasis
from pindown.estimators.sparse.estimator import Sparse

__all__ = ["SeedAgreement", "Sparse", "SparseBasis"]
