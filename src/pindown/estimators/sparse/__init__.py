"""`Sparse`: dictionaries of directions of which few add up to each row."""

from pindown.estimators.sparse.agreement import SeedAgreement
from pindown.estimators.sparse.estimator import Sparse

__all__ = ["SeedAgreement", "Sparse"]
