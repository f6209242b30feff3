"""Worlds whose truth is known: latents, a mixing, and perhaps a side variable, drawn as a `Sample`.

A process says which assumptions of `pindown.theory` it satisfies. Drawing neither branches on data nor waits
for the device; constants are copied to a device the first time they are needed there.
"""

from pindown.processes._base import Process, Sample
from pindown.processes.bodies import Arm, Bodies
from pindown.processes.clusters import Clusters, Instances, in_hyperplane
from pindown.processes.code_laws import BernoulliGaussian, CodeLaw, Exactly, Hierarchy
from pindown.processes.composed import Composed, cutouts
from pindown.processes.expression import Expression
from pindown.processes.filmed import Film, Filmed
from pindown.processes.nuisance import Confounded, Nuisance, ShapeNuisance
from pindown.processes.pairs import Pairs
from pindown.processes.sensors import Sensors
from pindown.processes.structured import Structured
from pindown.processes.superposed import Superposed

__all__ = [
    "Arm",
    "BernoulliGaussian",
    "Bodies",
    "Clusters",
    "CodeLaw",
    "Composed",
    "Confounded",
    "Exactly",
    "Expression",
    "Film",
    "Filmed",
    "Hierarchy",
    "Instances",
    "Nuisance",
    "Pairs",
    "Process",
    "Sample",
    "Sensors",
    "ShapeNuisance",
    "Structured",
    "Superposed",
    "cutouts",
    "in_hyperplane",
]
