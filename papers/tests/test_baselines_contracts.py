"""Scikit-learn's own checks of the baselines, with no exemption. `EncDiff` takes images only, so none of them apply."""

import pytest
from pindown_papers.baselines import AdaGVAE, BetaVAE, DisCo, FactorVAE, Flow, SlowVAE
from sklearn.utils.estimator_checks import estimator_checks_generator

ESTIMATORS = [
    BetaVAE(max_iter=2),
    FactorVAE(max_iter=2),
    AdaGVAE(max_iter=2),
    SlowVAE(max_iter=2),
    DisCo(max_iter=2),
    Flow(max_iter=2),
]

# Not parametrize_with_checks: its names hold the addresses of functions, and differ between processes.
CHECKS = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}")
    for each in ESTIMATORS
    for estimator, check in estimator_checks_generator(each)
]


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)
