"""`Sparse`: a sparse autoencoder, for activations or any vectors; `SparseBasis`: the dictionary with a theorem."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the usual name)

from pindown import theory
from pindown.data.data import Data, from_torch
from pindown.errors import InputError, warn
from pindown.methods.base import BaseEncoder, Incremental
from pindown.methods.diagnosis import CHECKED_SAMPLES, ENOUGH_STEPS
from pindown.methods.fitting import Trained
from pindown.methods.inputs import ArrayOrTensor, DataLike, DataSummary, Encoded, TrainingInput, is_in_memory
from pindown.methods.sparse import saelens
from pindown.methods.sparse.audit import SeedAgreement, SparseBasisSpec, SparseSpec, compare_seeds
from pindown.methods.sparse.autoencoder import (
    MIN_DIRECTIONS,
    Seeds,
    SparseAutoencoder,
    adam_by_angle,
    autoencoder_of,
    effective_directions,
    encode_sparse,
    explained_by_components,
    revival_samples,
)
from pindown.metrics.arrays import Matrix
from pindown.metrics.dictionaries import firing, fvu, sparsity
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.gates import Gate, TopK
from pindown.networks.preprocessing import Preprocessing, Whiten
from pindown.training import TrainingDefaults

MOST_NAMED = 5  # constant features of X that a warning names
MAX_LOSS = 0.05  # of explained variance, compared with principal components, that is not worth a warning
MIN_VARIANCE = 1e-4  # variance of a whitened direction below which it counts as empty


class AtomEncoder(BaseEncoder):
    """An estimator whose latents are the activations of atoms that add up to a sample; abstract."""

    training_defaults = TrainingDefaults(batch_size=1_024, weight_decay=0.0, optimizer=adam_by_angle)
    components_: NDArray[np.floating]

    def inverse_transform(self, Z: ArrayOrTensor) -> Encoded:
        """Reconstruct samples from activations, dense or sparse; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        array = check_array(from_torch(Z), accept_sparse="csr", dtype=[np.float64, np.float32], input_name="Z")
        if array.shape[1] != self.n_components_:
            raise InputError(
                "Z", f"{type(self).__name__}: Z has {array.shape[1]} features, but n_components={self.n_components_}."
            )
        x = self._reconstruct(array)
        return x if issparse(Z) else self._like(Z, array, torch.as_tensor(x))

    @property
    def mean_(self) -> Matrix:
        """The mean that is subtracted from samples; (n_features,)."""
        return self.encoder_.preprocess.mean.cpu().numpy()

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1

    def _reconstruct(self, activations: csr_array | NDArray[np.floating]) -> NDArray[np.floating]:
        dtype = activations.dtype
        return np.asarray(activations @ self.components_.astype(dtype)) + self.mean_.astype(dtype)


@dataclass(frozen=True, eq=False)
class SparseSummary(DataSummary):
    """The data summary, and whether dead features are revived."""

    revive: bool = True


class GatedEncoder(AtomEncoder):
    """An estimator that trains sparse autoencoders, whose gate keeps few features of a sample; abstract."""

    encoder = staticmethod(SparseAutoencoder)
    preprocess = staticmethod(preprocessing.common_scale)
    gate: Gate
    revive: bool

    @property
    def components_(self) -> NDArray[np.float32]:  # type: ignore[override]
        """The atoms, of unit length; (n_components, n_features)."""
        check_is_fitted(self)
        return autoencoder_of(self.encoder_).atoms.detach().cpu().numpy()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.gate, Gate):
            name = type(self).__name__
            raise TypeError(f"{name}: gate must be one of pindown.networks.gates, such as TopK(32), got {self.gate!r}.")
        if self.n_components is not None:
            self.gate(self._requested_components())  # raises if k is too large

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> SparseSummary:
        n, d = inputs.n_samples, max(1, int(min(4 * self.n_features_in_, inputs.n_samples // 10)))
        notes = ("four per feature of X, at most one per ten samples.",) if self.n_components is None else ()
        d = d if self.n_components is None else self._requested_components()
        if n < d:
            raise InputError(
                "n_components",
                f"{type(self).__name__}: X has n_samples={n}, but n_components={d}: with an atom per sample any data "
                "are reconstructed. Ask for fewer atoms, or give more samples.",
            )
        warnings, revive = [], self.revive
        if len(constant := np.flatnonzero(np.ptp(inputs.some_samples, axis=0) == 0)):
            named = ", ".join(map(str, constant[:MOST_NAMED])) + (", …" if len(constant) > MOST_NAMED else "")
            warnings.append(f"feature(s) {named} of X are constant, so that all atoms are 0 there. Leave them out.")
        if revive and (few := self._few_directions(inputs.some_samples)):
            warnings.append(few)
            revive = False
        return SparseSummary(d, warnings=tuple(warnings), notes=notes, revive=revive)

    def _few_directions(self, x: NDArray[np.floating], name: str = "X") -> str:
        """Return a sentence if few directions dominate samples, else an empty one."""
        if (n := effective_directions(x)) >= min(MIN_DIRECTIONS, x.shape[1] / 4):
            return ""
        return (
            f"a few features or directions dominate {name}, which varies in {n:.1f} directions (participation ratio). "
            "Dead features are not revived: all would follow these. If others matter, scale or drop what dominates."
        )

    def _diagnose(self, x: Tensor) -> None:
        super()._diagnose(x)
        self._compare_with_components(self, x.numpy())

    def _compare_with_components(self, fitted: Sparse, x: NDArray[np.floating], name: str = "X") -> None:
        """Warn if as many principal components as features are active explain clearly more of some samples."""
        if (self.max_iter or ENOUGH_STEPS) < ENOUGH_STEPS:
            return
        x = x[:: -(-len(x) // CHECKED_SAMPLES)]
        k, score = autoencoder_of(fitted.encoder_).n_expected, fitted.score(x)
        if (plain := explained_by_components(x, k)) > score + MAX_LOSS:
            found = f"explains {score:.2f} of the variance of {name}, less than {k} principal components ({plain:.2f})"
            warn(f"{type(self).__name__}: the dictionary {found}. Try more steps, other gates, or PCA.")

    def _store(self, trained: Trained) -> None:
        for module in trained.objective.modules():
            if isinstance(module, SparseAutoencoder):
                module.normalise_atoms()


@dataclass(eq=False, repr=False)
class Sparse(GatedEncoder, Incremental):
    r"""Sparse autoencoder: a dictionary of directions (atoms), few of which add up to each sample.

    .. math:: x \approx \mu + \sum_j z_j d_j, \qquad z = \mathrm{gate}(W (x - \mu) + b) \ge 0, \qquad
              \lVert d_j \rVert = 1

    The encoder finds the activations z in one pass, and a gate keeps few of them. Samples are centred and scaled by one
    number, the encoder is initialised as the transpose of the decoder, and a dead feature is revived as the residual of
    a sample that is badly reconstructed. Several seeds can be trained on the same batches (`n_seeds`); `agreement` then
    says which atoms they all find.

    **Supported claims.** No theorem covers these gates: it cannot be claimed that atoms are features of the model, or
    that activations are the sparsest. What can be reported is the explained variance, and how well seeds agree,
    compared with chance.

    Parameters
    ----------
    n_components : int or None
        Number of atoms; more than features of X, if there is superposition. None takes four per feature of X, and at
        most one per ten samples.
    gate : Gate
        Which features are active, of `pindown.networks.gates`: ``TopK(k)``, ``BatchTopK(k)``, ``Matryoshka(k)``,
        ``JumpReLU(k)`` or ``L1(weight)``.
    n_seeds : int
        Dictionaries that are trained side by side. The first is the fit; `agreement` compares it with the others.
    revive : bool
        Whether dead features are revived, during the first three quarters of the steps. It helps if features fire about
        equally often. If most are rare, it may cost more than it gains. If few directions dominate X, as in activations
        with outlier features, nothing is revived, and a warning says so.
    sparse_output : bool
        Whether `transform` returns a scipy csr array. Then no matrix of samples × atoms is formed.
    learning_rate : float
        The most that an atom rotates in a step, in radians, at the peak of a cosine schedule.
    batch_size, max_iter, trainer, device, verbose, random_state
        See `pindown.training.TrainingParameters`. By default 1,024 samples per step, no weight decay, and Adam with the
        learning rate as an angle.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The atoms, of unit length.
    mean_ : ndarray of shape (n_features,)
        The mean that is subtracted from samples.
    objective_ : torch.nn.Module
        What was minimised, with the dictionaries of all seeds.
    held_out_ : HeldOut or None
        Explained variance on the validation set and on training samples. None without a validation set.
    encoder_, loss_curve_, n_iter_
        See `Contrast`.

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
    >>> simulation = Superposed.overcomplete(64, 32, n_active=3, random_state=0)
    >>> x = simulation.sample(10_000, random_state=1).x
    >>> sparse = Sparse(64, gate=TopK(3), batch_size=256, max_iter=300, random_state=0).fit(x)
    >>> pw_mcc(sparse.components_, simulation.truth) > 0.9 > 0.5 > chance_pw_mcc(64, 32)
    True
    """

    spec = SparseSpec()

    n_components: int | None = None
    _: KW_ONLY
    gate: Gate = TopK()  # noqa: RUF009 (a frozen value)
    n_seeds: int = 1
    revive: bool = True
    sparse_output: bool = False
    learning_rate: float | None = 0.08

    def partial_fit(self, X: DataLike, y: ArrayOrTensor | None = None) -> Self:
        """Train on more samples: one pass at the full learning rate. See `fit` for what X may be.

        The first call sets mean and unit. After `fit`, or on an estimator that was loaded, training starts again.
        """
        self._partial_fit(X, {})
        assert isinstance(self.objective_, Seeds)
        for each in self.objective_.dictionaries:
            each.revive_until = None  # the number of calls is not known
        return self

    def transform(self, X: DataLike) -> Encoded:
        """Return feature activations; numpy in, numpy out; torch in, torch out; a csr array if ``sparse_output``."""
        return self.transform_sparse(X) if self.sparse_output else super().transform(X)

    def transform_sparse(self, X: DataLike) -> csr_array:
        """Return feature activations of X, an array or a source, as a scipy csr array (n_samples, n_components)."""
        check_is_fitted(self)
        X = X.X if isinstance(X, Data) else X
        blocks = [self._validated(X, reset=False)] if is_in_memory(X) else self._blocks(X)
        parts = [encode_sparse(self.encoder_, torch.as_tensor(x)).astype(x.dtype, copy=False) for x in blocks]
        return csr_array(vstack(parts, format="csr"))

    def score(self, X: DataLike, y: ArrayOrTensor | None = None) -> float:
        """Return the explained variance, 1 − FVU; 0 is that of the mean."""
        check_is_fitted(self)
        array = self._validated(X, reset=False)
        return 1 - fvu(array, self._reconstruct(self.transform_sparse(array)))

    def agreement(self, X: DataLike | None = None) -> SeedAgreement:
        """Return how well the dictionaries of the seeds agree, compared with chance.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features), optional
            Samples in which firing is counted: agreement is then also given by firing frequency.
        """
        check_is_fitted(self)
        if self.n_seeds < 2:
            raise InputError(
                "n_seeds", "Sparse: agreement needs several seeds. Fit with n_seeds=2 or more, or use pindown.audit."
            )
        assert isinstance(self.objective_, Seeds)
        dictionaries = [each.atoms.detach().cpu().numpy() for each in self.objective_.dictionaries]
        return compare_seeds(dictionaries, None if X is None else firing(self.transform_sparse(X)))

    def to_saelens(self, folder: str | Path) -> Path:
        """Write ``cfg.json`` and ``sae_weights.safetensors`` to a folder, as SAELens reads them; return the folder.

        ``SAE.load_from_disk(folder)`` then encodes to the same activations. Of several seeds the first is written.
        """
        check_is_fitted(self)
        return saelens.write(self, folder)

    @classmethod
    def from_saelens(cls, folder: str | Path) -> Self:
        """Return a fitted estimator from a folder that SAELens wrote: top-k, JumpReLU and standard dictionaries.

        The folder has ``cfg.json`` and ``sae_weights.safetensors``. Atoms keep the lengths that they have there.
        """
        return saelens.read(cls(), folder)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_scalar(self.n_seeds, "n_seeds", numbers.Integral, min_val=1)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        others = [SparseAutoencoder(self.n_features_in_, summary.n_components) for _ in range(self.n_seeds - 1)]
        until = revival_samples(self.max_iter, batches)
        assert isinstance(summary, SparseSummary)
        for each in (autoencoder_of(encoder), *others):
            each.configure(self.gate, encoder.preprocess.rescaling.scale, revive=summary.revive, revive_until=until)
        return Seeds(encoder, others)


# ---- as many atoms as dimensions ------------------------------------------------------------------------------------


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


@dataclass(eq=False, repr=False)
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

    n_components: int | None = None
    _: KW_ONLY
    learning_rate: float | None = 0.05

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
