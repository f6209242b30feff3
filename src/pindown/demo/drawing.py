"""The geometry of the pictures: a net over the sphere, carried through mixing and encoder, at the size of a panel."""

from __future__ import annotations

from typing import Any

import numpy as np

from pindown.demo.recovery import Recovery

N_DRAWN = 1_500
"""Points in a picture: enough to see a surface, few enough to turn it smoothly."""


def net() -> np.ndarray:
    """Return the sphere as a net with meshes of 7.5°; (25 parallels, 49 meridians, 3)."""
    latitude, longitude = np.meshgrid(np.linspace(-0.5, 0.5, 25) * np.pi, np.linspace(0, 2, 49) * np.pi, indexing="ij")
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)


def mixed(recovery: Recovery[Any, Any], z: np.ndarray) -> np.ndarray:
    """Return g(z); (…, d) → (…, d)."""
    import torch

    return recovery.world.mixing(torch.from_numpy(z)).numpy()


def encoded(recovery: Recovery[Any, Any], x: np.ndarray) -> np.ndarray:
    """Return f(x); (…, d) → (…, d)."""
    return recovery.estimator.transform(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def filling(cloud: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
    """Return parts of a cloud, moved and scaled by what makes the cloud fill the unit ball."""
    centre = (cloud.min(axis=0) + cloud.max(axis=0)) / 2
    return [(part - centre) / np.linalg.norm(cloud - centre, axis=1).max() for part in parts]
