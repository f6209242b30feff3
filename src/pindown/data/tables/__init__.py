"""Data files: columns by name, read into arrays; no science.

``.csv`` and ``.tsv`` are read in pieces, so that a large file needs little more memory than its numbers. ``.npz`` and
``.npy`` hold arrays. ``.parquet`` needs pyarrow, ``.h5ad`` anndata; both are looked for when such a file is opened.
"""

from pindown.data.tables.columns import Columns, read_data
from pindown.data.tables.formats import open_table
from pindown.data.tables.source import TableFile
from pindown.data.tables.writing import WRITABLE, write_latents

__all__ = ["WRITABLE", "Columns", "TableFile", "open_table", "read_data", "write_latents"]
