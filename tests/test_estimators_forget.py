"""`Forget`: what it takes, what it refuses, and what it says."""

from functools import partial

import numpy as np
import pytest
from forgetting import confounded, linear, moved, normal, small, told
from raising import input_error
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from pindown import Forget, networks, theory
from pindown.errors import IdentifiabilityWarning
from pindown.methods.forget.linear_erasure import covariance_differences
from pindown.metrics import confounding, leakage
from pindown.metrics.dependence import Grouping, mean_differences
from pindown.networks import preprocessing
from pindown.simulate import Clusters, Nuisance
from pindown.training import Trainer

# what is chosen, kept and said


def test_the_number_of_latents_is_that_of_the_directions_without_differences():
    X, e = moved()
    forget = linear(max_iter=20).fit(X, e)
    assert (forget.n_components_, forget.n_nuisance_directions_) == (3, (2, 0))
    assert forget.get_feature_names_out().tolist() == ["forget0", "forget1", "forget2"]
    assert np.abs(forget.components_[:, :2]).max() < 0.15  # the columns that move
    assert forget.guarantee is theory.FORGET
    assert Forget().guarantee is theory.FORGET_NONLINEAR


def test_latents_are_the_orthonormal_components_times_the_centred_data():
    X, e = moved()
    X = X * [1, 1, 100, 1, 0.01]
    forget = linear(max_iter=20).fit(X, e)
    rows = forget.components_ * X.std(0)
    assert np.abs(rows @ rows.T - np.eye(3)).max() < 1e-6
    assert np.allclose(forget.transform(X), (X - X.mean(0)) @ forget.components_.T, atol=1e-4)


def test_noise_is_not_taken_for_a_difference_of_means_or_spreads_and_a_difference_is():
    found = []
    for seed in range(20):
        x, e = normal(500, 6, seed=seed), np.random.default_rng(seed).integers(4, size=500)
        grouping = Grouping(e, 0 * e)
        rng = np.random.default_rng(0)
        found.append(len(mean_differences(x, grouping)) + len(covariance_differences(x, grouping, rng)))
        assert len(mean_differences(x + np.outer(e == 0, [0.8, 0, 0, 0, 0, 0]), grouping)) == 1
        assert len(covariance_differences(x * (1 + np.outer(e == 0, [1.0, 0, 0, 0, 0, 0])), grouping, rng)) == 1
    assert sum(found) == 0


def test_the_history_has_every_step_and_a_probe_trained_afterwards_on_rows_held_out():
    X, e = moved(n=3_000)
    forget = linear(max_iter=60, trainer=Trainer(validation_fraction=0.2)).fit(X, e)
    history = forget.history_
    assert len(history.classifier_loss) == len(history.classifier_accuracy) == len(history.reconstruction) == 60
    assert history.chance_loss == pytest.approx(np.log(3))
    assert np.abs(history.classifier_loss[-10:].mean() - np.log(3)) < 0.1
    # Of five whitened columns three are rebuilt, and of two the share that lies between values.
    assert history.reconstruction[-1] == pytest.approx(2 / 5 * 9 / 41, abs=0.03)
    assert history.probe.n_samples == 500  # of 600, since the code is linear
    assert not history.probe.leaks


def test_a_leak_found_afterwards_is_reported():
    X, e = moved(n=3_000)
    options = {"encoder": small, "decoder": small, "max_iter": 20, "device": "cpu", "random_state": 0}
    autoencoder = Forget(5, strength=0.0, **options)
    with pytest.warns(IdentifiabilityWarning) as record:
        autoencoder.fit(X, e)
    assert "n_components=5 is more than the 3 invariant directions" in str(record[0].message)
    assert "on 300 held-out samples, the nuisance can still be predicted" in str(record[1].message)


def test_directions_along_which_nothing_varies_or_that_rows_do_not_support_are_no_latents():
    rng = np.random.default_rng(0)
    X, e = rng.normal(size=(30, 60)), np.arange(30) % 3
    forget = linear(max_iter=2, preprocess=preprocessing.whiten).fit(X, e)
    assert forget.n_components_ == 29 - sum(forget.n_nuisance_directions_)
    forget = linear(max_iter=2).fit(X, e)
    assert forget.n_components_ == 6 - sum(forget.n_nuisance_directions_)  # a direction for five rows


def test_a_direction_that_hardly_varies_but_leaks_takes_no_other_away():
    rng = np.random.default_rng(0)
    e = np.arange(600) % 2
    X = np.column_stack([rng.normal(size=(600, 2)), 1e-6 * rng.normal(size=600) + 1e-5 * e])
    assert linear(max_iter=2).fit(X, e).n_components_ == 2


def test_a_level_among_rare_ones_has_nothing_to_be_compared_with():
    X, _ = moved(n=300)
    with pytest.raises(ValueError, match="compare"):
        linear(max_iter=2).fit(X, np.arange(300) == 0)


def test_too_few_rows_are_not_probed():
    few = linear(max_iter=5, trainer=Trainer(validation_fraction=0.1)).fit(*moved(n=190))
    assert few.history_.probe is None
    assert few.held_out_ is None


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # after five steps some leaks
def test_of_few_samples_a_quarter_is_held_out_for_any_encoder():
    for forget in (
        linear(max_iter=5, trainer=Trainer(validation_fraction=0.1)),
        Forget(encoder=small, max_iter=5, random_state=0),
    ):
        held_out = forget.fit(*moved(n=300)).held_out_
        assert held_out.n_samples == 75
        assert held_out.chance == pytest.approx(1 / 3)


@pytest.mark.parametrize("encoder", [networks.linear, small])
def test_the_inverse_rebuilds_what_latents_and_nuisance_determine(encoder):
    X, e = moved(n=2_000)
    names = np.array(["a", "b", "c"])[e]
    forget = Forget(
        encoder=encoder,
        decoder=small,
        max_iter=150,
        trainer=Trainer(validation_fraction=0.0),
        device="cpu",
        random_state=0,
    )
    forget.fit(X, names)
    rebuilt = forget.inverse_transform(forget.transform(X), names)
    share = 1 - np.square(rebuilt - X).mean(0) / X.var(0)
    assert share[:2] == pytest.approx([32 / 41, 32 / 41], abs=0.1)  # the means of values: 32/9 of a variance of 41/9
    assert share[2:].min() > 0.95  # what the nuisance does not touch
    others = forget.inverse_transform(forget.transform(X), np.roll(names, 1))
    assert np.square(others - X).mean(0)[0] > 2 * np.square(rebuilt - X).mean(0)[0]


def test_the_inverse_refuses_unknown_values_and_shapes():
    X, e = moved()
    forget = linear(max_iter=5).fit(X, e)
    Z = forget.transform(X)
    with pytest.raises(ValueError, match="Levels"):
        forget.inverse_transform(Z[:1], [7])
    with pytest.raises(ValueError, match="columns"):
        forget.inverse_transform(Z[:, :2], e)
    with pytest.raises(ValueError, match="column"):
        forget.inverse_transform(Z, np.stack([e, e], 1))


# several columns, quantities, given labels


def test_several_nuisances_are_removed_and_so_is_their_interaction():
    e = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[np.arange(4_000) % 4]
    both = e[:, 0] ^ e[:, 1]
    X = normal(4_000, 5) + 4 * np.stack([e[:, 0], e[:, 1], both, 0 * both, 0 * both], 1)
    forget = linear(max_iter=100).fit(X, e)
    assert forget.n_components_ == 2
    assert len(forget.objective_.sizes) == 3  # a head for each column, and one for both
    Z = forget.transform(X)
    joined = 2 * e[:, 0] + e[:, 1]
    assert not told(Z, joined).leaks
    assert told(X[:, 2:], e).leaks is False  # columns one by one would not have shown it
    assert told(X[:, 2:], joined).leaks


def test_quantities_are_forgotten_if_bins_are_requested():
    rng = np.random.default_rng(0)
    dose = rng.normal(size=4_000)
    X = normal(4_000, 4, seed=1) + np.outer(dose, [2, 0, 0, 0]) + np.outer(dose**2, [0, 2, 0, 0])
    forget = linear(n_bins=8, max_iter=100).fit(X, dose)
    assert forget.n_components_ == 2
    assert told(X, dose).worst > 0.7
    assert not told(forget.transform(X), dose).leaks
    rebuilt = forget.inverse_transform(forget.transform(X), dose)
    assert 1 - np.square(rebuilt - X)[:, 2].mean() / X[:, 2].var() > 0.9
    with pytest.raises(ValueError, match="n_bins=8"):
        linear().fit(X, dose)
    with pytest.raises(ValueError, match="n_bins=8"):
        linear(n_bins=8).fit(X[:6], list("aaabbb"))


def test_given_a_label_latents_keep_it_and_are_blind_within_its_values():
    sample = confounded()
    assert confounding(sample.label, sample.u).bits > 0.3
    blind = linear(max_iter=200).fit(sample.x, sample.u)
    given = linear(max_iter=200).fit(sample.x, sample.u, given=sample.label)
    assert (blind.n_components_, given.n_components_) == (3, 3)
    kept, lost = (told(forget.transform(sample.x), sample.label).worst for forget in (given, blind))
    assert kept > 0.9 > 0.8 > lost  # without it, much of the label goes with the nuisance
    Z = given.transform(sample.x)
    assert not told(Z, sample.u, given=sample.label).leaks
    assert told(Z, sample.u).leaks  # as it must: the label tells the nuisance
    assert told(sample.x, sample.u, given=sample.label).leaks


# what is refused, and what is warned of


def test_a_nuisance_with_one_value_is_refused():
    with pytest.raises(ValueError, match="nothing"):
        linear().fit(normal(20, 3), np.ones(20, dtype=int))


def test_missing_values_are_refused():
    e = np.array([0.0, 1.0] * 10)
    e[3] = np.nan
    with input_error("y"):
        linear().fit(normal(20, 3), e)
    with input_error("X"):
        linear().fit(np.where(normal(20, 3) > 0, np.nan, 1.0), np.arange(20) % 2)
    with input_error("given"):
        linear().fit(normal(20, 3), np.arange(20) % 2, given=e)


def test_a_level_with_two_samples_is_left_out_with_a_warning():
    X, e = moved(n=300)
    e[:2] = 9
    with pytest.warns(IdentifiabilityWarning, match="samples"):
        forget = linear(max_iter=10).fit(X, e)
    assert forget.n_components_ == 3
    assert np.isfinite(forget.transform(X)).all()
    with pytest.raises(ValueError, match="samples"):
        linear().fit(normal(20, 3), np.arange(20) // 2)


def test_a_nuisance_identical_to_the_given_label_is_refused_unless_the_label_is_left_out():
    X, e = moved(n=300)
    with pytest.raises(ValueError, match="removed"):
        linear().fit(X, e, given=np.array(list("abc"))[e])
    assert linear(max_iter=5).fit(X, e).n_components_ == 3


def test_where_every_direction_leaks_one_latent_is_kept_with_a_warning():
    e = np.arange(600) % 4
    X = normal(600, 3) + 5 * np.eye(4)[e][:, :3]
    with pytest.warns(IdentifiabilityWarning, match="directions"):
        assert linear(max_iter=5).fit(X, e).n_components_ == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"strength": -1.0}, "strength == -1.0, must be >= 0"),
        ({"trainer": Trainer(validation_fraction=0.9)}, "validation_fraction == 0.9, must be <= 0.5"),
        (
            {"classifier": lambda n_in, n_out: nn.Linear(n_in, 1), "encoder": small},
            "`classifier` maps",
        ),
        ({"n_bins": 1}, "n_bins == 1, must be >= 2"),
        ({"n_components": 9}, "n_components=9 is more than n_features=5"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Forget(**parameters).fit(*moved())


def test_given_must_be_a_label_for_each_row():
    X, e = moved()
    with pytest.raises(ValueError, match="given"):
        linear().fit(X, e, given=[0, 1])
    with input_error("given"):
        linear().fit(X, e, given=normal(600))


# simulations, checkpoints, reproducibility


def test_a_simulation_can_be_forgotten_with_fresh_samples():
    world = Nuisance.on_sphere(6, 3, 10.0, n_layers=1, weights=(5.0, 1.0, 1.0), random_state=0)
    forget = linear(max_iter=200).fit_process(world)
    assert forget.n_components_ == 4
    assert forget.history_.probe.worst < 0.5  # by chance ⅓
    with pytest.raises(ValueError, match="Clusters"):
        linear().fit_process(Clusters.on_sphere(3, 4, 5.0, random_state=0))


@pytest.mark.parametrize("encoder", [networks.linear, small])
def test_a_resumed_fit_equals_an_unbroken_one(encoder, tmp_path, monkeypatch):
    X, e = moved()
    make = partial(Forget, encoder=encoder, decoder=small, max_iter=75, random_state=0, device="cpu")
    whole = make().fit(X, e)
    path = tmp_path / "fit.safetensors"
    from pindown.training import steps as training

    steps = 0
    plain = training.PlainStep.__call__

    def broken(self, step):
        nonlocal steps
        steps += 1
        if steps == 40:
            raise RuntimeError("the lights went out")
        plain(self, step)

    monkeypatch.setattr(training.PlainStep, "__call__", broken)
    monkeypatch.setattr("pindown.training.checkpoints.Checkpoint.is_due", lambda self: True)
    with pytest.raises(RuntimeError, match="lights"):
        make(trainer=Trainer(checkpoint=path)).fit(X, e)
    resumed = make(trainer=Trainer(checkpoint=path)).fit(X, e)
    assert steps == 40 + 50  # it went on from step 25
    assert np.array_equal(resumed.transform(X), whole.transform(X))
    assert np.array_equal(resumed.history_.classifier_loss, whole.history_.classifier_loss)


def test_the_same_seed_gives_the_same_latents_and_another_does_not():
    X, e = moved()
    make = partial(Forget, encoder=small, decoder=small, max_iter=10, device="cpu")
    first, again, other = (make(random_state=seed).fit(X, e).transform(X) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_closed_form_has_no_steps_to_warn_about(recwarn):
    rng = np.random.default_rng(0)
    site, x = rng.integers(2, size=400), rng.normal(size=(400, 5))
    x[:, 0] += 2 * site
    Forget(random_state=0, device="cpu", verbose=False).fit(x, site)
    assert not [warning for warning in recwarn if issubclass(warning.category, ConvergenceWarning)]


def test_a_constant_feature_has_no_rounding_errors_that_differ_between_batches():
    rng = np.random.default_rng(0)
    site = rng.integers(3, size=600)
    x = np.c_[rng.normal(size=(600, 4)) + rng.normal(size=(3, 4))[site], np.full(600, 7.1)]
    latents = Forget(random_state=0, device="cpu", verbose=False).fit(x, site).transform(x, site)
    assert not latents[:, 4].any()
    assert leakage(latents, site, probes="sparse", random_state=0).worst < 0.5
