"""Functions that return networks: plain ``nn.Module`` objects that map (n, n_in) or images (n, c, h, w) to (n, n_out).

An estimator takes such a function as its ``encoder`` and calls it as ``encoder(n_in, n_out)``. Weights come from
torch's global generator; the estimator forks and seeds it around the call.
"""

from pindown.networks.encoder import Pretrained, built
from pindown.networks.images import (
    convolutional,
    deconvolutional,
    default_network,
    resnet18,
    temporal,
    zero_network,
)
from pindown.networks.preprocessing import Preprocess, Preprocessing, Rescale, Whiten
from pindown.networks.vectors import (
    Frame,
    Residual,
    SkipMLP,
    linear,
    mlp,
    nearest_frame,
    residual,
    skip_mlp,
    small_mlp,
    smooth,
    zero_mlp,
)

__all__ = [
    "Frame",
    "Preprocess",
    "Preprocessing",
    "Pretrained",
    "Rescale",
    "Residual",
    "SkipMLP",
    "Whiten",
    "built",
    "convolutional",
    "deconvolutional",
    "default_network",
    "linear",
    "mlp",
    "nearest_frame",
    "residual",
    "resnet18",
    "skip_mlp",
    "small_mlp",
    "smooth",
    "temporal",
    "zero_mlp",
    "zero_network",
]
