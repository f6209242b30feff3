"""Preprocessing: the fixed first layer of an encoder, fitted to the data before training; and the spectrum of samples.

An estimator takes one of the functions of this module (`whiten`, `standardise`, …) as its ``preprocess`` and calls it
with the source of the samples. It returns a `Preprocessing`, which knows the shape of a sample before and after it.

`spectrum` finds the principal directions of samples, and how many of them are more than noise. Features are
standardised, so that units do not matter. Independent noise of the features then shows as a bulk of trailing
directions. Random matrix theory gives the largest variance of such a bulk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from pindown import _random
from pindown._names import counted
from pindown.data import ArraySource, IndexedSource, Source, moments
from pindown.data.sources import as_tensor, some_blocks
from pindown.errors import InputError
from pindown.metrics.arrays import Mask, Matrix, largest_positive

Vector = NDArray[np.float64]

MAX_FEATURES = 4_096  # samples or features, whichever are fewer, up to which all directions are computed
MAX_DIRECTIONS = 1_000  # leading directions that are computed beyond
DUAL_NUMBERS = 1 << 26  # numbers of samples (n, d), n < d, up to which directions come from the n × n Gram matrix
OVERSAMPLING, PASSES = 10, 3  # of the subspace iteration: additional directions and passes, for accurate last ones
MIN_VARIANCE = 1e-10  # variance, relative to the largest, up to which a direction holds only the rounding of float32
CONSTANT = 1e-12  # standard deviation, relative to the mean, up to which a feature is constant but for rounding
SAMPLES_PER_DIRECTION = 5  # samples that a direction needs at least
SAMPLES_PER_FEATURE = 100  # from which training separates signal from noise
MIN_BULK = 20  # minimum number of directions in a bulk of noise, which also has at least half of all directions
DECAY = 0.3  # mean logarithm of a bulk's variances below that of noise from which it falls too far (noise: .01 to .2)
DEVIATIONS = 4.0  # standard deviations of the edge by which a direction must exceed a bulk of noise
FAINT = 1e-2  # standard deviation, relative to the largest, below which a direction counts as noise
PRIOR_SAMPLES = 10.0  # shrinkage for supervised methods, chosen on splits of breast cancer that are not reported


class Preprocessing(nn.Module):
    """A map of observations that is fixed before training; abstract."""

    mean: Tensor  # float64, since an offset may be far larger than the standard deviation
    shape_in: tuple[int, ...]
    shape_out: tuple[int, ...]
    note: str = ""  # what was done to the observations, and why, in one sentence

    @property
    def rescaling(self) -> Rescale:
        """The part that acts on each feature alone; of a linear preprocessing only."""
        raise NotImplementedError

    @property
    def linear_map(self) -> Tensor:
        """The matrix (d, k) that multiplies rescaled features, in float64; of a linear preprocessing only."""
        raise NotImplementedError


class Rescale(Preprocessing):
    """Subtract a mean and divide by a scale; the shape stays.

    Parameters
    ----------
    mean
        Mean of samples, or a tensor that broadcasts to their shape: (d,), (c, 1, 1) for images, (c,) for sequences
        (t, c).
    scale
        A tensor like the mean, or a single number; its precision is that of the output. None is 1.
    shape
        Shape of a sample; None is that of the mean.

    Examples
    --------
    >>> Rescale(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))(torch.tensor([[2.0, 4.0]]))
    tensor([[1., 1.]])
    """

    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor | None = None, shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.shape_in = self.shape_out = tuple(mean.shape if shape is None else shape)
        self.register_buffer("mean", mean.double().contiguous())
        self.register_buffer("scale", torch.ones((), device=mean.device) if scale is None else scale.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """Rescale (n, …)."""
        exact = torch.promote_types(x.dtype, self.scale.dtype)  # float64 would double the memory of images
        return (x.to(exact) - self.mean.to(exact)).to(self.scale.dtype) / self.scale

    @property
    def rescaling(self) -> Rescale:
        """The layer itself."""
        return self

    @property
    def linear_map(self) -> Tensor:
        """The identity."""
        return torch.eye(math.prod(self.shape_in), dtype=torch.float64, device=self.mean.device)


class Whiten(Preprocessing):
    """Centre the data and scale their directions to unit variance; images are flattened.

    With a scale, features are divided by it first, so that their units do not matter. Directions below a hundredth of
    the largest standard deviation are treated as noise and not scaled up. All others have the same weight. If most of
    them are faint, such as pixels that are nearly always empty, keep leading principal components only, as
    ``partial(whiten, n_components=50)`` does.

    Samples that have the output shape already pass unchanged: training on wide data can then read whitened samples.

    Parameters
    ----------
    mean
        Mean of the flattened samples; (d,).
    matrix
        Directions divided by their standard deviation, one per column; (d, k).
    shape
        Shape of a sample; None is (d,).
    scale
        Standard deviation of each feature, (d,); None leaves the features in their units.
    note
        What was done, and why.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> Whiten(x.mean(0), torch.diag(1 / x.std(0, correction=0)))(x)[0]
    tensor([-1., -1.])
    """

    matrix: Tensor
    scale: Tensor | None

    def __init__(
        self,
        mean: Tensor,
        matrix: Tensor,
        shape: tuple[int, ...] | None = None,
        *,
        scale: Tensor | None = None,
        note: str = "",
    ) -> None:
        super().__init__()
        self.shape_in, self.shape_out = tuple(mean.shape if shape is None else shape), (matrix.shape[1],)
        self.note = note
        self.register_buffer("mean", mean.double().contiguous())
        self.register_buffer("scale", None if scale is None else scale.double().contiguous())
        self.register_buffer("matrix", matrix.contiguous())  # as files store it: see tests/test_networks_layout.py

    def forward(self, x: Tensor) -> Tensor:
        """Whiten (n, …); (n, k)."""
        if x.shape[1:] == self.shape_out != self.shape_in:
            return x.to(self.matrix.dtype)
        centred = x.flatten(1) - self.mean
        return (centred if self.scale is None else centred / self.scale).to(self.matrix.dtype) @ self.matrix

    @property
    def rescaling(self) -> Rescale:
        """The part that acts on each feature alone."""
        return Rescale(self.mean, None if self.scale is None else self.scale.to(self.matrix.dtype))

    @property
    def linear_map(self) -> Tensor:
        """The matrix that multiplies rescaled features."""
        return self.matrix.double()


Preprocess = Callable[[Source], Preprocessing]  # what estimators take as ``preprocess``


def whiten(source: Source, *, n_components: int | None = None) -> Whiten:
    """Return a preprocessing that centres samples and scales their directions to unit variance, largest first.

    Images and sequences are flattened. Up to 4,096 features, the whole covariance is computed. For more features at
    most 1,000 leading directions are kept, and fewer than samples: see `leading_directions`.

    Parameters
    ----------
    source : Source
        The samples.
    n_components : int or None
        Maximum number of directions; None keeps all up to 4,096 features, 1,000 beyond.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> torch.cov(whiten(ArraySource(x))(x).T, correction=0).round(decimals=3).abs()
    tensor([[1., 0.],
            [0., 1.]])
    """
    _check_n_components(n_components)
    if math.prod(source.shape) > MAX_FEATURES:
        leading = leading_directions(source, n_components or MAX_DIRECTIONS)
        return Whiten(leading.mean, _divided(leading.directions, leading.variance), source.shape)
    found = moments(source)
    if found.covariance is None or not found.covariance.any():
        raise constant_samples()
    variance, directions = torch.linalg.eigh(found.covariance)
    return Whiten(found.mean, _divided(directions, variance).flip(1)[:, :n_components], source.shape)


def whiten_signal(source: Source, *, n_components: int | None = None, prior_samples: float = 0.0) -> Whiten:
    """Return a preprocessing that standardises features and scales the directions above noise to unit variance.

    The spectrum of the standardised features gives their number, so that units do not matter: see `spectrum`.
    Images and sequences are flattened. For few samples with many features, the directions
    are computed from the Gram matrix of the samples; for many with many, by `leading_directions`.

    Parameters
    ----------
    source : Source
        The samples.
    n_components : int or None
        Number of leading directions to keep instead of those above noise.
    prior_samples : float
        Strength of the shrinkage: this many samples of independent features per kept direction are added to the
        covariance, so that faint directions are scaled up less if samples are few. There is no shrinkage from a hundred
        samples per feature on.

    Examples
    --------
    Two latents behind forty noisy features, whose units differ by up to a million:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 40)) + rng.normal(size=(200, 40))
    >>> [whiten_signal(ArraySource(x * units)).shape_out for units in (1, np.logspace(-3, 3, 40))]
    [(2,), (2,)]
    """
    _check_n_components(n_components)
    found = spectrum(source, max_directions=n_components or MAX_DIRECTIONS)
    if not len(found.variances):
        raise constant_samples()
    kept, note = found.n_kept, found.account
    if n_components is not None:
        kept = min(n_components, len(found.variances))
        note = f"{counted(kept, 'leading direction')} of the standardised features kept, as requested."
    varies = np.isfinite(found.scale)
    plenty = found.n_samples >= SAMPLES_PER_FEATURE * int(varies.sum())
    variances = found.variances[:kept] + (0.0 if plenty else prior_samples * kept / found.n_samples)
    matrix = _divided(torch.as_tensor(found.directions[:, :kept].copy()), torch.as_tensor(variances))
    matrix[torch.as_tensor(~varies)] = 0
    scale = torch.as_tensor(np.where(varies, found.scale, 1.0))
    return Whiten(torch.as_tensor(found.mean), matrix, source.shape, scale=scale, note=note)


def standardise(source: Source) -> Rescale:
    """Return a preprocessing with zero mean and unit variance per feature, or per channel of images and sequences.

    The channel is the first axis of an image (c, h, w), the last of a sequence (t, c). Constant features become zero.

    Examples
    --------
    >>> images = torch.tensor([[0.0, 2.0], [4.0, 5.0]]).reshape(2, 2, 1, 1).expand(2, 2, 8, 8)
    >>> standardise(ArraySource(images))(images)[:, :, 0, 0]
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """
    mean, variance = _channel_moments(source)
    varies = variance.sqrt() > CONSTANT * mean.abs()
    if not varies.any():
        raise constant_samples()
    return Rescale(mean, torch.where(varies, variance.sqrt(), 1.0).float(), source.shape)


def centre(source: Source) -> Rescale:
    """Return a preprocessing that subtracts the mean per feature, or per channel of images and sequences.

    Examples
    --------
    >>> centre(ArraySource([[1.0], [3.0]]))(torch.tensor([[3.0]]))
    tensor([[1.]])
    """
    return Rescale(_channel_moments(source)[0], None, source.shape)


def common_scale(source: Source) -> Rescale:
    """Return a preprocessing that centres features and divides all by one number, which keeps angles.

    The number is the root mean square of the standard deviations: the mean squared norm of a sample becomes the number
    of features.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 7.0], [2.0, 7.0], [0.0, 7.0], [2.0, 7.0]])
    >>> common_scale(ArraySource(x))(x)[:2].round(decimals=3)
    tensor([[-1.4140,  0.0000],
            [ 1.4140,  0.0000]])
    """
    mean, variance = _channel_moments(source)
    size = variance.mean().sqrt()
    if not size > CONSTANT * mean.abs().max():
        raise constant_samples()
    return Rescale(mean, size.float(), source.shape)


def nothing(source: Source) -> Rescale:
    """Return a preprocessing that only changes the precision, for networks with their own preprocessing.

    Examples
    --------
    >>> nothing(ArraySource([[1.0], [3.0]]))(torch.tensor([[3.0]], dtype=torch.float64))
    tensor([[3.]])
    """
    axis = _channel_axis(source.shape)
    return Rescale(_by_channel(torch.zeros(source.shape[axis or 0]), source.shape), None, source.shape)


def default_preprocessing(source: Source, *, prior_samples: float = 0.0) -> Preprocessing:
    """Return the default preprocessing: `whiten_signal` for vectors, `standardise` for images and sequences.

    Images and sequences keep their shape, since convolutions need neighbouring pixels.

    Examples
    --------
    >>> shapes = (24,), (6, 4), (2, 3, 4)
    >>> [type(default_preprocessing(ArraySource(torch.eye(24).reshape(24, *shape)))).__name__ for shape in shapes]
    ['Whiten', 'Rescale', 'Rescale']
    """
    return whiten_signal(source, prior_samples=prior_samples) if len(source.shape) == 1 else standardise(source)


def tempered(source: Source) -> Preprocessing:
    """Return the default preprocessing of supervised methods, which shrinks faint directions if samples are few.

    Scaled to unit variance, a faint direction separates classes as well as any other; with few samples it does so by
    chance. So `whiten_signal` is used with ``prior_samples=10``.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(400, 4)) * [1, 1, 1, 1e-3] + [[0], [1]] * 200
    >>> sources = ArraySource(x[:60]), ArraySource(np.tile(x, (4, 1)))
    >>> [bool(np.allclose(default_preprocessing(a).linear_map, tempered(a).linear_map)) for a in sources]
    [False, True]
    """
    return default_preprocessing(source, prior_samples=PRIOR_SAMPLES)


def fitted(owner: str, preprocess: object, source: Source) -> Preprocessing:
    """Return ``preprocess(source)``, or raise in the name of the estimator `owner` if it is not a `Preprocessing`."""
    layer = preprocess(source) if callable(preprocess) else preprocess
    if not callable(preprocess) or not isinstance(layer, Preprocessing):
        wanted = "a function that returns a networks.Preprocessing, such as preprocessing.whiten"
        raise TypeError(f"{owner}: preprocess must be {wanted}, got {layer!r}.")
    return layer


def _divided(directions: Tensor, variance: Tensor) -> Tensor:
    """Return directions (d, k), one per column, divided by their standard deviations; faint ones are not scaled up."""
    return (directions / variance.clamp_min(FAINT**2 * variance.max()).sqrt()).float()


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return the channel axis of a sample; None for vectors."""
    return {1: None, 2: -1}.get(len(shape), 0)


def _channel_moments(source: Source) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each feature or channel, in a shape that broadcasts to samples."""
    found = moments(source, covariance=False, channel=_channel_axis(source.shape))
    return _by_channel(found.mean, source.shape), _by_channel(found.variance, source.shape)


def _by_channel(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return values.reshape(-1, *[1] * (len(shape) - 1)) if _channel_axis(shape) == 0 else values


def _check_n_components(n_components: int | None) -> None:
    if n_components is not None and n_components < 1:
        raise InputError("n_components", f"`n_components` must be at least 1, got {n_components}.")


# ---- the spectrum of samples -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Principal directions of standardised features, largest variance first, and how many are more than noise."""

    mean: Vector  # (n_features,)
    scale: Vector  # (n_features,), standard deviations; infinity for a constant feature, which then has no influence
    directions: Matrix  # (n_features, k), orthonormal columns, each with its largest entry positive
    variances: Vector  # (k,), of the standardised features along the directions
    n_samples: int
    n_signal: int  # directions above a bulk of noise; all directions if there is no such bulk
    n_kept: int  # directions that a fit should use: all if samples are plenty, and at most one per five samples
    noise: Vector  # (n_features,), estimated noise variance of standardised features; zeros without a bulk of noise
    account: str  # one sentence about what is kept, and why

    def coordinates(self, X: ArrayLike, n_components: int | None = None) -> Matrix:
        """Return standardised samples along the kept directions, or along `n_components` leading ones."""
        kept = self.directions[:, : self.n_kept if n_components is None else n_components]
        return ((np.asarray(X, dtype=np.float64) - self.mean) / self.scale) @ kept


def spectrum(X: ArrayLike | Source, *, max_directions: int = MAX_DIRECTIONS) -> Spectrum:
    r"""Return the directions of standardised features, and how many are more than noise.

    Directions are tested in turn, as in deterministic parallel analysis (Dobriban and Owen, 2019): if what k directions
    leave is noise of variance :math:`\psi_j` in feature j, its largest variance is about the edge of the
    Marchenko–Pastur law for these variances. The signal ends at the first k whose next direction does not exceed it, if
    at least twenty directions, and half of all, are left, and their variances do not keep falling: the logarithm of
    their determinant is that of noise. The test is blind to noise that features share. It takes for noise what features
    do not share: independent latents of equal variance, one per feature.

    With more than 4,096 features at most `max_directions` are found. Samples of a source are flattened.

    Examples
    --------
    Three latents behind sixty noisy features, in any units:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 60)) + rng.normal(size=(300, 60))
    >>> spectrum(x).n_kept, spectrum(x * np.logspace(-3, 3, 60)).n_kept
    (3, 3)
    >>> print(spectrum(x).account)
    3 of 60 directions of the standardised features are kept: the other 57 vary no more than independent noise would.
    """
    source = X if isinstance(X, Source) else ArraySource(np.asarray(X, dtype=np.float64))
    n_features = math.prod(source.shape)
    most = min(n_features - 1, MAX_FEATURES, DUAL_NUMBERS // n_features if isinstance(X, Source) else MAX_FEATURES)
    few = source if isinstance(source, IndexedSource) and source.n_samples <= most else None
    found = moments(source, covariance=few is None and n_features <= MAX_FEATURES)
    mean, n = found.mean.numpy(), found.n
    spread = found.variance.sqrt().numpy()
    scale = np.where(spread > CONSTANT * np.abs(mean), spread, np.inf)
    if few is not None:
        x = (as_tensor(few.take(np.arange(n))["x"]).cpu().flatten(1).double().numpy() - mean) / scale
        variances, left = (part[..., ::-1][..., : n - 1] for part in np.linalg.eigh(x @ x.T / n))
        varies = variances > MIN_VARIANCE * max(variances[:1], default=0.0)
        directions = x.T @ (left[:, varies] / np.sqrt(n * variances[varies]))
        return spectrum_of_directions(mean, scale, directions, variances[varies], n)
    if found.covariance is not None:
        return spectrum_of_correlation(mean, scale, found.covariance.numpy() / scale / scale[:, None], n)
    leading = leading_directions(source, max_directions, scale=torch.as_tensor(scale))
    return spectrum_of_directions(mean, scale, leading.directions.double().numpy(), leading.variance.numpy(), n)


def spectrum_of_correlation(mean: Vector, scale: Vector, correlation: Matrix, n_samples: int) -> Spectrum:
    """Return the spectrum of samples from the correlation of their features."""
    variances, directions = (part[..., ::-1] for part in np.linalg.eigh(correlation))
    found = variances > MIN_VARIANCE * max(variances[:1], default=0.0)
    found[max(n_samples - 1, 1) :] = False
    return spectrum_of_directions(mean, scale, directions[:, found], variances[found], n_samples)


def spectrum_of_directions(
    mean: Vector, scale: Vector, directions: Matrix, variances: Vector, n_samples: int
) -> Spectrum:
    """Return the spectrum of samples from all or the leading directions of their standardised features."""
    directions = largest_positive(directions.T).T
    varies = np.isfinite(scale)
    n_features = int(varies.sum())
    n_beyond, noise = _beyond_noise(directions, variances, varies, n_samples)
    n_all, most = len(variances), min(n_samples - 1, n_features)
    seen = n_beyond > 0 and most - n_beyond >= max(MIN_BULK, n_beyond)
    seen = seen and not (n_all == most and _falls(variances[n_beyond:], noise[varies], n_samples))
    n_signal = n_beyond if seen else n_all
    plenty = n_samples >= SAMPLES_PER_FEATURE * n_features
    n_kept = min(n_all if plenty else n_signal, max(1, n_samples // SAMPLES_PER_DIRECTION))
    of = f"of {counted(n_all, 'direction')} of the standardised features {'is' if n_kept == 1 else 'are'} kept"
    if n_kept == n_all:
        why = f": there are {n_samples // n_features} samples per feature" if seen else ""
        account = f"all {of.removeprefix('of ')}{why}."
    elif seen and n_kept == n_beyond:
        account = f"{n_kept} {of}: the other {n_all - n_kept} vary no more than independent noise would."
    else:
        doubt = "" if n_beyond else ", and none stands out of what independent noise would be"
        account = f"{n_kept} {of}: {n_samples} samples support no more{doubt}."
    noise = noise if seen and n_beyond < n_all else np.zeros(len(scale))
    return Spectrum(mean, scale, directions, variances, n_samples, n_signal, n_kept, noise, account)


def _beyond_noise(directions: Matrix, variances: Vector, varies: Mask, n: int) -> tuple[int, Vector]:
    """Return the number of directions above independent noise of the features, and the variance of that noise."""
    left = varies.astype(np.float64)  # variance of each feature that the directions so far do not explain
    free = np.ones(len(left))  # fraction of each feature's axis that is not in their span
    n_features = int(varies.sum())
    noise = left
    for k, variance in enumerate(variances):
        noise = np.where(varies, left.clip(0) / free.clip(1e-9) / (1 - k / n), 0.0)
        if variance <= edge(noise[varies], n_features - k, n):
            return k, noise
        left = left - variance * directions[:, k] ** 2
        free = free - directions[:, k] ** 2
    return len(variances), noise


def _falls(bulk: Vector, noise: Vector, n: int) -> bool:
    r"""Return whether the variances of a bulk fall further than those of noise with such variances in its features.

    With γ < 1 features per sample the mean logarithm of the variances of noise is :math:`\overline{\log \psi} - 1 -
    \tfrac{1 - \gamma}{\gamma} \log(1 - \gamma)` (Bai and Silverstein, 2004); for γ > 1 the two change places.
    """
    n_features, n_samples = len(noise), n - 1
    n_features, n_samples = n_features - (k := min(n_features, n_samples) - len(bulk)), n_samples - k
    many = n_features > n_samples
    ratio = min(n_features, n_samples) / max(n_features, n_samples)
    own = np.log(noise.mean() * n_features / n_samples) if many else np.log(noise.clip(1e-300)).mean()
    expected = own - 1 - ((1 - ratio) / ratio * np.log1p(-ratio) if ratio < 1 else 0.0)
    return bool(np.log(bulk).mean() < expected - DECAY)


def edge(noise: Vector, n_features: int, n_samples: int) -> float:
    r"""Return the edge of the spectrum of pure noise with variance ψ of each feature.

    With γ features per sample, :math:`\min_{0 < t < 1} \psi_{\max} / t + \gamma\,\overline{\psi / (1 - t \psi /
    \psi_{\max})}` (Silverstein and Choi, 1995), and some standard deviations of the Tracy–Widom law beyond.

    For equal variances it is (1 + √γ)², here (1 + 1/2)² = 2.25, and a little more for finite samples:

    >>> round(edge(np.ones(250_000), 250_000, 1_000_000), 2)
    2.25
    """
    largest = float(noise.max(initial=0.0))
    if largest <= 0 or n_features < 1:
        return 0.0
    relative, ratio = noise / largest, n_features / n_samples
    found = minimize_scalar(
        lambda t: 1 / t + ratio * np.mean(relative / (1 - t * relative)), bounds=(1e-6, 1 - 1e-6), method="bounded"
    )
    across = n_samples**-0.5 + n_features**-0.5
    deviation = across ** (1 / 3) / (n_samples**0.5 + n_features**0.5)
    return float(largest * found.fun * (1 + DEVIATIONS * deviation))


class PrincipalDirections(NamedTuple):
    """Orthonormal directions of flattened samples, largest variance first."""

    mean: Tensor  # (d,) float64
    directions: Tensor  # (d, k) float32, one per column
    variance: Tensor  # (k,) float64


def leading_directions(source: Source, k: int, *, scale: Tensor | None = None) -> PrincipalDirections:
    r"""Return at most k principal directions of a source whose features are too many for a covariance.

    With a ``scale`` (d,), features are divided by it first; infinity leaves a feature out.

    Subspace iteration from a fixed random initialisation (Halko, Martinsson and Tropp, 2011): each pass multiplies by
    the covariance :math:`C = \tfrac1n \sum_i (x_i - \mu)(x_i - \mu)^\top`, block by block, and a last pass finds the
    directions within the resulting subspace. Memory holds a few times k + 10 vectors of d numbers, never d × d.
    Directions without variance are left out, so that there are always fewer directions than samples.
    """
    first = moments(source, covariance=False)
    # Squares of data in very large or small units would leave the range of float32.
    unit = first.variance.mean().sqrt() if scale is None else scale
    if not (unit > 0).all():
        raise constant_samples()

    def centred() -> Iterator[Tensor]:
        for _, batch in some_blocks(source, None):
            yield (as_tensor(batch["x"]).cpu().flatten(1) - first.mean).div_(unit).float()

    width = min(k + OVERSAMPLING, first.n, len(first.mean))
    basis = torch.randn(len(first.mean), width, generator=_random.generator(0))
    for _ in range(PASSES):
        image = torch.zeros_like(basis)
        for samples in centred():
            image.addmm_(samples.mT, samples @ basis)
        basis = torch.linalg.qr(image).Q
    within = torch.zeros(width, width, dtype=torch.float64)
    for samples in centred():
        coordinates = (samples @ basis).double()
        within.addmm_(coordinates.mT, coordinates, alpha=1 / first.n)
    variance, rotation = (part.flip(-1) for part in torch.linalg.eigh(within))  # largest first
    kept = min(k, first.n - 1, int((variance > MIN_VARIANCE * variance[0]).sum()))
    size = unit**2 if scale is None else 1.0
    return PrincipalDirections(first.mean, basis @ rotation[:, :kept].float(), size * variance[:kept])


def constant_samples() -> InputError:
    """Return the error about samples without variance."""
    return InputError("X", "All samples of X are equal, so there is nothing to learn. Check that the array is right.")
