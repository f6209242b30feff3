"""Recovery per level of a nuisance: within each level, in the pool of all, and in levels that were not fitted on."""

import numpy as np
import pytest
from pindown_papers.scores import recovery_across_levels

from pindown.errors import InputError
from pindown.metrics import recovery_by_level


def latents(n=400, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def rotated(a, degrees=120):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return a @ np.array([[c, s], [-s, c]])


def test_another_nonlinear_map_for_each_level_is_recovered_within_and_not_across():
    z, e = latents(3_000), np.arange(3_000) % 3
    hat = np.where((e == 0)[:, None], z, np.where((e == 1)[:, None], rotated(z), rotated(np.sinh(z) / 2, 240)))
    pooled, elsewhere = recovery_across_levels(hat, z, e)
    assert min(recovery_by_level(hat, z, e).values()) > 0.95
    assert pooled < 0.3
    assert elsewhere < 0


def test_one_map_for_all_levels_is_recovered_everywhere():
    z, e = latents(2_000), np.arange(2_000) % 2
    hat = rotated(np.sinh(z))
    assert min(*recovery_by_level(hat, z, e).values(), *recovery_across_levels(hat, z, e)) > 0.93


def test_an_independent_embedding_scores_nothing():
    hat, z, e = latents(2_000, seed=1), latents(2_000), np.arange(2_000) % 2
    assert max(*recovery_by_level(hat, z, e).values(), *recovery_across_levels(hat, z, e)) < 0.03


def test_what_an_embedding_lacks_is_missing_from_the_score():
    z, e = latents(2_000), np.arange(2_000) % 2
    assert list(recovery_by_level(z[:, :1], z, e).values()) == pytest.approx([0.5, 0.5], abs=0.05)


def test_scores_have_the_names_of_the_levels():
    z, e = latents(200), np.array(["left", "right"] * 100)
    assert set(recovery_by_level(z, z, e)) == {"left", "right"}


def test_one_level_has_no_others_and_rare_ones_raise():
    z = latents(100)
    for metric, e in ((recovery_across_levels, np.zeros(100)), (recovery_by_level, np.arange(100) % 7)):
        with pytest.raises(InputError) as raised:
            metric(z, z, e)
        assert raised.value.argument == "e"


@pytest.mark.parametrize("seed", [11, 14])
def test_samples_beyond_those_of_the_fit_do_not_decide_alone(seed):
    """A kernel regression that extrapolates wildly beyond its samples scored −.5 and −5.5 here."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(500, 1))
    hat = z + np.sin(2 * z) / 2 + 0.03 * rng.normal(size=z.shape)
    assert recovery_by_level(hat, z, np.zeros(500, dtype=int))[0] > 0.9
