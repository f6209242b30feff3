"""An audit of latent actions: what codes tell of the body beside a floor, what they still know, and across bodies."""

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
PAIRED = 32 * STEPS  # transitions in which bodies were told the same


def world(seed=0, *, jerky=False):
    """Return mappings: before, after, episode, and what bodies were told; a ``jerky`` cart is always pushed as hard."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(PAIRED, 2))
    told, before, after = {}, {}, {}
    for body, width in BODIES.items():
        told[body] = np.concatenate([shared, rng.normal(size=(EPISODES * STEPS - PAIRED, 2))])
        if jerky and body == "cart":
            told[body] = np.sign(told[body]) + 0.1 * told[body]
        # Of one length and at right angles: what a body hardly shows of what it was told, nobody can tell.
        at_once, later = np.linalg.qr(rng.normal(size=(2, width, 2)))[0].swapaxes(1, 2)
        moved = told[body] @ at_once + 0.3 * np.roll(told[body], 1, axis=0) @ later
        path = moved.reshape(EPISODES, STEPS, width).cumsum(1)
        before[body] = np.concatenate([np.zeros((EPISODES, 1, width)), path[:, :-1]], 1).reshape(-1, width)
        after[body] = path.reshape(-1, width)
    episode = {body: np.repeat(np.arange(EPISODES), STEPS) for body in BODIES}
    return before, after, episode, told


PAIRS = {("cart", "sledge"): np.stack([np.arange(PAIRED)] * 2, 1)}
QUICK = {"forget": Forget(max_iter=5, trainer=Trainer(validation_fraction=0), verbose=False), "random_state": 0}


@pytest.fixture(scope="module")
def tied():
    before, after, episode, told = world()
    act = LatentAction(2, **QUICK).fit(before, after, groups=episode, pairs=PAIRS)
    return act, audit(act, by_body(before, after, episode, truth=told, floor=told), PAIRS, random_state=0)


def by_body(before, after, episode, **known):
    """Return transitions of each body with what is known of them."""
    return {
        body: Data(before[body], pairs=after[body], groups=episode[body], **{k: v[body] for k, v in known.items()})
        for body in before
    }


def test_blind_codes_that_know_what_was_told_are_claimed(tied):
    found = tied[1]
    assert found.claims
    assert found.score("body decodable from the latents").good
    assert found.score("body decodable from displacements").value > 0.75
    assert min(found.score(f"truth of {body} (R²)").value for body in BODIES) > 0.9
    assert found.score("truth, one probe for all bodies (R²)").value > 0.9
    assert found.score("truth of sledge, probe fitted to the others (R²)").value > 0.8
    assert found.score("latents of another body, mapped with 50 pairs (R²)").value > 0.9
    assert min(each.worst for each in found.agreement) > 0.9
    assert found.n_held_out == 2 * EPISODES // 4 * STEPS


def test_the_page_has_all_that_was_found_and_the_numbers_can_be_had(tied, tmp_path):
    page = tied[1].save(tmp_path / "audit.html").read_text(encoding="utf-8")
    for score in tied[1].scores:
        assert score.name in page
    assert "floor 0." in page
    numbers = json.loads(tied[1].save(tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert numbers["claims"]
    assert numbers["scores"][0]["name"] == "body decodable from the latents"
    with pytest.raises(ValueError, match=r"must end in .html"):
        tied[1].save(tmp_path / "audit.txt")


def test_a_notebook_shows_it_and_a_score_that_is_not_there_is_named(tied):
    found = tied[1]
    assert "<blockquote>" in tied[1]._repr_html_()
    assert "body decodable from the latents" in tied[1]._repr_html_()
    assert str(tied[1].__rich__()) == str(tied[1])
    with pytest.raises(KeyError, match="body decodable"):
        found.score("leak")


def test_without_pairs_readers_of_one_body_do_not_serve_another_and_the_audit_says_what_is_open():
    served = []
    for seed in (3, 4, 5):  # by chance the codes of two bodies may be turned alike: one world in six
        before, after, episode, told = world(seed)
        act = LatentAction(2, **QUICK).fit(before, after, groups=episode)
        found = audit(act, by_body(before, after, episode, truth=told), random_state=0)
        assert min(found.score(f"truth of {body} (R²)").value for body in BODIES) > 0.8
        served.append(found.score("truth of cart, probe fitted to the others (R²)").value)
    assert min(served) < 0.5
    assert not any("pairs" in score.name for score in found.scores)


def test_codes_that_tell_the_body_are_not_claimed():
    before, after, episode, told = world(jerky=True)
    act = LatentAction(2, **QUICK).fit(before, after, groups=episode)
    blind = {body: RNG.normal(size=(len(rows), 2)) for body, rows in told.items()}
    found = audit(act, by_body(before, after, episode, floor=blind), random_state=0)
    assert not found.claims
    assert found.leakage.leaks
    assert any(verdict.outcome == "fails" for verdict in found.verdicts)


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


def test_what_cannot_be_audited_is_refused_in_a_sentence(tied):
    act, _ = tied
    before, after, episode, _ = world()
    with pytest.raises(InputError) as error:
        audit(act, before["cart"], after["cart"])
    assert error.value.argument == "X"
    few = {body: np.minimum(values, 2) for body, values in episode.items()}
    with pytest.raises(ValueError, match="too few episodes"):
        audit(act, before, after, groups=few)
    with pytest.raises(ValueError, match="given"):
        audit(act, before, after, given=episode)


# A floor, for any nuisance.


def test_what_is_not_above_a_floor_is_no_leak():
    e = RNG.integers(2, size=800)
    told = RNG.normal(size=(800, 1)) + 0.8 * e[:, None]  # goes with e
    code = np.hstack([told, RNG.normal(size=(800, 1))])
    quick = {"effort": Effort(n_seeds=1, n_permutations=99), "probes": ["linear", "quadratic"], "random_state": 0}
    alone, floor = leakage(code, e, **quick), leakage(told, e, **quick)
    beside = alone.with_floor(floor)
    assert alone.leaks
    assert alone.floor is None
    assert not beside.leaks
    assert beside.worst == alone.worst
    assert abs(beside.floor - beside.worst) < 0.12
    assert f"floor {beside.floor:.3f}" in str(beside.verdict)
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
