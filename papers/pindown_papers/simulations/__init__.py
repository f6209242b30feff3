"""Simulations that the papers' tables and benchmarks use, in addition to those of `pindown.simulate`."""

from pindown_papers.simulations.bodies import Arm, Bodies
from pindown_papers.simulations.clusters import Instances, in_hyperplane
from pindown_papers.simulations.composed import Composed, cutouts
from pindown_papers.simulations.confounded import Confounded
from pindown_papers.simulations.densities import Projected, log_posterior, log_prob
from pindown_papers.simulations.expression import Expression
from pindown_papers.simulations.filmed import Film, Filmed, save_animation
from pindown_papers.simulations.grids import Grid, LaplaceSteps, Redrawn, SomeChange
from pindown_papers.simulations.hierarchy import Hierarchy, like_language
from pindown_papers.simulations.renderers import Room
from pindown_papers.simulations.robot_arm import RobotArm
from pindown_papers.simulations.sensors import Sensors
from pindown_papers.simulations.separated import separation, well_separated
from pindown_papers.simulations.shape_nuisance import ShapeNuisance
from pindown_papers.simulations.sprites import Sprites

__all__ = [
    "Arm",
    "Bodies",
    "Composed",
    "Confounded",
    "Expression",
    "Film",
    "Filmed",
    "Grid",
    "Hierarchy",
    "Instances",
    "LaplaceSteps",
    "Projected",
    "Redrawn",
    "RobotArm",
    "Room",
    "Sensors",
    "ShapeNuisance",
    "SomeChange",
    "Sprites",
    "cutouts",
    "in_hyperplane",
    "like_language",
    "log_posterior",
    "log_prob",
    "save_animation",
    "separation",
    "well_separated",
]
