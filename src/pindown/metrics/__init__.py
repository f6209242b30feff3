"""Metrics: arrays in, numbers out, each with what it is blind to and what chance would score."""

from pindown.metrics.dependence import Confounding, confounding, distance_correlation, effective_rank
from pindown.metrics.invariance import PROBES, Leakage, Probe, ProbeScore, inject_leak, leakage
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
    "PROBES",
    "Confounding",
    "Leakage",
    "Orthogonality",
    "Probe",
    "ProbeScore",
    "ProcrustesFit",
    "chance_linear_r2",
    "chance_mcc",
    "chance_orthogonality_error",
    "chance_procrustes",
    "confounding",
    "distance_correlation",
    "effective_rank",
    "inject_leak",
    "leakage",
    "linear_r2",
    "mcc",
    "orthogonality_error",
    "procrustes",
]
