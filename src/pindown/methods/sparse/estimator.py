"""`Sparse`: a dictionary of directions of which few add up to each row; for activations of networks, or any vectors."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown._random import RandomState
from pindown.data.data import Data
from pindown.methods.incremental import Incremental
from pindown.methods.inputs import DataSummary, TrainingInput, is_in_memory
from pindown.methods.sparse import saelens
from pindown.methods.sparse.agreement import SeedAgreement, agreement_of
from pindown.methods.sparse.audit import SparseSpec
from pindown.methods.sparse.autoencoder import Autoencoder, Seeds, reviving, turning
from pindown.methods.sparse.codes import OfAtoms, rebuilt, sparse_codes
from pindown.metrics.dictionaries import firing, fvu
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.gates import Gate, TopK
from pindown.networks.preprocessing import Preprocessing
from pindown.training import Trainer, TrainingDefaults

MOST_NAMED = 5
"""Constant columns that a warning names."""


class Sparse(OfAtoms, Incremental):
    r"""Sparse dictionary: directions (atoms) of which few, at some strength, add up to each row.

    .. math:: x \approx \mu + \sum_j z_j d_j, \qquad z = \mathrm{gate}(W (x - \mu) + b) \ge 0, \qquad
              \lVert d_j \rVert = 1

    A sparse autoencoder: one pass finds the codes z, a gate lets few of them through. Rows are centred and brought to a
    common unit, the encoder starts at its decoder's transpose, and a code that stays silent is revived at what is left
    of a row that is rebuilt badly. Several seeds can be trained on the same rows (`n_seeds`), so that `agreement` says
    which atoms are found again.

    **What may be said.** No theorem speaks of these gates: not that atoms are features of the model, nor that codes are
    the sparsest. What may be said is how much is rebuilt, and how well seeds agree, beside chance.

    Parameters
    ----------
    n_components : int or None
        Number of atoms; more than columns, if there is superposition. None takes four for each column, and at most one
        for ten rows.
    gate : Gate
        Which codes are let through, of `pindown.networks.gates`: ``TopK(k)``, ``BatchTopK(k)``, ``Matryoshka(k)``,
        ``JumpReLU(k)`` or ``L1(weight)``.
    n_seeds : int
        Dictionaries that are trained side by side. The first is the fit, the others its witnesses.
    revive : bool
        Whether a code that stays silent starts anew, in the first three quarters of the steps. Without, it may stay
        dead for good, as in most of the literature. It helps where features fire about equally often; where most are
        rare, it may cost more than it brings.
    sparse_output : bool
        Whether `transform` returns a scipy csr array. Then no matrix of rows × codes is formed.
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
    components_ : ndarray of shape (n_components, n_features)
        The atoms, of unit length.
    mean_ : ndarray of shape (n_features,)
        What is taken off rows.
    encoder_ : torch.nn.Module
        The trained encoder.
    objective_ : torch.nn.Module
        What was minimised, all seeds in it.
    held_out_ : HeldOut or None
        The share of variance rebuilt on rows held out, with that on rows learned from. None if no row was.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.

    References
    ----------
    Cunningham et al., Sparse autoencoders find highly interpretable features, ICLR 2024. Gao et al., Scaling and
    evaluating sparse autoencoders, 2024.

    Examples
    --------
    Sixty-four features in thirty-two dimensions, three at a time:

    >>> from pindown.networks.gates import TopK
    >>> from pindown.metrics import chance_pw_mcc, pw_mcc
    >>> from pindown.simulate import Superposed
    >>> world = Superposed.overcomplete(64, 32, n_active=3, random_state=0)
    >>> x = world.sample(10_000, random_state=1).x
    >>> sparse = Sparse(64, gate=TopK(3), batch_size=256, max_iter=300, random_state=0).fit(x)
    >>> pw_mcc(sparse.components_, world.truth) > 0.9 > 0.5 > chance_pw_mcc(64, 32)
    True
    """

    spec = SparseSpec()
    training_defaults = TrainingDefaults(batch_size=1_024, weight_decay=0.0, optimizer=turning)
    encoder = staticmethod(Autoencoder)
    preprocess = staticmethod(preprocessing.common_scale)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        gate: Gate = TopK(),  # noqa: B008 (a frozen value)
        n_seeds: int = 1,
        revive: bool = True,
        sparse_output: bool = False,
        batch_size: int | None = None,
        max_iter: int | None = None,
        learning_rate: float = 0.08,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.gate = gate
        self.n_seeds = n_seeds
        self.revive = revive
        self.sparse_output = sparse_output
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def partial_fit(self, X, y=None) -> Self:
        """Learn from more rows: go through them once, at the full learning rate. See `fit` for what they may be.

        After `fit`, or in an estimator that was loaded, it begins anew. The first lot settles mean and unit.
        """
        self._partial_fit(X, {})
        assert isinstance(self.objective_, Seeds)
        for each in self.objective_.all:
            each.until = None  # lots have no end
        return self

    def transform(self, X):
        """Encode rows; numpy in, numpy out; torch in, torch out; a csr array if ``sparse_output``."""
        return self.sparse_codes(X) if self.sparse_output else super().transform(X)

    def sparse_codes(self, X) -> csr_array:
        """Encode rows, or those of a source, to a scipy csr array (n_samples, n_components), in bounded memory.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features), or Source
            The rows.
        """
        check_is_fitted(self)
        X = X.X if isinstance(X, Data) else X
        if is_in_memory(X):
            array = self._validated(X, reset=False)
            return sparse_codes(self.encoder_, torch.as_tensor(array)).astype(array.dtype, copy=False)
        parts = [sparse_codes(self.encoder_, torch.as_tensor(x)).astype(x.dtype, copy=False) for x in self._blocks(X)]
        return csr_array(vstack(parts, format="csr"))

    def score(self, X, y=None) -> float:
        """Return the share of the variance of rows that is rebuilt, 1 − FVU: 0 for their mean."""
        check_is_fitted(self)
        array = self._validated(X, reset=False)
        return 1 - fvu(array, rebuilt(self.sparse_codes(array), self.components_, self.mean_))

    def agreement(self, X=None) -> SeedAgreement:
        """Return how well the dictionaries of the seeds agree, beside chance; and, with rows, by how often codes fire.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features), optional
            Rows in which codes are counted.
        """
        check_is_fitted(self)
        if self.n_seeds < 2:
            raise ValueError(
                "Sparse: one seed agrees with itself, which says nothing. Fit with n_seeds=2 or more, or let "
                "pindown.audit refit it."
            )
        assert isinstance(self.objective_, Seeds)
        dictionaries = [each.atoms.detach().cpu().numpy() for each in self.objective_.all]
        return agreement_of(dictionaries, None if X is None else firing(self.sparse_codes(X)))

    def to_saelens(self, folder) -> Path:
        """Write ``cfg.json`` and ``sae_weights.safetensors`` to a folder, as SAELens reads them; return the folder.

        There, ``SAE.load_from_disk(folder)`` encodes to the same codes. Of several seeds the first is written.

        Parameters
        ----------
        folder : str or Path
            Where to; it is made if need be.
        """
        check_is_fitted(self)
        return saelens.write(self, folder)

    @classmethod
    def from_saelens(cls, folder) -> Self:
        """Return a fitted estimator from a folder that SAELens wrote: top-k, JumpReLU and standard dictionaries.

        Its atoms have the lengths that they have there.

        Parameters
        ----------
        folder : str or Path
            With ``cfg.json`` and ``sae_weights.safetensors``.
        """
        return saelens.read(cls(), folder)

    @property
    def components_(self) -> NDArray[np.float32]:  # type: ignore[override]
        """The atoms, of unit length; (n_components, n_features)."""
        return self._body.atoms.detach().cpu().numpy()

    @property
    def _body(self) -> Autoencoder:
        check_is_fitted(self)
        assert isinstance(self.encoder_.body, Autoencoder)
        return self.encoder_.body

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_scalar(self.n_seeds, "n_seeds", numbers.Integral, min_val=1)
        if not isinstance(self.gate, Gate):
            raise TypeError(f"Sparse: gate must be one of pindown.networks.gates, such as TopK(32), got {self.gate!r}.")
        if self.n_components is not None:
            self.gate(self._requested_components())  # or says what does not go together

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> DataSummary:
        n = inputs.n_samples
        d = (
            max(1, int(min(4 * self.n_features_in_, n // 10)))
            if self.n_components is None
            else self._requested_components()
        )
        if n < d:
            raise ValueError(
                f"Sparse: there are {n} rows (n_samples={n}) for n_components={d}: with an "
                "atom for each row any data are rebuilt. Ask for fewer atoms, or give more rows."
            )
        constant = np.flatnonzero(np.ptp(inputs.some_samples, axis=0) == 0)
        if not len(constant):
            return DataSummary(d)
        named = ", ".join(map(str, constant[:MOST_NAMED])) + (", …" if len(constant) > MOST_NAMED else "")
        message = f"column(s) {named} of X are constant, so that all atoms are 0 there. Leave them out."
        return DataSummary(d, warnings=(message,))

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        body, scale = encoder.body, encoder.preprocess.scale
        assert isinstance(body, Autoencoder)
        assert isinstance(scale, Tensor)
        others = [Autoencoder(self.n_features_in_, summary.n_components) for _ in range(self.n_seeds - 1)]
        until = reviving(self.max_iter, batches)
        for each in (body, *others):
            each.opened(self.gate, scale, revives=self.revive, until=until)
        return Seeds(encoder, others)

    def _store(self, objective: nn.Module, summary: DataSummary) -> None:
        assert isinstance(objective, Seeds)
        for each in objective.all:
            each.settle()
