"""What gives the batch of a step; in two parts if a step can be captured in a CUDA graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor


class Draw(Protocol):
    """Gives the batch of a step: tensors on the device of the generator, the only source of chance."""

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        ...


class CapturableDraw(ABC):
    """A draw in two parts, so that a step can be captured in a CUDA graph and replayed.

    `prepare` runs on the host before each step and may write to tensors that `batch` reads; `batch` runs on the
    device alone, always with the same tensors, shapes and generator.
    """

    def __call__(self, step: int, generator: torch.Generator, /) -> tuple[Tensor, ...]:
        """Return the batch of this step."""
        self.prepare(step, generator)
        return self.batch(generator)

    @abstractmethod
    def prepare(self, step: int, generator: torch.Generator) -> None:
        """Make ready for a step."""

    @abstractmethod
    def batch(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return the batch made ready; no waiting for the device."""
