"""Build networks that users pass as functions or modules, and check their shapes before training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from pindown.errors import InputError
from pindown.networks.preprocessing import Rescale
from pindown.networks.vectors import linear

MADE_BY = "made_by"
"""Attribute of a network with the call that made it, (make, n_in, n_out), so that loading can repeat it."""

Shape = int | tuple[int, ...]
"""Shape of a sample: its number of features, or (t, c) for sequences, (c, h, w) for images."""

Make = Callable[[Any, Any], nn.Module] | nn.Module
"""A network as estimators take it: a function (n_in, n_out) -> nn.Module, or a module."""


def built(owner: str, name: str, make: Any, n_in: Shape, n_out: Shape) -> nn.Module:
    """Return the network ``make(n_in, n_out)``, or raise if it does not map n_in to n_out.

    Parameters
    ----------
    owner, name
        The estimator and its parameter, for error messages.
    make
        A function (n_in, n_out) -> nn.Module, which the network remembers (see `MADE_BY`). Or a module, which is
        copied, so that a second fit has the same initialisation.
    n_in, n_out
        Numbers of features; (t, c) or (c, h, w) for sequences or images.

    Examples
    --------
    >>> built("Forget", "decoder", nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    >>> built("Forget", "decoder", lambda n_in, n_out: nn.Linear(n_in, 1), 3, 2)
    Traceback (most recent call last):
    ValueError: Forget: decoder(n_in=3, n_out=2) maps (2, 3) to (2, 1), not to (2, 2). Let its last layer have n_out \
outputs.
    >>> built("Contrast", "encoder", nn.LSTM(3, 2), 3, 2)
    Traceback (most recent call last):
    ValueError: Contrast: encoder(n_in=3, n_out=2) maps (2, 3) to a tuple, not to (2, 2). Let it return one tensor.
    """
    n_in, n_out = (shape[0] if isinstance(shape, tuple) and len(shape) == 1 else shape for shape in (n_in, n_out))
    before, after = ((2, *shape) if isinstance(shape, tuple) else (2, shape) for shape in (n_in, n_out))
    given = isinstance(make, nn.Module)
    if not given and not callable(make):
        raise TypeError(_no_network(owner, name, make))
    try:
        module = copy.deepcopy(make) if given else make(n_in, n_out)
        result = _tried(module, before) if isinstance(module, nn.Module) else None
    except ImportError:  # its message says what to install
        raise
    except Exception as error:
        what = type(make).__name__ if given else getattr(make, "__name__", make)
        why = str(error).partition("\n")[0].rstrip(". ")
        if isinstance(n_in, tuple) and "argument 'size'" in why:  # torch's message for a layer of vectors
            why = "it takes a number of features, not a shape"
        raise ValueError(
            f"{owner}: {name}={what} makes no network from {n_in} to {n_out} ({why}). {_remedy(n_in, n_out)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise TypeError(_no_network(owner, name, make))
    if not isinstance(result, Tensor) or tuple(result.shape) != after:
        found = tuple(result.shape) if isinstance(result, Tensor) else f"a {type(result).__name__}"
        top = "Let its last layer have n_out outputs" + (", or take networks.pretrained." if given else ".")
        raise ValueError(
            f"{owner}: {name}(n_in={n_in}, n_out={n_out}) maps {before} to {found}, not to {after}. "
            + (top if isinstance(result, Tensor) else "Let it return one tensor.")
        )
    if not given:
        setattr(module, MADE_BY, (make, n_in, n_out))
    return module


def _no_network(owner: str, name: str, make: Any) -> str:
    return (
        f"{owner}: {name} must be a function (n_in, n_out) -> nn.Module, such as those of pindown.networks, or an "
        f"nn.Module, got {make!r}."
    )


def _tried(module: nn.Module, shape: tuple[int, ...]) -> Any:
    """Return the output of a copy of the module for zeros: batch normalisation would remember them."""
    device = next((weight.device for weight in module.parameters()), None)
    with torch.no_grad():
        return copy.deepcopy(module)(torch.zeros(shape, device=device))


def _remedy(n_in: Shape, n_out: Shape) -> str:
    """Return the suggestion for samples of this shape."""
    if isinstance(n_out, tuple):
        return "For images and sequences take networks.deconvolutional."
    if isinstance(n_in, int):
        return "For vectors take networks.skip_mlp; convolutions need samples that are images, (c, h, w)."
    suited = "sequences take networks.temporal" if len(n_in) == 2 else "images take networks.convolutional"
    return f"For {suited}, or preprocess=preprocessing.whiten, which flattens samples."


class Backbone(nn.Module):
    """A pretrained network between its normalisation and a head: see :func:`pretrained`.

    The network stays in evaluation mode, so that batch normalisation and dropout do not make samples depend on others.
    """

    def __init__(self, normalise: nn.Module, network: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.normalise, self.network, self.head = normalise, network.eval(), head

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the head; the network stays in evaluation mode."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Encode images; (n, c, h, w) → (n, n_out)."""
        return self.head(self.network(self.normalise(x)).flatten(1))


@dataclass(frozen=True, eq=False)
class Pretrained:
    """The result of :func:`pretrained`: a function (n_in, n_out) -> nn.Module that can be saved."""

    network: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    frozen: bool
    head: Callable[[int, int], nn.Module]

    def __call__(self, n_in: Shape, n_out: int) -> Backbone:
        """Return a copy of the network between its normalisation and a head."""
        shape = n_in if isinstance(n_in, tuple) else (n_in,)
        network = copy.deepcopy(self.network).eval().requires_grad_(not self.frozen)
        n_features = _tried(network, (2, *shape)).flatten(1).shape[1]
        mean, std = (torch.tensor(values).reshape(-1, *[1] * (len(shape) - 1)) for values in (self.mean, self.std))
        return Backbone(Rescale(mean, std, shape), network, self.head(n_features, n_out))


def pretrained(
    network: nn.Module,
    *,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    frozen: bool = True,
    head: Callable[[int, int], nn.Module] = linear,
) -> Pretrained:
    """Return an encoder on top of a pretrained network, such as one of timm or torchvision.

    Use it with ``preprocess=preprocessing.nothing``, since it has its own normalisation. Each fit copies the network.
    It stays in evaluation mode, even if its weights are trained.

    Parameters
    ----------
    network : nn.Module
        Maps images (n, c, h, w) to features (n, …), which are flattened: a model without its last layer, such as
        ``timm.create_model(name, pretrained=True, num_classes=0)``.
    mean, std : sequence of float
        Mean and standard deviation of each channel of its training images, in the units of X; or a single number.
    frozen : bool
        Whether its weights are fixed, so that only the head is trained.
    head : callable
        Function (n_features, n_out) -> nn.Module.

    Examples
    --------
    >>> features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1))
    >>> encoder = pretrained(features, mean=(0.5, 0.4, 0.4), std=(0.2, 0.2, 0.2))
    >>> network = built("Contrast", "encoder", encoder, (3, 16, 16), 2)
    >>> [name for name, weight in network.named_parameters() if weight.requires_grad]
    ['head.weight', 'head.bias']
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"pretrained: network must be an nn.Module, got {network!r}.")
    if min(std) <= 0 or len(mean) != len(std):
        raise InputError(
            "std", f"pretrained: `mean` and `std` need one number per channel, with std > 0; got {mean} and {std}."
        )
    return Pretrained(network, tuple(mean), tuple(std), frozen, head)
