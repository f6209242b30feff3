"""Fixed first layers: what an encoder does to observations before its network sees them, as functions of a source.

An estimator takes one of these functions as its ``preprocess`` and calls it with the source of the observations. What
comes back is a module without parameters that knows the shape of a row before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import _random
from pindown._counts import log_counts
from pindown._names import counted
from pindown.metrics.spectrum import (
    EXACT,
    MOST,
    ROWS_PER_COLUMN,
    Spectrum,
    of_correlation,
    of_directions,
    spectrum,
    usable_scale,
)
from pindown.networks.first_layers import Decorrelate, FirstLayer, Rescale, Whiten, scaled, whitening
from pindown.networks.principal import leading_directions
from pindown.sources import Indexed, Source, as_tensor, moments

MOST_COLUMNS, MOST_DIRECTIONS = EXACT, MOST
"""Columns up to which their whole covariance is formed; and directions that are looked for beyond."""

DUAL_NUMBERS = 1 << 26
"""Numbers that are taken into memory at most, to find the directions of few rows with many columns from the rows."""

CONSTANT = 1e-12
"""Spread, relative to the mean, up to which numbers are one number and its rounding."""


PRIOR_ROWS = 10.0
"""Rows of independent columns for each direction, beside which labels are learned from few rows. On other splits of
breast cancer than those reported 0, 1, 4 and 13 of them led to .942, .952, .959 and .963 of rows recognised."""

Preprocess = Callable[[Source], FirstLayer]
"""What estimators take as ``preprocess``."""


def whiten(source: Source, *, n_components: int | None = None, random_state: _random.RandomState = 0) -> Whiten:
    """Return a first layer that centres rows and gives their directions unit variance, the most variable first.

    Images and sequences are laid out as vectors. Up to 4,096 columns the covariance is taken whole. Wider rows keep at
    most 1,000 leading directions, and never more than the rows have, found by a few passes over the source:
    see `pindown.networks.principal.leading_directions`.

    Parameters
    ----------
    source : Source
        The rows.
    n_components : int or None
        Number of directions to keep at most; None keeps all up to 4,096 columns, 1,000 beyond.
    random_state : int, numpy.random.RandomState, torch.Generator or None
        Where the search in wide rows begins.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> whiten(Arrays(x))(x).abs()
    tensor([[1., 1.],
            [1., 1.],
            [1., 1.],
            [1., 1.]])
    """
    if n_components is not None and n_components < 1:
        raise ValueError(f"whiten: n_components must be at least 1, got {n_components}.")
    n_columns = math.prod(source.shape)
    if n_columns > MOST_COLUMNS:
        leading = leading_directions(source, n_components or MOST_DIRECTIONS, random_state=random_state)
        return Whiten(leading.mean, scaled(leading.variance, leading.directions), source.shape)
    found = moments(source)
    assert found.covariance is not None
    if not found.covariance.any():
        raise ValueError(
            "whiten: all rows of x are the same, so that there is nothing to learn from. Was the right array read?"
        )
    return Whiten(found.mean, whitening(found.covariance)[:, :n_components], source.shape)


def beyond_noise(
    source: Source, *, n_components: int | None = None, prior_rows: float = 0.0, random_state: _random.RandomState = 0
) -> Decorrelate:
    """Return a first layer that standardises columns and gives the directions beyond noise unit variance.

    How many these are is read off the spectrum of the standardised columns, so that no unit matters:
    see `pindown.metrics.spectrum`. Images and sequences are laid out as vectors. Of few rows with many columns the
    directions are found from the rows; of many with many, leading ones by a few passes over the source.

    Parameters
    ----------
    source : Source
        The rows.
    n_components : int or None
        Number of leading directions to keep, in place of those beyond noise.
    prior_rows : float
        Rows, for each direction that is kept, of independent columns that are thought of beside those of the source:
        the fewer rows there are, the less are faint directions blown up. Of a hundred rows per column none are.
    random_state : int, numpy.random.RandomState, torch.Generator or None
        Where the search for leading directions begins.

    Examples
    --------
    Two latents behind forty noisy columns, whose units differ by up to a million:

    >>> from pindown.sources import Arrays
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 40)) + rng.normal(size=(200, 40))
    >>> [beyond_noise(Arrays(x * units)).shape_out for units in (1, np.logspace(-3, 3, 40))]
    [(2,), (2,)]
    >>> print(beyond_noise(Arrays(x)).note)
    2 of 40 directions of the standardised columns are kept: the other 38 vary no more than noise of columns would.
    """
    if n_components is not None and n_components < 1:
        raise ValueError(f"beyond_noise: n_components must be at least 1, got {n_components}.")
    found = _spectrum(source, n_components or MOST_DIRECTIONS, random_state)
    if not len(found.variances):
        raise ValueError(
            "All rows of x are the same, so that there is nothing to learn from. Was the right array read?"
        )
    kept, note = found.n_kept, found.account
    if n_components is not None:
        kept = min(n_components, len(found.variances))
        note = f"{counted(kept, 'leading direction')} of the standardised columns kept, as asked."
    varies = np.isfinite(found.scale)
    plenty = found.n_rows >= ROWS_PER_COLUMN * int(varies.sum())
    variances = found.variances[:kept] + (0.0 if plenty else prior_rows * kept / found.n_rows)
    matrix = scaled(torch.as_tensor(variances), torch.as_tensor(found.directions[:, :kept].copy()))
    matrix[torch.as_tensor(~varies)] = 0
    scale = torch.as_tensor(np.where(varies, found.scale, 1.0))
    return Decorrelate(torch.as_tensor(found.mean), scale, matrix, source.shape, note)


def _spectrum(source: Source, most: int, random_state: _random.RandomState) -> Spectrum:
    """Return the spectrum of a source's standardised columns, by what its rows and columns allow."""
    n_columns = math.prod(source.shape)
    if isinstance(source, Indexed) and source.n_rows < min(n_columns, EXACT, DUAL_NUMBERS // n_columns):
        moments(source, covariance=False)  # which says what is wrong with a row
        return spectrum(as_tensor(source.take(np.arange(source.n_rows))["x"]).cpu().flatten(1).numpy())
    found = moments(source, covariance=n_columns <= MOST_COLUMNS)
    mean = found.mean.numpy()
    scale = usable_scale(found.variance.sqrt().numpy(), mean)
    if found.covariance is not None:
        correlation = found.covariance.numpy() / scale / scale[:, None]
        return of_correlation(mean, scale, correlation, found.n)
    if not np.isfinite(scale).any():
        return of_directions(mean, scale, np.zeros((n_columns, 0)), np.zeros(0), found.n)
    leading = leading_directions(source, most, scale=torch.as_tensor(scale), random_state=random_state)
    return of_directions(mean, scale, leading.directions.double().numpy(), leading.variance.numpy(), found.n)


def standardise(source: Source) -> Rescale:
    """Return a first layer that takes the mean off and gives unit variance, per column, or per channel of images.

    The channel is the first axis of an image (c, h, w), the last of a sequence (t, c). What never varies becomes zero.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> images = torch.tensor([[0.0, 2.0], [4.0, 5.0]]).reshape(2, 2, 1, 1).expand(2, 2, 8, 8)
    >>> standardise(Arrays(images))(images)[:, :, 0, 0]
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """
    found = moments(source, covariance=False, channel=_channel(source.shape))
    varies = found.variance.sqrt() > CONSTANT * found.mean.abs()
    if not varies.any():
        raise ValueError(
            "standardise: all numbers of a column or channel are the same, in every one of them, so that there is "
            "nothing to learn from. Was the right array read?"
        )
    scale = torch.where(varies, found.variance.sqrt(), 1.0).float()
    return Rescale(_spread_out(found.mean, source.shape), _spread_out(scale, source.shape), source.shape)


def centre(source: Source) -> Rescale:
    """Return a first layer that takes the mean off, per column, or per channel of images, and nothing else.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> centre(Arrays([[1.0], [3.0]]))(torch.tensor([[3.0]]))
    tensor([[1.]])
    """
    mean = moments(source, covariance=False, channel=_channel(source.shape)).mean
    return Rescale(_spread_out(mean, source.shape), shape=source.shape)


def evenly(source: Source) -> Rescale:
    """Return a first layer that takes the mean off each column and divides all by one number: angles stay as they are.

    The number is the root mean square of the columns' spreads, so that a row has, on average, as much squared length as
    it has columns.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> x = torch.tensor([[0.0, 7.0], [2.0, 7.0], [0.0, 7.0], [2.0, 7.0]])
    >>> evenly(Arrays(x))(x)[:2].round(decimals=3)
    tensor([[-1.4140,  0.0000],
            [ 1.4140,  0.0000]])
    """
    found = moments(source, covariance=False, channel=_channel(source.shape))
    size = found.variance.mean().sqrt()
    if not size > CONSTANT * found.mean.abs().max():
        raise ValueError(
            "evenly: all rows of x are the same, so that there is nothing to learn from. Was the right array read?"
        )
    return Rescale(_spread_out(found.mean, source.shape), size.float(), source.shape)


def nothing(source: Source) -> Rescale:
    """Return a first layer that changes nothing but the precision, for networks that bring their own preprocessing.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> nothing(Arrays([[1.0], [3.0]]))(torch.tensor([[3.0]], dtype=torch.float64))
    tensor([[3.]])
    """
    channel = _channel(source.shape)
    n = math.prod(source.shape) if channel is None else source.shape[channel]
    return Rescale(_spread_out(torch.zeros(n, dtype=torch.float64), source.shape), shape=source.shape)


def suited(source: Source) -> FirstLayer:
    """Return what suits the rows: vectors are taken `beyond_noise`; images and sequences are standardised.

    These keep their shape: a convolution looks for neighbours, which a rotation of all pixels would leave none of.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> [type(suited(Arrays(torch.eye(24).reshape(24, *shape)))).__name__ for shape in ((24,), (6, 4), (2, 3, 4))]
    ['Decorrelate', 'Rescale', 'Rescale']
    """
    return beyond_noise(source) if len(source.shape) == 1 else standardise(source)


def tempered(source: Source) -> FirstLayer:
    """Return what suits rows that labels are learned from: as `suited`, but of few rows faint directions stay faint.

    A direction that hardly varies tells classes apart as well as any other, once it is blown up; in few rows it does so
    by chance. So ten rows of independent columns are thought of beside those that there are, for each direction.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> x = np.random.default_rng(0).normal(size=(400, 4)) * [1, 1, 1, 1e-3] + [[0], [1]] * 200
    >>> few, many = x[:60], np.tile(x, (4, 1))
    >>> [bool(np.allclose(suited(Arrays(a)).turned, tempered(Arrays(a)).turned)) for a in (few, many)]
    [False, True]
    """
    return beyond_noise(source, prior_rows=PRIOR_ROWS) if len(source.shape) == 1 else standardise(source)


def counts(X: Any) -> NDArray[Any]:
    """Return counts as numbers that means and covariances suit: each row at ten thousand counts, then log(1 + x).

    To be called on rows before they are fitted, and on new ones; the shell's ``--counts`` does the same.

    Parameters
    ----------
    X : array (n, d)
        Whole numbers, none below zero.

    Examples
    --------
    >>> counts([[1, 0], [3, 1]]).round(2).tolist()
    [[9.21, 0.0], [8.92, 7.82]]
    """
    return log_counts(X)


def fitted(owner: str, preprocess: Any, source: Source) -> FirstLayer:
    """Return ``preprocess(source)``, or say what is wrong with it, by the name of the estimator that was given it.

    Examples
    --------
    >>> from pindown.sources import Arrays
    >>> fitted("Contrast", torch.nn.Identity, Arrays([[1.0]]))
    Traceback (most recent call last):
    TypeError: Contrast: preprocess must return a networks.FirstLayer, which knows its shape_in, shape_out and mean, ...
    """
    if not callable(preprocess):
        raise TypeError(
            f"{owner}: preprocess must be a function of a source, such as preprocessing.whiten, got {preprocess!r}."
        )
    layer = preprocess(source)
    if not isinstance(layer, FirstLayer):
        raise TypeError(
            f"{owner}: preprocess must return a networks.FirstLayer, which knows its shape_in, shape_out and mean, got "
            f"{layer!r}."
        )
    return layer


def _channel(shape: tuple[int, ...]) -> int | None:
    """Return the axis of a row whose places are variables of their own; None if all numbers are."""
    return {1: None, 2: -1}.get(len(shape), 0)


def _spread_out(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a value for each column or channel as a tensor that broadcasts to rows of this shape."""
    return values if _channel(shape) != 0 else values.reshape(-1, *[1] * (len(shape) - 1))
