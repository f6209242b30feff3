"""Functions that return networks: plain ``nn.Module`` objects that map (n, n_in) to (n, n_out), or images (n, c, h, w).

An estimator takes such a function as its ``encoder`` and calls it as ``encoder(n_in, n_out)``. Weights are drawn
from torch's global generator, which the estimator forks and seeds around the call.
"""

from pindown.networks.bijections import Bijection, couplings, splines
from pindown.networks.building import built, pretrained
from pindown.networks.denoising import Denoiser, denoising
from pindown.networks.images import convolutional, deconvolutional, level, pictured, suited, temporal
from pindown.networks.preprocessing import Decorrelate, FirstLayer, Preprocess, Rescale, Whiten
from pindown.networks.resnet import resnet18
from pindown.networks.vectors import (
    Frame,
    Residual,
    Unfolded,
    flat,
    linear,
    mlp,
    nearest_frame,
    reader,
    residual,
    smooth,
    unfolded,
)

__all__ = [
    "Bijection",
    "Decorrelate",
    "Denoiser",
    "FirstLayer",
    "Frame",
    "Preprocess",
    "Rescale",
    "Residual",
    "Unfolded",
    "Whiten",
    "built",
    "convolutional",
    "couplings",
    "deconvolutional",
    "denoising",
    "flat",
    "level",
    "linear",
    "mlp",
    "nearest_frame",
    "pictured",
    "pretrained",
    "reader",
    "residual",
    "resnet18",
    "smooth",
    "splines",
    "suited",
    "temporal",
    "unfolded",
]
