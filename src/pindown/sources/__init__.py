"""Sources: what gives batches, and how rows and what belongs to them are read.

A source knows the shape of a row, the number of rows or None, and how to give rows: see `Source`. `as_source` makes one
of whatever holds rows; `moments` and `first_rows` look at any of them in bounded memory.
"""

from pindown.sources.arrays import Arrays, as_tensor
from pindown.sources.files import Parquet
from pindown.sources.joined import Joined
from pindown.sources.opening import as_source
from pindown.sources.source import Batch, Chosen, Drawn, Indexed, Source
from pindown.sources.streaming import WHITEN_ROWS, Moments, first_rows, moments
from pindown.sources.torch_data import FromDataset, FromLoader
from pindown.sources.worlds import World

__all__ = [
    "WHITEN_ROWS",
    "Arrays",
    "Batch",
    "Chosen",
    "Drawn",
    "FromDataset",
    "FromLoader",
    "Indexed",
    "Joined",
    "Moments",
    "Parquet",
    "Source",
    "World",
    "as_source",
    "as_tensor",
    "first_rows",
    "moments",
]
