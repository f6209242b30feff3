"""Datasets and loaders as sources: what items may be, whose chance they use, and what is said of bad ones."""

import itertools

import numpy as np
import pytest
import torch
from sourcing import N, labels, rows
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pindown.data import DatasetSource, LoaderSource, as_source, moments

# Loaders fork their workers, which Python 3.12 warns of in a process with threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Listed(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Streamed(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class Noisy(Dataset):
    """Another view of an item whenever it is asked for."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return i + torch.rand(2)


class Twice(Listed):
    asked = 0

    def __getitems__(self, which):
        self.asked += 1
        return [self.items[i] for i in which]


def test_items_may_be_named_by_order_or_by_key():
    parts = DatasetSource(Listed([(1.0, "a", 7)] * 3), roles=("x", "signal", None)).take(np.array([0]))
    assert {name: part.tolist() for name, part in parts.items()} == {"x": [1.0], "signal": ["a"]}
    keys = DatasetSource(Listed([{"image": 2.0, "site": 3}] * 3), roles={"image": "x", "site": "nuisance"})
    assert {name: part.tolist() for name, part in keys.take(np.array([1])).items()} == {"x": [2.0], "nuisance": [3]}


def test_a_dataset_that_gives_several_items_at_once_is_called_once():
    data = Twice(list(rows()))
    source = DatasetSource(data)
    data.asked = 0
    np.testing.assert_array_equal(source.take(np.array([4, 2]))["x"], rows()[[4, 2]])
    assert data.asked == 1


def test_a_loader_keeps_its_batches_workers_and_sampler_and_gives_the_requested_size():
    loader = DataLoader(
        TensorDataset(torch.arange(20.0)), batch_size=6, num_workers=1, sampler=range(19, -1, -1), drop_last=True
    )
    source = LoaderSource(loader)
    assert source.n_samples == 18
    blocks = [batch["x"].tolist() for batch in source.blocks(5)]
    assert [len(block) for block in blocks] == [5, 5, 5, 3]
    assert [*itertools.chain(*blocks)] == list(range(19, 1, -1))


def test_a_stream_does_not_say_how_long_it_is():
    endless = Streamed(itertools.repeat(torch.zeros(2)))
    assert as_source(endless).n_samples is None
    assert as_source(DataLoader(endless, batch_size=4)).n_samples is None
    assert len(next(as_source(endless).blocks(50))["x"]) == 50
    assert moments(as_source(endless), n_samples=70).n == 70


@pytest.mark.parametrize(
    "make",
    [
        lambda: DatasetSource(Noisy()),
        lambda: LoaderSource(DataLoader(Noisy(), batch_size=5)),
        lambda: LoaderSource(DataLoader(Noisy(), batch_size=5, shuffle=True)),
        lambda: LoaderSource(DataLoader(Noisy(), batch_size=5, shuffle=True, num_workers=1)),
    ],
)
def test_chance_in_a_dataset_is_not_the_process_s_own_and_the_same_for_every_fresh_source(make):
    before = torch.get_rng_state()
    one = [batch["x"] for batch in make().blocks(4)]
    torch.rand(7)  # another state of the process's generator
    other = [batch["x"] for batch in make().blocks(4)]
    torch.set_rng_state(before)
    list(make().blocks(4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.cat(one), torch.cat(other))
    views = torch.cat(one).frac()
    assert len(views.unique()) > 20  # and no view is shown twice


def shuffled(**settings):
    return LoaderSource(DataLoader(TensorDataset(torch.arange(50.0)), batch_size=5, shuffle=True, **settings))


@pytest.mark.parametrize(
    "settings", [{}, {"generator": torch.Generator().manual_seed(0)}], ids=["", "its own generator"]
)
def test_a_loader_that_shuffles_has_a_new_order_in_every_epoch(settings):
    one, other = (next(epoch)["x"] for epoch in itertools.islice(shuffled(**settings).epochs(50), 2))
    assert not torch.equal(one, other)
    assert torch.equal(one.sort()[0], other.sort()[0])


def test_the_orders_of_epochs_are_the_same_in_every_fit():
    source = shuffled()
    one, other = ([next(epoch)["x"] for epoch in itertools.islice(source.epochs(50), 3)] for _ in range(2))
    assert torch.equal(torch.stack(one), torch.stack(other))


def changing(n=8):
    return [torch.zeros(3, 4 if i < 5 else 6) for i in range(n)]


def with_nan(n=80):
    items = [torch.zeros(2, 3) for _ in range(n)]
    items[71][1, 2] = float("nan")
    return items


SHAPES = r"has shape \(3, 6\), the first one \(3, 4\)"
NAN = "Sample 71 of x has NaN or infinity"
BAD = {
    "dataset, shapes": (lambda: DatasetSource(Listed(changing())), f"Item 5 {SHAPES}"),
    "stream, shapes": (lambda: LoaderSource(Streamed(changing())), f"Item 5 {SHAPES}"),
    "loader, shapes of batches": (
        lambda: LoaderSource(DataLoader(Listed(changing(10)), batch_size=5)),
        f"Item 5 {SHAPES}",
    ),
    "dataset, NaN": (lambda: DatasetSource(Listed(with_nan())), NAN),
    "stream, NaN": (lambda: LoaderSource(Streamed(with_nan())), NAN),
    "loader, NaN": (lambda: LoaderSource(DataLoader(Listed(with_nan()), batch_size=7)), NAN),
    "dataset, empty": (lambda: DatasetSource(Listed([])), "Listed has no items: there is nothing to learn from"),
    "stream, empty": (lambda: LoaderSource(Streamed([])), "Streamed gave no items: there is nothing to learn from"),
    "loader, empty": (
        lambda: LoaderSource(DataLoader(Streamed([]), batch_size=2)),
        "DataLoader gave no items: there is nothing to learn from",
    ),
    "stream, gone": (lambda: LoaderSource(Streamed(iter(torch.zeros(1, 2)))), "none when iterated again"),
    "too many parts": (
        lambda: DatasetSource(Listed([(1.0, 2, 3)])),
        r"Item 0 has 3 parts.*roles=\('x', 'signal', None\)",
    ),
    "no x": (lambda: DatasetSource(Listed([{"image": 2.0}])), "Item 0 has the parts image, but no x"),
    "no role": (lambda: DatasetSource(Listed([(1.0, 2)]), roles=("x", "label")), "'label' in roles is no role"),
    "parts come and go": (
        lambda: DatasetSource(Listed([{"x": 1.0, "signal": 2}, {"x": 1.0}])),
        r"Item 1 has the parts \['x'\], the first one \['x', 'signal'\]",
    ),
    "lengths": (
        lambda: LoaderSource(DataLoader(Listed([{"x": torch.zeros(4, 2), "y": torch.zeros(3)}]), batch_size=None)),
        "A batch has 4 samples of x, but 3 of y",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_items_are_named_in_a_sentence(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        list(make().blocks(3))


def test_an_error_of_the_dataset_s_own_is_not_hidden():
    class Broken(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="disk"):
        LoaderSource(DataLoader(Broken(), batch_size=2))


def test_sides_of_the_loader_of_a_list_have_a_row_for_each_of_x():
    source = LoaderSource(DataLoader([(x, f"c{u}") for x, u in zip(rows(), labels(), strict=True)], batch_size=10))
    whole = next(source.blocks(N))
    assert whole["y"].tolist() == [f"c{u}" for u in labels()]
