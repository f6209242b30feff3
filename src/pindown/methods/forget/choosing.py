"""Which codes are kept: closed forms, one map for all values, or charts that bend, compared on rows held out."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from pindown.methods.forget.charts import Charts, again
from pindown.methods.forget.game import MAX_LEAK, Game, coloured
from pindown.methods.forget.nuisance import Nuisance
from pindown.metrics import PROBES, Effort, Leakage, leakage
from pindown.networks.encoder import ENCODED_AT_ONCE, Encoder, encode
from pindown.networks.preprocessing import Rescale

PROBE_NAMES = ("linear", "quadratic", "network")
"""Families that read the held-out rows after a fit: the cheap ones."""

WITH_TREES = (*PROBE_NAMES, "boosting")
"""Of pictures one more: an encoder that can bend so far fools networks where trees still see."""

MOST_READ = 4_000
"""Rows that readers are shown, half of them to learn from."""

LEAK_COSTS = 2.0
"""What a share of the nuisance that is told counts against a share of the signal that is told."""

FEWEST_JUDGES = 200
"""Rows held out from which codes that nobody reads e from count as blind: fewer seldom tell these from others."""

FEWEST_READ = 0.8
"""Share of the values that readers of all rows tell apart of which rows held out must have enough to judge a game."""

N_FOLDS = 5
"""Parts of the rows, each encoded by shifts and spreads of the others."""

FIXED, CLOSED, EVEN, BENT = "one map for all values", "charts in closed form", "even charts", "charts that bend"
"""Codes that are compared: without the nuisance; told it, standardised; with one covariance; bent by the game."""

TRANSPORTED = "one map, then a transport per value"
"""Codes of pictures that are told the nuisance: see `pindown.methods.transport.SlicedTransport`."""


@dataclass(frozen=True)
class Candidate:
    """Codes that could be kept: what readers tell of the nuisance, and the share of the signal that the codes tell."""

    name: str
    leak: Leakage | None
    told: float

    @property
    def excess(self) -> float:
        """How far from chance to certainty readers get; 0 if not beyond chance, or if nobody can say."""
        return self.leak.excess if self.leak is not None and self.leak.leaks else 0.0

    @property
    def is_blind(self) -> bool:
        """Whether readers do not get far."""
        return self.excess <= MAX_LEAK

    def is_of_as_many_values(self, other: Candidate) -> bool:
        """Say whether readers could tell of nearly as many values as of those that another was judged by."""
        if self.leak is None or other.leak is None:
            return False
        return other.leak.chance > FEWEST_READ * self.leak.chance

    def hides_as_much_as(self, other: Candidate) -> bool:
        """Say whether readers find no more than in another, but for what so few rows leave open."""
        if self.leak is None or other.leak is None:
            return False
        return self.leak.excess < other.leak.excess + seen_in(self.leak.n_samples, self.leak.chance)

    @property
    def worth(self) -> float:
        """What the codes tell of the signal, less what they tell of the nuisance; of few rows whatever these show."""
        few = self.leak is not None and self.leak.n_samples < FEWEST_JUDGES
        return self.told - LEAK_COSTS * (max(0.0, self.leak.excess) if self.leak is not None and few else self.excess)

    def __str__(self) -> str:
        if self.leak is None:
            return f"{self.name}: too few rows to read the nuisance from"
        return (
            f"{self.name}: nuisance {self.leak.worst:.2f} (chance {self.leak.chance:.2f}), signal told {self.told:.2f}"
        )


@dataclass(frozen=True)
class Choice:
    """The codes that are kept, and all that were compared."""

    kept: Candidate
    compared: tuple[Candidate, ...]
    n_samples: int

    def __str__(self) -> str:
        others = [str(other) for other in self.compared if other.name != self.kept.name]
        against = f"; against {'; '.join(others)}" if others else ""
        return f"on {self.n_samples} rows that they were not fitted to, {self.kept}{against}."


def seen_in(n_samples: int, chance: float) -> float:
    """Return how far from chance readers must get for so many rows, half of which they learn from, to show it.

    Examples
    --------
    >>> round(seen_in(200, 0.5), 3), round(seen_in(50, 0.5), 3)
    (0.2, 0.4)
    """
    return 2 * math.sqrt(0.25 / (n_samples / 2)) / (1 - chance)


def best(candidates: list[Candidate], n_samples: int) -> Choice:
    """Return what is worth most; of equals the first, which is the simplest."""
    return Choice(max(candidates, key=lambda candidate: candidate.worth), tuple(candidates), n_samples)


@dataclass(frozen=True, eq=False)
class KeptOut:
    """Rows that were kept out of a game, to be probed afterwards."""

    x: np.ndarray
    nuisance: Nuisance
    is_given: bool
    groups: np.ndarray | None = None

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.x)

    @property
    def value(self) -> np.ndarray:
        """The number of each row's value, of all columns together."""
        return self.nuisance.groups[:, -1]

    def probe(self, codes: np.ndarray, seed: int, names: Sequence[str] = PROBE_NAMES) -> Leakage | None:
        """Read the nuisance off their codes; None if too few rows can be compared."""
        return told_of(codes, self.nuisance, is_given=self.is_given, groups=self.groups, seed=seed, names=names)

    def of_charts(self, name: str, charts: Charts, seed: int) -> Candidate:
        """Judge charts in closed form, which tell all of the signal that there is for them."""
        return Candidate(name, self.probe(charts.encode(self.x, self.value), seed), 1.0)

    def of_game(self, name: str, game: nn.Module, charts: Charts, seed: int) -> Candidate:
        """Judge what came of a game: what its codes tell of the nuisance, and of the signal as charts see it."""
        assert isinstance(game, Game)
        true = charts.encode(self.x, self.value)
        rebuilt = game.rebuilt(*game.on_device(self.x, self.nuisance.groups, self.nuisance.shown))[1].cpu().double()
        first = game.encoder.preprocess
        seen = (rebuilt @ coloured(first).cpu() + first.mean.cpu()).numpy()
        if game.charts is None:
            seen = charts.encode(seen, self.value)
        told = float(1 - ((true - seen) ** 2).sum() / max((true**2).sum(), 1e-300))
        return Candidate(name, self.probe(self.codes(game), seed), told)

    def told_within(self, game: Game) -> float:
        """Return the share of what varies within values, of the data worth rebuilding, that codes of a game tell."""
        white = game.encoder.preprocess(next(game.on_device(self.x)))
        value = torch.as_tensor(self.value).to(white.device)
        missed = game.rebuilt(*game.on_device(self.x, self.nuisance.groups, self.nuisance.shown))[1] - white
        at = one_hot(value, game.sizes[-1]).to(white)
        means = at.mT @ white / at.sum(0).clamp_min(1)[:, None]
        around = (white - means[value]) @ game.worth
        return float(1 - (missed @ game.worth).square().mean() / around.square().mean().clamp_min(1e-12))

    def missed_and_told(self, game: nn.Module, seed: int) -> float:
        """Return the objective of the encoder, to compare games by, with a fresh probe for the classifier."""
        assert isinstance(game, Game)
        probe, told = self.probe(self.codes(game), seed), self.nuisance
        missed = game.missed(*game.on_device(self.x, told.groups, told.strata, told.shown))
        return missed + (0.0 if probe is None else game.strength * math.log(2) * probe.bits)

    def codes(self, game: Game) -> np.ndarray:
        """Encode by what a game has come to on average."""
        encoder = game.averaged[0]
        assert isinstance(encoder, Encoder)
        return encode(encoder, game.charted(*game.on_device(self.x, self.nuisance.groups))).cpu().numpy()

    def heard(self, game: Game) -> float | None:
        """Return the loss of the classifier in the game; None if there are no rows."""
        told = self.nuisance
        if not len(self.x) or not told.weights.any():
            return None
        return game.heard(*game.on_device(self.x, told.groups, told.weights, told.strata))

    def spread(self, charts: Charts) -> np.ndarray:
        """Return the standard deviation of codes by charts; (k,)."""
        return np.maximum(charts.encode(self.x, self.value).std(0), 1e-6)


def told_of(
    codes: np.ndarray,
    nuisance: Nuisance,
    *,
    is_given: bool,
    groups: np.ndarray | None,
    seed: int,
    names: Sequence[str] = PROBE_NAMES,
) -> Leakage | None:
    """Let readers, trained on half of these rows, tell the nuisance of the other half; None if rows are too few."""
    heads = nuisance.groups
    told = heads[:, 0] if heads.shape[1] == 1 else heads
    return _read(codes, told, nuisance.strata if is_given else None, groups, seed, names)


def label_shown(codes: np.ndarray, nuisance: Nuisance, groups: np.ndarray | None, seed: int) -> Leakage | None:
    """Let readers tell the given label, within values of the nuisance; None if rows are too few to say."""
    return _read(codes, nuisance.strata, nuisance.groups[:, -1], groups, seed, PROBE_NAMES)


def _read(
    codes: np.ndarray, told: np.ndarray, given: Any, groups: Any, seed: int, names: Sequence[str]
) -> Leakage | None:
    if not len(codes):
        return None
    try:
        return leakage(
            codes,
            told,
            groups=groups,
            given=given,
            continuous=False,
            probes=[probe for probe in PROBES if probe.name in names],
            # Two seeds, as a network with a bad initialisation may see nothing.
            effort=Effort(n_seeds=2, n_permutations=199, max_samples=MOST_READ),
            random_state=seed,
        )
    except ValueError:  # a value too rare among these rows
        return None


def cross_fitted(charts: Charts, x: np.ndarray, nuisance: Nuisance, fold: np.ndarray, *, even: bool) -> np.ndarray:
    """Encode each part of the rows by shifts and spreads that the others have, along the same directions; (n, k).

    What is left of the nuisance in them is what such charts cannot hide, however many rows there are.
    """
    value, strata = nuisance.groups[:, -1], nuisance.strata
    codes = np.zeros((len(x), charts.n_codes))
    for part in range(fold.max() + 1):
        rest, rows = fold != part, fold == part
        codes[rows] = again(charts, x[rest], value[rest], strata[rest], even=even).encode(x[rows], value[rows])
    return codes


class Charted(nn.Module):
    """Codes of rows whose nuisance is known, and back: charts, and where a game bent these, its encoder and decoder."""

    charts: Charts
    encoder: Encoder | None
    decoder: nn.Module | None

    def __init__(self, charts: Charts, encoder: Encoder | None = None, decoder: nn.Module | None = None) -> None:
        super().__init__()
        self.charts, self.encoder, self.decoder = charts, encoder, decoder

    @classmethod
    def bent(cls, game: nn.Module) -> Self:
        """Take what a game has come to on average."""
        assert isinstance(game, Game)
        encoder, decoder = (copy.deepcopy(player).eval() for player in game.averaged)
        assert isinstance(encoder, Encoder)
        assert game.charts is not None
        return cls(copy.deepcopy(game.charts), encoder, decoder.double())

    def forward(self, x: Tensor, value: Tensor) -> Tensor:
        """Encode (n, d) rows with these numbers of values; (n, k), in float64."""
        codes = self.charts(x, value)
        return codes if self.encoder is None else encode(self.encoder, codes).to(codes) * self._size

    def encode(self, x: Tensor, value: Tensor) -> Tensor:
        """Encode rows from wherever they are, a bounded number at a time."""
        device = self.charts.shift.device
        with torch.no_grad():
            parts = zip(x.split(ENCODED_AT_ONCE), value.split(ENCODED_AT_ONCE), strict=True)
            return torch.cat([self(x.to(device), v.to(device)) for x, v in parts])

    def inverse(self, z: Tensor, value: Tensor, shown: Tensor) -> Tensor:
        """Rebuild (n, d) rows from codes and their nuisance."""
        if self.decoder is not None:
            z = self.decoder(torch.cat([z / self._size, shown], 1)) * self._size
        return self.charts.inverse(z, value)

    @property
    def _size(self) -> Tensor:
        """Units of codes: those of the closed form that the game began with."""
        assert self.encoder is not None
        assert isinstance(self.encoder.preprocess, Rescale)
        return self.encoder.preprocess.scale.double()
