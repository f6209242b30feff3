"""Scikit-learn's own checks of every estimator, with no exemption."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pindown import Contrast
from pindown.spaces import Reals

# In the reals: some checks set n_components=1, and on the sphere that is an error (there are two points).
ESTIMATORS = [
    Contrast(space=Reals(), max_iter=20, device="cpu"),
    Contrast(space=Reals(), p=1, temperature=0.5, batch_size=2, max_iter=20, device="cpu"),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)


def test_the_reason_for_the_reals_is_true():
    with pytest.raises(ValueError, match="on the sphere leaves only the two points"):
        Contrast(n_components=1).fit([[0.0], [1.0], [2.0]])
