"""`LatentAction` and its first stage, `InverseDynamics`, with the models behind them."""

from pindown.methods.latent_action.estimator import LatentAction
from pindown.methods.latent_action.inverse import InverseDynamics

__all__ = ["InverseDynamics", "LatentAction"]
