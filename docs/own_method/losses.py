"""First file: the loss, a pure function of tensors. In pindown it would stand in ``losses.py``."""

import torch
from torch import Tensor


def unexplained(z: Tensor, y: Tensor) -> Tensor:
    r"""Share of the variance of y that no linear map of the codes z explains.

    .. math:: \frac{\lVert Y - P_Z Y \rVert_F^2}{\lVert Y \rVert_F^2}, \quad P_Z = Z (Z^\top Z)^{-1} Z^\top

    with centred columns. Least where the codes span E[y|x], and blind to affine maps of the codes.

    Examples
    --------
    The first of two targets of equal variance is twice the code, the second has nothing to do with it:

    >>> z = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> y = torch.cat([2 * z, 2 * torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])], dim=1)
    >>> round(unexplained(z, y).item(), 3)
    0.5
    """
    z, y = z - z.mean(0), y - y.mean(0)
    frame, _ = torch.linalg.qr(z)  # (n, d), orthonormal columns
    return (y - frame @ (frame.T @ y)).square().sum() / y.square().sum()
