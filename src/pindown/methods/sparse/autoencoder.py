"""The autoencoder that `Sparse` and `SparsePair` train: a linear encoder, a gate, atoms of unit length, and revival."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the usual name)

from pindown.networks.encoder import Encoder, is_cheap
from pindown.networks.gates import Gate, GateModule, TopK, chosen, combined
from pindown.networks.images import FIRST_ROUND
from pindown.training import optimizers

MAX_REVIVED = 64  # features that are revived in a step, at most
DEAD_AFTER, DEAD_FRACTION = (
    64,
    0.1,
)  # dead: silent 64 times as long as the mean feature is, and for a tenth of all steps
REVIVAL_FRACTION = 0.75  # of the steps, in which features are revived: later ones would not converge before the end
MIN_DIRECTIONS = 8  # in which samples vary, or a quarter of the features: with fewer nothing is revived
ENCODED_AT_ONCE = 1_024  # samples, so that memory is bounded


class Active(NamedTuple):
    """Active features: values and indices (n, c), or values of all features (n, n_features) and None."""

    values: Tensor
    indices: Tensor | None
    scores: Tensor  # input of the gate


class SparseAutoencoder(nn.Module):
    r"""A dictionary of atoms :math:`d_j`, with an encoder that finds feature activations in one pass.

    .. math:: z = \mathrm{gate}(W x + b), \qquad \hat x = \sum_j z_j d_j, \qquad \lVert d_j \rVert = 1

    Samples are centred and in a common unit, see `pindown.networks.preprocessing.common_scale`. The atoms are
    initialised as random directions, and W as the atoms. A dead feature is revived: its atom and its row of W become
    the residual of a sample that is badly reconstructed.
    """

    unit: Tensor
    silent: Tensor
    seen: Tensor
    residuals: Tensor
    gate: GateModule
    revive: bool = True
    revive_until: int | None = None  # number of training samples after which no feature is revived

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        atoms = F.normalize(torch.randn(n_out, n_in))
        self.atoms = nn.Parameter(atoms)
        self.weight = nn.Parameter(atoms.clone())
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.gate = TopK()(n_out)  # until `configure` sets another
        self.register_buffer("unit", torch.ones(()))  # of an activation, in the units of X
        self.register_buffer("silent", torch.zeros(n_out, dtype=torch.int64))  # samples since a feature fired
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("residuals", torch.zeros(min(MAX_REVIVED, n_out), n_in))

    @property
    def n_features(self) -> int:
        """Number of atoms."""
        return len(self.atoms)

    @property
    def n_expected(self) -> int:
        """Approximate number of active features per sample."""
        return int(self.gate.n_expected)

    def configure(
        self, gate: Gate, unit: Tensor, *, revive: bool = True, revive_until: int | None = None
    ) -> SparseAutoencoder:
        """Set the gate, the unit of activations, whether dead features are revived, and for how many samples."""
        self.gate, self.revive, self.revive_until = gate(self.n_features), revive, revive_until
        self.unit.copy_(unit)
        return self

    def encode(self, x: Tensor) -> Active:
        """Return activations in the common unit; only the candidates, where the gate bounds their number."""
        if self.gate.n_candidates is None:
            scores = F.linear(x, self.weight, self.bias)
            return Active(self.gate(scores), None, scores)
        scores, indices = chosen(x, self.weight, self.bias, self.gate.n_candidates)
        return Active(self.gate(scores), indices, scores)

    def forward(self, x: Tensor) -> Tensor:
        """Return all activations in the units of X; (n, n_features)."""
        values, indices, _ = self.encode(x)
        if indices is not None:
            values = values.new_zeros(len(x), self.n_features).scatter_(1, indices, values)
        return values * self.unit

    def loss(self, x: Tensor) -> Tensor:
        """Return the fraction of variance unexplained, plus the penalty of the gate."""
        return self.loss_and_active(x)[0]

    def loss_and_active(self, x: Tensor) -> tuple[Tensor, Active]:
        """Return the loss, and the activations that it was computed with."""
        if self.training:
            self.normalise_atoms()
            if self.revive:
                self._revive_dead()
        active = self.encode(x)
        residual, losses, first = x, [], 0
        for last in self.gate.levels(self.n_features):
            residual = residual - self._decode(active, first, last)
            losses.append(residual.square().mean())
            first = last
        if self.training:
            self._track(active, residual.detach())
        loss = torch.stack(losses).mean()
        penalty = self.gate.penalty(active.scores, active.values, x.shape[1])
        return loss if penalty is None else loss + penalty, active

    def _decode(self, active: Active, first: int, last: int) -> Tensor:
        """Sum the atoms first:last, weighted by their activations; (n, n_in)."""
        values, indices, _ = active
        if indices is None:
            return values[:, first:last] @ self.atoms[first:last]
        if (first, last) != (0, self.n_features):
            values = values * ((indices >= first) & (indices < last))
        return combined(values, indices, self.atoms)

    @torch.no_grad()
    def _revive_dead(self) -> None:
        """Replace dead features by residuals of the last batch; no branch depends on data, for CUDA graphs."""
        window = int(DEAD_AFTER * self.n_features / self.gate.n_expected)
        longest, which = self.silent.topk(len(self.residuals))
        length = torch.linalg.vector_norm(self.residuals, dim=1, keepdim=True)
        dead = ((longest > window) & (longest > DEAD_FRACTION * self.seen))[:, None] & (length > 0)  # (revived, 1)
        if self.revive_until is not None:
            dead = dead & (self.seen < self.revive_until)
        direction = self.residuals / length.clamp(min=1e-12)
        for part in (self.atoms, self.weight):
            part.index_copy_(0, which, torch.where(dead, direction, part[which]))
        self.bias.index_copy_(0, which, torch.where(dead[:, 0], 0.0, self.bias[which]))
        self.silent.index_copy_(0, which, torch.where(dead[:, 0], 0, longest))

    @torch.no_grad()
    def _track(self, active: Active, residual: Tensor) -> None:
        """Record which features fired, and the largest residuals."""
        n, fires = len(residual), active.values > 0
        if active.indices is None:
            fired = fires.any(0)
        else:
            counts = torch.zeros(self.n_features, device=residual.device)
            fired = counts.index_add_(0, active.indices.reshape(-1), fires.reshape(-1).float()) > 0
        self.silent.copy_(torch.where(fired, 0, self.silent + n))
        self.seen.add_(n)
        largest = residual.square().sum(1).argsort(descending=True, stable=True)
        self.residuals.copy_(residual[largest[torch.arange(len(self.residuals), device=largest.device) % n]])

    @torch.no_grad()
    def normalise_atoms(self) -> None:
        """Scale atoms to unit length."""
        self.atoms.div_(torch.linalg.vector_norm(self.atoms, dim=1, keepdim=True).clamp(min=1e-12))


def autoencoder_of(encoder: Encoder) -> SparseAutoencoder:
    """Return the network of an encoder that is an autoencoder."""
    assert isinstance(encoder.body, SparseAutoencoder)
    return encoder.body


def encode_sparse(encoder: Encoder, x: Tensor) -> csr_array:
    """Encode (n, m) to a sparse matrix (n, n_components), in the units of X; in float64 where that is cheap."""
    model = (copy.deepcopy(encoder).double() if is_cheap(encoder) else encoder).eval()
    with torch.no_grad():
        return csr_array(vstack([_encode_block(model, part) for part in x.split(ENCODED_AT_ONCE)], format="csr"))


def _encode_block(encoder: Encoder, x: Tensor) -> csr_array:
    body = autoencoder_of(encoder)
    dtype = body.atoms.dtype
    samples = encoder.preprocess(x.to(encoder.device).to(torch.promote_types(x.dtype, dtype))).to(dtype)
    active = body.encode(samples)
    activations = (active.values * body.unit).cpu().numpy()
    if active.indices is None:
        return csr_array(activations)
    starts = np.arange(len(x) + 1) * active.indices.shape[1]
    parts = activations.reshape(-1), active.indices.cpu().numpy().reshape(-1), starts
    found = csr_array(parts, shape=(len(x), body.n_features))
    found.eliminate_zeros()
    found.sort_indices()
    return found


def effective_directions(x: NDArray[np.floating]) -> float:
    """Return in how many directions samples vary: the participation ratio, (tr C)² / tr C².

    A few huge samples do not count: deviations from the mean are shortened to three times their median length.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(5_000, 20))
    >>> round(effective_directions(x)), round(effective_directions(x * np.where(np.arange(20), 1, 40)), 1)
    (20, 1.0)
    """
    x = (x - x.mean(0)).astype(np.float64)
    length = np.linalg.norm(x, axis=1)
    if (typical := 3 * np.median(length)) > 0:
        x *= np.minimum(1, typical / np.maximum(length, typical))[:, None]
    moments = x.T @ x if len(x) > x.shape[1] else x @ x.T
    return float(np.trace(moments) ** 2 / max((moments**2).sum(), 1e-300))


def explained_by_components(x: NDArray[np.floating], k: int) -> float:
    """Return the fraction of the variance of samples that lies along their k leading principal components."""
    variances = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    return float(variances[:k].sum() / max(variances.sum(), 1e-300))


def revival_samples(max_iter: int | None, batches: Iterator[tuple[Tensor, ...]]) -> int:
    """Return the number of training samples during which features are revived."""
    return int(REVIVAL_FRACTION * (FIRST_ROUND if max_iter is None else max_iter) * len(next(batches)[0]))


class Seeds(nn.Module):
    """Dictionaries from several seeds, trained on the same batches: the mean of their losses. The first is the fit."""

    encoder: Encoder

    def __init__(self, encoder: Encoder, others: Sequence[SparseAutoencoder]) -> None:
        super().__init__()
        self.encoder, self.others = encoder, nn.ModuleList(others)

    @property
    def dictionaries(self) -> list[SparseAutoencoder]:
        """The dictionaries of all seeds, the fit first."""
        return [each for each in (self.encoder.body, *self.others) if isinstance(each, SparseAutoencoder)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean loss."""
        x = self.encoder.preprocess(x)
        return torch.stack([each.loss(x) for each in self.dictionaries]).mean()


def adam_by_angle(objective: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    r"""Return Adam whose learning rate is an angle in radians: the most that an atom rotates in a step.

    Adam moves every entry by about its rate, and so an atom of unit length in m dimensions by :math:`\sqrt m` times as
    much. By angle, one rate suits samples with any number of features.

    Examples
    --------
    >>> adam = adam_by_angle(SparseAutoencoder(64, 100), 0.08, 0.0)
    >>> round(adam.param_groups[0]["peak"], 6)
    0.01
    """
    width = max(weight.shape[1] for weight in objective.parameters() if weight.ndim == 2)
    adam = optimizers.adam(objective, learning_rate / width**0.5, weight_decay)
    for group in adam.param_groups:
        group["peak"] = learning_rate / width**0.5
    return adam
