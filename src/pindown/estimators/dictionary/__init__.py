"""`Dictionary` and its rooms: the autoencoder, the rotation of its latents, and a start at unrolled data."""

from pindown.estimators.dictionary.estimator import Dictionary, widest_gap

__all__ = ["Dictionary", "widest_gap"]
