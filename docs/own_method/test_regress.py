"""Fifth file: a pair of tests, and scikit-learn's. Assumptions hold and latents are recovered; one breaks, and not."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from own_method.regress import Regress
from own_method.table import drawn
from own_method.theory import REGRESS
from pindown.metrics import linear_r2

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]


def recovery(n_targets: int, seed: int) -> tuple[float, float]:
    """Held-out R² of the observations themselves, and of the codes."""
    train, test = (drawn(4, n_targets=n_targets, n=5_000, seed=seed, part=part) for part in (0, 1))
    regress = Regress(4, max_iter=200, verbose=False, random_state=seed).fit(train.x, train.y)
    return linear_r2(test.x, test.z), linear_r2(regress.transform(test.x), test.z)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_targets_than_latents_recover_them_up_to_an_affine_map(seed):
    linear, recovered = recovery(8, seed)
    assert linear < 0.93 < 0.96 < recovered


@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_targets_than_latents_do_not(seed):
    _, recovered = recovery(REGRESS.diversity.needed(4) - 2, seed)
    assert 1 - recovered > 0.03


@pytest.mark.parametrize(
    ("estimator", "check"),
    [pytest.param(*pair, id=pair[1].func.__name__) for pair in estimator_checks_generator(Regress(max_iter=5))],
)
def test_scikit_learns_contract_is_kept(estimator, check):
    check(estimator)
