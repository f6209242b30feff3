"""Latent actions: from two observations, to the next one, their number, and removal of the body."""

import copy

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Arm, Bodies
from raising import input_error
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from pindown import _random, networks, theory
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.methods import Forget, InverseDynamics, LatentAction
from pindown.methods.forget.adversarial import ENERGY_SAMPLES
from pindown.methods.latent_action.inverse_dynamics import DynamicsModel, PrincipalAxes
from pindown.metrics import PROBES, leakage, linear_r2, recovery_by_level
from pindown.training import Trainer

WORLD = Bodies.different(2, random_state=0)
QUICK = {"max_iter": 300, "verbose": False, "random_state": 0}


@pytest.fixture(scope="module")
def one_body():
    train, test = (WORLD.same_motions(3_000, random_state=seed)[0] for seed in (1, 2))
    return InverseDynamics(2, **QUICK).fit(train.x, train.x_pos), train, test


# One body.


def test_actions_of_one_body_are_recovered_up_to_an_affine_map(one_body):
    dynamics, _, test = one_body
    assert linear_r2(dynamics.transform(test.x, test.x_pos), test.z) > 0.95


def test_shuffled_transitions_have_no_actions():
    sample = WORLD.same_motions(3_000, random_state=1)[0]
    strangers = sample.x_pos.roll(1, 0)
    dynamics = InverseDynamics(2, **QUICK).fit(sample.x, strangers)
    assert linear_r2(dynamics.transform(sample.x, strangers), sample.z) < 0.6
    assert linear_r2(dynamics.transform(sample.x, strangers), sample.z.roll(7, 0)) < 0.05


def test_latents_predict_the_next_observation(one_body):
    dynamics, _, test = one_body
    latents = dynamics.transform(test.x, test.x_pos)

    def missed(actions):
        error = dynamics.predict_next(test.x, actions) - test.x_pos
        return (error.square().sum() / (test.x_pos - test.x).square().sum()).item()

    assert missed(latents) < 0.05
    assert missed(latents.roll(1, 0)) > 0.5  # others' actions lead elsewhere
    assert missed(torch.zeros_like(latents)) == pytest.approx(1, abs=0.1)  # no action leads nowhere


def test_without_motion_latents_are_zero(one_body):
    dynamics, _, test = one_body
    assert dynamics.transform(test.x, test.x).abs().max() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_a_bottleneck_makes_the_scale_of_latents_the_same_everywhere(seed):
    train, test = (Bodies.different(2, random_state=seed).same_motions(6_000, random_state=s)[0] for s in (1, 2))

    def unevenness(bottleneck):
        dynamics = InverseDynamics(2, bottleneck=bottleneck, max_iter=1_000, random_state=seed, verbose=False)
        latents = dynamics.fit(train.x, train.x_pos).transform(test.x, test.x_pos)
        stretch = latents.norm(dim=1) / test.z.norm(dim=1)
        return (stretch.std() / stretch.mean()).item()

    assert unevenness(0.1) < 0.75 * unevenness(0.0)


@pytest.mark.slow
def test_components_are_counted_by_the_noise(one_body):
    _, train, _ = one_body
    counted = InverseDynamics(max_iter=2, verbose=False, random_state=0).fit(train.x, train.x_pos)
    assert counted.n_components_ == 2  # of six that there could be
    along = train.x[:, :1] @ torch.ones(1, 6)  # before and after on one line, so that there is one thing to tell
    after = train.x_pos[:, :1] @ torch.ones(1, 6)
    assert InverseDynamics(max_iter=2, verbose=False, random_state=0).fit(along, after).n_components_ == 1


# Two bodies, with and without their labels.


def leaked(latents, body):
    return leakage(latents, body, probes=PROBES[:4], random_state=0).worst


@pytest.fixture(scope="module")
def first_stages():
    train, test = (WORLD.sample(4_000, random_state=seed) for seed in (3, 4))

    def fitted(n_components):
        dynamics = InverseDynamics(n_components, bottleneck=0.1, max_iter=500, verbose=False, random_state=0)
        return dynamics.fit(train.x, train.x_pos)

    stages = {"as many": fitted(2), "spare": fitted(4)}
    return stages, {name: stage.transform(test.x, test.x_pos) for name, stage in stages.items()}, test


@pytest.mark.slow
def test_an_encoder_that_is_given_the_body_removes_it():
    leaks = []
    for seed in range(3):
        cameras = Bodies.different(2, strength=0.8, random_state=seed).cameras
        unlike = Bodies((Arm(2.2, 1), Arm(2.7, 4)), cameras)
        train, test = (unlike.sample(4_000, random_state=seed + i) for i in (3, 4))
        dynamics = InverseDynamics(2, bottleneck=0, max_iter=500, verbose=False, random_state=seed)
        latents = [dynamics.fit(train.x, train.x_pos, body).transform(test.x, test.x_pos) for body in (None, train.u)]
        leaks.append([leaked(each, test.u) for each in latents])
        assert min(recovery_by_level(latents[1], test.z, test.u).values()) > 0.75
    without, given = np.mean(leaks, 0)
    assert without > given


@pytest.mark.slow
def test_a_bottleneck_removes_the_body_unless_there_are_spare_components(first_stages):
    stages, latents, test = first_stages
    assert leaked(latents["as many"], test.u) < 0.65
    assert leaked(latents["spare"], test.u) > 0.85
    assert min(recovery_by_level(latents["as many"], test.z, test.u).values()) > 0.95
    # What has one law everywhere are latents with their noise, which fills the directions that a body leaves empty.
    model = copy.deepcopy(stages["spare"].model_).cpu()
    with torch.no_grad():
        factor, _ = model.noise(model.axes(test.x))
    noise = torch.randn(len(test.x), 4, 1, generator=torch.Generator().manual_seed(0))
    assert leaked(latents["spare"] + (factor @ noise)[:, :, 0], test.u) < 0.65


def test_bodies_have_any_names():
    x, x_next, body = tiny()
    names = np.array(["arm", "leg"])[body]
    numbers, words, none = (brief().fit(x, x_next, whose).transform(x, x_next) for whose in (body, names, None))
    assert np.array_equal(numbers, words)
    assert not np.array_equal(numbers, none)


# Both stages.

SMALL = {
    "dynamics": InverseDynamics(max_iter=500, verbose=False),
    "forget": Forget(max_iter=500, trainer=Trainer(validation_fraction=0), verbose=False),
}


@pytest.fixture(scope="module")
def two_bodies():
    train, test = (WORLD.sample(4_000, random_state=seed) for seed in (3, 4))
    return LatentAction(2, random_state=0, **SMALL).fit(train.x, train.x_pos, train.u), train, test


def test_two_stages_remove_the_body_and_keep_the_action(two_bodies):
    act, _, test = two_bodies
    latents = act.transform(test.x, test.x_pos)
    assert leaked(latents, test.u) < 0.65  # chance is .5
    assert leaked(np.hstack([test.x, test.x_pos]), test.u) > 0.95
    assert min(recovery_by_level(latents, test.z, test.u).values()) > 0.93


@pytest.mark.slow
def test_the_second_stage_removes_what_the_first_keeps_if_it_may_drop_components():
    train, test = (WORLD.sample(4_000, random_state=seed) for seed in (3, 4))
    first = InverseDynamics(4, bottleneck=0, strength=0, max_iter=500, verbose=False)
    act = LatentAction(2, dynamics=first, forget=SMALL["forget"], random_state=0).fit(train.x, train.x_pos, train.u)
    assert leaked(act.dynamics_.transform(test.x, test.x_pos), test.u) > 0.75
    assert leaked(act.transform(test.x, test.x_pos), test.u) < 0.65


def on_a_belt(speed, seed, n=1_200):
    """Two carts are pushed at random in a plane, and belts carry them apart."""
    rng, body = np.random.default_rng(seed), np.arange(n) % 2
    before, pushed = 3 * rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    carried = speed * (2 * body - 1) + 0.1 * rng.normal(size=n)
    return before, before + np.column_stack([pushed, carried]), body, pushed


@pytest.mark.parametrize(("speed", "needed"), [(1.0, True), (0.0, False)])
@pytest.mark.slow
def test_the_body_is_removed_where_it_is_decodable_and_only_there(speed, needed):
    before, after, body, pushed = on_a_belt(speed, seed=0)
    straight = {"encoder": networks.linear, "forward": networks.linear}
    quick = {"max_iter": 150, "learning_rate": 0.05, "verbose": False}
    dynamics = InverseDynamics(3, bottleneck=0, strength=0, **quick, **straight)
    forget = Forget(max_iter=100, trainer=Trainer(validation_fraction=0), verbose=False)
    act = LatentAction(dynamics=dynamics, forget=forget, random_state=0).fit(before, after, body)
    assert (act.removal_.applied, act.forget_ is not None) == (needed, needed)
    assert act.n_components_ == (2 if needed else 3)
    assert str(act.removal_).startswith("body removal applied" if needed else "body removal not applied")
    before, after, body, pushed = on_a_belt(speed, seed=1)
    latents = act.transform(before, after)
    assert (leaked(act.dynamics_.transform(before, after), body) > 0.95) == needed
    assert leaked(latents, body) < 0.75
    assert linear_r2(latents, pushed) > 0.9
    assert act.predict_next(before, latents, body).shape == before.shape


def test_a_removal_that_is_required_gives_the_reason():
    before, after, body, _ = on_a_belt(0.0, seed=0)
    dynamics = InverseDynamics(3, max_iter=2, verbose=False)
    act = LatentAction(2, dynamics=dynamics, forget=Forget(max_iter=2, verbose=False), random_state=0)
    assert "2 of 3 latents" in act.fit(before, after, body).removal_.reason
    with input_error("n_components"):
        act.set_params(n_components=4).fit(before, after, body)


def test_latents_predict_the_next_observation_of_their_own_body(two_bodies):
    act, _, test = two_bodies
    latents = act.transform(test.x, test.x_pos)
    error = act.predict_next(test.x, latents, test.u) - test.x_pos
    assert error.square().sum() / (test.x_pos - test.x).square().sum() < 0.3
    wrong = act.predict_next(test.x, latents.roll(1, 0), test.u) - test.x_pos
    assert wrong.square().sum() > 3 * error.square().sum()


@pytest.mark.filterwarnings("ignore:Forget. n_components:pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
def test_components_are_counted_unless_given(two_bodies):
    act, train, _ = two_bodies
    assert (act.n_components_, act.dynamics_.n_components_, act.n_features_in_) == (2, 2, 6)

    def numbers(n_components=None, n_first=None, n_kept=None, bottleneck=0.1):
        # Two steps are enough to count latents, but not to remove the body, of which `Forget` warns.
        dynamics = InverseDynamics(n_first, bottleneck=bottleneck, max_iter=2, verbose=False)
        forget = Forget(n_kept, max_iter=2, trainer=Trainer(validation_fraction=0), verbose=False)
        fitted = LatentAction(n_components, dynamics=dynamics, forget=forget, random_state=0)
        fitted.fit(train.x, train.x_pos, train.u)
        return fitted.dynamics_.n_components_, fitted.n_components_

    assert numbers() == (2, 2)
    assert numbers(n_components=1) == (1, 1)
    assert numbers(n_components=2, bottleneck=0) == (2, 2)
    assert numbers(n_kept=1) == (1, 1)
    assert numbers(n_kept=1, n_first=3) == (3, 1)


def test_the_guarantee_is_a_bijection_per_body():
    assert LatentAction().guarantee.indeterminacy == theory.BIJECTION_PER_LEVEL


# Habits.


def tiny(seed=0, n=60):
    sample = WORLD.sample(n, random_state=seed)
    return sample.x.numpy(), sample.x_pos.numpy(), sample.u.numpy()


def brief(**changes):
    # On the CPU, where the same fit is the same to the bit.
    return InverseDynamics(2, **{"max_iter": 3, "verbose": False, "random_state": 0, "device": "cpu"} | changes)


def test_a_fit_can_be_repeated_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    x, x_next, _ = tiny()
    first, second, other = (brief(random_state=seed).fit(x, x_next).transform(x, x_next) for seed in (0, 0, 1))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_one_seed_makes_both_stages_repeatable():
    x, x_next, body = tiny()
    forget = Forget(max_iter=3, trainer=Trainer(validation_fraction=0), verbose=False, device="cpu")
    stages = {"dynamics": brief(random_state=None), "forget": forget}
    first, second = (LatentAction(1, random_state=5, **stages).fit(x, x_next, body) for _ in range(2))
    assert np.array_equal(first.transform(x, x_next), second.transform(x, x_next))


def test_arrays_and_tensors_keep_their_type():
    x, x_next, _ = tiny()
    dynamics = brief().fit(x, x_next)
    assert dynamics.transform(x, x_next).dtype == np.float32
    assert dynamics.transform(x.astype(float), x_next.astype(float)).dtype == np.float64
    tensors = dynamics.transform(torch.as_tensor(x), torch.as_tensor(x_next))
    assert isinstance(tensors, torch.Tensor)
    assert np.array_equal(tensors.numpy(), dynamics.transform(x, x_next))
    assert isinstance(dynamics.predict_next(torch.as_tensor(x), tensors), torch.Tensor)


def test_latents_do_not_depend_on_other_samples():
    x, x_next, _ = tiny()
    dynamics = brief().fit(x, x_next)
    together = dynamics.transform(x, x_next)
    assert np.allclose(dynamics.transform(x[:1], x_next[:1]), together[:1], rtol=0, atol=1e-7)


def test_parameters_can_be_cloned_and_set_from_outside():
    act = LatentAction(2, dynamics=brief(), forget=Forget(max_iter=7))
    other = clone(act).set_params(dynamics__bottleneck=0.5, forget__max_iter=9)
    assert (other.dynamics.bottleneck, other.forget.max_iter) == (0.5, 9)
    assert (act.dynamics.bottleneck, act.forget.max_iter) == (0.1, 7)


def test_the_stages_that_are_given_stay_unfitted():
    x, x_next, body = tiny()
    dynamics, forget = brief(), Forget(max_iter=3, trainer=Trainer(validation_fraction=0), verbose=False)
    LatentAction(1, dynamics=dynamics, forget=forget, random_state=0).fit(x, x_next, body)
    assert not hasattr(dynamics, "model_")
    assert forget.n_components is None


def test_own_networks_are_used():
    x, x_next, _ = tiny()
    dynamics = brief(encoder=networks.linear, forward=networks.linear).fit(x, x_next)
    assert isinstance(dynamics.model_.encoder, nn.Linear)
    doubled = dynamics.transform(x, x + 2 * (x_next - x))
    assert np.allclose(doubled, 2 * dynamics.transform(x, x_next), atol=1e-5)  # a linear chart


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components"),
        ({"max_iter": 0}, ValueError, "max_iter"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate"),
        ({"bottleneck": -1.0}, ValueError, "bottleneck"),
        ({"strength": -1.0}, ValueError, "strength"),
        ({"n_components": None, "bottleneck": 0.0}, ValueError, "bottleneck=0"),
        ({"batch_size": 61}, ValueError, "batch_size=61"),
        ({"encoder": "mlp"}, TypeError, "`encoder` must be a function"),
        ({"forward": lambda n_in, n_out: nn.Linear(n_in, n_out + 1)}, ValueError, r"to \(2, 7\), not to \(2, 6\)"),
    ],
)
def test_parameters_that_cannot_work_are_refused(changes, error, message):
    x, x_next, _ = tiny()
    with pytest.raises(error, match=message):
        brief().set_params(**changes).fit(x, x_next)


def test_transitions_that_cannot_be_used_are_refused():
    x, x_next, _ = tiny()
    with input_error("X_next"):
        brief().fit(x, x_next[1:])
    with pytest.raises(ValueError, match="NaN"):
        brief().fit(x * np.nan, x_next)
    with pytest.raises(ValueError, match="X_next"):
        brief().fit(x, x_next * np.nan)
    with input_error("X_next"):
        brief().fit(x, x)
    fitted = brief().fit(x, x_next)
    with pytest.raises(ValueError, match="5 features"):
        fitted.transform(x[:, 1:], x_next[:, 1:])
    with input_error("actions"):
        fitted.predict_next(x, np.zeros((60, 3)))


def never(n_in, n_out):
    raise AssertionError("Nothing may be built for bodies that are refused.")


@pytest.mark.parametrize(
    "body",
    [
        np.zeros(59),
        np.zeros((60, 2)),
        np.full(60, np.nan),
        ["arm", None] * 30,
        [1.0, np.inf] * 30,
        ["arm", 1] * 30,
        np.random.default_rng(0).normal(size=60),
        np.array([0.5, 1.5] * 30, dtype=object),
        np.arange(60),
        np.arange(60) // 2,  # no level has three
        np.arange(60).clip(28),  # one has 29, and the others one each
    ],
)
@pytest.mark.parametrize("both", [True, False])
def test_bodies_that_are_no_labels_are_refused_before_training(body, both):
    x, x_next, _ = tiny()
    first = brief(encoder=never)
    with pytest.raises(InputError) as error:
        (LatentAction(1, dynamics=first) if both else first).fit(x, x_next, body)
    assert error.value.argument == "body"


def test_one_body_is_refused():
    x, x_next, _ = tiny()
    alone, unsaid = (brief().fit(x, x_next, body).transform(x, x_next) for body in (np.zeros(60), None))
    assert np.array_equal(alone, unsaid)
    with input_error("body"):
        LatentAction(1, dynamics=brief(encoder=never)).fit(x, x_next, ["arm"] * 60)


@pytest.mark.filterwarnings("ignore:LatentAction. the body can:pindown.errors.IdentifiabilityWarning")
def test_rare_bodies_are_warned_of():
    x, x_next, body = tiny()
    body[:5] = range(10, 15)
    stages = {"dynamics": brief(), "forget": Forget(max_iter=3, trainer=Trainer(validation_fraction=0), verbose=False)}
    with pytest.warns(IdentifiabilityWarning, match="5 transitions") as caught:
        act = LatentAction(1, random_state=0, **stages).fit(x, x_next, body)
    assert "rare bodies" in [each.message.cause for each in caught if hasattr(each.message, "cause")]
    assert np.isfinite(act.transform(x, x_next)).all()


def test_of_a_large_batch_the_first_samples_are_compared_and_all_are_predicted():
    x, x_next, body = map(torch.as_tensor, tiny(n=ENERGY_SAMPLES + 400))
    with _random.forked(0):
        model = DynamicsModel(
            PrincipalAxes(x, x_next), 2, networks.smooth, networks.smooth, bottleneck=0.0, strength=3.0
        )

    def loss(x_next, body):
        with torch.no_grad():
            return model(x, x_next, body, torch.ones(len(x)), torch.zeros(len(x), 2)).item()

    late = torch.arange(len(x)) >= ENERGY_SAMPLES
    assert loss(x_next, torch.where(late, 1 - body, body)) == loss(x_next, body)
    assert loss(x_next, torch.where(late, body, body.roll(1))) != loss(x_next, body)
    assert loss(torch.where(late[:, None], x, x_next), body) != loss(x_next, body)


def test_what_is_not_fitted_or_not_known_is_refused():
    x, x_next, body = tiny()
    for unfitted in (InverseDynamics(), LatentAction()):
        with pytest.raises(NotFittedError):
            unfitted.transform(x, x_next)
    with pytest.raises(TypeError, match="InverseDynamics"):
        LatentAction(dynamics=Forget()).fit(x, x_next, body)
    act = LatentAction(
        1,
        dynamics=brief(),
        forget=Forget(max_iter=3, trainer=Trainer(validation_fraction=0), verbose=False),
        random_state=0,
    )
    act.fit(x, x_next, body)
    with input_error("body"):
        act.predict_next(x[:1], np.zeros((1, 1)), [7])
    with input_error("body"):
        act.predict_next(x[:1], np.zeros((1, 1)))
    assert np.array_equal(act.transform(x, x_next, body), act.transform(x, x_next))
    with input_error("body"):
        act.transform(x, x_next, np.where(np.arange(len(x)) < 20, 7, body))
    with input_error("X_t"):
        act.transform({0: x}, {0: x_next})
    with input_error("body"):
        act.adopt(7, x, x_next, samples=[0], latents=[[0.0]])


def test_whole_episodes_are_held_out():
    x, x_next, _ = tiny(n=400)
    alone, together = (
        brief(trainer=Trainer(validation_fraction=0.2)).fit(x, x_next, groups=g) for g in (None, np.arange(400) // 80)
    )
    assert (alone.held_out_.n_samples, together.held_out_.n_samples) == (80, 80)
    assert not np.array_equal(alone.transform(x, x_next), together.transform(x, x_next))
    with input_error("groups"):
        brief().fit(x, x_next, groups=[0, 1, 2])
