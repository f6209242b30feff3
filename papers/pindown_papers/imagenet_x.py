"""ImageNet-X, for people who have ImageNet's images: its factors next to them, ready for `probe`.

The annotations (Idrissi et al., 2023) come with the package ``imagenet-x``, under a licence of their own (CC BY-NC
4.0); nothing of them is kept here. The protocol is that of Reizinger et al. (2024), Figure 3: features of the
second-to-last layer, of an untrained network and of raw pixels, classes on one side of a division.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

FACTORS = (
    *("multiple_objects", "background", "color", "brighter", "darker", "style", "larger", "smaller"),
    *("object_blocking", "person_blocking", "partial_view", "pattern", "pose", "shape", "subcategory", "texture"),
)
PACKAGED = "annotations/imagenet_x_val_multi_factor.jsonl"


@dataclass(frozen=True, eq=False)
class ImageNetX:
    """Images that are there, and what is said of each.

    Attributes
    ----------
    files : tuple of Path
        The images.
    factors : dict of arrays of shape (n,)
        Whether each factor is said of them, by name: what `probe` asks for.
    classes : ndarray of shape (n,)
        Their classes, to be its ``groups``.
    """

    files: tuple[Path, ...]
    factors: dict[str, NDArray[np.bool_]]
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.files)

    def batches(self, size: int = 224, batch_size: int = 50) -> Iterator[Tensor]:
        """Yield images (n, 3, size, size) in [0, 1], the middle of each: for `pindown.activations`, or as raw inputs.

        Parameters
        ----------
        size : int
            Pixels of a side.
        batch_size : int
            Images at once.
        """
        import torch

        for start in range(0, len(self), batch_size):
            some = [_middle(path, size) for path in self.files[start : start + batch_size]]
            yield torch.as_tensor(np.stack(some))


def imagenet_x(folder: str | Path, annotations: str | Path | None = None) -> ImageNetX:
    """Find ImageNet's validation images in a folder, and the factors that annotators saw in them.

    Parameters
    ----------
    folder : str or Path
        With images by their names in ImageNet, ``ILSVRC2012_val_00000001.JPEG``, in it or in folders within.
    annotations : str or Path, optional
        The file of annotations, a JSON object a line; None takes that of the package ``imagenet-x``.

    Examples
    --------
    >>> imagenet_x("no/such/folder")
    Traceback (most recent call last):
    FileNotFoundError: there is no folder no/such/folder: give that of ImageNet's validation images.
    """
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"there is no folder {place}: give that of ImageNet's validation images.")
    said = _read(_packaged() if annotations is None else Path(annotations))
    found = {path.name: path for path in sorted(place.rglob("ILSVRC2012_val_*"))}
    kept = [entry for entry in said if entry["file_name"] in found]
    if not kept:
        raise ValueError(
            f"{place} has none of the {len(said)} pictures that are annotated, such as {said[0]['file_name']}: give "
            "the folder of ImageNet's validation pictures, under their own names."
        )
    return ImageNetX(
        tuple(found[entry["file_name"]] for entry in kept),
        {name: np.array([bool(entry[name]) for entry in kept]) for name in FACTORS},
        np.array([int(entry["class"]) for entry in kept]),
    )


def _packaged() -> Path:
    spec = find_spec("imagenet_x")  # its own modules are not imported: they want more than this needs
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "imagenet_x: the annotations come with the package imagenet-x, which is not installed: pip install "
            "imagenet-x, or name their file (annotations)."
        )
    return Path(spec.submodule_search_locations[0]) / PACKAGED


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        said = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        missing = [name for entry in said for name in ("file_name", "class", *FACTORS) if name not in entry]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} holds no annotations of ImageNet-X ({error}): it has a JSON object a line."
        ) from error
    if missing or not said:
        raise ValueError(f"{path} holds no annotations of ImageNet-X: {missing[0] if missing else 'all'} is missing.")
    return said


def _middle(path: Path, size: int) -> NDArray[np.float32]:
    """Return the middle of an image, scaled so that its shorter side is as long; (3, size, size)."""
    from PIL import Image

    with Image.open(path) as file:
        picture = file.convert("RGB")
    scale = size / min(picture.size)
    picture = picture.resize([max(size, round(scale * side)) for side in picture.size], Image.Resampling.BILINEAR)
    left, top = ((side - size) // 2 for side in picture.size)
    pixels = np.asarray(picture.crop((left, top, left + size, top + size)), dtype=np.float32)
    return pixels.transpose(2, 0, 1) / np.float32(255)
