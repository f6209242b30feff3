"""`Forget`: what it takes, what it refuses, what it says, and the game it plays."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from pindown import Forget, networks, optimizers, theory
from pindown.estimators import IdentifiabilityWarning
from pindown.estimators._blind import Grouping, even_rows, told_by_means, told_by_spreads
from pindown.losses import reverse_gradient
from pindown.metrics import PROBES, confounding, leakage
from pindown.mixing import leaky_relu_mlp
from pindown.networks import Frame, nearest_frame
from pindown.optimizers import Rivals, rivals
from pindown.processes import Clusters, Confounded, Nuisance

linear = partial(Forget, encoder=networks.linear, random_state=0, device="cpu", holdout=0.0)
small = partial(networks.unfolded, hidden=(16,))
READERS = PROBES[:2]  # linear and quadratic


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def moved(n=600, seed=0):
    """Three values that move the first two of five columns."""
    e = np.random.default_rng(seed).integers(3, size=n)
    centres = np.array([[0, 0], [4, 0], [0, 4]])
    return normal(n, 5, seed=seed) + np.hstack([centres[e], np.zeros((n, 3))]), e


def told(Z, e, **options):
    return leakage(Z, e, probes=READERS, n_permutations=99, random_state=0, **options)


# what is chosen, kept and said


def test_the_number_of_codes_is_that_of_the_directions_without_differences():
    X, e = moved()
    forget = linear(max_iter=20).fit(X, e)
    assert (forget.n_components_, forget.n_told_) == (3, (2, 0))
    assert forget.get_feature_names_out().tolist() == ["forget0", "forget1", "forget2"]
    assert np.abs(forget.components_[:, :2]).max() < 0.1  # the columns that move
    assert forget.guarantee is theory.FORGET
    assert Forget().guarantee is theory.FORGET_NONLINEAR


def test_the_code_is_the_components_times_the_centred_data_and_they_are_orthonormal():
    X, e = moved()
    X = X * [1, 1, 100, 1, 0.01]  # in their own units
    forget = linear(max_iter=20).fit(X, e)
    assert np.abs(forget.components_ @ forget.components_.T - np.eye(3)).max() < 1e-6
    assert np.allclose(forget.transform(X), (X - X.mean(0)) @ forget.components_.T, atol=1e-4)


def test_noise_is_not_taken_for_a_difference_of_means_or_spreads_and_a_difference_is():
    found = []
    for seed in range(20):
        x, e = normal(500, 6, seed=seed), np.random.default_rng(seed).integers(4, size=500)
        grouping = Grouping(e, 0 * e)
        rng = np.random.default_rng(0)
        found.append(len(told_by_means(x, grouping)) + len(told_by_spreads(x, grouping, rng)))
        assert len(told_by_means(x + np.outer(e == 0, [0.8, 0, 0, 0, 0, 0]), grouping)) == 1
        assert len(told_by_spreads(x * (1 + np.outer(e == 0, [1.0, 0, 0, 0, 0, 0])), grouping, rng)) == 1
    assert sum(found) == 0


def test_the_history_has_every_step_and_a_probe_trained_afterwards_on_rows_held_out():
    X, e = moved(n=3_000)
    forget = linear(max_iter=60, holdout=0.2).fit(X, e)
    history = forget.history_
    assert len(history.classifier_loss) == len(history.classifier_accuracy) == len(history.reconstruction) == 60
    assert history.chance_loss == pytest.approx(np.log(3))
    assert np.abs(history.classifier_loss[-10:].mean() - np.log(3)) < 0.1
    # Of five whitened columns three are rebuilt, and of two the share that lies between values.
    assert history.reconstruction[-1] == pytest.approx(2 / 5 * 9 / 41, abs=0.03)
    assert history.probe.n_rows == 500  # of 600, since the code is linear
    assert not history.probe.leaks


def test_a_leak_found_afterwards_is_reported():
    X, e = moved(n=3_000)
    autoencoder = Forget(5, strength=0.0, encoder=small, decoder=small, max_iter=20, device="cpu", random_state=0)
    with pytest.warns(IdentifiabilityWarning) as record:
        autoencoder.fit(X, e)
    assert "n_components=5 is more than the 3 blind directions" in str(record[0].message)
    assert "on 300 rows held out, e leaks" in str(record[1].message)


def test_directions_along_which_nothing_varies_are_no_codes():
    rng = np.random.default_rng(0)
    forget = linear(max_iter=2).fit(rng.normal(size=(30, 60)), np.arange(30) % 3)
    assert forget.n_components_ == 29 - sum(forget.n_told_)


def test_a_direction_that_hardly_varies_but_tells_the_nuisance_takes_no_other_away():
    rng = np.random.default_rng(0)
    e = np.arange(600) % 2
    X = np.column_stack([rng.normal(size=(600, 2)), 1e-6 * rng.normal(size=600) + 1e-5 * e])
    assert linear(max_iter=2).fit(X, e).n_components_ == 2


def test_a_value_beside_which_all_others_are_rare_has_nothing_to_be_compared_with():
    X, _ = moved(n=300)
    with pytest.raises(ValueError, match="y has one common value, and others too rare to compare"):
        linear(max_iter=2).fit(X, np.arange(300) == 0)


def test_too_few_rows_are_not_probed():
    assert linear(max_iter=5, holdout=0.1).fit(*moved()).history_.probe is None


@pytest.mark.parametrize("encoder", [networks.linear, small])
def test_the_inverse_rebuilds_what_code_and_nuisance_tell(encoder):
    X, e = moved(n=2_000)
    names = np.array(["a", "b", "c"])[e]
    forget = Forget(encoder=encoder, decoder=small, max_iter=150, holdout=0.0, device="cpu", random_state=0)
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
    with pytest.raises(ValueError, match=r"not there in fit: 7\. It knows 0, 1, 2"):
        forget.inverse_transform(Z[:1], [7])
    with pytest.raises(ValueError, match="Z must have 3 columns"):
        forget.inverse_transform(Z[:, :2], e)
    with pytest.raises(ValueError, match=r"y must have 1 column\(s\), as in fit, got 2"):
        forget.inverse_transform(Z, np.stack([e, e], 1))


# several columns, quantities, given labels


def test_several_columns_are_forgotten_and_what_they_tell_together():
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


def test_quantities_are_forgotten_if_bins_are_asked_for():
    rng = np.random.default_rng(0)
    dose = rng.normal(size=4_000)
    X = normal(4_000, 4, seed=1) + np.outer(dose, [2, 0, 0, 0]) + np.outer(dose**2, [0, 2, 0, 0])
    forget = linear(n_bins=8, max_iter=100).fit(X, dose)
    assert forget.n_components_ == 2
    assert told(X, dose).worst > 0.7
    assert not told(forget.transform(X), dose).leaks
    rebuilt = forget.inverse_transform(forget.transform(X), dose)
    assert 1 - np.square(rebuilt - X)[:, 2].mean() / X[:, 2].var() > 0.9
    with pytest.raises(ValueError, match=r"has fractions\. If it is a quantity say so by n_bins=8"):
        linear().fit(X, dose)
    with pytest.raises(ValueError, match="n_bins=8 makes y a quantity, but it holds text such as 'a'"):
        linear(n_bins=8).fit(X[:6], list("aaabbb"))


def confounded(seed=0):
    joint = torch.tensor([[8.0, 1.0], [1.0, 8.0]])
    labels = torch.tensor([[-1.5, 0.0, 0.0], [1.5, 0.0, 0.0]])
    mixing = leaky_relu_mlp(4, n_layers=1, random_state=seed)
    return Confounded(labels, torch.tensor([[-2.0], [2.0]]), joint, mixing).sample(6_000, random_state=seed + 1)


def test_given_a_label_codes_keep_it_and_are_blind_within_its_values():
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
    with pytest.raises(ValueError, match="y has one value only, 1, in 1 class: there is nothing to forget"):
        linear().fit(normal(20, 3), np.ones(20, dtype=int))


def test_missing_values_are_refused():
    e = np.array([0.0, 1.0] * 10)
    e[3] = np.nan
    with pytest.raises(ValueError, match=r"y \(the nuisance values\) contains NaN or None"):
        linear().fit(normal(20, 3), e)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        linear().fit(np.where(normal(20, 3) > 0, np.nan, 1.0), np.arange(20) % 2)
    with pytest.raises(ValueError, match=r"given label.* contains NaN"):
        linear().fit(normal(20, 3), np.arange(20) % 2, given=e)


def test_a_value_with_two_rows_is_left_out_of_the_game_and_the_estimator_says_so():
    X, e = moved(n=300)
    e[:2] = 9
    with pytest.warns(IdentifiabilityWarning, match="2 rows have a value of y that is too rare"):
        forget = linear(max_iter=10).fit(X, e)
    assert forget.n_components_ == 3
    assert np.isfinite(forget.transform(X)).all()
    with pytest.raises(ValueError, match="no value of y has 3 rows: with 10 values in 20 rows it names rows"):
        linear().fit(normal(20, 3), np.arange(20) // 2)


def test_a_nuisance_identical_to_the_given_label_is_refused_unless_the_label_is_left_out():
    X, e = moved(n=300)
    with pytest.raises(ValueError, match=r"hiding y would hide given.* To forget both, leave given out"):
        linear().fit(X, e, given=np.array(list("abc"))[e])
    assert linear(max_iter=5).fit(X, e).n_components_ == 3


def test_where_every_direction_tells_the_nuisance_one_code_is_kept_with_a_warning():
    e = np.arange(600) % 4
    X = normal(600, 3) + 5 * np.eye(4)[e][:, :3]
    with pytest.warns(IdentifiabilityWarning, match="every direction tells the nuisance: in 3 of 3 directions means"):
        assert linear(max_iter=5).fit(X, e).n_components_ == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"strength": -1.0}, "strength == -1.0, must be >= 0"),
        ({"holdout": 0.9}, "holdout == 0.9, must be <= 0.5"),
        ({"n_bins": 1}, "n_bins == 1, must be >= 2"),
        ({"n_components": 9}, "n_components=9 is more than n_features=5"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Forget(**parameters).fit(*moved())


def test_given_must_be_a_label_for_each_row():
    X, e = moved()
    with pytest.raises(ValueError, match=r"one label for each of the 600 rows, got shape \(2,\)"):
        linear().fit(X, e, given=[0, 1])
    with pytest.raises(ValueError, match="given must be labels, but has fractions"):
        linear().fit(X, e, given=normal(600))


# worlds, checkpoints, reproducibility


def test_a_world_can_be_forgotten_with_fresh_samples():
    world = Nuisance.on_sphere(6, 3, 10.0, n_layers=1, weights=(5.0, 1.0, 1.0), random_state=0)
    forget = linear(max_iter=60).fit_process(world)
    assert forget.n_components_ == 4
    assert forget.history_.probe.worst < 0.4
    with pytest.raises(ValueError, match=r"Clusters has none\. Give a world of Nuisance"):
        linear().fit_process(Clusters.on_sphere(3, 4, 5.0, random_state=0))


@pytest.mark.parametrize("encoder", [networks.linear, small])
def test_a_resumed_fit_equals_an_unbroken_one(encoder, tmp_path, monkeypatch):
    X, e = moved()
    make = partial(Forget, encoder=encoder, decoder=small, max_iter=75, random_state=0, device="cpu")
    whole = make().fit(X, e)
    path = tmp_path / "fit.safetensors"
    from pindown import training

    steps = 0
    plain = training._PlainStep.__call__

    def broken(self, step):
        nonlocal steps
        steps += 1
        if steps == 40:
            raise RuntimeError("the lights went out")
        plain(self, step)

    monkeypatch.setattr(training._PlainStep, "__call__", broken)
    monkeypatch.setattr("pindown.checkpoints.Checkpoint.is_due", lambda self: True)
    with pytest.raises(RuntimeError, match="lights"):
        make(checkpoint=path).fit(X, e)
    resumed = make(checkpoint=path).fit(X, e)
    assert steps == 40 + 50  # it went on from step 25
    assert np.array_equal(resumed.transform(X), whole.transform(X))
    assert np.array_equal(resumed.history_.classifier_loss, whole.history_.classifier_loss)


def test_the_same_seed_gives_the_same_codes_and_another_does_not():
    X, e = moved()
    make = partial(Forget, encoder=small, decoder=small, max_iter=10, device="cpu")
    first, again, other = (make(random_state=seed).fit(X, e).transform(X) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


# the parts of the game


def test_a_reversed_gradient_has_the_other_sign_and_the_value_is_untouched():
    z = torch.tensor([[1.0, -2.0]], requires_grad=True)
    out = reverse_gradient(z, 0.5)
    assert torch.equal(out, z)
    (out * torch.tensor([[1.0, 10.0]])).sum().backward()
    assert torch.equal(z.grad, torch.tensor([[-0.5, -5.0]]))


def test_the_nearest_frame_is_the_polar_factor_and_stays_so_for_skewed_rows():
    matrix = torch.as_tensor(normal(4, 7))
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.allclose(nearest_frame(matrix), u @ vt, atol=1e-6)


class Tug(nn.Module):
    """A game without a middle: one pulls where the other pushes."""

    def __init__(self):
        super().__init__()
        self.encoder, self.answer = nn.Linear(1, 1), nn.Parameter(torch.ones(1))

    def forward(self):
        return self.encoder.weight.sum() * self.answer.sum()


def test_who_answers_keeps_the_rate_and_who_leads_follows_the_schedule():
    game = Tug()
    optimizer = rivals(game, 0.1, 0.0, answer_rate=0.5)
    assert isinstance(optimizer, Rivals)
    before = game.encoder.weight.item(), game.answer.item()
    for group in optimizer.param_groups:
        group["lr"].fill_(0.0)
    game().backward()
    optimizer.step()
    assert game.encoder.weight.item() == before[0]
    assert abs(game.answer.item() - before[1]) == pytest.approx(0.5, rel=1e-4)


def test_a_frame_stands_still_where_its_gradient_is_noise_and_other_weights_do_not():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleList([Frame(torch.eye(2)), nn.Linear(2, 2, bias=False)])

    game = Two()
    before = [part.weight.detach().clone() for part in game.encoder]
    for part in game.encoder:
        part.weight.grad = torch.full((2, 2), 1e-4)
    rivals(game, 0.1, 0.0).step()
    frame, other = ((part.weight - old).abs().max().item() for part, old in zip(game.encoder, before, strict=True))
    assert other == pytest.approx(0.1, rel=1e-3)
    assert frame < 0.001


def test_rivals_need_an_encoder():
    with pytest.raises(TypeError, match="the objective must have an encoder"):
        optimizers.rivals(nn.Linear(1, 1), 0.1, 0.0)


# where a game starts, and which one is kept


def test_even_rows_show_groups_alike_where_each_lies_in_a_plane_of_its_own():
    rng = np.random.default_rng(0)
    e = rng.integers(2, size=6_000)
    planes = [np.linalg.qr(rng.normal(size=(4, 2))).Q.T for _ in range(2)]
    x = np.stack([rng.normal(size=2) @ planes[value] for value in e])
    grouping = Grouping(e, 0 * e)

    def unlike(rows):
        covariances = np.stack([np.cov((x[e == value] @ rows.T).T) for value in range(2)])
        return np.abs(covariances - np.eye(2)).max()

    found = even_rows(x, [grouping], np.eye(4)[:2], rng)
    assert unlike(found) < 0.05
    assert min(unlike(np.linalg.qr(rng.normal(size=(4, 2))).Q.T) for _ in range(20)) > 0.3


def test_even_rows_keep_off_differences_of_means_and_do_without_too_few_rows():
    X, e = moved(n=3_000)
    rows = even_rows(X, [Grouping(e, 0 * e)], np.eye(5)[2:], np.random.default_rng(0))
    assert np.abs(rows[:, :2]).max() < 0.05 * np.abs(rows[:, 2:]).max()
    few = X[:20], [Grouping(e[:20], 0 * e[:20])]
    assert np.array_equal(even_rows(*few, np.eye(5)[2:], np.random.default_rng(0)), np.eye(5)[2:])


def test_a_code_that_bends_starts_with_one_mean_and_covariance_within_each_value_of_a_given_label():
    sample = confounded()
    forget = Forget(encoder=small, decoder=small, max_iter=1, strength=0.0, holdout=0.0, device="cpu", random_state=0)
    Z = forget.fit(sample.x, sample.u, given=sample.label).transform(sample.x).numpy()
    label, e = sample.label.numpy(), sample.u.numpy()
    gaps = [Z[(label == c) & (e == 0)].mean(0) - Z[(label == c) & (e == 1)].mean(0) for c in (0, 1)]
    assert np.abs(gaps).max() < 0.2
    assert np.abs(Z[label == 0].mean(0) - Z[label == 1].mean(0)).max() > 0.5  # which the label moves


def test_of_several_games_the_one_with_the_least_score_is_kept(monkeypatch):
    games = []

    def score(self, game, seed):
        games.append(game)
        return [3.0, 1.0, 2.0][len(games) - 1]

    monkeypatch.setattr(Forget, "_missed_and_told", score)
    forget = linear(n_restarts=3, max_iter=5).fit(*moved())
    assert forget.restart_scores_.tolist() == [3.0, 1.0, 2.0]
    assert forget.objective_ is games[1]
    assert not hasattr(linear(max_iter=5).fit(*moved()), "restart_scores_")


@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
def test_the_score_of_a_game_is_what_is_missed_and_what_a_fresh_probe_reads():
    X, e = moved(n=2_500)

    def scores(n_components, strength):
        make = partial(Forget, encoder=small, decoder=small, max_iter=3, n_restarts=2, device="cpu", random_state=0)
        return make(n_components, strength=strength).fit(X, e).restart_scores_

    assert scores(5, 0.0).max() < 0.05  # all is kept, and what is told counts nothing
    assert scores(5, 1.0).min() > 0.7  # nearly log 3 nats are told
    assert scores(2, 0.0).min() > 0.15  # a column of five is missed


def test_games_are_compared_on_rows_of_the_training_if_none_are_held_out():
    X, e = moved()
    forget = linear(n_restarts=2, max_iter=5).fit(X, e)
    assert np.isfinite(forget.restart_scores_).all()
    with pytest.raises(ValueError, match="n_restarts == 0, must be >= 1"):
        linear(n_restarts=0).fit(X, e)


@pytest.mark.parametrize("encoder", [partial(networks.linear), lambda n_in, n_out: nn.Linear(n_in, n_out, bias=False)])
def test_a_linear_layer_is_recognised_whoever_makes_it(encoder):
    forget = Forget(encoder=encoder, max_iter=5, holdout=0.0, device="cpu", random_state=0)
    assert forget.guarantee is theory.FORGET
    assert forget.fit(*moved()).components_.shape == (3, 5)
    assert (
        Forget(encoder=lambda n_in, n_out: nn.Sequential(nn.Linear(n_in, n_out))).guarantee is theory.FORGET_NONLINEAR
    )
