"""Estimators: `fit` on data and a side variable, `transform` to latents."""

from pindown.estimators._base import IdentifiabilityWarning
from pindown.estimators.classify import Classify
from pindown.estimators.contrast import Contrast

__all__ = ["Classify", "Contrast", "IdentifiabilityWarning"]
