"""Former names of `pindown.data.batches`: remove this file when no module uses them."""

from typing import Any

from pindown.data.batches import Augment, Batches, Noise, on_device, to_device
from pindown.data.batches import BatchesWithinLevels as EpochsWithin
from pindown.data.batches import GeneratedBatches as Fresh
from pindown.data.batches import IndexedSamples as Rows
from pindown.data.batches import SampleSet as Takeable
from pindown.data.batches import ShuffledBatches as Epochs
from pindown.data.batches import StreamBatches as Streamed
from pindown.data.batches import augmented as Augmented  # noqa: N812
from pindown.data.batches import zip_batches as beside

Chance = Noise

__all__ = [
    "Augment",
    "Augmented",
    "Chance",
    "Epochs",
    "EpochsWithin",
    "Fresh",
    "Rows",
    "Streamed",
    "Takeable",
    "beside",
    "brought",
    "on_device",
]


def brought(draw: Any, source: Any, device: Any) -> Batches:
    """Return `to_device` of the batches."""
    return to_device(draw, device)
