"""The approach in closed form: batch-specific maps, tested on samples that they were not estimated from."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from pindown import _random
from pindown._names import listed
from pindown.data.labels import as_numbers, combined, missing
from pindown.data.splits import assign_folds
from pindown.methods.fitting import Trained, Training
from pindown.methods.forget.adversarial import History
from pindown.methods.forget.approach import (
    ForgetSummary,
    Learned,
    leak_doubts,
    nuisance_doubts,
    probe,
)
from pindown.methods.forget.batch_maps import BatchMaps, fit_batch_maps, lone_clusters, refit_batch_maps
from pindown.methods.forget.linear_erasure import Directions, directions, some_rows
from pindown.methods.forget.nuisance import NuisanceReader, NuisanceTable, assemble, read_columns, read_strata
from pindown.methods.inputs import TrainingInput
from pindown.metrics import Leakage, StructureKept, structure_kept
from pindown.metrics.arrays import Labels, Matrix
from pindown.networks.encoder import Encoder
from pindown.networks.preprocessing import Preprocessing
from pindown.networks.spaces import Reals
from pindown.training import TrainingLog

if TYPE_CHECKING:
    from pindown.methods.forget.estimator import Forget

# Families of probes of closed forms: what a quadratic probe does not find there, a network does not find
QUICK_PROBES = ("linear", "quadratic", "sparse")
RIDGE = 1e-3  # ridge penalty of the map for samples of unknown level, relative to a direction of unit variance
# Explained variance that shifts of clusters may cost if the batch leaks more than this fraction of certainty with them
MAX_LOSS, STILL_LEAKS = 0.05, 0.3
N_FOLDS = 3  # folds by which leakage is measured
MIN_PER_LEVEL = 10  # samples per level below which the fit warns that there are many small batches

FULL_STRENGTH = 0.5  # strength from which all effects of batches are removed


class LinearMap(nn.Module):
    """The objective of a closed form, which is not trained: the map for samples of unknown batch."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder


@dataclass(frozen=True, eq=False)
class BatchMapSummary(ForgetSummary):
    """Batch-specific maps, the map for samples of unknown batch, leakage and structure of held-out samples."""

    maps: BatchMaps = field(kw_only=True)
    unknown: Encoder = field(kw_only=True)
    chance_loss: float = field(kw_only=True)
    alone: Mapping[str, str] = field(kw_only=True)  # types that occur in one level only
    leak: Leakage | None = field(kw_only=True)
    structure: StructureKept = field(kw_only=True)

    def targets(self, sides: Mapping[str, object]) -> tuple[object, ...]:
        """Return nothing: nothing is trained."""
        return ()

    def train(self, training: Training, seed: int) -> Trained:
        """Return the maps, which were estimated with the summary, as the result of one step."""
        leak = self.leak
        loss = self.chance_loss - (0.0 if leak is None else math.log(2) * leak.bits)
        accuracy = np.array([math.nan if leak is None else leak.worst])
        learned = Learned(
            copy.deepcopy(self.unknown).to(training.prepared.device).eval(),
            History(np.array([loss]), accuracy, self.chance_loss, np.array([0.0]), leak),
            self.structure,
            batch_maps=self.maps,
            notes=(self.note,),
            doubts=leak_doubts(leak, "Pass classes to keep as `given`, if they are known, or more samples."),
            n_folds=N_FOLDS,
            alone=self.alone,
        )
        log = TrainingLog(np.array([0.0]), 0.0, stopped_on_plateau=False)
        return training.trained(LinearMap(self.unknown), log, learned)


def batch_map_summary(est: Forget, inputs: TrainingInput, first: Preprocessing, seed: int) -> BatchMapSummary:
    """Estimate batch-specific maps, or raise."""
    data = inputs.data
    columns, kinds = read_columns(data.nuisance, len(data), est.n_bins)
    strata = read_strata(data.given, len(data), may_miss=True)
    nuisance = assemble(columns, kinds, np.where(strata < 0, strata.max() + 1, strata))
    nuisance.refuse_identical()
    rows = some_rows(np.arange(len(data)), first, np.random.default_rng(seed % 2**63))
    x, seen = np.asarray(data.X[rows]), nuisance.take(rows)
    white = first(torch.as_tensor(x)).double().numpy()
    size = np.linalg.pinv(first.linear_map.numpy())
    found = directions(white, seen.groupings(), spreads=False, size=size, rng=np.random.default_rng(0))
    known = strata[rows] if data.given is not None and (strata >= 0).any() else None
    groups = None if data.groups is None else data.groups[rows]
    x = x.astype(np.float64)
    maps, leak, structure = _cross_fitted(x, seen, known, groups, est, seed)
    reader = NuisanceReader.of(nuisance, kinds, None)
    alone = _alone(maps, x, seen.level, None if known is None else np.asarray(data.given)[rows], reader)
    types = listed([f"{name} in {level}" for name, level in alone.items()], 5)
    lone = f" Found in one level only, and left where they are: {types}." if alone else ""
    rare = "the effects of these levels are estimated from few samples, and shrunk towards zero."
    return BatchMapSummary(
        maps.n_components,
        warnings=nuisance_doubts(nuisance, rare) + _doubts(structure, nuisance),
        alone=alone,
        n_nuisance_directions=(found.n_means, found.n_spreads),
        reader=reader,
        note=f"{maps.n_components} latents: {maps}.{lone}",
        maps=maps,
        unknown=_map_of_unknown(first, white, maps.encode(x, seen.level), found),
        chance_loss=nuisance.chance_loss(),
        leak=leak,
        structure=structure,
    )


def _cross_fitted(
    x: Matrix,
    nuisance: NuisanceTable,
    labels: Labels | None,
    groups: Labels | None,
    est: Forget,
    seed: int,
) -> tuple[BatchMaps, Leakage | None, StructureKept]:
    """Fit batch-specific maps, and probe each third of the samples with maps of the others, and all with these.

    Clusters have shifts of their own unless latents without these leak clearly less; or keep clearly more, and shifts
    of clusters do not hide the batch.
    """
    batch, strata = nuisance.level, nuisance.strata
    maps = fit_batch_maps(
        x, batch, nuisance.n_levels, n_components=est.n_components, labels=labels, random_state=seed % 2**32
    )
    density = maps.density(x, batch)
    typical = float(density.mean()), float(density.std())
    maps = replace(maps, fraction=min(1.0, est.strength / FULL_STRENGTH), typical=typical)
    rng = np.random.default_rng(seed % 2**63)
    if groups is None:
        fold = assign_folds(np.arange(len(x)), N_FOLDS, rng, combined(strata, batch))
    else:
        fold = assign_folds(as_numbers(groups), N_FOLDS, rng)
    # Proportions of classes or clusters may differ between batches; samples within one may not.
    within = strata if labels is not None else None if maps.mixture is None else maps.clusters(x, batch)

    def tested(maps: BatchMaps) -> tuple[BatchMaps, Leakage | None, StructureKept]:
        latents = np.zeros((len(x), maps.n_components))
        for part in range(fold.max() + 1):
            rest, held = fold != part, fold == part
            other = refit_batch_maps(maps, x[rest], batch[rest], labels=None if labels is None else labels[rest])
            latents[held] = other.encode(x[held], batch[held])
        # One map leaves fingerprints of a batch that differ from fold to fold: probe the latents of all samples, too.
        probed = [
            probe(each, nuisance.groups, within=within, groups=groups, seed=seed, names=QUICK_PROBES)
            for each in (latents, maps.encode(x, batch))
        ]
        leak = max((each for each in probed if each is not None), key=lambda each: each.excess, default=None)
        return maps, leak, structure_kept(x, latents, batch, random_state=seed % 2**32)

    found = _, leak, kept = tested(maps)
    if labels is None and maps.mixture is not None and maps.mixture.n_components > 1 and leak is not None:
        plain = _, plain_leak, plain_kept = tested(maps.without_clusters(x, batch))
        error = math.sqrt(2 / leak.n_samples) / (1 - leak.chance)  # two standard errors of a score of half of them
        leaks_less = plain_leak is not None and plain_leak.excess < leak.excess - error
        costs_more = leak.excess > STILL_LEAKS and plain_kept.variance > kept.variance + MAX_LOSS
        if leaks_less or costs_more:
            return plain
    return found


def _alone(
    maps: BatchMaps, x: Matrix, level: Labels, given: np.ndarray | None, reader: NuisanceReader
) -> Mapping[str, str]:
    """Return the known classes, or clusters, that occur in one level only, each with its level."""
    if given is not None:
        own = np.flatnonzero(~missing(given))
        names, number = np.unique(given[own].astype(str), return_inverse=True)
        found = lone_clusters(number, level[own])
    else:
        own, number = np.arange(len(x)), maps.clusters(x, level)
        found = lone_clusters(number, level)
        names = np.array([f"cluster {c} ({n} samples)" for c, n in enumerate(np.bincount(number))])
    return {str(names[c]): reader.name(e) for c, e in found.items()}


def _doubts(structure: StructureKept, nuisance: NuisanceTable) -> tuple[str, ...]:
    doubts: tuple[str, ...] = ()
    if structure.n_samples and structure.is_empty:
        doubts += (
            f"next to nothing of the data is left: {structure}. Increase n_components, or check whether X varies "
            "within levels of the nuisance.",
        )
    sizes = np.bincount(nuisance.level)
    if len(sizes) > MIN_PER_LEVEL and np.median(sizes) < MIN_PER_LEVEL:
        doubts += (
            f"y has {len(sizes)} levels with {np.median(sizes):.0f} samples each (median): too few to estimate the "
            "effect of each. Is y the batch, or does it name samples? Merge levels, or pass another column.",
        )
    return doubts


def _map_of_unknown(first: Preprocessing, white: Matrix, latents: Matrix, found: Directions) -> Encoder:
    """Return the map for samples of unknown batch: ridge regression of latents without differences of means."""
    rows = found.basis[found.n_means :] if found.n_blind else found.basis
    shown = white @ rows.T
    shown, target = shown - shown.mean(0), latents - latents.mean(0)
    weight = np.linalg.solve(shown.T @ shown / len(shown) + RIDGE * np.eye(len(rows)), shown.T @ target / len(shown))
    with _random.forked(0):
        body = nn.Linear(white.shape[1], latents.shape[1]).requires_grad_(False)
    body.weight.copy_(torch.as_tensor(weight.T @ rows))
    body.bias.copy_(torch.as_tensor(latents.mean(0) - white.mean(0) @ rows.T @ weight))
    return Encoder(first, body, Reals())
