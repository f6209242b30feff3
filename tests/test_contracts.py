"""Scikit-learn's own checks of every estimator, with no exemption."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from pindown import Classify, Contrast, Dictionary, Forget, Sparse, SparseBasis, networks
from pindown.baselines import BetaVAE, FactorVAE, Flow
from pindown.spaces import Reals

ESTIMATORS = [
    BetaVAE(max_iter=3),
    FactorVAE(max_iter=2),
    Flow(max_iter=2),
    Classify(max_iter=20),
    Classify(space=Reals(), vector_space=Reals(), scale=1.0, holdout=0, max_iter=60, device="cpu"),
    Contrast(max_iter=5),
    Contrast(space=Reals(), p=1, temperature=0.5, holdout=0, batch_size=2, max_iter=20, device="cpu"),
    Dictionary(n_restarts=2, max_iter=10, device="cpu"),  # a GPU repeats a fit to a hundredth only
    Dictionary(penalty=None, n_restarts=1, max_iter=10, batch_size=2, device="cpu"),
    Forget(max_iter=10),
    Forget(encoder=networks.linear, strength=0.5, charts=False, batch_size=2, max_iter=10, device="cpu"),
    Sparse(max_iter=3),
    SparseBasis(max_iter=3),
]

# Not parametrize_with_checks: its names hold the addresses of functions, and differ between processes.
CHECKS = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}{number}-{check.func.__name__}")
    for number, each in enumerate(ESTIMATORS)
    for estimator, check in estimator_checks_generator(each)
]


# Some checks set n_components=1, of which the sphere warns; some have two classes, which pin down no two latents.
@pytest.mark.filterwarnings("ignore:Contrast. n_components=1 on the sphere:UserWarning")
@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)
