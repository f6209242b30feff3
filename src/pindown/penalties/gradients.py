"""Rows of a decoder's Jacobian: gradients of some of the observed variables, by reverse mode."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pindown.penalties.tangents import Decoder, refuse_mixed_rows


class Pulled(NamedTuple):
    """What a decoder makes of latents, and the gradients of some of what it makes."""

    x: Tensor  # (n, ...)
    gradients: Tensor  # (k, n, d): of the k-th variable that was taken, by the latents
    times: float  # how many variables each of those taken stands for


def pullback(decoder: Decoder, z: Tensor, n_pixels: int, chance: Tensor) -> Pulled:
    r"""Decode latents, and take the gradients of some observed variables along.

    Those taken lie at equal distances, from a random one on, so that each is as likely as any other: whatever is added
    up over variables has the expectation of the whole, if it is multiplied by ``times``, value and gradient.

    Parameters
    ----------
    decoder
        Maps (n, d) to (n, ...), each row by itself.
    z
        Latents (n, d).
    n_pixels
        Observed variables of each row to take; all, if there are no more.
    chance
        A number for each row, uniform in [0, 1), that says which.

    Examples
    --------
    >>> pulled = pullback(torch.nn.Identity(), torch.zeros(2, 3), 1, torch.tensor([0.0, 0.9]))
    >>> pulled.gradients.tolist(), pulled.times
    ([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]], 3.0)
    """
    refuse_mixed_rows(decoder)
    with torch.enable_grad():
        z = z if z.requires_grad else z.detach().requires_grad_()
        with sdpa_kernel(SDPBackend.MATH):  # torch's fast attention is differentiated once only
            x = decoder(z)
        if not x.requires_grad:
            raise ValueError(
                "the decoder is not differentiable: its output does not depend on its input by operations that torch "
                "can differentiate. Look for detach(), no_grad, item(), numpy or integers in it."
            )
        flat = x.flatten(1)
        m = flat.shape[1]
        k = min(n_pixels, m)
        shares = (torch.arange(k, device=z.device)[:, None] / k + chance.detach()) % 1  # (k, n)
        which = (shares * m).long().clamp_max(m - 1)
        gradients = [
            torch.autograd.grad(flat.gather(1, each[:, None]).sum(), z, create_graph=True, allow_unused=True)[0]
            for each in which
        ]
    none = torch.zeros_like(z)
    return Pulled(x, torch.stack([none if each is None else each for each in gradients]), m / k)
