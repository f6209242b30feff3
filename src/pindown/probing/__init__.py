"""Probes of frozen models: what a linear map reads off their features, with chance, control tasks and baselines."""

from pindown.probing.imagenet_x import ImageNetX, imagenet_x
from pindown.probing.probe import holm, probe
from pindown.probing.result import Compared, Probed, Probing

__all__ = ["Compared", "ImageNetX", "Probed", "Probing", "holm", "imagenet_x", "probe"]
