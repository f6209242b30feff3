import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pindown

SOURCE = Path(pindown.__file__).parent
HEAVY = ("torch", "plotly", "sklearn", "scipy", "accelerate", "rich")


def loaded_after(statement):
    """Return the heavy packages a fresh Python has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_brings_no_heavy_package():
    assert loaded_after("import pindown") == []
    assert loaded_after("import pindown; dir(pindown); pindown.__version__; pindown.__all__") == []


def test_a_name_is_loaded_when_it_is_first_used():
    assert "torch" in loaded_after("import pindown; pindown.Contrast")


def test_every_public_name_is_there_and_listed():
    assert pindown.__all__ == sorted(pindown.__all__)
    for name in pindown.__all__:
        assert getattr(pindown, name).__name__ == name
        assert name in dir(pindown)


def test_contrast_is_the_estimator():
    from pindown.estimators import Contrast

    assert pindown.Contrast is Contrast


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="module 'pindown' has no attribute 'Contarst'"):
        pindown.Contarst  # noqa: B018
    assert not hasattr(pindown, "nothing")


def test_the_version_is_that_of_the_installed_package():
    assert pindown.__version__ == importlib.metadata.version("pindown")


# "generator.manual_seed" seeds one generator and is fine; these seed the whole process.
SEEDING = re.compile(
    r"\btorch\.(manual_seed|seed|cuda\.manual_seed\w*|set_rng_state)\(|\b(np|numpy)\.random\.seed\(|\brandom\.seed\("
    r"|\b(set_seed|seed_everything)\("
)


def test_no_source_file_seeds_the_whole_process():
    guilty = [
        f"{path.name}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SEEDING.search(line)
    ]
    assert guilty == []


def test_the_search_for_seeding_would_find_it():
    for line in ("torch.manual_seed(0)", "np.random.seed(1)", "random.seed(2)", "torch.cuda.manual_seed_all(3)"):
        assert SEEDING.search(line)
    for line in (
        "generator.manual_seed(0)",
        "torch.Generator().manual_seed(0)",
        "torch.default_generator.manual_seed(0)",
    ):
        assert not SEEDING.search(line)
