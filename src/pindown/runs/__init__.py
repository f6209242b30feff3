"""Runs: a fit as a folder that can be resumed after a kill, audited again, and applied to new data."""

from pindown.runs.fitting import FitRequest
from pindown.runs.folder import Place, Run
from pindown.runs.recipe import Recipe, estimator_for, read_options

__all__ = ["FitRequest", "Place", "Recipe", "Run", "estimator_for", "read_options"]
