import numpy as np
import pytest
import torch

from pindown.metrics import (
    chance_linear_r2,
    chance_mcc,
    chance_orthogonality_error,
    chance_procrustes,
    linear_r2,
    mcc,
    orthogonality_error,
    procrustes,
)

METRICS = [linear_r2, mcc, procrustes, orthogonality_error]
HELD_OUT_METRICS = [linear_r2, mcc, procrustes]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def refuses(metric, z_hat, z, message, **options):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        metric(z_hat, z, **options)
    assert str(caught.value) == f"{metric.__name__}: {message}"


def with_constant(column, shape=(50, 3), value=0.1):
    a = noise(*shape, seed=5)
    a[:, column] = value
    return a


def test_a_constant_column_of_the_code_is_refused_by_mcc():
    refuses(
        mcc,
        with_constant(2),
        noise(50, 3),
        "column(s) [2] of z_hat are constant, so their correlation is undefined. "
        "The encoder has probably collapsed: look at loss_curve_, or ask for fewer latents.",
    )


@pytest.mark.parametrize("metric", [procrustes, orthogonality_error])
def test_a_constant_column_of_the_code_is_refused_where_a_rotation_is_sought(metric):
    refuses(
        metric,
        with_constant([0, 2]),
        noise(50, 3),
        "column(s) [0, 2] of z_hat are constant, so no rotation can make latents of them. "
        "The encoder has probably collapsed: look at loss_curve_, or ask for fewer latents.",
    )


def test_a_column_that_varies_in_the_last_bit_only_is_constant():
    z_hat = with_constant(1).astype(np.float32)
    z_hat[::2, 1] = np.nextafter(np.float32(0.1), np.float32(1))
    with pytest.raises(ValueError, match=r"column\(s\) \[1\] of z_hat are constant, so"):
        mcc(z_hat, noise(50, 3))


@pytest.mark.parametrize("metric", METRICS)
def test_a_constant_latent_is_refused(metric):
    refuses(
        metric,
        noise(50, 3),
        with_constant(1),
        "column(s) [1] of z are constant, so there is nothing to recover. Leave latents that do not vary out of z.",
    )


@pytest.mark.parametrize("metric", HELD_OUT_METRICS)
def test_a_latent_that_is_constant_on_one_half_is_refused(metric):
    z = with_constant(1)
    z[7, 1] = 3.0
    refuses(
        metric,
        noise(50, 3),
        z,
        "column(s) [1] of z are constant on half of the rows, so there is nothing to recover. "
        "Other values are too rare: give more rows, or pass held_out=False.",
    )
    metric(noise(50, 3), z, held_out=False)


def test_a_code_that_is_constant_on_one_half_is_refused_by_mcc():
    z_hat = with_constant(1)
    z_hat[7, 1] = 3.0
    refuses(
        mcc,
        z_hat,
        noise(50, 3),
        "column(s) [1] of z_hat are constant on half of the rows, so their correlation is undefined. "
        "Other values are too rare: give more rows, or pass held_out=False.",
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(metric, value):
    bad = noise(50, 3)
    bad[[4, 9], 1] = value
    where = "is not finite in 2 row(s), first row 4."
    refuses(metric, bad, noise(50, 3), f"z_hat {where} Training may have diverged: look at loss_curve_.")
    refuses(metric, noise(50, 3), bad, f"z {where} Drop these rows.")


@pytest.mark.parametrize(("metric", "half"), [(linear_r2, 6), (mcc, 3), (procrustes, 6)])
def test_too_few_rows_are_refused_and_the_fewest_are_accepted(metric, half):
    few = 2 * half - 1
    refuses(
        metric,
        noise(few, 3),
        noise(few, 3, seed=1),
        f"{few} rows are too few, {2 * half} are needed, {half} in each half. "
        f"Give more rows, or pass held_out=False ({half} will do).",
    )
    metric(noise(2 * half, 3), noise(2 * half, 3, seed=1))
    metric(noise(half, 3), noise(half, 3, seed=1), held_out=False)
    refuses(
        metric,
        noise(half - 1, 3),
        noise(half - 1, 3, seed=1),
        f"{half - 1} rows are too few, {half} are needed. Give more rows.",
        held_out=False,
    )


def test_too_few_rows_for_an_orthogonality_error_are_refused():
    refuses(
        orthogonality_error,
        noise(5, 3),
        noise(5, 3, seed=1),
        "5 rows are too few, 6 are needed. Give more rows.",
    )
    orthogonality_error(noise(6, 3), noise(6, 3, seed=1))


@pytest.mark.parametrize("metric", METRICS)
def test_unequal_numbers_of_rows_are_refused(metric):
    refuses(
        metric,
        noise(50, 3),
        noise(49, 3),
        "z_hat has 50 rows and z has 49, but row i of both must be the same sample. "
        "Was one of them filtered or transposed?",
    )


@pytest.mark.parametrize("metric", [procrustes, orthogonality_error])
def test_unequal_numbers_of_columns_are_refused_where_a_rotation_is_sought(metric):
    refuses(
        metric,
        noise(50, 3),
        noise(50, 2),
        "z_hat has 3 columns and z has 2, but an orthogonal map needs equally many. "
        "Fit a code of 2 components, or score this one with linear_r2.",
    )


@pytest.mark.parametrize("metric", METRICS)
def test_arrays_that_are_no_matrices_are_refused(metric):
    z = noise(50, 2)
    one = "must have shape (n, columns), got (50,). For one column pass"
    refuses(metric, z[:, 0], z, f"z_hat {one} z_hat.reshape(-1, 1).")
    refuses(metric, z, z[:, 0], f"z {one} z.reshape(-1, 1).")
    refuses(metric, z[None], z, "z_hat must have shape (n, columns), got (1, 50, 2). Give one row per sample.")
    refuses(metric, z[:, :0], z, "z_hat must have shape (n, columns), got (50, 0). Give one row per sample.")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("dtype", "name"), [(str, "<U"), (object, "object"), (complex, "complex128")])
def test_arrays_that_are_no_real_numbers_are_refused(metric, dtype, name):
    with pytest.raises(
        ValueError, match=f"^{metric.__name__}: z must be a dense array of real numbers, got dtype {name}"
    ):
        metric(noise(50, 2), noise(50, 2).astype(dtype))


def test_what_numpy_cannot_read_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"^mcc: z_hat cannot be read as an array: .*BFloat16"):
        mcc(torch.zeros(50, 2, dtype=torch.bfloat16), noise(50, 2))
    with pytest.raises(ValueError, match=r"^mcc: z cannot be read as an array: .*inhomogeneous"):
        mcc(noise(2, 2), [[1.0], [1.0, 2.0]])


def test_an_unknown_method_is_refused():
    refuses(
        mcc,
        noise(50, 2),
        noise(50, 2),
        "method must be 'pearson' or 'spearman', got 'kendall'.",
        method="kendall",
    )
    with pytest.raises(ValueError, match=r"^chance_mcc: method must be 'pearson' or 'spearman', got 'kendall'"):
        chance_mcc(3, method="kendall")


@pytest.mark.parametrize("target", [0, -1, np.inf, np.nan])
def test_a_target_that_is_not_positive_is_refused(target):
    message = f"target must be positive, got {target}; None frees the scale."
    refuses(orthogonality_error, noise(50, 2), noise(50, 2), message, target=target)


def test_a_free_scale_is_refused_where_the_map_is_zero():
    z_hat = np.array([-1, 1, -1, 1, -1, 1, -1, 1.0])[:, None]
    z = np.array([-1, -1, 1, 1, -1, -1, 1, 1.0])[:, None]
    message = "z_hat predicts nothing of z, so there is no scale. Pass a target."
    refuses(orthogonality_error, z_hat, z, message, target=None)
    assert orthogonality_error(z_hat, z).relative == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chance_mcc(0), "chance_mcc: d must be at least 1, got 0"),
        (lambda: chance_mcc(2, 0), "chance_mcc: d_hat must be at least 1, got 0"),
        (lambda: chance_mcc(2, n_draws=0), "chance_mcc: n_draws must be at least 1, got 0"),
        (lambda: chance_linear_r2(50, 0), "chance_linear_r2: d_hat must be at least 1, got 0"),
        (
            lambda: chance_linear_r2(11, 3),
            "chance_linear_r2: 11 rows are too few, 12 are needed, 6 in each half",
        ),
        (
            lambda: chance_procrustes(11, 3),
            "chance_procrustes: 11 rows are too few, 12 are needed, 6 in each half",
        ),
        (lambda: chance_procrustes(50, 0), "chance_procrustes: d must be at least 1, got 0"),
        (lambda: chance_orthogonality_error(0), "chance_orthogonality_error: d must be at least 1, got 0"),
    ],
)
def test_chance_refuses_shapes_that_the_metric_would_refuse(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
