"""Sparsity of what depends on what: norms of the decoder's Jacobian, in units that a rescaling cannot cheat.

With D = diag(std x)⁻¹ · J · diag(std z) the derivative of each standardised observed variable by each standardised
latent, :func:`dependency_sparsity` is the mean of Σ_ij |D_ij|; multiplying latents by ten and dividing the decoder's
first weights by ten changes nothing. Zheng et al., Diverse Dictionary Learning, penalise the same sum in raw units.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pindown.penalties.tangents import Decoder, Pushed, derivative, pushforward

LEAST_SCALE = 1e-3
"""Observed variables that hardly vary are measured in this share of the largest standard deviation."""


def dependency_sparsity(
    decoder: Decoder,
    z: Tensor,
    *,
    n_columns: int | None = None,
    active: Tensor | None = None,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""L1 norm of the decoder's Jacobian in standardised units, the mean over rows.

    .. math:: \frac1n \sum_{\text{rows}} \sum_{ij}
              \left|\frac{\partial g_i(z)}{\partial z_j}\right| \frac{\operatorname{std} z_j}{\operatorname{std} x_i}

    Zero if and only if nothing depends on anything. Exact by default. With `n_columns` each row takes so many latents
    at random and counts them d / n_columns times: the expectation is the same, value and gradient.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...): see `pushforward` for what goes through in closed form.
    z
        Latents (n, d).
    n_columns
        Latents per row to take at random; None takes all.
    active
        Restrict the sum to these latents of each row, int64 of shape (n, k), such as ``z.topk(k).indices`` in a
        sparse autoencoder: the others contribute nothing, and nothing is computed for them.
    z_scale, x_scale
        Standard deviations of the latents (d,) and of the observed variables (shape of a row of x). None takes those
        of this batch, through which gradients flow. ``torch.ones(())`` leaves raw units.
    generator
        Source of the random columns.

    Examples
    --------
    In x = (z₀ + z₁, z₁), seen in raw units, three entries of the Jacobian are 1:

    >>> decoder = torch.nn.Linear(2, 2, bias=False)
    >>> decoder.weight.data = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> z, raw = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)), torch.ones(())
    >>> dependency_sparsity(decoder, z, z_scale=raw, x_scale=raw).item()
    3.0

    Latents ten times as large, decoded by weights a tenth as large, cost the same:

    >>> before = dependency_sparsity(decoder, z)
    >>> decoder.weight.data /= 10
    >>> torch.allclose(dependency_sparsity(decoder, 10 * z), before)
    True
    """
    columns, weight = _chosen(z, n_columns, active, generator)
    pushed = pushforward(decoder, z, columns)
    return weight * entrywise(pushed, _scale_of(columns, z, z_scale), x_scale)


def entrywise(pushed: Pushed, z_scale: Tensor, x_scale: Tensor | None = None) -> Tensor:
    """Return the mean over rows of the summed |entries| of columns that were pushed along; see `dependency_sparsity`.

    For a training step that needs ``pushed.x`` anyway. `z_scale` has one number per column, shape (k, 1) or (k, n).

    Examples
    --------
    >>> pushed = pushforward(torch.nn.Identity(), torch.zeros(5, 3))
    >>> entrywise(pushed, torch.ones(3, 1), torch.ones(())).item()
    3.0
    """
    x_scale = batch_scale(pushed.x) if x_scale is None else x_scale
    per_unit = (1 / x_scale).to(pushed.x).expand(pushed.x.shape[1:]).flatten()  # (m,)
    per_column = pushed.columns.abs().flatten(2) @ per_unit  # (k, n)
    return (per_column * z_scale).sum() / pushed.columns.shape[1]


def dependency_count(
    decoder: Decoder,
    z: Tensor,
    *,
    epsilon: float = 0.1,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
) -> Tensor:
    r"""Soft number of dependencies: how many latents reach how many observed variables, anywhere in the batch.

    .. math:: \sum_{ij} \frac{\log(1 + \overline{D_{ij}^2} / \epsilon^2)}{\log(1 + 1 / \epsilon^2)}

    with D the Jacobian in standardised units and the mean over rows. It is nearer to the theorem than the L1 norm is:
    an entry counts if it differs from zero anywhere, and counts little more if it is large. So it does not trade
    one strong dependence for several weak ones.

    Parameters
    ----------
    decoder, z, z_scale, x_scale
        As in `dependency_sparsity`.
    epsilon
        Strength, in standardised units, below which a dependence fades out.

    Examples
    --------
    A dependence counts nearly as much if it is half as strong. The L1 norms are 2 and 1.5:

    >>> decoder, raw = torch.nn.Linear(2, 2, bias=False), torch.ones(())
    >>> for strength in (1.0, 0.5):
    ...     decoder.weight.data = torch.tensor([[1.0, 0.0], [0.0, strength]])
    ...     print(round(dependency_count(decoder, torch.zeros(4, 2), z_scale=raw, x_scale=raw).item(), 2))
    2.0
    1.71
    """
    return soft_count(pushforward(decoder, z), _scale_of(None, z, z_scale), x_scale, epsilon)


def soft_count(pushed: Pushed, z_scale: Tensor, x_scale: Tensor | None = None, epsilon: float = 0.1) -> Tensor:
    """Return the soft number of dependencies from all columns that were pushed along; see `dependency_count`."""
    x_scale = batch_scale(pushed.x) if x_scale is None else x_scale
    squares = (pushed.columns / x_scale).square().mean(1).flatten(1) * z_scale.square()  # (d, m)
    return softly_counted(squares, epsilon)


def softly_counted(squares: Tensor, epsilon: float) -> Tensor:
    """Return how many of some dependencies there are, from their mean squares: about one each if it is above ε².

    Examples
    --------
    >>> softly_counted(torch.tensor([0.0, 1.0]), 0.1).item()
    1.0
    """
    return torch.log1p(squares / epsilon**2).sum() / math.log1p(1 / epsilon**2)


def group_lasso_sparsity(
    decoder: Decoder,
    z: Tensor,
    *,
    z_scale: Tensor | None = None,
    x_scale: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Sum of the Euclidean lengths of the Jacobian's rows, in standardised units, from one random direction per row.

    .. math:: \sum_i \lVert D_{i\cdot} \rVert_2 = \sqrt{\pi/2} \; \mathbb E_{v \sim N(0, I)} \sum_i |D_{i\cdot} v|

    A Gaussian direction is often taken for an estimate of the L1 norm. It is not: rotations of z leave it unchanged, so
    that it removes observed variables and never the arrows of one of them.

    Examples
    --------
    >>> decoder = torch.nn.Linear(2, 1, bias=False)
    >>> decoder.weight.data = torch.tensor([[3.0, 4.0]])
    >>> z, raw = torch.zeros(200_000, 2), torch.ones(())
    >>> rng = torch.Generator().manual_seed(0)
    >>> round(group_lasso_sparsity(decoder, z, z_scale=raw, x_scale=raw, generator=rng).item(), 1)
    5.0
    """
    scale = batch_scale(z) if z_scale is None else z_scale
    direction = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device) * scale
    x, moved = derivative(decoder, z, direction)
    x_scale = batch_scale(x) if x_scale is None else x_scale
    return math.sqrt(math.pi / 2) * (moved / x_scale).abs().sum() / len(z)


def latent_sparsity(z: Tensor, *, z_scale: Tensor | None = None) -> Tensor:
    r"""L1 norm of the latents in standardised units, the mean over rows: what sparse autoencoders penalise.

    .. math:: \frac1n \sum_{\text{rows}} \sum_j |z_j| / \operatorname{std} z_j

    Examples
    --------
    >>> latent_sparsity(torch.tensor([[1.0, -1.0], [0.0, 3.0]]), z_scale=torch.ones(())).item()
    2.5
    """
    return (z / (batch_scale(z) if z_scale is None else z_scale)).abs().sum() / len(z)


def batch_scale(values: Tensor) -> Tensor:
    """Return the standard deviation of each variable over the rows; none is below `LEAST_SCALE` of the largest.

    Examples
    --------
    >>> batch_scale(torch.tensor([[0.0, 5.0], [2.0, 5.0]])).double().round(decimals=6).tolist()
    [1.0, 0.001]
    """
    if len(values) < 2:
        raise ValueError(f"a standard deviation needs two rows or more, got {len(values)}: pass z_scale and x_scale.")
    variance = values.var(0, correction=0)
    floor = (LEAST_SCALE**2 * variance.detach().max()).clamp_min(torch.finfo(values.dtype).tiny)
    return variance.clamp_min(floor).sqrt()


def sampled_columns(n: int, d: int, k: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Return k different latents for each of n rows, (k, n)."""
    if k == 1:
        return torch.randint(d, (1, n), generator=generator, device=device)
    return torch.rand(n, d, generator=generator, device=device).argsort(1)[:, :k].mT


def _chosen(
    z: Tensor, n_columns: int | None, active: Tensor | None, generator: torch.Generator | None
) -> tuple[Tensor | None, float]:
    """Return the columns to push, None for all, and how often each stands in the sum."""
    n, d = z.shape
    if active is not None:
        if n_columns is not None:
            raise ValueError("n_columns samples all latents, active names some: give one of the two.")
        if active.ndim != 2 or len(active) != n or active.dtype != torch.int64:
            raise ValueError(
                f"active must be int64 of shape (n, k) with n={n} rows, the numbers of each row's active latents, "
                f"got {active.dtype} of shape {tuple(active.shape)}."
            )
        return active.mT, 1.0
    if n_columns is None or n_columns == d:
        return None, 1.0
    if not 1 <= n_columns <= d:
        raise ValueError(f"n_columns must be between 1 and d={d}, got {n_columns}.")
    return sampled_columns(n, d, n_columns, generator, z.device), d / n_columns


def _scale_of(columns: Tensor | None, z: Tensor, z_scale: Tensor | None) -> Tensor:
    scale = (batch_scale(z) if z_scale is None else z_scale).expand(z.shape[1])
    return scale[:, None] if columns is None else scale[columns]
