"""`Forget` and its rooms: the nuisance as it is read, the closed forms, the game, and where it starts."""

from pindown.methods.forget.estimator import Forget

__all__ = ["Forget"]
