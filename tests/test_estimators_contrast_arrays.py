"""Contrast and arrays: numpy and torch, precisions, layouts, offsets; what comes out, and what stays untouched."""

import numpy as np
import pytest
import torch
from contrasting import codes, pairs, quick, trained

from pindown.networks import encoder as encoding
from pindown.networks.spaces import Reals


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_in_numpy_out_in_the_same_precision(dtype):
    out = codes(trained(), pairs().x.astype(dtype))
    assert isinstance(out, np.ndarray)
    assert (out.dtype, out.shape) == (dtype, (400, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out_in_the_same_precision_on_the_same_device(dtype):
    x = torch.tensor(pairs().x, dtype=dtype, requires_grad=True)
    out = codes(trained(), x)
    assert isinstance(out, torch.Tensor)
    assert (out.dtype, out.device, out.shape) == (dtype, x.device, (400, 3))
    np.testing.assert_allclose(out.numpy(), codes(trained()), atol=1e-6)


def test_bfloat16_which_numpy_does_not_know_is_read_and_answered_in_float32():
    x, x_pos = (torch.tensor(a).bfloat16() for a in (pairs().x, pairs().x_pos))
    out = quick(max_iter=2).fit(x, x_pos).transform(x)
    assert out.dtype == torch.float32


def test_fitting_tensors_equals_fitting_arrays():
    arrays, tensors = ((f(pairs().x), f(pairs().x_pos)) for f in (np.asarray, torch.tensor))
    assert np.array_equal(codes(quick().fit(*arrays)), codes(quick().fit(*tensors)))


def backwards(a):
    return np.ascontiguousarray(a[::-1])[::-1]  # the same values, with negative strides


def column_major(a):
    return np.asfortranarray(a)


def read_only(a):
    a = a.copy()
    a.setflags(write=False)
    return a


def big_endian(a):
    return a.astype(">f8")


@pytest.mark.parametrize("layout", [backwards, column_major, read_only, big_endian, np.ndarray.tolist])
@pytest.mark.slow
def test_the_layout_of_an_array_in_memory_does_not_matter(layout):
    x, x_pos = pairs().x.astype(np.float64), pairs().x_pos.astype(np.float64)
    reference = quick(max_iter=3).fit(x, x_pos)
    fitted = quick(max_iter=3).fit(layout(x), layout(x_pos))
    assert np.array_equal(fitted.transform(layout(x)), reference.transform(x))
    assert fitted.score(layout(x), layout(x_pos)) == reference.score(x, x_pos)


def test_the_latents_lie_in_their_space():
    assert np.linalg.norm(codes(trained()), axis=1) == pytest.approx(1, abs=1e-6)
    free = codes(quick(space=Reals()).fit(pairs().x, pairs().x_pos))
    assert np.ptp(np.linalg.norm(free, axis=1)) > 0.1


def test_the_latents_of_a_sample_do_not_depend_on_the_others(monkeypatch):
    x = pairs().x.astype(np.float64)
    together = codes(trained(), x)
    np.testing.assert_allclose(codes(trained(), x[7:8]), together[7:8], atol=1e-12)
    monkeypatch.setattr(encoding, "ENCODE_SAMPLES", 33)
    np.testing.assert_allclose(codes(trained(), x), together, atol=1e-12)


def test_neither_data_nor_global_generators_are_touched():
    x, x_pos = pairs().x.copy(), pairs().x_pos.copy()
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick().fit(x, x_pos).score(x, x_pos)
    assert np.array_equal(x, pairs().x)
    assert np.array_equal(x_pos, pairs().x_pos)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_latents_may_enter_ones_own_training(dtype):
    z_hat = trained().transform(torch.as_tensor(pairs().x, dtype=dtype))
    weight = torch.ones(z_hat.shape[1], dtype=dtype, requires_grad=True)
    (z_hat * weight).sum().backward()
    assert torch.allclose(weight.grad, z_hat.sum(0))


@pytest.mark.slow
def test_an_offset_far_above_the_spread_changes_nothing():
    x, x_pos = (np.asarray(a, dtype=np.float64) for a in (pairs().x, pairs().x_pos))
    near, far = (quick().fit(x + by, x_pos + by) for by in (0.0, 1e8))
    # Latents are of unit length; of 1e8 in single precision all would be alike.
    np.testing.assert_allclose(near.transform(x), far.transform(x + 1e8), atol=0.02)
