"""The demonstration with eight simulations recovers what it should, and fails where it should."""

import re

import numpy as np
import pytest
from pindown_papers.demo import Budget, run
from pindown_papers.demo_sections import matched

from pindown.theory import (
    AFFINE_GENERATORS,
    CLASSIFY_NORMALISED,
    CONTRAST_LP,
    DICTIONARY_BLOCKS,
    VMF_CONDITIONAL,
)

SMALL = Budget(n_pairs=8_000, n_labelled=16_000, n_test=2_000, max_iter=400)
HASTY = Budget(n_pairs=600, n_labelled=600, n_test=200, max_iter=1)


@pytest.fixture(scope="module")
def shown_demo(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    return run(path, verbose=False, budget=SMALL)


@pytest.mark.slow
def test_the_axes_of_the_box_are_recovered_far_beyond_chance(shown_demo):
    box = shown_demo.table[1]
    assert box.metric == "MCC"
    assert box.chance == pytest.approx(0.77, abs=0.01)  # a random rotation of four latents
    assert 1 - box.recovered < (1 - box.linear) / 3
    assert box.recovered > 0.98


@pytest.mark.slow
def test_unrelated_pairs_are_no_better_than_a_linear_fit_and_carry_no_information(shown_demo):
    sphere, _, unrelated, *_ = shown_demo.table
    assert unrelated.linear == pytest.approx(sphere.linear, abs=1e-6)  # the same samples
    assert unrelated.recovered < unrelated.linear + 0.05
    information = shown_demo.sections[2].facts[0].value
    assert information in (".00 nats", "−.00 nats", "−.01 nats")


@pytest.mark.slow
def test_clusters_are_recovered_with_their_class_vectors_and_concentration(shown_demo):
    clusters, facts = shown_demo.table[3], shown_demo.sections[3].facts
    assert 1 - clusters.recovered < (1 - clusters.linear) / 3
    assert clusters.recovered > 0.98
    vectors, angle, concentration, accuracy = (float(fact.value.rstrip("°")) for fact in facts)
    assert vectors > 0.97
    assert angle < 10
    assert concentration == pytest.approx(10, rel=0.15)
    assert accuracy > 0.38  # guessing has .05


@pytest.mark.slow
def test_clusters_in_a_plane_are_recovered_in_the_plane_only(shown_demo):
    across, section = shown_demo.table[4], shown_demo.sections[4]
    assert 1 - across.recovered > 0.1
    assert float(section.facts[0].value) > 0.97  # along the plane


@pytest.mark.slow
def test_the_graph_is_recovered_without_any_side_information(shown_demo):
    graph, facts = shown_demo.table[6], shown_demo.sections[6].facts
    assert graph.chance == pytest.approx(0.825, abs=0.01)
    assert 1 - graph.recovered < 1 - graph.linear
    assert graph.recovered > 0.95
    assert float(facts[0].value) > 0.8  # arrows
    assert facts[1].value == "{1}, {2}, {3}"


@pytest.mark.slow
def test_rooms_are_recovered_from_pixels_and_shown(shown_demo):
    room, section = shown_demo.table[7], shown_demo.sections[7]
    assert room.chance == pytest.approx(0.77, abs=0.01)
    assert room.recovered > max(room.linear, 0.83)  # after so few steps
    _, along, swapped, film, before, after = section.figures
    assert [each.kind for each in (along, swapped, before, after)] == ["picture", "picture", "sliders", "sliders"]
    squares = [value for row in film.data["values"] for value in row if value is not None]
    assert len(squares) == 4 * 4 * len(set(map(int, re.findall(r"\d+", film.caption))))
    assert before.data["n_latents"] == after.data["n_latents"] == 3
    turned = section.facts[-1]
    assert float(turned.value) > 0.85  # .98 of seeds 0 to 3; below .95 in one of seven others
    assert float(turned.note.split()[0]) < float(turned.value)  # before: .68 to .91


@pytest.mark.slow
def test_class_vectors_are_drawn_where_the_true_ones_are_and_class_means_are_not(shown_demo):
    drawn = shown_demo.sections[3].figures[0].data["clouds"]
    true, observed, recovered = (np.array(cloud["arrows"]) for cloud in drawn)
    assert true.shape == (20, 2, 3)
    miss, distortion = (np.linalg.norm(a - true, axis=-1)[:, 1].mean() for a in (recovered, observed))
    assert miss < 0.15 < 0.4 < distortion


@pytest.mark.slow
def test_claims_give_the_theorem_and_broken_assumptions_support_none(shown_demo):
    _, box, unrelated, clusters, flat, _, graph, room = shown_demo.claims
    promised = (
        (box, CONTRAST_LP),
        (clusters, CLASSIFY_NORMALISED),
        (graph, DICTIONARY_BLOCKS),
    )
    for claim, theorem in promised:
        assert theorem.source in claim
        assert f"up to {theorem.indeterminacy.name}, as" in claim
        assert all(assumption.name in claim for assumption in theorem.assumes)
    assert VMF_CONDITIONAL.name in unrelated
    assert AFFINE_GENERATORS.name in flat
    assert not any("up to" in claim for claim in (unrelated, flat))
    statuses = [[c.status for c in section.conditions].count("broken") for section in shown_demo.sections]
    assert statuses == [0, 0, 1, 0, 1, 0, 0, 0]
    assert CONTRAST_LP.source in room
    assert [c.status for c in shown_demo.sections[6].conditions].count("not checked") == 1
    assert "diffeomorphic mixing" in graph


@pytest.mark.slow
def test_too_short_a_fit_is_not_called_a_recovery(tmp_path):
    hasty = run(tmp_path / "demo.html", verbose=False, budget=HASTY)
    assert hasty.title != "Hidden variables, recovered"
    for i in (0, 1, 3, 6):
        assert "not recovered" in hasty.claims[i]
        assert "not recovered" in hasty.sections[i].title


def test_matching_undoes_order_sign_scale_and_shift_but_no_rotation():
    z = np.random.default_rng(0).uniform(size=(500, 3))
    assert np.allclose(matched(-3 * z[:, [2, 0, 1]] + 5, z), z)
    turn = np.array([[1, 1, 0], [-1, 1, 0], [0, 0, np.sqrt(2)]]) / np.sqrt(2)
    assert not np.allclose(matched(z @ turn, z), z, atol=0.1)
