import numpy as np
import torch
from pindown_papers.simulations import separation, well_separated
from scipy import stats

from pindown import theory
from pindown.simulate import Structured
from pindown.simulate.distributions import Uniform

SUPPORT = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])


def test_structured_simulations_have_standard_normal_latents_and_the_given_support():
    process = Structured.from_support(SUPPORT, random_state=0)
    x, z, *_ = process.sample(50_000, random_state=0)
    assert np.array_equal(process.support, SUPPORT)
    torch.testing.assert_close(process.mixing(z), x)
    torch.testing.assert_close(z.T.cov(), torch.eye(3), atol=0.02, rtol=0)
    assert stats.kstest(z[:, 0].numpy(), stats.norm.cdf).pvalue > 0.01
    moved = process.mixing(z + torch.tensor([1.0, 0.0, 0.0])) != x
    assert np.array_equal(moved.all(0).numpy(), SUPPORT[:, 0] == 1)


def test_structured_simulations_claim_independent_latents_only_where_they_are():
    independent = {theory.POSITIVE_DENSITY, theory.INDEPENDENT_BLOCKS}
    process = Structured.from_support(SUPPORT, random_state=0)
    assert process.assumptions >= independent
    assert not Structured(process.mixing, Uniform(3)).assumptions & independent


def test_structured_simulations_claim_sufficient_nonlinearity_only_where_no_variable_is_nearly_linear():
    processes = [Structured.from_support(np.ones((6, 4)), random_state=seed) for seed in range(20)]
    curved = [bool(process.nonlinearity().min() >= 0.05) for process in processes]
    assert [theory.SUFFICIENT_NONLINEARITY in process.assumptions for process in processes] == curved
    assert any(curved)
    assert not all(curved)


def test_simulations_in_which_distant_latents_look_alike_are_passed_over():
    support = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]
    any_, apart = (
        [well_separated(support, least, random_state=300 + k) for k in range(n)] for least, n in ((0.0, 6), (0.2, 2))
    )
    assert min(map(separation, any_)) < 0.2 <= min(map(separation, apart))
    assert min(process.injectivity() for process in any_) >= 0.1  # which looks at each point by itself
