import numpy as np
import pytest
import torch

from pindown.data.batches import ShuffledBatches, pair_up


def rows(n):
    return np.arange(n, dtype=np.float64)[:, None]  # each row is its own number


def draws(pairing, times=50):
    generator = torch.Generator().manual_seed(0)
    everyone = torch.arange(len(pairing))
    taken = [torch.cat(pairing.take(everyone, generator), 1) for _ in range(times)]
    return torch.cat(taken).long().numpy()  # (times · n, 2): anchor, positive


def test_a_positive_array_pairs_row_with_row():
    assert {tuple(pair) for pair in draws(pair_up(rows(5), rows(5) + 100))} == {(i, i + 100) for i in range(5)}


def test_without_y_the_next_row_is_the_positive_and_the_last_row_has_none():
    assert {tuple(pair) for pair in draws(pair_up(rows(5), None))} == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_a_group_positive_is_any_other_row_of_the_group_and_no_row_else():
    groups = np.array([2, 0, 2, 1, 2, 0, 3])  # rows 0, 2, 4 together, 1 and 5 together, 3 and 6 alone
    drawn = {tuple(pair) for pair in draws(pair_up(rows(7), groups))}
    assert drawn == {(0, 2), (0, 4), (2, 0), (2, 4), (4, 0), (4, 2), (1, 5), (5, 1)}


def test_all_positives_in_a_group_are_equally_likely():
    # 5 rows, 4 others each: every pair comes about 5,000 / 20 = 250 times (± 15).
    groups = np.array([0, 0, 0, 0, 0, 1, 1])
    drawn = draws(pair_up(rows(7), groups), times=1_000)
    counts = np.bincount(drawn[drawn[:, 0] < 5] @ [5, 1], minlength=25).reshape(5, 5)
    assert np.diag(counts).max() == 0
    assert counts[~np.eye(5, dtype=bool)] == pytest.approx(250, abs=80)


def test_each_epoch_takes_every_row_at_most_once_in_a_new_order():
    epochs = ShuffledBatches(pair_up(rows(10), rows(10)), 3)  # three batches of three: one row is left out
    generator = torch.Generator().manual_seed(0)
    order = torch.cat([epochs(step, generator)[0] for step in range(6)]).flatten().tolist()
    first, second = order[:9], order[9:]
    assert len(set(first)) == len(set(second)) == 9
    assert first != second


def test_an_epoch_entered_in_the_middle_is_the_same_epoch():
    generator = torch.Generator().manual_seed(0)
    through = ShuffledBatches(pair_up(rows(10), rows(10)), 3)
    anchors = [through(step, generator)[0].tolist() for step in range(6)]
    resumed = ShuffledBatches(pair_up(rows(10), rows(10)), 3)
    assert resumed(4, generator)[0].tolist() == anchors[4]
    other = ShuffledBatches(pair_up(rows(10), rows(10)), 3)
    assert other(4, torch.Generator().manual_seed(1))[0].tolist() != anchors[4]
