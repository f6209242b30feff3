"""One reader for labels: levels, missing labels, and quantities that are no labels."""

import numpy as np
import pandas as pd
import pytest
import torch

from pindown.data.labels import missing, numbered, read_labels
from pindown.errors import InputError


@pytest.mark.parametrize(
    "labels",
    [["b", "a", "b"], np.array([[2], [1], [2]]), torch.tensor([7, 3, 7]), [1.0, 0.0, 1.0], pd.Series(["b", "a", "b"])],
)
def test_samples_of_one_level_have_one_number(labels):
    assert read_labels("batch", labels, 3).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1],
        np.zeros((3, 2)),
        [0.5, 1.5, 2.0],
        np.array(["a", None, "b"], dtype=object),
        [0.0, np.nan, 1.0],
        np.array(["2026-01-31", "NaT", "2026-01-31"], dtype="datetime64[D]"),
        np.ma.masked_array([0, 1, 1], mask=[True, False, False]),
    ],
    ids=["too few", "two columns", "fractions", "None", "NaN", "no date", "masked"],
)
def test_labels_that_cannot_be_read_raise(labels):
    with pytest.raises(InputError) as error:
        read_labels("batch", labels, 3)
    assert error.value.argument == "batch"


def test_text_and_numbers_cannot_be_sorted():
    with pytest.raises(InputError) as error:
        numbered(np.array([0, "a"], dtype=object), "y")
    assert error.value.argument == "y"


def test_every_library_s_missing_value_is_missing():
    values = np.array(["a", None, np.nan, pd.NA, pd.NaT, "nan"], dtype=object)
    assert missing(values).tolist() == [False, True, True, True, True, False]
