"""Known embeddings score what is known of them; what a metric is blind to does not change it, what it sees does."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pindown_papers import scores as scores_of
from pindown_papers.disentanglement import Score, read
from pindown_papers.scores import EqualWidth, Scores
from sklearn.svm import LinearSVC

from pindown.errors import InputError

SIZES = (10, 10, 10, 8, 4, 15)  # levels of the factors of Shapes3D
BY_FACTORS = (
    scores_of.beta_vae,
    scores_of.factor_vae,
    scores_of.mig,
    scores_of.modularity,
    scores_of.explicitness,
    scores_of.sap,
    scores_of.dci,
    scores_of.irs,
    scores_of.infomec,
)


def labels(n=1_500, sizes=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, n) for size in sizes], axis=1)


def known_embeddings(factors, seed=1):
    rng = np.random.default_rng(seed)
    z, n = (factors - factors.mean(axis=0)) / factors.std(axis=0), len(factors)
    rotation = np.linalg.qr(rng.normal(size=(z.shape[1], z.shape[1]))).Q
    return {
        "perfect": z,
        "noise dimensions": np.c_[z, rng.normal(size=(n, 4))],
        "rotated": z @ rotation,
        "duplicated": np.c_[z, z],
        "noise": rng.normal(size=z.shape),
    }


@pytest.fixture(scope="module")
def factors():
    return labels()


@pytest.fixture(scope="module")
def embeddings(factors):
    return known_embeddings(factors)


@pytest.fixture(scope="module")
def dci_of(embeddings, factors):
    return functools.cache(lambda name: scores_of.dci(embeddings[name], factors))


# What the reference implementations score at n = 1,500: their bins, their batches.


@pytest.mark.parametrize(
    ("name", "expected"),
    [("perfect", 0.976), ("noise dimensions", 0.972), ("duplicated", 0.0), ("noise", 0.003)],
)
def test_the_references_bins_give_the_references_mig(embeddings, factors, name, expected):
    assert abs(scores_of.mig(embeddings[name], factors, information=EqualWidth(20)).value - expected) < 0.015


@pytest.mark.parametrize(
    ("name", "expected"),
    [("perfect", 1.0), ("noise dimensions", 0.880), ("rotated", 0.864), ("duplicated", 1.0), ("noise", 0.660)],
)
def test_the_references_bins_give_the_references_modularity(factors, name, expected):
    drawn = [known_embeddings(factors, seed)[name] for seed in range(8)]
    found = [scores_of.modularity(z, factors, information=EqualWidth(20)).value for z in drawn]
    assert abs(np.mean(found) - expected) < 0.12


@pytest.mark.parametrize(
    ("name", "expected"), [("perfect", 1.0), ("noise dimensions", 1.0), ("duplicated", 1.0), ("noise", 0.180)]
)
def test_factor_vae_scores_known_embeddings_as_the_reference_does(factors, name, expected):
    draws = [scores_of.factor_vae(known_embeddings(factors, seed)[name], factors).value for seed in range(8)]
    assert abs(np.mean(draws) - expected) < 0.06


@pytest.mark.parametrize(
    ("name", "disentanglement", "completeness"),
    [("perfect", 1, 1), ("noise dimensions", 1, 1), ("duplicated", 1, 0.721), ("noise", 0.002, 0.002)],
)
def test_dci_scores_known_embeddings_as_the_reference_does(dci_of, name, disentanglement, completeness):
    found = dci_of(name)  # two equal latents: 1 − log 2 / log 12
    assert abs(found.disentanglement.value - disentanglement) < 0.02
    assert abs(found.completeness.value - completeness) < 0.02


def test_a_rotation_is_seen_by_mig_and_dci_and_hardly_by_factor_vae(embeddings, factors, dci_of):
    z = embeddings["rotated"]
    assert scores_of.mig(z, factors).value < 0.25
    assert dci_of("rotated").disentanglement.value < 0.25
    assert scores_of.factor_vae(z, factors).value > 0.4


@pytest.mark.parametrize("metric", BY_FACTORS)
def test_noise_scores_what_noise_scores(metric):
    factors, n_draws = labels(600), 1 if metric is scores_of.dci else 10  # trees take long, and hardly vary
    draws = [metric(known_embeddings(factors, seed)["noise"], factors, random_state=seed) for seed in range(n_draws)]
    for found in zip(*draws, strict=True):
        spread = 0.35 if "modularity" in found[0].name or "compactness" in found[0].name else 0.08
        assert abs(np.mean([score.value - score.noise for score in found])) < spread


@pytest.mark.parametrize("metric", BY_FACTORS)
def test_perfect_embeddings_score_above_noise(metric, embeddings, factors, dci_of):
    is_dci = metric is scores_of.dci  # trees take long, and hardly vary
    draws = [dci_of("perfect") if is_dci else metric(embeddings["perfect"], factors, random_state=k) for k in range(5)]
    for found in zip(*draws, strict=True):
        assert np.mean([score.value for score in found]) > np.mean([score.noise for score in found])


# Quantities: no bins.


def test_quantities_need_no_bins():
    factors = np.random.default_rng(0).normal(size=(800, 3))
    perfect, rotated = known_embeddings(factors)["perfect"], known_embeddings(factors)["rotated"]
    for metric in BY_FACTORS:
        for good, bad in zip(metric(perfect, factors), metric(rotated, factors), strict=True):
            assert good.value > 0.75, good
            assert good.value >= bad.value - 0.02, (good, bad)
    assert scores_of.mig(perfect, factors).value > 0.9
    assert scores_of.sap(perfect, factors).value > 0.9


def test_one_outlier_or_a_warp_ruins_equal_widths_and_not_ranks(factors):
    z = np.random.default_rng(0).normal(0, 0.1, size=factors.shape) + factors
    warped = np.exp(z)
    z[0] = 1_000
    for bad in (z, warped):
        assert scores_of.mig(bad, factors, information=EqualWidth(20)).value < 0.6
        assert scores_of.mig(bad, factors).value > 0.85


def test_whole_numbers_may_be_quantities():
    factors = np.random.default_rng(0).permutation(400)[:, None] % 211 * 1.0
    with pytest.raises(InputError) as no_pairs:
        scores_of.factor_vae(np.arange(60)[:, None], np.arange(60)[:, None])
    assert scores_of.sap(factors, factors, continuous=True).value == pytest.approx(1)  # and never more
    with pytest.raises(InputError) as too_many:
        scores_of.sap(factors, factors, continuous=[True, False])
    assert [error.value.argument for error in (no_pairs, too_many)] == ["factors", "continuous"]


def test_noise_is_not_the_noise_that_made_the_data():
    factors = np.random.default_rng(0).normal(size=(300, 3))
    assert scores_of.mig(factors, factors, random_state=0).noise < 0.2


# Invariances.


@given(st.permutations(range(4)), st.lists(st.sampled_from([-1.0, 1.0]), min_size=4, max_size=4), st.integers(0, 50))
@settings(max_examples=3, deadline=None)
def test_order_sign_scale_and_shift_of_latents_change_nothing(order, signs, seed):
    factors = labels(400, (3, 4, 5), seed)
    z = np.c_[factors, factors[:, 0]] + np.random.default_rng(seed).normal(0, 0.3, size=(400, 4))
    other = (z * signs * [3, 0.1, 7, 1] + [0, 5, -2, 1])[:, order]
    for metric in BY_FACTORS:
        for one, two in zip(metric(z, factors), metric(other, factors), strict=True):
            tolerance = 0.05 if "beta" in one.name or "sap" in one.name or "dci" in one.name else 0.02
            if one.name == "dci completeness":  # trees take either of two latents that predict one factor
                tolerance = 0.15
            assert abs(one.value - two.value) < tolerance, (one, two)


@given(st.integers(0, 1_000))
@settings(max_examples=8, deadline=None)
def test_monotone_maps_of_latents_change_no_information(seed):
    factors = labels(300, (3, 4), seed)
    z = factors + np.random.default_rng(seed).normal(0, 0.4, size=factors.shape)
    for metric in (scores_of.mig, scores_of.modularity):
        assert metric(z, factors).value == pytest.approx(metric(np.exp(3 * z), factors).value, abs=1e-9)


@pytest.mark.parametrize("metric", BY_FACTORS)
def test_dead_latents_are_ignored(metric, embeddings, factors):
    z, few = embeddings["perfect"][:300, :3], factors[:300, :3]
    dead = np.c_[np.full(300, 3.0), z, np.zeros(300)]
    for one, two in zip(metric(z, few), metric(dead, few), strict=True):
        assert one == two


@pytest.mark.parametrize("metric", BY_FACTORS)
@pytest.mark.parametrize(("d_hat", "d"), [(1, 3), (1, 1), (5, 1), (7, 2)])
def test_more_or_fewer_latents_than_factors_are_scored(metric, d_hat, d):
    factors = labels(300, (3, 4, 5)[:d])
    z = np.resize(factors.T, (d_hat, 300)).T + np.random.default_rng(0).normal(0, 0.1, size=(300, d_hat))
    for found in metric(z, factors):
        assert 0 <= found.value <= 1 + 1e-9
        assert np.isfinite([found.noise, found.rotation]).all()


# A support vector machine against liblinear.


@pytest.mark.parametrize("size", [2, 5])
def test_a_machine_of_one_latent_is_that_of_liblinear(size):
    rng = np.random.default_rng(size)
    factor = np.minimum(rng.geometric(0.4, 500) - 1, size - 1)[:, None]  # levels of unequal frequency
    samples = read(factor + rng.normal(0, 0.7, size=(500, 1)), factor, None)
    lines = scores_of.one_latent_svms(samples.z_hat[:, 0], samples.factors[0])
    theirs = LinearSVC(C=0.01, class_weight="balanced", tol=1e-8, max_iter=100_000).fit(
        samples.z_hat, samples.factors[0].labels
    )
    first = 0 if size > 2 else 1
    np.testing.assert_allclose(lines[first:, 0], theirs.coef_[:, 0], atol=1e-4)
    np.testing.assert_allclose(lines[first:, 1], theirs.intercept_, atol=1e-4)
    x = np.linspace(-5, 5, 300)
    predicted = scores_of.highest_line(lines, x)
    np.testing.assert_array_equal(predicted, theirs.predict(x[:, None]))


# Agreement of fits, without factors.


@pytest.mark.parametrize("method", ["lasso", "spearman"])
def test_udr_sees_whether_fits_agree_on_axes(method):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 4))
    same = scores_of.udr([z, -z[:, ::-1], z * [1, 2, 3, 4]], method=method)
    rotated = scores_of.udr([z @ np.linalg.qr(rng.normal(size=(4, 4))).Q for _ in range(3)], method=method)
    assert same.value > 0.75 > rotated.value
    assert same.noise < 0.15
    assert same.rotation < 0.75


def test_udr_finds_the_fit_that_differs():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 4))
    parts = scores_of.udr([z, z[:, ::-1], z[:, [1, 0, 3, 2]], rng.normal(size=(600, 4))]).parts
    assert np.argmin(parts) == 3


# Printing, versions, and what is wrong with the input.


@pytest.mark.parametrize("metric", [scores_of.modularity, scores_of.factor_vae])
def test_a_score_that_chance_also_has_warns_when_printed_alone_and_not_in_a_table(metric, embeddings, factors):
    found = metric(embeddings["perfect"][:200], factors[:200])
    assert "never alone" in str(found)
    assert "never alone" not in str(Scores((found, Score("mig", 1.0, 0.0, 0.1))))
    assert f"{found.noise:.3f}" in str(found)


def test_the_same_arrays_give_the_same_numbers_as_in_definition_1():
    factors = labels(500, (3, 4, 5), 7)
    z = np.c_[factors, factors[:, :1]] + np.random.default_rng(7).normal(0, 0.5, size=(500, 4))
    assert scores_of.DEFINITION == 1
    found = {score.name: score.value for score in scores_of.scores(z, factors)}
    assert found == pytest.approx(DEFINITION_1, abs=0.01)


DEFINITION_1 = {
    "beta_vae": 1.0000,
    "factor_vae": 1.0000,
    "mig": 0.4530,
    "modularity": 0.9998,
    "explicitness": 0.9471,
    "sap": 0.1560,
    "dci disentanglement": 0.5069,
    "dci completeness": 0.4129,
    "dci informativeness": 0.7587,
    "irs": 0.5327,
    "infomec modularity": 0.9891,
    "infomec compactness": 0.7780,
    "infomec explicitness": 0.6131,
}


def test_a_seed_gives_the_same_score(embeddings, factors):
    z, few = embeddings["rotated"][:200, :3], factors[:200, :3]
    for metric in BY_FACTORS:
        one, two = (list(metric(z, few, random_state=3)) for _ in range(2))
        assert one == two


def raises(argument, metric, *inputs, **options):
    with pytest.raises(InputError) as raised:
        metric(*inputs, **options)
    assert raised.value.argument == argument


@pytest.mark.parametrize("metric", BY_FACTORS)
def test_bad_input_raises_and_names_the_argument(metric, embeddings, factors):
    z = embeddings["perfect"]
    broken = z.copy()
    broken[3, 1] = np.nan
    raises("z_hat", metric, broken, factors)
    raises("factors", metric, z, factors * [1, 1, 0, 1, 1, 1])
    raises("z_hat", metric, np.ones_like(z), factors)
    raises("z_hat", metric, z, factors[:20])
    raises("z_hat", metric, z[:20], factors[:20])
    raises("factors", metric, z, factors[:, 0])


def test_bad_input_of_several_fits_raises(embeddings):
    z = embeddings["perfect"]
    for bad in ([z], z, [z, z[:100]]):
        raises("embeddings", scores_of.udr, bad)
    raises("embeddings[1]", scores_of.udr, [z, np.zeros_like(z)])
    raises("method", scores_of.udr, [z, z], method="ridge")
