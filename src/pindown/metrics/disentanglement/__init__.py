r"""Disentanglement: scores of codes ``z_hat`` (n, d_hat) against known factors (n, d), each beside its chance levels.

================ =========================================== ============================================
metric           asks whether                                hardly sees
================ =========================================== ============================================
`beta_vae`       pairs that share a factor tell which        rotations
`factor_vae`     the steadiest code tells which              **rotations**: never alone
`mig`            one code knows a factor better than others  what several codes know together
`modularity`     a code knows one factor only                what no code knows; **noise**: never alone
`explicitness`   linear readers find every value             rotations
`sap`            one code predicts a factor better           bent codes
`dci`            code and factor belong to each other        (a booster decides: it is part of the definition)
`irs`            a code stays while its factor is held       what no code knows
`infomec`        the same, by information                    modularity: what no code knows
`udr`            several fits agree on axes; no factors      what all fits get wrong
================ =========================================== ============================================

Each returns a `Score` (or `DCI`, `InfoMEC`, which hold three): its value, what *noise* of as many columns scores on the
same rows, and what a *random rotation of the true factors* does. Factors are labels if they are whole numbers and
quantities if they have fractional parts, unless ``continuous`` says otherwise. Columns of ``z_hat`` that are constant
are left out first. `scores` has all but `udr` in one table. The definitions are numbered (`DEFINITION`): the same
arrays and ``random_state`` give the same number until that number grows. Rows are taken to be independent.

>>> import numpy as np
>>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
>>> print(mig(factors, factors))
mig 0.9... (noise 0.0..., rotated factors 0.1...)
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from pindown.metrics.disentanglement.agreement import udr
from pindown.metrics.disentanglement.fixed import beta_vae, factor_vae, irs
from pindown.metrics.disentanglement.information import EqualWidth, Information, Nearest
from pindown.metrics.disentanglement.informed import infomec, mig, modularity
from pindown.metrics.disentanglement.predicted import dci, explicitness, sap
from pindown.metrics.disentanglement.result import DCI, DEFINITION, InfoMEC, Score, Scores
from pindown.metrics.reading import RandomState

__all__ = [
    "DCI",
    "DEFINITION",
    "EqualWidth",
    "InfoMEC",
    "Information",
    "Nearest",
    "Score",
    "Scores",
    "beta_vae",
    "dci",
    "explicitness",
    "factor_vae",
    "infomec",
    "irs",
    "mig",
    "modularity",
    "sap",
    "scores",
    "udr",
]


def scores(
    z_hat: ArrayLike,
    factors: ArrayLike,
    *,
    continuous: Sequence[bool] | bool | None = None,
    random_state: RandomState = 0,
) -> Scores:
    """Return all scores that need factors, as one table.

    Examples
    --------
    >>> import numpy as np
    >>> factors = np.random.default_rng(0).integers(0, 3, size=(400, 2))
    >>> table = scores(factors, factors)
    >>> [score.name for score in table][:3], len(table)
    (['beta_vae', 'factor_vae', 'mig'], 13)
    """
    metrics = (beta_vae, factor_vae, mig, modularity, explicitness, sap, dci, irs, infomec)
    found = (metric(z_hat, factors, continuous=continuous, random_state=random_state) for metric in metrics)
    return Scores(score for one in found for score in one)
