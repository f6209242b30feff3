"""`Data`, and input that must not be misread: masked arrays, dates, numbers without squares, broken headers."""

import numpy as np
import pandas as pd
import pytest
import torch
from raising import input_error

from pindown import Classify, Contrast, Data, Dictionary, Forget, Sparse
from pindown.data import ArraySource, as_source
from pindown.data.tables import open_table
from pindown.errors import InputError

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 3
DATES = np.arange(240).reshape(60, 4).astype("datetime64[h]")
MISREAD = {
    "masked": np.ma.masked_array(X, mask=X > 1),
    "dates": DATES,
    "durations": DATES - DATES[0],
    "a data frame with dates": pd.DataFrame({"a": X[:, 0], "b": DATES[:, 0]}),
    "too large": X * 1e160,
    "one too large": np.where(X.max() <= X, 1e200, X),
    "too small": X * 1e-300,
}


@pytest.mark.parametrize("method", [Forget, Classify, Contrast, Dictionary, Sparse])
@pytest.mark.parametrize("name", MISREAD)
def test_a_fit_raises_for_what_would_be_misread(method, name):
    labels = [Y] if method in (Forget, Classify, Contrast) else []
    with pytest.raises(InputError) as error:
        method(2, max_iter=2, verbose=False).fit(MISREAD[name], *labels)
    assert error.value.argument == "X"


@pytest.mark.parametrize("name", ["too large", "one too large", "too small"])
def test_a_source_of_numbers_without_squares_raises(name):
    with pytest.raises(InputError) as error:
        Forget(2, max_iter=2, verbose=False).fit(ArraySource(MISREAD[name], nuisance=Y))
    assert error.value.argument in ("x", "X")


def test_masked_labels_raise_and_an_empty_mask_is_no_mask():
    with pytest.raises(InputError) as error:
        Data(X, nuisance=np.ma.masked_array(Y, mask=Y == 1))
    assert error.value.argument == "nuisance"
    assert Data(np.ma.masked_array(X), nuisance=np.ma.masked_array(Y)).nuisance.tolist() == Y.tolist()


def test_numbers_of_any_ordinary_size_are_learned_from():
    for scale in (1e-100, 1e100):
        assert np.isfinite(Forget(2, max_iter=2, verbose=False, random_state=0).fit(X * scale, Y).transform(X)).all()


@pytest.mark.parametrize("shape", [(-1, 3), (3, -1), (10**12, 3), (2**63, 2)])
@pytest.mark.parametrize("read", [open_table, as_source])
def test_a_header_that_lies_about_the_shape_is_named(tmp_path, shape, read):
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(np.zeros(9).tobytes())
    with input_error("X"):
        read(path)


@pytest.mark.parametrize(
    ("sides", "argument"), [({"signal": [1, 2]}, "signal"), ({"pairs": "previous"}, "pairs"), ({"groups": 3}, "groups")]
)
def test_side_variables_that_do_not_fit_raise(sides, argument):
    with pytest.raises(InputError) as error:
        Data(X, **sides)
    assert error.value.argument == argument


def test_samples_keep_their_side_variables_and_names():
    data = Data(torch.as_tensor(X), signal=torch.as_tensor(Y), given=["a", 1, *"b" * 58], ids=np.arange(60) + 100)
    some = data.take([3, 1])
    assert (some.signal.tolist(), some.given.tolist(), some.ids.tolist()) == ([0, 1], ["b", 1], [103, 101])
    assert set(data.only("given").side_variables) == {"given"}
    assert data.only("given").ids is not None


def test_an_unknown_role_is_named():
    with pytest.raises(TypeError, match="nuisanse"):
        ArraySource(X, nuisanse=Y)
