"""Images per second of each renderer with antialiasing, against the same with one sample a pixel.

Run ``python benchmarks/rendering.py`` (a minute on one core; on a GPU it draws larger batches). On a CPU, CPU seconds
are counted, whatever else is running.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from _measure import save, seconds
from pindown_papers.simulations import RobotArm, Room, Sprites

FIVE = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")
RENDERERS = {
    "Room, six factors": lambda samples: Room(64, samples=samples),
    "Room of cubes, five factors": lambda samples: Room(64, factors=FIVE, fixed={"shape": 0}, samples=samples),
    "Sprites": lambda samples: Sprites(64, samples=samples),
    "Sprites, three of them": lambda samples: Sprites(64, n_sprites=3, samples=samples),
    "Arm": lambda samples: RobotArm(64, samples=samples),
}


def duration(work: Callable[[], torch.Tensor]) -> float:
    if torch.cuda.is_available():
        return seconds(work)
    work()
    start = time.process_time()
    for _ in range(3):
        work()
    return (time.process_time() - start) / 3


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    n = 2_048 if device.type == "cuda" else 64
    rows = []
    for name, make in RENDERERS.items():
        rates = {}
        for samples in (1, 2):
            renderer = make(samples)
            z = torch.rand(n, renderer.d, generator=torch.Generator(device).manual_seed(0), device=device)
            rates[samples] = n / duration(lambda renderer=renderer, z=z: renderer(z))
        rows.append({"renderer": name, "pixels": 64, "per_second": rates[1], "antialiased_per_second": rates[2]})
    save("rendering", rows)
