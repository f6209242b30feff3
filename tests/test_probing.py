"""Probes: they find what is there, not what is not, tell models apart, and keep groups on one side."""

import json

import numpy as np
import pytest

import pindown
from pindown import probe
from pindown.auditing.probing import Factor, _drawn_splits, holm, ridge_predictions
from pindown.errors import InputError

RNG = np.random.default_rng(0)
N = 480
GROUPS = np.arange(N) // 4
OBJECT = RNG.normal(size=(N // 4, 12))[GROUPS]
SIZE, DARK, COIN = RNG.integers(2, size=(3, N))
ANGLE = RNG.normal(size=N)
KIND = np.array(["cup", "shoe", "lamp"])[(RNG.integers(3, size=N // 4))[GROUPS]]
TRAINED = np.tanh(np.column_stack([OBJECT, 2 * SIZE, ANGLE]) @ RNG.normal(size=(14, 40))) + 0.3 * RNG.normal(
    size=(N, 40)
)
RANDOM = np.column_stack([OBJECT, 3 * DARK]) @ RNG.normal(size=(13, 40))
FACTORS = {"size": SIZE, "darkness": DARK, "coin": COIN, "angle": ANGLE, "kind": KIND}
QUICK = {"n_resamples": 6, "n_permutations": 399}


@pytest.fixture(scope="module")
def found():
    return probe({"trained": TRAINED, "random network": RANDOM}, FACTORS, groups=GROUPS, **QUICK)


def of(found, factor, model="trained"):
    return next(each for each in found.probed if (each.factor, each.model) == (factor, model))


def test_what_is_there_is_found_and_what_is_not_is_not(found):
    assert {(each.factor, each.model) for each in found.probed if each.found} == {
        ("size", "trained"),
        ("angle", "trained"),
        ("darkness", "random network"),
    }
    assert of(found, "size").score > 0.85
    assert of(found, "angle").measure == "R²"
    assert of(found, "angle").score > 0.45
    for each in found.probed:
        if not each.found:
            assert abs(each.score - each.chance) < max(5 * each.error, 0.15)


def test_chance_is_one_over_the_classes_and_control_tasks_are_at_it(found):
    for each in found.probed:
        if each.measure == "balanced accuracy":
            level = 1 / (3 if each.factor == "kind" else 2)
            assert each.chance == pytest.approx(level, abs=0.02)
            assert each.control == pytest.approx(level, abs=0.06)
            assert each.selectivity == pytest.approx(each.score - each.control)


def test_models_are_compared_in_pairs_and_training_may_hurt(found):
    decided = {each.factor: np.sign(each.difference) for each in found.compared if each.decided}
    assert decided == {"size": 1, "angle": 1, "darkness": -1}
    assert "better than from random network in 2 (size, angle), worse in 1 (darkness)" in found.sentence


def test_p_values_are_corrected_by_holm_and_more_strictly_by_bonferroni(found):
    n = len(found.probed)
    assert all(each.p_value <= each.holm <= each.bonferroni <= 1 for each in found.probed)
    assert of(found, "size").bonferroni == pytest.approx(min(1, n * of(found, "size").p_value))
    assert holm(np.array([0.01, 0.02, 0.5])).tolist() == pytest.approx([0.03, 0.04, 0.5])


def test_permutations_that_are_too_few_for_so_many_tests_are_spoken_of():
    few = probe(TRAINED, {"size": SIZE}, groups=GROUPS, n_resamples=2, n_permutations=19)
    assert "take 40" in few.notes[0]
    assert not few.probed[0].found


def test_where_there_is_nothing_hardly_anything_is_found():
    p_values = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        own = rng.normal(size=(120, 8)) + 2 * rng.normal(size=(30, 8))[np.arange(120) // 4]
        factors = {"of groups": rng.integers(2, size=30)[np.arange(120) // 4], "of rows": rng.normal(size=120)}
        nothing = probe(own, factors, groups=np.arange(120) // 4, n_resamples=4, n_permutations=99)
        p_values += [each.p_value for each in nothing.probed]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05


def test_without_groups_a_probe_recognises_objects_and_with_them_it_does_not():
    labels = RNG.integers(2, size=N // 4)[GROUPS]  # says nothing but which object it is
    features = OBJECT @ RNG.normal(size=(12, 200))
    features = np.hstack([features, np.tanh(3 * features)])
    apart, mixed = (probe(features, {"label": labels}, groups=g, **QUICK).probed[0] for g in (GROUPS, None))
    assert apart.score < 0.6
    assert mixed.score > apart.score + 0.15


def test_groups_are_on_one_side_and_classes_are_balanced():
    classes = (np.arange(300) % 5 == 0).astype(np.int64)
    factor = Factor("five", classes, np.arange(300), 2)
    for train, test in _drawn_splits(factor, np.arange(300) // 3, 5, np.random.default_rng(0)):
        assert not set(train // 3) & set(test // 3)
        assert np.bincount(classes[np.concatenate([train, test])]).tolist() == [60, 60]
        assert 0.15 < len(test) / 120 < 0.45


def test_a_probe_is_ridge_regression_and_ignores_constant_features():
    x, y = RNG.normal(size=(80, 6)), RNG.normal(size=(60, 1, 1))
    x[:, 5] = 4.0
    noise, _ = ridge_predictions(x[:60], y, x[60:], np.arange(60) % 5)
    assert np.abs(noise - y.mean()).max() < 1
    linear, at_edge = ridge_predictions(x[:60], x[:60, :1, None] * 3 + 1, x[60:], np.arange(60) % 5)
    assert np.allclose(linear[:, 0, 0], x[60:, 0] * 3 + 1, atol=0.02)
    assert not at_edge


def test_with_more_features_than_samples_the_penalty_is_not_the_smallest():
    rng = np.random.default_rng(3)
    group = np.arange(200) // 4
    label = rng.integers(2, size=200)
    x = rng.normal(size=(50, 400))[group] + 0.12 * (2 * label - 1)[:, None] + rng.normal(size=(200, 400))
    found = probe(x, {"label": label}, groups=group, n_resamples=4, n_permutations=99)
    assert found.probed[0].score > 0.9
    assert not any("penalty" in note for note in found.notes)


def test_counts_are_quantities_and_labels_given_as_text_are_not():
    count = np.random.default_rng(1).poisson(np.exp(3 + 0.5 * TRAINED[:, 0]))
    found = probe(TRAINED, {"count": count, "batch": (np.arange(N) % 25).astype(str)}, n_resamples=2)
    assert of(found, "count", "features").measure == "R²"
    assert of(found, "count", "features").score > 0.4
    assert of(found, "batch", "features").measure == "balanced accuracy"
    assert any("count" in note for note in found.notes)


def test_small_counts_are_quantities_where_a_value_is_rare_or_where_the_caller_says_so():
    rng = np.random.default_rng(2)
    count, level = rng.poisson(np.exp(0.4 * TRAINED[:, 0])), rng.integers(4, size=N)
    found = probe(TRAINED, {"count": count, "level": level}, n_resamples=2)
    assert [each.measure for each in found.probed] == ["R²", "balanced accuracy"]
    assert of(found, "count", "features").score > 0.05
    said = probe(TRAINED, {"level": level}, quantities=["level"], n_resamples=2)
    assert said.probed[0].measure == "R²"
    with pytest.raises(InputError) as error:
        probe(TRAINED, {"level": level}, quantities=["size"])
    assert error.value.argument == "quantities"


def test_a_quantity_that_hardly_ever_varies_is_left_out():
    rare = np.zeros(N)
    rare[5] = 0.5
    with pytest.raises(ValueError, match="rare"):
        probe(TRAINED, {"rare": rare}, **QUICK)


def test_missing_values_are_left_out_and_factors_that_cannot_be_probed_are_named():
    partly = np.where(np.arange(N) < 100, np.nan, SIZE.astype(float))
    rare = (np.arange(N) < 3).astype(int)
    found = probe(
        TRAINED,
        {"size": partly, "rare": rare, "one": np.ones(N), "name": np.arange(N).astype(str)},
        groups=GROUPS,
        **QUICK,
    )
    assert found.factors == ("size",)
    assert found.probed[0].n_samples <= 380
    assert len(found.notes) == 3
    assert "rare" in str(found)
    assert "random network" in found.sentence


def test_it_prints_and_saves_a_page_a_table_and_numbers(found, tmp_path):
    assert str(found).splitlines()[0].split()[:3] == ["factor", "model", "score"]
    assert found.save(tmp_path / "probes.html").read_text().count('<th scope="row">') == 10 + 5
    assert len(found.save(tmp_path / "probes.csv").read_text().splitlines()) == 11
    assert json.loads(found.save(tmp_path / "probes.json").read_text())["sentence"] == found.sentence
    with pytest.raises(InputError) as error:
        found.save(tmp_path / "probes.png")
    assert error.value.argument == "path"


@pytest.mark.parametrize(
    ("features", "factors", "options", "message"),
    [
        (TRAINED[:, 0], FACTORS, {}, "features"),
        ({"a": TRAINED, "b": RANDOM[:9]}, FACTORS, {}, "features"),
        (np.where(TRAINED > 2, np.nan, TRAINED), FACTORS, {}, "features"),
        (TRAINED, {"size": SIZE[:5]}, {}, "size"),
        (TRAINED, {}, {}, "factors"),
        (TRAINED, {"one": np.ones(N)}, {}, "one"),
        (TRAINED, FACTORS, {"groups": GROUPS[:7]}, "groups"),
        (TRAINED, FACTORS, {"n_permutations": 3}, "n_permutations"),
    ],
)
def test_bad_input_is_named_in_a_sentence(features, factors, options, message):
    with pytest.raises(ValueError, match=message):
        probe(features, factors, **options)


def test_frames_and_arrays_of_factors_are_read():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"size": SIZE})
    one = probe(TRAINED, frame, groups=GROUPS, **QUICK)
    other = probe(TRAINED, SIZE, groups=GROUPS, **QUICK)
    assert one.factors == ("size",)
    assert other.factors == ("factor",)
    assert one.probed[0].score == other.probed[0].score


# ---- the shell ------------------------------------------------------------------------------------------------------


def test_the_shell_reads_files_and_writes_a_page(tmp_path):
    from typer.testing import CliRunner

    from pindown.cli import app

    np.savez(tmp_path / "features.npz", trained=TRAINED, untrained=RANDOM)
    np.save(tmp_path / "raw.npy", OBJECT)
    rows = [f"{s},{k},{g}" for s, k, g in zip(SIZE, KIND, GROUPS, strict=True)]
    (tmp_path / "factors.csv").write_text("\n".join(["size,kind,object", *rows]) + "\n")

    def run(*arguments):
        names = (str(tmp_path / part) if "." in part and "=" not in part else part for part in arguments)
        return CliRunner().invoke(app, ["probe", *names])

    common = ("features.npz", "--factors", "factors.csv", "--group", "object", "--permutations", "399")
    result = run(*common, "--resamples", "4", "--baseline", f"raw={tmp_path / 'raw.npy'}", "-o", "probes.html")
    assert result.exit_code == 0, result.output
    assert "raw" in result.output
    assert "size    trained*" in result.output
    assert (tmp_path / "probes.html").exists()
    told = json.loads(run(*common, "--resamples", "2", "--factor", "size", "--json").output)
    assert {each["factor"] for each in told["probed"]} == {"size"}
    assert run(*common, "--factor", "sise").exit_code == 2
    assert run(*common, "--baseline", "raw").exit_code == 2


def test_probe_is_a_name_of_the_package():
    assert pindown.probe is pindown.auditing.probing.probe
