"""Scikit-learn's own checks of every estimator, with no exemption."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pindown import Contrast
from pindown.spaces import Reals

ESTIMATORS = [
    Contrast(max_iter=20),
    Contrast(space=Reals(), p=1, temperature=0.5, batch_size=2, max_iter=20, device="cpu"),
]


# Some checks set n_components=1, of which the sphere warns.
@pytest.mark.filterwarnings("ignore:Contrast. n_components=1 on the sphere:UserWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)
