"""Colours: of directions, so that near ones look alike; and of the values of a column, with the key to read them by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_KINDS = 24
"""Values of a column up to which they are kinds; more whole numbers are amounts."""

N_SHADES = 64
"""Shades by which amounts are told apart, by their ranks."""


@dataclass(frozen=True, eq=False)
class Colouring:
    """A column that points are coloured by: text and whole numbers of few values as kinds, other numbers as amounts."""

    name: str
    values: NDArray[Any]  # (n,)

    def data(self) -> dict[str, Any]:
        """Return the shades there are, the place of each value among them, and what the key says.

        The key names the first kinds and counts the others; of amounts it gives the least, the median and the most.

        Examples
        --------
        >>> kinds = Colouring("tissue", np.array(["skin", "bone", "skin"])).data()
        >>> kinds["which"], kinds["key"], kinds["others"]
        ([1, 0, 1], ['bone', 'skin'], 0)
        >>> Colouring("age", np.array([30.5, 2.0, 61.0])).data()["key"]
        ['2', '30.5', '61']
        """
        plain = self.values.astype(str) if self.values.dtype.kind == "O" else self.values
        found, number = np.unique(plain, return_inverse=True)
        number, amounts = number.reshape(-1), _are_amounts(found)
        if amounts:
            n_shades = min(N_SHADES, len(found))
            which = number * (n_shades - 1) // max(len(found) - 1, 1)
            key = [f"{value:.3g}".replace("-", "−") for value in (found[0], np.median(plain), found[-1])]
            return self._read_by(_spiral(n_shades), which, key, amounts=True)
        others = max(0, len(found) - MOST_KINDS)
        return self._read_by(_apart(len(found)), number, [str(value) for value in found[:MOST_KINDS]], others=others)

    def _read_by(
        self, shades: NDArray[Any], which: NDArray[Any], key: list[str], *, amounts: bool = False, others: int = 0
    ) -> dict[str, Any]:
        parts = {"shades": colours(shades), "which": which.tolist(), "key": key, "amounts": amounts, "others": others}
        return {"name": self.name} | parts


def _are_amounts(found: NDArray[Any]) -> bool:
    return found.dtype.kind in "fiu" and (
        len(found) > MOST_KINDS or (found.dtype.kind == "f" and bool((found % 1).any()))
    )


def _spiral(n: int) -> NDArray[np.float64]:
    """Return unit vectors along a spiral from dark to light; (n, 3)."""
    rank = np.linspace(0, 1, n)
    return _unit(2 * rank - 1, 1.5 * np.pi * rank)


def _apart(n: int) -> NDArray[np.float64]:
    """Return unit vectors far from each other; the golden angle keeps neighbours apart however many there are."""
    kind = np.arange(n, dtype=np.float64)
    return _unit(1 - (2 * kind + 1) / max(n, 2), math.pi * (3 - math.sqrt(5)) * kind)


def _unit(height: NDArray[np.float64], turn: NDArray[np.float64]) -> NDArray[np.float64]:
    across = np.sqrt(np.maximum(0, 1 - height**2))
    return np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=-1)


def colours(directions: NDArray[np.floating[Any]]) -> list[Any]:
    """Return the colours of unit vectors as hexadecimal strings, nested as they are.

    The vector is placed into the Oklab colour space, where equal steps look equal: up is lightness, round about
    is hue. Its range keeps apart from a white and from a black background.

    Examples
    --------
    >>> colours(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]))
    ['#b4b4b4', '#666666']
    """
    x, y, z = np.moveaxis(np.asarray(directions, dtype=np.float64), -1, 0)
    lab = np.stack([0.64 + 0.13 * z, 0.15 * x, 0.15 * y], axis=-1)
    rgb = np.clip((lab @ _OKLAB_TO_LMS) ** 3 @ _LMS_TO_RGB, 0, 1)
    gamma = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * rgb ** (1 / 2.4) - 0.055)
    bytes_ = np.round(255 * gamma).astype(int)
    flat = [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in bytes_.reshape(-1, 3)]
    return np.array(flat, dtype=object).reshape(bytes_.shape[:-1]).tolist()


# Ottosson 2020, "A perceptual color space for image processing"; transposed, to be multiplied from the right.
_OKLAB_TO_LMS = np.array(
    [[1.0, 1.0, 1.0], [0.3963377774, -0.1055613458, -0.0894841775], [0.2158037573, -0.0638541728, -1.2914855480]]
)
_LMS_TO_RGB = np.array(
    [
        [4.0767416621, -1.2684380046, -0.0041960863],
        [-3.3077115913, 2.6097574011, -0.7034186147],
        [0.2309699292, -0.3413193965, 1.7076147010],
    ]
)
