"""One quantity has one number and one name: in an audit's text, on its page, in its JSON, and in the plan before it."""

import html
import json
import re

import numpy as np
import pytest

from pindown import Classify, Contrast, Dictionary, Forget, audit, networks, plan
from pindown._names import printed
from pindown.auditing.audit_page import render
from pindown.auditing.checks import conditions
from pindown.auditing.page import shown
from pindown.data.data import Data
from pindown.errors import IdentifiabilityWarning
from pindown.runs.fitting import scores
from pindown.simulate import Clusters, Nuisance, Pairs, Structured

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
QUIET = {"batch_size": 128, "verbose": False, "random_state": 0}
SUPPORT = [[1, 0], [1, 1], [0, 1], [1, 1]]


def of_pairs():
    sample = Pairs.on_sphere(2, 10.0, random_state=0).sample(600, random_state=1)
    return Contrast(2, max_iter=40, **QUIET), sample.x.numpy(), sample.x_pos.numpy(), sample.z.numpy()


def of_labels():
    sample = Clusters.on_sphere(2, 6, 10.0, random_state=0).sample(600, random_state=1)
    return Classify(2, max_iter=40, **QUIET), sample.x.numpy(), sample.u.numpy(), sample.z.numpy()


def of_a_nuisance():
    sample = Nuisance.on_sphere(5, 2, 10.0, n_layers=1, random_state=0).sample(2_000, random_state=1)
    est = Forget(encoder=networks.linear, max_iter=20, **QUIET)
    return est, sample.x.numpy(), sample.u.numpy(), sample.z.numpy()


def of_columns():
    sample = Structured.from_support(SUPPORT, random_state=0).sample(500, random_state=1)
    return Dictionary(2, n_restarts=1, max_iter=30, **QUIET), sample.x.numpy(), None, sample.z.numpy()


def with_truth(est, x, y, z):
    return Data(x, truth=z, **({} if est.spec.roles.y is None else {est.spec.roles.y: y}))


@pytest.fixture(scope="module", params=[of_pairs, of_labels, of_a_nuisance, of_columns], ids=lambda make: make.__name__)
def audited(request):
    est, x, y, z = request.param()
    return est.fit(x, y), audit(est, with_truth(est, x, y, z), n_fits=2, random_state=0), x, y


def on_the_page(found):
    """Return name → value, and the note, of every ruler of the page."""
    pattern = r'<p class="name">(.*?)</p>\s*<p class="value">(.*?)(?: <small>.*?)?</p>.*?<p class="note">(.*?)</p>'
    rulers = re.findall(pattern, render(found), re.DOTALL)
    return {html.unescape(name): (html.unescape(value), html.unescape(note)) for name, value, note in rulers}


def test_every_score_is_the_same_in_text_page_and_json(audited):
    _, found, _, _ = audited
    text, page, said = str(found), on_the_page(found), json.loads(json.dumps(found.to_dict()))
    for kind in ("scores", "recovery"):
        for score, plain in zip(getattr(found, kind), said[kind], strict=True):
            assert f"{score.name}: {printed(score.value)}" in text
            assert page[score.name][0] == shown(score.value, 3)
            assert f"chance {shown(score.chance, 3)}" in page[score.name][1]
            assert (plain["name"], plain["value"], plain["chance"]) == (score.name, score.value, score.chance)
    for agreed, plain in zip(found.agreement, said["agreement"], strict=True):
        assert f"{agreed.between}: {agreed.metric} at least {printed(agreed.worst)}" in text
        assert page[agreed.between][0] == shown(agreed.worst, 3)
        assert min(plain["values"]) == agreed.worst


def test_what_the_fit_scored_itself_is_the_same_in_the_shell_and_the_audit(audited):
    est, found, x, y = audited
    side = {} if est.spec.roles.y is None else {est.spec.roles.y: y}
    printed_by_fit = scores(est, Data(x, **side))["score"]
    own = found.to_dict()["held_out"]
    assert (own["name"], own["score"], own["chance"]) == tuple(
        printed_by_fit[key] for key in ("name", "value", "chance")
    )
    assert str(est.held_out_) in str(found)
    assert str(est.held_out_) in html.unescape(render(found))
    assert printed_by_fit["rows"].startswith("held out")


def test_every_verdict_is_the_same_in_text_page_and_json(audited):
    _, found, _, _ = audited
    page, said = html.unescape(render(found)), found.to_dict()["verdicts"]
    assert len({verdict.name for verdict in found.verdicts}) == len(found.verdicts)  # one name, one number
    for verdict, plain in zip(found.verdicts, said, strict=True):
        assert str(verdict) in str(found)
        assert verdict.why in page
        assert (plain["assumption"], plain["outcome"]) == (verdict.name, verdict.outcome)


def test_the_number_of_latents_is_that_of_the_fit(audited):
    est, found, _, _ = audited
    assert found.estimator == f"{type(est).__name__}({est.n_components_})"
    told = re.findall(r"(?<![.\d])(\d+) latents?\b(?! direction)", str(found))
    assert set(told) <= {str(est.n_components_)}


def test_what_leaks_has_one_number(audited):
    _, found, _, _ = audited
    if found.leakage is None:
        return
    score = next(score for score in found.scores if score.leak)
    verdict = next(verdict for verdict in found.verdicts if verdict.assumption == conditions.INVARIANT_LATENTS)
    assert score.value == found.leakage.worst == verdict.statistic
    accuracies = set(re.findall(r"balanced accuracy ([\d.]+)", str(found)))
    assert accuracies == {printed(score.value)}


def test_nothing_below_one_is_written_as_one_and_no_chance_is_certain(audited):
    _, found, _, _ = audited
    assert "1.000 or more" not in str(found)
    assert all(agreed.chance != 1 for agreed in found.agreement)


def test_remedies_do_not_contradict_each_other(audited):
    _, found, _, _ = audited
    text = str(found)
    assert not ("fewer latents" in text and "more latents" in text)


def test_a_plan_and_an_audit_agree_or_the_audit_says_why_not(audited):
    est, found, x, y = audited
    side = {} if est.spec.roles.y is None else {est.spec.roles.y: y}
    planned = plan(x, n_components=est.n_components_, **side)
    before = {verdict.name: verdict.outcome for verdict in planned.verdicts}
    for verdict in found.verdicts:
        told = before.get(verdict.name, verdict.outcome)
        assert told == verdict.outcome or "Before training it looked otherwise" in verdict.why
    if planned.outcome == "fails" and planned.theorem == found.theorem:
        assert not found.claims


@pytest.mark.parametrize(("n_classes", "d"), [(3, 3), (8, 3)])
def test_a_plan_that_fails_is_followed_by_an_audit_that_claims_nothing(n_classes, d):
    sample = Clusters.on_sphere(d, n_classes, 10.0, random_state=0).sample(800, random_state=1)
    x, labels = sample.x.numpy(), sample.u.numpy()
    planned = plan(x, signal=labels, n_components=d)
    est = Classify(d, max_iter=60, **QUIET).fit(x, labels)
    found = audit(est, x, labels, n_fits=2, random_state=0)
    assert (planned.outcome == "fails") == (n_classes == 3)
    assert planned.outcome != "fails" or not found.claims


def test_a_coin_that_is_given_is_not_claimed():
    rng = np.random.default_rng(0)
    sample = Nuisance.on_sphere(5, 2, 10.0, n_layers=1, random_state=0).sample(800, random_state=1)
    x, nuisance, coin = sample.x.numpy(), sample.u.numpy(), rng.integers(2, size=800)
    with pytest.warns(IdentifiabilityWarning, match="given"):
        est = Forget(encoder=networks.linear, max_iter=20, **QUIET).fit(x, nuisance, given=coin)
    found = audit(est, Data(x, nuisance=nuisance, given=coin), n_fits=2, random_state=0)
    told = next(score for score in found.scores if score.name == "given label decodable from the latents")
    assert told.value == pytest.approx(0.5, abs=0.12)
    assert not found.claims
    assert any("given label is not decodable" in reason for reason in found.reasons)
