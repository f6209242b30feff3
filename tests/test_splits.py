"""Related samples are never on both sides of a split."""

import time

import numpy as np
import pytest

from pindown.data.data import Data
from pindown.data.splits import FOLDS, MAX_HELD_OUT, assign_folds, divided, hold_out, keep_strata, runs, taken

RNG = np.random.default_rng(0)


def sides(data, **kinds):
    found = divided(data, fraction=0.1, seed=0, **kinds)
    for each in found:
        assert len(np.intersect1d(each.learned, each.held_out)) == 0
        assert np.isin(each.compared, each.learned).all()
    return found


def test_a_tenth_is_kept_back_and_never_more_than_two_thousand():
    assert [len(sides(Data(np.zeros((n, 1))))[0].held_out) for n in (1_000, 5_000, 100_000)] == [100, 500, MAX_HELD_OUT]


def test_few_rows_are_each_held_out_once_and_next_to_none_not_at_all():
    folds = sides(Data(np.zeros((178, 2))))
    assert len(folds) == FOLDS
    assert sorted(np.concatenate([each.held_out for each in folds])) == list(range(178))
    assert sides(Data(np.zeros((19, 2)))) == ()
    assert divided(Data(np.zeros((5_000, 2))), fraction=0, seed=0) == ()


@pytest.mark.parametrize("n", [300, 3_000])
def test_groups_stay_whole(n):
    groups = np.arange(n) // (n // 10)
    for each in sides(Data(RNG.normal(size=(n, 2)), pairs="next", groups=groups), paired=True):
        assert len(np.intersect1d(groups[each.learned], groups[each.held_out])) == 0


@pytest.mark.parametrize("n", [400, 4_000])
def test_positives_stay_together(n):
    for each in sides(Data(RNG.normal(size=(n, 2)), pairs=np.arange(n) // 4), paired=True):
        assert len(np.intersect1d(each.learned // 4, each.held_out // 4)) == 0


def test_of_few_large_groups_of_positives_both_sides_have_rows():
    labels = np.arange(2_000) % 5
    (only,) = sides(Data(RNG.normal(size=(2_000, 2)), pairs=labels), paired=True)
    assert np.bincount(labels[only.held_out], minlength=5).min() > 10


@pytest.mark.parametrize("given", [None, "next", "array"])
def test_rows_in_an_order_are_held_out_in_stretches(given):
    X = RNG.normal(size=(5_000, 2))
    pairs = np.roll(X, -1, axis=0) if given == "array" else given
    (only,) = sides(Data(X, pairs=pairs), paired=True)
    assert len(np.unique(runs(only.held_out))) <= 6


def test_each_class_has_rows_to_learn_from():
    labels = np.repeat(np.arange(700), [1, 2, 3, 1, 2, 3, 2] * 100)
    (only,) = sides(Data(np.zeros((len(labels), 1)), signal=labels), labelled=True)
    assert len(np.unique(labels[only.learned])) == 700
    for each in sides(Data(np.zeros((60, 1)), signal=np.arange(60) // 2), labelled=True):
        assert len(np.unique(each.learned // 2)) == 30


def test_rows_that_were_taken_have_no_next_row_that_did_not_follow():
    some = taken(Data(np.arange(9.0)[:, None]), np.array([0, 1, 5, 6, 7]), paired=True)
    assert (some.pairs - some.X == 1).all()


def test_folds_have_equal_parts_of_each_stratum_and_as_many_rows_whatever_the_size_of_units():
    strata = np.repeat([0, 1], [30, 60])
    fold = assign_folds(np.arange(90), 3, RNG, strata)
    assert np.bincount(3 * strata + fold).tolist() == [10] * 3 + [20] * 3
    units = np.repeat(np.arange(9), [6, 2, 2, 2, 9, 3, 3, 3, 3])  # three of the first stratum make up for one
    fold = assign_folds(units, 2, RNG, np.repeat([0, 1], [12, 21]))
    assert all(len(set(fold[units == unit])) == 1 for unit in range(9))
    assert np.bincount(fold[:12]).tolist() == [6, 6]
    assert sorted(np.bincount(fold[12:])) == [9, 12]


def test_what_a_fold_would_take_whole_stays_with_those_to_learn_from():
    assert keep_strata(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0])).tolist() == [0, 0, -1, 1]


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25, 0.3, 0.5])
@pytest.mark.parametrize("n_groups", [2_000, 100, 2_001])
def test_about_the_fraction_is_held_out_in_whole_groups_and_evenly_in_strata(fraction, n_groups):
    strata = np.arange(2_001) % 3
    groups = np.arange(2_001) % n_groups if n_groups < 2_001 else np.arange(2_001)
    held = hold_out(groups, fraction, np.random.default_rng(0), strata)
    assert held.mean() == pytest.approx(fraction, rel=0.1)
    assert not set(groups[held]) & set(groups[~held])
    assert np.bincount(strata[held]) / np.bincount(strata) == pytest.approx(fraction, rel=0.35)


@pytest.mark.parametrize(("groups", "strata"), [(np.zeros(9, int), None), (np.arange(9) // 3, np.arange(9) // 3)])
def test_nothing_is_held_out_where_nothing_would_be_left_to_learn_from(groups, strata):
    assert not hold_out(groups, 0.3, np.random.default_rng(0), strata).any()


def test_which_samples_are_held_out_follows_from_the_seed_and_is_independent_of_them():
    groups = np.arange(400) // 2
    first, again, other = (hold_out(groups, 0.25, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first & other).mean() == pytest.approx(1 / 16, abs=0.03)


def test_many_groups_are_split_in_time():
    groups, strata = np.random.default_rng(0).integers(30_000, size=60_000), np.arange(60_000) % 10
    started = time.perf_counter()
    held = hold_out(np.unique(groups, return_inverse=True)[1], 0.1, np.random.default_rng(0), strata)
    assert time.perf_counter() - started < 5
    assert np.bincount(strata[held]) / np.bincount(strata) == pytest.approx(0.1, rel=0.15)
