"""pindown pins down the hidden variables behind data, and says what may be claimed about them.

Names are loaded when they are first used, so that ``import pindown`` costs nothing and brings no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pindown.alignment import align
    from pindown.estimators import Classify, Contrast, Dictionary, Forget, LatentAction
    from pindown.planning import plan
    from pindown.report.audit import audit

__all__ = ["Classify", "Contrast", "Dictionary", "Forget", "LatentAction", "align", "audit", "plan"]

_HOME = dict.fromkeys(__all__, "pindown.estimators") | {
    "align": "pindown.alignment",
    "audit": "pindown.report.audit",
    "plan": "pindown.planning",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pindown' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
