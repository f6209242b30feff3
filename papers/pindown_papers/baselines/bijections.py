"""Invertible networks from zuko as encoders: functions (n_in, n_out) -> nn.Module, which can be saved.

zuko is imported on first use. Its import changes a setting of torch, which is restored.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.distributions import Distribution

TRANSFORMS, HIDDEN, BINS = 6, (64, 64), 8
"""Number of coupling layers, widths of their conditioners, and bins of a spline."""


class Bijection(nn.Module):
    """An invertible map of the first features of a sample, with its log-determinant.

    Parameters
    ----------
    transform : nn.Module
        A lazy transform of zuko.
    n : int
        Number of features that are transformed; the others are left out.
    """

    def __init__(self, transform: nn.Module, n: int) -> None:
        super().__init__()
        self.transform, self.n = transform, n

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, …) to (n, d)."""
        return self.transform()(x.flatten(1)[:, : self.n])

    def with_volume(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the latents (n, d) and the log-determinant of the Jacobian of each sample (n,)."""
        return self.transform().call_and_ladj(x.flatten(1)[:, : self.n])

    def inverse(self, z: Tensor) -> Tensor:
        """Return the features with these latents; (n, d)."""
        return self.transform().inv(z)


def couplings(n_in: Any, n_out: int) -> Bijection:
    """Return affine couplings: in turn, one half of the features shifts and scales the other half.

    They are smooth, fast in both directions, and the identity at initialisation. Dinh et al., Density estimation using
    real NVP, ICLR 2017.

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
    """Return couplings by monotone splines, which are more flexible than `couplings` and take about twice the time.

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
    """Make each layer the identity: the last layer of its conditioner returns zeros."""
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
        Distribution._validate_args = checks  # importing zuko disables it for all distributions of torch
    return flows
