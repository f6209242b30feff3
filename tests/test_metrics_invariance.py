import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi2, norm

from pindown.errors import InputError
from pindown.metrics import (
    PROBES,
    Effort,
    confounding,
    distance_correlation,
    effective_rank,
    inject_leak,
    leakage,
)
from pindown.metrics.permutation import Exchange, halve, largest_test, thin
from pindown.metrics.probes import Views
from pindown.simulate import Nuisance

SEEDS = st.integers(0, 2**32 - 1)
modest = settings(deadline=None, max_examples=25)
LINEAR, QUADRATIC, NEIGHBOURS = (
    next(probe for probe in PROBES if probe.name == name) for name in ("linear", "quadratic", "neighbours")
)
CHEAP = (LINEAR, QUADRATIC, NEIGHBOURS)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def labels(n, k, seed=1):
    return np.random.default_rng(seed).integers(k, size=n)


def quick(Z, e, *, random_state=0, probes=CHEAP, **options):
    return leakage(
        Z, e, probes=probes, effort=Effort(n_seeds=1, n_permutations=99), random_state=random_state, **options
    )


# What is found, and how much of it


def test_an_embedding_equal_to_the_nuisance_leaks_all_of_its_bits():
    e = labels(800, 4)
    found = leakage(np.eye(4)[e], e, effort=Effort(n_seeds=1), random_state=0)
    assert set(found.by_probe) == {probe.name for probe in PROBES}
    assert found.worst == pytest.approx(1)
    assert found.bits == pytest.approx(2, abs=0.03)  # log2 4
    assert found.p_value == 1 / 1000
    assert found.leaks


def test_an_embedding_independent_of_the_nuisance_stays_at_chance():
    # The best of six families and their seeds is still within three standard errors, √(3/16 / 1000) = .014 each.
    found = leakage(noise(2000, 4), labels(2000, 4), random_state=0)
    assert found.chance == 0.25
    assert found.worst == pytest.approx(0.25, abs=0.042)
    assert found.bits == pytest.approx(0, abs=0.01)
    assert not found.leaks


@pytest.mark.parametrize("seed", range(5))
def test_equal_means_and_other_covariances_deceive_the_linear_probe_only(seed):
    rng = np.random.default_rng(seed)
    e = rng.integers(2, size=1500)
    Z = rng.normal(size=(1500, 3)) * np.where(e == 1, 2.0, 1.0)[:, None]
    linear, quadratic = (quick(Z, e, probes=(probe,)) for probe in (LINEAR, QUADRATIC))
    # The densities cross where ‖z‖²/2 · (1 − 1/4) = 3/2 · ln 4; ‖z‖² is χ² with 3 degrees of freedom, or four times it.
    threshold = 4 * np.log(4)
    best = (chi2.cdf(threshold, 3) + chi2.sf(threshold / 4, 3)) / 2
    assert linear.worst == pytest.approx(0.5, abs=0.06)
    assert quadratic.worst == pytest.approx(best, abs=0.04)
    assert quadratic.leaks


@pytest.mark.parametrize("seed", range(3))
def test_an_injected_leak_of_labels_has_the_accuracy_and_bits_of_its_channel(seed):
    # Two values at ±√s with noise of variance 1 − s: accuracy Φ(√(s/(1−s))), information of a binary Gaussian channel.
    fraction = 0.3
    e = labels(6000, 2, seed=100 + seed)
    found = quick(inject_leak(noise(6000, 3, seed=seed), e, fraction, random_state=seed), e, probes=(LINEAR,))
    snr = np.sqrt(fraction / (1 - fraction))
    lost = quad(lambda x: norm.pdf(x, snr) * np.log2(1 + np.exp(-2 * snr * x)), -8, 10)[0]
    assert found.worst == pytest.approx(norm.cdf(snr), abs=0.03)  # three standard errors, √(.19/3000) each
    assert found.bits == pytest.approx(1 - lost, abs=0.04)


@pytest.mark.parametrize("seed", range(3))
def test_an_injected_leak_of_a_quantity_has_its_fraction_as_r2(seed):
    fraction, e = 0.3, noise(6000, seed=100 + seed)
    found = quick(inject_leak(noise(6000, 3, seed=seed), e, fraction, random_state=seed), e, probes=(LINEAR,))
    assert found.measure == "R²"
    assert found.chance == 0
    assert found.worst == pytest.approx(fraction, abs=0.04)
    assert found.bits == pytest.approx(-0.5 * np.log2(1 - fraction), abs=0.04)


def test_a_five_percent_leak_is_found_and_its_absence_is_not():
    Z, e = noise(4000, 6), labels(4000, 4)
    assert quick(inject_leak(Z, e, 0.05, random_state=0), e).leaks
    assert not quick(Z, e).leaks


def test_an_injected_leak_leaves_the_covariance_alone():
    Z, e = noise(20_000, 3) @ noise(3, 3, seed=5), labels(20_000, 3)
    leaky = inject_leak(Z, e, 0.5, random_state=0)
    np.testing.assert_allclose(np.cov(leaky.T), np.cov(Z.T), atol=0.05 * np.abs(np.cov(Z.T)).max())
    assert np.abs(leaky - Z).mean() > 0.05 * np.abs(Z).mean()
    np.testing.assert_allclose(inject_leak(Z, e, 0.0, random_state=0), Z)


def test_what_is_hidden_in_a_direction_of_tiny_variance_is_found():
    Z, e = noise(1000, 2), labels(1000, 2)
    hidden = np.column_stack([Z[:, 0], Z[:, 0] + 1e-4 * (e + Z[:, 1])])
    assert quick(hidden, e, probes=(LINEAR,)).leaks
    # Its twin with nothing hidden has the same shape.
    assert not quick(np.column_stack([Z[:, 0], Z[:, 0] + 1e-4 * Z[:, 1]]), e, probes=(LINEAR,)).leaks


def test_a_nuisance_that_only_a_square_depends_on_is_found_by_distances():
    # e is symmetric given Z = e², so no regression predicts it; the distance correlation is that of a parabola.
    e = noise(1500, seed=3)
    found = quick(np.column_stack([e**2, noise(1500)]), e)
    assert found.worst < 0.05
    assert found.distance_correlation > 0.2
    assert found.leaks
    assert found.evidence == "distance correlation"


def test_the_part_of_a_simulation_that_the_nuisance_leaves_alone_does_not_leak_and_the_whole_does():
    simulation = Nuisance.on_sphere(8, 4, concentration=10.0, n_layers=1, random_state=0)
    sample = simulation.sample(3000, random_state=0)
    assert not quick(sample.z, sample.u).leaks
    assert quick(sample.x, sample.u).worst > 0.5


# The permutation test


def test_shuffled_labels_have_uniform_p_values():
    # 99.9 % of Binomial(80, .05) is at most 12; the mean of 80 uniform p-values is ½ ± .032.
    p = [quick(noise(200, 3, seed=s), labels(200, 3, seed=1000 + s), random_state=s).p_value for s in range(80)]
    assert np.sum(np.array(p) <= 0.05) <= 12
    assert 0.25 < np.mean(p) < 0.75


def test_shuffled_quantities_have_uniform_p_values():
    p = [quick(noise(200, 3, seed=s), noise(200, seed=1000 + s), random_state=s).p_value for s in range(60)]
    assert np.sum(np.array(p) <= 0.05) <= 10
    assert 0.25 < np.mean(p) < 0.75


def grouped(seed, n=240, n_groups=40):
    """Groups with a strong effect of their own and one random value of e each: nothing leaks beyond the group."""
    rng = np.random.default_rng(seed)
    g = rng.integers(n_groups, size=n)
    e = rng.permutation(np.arange(n_groups) % 3)[g]
    return 0.3 * rng.normal(size=(n, 3)) + rng.normal(size=(n_groups, 3))[g], e, g


def test_predicting_the_group_passes_for_predicting_the_nuisance_only_if_groups_are_ignored():
    data = [grouped(seed) for seed in range(30)]
    respected = [quick(Z, e, groups=g, random_state=0).leaks for Z, e, g in data]
    ignored = [quick(Z, e, random_state=0).leaks for Z, e, _ in data]
    assert np.sum(respected) <= 6  # 99.9 % of Binomial(30, .05)
    assert np.sum(ignored) >= 27


def confounded(seed, leak=0.0, n=600):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    e = (rng.random(n) < np.where(y == 1, 0.8, 0.2)).astype(int)
    Z = rng.normal(size=(n, 3))
    Z[:, 0] += 3 * y
    Z[:, 1] += leak * e
    return Z, e, y


def test_an_embedding_of_the_label_leaks_the_nuisance_but_not_given_the_label():
    for seed in range(5):
        Z, e, _ = confounded(seed)
        assert quick(Z, e, random_state=seed).leaks
    given_label = [quick(Z, e, given=y, random_state=s) for s, (Z, e, y) in enumerate(map(confounded, range(20)))]
    assert np.sum([found.leaks for found in given_label]) <= 5  # 99.9 % of Binomial(20, .05)
    assert given_label[0].chance == 0.5
    assert given_label[0].confounding.bits > 0.1


def test_a_leak_beyond_the_label_is_found_given_the_label():
    for seed in range(5):
        Z, e, y = confounded(seed, leak=1.0)
        assert quick(Z, e, given=y, random_state=seed).leaks


def test_a_quantity_is_audited_given_a_label():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=900)
    e = y + rng.normal(size=900)
    Z = np.column_stack([2 * y + rng.normal(size=900), rng.normal(size=900)])
    assert quick(Z, e).leaks
    assert not quick(Z, e, given=y).leaks
    assert quick(np.column_stack([Z, e + rng.normal(size=900)]), e, given=y).leaks


def test_the_p_value_is_the_rank_of_the_largest_statistic():
    # Row 0 is largest in the second column, by its own spread, though the first has larger numbers.
    statistics = np.column_stack([[0, 100, -100, 50, -50], [9, 1, 0, -1, 0]]).astype(float)
    p, which = largest_test(statistics)
    assert (p, which) == (1 / 5, 1)
    assert largest_test(np.zeros((5, 2)))[0] == 1


@modest
@given(SEEDS, st.integers(2, 6), st.integers(2, 3))
def test_exchanges_keep_what_the_null_hypothesis_fixes(seed, n_groups, n_strata):
    rng = np.random.default_rng(seed)
    g = np.unique(rng.integers(n_groups, size=60), return_inverse=True)[1]
    strata = rng.integers(n_strata, size=60)
    whole = rng.random(g.max() + 1) < 0.5
    e = np.where(whole[g], rng.integers(3, size=g.max() + 1)[g], rng.integers(3, size=60))
    pure = np.array([len(set(e[g == k])) == 1 for k in range(g.max() + 1)])
    given_e = e[Exchange.within(g, strata, e).draw(rng)]
    for k in np.flatnonzero(pure):
        assert len(set(given_e[g == k])) == 1
    for k in np.flatnonzero(~pure):
        for s in range(n_strata):
            part = (g == k) & (strata == s)
            assert sorted(given_e[part]) == sorted(e[part])


@modest
@given(SEEDS, st.integers(6, 30))
def test_no_group_is_on_both_sides_of_the_split_and_every_level_is(seed, n_groups):
    rng = np.random.default_rng(seed)
    g = np.concatenate([np.arange(n_groups), rng.integers(n_groups, size=100)])
    cells = (np.arange(n_groups) % 3)[g]
    fit = halve(g, cells, rng)
    assert not set(g[fit]) & set(g[~fit])
    assert set(cells[fit]) == set(cells[~fit]) == {0, 1, 2}


def test_a_level_in_one_group_only_cannot_be_split():
    assert halve(np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 0, 1, 1]), np.random.default_rng(0)) is None


def test_thinning_keeps_every_group_and_rare_levels():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(20), 1000)
    kept = thin(g, g % 2, 1000, rng)
    assert len(kept) == pytest.approx(1000, rel=0.05)
    assert set(g[kept]) == set(range(20))
    rare = np.where(np.arange(20_000) < 30, 1, 0)
    kept = thin(np.arange(20_000), rare, 1000, rng)
    assert len(kept) == pytest.approx(1000, rel=0.1)
    assert rare[kept].sum() == 30


def test_samples_used_are_reported():
    effort = Effort(n_seeds=1, n_permutations=99, max_samples=500)
    found = leakage(noise(3000, 2), labels(3000, 2), probes=CHEAP, effort=effort, random_state=0)
    assert (found.n_samples, found.n_used) == (3000, pytest.approx(500, abs=50))


def test_with_too_few_groups_nothing_is_decided():
    # Two levels in two groups each: one group of each level is held out, and they can swap or not.
    g = np.repeat(np.arange(4), 50)
    found = quick(noise(200, 2), g % 2, groups=g)
    assert found.smallest_p == pytest.approx(1 / 2)
    assert found.p_value >= 0.3
    assert found.verdict.startswith("undecided")


# Collapse


@pytest.mark.parametrize("Z", [np.ones((300, 4)), 3 + 1e-9 * noise(300, 4)], ids=["constant", "rounding"])
def test_a_constant_embedding_is_collapsed_and_not_invariant(Z):
    found = quick(Z, labels(300, 3))
    assert found.collapsed
    assert found.effective_rank == 0
    assert "collapsed" in found.verdict


def test_a_constant_embedding_scores_chance_with_certainty():
    for e in (labels(300, 3), noise(300, seed=1)):
        found = quick(np.ones((300, 4)), e)
        assert found.p_value == 1
        assert found.bits == 0
        assert found.worst == pytest.approx(found.chance, abs=0.02)


def test_an_embedding_on_a_line_is_collapsed_and_its_leak_is_still_reported():
    e = labels(500, 2)
    found = quick(np.outer(e + 0.1 * noise(500), np.ones(5)), e)
    assert found.collapsed
    assert found.leaks
    assert "predicted" in found.verdict


def test_an_embedding_that_varies_is_not_collapsed():
    assert not quick(noise(300, 4), labels(300, 3)).collapsed
    assert not quick(noise(300, 1), labels(300, 3)).collapsed


def test_effective_rank_is_the_exponential_of_the_entropy_of_the_spectrum():
    # Variances 9 : 1 are fractions .9, .1, whose entropy is .325 nats.
    Z = noise(100_000, 2) * [3, 1]
    assert effective_rank(Z) == pytest.approx(np.exp(0.325), abs=0.01)
    assert effective_rank(noise(5, 40)) <= 4 + 1e-9  # five points span four dimensions


# Dependence


def test_distance_correlation_of_gaussians_is_the_known_function_of_their_correlation():
    rho = 0.6
    x, other = noise(2000, 1), noise(2000, 1, seed=1)
    exact = (rho * np.arcsin(rho) + np.sqrt(1 - rho**2) - rho * np.arcsin(rho / 2) - np.sqrt(4 - rho**2) + 1) / (
        1 + np.pi / 3 - np.sqrt(3)
    )
    assert distance_correlation(x, rho * x + 0.8 * other) ** 2 == pytest.approx(exact, abs=0.04)


def test_distance_correlation_of_independent_wide_embeddings_is_about_zero():
    assert distance_correlation(noise(400, 16), noise(400, 16, seed=1)) < 0.2


def test_confounding_is_the_information_of_the_table():
    # Agreement of .9 between balanced labels: 1 − H(.1) = .531 bits, so an invariant embedding keeps .469 of the label.
    y = np.repeat([0, 1], 5000)
    e = np.where(np.arange(10_000) % 10 == 0, 1 - y, y)
    report = confounding(y, e)
    assert report.bits == pytest.approx(0.531, abs=0.001)
    assert report.kept_bits == pytest.approx(0.469, abs=0.001)
    assert confounding(labels(5000, 4), labels(5000, 5, seed=2)).bits < 0.01


# Interface


def test_several_columns_give_a_result_each_and_the_one_that_leaks_most_overall():
    e = pd.DataFrame({"batch": labels(600, 3), "site": labels(600, 2, seed=2).astype(str), "age": noise(600, seed=3)})
    Z = np.column_stack([noise(600, 2), (e["site"] == "1") + 0.3 * noise(600, seed=4)])
    found = quick(Z, e)
    assert [column.nuisance for column in found.columns] == ["batch", "site", "age"]
    assert [column.measure for column in found.columns] == ["balanced accuracy", "balanced accuracy", "R²"]
    assert found.nuisance == "site"
    assert found.p_value == pytest.approx(3 * found.columns[1].p_value)
    assert "Overall: site can still be predicted" in str(found)


def test_fractional_numbers_are_quantities_and_whole_ones_labels_by_default():
    Z = noise(200, 2)
    assert quick(Z, labels(200, 3).astype(float)).measure == "balanced accuracy"
    assert quick(Z, labels(200, 3) + 0.5).measure == "R²"
    assert quick(Z, labels(200, 50), continuous=True).measure == "R²"


def test_a_seed_repeats_the_audit_and_leaves_the_process_untouched():
    Z, e = noise(200, 2), labels(200, 2)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (
        leakage(Z, e, effort=Effort(n_seeds=2, n_permutations=19), random_state=s) for s in (0, 0, 1)
    )
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert (first.worst, first.p_value, first.by_probe) == (again.worst, again.p_value, again.by_probe)
    assert first.worst != other.worst


def test_tensors_and_half_size_floats_are_read():
    Z, e = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)), labels(200, 2)
    assert quick(Z, torch.tensor(e)).worst == quick(Z.numpy(), e).worst


def test_the_report_prints_every_probe_its_chance_and_a_verdict():
    text = str(quick(noise(300, 2), labels(300, 4)))
    for word in ("linear", "quadratic", "neighbours", "chance", "0.250", "300 of 300 samples", "no probe clearly"):
        assert word in text


def test_perfection_on_few_samples_is_not_certainty():
    e = np.repeat([0, 1], 12)
    found = quick(np.column_stack([10 * e, noise(24)]), e, probes=(LINEAR,))
    assert found.worst == 1
    assert found.interval[0] < 0.9
    assert found.interval[1] == 1


def test_strata_that_cannot_be_compared_are_left_out_and_noted():
    y = np.repeat([0, 1, 2], 100)
    e = np.where(y == 2, 0, labels(300, 2))
    found = quick(noise(300, 2), e, given=y)
    assert found.n_used == 200
    assert found.notes == ("100 samples left out, in strata with one level of e",)


def test_columns_that_do_not_vary_are_no_obstacle():
    Z = np.column_stack([np.full(300, 7.0), noise(300)])
    assert Views.of(Z, np.zeros(300, dtype=int), np.arange(300) < 150).standardised.shape == (300, 1)
    assert not quick(Z, labels(300, 2)).leaks


@pytest.mark.parametrize(
    ("argument", "Z", "e", "options"),
    [
        ("e", noise(50, 2), np.zeros(50, dtype=int), {}),  # one level only
        ("e", noise(50, 2), np.full(50, 0.5), {}),
        ("e", noise(50, 2), np.arange(50) // 48, {}),  # a level with two samples
        ("e", noise(50, 2), labels(49, 2), {}),
        ("Z", np.full((50, 2), np.nan), labels(50, 2), {}),
        ("e", noise(50, 2), np.r_[np.nan, noise(49)], {}),
        ("e", noise(50, 2), np.array(["a", None] * 25, dtype=object), {}),
        ("e", noise(50, 2), noise(50, 2, 2), {}),
        ("groups", noise(50, 2), np.arange(50) % 2, {"groups": np.arange(50) % 2}),  # each level in one group
        ("groups", noise(50, 2), labels(50, 2), {"groups": labels(49, 9)}),
        ("given", noise(50, 2), np.arange(50) % 2, {"given": np.arange(50) % 2}),  # nothing to compare
        ("given", noise(50, 2), labels(50, 2), {"given": noise(50)}),
        ("given", noise(50, 2), labels(50, 2), {"given": np.arange(50)}),  # each sample a stratum
        ("e", noise(50, 2), ["a", "b"] * 25, {"continuous": True}),
        ("e", noise(6, 2), noise(6), {}),  # too few
        ("Z", noise(50), labels(50, 2), {}),
        ("probes", noise(50, 2), labels(50, 2), {"probes": ()}),
        ("probes", noise(50, 2), labels(50, 2), {"probes": ["linear", "kernal"]}),
    ],
)
def test_bad_input_raises_and_names_the_argument(argument, Z, e, options):
    with pytest.raises(InputError) as raised:
        leakage(Z, e, random_state=0, **options)
    assert raised.value.argument == argument


@pytest.mark.parametrize("option", [{"n_seeds": 0}, {"n_permutations": 9}, {"max_samples": 50}])
def test_too_little_effort_raises(option):
    with pytest.raises(InputError) as raised:
        Effort(**option)
    assert raised.value.argument in option


def test_probes_may_be_called_by_their_names():
    Z, e = noise(200, 2), labels(200, 2)
    named, given = quick(Z, e, probes=("linear", QUADRATIC)), quick(Z, e, probes=(LINEAR, QUADRATIC))
    assert list(named.by_probe) == ["linear", "quadratic"]
    assert named.by_probe == given.by_probe
    assert list(quick(Z, e, probes="linear").by_probe) == ["linear"]


@pytest.mark.parametrize(
    ("argument", "inputs"),
    [
        ("Z", (np.ones((20, 2)), labels(20, 2))),
        ("fraction", (noise(20, 2), labels(20, 2), 1.5)),
        ("e", (noise(20, 2), np.c_[labels(20, 2), labels(20, 2)])),
    ],
)
def test_an_impossible_injection_raises(argument, inputs):
    with pytest.raises(InputError) as raised:
        inject_leak(*inputs)
    assert raised.value.argument == argument


@pytest.mark.parametrize("of_strata", [False, True])
def test_a_sparse_probe_finds_one_feature_among_thousands(of_strata):
    rng = np.random.default_rng(0)
    e, given = rng.integers(2, size=(2, 400))
    Z = rng.normal(size=(400, 2_000))
    Z[:, 7] += 3 * e
    conditions = {"given": given} if of_strata else {}
    dense, sparse = (leakage(Z, e, probes=name, random_state=0, **conditions).worst for name in ("linear", "sparse"))
    assert sparse > 0.85 > 0.75 > dense
