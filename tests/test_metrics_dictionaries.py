"""Sparse dictionaries and feature activations: numbers derived by hand, what each score is blind to, and chance."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from pindown import metrics
from pindown.errors import InputError
from pindown.metrics import (
    by_frequency,
    chance_pw_mcc,
    dead_fraction,
    feature_mcc,
    firing,
    fvu,
    l0,
    match_atoms,
    matching_pursuit,
    pw_mcc,
)

RNG = np.random.default_rng(0)
ATOMS = RNG.normal(size=(20, 8))
ACTIVATIONS = RNG.normal(size=(400, 20)) * (RNG.random((400, 20)) < 0.2)


def test_order_and_length_of_atoms_do_not_matter_and_signs_do():
    order, lengths = RNG.permutation(20), RNG.uniform(0.1, 9, size=(20, 1))
    assert pw_mcc(ATOMS[order] * lengths, ATOMS) == pytest.approx(1)
    flipped = ATOMS * np.where(np.arange(20) < 10, 1, -1)[:, None]
    assert pw_mcc(flipped, ATOMS) < 0.9
    assert pw_mcc(flipped, ATOMS, signed=False) == pytest.approx(1)


def test_a_rotation_of_all_atoms_is_seen():
    rotated = ATOMS @ np.linalg.qr(RNG.normal(size=(8, 8)))[0]
    assert pw_mcc(rotated, ATOMS) < 0.9


def test_merged_atoms_are_found_once():
    pair = np.array([[1.0, 0.0], [0.6, 0.8]])
    assert pw_mcc(pair[:1], pair) == pytest.approx(0.5)  # 1 and nothing
    assert match_atoms(pair[:1], pair).matching.tolist() == [0, -1]


def test_many_atoms_are_matched_nearly_as_well_and_equal_ones_exactly(monkeypatch):
    noisy = ATOMS[RNG.permutation(20)] + 0.5 * RNG.normal(size=ATOMS.shape)
    exact = pw_mcc(noisy, ATOMS)
    monkeypatch.setattr(metrics.dictionaries, "EXACT", 7)
    assert exact - 0.05 < pw_mcc(noisy, ATOMS) <= exact + 1e-9
    assert sorted(match_atoms(noisy, ATOMS).matching) == list(range(20))
    order = RNG.permutation(20)
    assert np.array_equal(order[match_atoms(ATOMS[order], ATOMS).matching], np.arange(20))


def test_an_atom_without_a_direction_agrees_with_nothing():
    assert match_atoms(np.zeros((1, 3)), np.eye(3)[:1]).cosine.tolist() == [0.0]


@pytest.mark.parametrize(("k_hat", "signed"), [(12, True), (30, True), (12, False)])
def test_chance_is_what_random_directions_score(k_hat, signed):
    scores = [pw_mcc(RNG.normal(size=(k_hat, 6)), RNG.normal(size=(12, 6)), signed=signed) for _ in range(300)]
    level = chance_pw_mcc(12, 6, k_hat, signed=signed)
    error = np.std(scores) * math.sqrt(1 / 300 + 1 / 200)
    assert abs(np.mean(scores) - level) < 6 * error


def test_two_untrained_dictionaries_of_the_size_of_a_small_model_already_agree_by_a_sixth():
    assert chance_pw_mcc(1_024, 384) == pytest.approx(0.155, abs=0.01)


def test_bands_have_as_many_atoms_and_dead_ones_are_apart():
    often = np.array([0, 0, 0.1, 0.4, 0.2, 0.3])
    bands = by_frequency(np.arange(6.0), often, n_bands=2)
    assert [(band.low, band.high, band.n, band.mean) for band in bands] == [
        (0, 0, 2, 0.5),
        (0.1, 0.2, 2, 3.0),
        (0.3, 0.4, 2, 4.0),
    ]


@pytest.mark.parametrize("as_read", [np.asarray, csr_array, lambda values: torch.tensor(values, requires_grad=True)])
def test_activations_may_be_dense_sparse_or_tensors(as_read):
    fraction = (ACTIVATIONS != 0).mean(0)
    assert firing(as_read(ACTIVATIONS)) == pytest.approx(fraction)
    assert l0(as_read(ACTIVATIONS)) == pytest.approx(fraction.sum())
    assert dead_fraction(as_read(ACTIVATIONS * (np.arange(20) > 4))).fraction == 0.25


def test_stored_zeros_do_not_fire():
    stored = csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert l0(stored) == 1
    assert l0(stored.toarray()) == 1


def test_dead_features_come_with_their_window():
    activations = np.zeros((100, 4))
    activations[0, :3] = 1
    found = dead_fraction(activations)
    assert found.fraction == 0.25
    assert str(found) == "25.00% of 4 features are dead in 100 tokens"


def test_fvu_is_one_for_the_mean_and_blind_to_a_shift():
    x = RNG.normal(size=(50, 3)) * [1, 2, 3]
    assert fvu(x, np.broadcast_to(x.mean(0), x.shape)) == pytest.approx(1)
    assert fvu(x, x + 5) == pytest.approx(0, abs=1e-12)
    assert fvu(x, 0.5 * x) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("dictionary", lambda: pw_mcc(np.eye(3), np.eye(4))),
        ("dictionary", lambda: match_atoms([[np.nan, 1]], np.eye(2))),
        ("k", lambda: chance_pw_mcc(0, 3)),
        ("activations", lambda: feature_mcc(ACTIVATIONS, 0 * ACTIVATIONS)),
        ("x", lambda: fvu(np.ones((3, 2)), np.ones((3, 2)))),
        ("x_hat", lambda: fvu(np.ones((3, 2)), np.ones((2, 2)))),
        ("values", lambda: by_frequency([1.0, 2.0], [0.5])),
        ("activations", lambda: firing(csr_array(np.array([[np.inf]])))),
        ("atoms", lambda: matching_pursuit(np.ones((2, 3)), np.eye(2), 1)),
        ("k", lambda: matching_pursuit(np.ones((2, 3)), np.eye(3), 4)),
    ],
)
def test_bad_input_raises_and_names_the_argument(argument, call):
    with pytest.raises(InputError) as raised:
        call()
    assert raised.value.argument == argument


def test_all_scores_of_dictionaries_are_public():
    assert {"pw_mcc", "dead_fraction", "fvu", "l0"} <= set(metrics.__all__)
