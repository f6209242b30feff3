"""Settings that tests and the examples of the library and its pages share."""

import copy
import os

# Two cores share the suite with whatever else runs: threads that wait for each other cost more than they bring. They
# are counted when numpy and torch are loaded, so this comes before; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where the package is found by PYTHONPATH=src alone, processes that start in other folders must find it, too.
if "PYTHONPATH" in os.environ:
    folders = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in folders if folder)

from importlib.util import find_spec

import pytest

TEXT = {
    "test_audit_page.py",
    "test_bounds.py",
    "test_cli.py",
    "test_cli_killed.py",
    "test_cli_mistakes.py",
    "test_cli_pictures.py",
    "test_conftest.py",
    "test_docs.py",
    "test_estimators_classify_errors.py",
    "test_estimators_contrast_errors.py",
    "test_extracting.py",
    "test_metrics_recovery_errors.py",
    "test_own_package.py",
    "test_package.py",
    "test_packaging.py",
    "test_page.py",
    "test_saving_damage.py",
    "test_saving_files.py",
    "test_saving_trust.py",
    "test_saving_values.py",
    "test_sources_files.py",
    "test_sources_image_sets.py",
    "test_sources_pictures.py",
    "test_stages.py",
    "test_tables.py",
    "test_theory.py",
    "test_validation.py",
}
"""Files whose tests compare text and files, or look at what is said of them: no processor says it otherwise."""


def pytest_configure(config):
    """Name the marker that this file gives, and the one warning that is none here: most fits are short on purpose.

    In pyproject.toml its name would load scikit-learn, and its threads, before this file says how many there are.
    """
    config.addinivalue_line("filterwarnings", "ignore::sklearn.exceptions.ConvergenceWarning")
    config.addinivalue_line("markers", "numerical: depends on the last digits; `.ci/run` repeats it with other kernels")
    config.addinivalue_line(
        "markers", "text: compares text and files; `pytest -m 'not slow and not text'` leaves it out"
    )


EXAMPLES_NEED = {"diffusion.py": "diffusers", "flow.py": "zuko"}
"""Modules whose examples need a package that users may be without."""


NUMERICAL = ("test_theorems", "test_losses", "test_metrics", "test_penalties", "test_spectrum", "test_networks_preproc")
"""Files, by how their names begin, whose results other kernels could change first. `.ci/run` runs them twice."""

SLOW = {"add-a-method.md", "audit.md", "images.md", "latent-actions.md", "training.md"}
"""Pages whose examples take more than five seconds. `make docs` runs all pages."""


def pytest_itemcollected(item):
    """Mark tests of text and of numbers, slow pages, and examples that cannot run here."""
    if item.path.name.startswith(NUMERICAL):
        item.add_marker("numerical")
    if item.path.name in SLOW:
        item.add_marker("slow")
    if item.path.name in TEXT:
        item.add_marker("text")
    needed = EXAMPLES_NEED.get(item.path.name)
    if needed is not None and item.path.parent.name == "baselines" and find_spec(needed) is None:
        item.add_marker(pytest.mark.skip(reason=f"needs {needed}"))


def pytest_collection_modifyitems(items):
    """Begin with the pages: each is one test of many seconds, and as the last it would leave other workers waiting."""
    items.sort(key=lambda item: item.path.suffix != ".md")
    import numpy  # not at the top: what counts its threads comes first

    for module in {item.module for item in items if hasattr(item, "module")}:
        drawing = [value for value in vars(module).values() if isinstance(value, numpy.random.Generator)]
        BEGUN[module] = [(rng, copy.deepcopy(rng.bit_generator.state)) for rng in drawing]


BEGUN = {}
"""Generators that tests of a module share, each with the state in which it was made."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Let generators of a module begin anew in every test, before fixtures draw: workers take tests in any order."""
    for rng, state in BEGUN.get(getattr(item, "module", None), ()):
        rng.bit_generator.state = copy.deepcopy(state)


@pytest.fixture(autouse=True)
def one_world():
    """Let no test draw what another left: networks that are made without a seed are the same in any order of tests."""
    import torch  # not at the top, where it would load its threads before other libraries can

    # Other worlds where benchmarks/bounds.py asks for them.
    torch.manual_seed(int(os.environ.get("PINDOWN_SEED_SHIFT", "0")))  # noqa: TID251 (for the whole process)
