"""Simulations with known latents: distributions, mixings, and the processes that combine them.

A process draws a `Sample`: latents, observations, and a side variable if there is one. It lists which assumptions of
`pindown.theory` hold. Sampling never branches on data or synchronises with the device. Simulations that only serve the
papers' tables are in `pindown_papers.simulations`.
"""

from pindown.simulate.nuisance import Bodies, Confounded, Nuisance
from pindown.simulate.process import Clusters, Pairs, Process, Sample, in_hyperplane
from pindown.simulate.structured import BernoulliGaussian, KSparse, SparseDistribution, Structured, Superposed

__all__ = [
    "BernoulliGaussian",
    "Bodies",
    "Clusters",
    "Confounded",
    "KSparse",
    "Nuisance",
    "Pairs",
    "Process",
    "Sample",
    "SparseDistribution",
    "Structured",
    "Superposed",
    "in_hyperplane",
]
