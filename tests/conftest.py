"""Shared settings of the test suite."""

import os

# Two cores share the suite with whatever else runs: threads that wait for each other cost more than they bring. They
# are counted when numpy and torch are loaded, so this comes before; processes that tests start inherit it.
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collection_modifyitems(items):
    """Begin with the pages: each is one test of many seconds, and as the last it would leave other workers waiting."""
    items.sort(key=lambda item: item.path.suffix != ".md")
