"""Preprocessing: the fixed first layer of an encoder, fitted to the data before training.

An estimator takes one of the functions of this module (`whiten`, `standardise`, …) as its ``preprocess`` and calls it
with the source of the samples. It returns a `Preprocessing`, which knows the shape of a sample before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from pindown._names import counted
from pindown.data import Source, moments
from pindown.errors import InputError
from pindown.networks.spectrum import (
    CONSTANT,
    MAX_DIRECTIONS,
    MAX_FEATURES,
    SAMPLES_PER_FEATURE,
    constant_samples,
    leading_directions,
    spectrum,
)

FAINT = 1e-2
"""Directions with a smaller standard deviation, relative to the largest, count as noise and are not scaled up."""

PRIOR_SAMPLES = 10.0
"""Strength of the shrinkage for supervised methods, chosen on splits of breast cancer that are not reported."""


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
    >>> from pindown.data import ArraySource
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

    The spectrum of the standardised features gives their number, so that units do not matter: see
    `pindown.networks.spectrum`. Images and sequences are flattened. For few samples with many features, the directions
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

    >>> from pindown.data import ArraySource
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
    >>> from pindown.data import ArraySource
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
    >>> from pindown.data import ArraySource
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
    >>> from pindown.data import ArraySource
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
    >>> from pindown.data import ArraySource
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
    >>> from pindown.data import ArraySource
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
    >>> from pindown.data import ArraySource
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
