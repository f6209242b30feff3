"""Schedules: factors of a learning rate as functions of progress in [0, 1]."""

import math
from collections.abc import Callable

Schedule = Callable[[float], float]
"""Maps progress in [0, 1] to the factor of the learning rate."""

WAIT = 0.1
"""Fraction of the steps in which an encoder waits, while its adversary learns."""


def cosine(progress: float) -> float:
    """Learning-rate factor: a short linear warm-up, then half a cosine down to zero.

    Examples
    --------
    >>> [round(cosine(t), 3) for t in (0.0, 0.025, 0.05, 0.525, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warm_up = 0.05
    return progress / warm_up if progress < warm_up else _half_cosine(progress, warm_up)


def waiting_cosine(progress: float) -> float:
    """Learning-rate factor of the encoder in adversarial training: zero at first, then half a cosine down to zero.

    Examples
    --------
    >>> [round(waiting_cosine(t), 3) for t in (0.0, 0.09, 0.1, 0.55, 1.0)]
    [0.0, 0.0, 1.0, 0.5, 0.0]
    """
    return 0.0 if progress < WAIT else _half_cosine(progress, WAIT)


def constant(progress: float) -> float:
    """Learning-rate factor 1 throughout."""
    return 1.0


def falling(progress: float) -> float:
    """Learning-rate factor: half a cosine from one down to zero.

    Examples
    --------
    >>> [round(falling(t), 3) for t in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return _half_cosine(progress, 0.0)


def _half_cosine(progress: float, start: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * (progress - start) / (1 - start)))
