"""Body-specific linear maps: latent actions of six simulated arms with different joints."""

import copy
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import pindown
from pindown import Forget, LatentAction, networks
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.methods import InverseDynamics
from pindown.methods.latent_action import body_maps
from pindown.methods.latent_action.body_maps import LabelledLatents, remove_body
from pindown.methods.latent_action.transitions import Transitions
from pindown.metrics import PROBES, leakage, linear_r2
from pindown.training import Trainer

QUICK = {"forget": Forget(max_iter=20, trainer=Trainer(validation_fraction=0), verbose=False), "random_state": 0}
ROBOTS = ("Panda", "Sawyer", "IIWA", "Kinova3", "Jaco", "UR5e")
STEPS, PAIRED = 20, 24
"""Transitions of an episode, and episodes that all robots share, which are the first."""


class Recorded:
    """Transitions of the arms in some episodes: joints before and after, displacements of hands, episodes."""

    def __init__(self, episodes, robots=ROBOTS):
        with np.load(Path(__file__).parent / "recordings" / "robots.npz") as file:
            joints, hands = ({r: file[f"{r}/{name}"][episodes] for r in robots} for name in ("joints", "position"))
        self.before = {r: q[:, :-1].reshape(-1, q.shape[2]) for r, q in joints.items()}
        self.after = {r: q[:, 1:].reshape(-1, q.shape[2]) for r, q in joints.items()}
        self.moved = {r: np.diff(p.astype(float), axis=1).reshape(-1, 3) for r, p in hands.items()}
        self.episode = {r: np.repeat(np.arange(len(q)), STEPS) for r, q in joints.items()}

    @property
    def both(self):
        return self.before, self.after


HELD_OUT = np.arange(12)  # paired ones
LEARNED = np.arange(12, 48)
N_PAIRS = 12 * STEPS  # of those learned from, the first


def pairs(n, robots=ROBOTS, seed=0):
    rng = np.random.default_rng(seed)
    drawn = {r: rng.permutation(N_PAIRS)[:n] for r in robots[1:]}
    return {(robots[0], r): np.stack([rows, rows], 1) for r, rows in drawn.items()}


@pytest.fixture(scope="module")
def learned():
    return Recorded(LEARNED)


@pytest.fixture(scope="module")
def held_out():
    return Recorded(HELD_OUT)


@pytest.fixture(scope="module")
def unpaired(learned):
    return LatentAction(**QUICK).fit(*learned.both, groups=learned.episode)


@pytest.fixture(scope="module")
def paired(learned):
    return LatentAction(**QUICK).fit(*learned.both, groups=learned.episode, pairs=pairs(50))


def recovered(act, data):
    latents = act.transform(*data.both)
    return {r: linear_r2(latents[r], data.moved[r]) for r in latents}


def causes(act, *data, **options):
    """Return the causes of the warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act.fit(*data, **options)
    return {each.message.cause for each in caught if isinstance(each.message, IdentifiabilityWarning)}


def carts(swing=0.0, skewed=False, n=600):
    """Return transitions of two carts that are pushed at random, and swing on; the pushes of one may be skewed."""
    rng, path = np.random.default_rng(0), {}
    for body in ("first", "second"):
        push = rng.exponential(size=n) ** 2 - 2 if skewed and body == "second" else rng.normal(size=n)
        path[body] = np.stack([push + swing * np.roll(push, 1), 0.1 * rng.normal(size=n)], 1).cumsum(0)
    before, after = ({body: x[part] for body, x in path.items()} for part in (slice(-1), slice(1, None)))
    return before, after, {body: np.arange(n - 1) // 10 for body in path}


def test_a_body_that_swings_on_is_warned_of_and_actions_that_change_slowly_are_not(learned):
    for data, expected in ((carts(), False), (carts(swing=2.0), True), ((*learned.both, learned.episode), False)):
        found = causes(LatentAction(1, **QUICK), *data[:2], groups=data[2])
        assert ("predictable actions" in found) == expected
    assert "predictable actions" not in causes(LatentAction(**QUICK), *learned.both, pairs=pairs(50))


def test_a_body_that_stays_decodable_is_warned_of():
    assert "decodable body" not in causes(LatentAction(1, **QUICK), *carts()[:2], groups=carts()[2])
    before, after, groups = carts(skewed=True)
    act = LatentAction(1, **QUICK | {"forget": Forget(max_iter=1, verbose=False)})
    assert "decodable body" in causes(act, before, after, groups=groups)


# What maps find.


def test_the_dimensions_of_the_action_are_counted(unpaired):
    assert unpaired.n_components_ == 3  # of seven joints, and six


def test_any_two_arms_are_enough_to_count_them(learned):
    # Joints that turn far make the first variance large: of one of these pairs the fall behind it is the largest.
    spectra = [
        body_maps.innovation_variances(
            Transitions(learned.before[r].astype(float), learned.after[r].astype(float), learned.episode[r])
        )
        for r in ROBOTS
    ]
    assert {body_maps.count_action_dimensions(list(two)) for two in combinations(spectra, 2)} == {3}


def test_more_dimensions_are_counted_where_hands_turn_too():
    spectra = [[1.0, 0.29, 0.12, 0.10, 0.062, 0.052, 0.016], [1.0, 0.71, 0.45, 0.27, 0.12, 0.08]]  # Panda, UR5e
    assert body_maps.count_action_dimensions([np.array(sizes) for sizes in spectra]) == 6


def test_displacements_of_hands_are_recovered_within_each_robot_without_labels(unpaired, held_out):
    scores = recovered(unpaired, held_out)
    assert min(scores.values()) > 0.75
    assert np.mean(list(scores.values())) > 0.85


def test_components_of_displacements_are_not_those_of_the_action(learned, held_out, unpaired):
    def components(robot):
        axes = np.linalg.eigh(np.cov((learned.after[robot] - learned.before[robot]).T))[1][:, ::-1][:, :3]
        return linear_r2((held_out.after[robot] - held_out.before[robot]) @ axes, held_out.moved[robot])

    ours = recovered(unpaired, held_out)
    assert np.mean(list(ours.values())) > np.mean([components(r) for r in ROBOTS]) + 0.03


def test_with_pairs_latents_of_all_robots_agree(paired, unpaired, held_out):
    def agreement(act):
        latents = act.transform(*held_out.both)
        return np.mean([1 - np.mean((latents[r] - latents["Panda"]) ** 2) / latents[r].var() for r in ROBOTS[1:]])

    assert agreement(paired) > 0.75
    assert agreement(unpaired) < 0.2  # invariance is not unification
    assert np.mean(list(recovered(paired, held_out).values())) > np.mean(list(recovered(unpaired, held_out).values()))


def test_one_probe_of_the_displacement_serves_all_robots_if_there_are_pairs(paired, unpaired, learned, held_out):
    def elsewhere(act):
        known, new = (act.transform(*data.both) for data in (learned, held_out))
        probe = np.linalg.lstsq(known["Panda"], learned.moved["Panda"], rcond=None)[0]
        missed = {r: held_out.moved[r] - new[r] @ probe for r in ROBOTS[1:]}
        return np.mean([1 - missed[r].var() / held_out.moved[r].var() for r in missed])

    assert elsewhere(paired) > 0.7
    assert elsewhere(unpaired) < 0.3


def test_the_robot_can_hardly_be_decoded(paired, unpaired, held_out):
    def read(latents):
        rows, robot = (
            np.concatenate(list(latents.values())),
            np.repeat(ROBOTS, [len(part) for part in latents.values()]),
        )
        episode = np.concatenate([held_out.episode[r] + 100 * i for i, r in enumerate(latents)])
        return leakage(rows, robot, groups=episode, probes=PROBES[:3], random_state=0).worst

    seven = {r: np.pad(held_out.after[r] - held_out.before[r], ((0, 0), (0, 7)))[:, :7] for r in ROBOTS}
    assert read(seven) > 0.4  # chance is .17
    assert max(read(act.transform(*held_out.both)) for act in (paired, unpaired)) < 0.27


def test_latents_have_one_covariance_for_all_robots(paired, learned):
    for latents in paired.transform(*learned.both).values():
        assert np.allclose(np.cov(latents.T), np.eye(3), atol=0.4)


def test_latents_predict_the_next_observation(paired, held_out):
    latents = paired.transform(*held_out.both)
    led = paired.predict_next(held_out.before, latents)
    wrong = paired.predict_next(held_out.before, {r: np.roll(latents[r], 7, axis=0) for r in ROBOTS})
    for r in ROBOTS:
        moved = np.sum((held_out.after[r] - held_out.before[r]) ** 2)
        assert np.sum((led[r] - held_out.after[r]) ** 2) < 0.35 * moved
        assert np.sum((wrong[r] - held_out.after[r]) ** 2) > 0.6 * moved
    assert 0.7 < paired.held_out_.score < 1


def test_a_robot_joins_by_fifty_pairs_and_the_others_stay_as_they_are(learned, held_out):
    five = Recorded(LEARNED, ROBOTS[:5])
    act = LatentAction(**QUICK).fit(*five.both, groups=five.episode, pairs=pairs(50, ROBOTS[:5]))
    before = act.transform(*five.both)
    rows = np.random.default_rng(1).permutation(N_PAIRS)[:50]
    joins = {"samples": rows, "latents": before["Panda"][rows], "groups": learned.episode["UR5e"]}
    act.adopt("UR5e", learned.before["UR5e"], learned.after["UR5e"], **joins)
    after = act.transform(*learned.both)
    assert all(np.array_equal(before[r], after[r]) for r in ROBOTS[:5])
    latents = act.transform(*held_out.both)
    assert 1 - np.mean((latents["UR5e"] - latents["Panda"]) ** 2) / latents["Panda"].var() > 0.6
    assert act.predict_next({"UR5e": held_out.before["UR5e"]}, {"UR5e": latents["Panda"]})["UR5e"].shape == (240, 6)


def test_a_robot_of_one_episode_joins_the_others(paired, held_out):
    act, alone = copy.copy(paired), slice(60)
    latents = paired.transform(*held_out.both)["Panda"][alone]
    own = held_out.before["UR5e"][alone], held_out.after["UR5e"][alone]
    act.adopt("other UR5e", *own, samples=np.arange(60), latents=latents, groups=np.zeros(60))
    assert "other UR5e" not in paired.bodies_
    assert linear_r2(act.transform({"other UR5e": own[0]}, {"other UR5e": own[1]})["other UR5e"], latents) > 0.6


def test_if_few_episodes_are_held_out_all_are_probed():
    before, after, groups = (dict(part) for part in two())
    act = LatentAction(3, **QUICK).fit(before, after, groups=groups)  # six episodes, of which one is held out
    assert "(chance 0.500) on all transitions" in act.removal_.reason


# Removal of the body.


def law(rng, skewed, n=300):
    return rng.exponential(size=(n, 2)) - 1 if skewed else rng.normal(size=(n, 2))


def never(n_in, n_out):
    raise AssertionError("Nothing may be trained where the body cannot be decoded.")


def test_removal_is_not_tried_where_the_body_cannot_be_decoded():
    rng = np.random.default_rng(0)
    latents = LabelledLatents(law(rng, False, 1200), np.repeat([0, 1], 600), np.arange(1200) // 20)
    removal, applied = remove_body(Forget(2, encoder=never), latents, np.ones(1200, dtype=bool), [], seed=0)
    assert (removal.applied, removal.after, applied) == (False, None, None)


@pytest.mark.filterwarnings("ignore:.*the body can be predicted:pindown.errors.IdentifiabilityWarning")
def test_removal_is_applied_only_if_it_gains_enough_and_loses_little(monkeypatch):
    rng = np.random.default_rng(0)
    latents = np.concatenate([law(rng, skewed) for skewed in (False, True, False, True)])
    data = LabelledLatents(latents, np.repeat([0, 1, 0, 1], 300), np.arange(1200) // 20)
    held_out = np.arange(1200) >= 600
    forget = Forget(
        2, encoder=networks.skip_mlp, max_iter=20, trainer=Trainer(validation_fraction=0), verbose=False, random_state=0
    )
    removal, applied = remove_body(forget, data, held_out, [], seed=0)
    assert removal.before > removal.chance + body_maps.TOLERATED
    assert removal.applied == (applied is not None)
    assert not removal.applied or removal.after <= removal.before - body_maps.MIN_GAIN
    monkeypatch.setattr(body_maps, "MIN_GAIN", -1.0)  # any is enough
    monkeypatch.setattr(body_maps, "MAX_LOSS", -1.0)
    assert not remove_body(forget, data, held_out, [], seed=0)[0].applied
    monkeypatch.setattr(body_maps, "MAX_LOSS", 1.0)
    assert remove_body(forget, data, held_out, [], seed=0)[1] is forget


# Habits.


def test_a_fit_can_be_repeated_saved_and_loaded(paired, learned, tmp_path):
    again = LatentAction(**QUICK).fit(*learned.both, groups=learned.episode, pairs=pairs(50))
    paired.save(tmp_path / "act.pindown")
    loaded = pindown.load(tmp_path / "act.pindown")
    latents = paired.transform(*learned.both)
    for other in (again, loaded):
        assert all(np.array_equal(other.transform(*learned.both)[r], latents[r]) for r in ROBOTS)
    assert loaded.removal_ == paired.removal_


def test_episodes_are_found_if_they_are_not_given(unpaired, learned):
    unsaid = LatentAction(**QUICK).fit(*learned.both)
    latents, others = (act.transform(*learned.both) for act in (unpaired, unsaid))
    assert all(np.array_equal(latents[r], others[r]) for r in ROBOTS)


def test_arrays_and_tensors_keep_their_type(paired, held_out):
    before, after = ({r: part[r].astype(float) for r in ROBOTS} for part in held_out.both)
    assert paired.transform(*held_out.both)["Panda"].dtype == np.float32
    assert paired.transform(before, after)["Panda"].dtype == np.float64
    tensors = paired.transform(*({r: torch.as_tensor(part[r]) for r in ROBOTS} for part in held_out.both))
    assert isinstance(tensors["Panda"], torch.Tensor)


def test_innovations_are_pushes_and_not_the_swings_that_follow():
    push = np.random.default_rng(0).normal(size=500)
    swing = np.convolve(push, [0, 2.0, 2.0])[:500]  # along another axis, and farther
    path = np.cumsum(np.stack([push, swing], 1), 0)
    moves = Transitions(path[:-1], path[1:], np.zeros(499))
    assert moves.change.var(0).round().tolist() == [1, 8]
    assert body_maps.innovations(moves).var(0).round().tolist() == [1, 0]


def test_without_a_past_displacements_take_the_place_of_innovations():
    rng = np.random.default_rng(0)
    before = rng.normal(size=(300, 4))
    moves = Transitions(before, before + rng.normal(size=(300, 4)) * [5, 3, 0.1, 0.1], np.arange(300))
    assert body_maps.innovations(moves) is None
    fitted = body_maps.fit_to_innovations(moves, 2)
    assert fitted.fitted_to == "displacements"
    assert np.abs(fitted.weights[2:]).max() < 0.1


# Bad input.


def two():
    data = Recorded(np.arange(6), ("Panda", "UR5e"))
    return data.before, data.after, data.episode


def changed(mapping, **parts):
    return {**mapping, **parts}


def with_nan(x):
    x = x.copy()
    x[3, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda x, y, g: ({}, {}, g, None), "X_t"),
        (lambda x, y, g: (x, y["Panda"], g, None), "X_next"),
        (lambda x, y, g: (x, {"Panda": y["Panda"]}, g, None), "X_next"),
        (lambda x, y, g: (x, y, {"Panda": g["Panda"]}, None), "groups"),
        (lambda x, y, g: (x, changed(y, UR5e=y["UR5e"][1:]), g, None), "X_next"),
        (lambda x, y, g: (x, changed(y, UR5e=y["UR5e"][:, 1:]), g, None), "X_next"),
        (lambda x, y, g: (changed(x, UR5e=[[0.0] * 6, [0.0] * 5]), y, g, None), "X_t"),
        (lambda x, y, g: (changed(x, UR5e=with_nan(x["UR5e"])), y, g, None), "X_t"),
        (lambda x, y, g: (x, y, changed(g, UR5e=np.zeros(120)), None), "groups"),
        (lambda x, y, g: (x, y, changed(g, UR5e=np.zeros(119)), None), "groups"),
        (lambda x, y, g: (x, changed(y, UR5e=x["UR5e"]), g, None), "X_next"),
        (lambda x, y, g: (x, y, g, {}), "pairs"),
        (lambda x, y, g: (x, y, g, {"Panda": [[0, 1]]}), "pairs"),
        (lambda x, y, g: (x, y, g, {("Panda", "Jaco"): [[0, 1]]}), "pairs"),
        (lambda x, y, g: (x, y, g, {("Panda", "UR5e"): [[0, 120]]}), "pairs"),
        (lambda x, y, g: (x, y, g, {("Panda", "UR5e"): [[0, -1]]}), "pairs"),
        (lambda x, y, g: (x, y, g, {("Panda", "UR5e"): [[0.5, 1]]}), "pairs"),
        (lambda x, y, g: (x, y, g, {("Panda", "UR5e"): [0, 1]}), "pairs"),
    ],
)
def test_transitions_that_cannot_be_used_are_refused_by_name(change, argument):
    before, after, groups, paired = change(*two())
    with pytest.raises(InputError) as error:
        LatentAction(**QUICK).fit(before, after, groups=groups, pairs=paired)
    assert error.value.argument == argument


def refused(argument, call, *args, **options):
    with pytest.raises(InputError) as error:
        call(*args, **options)
    assert error.value.argument == argument
    return True


def test_too_few_transitions_or_columns_or_bodies_are_refused():
    before, after, groups = two()
    some = [changed(part, UR5e=part["UR5e"][10:30]) for part in (before, after, groups)]
    assert refused("X_t", LatentAction().fit, *some[:2], groups=some[2])
    assert refused("n_components", LatentAction(7).fit, before, after, groups=groups)
    assert refused("X_t", LatentAction().fit, {"Panda": before["Panda"]}, {"Panda": after["Panda"]})
    three = Recorded(np.arange(6), ("Panda", "UR5e", "Jaco"))
    with pytest.raises(InputError, match="Jaco"):
        LatentAction().fit(*three.both, pairs={("Panda", "UR5e"): [[k, k] for k in range(20)]})


def test_arguments_that_do_not_go_together_are_refused(paired):
    before, after, groups = two()
    panda, both = {"Panda": before["UR5e"]}, {"Panda": np.zeros((120, 2)), "UR5e": np.zeros((120, 3))}
    assert refused("body", LatentAction().fit, before, after, ["Panda"])
    assert refused("dynamics", LatentAction(dynamics=InverseDynamics()).fit, before, after)
    assert refused("pairs", LatentAction().fit, before["Panda"], after["Panda"], groups["Panda"], pairs={})
    assert refused("body", LatentAction().fit, before["Panda"], after["Panda"])
    assert refused("X_t", LatentAction().fit, [[1.0, 2.0], [1.0]], [[1.0, 2.0], [1.0]], ["a", "b"])
    assert refused("X_t", paired.transform, before["Panda"], after["Panda"])
    assert refused("X_t", paired.transform, {"Baxter": before["Panda"]}, {"Baxter": after["Panda"]})
    assert refused("X_t", paired.transform, panda, panda)
    assert refused("Z", paired.predict_next, before, {"Panda": np.zeros((120, 3))})
    assert refused("Z", paired.predict_next, before, both)


def test_bodies_that_cannot_join_are_refused(paired, learned):
    def adopt(name, samples, latents):
        paired.adopt(name, learned.before["UR5e"], learned.after["UR5e"], samples=samples, latents=latents)

    samples, latents = np.arange(50), np.zeros((50, 3))
    assert refused("body", adopt, "UR5e", samples, latents)
    assert refused("samples", adopt, "Baxter", samples + 671, latents)
    assert refused("samples", adopt, "Baxter", samples // 2, latents)
    assert refused("latents", adopt, "Baxter", samples, latents[:, :2])
    assert refused("samples", adopt, "Baxter", samples[:5], latents[:5])
    assert paired.bodies_ == ROBOTS
