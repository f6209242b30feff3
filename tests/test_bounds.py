"""What measures the bounds of the tests: the notes it takes, and what it makes of them."""

import ast
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tools():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("_comparing"), importlib.import_module("bounds")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def noted(tools, text, **names):
    """Return the notes of a test."""
    comparing, _ = tools
    notes = comparing.Notes()
    notes.begin("a test")
    code = ast.fix_missing_locations(comparing.Noting().visit(ast.parse(text)))
    exec(compile(code, "a test", "exec"), {"__stated__": notes.state, "__compared__": notes.compare, **names})
    return notes


def test_both_sides_of_a_chain_are_noted_and_none_hides_the_next(tools):
    notes = noted(tools, "assert before < 0.8 < 0.9 < after\nassert after > 1.5", before=0.9, after=0.95)
    assert [round(each["slack"], 9) for each in notes.compared] == [-0.1, 0.05, -0.55]
    assert [(each["bound"], each["at_least"]) for each in notes.compared] == [(0.8, False), (0.9, True), (1.5, True)]
    assert [text for _, text in notes.fallen] == ["before < 0.8 < 0.9 < after", "after > 1.5"]


def test_where_both_sides_vary_their_difference_is_noted_and_of_arrays_the_least(tools):
    notes = noted(tools, "assert (a < b).all()", a=np.array([1.0, 2.0]), b=np.array([4.0, 2.5]))
    (only,) = notes.compared
    assert only["slack"] == 0.5
    assert "bound" not in only


def test_laws_sets_and_constants_are_no_bounds(tools):
    others = ("a <= 2", "{1} < {1, 2}", "len([a < 2])", "1 < 2", "a == 1")
    assert noted(tools, "\n".join(f"assert {each}" for each in others), a=1).compared == []


def test_a_margin_counts_spreads_on_the_side_of_the_bound(tools):
    _, bounds = tools

    def row(slack):
        seen = [
            {"slack": each, "sides": (-0.5, each - 0.5), "bound": 0.5, "at_least": True, "plain": False}
            for each in slack
        ]
        return bounds.row("a test", "r2 > 0.5", 0, 1, seen)

    even = row([0.1, 0.2, 0.3])  # mean .2, standard deviation .1
    assert (even["mean"], even["spread"], even["margin"]) == pytest.approx((0.7, 0.1, 2))
    assert row([0.2, 0.2, 0.2, 0.9])["margin"] < row([0.2, 0.2, 0.2, 0.3])["margin"] * 2
    assert row([0.2, 0.2]) is None
    assert row([-0.1, 0.3])["missed"] == 1


def test_a_positive_quantity_is_measured_by_its_ratio_to_the_bound_where_that_leaves_more(tools):
    _, bounds = tools

    def row(*sides):
        seen = [{"slack": more - less, "sides": (less, more), "plain": False} for less, more in sides]
        return bounds.row("a test", "less < more", 0, 1, seen)

    gap, deviation = row((1, 10.0), (1, 100.0), (1, 1000.0)), row((0.01, 4), (1, 4), (1.99, 4))
    assert (gap["by_ratio"], deviation["by_ratio"]) == (True, False)
    assert gap["margin"] == pytest.approx(2)  # a mean of 100, a spread of a factor of ten
    assert deviation["margin"] == pytest.approx(3 / 0.99)
    assert row((1, 0.5), (1, 100.0))["missed"] == 1


def test_what_is_asserted_not_to_hold_is_measured_in_reverse(tools):
    _, bounds = tools
    seen = [
        {"slack": slack, "sides": (0.9, 0.9 + slack), "plain": plain}
        for slack, plain in ((-0.3, True), (-0.2, False), (-0.25, False))
    ]
    assert bounds.row("a test", "(r2 > 0.9) == related", 0, 1, seen)["slack"] == pytest.approx(0.25)


def test_tests_that_compare_are_found_and_others_are_not(tools):
    _, bounds = tools
    found = bounds.tests()
    assert f"tests/test_bounds.py::{test_a_margin_counts_spreads_on_the_side_of_the_bound.__name__}" in found
    assert "docs/tutorials/pairs.md" in found
    assert not any(name.startswith("tests/test_tables.py") for name in found)
