"""Draw what codes of rooms stand for: docs/figures/along-latents.png, swaps.png and film.png.

Run ``python docs/figures/rooms.py`` (about half a minute on one thread). The encoder sees 16 × 16 pixels; the pictures
are those of the same latents, drawn larger, the nearest of 6,000.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pindown_papers.latent_frames import LatentFrames
from pindown_papers.simulations import Room
from scipy.optimize import linear_sum_assignment

from pindown import Contrast
from pindown.metrics import mcc
from pindown.networks.spaces import Box, Reals
from pindown.simulate import Pairs
from pindown.simulate.distributions import Truncated, Uniform, laplace
from pindown.simulate.images import along_latents, contact_sheet, nearest_traversals, save_png, swaps
from pindown.training import Trainer

FACTORS = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")
HERE = Path(__file__).parent
N, STEPS = 6_000, 600


def room(size: int) -> Room:
    """Return rooms of cubes."""
    return Room(size, factors=FACTORS, fixed={"shape": 0}, samples=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    world = Pairs(Uniform(len(FACTORS), Box()), Truncated(laplace(0.1)), room(16))
    train, test = world.sample(12_000, random_state=0), world.sample(N, random_state=1)
    film = LatentFrames(test.x, steps=(25, 75, 150, STEPS))
    how = {"batch_size": 128, "max_iter": STEPS, "learning_rate": 4e-3, "trainer": Trainer(callbacks=(film,))}
    contrast = Contrast(5, space=Reals(), p=1, device="cpu", verbose=False, random_state=0, **how)
    codes, z = contrast.fit(train.x, train.x_pos).transform(test.x.numpy()), test.z.numpy()
    going = np.corrcoef(z, codes, rowvar=False)[:5, 5:]
    order = linear_sum_assignment(abs(going), maximize=True)[1]
    signs = np.sign(going[np.arange(5), order])  # so that every row goes the way of its factor
    print(f"MCC {mcc(codes, z):.4f}; correlations {abs(going)[np.arange(5), order].round(3).tolist()}")
    print({step: round(mcc(then, z), 3) for step, then in film.frames.items()})
    drawn = room(48)(test.z).numpy()
    save_png(HERE / "along-latents.png", nearest_traversals(codes[:, order] * signs, drawn))
    save_png(HERE / "swaps.png", swaps(codes[:, order], drawn, n_pairs=4, random_state=1))
    hue = FACTORS.index("object_hue")  # one row per moment of the training
    moments = [along_latents(then[:, order] * signs, [hue], 8) for _, then in sorted(film.frames.items())]
    save_png(HERE / "film.png", contact_sheet(drawn[np.concatenate(moments)], columns=8))
