"""`SparseBasis`: as many atoms as dimensions, by the function that a theorem speaks of: L1 and volume."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the name it goes by)

from pindown import theory
from pindown._random import RandomState
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.methods.sparse.autoencoder import turning
from pindown.methods.sparse.basis_audit import SparseBasisSpec
from pindown.methods.sparse.codes import OfAtoms
from pindown.metrics.dictionaries import sparsity
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.preprocessing import Preprocessing, Whiten
from pindown.training import Trainer, TrainingDefaults

FAINT = 1e-4
"""Variance of a whitened direction below which there is nothing in it: a ten-thousandth of the largest spread."""


class Basis(nn.Module):
    """A square matrix on the leading directions of whitened rows."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(n_out, n_out))[0].contiguous())

    def forward(self, y: Tensor) -> Tensor:
        """Return codes; (n, n_in) → (n, n_out)."""
        return F.linear(y[:, : len(self.weight)], self.weight)


class Volume(nn.Module):
    """L1 of codes against the volume of their matrix; blind to the scale of each code."""

    encoder: Encoder

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of a batch."""
        body = self.encoder.body
        assert isinstance(body, Basis)
        if self.training:
            with torch.no_grad():  # the loss does not see lengths, and so they would drift
                body.weight.div_(torch.linalg.vector_norm(body.weight, dim=1, keepdim=True))
        size = self.encoder(x).abs().mean(0).clamp(min=1e-12).log().mean()
        return size - torch.linalg.slogdet(body.weight.float()).logabsdet / len(body.weight)


class SparseBasis(OfAtoms):
    r"""Sparse codes in as many directions as data vary in, by L1 and volume: the one dictionary with a theorem.

    With whitened rows y and codes :math:`\hat z = W y`,

    .. math:: \min_W \; \frac1d \sum_j \log \mathrm E\,|w_j^\top y| - \frac1d \log |\det W|

    the codes are as small as they can be, in the sense of L1, while the volume of the dictionary stays. If rows are
    sparse combinations of independent atoms, and codes are scattered, the global optimum has these atoms, in some order
    and at some scale (Hu and Huang, 2023). Codes have signs, and there are no more atoms than dimensions: for more, see
    `Sparse`, of which nothing is proved. It is an independent component analysis with the L1 norm for a contrast, and
    without the constraint that codes be uncorrelated.

    Parameters
    ----------
    n_components : int or None
        Number of atoms, at most that of columns; None takes as many as the data vary in.
    batch_size : int or None
        Rows per step; None takes 1,024, or all if there are fewer.
    max_iter : int or None
        Steps; None takes 2,000, and as many again for as long as the loss clearly falls.
    learning_rate : float
        The angle by which a row of W turns in a step, in radians, at most, at the top of a cosine schedule.
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
        What was minimised.
    held_out_ : HeldOut or None
        How sparse codes of rows held out are, with those of rows learned from.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.

    References
    ----------
    Hu and Huang, Global identifiability of L1-based dictionary learning via matrix volume optimization, NeurIPS 2023.

    Examples
    --------
    >>> from pindown.metrics import chance_pw_mcc, pw_mcc
    >>> from pindown.simulate import Superposed
    >>> world = Superposed.complete(10, probability=0.2, random_state=0)
    >>> basis = SparseBasis(10, max_iter=300, random_state=0).fit(world.sample(4_000, random_state=1).x)
    >>> pw_mcc(basis.components_, world.truth, signed=False) > 0.99 > 0.8 > chance_pw_mcc(10, 10, signed=False)
    True
    """

    spec = SparseBasisSpec()
    training_defaults = TrainingDefaults(batch_size=1_024, weight_decay=0.0, optimizer=turning)
    encoder = staticmethod(Basis)
    preprocess = staticmethod(preprocessing.whiten)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        batch_size: int | None = None,
        max_iter: int | None = None,
        learning_rate: float = 0.05,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def guarantee(self) -> theory.Theorem:
        """The theorem that applies if the data meet its assumptions."""
        return theory.SPARSE_COMPLETE

    def score(self, X, y=None) -> float:
        """Return how sparse codes are, mean over codes: 0 if they are normal, 1 at most; see `metrics.sparsity`."""
        check_is_fitted(self)
        return sparsity(self.transform(self._validated(X, reset=False)))

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> DataSummary:
        vary = int((first(torch.as_tensor(inputs.some_samples)).var(0) > FAINT).sum())
        if self.n_components is None:
            return DataSummary(max(1, vary))
        if (d := self._requested_components()) > vary:
            raise ValueError(
                f"SparseBasis: n_components={d} is more than the {vary} directions in which the {self.n_features_in_} "
                "columns of X vary (n_features): a basis has no more. Ask for fewer, or take Sparse."
            )
        return DataSummary(d)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        return Volume(encoder)

    def _store(self, objective: nn.Module, summary: DataSummary) -> None:
        body, first = self.encoder_.body, self.encoder_.preprocess
        assert isinstance(body, Basis)
        assert isinstance(first, Whiten)
        with torch.no_grad():  # codes get the unit in which atoms have length 1
            back = torch.linalg.pinv(first.matrix.double()[:, : summary.n_components])  # (d, m)
            atoms = torch.linalg.solve(body.weight.double().T, back)
            length = atoms.norm(dim=1)
            body.weight.mul_(length[:, None])
        self.components_ = (atoms / length[:, None]).cpu().numpy()
