"""Penalties on a decoder or on codes, as plain functions for anyone's training loop: tensors in, a scalar out."""

from pindown.penalties.between_codes import codes_jacobian
from pindown.penalties.dependency import (
    dependency_count,
    dependency_sparsity,
    entrywise,
    group_lasso_sparsity,
    latent_sparsity,
    soft_count,
)
from pindown.penalties.independence import energy_distance
from pindown.penalties.smoothness import exact_hessian_penalty, hessian_penalty, orojar
from pindown.penalties.tangents import Pushed, derivative, pushforward
from pindown.penalties.weighted import (
    DependencyCount,
    DependencySparsity,
    HessianPenalty,
    LatentSparsity,
    OroJAR,
    Penalty,
)

__all__ = [
    "DependencyCount",
    "DependencySparsity",
    "HessianPenalty",
    "LatentSparsity",
    "OroJAR",
    "Penalty",
    "Pushed",
    "codes_jacobian",
    "dependency_count",
    "dependency_sparsity",
    "derivative",
    "energy_distance",
    "entrywise",
    "exact_hessian_penalty",
    "group_lasso_sparsity",
    "hessian_penalty",
    "latent_sparsity",
    "orojar",
    "pushforward",
    "soft_count",
]
