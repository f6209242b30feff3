"""Training: the one loop, how it is saved and resumed, when it has run away, and what takes its steps."""

from pindown.training.divergence import TrainingDivergedError
from pindown.training.loop import TrainingLog, best_device, constant, cosine, processes, train

__all__ = ["TrainingDivergedError", "TrainingLog", "best_device", "constant", "cosine", "processes", "train"]
