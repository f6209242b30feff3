"""Independence: what keeps codes from telling a group apart, without a classifier."""

from __future__ import annotations

import torch
from torch import Tensor


def energy_distance(
    z: Tensor, groups: Tensor, *, weights: Tensor | None = None, within: Tensor | None = None
) -> Tensor:
    r"""How far the laws of groups of codes lie apart: the mean distance of any two codes less that of two of a group.

    .. math:: E\,\lVert Z - Z' \rVert - E_e\, E\,\lVert Z_e - Z_e' \rVert

    0 in expectation if all groups have one law, and above 0 if not: minimised, it makes codes independent of their
    group, and there is no classifier to be outwitted. Pairs of a code with itself are left out, so that few codes do
    not look like a difference. It holds the (n, n) matrix of distances.

    Parameters
    ----------
    z
        Codes, (n, d). They are compared as they are: give columns one scale, or the smallest counts least.
    groups
        Number of the group of each, (n,).
    weights
        What each code counts, (n,); all the same by default. Those of weight 0 are left out.
    within
        Number of a stratum for each, (n,): groups are then compared within strata only.

    References
    ----------
    Székely and Rizzo, Energy statistics, J. Stat. Plan. Inference 2013.

    Examples
    --------
    Two groups, each in one place, 3 apart: of the pairs of different codes two in three are as far apart, and none in a
    group. If groups have nothing to do with places it is 0 but for chance, which may go below:

    >>> z = torch.tensor([[0.0], [0.0], [3.0], [3.0]])
    >>> [round(energy_distance(z, torch.tensor(groups)).item(), 3) for groups in ([0, 0, 1, 1], [0, 1, 0, 1])]
    [2.0, -1.0]
    """
    if groups.shape != (len(z),) or z.ndim != 2:
        raise ValueError(
            f"energy_distance: z must be (n, d) and groups (n,), one for each row of z; got {tuple(z.shape)} and "
            f"{tuple(groups.shape)}."
        )
    weights = torch.ones_like(z[:, 0]) if weights is None else weights
    anyone = weights * ~torch.eye(len(z), dtype=torch.bool, device=z.device)  # (n, n), what j counts for i
    if within is not None:
        anyone = anyone * (within[:, None] == within)
    akin = anyone * (groups[:, None] == groups)
    counts = weights * (akin.sum(1) > 0)  # one that is alone in its group cannot be compared

    def shares(pairs: Tensor) -> Tensor:
        return pairs / pairs.sum(1, keepdim=True).clamp_min(1e-12)

    pairs = (counts / counts.sum().clamp_min(1e-12))[:, None] * (shares(anyone) - shares(akin))
    return (pairs * torch.cdist(z, z)).sum()
