"""Alignment: what pairs are worth, with k = 0 shown, on pairs that were not used."""

import numpy as np
import pytest

from pindown.methods.alignment import LEAST_SCORED, Alignment, OneLaw, PolynomialRidge, Transfer, align
from pindown.metrics import Effort, leakage


def codes(n=400, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def turned(a, degrees=120):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return a @ np.array([[c, s], [-s, c]])


def test_codes_that_agree_need_no_pairs():
    source = codes()
    found = align(source, source, n_pairs=(0, 50), random_state=0)
    assert found.at(0).r2 == pytest.approx(1)
    assert "the codes agree as they are" in str(found)


def test_turned_codes_are_worth_less_than_nothing_without_pairs_and_all_with_a_few():
    source = codes()
    found = align(source, turned(source), n_pairs=(0, 5, 50), random_state=0)
    assert found.at(0).r2 == pytest.approx(1 - 2 * (1 - np.cos(np.radians(120))), abs=0.1)  # −2: |Rz − z|² = 3|z|²
    assert found.at(5).r2 > 0.99
    assert "invariance is not unification" in str(found)


def test_codes_that_have_nothing_in_common_cannot_be_carried_over():
    found = align(codes(seed=0), codes(seed=1), n_pairs=(0, 10, 200), random_state=0)
    assert found.at(200).r2 < 0.05
    assert found.at(10).r2 < 0.05


def test_more_pairs_help_where_codes_are_noisy():
    source = codes(600)
    noisy = turned(source) + 0.5 * codes(600, seed=1)
    curves = [align(source, noisy, n_pairs=(2, 10, 100), random_state=seed) for seed in range(5)]
    missing = [np.mean([1 - curve.at(n).r2 for curve in curves]) for n in (2, 10, 100)]
    assert missing[0] > missing[1] > missing[2] > 0.15  # 1 − 1 / 1.25 cannot be had


@pytest.mark.slow
def test_scores_are_of_pairs_that_were_not_used():
    # A map with as many features as pairs fits noise exactly, and must not be paid for it.
    worlds = [(codes(60, seed=s), codes(60, seed=100 + s)) for s in range(12)]
    found = [align(*pair, n_pairs=(9, 30), max_degree=3, random_state=0) for pair in worlds]
    assert np.median([each.at(9).r2 for each in found]) < 0
    assert np.mean([each.at(30).r2 for each in found]) < 0


def test_a_bent_map_needs_powers_and_pairs_enough():
    def told(source, degree):
        bent = turned(np.stack([source[:, 0], source[:, 1] + 0.5 * source[:, 0] ** 2], 1))
        return align(source, bent, n_pairs=(100,), max_degree=degree, random_state=0).at(100).r2

    line, curve = (np.mean([told(codes(800, seed=s), degree) for s in range(4)]) for degree in (1, 3))
    assert line < 0.85
    assert curve > 0.99


def test_few_pairs_keep_a_linear_map_linear():
    source = codes(30)
    assert PolynomialRidge(3).fit(source, turned(source)).degree_ == 1


def test_the_map_is_fitted_to_all_pairs():
    source = codes()
    found = align(source, turned(source), n_pairs=(0,), random_state=0)
    assert found.n_available == 400
    assert np.allclose(found.transform(source[:5]), turned(source[:5]), atol=1e-3)


def test_one_column_is_carried_as_one_column():
    source = codes(d=1)
    found = align(source, -source, n_pairs=(0, 5), random_state=0)
    assert found.transform(source).shape == source.shape
    assert found.at(5).r2 > 0.99 > 0 > found.at(0).r2


def test_the_default_curve_starts_at_zero_and_leaves_pairs_to_score_on():
    source = codes(75)
    assert [point.n_pairs for point in align(source, source, random_state=0).curve] == [0, 5, 10, 20, 50]
    assert LEAST_SCORED == 20


def test_the_same_seed_gives_the_same_curve():
    source, target = codes(), turned(codes()) + codes(seed=2)
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
    with pytest.raises(ValueError, match="the curve has 0, 50 pairs, not 10"):
        result.at(10)


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (codes(100), codes(90), {}, "inconsistent numbers of samples"),
        (codes(100), codes(100, d=3), {}, "source has 2 columns and target 3"),
        (codes(21), codes(21), {}, "21 pairs are too few"),
        (codes(100), codes(100), {"n_pairs": (1,)}, "0, or from 2 to 80"),
        (codes(100), codes(100), {"n_pairs": (81,)}, "0, or from 2 to 80"),
        (codes(100) * np.nan, codes(100), {}, "source contains NaN"),
    ],
)
def test_pairs_that_cannot_be_used_are_refused(source, target, options, message):
    with pytest.raises(ValueError, match=message):
        align(source, target, **options)


def of_two_laws(n=1_000, seed=0):
    """Codes of covariance I, of one value Laplace and of the other uniform."""
    rng = np.random.default_rng(seed)
    return {"peaked": rng.laplace(size=(n, 3)) / 2**0.5, "uniform": rng.uniform(-(3**0.5), 3**0.5, size=(n, 3))}


def read(made, seed):
    whose = np.repeat(list(made), [len(part) for part in made.values()])
    return leakage(
        np.concatenate(list(made.values())),
        whose,
        probes=["kernel"],
        effort=Effort(n_permutations=19),
        random_state=seed,
    )


def test_one_law_hides_the_value_in_other_rows_and_keeps_what_codes_tell():
    # Over twenty seeds a kernel probe reads .683 ± .014 before and .541 ± .014 after; straight to R² .966 ± .003.
    law = OneLaw(random_state=0).fit(of_two_laws(seed=0))
    other = of_two_laws(seed=1)
    made = law.transform(other)
    assert read(other, 0).worst > 0.63
    assert read(made, 0).worst < 0.63
    for value, part in made.items():
        assert PolynomialRidge().fit(part, other[value]).score(part, other[value]) > 0.955


def test_no_rounds_whiten_and_leave_the_law():
    skewed = {value: part @ [[2, 1, 0], [0, 1, 0], [0, 0, 3]] + 5 for value, part in of_two_laws().items()}
    made = OneLaw(0).fit(skewed).transform(skewed)
    for part in made.values():
        np.testing.assert_allclose(part.mean(0), 0, atol=1e-9)
        np.testing.assert_allclose(np.cov(part.T), np.eye(3), atol=1e-9)
    assert read(made, 0).worst > 0.63


def test_codes_that_pairs_tied_stay_tied():
    same = codes(1_000, 3)
    tied = {"a": same + 0.1 * codes(1_000, 3, seed=1), "b": same + 0.1 * codes(1_000, 3, seed=2)}
    made = OneLaw(random_state=0).fit(tied).transform(tied)
    assert align(made["a"], made["b"], n_pairs=(0,)).at(0).r2 > 0.975  # .982 ± .001: 1 − 2 · .01 of noise, as before


def test_one_law_says_what_is_wrong_with_codes():
    good = of_two_laws(200)
    law = OneLaw().fit(good)
    with pytest.raises(ValueError, match="must be a mapping from each value of the nuisance to its codes, got ndarray"):
        OneLaw().fit(good["peaked"])
    with pytest.raises(ValueError, match="of two values of the nuisance at least"):
        OneLaw().fit({"peaked": good["peaked"]})
    with pytest.raises(ValueError, match=r"have one size, got columns \{.peaked.: 3, .uniform.: 2\}"):
        OneLaw().fit(good | {"uniform": good["uniform"][:, :2]})
    with pytest.raises(ValueError, match="takes 85 rows of each value at least, got 50 of uniform"):
        OneLaw().fit(good | {"uniform": good["uniform"][:50]})
    with pytest.raises(ValueError, match="a code of uniform is constant"):
        OneLaw().fit(good | {"uniform": np.ones((200, 3))})
    with pytest.raises(ValueError, match="no codes of Jaco in fit, but of peaked, uniform"):
        law.transform({"Jaco": good["peaked"]})
    with pytest.raises(ValueError, match="3 codes in fit, got 2 of peaked"):
        law.transform({"peaked": good["peaked"][:, :2]})
    with pytest.raises(ValueError, match="n_rounds == -1, must be >= 0"):
        OneLaw(-1).fit(good)
