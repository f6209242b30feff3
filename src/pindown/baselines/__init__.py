"""Generators of the field to compare with: methods without a theorem, with the manners of all estimators here.

Their ``guarantee`` is None: nothing says that a code is a latent. `pindown.disentangle` turns any of them by the
Jacobian of its decoder, and says what may then be claimed.
"""

from pindown.baselines.alone import BetaVAE, FactorVAE
from pindown.baselines.diffusion import EncDiff
from pindown.baselines.directions import DisCo
from pindown.baselines.flow import Flow
from pindown.baselines.paired import AdaGVAE, SlowVAE

__all__ = ["AdaGVAE", "BetaVAE", "DisCo", "EncDiff", "FactorVAE", "Flow", "SlowVAE"]
