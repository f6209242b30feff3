"""`LatentAction` and its first stage, `InverseDynamics`, with the models behind them."""

from pindown.estimators.latent_action.estimator import LatentAction
from pindown.estimators.latent_action.inverse import InverseDynamics

__all__ = ["InverseDynamics", "LatentAction"]
