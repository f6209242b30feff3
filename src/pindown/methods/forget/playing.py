"""Which games are played, and what is kept of them: the game goes only as far as rows held out show that it helps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pindown.methods.forget.choosing import (
    BENT,
    FEWEST_JUDGES,
    FIXED,
    TRANSPORTED,
    WITH_TREES,
    Candidate,
    Choice,
    KeptOut,
    best,
)
from pindown.methods.forget.game import Game, History, by_heart, history_of
from pindown.methods.forget.initialisation import Initialisation
from pindown.methods.forget.looking import NuisanceSummary
from pindown.methods.held_out import HeldOut
from pindown.methods.transport import SlicedTransport
from pindown.metrics import Leakage
from pindown.networks import built
from pindown.networks.encoder import Encoder
from pindown.networks.encoder import Make as Network
from pindown.networks.preprocessing import Rescale
from pindown.networks.spaces import Reals
from pindown.training import TrainingLog

TRANSPORT_ROWS = 100_000
"""Rows, about, from which a transport is taken; all, if there are fewer."""

MOST_TOLD = 0.5
"""Share of the signal within values that one map must tell to be kept where charts could tell all of it."""

Make = Callable[[int], nn.Module]
Minimise = Callable[..., TrainingLog]


class Straight(nn.Module):
    """What stands where a game would: the map for rows of unknown value, beside charts in closed form."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder


class Played(NamedTuple):
    """What was minimised, and how it went; which codes are kept, where some were compared; how restarts fared."""

    objective: nn.Module
    log: TrainingLog
    choice: Choice | None = None
    restart_scores: np.ndarray | None = None
    transport: SlicedTransport | None = None


def played(
    make: Make, make_bent: Make, minimise: Minimise, summary: NuisanceSummary, n_restarts: int, seed: int
) -> Played:
    """Play for one map for all values, unless charts in closed form will do; and if it leaks, for charts that bend.

    One map is kept where it is blind and tells most of the signal: what it leaves alone is what the theorem speaks of.
    Otherwise what is worth most on rows held out.
    """
    if summary.is_settled:
        assert summary.fixed is not None
        log = TrainingLog(np.array([summary.missed]), 0.0, stopped_on_plateau=False)
        return Played(Straight(summary.fixed), log, summary.choice)
    one_map = _best_of(make, _kept_honest(minimise, summary), summary.compared, n_restarts, seed)
    rows, charts, straight = summary.held_out, summary.charts_apart, summary.straight
    if charts is None or straight is None:
        return one_map
    fixed = rows.of_game(FIXED, one_map.objective, charts, seed)
    if fixed.is_blind and fixed.told >= MOST_TOLD and rows.n_samples >= FEWEST_JUDGES:
        return one_map._replace(choice=Choice(fixed, (straight, fixed), rows.n_samples))
    candidates, bent = [straight, fixed], None
    if not fixed.is_blind:
        bent = _best_of(make_bent, minimise, rows, n_restarts, seed, "charts")
        candidates.append(rows.of_game(BENT, bent.objective, charts, seed))
    choice = best(candidates, rows.n_samples)
    kept = bent if bent is not None and choice.kept.name == BENT else one_map
    return kept._replace(choice=choice)


@torch.no_grad()
def transported(
    found: Played, summary: NuisanceSummary, batches: Iterator[tuple[Tensor, ...]], seed: int, *, settled: bool
) -> Played:
    """Follow a game by a transport of its codes, unless the best reader of rows held out finds clearly more then.

    What a transport moves, rows have shown. Two readings of the few that are held out differ by chance by as much as it
    gains, so that the smaller of them would often be the worse.
    """
    game, rows = found.objective, summary.held_out
    assert isinstance(game, Game)
    wanted = TRANSPORT_ROWS if summary.rows is None else min(TRANSPORT_ROWS, len(summary.rows))
    codes: list[Tensor] = []
    values: list[Tensor] = []
    while sum(map(len, codes)) < wanted:
        x, groups, *_ = next(batches)
        codes.append(game.averaged[0](x).cpu().double())
        values.append(groups[:, -1].cpu())
    generator = torch.Generator().manual_seed(seed % 2**63)
    transport = SlicedTransport.fitted(torch.cat(codes), torch.cat(values), generator, n_groups=game.sizes[-1])
    before = rows.codes(game)
    after = transport(before, rows.value).numpy()
    named, told = ((FIXED, before), (TRANSPORTED, after)), rows.told_within(game)
    fixed, moved = (Candidate(name, rows.probe(z, seed, WITH_TREES), told) for name, z in named)
    kept = moved if settled or moved.hides_as_much_as(fixed) else fixed
    choice = Choice(kept, (fixed, moved), rows.n_samples)
    return found._replace(choice=choice, transport=transport.to(game.worth.device) if choice.kept is moved else None)


def _kept_honest(minimise: Minimise, summary: NuisanceSummary) -> Minimise:
    """Let linear codes stay where they began if the adversary has learned its rows by heart.

    They begin at a closed form, off differences of means and covariances, which other rows bear out; what they hide
    from such an adversary other rows do not show.
    """

    def minimised(game: nn.Module, *how: Any) -> TrainingLog:
        if not (isinstance(game, Game) and game.is_linear):
            return minimise(game, *how)
        start = copy.deepcopy(game.averaged.state_dict())
        log = minimise(game, *how)
        chance = summary.initialisation.nuisance.chance_loss()
        if by_heart(game.trace[:, 0].cpu().numpy(), summary.held_out.heard(game), chance):
            game.averaged.load_state_dict(start)
            game.went_back = True
        return log

    return minimised


def at_charts(summary: NuisanceSummary, make: Network) -> tuple[Initialisation, Encoder]:
    """Return where a game starts whose encoder begins with charts, and that encoder."""
    assert summary.charts_apart is not None
    size = summary.held_out.spread(summary.charts_apart)
    body = built("Forget", "encoder", make, len(size), len(size))
    first = Rescale(torch.zeros(len(size)), torch.as_tensor(size, dtype=torch.float32))
    return summary.initialisation.at_charts(size), Encoder(first, body, Reals())


def _best_of(make: Make, minimise: Minimise, rows: KeptOut, n_games: int, seed: int, part: str = "") -> Played:
    """Play a game, or several, and return the one that does best on rows."""
    games = [make(seed + k) for k in range(n_games)]
    if n_games == 1:
        return Played(games[0], minimise(games[0], seed, part))
    logs = [minimise(game, seed + k, f"{part} restart {k}".strip()) for k, game in enumerate(games)]
    scores = np.array([rows.missed_and_told(game, seed) for game in games])
    kept = int(scores.argmin())
    return Played(games[kept], logs[kept], restart_scores=scores)


def history(
    objective: nn.Module, summary: NuisanceSummary, choice: Choice | None, seed: int, steps: tuple[int, int]
) -> History:
    """Return how it went, in so many steps of so many batches; where no game was played, in one."""
    chance = summary.initialisation.nuisance.chance_loss()
    probe = None if choice is None else choice.kept.leak
    if not isinstance(objective, Game):
        told = chance - (0.0 if probe is None else math.log(2) * probe.bits)
        right = math.nan if probe is None else probe.worst
        return History(np.array([told]), np.array([right]), chance, np.array([summary.missed]), probe)
    if choice is None:
        probe = summary.held_out.probe(summary.held_out.codes(objective), seed)
    heard, went_back = summary.held_out.heard(objective), objective.went_back
    return history_of(objective, *steps, chance_loss=chance, probe=probe, held_out_loss=heard, went_back=went_back)


def read_afterwards(probe: Leakage | None, n_folds: int, n_steps: int) -> HeldOut | None:
    """Return what the best reader tells of the nuisance of rows held out; None if too few could be compared."""
    if probe is None:
        return None
    name = f"{probe.measure} of the best reader of the nuisance"
    return HeldOut(name, probe.worst, None, probe.chance, probe.n_samples, n_folds, n_steps)
