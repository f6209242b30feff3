"""Where training runs: which process of how many this is, and on what device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from accelerate import Accelerator


def processes() -> Accelerator:
    """Return what knows which process of a training this is, of how many, and how they talk."""
    from accelerate import Accelerator  # slow to import

    # Without the hint it takes no notice of other processes on a machine without a GPU.
    return Accelerator(device_placement=False, cpu=not torch.cuda.is_available())


def best_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device asked for, or this process's GPU if there is one, or the CPU.

    Raises
    ------
    ValueError
        If the device is not there.

    Examples
    --------
    >>> best_device("cpu")
    device(type='cpu')
    """
    if device is None:
        found = processes().device
        return found if found.type == "cuda" else torch.device("cpu")  # others lack float64
    try:
        return torch.zeros(1, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA raises the latter
        cause = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"device {str(device)!r} cannot be used here ({cause}). Leave it out, or take cpu.") from error


@contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Make a GPU the current one, as streams and graphs want it, and let the encoder's products run in TF32."""
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
