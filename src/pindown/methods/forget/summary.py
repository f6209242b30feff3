"""Summarise data before `Forget` is trained: the nuisance, batch-specific maps or the initialisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import nn

from pindown import networks
from pindown.data import GeneratorSource
from pindown.data.labels import as_numbers, combined
from pindown.data.splits import assign_folds
from pindown.methods.forget.adversarial import AdversarialObjective
from pindown.methods.forget.batch_maps import BatchMaps, fit_batch_maps, refit_batch_maps
from pindown.methods.forget.images import worth_rebuilding
from pindown.methods.forget.linear_erasure import Directions, directions, moment_matched_projection
from pindown.methods.forget.nuisance import NuisanceReader, NuisanceTable, assemble, read_columns, read_strata
from pindown.methods.forget.selection import QUICK_PROBES, HeldOutSamples, probe_label, probe_nuisance
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.methods.transport import MIN_SAMPLES
from pindown.metrics import Leakage, StructureKept, structure_kept
from pindown.metrics.dependence import Grouping
from pindown.networks import Frame, SkipMLP, built
from pindown.networks.encoder import Encoder
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocessing
from pindown.networks.spaces import Reals
from pindown.simulate import Process

CLOSED_FORM_SAMPLES, CLOSED_FORM_VALUES = 50_000, 20_000_000
"""Largest number of samples for means and covariances; and, for wide data, of values (samples × features)."""

MIN_HELD_OUT, MAX_HELD_OUT = 200, 4_000
"""Smallest validation set for the probe, at most a quarter of the samples; and the largest."""

MIN_PROBED = 50
"""Size of the validation set below which probes are not informative, and no samples are held out."""

MAX_HELD_OUT_LINEAR = 500
"""Largest validation set for a linear encoder, which hardly overfits and needs samples for its directions."""

MIN_SPREAD = 1e-3
"""Standard deviation of whitened data along a direction up to which the direction counts as constant."""

LABEL_P_VALUE = 0.01
"""p-value up to which a probe shows that the given label can be predicted from held-out samples."""

RIDGE = 1e-3
"""Ridge penalty of the map for samples of unknown level, relative to a direction of unit variance."""

NUISANCE_WEIGHT = 0.01
"""Weight of the decoder's error in directions in which means differ, so that latents represent the other directions.

With equal weights latents also hold how a sample deviates, along these directions, from the mean of its level, and
leave less capacity for variation that does not depend on the nuisance."""

N_FOLDS = 3
"""Folds by which the leakage of batch-specific maps is measured."""

MIN_PER_LEVEL = 10
"""Samples per level below which the fit warns that there are many small batches."""


@dataclass(frozen=True)
class Request:
    """The parameters of an estimator that the data summary depends on."""

    n_components: int | None
    n_bins: int | None
    validation_fraction: float
    closed_form: bool  # whether batch-specific maps are fitted, and nothing is trained
    linear: bool  # whether the encoder is linear
    spreads: np.ndarray | None = None  # standard deviations of images along whitened directions; None: equal


@dataclass(frozen=True, eq=False)
class BatchMapFit:
    """Batch-specific maps, the map for samples of unknown batch, leakage and structure of held-out samples."""

    maps: BatchMaps
    unknown: Encoder
    leak: Leakage | None
    structure: StructureKept


class Initialisation(NamedTuple):
    """The nuisance, the directions of whitened data that depend on it, the initial linear encoder, the whitening."""

    nuisance: NuisanceTable
    found: Directions
    rows: np.ndarray  # (n_components, d)
    matrix: np.ndarray  # (n_features, d)
    predicts_label: bool  # whether latents must predict the given label
    weights: np.ndarray | float = 1.0  # weight of each direction in the reconstruction; or a matrix (d, d)

    def objective(
        self,
        encoder: Encoder,
        classifier: Callable[[int, int], nn.Module],
        decoder: Callable[[int, int], nn.Module],
        *,
        linear: bool,
        strength: float,
        max_iter: int,
    ) -> AdversarialObjective:
        """Initialise an encoder, and build the classifier and the decoder."""
        nuisance, n_components = self.nuisance, len(self.rows)
        n_strata = nuisance.n_strata if nuisance.n_strata > 1 else 0
        n_shown = n_components + nuisance.shown.shape[1]
        weight = self.weights if np.ndim(self.weights) == 2 else self.weights * np.eye(len(self.found.basis))
        worth = weight @ self._initialise(encoder, linear)
        return AdversarialObjective(
            encoder,
            built("Forget", "classifier", classifier, n_components + n_strata, sum(nuisance.sizes)),
            built("Forget", "decoder", networks.linear if linear else decoder, n_shown, encoder.n_features),
            sizes=nuisance.sizes,
            n_strata=nuisance.n_strata,
            # The decoder sends linear latents no gradient, so the strength does not matter.
            strength=float(strength > 0) if linear else strength,
            worth=torch.as_tensor(worth, dtype=torch.float32),
            label_reader=networks.linear(n_components, n_strata) if self.predicts_label else None,
            label_weights=torch.as_tensor(nuisance.label_weights()),
            max_iter=max_iter,
            images=is_image(encoder.preprocess.shape_in),
        )

    def _initialise(self, encoder: Encoder, linear: bool) -> np.ndarray:
        """Initialise the encoder's linear part, if it has one; return the weights of reconstruction errors, (d, d)."""
        change = np.linalg.pinv(encoder.preprocess.linear_map.numpy()) @ self.matrix
        found = self.found.as_seen_after(change)
        start = torch.as_tensor(found.keep(len(self.rows)) if linear else self.rows @ change.T).float()
        if linear:
            encoder.body = Frame(start)
        elif isinstance(encoder.body, SkipMLP) and isinstance(encoder.body.linear, nn.Linear):
            encoder.body.linear.weight.data.copy_(start)
        worth = np.ones(len(found.basis))
        worth[: len(found.basis) - found.n_blind] = NUISANCE_WEIGHT**0.5
        return found.basis.T * worth


@dataclass(frozen=True, eq=False)
class NuisanceSummary(DataSummary):
    """Data summary of `Forget`: directions that depend on the nuisance, the initialisation, held-out samples.

    With ``maps`` nothing is trained.
    """

    n_nuisance_directions: tuple[int, int] = field(kw_only=True)
    note: str = field(kw_only=True)
    reader: NuisanceReader = field(kw_only=True)
    by_number: bool = field(kw_only=True)  # whether samples come with the indices of their levels
    initialisation: Initialisation = field(kw_only=True)
    held_out: HeldOutSamples = field(kw_only=True)
    maps: BatchMapFit | None = field(default=None, kw_only=True)
    transports: bool = field(default=False, kw_only=True)  # whether a transport follows the training

    @property
    def can_transport(self) -> bool:
        """Whether a transport of the latents can be fitted and tested: not with a given label."""
        nuisance = self.initialisation.nuisance
        second = np.sort(np.bincount(nuisance.groups[:, -1]))[-2]
        return nuisance.n_strata == 1 and self.held_out.n_samples > 0 and int(second) >= MIN_SAMPLES


def summarize(inputs: TrainingInput, first: Preprocessing, seed: int, request: Request) -> NuisanceSummary:
    """Summarise data before the first step, or raise."""
    data = inputs.data
    if inputs.source is not None and data.nuisance is None:
        raise ValueError(
            f"Forget needs a nuisance, but {type(inputs.source).__name__} has none. Pass a simulation such as "
            "Nuisance, or a source of (x, nuisance)."
        )
    columns, kinds = read_columns(data.nuisance, len(data), request.n_bins)
    strata = read_strata(data.given, len(data), may_miss=request.closed_form)
    nuisance = assemble(columns, kinds, np.where(strata < 0, strata.max() + 1, strata))
    nuisance.refuse_identical()
    rng = np.random.default_rng(seed % 2**63)
    held, used = (np.arange(0), np.arange(len(data))) if request.closed_form else _divided(inputs, rng, request)
    most = min(CLOSED_FORM_SAMPLES, max(2_000, CLOSED_FORM_VALUES // math.prod(first.shape_in)))
    rows = used[rng.permutation(len(used))[:most]]
    x = np.asarray(data.X[rows])
    white = first(torch.as_tensor(x)).double().numpy()
    groupings, seen = nuisance.take(rows).groupings(), nuisance.take(rows)
    matrix = first.linear_map.numpy()
    found = directions(
        white, groupings, spreads=request.linear, size=np.linalg.pinv(matrix), rng=np.random.default_rng(0)
    )
    is_given, groups = data.given is not None, data.groups
    predictable: tuple[str, ...] = ()
    if nuisance.n_strata > 1 and not request.closed_form:
        predictable = _of_label(probe_label(white, seen, None if groups is None else groups[rows], seed))
    doubts = _of_rare(nuisance, closed_form=request.closed_form) + _of_blocks(nuisance) + predictable
    predicts_label = nuisance.n_strata > 1 and not (predictable or request.linear)
    weights = 1.0 if request.spreads is None else worth_rebuilding(white, request.spreads, seen.groups[:, -1])
    summary = NuisanceSummary(
        1,
        train_indices=used if inputs.source is None else None,
        warnings=doubts,
        n_nuisance_directions=(found.n_means, found.n_spreads),
        note="",
        reader=NuisanceReader.of(nuisance, kinds, data.given, strata),
        by_number=isinstance(inputs.source, Process),
        initialisation=Initialisation(nuisance, found, found.basis[:1], matrix, predicts_label, weights),
        held_out=HeldOutSamples(data.X[held], nuisance.take(held), is_given, None if groups is None else groups[held]),
    )
    if request.closed_form:
        known = strata[rows] if is_given and (strata >= 0).any() else None
        x, seen_groups = x.astype(np.float64), None if groups is None else groups[rows]
        maps, leak, kept = _cross_fitted(x, seen, known, seen_groups, request.n_components, seed)
        fixed = fixed_map(first, white, maps.encode(x, seen.groups[:, -1]), found)
        fit = BatchMapFit(maps, fixed, leak, kept)
        return replace(summary, n_components=fit.maps.n_components, maps=fit, warnings=doubts + _of_maps(fit, nuisance))
    return _with_start(summary, white, groupings, request, predicts_label)


def _cross_fitted(
    x: np.ndarray,
    nuisance: NuisanceTable,
    labels: np.ndarray | None,
    groups: np.ndarray | None,
    n_components: int | None,
    seed: int,
) -> tuple[BatchMaps, Leakage | None, StructureKept]:
    """Fit batch-specific maps, and test each third of the samples with maps that were estimated from the others.

    Leakage is measured within known classes or clusters, since their proportions may differ between batches.
    """
    batch, n_batches = nuisance.groups[:, -1], nuisance.sizes[-1]
    maps = fit_batch_maps(x, batch, n_batches, n_components=n_components, labels=labels, random_state=seed % 2**32)
    rng = np.random.default_rng(seed % 2**63)
    if groups is None:
        fold = assign_folds(np.arange(len(x)), N_FOLDS, rng, combined(nuisance.strata, batch))
    else:
        fold = assign_folds(as_numbers(groups), N_FOLDS, rng)
    latents = np.zeros((len(x), maps.n_components))
    for part in range(fold.max() + 1):
        rest, held = fold != part, fold == part
        other = refit_batch_maps(maps, x[rest], batch[rest], labels=None if labels is None else labels[rest])
        latents[held] = other.encode(x[held], batch[held])
    if (
        labels is None and maps.mixture is not None
    ):  # proportions of clusters may differ; samples within a cluster may not
        nuisance = replace(nuisance, strata=maps.clusters(x, batch))
    within = labels is not None or maps.mixture is not None
    leak = probe_nuisance(latents, nuisance, is_given=within, groups=groups, seed=seed, names=QUICK_PROBES)
    kept = structure_kept(x, latents, batch, random_state=seed % 2**32)
    return maps, leak, kept


def _of_maps(fit: BatchMapFit, nuisance: NuisanceTable) -> tuple[str, ...]:
    messages: tuple[str, ...] = ()
    if fit.structure.n_samples and fit.structure.is_empty:
        messages += (
            f"next to nothing of the data is left: {fit.structure}. Increase n_components, or check "
            "whether X varies within levels of the nuisance.",
        )
    sizes = np.bincount(nuisance.groups[:, -1])
    if len(sizes) > MIN_PER_LEVEL and np.median(sizes) < MIN_PER_LEVEL:
        messages += (
            f"y has {len(sizes)} levels with {np.median(sizes):.0f} samples each (median): too few to estimate the "
            "effect of each. Is y the batch, or does it name samples? Merge levels, or pass another column.",
        )
    return messages


def _divided(inputs: TrainingInput, rng: np.random.Generator, request: Request) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of held-out samples and, sorted, of training samples."""
    n, groups = len(inputs.data), inputs.data.groups
    order = rng.permutation(n)
    # A simulation draws new samples for training; a stream repeats its first ones.
    fraction = (
        request.validation_fraction if inputs.source is None else float(isinstance(inputs.source, GeneratorSource)) / 2
    )
    n_held = min(int(fraction * n), MAX_HELD_OUT_LINEAR if request.linear else MAX_HELD_OUT)
    n_held = max(n_held, min(MIN_HELD_OUT, n // 4)) if fraction else 0
    n_held = n_held if n_held >= MIN_PROBED else 0
    if groups is not None:  # whole groups, in the order in which one of their samples comes first
        number = np.unique(groups, return_inverse=True)[1].reshape(-1)
        place = np.full(number.max() + 1, n)
        np.minimum.at(place, number[order], np.arange(n))
        order = order[np.argsort(place[number[order]], kind="stable")]
        n_held = int(np.searchsorted(place[number[order]], place[number[order]][n_held], side="left")) if n_held else 0
    held, used = np.split(order, [n_held])
    return held, np.sort(used)


def _of_rare(nuisance: NuisanceTable, *, closed_form: bool) -> tuple[str, ...]:
    if not (n_rare := nuisance.n_rare):
        return ()
    if closed_form:
        return (
            f"{n_rare} samples belong to levels of y that are rare, or that occur alone with their given label: the "
            "effects of these levels are estimated from few samples, and shrunk towards zero. Merge rare levels.",
        )
    return (
        f"{n_rare} samples belong to levels of y that are too rare, or that occur alone with their given label: they "
        "are not used for training, and their leakage is unknown. Merge rare levels.",
    )


def _of_blocks(nuisance: NuisanceTable) -> tuple[str, ...]:
    """Return a warning if labels and levels form blocks, between which their effects cannot be separated."""
    joint = np.zeros((nuisance.n_strata, nuisance.sizes[-1]), dtype=bool)
    joint[nuisance.strata, nuisance.groups[:, -1]] = True
    n_blocks = connected_components(joint @ joint.T)[0]  # of labels that share a level
    if n_blocks == 1:
        return ()
    return (
        f"given and y fall into {n_blocks} blocks without a common level: between blocks, the effects of "
        "the label and of the nuisance cannot be separated. Collect samples that cross them.",
    )


def _of_label(shown: Any) -> tuple[str, ...]:
    if shown is None or shown.p_value <= LABEL_P_VALUE:
        return ()
    return (
        f"held-out samples do not show the given label: the best probe of {shown.n_used} samples scores "
        f"{shown.worst:.2f} (chance {shown.chance:.2f}, p = {shown.p_value:.2g}). So latents are not trained to "
        "predict it, and no claim about it is supported. Check given, or leave it out.",
    )


def fixed_map(first: Preprocessing, white: np.ndarray, latents: np.ndarray, found: Directions) -> Encoder:
    """Return the linear map for samples of unknown batch: ridge regression of latents without differences of means."""
    rows = found.basis[found.n_means :] if found.n_blind else found.basis
    shown = white @ rows.T
    shown, target = shown - shown.mean(0), latents - latents.mean(0)
    weight = np.linalg.solve(shown.T @ shown / len(shown) + RIDGE * np.eye(len(rows)), shown.T @ target / len(shown))
    body = nn.utils.skip_init(nn.Linear, white.shape[1], latents.shape[1]).requires_grad_(False)
    body.weight.copy_(torch.as_tensor(weight.T @ rows))
    body.bias.copy_(torch.as_tensor(latents.mean(0) - white.mean(0) @ rows.T @ weight))
    return Encoder(first, body, Reals())


def _with_start(
    summary: NuisanceSummary, white: np.ndarray, groupings: list[Grouping], request: Request, predicts_label: bool
) -> NuisanceSummary:
    """Choose the number of latents of one map for all levels, and initialise the encoder."""
    start = summary.initialisation
    n_components, note, doubts = _counted(start.found, white, start.nuisance, request, predicts_label)
    rows = start.found.keep(n_components)
    # Matched rows beyond the invariant ones would be near zero, and the initial latents must predict the label.
    if not request.linear and (not predicts_label or n_components <= start.found.n_blind):
        rows = moment_matched_projection(white, groupings, rows, np.random.default_rng(0))
    start = start._replace(rows=rows)
    summary = replace(summary, n_components=n_components, note=note, initialisation=start)
    return replace(summary, warnings=(*summary.warnings, *doubts))


def _counted(
    found: Directions, white: np.ndarray, nuisance: NuisanceTable, request: Request, predicts_label: bool
) -> tuple[int, str, tuple[str, ...]]:
    """Return the number of latents, why it was chosen, and what is wrong with it."""
    rest = white @ found.basis[found.n_means + found.n_spreads :].T
    rest -= rest.mean(0)
    blind = int(np.linalg.matrix_rank(rest.T @ rest / len(rest), tol=MIN_SPREAD**2, hermitian=True))
    d = blind + found.n_means + found.n_spreads
    differing = f"{found.n_means} of {d} directions means differ between levels"
    if request.linear:
        differing += f", and in {found.n_spreads} more covariances"
    if request.n_components is not None:
        n = request.n_components
        if n <= blind:
            return n, "", ()
        doubt = (
            f"n_components={n} is more than the {blind} invariant directions of the data: in {differing}. Linear "
            "latents beyond these leak, and no theorem covers others. Decrease n_components, or leave it out."
        )
        return n, "", (doubt,)
    # A linear probe separates k labels with k − 1 latents; these can be invariant even if no direction is.
    n_labels = int(nuisance.label_weights().any(0).sum()) if predicts_label else 1
    n = max(1, blind, min(d, n_labels - 1))
    if n <= blind:
        return n, f"{n} latents, since in {differing}.", ()
    few = f"only {blind} direction(s) do not show" if blind else "every direction shows"
    doubt = (
        f"{few} the nuisance: in {differing}. {n} latent(s) are kept, those that differ least, and no theorem covers "
        "their invariance. Merge levels of y, or pass n_components."
    )
    return n, "", (doubt,)
