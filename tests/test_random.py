import numpy as np
import pytest
import torch

from pindown._random import draw_seed, forked, generator


def draws(random_state):
    return torch.rand(4, generator=generator(random_state))


def test_the_same_integer_gives_the_same_stream_and_another_integer_another():
    assert torch.equal(draws(3), draws(3))
    assert not torch.equal(draws(3), draws(4))


def test_a_numpy_integer_is_the_same_seed_as_a_python_one():
    assert torch.equal(draws(np.int64(3)), draws(3))


def test_none_gives_fresh_entropy():
    assert not torch.equal(draws(None), draws(None))


def test_a_numpy_random_state_is_reproducible_and_advances():
    first, second = np.random.RandomState(0), np.random.RandomState(0)
    once, twice = draws(first), draws(first)
    assert torch.equal(once, draws(second))
    assert not torch.equal(once, twice)


def test_a_torch_generator_is_returned_itself_and_so_continues_its_stream():
    own = torch.Generator().manual_seed(0)
    assert generator(own) is own
    assert not torch.equal(draws(own), draws(own))


def test_a_generator_on_another_device_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="needed"):
        generator(torch.Generator(), "cuda:1")


def test_forked_seeds_inside_and_gives_the_global_generator_back():
    before = torch.get_rng_state()
    with forked(0):
        inside = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with forked(0):
        assert torch.equal(torch.rand(3), inside)
    with forked(1):
        assert not torch.equal(torch.rand(3), inside)


def test_forked_gives_the_generator_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="negative dimension"), forked(0):
        torch.rand(-1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("random_state", [None, 0, np.random.RandomState(0), torch.Generator()])
def test_every_kind_of_random_state_leaves_the_global_generators_alone(random_state):
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    draws(random_state)
    assert 0 <= draw_seed(random_state) < 2**64
    with forked(random_state):
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
