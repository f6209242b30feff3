"""The page of an audit: whole, escaped, offline, drawn in a browser; for two latents and for two hundred."""

import dataclasses
import html
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from test_page import ATTACK, Reader, browsed

from pindown import theory
from pindown.auditing.agreement import Agreement, SharedBlock
from pindown.auditing.audit_page import Pictures, _colourings, render
from pindown.auditing.checks.noise import Band
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.evidence import AuditScore, Control, Evidence, Objection
from pindown.auditing.page import along_each
from pindown.auditing.refits import Samples
from pindown.auditing.result import Audit, Names
from pindown.data.data import Data
from pindown.methods.dictionary.disentangle import save_rotated
from pindown.methods.held_out import HeldOut
from pindown.metrics import Effort, leakage


def an_audit(d: int = 3, *, text: str = "plain", support: bool = True, n_held_out: int = 4_000) -> Audit:
    """Return an audit with all there can be, and the text everywhere a text of the user's can stand."""
    rng = np.random.default_rng(0)
    n = min(n_held_out, 2_000)
    codes = rng.normal(size=(n, d))
    verdicts = (
        Verdict(theory.VMF_CLUSTERS, 0.1, 0.3, "holds", text),
        Verdict(theory.INJECTIVE_MIXING, float("nan"), 0.3, "undecided", text),
        Verdict(theory.CLASSIFY_FREE.diversity, 3, 6, "fails", text),
        Verdict(theory.UNIFORM_SPHERE, 1, 2, "fails", text),
    )
    pictures = Pictures(
        latents=codes,
        colourings={"y": np.array([text, "other"])[rng.integers(2, size=n)], "X, column 0": codes[:, 0]},
        curves={"this fit": np.linspace(3, 1, 300), "shuffled": np.full(300, 3.0)},
        guessing=3.2,
        matching=np.abs(rng.uniform(size=(min(d, 24), min(d, 24)))),
        support=np.eye(d, dtype=int) if support else None,
        n_samples=n_held_out,
        maps=(codes[:, :2] / 4, codes[:, :2] / 4),
    )
    evidence = Evidence(
        (AuditScore(text, 0.8, 0.1, 0.001), AuditScore(text, 1.9, 0.0, unit="nats"), AuditScore(text, 0.1, 0.2)),
        (Control(text, text, text, passed=True), Control(text, text, text, passed=False)),
        (Objection(text, text),),
        leakage(codes[:100, :3], np.arange(100) % 2, effort=Effort(n_seeds=1, n_permutations=19), random_state=0),
        block=SharedBlock(2, d, 0.9, 0.2, 0.1),
    )
    return Audit(
        estimator=f"Classify({d})",
        theorem=theory.CLASSIFY_FREE,
        verdicts=verdicts,
        held_out=HeldOut(text, 0.5, None, 0.1, 40, 1, 10),
        agreement=(Agreement("this fit and refits", "R²", (0.99, 0.98), 0.0, 0.4), Agreement(text, "R²", (0.5,), 0.0)),
        evidence=evidence,
        band=Band("R²", 0.71, 0.82, ceiling=0.81, noise=0.31),
        recovery=(AuditScore(text, 0.9, 0.0),),
        warned=(text,),
        n_samples=1_000_000,
        n_learned_from=750_000,
        n_held_out=n_held_out,
        n_fits=6,
        pictures=pictures,
    )


@pytest.fixture(scope="module")
def page() -> str:
    return render(an_audit())


def test_the_page_is_well_formed_and_has_the_landmarks_of_a_document(page):
    names = [name for name, _ in Reader(page).tags]
    for name in ("html", "head", "title", "body", "header", "h1", "main", "footer"):
        assert names.count(name) == 1 or (name == "title" and "svg" in names), name  # an SVG has a title, too
    assert page.lstrip().lower().startswith("<!doctype html>")


def test_the_page_asks_nothing_of_the_network(page):
    reader = Reader(page)
    names = ("src", "href", "srcset", "action", "data")
    assert [value for _, a in reader.tags for key, value in a.items() if key in names] == []
    policy = next(a["content"] for a in reader.attributes("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")


def test_text_that_looks_like_markup_stays_text():
    reader, plain = Reader(render(an_audit(text=ATTACK))), Reader(render(an_audit()))
    assert [name for name, _ in reader.tags] == [name for name, _ in plain.tags]
    assert "".join(reader.text).count(ATTACK) == "".join(plain.text).count("plain") > 10


def test_every_verdict_has_a_row_and_failures_come_first(page):
    table = page.split("its assumptions</summary>")[1].split("</table>")[0]
    assert re.findall(r'<tr class="(\w+)">', table) == ["fails", "undecided", "holds", "beside"]
    assert "–</td>" in table.split("<tr")[3]  # what could not be measured is not a number


def test_the_page_says_first_whether_a_claim_is_supported_and_of_which_file(page):
    assert "<h1>No claim is supported</h1>" in page
    full = an_audit()
    claiming = dataclasses.replace(
        full, evidence=Evidence(full.scores, ()), verdicts=full.verdicts[:2], agreement=full.agreement[:1]
    )
    assert "<h1>A claim is supported, with conditions</h1>" in render(claiming)
    assert f"<blockquote><p>{claiming.claim}</p></blockquote>" in html.unescape(render(claiming))
    named = render(dataclasses.replace(claiming, names=Names("cells.csv", {"signal": ("tissue",), "truth": ("age",)})))
    assert "<h1>cells.csv: a claim is supported, with conditions</h1>" in named
    assert "signal: tissue · truth: age" in named
    colourings = [each["name"] for each in drawn(named)["latents"]["colourings"]]
    assert colourings == ["tissue", "column 0"]  # by the names of the file


def drawn(page):
    """Return the data of the figures of a page, by kind."""
    found = re.findall(r'<figure class="(\w+).*?</figure>', page, re.DOTALL)
    data = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    return dict(zip([kind for kind in found if kind not in ("picture", "sliders", "svg")], map(json.loads, data)))  # noqa: B905


def test_a_sample_is_called_a_sample_and_left_out_latents_are_counted():
    few, many = (render(an_audit(d, n_held_out=n)) for d, n in ((2, 100), (200, 4_000)))
    assert "100 held-out samples, at one scale" in few
    assert np.shape(drawn(few)["latents"]["points"]) == (100, 2)
    assert "2,000 held-out samples, a sample of 4,000" in many
    assert "Of 200 latents, the 24 with the largest variance" in many
    points = np.array(drawn(many)["latents"]["points"])
    assert points.shape == (2_000, 24)
    assert np.abs(points).max() <= 1


def test_the_page_says_what_noise_leaves_and_what_positives_share(page):
    assert "31% of the variance is independent noise per feature" in page
    assert "between 0.710 and 0.820" in page
    assert "share 2 of" in page


def test_a_support_too_large_to_draw_is_described():
    assert "too large to draw" in render(an_audit(200))
    assert "<svg" in render(an_audit()).split("Which latent affects which variable")[1]
    assert "Which latent affects" not in render(an_audit(support=False))


@pytest.mark.parametrize("d", [2, 200])
def test_the_page_stays_small_with_few_and_many_latents(d):
    assert len(render(an_audit(d)).encode()) < 6_000_000


def test_columns_keep_their_names_and_positives_are_no_column():
    x = np.random.default_rng(0).normal(size=(200, 2))
    kept = {"feature_names_in_": np.array(["dose", "<i>age</i>"], dtype=object)}
    rows = Samples(Data(x, pairs=x + 1, truth=x[:, :1]), "pairs", units=np.arange(200))
    drawn = _colourings(SimpleNamespace(**kept), rows, grouped=True)
    assert list(drawn) == ["group", "truth, column 0", "X, dose", "X, <i>age</i>"]
    labelled = Samples(Data(x, signal=np.arange(200) % 3), "signal")
    assert next(iter(_colourings(SimpleNamespace(), labelled, grouped=False))) == "y"


def test_probes_have_a_ruler_each_next_to_chance_with_their_intervals(page):
    part = page.split("Can the nuisance be predicted")[1].split("</details>")[0]
    assert re.findall('class="name">([^<]*)', part) == list(an_audit().leakage.by_probe)
    assert part.count('class="way"') == part.count('class="chance"') == len(an_audit().leakage.by_probe)


TRIAL = """<script>addEventListener("load", async () => {
  const until = async (ready) => {
    for (let k = 0; k < 80 && !ready(); k++) await new Promise((go) => setTimeout(go, 100));
    return ready();
  };
  const box = document.querySelector("figure.latents .plot"), eye = () => JSON.stringify(box.layout.scene?.camera.eye);
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  box.scrollIntoView();
  await until(() => box.layout);
  box.focus();
  const focused = document.activeElement === box, before = eye();
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
  const turned = await until(() => eye() !== before);
  const kinds = box.data.map((trace) => trace.name).join();
  const select = [...document.querySelectorAll(".choices select")].at(-1);
  select.value = "1";
  select.dispatchEvent(new Event("change"));
  const slider = document.querySelector(".slider input"), tile = document.querySelector(".tile");
  const at = () => getComputedStyle(tile).backgroundPositionX, low = at();
  slider.value = slider.max;
  slider.dispatchEvent(new Event("input"));
  document.body.dataset.slid = [low, at(), tile.clientHeight > 50].join(" ");
  document.body.dataset.trial = [focused, turned, Boolean(box.data[0].marker.colorbar)].join(" ");
  document.body.dataset.kinds = kinds;
});</script></body>"""


@pytest.mark.parametrize(("d", "turns"), [(2, "false"), (200, "true")])
@pytest.mark.slow
def test_a_browser_draws_the_page_and_its_latents_answer_to_keys_and_choices(tmp_path, d, turns):
    path = tmp_path / "audit.html"
    text = render(with_sliders(an_audit(d, text="A <b>title</b>"))).replace("</body>", TRIAL)
    path.write_text(text, encoding="utf-8")
    body = html.unescape(re.findall("<body[^>]*>", browsed(path, tmp_path))[0])
    assert 'data-slid="0% 100% true"' in body, "a slider moves the picture above it"
    assert f'data-trial="true {turns} true"' in body
    assert 'data-kinds="A &lt;b>title&lt;/b>,other"' in body, "the legend has the names as text"


def test_a_notebook_shows_the_answers_and_the_claim_and_runs_nothing():
    html = an_audit(text="<script>alert(1)</script>")._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<li>") == len(an_audit().answers)
    assert "Audit of" in html


def test_images_are_shown_along_each_latent_where_rows_are_images():
    audit = an_audit()
    assert "In images</summary>" not in render(audit)
    sheets = (np.zeros((18, 28, 3), dtype=np.uint8),) * 3
    page = render(dataclasses.replace(audit, pictures=dataclasses.replace(audit.pictures, sheets=sheets)))
    assert page.count("data:image/png;base64,iVBORw0KGgo") == 3
    assert "In images</summary>" in page
    Reader(page)


def with_sliders(audit):
    along = np.random.default_rng(0).integers(255, size=(2, 5, 6, 6, 3), dtype=np.uint8)
    sheets = (np.zeros((18, 28, 3), dtype=np.uint8),) * 3
    return dataclasses.replace(audit, pictures=dataclasses.replace(audit.pictures, sheets=sheets, sliders=along))


def test_there_is_a_slider_for_each_latent():
    page = render(with_sliders(an_audit()))
    assert page.count('type="range"') == 2
    Reader(page)


def test_sliders_go_along_decoded_latents_or_the_nearest_images_and_large_ones_take_fewer_steps():
    rng = np.random.default_rng(0)
    codes = rng.uniform(size=(300, 2))
    grey = np.broadcast_to(codes[:, :1, None, None], (300, 1, 8, 8))
    for decode in (None, lambda z: np.broadcast_to(z[:, :1, None, None], (len(z), 1, 8, 8))):
        first, second = along_each(codes, grey, decode)[..., 0, 0, 0].astype(int)
        assert first[-1] - first[0] > 150  # of 255: the first code is how bright they are
        assert np.ptp(second) < 60
    # Of twenty the first sixteen, whichever vary most: a slider's number is that of its latent.
    many = rng.uniform(size=(300, 20)) * np.linspace(0.5, 1, 20)
    shown = along_each(many, grey, lambda z: np.broadcast_to(z[:, 15, None, None, None], (len(z), 1, 8, 8)))[
        ..., 0, 0, 0
    ]
    assert len(shown) == 16
    assert np.flatnonzero(np.ptp(shown.astype(int), axis=1)).tolist() == [15]
    large = np.zeros((20, 3, 256, 256), dtype=np.float32)
    assert along_each(rng.normal(size=(20, 3)), large).shape == (3, 5, 256, 256, 3)


def test_a_rotated_decoder_has_sliders_before_and_after_on_a_page_without_a_library(tmp_path):
    import torch

    from pindown import disentangle

    codes = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    stripes = torch.stack([torch.ones(4, 4).tril(), torch.ones(4, 4).triu()])
    found = disentangle(lambda z: torch.sigmoid(torch.einsum("nj,jhw->nhw", z, stripes))[:, None], codes)
    path = save_rotated(found, tmp_path / "rotated.html")
    page = path.read_text(encoding="utf-8")
    assert page.count('type="range"') == 4
    assert "plotly-js" not in page.split("<script>")[0]
    assert path.stat().st_size < 100_000
    Reader(page)
    flat = disentangle(lambda z: torch.cat([z.sin(), z[:, :1] * z[:, 1:]], dim=1), codes)
    with pytest.raises(ValueError, match="images"):
        save_rotated(flat, tmp_path / "flat.html")
    assert not (tmp_path / "flat.html").exists()
