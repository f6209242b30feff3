"""The approach with a network: validation set, number of latents, initialisation, training and its evaluation."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pindown import _random, networks
from pindown.data import GeneratorSource
from pindown.data.labels import as_numbers
from pindown.methods.fitting import Trained, Training, training_batches
from pindown.methods.forget.adversarial import AdversarialObjective, Networks, Rebuild, is_memorised, orthonormal
from pindown.methods.forget.approach import (
    PROBE_NAMES,
    ForgetSummary,
    Learned,
    leak_doubts,
    nuisance_doubts,
    probe,
)
from pindown.methods.forget.images import spreads, worth_rebuilding
from pindown.methods.forget.linear_erasure import Directions, directions, moment_matched_projection, some_rows
from pindown.methods.forget.nuisance import NuisanceReader, NuisanceTable, assemble, read_columns, read_strata
from pindown.methods.inputs import TrainingInput
from pindown.methods.transport import MIN_SAMPLES, SlicedTransport
from pindown.metrics import Leakage, structure_kept
from pindown.metrics.arrays import Labels, Matrix
from pindown.networks import Frame, SkipMLP, built
from pindown.networks.encoder import Encoder, encode
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocessing
from pindown.simulate import Process
from pindown.training import TrainingLog

if TYPE_CHECKING:
    from pindown.methods.forget.estimator import Forget

# Smallest validation set for the probe, at most a quarter of the samples; and the largest
MIN_HELD_OUT, MAX_HELD_OUT = 200, 4_000
MIN_PROBED = 50  # size of the validation set below which probes are not informative, and no samples are held out
# Largest validation set for a linear encoder, which hardly overfits and needs samples for its directions
MAX_HELD_OUT_LINEAR = 500
MIN_SPREAD = 1e-3  # standard deviation of whitened data along a direction up to which the direction counts as constant
LABEL_P_VALUE = 0.01  # p-value up to which a probe shows that the given label can be predicted from held-out samples
# Weight of the decoder's error in directions in which means differ, so that latents represent the other directions
NUISANCE_WEIGHT = 0.01
DECODER_SAMPLES = 5_000  # approximate number of samples from which the decoder's linear path is initialised
TRANSPORT_SAMPLES = 100_000  # approximate number of samples that a transport is fitted to; all, if there are fewer
# Families of probes of images: boosted trees, too, since a flexible encoder may fool networks only
WITH_TREES = (*PROBE_NAMES, "boosting")


@dataclass(frozen=True, eq=False)
class HeldOutSamples:
    """Validation set: samples that are not used for training, and probed afterwards."""

    x: np.ndarray
    nuisance: NuisanceTable
    within: Labels | None  # the given label
    groups: Labels | None

    def probe(self, latents: Matrix, seed: int, *, images: bool = False) -> Leakage | None:
        """Measure how well probes predict the nuisance from latents; None if there are too few samples."""
        names = WITH_TREES if images else PROBE_NAMES
        return probe(latents, self.nuisance.groups, within=self.within, groups=self.groups, seed=seed, names=names)

    def latents(self, objective: AdversarialObjective) -> Matrix:
        """Encode by the averaged weights."""
        encoder = objective.averaged[0]
        assert isinstance(encoder, Encoder)
        return encode(encoder, *_on_device(objective, self.x)).cpu().numpy()

    def classifier_loss(self, objective: AdversarialObjective) -> float | None:
        """Return the loss of the adversarial classifier; None if there are no samples."""
        nuisance = self.nuisance
        if not len(self.x) or not nuisance.weights.any():
            return None
        x, *rest = _on_device(objective, self.x, nuisance.groups, nuisance.weights, nuisance.strata)
        return objective.classifier_loss(x, *rest)


def _on_device(objective: AdversarialObjective, *arrays: np.ndarray) -> Iterator[Tensor]:
    return (torch.as_tensor(array).to(objective.worth.device) for array in arrays)


@dataclass(frozen=True, eq=False)
class AdversarialSummary(ForgetSummary):
    """The nuisance, the initialisation, and held-out samples."""

    nuisance: NuisanceTable = field(kw_only=True)
    initial: Matrix = field(kw_only=True)  # initial linear latents of whitened data, (n_components, d)
    worth: Matrix = field(kw_only=True)  # weights of reconstruction errors, (d, d)
    linear: bool = field(kw_only=True)
    predicts_label: bool = field(kw_only=True)  # whether latents must predict the given label
    held_out: HeldOutSamples = field(kw_only=True)
    by_number: bool = field(kw_only=True)  # whether samples come with the indices of their levels
    transports: bool = field(kw_only=True)  # whether a transport of latents follows the training

    def targets(self, sides: Mapping[str, object]) -> tuple[object, ...]:
        """Return levels, weights, classes and what the decoder is shown."""
        read: Any = self.reader.read_numbers if self.by_number else self.reader.read
        found: tuple[object, ...] = read(sides["nuisance"], sides.get("given"))
        return found

    def objective(self, est: Forget, encoder: Encoder, batches: Iterator[tuple[Tensor, ...]]) -> AdversarialObjective:
        """Initialise an encoder and its linear path, and build the other networks."""
        nuisance, d = self.nuisance, self.n_components
        initial = torch.as_tensor(self.initial).float()
        if self.linear:
            encoder.body = Frame(initial)
        elif isinstance(encoder.body, SkipMLP) and isinstance(encoder.body.linear, nn.Linear):
            encoder.body.linear.weight.data.copy_(initial)
        n_strata = nuisance.n_strata if nuisance.n_strata > 1 else 0
        decoder = networks.linear if self.linear else est.decoder
        objective = AdversarialObjective(
            Networks(
                encoder,
                built("Forget", "classifier", est.classifier, d + n_strata, sum(nuisance.sizes)),
                built("Forget", "decoder", decoder, d + nuisance.shown.shape[1], encoder.n_features),
                networks.linear(d, n_strata) if self.predicts_label else None,
            ),
            nuisance,
            # The decoder sends linear latents no gradient, so the strength does not matter.
            strength=float(est.strength > 0) if self.linear else est.strength,
            worth=torch.as_tensor(self.worth, dtype=torch.float32),
            n_steps=est._n_steps * est.trainer.accumulate,
        )
        objective.start_decoder(batches, DECODER_SAMPLES)
        return objective

    def train(self, training: Training, seed: int) -> Trained:
        """Train, fit a transport to the latents of images, and measure what is left of the nuisance."""
        objective, held_out = training.new_objective(seed), self.held_out
        assert isinstance(objective, AdversarialObjective)
        log = self._minimised(objective, training, seed)
        transport = self._transport(objective, training, seed) if self.transports else None
        latents = held_out.latents(objective)
        latents = latents if transport is None else transport(latents, held_out.nuisance.level).cpu().numpy()
        found = held_out.probe(latents, seed, images=transport is not None)
        loss = held_out.classifier_loss(objective)
        history = objective.history(log.n_iter, training.est.trainer.accumulate, found, loss)
        encoder, decoder, components = _in_own_units(objective, self.n_components)
        structure = None
        if len(held_out.x):
            own = encode(encoder, torch.as_tensor(held_out.x))  # a linear encoder has units of its own
            own = own if transport is None else transport(own, held_out.nuisance.level)
            structure = structure_kept(held_out.x, own.cpu().numpy(), held_out.nuisance.level, random_state=0)
        remedy = "Try more steps (max_iter), or fewer latents."
        learned = Learned(
            encoder,
            history,
            structure,
            decoder,
            components,
            transport=transport,
            notes=(self.note,),
            doubts=history.doubts + leak_doubts(found, remedy),
        )
        return training.trained(objective, log, learned)

    def _minimised(self, objective: AdversarialObjective, training: Training, seed: int) -> TrainingLog:
        """Train; reset linear latents to their initialisation if the classifier has memorised its samples."""
        initial = copy.deepcopy(objective.averaged.state_dict()) if self.linear else None
        log = training.minimise(objective, seed)
        loss = self.held_out.classifier_loss(objective)
        if initial and is_memorised(objective.trace[:, 0].cpu().numpy(), loss, objective.chance_loss):
            objective.averaged.load_state_dict(initial)
            objective.went_back = True
        return log

    @torch.no_grad()
    def _transport(self, objective: AdversarialObjective, training: Training, seed: int) -> SlicedTransport:
        """Fit a transport that gives latents of all levels one distribution."""
        est, prepared = training.est, training.prepared
        peek = _random.generator(seed, prepared.device)
        batches = map(training_batches(est, prepared, prepared.inputs), count(), repeat(peek))
        wanted = TRANSPORT_SAMPLES if self.train_indices is None else min(TRANSPORT_SAMPLES, len(self.train_indices))
        latents: list[Tensor] = []
        levels: list[Tensor] = []
        while sum(map(len, latents)) < wanted:
            x, groups, *_ = next(batches)
            latents.append(objective.averaged[0](x).cpu().double())
            levels.append(groups[:, -1].cpu())
        generator = torch.Generator().manual_seed(seed % 2**63)
        n_levels = self.nuisance.n_levels
        found = SlicedTransport.fitted(torch.cat(latents), torch.cat(levels), generator, n_groups=n_levels)
        return found.to(objective.worth.device)


def adversarial_summary(est: Forget, inputs: TrainingInput, first: Preprocessing, seed: int) -> AdversarialSummary:
    """Choose a validation set and the number of latents, and initialise them; or raise."""
    data, linear, images = inputs.data, est._is_linear, is_image(first.shape_in)
    if inputs.source is not None and data.nuisance is None:
        raise ValueError(
            f"Forget needs a nuisance, but {type(inputs.source).__name__} has none. Pass a simulation such as "
            "Nuisance, or a source of (x, nuisance)."
        )
    columns, kinds = read_columns(data.nuisance, len(data), est.n_bins)
    nuisance = assemble(columns, kinds, strata := read_strata(data.given, len(data)))
    nuisance.refuse_identical()
    rng = np.random.default_rng(seed % 2**63)
    held, used = _divided(inputs, rng, est.trainer.validation_fraction, MAX_HELD_OUT_LINEAR if linear else MAX_HELD_OUT)
    rows = some_rows(used, first, rng)
    seen, matrix = nuisance.take(rows), first.linear_map.numpy()
    white = first(torch.as_tensor(np.asarray(data.X[rows]))).double().numpy()
    groupings, size = seen.groupings(), np.linalg.pinv(matrix)
    found = directions(white, groupings, spreads=linear, size=size, rng=np.random.default_rng(0))
    has_label = nuisance.n_strata > 1
    label_doubts = _label_doubts(white, seen, _of(data.groups, rows), seed) if has_label else ()
    predicts_label = has_label and not (label_doubts or linear)
    n_components, note, doubts = _counted(found, white, nuisance, est, predicts_label)
    initial = found.keep(n_components)
    # Matched rows beyond the invariant ones would be near zero, and the initial latents must predict the label.
    if not linear and (not predicts_label or n_components <= found.n_blind):
        initial = moment_matched_projection(white, groupings, initial, np.random.default_rng(0))
    worth = found.basis.T * np.where(
        np.arange(len(found.basis)) < len(found.basis) - found.n_blind, NUISANCE_WEIGHT**0.5, 1
    )
    worth = worth_rebuilding(white, spreads(first), seen.level) @ worth if images else worth
    within = None if data.given is None else strata[held]
    held_out = HeldOutSamples(data.X[held], nuisance.take(held), within, _of(data.groups, held))
    second = np.sort(np.bincount(nuisance.level))[-2]
    return AdversarialSummary(
        n_components,
        train_indices=used if inputs.source is None else None,
        warnings=nuisance_doubts(nuisance, "they are not used for training, and their leakage is unknown.")
        + label_doubts
        + doubts,
        n_nuisance_directions=(found.n_means, found.n_spreads),
        reader=NuisanceReader.of(nuisance, kinds, data.given),
        nuisance=nuisance,
        initial=initial,
        worth=worth,
        linear=linear,
        predicts_label=predicts_label,
        held_out=held_out,
        by_number=isinstance(inputs.source, Process),
        # Not with a given label, whose classes would need transports of their own.
        transports=est.encoder is None and images and not has_label and len(held) > 0 and int(second) >= MIN_SAMPLES,
        note=note,
    )


def _of(groups: Labels | None, rows: Labels) -> Labels | None:
    return None if groups is None else groups[rows]


def _divided(inputs: TrainingInput, rng: np.random.Generator, fraction: float, most: int) -> tuple[Labels, Labels]:
    """Return the indices of held-out samples and, sorted, of training samples."""
    n, groups = len(inputs.data), inputs.data.groups
    if inputs.source is not None:  # a simulation draws new samples for training; a stream repeats its first ones
        fraction = float(isinstance(inputs.source, GeneratorSource)) / 2
    n_held = min(int(fraction * n), most)
    n_held = max(n_held, min(MIN_HELD_OUT, n // 4)) if fraction else 0
    n_held = n_held if n_held >= MIN_PROBED else 0
    number = np.arange(n) if groups is None else as_numbers(groups)
    place = np.argsort(rng.permutation(number.max() + 1))[number]  # whole groups in random order
    order = np.argsort(place, kind="stable")
    n_held = int(np.searchsorted(place[order], place[order[n_held]]))
    return order[:n_held], np.sort(order[n_held:])


def _label_doubts(white: Matrix, nuisance: NuisanceTable, groups: Labels | None, seed: int) -> tuple[str, ...]:
    """Return a sentence if probes do not predict the given label from the data, within levels."""
    shown = probe(white, nuisance.strata, within=nuisance.level, groups=groups, seed=seed)
    if shown is None or shown.p_value <= LABEL_P_VALUE:
        return ()
    score = f"the best probe scores {shown.worst:.2f} (chance {shown.chance:.2f}, p = {shown.p_value:.2g})"
    return (
        f"held-out samples do not show the given label: {score}. So latents are not trained to predict it, and no "
        "claim about it is supported. Check given, or leave it out.",
    )


def _counted(
    found: Directions, white: Matrix, nuisance: NuisanceTable, est: Forget, predicts_label: bool
) -> tuple[int, str, tuple[str, ...]]:
    """Return the number of latents, why it was chosen, and what is wrong with it."""
    rest = white @ found.basis[found.n_means + found.n_spreads :].T
    rest -= rest.mean(0)
    blind = int(np.linalg.matrix_rank(rest.T @ rest / len(rest), tol=MIN_SPREAD**2, hermitian=True))
    d = blind + found.n_means + found.n_spreads
    differing = f"{found.n_means} of {d} directions means differ between levels"
    differing += f", and in {found.n_spreads} more covariances" if est._is_linear else ""
    if est.n_components is not None:
        more = f"n_components={est.n_components} is more than the {blind} invariant directions of the data: in"
        doubt = f"{more} {differing}. No theorem covers the others. Decrease n_components, or leave it out."
        return est.n_components, "", (doubt,) if est.n_components > blind else ()
    # A linear probe separates k labels with k − 1 latents; these can be invariant even if no direction is.
    n_labels = int(nuisance.label_weights().any(0).sum()) if predicts_label else 1
    n = max(1, blind, min(d, n_labels - 1))
    if n <= blind:
        return n, f"{n} latents, since in {differing}.", ()
    few = f"only {blind} direction(s) do not show" if blind else "every direction shows"
    least = f"{n} latent(s) are kept, those that differ least, and no theorem covers their invariance"
    return n, "", (f"{few} the nuisance: in {differing}. {least}. Merge levels of y, or pass n_components.",)


def _in_own_units(objective: AdversarialObjective, d: int) -> tuple[Encoder, Rebuild, Matrix | None]:
    """Return the averaged encoder, the map back to observations, and the orthonormal rows of a linear encoder."""
    encoder, decoder = (copy.deepcopy(network) for network in objective.averaged)
    assert isinstance(encoder, Encoder)
    first, components, back = encoder.preprocess, None, torch.eye(d)
    if objective.is_linear:
        encoder, back = orthonormal(encoder)
        rows = next(encoder.body.parameters()) / encoder.preprocess.rescaling.scale
        components = rows.cpu().numpy().astype(np.float64)
    device = first.mean.device
    return encoder.eval(), Rebuild(back, decoder, first).to(device).double().eval(), components
