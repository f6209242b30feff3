"""Draw traversals of an autoencoder's latents before and after `disentangle`: ``python docs/figures/turned.py``.

Rooms of 16 × 16 pixels with three hues, learned without any penalty; then one rotation of the codes. A minute on a CPU.
"""

from pathlib import Path

import numpy as np
import torch

from pindown import Dictionary, disentangle
from pindown.metrics import mcc
from pindown.mixing import Room, save_png

room = Room(16, factors=("floor_hue", "wall_hue", "object_hue"), fixed={"shape": 2})
z = torch.rand(3_000, 3, generator=torch.Generator().manual_seed(0))
x = room(z)
plain = Dictionary(3, penalty=None, n_restarts=1, max_iter=200, batch_size=64, random_state=0, verbose=False).fit(x)
model, codes = plain.objective_, plain.transform(x)


def decoder(z: torch.Tensor) -> torch.Tensor:
    """Return pictures as they are, not standardised ones."""
    return (model.decoder(z) * model.scale + model.centre).float()


found = disentangle(decoder, codes)
print(f"MCC {mcc(codes, z):.3f} before, {mcc(codes.numpy() @ found.rotation, z):.3f} after")
print(found)
before, after = (found.traversals(steps=7, rotated=rotated) for rotated in (False, True))
gap = np.full((len(before), 12, 3), 255, dtype=np.uint8)
both = np.concatenate([before, gap, after], axis=1).repeat(3, 0).repeat(3, 1)
save_png(Path(__file__).with_name("turned.png"), both)
