"""`Factor`: what one latent of a renderer means, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Factor:
    """What one latent of a renderer means.

    Attributes
    ----------
    name : str
        Such as ``"wall_hue"``.
    low, high : float
        The values at the two ends of the latent's range, in the renderer's units.
    values : tuple of str
        Names of the values of a category; empty if the factor is continuous.
    period : float or None
        After which the picture comes again; None if it never does. A range of that length is a circle: its ends meet.

    Examples
    --------
    >>> hue, shape = Factor("hue", 0.0, 0.8, period=1.0), Factor("shape", 0, 2, values=("square", "ellipse"))
    >>> hue.categorical, hue.circular, shape.categorical
    (False, False, True)
    """

    name: str
    low: float
    high: float
    values: tuple[str, ...] = ()
    period: float | None = None

    @property
    def categorical(self) -> bool:
        """Whether the factor has names for its values, and no order."""
        return bool(self.values)

    @property
    def circular(self) -> bool:
        """Whether the range goes all the way round, so that two ends of it give one picture."""
        return self.period is not None and math.isclose(self.high - self.low, self.period)

    @property
    def middle(self) -> float:
        """The value in the middle of the range; of a category its number."""
        value = (self.low + self.high) / 2
        return float(math.floor(value)) if self.categorical else value

    def fixed_at(self, value: float) -> float:
        """Return a value that the factor may have all the time: a finite number, or that of a category.

        Examples
        --------
        >>> Factor("shape", 0, 2, values=("square", "ellipse")).fixed_at(7)
        Traceback (most recent call last):
        ValueError: 'shape' must be 0 (square) or 1 (ellipse), got 7.
        """
        try:
            number = math.nan if isinstance(value, str) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if self.categorical and number not in range(len(self.values)):
            which = " or ".join(f"{j} ({name})" for j, name in enumerate(self.values))
            raise ValueError(f"{self.name!r} must be {which}, got {value!r}.")
        if not math.isfinite(number):
            raise ValueError(f"{self.name!r} must be a number, such as {self.middle:g}, got {value!r}.")
        return number

    def at(self, share: Tensor) -> Tensor:
        """Return the value at a share from 0 to 1 of the range; of a category its number, each with an equal part."""
        value = self.low + (self.high - self.low) * share.clamp(0, 1)
        return value.floor().clamp_max(len(self.values) - 1) if self.categorical else value
