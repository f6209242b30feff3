"""Estimators: `fit` on data and a side variable, `transform` to latents."""

from pindown.estimators.contrast import Contrast

__all__ = ["Contrast"]
