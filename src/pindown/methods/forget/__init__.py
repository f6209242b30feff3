"""`Forget` and its parts: linear erasure, batch-specific maps, and adversarial training."""

from pindown.methods.forget.estimator import Forget
from pindown.methods.forget.linear_erasure import LinearErasure

__all__ = ["Forget", "LinearErasure"]
