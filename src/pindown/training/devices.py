"""The processes, the device and the memory of a training."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import torch

from pindown.errors import InputError

if TYPE_CHECKING:
    from accelerate import Accelerator


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""

OF_HEAP, FREE_ABOVE, KEEP_ALL = 32 * 2**20, 64 * 2**20, 2**31 - 1
"""Bytes up to which glibc takes a block from its heap, bytes that lie free on top of it at most, both as glibc itself
sets them once it was given a large block back; and as many as it can be told to keep."""


def processes() -> Accelerator:
    """Return the accelerator, which knows the number and the index of this process."""
    from accelerate import Accelerator  # slow to import

    # Without the hint it ignores other processes on a machine without a GPU.
    return Accelerator(device_placement=False, cpu=not torch.cuda.is_available())


def best_device(device: str | torch.device | None = None) -> torch.device:
    """Return the requested device; by default this process's GPU if there is one, else the CPU.

    Raises
    ------
    InputError
        If there is no such device, or if it cannot compute, as ``meta``.

    Examples
    --------
    >>> best_device("cpu")
    device(type='cpu')
    """
    if device is None:
        found = processes().device
        return found if found.type == "cuda" else torch.device("cpu")  # others lack float64
    try:
        number = torch.zeros(1, device=device)
        number.item()
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA raises the latter
        cause = str(error).splitlines()[0].rstrip(".")
        message = f"`device={str(device)!r}` cannot be used here ({cause}). Leave it out, or take cpu."
        raise InputError("device", message) from error
    return number.device


@contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Make a GPU the current one, as streams and graphs want it, with products in TF32; keep a CPU's memory."""
    if device.type != "cuda":
        with kept_memory():
            yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let the memory that a step frees serve the next one, where the C library is glibc.

    It would give large blocks back to the system, which hands them out again page by page and wiped: in a training of
    convolutions on two cores that is a fifth of the time, as `benchmarks/kept_memory.py` measures it.
    """
    limit = _limits()
    limit(M_MMAP_THRESHOLD, OF_HEAP)
    limit(M_TRIM_THRESHOLD, KEEP_ALL)
    try:
        yield
    finally:
        limit(M_TRIM_THRESHOLD, FREE_ABOVE)


@cache
def _limits() -> Callable[[int, int], object]:
    """Return what sets a limit of the C library's memory, or does nothing where there is none."""
    found = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return found or (lambda _parameter, _value: 0)
