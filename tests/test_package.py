import ast
import importlib.metadata
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pindown

SOURCE = Path(pindown.__file__).parent
HEAVY = ("torch", "numpy", "plotly", "sklearn", "scipy", "accelerate", "rich")


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
        assert getattr(pindown, name).__name__.rsplit(".")[-1] == name
    assert dir(pindown) == sorted(["__version__", *pindown.__all__])


def test_every_module_that_has_no_underscore_is_an_attribute_of_the_package():
    modules = {module.name for module in pkgutil.iter_modules(pindown.__path__) if module.name[0] != "_"}
    commands, inner_parts = {"cli", "demo"}, {"directions", "labels", "pairwise", "planning"}
    assert modules - commands - inner_parts <= set(pindown.__all__)
    assert loaded_after("import pindown; pindown.theory.CONTRAST_SPHERE") == []


def test_names_loaded_on_first_use_are_those_a_type_checker_sees():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = [(node.module, alias.name) for node in checked.body for alias in node.names]
    assert sorted(name for _, name in imported) == pindown.__all__
    assert {name: module for module, name in imported if module != "pindown"} == pindown._HOME


def imported(path):
    """Yield the module and the name of everything of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pindown":
            yield from ((node.module, alias.name) for alias in node.names)


def test_nothing_private_is_imported_from_elsewhere():
    modules = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
    }
    of_a_module, of_a_package = [], []
    for path in SOURCE.rglob("*.py"):
        folder = path.parent.relative_to(SOURCE.parent).parts
        for module, name in imported(path):
            full = f"{module}.{name}"
            if full not in modules and name.startswith("_") and not name.startswith("__"):
                of_a_module.append((path.name, full))
            parts = tuple((full if full in modules else module).split("."))
            private = next((k for k, part in enumerate(parts) if part.startswith("_")), None)
            if private is not None and folder[:private] != parts[:private]:
                of_a_package.append((path.name, full))
    assert of_a_module == of_a_package == []


SCRIPT = """
import pindown
from pindown import Contrast, Data, optimizers
score: str = pindown.metrics.linear_r2([[0.0]], [[0.0]])
pindown.networks.linear(3, 2, 1)
optimizers.adam(learning_rate="fast")
Data([[0.0]], names=3)
Contrast(3).fit()
pindown.Forget(max_iter="long")
pindown.LatentAction("two")
"""


@pytest.mark.slow
def test_a_type_checker_sees_the_types_of_the_installed_package(tmp_path, monkeypatch):
    libraries = ["torch", "numpy", "scipy", "sklearn", "plotly", "rich", "typer", "jinja2", "accelerate", "safetensors"]
    skipped = ",".join(f"{name}.*" for name in libraries)  # reading them takes longer than all the rest
    options = "follow_imports = skip\nignore_missing_imports = True\n"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n[mypy-{skipped}]\n{options}")
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    api = pytest.importorskip("mypy.api")
    found, crashed, _ = api.run(["script.py", "--config-file", "mypy.ini", "--cache-dir", os.devnull])
    assert crashed == ""
    wrong = {int(number) for number in re.findall(r"^script\.py:(\d+): error", found, re.MULTILINE)}
    assert wrong == {4, 5, 6, 7, 8, 9, 10}, found


def test_contrast_is_the_estimator():
    from pindown.methods import Contrast

    assert pindown.Contrast is Contrast


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="Contarst"):
        pindown.Contarst  # noqa: B018
    assert not hasattr(pindown, "nothing")


def test_the_version_is_that_of_the_installed_package():
    try:
        installed = importlib.metadata.version("pindown")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pindown is not installed here, only found by its path")
    assert pindown.__version__ == installed


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
