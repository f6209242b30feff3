"""Generators of the field to compare with: methods without a theorem, with the manners of all estimators here.

Their ``guarantee`` is None: no theorem covers their latents. `pindown.disentangle` turns any of them by the
Jacobian of its decoder, and says what may then be claimed.
"""

from pindown_papers.baselines.alone import BetaVAE, FactorVAE
from pindown_papers.baselines.bijections import Bijection, couplings, splines
from pindown_papers.baselines.diffusion import EncDiff
from pindown_papers.baselines.directions import DisCo
from pindown_papers.baselines.flow import Flow
from pindown_papers.baselines.paired import AdaGVAE, SlowVAE

__all__ = [
    "AdaGVAE",
    "BetaVAE",
    "Bijection",
    "DisCo",
    "EncDiff",
    "FactorVAE",
    "Flow",
    "SlowVAE",
    "couplings",
    "splines",
]
