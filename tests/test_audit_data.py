"""The rows of an audit: how they are divided, shuffled and permuted, and which are refused."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from pindown import Classify, Contrast, Forget, audit
from pindown.auditing.evidence.rows import Rows, exchange
from pindown.auditing.report import refits as report_refits
from pindown.auditing.report.refits import divide, gathered, read
from pindown.data.data import Data

RNG = np.random.default_rng(0)

may_warn = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # as fits to nothing should


def fitted(estimator, x, y=None):
    return estimator.set_params(max_iter=1, verbose=False, random_state=0, device="cpu").fit(x, y)


def divisible(est, x, y=None, *, groups=None):
    return read(est, gathered(est, x, y, None, groups, None))


def test_a_quarter_is_held_out_evenly_within_classes():
    labels = np.repeat([0, 1, 2], [40, 80, 4])
    rows = Rows(Data(np.zeros((124, 1)), signal=labels), "signal", labels)
    learn, hold = divide(rows, np.random.default_rng(0))
    assert np.bincount(labels[hold]).tolist() == [10, 20, 1]
    assert sorted([*learn, *hold]) == list(range(124))


def test_rows_of_one_group_are_never_on_both_sides():
    groups = RNG.integers(20, size=400)
    rows = Rows(Data(np.zeros((400, 1))), units=groups)
    learn, hold = divide(rows, np.random.default_rng(0))
    assert not set(groups[learn]) & set(groups[hold])
    assert 0.1 < len(hold) / 400 < 0.4


def test_values_are_exchanged_between_subjects_not_within_them():
    subjects = np.repeat(np.arange(30), 10)
    values = (subjects % 3).astype(float)
    moved = values[exchange(values, subjects, np.random.default_rng(0))].reshape(30, 10)
    assert (moved == moved[:, :1]).all()
    assert (moved[:, 0] != values[::10]).any()
    free = values[exchange(values, None, np.random.default_rng(0))].reshape(30, 10)
    assert (free != free[:, :1]).any()


def test_the_next_row_is_a_partner_only_within_a_stretch_of_the_series():
    x = np.arange(200.0)[:, None] * [1, 2] + RNG.normal(size=(200, 2))
    data = divisible(fitted(Contrast(2), x), x)
    np.testing.assert_array_equal(data.side[0], x[1])
    assert len(data) == 200 - 40  # one pair of each of forty stretches would reach into the next
    assert data.units.max() == 39


def test_of_a_series_in_sessions_the_next_row_is_a_partner_within_a_session():
    x, sessions = RNG.normal(size=(200, 2)), np.repeat(np.arange(10), 20)
    data = divisible(fitted(Contrast(2), x), x, groups=sessions)
    assert len(data) == 200 - 10
    learn, hold = divide(data, np.random.default_rng(0))
    assert not set(data.units[learn]) & set(data.units[hold])


@may_warn
@pytest.mark.parametrize("n_sessions", [8, 9])
def test_eight_or_nine_sessions_are_enough_for_an_audit(n_sessions):
    x, sessions = RNG.normal(size=(360, 2)).cumsum(0), np.arange(360) * n_sessions // 360
    est = Contrast(2, max_iter=5, batch_size=32, verbose=False, random_state=0)
    found = audit(est.fit(Data(x, pairs="next", groups=sessions)), x, groups=sessions, n_fits=2, random_state=0)
    assert found.n_held_out == pytest.approx(2 * 360 / n_sessions, abs=3)  # two sessions, without their last rows


def test_seven_sessions_are_refused_before_anything_is_trained(monkeypatch):
    x, sessions = RNG.normal(size=(210, 2)), np.arange(210) // 30
    est = fitted(Contrast(2), x)
    monkeypatch.setattr(report_refits, "refitted", None)  # whoever fits fails in another way
    with pytest.raises(ValueError, match=r"rows come in 7 groups, too few .* at least 8 are needed"):
        audit(est, x, groups=sessions)


@may_warn
def test_a_nuisance_with_too_few_rows_of_each_value_is_refused_before_any_fit():
    x, values = RNG.normal(size=(120, 3)), np.arange(120) % 6
    est = fitted(Forget(1), x, values)
    with pytest.raises(ValueError, match=r"no value of y, .* has 20 rows among the 30 held out"):
        audit(est, x, values)


@may_warn
def test_columns_with_names_labels_that_are_text_and_a_given_label_are_understood():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(RNG.normal(size=(400, 3)), columns=["a", "b", "c"])
    series = pandas.Series(np.array(["p", "q", "r", "s"])[np.arange(400) % 4])
    found = audit(fitted(Classify(2), frame, series), frame, series, n_fits=2, random_state=0)
    assert set(found.pictures.colourings["y"]) == {"p", "q", "r", "s"}
    given = np.arange(400) // 2 % 2
    est = Forget(2, max_iter=1, verbose=False, random_state=0).fit(frame, np.arange(400) % 2, given)
    assert "given" in audit(est, frame, np.arange(400) % 2, given=given, n_fits=2, random_state=0).pictures.colourings


def test_small_groups_of_partners_stay_together_and_shuffling_parts_them():
    x, pairs = RNG.normal(size=(120, 2)), np.repeat(np.arange(60), 2)
    data = divisible(fitted(Contrast(2), x, pairs), x, pairs)
    learn, hold = divide(data, np.random.default_rng(0))
    assert not set(pairs[learn]) & set(pairs[hold])
    shuffled = data.shuffled(np.random.default_rng(0)).side.reshape(60, 2)
    assert (shuffled[:, 0] != shuffled[:, 1]).mean() > 0.9


def test_torn_rows_keep_columns_and_lose_what_they_share():
    x = np.random.default_rng(1).normal(size=(2_000, 1)) * [1.0, 1.0]
    permuted = Rows(Data(x)).shuffled(np.random.default_rng(0)).X
    assert sorted(permuted[:, 0]) == sorted(x[:, 0])
    assert abs(np.corrcoef(permuted.T)[0, 1]) < 0.2 < 0.99 < np.corrcoef(x.T)[0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1]}, "audit: y has 2 rows, but X has 80"),
        ({"truth": [[0.0]]}, "audit: truth has 1 rows, but X has 80"),
        ({"given": [0] * 80}, "given"),
        ({"groups": [0, 1] * 40}, "rows come in 2 groups, too few"),
        ({"y": None}, "audit: y is missing"),
        ({"n_fits": 1}, "n_fits == 1, must be >= 2"),
    ],
)
@may_warn
def test_bad_arguments_are_refused_with_name_and_cause(arguments, message):
    x, labels = RNG.normal(size=(80, 2)), np.arange(80) % 4
    est = fitted(Classify(2), x, labels)
    with pytest.raises(ValueError, match=message):
        audit(est, x, **({"y": labels} | arguments))


def test_an_estimator_must_be_fitted_and_answer_for_itself():
    with pytest.raises(NotFittedError):
        audit(Classify(2), RNG.normal(size=(80, 2)), np.arange(80) % 4)
    x, labels = RNG.normal(size=(40, 2)), np.arange(40) % 4
    est = fitted(Classify(2), x, labels)
    with pytest.raises(ValueError, match="40 rows are too few"):
        audit(est, x, labels)
    with pytest.raises(TypeError, match=r"audit: est must be an estimator of pindown, .* got PCA: nothing says how"):
        audit(PCA())
    with pytest.raises(TypeError, match=r"audit: X is missing: what Classify has learned .* audit\(est, X"):
        audit(est)
    with pytest.raises(TypeError, match=r"audit: est is the class Classify, .* Give one .* fitted: Classify\(…\)"):
        audit(Classify, x, labels)


def test_the_same_seed_gives_the_same_audit_and_leaves_no_trace():
    labels = np.arange(120) % 4
    x = np.random.default_rng(0).normal(size=(120, 2)) + 2 * np.stack([labels % 2, labels // 2], axis=1)  # a square
    est = fitted(Classify(2), x, labels)
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (audit(est, x, labels, n_fits=2, random_state=3).to_dict() for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])
