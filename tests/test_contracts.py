"""Scikit-learn's own checks of every estimator, with no exemption."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from pindown import Classify, Contrast, Dictionary, Forget, Sparse, SparseBasis, networks
from pindown.methods.forget import LinearErasure
from pindown.networks.spaces import Reals
from pindown.training import Trainer

QUICK = [
    Classify(
        space=Reals(),
        vector_space=Reals(),
        scale=1.0,
        trainer=Trainer(validation_fraction=0),
        max_iter=60,
        device="cpu",
    ),
    Contrast(
        space=Reals(),
        p=1,
        temperature=0.5,
        trainer=Trainer(validation_fraction=0),
        batch_size=2,
        max_iter=20,
        device="cpu",
    ),
    Dictionary(penalty=None, n_restarts=1, max_iter=10, batch_size=2, device="cpu"),
    Forget(max_iter=10),
    Sparse(max_iter=3),
    SparseBasis(max_iter=3),
    LinearErasure(),
]
SLOW = [
    Classify(max_iter=20),
    Contrast(max_iter=5),
    Dictionary(n_restarts=2, max_iter=10, device="cpu"),  # a GPU repeats a fit to a hundredth only
    Forget(encoder=networks.linear, strength=0.5, batch_size=2, max_iter=10, device="cpu"),
]


def checks(estimators, *marks):
    """List checks with names that are equal in all processes: those of parametrize_with_checks hold addresses."""
    return [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}-{check.func.__name__}", marks=marks)
        for each in estimators
        for estimator, check in estimator_checks_generator(each)
    ]


# Some checks set n_components=1, of which the sphere warns; some have two classes, which pin down no two latents.
@pytest.mark.filterwarnings("ignore:Contrast. n_components=1 on the sphere:UserWarning")
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize(("estimator", "check"), [*checks(QUICK), *checks(SLOW, pytest.mark.slow)])
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)
