"""`LatentAction` and its first stage, `InverseDynamics`, with the models behind them."""

from pindown.estimators.latent_action.estimator import InverseDynamics, LatentAction

__all__ = ["InverseDynamics", "LatentAction"]
