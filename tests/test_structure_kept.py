"""Structure kept: a map per batch keeps all of it, an embedding that drops the data keeps none."""

import numpy as np
import pytest

from pindown.errors import InputError
from pindown.metrics import structure_kept


def rows(n=600, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), np.arange(n) % 3


def test_a_shift_per_level_and_a_rotation_keep_all():
    X, level = rows()
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6))).Q
    kept = structure_kept(X, (X + 9.0 * level[:, None]) @ rotation, level, random_state=0)
    assert kept.neighbours > 0.999
    assert kept.variance > 0.99


def test_unrelated_numbers_and_constants_keep_nothing():
    X, level = rows()
    for Z in (rows(seed=5)[0], np.zeros((600, 2)), 7.0 * level[:, None]):
        kept = structure_kept(X, Z, level, random_state=0)
        assert kept.is_empty
        assert kept.neighbours < 0.03
        assert kept.variance < 0.03


def test_structure_between_levels_alone_does_not_count():
    X, level = rows()
    assert structure_kept(X + 100.0 * level[:, None], level[:, None] + 0.0, level, random_state=0).is_empty


def test_variance_counts_features_in_units_of_their_spread():
    X, level = rows()
    assert structure_kept(X * [1e6, 1, 1, 1, 1, 1], X[:, :1], level, random_state=0).variance == pytest.approx(
        1 / 6, abs=0.02
    )


def test_images_are_flattened_and_levels_of_few_samples_are_left_out():
    X, level = rows()
    level = np.where(np.arange(600) < 5, 9, level)
    kept = structure_kept(X.reshape(600, 1, 2, 3), X, level, random_state=0)
    assert kept.n_samples == 595
    assert kept.neighbours == 1
    assert structure_kept(X[:6], X[:6], level[:6]).n_samples == 0


def test_arrays_of_other_lengths_raise():
    X, level = rows()
    with pytest.raises(InputError):
        structure_kept(X, X[:10], level)


def test_clusters_within_levels_count_and_many_features_are_compared_by_components():
    rng = np.random.default_rng(0)
    level, kind = np.arange(800) % 2, rng.integers(4, size=800)
    x = 6 * rng.normal(size=(4, 2))[kind] + rng.normal(size=(800, 2))
    kept = structure_kept(x, x + 9 * level[:, None], level, random_state=0)
    lost = structure_kept(x, rng.normal(size=(800, 2)), level, random_state=0)
    assert kept.clusters > 0.95
    assert lost.clusters < 0.1
    wide = x @ rng.normal(size=(2, 400)) + 3 * rng.normal(size=(800, 400))
    assert structure_kept(wide, wide, level, random_state=0).neighbours > 0.5  # noise of 370 directions is left out
    assert structure_kept(wide, x, level, random_state=0).variance > 0.5
