"""Latent actions from frames: arms before a camera, what moves, what is predicted, and frames that cannot be used."""

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Filmed, RobotArm
from raising import input_error

import pindown
from pindown import Forget, LatentAction, audit
from pindown.errors import InputError
from pindown.methods import InverseDynamics
from pindown.methods.latent_action import transitions
from pindown.methods.latent_action.frames import OpticalFlow, SlowFeatures
from pindown.metrics import linear_r2
from pindown.training import Trainer

WORLD = Filmed.different(2, size=32)
pytestmark = pytest.mark.filterwarnings("ignore:LatentAction. the body can:pindown.errors.IdentifiabilityWarning")
QUICK = {"forget": Forget(max_iter=20, trainer=Trainer(validation_fraction=0), verbose=False), "random_state": 0}
STEPS = 12


class Transitions:
    """Frames before and after, true actions and episodes of each body; the same motions for both if ``same``."""

    def __init__(self, n, seed, *, same=False):
        half = torch.arange(n) % 2
        self.films = {
            e: WORLD.episodes(n, STEPS, bodies=torch.full((n,), e), random_state=seed)
            if same
            else WORLD.episodes(n, STEPS, bodies=(half + e) % 2, random_state=seed + e)
            for e in (0, 1)
        }
        frames = {e: film.frames[film.u == e].numpy() for e, film in self.films.items()}
        self.frames = frames
        self.before = {e: f[:, :-1].reshape(-1, 3, 32, 32) for e, f in frames.items()}
        self.after = {e: f[:, 1:].reshape(-1, 3, 32, 32) for e, f in frames.items()}
        self.moved = {e: f.actions[f.u == e].flatten(0, 1).numpy() for e, f in self.films.items()}
        self.episode = {e: np.repeat(np.arange(len(f)), STEPS) for e, f in frames.items()}

    @property
    def both(self):
        return self.before, self.after


@pytest.fixture(scope="module")
def learned():
    return Transitions(50, 0, same=True)


@pytest.fixture(scope="module")
def held_out():
    return Transitions(24, 1, same=True)


@pytest.fixture(scope="module")
def unpaired(learned):
    return LatentAction(3, **QUICK).fit(*learned.both, groups=learned.episode)


@pytest.fixture(scope="module")
def paired(learned):
    rows = np.random.default_rng(0).permutation(len(learned.before[0]))[:50]
    pairs = {(0, 1): np.stack([rows, rows], 1)}
    return LatentAction(3, **QUICK).fit(*learned.both, groups=learned.episode, pairs=pairs)


# What is found.


def test_displacements_of_hands_are_recovered_from_frames_without_labels(unpaired, held_out):
    latents = unpaired.transform(*held_out.both)
    assert min(linear_r2(latents[e], held_out.moved[e]) for e in (0, 1)) > 0.6


def test_actions_depend_on_motion_and_not_on_colours(unpaired, held_out):
    mean = [{e: f.mean((2, 3), keepdims=True) + 0 * f for e, f in part.items()} for part in held_out.both]
    latents = unpaired.transform(*mean)  # frames without any slope
    assert max(linear_r2(latents[e], held_out.moved[e]) for e in (0, 1)) < 0.1


def test_frames_that_do_not_follow_each_other_show_no_action(unpaired, held_out):
    strangers = {e: np.roll(f, len(f) // 2, axis=0) for e, f in held_out.after.items()}  # of other episodes
    latents = unpaired.transform(held_out.before, strangers)
    assert max(linear_r2(latents[e], held_out.moved[e]) for e in (0, 1)) < 0.15


def test_with_pairs_latents_of_two_bodies_agree(paired, held_out):
    one, other = paired.transform(*held_out.both).values()
    alike, strangers = (
        np.mean([np.corrcoef(one[:, j], part[:, j])[0, 1] for j in range(3)]) for part in (other, other[::-1])
    )
    assert alike > abs(strangers) + 0.2


def test_an_audit_of_frames_scores_latents_and_shows_predictions(unpaired, learned, tmp_path):
    result = audit(unpaired, *learned.both, groups=learned.episode, random_state=0)
    found = result
    assert min(found.score(f"10 steps of {e} predicted (R²)").value for e in (0, 1)) > 0.1
    assert result.save(tmp_path / "a.html").read_text(encoding="utf-8").count("data:image/png") == 2
    assert min(found.score(f"motion in frames of {e} reconstructed (R²)").value for e in (0, 1)) > 0.87  # .92 ± .01
    assert found.score("body decodable from the latents").good
    assert not found.claims  # so few episodes


def missed(act, transitions, latents):
    """Return the squared error of frames over ten steps, as a fraction of that of standing still, for each body."""
    starts = {e: frames[:, 0] for e, frames in transitions.frames.items()}
    steps = {e: part.reshape(len(starts[e]), STEPS, -1)[:, :10] for e, part in latents.items()}
    led = act.roll_out(starts, steps)
    true = {e: frames[:, :11] for e, frames in transitions.frames.items()}
    return {e: ((led[e] - true[e]) ** 2).sum() / ((true[e][:, :1] - true[e]) ** 2).sum() for e in true}


def test_ten_steps_are_predicted_in_the_same_body_and_in_another(paired, held_out):
    latents = paired.transform(*held_out.both)
    own = missed(paired, held_out, latents)
    swapped = missed(paired, held_out, {0: latents[1], 1: latents[0]})
    nowhere = missed(paired, held_out, {e: part[::-1] for e, part in latents.items()})
    error, elsewhere, by_chance = (np.mean(list(part.values())) for part in (own, swapped, nowhere))
    assert error < 0.8  # of what standing still misses
    assert elsewhere < 2 * error
    assert by_chance > 1.4 * elsewhere


def test_features_of_decoded_frames_are_those_that_were_decoded(paired, held_out):
    features = paired.body_maps_.features[0]
    frames, aim = held_out.before[0], features.encode(held_out.after[0])
    missed_by, stood_still = (
        np.median(np.abs(features.encode(part) - aim)) for part in (features.decode(frames, aim), frames)
    )
    assert missed_by < 0.2 * stood_still


def test_a_body_joins_with_frames(unpaired, learned, held_out):
    joints, wrist = ("yaw", "shoulder", "elbow"), {"wrist": 10.0}
    third = Filmed((WORLD.arms[0], RobotArm(32, factors=joints, fixed=wrist, lengths=(0.7, 0.54, 0.3), samples=1)))
    film = third.episodes(50, STEPS, bodies=torch.ones(50, dtype=torch.int64), random_state=0).frames.numpy()
    rows = np.random.default_rng(0).permutation(50 * STEPS)[:50]
    act = LatentAction(3, **QUICK).fit(*learned.both, groups=learned.episode)
    latents = act.transform(*learned.both)[0][rows]
    both = film[:, :-1].reshape(-1, 3, 32, 32), film[:, 1:].reshape(-1, 3, 32, 32)
    act.adopt("new", *both, samples=rows, latents=latents, groups=learned.episode[0])
    new = act.transform({"new": both[0]}, {"new": both[1]})["new"]
    assert linear_r2(new, learned.moved[0]) > 0.6
    with pytest.raises(InputError, match="frames"):
        act.adopt("joints", np.eye(40, 4), np.eye(40, 4)[::-1], samples=np.arange(20), latents=latents[:20])


def test_a_fit_to_frames_is_saved_and_loaded(paired, held_out, tmp_path):
    paired.save(tmp_path / "a.pindown")
    again = pindown.load(tmp_path / "a.pindown")
    first, second = (act.transform(*held_out.both)[0] for act in (paired, again))
    assert np.array_equal(first, second)
    tensors = {e: torch.as_tensor(part[:3]) for e, part in held_out.before.items()}
    led = paired.roll_out(tensors, {e: torch.zeros(3, 2, 3) for e in (0, 1)})
    assert tuple(led[0].shape) == (3, 3, 3, 32, 32)


# What is refused.


def few(n=60):
    rng = np.random.default_rng(0)
    film = {body: rng.random((n + 1, 3, 8, 8)) for body in ("arm", "leg")}
    before, after = ({body: f[part] for body, f in film.items()} for part in (slice(-1), slice(1, None)))
    return before, after, {body: np.arange(n) // 10 for body in film}


def without(values, body, change):
    return {**values, body: change(values[body])}


@pytest.mark.parametrize(
    ("before", "after", "groups", "argument"),
    [
        (lambda x: x[:, 0, 0], lambda x: x[:, 0, 0], None, "X_t"),
        (lambda x: [*x[:-1], None], None, None, "X_t"),
        (lambda x: [*x[:-1], x[0, :, 1:]], None, None, "X_t"),
        (None, lambda x: x[:, :, :4], None, "X_next"),
        (None, None, np.arange, "groups"),
        (lambda x: x * np.nan, None, None, "X_t"),
        (lambda x: x[:, :, :1], lambda x: x[:, :, :1], None, "X_t"),
        (lambda x: np.moveaxis(x, 1, -1), None, None, "X_t"),
        (lambda x: x.reshape(6, 10, 3, 8, 8), None, None, "X_t"),
        (lambda x: x[:30], lambda x: x[:30], lambda n: np.arange(30) // 10, "X_t"),
    ],
)
def test_frames_that_cannot_be_used_are_refused_by_name(before, after, groups, argument):
    x, x_next, episode = few()
    x = without(x, "leg", before) if before else x
    x_next = without(x_next, "leg", after) if after else x_next
    episode = without(episode, "leg", lambda e: groups(len(e))) if groups else episode
    with pytest.raises(InputError) as error:
        LatentAction(2, **QUICK).fit(x, x_next, groups=episode)
    assert error.value.argument == argument


def test_there_are_at_most_as_many_latents_as_motions():
    before, after, episode = few()
    assert LatentAction(**QUICK).fit(before, after, groups=episode).n_components_ == 5
    with input_error("n_components"):
        LatentAction(20, **QUICK).fit(before, after, groups=episode)


def test_frames_of_another_size_or_as_one_array_are_refused(paired, held_out):
    some = {e: part[:4] for e, part in held_out.before.items()}
    small = {e: part[:, :, ::2, ::2] for e, part in some.items()}
    calls = {
        "X_t": (
            lambda: paired.transform(small, small),
            lambda: InverseDynamics(2).fit(some[0], some[0]),
            lambda: LatentAction().fit(some[0], some[0], np.zeros(4)),
            lambda: paired.roll_out(some[0], some[0]),
        ),
        "Z": (
            lambda: paired.roll_out(some, {e: np.zeros((4, 3)) for e in (0, 1)}),
            lambda: paired.roll_out(some, {e: np.zeros((4, 2 + e, 3)) for e in (0, 1)}),
        ),
    }
    for argument, refused in calls.items():
        for call in refused:
            with pytest.raises(InputError) as error:
                call()
            assert error.value.argument == argument


# Features of frames.


def steps_of(film, n_steps, n_episodes):
    """Return the transitions of a film, (episodes, steps + 1, c, h, w)."""
    before, after = (film[:, part].reshape(-1, *film.shape[2:]) for part in (slice(-1), slice(1, None)))
    return transitions.Transitions(before, after, np.repeat(np.arange(n_episodes), n_steps))


def test_the_flow_of_a_disc_that_wanders_over_a_dark_frame_has_two_directions():
    rng = np.random.default_rng(0)
    place = 12 + np.cumsum(rng.normal(0, 0.3, size=(10, 21, 2)), axis=1)
    y, x = np.mgrid[:24, :24]
    film = np.exp(-((y - place[..., :1, None]) ** 2 + (x - place[..., 1:, None]) ** 2) / 20)[:, :, None]
    moves = steps_of(film, 20, 10)
    step, motion = np.diff(place, axis=1).reshape(-1, 2), OpticalFlow.fitted(moves)(moves.before, moves.after)[:, :2]
    error = step - motion @ np.linalg.lstsq(motion, step, rcond=None)[0]
    assert (error**2).sum() < 0.1 * (step**2).sum()


def test_a_slow_feature_follows_a_bar_and_not_pixels_that_flicker():
    rng = np.random.default_rng(0)
    place = 4 + 2 * np.sin(np.cumsum(rng.normal(0, 0.3, size=(20, 21)), axis=1))
    film = np.exp(-((np.arange(8) - place[..., None]) ** 2) / 4)
    film[..., [0, 7]] += rng.normal(size=(20, 21, 2))
    moves = steps_of(np.repeat(film[..., None, None, :], 2, axis=-2), 20, 20)
    found = SlowFeatures.fitted(moves, 1).encode(moves.before)[:, 0]
    assert abs(np.corrcoef(found, place[:, :-1].ravel())[0, 1]) > 0.8
