"""Metrics: arrays in, numbers out. Each says what it is blind to and what chance scores."""

from pindown.metrics import disentanglement
from pindown.metrics.dependence import Confounding, confounding, distance_correlation, effective_rank
from pindown.metrics.dictionaries import (
    AtomMatch,
    DeadFraction,
    FiringBand,
    by_frequency,
    chance_pw_mcc,
    dead_fraction,
    feature_mcc,
    firing,
    fvu,
    l0,
    match_atoms,
    matching_pursuit,
    pw_mcc,
    sparsity,
)
from pindown.metrics.invariance import Effort, Leakage, ProbeScore, inject_leak, leakage
from pindown.metrics.probes import PROBES, Probe
from pindown.metrics.recovery import (
    ProcrustesFit,
    chance_linear_r2,
    chance_mcc,
    chance_procrustes,
    linear_r2,
    match_latents,
    mcc,
    procrustes,
    recovery_by_level,
)
from pindown.metrics.structure import StructureKept, structure_kept

__all__ = [
    "PROBES",
    "AtomMatch",
    "Confounding",
    "DeadFraction",
    "Effort",
    "FiringBand",
    "Leakage",
    "Probe",
    "ProbeScore",
    "ProcrustesFit",
    "StructureKept",
    "by_frequency",
    "chance_linear_r2",
    "chance_mcc",
    "chance_procrustes",
    "chance_pw_mcc",
    "confounding",
    "dead_fraction",
    "disentanglement",
    "distance_correlation",
    "effective_rank",
    "feature_mcc",
    "firing",
    "fvu",
    "inject_leak",
    "l0",
    "leakage",
    "linear_r2",
    "match_atoms",
    "match_latents",
    "matching_pursuit",
    "mcc",
    "procrustes",
    "pw_mcc",
    "recovery_by_level",
    "sparsity",
    "structure_kept",
]
