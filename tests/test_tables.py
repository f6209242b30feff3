"""Table files: every format gives the same columns, and errors name the line or the column at fault."""

import sys
import time
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest
from commandline import write_cells
from raising import input_error

from pindown.data import as_source, table_files
from pindown.data.tables import Columns, open_table, read_data, write_latents
from pindown.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
SITE = np.repeat(["north", "south"], 6)
AGE = RNG.integers(20, 60, size=12)


def csv_text(separator=",", names=("a", "b", "c")) -> str:
    lines = [separator.join([*names, "site", "age"])]
    rows = zip(X.tolist(), SITE, AGE, strict=True)
    return "\n".join([*lines, *(separator.join([*map(repr, x), site, str(age)]) for x, site, age in rows)]) + "\n"


def write_h5ad(path, *, sparse=False):
    write_cells(path, X, sparse=sparse, site=SITE, age=AGE)


def write_every_format(folder):
    import pandas as pd
    import pyarrow
    import pyarrow.parquet

    (folder / "t.csv").write_text(csv_text())
    (folder / "t.tsv").write_text(csv_text("\t"))
    (folder / "semicolons.csv").write_text(csv_text(";"))
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "site": SITE, "age": AGE}
    pd.DataFrame(columns).to_excel(folder / "t.xlsx", index=False)
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    np.savez(folder / "t.npz", X=X, site=SITE, age=AGE)
    write_h5ad(folder / "t.h5ad")
    write_h5ad(folder / "sparse.h5ad", sparse=True)


def test_every_format_gives_the_same_data(tmp_path):
    pytest.importorskip("anndata")
    pytest.importorskip("openpyxl")
    write_every_format(tmp_path)
    for name in ("t.csv", "t.tsv", "semicolons.csv", "t.xlsx", "t.parquet", "t.npz", "t.h5ad", "sparse.h5ad"):
        columns = Columns(features=("X",) if name.endswith(("npz", "h5ad")) else ("[abc]",), nuisance=("site", "age"))
        study = read_data(open_table(tmp_path / name), columns)
        np.testing.assert_allclose(study.X, X, rtol=1e-15 if name.endswith("xlsx") else 0)
        assert study.nuisance[:, 0].tolist() == SITE.tolist(), name
        assert study.nuisance[:, 1].tolist() == AGE.tolist(), name


def test_other_arrays_of_an_h5ad_can_be_the_observed_variables(tmp_path):
    pytest.importorskip("anndata")
    write_h5ad(tmp_path / "t.h5ad")
    study = read_data(open_table(tmp_path / "t.h5ad"), Columns(features=("X_pca", "age"), signal="site"))
    assert study.names == ("X_pca_0", "X_pca_1", "age")
    np.testing.assert_array_equal(study.X, np.column_stack([X[:, :2], AGE]))


def test_a_matrix_has_numbers_for_names(tmp_path):
    np.save(tmp_path / "t.npy", np.column_stack([X, AGE]))
    study = read_data(open_table(tmp_path / "t.npy"), Columns(nuisance=("3",)))
    np.testing.assert_array_equal(study.X, X)
    assert study.nuisance.tolist() == AGE.tolist()


def test_a_text_read_in_parts_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "HEAD", 5)
    (tmp_path / "t.csv").write_text(csv_text())
    study = read_data(open_table(tmp_path / "t.csv"), Columns(features=("a", "b", "c"), signal="site"))
    np.testing.assert_array_equal(study.X, X)
    assert study.signal.tolist() == SITE.tolist()


def test_a_large_text_needs_memory_for_its_numbers_not_for_its_text(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(60_000, 5))
    write_latents(tmp_path / "t.csv", numbers, list("abcde"))
    source = open_table(tmp_path / "t.csv")
    tracemalloc.start()
    read, _ = source.read(source.names, [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(read, numbers)
    assert peak < 2 * numbers.nbytes  # as text it would be nine times as much


def test_by_default_all_numbers_are_observed_that_play_no_other_part(tmp_path):
    (tmp_path / "t.csv").write_text(csv_text())
    study = read_data(open_table(tmp_path / "t.csv"), Columns(drop=("b",)))
    assert study.names == ("a", "c", "age")
    assert study.notes == ("left out, since it holds text: site.",)
    assert read_data(open_table(tmp_path / "t.csv"), Columns(signal="age", truth=("c",))).names == ("a", "b")


def test_columns_that_count_rows_or_never_change_are_left_out_unless_named(tmp_path):
    rows = [f"{i},{x},7,{i + 1}" for i, x in enumerate(X[:, 0].tolist())]
    (tmp_path / "t.csv").write_text("\n".join([",x,unit,id", *rows]))  # pandas writes its index without a name
    source = open_table(tmp_path / "t.csv")
    study = read_data(source, Columns())
    assert study.names == ("x",)
    assert len(study.notes) == 2
    assert read_data(source, Columns(features=("x", "id"))).names == ("x", "id")


def test_an_observed_column_that_looks_like_a_label_is_named(tmp_path):
    rows = [f"{x},{i % 3}" for i, x in enumerate(X[:, 0].tolist())]
    (tmp_path / "t.csv").write_text("\n".join(["x,day", *rows]))
    note = read_data(open_table(tmp_path / "t.csv"), Columns()).notes[0]
    assert note.startswith("observed, although it looks like a label")
    assert note.endswith(": day.")
    (tmp_path / "counts.csv").write_text("\n".join(["a,b", *(f"{i % 3},{i % 4}" for i in range(12))]))
    assert read_data(open_table(tmp_path / "counts.csv"), Columns()).notes == ()  # all are counts


def test_rows_that_were_copied_are_counted_but_not_counts_that_are_alike(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join(["a,b", "0.5,1", "0.5,2", "0.5,1", "2.5,1"]))
    (note,) = read_data(open_table(tmp_path / "t.csv"), Columns()).notes
    assert note.startswith("of 4 samples 1 are exact copies of others: leave these out")
    (tmp_path / "counts.csv").write_text("\n".join(["a,b", *["1,2", "3,1"] * 9]))
    assert read_data(open_table(tmp_path / "counts.csv"), Columns()).notes == ()


def test_quotes_blank_lines_and_marks_at_the_start_are_no_obstacle(tmp_path):
    (tmp_path / "t.csv").write_text('﻿"a, b",c\n1,"x, ""y"""\n\n2,z\n3,z\n', encoding="utf-8")
    study = read_data(open_table(tmp_path / "t.csv"), Columns(features=("a, b",), signal="c"))
    assert study.X.tolist() == [[1.0], [2.0], [3.0]]
    assert study.signal.tolist() == ['x, "y"', "z", "z"]


def test_labels_are_numbers_only_if_all_are_and_none_would_be_joined(tmp_path):
    (tmp_path / "t.csv").write_text("x,whole,half,name,padded\n1.5,1,0.5,a,01\n2.5,2,1,2,1\n")
    source = open_table(tmp_path / "t.csv")
    kinds = {name: source.read(["x"], [name])[1][name].dtype.kind for name in source.names[1:]}
    assert kinds == {"whole": "i", "half": "f", "name": "U", "padded": "U"}


def test_positives_can_be_an_array_or_the_next_row_within_a_group(tmp_path):
    np.savez(tmp_path / "t.npz", X=X, later=X + 1, session=SITE)
    source = open_table(tmp_path / "t.npz")
    np.testing.assert_array_equal(read_data(source, Columns(pairs="later")).pairs, X + 1)
    paired = read_data(source, Columns(pairs="next", group="session")).paired()
    rows = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]  # not 5, whose next row is of another session
    np.testing.assert_array_equal(paired.X, X[rows])
    np.testing.assert_array_equal(paired.pairs, X[np.array(rows) + 1])


def test_a_sample_keeps_positives_together(tmp_path):
    np.savez(tmp_path / "t.npz", X=RNG.normal(size=(60, 2)), who=np.repeat(np.arange(20), 3))
    some = read_data(open_table(tmp_path / "t.npz"), Columns(pairs="who")).sample(30)
    counts = np.bincount(some.pairs)
    assert set(counts[counts > 0]) == {3}
    assert 0 < len(some) <= 30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "t.csv, line 3: 1 cells, but the first line has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 cells"),
        ("1.5,2\n3,4\n", "the header is missing"),
        ("a,a\n1,2\n", "several columns are called a"),
        ("a,b\n", "has names but no rows"),
        ("a,b\n1,2\n1,x\n2,3\n", "line 3: column 'b' has numbers, but here the text 'x'"),
        ("a;b\n1,5;2\n1,5;2\n2;2\n2;1.500\n2;2\n", "'1.500'. Decimals need a comma in this file"),
        ("a;b\n1.5;2\n1,500;2\n2.5;2\n", "'1,500'. Decimals need a point in this file"),
        ("the size,b\n1,1\n,2\n", "drop='the size'"),
        ("a,b\n1,\n2,3\n", "column 'b' has NaN, an empty cell or infinity in 1 of 2 rows, first in row 1"),
        ("a,b\n1,x\n2,y\n3,\n", "column 'b' is empty in 1 of 3 rows, first in row 3"),
        (",\n1,2\n", "has no names in its first line"),
    ],
)
def test_errors_of_a_text_file_name_the_line_or_column(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    columns = Columns(signal="b" if "y" in content else None)
    with pytest.raises(ValueError, match=message):
        read_data(open_table(tmp_path / "t.csv"), columns)


def test_text_in_a_later_piece_is_found_too(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "HEAD", 4)
    (tmp_path / "t.csv").write_text("a\n" + "1\n2\n" * 5 + "oops\n")
    with input_error("features"):
        read_data(open_table(tmp_path / "t.csv"), Columns())


def test_files_that_are_not_what_their_names_say_are_refused(tmp_path):
    pytest.importorskip("anndata")
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,2\n")
    (tmp_path / "t.npz").write_bytes(b"no archive")
    (tmp_path / "t.npy").write_bytes(b"no array")
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    (tmp_path / "t.h5ad").write_bytes(b"no cells")
    for name in ("t.csv", "t.npz", "t.npy", "t.parquet", "t.h5ad"):
        with pytest.raises(ValueError, match=f"{name} (is not UTF-8|cannot be read)"):
            open_table(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("t.parquet", "pyarrow", "tables"), ("t.h5ad", "anndata", "cells")]
)
def test_a_reader_that_is_not_installed_is_named_with_the_way_to_get_it(tmp_path, monkeypatch, name, module, extra):
    (tmp_path / name).write_bytes(b"something")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.parquet", None)
    with pytest.raises(ValueError, match=rf"needs {module}: pip install 'pindown\[{extra}\]'"):
        open_table(tmp_path / name)


def test_python_objects_in_an_archive_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", X=X, site=np.array(["a", None] * 6, dtype=object))
    with input_error("X"):
        open_table(tmp_path / "t.npz")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npy", ".npz"])
def test_latents_are_read_back_as_they_were_written(tmp_path, suffix):
    path = tmp_path / f"codes{suffix}"
    write_latents(path, X, ["z0", "z1", "z2"])
    if suffix == ".npz":
        with np.load(path) as arrays:
            np.testing.assert_array_equal(arrays["latents"], X)
            assert arrays["names"].tolist() == ["z0", "z1", "z2"]
        return
    source = open_table(path)
    np.testing.assert_array_equal(source.read(source.names, [])[0], X)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_decimals_may_have_commas_where_cells_are_separated_by_something_else(tmp_path):
    (tmp_path / "t.csv").write_text("sep=;\r\na;b;age;name\r\n1,5;-0,25;3,5;x\r\n1;2e-1;4,5;y\r\n;;;\r\n")
    source = open_table(tmp_path / "t.csv")
    numbers, labels = source.read(["a", "b"], ["age", "name"])
    assert source.numeric == ("a", "b", "age")
    assert numbers.tolist() == [[1.5, -0.25], [1.0, 0.2]]
    assert labels["age"].tolist() == [3.5, 4.5]


def test_what_could_be_thousands_is_not_taken_for_a_decimal(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1,500;1\n2,750;2\n")
    assert open_table(tmp_path / "t.csv").numeric == ("b",)


def test_a_clock_that_starts_again_for_each_subject_is_left_out_and_a_quantity_is_not(tmp_path):
    rows = [f"{0.02 * (i % 50)},{(i * 37) % 101 / 7}" for i in range(150)]
    (tmp_path / "t.csv").write_text("time,x\n" + "\n".join(rows) + "\n")
    study = read_data(open_table(tmp_path / "t.csv"), Columns())
    assert study.names == ("x",)
    assert "counts rows or time" in study.notes[0]


def test_what_a_spreadsheet_could_not_compute_is_missing(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n#N/A,3\n#DIV/0!,4.5\n0.5,1\n")
    with input_error("features"):
        read_data(open_table(tmp_path / "t.csv"), Columns())


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("images.npz", Columns()),
        ("images.npz", Columns(nuisance=("b",))),
        ("images.npz", Columns(features=("X",))),
        ("images.npz", Columns(features=("b",), pairs="X")),
        ("images.npy", Columns()),
    ],
)
def test_images_in_an_array_are_named_with_their_shape_and_what_to_do(tmp_path, name, columns):
    images = np.zeros((30, 3, 8, 8))
    np.savez(tmp_path / "images.npz", X=images, b=np.arange(30) % 3)
    np.save(tmp_path / "images.npy", images)
    with pytest.raises(InputError, match="shape"):
        read_data(open_table(tmp_path / name), columns)


def test_an_array_of_images_without_a_role_is_ignored(tmp_path):
    np.savez(tmp_path / "both.npz", X=X, thumbnails=np.zeros((len(X), 4, 4)))
    np.testing.assert_array_equal(read_data(open_table(tmp_path / "both.npz"), Columns()).X, X)


HOSTILE = {
    "negative.npy": (dict(shape=(-3, 4), descr="<f8"), b""),
    "huge.npy": (dict(shape=(10**12, 4), descr="<f8"), b""),
    "objects.npy": (dict(shape=(2,), descr="|O"), b"c" + b"os\nsystem\n"),
    "short.npy": (dict(shape=(2, 2), descr="<f8"), bytes(8)),
}


def npy(header, body):
    text = repr({"fortran_order": False, **header}).encode()
    return b"\x93NUMPY\x01\x00" + (len(text) + 1).to_bytes(2, "little") + text + b"\n" + body


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("how", ["array", "stored", "compressed"])
def test_an_array_that_does_not_fit_its_file_is_refused_before_memory_is_taken(tmp_path, name, how):
    content, path = npy(*HOSTILE[name]), tmp_path / (name if how == "array" else "t.npz")
    path.write_bytes(content)
    if how != "array":
        kind = zipfile.ZIP_DEFLATED if how == "compressed" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.writestr("x.npy", content)
    for read in (open_table, as_source):
        with input_error("X"):
            read(path)


def test_an_archive_with_text_or_two_arrays_of_one_name_is_refused(tmp_path):
    x = npy({"shape": (2, 2), "descr": "<f8"}, bytes(32))
    for members in ([("x.npy", x), ("notes.txt", b"hello")], [("x.npy", x), ("x.npy", x)]):
        with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive, warnings.catch_warnings(action="ignore"):
            for name, content in members:
                archive.writestr(name, content)
        for read in (open_table, as_source):
            with input_error("X"):
                read(tmp_path / "t.npz")


def test_a_spreadsheet_with_a_cell_far_away_is_refused_and_takes_no_memory(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, 2.5], [], [3, None], [0.5, "#N/A"]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with input_error("features"):
        read_data(open_table(tmp_path / "t.xlsx"), Columns())
    book.active.cell(1_048_576, 16_384, 1)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match="1048576"):
        open_table(tmp_path / "t.xlsx").read(["a"], [])


def test_a_table_of_many_columns_is_read_in_time_proportional_to_their_number(tmp_path):
    names = [f"c{j}" for j in range(20_000)]
    (tmp_path / "t.csv").write_text(
        "\n".join([",".join(names), *[",".join(str(j % 7 + i) for j in range(20_000)) for i in (0, 2)]])
    )
    start = time.monotonic()
    assert read_data(open_table(tmp_path / "t.csv"), Columns()).X.shape == (2, 20_000)
    assert time.monotonic() - start < 10  # a minute if each column is looked up among all
