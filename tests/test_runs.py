"""Runs: parameters as text, and places that are not ours to write to."""

import json
import multiprocessing
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from pindown import Forget, networks
from pindown._files import write_json
from pindown.data.data import Data
from pindown.data.tables import Columns
from pindown.errors import InputError
from pindown.losses import DependencySparsity
from pindown.networks.spaces import Reals, Sphere
from pindown.runs import FitRequest, Place, Recipe, Run, estimator_for, read_options
from pindown.runs.recipe import read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("1e-3", 1e-3),
        ("None", None),
        ("True", True),
        ("linear", networks.linear),
        ("Reals", Reals()),
        ("Sphere()", Sphere()),
        ("DependencySparsity(0.1, n_columns=2)", DependencySparsity(0.1, n_columns=2)),
    ],
)
def test_parameters_are_numbers_words_or_values_with_a_name(text, value):
    assert read_value("any", text) == value


def test_arguments_of_a_network_are_fixed():
    network = read_value("encoder", "mlp(hidden=(8, 8))")
    assert isinstance(network, partial)
    assert [layer.out_features for layer in network(5, 2) if isinstance(layer, nn.Linear)] == [8, 8, 2]


@pytest.mark.parametrize(
    "text", ["__import__('os')", "networks.linear", "[x for x in (1,)]", "mlp(hidden=print)", "1 +"]
)
def test_nothing_else_is_evaluated(text):
    with pytest.raises(InputError) as error:
        read_options([f"encoder={text}"], Forget)
    assert error.value.argument == "encoder"


def test_the_side_variable_chooses_the_estimator():
    chosen = [Columns(nuisance=("e",)), Columns(pairs="next"), Columns(signal="y"), Columns()]
    assert [estimator_for(columns) for columns in chosen] == ["Forget", "Contrast", "Classify", "Dictionary"]


def test_a_recipe_is_kept_as_text_and_builds_the_same_estimator():
    recipe = Recipe("Contrast", 3, 10, 7, {"space": "Reals()", "p": "1"})
    again = Recipe(**json.loads(json.dumps(asdict(recipe))))
    estimator = again.build()
    assert (estimator.n_components, estimator.max_iter, estimator.random_state) == (3, 10, 7)
    assert (estimator.space, estimator.p) == (Reals(), 1)


def test_folders_of_someone_else_are_not_touched(tmp_path):
    for name in ("run", "run.unfinished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("keep me")
        with pytest.raises(InputError) as error:
            Place(tmp_path / "run").check(force=True)
        assert error.value.argument == "output"
        assert (tmp_path / name / "notes").read_text() == "keep me"
        (tmp_path / name / "notes").rename(tmp_path / "notes")
        (tmp_path / name).rmdir()
    Place(tmp_path / "run").check(force=True)


RECORD = {
    "command": "…",
    "data": {"path": "data.csv", "sha256": ""},
    "columns": {},
    "recipe": {"estimator": "Forget"},
    "asked": {},
    "notes": [],
}


def begin(place, **record):
    """Begin a run and let go of it, as a kill does."""
    with place.begun_alone({**RECORD, **record}, force=True):
        pass


def test_the_working_directory_can_be_a_run(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert Place(Path()).unfinished == tmp_path.resolve() / "run.unfinished"


def test_a_run_is_replaced_when_the_new_one_is_whole(tmp_path):
    place = Place(tmp_path / "run")
    for seed in (1, 2):
        begin(place, asked={"seed": seed})
        if seed == 2:
            assert Run.open(place.path).record["asked"] == {"seed": 1}  # the old one is there to the end
        place.finish()
    assert Run.open(place.path).record["asked"] == {"seed": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_kill_between_the_two_moves_of_a_replacement_loses_nothing(tmp_path):
    place = Place(tmp_path / "run")
    begin(place, asked={"seed": 1})
    place.finish()
    begin(place, asked={"seed": 2})
    place.path.rename(tmp_path / "run.replaced")  # killed here
    place.check(force=False)
    assert place.begun({"seed": 2}, force=False) is not None
    place.finish()
    assert Run.open(place.path).record["asked"] == {"seed": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_record_of_another_format_is_refused_unless_it_is_to_be_replaced(tmp_path):
    place = Place(tmp_path / "run")
    begin(place)
    write_json(place.unfinished / "run.json", {"format": 0})
    with pytest.raises(InputError) as error:
        place.begun({}, force=False)
    assert error.value.argument == "run"
    assert place.begun({}, force=True) is None


def test_two_fits_do_not_write_to_one_folder(tmp_path):
    place = Place(tmp_path / "run")
    begin(place)
    with place.held(), pytest.raises(InputError) as error:
        Place(tmp_path / "run").check(force=True)
    assert error.value.argument == "output"
    Place(tmp_path / "run").check(force=True)  # once the place is free, the next fit may begin


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12 on, of forks next to threads
@pytest.mark.parametrize("where", ["run", "new/run", "left/run"])
def test_one_of_several_processes_begins_a_run_in_a_folder(tmp_path, where):
    if where == "left/run":  # an unfinished one is there, which all want to replace
        begin(Place(tmp_path / where), asked={"seed": "left"})
    fork = multiprocessing.get_context("fork")
    ready, done, results, locked_checks = fork.Barrier(4), fork.Barrier(4), fork.Queue(), fork.Lock()

    def fit(number):
        place = Place(tmp_path / where)
        with locked_checks:
            place.check(force=False)
        ready.wait(20)  # all have checked, and found the place free
        try:
            with place.begun_alone({**RECORD, "asked": {"seed": number}}, force=False):
                done.wait(20)
                results.put((number, place.under_way().record["asked"]["seed"]))
        except InputError as error:
            done.wait(20)
            results.put((number, error.argument))

    children = [fork.Process(target=fit, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    found = dict(results.get(timeout=30) for _ in children)
    for child in children:
        child.join(20)
    (begun,) = [number for number, seed in found.items() if seed == number]
    assert all(argument == "output" for number, argument in found.items() if number != begun)
    assert [path.name for path in (tmp_path / where).parent.iterdir()] == ["run.unfinished"]


def test_a_lock_that_someone_else_has_on_the_folder_above_is_none_of_ours(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    above = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(above, fcntl.LOCK_EX)
    try:
        place = Place(tmp_path / "run")
        place.check(force=False)
        with place.begun_alone(RECORD, force=False) as run:
            assert run.path == tmp_path / "run.unfinished"
    finally:
        os.close(above)


def test_the_next_fit_removes_what_a_killed_one_left(tmp_path):
    (tmp_path / ".run.unfinished" / "checkpoint").mkdir(parents=True)
    (tmp_path / "run.unfinished").mkdir()
    (tmp_path / ".run.notes").mkdir()  # of someone else
    (tmp_path / ".run.lock").touch()
    begin(Place(tmp_path / "run"))
    assert {path.name for path in tmp_path.iterdir()} == {".run.notes", "run.unfinished"}


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "notes").write_text("keep me")
    (tmp_path / ".run.unfinished").symlink_to(tmp_path / "elsewhere")
    begin(Place(tmp_path / "run"))
    with pytest.raises(NotADirectoryError):
        begin(Place(tmp_path / "run"))  # the unfinished fit would be moved to where the link is
    assert (tmp_path / "elsewhere" / "notes").read_text() == "keep me"


def test_a_run_that_was_finished_while_another_was_planned_is_not_replaced(tmp_path, monkeypatch):
    late = Place(tmp_path / "run")
    monkeypatch.setattr(Place, "check", lambda place, force: None)  # it has checked before the other began
    with Place(tmp_path / "run").begun_alone({**RECORD, "asked": {"seed": "first"}}, force=False):
        Place(tmp_path / "run").finish()
    with pytest.raises(InputError) as error, late.begun_alone(RECORD, force=False):
        pass
    assert error.value.argument == "output"
    assert Run.open(late.path).record["asked"] == {"seed": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_two_classes_are_separated_on_a_line():
    label = np.arange(400) % 2
    x = np.random.default_rng(0).normal(size=(400, 3)) + 2 * label[:, None]
    request = FitRequest(None, Columns(), Recipe("Classify", max_iter=100))
    request.__dict__["data"] = Data(x, names=("a", "b", "c"), signal=label)  # as if read from a file
    recipe, notes = request.planned()
    assert recipe.n_components == 1
    assert notes
    fitted = recipe.build().fit(x, label)
    assert fitted.score(x, label) > 0.9
    assert fitted.encoder_.space == Reals()


def test_a_black_background_survives_the_record_of_a_run():
    from pindown.cli.options import ImageFolderOptions

    options = ImageFolderOptions(background=0.0, size="4x6").read()
    assert json.loads(json.dumps(options)) == {"background": 0.0, "size": [4, 6]}
