"""Losses and penalties as plain functions of tensors, for any training loop.

`infonce` and `align_uniform` compare pairs, `cross_entropy` fits labels, `energy_distance` and `reverse_gradient`
remove a nuisance, and penalties such as `dependency_sparsity` act on a decoder's Jacobian.
"""

from pindown.losses.cross_entropy import cross_entropy
from pindown.losses.feature_jacobian import feature_jacobian
from pindown.losses.infonce import align_uniform, infonce
from pindown.losses.invariance import energy_distance, reverse_gradient
from pindown.losses.jacobian import Pushed, derivative, pushforward
from pindown.losses.penalties import (
    DependencyCount,
    DependencySparsity,
    HessianPenalty,
    LatentSparsity,
    OroJAR,
    Penalty,
    dependency_count,
    dependency_sparsity,
    exact_hessian_penalty,
    group_lasso_sparsity,
    hessian_penalty,
    latent_sparsity,
    orojar,
)

__all__ = [
    "DependencyCount",
    "DependencySparsity",
    "HessianPenalty",
    "LatentSparsity",
    "OroJAR",
    "Penalty",
    "Pushed",
    "align_uniform",
    "cross_entropy",
    "dependency_count",
    "dependency_sparsity",
    "derivative",
    "energy_distance",
    "exact_hessian_penalty",
    "feature_jacobian",
    "group_lasso_sparsity",
    "hessian_penalty",
    "infonce",
    "latent_sparsity",
    "orojar",
    "pushforward",
    "reverse_gradient",
]
