"""Directions beyond noise: as many as latents behind noisy columns, all where there is no noise, in any units."""

from functools import partial

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Bodies
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from pindown import Classify, Contrast, Dictionary, Forget, networks, plan
from pindown.data import ArraySource, Source
from pindown.errors import InputError
from pindown.networks import preprocessing
from pindown.networks.preprocessing import edge, spectrum, spectrum_of_correlation
from pindown.networks.spaces import Reals
from pindown.simulate import Clusters, Nuisance, Pairs, Structured
from pindown.simulate.distributions import laplace
from pindown.training import Trainer


def table(n, d, k=4, noise=1.0, seed=0):
    """Return samples with k latents behind noisy features, whose noise and units differ."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) @ rng.normal(size=(k, d))
    x += noise * np.exp(0.3 * rng.normal(size=d)) * rng.normal(size=(n, d))
    return x * np.exp(rng.normal(size=d)) + 10 * rng.normal(size=d)


class Stream(Source):
    """Samples of an array that can only be iterated over."""

    def __init__(self, x):
        self.x, self.shape, self.n_samples = torch.as_tensor(x), tuple(x.shape[1:]), None

    def blocks(self, n_samples):
        yield from ({"x": rows} for rows in self.x.split(n_samples))


# how many directions


@pytest.mark.parametrize(("n", "d"), [(600, 200), (300, 2_000), (200, 60), (100, 400), (4_000, 100)])
def test_as_many_directions_stand_out_of_the_noise_of_columns_as_there_are_latents(n, d):
    found = [spectrum(table(n, d, seed=seed)) for seed in range(8)]
    assert [s.n_signal for s in found] == [4] * 8
    assert [s.n_kept for s in found] == [4] * 8
    assert f"4 of {min(n - 1, d)} directions" in found[0].account


@pytest.mark.parametrize("decades", [1, 2, 4])
@pytest.mark.parametrize("n", [40, 100, 300])
def test_variances_that_go_on_falling_are_not_taken_for_noise(n, decades):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rotation = np.linalg.qr(rng.normal(size=(30, 30))).Q
        x = rng.normal(size=(n, 30)) * np.logspace(0, -decades, 30) @ rotation
        found = spectrum(x)
        assert (found.n_signal, found.n_kept) == (30, min(30, n // 5))


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.0])
def test_the_noise_of_each_standardised_column_is_estimated(noise):
    rng = np.random.default_rng(1)
    loadings = rng.normal(size=(3, 80))
    own = noise * np.exp(0.3 * rng.normal(size=80))
    x = rng.normal(size=(2_000, 3)) @ loadings + own * rng.normal(size=(2_000, 80))
    truth = own**2 / ((loadings**2).sum(0) + own**2)
    found = spectrum(x)
    assert found.n_signal == 3
    assert np.abs(found.noise - truth).mean() < 0.05 * truth.mean() + 0.005
    assert np.corrcoef(found.noise, truth)[0, 1] > 0.9


@pytest.mark.parametrize("law", ["normal", "heavy", "rare"])
def test_of_pure_noise_nothing_stands_out_whatever_its_law(law):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        match law:
            case "normal":
                x = rng.normal(size=(300, 400))
            case "heavy":
                x = rng.standard_t(3, size=(300, 400))
            case _:
                x = rng.random((300, 400)) < 0.02
        found = spectrum(x[:, x.std(0) > 0])
        assert found.n_kept == 60  # a fifth of the samples
        assert "300 samples support no more, and none stands out" in found.account
        assert not found.noise.any()


SIMULATIONS = {
    "pairs": lambda: Pairs.on_sphere(10, concentration=4.0, random_state=0),
    "pairs in a box": lambda: Pairs.on_box(10, laplace(0.1), random_state=0),
    "clusters": lambda: Clusters.on_sphere(20, 60, 10.0, random_state=0),
    "nuisance": lambda: Nuisance.on_sphere(20, n_levels=4, concentration=10.0, n_layers=1, random_state=0),
    "nonlinear nuisance": lambda: Nuisance.on_sphere(12, n_levels=4, concentration=10.0, n_layers=3, random_state=0),
    "structured": lambda: Structured.from_support(np.tril(np.ones((8, 4)), -1) + np.eye(8, 4), random_state=0),
    "structured, wide": lambda: Structured.from_support(np.tri(30, 5), random_state=0),
    "bodies": lambda: Bodies.different(4, random_state=0),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_without_noise_no_direction_is_removed_as_long_as_samples_support_it(name):
    simulation = SIMULATIONS[name]()
    for n in (300, 1_000, 5_000):
        x = simulation.sample(n, random_state=1).x.double().numpy()
        x = x.reshape(n, -1)
        found = spectrum(x)
        assert found.n_kept == min(x.shape[1], n // 5)


def test_what_few_samples_do_not_support_is_left_out():
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30))).Q
    x = np.random.default_rng(0).normal(size=(40, 30)) * np.logspace(0, -4, 30) @ rotation
    found = spectrum(x)
    assert found.n_kept == 8
    assert found.account == "8 of 30 directions of the standardised features are kept: 40 samples support no more."


def test_where_samples_are_plenty_all_are_kept_although_noise_is_seen():
    found = spectrum(table(4_000, 40))
    assert (found.n_signal, found.n_kept) == (4, 40)
    assert (
        found.account == "all 40 directions of the standardised features are kept: there are 100 samples per feature."
    )


def test_the_edge_is_where_the_largest_variance_of_noise_lies():
    for n, d in ((400, 100), (100, 400)):
        own = np.exp(np.random.default_rng(0).normal(size=d))
        largest = []
        for seed in range(10):
            noise = np.sqrt(own) * np.random.default_rng(seed).normal(size=(n, d))
            largest.append(np.linalg.norm(noise, 2) ** 2 / n)
        assert 0.7 < np.mean(largest) / edge(own, d, n) < 1
        assert max(largest) < 1.15 * edge(own, d, n)


# the same in any units, found in any way


@pytest.mark.parametrize("shape", [(300, 60), (60, 300)])
def test_units_and_offsets_do_not_matter(shape):
    x = table(*shape)
    units = np.logspace(-6, 6, shape[1])
    first, second = spectrum(x), spectrum(x * units - 5 * units)
    assert (first.n_signal, first.n_kept, first.account) == (second.n_signal, second.n_kept, second.account)
    np.testing.assert_allclose(first.coordinates(x), second.coordinates(x * units - 5 * units), atol=1e-6)


def test_samples_and_features_lead_to_the_same_directions():
    x = table(100, 150)
    from_samples = spectrum(x)
    from_features = spectrum_of_correlation(x.mean(0), x.std(0), np.corrcoef(x.T), 100)
    assert from_samples.n_signal == from_features.n_signal == 4
    np.testing.assert_allclose(from_samples.variances, from_features.variances, rtol=1e-6)
    np.testing.assert_allclose(from_samples.coordinates(x), from_features.coordinates(x), atol=1e-6)


def test_leading_directions_suffice(monkeypatch):
    x = table(500, 400)
    exact = spectrum(x)
    monkeypatch.setattr(preprocessing, "MAX_FEATURES", 50)
    some = spectrum(x, max_directions=60)
    assert len(some.variances) == 60
    assert some.n_kept == exact.n_kept == 4
    np.testing.assert_allclose(some.coordinates(x), exact.coordinates(x), atol=1e-3)


def test_columns_that_never_vary_count_for_nothing():
    x = table(300, 60)
    wider = np.column_stack([x, np.full(300, 7.0), np.full(300, 0.1)])
    assert spectrum(wider).n_kept == spectrum(x).n_kept == 4
    assert np.abs(spectrum(wider).directions[60:]).max() < 1e-12
    np.testing.assert_allclose(spectrum(wider).coordinates(wider), spectrum(x).coordinates(x), atol=1e-9)


# the first layer


@pytest.mark.parametrize(("n", "d"), [(300, 60), (60, 300), (100, 4_200)])
def test_arrays_and_streams_have_the_same_first_layer(n, d):
    x = torch.as_tensor(table(n, d))
    of_array, of_stream = preprocessing.whiten_signal(ArraySource(x)), preprocessing.whiten_signal(Stream(x))
    assert of_array.note == of_stream.note.replace("of 100 directions", "of 99 directions")
    assert of_array.note.startswith("4 of ")
    torch.testing.assert_close(of_array(x), of_stream(x), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(torch.cov(of_array(x).T, correction=0), torch.eye(4), rtol=0, atol=1e-4)


def test_the_number_of_directions_can_be_set():
    x = table(300, 60)
    layer = partial(preprocessing.whiten_signal, n_components=7)(ArraySource(x))
    assert layer.shape_out == (7,)
    assert layer.note.startswith("7 ")
    with pytest.raises(InputError, match="n_components"):
        preprocessing.whiten_signal(ArraySource(x), n_components=0)


def test_a_first_layer_says_what_it_does_to_columns_and_then_to_all_of_them():
    x = torch.as_tensor(table(300, 60))
    for preprocess in (preprocessing.whiten_signal, preprocessing.whiten, preprocessing.standardise):
        layer = preprocess(ArraySource(x)).double()
        torch.testing.assert_close(layer.rescaling(x).double() @ layer.linear_map, layer(x), rtol=1e-5, atol=1e-5)


def test_samples_that_are_all_the_same_raise():
    for d in (3, 50, 5_000):
        with pytest.raises(InputError):
            preprocessing.default_preprocessing(ArraySource(np.full((10, d), 0.1)))


# what it does for methods

UNITS = {
    "wine": (load_wine, {0: 1e3, 4: 1e-3, 12: 1e-3}),  # alcohol in milligrams, magnesium in grams, proline in grams
    "diabetes": (load_diabetes, {0: 1e3, 2: 47.0, 9: 0.018}),
    "breast cancer": (load_breast_cancer, {3: 1e-2, 23: 1e-2, 29: 1e3}),
}


def in_other_units(name):
    load, factors = UNITS[name]
    X, y = load(return_X_y=True)
    other = X.copy()
    for column, factor in factors.items():
        other[:, column] *= factor
    return X, other, (y > np.median(y)).astype(int) if name == "diabetes" else y


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # so few steps forget little
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("make", [Classify, Contrast, Forget, partial(Forget, encoder=networks.linear)])
@pytest.mark.slow
def test_latents_are_the_same_in_any_units(name, make):
    X, other, y = in_other_units(name)
    kind = getattr(make, "func", make)
    fits = []
    for rows in (X, other):
        d = {} if kind is Forget else {"n_components": 2 if y.max() > 1 or kind is Contrast else 1}
        line = {"space": Reals(), "vector_space": Reals()} if d.get("n_components") == 1 else {}
        est = make(**d, **line, max_iter=15, verbose=False, device="cpu", random_state=0)
        fits.append(est.fit(rows, y).transform(rows))
    assert fits[0].shape == fits[1].shape
    np.testing.assert_allclose(fits[0], fits[1], atol=2e-4 * np.abs(fits[0]).max())


@pytest.mark.parametrize("name", UNITS)
def test_the_number_of_latents_is_the_same_in_any_units(name):
    X, other, y = in_other_units(name)
    for side in ({"nuisance": y}, {"signal": y}, {"pairs": np.arange(len(y)) // 2}, {}):
        first, second = plan(X, **side), plan(other, **side)
        assert first.n_components == second.n_components
        assert first.estimator == second.estimator
    assert first.estimator.startswith(Dictionary.__name__)


def test_a_feature_of_counts_changes_the_number_of_latents_by_one_at_most():
    X, e = table(600, 200), np.arange(600) % 3
    counts = np.random.default_rng(0).poisson(1e4, size=600)
    without, with_counts = (plan(rows, nuisance=e).n_components for rows in (X, np.column_stack([X, counts])))
    assert abs(with_counts - without) <= 1


# wide data


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("make", [Classify, Contrast])
def test_training_uses_the_directions_of_wide_data_and_finds_the_same_latents(make, monkeypatch):
    X, e = table(120, 500), np.arange(120) % 3
    est = make(2, max_iter=10, trainer=Trainer(validation_fraction=0), verbose=False, device="cpu", random_state=0)
    shapes = []
    forward = networks.Whiten.forward

    def watched(layer, x):
        shapes.extend([tuple(x.shape)] if torch.is_grad_enabled() else [])
        return forward(layer, x)

    monkeypatch.setattr(networks.Whiten, "forward", watched)
    y = X + 1e-3 if make is Contrast else e
    narrow = est.fit(X, y).transform(X)
    assert est.fitted_preprocessing(X).shape_out == (4,)
    assert sum(shape[1] == 4 for shape in shapes) >= 10  # in every step
    assert sum(shape[1] == 500 for shape in shapes) < 5
    monkeypatch.setattr(make, "_training_samples", lambda self, inputs, first: inputs)
    np.testing.assert_allclose(narrow, est.fit(X, y).transform(X), atol=1e-3 * np.abs(narrow).max())


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_samples_of_another_width_raise_although_preprocessing_would_accept_them():
    X, e = table(120, 500), np.arange(120) % 3
    est = Classify(2, max_iter=2, verbose=False, random_state=0).fit(X, e)
    with pytest.raises(ValueError, match="expecting"):
        est.transform(X[:, :4])
