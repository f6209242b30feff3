"""The four cells of Liu et al., SCAR, 2026, arXiv:2605.16412, on six simulated arms, next to what needs no network.

Joints before and after are seen; whose they are is known; the displacement of the hand is what is looked for. Rows
above the cells are what a user would do first, and rows below are `LatentAction`, with a chart for each robot.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pindown_papers import _robots
from pindown_papers._experiment import Experiment, Profile, Published
from pindown_papers._robots import PAIRS, Arms, Moves, Robots
from pindown_papers.antidiversity_bodies import Moves as Together
from pindown_papers.antidiversity_bodies import staged

if TYPE_CHECKING:
    import numpy as np

_UNKNOWN = Published(math.nan)
Chart = Callable[[Moves], "np.ndarray"]


@dataclass(frozen=True)
class Recorded(Profile):
    """Which recordings, and how long networks are trained.

    Parameters
    ----------
    arms
        Returns the transitions of a seed: of one recording, divided again, or of a recording of its own.
    n_actions
        Codes, where they are not counted.
    bottleneck, strength
        Price of a nat of the latents, and of what sets robots apart, in the cells that pay it.
    dynamics_iter, forget_iter
        Steps of each stage.
    """

    arms: Callable[[int], Arms]
    n_actions: int
    bottleneck: float
    strength: float
    dynamics_iter: int
    forget_iter: int


class Encoded(NamedTuple):
    """Latents of transitions to learn from and of those held out, whether one latent is one action in all, and more."""

    known: dict[str, np.ndarray]
    new: dict[str, np.ndarray]
    tied: bool = False
    more: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class CodeRow:
    """Codes of six arms.

    Parameters
    ----------
    number
        Their place in the table.
    name, told
        What they are, and what is given next to joints.
    encode
        Makes them.
    """

    number: int
    name: str
    told: str
    encode: Callable[[Arms, Recorded, int, str], Encoded]
    holds: bool = False

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        return self.name, self.told, "yes" if self.holds else "no"

    @property
    def published(self) -> tuple[Published, ...]:
        """Nothing: SCAR's cells are scored on videos."""
        return (_UNKNOWN,) * len(ROBOTS.scores)

    def measure(self, profile: Recorded, seed: int, device: str) -> dict[str, float]:
        """Encode, and read latents of episodes that were held out."""
        arms = profile.arms(seed)
        made = self.encode(arms, profile, seed, device)
        floor = _robots.told({r: moves.hand for r, moves in arms.held.items()}, arms.held, seed)
        found = _robots.scores(arms, made.known, made.new, seed, tied=made.tied)
        return {**found, "floor": floor, **dict(made.more)}


# ---- latents --------------------------------------------------------------------------------------------------------


def _by(chart: Callable[[Moves], Chart]) -> Callable[..., Encoded]:
    """Return an encoder with a chart for each robot, found from the transitions to learn from."""

    def encode(arms: Arms, profile: Recorded, seed: int, device: str) -> Encoded:
        charts = {r: chart(moves) for r, moves in arms.learned.items()}
        known, new = ({r: charts[r](moves) for r, moves in part.items()} for part in (arms.learned, arms.held))
        return Encoded(known, new)

    return encode


def _joints(moves: Moves) -> np.ndarray:
    import numpy as np

    return np.hstack([moves.before, moves.change])


def _standardised(moves: Moves) -> Chart:
    mean, spread = _joints(moves).mean(0), _joints(moves).std(0)
    return lambda other: (_joints(other) - mean) / spread


def _principal(moves: Moves) -> Chart:
    """Whiten the three directions in which joints turn most."""
    import numpy as np

    mean, (sizes, axes) = moves.change.mean(0), np.linalg.eigh(np.cov(moves.change.T))
    white = axes[:, :-4:-1] / np.sqrt(sizes[:-4:-1])
    return lambda other: (other.change - mean) @ white


def _jacobian(moves: Moves) -> Chart:
    """Learn the given displacements from how joints turn, and from products of that with where they are."""
    import numpy as np
    from sklearn.linear_model import RidgeCV

    mean, spread = moves.before.mean(0), moves.before.std(0)

    def inputs(other: Moves) -> np.ndarray:
        place = np.hstack([np.ones((len(other.before), 1)), (other.before - mean) / spread])
        return (other.change[:, :, None] * place[:, None, :]).reshape(len(place), -1)

    learned = RidgeCV(np.logspace(-9, 1, 11), fit_intercept=False).fit(inputs(moves), moves.hand)
    return lambda other: learned.predict(inputs(other))


def _inverse_models(arms: Arms, profile: Recorded, seed: int, device: str) -> Encoded:
    """Train an inverse and a forward model of each robot on its own, and whiten its latents."""
    import numpy as np

    def chart(moves: Moves) -> Chart:
        alone = Together(moves.before, moves.after, moves.hand, np.zeros(len(moves.hand), dtype=np.int64))
        model = _stages(alone, moves.episode, profile, seed, device, kl=True, reversal=False).dynamics
        codes = model.transform(moves.before, moves.after)
        mean, root = codes.mean(0), np.linalg.cholesky(np.linalg.inv(np.cov(codes.T)))
        return lambda other: (model.transform(other.before, other.after) - mean) @ root

    return _by(chart)(arms, profile, seed, device)


def _stages(
    train: Together, episode: np.ndarray, profile: Recorded, seed: int, device: str, *, kl: bool, reversal: bool
) -> Any:
    return staged(
        train,
        profile.n_actions,
        n_codes=profile.n_actions,
        bottleneck=profile.bottleneck if kl else 0.0,
        strength=profile.strength if reversal else 0.0,
        dynamics_iter=profile.dynamics_iter,
        forget_iter=profile.forget_iter if reversal else 0,
        seed=seed,
        device=device,
        groups=episode,
    )


def _cell(*, kl: bool, reversal: bool) -> Callable[..., Encoded]:
    """Return a cell of the ablation: one model for all robots, with zeros where one has fewer joints."""

    def encode(arms: Arms, profile: Recorded, seed: int, device: str) -> Encoded:
        train, episode = _together(arms.learned)
        latents = _stages(train, episode, profile, seed, device, kl=kl, reversal=reversal)
        known, new = (_apart(latents.encode(_together(part)[0]), part) for part in (arms.learned, arms.held))
        return Encoded(known, new)

    return encode


def _together(robots: Robots) -> tuple[Together, np.ndarray]:
    import numpy as np

    before, after, hand = (_robots.stacked({r: moves[k] for r, moves in robots.items()}) for k in range(3))
    body = np.repeat(np.arange(len(robots)), [len(moves.hand) for moves in robots.values()])
    episode = np.concatenate([moves.episode for moves in robots.values()])
    return Together(before, after, hand, body), episode * len(robots) + body


def _apart(codes: np.ndarray, robots: Robots) -> dict[str, np.ndarray]:
    import numpy as np

    ends = np.cumsum([len(moves.hand) for moves in robots.values()])[:-1]
    return dict(zip(robots, np.split(codes, ends), strict=True))


def _leace(arms: Arms, profile: Recorded, seed: int, device: str) -> Encoded:
    """Erase from joints and their changes what a linear map shows of the robot."""
    from pindown_papers.erasers import Leace

    stacked = [_robots.stacked({r: _joints(m) for r, m in part.items()}) for part in (arms.learned, arms.held)]
    eraser = Leace().fit(stacked[0], _together(arms.learned)[0].body)
    known, new = (
        _apart(eraser.transform(rows), part) for rows, part in zip(stacked, (arms.learned, arms.held), strict=True)
    )
    return Encoded(known, new)


def _latent_action(n_pairs: int) -> Callable[..., Encoded]:
    """Return `LatentAction` with so many pairs of each other robot with the first; with fifty, robots join, too."""

    def fitted(arms: Arms, profile: Recorded, seed: int, device: str) -> tuple[Any, dict[str, np.ndarray]]:
        import numpy as np

        from pindown import Forget, LatentAction
        from pindown.errors import IdentifiabilityWarning

        rng = np.random.default_rng(seed)
        first, *others = arms.learned
        drawn = {(first, r): rng.permutation(arms.n_pairs)[:n_pairs] for r in others}
        pairs = {names: np.stack([rows, rows], 1) for names, rows in drawn.items()} if n_pairs else None
        forget = Forget(max_iter=profile.forget_iter, verbose=False, device=device)
        act = LatentAction(forget=forget, random_state=seed)
        before, after, episode = ({r: moves[k] for r, moves in arms.learned.items()} for k in (0, 1, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)
            act.fit(before, after, groups=episode, pairs=pairs)
        return act, act.transform(before, after)

    def encode(arms: Arms, profile: Recorded, seed: int, device: str) -> Encoded:
        act, known = fitted(arms, profile, seed, device)
        new = act.transform(*({r: moves[k] for r, moves in arms.held.items()} for k in (0, 1)))
        more = {"codes": act.n_components_ / 100, "second stage": act.removal_.applied / 100}
        if n_pairs == PAIRS:
            more["adopted"] = _robots.adopted(arms, lambda five, s: fitted(five, profile, s, device), seed)
        return Encoded(known, new, n_pairs > 0, tuple(more.items()))

    return encode


_WHOSE = "whose they are"

ROBOTS = Experiment(
    name="antidiversity/robots",
    title="latent actions of six arms, from joints, in %",
    source="Anti-diversity, after Liu et al. 2026 (SCAR)",
    headings=("latents", "given next to joints", "assumptions hold"),
    scores=("within", "leakage", "floor", "transfer 0", "transfer 50", "left out"),
    further=(
        "within, mean",
        "pooled",
        *(f"labels {k}" for k in _robots.LABELS),
        *(f"labels {k}, one line" for k in _robots.LABELS),
        "adopted",
        "codes",
        "second stage",
    ),
    rows=(
        CodeRow(
            1, "displacement of the hand (floor, ceiling)", "the displacement", _by(lambda moves: lambda m: m.hand)
        ),
        CodeRow(2, "Jacobian of each robot, by regression", "the displacement", _by(_jacobian)),
        CodeRow(3, "joints and their changes", "nothing", _by(lambda moves: _joints)),
        CodeRow(4, "changes of joints", "nothing", _by(lambda moves: lambda m: m.change)),
        CodeRow(5, "z-score of each robot", _WHOSE, _by(_standardised)),
        CodeRow(6, "three components of each robot, whitened", _WHOSE, _by(_principal)),
        CodeRow(7, "one inverse model for each robot, whitened", _WHOSE, _inverse_models),
        CodeRow(8, "none", "nothing", _cell(kl=False, reversal=False)),
        CodeRow(9, "KL", "nothing", _cell(kl=True, reversal=False)),
        CodeRow(10, "reversal", _WHOSE, _cell(kl=False, reversal=True)),
        CodeRow(11, "both", _WHOSE, _cell(kl=True, reversal=True), holds=True),
        CodeRow(12, "LatentAction", _WHOSE, _latent_action(0), holds=True),
        CodeRow(13, "LatentAction, 10 pairs", "pairs", _latent_action(10), holds=True),
        CodeRow(14, "LatentAction, 50 pairs", "pairs", _latent_action(PAIRS), holds=True),
        CodeRow(15, "LatentAction, 200 pairs", "pairs", _latent_action(200), holds=True),
        CodeRow(16, "LEACE of joints and their changes", _WHOSE, _leace),
    ),
    quick=Recorded(
        "quick",
        (0, 1, 2),
        arms=_robots.small,
        n_actions=3,
        bottleneck=0.1,
        strength=3.0,
        dynamics_iter=1_000,
        forget_iter=300,
    ),
    full=Recorded(
        "full",
        (0, 1, 2, 3, 4),
        arms=_robots.recording,
        n_actions=3,
        bottleneck=0.1,
        strength=3.0,
        dynamics_iter=2_000,
        forget_iter=1_000,
    ),
    notes=(
        "Panda, Sawyer, IIWA, Kinova3, Jaco and UR5e follow commands that move the hand, 20 Hz, each held for two"
        " steps; 20 transitions an episode. quick: 80 episodes of each robot, which come with the package, and seeds"
        " draw which of the 40 paired ones are held out; full: 120 episodes, and a recording for each seed"
        " (PINDOWN_ROBOTS names the folder). Settings were chosen on recording 10, which is in neither.",
        "within: R² of the displacement of the hand, predicted from latents by a ridge regression with squares that the"
        " other episodes taught, the worst robot's; pooled: one regression for all robots. leakage: balanced accuracy"
        " of the worst probe that predicts the robot from latents, chance one sixth; floor: from the displacement"
        " itself.",
        "transfer k: R² of a robot's latents, predicted from another's by an affine map fitted to k pairs; 0 takes"
        " latents as they are, where there are as many. left out: R² of the displacement in a robot none of whose"
        " labels was seen: latents of all are carried to one robot's by 50 pairs each. adopted: the same by"
        " LatentAction.adopt.",
        "labels k: R² of the displacement, read by a line that k labels of the robot taught; one line: by one line for"
        " all robots, k labels of each. 5 draws.",
        "none, KL, reversal, both: one inverse and one forward model for all robots, with zeros where one has fewer"
        " joints; KL: with a bottleneck; reversal: the robot is given, and hidden by both stages."
        " LatentAction: a map for each robot, in closed form; second stage: 1 where Forget was trained adversarially;"
        " latents: how many were counted. LEACE needs the extra erasure.",
    ),
)

EXPERIMENTS = (ROBOTS,)
