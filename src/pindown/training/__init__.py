"""Training: the one loop as a value, how it is saved and resumed, when it has run away, and what takes its steps."""

from pindown.training.callbacks import Callback, CallbackError
from pindown.training.devices import best_device, processes
from pindown.training.divergence import TrainingDivergedError
from pindown.training.schedules import constant, cosine, waiting_cosine
from pindown.training.trainer import Trainer, TrainerMixin, TrainingDefaults, TrainingLog
from pindown.training.validation import Validation

__all__ = [
    "Callback",
    "CallbackError",
    "Trainer",
    "TrainerMixin",
    "TrainingDefaults",
    "TrainingDivergedError",
    "TrainingLog",
    "Validation",
    "best_device",
    "constant",
    "cosine",
    "processes",
    "waiting_cosine",
]
