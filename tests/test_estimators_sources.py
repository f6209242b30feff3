"""Contrast and Classify from sources of every kind: the same fit as from arrays, or as good a one; and bad input."""

import signal
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from raising import input_error
from sklearn.exceptions import NotFittedError
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pindown import Classify, Contrast, Data, audit, networks, plan
from pindown.data import ArraySource, Batch, DatasetSource, LoaderSource, ParquetSource, Source
from pindown.metrics import linear_r2
from pindown.simulate import Clusters, Pairs, Sample
from pindown.training import Trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

PAIRS = Pairs.on_sphere(3, 8.0, random_state=0)
CLUSTERS = Clusters.on_sphere(3, 20, 10.0, random_state=0)
N = 6_000


@cache
def sample(world, seed: int = 1) -> Sample:
    return world.sample(N, random_state=seed)


def side(world) -> torch.Tensor:
    return sample(world).x_pos if world is PAIRS else sample(world).u


def estimator(world, **settings):
    kind = Contrast if world is PAIRS else Classify
    small = {"encoder": partial(networks.skip_mlp, hidden=(64, 64)), "batch_size": 256, "max_iter": 150}
    return kind(3, **{**small, "random_state": 0, "device": "cpu", "verbose": False, **settings})


def role(world) -> str:
    return "pairs" if world is PAIRS else "signal"


class Endless(IterableDataset):
    """Rows of a simulation, one after another, for ever."""

    def __init__(self, world) -> None:
        self.world = world

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        chance = torch.Generator().manual_seed(0)
        while True:
            some = self.world.sample(1_000, random_state=chance)
            yield from zip(some.x, some.x_pos if some.u is None else some.u, strict=True)


class Shuffled(Source):
    """Somebody else's stream."""

    shape, n_samples = (3,), N

    def __init__(self, world) -> None:
        self.world = world

    def blocks(self, n_samples: int) -> Iterator[Batch]:
        for first in range(0, N, n_samples):
            some = slice(first, first + n_samples)
            yield {"x": sample(self.world).x[some], role(self.world): side(self.world)[some]}


def mapped(world, folder: Path) -> ArraySource:
    for name, values in (("x", sample(world).x), ("u", side(world))):
        np.save(folder / f"{name}.npy", values)
        (folder / f"{name}.npy").chmod(0o444)
    x, u = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xu")
    return ArraySource(x, **{role(world): u})


def in_h5(world, folder: Path) -> ArraySource:
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"], file["u"] = sample(world).x, side(world)
    file = h5py.File(folder / "x.h5", "r")
    return ArraySource(file["x"], **{role(world): file["u"]})


def in_parquet(world, folder: Path) -> ParquetSource:
    x, u = sample(world).x.numpy(), side(world).numpy()
    columns = {f"x{j}": x[:, j] for j in range(3)}
    partners = [f"p{j}" for j in range(3)] if world is PAIRS else "label"
    columns |= {f"p{j}": u[:, j] for j in range(3)} if world is PAIRS else {"label": [f"c{c:02}" for c in u]}
    for k, rows in enumerate(np.array_split(np.arange(N), 3)):
        table = pyarrow.table({name: np.asarray(column)[rows] for name, column in columns.items()})
        pyarrow.parquet.write_table(table, folder / f"{k}.parquet")
    return ParquetSource(folder, features=[f"x{j}" for j in range(3)], **{role(world): partners})


def dataset(world) -> Dataset:
    return TensorDataset(sample(world).x, side(world))


TAKEABLE = {
    "map": mapped,
    "h5": in_h5,
    "dataset": lambda world, _: DatasetSource(dataset(world)),
    "dataset itself": lambda world, _: dataset(world),
    "h5 itself": lambda world, folder: Data(in_h5(world, folder).parts["x"], **{role(world): side(world)}),
    "data": lambda world, folder: Data(mapped(world, folder), **{role(world): side(world)}),
}
OTHERS = {
    "loader": lambda world, _: DataLoader(dataset(world), batch_size=100),
    "endless stream": lambda world, _: Endless(world),
    "loader of an endless stream": lambda world, _: LoaderSource(DataLoader(Endless(world), batch_size=64)),
    "parquet": in_parquet,
    "world": lambda world, _: world,
    "world itself": lambda world, _: world,
    "somebody else's": lambda world, _: Shuffled(world),
}
WORLDS = pytest.mark.parametrize("world", [PAIRS, CLUSTERS], ids=["Contrast", "Classify"])


@cache
def from_arrays(world):
    return estimator(world).fit(sample(world).x, side(world))


def slow_but(names, *quick):
    """Mark all names slow but some."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@WORLDS
@pytest.mark.parametrize("name", slow_but(TAKEABLE, "map"))
def test_rows_that_can_be_taken_give_the_fit_that_arrays_give(world, name, tmp_path):
    fitted = estimator(world).fit(TAKEABLE[name](world, tmp_path))
    np.testing.assert_allclose(fitted.loss_curve_, from_arrays(world).loss_curve_, rtol=1e-4)
    test = sample(world, 2).x
    np.testing.assert_allclose(fitted.transform(test), from_arrays(world).transform(test), atol=1e-3)


@WORLDS
@pytest.mark.parametrize("name", slow_but(OTHERS, "loader"))
def test_streams_and_simulations_give_as_good_a_fit(world, name, tmp_path):
    fitted = estimator(world).fit(OTHERS[name](world, tmp_path))
    test = sample(world, 2)
    before, after = linear_r2(test.x, test.z), linear_r2(fitted.transform(test.x), test.z)
    assert after > 0.95
    assert 1 - after < (1 - before) / 2


@WORLDS
@pytest.mark.parametrize("name", ["map", "h5", "dataset", "loader", "parquet", "somebody else's"])
def test_sources_are_encoded_as_arrays_are(world, name, tmp_path):
    source = {**TAKEABLE, **OTHERS}[name](world, tmp_path)
    codes = from_arrays(world).transform(source)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(codes, from_arrays(world).transform(sample(world).x), atol=1e-6)


def test_a_map_stays_as_it_is_and_only_what_is_needed_of_it_is_read(tmp_path):
    source = mapped(PAIRS, tmp_path)
    before = (tmp_path / "x.npy").read_bytes()
    estimator(PAIRS, max_iter=2).fit(source).transform(source)
    assert (tmp_path / "x.npy").read_bytes() == before
    assert all(isinstance(part, np.memmap) for part in source.parts.values())


@WORLDS
def test_an_encoder_learns_from_the_blocks_of_a_source_as_they_come(world, tmp_path):
    fitted = estimator(world)
    for _ in range(8):
        for block in in_parquet(world, tmp_path).blocks(2_000):
            fitted.partial_fit(block["x"], block[role(world)])
    assert fitted.n_iter_ == 8 * 3 * (2_000 // 256)
    test = sample(world, 2)
    before, after = linear_r2(test.x, test.z), linear_r2(fitted.transform(test.x), test.z)
    assert after > 0.94
    assert after > before


@WORLDS
def test_lots_of_rows_may_be_sources_themselves(world, tmp_path):
    fitted = estimator(world)
    lots = (world, mapped(world, tmp_path), DataLoader(dataset(world), batch_size=100))
    steps = [fitted.partial_fit(lot).n_iter_ for lot in lots]
    assert np.diff([0, *steps]).tolist() == [20_000 // 256, N // 256, N // 256]
    with pytest.raises(ValueError, match="shape"):
        fitted.partial_fit(ArraySource(np.zeros((300, 4)), y=np.zeros(300)))


class Interrupted(TensorDataset):
    """Somebody presses Ctrl-C when so many items were read."""

    left = 12_000  # all of them once, to be looked at, and then some steps

    def __getitem__(self, i):
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
        return super().__getitem__(i)


def test_a_resumed_fit_to_a_stream_goes_on_where_it_was(tmp_path):
    def fit(data, **settings):
        trainer = Trainer(**settings)
        return estimator(CLUSTERS, trainer=trainer, max_iter=40).fit(DataLoader(data, batch_size=100))

    data = Interrupted(sample(CLUSTERS).x, side(CLUSTERS))
    with pytest.raises(KeyboardInterrupt):
        fit(data, checkpoint=tmp_path / "fit.safetensors")
    resumed = fit(data, checkpoint=tmp_path / "fit.safetensors")
    whole = fit(dataset(CLUSTERS))
    assert -data.left < 12_000 + 40 * 256  # it went through the stream once more, and did not train from the beginning
    np.testing.assert_array_equal(resumed.loss_curve_, whole.loss_curve_)


class Streamed(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def images(n=300, odd=None, shape=(3, 4, 4), part=0):
    """Images with positives; one of them, the 71st, or its positive may be odd."""
    items = [[torch.randn(shape, generator=torch.Generator().manual_seed(i)), torch.zeros(shape)] for i in range(n)]
    if odd is not None:
        items[71][part] = odd
    return items


BAD = {
    "NaN in an image of a stream": (
        lambda: Streamed(images(odd=torch.full((3, 4, 4), torch.nan))),
        "Sample 71 of x has NaN",
    ),
    "NaN in an image of a dataset": (
        lambda: DatasetSource(images(odd=torch.full((3, 4, 4), torch.nan))),
        "Sample 71 of x has NaN",
    ),
    "NaN in a map": (lambda: ArraySource(np.full((300, 3), np.nan), pairs=np.zeros((300, 3))), "Sample 0 of x has NaN"),
    "items that change shape": (
        lambda: Streamed(images(odd=torch.zeros(3, 4, 5))),
        r"Item 71 has shape \(3, 4, 5\), the first one \(3, 4, 4\)",
    ),
    "items of a dataset that change shape": (
        lambda: DatasetSource(images(odd=torch.zeros(3, 4, 5))),
        r"Item 71 has shape \(3, 4, 5\), the first one \(3, 4, 4\)",
    ),
    "NaN in a partner of a stream": (
        lambda: Streamed(images(odd=torch.full((3, 4, 4), torch.nan), part=1)),
        "Sample 71 of y has NaN",
    ),
    "infinity in a partner of a dataset": (
        lambda: DatasetSource(images(odd=torch.full((3, 4, 4), torch.inf), part=1), roles=("x", "pairs")),
        "Sample 71 of pairs has NaN",
    ),
    "NaN in the partners of a map": (
        lambda: ArraySource(np.zeros((300, 3)), pairs=np.where(np.arange(300)[:, None] == 71, np.nan, np.ones(3))),
        "Sample 71 of pairs has NaN",
    ),
    "partners that change shape": (
        lambda: DatasetSource(images(odd=torch.zeros(3, 4, 5), part=1)),
        r"Item 71 of y has shape \(3, 4, 5\), the first one \(3, 4, 4\)",
    ),
    "items without their partner": (
        lambda: DatasetSource(
            [{"x": torch.zeros(3)} | ({} if i == 71 else {"pairs": torch.ones(3)}) for i in range(300)]
        ),
        "Item 71 has the parts",
    ),
    "shorter than a batch": (lambda: Streamed(images(20, shape=(3,))), "fewer samples than a batch"),
    "shorter than a batch, and known": (
        lambda: DatasetSource(images(20, shape=(3,))),
        "batch_size=256 is larger than the 20 rows",
    ),
    "empty": (lambda: Streamed([]), "Streamed gave no items"),
    "no partners": (
        lambda: Streamed(list(torch.randn(300, 3, generator=torch.Generator().manual_seed(0)))),
        "Contrast needs positives",
    ),
    "no partners in a world": (lambda: CLUSTERS, "Contrast needs positives"),
    "a role that it cannot use": (
        lambda: ArraySource(np.zeros((300, 3)), pairs=np.zeros((300, 3)), signal=np.zeros(300)),
        "signal",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_end_a_fit_in_a_sentence_and_leave_nothing_behind(name):
    make, message = BAD[name]
    fitted = estimator(PAIRS, max_iter=5)
    with pytest.raises(ValueError, match=message):
        fitted.fit(make())
    with pytest.raises(NotFittedError):
        fitted.transform(np.zeros((4, 3)))


@pytest.mark.parametrize(
    "X", [ArraySource(np.zeros((9, 3))), TensorDataset(torch.zeros(9, 3)), "x.npy", Path("x.npy"), PAIRS]
)
def test_where_rows_must_lie_in_memory_what_gives_them_is_refused(X):
    est = from_arrays(CLUSTERS)
    for ask in (est.score, partial(audit, est)):
        with pytest.raises(TypeError, match="memory"):
            ask(X, np.zeros(9))
    with pytest.raises(TypeError, match="memory"):
        plan(X)


def test_data_are_encoded_as_their_rows_are(tmp_path):
    est, x = from_arrays(PAIRS), sample(PAIRS).x[:50].numpy()
    np.testing.assert_array_equal(est.transform(Data(x)), est.transform(x))
    broken = np.where(np.arange(50)[:, None] == 31, np.nan, x)
    np.save(tmp_path / "x.npy", broken)
    for X in (broken, np.load(tmp_path / "x.npy", mmap_mode="r"), tmp_path / "x.npy"):
        with input_error("X"):
            est.transform(X)


def test_what_is_no_source_is_refused_by_a_fit():
    with pytest.raises(TypeError, match="DataLoader"):
        estimator(PAIRS).fit(3.5)


def test_side_variables_next_to_a_stream_are_refused():
    with pytest.raises(ValueError, match="source"):
        estimator(CLUSTERS).fit(DataLoader(sample(CLUSTERS).x, batch_size=100), side(CLUSTERS))


def test_rows_of_another_shape_cannot_be_encoded():
    with pytest.raises(ValueError, match="4"):
        from_arrays(PAIRS).transform(Streamed([torch.zeros(4)] * 10))


def test_a_simulation_has_no_end_so_it_cannot_be_encoded():
    with pytest.raises(ValueError, match="simulation"):
        from_arrays(PAIRS).transform(PAIRS)
