"""`Dictionary`: a variational autoencoder with a sparse Jacobian, and `disentangle` for trained decoders."""

from pindown.methods.dictionary.estimator import Dictionary

__all__ = ["Dictionary"]
