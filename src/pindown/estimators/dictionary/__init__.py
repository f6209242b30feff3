"""`Dictionary` and its rooms: the autoencoder, and a start at unrolled data."""

from pindown.estimators.dictionary.estimator import Dictionary

__all__ = ["Dictionary"]
