"""The audit: it claims where a theorem can speak, and nothing where side information, fit or an assumption fails."""

import dataclasses
import json
import os

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from pindown import Classify, Contrast, Dictionary, Forget, audit, networks, theory
from pindown.checks.verdict import Verdict
from pindown.estimators._base import BaseEncoder
from pindown.metrics import mcc
from pindown.processes import Clusters, Nuisance, Pairs, Structured
from pindown.report.agreement import Agreement, measure_for, principal_angles
from pindown.report.claims import needed, not_shown, refusals, waived
from pindown.report.evidence import Control, Score
from pindown.report.refits import Data, divide, exchange, read
from pindown.structure import identified_blocks

RNG = np.random.default_rng(0)

may_warn = pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")  # as fits to nothing should


def classified(n_classes: int = 8, *, shuffled: bool = False, max_iter: int = 150):
    """Return a fit to clusters on a sphere, with its data."""
    sample = Clusters.on_sphere(3, n_classes, 10.0, random_state=0).sample(1_600, random_state=1)
    x, labels = sample.x.numpy(), sample.u.numpy()
    labels = np.random.default_rng(2).permutation(labels) if shuffled else labels
    return (
        Classify(3, max_iter=max_iter, batch_size=256, verbose=False, random_state=0).fit(x, labels),
        x,
        labels,
        sample.z.numpy(),
    )


@pytest.fixture(scope="module")
def of_classes():
    est, x, labels, z = classified()
    return audit(est, x, labels, truth=z, n_fits=2, random_state=0)


def test_labels_that_identify_give_a_claim_with_its_conditions(of_classes):
    assert of_classes.reasons == ()
    assert of_classes.claims
    assert "recovered up to an orthogonal map and one scale" in of_classes.claim
    assert "global optimum reached" in of_classes.claim  # nobody can check it, so it is said
    assert "unit-norm" not in of_classes.claim  # met by construction


def test_scores_agreement_and_controls_come_with_their_levels_of_chance(of_classes):
    (score,) = of_classes.scores
    assert score.value > 0.5 > 0.2 > score.chance > 0.05
    assert score.p_value == 0.001  # the least that 999 permutations allow
    assert [found.between for found in of_classes.agreement] == [
        "this fit and refits",
        "refits with other seeds",
        "fits to two halves of the rows",
    ]
    assert all(found.worst > 0.9 > 0.8 > found.shuffled > found.chance for found in of_classes.agreement[:2])
    assert [control.passed for control in of_classes.controls] == [True, True]
    assert of_classes.n_fits == 5


def test_recovery_stands_beside_if_the_truth_is_supplied(of_classes):
    linear, matched = of_classes.recovery
    assert linear.value > 0.9
    assert matched.chance == pytest.approx(0.826, abs=0.01)  # a random rotation of three latents


def test_what_was_not_shown_names_trust_and_limits(of_classes):
    assert any(text.startswith("taken on trust: global optimum") for text in of_classes.not_shown)
    assert "not promised: axis alignment" in of_classes.not_shown


@may_warn
def test_shuffled_labels_give_no_claim():
    est, x, labels, _ = classified(shuffled=True, max_iter=60)
    found = audit(est, x, labels, n_fits=2, random_state=0)
    assert not found.claims
    assert found.claim.startswith("Nothing is claimed: the fit learned nothing")
    assert found.agreement[0].worst < 0.8


def test_too_few_classes_give_no_claim_although_they_are_recognised():
    with pytest.warns(UserWarning, match="3 classes cannot pin down 3 latents"):
        est, x, labels, _ = classified(n_classes=3, max_iter=40)
    found = audit(est, x, labels, n_fits=2, random_state=0)
    assert found.scores[0].good
    assert any("at least d + 1 classes fails" in reason for reason in found.reasons)
    assert any("3 classes cannot pin down 3 latents" in text for text in found.warned)


@may_warn
@pytest.mark.parametrize("related", [True, False])
def test_pairs_give_a_claim_if_partners_are_related_and_none_otherwise(related):
    sample = Pairs.on_sphere(2, 10.0, random_state=0).sample(800, random_state=1)
    partners = sample.x_pos.numpy()
    partners = partners if related else np.random.default_rng(2).permutation(partners)
    est = Contrast(2, max_iter=80, batch_size=128, verbose=False, random_state=0)
    found = audit(est.fit(sample.x.numpy(), partners), sample.x.numpy(), partners, n_fits=2, random_state=0)
    assert found.claims == related
    assert found.scores[0].chance == pytest.approx(0.5, abs=0.02)
    assert (found.agreement[0].worst > 0.9) == related


@pytest.mark.parametrize("told", [True, False])
def test_a_nuisance_gives_a_claim_if_x_tells_it_and_none_if_there_was_nothing_to_forget(told):
    sample = Nuisance.on_sphere(6, 3, 10.0, n_layers=1, random_state=0).sample(1_500, random_state=1)
    nuisance = sample.u.numpy() if told else np.random.default_rng(2).permutation(sample.u.numpy())
    est = Forget(4, encoder=networks.linear, max_iter=40, batch_size=256, verbose=False, random_state=0).fit(
        sample.x.numpy(), nuisance
    )
    found = audit(est, sample.x.numpy(), nuisance, n_fits=2, random_state=0)
    assert found.claims == told
    codes, raw, rebuilt = found.scores
    assert (raw.value > 0.6) == told
    assert codes.value < 0.45
    assert rebuilt.value > rebuilt.chance
    assert json.loads(json.dumps(found.to_dict()))["leakage"]["by_probe"].keys() == found.leakage.by_probe.keys()
    if not told:
        assert "nothing to forget" in found.claim


def test_a_dictionary_of_columns_that_share_no_latent_gives_no_claim():
    support = [[1, 0], [1, 1], [0, 1], [1, 1]]
    sample = Structured.from_support(support, random_state=0).sample(600, random_state=1)
    torn = np.random.default_rng(0).permuted(sample.x.numpy(), axis=0)
    est = Dictionary(2, n_restarts=1, max_iter=30, batch_size=128, verbose=False, random_state=0).fit(torn)
    found = audit(est, torn, n_fits=2, random_state=0)
    assert not found.claims
    assert any("columns that were permuted are rebuilt about as well" in reason for reason in found.reasons)


@may_warn
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("shuffled", [True, False])
def test_other_worlds_of_labels_give_a_claim_unless_they_are_shuffled(seed, shuffled):
    sample = Clusters.on_sphere(3, 12, 10.0, random_state=seed).sample(2_000, random_state=seed)
    labels = np.random.default_rng(seed).permutation(sample.u.numpy()) if shuffled else sample.u.numpy()
    est = Classify(3, max_iter=200, verbose=False, random_state=seed).fit(sample.x.numpy(), labels)
    assert audit(est, sample.x.numpy(), labels, n_fits=2, random_state=seed).claims != shuffled


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_claimed_of_a_dictionary_that_found_other_latents(seed):
    support = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]
    sample = Structured.from_support(support, random_state=0).sample(4_000, random_state=1)
    x, z = sample.x.numpy(), sample.z.numpy()
    est = Dictionary(3, n_restarts=2, max_iter=600, verbose=False, random_state=seed).fit(x)  # seed 0 goes astray
    found_latents = mcc(est.transform(x), z) > 0.95
    assert found_latents == (seed == 1)
    assert found_latents or not audit(est, x, n_fits=2, random_state=0).claims


# ---- the data -------------------------------------------------------------------------------------------------------


def fitted(estimator, x, y=None):
    return estimator.set_params(max_iter=1, verbose=False, random_state=0).fit(x, y)


def test_a_quarter_is_held_out_evenly_within_classes():
    labels = np.repeat([0, 1, 2], [40, 80, 4])
    data = Data(np.zeros((124, 1)), labels, None, None, labels, None)
    learn, hold = divide(data, np.random.default_rng(0))
    assert np.bincount(labels[hold]).tolist() == [10, 20, 1]
    assert sorted([*learn, *hold]) == list(range(124))


def test_rows_of_one_group_are_never_on_both_sides():
    groups = RNG.integers(20, size=400)
    data = Data(np.zeros((400, 1)), None, None, None, np.zeros(400, dtype=int), groups)
    learn, hold = divide(data, np.random.default_rng(0))
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
    data = read(fitted(Contrast(2), x), x, None, None, None, None)
    np.testing.assert_array_equal(data.side[0], x[1])
    assert len(data) == 200 - 40  # one pair of each of forty stretches would reach into the next
    assert data.units.max() == 39


def test_of_a_series_in_sessions_the_next_row_is_a_partner_within_a_session():
    x, sessions = RNG.normal(size=(200, 2)), np.repeat(np.arange(10), 20)
    data = read(fitted(Contrast(2), x), x, None, None, sessions, None)
    assert len(data) == 200 - 10
    learn, hold = divide(data, np.random.default_rng(0))
    assert not set(data.units[learn]) & set(data.units[hold])


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
    data = read(fitted(Contrast(2), x, pairs), x, pairs, None, None, None)
    learn, hold = divide(data, np.random.default_rng(0))
    assert not set(pairs[learn]) & set(pairs[hold])
    shuffled = data.shuffled(np.random.default_rng(0)).side.reshape(60, 2)
    assert (shuffled[:, 0] != shuffled[:, 1]).mean() > 0.9


def test_torn_rows_keep_columns_and_lose_what_they_share():
    x = RNG.normal(size=(500, 1)) * [1.0, 1.0]
    torn = Data(x, None, None, None, np.zeros(500, dtype=int), None).shuffled(np.random.default_rng(0)).X
    assert sorted(torn[:, 0]) == sorted(x[:, 0])
    assert abs(np.corrcoef(torn.T)[0, 1]) < 0.2 < 0.99 < np.corrcoef(x.T)[0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [0, 1]}, "audit: y has 2 rows, but X has 80"),
        ({"truth": [[0.0]]}, "audit: truth has 1 rows, but X has 80"),
        ({"given": [0] * 80}, "Classify has none"),
        ({"groups": [0, 1] * 40}, "rows come in 2 groups, too few"),
        ({"y": None}, "audit: y is missing"),
        ({"n_fits": 1}, "n_fits == 1, must be >= 2"),
    ],
)
def test_bad_arguments_are_refused_with_name_and_cause(arguments, message):
    x, labels = RNG.normal(size=(80, 2)), np.arange(80) % 4
    est = fitted(Classify(2), x, labels)
    with pytest.raises(ValueError, match=message):
        audit(est, x, **({"y": labels} | arguments))


class _Other(BaseEncoder):
    """An estimator that the audit knows nothing of: it borrows everything from Contrast."""

    __init__, guarantee = Contrast.__init__, None
    _space, _draw, _draw_fresh = Contrast._space, Contrast._draw, Contrast._draw_fresh
    _objective, _learned = Contrast._objective, Contrast._learned
    _warn_if_nothing_held_the_scale = Contrast._warn_if_nothing_held_the_scale


def test_an_estimator_must_be_fitted_and_one_of_ours():
    with pytest.raises(NotFittedError):
        audit(Classify(2), RNG.normal(size=(80, 2)), np.arange(80) % 4)
    x, labels = RNG.normal(size=(40, 2)), np.arange(40) % 4
    est = fitted(Classify(2), x, labels)
    with pytest.raises(ValueError, match="40 rows are too few"):
        audit(est, x, labels)
    with pytest.raises(TypeError, match="est must be a Contrast, Classify, Forget or Dictionary, got _Other"):
        audit(fitted(_Other(2), x, labels), x, labels)


def test_the_same_seed_gives_the_same_audit_and_leaves_no_trace():
    x, labels = RNG.normal(size=(120, 2)) + np.arange(120)[:, None] % 4, np.arange(120) % 4
    est = fitted(Classify(2), x, labels)
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (audit(est, x, labels, n_fits=2, random_state=3).to_dict() for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])


# ---- agreement ------------------------------------------------------------------------------------------------------

Z = np.random.default_rng(5).normal(size=(1_000, 3))
TURN = np.linalg.qr(np.random.default_rng(6).normal(size=(3, 3)))[0]


def test_each_comparison_ignores_what_is_free_and_sees_the_next_coarser_map():
    signed, orthogonal, linear = (
        measure_for(free) for free in (theory.SIGNED_PERMUTATION, theory.ORTHOGONAL, theory.LINEAR)
    )
    flipped, turned, sheared = -Z[:, [2, 0, 1]], Z @ TURN, Z @ TURN * [1, 3, 9] @ TURN.T
    assert signed(Z, flipped) > 0.999 > 0.95 > signed(Z, turned)
    assert orthogonal(Z, turned) > 0.999 > 0.95 > orthogonal(Z, sheared)
    assert linear(Z, sheared) > 0.999 > 0.95 > linear(Z, Z**3)


def test_latents_in_one_block_may_be_mixed_and_others_may_not():
    blocks = identified_blocks([[1, 1, 0], [0, 0, 1]])  # the first two reach the same
    mixed = Z.copy()
    mixed[:, :2] = Z[:, :2] @ [[1, 1], [1, -1]]
    measure = measure_for(theory.BLOCKWISE, blocks=blocks)
    assert measure(Z, mixed) > 0.98
    assert measure(Z, Z @ TURN) < 0.9
    assert measure_for(theory.ELEMENTWISE)(Z, mixed) < 0.9
    assert measure.chance(Z) < 0.95


def test_each_value_of_a_nuisance_may_have_its_own_bijection_but_no_fold():
    values = np.arange(1_000) % 2
    own = np.where(values[:, None] == 0, Z, -np.sinh(Z))
    measure = measure_for(theory.BIJECTION_PER_VALUE, values)
    assert measure(Z, own) > 0.9
    assert measure(Z, Z**2) < 0.5


def test_a_collapsed_code_agrees_with_nothing():
    dead = Z * [1, 1, 0]
    assert [measure_for(free)(Z, dead) for free in (theory.SIGNED_PERMUTATION, theory.ORTHOGONAL)] == [0.0, 0.0]


def test_angles_between_spans_are_right_for_a_shared_plane():
    tilted = np.column_stack([Z[:, 0], Z[:, 1] + Z[:, 2]])  # 45° out of the plane of the first two
    assert principal_angles(Z[:, :2], tilted) == pytest.approx([0, 45], abs=3)


# ---- claims ---------------------------------------------------------------------------------------------------------

GOOD = Agreement("this fit and refits", "R²", (0.99,), 0.0)


def verdict(assumption, outcome):
    return Verdict(assumption, 0.0, 1.0, outcome, "so it is.")


def test_nothing_stands_against_a_claim_if_all_is_well():
    assert refusals(theory.CLASSIFY_FREE, [verdict(theory.VMF_CLUSTERS, "undecided")], [GOOD], (), ()) == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdicts": [verdict(theory.VMF_CLUSTERS, "fails")]}, "vMF clusters fails: so it is"),
        ({"controls": [Control("shuffled", "", "", passed=False)]}, "a control failed: shuffled"),
        ({"learned_nothing": ["it learned nothing"]}, "it learned nothing"),
        ({"agreement": [dataclasses.replace(GOOD, values=(0.99, 0.5))]}, "this fit and refits agree by R² 0.500 only"),
        ({"agreement": [dataclasses.replace(GOOD, values=(np.nan,))]}, "this fit and refits agree by R² nan only"),
        ({"theorem": None}, "no theorem covers these parameters"),
    ],
)
def test_any_single_failure_stands_against_a_claim(change, reason):
    well = {"theorem": theory.CLASSIFY_FREE, "verdicts": (), "agreement": [GOOD], "controls": (), "learned_nothing": ()}
    (found,) = refusals(**(well | change))
    assert found.startswith(reason)


def test_what_a_theorem_does_not_need_may_fail():
    failing = [verdict(theory.LINEAR_ENCODER, "fails"), verdict(theory.UNIFORM_SPHERE, "fails")]
    assert needed(theory.FORGET_NONLINEAR, failing, ()) == ()
    assert needed(theory.CONTRAST_SPHERE, failing, ()) == (failing[1],)
    assert needed(theory.CONTRAST_SPHERE, failing, waived(any_marginal=True, given=False)) == ()


def test_halves_are_asked_for_less_than_fits_to_the_same_rows():
    halves = Agreement("fits to two halves of the rows", "R²", (0.85,), 0.0)
    assert refusals(theory.CLASSIFY_FREE, (), [GOOD, halves], (), ()) == ()
    assert refusals(theory.CLASSIFY_FREE, (), [dataclasses.replace(halves, values=(0.75,))], (), ()) != ()


def test_a_verdict_is_not_listed_as_trust():
    texts = not_shown(theory.CLASSIFY_FREE, [verdict(theory.VMF_CLUSTERS, "holds")])
    assert not any("vMF clusters" in text for text in texts)
    assert sum(text.startswith("taken on trust") for text in texts) == 3


def test_a_score_is_good_above_chance_and_a_leak_at_chance():
    assert Score("", 0.9, 0.5, 0.001).good
    assert not Score("", 0.9, 0.5, 0.2).good
    assert not Score("", 0.9, 0.5, 0.001, leak=True).good
    assert Score("", 0.52, 0.5, 0.2, leak=True).good


# ---- printing and saving --------------------------------------------------------------------------------------------


def test_it_prints_every_part_and_represents_itself_in_a_line(of_classes):
    text = str(of_classes)
    for part in ("scores on held-out rows", "agreement", "controls", "assumptions", "against the truth", "claim"):
        assert part in text
    assert repr(of_classes) == "<Audit of Classify(3): classify-normalised, a claim>"
    from rich.console import Console

    with (console := Console(width=4_000)).capture() as capture:
        console.print(of_classes)
    assert capture.get().strip() == text


def test_the_numbers_come_back_from_json(of_classes, tmp_path):
    path = of_classes.save(tmp_path / "new" / "audit.json")
    said = json.loads(path.read_text(encoding="utf-8"))
    assert said["claim"] == of_classes.claim
    assert said["claims"] is True
    assert said["scores"][0]["value"] == of_classes.scores[0].value
    assert said["verdicts"][0]["assumption"] == of_classes.verdicts[0].name
    assert said["theorem"]["name"] == "classify-normalised"
    assert "pictures" not in said


@pytest.mark.parametrize("name", ["audit.pdf", "audit", "audit.html.gz"])
def test_other_endings_are_refused_with_those_that_are_not(of_classes, tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.html, for a page, or in \.json"):
        of_classes.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(of_classes, tmp_path, monkeypatch):
    path = tmp_path / "audit.json"
    path.write_text("old")

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        of_classes.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
