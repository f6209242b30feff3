"""`SparseBasis`: as many atoms as dimensions, by L1 and volume, the objective of an identifiability theorem."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the usual name)

from pindown import theory
from pindown._random import RandomState
from pindown.errors import InputError
from pindown.methods.fitting import Trained
from pindown.methods.inputs import ArrayOrTensor, DataLike, DataSummary, TrainingInput
from pindown.methods.sparse.audit import SparseBasisSpec
from pindown.methods.sparse.estimator import AtomEncoder
from pindown.metrics.dictionaries import sparsity
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.preprocessing import Preprocessing, Whiten
from pindown.training import Trainer

MIN_VARIANCE = 1e-4  # variance of a whitened direction below which it counts as empty


class Basis(nn.Module):
    """A square matrix on the leading directions of whitened samples."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(n_out, n_out))[0].contiguous())

    def forward(self, y: Tensor) -> Tensor:
        """Return latents; (n, n_in) → (n, n_out)."""
        return F.linear(y[:, : len(self.weight)], self.weight)


class Volume(nn.Module):
    """L1 of latents minus the log-volume of their matrix; invariant to the scale of each latent."""

    encoder: Encoder

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of a batch."""
        body = self.encoder.body
        assert isinstance(body, Basis)
        if self.training:
            with torch.no_grad():  # the loss does not depend on lengths, so they would drift
                body.weight.div_(torch.linalg.vector_norm(body.weight, dim=1, keepdim=True))
        size = self.encoder(x).abs().mean(0).clamp(min=1e-12).log().mean()
        return size - torch.linalg.slogdet(body.weight.float()).logabsdet / len(body.weight)


class SparseBasis(AtomEncoder):
    r"""Sparse latents in as many directions as X varies in, by L1 and volume: the dictionary with a theorem.

    With whitened samples y and latents :math:`\hat z = W y`,

    .. math:: \min_W \; \frac1d \sum_j \log \mathrm E\,|w_j^\top y| - \frac1d \log |\det W|

    makes latents as small as possible in L1 while the volume of the dictionary is fixed. If samples are sparse
    combinations of independent atoms, and the latents are scattered, the global optimum has these atoms, up to order
    and scale (Hu and Huang, 2023). Latents have signs, and there are at most as many atoms as dimensions; for more
    atoms see `Sparse`, for which nothing is proved. The method is an independent component analysis with the L1 norm as
    contrast, without the constraint that latents are uncorrelated.

    Parameters
    ----------
    n_components : int or None
        Number of atoms, at most that of features of X; None takes as many as X varies in.
    learning_rate : float
        The most that a row of W rotates in a step, in radians, at the peak of a cosine schedule.
    batch_size, max_iter, trainer, device, verbose, random_state
        As in `Sparse`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The atoms, of unit length.
    held_out_ : HeldOut or None
        Sparsity of the latents of the validation set and of training samples.
    mean_, encoder_, objective_, loss_curve_, n_iter_
        As in `Sparse`.

    References
    ----------
    Hu and Huang, Global identifiability of L1-based dictionary learning via matrix volume optimization, NeurIPS 2023.

    Examples
    --------
    >>> from pindown.metrics import chance_pw_mcc, pw_mcc
    >>> from pindown.simulate import Superposed
    >>> simulation = Superposed.complete(10, probability=0.2, random_state=0)
    >>> basis = SparseBasis(10, max_iter=300, random_state=0).fit(simulation.sample(4_000, random_state=1).x)
    >>> pw_mcc(basis.components_, simulation.truth, signed=False) > 0.99 > 0.8 > chance_pw_mcc(10, 10, signed=False)
    True
    """

    spec = SparseBasisSpec()
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

    def score(self, X: DataLike, y: ArrayOrTensor | None = None) -> float:
        """Return the sparsity of the latents, at most 1, and 0 for normal ones; see `metrics.sparsity`."""
        check_is_fitted(self)
        return sparsity(self.transform(self._validated(X, reset=False)))

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> DataSummary:
        vary = int((preprocessing(torch.as_tensor(inputs.some_samples)).var(0) > MIN_VARIANCE).sum())
        if self.n_components is None:
            return DataSummary(max(1, vary))
        if (d := self._requested_components()) > vary:
            raise InputError(
                "n_components",
                f"SparseBasis: n_components={d} must be at most {vary}: X has n_features={self.n_features_in_} and "
                f"varies in {vary} directions. Ask for fewer atoms, or use Sparse.",
            )
        return DataSummary(d)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        return Volume(encoder)

    def _store(self, trained: Trained) -> None:
        body, first = self.encoder_.body, self.encoder_.preprocess
        assert isinstance(body, Basis)
        assert isinstance(first, Whiten)
        with torch.no_grad():  # scale the latents so that atoms have length 1
            unwhiten = torch.linalg.pinv(first.matrix.double()[:, : trained.summary.n_components])  # (d, m)
            atoms = torch.linalg.solve(body.weight.double().T, unwhiten)
            length = atoms.norm(dim=1)
            body.weight.mul_(length[:, None])
        self.components_ = (atoms / length[:, None]).cpu().numpy()
