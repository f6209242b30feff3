"""`Dictionary` and its rooms: the autoencoder, and a start at unrolled data."""

from pindown.methods.dictionary.estimator import Dictionary

__all__ = ["Dictionary"]
