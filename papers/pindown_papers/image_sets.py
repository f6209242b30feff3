"""The image sets of the field, from the official files of people who have them: rows are images, read when asked for.

Every set is an `ImageSet`: images (channels, h, w) between 0 and 1 in float32, with ``truth``, the numbers of their
factors' values, and `factors`, what these are called. Nothing is held in memory but labels: images lie behind maps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import listed, nearest
from pindown.data.data import ROLES
from pindown.data.images import ImageFolder, as_channels, check_kind
from pindown.data.sources import Batch, IndexedSource
from pindown_papers.packed import arrays_of_pickle, matlab_array, matlab_head, member, norb_array, require_file

Labels = NDArray[Any]


class ImageSet(IndexedSource):
    """Images with the labels of their factors; abstract.

    Attributes
    ----------
    factors : tuple of str
        Names of the factors.
    labels : array (n, factors)
        Numbers of their values, or measurements.
    """

    factors: tuple[str, ...]
    labels: Labels

    def __init__(
        self,
        shape: tuple[int, ...],
        labels: Labels,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self.shape, self.labels, self.n_samples = shape, labels, len(labels)
        for role in roles or ():
            if role not in ROLES or role in ("pairs", "truth", "floor"):
                raise ValueError(f"{type(self).__name__}: no factor can be {role!r}: {nearest(role, ROLES[:2])}")
        self.roles = {role: self._place(name) for role, name in (roles or {}).items()}

    @abstractmethod
    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return these images as they are stored, channels last or none; (n, h, w) or (n, h, w, c)."""

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, in this order."""
        rows = np.asarray(rows)
        pictures = as_channels(self._pictures(rows))
        return {"x": pictures, **{name: part[rows] for name, part in self.side_variables().items()}}

    def side_variables(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, without a look at the images."""
        return {"truth": self.labels, **{role: self.labels[:, j] for role, j in self.roles.items()}}

    def _place(self, name: str) -> int:
        if name not in self.factors:
            raise ValueError(f"{type(self).__name__}: no factor is called {name!r}: {nearest(name, self.factors)}")
        return self.factors.index(name)


class DSprites(ImageSet):
    """The npz file of dSprites: white shapes on black, 737,280 of 64 × 64 pixels.

    Parameters
    ----------
    path : str or Path
        The file.
    unpacked : str or Path, optional
        Where its images are written once, 3 GB: the official file is compressed, so that rows of it cannot be taken
        in any order. A file that is already there is used.
    roles : mapping from str to str, optional
        Factors that play a part, such as ``{"signal": "shape"}``.
    """

    factors = ("color", "shape", "scale", "orientation", "x", "y")

    def __init__(
        self,
        path: str | Path,
        *,
        unpacked: str | Path | None = None,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        labels = member(path, "latents_classes", None)
        self.pictures = member(path, "imgs", unpacked)
        _require(path, self.pictures, labels, len(self.factors), 3)
        super().__init__((1, *self.pictures.shape[1:]), labels, roles)

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.pictures[rows] * np.uint8(255)  # stored as 0 and 1


class MPI3D(ImageSet):
    """An npz file of MPI3D: a robot's arm, 1,036,800 images of 64 × 64 pixels in the order of their factors.

    Parameters
    ----------
    path : str or Path
        The file.
    unpacked : str or Path, optional
        Where its images are written once, if the file is compressed.
    sizes : tuple of int
        Numbers of values of the factors.
    roles : mapping from str to str, optional
        Factors that play a part, such as ``{"signal": "shape"}``.
    """

    factors = ("color", "shape", "size", "camera_height", "background_color", "horizontal_axis", "vertical_axis")

    def __init__(
        self,
        path: str | Path,
        *,
        unpacked: str | Path | None = None,
        sizes: tuple[int, ...] = (6, 6, 2, 3, 3, 40, 40),
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self.pictures = member(path, "images", unpacked)
        labels = in_order(sizes)
        _require(path, self.pictures, labels, len(self.factors), 4)
        super().__init__(_channels_first(self.pictures), labels, roles)

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.pictures[rows]


class Shapes3D(ImageSet):
    """The h5 file of 3D Shapes: a solid in a room, 480,000 images of 64 × 64 pixels. Needs h5py.

    Parameters
    ----------
    path : str or Path
        The file.
    roles : mapping from str to str, optional
        Factors that play a part, such as ``{"signal": "shape"}``.
    """

    factors = ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")

    def __init__(
        self,
        path: str | Path,
        *,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        try:
            h5py = import_module("h5py")
        except ImportError as error:
            raise ImportError("Shapes3D: reading an h5 file needs h5py: pip install 'pindown[images]'.") from error
        require_file(path)
        try:
            file = h5py.File(path, "r")
            self.pictures, measured = file["images"], np.asarray(file["labels"])
        except (OSError, KeyError) as error:
            raise ValueError(f"{Path(path).name} is no h5 file with images and labels ({error}).") from error
        labels = np.stack([np.unique(column, return_inverse=True)[1] for column in measured.T], axis=1)
        _require(path, self.pictures, labels, len(self.factors), 4)
        super().__init__(_channels_first(self.pictures), labels, roles)

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        ordered, place = np.unique(rows, return_inverse=True)  # h5py wants each row once, in order
        return self.pictures[ordered][place]


class Cars3D(ImageSet):
    """The folder of Cars3D: a MATLAB file per car, each with its images by elevation and azimuth.

    Parameters
    ----------
    folder : str or Path
        The folder with the ``.mat`` files; they are read one at a time, and the last eight are kept.
    roles : mapping from str to str, optional
        Factors that play a part, such as ``{"signal": "shape"}``.
    """

    factors = ("elevation", "azimuth", "car")

    def __init__(
        self,
        folder: str | Path,
        *,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        self.files = sorted(Path(folder).glob("*.mat"))
        if not self.files:
            raise FileNotFoundError(f"Cars3D: there are no .mat files in {folder}.")
        first, _ = matlab_head(self.files[0], "im")
        for path in self.files:
            shape, kind = matlab_head(path, "im")
            if len(shape) != 5 or shape[2] != 3 or shape != first or kind != "uint8":
                raise ValueError(
                    f"{path.name}: im must be bytes (h, w, 3, azimuths, elevations), as many as in all files, got "
                    f"{kind} {shape} beside {first} in {self.files[0].name}. Is this the official file?"
                )
        self._car = lru_cache(maxsize=8)(self._read_car)
        self.views = first[4], first[3]
        labels = in_order((len(self.files), *self.views))[:, [1, 2, 0]]
        super().__init__((3, *first[:2]), labels, roles)

    def _read_car(self, number: int) -> NDArray[Any]:
        return matlab_array(self.files[number], "im").transpose(4, 3, 0, 1, 2)

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        per_car = self.views[0] * self.views[1]
        found = np.empty((len(rows), *self.shape[1:], 3), dtype=np.uint8)
        for car in np.unique(rows // per_car):  # each file once
            mine = rows // per_car == car
            elevation, azimuth = np.divmod(rows[mine] % per_car, self.views[1])
            found[mine] = self._car(int(car))[elevation, azimuth]
        return found


class SmallNORB(ImageSet):
    """The three files of a part of SmallNORB: toys in grey, 24,300 pairs of 96 × 96 pixels, of which the left is taken.

    Parameters
    ----------
    path : str or Path
        The file ``…-dat.mat``, unzipped; ``…-cat.mat`` and ``…-info.mat`` lie next to it.
    roles : mapping from str to str, optional
        Factors that play a part, such as ``{"signal": "shape"}``.
    """

    factors = ("category", "instance", "elevation", "azimuth", "lighting")

    def __init__(
        self,
        path: str | Path,
        *,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        path = Path(path)
        if not path.name.endswith("-dat.mat"):
            raise ValueError(
                f"SmallNORB: the file of pictures ends in -dat.mat, got {path.name}. Unzip it if it is .gz."
            )
        self.pictures = norb_array(path)
        beside = [path.with_name(path.name.replace("-dat.mat", f"-{part}.mat")) for part in ("cat", "info")]
        category, info = (norb_array(one) for one in beside)
        numbers = [np.unique(column, return_inverse=True)[1] for column in np.asarray(info).T]
        labels = np.stack([np.asarray(category), *numbers], axis=1)
        _require(path, self.pictures, labels, len(self.factors), 4)
        shape = (1, *self.pictures.shape[2:])
        super().__init__(shape, labels, roles)

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.pictures[rows, 0]


class ThreeDIdent(ImageSet):
    """A folder of 3DIdent: ``images/*.png`` and ``raw_latents.npy``, whose rows are ``truth``. Needs pillow.

    Parameters
    ----------
    folder : str or Path
        The folder.
    size : (int, int), optional
        Height and width that images are resized to; 224 × 224 as they are.
    """

    factors = ("x", "y", "z", *(f"rotation_{j}" for j in (1, 2, 3)), "light", "object_hue", "light_hue", "ground_hue")

    def __init__(self, folder: str | Path, *, size: tuple[int, int] | None = None) -> None:
        path = Path(folder) / "raw_latents.npy"
        require_file(path)
        try:
            latents = np.load(path)
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{path.name} cannot be read as an array ({error}). Is the download complete?") from error
        if latents.ndim != 2 or latents.shape[1] != len(self.factors):
            raise ValueError(
                f"{path.name} must have {len(self.factors)} columns, {listed(self.factors, 10)}, got shape "
                f"{latents.shape}. Is this the official file?"
            )
        self.pictures = ImageFolder(path.parent / "images", size=size, channels=3, background=0.0)
        if len(latents) != self.pictures.n_samples:
            raise ValueError(
                f"{path.parent.name}: there are {self.pictures.n_samples} pictures and {len(latents)} rows of "
                f"{path.name}. Is the folder complete?"
            )
        super().__init__(self.pictures.shape, latents)

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return np.moveaxis(self.pictures.take(rows)["x"], 1, -1)


class KittiMasks(ImageSet):
    """The pickle of KITTI masks: pedestrians in sequences, with ``pairs``, the frame that comes ``gap`` later.

    Only arrays, lists and dictionaries are taken from the pickle: whatever else it would call is refused.

    Parameters
    ----------
    path : str or Path
        The file; its masks are held in memory.
    gap : int
        Frames from one to its positive.
    """

    factors = ("x", "y", "size")

    def __init__(self, path: str | Path, *, gap: int = 1) -> None:
        found = arrays_of_pickle(path)
        if not isinstance(found, dict) or not {"pedestrians", "pedestrians_latents"} <= set(found):
            raise ValueError(f"{Path(path).name} holds no pedestrians and pedestrians_latents.")
        if gap < 1:
            raise ValueError(f"KittiMasks: gap must be at least 1, got {gap}.")
        frames, latents = _sequences(Path(path).name, found["pedestrians"], found["pedestrians_latents"])
        lengths = np.array([len(sequence) for sequence in frames])
        starts = np.cumsum(lengths) - lengths
        self.first = np.concatenate(
            [start + np.arange(max(0, length - gap)) for start, length in zip(starts, lengths, strict=True)]
        ).astype(np.int64)
        if not len(self.first):
            raise ValueError(f"{Path(path).name}: no sequence has more than {gap} frames. Pass a smaller gap.")
        self.frames, self.gap = np.concatenate(frames), gap
        super().__init__((1, *self.frames.shape[1:3]), np.concatenate(latents)[self.first])

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows and their positives."""
        rows = np.asarray(rows)
        positives = as_channels(255 * self.frames[self.first[rows] + self.gap].astype(np.uint8))
        return {**super().take(rows), "pairs": positives}

    def _pictures(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return 255 * self.frames[self.first[rows]].astype(np.uint8)


def _sequences(name: str, pedestrians: Any, measured: Any) -> tuple[list[NDArray[Any]], list[Labels]]:
    """Return the frames (t, h, w) and the latents (t, 3) of each sequence, or say which is not so."""
    counts = [len(some) if isinstance(some, list | tuple | np.ndarray) else 0 for some in (pedestrians, measured)]
    if not counts[0] or counts[0] != counts[1]:
        raise ValueError(
            f"{name}: there are {counts[0]} sequences of pedestrians and {counts[1]} of their latents, but there must "
            "be some, and as many. Is this the official file?"
        )
    frames: list[NDArray[Any]] = []
    latents: list[Labels] = []
    for number, (masks, rows) in enumerate(zip(pedestrians, measured, strict=True)):
        try:
            seen, known = np.asarray(masks), np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: sequence {number} is no array of masks and one of latents ({error}).") from error
        like = (len(seen), *(frames[0] if frames else seen).shape[1:])
        if seen.ndim != 3 or seen.shape != like or known.shape != (len(seen), 3) or not seen.size:
            raise ValueError(
                f"{name}: sequence {number} has masks {seen.shape} and latents {known.shape}, but must have some, "
                "(frames, height, width) as all others, and (frames, 3). Is this the official file?"
            )
        frames.append(seen)
        latents.append(known)
    return frames, latents


def in_order(sizes: Sequence[int]) -> Labels:
    """Return the labels of a full grid, the last factor fastest; (product of sizes, factors).

    Examples
    --------
    >>> in_order((2, 3)).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    """
    return np.stack(np.unravel_index(np.arange(np.prod(sizes)), tuple(sizes)), axis=1)


def _channels_first(pictures: Any) -> tuple[int, ...]:
    _, height, width, channels = pictures.shape
    return channels, height, width


def _require(path: str | Path, pictures: Any, labels: Labels, n_factors: int, ndim: int) -> None:
    name = Path(path).name
    if len(pictures.shape) != ndim:
        raise ValueError(f"{name}: pictures must have {ndim} dimensions, got shape {tuple(pictures.shape)}.")
    check_kind(pictures.dtype, name)
    if len(pictures) != len(labels) or labels.shape[1] != n_factors:
        raise ValueError(
            f"{name}: {len(pictures)} pictures do not go with labels of shape {labels.shape}, which should be "
            f"({len(pictures)}, {n_factors}). Is this the official file?"
        )
