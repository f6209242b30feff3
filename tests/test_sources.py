"""Laws that hold for sources of every kind, and what is said where there are no good rows."""

import itertools

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Bodies, Confounded, Instances, ShapeNuisance
from raising import input_error
from sourcing import CASES, Case, labels, rows

from pindown.data import (
    ArraySource,
    GeneratorSource,
    IndexedSource,
    Source,
    as_source,
    first_samples,
    moments,
    sources,
)
from pindown.data.batches import BatchesWithinLevels, HostBatches, IndexedSamples, ShuffledBatches
from pindown.data.sources import as_tensor
from pindown.errors import InputError
from pindown.simulate import Clusters, Nuisance, Pairs, Structured
from pindown.simulate.mixing import identity

# Loaders fork their workers, which Python 3.12 warns of in a process with threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(params=CASES)
def case(request, tmp_path) -> Case:
    return CASES[request.param](tmp_path)


def in_numpy(batch) -> dict[str, np.ndarray]:
    return {name: np.asarray(part) for name, part in batch.items()}


def all_rows(source: Source, n_samples: int, most: int = 300) -> dict[str, np.ndarray]:
    taken = itertools.islice(source.blocks(n_samples), -(-most // n_samples))
    return in_numpy(sources.concatenated(list(taken)))


def same(one, other) -> None:
    one, other = in_numpy(one), in_numpy(other)
    assert one.keys() == other.keys()
    for name, part in one.items():
        np.testing.assert_array_equal(part, other[name])


@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_blocks_of_any_size_give_the_same_rows_and_hold_no_more_than_that(case, size):
    if case.truth is None:
        pytest.skip("rows of a world depend on how many are drawn at once")
    same(all_rows(case.source, size, most=1_000), case.truth)
    assert all(len(batch["x"]) <= size for batch in itertools.islice(case.source.blocks(size), 20))


def test_every_pass_gives_the_same_rows(case):
    same(all_rows(case.source, 10), all_rows(case.source, 10))


def test_a_source_knows_its_shape_and_its_length(case):
    batch = next(case.source.blocks(4))
    assert tuple(batch["x"].shape) == (4, *case.source.shape)
    assert all(len(part) == 4 for part in batch.values())
    if case.truth is not None:
        assert case.source.n_samples in (None, len(case.truth["x"]))
        assert np.asarray(batch["x"]).dtype == case.truth["x"].dtype


def test_rows_can_be_taken_in_any_order_and_more_than_once(case):
    if not isinstance(case.source, IndexedSource):
        pytest.skip("has an order")
    which = np.random.default_rng(1).integers(case.source.n_samples, size=200)
    same(case.source.take(which), {name: part[which] for name, part in case.truth.items()})
    same(case.source.take(np.arange(case.source.n_samples)), all_rows(case.source, 7))


def test_a_batch_may_be_written_to_and_the_source_stays_as_it_is(case):
    first = in_numpy(next(case.source.blocks(5)))
    kept = {name: part.copy() for name, part in first.items()}
    as_tensor(next(case.source.blocks(5))["x"]).zero_()
    if isinstance(case.source, IndexedSource):
        as_tensor(case.source.take(np.arange(5))["x"]).zero_()
    same(next(case.source.blocks(5)), kept)


@pytest.mark.parametrize("covariance", [True, False])
def test_moments_are_those_of_all_rows_at_once_however_small_the_blocks(case, covariance, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_BYTES", 1_000)
    found = moments(case.source, covariance=covariance, n_samples=None if case.truth is not None else 300)
    x = first_samples(case.source, 300)["x"] if case.truth is None else case.truth["x"]
    x = np.asarray(x).reshape(len(x), -1).astype(float)
    assert found.n == len(x)
    np.testing.assert_allclose(found.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, x.var(0), rtol=1e-11)
    if covariance:
        np.testing.assert_allclose(found.covariance, np.cov(x.T, ddof=0), rtol=1e-11, atol=1e-11)
    assert (found.covariance is None) is not covariance


def test_some_rows_are_rows_of_the_source_and_all_of_them_if_there_are_no_more(case):
    some = in_numpy(first_samples(case.source, 20))
    whole = in_numpy(first_samples(case.source, 20)) if case.truth is None else case.truth
    assert all(len(part) == 20 for part in some.values())
    place = [np.flatnonzero((whole["x"] == row).reshape(len(whole["x"]), -1).all(1))[0] for row in some["x"]]
    same(some, {name: part[place] for name, part in whole.items()})
    if case.truth is not None:
        same(first_samples(case.source, 10**6), whole)


def test_what_is_taken_into_memory_is_bounded_by_bytes(monkeypatch):
    source = ArraySource(np.zeros((100, 10)))
    monkeypatch.setattr(sources, "ROWS_BYTES", 1_000)
    assert len(first_samples(source, 100)["x"]) == 12
    monkeypatch.setattr(sources, "ROWS_BYTES", 1)
    assert len(first_samples(source, 100)["x"]) == 1


def test_a_sample_of_an_ordered_array_comes_from_all_over_it():
    found = moments(ArraySource(np.arange(100_000.0)), n_samples=1_000)
    assert found.n == 1_000
    assert abs(found.mean.item() / 50_000 - 1) < 0.06  # three standard errors


@pytest.mark.parametrize("offset", [1e6, 1e9, 1e12])
def test_an_offset_does_not_swallow_the_spread(offset, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_BYTES", 800)
    x = np.random.default_rng(0).normal(size=(1_000, 2))
    found = moments(ArraySource(x + offset))
    # Numbers themselves are rounded to offset · 2⁻⁵³.
    np.testing.assert_allclose(
        found.covariance, np.cov((x + offset - offset).T, ddof=0), atol=1e-3 * offset / 1e12 + 1e-12
    )


def test_moments_of_channels_take_all_places_together():
    x = rows((3, 4, 4))
    found = moments(ArraySource(x), channel=0)
    np.testing.assert_allclose(found.mean, x.mean((0, 2, 3), dtype=float))
    np.testing.assert_allclose(found.covariance, np.cov(x.transpose(1, 0, 2, 3).reshape(3, -1).astype(float), ddof=0))
    last = moments(ArraySource(x), channel=-1, covariance=False)
    np.testing.assert_allclose(last.variance, x.astype(float).transpose(0, 1, 2, 3).reshape(-1, 4).var(0))
    with pytest.raises(ValueError, match="channel=3"):
        moments(ArraySource(x), channel=3)


def test_moments_say_which_row_has_no_number():
    x = rows((3, 4, 4))
    x[71, 1, 2, 3] = np.nan
    with input_error("x"):
        moments(ArraySource(x))
    x[71, 1, 2, 3] = np.inf
    with input_error("x"):
        moments(ArraySource(torch.tensor(x)))


def test_only_the_requested_part_of_a_map_is_read():
    class Watched:
        shape, dtype, read = (1_000, 3), np.dtype(float), 0

        def __len__(self):
            return 1_000

        def __getitem__(self, which):
            found = np.zeros((1_000, 3))[which]
            self.read += len(found)
            return found

    watched = Watched()
    source = ArraySource(watched)
    assert watched.read == 0
    source.take(np.array([5, 3, 3]))
    assert watched.read == 2
    next(source.blocks(10))
    assert watched.read == 12


@pytest.mark.parametrize(
    ("x", "sides", "argument"),
    [
        (np.zeros((0, 3)), {}, "x"),
        (np.array(3.0), {}, "x"),
        ([["a", "b"]], {}, "x"),
        (torch.zeros(3, 2, dtype=torch.complex64), {}, "x"),
        (np.ma.masked_array(rows(), mask=rows() > 3), {}, "x"),
        (rows().astype("datetime64[s]"), {}, "x"),
        (rows(), {"signal": labels()[:-1]}, "signal"),
        (rows(), {"pairs": 3}, "pairs"),
        (rows(), {"nuisance": np.ma.masked_array(labels(), mask=labels() == 1)}, "nuisance"),
    ],
)
def test_arrays_without_good_samples_raise(x, sides, argument):
    with pytest.raises(InputError) as error:
        ArraySource(x, **sides)
    assert error.value.argument == argument


@pytest.mark.parametrize("X", [3, "text", {"x": 1}, None, lambda: 0])
def test_what_is_no_source_is_refused(X):
    with pytest.raises((TypeError, ValueError, FileNotFoundError), match=r"file|a path"):
        as_source(X)


def test_a_source_is_handed_through():
    source = Pairs.on_sphere(3, 5.0, random_state=0)
    assert as_source(source) is source
    assert isinstance(source, GeneratorSource)


clusters = Clusters.on_sphere(3, 5, 10.0, random_state=0)
WORLDS = {
    "pairs": (Pairs.on_sphere(3, 5.0, random_state=0), {"pairs"}, None),
    "clusters": (clusters, {"signal"}, [0.2] * 5),
    "weighted": (Clusters(torch.eye(3), clusters.conditional, identity(3), (1, 1, 2)), {"signal"}, [0.25, 0.25, 0.5]),
    "instances": (Instances(clusters, 10), {"signal"}, [0.1] * 10),
    "nuisance": (Nuisance.on_sphere(4, 2, 5.0, weights=(1.0, 3.0), random_state=0), {"nuisance"}, [0.25, 0.75]),
    "shape": (ShapeNuisance(torch.tensor([[1.0], [3.0]]), identity(3)), {"nuisance"}, [0.5, 0.5]),
    "confounded": (
        Confounded(torch.eye(2), torch.tensor([[-1.0], [1.0]]), torch.tensor([[2.0, 1.0], [0.0, 1.0]]), identity(3)),
        {"nuisance", "given"},
        [0.5, 0.5],
    ),
    "bodies": (Bodies.different(3, random_state=0), {"nuisance", "pairs"}, [1 / 3] * 3),
    "structured": (Structured.from_support([[1, 0], [1, 1]], random_state=0), set(), None),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_simulation_says_what_part_its_side_variables_play_and_how_often_they_come(name):
    process, roles, prior = WORLDS[name]
    generator = torch.Generator().manual_seed(3)
    batch = process.draw(20_000, generator)
    assert batch.keys() == {"x"} | roles
    sample = process.sample(20_000, random_state=torch.Generator().manual_seed(3))
    same({"x": batch["x"]}, {"x": sample.x})
    if prior is None:
        assert process.prior is None
        return
    np.testing.assert_allclose(process.prior, prior)
    counts = torch.bincount(sample.u, minlength=len(prior)).double() / 20_000
    np.testing.assert_allclose(counts, prior, atol=0.015)  # four standard errors


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures a graph")
@pytest.mark.parametrize("name", WORLDS)
def test_a_graph_can_capture_what_a_simulation_draws(name):
    source, generator = WORLDS[name][0], torch.Generator("cuda").manual_seed(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        source.draw(64, generator)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        batch = source.draw(64, generator)
    graph.replay()
    one = batch["x"].clone()
    graph.replay()
    assert torch.isfinite(one).all()
    assert not torch.equal(one, batch["x"])


@pytest.mark.parametrize("within_levels", [False, True])
def test_batches_gathered_on_the_host_come_in_the_order_of_the_seed_also_for_a_resumed_run(within_levels):
    samples, parity = IndexedSamples(torch.arange(12.0)[:, None]), np.arange(12) % 2
    generator, device = torch.Generator().manual_seed(3), torch.device("cpu")

    def made():
        return BatchesWithinLevels(samples, 4, parity) if within_levels else ShuffledBatches(samples, 4)

    expected = [made()(step, generator)[0].tolist() for step in range(6)]
    unbroken = HostBatches(made(), device)
    assert [unbroken(step, generator)[0].tolist() for step in range(6)] == expected
    assert [HostBatches(made(), device)(step, generator)[0].tolist() for step in (4, 1)] == [expected[4], expected[1]]
