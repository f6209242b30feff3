"""The demonstration recovers what it should, and leaves a whole page or none."""

import numpy as np
import pytest
from pindown_papers import demo
from pindown_papers.demo import Budget, main_sections, run

from pindown.auditing.page import shown
from pindown.theory import CONTRAST_SPHERE, FORGET

SMALL = Budget(n_pairs=8_000, n_labelled=16_000, n_test=2_000, max_iter=400)
HASTY = Budget(n_pairs=600, n_labelled=600, n_test=200, max_iter=1)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "demo.html"


@pytest.fixture(scope="module")
def shown_demo(page):
    return run(page, verbose=False, budget=SMALL, make_sections=main_sections)


@pytest.mark.slow
def test_the_sphere_is_recovered_far_beyond_a_linear_fit(shown_demo):
    sphere = shown_demo.table[0]
    assert sphere.metric == "R²"
    assert abs(sphere.chance) < 0.01
    assert 1 - sphere.recovered < (1 - sphere.linear) / 3
    assert sphere.recovered > 0.98


@pytest.mark.slow
def test_the_nuisance_is_removed_and_the_rest_is_kept(shown_demo):
    nuisance, facts = shown_demo.table[1], shown_demo.sections[1].facts
    assert max(nuisance.linear, nuisance.chance) + 0.05 < nuisance.recovered
    assert nuisance.recovered > 0.85
    probe, kept, angle = (float(fact.value.rstrip("°")) for fact in facts)
    assert probe < 1 / 3 + 0.08  # of 2,000 rows, ± .01
    assert kept > 0.95
    assert angle < 5


@pytest.mark.slow
def test_the_recovered_sphere_is_drawn_where_the_true_one_is_and_the_observed_one_is_not(shown_demo):
    figure = shown_demo.sections[0].figures[0]
    assert figure.kind == "clouds"
    true, observed, recovered = (np.array(cloud["points"]) for cloud in figure.data["clouds"])
    miss, distortion = (np.linalg.norm(cloud - true, axis=1).mean() for cloud in (recovered, observed))
    assert miss < 0.15 < 0.25 < distortion
    assert np.linalg.norm(observed, axis=1).max() <= 1 + 1e-3


@pytest.mark.slow
def test_the_page_shows_the_numbers_of_the_table(shown_demo, page):
    html = page.read_text(encoding="utf-8")
    for row, claim in zip(shown_demo.table, shown_demo.claims, strict=True):
        assert shown(row.recovered, 3) in html
        assert claim in html
    assert len(html.encode()) < 6_000_000


def test_an_unwritable_output_raises_before_any_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        run(tmp_path / "file" / "demo.html", make_sections=lambda *_: pytest.fail("it trained first"))


@pytest.mark.slow
def test_no_half_page_is_left_when_drawing_it_fails(tmp_path, monkeypatch):
    def fail(template, **content):
        raise RuntimeError("no template")

    monkeypatch.setattr(demo, "fill", fail)
    with pytest.raises(RuntimeError, match="template"):
        run(tmp_path / "demo.html", verbose=False, budget=HASTY, make_sections=main_sections)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_claims_give_the_theorem(shown_demo):
    for claim, theorem in zip(shown_demo.claims, (CONTRAST_SPHERE, FORGET), strict=True):
        assert theorem.source in claim
        assert f"up to {theorem.indeterminacy.name}, as" in claim
        assert all(assumption.name in claim for assumption in theorem.assumes)


@pytest.mark.slow
def test_too_short_a_fit_is_not_called_a_recovery(tmp_path):
    hasty = run(tmp_path / "demo.html", verbose=False, budget=HASTY, make_sections=main_sections)
    assert hasty.title != "Hidden variables, recovered"
    assert "not recovered" in hasty.claims[0]
    assert "not recovered" in hasty.sections[0].title
