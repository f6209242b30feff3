"""Adversarial training: a classifier predicts the nuisance from latents, the encoder hides it, a decoder rebuilds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from pindown.losses import energy_distance, reverse_gradient
from pindown.methods.forget.nuisance import NuisanceTable
from pindown.metrics import Leakage
from pindown.networks import Frame, SkipMLP
from pindown.networks.encoder import Encoder
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocessing

# Fraction of the steps, at the end, over which weights are averaged: adversaries oscillate around an equilibrium
AVERAGED_FRACTION = 0.25
# Weight of the energy distance between levels, in nats of the classifier's loss; and for images, whose encoder is
# more flexible. An encoder can fool every network it is trained against while nearest neighbours, or trees, still
# predict the level.
ENERGY_WEIGHT, IMAGE_ENERGY_WEIGHT = 2.0, 10.0
ENERGY_SAMPLES = 1_024  # samples of a batch that are compared pairwise: memory grows with their square
# Number of last steps whose loss is averaged; and the largest gap of held-out to training loss, in units of chance
LAST, MEMORISED = 25, 0.5
IMPOSSIBLE_SCORE = -1e4  # score of a label that does not occur with a sample's level of the nuisance
COVARIANCE_WEIGHT = 0.1  # weight of the squared distance between the covariance of the latents and the identity


@dataclass(frozen=True, eq=False)
class History:
    """The losses of each training step, and the leakage that probes find afterwards.

    Attributes
    ----------
    classifier_loss, classifier_accuracy : ndarray of shape (n_iter,)
        Of the adversarial classifier, with equal weights for all levels of the nuisance.
    chance_loss : float
        Loss of a classifier at chance. Reaching it proves no invariance: the classifier may be too weak, or lag
        behind.
    reconstruction : ndarray of shape (n_iter,)
        Mean squared error of the decoder, in whitened units.
    probe : Leakage or None
        Leakage by probes that are trained from scratch on held-out samples. None if there were too few.
    held_out_loss : float or None
        Final loss of the adversarial classifier on held-out samples. None without them, or without training.
    went_back : bool
        Whether latents were reset to their initialisation, since the classifier memorised its samples.
    """

    classifier_loss: np.ndarray
    classifier_accuracy: np.ndarray
    chance_loss: float
    reconstruction: np.ndarray
    probe: Leakage | None
    held_out_loss: float | None = None
    went_back: bool = False

    @property
    def doubts(self) -> tuple[str, ...]:
        """A reason to doubt the latents, if the classifier has memorised its samples."""
        if not is_memorised(self.classifier_loss, self.held_out_loss, self.chance_loss):
            return ()
        hidden = "latents hide differences that other samples do not have"
        consequence = "latents stay at their initialisation" if self.went_back else hidden
        return (
            f"the classifier has memorised its training samples: its loss there is "
            f"{self.classifier_loss[-LAST:].mean():.3f}, {self.held_out_loss:.3f} on held-out samples, and "
            f"{self.chance_loss:.3f} at chance. So {consequence}. Pass more samples, fewer latents, or a smaller "
            "classifier.",
        )


def is_memorised(loss: np.ndarray, held_out: float | None, chance: float) -> bool:
    """Return whether the held-out loss of a classifier is much larger than its training loss."""
    return held_out is not None and held_out - float(loss[-LAST:].mean()) > MEMORISED * chance


class Networks(NamedTuple):
    """The networks of adversarial training; ``label_reader`` predicts a given label, if there is one to keep."""

    encoder: Encoder
    classifier: nn.Module
    decoder: nn.Module
    label_reader: nn.Module | None = None


class AdversarialObjective(nn.Module):
    r"""The adversarial loss of a batch: the encoder receives the classifier's gradient reversed.

    .. math:: \min_D L_D, \qquad \min_g L_g, \qquad \min_h L_h, \qquad
              \min_f\; L_g + \lambda\,(L_h + c\,\mathcal E - L_D)

    with :math:`L_D` the cross-entropy of classifier D, :math:`\mathcal E` the energy distance between levels, which is
    0 where :math:`L_D` is largest, and :math:`L_g` the squared error of decoder g, which is given the nuisance as
    well as the latents; ``worth`` (d, d) weights errors of the whitened data. If there is a given label, :math:`L_h` is
    the cross-entropy of ``label_reader`` h, which predicts it from the latents, with samples weighted by
    ``label_weights`` (levels, n_strata). A linear encoder has orthonormal rows, which keep its latents apart: its
    decoder sends it no gradient, and there is neither energy nor a prediction of the label.
    """

    chance_loss: float
    energy_weight: float
    first_averaged: int
    label_reader: nn.Module | None
    label_weights: Tensor  # (levels, n_strata)
    n_strata: int
    now: Tensor
    sizes: list[int]
    trace: Tensor
    went_back: bool
    worth: Tensor

    def __init__(
        self, networks: Networks, nuisance: NuisanceTable, *, strength: float, worth: Tensor, n_steps: int
    ) -> None:
        super().__init__()
        self.encoder, self.classifier, self.decoder, self.label_reader = networks
        self.sizes, self.n_strata, self.strength = list(nuisance.sizes), nuisance.n_strata, strength
        images = is_image(networks.encoder.preprocess.shape_in)
        self.energy_weight = IMAGE_ENERGY_WEIGHT if images else ENERGY_WEIGHT
        self.went_back, self.chance_loss = False, nuisance.chance_loss()
        self.averaged = nn.ModuleList(map(copy.deepcopy, networks[::2])).requires_grad_(False)  # encoder and decoder
        self.first_averaged = int((1 - AVERAGED_FRACTION) * n_steps)
        self.register_buffer("worth", worth.contiguous())
        self.register_buffer("label_weights", torch.as_tensor(nuisance.label_weights()))
        self.register_buffer("now", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("trace", torch.zeros(n_steps, 3))

    @property
    def is_linear(self) -> bool:
        """Whether the encoder is a frame of orthonormal rows."""
        return isinstance(self.encoder.body, Frame)

    def forward(self, x: Tensor, groups: Tensor, weights: Tensor, strata: Tensor, shown: Tensor) -> Tensor:
        """Return the loss of samples, given the levels of their nuisance, weights, strata and inputs of the decoder."""
        white = self.encoder.preprocess(x)
        z = self.encoder.space(self.encoder.body(white))  # (n, d)
        # Standardised: otherwise the encoder would fool the classifier by shrinking its latents.
        standard = _standard(z)
        read, accuracy = self.read(reverse_gradient(standard, self.strength), groups, weights, strata)
        kept = z.detach() if self.is_linear else z
        missed = self.decoder(torch.cat([kept, shown.to(z)], 1)) - white
        rebuilt = (missed @ self.worth).square().mean()
        if self.training:
            self._remember(torch.stack([read, accuracy, missed.square().mean()]).detach())
        loss = read + rebuilt + COVARIANCE_WEIGHT * _covariance_error(kept)
        if self.is_linear:
            return loss
        energy = self.energy(standard, groups, weights, strata)
        return loss + self.strength * (self.label_loss(standard, groups, strata) + self.energy_weight * energy)

    def read(self, z: Tensor, groups: Tensor, weights: Tensor, strata: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy and the accuracy of the classifier, both balanced, averaged over its heads."""
        conditions = [one_hot(strata, self.n_strata).to(z)] if self.n_strata > 1 else []
        scores = self.classifier(torch.cat([z, *conditions], 1)).split(self.sizes, 1)
        losses, right = [], []
        for score, group, weight in zip(scores, groups.T, weights.T, strict=True):
            losses.append((weight * cross_entropy(score, group, reduction="none")).mean())
            right.append((weight * (score.argmax(1) == group)).mean())
        return torch.stack(losses).mean(), torch.stack(right).mean()

    def energy(self, z: Tensor, groups: Tensor, weights: Tensor, strata: Tensor) -> Tensor:
        """Return the energy distance between levels, averaged over the classifier's heads."""
        z, groups, weights, strata = (part[:ENERGY_SAMPLES] for part in (z, groups, weights, strata))
        within = strata if self.n_strata > 1 else None
        heads = zip(groups.T, weights.T, strict=True)
        return torch.stack([energy_distance(z, group, weights=weight, within=within) for group, weight in heads]).mean()

    def label_loss(self, z: Tensor, groups: Tensor, strata: Tensor) -> Tensor:
        """Return the cross-entropy of the given label, predicted from standardised latents; 0 if there is none."""
        if self.label_reader is None:
            return z.new_zeros(())
        weights = self.label_weights[groups[:, -1]]  # (n, n_strata)
        # Only labels that occur with the sample's level compete, so that the level does not help to predict the label.
        scores = self.label_reader(z).masked_fill(weights == 0, IMPOSSIBLE_SCORE)
        weight = weights.gather(1, strata[:, None])[:, 0]
        return (weight * cross_entropy(scores, strata, reduction="none")).mean()

    @torch.no_grad()
    def classifier_loss(self, x: Tensor, groups: Tensor, weights: Tensor, strata: Tensor) -> float:
        """Return the loss of the classifier on any samples."""
        standard = _standard(self.encoder(x))
        return (self.read(standard, groups, weights, strata)[0] / weights.mean().clamp_min(1e-9)).item()

    def history(self, n_iter: int, accumulate: int, probe: Leakage | None, held_out_loss: float | None) -> History:
        """Return the history of ``n_iter`` steps, each of ``accumulate`` batches."""
        trace = self.trace.unflatten(0, (-1, accumulate)).mean(1)[:n_iter]
        loss, accuracy, rebuilt = trace.double().cpu().numpy().T
        return History(loss, accuracy, self.chance_loss, rebuilt, probe, held_out_loss, self.went_back)

    @torch.no_grad()
    def start_decoder(self, batches: Iterator[tuple[Tensor, ...]], n_samples: int) -> None:
        """Initialise the decoder's linear part, if it has one, by least squares of about ``n_samples`` samples."""
        linear = self.decoder.linear if isinstance(self.decoder, SkipMLP) else self.decoder
        if not isinstance(linear, nn.Linear):
            return
        inputs, white = [], []
        while n_samples > 0:
            x, _, _, _, shown = (t.cpu() for t in next(batches))
            inputs.append(torch.cat([self.encoder(x), shown, torch.ones(len(x), 1)], 1).double())
            white.append(self.encoder.preprocess(x).double())
            n_samples -= len(x)
        gram = torch.cat(inputs).mT @ torch.cat(inputs)
        # One-hot columns add up to the constant: a small ridge makes the solution unique.
        gram += 1e-6 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
        map_back = torch.linalg.solve(gram, torch.cat(inputs).mT @ torch.cat(white)).mT.float()
        linear.weight.copy_(map_back[:, :-1])
        if linear.bias is not None:
            linear.bias.copy_(map_back[:, -1])
        self.averaged[1].load_state_dict(self.decoder.state_dict())

    @torch.no_grad()
    def _remember(self, row: Tensor) -> None:
        self.trace.index_copy_(0, self.now, row[None].float())
        fraction = 1 / (self.now - self.first_averaged + 1).clamp_min(1).float()  # 1 until averaging starts
        for mean, network in zip(self.averaged, (self.encoder, self.decoder), strict=True):
            for kept, weight in zip(mean.parameters(), network.parameters(), strict=True):
                kept.lerp_(weight, fraction)
            for same, buffer in zip(mean.buffers(), network.buffers(), strict=True):
                same.copy_(buffer)
        self.now.add_(1)


def _standard(z: Tensor) -> Tensor:
    return (z - z.mean(0)) / (z.std(0, correction=0) + 1e-6)


def _covariance_error(z: Tensor) -> Tensor:
    """Return the squared distance of the covariance from the identity, per latent: it prevents dead latents."""
    centred = z - z.mean(0)
    covariance = centred.mT @ centred / len(z)
    return (covariance - torch.eye(z.shape[1], dtype=z.dtype, device=z.device)).square().sum(1).mean()


class Rebuild(nn.Module):
    """Map latents and nuisance to observations: decode, and undo the preprocessing."""

    back: Tensor
    coloured: Tensor
    mean: Tensor

    def __init__(self, back: Tensor, decoder: nn.Module, first: Preprocessing) -> None:
        super().__init__()
        self.decoder = decoder
        self.register_buffer("back", back.contiguous())
        # The inverse of the preprocessing without its mean: (inputs of the network, n_features).
        coloured = torch.linalg.pinv(first.linear_map) * first.rescaling.scale
        self.register_buffer("coloured", coloured.contiguous())
        self.register_buffer("mean", first.mean)

    def forward(self, z: Tensor, shown: Tensor) -> Tensor:
        """Rebuild samples from latents (n, d), given their nuisance; (n, n_features)."""
        return self.decoder(torch.cat([z @ self.back, shown], 1)) @ self.coloured + self.mean


def orthonormal(encoder: Encoder) -> tuple[Encoder, Tensor]:
    """Return a linear encoder of features in their own units with orthonormal rows, and the map B Wᵀ = R M back."""
    body, first = encoder.body, encoder.preprocess
    assert isinstance(body, Frame)
    with torch.no_grad():
        rows = body.double().rows() @ first.linear_map.mT  # (k, d)
        frame = torch.linalg.qr(rows.mT).Q.mT
        linear = nn.utils.skip_init(nn.Linear, rows.shape[1], rows.shape[0], bias=False, device=rows.device)
        linear.requires_grad_(False)
        linear.weight.copy_(frame)
    return Encoder(first.rescaling, linear, encoder.space), frame @ rows.mT
