"""Training: the loop and its options, early stopping, callbacks, checkpoints, optimizers."""

from pindown.training.callbacks import Callback, CallbackError
from pindown.training.devices import best_device, processes
from pindown.training.divergence import TrainingDivergedError
from pindown.training.early_stopping import Validation
from pindown.training.optimizers import constant, cosine, waiting_cosine
from pindown.training.trainer import FitPart, Trainer, TrainingDefaults, TrainingLog, TrainingParameters

__all__ = [
    "Callback",
    "CallbackError",
    "FitPart",
    "Trainer",
    "TrainingDefaults",
    "TrainingDivergedError",
    "TrainingLog",
    "TrainingParameters",
    "Validation",
    "best_device",
    "constant",
    "cosine",
    "processes",
    "waiting_cosine",
]
