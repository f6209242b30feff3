"""Sources: what gives batches, and how rows and what belongs to them are read.

A source knows the shape of a row, the number of rows or None, and how to give rows: see `Source`. `as_source` makes one
of whatever holds rows; `moments` and `first_rows` look at any of them in bounded memory.
"""

from pindown.sources.arrays import Arrays, as_tensor
from pindown.sources.cutouts import cutouts_in
from pindown.sources.files import Parquet
from pindown.sources.image_sets import MPI3D, Cars3D, DSprites, ImageSet, KittiMasks, Shapes3D, SmallNORB, ThreeDIdent
from pindown.sources.joined import Joined
from pindown.sources.opening import as_source
from pindown.sources.pictures import Pictures
from pindown.sources.source import Batch, Chosen, Drawn, Indexed, Source
from pindown.sources.streaming import WHITEN_ROWS, Moments, first_rows, moments
from pindown.sources.torch_data import FromDataset, FromLoader
from pindown.sources.worlds import World

__all__ = [
    "MPI3D",
    "WHITEN_ROWS",
    "Arrays",
    "Batch",
    "Cars3D",
    "Chosen",
    "DSprites",
    "Drawn",
    "FromDataset",
    "FromLoader",
    "ImageSet",
    "Indexed",
    "Joined",
    "KittiMasks",
    "Moments",
    "Parquet",
    "Pictures",
    "Shapes3D",
    "SmallNORB",
    "Source",
    "ThreeDIdent",
    "World",
    "as_source",
    "as_tensor",
    "cutouts_in",
    "first_rows",
    "moments",
]
