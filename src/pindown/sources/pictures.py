"""`Pictures`: a folder of pictures, read when they are asked for, with labels from a file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted, listed
from pindown.sources.picture_labels import Table, columns_of, read_labels, with_labels
from pindown.sources.pixels import as_channels, check_kind, within
from pindown.sources.source import Batch, Indexed

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
"""Endings of files that pillow reads."""

SUFFIXES = (*IMAGES, ".npy")
"""Endings of files that are pictures."""

DEEP = ("I;16", "I;16B", "I;16L", "I")
"""Pillow's words for 16 bits of grey."""

GREY = ("1", "L", "LA", "F", *DEEP)
"""Its words for grey, of a bit, a byte, a byte that may be transparent, a float, or 16 bits."""

ORIENTATION, BITS = 0x0112, 0x0102
"""Where a camera says how it was held, from 5 on on its side, and a tiff how many bits a pixel has."""


class Pictures(Indexed):
    r"""The pictures of a folder, png, jpeg, tiff or npy, in the order of their paths: (channels, h, w), from 0 to 1.

    All must have one size and one number of channels, or be resized to ``size`` and turned to ``channels``. Sizes are
    looked at first, in the files' heads; pictures are read when they are asked for. 8 bits are divided by 255, 16 bits
    of grey by 65,535, and floats must lie between 0 and 1. Palettes are looked up, and a camera that says that it was
    held on its side is believed. Needs pillow, unless all are npy: ``pip install 'pindown[images]'``.

    Parameters
    ----------
    folder : str or Path
        The folder; folders in it count.
    labels : str or Path, optional
        A csv file with a row per picture: the first column, or one called ``file``, has paths within the folder, the
        others may play a part. An empty cell, or one that says none or NA, is no label.
    signal, nuisance, given, groups, pairs, truth : str or sequence of str, optional
        Columns of ``labels``, by the part they play; equal values of ``pairs`` are partners.
    size : (int, int), optional
        Height and width that pictures are resized to.
    channels : 1 or 3, optional
        Grey or colours that pictures are turned to.
    background : float, optional
        What shows through transparent pixels, from 0 (black) to 1 (white).
    skip_corrupt, skip_unlabelled : bool
        Leave out pictures that cannot be read (all are read once, then), or that ``labels`` misses. `notes` says which.

    Attributes
    ----------
    files : tuple of str
        Their paths within the folder.
    notes : tuple of str
        What was left out, of the pictures and of their labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, scanner in (("a", "north"), ("b", "south")):
    ...         np.save(f"{folder}/{name}.npy", np.full((4, 4), 51, dtype=np.uint8))
    ...     _ = Path(f"{folder}/labels.csv").write_text("file,scanner\na.npy,north\nb.npy,south\n")
    ...     source = Pictures(folder, labels=f"{folder}/labels.csv", nuisance="scanner")
    ...     batch = source.take(np.array([1]))
    >>> source.shape, round(float(batch["x"].max()), 3), batch["nuisance"].tolist()
    ((1, 4, 4), 0.2, ['south'])
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        labels: str | Path | None = None,
        signal: str | Sequence[str] | None = None,
        nuisance: str | Sequence[str] | None = None,
        given: str | Sequence[str] | None = None,
        groups: str | Sequence[str] | None = None,
        pairs: str | None = None,
        truth: str | Sequence[str] | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
        background: float | None = None,
        skip_corrupt: bool = False,
        skip_unlabelled: bool = False,
    ) -> None:
        if channels not in (None, 1, 3):
            raise ValueError(f"Pictures: channels must be 1 (grey) or 3 (colours), got {channels}.")
        if background is not None and not 0 <= background <= 1:
            raise ValueError(f"Pictures: background must lie between 0 (black) and 1 (white), got {background}.")
        self.folder, self.size, self.channels, self.background = Path(folder), _pair(size), channels, background
        notes: list[str] = []
        names = pictures_in(self.folder)
        table: Table = {}
        roles = {
            "signal": signal,
            "nuisance": nuisance,
            "given": given,
            "groups": groups,
            "pairs": pairs,
            "truth": truth,
        }
        asked = {role: columns for role, columns in roles.items() if columns is not None}
        if labels is not None:
            columns = [c for some in asked.values() for c in ((some,) if isinstance(some, str) else some)]
            table = read_labels(Path(labels), columns)
            names, notes = with_labels(names, table, columns, Path(labels), skip=skip_unlabelled)
        elif asked:
            raise ValueError(
                f"Pictures: {listed([*asked])} must be a column of a file of labels. Pass labels='labels.csv'."
            )
        if skip_corrupt:
            names = self._readable(names, notes)
        self.files, self.notes, self.n_rows = tuple(names), tuple(notes), len(names)
        self.shape = self._one_shape()
        self._sides = {role: columns_of(table, names, columns) for role, columns in asked.items()}

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, in this order."""
        rows = np.asarray(rows)
        pictures = np.empty((len(rows), *self.shape), dtype=np.float32)
        for place, row in enumerate(rows):
            pictures[place] = self._read(self.files[row])
        return {"x": pictures, **{role: side[rows] for role, side in self._sides.items()}}

    def sides(self) -> dict[str, NDArray[Any]]:
        """Return what belongs to all rows, without a look at the pictures."""
        return dict(self._sides)

    def _read(self, name: str) -> NDArray[np.float32]:
        """Return a picture as (channels, h, w)."""
        path = self.folder / name
        try:
            picture = _from_array(path) if path.suffix.lower() == ".npy" else _from_image(path)
        except (OSError, SyntaxError, EOFError, ValueError) as error:  # pillow has words of its own for a broken file
            raise unreadable(name, error) from error
        if not np.isfinite(picture).all():
            raise unreadable(name, ValueError("it has NaN or infinity for a pixel"))
        if len(picture) in (2, 4):
            picture = self._on_background(picture, name)
        picture = self._as_asked(picture)
        if hasattr(self, "shape") and picture.shape != self.shape:
            raise ValueError(f"{name} has changed: it is {picture.shape} now, and was {self.shape} when it was opened.")
        return picture

    def _on_background(self, layers: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        colours, alpha = layers[:-1], layers[-1:]
        if self.background is None and alpha.min() < 1:
            raise ValueError(f"{name} has transparent pixels, which have no colour. Pass background=1.0 for white.")
        return (colours * alpha + (1 - alpha) * np.float32(self.background or 0.0)).astype(np.float32)

    def _as_asked(self, picture: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.channels == 1 and len(picture) == 3:
            picture = np.tensordot(np.array([0.299, 0.587, 0.114], dtype=np.float32), picture, 1)[None]
        elif self.channels == 3 and len(picture) == 1:
            picture = np.repeat(picture, 3, axis=0)
        if self.size is not None and picture.shape[1:] != self.size:
            image = import_pillow(self.folder)
            height, width = self.size
            planes = [image.fromarray(plane).resize((width, height), image.Resampling.BOX) for plane in picture]
            picture = np.stack([np.asarray(plane, dtype=np.float32) for plane in planes])
        return picture

    def _one_shape(self) -> tuple[int, ...]:
        """Return the shape that all pictures have, or name two that differ."""
        first = self._shape_of(self.files[0])
        for name in self.files[1:]:
            if (shape := self._shape_of(name)) != first:
                what, remedy = ("sizes", "size=(64, 64)") if shape[1:] != first[1:] else ("channels", "channels=3")
                raise ValueError(
                    f"{self.folder.name}: pictures have different {what}: {self.files[0]} is {_said(first)}, {name} is "
                    f"{_said(shape)}. Pass {remedy} to make them alike."
                )
        return first

    def _shape_of(self, name: str) -> tuple[int, int, int]:
        path = self.folder / name
        try:
            if path.suffix.lower() == ".npy":
                array = np.load(path, mmap_mode="r")
                check_kind(array.dtype)
                shape = _array_shape(array.shape)
            else:
                with import_pillow(path).open(path) as image:  # reads the head alone
                    _check_head(image)
                    channels = 1 if image.mode in GREY else 3
                    lies = image.getexif().get(ORIENTATION, 1) >= 5
                    shape = (channels, *((image.width, image.height) if lies else (image.height, image.width)))
        except (OSError, SyntaxError, EOFError, ValueError) as error:
            raise unreadable(name, error) from error
        return (self.channels or shape[0], *(self.size or shape[1:]))

    def _readable(self, names: list[str], notes: list[str]) -> list[str]:
        broken: dict[str, str] = {}
        for name in names:
            try:
                self._read(name)
            except UnreadableError as error:
                broken[name] = str(error)
        if len(broken) == len(names):
            why = broken[names[0]].partition(" Replace it")[0]
            raise ValueError(f"{self.folder.name}: none of {len(names)} files can be read as a picture: {why}")
        if broken:
            notes.append(f"{counted(len(broken), 'file')} that cannot be read left out: {listed([*broken])}")
        return [name for name in names if name not in broken]


def pictures_in(folder: Path) -> list[str]:
    """Return the paths of all pictures within a folder, in order."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}.")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise ValueError(f"{folder}: the folder holds no pictures ({', '.join(SUFFIXES)}).")
    return [path.relative_to(folder).as_posix() for path in found]


def _pair(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, list | tuple) else ()
    if len(pair) != 2 or not all(isinstance(side, int | np.integer) and side > 0 for side in pair):
        raise ValueError(f"Pictures: size must be a height and a width in pixels, such as (64, 64), got {size!r}.")
    return int(pair[0]), int(pair[1])


def _from_array(path: Path) -> NDArray[np.float32]:
    array = np.load(path)
    _array_shape(array.shape)
    return as_channels(array[None])[0]


def _from_image(path: Path) -> NDArray[np.float32]:
    """Return a picture as (channels, h, w), the last of two or four channels its opacity."""
    with import_pillow(path).open(path) as file:
        _check_head(file)
        image = import_module("PIL.ImageOps").exif_transpose(file)  # upright, as the camera says
        if image.mode in ("F", *DEEP):
            return within(np.asarray(image, dtype=np.float32), 1 if image.mode == "F" else 65_535)[None]
        kind = ("L" if image.mode in GREY else "RGB") + ("A" if is_transparent(image) else "")
        return as_channels(np.asarray(image.convert(kind))[None])[0]


def _array_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 2:
        return 1, *shape
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], shape[0], shape[1]
    raise ValueError(f"a picture is (height, width) or (height, width, 1 or 3), got {shape}")


def import_pillow(path: Path) -> Any:
    """Return pillow, or say how to get it."""
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise ImportError(f"{path.name}: reading pictures needs pillow: pip install 'pindown[images]'.") from error


def is_transparent(image: Any) -> bool:
    """Say whether a picture has pixels that may be seen through."""
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def _check_head(image: Any) -> None:
    if (pages := getattr(image, "n_frames", 1)) > 1:
        raise ValueError(f"it holds {pages} of them; save each as a file")
    if image.mode == "I" and max(getattr(image, "tag_v2", {}).get(BITS, (16,))) > 16:  # signed 16 bits are I, too
        check_kind(np.dtype(np.int32))


def _said(shape: tuple[int, ...]) -> str:
    colours = "grey" if shape[0] == 1 else "in colour"
    return f"{shape[1]} × {shape[2]}, {colours}"


class UnreadableError(ValueError):
    """A file is no picture."""


def unreadable(name: str, error: Exception) -> UnreadableError:
    """Return what to raise of a file that is no picture."""
    cause = (next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(".")
    return UnreadableError(
        f"{name} cannot be read as a picture ({cause}). Replace it, or pass skip_corrupt=True to leave such files out."
    )
