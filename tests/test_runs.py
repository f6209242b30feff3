"""Runs: parameters as text, and places that are not ours to write to."""

import json
import multiprocessing
import os
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
from pindown.runs import Place, Recipe, Run, estimator_for, planned, read_options
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
    again = Recipe(**json.loads(json.dumps(recipe.as_dict())))
    estimator = again.build()
    assert (estimator.n_components, estimator.max_iter, estimator.random_state) == (3, 10, 7)
    assert (estimator.space, estimator.p) == (Reals(), 1)


def test_folders_of_someone_else_are_not_touched(tmp_path):
    for name in ("run", "run.unfinished"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("keep me")
        with pytest.raises(ValueError, match="holds other things"):
            Place(tmp_path / "run").check(force=True)
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
    with pytest.raises(InputError, match="its format is 0, not"):
        place.begun({}, force=False)
    assert place.begun({}, force=True) is None


def test_two_fits_do_not_write_to_one_folder(tmp_path):
    place = Place(tmp_path / "run")
    begin(place)
    with place.held(), pytest.raises(ValueError, match="another fit is under way"):
        Place(tmp_path / "run").check(force=True)
    Place(tmp_path / "run").check(force=True)  # the twin: once it is let go, the next may come


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of Python 3.12 on, of forks beside threads
@pytest.mark.parametrize("where", ["run", "new/run", "left/run"])
def test_of_processes_that_begin_a_run_in_one_folder_at_once_one_does(tmp_path, where):
    if where == "left/run":  # an unfinished one is there, which all want to replace
        begin(Place(tmp_path / where), asked={"seed": "left"})
    fork = multiprocessing.get_context("fork")
    ready, done, answers, locked_checks = fork.Barrier(4), fork.Barrier(4), fork.Queue(), fork.Lock()

    def fit(number):
        place = Place(tmp_path / where)
        with locked_checks:
            place.check(force=False)
        ready.wait(20)  # all have looked, and found the place free
        try:
            with place.begun_alone({**RECORD, "asked": {"seed": number}}, force=False):
                done.wait(20)
                answers.put((number, place.under_way().record["asked"]["seed"]))
        except ValueError as error:
            done.wait(20)
            answers.put((number, str(error)))

    children = [fork.Process(target=fit, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    said = dict(answers.get(timeout=30) for _ in children)
    for child in children:
        child.join(20)
    (begun,) = [number for number, answer in said.items() if answer == number]
    assert all("another fit is under way" in answer for number, answer in said.items() if number != begun)
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


def test_what_a_kill_left_of_a_beginning_goes_with_the_next_one(tmp_path):
    (tmp_path / ".run.unfinished" / "new").mkdir(parents=True)
    (tmp_path / ".run.notes").mkdir()  # of someone else
    (tmp_path / ".run.lock").touch()
    begin(Place(tmp_path / "run"))
    assert {path.name for path in tmp_path.iterdir()} == {".run.notes", "run.unfinished"}


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".run.unfinished").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        begin(Place(tmp_path / "run"))
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_run_that_was_finished_while_another_was_planned_is_not_replaced(tmp_path, monkeypatch):
    late = Place(tmp_path / "run")
    monkeypatch.setattr(Place, "check", lambda place, force: None)  # it has looked, and the other was not there yet
    with Place(tmp_path / "run").begun_alone({**RECORD, "asked": {"seed": "first"}}, force=False):
        Place(tmp_path / "run").finish()
    with pytest.raises(ValueError, match="holds a finished run"), late.begun_alone(RECORD, force=False):
        pass
    assert Run.open(late.path).record["asked"] == {"seed": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_folders_made_for_a_run_that_came_to_nothing_go_and_others_stay(tmp_path):
    (tmp_path / "mine").mkdir()
    place = Place(tmp_path / "mine" / "new" / "run")
    begin(place)
    place.give_up()
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_two_classes_are_separated_on_a_line_unless_another_space_is_requested():
    label = np.arange(400) % 2
    x = np.random.default_rng(0).normal(size=(400, 3)) + 2 * label[:, None]
    study = Data(x, names=("a", "b", "c"), signal=label)
    wanted = Recipe("Classify", max_iter=100)
    recipe, notes = planned(wanted, wanted.build(), study)
    assert recipe.n_components == 1
    assert notes
    assert recipe.options["space"] == "Reals()"
    assert recipe.build().fit(x, label).score(x, label) > 0.9
    asked = Recipe("Classify", 1, options={"space": "Sphere()"})
    assert planned(asked, asked.build(), study)[0] == asked


def test_a_black_background_survives_the_record_of_a_run():
    from pindown.runs.inputs import ImageOptions

    options = ImageOptions(background=0.0, size=(4, 6))
    assert ImageOptions.from_dict(options.as_dict()) == options
