r"""Disentanglement: scores of an embedding ``z_hat`` (n, d_hat) against known factors (n, d), with their chance levels.

================ =========================================== ============================================
metric           asks whether                                hardly sees
================ =========================================== ============================================
`beta_vae`       pairs that share a factor reveal which      rotations
`factor_vae`     the steadiest latent reveals which          **rotations**: never alone
`mig`            one latent is more informative than others  what several latents contain together
`modularity`     a latent has information on one factor only what no latent contains; **noise**: never alone
`explicitness`   linear probes predict every level           rotations
`sap`            one latent predicts a factor better         nonlinear latents
`dci`            latents and factors belong to each other    (a booster decides: it is part of the definition)
`irs`            a latent stays while its factor is fixed    what no latent contains
`infomec`        as `modularity` and `explicitness`          modularity: what no latent contains
`udr`            several fits agree on axes; no factors      what all fits get wrong
================ =========================================== ============================================

Each returns a `Score` (or `DCI`, `InfoMEC`, which have three): its value, what *noise* of as many dimensions scores on
the same samples, and what a *random rotation of the true factors* does. Factors are labels if they are whole numbers
and quantities if they have fractional parts, unless ``continuous`` says otherwise. Columns of ``z_hat`` that are
constant are left out first. `scores` has all except `udr` in one table. The definitions are numbered (`DEFINITION`):
the same arrays and ``random_state`` give the same number until it grows. Samples are assumed to be independent.

>>> import numpy as np
>>> factors = np.random.default_rng(0).integers(0, 4, size=(1_000, 3))
>>> print(mig(factors, factors))
mig 0.9... (noise 0.0..., rotated factors 0.1...)
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from pindown.metrics.arrays import RandomState
from pindown.metrics.disentanglement.information import EqualWidth, Information, Nearest, infomec, mig, modularity
from pindown.metrics.disentanglement.predictability import dci, explicitness, sap
from pindown.metrics.disentanglement.scoring import DCI, DEFINITION, Continuous, InfoMEC, Score, Scores
from pindown.metrics.disentanglement.shared_factors import beta_vae, factor_vae, irs, udr

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
    z_hat: ArrayLike, factors: ArrayLike, *, continuous: Continuous = None, random_state: RandomState = 0
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
