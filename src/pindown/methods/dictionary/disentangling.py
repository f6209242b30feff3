"""One rotation of a trained decoder's codes, found from its Jacobian, in which fewest latents reach each variable."""

from pindown.methods.dictionary.disentangle import disentangle
from pindown.methods.dictionary.disentangled import Disentangled
from pindown.methods.dictionary.law import Freedom, freedom

__all__ = ["Disentangled", "Freedom", "disentangle", "freedom"]
