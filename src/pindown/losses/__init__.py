"""Losses and penalties as plain functions of tensors, for any training loop.

`infonce` and `align_uniform` compare pairs, `cross_entropy` fits labels, `energy_distance` and `reverse_gradient`
remove a nuisance, and penalties such as `dependency_sparsity` act on a decoder's Jacobian.
"""

from pindown.losses.infonce import align_uniform, infonce
from pindown.losses.jacobian import Pushed, feature_jacobian, pushforward
from pindown.losses.penalties import (
    DependencyCount,
    DependencySparsity,
    Penalty,
    dependency_count,
    dependency_sparsity,
)
from pindown.losses.supervised import cross_entropy, energy_distance, reverse_gradient

__all__ = [
    "DependencyCount",
    "DependencySparsity",
    "Penalty",
    "Pushed",
    "align_uniform",
    "cross_entropy",
    "dependency_count",
    "dependency_sparsity",
    "energy_distance",
    "feature_jacobian",
    "infonce",
    "pushforward",
    "reverse_gradient",
]
