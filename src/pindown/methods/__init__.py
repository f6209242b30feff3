"""Estimators: `fit` on data and a side variable, `transform` to latents."""

from pindown.methods.classify.estimator import Classify
from pindown.methods.contrast.estimator import Contrast
from pindown.methods.contrast.objective import PairLoss
from pindown.methods.dictionary import Dictionary
from pindown.methods.folds import out_of_fold
from pindown.methods.forget import Forget
from pindown.methods.latent_action import InverseDynamics, LatentAction
from pindown.methods.sparse import FeatureGraph, SeedAgreement, Sparse, SparseBasis, SparsePair

__all__ = [
    "Classify",
    "Contrast",
    "Dictionary",
    "FeatureGraph",
    "Forget",
    "InverseDynamics",
    "LatentAction",
    "PairLoss",
    "SeedAgreement",
    "Sparse",
    "SparseBasis",
    "SparsePair",
    "out_of_fold",
]
