"""Estimators: `fit` on data and a side variable, `transform` to latents."""

from pindown.estimators.afterwards import IdentifiabilityWarning
from pindown.estimators.classify import Classify
from pindown.estimators.contrast import Contrast
from pindown.estimators.dictionary import Dictionary
from pindown.estimators.folds import out_of_fold
from pindown.estimators.forget import Forget
from pindown.estimators.latent_action import InverseDynamics, LatentAction
from pindown.estimators.sparse import CodeGraph, SeedAgreement, Sparse, SparseBasis, SparsePair

__all__ = [
    "Classify",
    "CodeGraph",
    "Contrast",
    "Dictionary",
    "Forget",
    "IdentifiabilityWarning",
    "InverseDynamics",
    "LatentAction",
    "SeedAgreement",
    "Sparse",
    "SparseBasis",
    "SparsePair",
    "out_of_fold",
]
