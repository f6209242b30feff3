"""Files as sources: which columns are taken, what is mapped and not read, and what is said of bad ones."""

import sys

import numpy as np
import pytest
from raising import input_error
from sourcing import labels, pyarrow, rows

from pindown.data import ParquetSource, as_source, moments


def written(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.fixture
def table(tmp_path):
    return written(tmp_path / "t.parquet", a=[1.0, 2.0], b=[3, 4], site=["n", "s"], on=[True, False])


def test_all_numbers_that_play_no_part_are_features(table):
    source = ParquetSource(table, signal="b")
    assert source.names == ("a", "on")
    assert source.shape == (2,)
    batch = next(source.blocks(5))
    assert batch["x"].tolist() == [[1.0, 1.0], [2.0, 0.0]]
    assert batch["signal"].tolist() == [3, 4]


def test_features_come_in_the_requested_order(table):
    assert next(ParquetSource(table, features=["b", "a"]).blocks(2))["x"].tolist() == [[3.0, 1.0], [4.0, 2.0]]
    assert ParquetSource(table, features="a").shape == (1,)


def test_names_of_folders_are_columns_and_files_come_in_the_order_of_their_paths(tmp_path):
    for site, x in (("south", 2.0), ("north", 1.0)):
        (tmp_path / f"site={site}").mkdir()
        written(tmp_path / f"site={site}" / "a.parquet", x=[x, x])
    batch = next(ParquetSource(tmp_path, nuisance="site").blocks(4))
    assert batch["x"].ravel().tolist() == [1.0, 1.0, 2.0, 2.0]
    assert batch["nuisance"].tolist() == ["north", "north", "south", "south"]


def test_categories_are_read_as_what_they_stand_for(tmp_path):
    path = written(tmp_path / "t.parquet", x=[1.0, 2.0], u=pyarrow.array(["b", "a"]).dictionary_encode())
    source = ParquetSource(path, signal="u")
    assert source.names == ("x",)
    assert next(source.blocks(2))["signal"].tolist() == ["b", "a"]


def test_a_missing_number_is_found_where_moments_are_taken(tmp_path):
    source = as_source(written(tmp_path / "t.parquet", x=[1.0, None, 2.0]))
    with input_error("x"):
        moments(source)


def test_maps_of_numpy_files_share_the_files_memory_and_cannot_be_written_to(tmp_path):
    np.save(tmp_path / "x.npy", rows())
    np.savez(tmp_path / "x.npz", x=rows(), y=labels())
    for name in ("x.npy", "x.npz"):
        for part in as_source(tmp_path / name).parts.values():
            assert isinstance(part, np.memmap)
            assert not part.flags.writeable


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: ParquetSource(t, nuisance="sitee"), r"t.parquet has no column 'sitee': did you mean 'site'\?"),
        (lambda t: ParquetSource(t, features=["a", "site"]), "t.parquet: 'site' has no numbers"),
        (lambda t: ParquetSource(t, signal=["a", "b", "on"]), "no column of numbers left"),
        (lambda t: as_source(t.with_name("none")), "there is no file or folder"),
        (lambda t: ParquetSource(t.with_name("none.parquet")), "there is no file or folder"),
        (lambda t: as_source(t.with_suffix(".csv")), r"t.csv: samples are read from .parquet, .npy and .npz"),
        (lambda t: as_source(t.with_name("text.parquet")), r"read as parquet \(Parquet magic[^:]*\)\. Save it"),
        (lambda t: as_source(t.with_name("text.npy")), "text.npy cannot be read"),
        (lambda t: as_source(t.with_name("text.npz")), "text.npz cannot be read"),
        (lambda t: as_source(t.with_name("two.npz")), "two.npz has the arrays a, b, but no x"),
        (lambda t: as_source(t.with_name("folder")), "no .parquet or .npy files"),
        (lambda t: ParquetSource(t.with_name("folder")), "has no .parquet files"),
        (lambda t: as_source(t.with_name("shards")), r"part 1 have shape \(3,\), of the first \(2,\)"),
        (lambda t: ParquetSource(t.with_name("no_rows.parquet")), "no_rows.parquet has no rows"),
        (
            lambda t: [*ParquetSource(t.with_name("lists.parquet"), features="x").blocks(2)],
            "the lists in 'x' differ in length",
        ),
    ],
)
def test_bad_files_are_refused_in_a_sentence(table, make, message):
    for name in ("text.parquet", "text.npy", "text.npz", "t.csv"):
        table.with_name(name).write_text("nothing of the kind")
    np.savez(table.with_name("two.npz"), a=1, b=2)
    for name in ("folder", "shards"):
        table.with_name(name).mkdir()
    np.save(table.with_name("shards") / "0.npy", np.zeros((4, 2)))
    np.save(table.with_name("shards") / "1.npy", np.zeros((4, 3)))
    written(table.with_name("no_rows.parquet"), x=pyarrow.array([], "float64"))
    written(table.with_name("lists.parquet"), x=[[1.0, 2.0], [3.0]])
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        make(table)


def test_a_missing_package_is_named_with_what_installs_it(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(ImportError, match="pyarrow"):
        ParquetSource(table)
