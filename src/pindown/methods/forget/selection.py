"""Evaluate adversarial training: probes of held-out samples, and a transport of the latents of images."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from pindown.methods.forget.adversarial import AdversarialObjective, History, history_of, is_memorised
from pindown.methods.forget.nuisance import NuisanceTable
from pindown.methods.held_out import HeldOut
from pindown.methods.transport import SlicedTransport
from pindown.metrics import PROBES, Effort, Leakage, leakage
from pindown.networks.encoder import Encoder, encode
from pindown.training import TrainingLog

PROBE_NAMES = ("linear", "quadratic", "network")
"""Families of probes after a fit: the fast ones."""

QUICK_PROBES = ("linear", "quadratic")
"""Families of probes of closed forms: what a quadratic probe does not find there, a network does not find."""

WITH_TREES = (*PROBE_NAMES, "boosting")
"""Families of probes of images: boosted trees, too, since a flexible encoder may fool networks only."""

MAX_PROBED = 4_000
"""Largest number of samples for probes; half of them train the probes."""

TRANSPORT_SAMPLES = 100_000
"""Approximate number of samples that a transport is fitted to; all, if there are fewer."""

ONE_MAP, TRANSPORTED = "one map for all levels", "one map, then a transport per level"
"""Names of the candidates for latents of images: encoded without the nuisance, and with it."""

Minimise = Callable[..., TrainingLog]


@dataclass(frozen=True)
class Candidate:
    """Candidate latents: leakage of the nuisance, and explained variance."""

    name: str
    leak: Leakage | None
    explained: float

    def hides_as_much_as(self, other: Candidate) -> bool:
        """Return whether probes find no more leakage than in another candidate, up to sampling error."""
        if self.leak is None or other.leak is None:
            return False
        return self.leak.excess < other.leak.excess + detectable(self.leak.n_samples, self.leak.chance)

    def __str__(self) -> str:
        if self.leak is None:
            return f"{self.name}: too few samples for probes"
        return (
            f"{self.name}: nuisance {self.leak.worst:.2f} (chance {self.leak.chance:.2f}), explained variance "
            f"{self.explained:.2f}"
        )


@dataclass(frozen=True)
class Choice:
    """The chosen latents, and all candidates."""

    kept: Candidate
    compared: tuple[Candidate, ...]
    n_samples: int

    def __str__(self) -> str:
        others = [str(other) for other in self.compared if other.name != self.kept.name]
        against = f"; compared with {'; '.join(others)}" if others else ""
        return f"on {self.n_samples} held-out samples, {self.kept}{against}."


def detectable(n_samples: int, chance: float) -> float:
    """Return the smallest excess over chance that probes of ``n_samples`` samples, half of them for training, detect.

    Examples
    --------
    >>> round(detectable(200, 0.5), 3), round(detectable(50, 0.5), 3)
    (0.2, 0.4)
    """
    return 2 * math.sqrt(0.25 / (n_samples / 2)) / (1 - chance)


@dataclass(frozen=True, eq=False)
class HeldOutSamples:
    """Validation set: samples that are not used for training, and probed afterwards."""

    x: np.ndarray
    nuisance: NuisanceTable
    is_given: bool
    groups: np.ndarray | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(self.x)

    @property
    def level(self) -> np.ndarray:
        """The index of each sample's level, of all columns together."""
        return self.nuisance.groups[:, -1]

    def probe(self, latents: np.ndarray, seed: int, names: Sequence[str] = PROBE_NAMES) -> Leakage | None:
        """Measure how well probes predict the nuisance from latents; None if there are too few samples."""
        return probe_nuisance(
            latents, self.nuisance, is_given=self.is_given, groups=self.groups, seed=seed, names=names
        )

    def explained_within(self, objective: AdversarialObjective) -> float:
        """Return the fraction of the (weighted) variance within levels that the reconstruction explains."""
        white = objective.encoder.preprocess(next(objective.on_device(self.x)))
        level = torch.as_tensor(self.level).to(white.device)
        missed = objective.rebuilt(*objective.on_device(self.x, self.nuisance.shown))[1] - white
        at = one_hot(level, objective.sizes[-1]).to(white)
        means = at.mT @ white / at.sum(0).clamp_min(1)[:, None]
        around = (white - means[level]) @ objective.worth
        return float(1 - (missed @ objective.worth).square().mean() / around.square().mean().clamp_min(1e-12))

    def latents(self, objective: AdversarialObjective) -> np.ndarray:
        """Encode by the averaged weights."""
        encoder = objective.averaged[0]
        assert isinstance(encoder, Encoder)
        return encode(encoder, next(objective.on_device(self.x))).cpu().numpy()

    def classifier_loss(self, objective: AdversarialObjective) -> float | None:
        """Return the loss of the adversarial classifier; None if there are no samples."""
        nuisance = self.nuisance
        if not len(self.x) or not nuisance.weights.any():
            return None
        return objective.classifier_loss(
            *objective.on_device(self.x, nuisance.groups, nuisance.weights, nuisance.strata)
        )


def probe_nuisance(
    latents: np.ndarray,
    nuisance: NuisanceTable,
    *,
    is_given: bool,
    groups: np.ndarray | None,
    seed: int,
    names: Sequence[str] = PROBE_NAMES,
) -> Leakage | None:
    """Measure how well probes predict the nuisance from latents; None if there are too few samples."""
    heads = nuisance.groups
    levels = heads[:, 0] if heads.shape[1] == 1 else heads
    return _probe(latents, levels, nuisance.strata if is_given else None, groups, seed, names)


def probe_label(latents: np.ndarray, nuisance: NuisanceTable, groups: np.ndarray | None, seed: int) -> Leakage | None:
    """Measure how well probes predict the given label within levels; None if there are too few samples."""
    return _probe(latents, nuisance.strata, nuisance.groups[:, -1], groups, seed, PROBE_NAMES)


def _probe(
    latents: np.ndarray, levels: np.ndarray, given: Any, groups: Any, seed: int, names: Sequence[str]
) -> Leakage | None:
    if not len(latents):
        return None
    try:
        return leakage(
            latents,
            levels,
            groups=groups,
            given=given,
            continuous=False,
            probes=[probe for probe in PROBES if probe.name in names],
            # Two seeds: a network with a bad initialisation may find nothing.
            effort=Effort(n_seeds=2, n_permutations=199, max_samples=MAX_PROBED),
            random_state=seed,
        )
    except ValueError:  # a level too rare among these samples
        return None


class LinearMap(nn.Module):
    """The objective of a closed form, which is not trained: the map for samples of unknown batch."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder


def minimised(
    objective: nn.Module, minimise: Minimise, held_out: HeldOutSamples, chance: float, seed: int
) -> TrainingLog:
    """Train; reset linear latents to their initialisation if the classifier has memorised its samples.

    The initialisation is a closed form that generalises. Latents trained against an overfit classifier do not.
    """
    if not (isinstance(objective, AdversarialObjective) and objective.is_linear):
        return minimise(objective, seed)
    start = copy.deepcopy(objective.averaged.state_dict())
    log = minimise(objective, seed)
    if is_memorised(objective.trace[:, 0].cpu().numpy(), held_out.classifier_loss(objective), chance):
        objective.averaged.load_state_dict(start)
        objective.went_back = True
    return log


@torch.no_grad()
def transported(
    objective: AdversarialObjective,
    held_out: HeldOutSamples,
    n_samples: int | None,
    batches: Iterator[tuple[Tensor, ...]],
    seed: int,
    *,
    always: bool,
) -> tuple[Choice, SlicedTransport | None]:
    """Fit a transport of the latents; None if the best probe finds clearly more leakage after it."""
    wanted = TRANSPORT_SAMPLES if n_samples is None else min(TRANSPORT_SAMPLES, n_samples)
    latents: list[Tensor] = []
    levels: list[Tensor] = []
    while sum(map(len, latents)) < wanted:
        x, groups, *_ = next(batches)
        latents.append(objective.averaged[0](x).cpu().double())
        levels.append(groups[:, -1].cpu())
    generator = torch.Generator().manual_seed(seed % 2**63)
    transport = SlicedTransport.fitted(torch.cat(latents), torch.cat(levels), generator, n_groups=objective.sizes[-1])
    before = held_out.latents(objective)
    after = transport(before, held_out.level).numpy()
    explained = held_out.explained_within(objective)
    one_map, moved = (
        Candidate(name, held_out.probe(z, seed, WITH_TREES), explained)
        for name, z in ((ONE_MAP, before), (TRANSPORTED, after))
    )
    kept = moved if always or moved.hides_as_much_as(one_map) else one_map
    choice = Choice(kept, (one_map, moved), held_out.n_samples)
    return choice, transport.to(objective.worth.device) if kept is moved else None


def history(
    objective: nn.Module,
    held_out: HeldOutSamples,
    chance: float,
    probe: Leakage | None,
    seed: int,
    steps: tuple[int, int],
) -> History:
    """Return the history of training, for ``steps`` = (steps, batches per step); one step for a closed form."""
    if not isinstance(objective, AdversarialObjective):
        loss = chance - (0.0 if probe is None else math.log(2) * probe.bits)
        accuracy = math.nan if probe is None else probe.worst
        return History(np.array([loss]), np.array([accuracy]), chance, np.array([0.0]), probe)
    if probe is None:
        probe = held_out.probe(held_out.latents(objective), seed)
    loss_held_out, went_back = held_out.classifier_loss(objective), objective.went_back
    return history_of(
        objective, *steps, chance_loss=chance, probe=probe, held_out_loss=loss_held_out, went_back=went_back
    )


def held_out_score(probe: Leakage | None, n_folds: int, n_steps: int) -> HeldOut | None:
    """Return the score of the best probe on held-out samples; None if there were too few."""
    if probe is None:
        return None
    name = f"{probe.measure} of the best probe of the nuisance"
    return HeldOut(name, probe.worst, None, probe.chance, probe.n_samples, n_folds, n_steps)
