"""What metrics of recovery cannot use raises an `InputError` that names the argument at fault."""

import numpy as np
import pytest
import torch

from pindown.errors import InputError
from pindown.metrics import (
    chance_linear_r2,
    chance_mcc,
    chance_procrustes,
    linear_r2,
    mcc,
    procrustes,
)

METRICS = [linear_r2, mcc, procrustes]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def raises(argument, metric, *inputs, **options):
    with pytest.raises(InputError) as raised:
        metric(*inputs, **options)
    assert raised.value.argument == argument
    return str(raised.value)


def with_constant(column, shape=(50, 3), value=0.1):
    a = noise(*shape, seed=5)
    a[:, column] = value
    return a


@pytest.mark.parametrize("metric", [mcc, procrustes])
def test_a_constant_column_of_an_embedding_raises_where_it_matters(metric):
    assert "[0, 2]" in raises("z_hat", metric, with_constant([0, 2]), noise(50, 3))


def test_a_column_that_varies_in_the_last_bit_only_is_constant():
    z_hat = with_constant(1).astype(np.float32)
    z_hat[::2, 1] = np.nextafter(np.float32(0.1), np.float32(1))
    assert "[1]" in raises("z_hat", mcc, z_hat, noise(50, 3))


@pytest.mark.parametrize("metric", METRICS)
def test_a_constant_latent_raises(metric):
    assert "[1]" in raises("z", metric, noise(50, 3), with_constant(1))


@pytest.mark.parametrize("metric", METRICS)
def test_a_latent_that_is_constant_in_one_half_raises(metric):
    z = with_constant(1)
    z[7, 1] = 3.0
    assert "in half of the samples" in raises("z", metric, noise(50, 3), z)
    metric(noise(50, 3), z, held_out=False)


def test_a_column_that_is_constant_in_one_half_raises_for_mcc():
    z_hat = with_constant(1)
    z_hat[7, 1] = 3.0
    assert "in half of the samples" in raises("z_hat", mcc, z_hat, noise(50, 3))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_raise_and_are_counted(metric, value):
    bad = noise(50, 3)
    bad[[4, 9], 1] = value
    for argument, inputs in (("z_hat", (bad, noise(50, 3))), ("z", (noise(50, 3), bad))):
        assert "2 sample(s), the first is 4" in raises(argument, metric, *inputs)


@pytest.mark.parametrize(("metric", "half"), [(linear_r2, 6), (mcc, 3), (procrustes, 6)])
def test_too_few_samples_raise_and_the_fewest_are_accepted(metric, half):
    assert f"{2 * half} are needed" in raises("z", metric, noise(2 * half - 1, 3), noise(2 * half - 1, 3, seed=1))
    metric(noise(2 * half, 3), noise(2 * half, 3, seed=1))
    metric(noise(half, 3), noise(half, 3, seed=1), held_out=False)
    raises("z", metric, noise(half - 1, 3), noise(half - 1, 3, seed=1), held_out=False)


@pytest.mark.parametrize("metric", METRICS)
def test_unequal_numbers_of_samples_raise(metric):
    raises("z_hat", metric, noise(50, 3), noise(49, 3))


def test_unequal_numbers_of_columns_raise_where_a_rotation_is_fitted():
    raises("z_hat", procrustes, noise(50, 3), noise(50, 2))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [noise(50), noise(1, 50, 2), noise(50, 0)], ids=["vector", "three axes", "no columns"])
def test_arrays_that_are_no_matrices_raise(metric, bad):
    raises("z_hat", metric, bad, noise(50, 2))
    raises("z", metric, noise(50, 2), bad)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [str, object, complex])
def test_arrays_that_are_no_real_numbers_raise(metric, dtype):
    raises("z", metric, noise(50, 2), noise(50, 2).astype(dtype))


def test_what_numpy_cannot_read_raises():
    raises("z", mcc, noise(2, 2), [[1.0], [1.0, 2.0]])


def test_half_precision_of_torch_is_read():
    z = torch.as_tensor(noise(50, 2))
    assert mcc(z.to(torch.bfloat16), z) > 0.99


@pytest.mark.parametrize("call", [lambda **o: mcc(noise(50, 2), noise(50, 2), **o), lambda **o: chance_mcc(3, **o)])
def test_an_unknown_method_raises(call):
    raises("method", call, method="kendall")


@pytest.mark.parametrize(
    ("argument", "chance", "shape"),
    [
        ("d", chance_mcc, (0,)),
        ("d_hat", chance_mcc, (2, 0)),
        ("d_hat", chance_linear_r2, (50, 0)),
        ("z", chance_linear_r2, (11, 3)),  # as few samples as the metric would not take
        ("z", chance_procrustes, (11, 3)),
        ("d", chance_procrustes, (50, 0)),
    ],
)
def test_chance_raises_for_shapes_for_which_the_metric_would_raise(argument, chance, shape):
    raises(argument, chance, *shape)


def test_a_chance_level_needs_a_draw():
    raises("n_draws", chance_mcc, 2, n_draws=0)
