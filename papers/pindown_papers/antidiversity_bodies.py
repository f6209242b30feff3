"""The four cells of Liu et al., SCAR, 2026, arXiv:2605.16412, on planar arms: neither, KL, gradient reversal, both.

SCAR scores videos; here the true actions are known, and so is what latents show of the body, within it and beyond it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from pindown_papers._experiment import EVALUATION_SEEDS, Experiment, Profile, Published

if TYPE_CHECKING:
    import numpy as np

    from pindown.methods import InverseDynamics
    from pindown.simulate import Sample
    from pindown_papers.simulations import Bodies

_UNKNOWN = Published(math.nan)

PAIRS = 50
"""Pairs that a map from body to body is fitted to."""


class Moves(NamedTuple):
    """Transitions as arrays: what was seen before and after, the true action, the body."""

    before: np.ndarray
    after: np.ndarray
    action: np.ndarray
    body: np.ndarray

    @classmethod
    def of(cls, sample: Sample) -> Moves:
        """Read a sample of `Bodies`."""
        x, z, body, x_next, *_ = sample
        assert body is not None
        assert x_next is not None
        return cls(x.numpy(), x_next.numpy(), z.numpy(), body.numpy())

    def past(self, n: int) -> Moves:
        """Return all but the first n."""
        return Moves(*(part[n:] for part in self))


@dataclass(frozen=True)
class Staged(Profile):
    """How many bodies and transitions, and how long each stage is trained.

    Parameters
    ----------
    n_bodies, n_samples
        Bodies, and transitions of all of them to train on.
    n_actions, late_actions
        Codes of the first stage; and where only the second stage hides the body, which takes something to drop.
    bottleneck, strength
        Price of a nat of the latents, and of what sets bodies apart, where the first stage pays it.
    dynamics_iter, forget_iter
        Steps of each stage.
    n_eval
        Held-out transitions to audit; and as many paired ones as a quarter of them.
    """

    n_bodies: int
    n_samples: int
    n_actions: int
    late_actions: int
    bottleneck: float
    strength: float
    dynamics_iter: int
    forget_iter: int
    n_eval: int


@dataclass(frozen=True)
class CellRow:
    """A cell of the ablation.

    Parameters
    ----------
    number
        Its place in the table.
    kl, reversal
        Whether the first stage has a bottleneck, and whether the body is hidden.
    late
        Whether it is hidden in the second stage only, and not in both.
    """

    number: int
    kl: bool
    reversal: bool
    late: bool = False

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        names = {(False, False): "none", (True, False): "KL", (False, True): "reversal", (True, True): "both"}
        name = names[self.kl, self.reversal] + (", late" if self.late else "")
        return "planar arms", name, "yes" if self.kl and self.reversal and not self.late else "no"

    @property
    def published(self) -> tuple[Published, ...]:
        """Nothing: SCAR's cells are scored on videos."""
        return (_UNKNOWN,) * len(BODIES.scores)

    def measure(self, profile: Staged, seed: int, device: str) -> dict[str, float]:
        """Train, and audit on transitions that were held out."""
        from pindown.metrics import recovery_by_level
        from pindown_papers.scores import recovery_across_levels

        simulation = _bodies(profile.n_bodies, seed)
        latents = self.latents(profile, seed, device)
        test = _held_out(profile, seed)
        codes = latents.encode(test)
        across = recovery_across_levels(codes, test.action, test.body, random_state=seed)
        moved = simulation.same_motions(profile.n_eval // 4, random_state=EVALUATION_SEEDS + seed)
        return {
            "recovery": min(recovery_by_level(codes, test.action, test.body, random_state=seed).values()),
            "leakage": _told(codes, test.body, seed),
            "floor": _floor(profile, seed),
            **_transfers(latents, [Moves.of(sample) for sample in moved], seed),
            **across._asdict(),
        }

    def latents(self, profile: Staged, seed: int, device: str) -> Latents:
        """Train this cell's stages."""
        return staged(
            _transitions(profile, seed),
            profile.late_actions if self.late else profile.n_actions,
            n_codes=2,
            bottleneck=profile.bottleneck if self.kl else 0.0,
            strength=profile.strength if self.reversal and not self.late else 0.0,
            dynamics_iter=profile.dynamics_iter,
            forget_iter=profile.forget_iter if self.reversal else 0,
            seed=seed,
            device=device,
        )


@dataclass(frozen=True)
class Latents:
    """A fitted cell: the first stage, and the second if there is one."""

    dynamics: InverseDynamics
    forget: Any = None

    def encode(self, moves: Moves) -> np.ndarray:
        """Return the latents of each transition."""
        actions = self.dynamics.transform(moves.before, moves.after)
        return actions if self.forget is None else self.forget.transform(actions)

    def lead(self, moves: Moves, codes: np.ndarray) -> np.ndarray:
        """Return the displacement that latents lead to from the start of each transition, in its body."""
        actions = codes if self.forget is None else self.forget.inverse_transform(codes, moves.body)
        return self.dynamics.predict_next(moves.before, actions) - moves.before


def staged(
    train: Moves,
    n_actions: int,
    *,
    n_codes: int,
    bottleneck: float,
    strength: float,
    dynamics_iter: int,
    forget_iter: int,
    seed: int,
    device: str,
    groups: np.ndarray | None = None,
) -> Latents:
    """Train the first stage, and the second if it has steps; transitions of one group are held out together."""
    from pindown import networks
    from pindown.errors import IdentifiabilityWarning
    from pindown.methods import Forget, InverseDynamics
    from pindown.training import Trainer

    common: dict[str, Any] = {"device": device, "verbose": False, "random_state": seed}
    dynamics = InverseDynamics(n_actions, bottleneck=bottleneck, strength=strength, max_iter=dynamics_iter, **common)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # what leaks is what the table says
        dynamics.fit(train.before, train.after, train.body, groups=groups)
        if not forget_iter:
            return Latents(dynamics)
        options: dict[str, Any] = {"max_iter": forget_iter, "trainer": Trainer(validation_fraction=0), **common}
        forget = Forget(n_codes, encoder=networks.skip_mlp, **options)
        return Latents(dynamics, forget.fit(dynamics.transform(train.before, train.after), train.body))


def _transfers(latents: Latents, moved: list[Moves], seed: int) -> dict[str, float]:
    """Return R² of latents by number of pairs, and of the displacements they lead to in the other body; means."""
    import numpy as np
    from sklearn.metrics import r2_score

    from pindown.methods.alignment import PolynomialRidge, align

    codes = [latents.encode(moves) for moves in moved]
    scores: dict[str, list[float]] = {}
    for a, b in permutations(range(len(moved)), 2):
        for point in align(codes[a], codes[b], n_pairs=(0, 10, PAIRS), n_repeats=5, random_state=seed).curve:
            scores.setdefault(f"transfer {point.n_pairs}", []).append(point.r2)
        carry = PolynomialRidge().fit(codes[a][:PAIRS], codes[b][:PAIRS])
        there, own = moved[b].past(PAIRS), codes[a][PAIRS:]
        for k, carried in ((0, own), (PAIRS, carry.predict(own))):
            led = latents.lead(there, carried)
            r2 = r2_score(there.after - there.before, led, multioutput="variance_weighted")
            scores.setdefault(f"rollout {k}", []).append(r2)
    return {name: float(np.mean(values)) for name, values in scores.items()}


@lru_cache(maxsize=4)
def _bodies(n_bodies: int, seed: int) -> Bodies:
    from pindown_papers.simulations import Bodies

    return Bodies.different(n_bodies, random_state=seed)


@lru_cache(maxsize=2)
def _transitions(profile: Staged, seed: int) -> Moves:
    return Moves.of(_bodies(profile.n_bodies, seed).sample(profile.n_samples, random_state=seed + 1))


@lru_cache(maxsize=2)
def _held_out(profile: Staged, seed: int) -> Moves:
    return Moves.of(_bodies(profile.n_bodies, seed).sample(profile.n_eval, random_state=EVALUATION_SEEDS + seed))


@lru_cache(maxsize=16)
def _floor(profile: Staged, seed: int) -> float:
    test = _held_out(profile, seed)
    return _told(test.action, test.body, seed)


def _told(codes: np.ndarray, body: np.ndarray, seed: int) -> float:
    """Return how well the worst probe reads the body: balanced accuracy, held out."""
    from pindown.metrics import Effort, leakage

    return leakage(codes, body, effort=Effort(n_seeds=1, n_permutations=99), random_state=seed).worst


BODIES = Experiment(
    name="antidiversity/bodies",
    title="latent actions of planar arms, four cells, in %",
    source="Anti-diversity, after Liu et al. 2026 (SCAR)",
    headings=("simulation", "regulariser", "assumptions hold"),
    scores=("recovery", "leakage", "floor", "transfer 0", "transfer 50"),
    further=("transfer 10", "rollout 0", "rollout 50", "pooled", "elsewhere"),
    rows=(
        CellRow(1, kl=False, reversal=False),
        CellRow(2, kl=True, reversal=False),
        CellRow(3, kl=False, reversal=True),
        CellRow(4, kl=True, reversal=True),
        CellRow(5, kl=False, reversal=True, late=True),
        CellRow(6, kl=True, reversal=True, late=True),
    ),
    quick=Staged(
        "quick",
        (0, 1, 2, 3, 4),
        n_bodies=3,
        n_samples=20_000,
        n_actions=2,
        late_actions=4,
        bottleneck=0.1,
        strength=3.0,
        dynamics_iter=2_000,
        forget_iter=2_000,
        n_eval=8_000,
    ),
    full=Staged(
        "full",
        (0, 1, 2, 3, 4),
        n_bodies=5,
        n_samples=100_000,
        n_actions=2,
        late_actions=4,
        bottleneck=0.1,
        strength=3.0,
        dynamics_iter=6_000,
        forget_iter=8_000,
        n_eval=20_000,
    ),
    notes=(
        "none: inverse and forward model alone; KL: with a bottleneck; reversal: the body is given, and hidden by both"
        " stages; both. The theorem on forgetting asks for latents that the action determines within a body, which is"
        " what KL is for. late: only the second stage is given the body, and the first has more latents than the"
        " action.",
        "recovery: R² of a nonlinear regression from latents to the true action within a body, the worst body's;"
        " pooled: one regression for all bodies; elsewhere: fitted on the other"
        " bodies.",
        "leakage: balanced accuracy of the worst probe that predicts the body from the latents; floor: from the true"
        " actions, which are independent of it. Chance is one in so many"
        " bodies.",
        "transfer k: R² of a body's latents, over all columns, predicted from another's by an affine map fitted to k"
        " pairs; 0 takes latents as they are. rollout k: the same for the displacements the latents lead to in that"
        " body, with one draw of the pairs. Means over all ordered pairs of bodies; a guess of the mean scores 0.",
        "Invariance is not unification: what the theorem promises is recovery within each body, not transfer without"
        " pairs.",
        "All scores are of held-out transitions. Settings were chosen on seeds 10 to 14; the full profile was never"
        " run.",
    ),
)

EXPERIMENTS = (BODIES,)
