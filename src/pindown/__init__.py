"""pindown pins down the hidden variables behind data, and says what may be claimed about them.

Names and modules are loaded when they are first used, so that ``import pindown`` costs nothing and brings no torch.

>>> import pindown
>>> pindown.networks.linear(5, 2)
Linear(in_features=5, out_features=2, bias=True)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pindown import (
        alignment,
        baselines,
        checks,
        data,
        directions,
        disentangling,
        distributions,
        estimators,
        evidence,
        extracting,
        folding,
        gates,
        grids,
        labels,
        losses,
        metrics,
        mixing,
        networks,
        papers,
        penalties,
        probing,
        processes,
        report,
        runs,
        saving,
        sources,
        spaces,
        structure,
        tables,
        theory,
        training,
    )
    from pindown.alignment import align
    from pindown.data import Data
    from pindown.disentangling import disentangle
    from pindown.estimators import (
        Classify,
        Contrast,
        Dictionary,
        Forget,
        IdentifiabilityWarning,
        LatentAction,
        Sparse,
        SparseBasis,
        SparsePair,
    )
    from pindown.extracting import activations
    from pindown.planning import plan
    from pindown.probing import probe
    from pindown.report.audit import audit
    from pindown.saving import load
    from pindown.training import Trainer, TrainingDivergedError, optimizers

_HOME = {
    "Classify": "pindown.estimators",
    "Contrast": "pindown.estimators",
    "Data": "pindown.data",
    "Dictionary": "pindown.estimators",
    "Forget": "pindown.estimators",
    "IdentifiabilityWarning": "pindown.estimators",
    "LatentAction": "pindown.estimators",
    "Sparse": "pindown.estimators",
    "SparseBasis": "pindown.estimators",
    "SparsePair": "pindown.estimators",
    "Trainer": "pindown.training",
    "TrainingDivergedError": "pindown.training",
    "activations": "pindown.extracting",
    "align": "pindown.alignment",
    "audit": "pindown.report.audit",
    "disentangle": "pindown.disentangling",
    "load": "pindown.saving",
    "optimizers": "pindown.training",
    "plan": "pindown.planning",
    "probe": "pindown.probing",
}
"""Where the names live that are no module of this package."""

__all__ = [
    "Classify",
    "Contrast",
    "Data",
    "Dictionary",
    "Forget",
    "IdentifiabilityWarning",
    "LatentAction",
    "Sparse",
    "SparseBasis",
    "SparsePair",
    "Trainer",
    "TrainingDivergedError",
    "activations",
    "align",
    "alignment",
    "audit",
    "baselines",
    "checks",
    "data",
    "directions",
    "disentangle",
    "disentangling",
    "distributions",
    "estimators",
    "evidence",
    "extracting",
    "folding",
    "gates",
    "grids",
    "labels",
    "load",
    "losses",
    "metrics",
    "mixing",
    "networks",
    "optimizers",
    "papers",
    "penalties",
    "plan",
    "probe",
    "probing",
    "processes",
    "report",
    "runs",
    "saving",
    "sources",
    "spaces",
    "structure",
    "tables",
    "theory",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in __all__:
        return import_module(f"pindown.{name}")
    raise AttributeError(f"module 'pindown' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
