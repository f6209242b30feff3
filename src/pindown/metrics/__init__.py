"""Metrics: arrays in, numbers out, each with what it is blind to and what chance would score."""

from pindown.metrics.recovery import (
    Orthogonality,
    ProcrustesFit,
    chance_linear_r2,
    chance_mcc,
    chance_orthogonality_error,
    chance_procrustes,
    linear_r2,
    mcc,
    orthogonality_error,
    procrustes,
)

__all__ = [
    "Orthogonality",
    "ProcrustesFit",
    "chance_linear_r2",
    "chance_mcc",
    "chance_orthogonality_error",
    "chance_procrustes",
    "linear_r2",
    "mcc",
    "orthogonality_error",
    "procrustes",
]
