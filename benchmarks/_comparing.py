"""A pytest plugin that records what tests compare: both sides of every ``<`` that they assert, with shifted seeds.

Tests and doctests stay plain (``assert linear_r2(z_hat, z) > 0.98``). With this plugin no assertion fails. Each one is
recorded instead, so that a failing bound does not hide the next. Seeds are shifted where they enter, so that a test
sees other simulations and other fits. ``bounds.py`` runs it; ``PINDOWN_SEED_SHIFT`` is the shift, ``PINDOWN_BOUNDS``
the path of the output.
"""

from __future__ import annotations

import ast
import json
import numbers
import operator
import os
import sys
from collections import Counter
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pindown import _random

ROOT = Path(__file__).resolve().parents[1]
TESTS = (ROOT / "tests", ROOT / "docs" / "own_method")
SHIFT = 10_000 * int(os.environ.get("PINDOWN_SEED_SHIFT", "0"))
AT_MOST = 100
"""Comparisons of one place in one test. More are searched for, not written: left out, as property tests are."""
ORDERS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
BY_NAME = {order.__name__: order for order in ORDERS.values()}


# reading


class Noting(ast.NodeTransformer):
    """Tests in which assertions are noted rather than enforced, and seeds that are given to torch are shifted."""

    def __init__(self) -> None:
        self.asserted = 0

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Rewrite the statement as a call with its text."""
        text = ast.Constant(ast.unparse(node.test))
        self.asserted += 1
        call = _call("__stated__", text, self.visit(node.test))
        self.asserted -= 1
        return ast.copy_location(ast.Expr(call), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Rewrite an inequality as a call with both sides."""
        text, parts = ast.unparse(node), [node.left, *node.comparators]
        self.generic_visit(node)
        if not self.asserted or not all(type(op) in ORDERS for op in node.ops):
            return node
        orders = ast.Constant(tuple(ORDERS[type(op)].__name__ for op in node.ops))
        fixed = ast.Constant(tuple(map(is_constant, parts)))
        values = ast.Tuple([node.left, *node.comparators], ast.Load())
        return ast.copy_location(_call("__compared__", ast.Constant(text), orders, fixed, values), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Leave comparisons inside arithmetic as they are."""
        asserted, self.asserted = self.asserted, 0
        self.generic_visit(node)
        self.asserted = asserted
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Shift the seed of a torch generator; leave comparisons in arguments as they are."""
        node.func = self.visit(node.func)
        asserted, self.asserted = self.asserted, self.asserted * (getattr(node.func, "id", "") in ("all", "any"))
        node.args, node.keywords = [self.visit(a) for a in node.args], [self.visit(k) for k in node.keywords]
        self.asserted = asserted
        if isinstance(node.func, ast.Attribute) and node.func.attr == "manual_seed" and len(node.args) == 1:
            node.args = [ast.BinOp(node.args[0], ast.Add(), ast.Constant(SHIFT))]
        return node


def is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a constant number, such as ``1 / 3 + 0.04``."""
    kinds = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(isinstance(part, kinds) for part in ast.walk(node))


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


class Loader(SourceFileLoader):
    """Loads tests rewritten in this way, without a cache."""

    def path_stats(self, path: str) -> Any:
        """Raise an error, so that no cached version is used."""
        raise OSError(path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        """Compile a test."""
        return compile(ast.fix_missing_locations(Noting().visit(ast.parse(data))), path, "exec")

    def exec_module(self, module: Any) -> None:
        """Run a test's module with the functions that record."""
        module.__dict__.update(NAMES)
        super().exec_module(module)


class Finder:
    """Finds tests for the loader above, and nothing else."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how a test is loaded, or None."""
        spec = PathFinder.find_spec(name, path, target)
        where = Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
        if spec is None or where is None or not any(folder in where.parents for folder in TESTS):
            return None
        spec.loader = Loader(name, str(where))
        return spec


def note_doctests(items: list[Any]) -> None:
    """Record the comparisons of doctests, too, whose result is True."""
    for item in items:
        for example in getattr(getattr(item, "dtest", None), "examples", ()):
            if example.want == "True\n":
                reader = Noting()
                reader.asserted = 1
                tree = reader.visit(ast.parse(example.source))
                example.source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
                item.dtest.globs.update(NAMES)


# noting


class Notes:
    """What was compared, which statements failed, which tests did not finish."""

    def __init__(self) -> None:
        self.test = ""
        self.compared: list[dict[str, Any]] = []
        self.fallen: list[tuple[str, str]] = []
        self.broken: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self._times: Counter[tuple[str, int]] = Counter()
        self._searched: set[tuple[str, str]] = set()

    def begin(self, test: str) -> None:
        """Start the record of another test."""
        self.test, self._times = test, Counter()

    def state(self, text: str, holds: Any) -> None:
        """Note a statement that does not hold."""
        if not holds:
            self.fallen.append((self.test, text))

    def compare(self, text: str, orders: tuple[str, ...], fixed: tuple[bool, ...], values: tuple[Any, ...]) -> Any:
        """Note by how much each of a chain of comparisons holds, and return whether it holds."""
        answers = []
        for i, order in enumerate(orders):
            left, right = values[i : i + 2]
            answers.append(BY_NAME[order](left, right))
            # With ≤ or ≥, as in the triangle's inequality, it is a law of mathematics: what varies is by how much.
            if order in ("lt", "gt") and not all(fixed[i : i + 2]):
                self._note(text, i, (left, right), fixed[i : i + 2], order == "lt")
        return answers[0] if len(answers) == 1 else all(answers)

    def _note(self, text: str, i: int, sides: tuple[Any, Any], fixed: tuple[bool, ...], rising: bool) -> None:
        self._times[text, i] += 1
        k = self._times[text, i]
        left, right = map(as_numbers, sides)
        if k > AT_MOST:
            self._searched.add((self.test, text))
        if k > AT_MOST or left is None or right is None:
            return
        small, great = np.broadcast_arrays(*((left, right) if rising else (right, left)))
        nearest = np.unravel_index((great - small).argmin(), small.shape)
        less, more = float(small[nearest]), float(great[nearest])
        bound = left if fixed[0] else right if fixed[1] else None
        self.compared.append(
            {"test": self.test, "text": text, "part": i, "k": k, "slack": more - less, "sides": (less, more)}
            | ({} if bound is None else {"bound": float(bound), "at_least": fixed[0] == rising})
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all notes but those of property tests."""
        compared = [c for c in self.compared if (c["test"], c["text"]) not in self._searched]
        return {"compared": compared, "fallen": self.fallen, "broken": self.broken, "seconds": self.seconds}


def as_numbers(side: Any) -> np.ndarray | None:
    """Return numbers as an array, or None for other comparisons, such as those of sets."""
    if hasattr(side, "detach"):
        side = side.detach().cpu().double().numpy()
    if not isinstance(side, numbers.Real | np.ndarray | np.generic):
        return None
    array = np.asarray(side)
    return array.astype(float) if array.dtype.kind in "iuf" and array.size and np.isfinite(array).all() else None


NOTES = Notes()
NAMES = {"__stated__": NOTES.state, "__compared__": NOTES.compare}


# seeds


def shift_seeds() -> None:
    """Shift every whole-numbered seed on its way into a generator."""
    if not SHIFT:
        return
    draw, default_rng = _random.draw_seed, np.random.default_rng

    def shifted(seed: Any) -> Any:
        return seed + SHIFT if isinstance(seed, numbers.Integral) and not isinstance(seed, bool) else seed

    _random.draw_seed = lambda random_state=None: draw(shifted(random_state))
    np.random.default_rng = lambda seed=None: default_rng(shifted(seed))


def for_any_seed(item: pytest.Item) -> str:
    """Return a test's name, the same for all seeds where these are a parameter of the test."""
    call = getattr(item, "callspec", None)
    parts = call.id.split("-") if call else []
    if call is None or "seed" not in call.params or len(parts) != len(call.params):
        return item.nodeid
    parts[list(call.params).index("seed")] = "any seed"
    return item.nodeid.removesuffix(f"[{call.id}]") + f"[{'-'.join(parts)}]"


# pytest's hooks


def pytest_configure(config: pytest.Config) -> None:
    """Replace pytest's rewriting of assertions."""
    shift_seeds()
    sys.meta_path.insert(0, Finder)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Read the doctests, and leave out tests that compare nothing and those whose inputs are searched for."""
    wanted = set(os.environ["PINDOWN_TESTS"].split())
    # Not by pytest's arguments: a file that cannot be imported would end the run for all.
    items[:] = [item for item in items if {item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]} & wanted]
    items[:] = [item for item in items if not hasattr(getattr(item, "obj", None), "hypothesis")]
    note_doctests(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the test that is recorded."""
    NOTES.begin(for_any_seed(item))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record how long a test took, and whether it finished."""
    NOTES.seconds[report.nodeid] = NOTES.seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        NOTES.broken[report.nodeid] = str(report.longrepr)[-300:]


def pytest_sessionfinish() -> None:
    """Write the notes."""
    Path(os.environ["PINDOWN_BOUNDS"]).write_text(json.dumps(NOTES.as_dict()), encoding="utf-8")
