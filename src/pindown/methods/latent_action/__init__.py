"""`LatentAction` and `InverseDynamics`: actions from transitions of one or several bodies."""

from pindown.methods.latent_action.estimator import LatentAction
from pindown.methods.latent_action.inverse_dynamics import InverseDynamics

__all__ = ["InverseDynamics", "LatentAction"]
