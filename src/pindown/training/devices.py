"""The processes and the device of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from pindown.errors import InputError

if TYPE_CHECKING:
    from accelerate import Accelerator


def processes() -> Accelerator:
    """Return the accelerator, which knows the number and the index of this process."""
    from accelerate import Accelerator  # slow to import

    # Without the hint it ignores other processes on a machine without a GPU.
    return Accelerator(device_placement=False, cpu=not torch.cuda.is_available())


def best_device(device: str | torch.device | None = None) -> torch.device:
    """Return the requested device, or raise; by default this process's GPU if there is one, else the CPU."""
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
    """Make a GPU the current one, as streams and graphs need it, with products in TF32."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with torch.cuda.device(device):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
