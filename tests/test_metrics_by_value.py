"""Recovery per value of a nuisance: within each value, in the pool of all, and in values that were not fitted on."""

import numpy as np
import pytest

from pindown.metrics import recovery_across_levels, recovery_by_level


def codes(n=400, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def turned(a, degrees=120):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return a @ np.array([[c, s], [-s, c]])


def test_a_code_that_bends_differently_for_each_value_is_recovered_within_and_not_across():
    z, e = codes(3_000), np.arange(3_000) % 3
    hat = np.where((e == 0)[:, None], z, np.where((e == 1)[:, None], turned(z), turned(np.sinh(z) / 2, 240)))
    pooled, elsewhere = recovery_across_levels(hat, z, e)
    assert min(recovery_by_level(hat, z, e).values()) > 0.95
    assert pooled < 0.3
    assert elsewhere < 0


def test_a_unified_code_is_recovered_everywhere():
    z, e = codes(2_000), np.arange(2_000) % 2
    hat = turned(np.sinh(z))
    assert min(*recovery_by_level(hat, z, e).values(), *recovery_across_levels(hat, z, e)) > 0.93


def test_a_code_that_knows_nothing_scores_nothing():
    hat, z, e = codes(2_000, seed=1), codes(2_000), np.arange(2_000) % 2
    assert max(*recovery_by_level(hat, z, e).values(), *recovery_across_levels(hat, z, e)) < 0.03


def test_what_a_code_lost_is_missing_from_the_score():
    z, e = codes(2_000), np.arange(2_000) % 2
    assert list(recovery_by_level(z[:, :1], z, e).values()) == pytest.approx([0.5, 0.5], abs=0.05)


def test_scores_have_the_names_of_the_values():
    z, e = codes(200), np.array(["left", "right"] * 100)
    assert set(recovery_by_level(z, z, e)) == {"left", "right"}


def test_one_value_has_no_others_and_rare_ones_are_refused():
    z = codes(100)
    with pytest.raises(ValueError, match=r"recovery_across_levels: e has one value only.*Give two or more"):
        recovery_across_levels(z, z, np.zeros(100))
    with pytest.raises(ValueError, match=r"recovery_by_level \(e = 0\): 15 rows are too few, 20 are needed"):
        recovery_by_level(z, z, np.arange(100) % 7)


@pytest.mark.parametrize("seed", [11, 14])
def test_rows_beyond_those_of_the_fit_do_not_decide_alone(seed):
    """A kernel regression that runs wild beyond its rows scored −.5 and −5.5 here."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(500, 1))
    hat = z + np.sin(2 * z) / 2 + 0.03 * rng.normal(size=z.shape)
    assert recovery_by_level(hat, z, np.zeros(500, dtype=int))[0] > 0.9
