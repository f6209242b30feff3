"""Matched distributions of the latents of several levels, without pairs."""

import numpy as np
import pytest
from pindown_papers.matching import DistributionMatcher

from pindown.errors import InputError
from pindown.methods.alignment import PolynomialRidge, align
from pindown.metrics import Effort, leakage


def latents(n=400, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def two_distributions(n=1_000, seed=0):
    """Return latents with covariance I, of one level Laplace and of the other uniform."""
    rng = np.random.default_rng(seed)
    return {"peaked": rng.laplace(size=(n, 3)) / 2**0.5, "uniform": rng.uniform(-(3**0.5), 3**0.5, size=(n, 3))}


def probed(made, seed):
    level = np.repeat(list(made), [len(part) for part in made.values()])
    effort = Effort(n_permutations=19)
    return leakage(np.concatenate(list(made.values())), level, probes=["kernel"], effort=effort, random_state=seed)


def test_matched_distributions_hide_the_level_of_other_samples_and_keep_the_structure():
    # Over twenty seeds a kernel probe scores .683 ± .014 before and .541 ± .014 after; linear R² .966 ± .003.
    matcher = DistributionMatcher(random_state=0).fit(two_distributions(seed=0))
    other = two_distributions(seed=1)
    made = matcher.transform(other)
    assert probed(other, 0).worst > 0.63
    assert probed(made, 0).worst < 0.63
    for level, part in made.items():
        assert PolynomialRidge().fit(part, other[level]).score(part, other[level]) > 0.955
    back = matcher.inverse_transform(made)
    for level, part in back.items():
        np.testing.assert_allclose(part, other[level], atol=1e-6)


def test_no_rounds_whiten_only():
    skewed = {level: part @ [[2, 1, 0], [0, 1, 0], [0, 0, 3]] + 5 for level, part in two_distributions().items()}
    matcher = DistributionMatcher(0).fit(skewed)
    made = matcher.transform(skewed)
    for part in made.values():
        np.testing.assert_allclose(part.mean(0), 0, atol=1e-9)
        np.testing.assert_allclose(np.cov(part.T), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(matcher.inverse_transform(made)["peaked"], skewed["peaked"])
    assert probed(made, 0).worst > 0.63


def test_aligned_latents_stay_aligned():
    same = latents(1_000, 3)
    aligned = {"a": same + 0.1 * latents(1_000, 3, seed=1), "b": same + 0.1 * latents(1_000, 3, seed=2)}
    made = DistributionMatcher(random_state=0).fit(aligned).transform(aligned)
    assert align(made["a"], made["b"], n_pairs=(0,)).at(0).r2 > 0.975  # .982 ± .001: 1 − 2 · .01 of noise, as before


def test_latents_without_a_distribution_are_refused():
    good = two_distributions(200)
    matcher = DistributionMatcher(2).fit(good)
    with pytest.raises(TypeError):
        DistributionMatcher().fit(good["peaked"])
    with pytest.raises(ValueError, match="n_rounds"):
        DistributionMatcher(-1).fit(good)
    for bad in (
        {"peaked": good["peaked"]},
        good | {"uniform": good["uniform"][:, :2]},
        good | {"uniform": good["uniform"][:50]},
        good | {"uniform": np.ones((200, 3))},
    ):
        with pytest.raises(InputError):
            DistributionMatcher().fit(bad)
    for bad in ({"Jaco": good["peaked"]}, {"peaked": good["peaked"][:, :2]}):
        with pytest.raises(InputError):
            matcher.transform(bad)
