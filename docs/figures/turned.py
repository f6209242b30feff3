"""Draw traversals of a generator's latents before and after `disentangle`: ``python docs/figures/turned.py``.

The generator is a renderer of rooms behind a random rotation, as training with a Gaussian prior leaves one. It takes
some seconds on a CPU.
"""

from pathlib import Path

import numpy as np
import torch
from pindown_papers.simulations import Room

from pindown import disentangle
from pindown.networks.spaces import Reals
from pindown.simulate.images import save_png

NAMES = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")
rng = torch.Generator().manual_seed(0)
room, turn = Room(32, factors=NAMES, fixed={"shape": 0}, domain=Reals()), torch.randn(5, 5, generator=rng)
turn = torch.linalg.qr(turn)[0]
found = disentangle(lambda z: room(z @ turn), torch.randn(1_000, 5, generator=rng), n_samples=60, n_outputs=400)
print(found)
before, after = (found.traversals(steps=7, new=new) for new in (False, True))
gap = np.full((len(before), 12, 3), 255, dtype=np.uint8)
save_png(Path(__file__).with_name("turned.png"), np.concatenate([before, gap, after], axis=1).repeat(2, 0).repeat(2, 1))
