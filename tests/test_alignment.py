"""Alignment of latents: what pairs are worth on held-out pairs."""

import numpy as np
import pytest

from pindown.errors import InputError
from pindown.methods.alignment import MIN_SCORED, Alignment, PolynomialRidge, Transfer, align


def latents(n=400, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def rotated(a, degrees=120):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return a @ np.array([[c, s], [-s, c]])


def test_latents_that_agree_need_no_pairs():
    source = latents()
    found = align(source, source, n_pairs=(0, 50), random_state=0)
    assert found.at(0).r2 == pytest.approx(1)
    assert "the latents agree as they are" in str(found)


def test_rotated_latents_score_below_zero_without_pairs_and_one_with_a_few():
    source = latents()
    found = align(source, rotated(source), n_pairs=(0, 5, 50), random_state=0)
    assert found.at(0).r2 == pytest.approx(1 - 2 * (1 - np.cos(np.radians(120))), abs=0.1)  # −2: |Rz − z|² = 3|z|²
    assert found.at(5).r2 > 0.99
    assert "invariance is not unification" in str(found)


def test_unrelated_latents_cannot_be_mapped():
    found = align(latents(seed=0), latents(seed=1), n_pairs=(0, 10, 200), random_state=0)
    assert found.at(200).r2 < 0.05
    assert found.at(10).r2 < 0.05


def test_more_pairs_help_if_latents_are_noisy():
    source = latents(600)
    noisy = rotated(source) + 0.5 * latents(600, seed=1)
    curves = [align(source, noisy, n_pairs=(2, 10, 100), random_state=seed) for seed in range(5)]
    missing = [np.mean([1 - curve.at(n).r2 for curve in curves]) for n in (2, 10, 100)]
    assert missing[0] > missing[1] > missing[2] > 0.15  # 1 − 1 / 1.25 cannot be had


@pytest.mark.slow
def test_scores_are_of_held_out_pairs():
    # A map with as many features as pairs fits noise exactly.
    samples = [(latents(60, seed=s), latents(60, seed=100 + s)) for s in range(12)]
    found = [align(*pair, n_pairs=(9, 30), max_degree=3, random_state=0) for pair in samples]
    assert np.median([each.at(9).r2 for each in found]) < 0
    assert np.mean([each.at(30).r2 for each in found]) < 0


def test_a_nonlinear_map_needs_powers():
    def score(source, degree):
        mapped = rotated(np.stack([source[:, 0], source[:, 1] + 0.5 * source[:, 0] ** 2], 1))
        return align(source, mapped, n_pairs=(100,), max_degree=degree, random_state=0).at(100).r2

    line, curve = (np.mean([score(latents(800, seed=s), degree) for s in range(4)]) for degree in (1, 3))
    assert line < 0.85
    assert curve > 0.99


def test_few_pairs_keep_a_linear_map_linear():
    source = latents(30)
    assert PolynomialRidge(3).fit(source, rotated(source)).degree_ == 1


def test_the_map_is_fitted_to_all_pairs():
    source = latents()
    found = align(source, rotated(source), n_pairs=(0,), random_state=0)
    assert found.n_available == 400
    assert np.allclose(found.transform(source[:5]), rotated(source[:5]), atol=1e-3)


def test_one_latent_is_mapped_to_one_latent():
    source = latents(d=1)
    found = align(source, -source, n_pairs=(0, 5), random_state=0)
    assert found.transform(source).shape == source.shape
    assert found.at(5).r2 > 0.99 > 0 > found.at(0).r2


def test_the_default_curve_starts_at_zero_and_leaves_pairs_to_score_on():
    source = latents(75)
    assert [point.n_pairs for point in align(source, source, random_state=0).curve] == [0, 5, 10, 20, 50]
    assert MIN_SCORED == 20


def test_the_same_seed_gives_the_same_curve():
    source, target = latents(), rotated(latents()) + latents(seed=2)
    first, second, other = (align(source, target, n_pairs=(5,), random_state=seed).curve for seed in (0, 0, 1))
    assert first == second != other


def test_a_result_prints_as_a_table():
    result = Alignment((Transfer(0, -0.5, 0.0), Transfer(50, 0.94, 0.01)), 100, None)
    assert str(result).splitlines() == [
        "Transfer by number of pairs, of 100",
        "pairs  held-out R²",
        "    0   -0.500 ± 0.000",
        "   50    0.940 ± 0.010",
        "Without pairs -0.500, with 50 0.940: invariance is not unification.",
    ]
    with pytest.raises(InputError):
        result.at(10)


@pytest.mark.parametrize(
    ("source", "target", "options", "argument"),
    [
        (latents(100), latents(100, d=3), {}, "target"),
        (latents(21), latents(21), {}, "source"),
        (latents(100), latents(100), {"n_pairs": (1,)}, "n_pairs"),
        (latents(100), latents(100), {"n_pairs": (81,)}, "n_pairs"),
    ],
)
def test_pairs_that_cannot_be_used_are_named(source, target, options, argument):
    with pytest.raises(InputError) as error:
        align(source, target, **options)
    assert error.value.argument == argument


@pytest.mark.parametrize("source", [latents(90), latents(100) * np.nan])
def test_pairs_must_be_finite_and_as_many_on_both_sides(source):
    with pytest.raises(ValueError, match=r"inconsistent|NaN"):
        align(source, latents(100))
