"""Charts: a map of observations for each value of the nuisance, by closed forms.

Where a nuisance shifts and stretches every column no fixed map is blind to it and keeps the rest. A map per value,
which is told the nuisance of a row and loses nothing of it, can be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from pindown.methods.transport import monge_map
from pindown.networks.spectrum import spectrum

LEAST_KURTOSIS, MOST_KURTOSIS = 1.5, 30.0
"""Fourth moments that are believed: they say how well a spread is known from so many rows."""

FEWEST_TURNED = 3
"""Rows per code that a value needs for a covariance of its own."""


class Effects(NamedTuple):
    """What each value of the nuisance does to each column: x = shift + scale · (what all values share)."""

    shift: np.ndarray  # (values, d)
    scale: np.ndarray  # (values, d)


def effects(x: np.ndarray, value: np.ndarray, n_values: int, strata: np.ndarray) -> Effects:
    r"""Estimate how each value shifts and stretches every column, beside what a given label does.

    .. math:: x = s_e (a_c + b_e + \sigma_c \varepsilon)

    with c the given label, so that values that see other mixtures of labels are not made alike for it. First
    :math:`\log s_e + \log \sigma_c` by least squares of the logarithms of spreads within cells (c, e), then
    :math:`a_c + b_e` by least squares of their means. Both are shrunk, each as far as its own rows leave it open:
    shifts towards none, stretches towards that of the value in all columns (as Johnson, Li and Rabinovic, 2007, do).
    What comes out standardises what all values share.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> e = np.arange(2000) % 2
    >>> x = rng.normal(size=(2000, 3)) * (1 + e[:, None]) + 5 * e[:, None]
    >>> shift, scale = effects(x, e, 2, 0 * e)
    >>> (shift[1] - shift[0]).round().tolist(), (scale[1] / scale[0]).round().tolist()
    ([5.0, 5.0, 5.0], [2.0, 2.0, 2.0])
    """
    kinds, cell = np.unique(np.stack([strata, value], 1), axis=0, return_inverse=True)
    cell, n_strata = cell.reshape(-1), int(strata.max()) + 1
    counts = np.bincount(cell).astype(np.float64)
    design = np.hstack([np.eye(n_strata)[kinds[:, 0]], np.eye(n_values)[kinds[:, 1]]])  # (cells, labels + values)
    means = _cell_means(x, cell, counts)
    around = x - means[cell]
    spread = np.sqrt(around.var(0))
    around = around / np.where(spread > 0, spread, 1.0)
    squares = _cell_means(around**2, cell, counts)
    half = np.maximum(counts - 1, 1) / 2  # of the degrees of freedom
    measured = counts > 1
    # The logarithm of a variance from few rows is too small on average, and this is how much it varies.
    biased, varies = special.digamma(half) - np.log(half), special.polygamma(1, half)
    kurtosis = np.clip((around**4).mean(0), LEAST_KURTOSIS, MOST_KURTOSIS)
    squares = _with_one_more(squares * counts[:, None], 2 * half[:, None], (kurtosis - 1) / 2)
    logs = 0.5 * (np.log(squares) - biased[:, None])
    stretch, open_ = _least_squares(design[measured], logs[measured], 2 / varies[measured], n_strata)
    stretch = _shrunk(stretch, open_[:, None] * (kurtosis - 1) / 4, towards=stretch.mean(1, keepdims=True))
    stretch[~np.isin(np.arange(n_values), kinds[measured, 1])] = 0.0
    even = x / np.exp(stretch)[value]
    shift, open_ = _least_squares(design, _cell_means(even, cell, counts), counts, n_strata)
    noise = (even - _cell_means(even, cell, counts)[cell]).var(0)
    unit = np.where(noise > 0, noise, 1.0) ** 0.5
    shift = unit * _shrunk(shift / unit, np.broadcast_to(open_[:, None], shift.shape), towards=0.0)
    even = even - shift[value]
    scale = even.std(0)
    scale = np.where(scale > 1e-12 * np.abs(even).max(0), scale, 1.0)
    return Effects((shift + even.mean(0)) * np.exp(stretch), scale * np.exp(stretch))


def _with_one_more(total: np.ndarray, freedom: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Return variances (cells, d) from sums of squares, with one more row of the cell's mean over columns in each.

    A gene that no cell of a rare value expresses has no spread there, and would be stretched without end by it. Where
    tails are heavy it takes more rows, ``one`` (d,), to tell of a spread as much as one row of a normal law does.
    """
    level = np.maximum((total / freedom).mean(1, keepdims=True), 1e-6)
    return (total + one * level) / (freedom + one)


def _cell_means(x: np.ndarray, cell: np.ndarray, counts: np.ndarray) -> np.ndarray:
    order = np.argsort(cell, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts[:-1])]).astype(np.int64)
    return np.add.reduceat(x[order], starts, axis=0) / counts[:, None]


def _least_squares(
    design: np.ndarray, target: np.ndarray, weight: np.ndarray, n_strata: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the effect of each value, (values, d), and the variance of each in units of that of one row, (values,).

    Effects of values add up to nothing, weighed by rows; those of labels take the rest.
    """
    root, frequency = np.sqrt(weight)[:, None], weight @ design[:, n_strata:] / weight.sum()
    inverse = np.linalg.pinv(design * root)[n_strata:]
    inverse = inverse - frequency @ inverse  # (values, cells)
    return inverse @ (root * target), (inverse**2).sum(1)


def _shrunk(effect: np.ndarray, error: np.ndarray, *, towards: np.ndarray | float) -> np.ndarray:
    """Move effects (values, d) of which the error's variance is known towards what columns of a value share.

    None is moved by more than its standard error (Efron and Morris, 1972): where few columns have large effects, these
    would be taken for chance because of the others.
    """
    away = effect - towards
    true = np.maximum((away**2 - error).mean(1, keepdims=True), 0.0)
    moved = away * error / np.maximum(true + error, 1e-300)
    return effect - np.clip(moved, -np.sqrt(error), np.sqrt(error))


class Charts(nn.Module):
    r"""Codes of rows whose nuisance is known: :math:`z = T_e V^\top (x - b_e) / s_e`, a linear bijection per value.

    Shifts :math:`b_e` and scales :math:`s_e` make columns alike, V (d, k) are leading directions of what all values
    then share, and :math:`T_e` (k, k), the identity unless turned, makes covariances of codes alike.
    """

    shift: Tensor
    scale: Tensor
    directions: Tensor
    turns: Tensor

    def __init__(self, found: Effects, directions: np.ndarray, turns: np.ndarray | None = None) -> None:
        super().__init__()
        same = np.broadcast_to(np.eye(directions.shape[1]), (len(found.shift), *[directions.shape[1]] * 2))
        parts = {"shift": found.shift, "scale": found.scale, "directions": directions}
        for name, part in {**parts, "turns": same if turns is None else turns}.items():
            self.register_buffer(name, torch.tensor(np.ascontiguousarray(part), dtype=torch.float64))

    @property
    def n_codes(self) -> int:
        """Number of codes."""
        return self.directions.shape[1]

    def forward(self, x: Tensor, value: Tensor) -> Tensor:
        """Encode (n, d) rows with these numbers of values; (n, k), in float64."""
        straight = ((x.double() - self.shift[value]) / self.scale[value]) @ self.directions
        return torch.einsum("nj,nij->ni", straight, self.turns[value])

    def inverse(self, z: Tensor, value: Tensor) -> Tensor:
        """Rebuild (n, d) rows from codes; what these leave out is filled in by its mean."""
        straight = torch.linalg.solve(self.turns[value], z.double()[:, :, None])[:, :, 0]
        return self.shift[value] + self.scale[value] * (straight @ self.directions.mT)

    def encode(self, x: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Encode arrays."""
        return self(torch.as_tensor(x), torch.as_tensor(value)).numpy()


def closed_form(
    x: np.ndarray, value: np.ndarray, n_values: int, strata: np.ndarray, n_components: int | None = None
) -> Charts:
    """Standardise per value, and keep the directions of what is left that stand out of noise.

    Examples
    --------
    Two programmes in forty genes, which the second of two laboratories shifts and stretches:

    >>> rng = np.random.default_rng(0)
    >>> e = np.arange(1000) % 2
    >>> z = rng.normal(size=(1000, 2))
    >>> x = z @ rng.normal(size=(2, 40)) + rng.normal(size=(1000, 40))
    >>> moved = np.where(e[:, None], rng.normal(size=40) + x * np.exp(0.3 * rng.normal(size=40)), x)
    >>> charts = closed_form(moved, e, 2, 0 * e)
    >>> charts.n_codes, bool(np.corrcoef(charts.encode(moved, e).T, z.T)[:2, 2:].round(1).any())
    (2, True)
    """
    found = effects(x, value, n_values, strata)
    seen = spectrum((x - found.shift[value]) / found.scale[value])
    n = max(1, min(seen.n_signal, seen.n_kept)) if n_components is None else n_components
    return Charts(found, _completed(seen.directions[:, :n], n))


def again(charts: Charts, x: np.ndarray, value: np.ndarray, strata: np.ndarray, *, even: bool) -> Charts:
    """Take shifts and stretches from other rows, and covariances if these are to be even, along the same directions."""
    other = Charts(effects(x, value, len(charts.shift), strata), charts.directions.numpy())
    return turned(other, x, value, strata) if even else other


def _completed(directions: np.ndarray, n: int) -> np.ndarray:
    """Add columns of nothing, if rows vary along fewer directions than codes were asked for."""
    return np.pad(directions, ((0, 0), (0, n - directions.shape[1])))


def turned(charts: Charts, x: np.ndarray, value: np.ndarray, strata: np.ndarray) -> Charts:
    r"""Give codes of all values one covariance, by the smallest move that does.

    With :math:`C_e` the covariance within a value (and within labels, if they are given) and C that of all,
    :math:`T_e = C_e^{-1/2} (C_e^{1/2} C C_e^{1/2})^{1/2} C_e^{-1/2}` carries the one normal law onto the other, and no
    map moves rows less on the way. Covariances are shrunk towards C (Ledoit and Wolf, 2004), as far as rows leave them
    open; a value with fewer than three rows per code keeps C.
    """
    codes, k = charts.encode(x, value), charts.n_codes
    _, cell = np.unique(np.stack([strata, value], 1), axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    around = codes - _cell_means(codes, cell, np.bincount(cell).astype(np.float64))[cell]
    common = around.T @ around / len(around)
    size = np.sqrt(np.maximum(np.diag(common), 1e-300))
    turns = np.broadcast_to(np.eye(k), charts.turns.shape).copy()
    for number in np.unique(value):
        own = around[value == number] / size
        if len(own) >= FEWEST_TURNED * k:
            turns[number] = size[:, None] * _carried(own, common / np.outer(size, size)) / size
    return Charts(Effects(charts.shift.numpy(), charts.scale.numpy()), charts.directions.numpy(), turns)


def _carried(rows: np.ndarray, common: np.ndarray) -> np.ndarray:
    """Return the symmetric map that gives rows the common covariance."""
    own = rows.T @ rows / len(rows)
    missed = ((rows**2).T @ (rows**2) / len(rows) - own**2).sum() / len(rows)  # variance of the estimate, in all
    share = min(1.0, missed / max(((own - common) ** 2).sum(), 1e-300))
    own = (1 - share) * own + share * common + 1e-9 * np.eye(len(own))
    return monge_map(own, common)
