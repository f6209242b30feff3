"""Simulations with known latents: distributions, mixings, and the processes that combine them.

A process draws a `Sample`: latents, observations, and a side variable if there is one. It lists which assumptions of
`pindown.theory` hold. Sampling never branches on data or synchronises with the device. Simulations that only serve the
papers' tables are in `pindown_papers.simulations`.
"""

from pindown.simulate.process import Clusters, Nuisance, Pairs, Process, Sample
from pindown.simulate.structured import BernoulliGaussian, KSparse, SparseDistribution, Structured, Superposed

__all__ = [
    "BernoulliGaussian",
    "Clusters",
    "KSparse",
    "Nuisance",
    "Pairs",
    "Process",
    "Sample",
    "SparseDistribution",
    "Structured",
    "Superposed",
]
