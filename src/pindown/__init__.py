"""pindown recovers the latent variables behind data and says which claims about them are supported.

Names and modules are loaded on first use, so that ``import pindown`` takes milliseconds and does not import torch.

>>> import pindown
>>> pindown.networks.linear(5, 2)
Linear(in_features=5, out_features=2, bias=True)
"""

import sys
from importlib import import_module

if sys.argv[:1] == ["-m"] and "-m pindown" in " ".join(sys.orig_argv) and not sys.flags.safe_path:
    del sys.path[0]  # python -m pindown: the working directory, where a file may be called typing.py

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pindown import (
        auditing,
        data,
        errors,
        losses,
        methods,
        metrics,
        networks,
        runs,
        saving,
        simulate,
        theory,
        training,
    )
    from pindown.auditing.audit import audit
    from pindown.auditing.embedding import Embedder
    from pindown.auditing.probing import probe
    from pindown.data import Data
    from pindown.errors import IdentifiabilityWarning, InputError
    from pindown.methods import (
        Classify,
        Contrast,
        Dictionary,
        Forget,
        LatentAction,
        Sparse,
        SparseBasis,
        SparsePair,
    )
    from pindown.methods.alignment import align
    from pindown.methods.dictionary.disentangle import disentangle
    from pindown.methods.forget.annotated import forget
    from pindown.methods.planning import plan
    from pindown.methods.sparse.activations import activations
    from pindown.saving import load
    from pindown.training import Trainer, TrainingDivergedError, optimizers

_NAMES = {
    "auditing.audit": "audit",
    "auditing.embedding": "Embedder",
    "auditing.probing": "probe",
    "data": "Data",
    "errors": "IdentifiabilityWarning InputError",
    "methods": "Classify Contrast Dictionary Forget LatentAction Sparse SparseBasis SparsePair",
    "methods.alignment": "align",
    "methods.dictionary.disentangle": "disentangle",
    "methods.forget.annotated": "forget",
    "methods.planning": "plan",
    "methods.sparse.activations": "activations",
    "saving": "load",
    "training": "Trainer TrainingDivergedError optimizers",
}
_HOME = {name: f"pindown.{module}" for module, names in _NAMES.items() for name in names.split()}
"""The module of each name that is not a module itself."""

__all__ = [
    "Classify",
    "Contrast",
    "Data",
    "Dictionary",
    "Embedder",
    "Forget",
    "IdentifiabilityWarning",
    "InputError",
    "LatentAction",
    "Sparse",
    "SparseBasis",
    "SparsePair",
    "Trainer",
    "TrainingDivergedError",
    "activations",
    "align",
    "audit",
    "auditing",
    "data",
    "disentangle",
    "errors",
    "forget",
    "load",
    "losses",
    "methods",
    "metrics",
    "networks",
    "optimizers",
    "plan",
    "probe",
    "runs",
    "saving",
    "simulate",
    "theory",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pindown' has no attribute {name!r}")
    import random
    import warnings

    drawn = random.getstate()
    with warnings.catch_warnings():  # libraries that we import set filters, and draw random numbers
        home = import_module(_HOME.get(name, f"pindown.{name}"))
    random.setstate(drawn)
    return getattr(home, name) if name in _HOME else home


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
