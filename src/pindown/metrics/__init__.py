"""Metrics: arrays in, numbers out, each with what it is blind to and what chance would score."""

from pindown.metrics import disentanglement
from pindown.metrics.by_value import AcrossValues, recovery_across_values, recovery_by_value
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
from pindown.metrics.sets import (
    SetScores,
    chance_set_scores,
    chance_shd,
    chance_support_f1,
    match_latents,
    match_supports,
    mcc_above_chance,
    set_scores,
    shd,
    support_f1,
)

__all__ = [
    "PROBES",
    "AcrossValues",
    "Confounding",
    "Leakage",
    "Orthogonality",
    "Probe",
    "ProbeScore",
    "ProcrustesFit",
    "SetScores",
    "chance_linear_r2",
    "chance_mcc",
    "chance_orthogonality_error",
    "chance_procrustes",
    "chance_set_scores",
    "chance_shd",
    "chance_support_f1",
    "confounding",
    "disentanglement",
    "distance_correlation",
    "effective_rank",
    "inject_leak",
    "leakage",
    "linear_r2",
    "match_latents",
    "match_supports",
    "mcc",
    "mcc_above_chance",
    "orthogonality_error",
    "procrustes",
    "recovery_across_values",
    "recovery_by_value",
    "set_scores",
    "shd",
    "support_f1",
]
