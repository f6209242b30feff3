"""Audits of latent actions: leakage of the body next to a floor, recovery of commands, and transfer between bodies."""

import json

import numpy as np
import pytest

from pindown import Classify, Forget, LatentAction, audit, networks
from pindown.data.data import Data
from pindown.errors import InputError
from pindown.methods import InverseDynamics
from pindown.metrics import Effort, leakage
from pindown.training import Trainer

RNG = np.random.default_rng(0)
BODIES, STEPS, EPISODES = {"cart": 3, "sledge": 4}, 20, 64
PAIRED = 32 * STEPS  # transitions with the same commands


def simulated(seed=0, *, jerky=False):
    """Return mappings: before, after, episode, and the commands; a ``jerky`` cart is always pushed hard."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(PAIRED, 2))
    commands, before, after = {}, {}, {}
    for body, width in BODIES.items():
        commands[body] = np.concatenate([shared, rng.normal(size=(EPISODES * STEPS - PAIRED, 2))])
        if jerky and body == "cart":
            commands[body] = np.sign(commands[body]) + 0.1 * commands[body]
        # Orthonormal, so that displacements show all of the commands.
        at_once, later = np.linalg.qr(rng.normal(size=(2, width, 2)))[0].swapaxes(1, 2)
        moved = commands[body] @ at_once + 0.3 * np.roll(commands[body], 1, axis=0) @ later
        path = moved.reshape(EPISODES, STEPS, width).cumsum(1)
        before[body] = np.concatenate([np.zeros((EPISODES, 1, width)), path[:, :-1]], 1).reshape(-1, width)
        after[body] = path.reshape(-1, width)
    episode = {body: np.repeat(np.arange(EPISODES), STEPS) for body in BODIES}
    return before, after, episode, commands


PAIRS = {("cart", "sledge"): np.stack([np.arange(PAIRED)] * 2, 1)}
QUICK = {"forget": Forget(max_iter=5, trainer=Trainer(validation_fraction=0), verbose=False), "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    before, after, episode, commands = simulated()
    act = LatentAction(2, **QUICK).fit(before, after, groups=episode, pairs=PAIRS)
    return act, audit(act, by_body(before, after, episode, truth=commands, floor=commands), PAIRS, random_state=0)


def by_body(before, after, episode, **known):
    """Return transitions of each body with what is known of them."""
    return {
        body: Data(before[body], pairs=after[body], groups=episode[body], **{k: v[body] for k, v in known.items()})
        for body in before
    }


def test_invariant_latents_that_predict_the_commands_are_claimed(fitted):
    found = fitted[1]
    assert found.claims
    assert found.score("body decodable from the latents").good
    assert found.score("body decodable from displacements").value > 0.75
    assert min(found.score(f"truth of {body} (R²)").value for body in BODIES) > 0.9
    assert found.score("truth, one probe for all bodies (R²)").value > 0.9
    assert found.score("truth of sledge, probe fitted to the others (R²)").value > 0.8
    assert found.score("latents of another body, mapped with 50 pairs (R²)").value > 0.9
    assert min(each.worst for each in found.agreement) > 0.9
    assert found.n_held_out == 2 * EPISODES // 4 * STEPS


def test_the_page_and_the_file_of_numbers_have_all_scores(fitted, tmp_path):
    page = fitted[1].save(tmp_path / "audit.html").read_text(encoding="utf-8")
    for score in fitted[1].scores:
        assert score.name in page
    assert "floor 0." in page
    numbers = json.loads(fitted[1].save(tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert numbers["claims"]
    assert numbers["scores"][0]["name"] == "body decodable from the latents"
    with pytest.raises(ValueError, match="html"):
        fitted[1].save(tmp_path / "audit.txt")


def test_a_notebook_shows_the_audit_and_an_unknown_score_is_named(fitted):
    found = fitted[1]
    assert "<blockquote>" in fitted[1]._repr_html_()
    assert "body decodable from the latents" in fitted[1]._repr_html_()
    assert str(fitted[1].__rich__()) == str(fitted[1])
    with pytest.raises(KeyError, match="body decodable"):
        found.score("leak")


def test_without_pairs_probes_of_one_body_do_not_serve_another():
    served = []
    for seed in (3, 4, 5):  # by chance the latents of two bodies may be turned alike: one simulation in six
        before, after, episode, commands = simulated(seed)
        act = LatentAction(2, **QUICK).fit(before, after, groups=episode)
        found = audit(act, by_body(before, after, episode, truth=commands), random_state=0)
        assert min(found.score(f"truth of {body} (R²)").value for body in BODIES) > 0.8
        served.append(found.score("truth of cart, probe fitted to the others (R²)").value)
    assert min(served) < 0.5
    assert not any("pairs" in score.name for score in found.scores)


@pytest.mark.filterwarnings("ignore:.*the body can be predicted:pindown.errors.IdentifiabilityWarning")
def test_latents_that_reveal_the_body_are_not_claimed():
    before, after, episode, commands = simulated(jerky=True)
    act = LatentAction(2, **QUICK).fit(before, after, groups=episode)
    invariant = {body: RNG.normal(size=(len(rows), 2)) for body, rows in commands.items()}
    found = audit(act, by_body(before, after, episode, floor=invariant), random_state=0)
    assert not found.claims
    assert found.leakage.leaks
    assert any(verdict.outcome == "fails" for verdict in found.verdicts)


@pytest.mark.filterwarnings("ignore:.*the body can be predicted:pindown.errors.IdentifiabilityWarning")
def test_arrays_of_one_width_are_audited_by_body():
    rng = np.random.default_rng(0)
    before = {body: rng.normal(size=(240, 3)) for body in "ab"}
    after = {body: before[body] + rng.normal(size=(240, 2)) @ rng.normal(size=(2, 3)) for body in "ab"}
    rows = [np.concatenate(list(part.values())) for part in (before, after)]
    straight = {"encoder": networks.linear, "forward": networks.linear}
    dynamics = InverseDynamics(2, max_iter=60, learning_rate=0.05, bottleneck=0, strength=0, verbose=False, **straight)
    act = LatentAction(2, dynamics=dynamics, **QUICK).fit(*rows, np.repeat(["a", "b"], 240))
    groups = {body: np.arange(240) // 6 for body in "ab"}
    found = audit(act, before, after, groups=groups, random_state=0)
    # One straight map serves both bodies, and may serve one of them better.
    assert np.mean([found.score(f"displacements of {body} reconstructed (R²)").value for body in "ab"]) > 0.3
    assert found.estimator == "LatentAction(2)"


def test_what_cannot_be_audited_is_refused_in_a_sentence(fitted):
    act, _ = fitted
    before, after, episode, _ = simulated()
    with pytest.raises(InputError) as error:
        audit(act, before["cart"], after["cart"])
    assert error.value.argument == "X"
    few = {body: np.minimum(values, 2) for body, values in episode.items()}
    with pytest.raises(InputError) as error:
        audit(act, before, after, groups=few)
    assert error.value.argument == "groups"


# A floor, for any nuisance.


def test_what_is_not_above_a_floor_is_no_leak():
    e = RNG.integers(2, size=800)
    commands = RNG.normal(size=(800, 1)) + 0.8 * e[:, None]  # goes with e
    code = np.hstack([commands, RNG.normal(size=(800, 1))])
    quick = {"effort": Effort(n_seeds=1, n_permutations=99), "probes": ["linear", "quadratic"], "random_state": 0}
    alone, floor = leakage(code, e, **quick), leakage(commands, e, **quick)
    compared = alone.with_floor(floor)
    assert alone.leaks
    assert alone.floor is None
    assert not compared.leaks
    assert compared.worst == alone.worst
    assert abs(compared.floor - compared.worst) < 0.12
    assert f"floor {compared.floor:.3f}" in str(compared.verdict)
    assert leakage(code + 3 * e[:, None], e, **quick).with_floor(floor).leaks


def test_each_column_of_a_nuisance_has_a_floor_of_its_own():
    e = np.c_[RNG.integers(2, size=(400, 2))]
    quick = {"effort": Effort(n_seeds=1, n_permutations=19), "probes": "linear", "random_state": 0}
    found = leakage(RNG.normal(size=(400, 2)), e, **quick).with_floor(leakage(e.astype(float), e, **quick))
    assert [column.floor for column in found.columns] == [1.0, 1.0]
    assert found.floor == 1.0
    assert not found.leaks


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_a_floor_without_a_nuisance_and_pairs_without_bodies_are_refused():
    x, labels = RNG.normal(size=(120, 2)), np.arange(120) % 4
    est = Classify(2, max_iter=1, verbose=False, random_state=0).fit(x, labels)
    for role in ("floor", "pairs"):
        with pytest.raises(InputError) as error:
            audit(est, Data(x, signal=labels, **{role: x}))
        assert error.value.argument == role
