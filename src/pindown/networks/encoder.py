"""Encoders: networks that users pass as functions or modules, checked before training; and how samples are encoded."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from pindown.errors import InputError
from pindown.networks.preprocessing import Preprocessing, Rescale
from pindown.networks.spaces import Space
from pindown.networks.vectors import linear

MADE_BY = "made_by"  # attribute of a network: the call that made it, (make, n_in, n_out), which loading repeats
ENCODE_SAMPLES, ENCODE_BYTES = 65_536, 1 << 28  # samples and bytes per encoded block: they bound memory
ENCODED_AT_ONCE = 4_096  # samples that are read at once from a source
CHEAP_PARAMETERS = 5_000_000  # number of weights up to which a network for vectors is run in float64
PADDED_SAMPLES = 256  # size of the blocks of other networks

Shape = int | tuple[int, ...]
"""Shape of a sample: its number of features, or (t, c) for sequences, (c, h, w) for images."""

Make = Callable[..., nn.Module] | nn.Module
"""A network as estimators take it: a function (n_in, n_out) -> nn.Module, or a module."""


def built(owner: str, name: str, make: Make, n_in: Shape, n_out: Shape) -> nn.Module:
    """Return the network ``make(n_in, n_out)``, or raise if it does not map n_in to n_out.

    The network remembers the function that made it (see `MADE_BY`). A module is copied, so that a second fit has the
    same initialisation. `owner` and `name` are the estimator and its parameter, for error messages.

    Examples
    --------
    >>> built("Forget", "decoder", nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    >>> built("Forget", "decoder", lambda n_in, n_out: nn.Linear(n_in, 1), 3, 2)
    Traceback (most recent call last):
    pindown.errors.InputError: Forget: `decoder` maps (2, 3) to (2, 1), not to (2, 2). Let it return one tensor of ...
    """
    n_in, n_out = (shape[0] if isinstance(shape, tuple) and len(shape) == 1 else shape for shape in (n_in, n_out))
    before, after = ((2, *shape) if isinstance(shape, tuple) else (2, shape) for shape in (n_in, n_out))
    no_network = TypeError(f"{owner}: `{name}` must be a function (n_in, n_out) -> nn.Module, or one, got {make!r}.")
    if not callable(make):
        raise no_network
    given = isinstance(make, nn.Module)
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
        message = f"{owner}: `{name}={what}` makes no network from {n_in} to {n_out} ({why}). {_remedy(n_in, n_out)}"
        raise InputError(name, message) from error
    if not isinstance(module, nn.Module):
        raise no_network
    if not isinstance(result, Tensor) or tuple(result.shape) != after:
        found = tuple(result.shape) if isinstance(result, Tensor) else f"a {type(result).__name__}"
        head = ", or use networks.Pretrained" if given else ""
        remedy = f"Let it return one tensor of n_out outputs{head}."
        raise InputError(name, f"{owner}: `{name}` maps {before} to {found}, not to {after}. {remedy}")
    if not given:
        setattr(module, MADE_BY, (make, n_in, n_out))
    return module


def _tried(module: nn.Module, shape: tuple[int, ...]) -> object:
    """Return the output of a copy of the module for zeros: batch normalisation would remember them."""
    device = next((weight.device for weight in module.parameters()), None)
    with torch.no_grad():
        return copy.deepcopy(module)(torch.zeros(shape, device=device))


def _remedy(n_in: Shape, n_out: Shape) -> str:
    """Return the suggestion for samples of this shape."""
    if isinstance(n_out, tuple):
        return "For images and sequences take networks.deconvolutional."
    if isinstance(n_in, int):
        return "For vectors take networks.skip_mlp; convolutions need images, (c, h, w)."
    suited = "temporal" if len(n_in) == 2 else "convolutional"
    return f"Take networks.{suited}, or `preprocess=preprocessing.whiten`, which flattens samples."


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Makes encoders on top of a pretrained network, such as one of timm or torchvision.

    Use it as ``encoder`` with ``preprocess=preprocessing.nothing``, since it has its own normalisation. Each fit copies
    the network. It stays in evaluation mode, even if its weights are trained.

    Parameters
    ----------
    network : nn.Module
        Maps images (n, c, h, w) to features (n, …), which are flattened: a model without its last layer, such as
        ``timm.create_model(name, pretrained=True, num_classes=0)``.
    mean, std : tuple of float
        Mean and standard deviation of each channel of its training images, in the units of X; or a single number.
    frozen : bool
        Whether its weights are fixed, so that only the head is trained.
    head : callable
        Function (n_features, n_out) -> nn.Module.

    Examples
    --------
    >>> features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1))
    >>> encoder = Pretrained(features, mean=(0.5, 0.4, 0.4), std=(0.2, 0.2, 0.2))
    >>> network = built("Contrast", "encoder", encoder, (3, 16, 16), 2)
    >>> [name for name, weight in network.named_parameters() if weight.requires_grad]
    ['head.weight', 'head.bias']
    """

    network: nn.Module
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    frozen: bool = True
    head: Callable[[int, int], nn.Module] = linear

    def __post_init__(self) -> None:
        if not isinstance(self.network, nn.Module):
            raise TypeError(f"Pretrained: `network` must be an nn.Module, got {self.network!r}.")
        if min(self.std) <= 0 or len(self.mean) != len(self.std):
            found = f"{self.mean} and {self.std}"
            raise InputError("std", f"Pretrained: `mean` and `std` need a number per channel, std > 0; got {found}.")

    def __call__(self, n_in: Shape, n_out: int) -> Backbone:
        """Return a copy of the network between its normalisation and a head."""
        shape = n_in if isinstance(n_in, tuple) else (n_in,)
        network = copy.deepcopy(self.network).eval().requires_grad_(not self.frozen)
        features = _tried(network, (2, *shape))
        if not isinstance(features, Tensor):
            raise TypeError(f"Pretrained: `network` must return a tensor, got a {type(features).__name__}.")
        mean, std = (torch.tensor(values).reshape(-1, *[1] * (len(shape) - 1)) for values in (self.mean, self.std))
        return Backbone(Rescale(mean, std, shape), network, self.head(features.flatten(1).shape[1], n_out))


class Backbone(nn.Module):
    """A pretrained network between its normalisation and a head: see `Pretrained`.

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


class Encoder(nn.Module):
    """Preprocessing, a network, and the projection onto the latent space."""

    def __init__(self, preprocess: Preprocessing, body: nn.Module, space: Space) -> None:
        super().__init__()
        self.preprocess, self.body, self.space = preprocess, body, space

    @property
    def n_features(self) -> int:
        """Number of variables of a preprocessed sample."""
        return math.prod(self.preprocess.shape_out)

    @property
    def device(self) -> torch.device:
        """Device of the encoder."""
        return self.preprocess.mean.device

    def forward(self, x: Tensor) -> Tensor:
        """Encode (n, …) to (n, n_components)."""
        return self.space(self.body(self.preprocess(x)))


def is_cheap(encoder: Encoder) -> bool:
    """Return whether float64 costs little: a small network for vectors."""
    vectors = len(encoder.preprocess.shape_out) == 1 and not any(isinstance(m, nn.Conv2d) for m in encoder.modules())
    return vectors and sum(weight.numel() for weight in encoder.parameters()) <= CHEAP_PARAMETERS


def encode(encoder: Encoder, x: Tensor) -> Tensor:
    """Return the latents (n, n_components) of samples (n, …), encoded in blocks.

    The latents of a sample must not depend on the other samples. Cheap encoders run in float64. Others keep the
    precision of their weights and get blocks of a fixed size, since the order of summation depends on the size.
    """
    size = max(1, min(ENCODE_SAMPLES, ENCODE_BYTES // (8 * max(1, math.prod(x.shape[1:])))))
    with torch.no_grad():  # not inference_mode: users may train on the result
        if is_cheap(encoder):
            double = copy.deepcopy(encoder).double().eval()
            return torch.cat([double(part.to(encoder.device).double()) for part in x.split(size)])
        return torch.cat([_padded(encoder.eval(), part) for part in x.split(PADDED_SAMPLES)])


def _padded(encoder: Encoder, x: Tensor) -> Tensor:
    """Encode a block that is padded to a fixed size by zeros."""
    filled = torch.cat([x, x.new_zeros(PADDED_SAMPLES - len(x), *x.shape[1:])])
    return encoder(filled.to(encoder.device))[: len(x)]
