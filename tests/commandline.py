"""What the tests of the command line share: a small table, a call, and what a folder holds."""

import csv
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from pindown._files import read_json, write_json
from pindown.cli import app

N_ROWS = 320


def call(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def columns() -> dict[str, list]:
    """Three latents of a normal law in five variables; a batch that moves one of them, six classes, twenty subjects."""
    rng = np.random.default_rng(0)
    label, batch = rng.integers(6, size=N_ROWS), rng.integers(3, size=N_ROWS)
    z = rng.normal(size=(N_ROWS, 3)) + 2 * rng.normal(size=(6, 3))[label]
    x = np.tanh(z @ rng.normal(size=(3, 5)) / 4) + 0.05 * rng.normal(size=(N_ROWS, 5))
    x[:, 0] += batch
    return {
        **{f"x{j}": x[:, j].tolist() for j in range(5)},
        "batch": [f"day {value}" for value in batch],
        "label": label.tolist(),
        "subject": [f"s{i * 20 // N_ROWS}" for i in range(N_ROWS)],
        "age": rng.uniform(20, 60, size=N_ROWS).tolist(),
        **{f"z{j}": z[:, j].tolist() for j in range(3)},
    }


def write_table(path: Path, table: dict[str, list] | None = None) -> Path:
    table = columns() if table is None else table
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def edit_record(run: Path, **changes: object) -> None:
    """Change fields of the record of a run, and sign it again, as somebody would who means it."""
    record = read_json(run / "run.json")
    for name, value in changes.items():
        record[name] = {**record.get(name, {}), **value} if isinstance(value, dict) else value
    write_json(run / "run.json", record)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all that a folder holds, folders included."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def write_cells(path: Path, X: np.ndarray, *, sparse: bool = False, **obs: np.ndarray) -> None:
    """Write an h5ad as anndata lays it out: by hand, since not every version of it can write text of every pandas."""
    import h5py

    text = h5py.string_dtype()

    def put(group, name, values, kind="array"):
        group.create_dataset(name, data=values).attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})

    def frame(file, name, index, columns):
        group = file.create_group(name)
        group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        group.attrs.create("column-order", list(columns), dtype=text)
        put(group, "_index", np.array(index, dtype=object), "string-array")
        return group

    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        if sparse:
            from scipy.sparse import csr_array

            rows, matrix = csr_array(X), file.create_group("X")
            matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": X.shape})
            for name in ("data", "indices", "indptr"):
                matrix.create_dataset(name, data=getattr(rows, name))
        else:
            put(file, "X", X)
        table = frame(file, "obs", [f"cell{i}" for i in range(len(X))], obs)
        for name, column in obs.items():
            if column.dtype.kind in "buif":
                put(table, name, column)
                continue
            values, codes = np.unique(column, return_inverse=True)
            group = table.create_group(name)
            group.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
            put(group, "codes", codes.astype(np.int8))
            put(group, "categories", values.astype(object), "string-array")
        frame(file, "var", [chr(ord("a") + j) for j in range(X.shape[1])], [])
        obsm = file.create_group("obsm")
        obsm.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
        put(obsm, "X_pca", X[:, :2])
