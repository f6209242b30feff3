"""Invertible networks of zuko as encoders: functions (n_in, n_out) -> nn.Module, which can be saved.

zuko is imported when one is made, and what it changes in torch on that occasion is put back.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributions import Distribution

TRANSFORMS, HIDDEN, BINS = 6, (64, 64), 8
"""Layers that each move half of the numbers, widths of the network that says by how much, and pieces of a spline."""


class Bijection(nn.Module):
    """A map of the first numbers of a row that can be undone, with the volume it stretches them by.

    Parameters
    ----------
    transform : nn.Module
        A lazy transform of zuko.
    n : int
        How many numbers of a row it takes: the others are left out.
    """

    def __init__(self, transform: nn.Module, n: int) -> None:
        super().__init__()
        self.transform, self.n = transform, n

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, …) to (n, d)."""
        return self.transform()(self._taken(x))

    def with_volume(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Encode; return the codes, and the logarithm of the volume that each row is stretched by, (n,)."""
        return self.transform().call_and_ladj(self._taken(x))

    def inverse(self, z: Tensor) -> Tensor:
        """Return what is encoded so; (n, d)."""
        return self.transform().inv(z)

    def _taken(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, : self.n]


def couplings(n_in: Any, n_out: int) -> Bijection:
    """Return affine couplings: half of the numbers shift and scale the other half, in turn. Smooth, and fast both ways.

    Dinh et al., Density estimation using real NVP, ICLR 2017. They begin as the identity: unfolded.

    Examples
    --------
    >>> import torch
    >>> x = torch.arange(6.0).reshape(2, 3)
    >>> bijection = couplings(3, 3)
    >>> torch.equal(bijection(x), x), bijection.inverse(bijection(x)).shape
    (True, torch.Size([2, 3]))
    """
    flow = _flows().NICE(n_out, transforms=TRANSFORMS, hidden_features=HIDDEN, activation=nn.ELU)
    return Bijection(_at_identity(flow.transform), n_out)


def splines(n_in: Any, n_out: int) -> Bijection:
    """Return couplings by monotone splines, which bend more than `couplings` and take about twice the time.

    Durkan et al., Neural spline flows, NeurIPS 2019.

    Examples
    --------
    >>> import torch
    >>> x = torch.linspace(-2, 2, 6).reshape(2, 3)
    >>> bijection = splines(3, 3)
    >>> torch.allclose(bijection.inverse(bijection(x)), x, atol=1e-5)
    True
    """
    how = {"bins": BINS, "hidden_features": HIDDEN, "activation": nn.ELU}
    flow = _flows().NSF(n_out, transforms=TRANSFORMS, passes=2, **how)
    return Bijection(_at_identity(flow.transform), n_out)


def _at_identity(transform: nn.Module) -> nn.Module:
    """Let no layer do anything yet: the last of the networks that say what it does gives zeros."""
    for part in transform.modules():
        hyper = getattr(part, "hyper", None)
        if isinstance(hyper, nn.Sequential):
            for weight in hyper[-1].parameters():
                nn.init.zeros_(weight)
    return transform


def _flows() -> Any:
    checks = Distribution._validate_args
    try:
        from zuko import flows
    except ImportError as error:
        raise ImportError("Flow needs zuko, which is not installed: pip install 'pindown[generators]'.") from error
    finally:
        Distribution._validate_args = checks  # which importing zuko turns off for every distribution of torch
    return flows
