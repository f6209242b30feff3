"""One rotation of a trained decoder's codes, found from its Jacobian, in which fewest latents reach each variable."""

from pindown.disentangling.finding import disentangle
from pindown.disentangling.law import Freedom, freedom
from pindown.disentangling.result import Disentangled

__all__ = ["Disentangled", "Freedom", "disentangle", "freedom"]
