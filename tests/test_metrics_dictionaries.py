"""Dictionaries and their codes: numbers derived by hand, what each score is blind to, and what chance scores."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from pindown import metrics
from pindown.metrics import (
    by_frequency,
    ce_recovered,
    chance_firing_f1,
    chance_mmcs,
    chance_pw_mcc,
    dead_fraction,
    firing,
    firing_f1,
    fvu,
    l0,
    match_atoms,
    mmcs,
    pw_mcc,
)

RNG = np.random.default_rng(0)
ATOMS = RNG.normal(size=(20, 8))
CODES = RNG.normal(size=(400, 20)) * (RNG.random((400, 20)) < 0.2)


@pytest.mark.parametrize("score", [pw_mcc, mmcs])
def test_order_and_length_of_atoms_do_not_matter_and_signs_do(score):
    order, lengths = RNG.permutation(20), RNG.uniform(0.1, 9, size=(20, 1))
    assert score(ATOMS[order] * lengths, ATOMS) == pytest.approx(1)
    flipped = ATOMS * np.where(np.arange(20) < 10, 1, -1)[:, None]
    assert score(flipped, ATOMS) < 0.9
    assert score(flipped, ATOMS, signed=False) == pytest.approx(1)


@pytest.mark.parametrize("score", [pw_mcc, mmcs])
def test_a_rotation_of_all_atoms_is_seen(score):
    turned = ATOMS @ np.linalg.qr(RNG.normal(size=(8, 8)))[0]
    assert score(turned, ATOMS) < 0.9


def test_merged_atoms_are_found_once_by_a_matching_and_twice_by_the_largest_cosine():
    pair = np.array([[1.0, 0.0], [0.6, 0.8]])
    assert mmcs(pair[:1], pair) == pytest.approx(0.8)  # 1 and .6
    assert pw_mcc(pair[:1], pair) == pytest.approx(0.5)  # 1 and nothing
    assert match_atoms(pair[:1], pair).partner.tolist() == [0, -1]


def test_many_atoms_are_matched_nearly_as_well_and_those_that_are_the_same_exactly(monkeypatch):
    noisy = ATOMS[RNG.permutation(20)] + 0.5 * RNG.normal(size=ATOMS.shape)
    exact = pw_mcc(noisy, ATOMS)
    monkeypatch.setattr(metrics.dictionaries, "EXACT", 7)
    assert exact - 0.05 < pw_mcc(noisy, ATOMS) <= exact + 1e-9
    assert sorted(match_atoms(noisy, ATOMS).partner) == list(range(20))
    order = RNG.permutation(20)
    assert np.array_equal(order[match_atoms(ATOMS[order], ATOMS).partner], np.arange(20))


def test_an_atom_without_a_direction_agrees_with_nothing():
    assert match_atoms(np.zeros((1, 3)), np.eye(3)[:1]).cosine.tolist() == [0.0]


@pytest.mark.parametrize(("metric", "chance"), [(pw_mcc, chance_pw_mcc), (mmcs, chance_mmcs)])
@pytest.mark.parametrize(("k_hat", "signed"), [(12, True), (30, True), (12, False)])
def test_chance_is_what_random_directions_score(metric, chance, k_hat, signed):
    scores = [metric(RNG.normal(size=(k_hat, 6)), RNG.normal(size=(12, 6)), signed=signed) for _ in range(300)]
    level = chance(12, 6, k_hat, signed=signed)
    error = np.std(scores) * math.sqrt(1 / 300 + 1 / 200)
    assert abs(np.mean(scores) - level) < 6 * error


def test_two_untrained_dictionaries_of_the_size_of_a_small_model_already_agree_by_a_sixth():
    assert chance_pw_mcc(1_024, 384) == pytest.approx(0.155, abs=0.01)


def test_bands_have_as_many_atoms_and_silent_ones_stand_alone():
    often = np.array([0, 0, 0.1, 0.4, 0.2, 0.3])
    bands = by_frequency(np.arange(6.0), often, n_bands=2)
    assert [(band.low, band.high, band.n, band.mean) for band in bands] == [
        (0, 0, 2, 0.5),
        (0.1, 0.2, 2, 3.0),
        (0.3, 0.4, 2, 4.0),
    ]


@pytest.mark.parametrize("as_read", [np.asarray, csr_array, lambda codes: torch.tensor(codes, requires_grad=True)])
def test_codes_may_be_dense_sparse_or_tensors(as_read):
    share = (CODES != 0).mean(0)
    assert firing(as_read(CODES)) == pytest.approx(share)
    assert l0(as_read(CODES)) == pytest.approx(share.sum())
    assert firing_f1(as_read(CODES), as_read(CODES), np.arange(20)) == 1
    assert dead_fraction(as_read(CODES * (np.arange(20) > 4))).share == 0.25


def test_stored_zeros_do_not_fire():
    stored = csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert l0(stored) == 1
    assert l0(stored.toarray()) == 1


def test_f1_sees_rows_that_are_missed_and_rows_too_many_but_not_strength():
    true, order = (CODES != 0).astype(float), np.arange(20)
    assert firing_f1(7 * true, true, order) == 1
    half = true * (np.arange(400) < 200)[:, None]
    hits, all_ = half.sum(0), true.sum(0)
    assert firing_f1(half, true, order) == pytest.approx((2 * hits / (hits + all_)).mean())
    assert firing_f1(half, true, order) == pytest.approx(firing_f1(true, half, order), abs=1e-9)


def test_a_code_that_nothing_stands_for_counts_as_zero_and_one_that_never_fires_not_at_all():
    true = np.array([[1, 0, 1], [1, 0, 0]])
    assert firing_f1(true, true, [0, 1, -1]) == 0.5


def test_chance_of_f1_is_that_of_codes_that_fire_elsewhere():
    order, true = np.arange(20), CODES != 0
    elsewhere = [firing_f1(true[RNG.permutation(400)], true, order) for _ in range(200)]
    level = chance_firing_f1(firing(true), firing(true), order)
    assert abs(np.mean(elsewhere) - level) < 5 * np.std(elsewhere) / math.sqrt(200) + 0.003  # of the ratio's bend
    assert level == pytest.approx(firing(true).mean())


def test_dead_comes_with_its_window_and_with_what_chance_leaves_silent():
    codes = np.zeros((100, 4))
    codes[0, :3] = 1
    found = dead_fraction(codes, frequency=[0.01] * 4)
    assert found.share == 0.25
    assert found.by_chance == pytest.approx(0.99**100)
    assert str(found) == "25.00% of 4 codes are silent in 100 tokens (by chance 36.60%)"


def test_fvu_is_one_for_the_mean_and_blind_to_a_shift():
    x = RNG.normal(size=(50, 3)) * [1, 2, 3]
    assert fvu(x, np.broadcast_to(x.mean(0), x.shape)) == pytest.approx(1)
    assert fvu(x, x + 5) == pytest.approx(0, abs=1e-12)
    assert fvu(x, 0.5 * x) == pytest.approx(0.25)


def test_cross_entropy_recovered_is_one_at_no_loss_and_zero_at_no_layer():
    assert [ce_recovered(ce, 2.0, 4.0) for ce in (2.0, 4.0, 5.0)] == [1.0, 0.0, -0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pw_mcc(np.eye(3), np.eye(4)),
            "pw_mcc|match_atoms: atoms of dictionary have 3 entries, those of other 4",
        ),
        (lambda: mmcs([[np.nan, 1]], np.eye(2)), "mmcs: dictionary is not finite in 1 row"),
        (lambda: chance_pw_mcc(0, 3), "chance_pw_mcc: k must be at least 1, got 0"),
        (lambda: firing_f1(CODES[:5], CODES, np.arange(20)), "codes_hat has 5 rows and codes has 400"),
        (lambda: firing_f1(CODES, CODES, np.arange(19)), "partner must have a column of codes_hat"),
        (lambda: firing_f1(CODES, 0 * CODES, np.arange(20)), "no code fires in these rows"),
        (lambda: fvu(np.ones((3, 2)), np.ones((3, 2))), "all rows of x are the same"),
        (lambda: fvu(np.ones((3, 2)), np.ones((2, 2))), "x has shape"),
        (lambda: by_frequency([1.0, 2.0], [0.5]), "one number for each atom"),
        (lambda: ce_recovered(3.0, 4.0, 4.0), "the model does not need this layer"),
        (lambda: firing(csr_array(np.array([[np.inf]]))), "firing: codes is not finite"),
    ],
)
def test_bad_input_is_named_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_all_scores_of_dictionaries_are_public():
    assert {"pw_mcc", "mmcs", "firing_f1", "dead_fraction", "fvu", "l0", "ce_recovered"} <= set(metrics.__all__)
