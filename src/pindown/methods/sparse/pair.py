"""`SparsePair`: dictionaries before and after a map, of which few codes drive few."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown._random import RandomState
from pindown.data import ArraySource
from pindown.losses import feature_jacobian
from pindown.methods.base import BaseEncoder
from pindown.methods.inputs import SUMMARY_SAMPLES, DataSummary, TrainingInput
from pindown.methods.sparse.audit import SparsePairSpec
from pindown.methods.sparse.autoencoder import Autoencoder, Codes, reviving, turning
from pindown.methods.sparse.estimator import Sparse
from pindown.methods.sparse.graph import CodeGraph, drives
from pindown.methods.sparse.maps import Mlp, read_map
from pindown.methods.sparse.saelens import around
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.gates import Gate, TopK
from pindown.networks.preprocessing import Preprocessing, Rescale
from pindown.networks.spaces import Reals
from pindown.training import Trainer, TrainingDefaults

ONE_IN = 32
"""Rows of a batch of which the Jacobian is penalised at one, if nobody says how many."""

MANY = 1 << 20
"""Codes that a gate is asked about, while nobody knows how many there will be."""


@dataclass(frozen=True, eq=False)
class PairLook(DataSummary):
    """What a fit saw, and what takes mean and unit off rows after the map."""

    after: Rescale | None = None


class Pair(nn.Module):
    """Two dictionaries, one before and one after a map, and the price of codes that drive codes."""

    encoder: Encoder

    def __init__(self, encoder: Encoder, after: Encoder, between: Mlp, weight: float, n_jacobians: int | None) -> None:
        super().__init__()
        self.encoder, self.after, self.between = encoder, after, between
        self.weight, self.n_jacobians = weight, n_jacobians

    @property
    def both(self) -> tuple[Autoencoder, Autoencoder]:
        """The dictionaries, before and after."""
        first, second = self.encoder.body, self.after.body
        assert isinstance(first, Autoencoder)
        assert isinstance(second, Autoencoder)
        return first, second

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of what both leave unexplained, and the price."""
        before, after = self.both
        loss, codes = before.step(self.encoder.preprocess(x))
        loss_after, codes_after = after.step(self.after.preprocess(self.between(x)))
        loss = (loss + loss_after) / 2
        if not self.weight:
            return loss
        n = -(-len(x) // ONE_IN) if self.n_jacobians is None else min(self.n_jacobians, len(x))
        found, *_ = self.jacobian(x[:n], codes, codes_after)  # rows come in random order: the first are a sample
        return loss + self.weight * found.abs().sum() / (n * _strongest(before))

    def jacobian(self, x: Tensor, codes: Codes, codes_after: Codes) -> tuple[Tensor, Tensor, Tensor]:
        """Return how the strongest codes of rows drive those after the map, and which codes these are.

        Codes may be of more rows than x, which are the first of them. (n, k_out, k), in units of the spread of rows on
        either side, and 0 if a code is silent; (n, k) and (n, k_out).
        """
        before, after = self.both
        units = before.unit / after.unit
        (values, at), (values_after, at_after) = (
            _active(each, body, len(x)) for each, body in ((codes, before), (codes_after, after))
        )
        slopes = [units * each for each in self.between.slopes(x)]
        found = feature_jacobian(
            before.atoms, self.between.inner, slopes, self.between.outer, after.weight, active=at, active_out=at_after
        )
        return found * ((values_after > 0)[:, :, None] & (values > 0)[:, None]), at, at_after


def _strongest(body: Autoencoder) -> int:
    """Return how many codes of a row are looked at: as many as fire on average."""
    assert body.gate is not None
    return int(body.gate.n_expected)


def _active(codes: Codes, body: Autoencoder, n: int) -> tuple[Tensor, Tensor]:
    """Return the strongest codes of the first rows, and which they are; (n, k) each."""
    assert codes.indices is not None
    values, indices, k = codes.values[:n].detach(), codes.indices[:n], _strongest(body)
    if values.shape[1] > k:
        values, place = values.topk(k, dim=1, sorted=False)
        indices = indices.gather(1, place)
    return values, indices


class SparsePair(BaseEncoder):
    r"""Two sparse dictionaries, before and after a map, trained so that few codes before it drive few after it.

    .. math:: \frac12 (\mathrm{FVU} + \mathrm{FVU}') + \frac{\lambda}{k}\, \mathrm E \sum_{ij} |J_{ij}|, \qquad
              J_{ij} = w_i'^\top \frac{\partial f}{\partial x}\, d_j

    The map f is frozen, such as an MLP of a transformer. J is taken between codes that fire: how much a code after the
    map moves, by one pass of its encoder, if an atom before it is added to the row. Its weights are folded once a step,
    and it is computed at some rows of a batch (Farnik et al., 2025; Zheng et al., 2025).

    **What may be said.** As of `Sparse`: how much is rebuilt, and how well fits agree, beside chance. A graph with few
    arrows is what was asked for, and no evidence that the map works like that.

    Parameters
    ----------
    map : nn.Module
        ``nn.Sequential(Linear, nonlinearity, Linear)``, or a gated MLP: a module with ``gate_proj``, ``act_fn``,
        ``up_proj`` and ``down_proj``. Its weights are copied, and stay as they are.
    n_components : int or None
        Number of atoms on either side. None takes four for each column, and at most one for ten rows.
    gate : Gate
        ``TopK(k)``, ``BatchTopK(k)`` or ``Matryoshka(k)`` of `pindown.networks.gates`. J is taken between the k
        strongest features of a sample.
    weight : float
        λ: what a code pays for all it drives, where driving one code by a unit costs as much as the variance of a row.
        0 trains both dictionaries without a penalty.
    n_jacobians : int or None
        Rows of a batch at which J is taken; None takes one in 32.
    revive : bool
        Whether a code that stays silent starts anew, in the first three quarters of the steps. Without, it may stay
        dead for good, as in most of the literature.
    batch_size : int or None
        Rows per step; None takes 1,024, or all if there are fewer.
    max_iter : int or None
        Steps; None takes 2,000, and as many again for as long as the loss clearly falls.
    learning_rate : float
        The angle by which an atom turns in a step, in radians, at most, at the top of a cosine schedule.
    trainer : Trainer
        Weight decay (None: 0), optimizer (None: Adam, with the learning rate as an angle), fraction of the samples to
        hold out, precision, checkpoint, callbacks …: see `pindown.training.Trainer`.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    before_, after_ : Sparse
        The dictionaries, fitted: their codes, atoms, scores and files.
    encoder_ : torch.nn.Module
        The trained encoder before the map, which `transform` runs.
    objective_ : torch.nn.Module
        What was minimised, with both dictionaries and the map.
    held_out_ : HeldOut or None
        The share of variance rebuilt on rows held out, mean of both sides, with that on rows learned from.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.

    References
    ----------
    Farnik et al., Jacobian sparse autoencoders, 2025. Zheng et al., Diverse dictionary learning, 2025.

    Examples
    --------
    >>> from pindown.simulate import Superposed
    >>> x = Superposed.overcomplete(32, 16, n_active=2, random_state=0).sample(4_000, random_state=1).x
    >>> mlp, rng = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)), torch.Generator().manual_seed(0)
    >>> for weight in mlp.parameters():
    ...     _ = nn.init.normal_(weight, std=0.2, generator=rng)
    >>> how = dict(gate=TopK(3), batch_size=256, max_iter=150, verbose=False, random_state=0)
    >>> plain, sparse = (SparsePair(mlp, 32, weight=weight, **how).fit(x) for weight in (0.0, 0.1))
    >>> sparse.graph(x).total < plain.graph(x).total / 1.3
    True
    """

    spec = SparsePairSpec()
    training_defaults = TrainingDefaults(batch_size=1_024, weight_decay=0.0, optimizer=turning)
    encoder = staticmethod(Autoencoder)
    preprocess = staticmethod(preprocessing.common_scale)

    def __init__(
        self,
        map: nn.Module,
        n_components: int | None = None,
        *,
        gate: Gate = TopK(),  # noqa: B008 (a frozen value)
        weight: float = 0.03,
        n_jacobians: int | None = None,
        revive: bool = True,
        batch_size: int | None = None,
        max_iter: int | None = None,
        learning_rate: float = 0.08,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.map = map
        self.n_components = n_components
        self.gate = gate
        self.weight = weight
        self.n_jacobians = n_jacobians
        self.revive = revive
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def before_(self) -> Sparse:
        """The dictionary of rows before the map, fitted."""
        check_is_fitted(self)
        return around(Sparse(), self.encoder_, self.gate)

    @property
    def after_(self) -> Sparse:
        """The dictionary of rows after the map, fitted."""
        return around(Sparse(), self._pair.after, self.gate)

    def mapped(self, X) -> NDArray[np.float32]:
        """Return rows after the map, of which `after_` has codes; (n_samples, n_features_out).

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            Rows before it.
        """
        check_is_fitted(self)
        between = self._pair.between
        rows = torch.as_tensor(self._validated(X, reset=False))
        return torch.cat([between(part.to(between.outer.device)).cpu() for part in rows.split(SUMMARY_SAMPLES)]).numpy()

    def graph(self, X) -> CodeGraph:
        """Return which code drives which in these rows, and how much, as data that can be drawn.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            Rows before the map, best such as were not learned from.
        """
        check_is_fitted(self)
        return drives(self._pair, torch.as_tensor(self._validated(X, reset=False)))

    def score(self, X, y=None) -> float:
        """Return the share of the variance of rows that is rebuilt, 1 − FVU, mean of both sides of the map."""
        return (self.before_.score(X) + self.after_.score(self.mapped(X))) / 2

    @property
    def components_(self) -> NDArray[np.float32]:
        """The atoms before the map, of unit length; (n_components, n_features)."""
        return self.before_.components_

    @property
    def _pair(self) -> Pair:
        check_is_fitted(self)
        assert isinstance(self.objective_, Pair)
        return self.objective_

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1

    def _check_parameters(self) -> None:
        super()._check_parameters()
        read_map(self.map)
        if not isinstance(self.gate, Gate):
            raise TypeError(
                f"SparsePair: gate must be one of pindown.networks.gates, such as TopK(32), got {self.gate!r}."
            )
        check_scalar(self.weight, "weight", numbers.Real, min_val=0)
        if self.n_jacobians is not None:
            check_scalar(self.n_jacobians, "n_jacobians", numbers.Integral, min_val=1)
        if self.gate(MANY if self.n_components is None else self._requested_components()).n_candidates is None:
            raise ValueError(
                f"SparsePair: {type(self.gate).__name__} lets any number of codes through, and J is taken between few. "
                "Take TopK, BatchTopK or Matryoshka."
            )

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> DataSummary:
        between = read_map(self.map)
        if between.n_in != self.n_features_in_:
            raise ValueError(
                f"SparsePair: map takes rows of {between.n_in} columns, but X has {self.n_features_in_}. Give the rows "
                "that go into it."
            )
        alone = Sparse(self.n_components, gate=self.gate)
        alone.n_features_in_ = self.n_features_in_
        summary = alone._summarize(inputs, first, seed)
        after = preprocessing.common_scale(ArraySource(between(torch.as_tensor(inputs.some_samples))))
        return PairLook(summary.n_components, warnings=summary.warnings, after=after)

    def _objective(self, encoder: Encoder, summary: Any, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        between = copy.deepcopy(read_map(self.map))
        after = Encoder(copy.deepcopy(summary.after), Autoencoder(between.n_out, summary.n_components), Reals())
        until = reviving(self.max_iter, batches)
        for side in (encoder, after):
            assert isinstance(side.body, Autoencoder)
            assert isinstance(side.preprocess.scale, Tensor)
            side.body.opened(self.gate, side.preprocess.scale, revives=self.revive, until=until)
        return Pair(encoder, after, between, self.weight, self.n_jacobians)

    def _store(self, objective: nn.Module, summary: DataSummary) -> None:
        assert isinstance(objective, Pair)
        for each in objective.both:
            each.settle()
