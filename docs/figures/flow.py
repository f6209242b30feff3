"""Draw traversals of a flow's latents, without a penalty and with one: ``python docs/figures/flow.py``.

After Figure 8 of Zheng et al.: boots of Fashion-MNIST, from the folder that ``FASHION_MNIST`` names or from where
Debian's package dataset-fashion-mnist puts it; where there is neither, rooms. A minute on a CPU.
"""

import gzip
import os
from functools import partial
from pathlib import Path

import numpy as np
import torch
from pindown_papers.baselines import Flow
from pindown_papers.simulations import Room

from pindown import disentangle
from pindown.losses import DependencySparsity
from pindown.simulate.images import save_png

FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
BOOT, CODES, STEPS, WEIGHT = 9, 8, 400, 0.05


def numbers(name: str, header: int) -> np.ndarray:
    """Return the bytes of a file behind its header."""
    return np.frombuffer(gzip.decompress((FOLDER / name).read_bytes()), np.uint8)[header:]


def pictures() -> torch.Tensor:
    """Return what the flow learns from; (n, c, h, w)."""
    if FOLDER.is_dir():
        images = numbers("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
        boots = images[numbers("train-labels-idx1-ubyte.gz", 8) == BOOT]
        return torch.as_tensor(boots.astype(np.float32) / 255)
    print(f"There is no folder {FOLDER}: rooms are drawn instead.")
    names = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")
    return Room(28, factors=names, fixed={"shape": 0}, samples=1)(
        torch.rand(3_000, 5, generator=torch.Generator().manual_seed(0))
    )


def drawn(decoder: torch.nn.Module, scale: torch.Tensor, centre: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Decode, in units of the pictures."""
    return decoder(z) * scale + centre


x, sheets = pictures(), []
for name, penalty in (("without", None), ("with the penalty", DependencySparsity(WEIGHT, n_columns=2, n_samples=64))):
    flow = Flow(CODES, penalty=penalty, batch_size=256, max_iter=STEPS, random_state=0, verbose=False).fit(x)
    scale, centre = flow.objective_.scale.float(), flow.objective_.centre.float()
    shown = partial(drawn, flow.decoder_, scale, centre)
    found = disentangle(shown, flow.transform(x[:2_000]).float(), n_samples=100)
    print(
        f"{name}: {found.before:.2f} latents reach a pixel, {found.after:.2f} after one rotation, likelihood", end=" "
    )
    print(f"{flow.score(x[-500:]):.2f} {found}")
    sheets.append(found.traversals(steps=7, new=False))
gap = np.full((len(sheets[0]), 12, 3), 255, dtype=np.uint8)
sheet = np.concatenate([sheets[0], gap, sheets[1]], axis=1)
save_png(Path(__file__).with_name("flow.png"), sheet.repeat(2, 0).repeat(2, 1))
