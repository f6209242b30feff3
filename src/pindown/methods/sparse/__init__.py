"""Sparse autoencoders and dictionaries: `Sparse`, `SparsePair` around a map, and `SparseBasis`, which has a theorem."""

from pindown.methods.sparse.estimator import SeedAgreement, Sparse, SparseBasis
from pindown.methods.sparse.pair import Edge, FeatureGraph, SparsePair

__all__ = ["Edge", "FeatureGraph", "SeedAgreement", "Sparse", "SparseBasis", "SparsePair"]
