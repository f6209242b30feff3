"""What both approaches of `Forget` share: a summary that can be trained, what is learned, and probes afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse.csgraph import connected_components

from pindown.methods.fitting import Trained, Training
from pindown.methods.forget.adversarial import History, Rebuild
from pindown.methods.forget.batch_maps import BatchMaps
from pindown.methods.forget.nuisance import NuisanceReader, NuisanceTable
from pindown.methods.held_out import HeldOut
from pindown.methods.inputs import DataSummary
from pindown.methods.transport import SlicedTransport
from pindown.metrics import PROBES, Effort, Leakage, StructureKept, leakage
from pindown.metrics.arrays import Labels, Matrix
from pindown.networks.encoder import Encoder

PROBE_NAMES = ("linear", "quadratic", "network")  # families of probes after training: the fast ones
MAX_PROBED = 4_000  # largest number of samples for probes; half of them train the probes
MAX_LEAK = 0.1  # excess of a probe over chance, as a fraction of certainty, from which the fit warns


@dataclass(frozen=True)
class Candidate:
    """Latents of images, with or without a transport, in files that were saved when fits compared the two."""

    name: str
    leak: Leakage | None
    explained: float


@dataclass(frozen=True)
class Choice:
    """The latents of images that a saved fit chose."""

    kept: Candidate
    compared: tuple[Candidate, ...]
    n_samples: int


@dataclass(frozen=True, eq=False)
class Learned:
    """What an approach has learned, as `Forget` stores it."""

    encoder: Encoder  # the map for samples of unknown batch
    history: History
    structure: StructureKept | None
    decoder: Rebuild | None = None
    components: Matrix | None = None
    batch_maps: BatchMaps | None = None
    transport: SlicedTransport | None = None
    notes: tuple[object, ...] = ()
    doubts: tuple[str, ...] = ()
    n_folds: int = 1
    alone: Mapping[str, str] = field(default_factory=dict)  # types that occur in one level only

    @property
    def held_out(self) -> HeldOut | None:
        """The score of the best probe on held-out samples; None if there were too few."""
        if (probe := self.history.probe) is None:
            return None
        name, n_steps = f"{probe.measure} of the best probe of the nuisance", len(self.history.classifier_loss)
        kept = "" if self.structure is None else str(self.structure)
        return HeldOut(name, probe.worst, None, probe.chance, probe.n_samples, self.n_folds, n_steps, note=kept)


@dataclass(frozen=True, eq=False)
class ForgetSummary(DataSummary, ABC):
    """What `Forget` reads off the data before the first step; abstract. Each approach has its own."""

    n_nuisance_directions: tuple[int, int] = field(kw_only=True)
    reader: NuisanceReader = field(kw_only=True)
    note: str = field(kw_only=True)  # why so many latents

    @abstractmethod
    def targets(self, sides: Mapping[str, object]) -> tuple[object, ...]:
        """Return what the objective takes in addition to samples."""

    @abstractmethod
    def train(self, training: Training, seed: int) -> Trained:
        """Learn, and return what was learned, with `Learned` as details."""


def probe(
    latents: Matrix,
    levels: Labels,
    *,
    within: Labels | None,
    groups: Labels | None,
    seed: int,
    names: Sequence[str] = PROBE_NAMES,
) -> Leakage | None:
    """Measure how well probes predict levels from latents, within strata; None if there are too few samples."""
    if not len(latents):
        return None
    try:
        return leakage(
            latents,
            levels[:, 0] if levels.ndim == 2 and levels.shape[1] == 1 else levels,
            groups=groups,
            given=within,
            continuous=False,
            probes=[probe for probe in PROBES if probe.name in names],
            # Two seeds: a network with a bad initialisation may find nothing.
            effort=Effort(n_seeds=2, n_permutations=199, max_samples=MAX_PROBED),
            random_state=seed,
        )
    except ValueError:  # a level too rare among these samples
        return None


def leak_doubts(probe: Leakage | None, remedy: str) -> tuple[str, ...]:
    """Return a sentence if a probe predicts the nuisance from held-out latents."""
    if probe is None or not probe.leaks or probe.excess <= MAX_LEAK:
        return ()
    found = replace(probe, nuisance="the nuisance")  # the command line knows its columns
    return (f"on {found.n_samples} held-out samples, {found.verdict} {remedy}",)


def nuisance_doubts(nuisance: NuisanceTable, consequence: str) -> tuple[str, ...]:
    """Return sentences on rare levels, and on labels that share no level, so that effects cannot be separated."""
    doubts: tuple[str, ...] = ()
    if n_rare := nuisance.n_rare:
        doubts += (
            f"{n_rare} samples belong to levels of y that are rare, or that occur alone with their given label: "
            f"{consequence} Merge rare levels.",
        )
    joint = np.zeros((nuisance.n_strata, nuisance.n_levels), dtype=bool)
    joint[nuisance.strata, nuisance.level] = True
    if (n_blocks := connected_components(joint @ joint.T)[0]) > 1:  # of labels that share a level
        doubts += (
            f"given and y fall into {n_blocks} blocks without a common level: between blocks, the effects of the label "
            "and of the nuisance cannot be separated. Collect samples that cross them.",
        )
    return doubts
