"""pindown pins down the hidden variables behind data, and says what may be claimed about them.

Names are loaded when they are first used, so that ``import pindown`` costs nothing and brings no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pindown.estimators import Classify, Contrast

_HOME = {"Classify": "pindown.estimators", "Contrast": "pindown.estimators"}

__all__ = ["Classify", "Contrast"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pindown' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
