"""`ImageFolder`: the images of a folder as a source, with labels from a csv file. Every file is decoded once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from pindown._names import counted, listed, printable
from pindown.data.data import Sides, roles_of
from pindown.data.labels import as_label
from pindown.data.sources import Batch, IndexedSource
from pindown.data.table_files import map_npy, open_text, optional_module
from pindown.errors import InputError

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")  # suffixes of files that Pillow reads
SUFFIXES = (*IMAGES, ".npy")  # suffixes of all files that count as images
SIXTEEN_BIT = ("I;16", "I;16B", "I;16L", "I")  # Pillow's modes for 16-bit grey
GREY = ("1", "L", "LA", "F", *SIXTEEN_BIT)  # Pillow's modes with one channel, with or without transparency

ORIENTATION = 0x0112  # tag of the orientation of the camera; 5 and above: on its side
BITS = 0x0102  # tag of the bits per pixel of a tiff
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # weights of red, green and blue in grey (ITU-R BT.601)
ROUNDING = 1e-3  # tolerance for floats outside [0, 1]; the precision of 16-bit floats
CACHE_BYTES = 1 << 31  # of decoded images that are kept in memory; threads decode others whenever they are needed
UNREADABLE = (OSError, SyntaxError, EOFError, ValueError)  # what Pillow raises for files that are broken


class UnreadableError(ValueError):
    """A file cannot be read as an image."""


class ImageFolder(IndexedSource):
    r"""The images of a folder (png, jpeg, tiff, npy), sorted by path, as float32 (channels, h, w) in [0, 1].

    All images must have one size and number of channels, or be converted by ``size`` and ``channels``. Opening the
    folder reads headers only. The first use of an image decodes it and keeps it in memory, up to `CACHE_BYTES`. 8-bit
    images are divided by 255 and 16-bit grey by 65,535; floats must lie in [0, 1]. Palettes and the camera's
    orientation are applied. Needs Pillow, unless all files are npy: ``pip install 'pindown[images]'``.

    Parameters
    ----------
    folder : str or Path
        The folder; subfolders are searched, too.
    labels : str or Path, optional
        A csv file with one line per image. The first column, or the one called ``file``, has paths within the folder.
        Empty cells, ``none`` and ``NA`` are missing labels.
    signal, nuisance, given, groups, pairs, truth : str or sequence of str, optional
        Columns of ``labels``, by role; images with equal values of ``pairs`` are positives.
    size : (int, int), optional
        Height and width to resize to.
    channels : 1 or 3, optional
        Convert to grey or to colour.
    background : float, optional
        Grey level behind transparent pixels, from 0 (black) to 1 (white).
    skip_corrupt, skip_unlabelled : bool
        Leave out images that cannot be read (this decodes all of them), or that have no label. `notes` lists them.

    Attributes
    ----------
    files : tuple of str
        Paths within the folder.
    notes : tuple of str
        Which images and labels were left out.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, scanner in (("a", "north"), ("b", "south")):
    ...         np.save(f"{folder}/{name}.npy", np.full((4, 4), 51, dtype=np.uint8))
    ...     _ = Path(f"{folder}/labels.csv").write_text("file,scanner\na.npy,north\nb.npy,south\n")
    ...     source = ImageFolder(folder, labels=f"{folder}/labels.csv", nuisance="scanner")
    ...     batch = source.take(np.array([1]))
    >>> source.shape, round(float(batch["x"].max()), 3), batch["nuisance"].tolist()
    ((1, 4, 4), 0.2, ['south'])
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        labels: str | Path | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
        background: float | None = None,
        skip_corrupt: bool = False,
        skip_unlabelled: bool = False,
        **sides: Unpack[Sides],
    ) -> None:
        if channels not in (None, 1, 3):
            raise InputError("channels", f"`channels` must be 1 (grey) or 3 (colour), got {channels}.")
        if background is not None and not 0 <= background <= 1:
            raise InputError("background", f"`background` must be between 0 and 1, got {background}.")
        self.folder, self.size, self.channels, self.background = Path(folder), _check_size(size), channels, background
        self._cache: dict[str, NDArray[np.float32] | NDArray[np.uint8]] = {}
        self._cached_bytes = 0
        named = roles_of(sides)
        files, notes, columns = image_paths(self.folder), list[str](), list[str]()
        if labels is None and named:
            role = next(iter(named))
            raise InputError("labels", f"`{role}` names a column of a label file. Pass it: `labels='labels.csv'`.")
        if labels is not None:
            parts = ((part,) if isinstance(part, str) else part for part in named.values())
            columns = list(dict.fromkeys(chain.from_iterable(parts)))
            lines = _read_labels(Path(labels), columns)
            files = _labelled(files, lines, Path(labels), notes, skip=skip_unlabelled)
        if skip_corrupt:
            files = self._readable(files, notes)
        self.files, self.notes, self.n_samples = tuple(files), tuple(notes), len(files)
        self.shape = self._common_shape()
        cells = {name: as_label([str(lines[file][j]) for file in self.files]) for j, name in enumerate(columns)}
        self._side_variables = {
            role: cells[part] if isinstance(part, str) else np.stack([cells[name] for name in part], axis=1)
            for role, part in named.items()
        }

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """Return the samples with these numbers, in this order."""
        rows = np.asarray(rows)
        names = [self.files[row] for row in rows]
        decoded = self._decode_all(name for name in dict.fromkeys(names) if name not in self._cache)
        images = np.empty((len(rows), *self.shape), dtype=np.float32)
        for i, name in enumerate(names):
            image = decoded[name] if name in decoded else self._cache[name]
            images[i] = image if image.dtype == np.float32 else image / np.float32(255)
        return {"x": images, **{role: side[rows] for role, side in self._side_variables.items()}}

    def side_variables(self) -> dict[str, NDArray[np.generic]]:
        """Return the side variables of all samples, without decoding images."""
        return dict(self._side_variables)

    def _decode_all(self, names: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Decode some files, in threads, and cache what fits."""
        names = list(names)
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            decoded = dict(zip(names, pool.map(self._decode, names), strict=True))
        for name, image in decoded.items():
            compact = _as_bytes(image)
            if self._cached_bytes + compact.nbytes <= CACHE_BYTES:
                self._cache[name] = compact
                self._cached_bytes += compact.nbytes
        return decoded

    def _decode(self, name: str) -> NDArray[np.float32]:
        """Return an image as (channels, h, w)."""
        path = self.folder / name
        try:
            if path.suffix.lower() == ".npy":
                array = map_npy(path)
                _npy_shape(array.shape)
                image = as_channels(array[None])[0]
            else:
                image = _decode_image(path)
            if not np.isfinite(image).all():
                raise ValueError("it has NaN or infinite pixels")
        except UNREADABLE as error:
            raise unreadable(name, error) from error
        if len(image) in (2, 4):
            colours, alpha = image[:-1], image[-1:]
            if self.background is None and alpha.min() < 1:
                message = f"{printable(name)} has transparent pixels. Pass `background=1.0` to show them on white."
                raise InputError("background", message)
            image = (colours * alpha + (1 - alpha) * np.float32(self.background or 0.0)).astype(np.float32)
        image = self._convert(image)
        if hasattr(self, "shape") and image.shape != self.shape:
            raise InputError("folder", f"{printable(name)} changed after the folder was opened. Open it again.")
        return image

    def _convert(self, image: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply `channels` and `size`."""
        if self.channels == 1 and len(image) == 3:
            image = np.tensordot(LUMA, image, 1)[None]
        elif self.channels == 3 and len(image) == 1:
            image = np.repeat(image, 3, axis=0)
        if self.size is not None and image.shape[1:] != self.size:
            pillow = import_pillow(self.folder)
            planes = [pillow.fromarray(plane).resize(self.size[::-1], pillow.Resampling.BOX) for plane in image]
            image = np.stack([np.asarray(plane, dtype=np.float32) for plane in planes])
        return image

    def _common_shape(self) -> tuple[int, ...]:
        """Return the shape of all images, or raise if two differ."""
        first = self._read_shape(self.files[0])
        for name in self.files[1:]:
            if (shape := self._read_shape(name)) != first:
                argument, remedy = ("size", "size=(64, 64)") if shape[1:] != first[1:] else ("channels", "channels=3")
                differ = f"{printable(self.files[0])} has shape {first}, but {printable(name)} has {shape}"
                raise InputError(argument, f"{differ} (channels, height, width). Pass `{remedy}` to convert all.")
        return first

    def _read_shape(self, name: str) -> tuple[int, int, int]:
        """Return the shape that an image will have, from its header."""
        path = self.folder / name
        try:
            if path.suffix.lower() == ".npy":
                array = map_npy(path)
                check_kind(array.dtype)
                shape = _npy_shape(array.shape)
            else:
                with _opened(path) as image:
                    _check_header(image)
                    on_its_side = image.getexif().get(ORIENTATION, 1) >= 5
                    size = (image.width, image.height) if on_its_side else (image.height, image.width)
                    shape = (1 if image.mode in GREY else 3, *size)
        except UNREADABLE as error:
            raise unreadable(name, error) from error
        return (self.channels or shape[0], *(self.size or shape[1:]))

    def _readable(self, names: list[str], notes: list[str]) -> list[str]:
        """Return the images that can be decoded; add a note about the others."""
        broken: dict[str, str] = {}
        for name in names:
            try:
                self._decode_all([name])
            except UnreadableError as error:
                broken[name] = str(error)
        if len(broken) == len(names):
            raise UnreadableError(f"{printable(self.folder.name)} has no readable image: {broken[names[0]]}")
        if broken:
            notes.append(f"Left out {counted(len(broken), 'file')} that cannot be read: {listed([*broken])}")
        return [name for name in names if name not in broken]


def image_paths(folder: Path) -> list[str]:
    """Return the paths of all images in a folder and its subfolders, sorted."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise InputError("folder", f"{folder} has no images ({', '.join(SUFFIXES)}). Pass a folder that has some.")
    return [path.relative_to(folder).as_posix() for path in found]


def import_pillow(path: Path) -> Any:
    """Return the module PIL.Image, or raise an error that says how to install it."""
    return optional_module("PIL.Image", path, "images")


def _opened(path: Path) -> Any:
    """Open an image, of which only the header is read; raise ValueError if it is a bomb."""
    pillow = import_pillow(path)
    try:
        return pillow.open(path)
    except pillow.DecompressionBombError as error:
        raise ValueError(f"{error}") from error


def is_transparent(image: Any) -> bool:
    """Return whether an image may have transparent pixels."""
    return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info


def unreadable(name: str, error: Exception) -> UnreadableError:
    """Return the error to raise for a file that cannot be read as an image."""
    cause = (next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(".")
    return UnreadableError(
        f"{printable(name)} cannot be read as an image ({cause}). Replace it, or pass `skip_corrupt=True` to leave "
        "such files out."
    )


def as_channels(images: NDArray[Any]) -> NDArray[np.float32]:
    """Return images (n, h, w) or (n, h, w, c) of 8 or 16 bits, or floats, as float32 (n, c, h, w) in [0, 1]."""
    check_kind(images.dtype)
    images = images[..., None] if images.ndim == 3 else images
    floats = np.ascontiguousarray(np.moveaxis(images, -1, 1), dtype=np.float32)
    white = np.iinfo(images.dtype).max if images.dtype.kind in "ui" else 1
    if images.dtype.kind != "u":
        return _scale(floats, white)
    floats /= np.float32(white)
    return floats


def check_kind(dtype: np.dtype[np.generic], owner: str = "it") -> None:
    """Raise unless numbers of this type have a customary value for white."""
    if not (dtype.kind in "bf" or (dtype.kind in "ui" and dtype.itemsize <= 2)):
        raise ValueError(f"{owner} holds {dtype.name}, for which no value means white: save it as uint8 or uint16")


def _scale(pixels: NDArray[np.float32], white: float) -> NDArray[np.float32]:
    """Divide pixels between 0 and `white` by `white`, or raise if they lie outside; NaN stays."""
    if not pixels.size:
        return pixels
    low, high = float(pixels.min()), float(pixels.max())
    tolerance = ROUNDING if white == 1 else 0  # only floats are rounded
    if low < -tolerance or high > white + tolerance:
        found = f"its pixels range from {low:g} to {high:g}, but must be between 0 and {white:g}"
        raise ValueError(f"{found}: divide them by the value of white, or save them as uint8 or uint16")
    return (pixels / np.float32(white)).clip(0, 1) if white != 1 or low < 0 or high > 1 else pixels


def _as_bytes(image: NDArray[np.float32]) -> NDArray[np.float32] | NDArray[np.uint8]:
    """Return an image as uint8 if nothing is lost, otherwise as it is."""
    compact = np.rint(image * 255).astype(np.uint8)
    return compact if np.array_equal(compact / np.float32(255), image) else image


def _check_size(size: tuple[int, int] | None) -> tuple[int, int] | None:
    match size:
        case None:
            return None
        case [int() as height, int() as width] if height > 0 and width > 0:
            return height, width
    raise InputError("size", f"`size` must be height and width in pixels, such as (64, 64), got {size!r}.")


def _decode_image(path: Path) -> NDArray[np.float32]:
    """Return an image as (channels, h, w); the last of two or four channels is opacity."""
    with _opened(path) as file:
        _check_header(file)
        image = import_module("PIL.ImageOps").exif_transpose(file)
        if image.mode in ("F", *SIXTEEN_BIT):
            pixels = _scale(np.asarray(image, dtype=np.float32), 1 if image.mode == "F" else 65_535)[None]
        else:
            mode = ("L" if image.mode in GREY else "RGB") + ("A" if is_transparent(image) else "")
            pixels = as_channels(np.asarray(image.convert(mode))[None])[0]
    return pixels


def _npy_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 2:
        return 1, *shape
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], shape[0], shape[1]
    raise ValueError(f"an image must have shape (height, width) or (height, width, 1 or 3), got {shape}")


def _check_header(image: Any) -> None:
    if (pages := getattr(image, "n_frames", 1)) > 1:
        raise ValueError(f"it has {pages} pages; save each as a file")
    if image.mode == "I" and max(getattr(image, "tag_v2", {}).get(BITS, (16,))) > 16:  # signed 16-bit is I, too
        check_kind(np.dtype(np.int32))


def _read_labels(path: Path, columns: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """Return some columns of a label file by the path of the image; None where a cell is empty."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        table = open_text(path)
        key = "file" if "file" in table.names else table.names[0]
        for column in columns:
            table.require(column, "labels")
        cells = table.read([], (key, *columns))[1]
    except ValueError as error:
        raise InputError("labels", str(error)) from error
    names = [PurePosixPath(str(name)).as_posix() for name in cells[key]]  # ./0.png is 0.png
    lines = {name: tuple(cells[column][i] for column in columns) for i, name in enumerate(names)}
    if len(lines) < len(names):
        twice = printable(next(name for name in names if names.count(name) > 1))
        raise InputError("labels", f"{printable(path.name)} lists {twice} twice. Give one line per image.")
    return lines


def _labelled(
    files: list[str], lines: dict[str, tuple[object, ...]], path: Path, notes: list[str], *, skip: bool
) -> list[str]:
    """Return the images that have all labels, and add notes about the others; raise unless these may be skipped."""
    if not lines.keys() & set(files):
        first, like = printable(next(iter(lines))), printable(files[0])
        raise InputError("labels", f"{path.name} lists no image: {first} is no path in the folder, such as {like}.")
    kept = [name for name in files if name in lines and not any(label is None for label in lines[name])]
    if not kept:
        raise InputError("labels", f"{path.name}: no image has a label. Fill the column, or name another one.")
    missing = sorted({*files} - {*kept})
    if missing and not skip:
        n, first = counted(len(missing), "image"), printable(missing[0])
        remedy = "Add labels (none and NA count as empty), or pass `skip_unlabelled=True`"
        raise InputError("labels", f"{path.name} has no label for {n}, such as {first}. {remedy}.")
    if missing:
        notes.append(f"Left out {counted(len(missing), 'image')} without a label: {listed(missing)}")
    if extra := [name for name in lines if name not in set(files)]:
        notes.append(f"Ignored {counted(len(extra), 'line')} of {path.name} without an image: {listed(extra[:1])}")
    return kept
