"""The page: self-contained, escaped, readable by machines and by those who cannot see it.

``docs/demo.png`` is an image of the page that ``pindown demo`` writes: its first three panels, cut out.

    pindown demo
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir=$(mktemp -d) \\
        --window-size=1280,1800 --force-device-scale-factor=1.25 --virtual-time-budget=8000 \\
        --screenshot=page.png "file://$PWD/pindown-demo.html"
    convert page.png -crop 1400x480+100+1705 +repage docs/demo.png
"""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from pindown_papers.demo import Cloud, Condition, Demo, Fact, Row, Section, clouds, colours

from pindown.auditing.page import (
    Drawing,
    check_writable,
    colouring,
    curves,
    latent_cloud,
    matrix,
    picture,
    sliders,
    write_whole,
)

ATTACK = "</script><script>alert('x & y')</script>"


def a_page(text: str = "plain") -> Demo:
    """Return a page with every kind of figure, and the text everywhere a text can stand."""
    rng = np.random.default_rng(0)
    net = rng.normal(size=(9, 9, 3)) / 2
    points = rng.normal(size=(50, 3)) / 2
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    arrows = rng.normal(size=(7, 2, 3)) / 2
    values = rng.uniform(size=40).tolist()
    three = {"true": values, "recovered": values, "linear": values}
    section = Section(
        title=text,
        text=text,
        score=Row(text, text, linear=0.8, recovered=0.99, chance=-0.01),
        figures=(
            clouds(
                text,
                text,
                [Cloud(text, text, points, net, arrows)] * 3,
                hues=unit,
                surface_hues=net,
                arrow_hues=unit[:7],
            ),
            Drawing(
                "scatters",
                text,
                text,
                {"panels": [three] * 2},
                ((text, text),) * 2,
            ),
            curves(text, text, {text: np.linspace(3, 1, 300), "other": np.full(300, 3.0)}, guessing=3.2),
            latent_cloud(text, text, [text, text], points[:, :2], [colouring(text, np.array([text, "other"] * 25))]),
            matrix(np.eye(3), text, text, rows=[text] * 3),
            picture(np.zeros((4, 5, 3), dtype=np.uint8), text),
            sliders(np.zeros((2, 5, 4, 4, 3), dtype=np.uint8), text, text),
        ),
        facts=(Fact(text, text, text),),
        claim=text,
        conditions=(
            Condition(text, text, "holds"),
            Condition(text, text, "broken"),
            Condition(text, text, "of the fit"),
        ),
        not_promised=(text,),
        warned=(text,),
    )
    return Demo(text, kicker=text, lead=text, sections=(section,), footer=text)


class Reader(HTMLParser):
    """Collects tags and what stands in scripts, and complains of tags that are not closed in order."""

    VOID = frozenset({"meta", "br", "img", "link", "hr", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return a_page().html()


def test_the_page_is_well_formed_and_has_the_landmarks_of_a_document(html):
    names = [name for name, _ in Reader(html).tags]
    for name in ("html", "head", "title", "body", "header", "h1", "main", "footer"):
        assert names.count(name) == 1, name
    assert html.lstrip().lower().startswith("<!doctype html>")


def test_the_page_asks_nothing_of_the_network(html):
    reader = Reader(html)
    addresses = [v for _, a in reader.tags for k, v in a.items() if k in ("src", "href", "srcset", "action", "data")]
    assert [address[:22] for address in addresses] == ["data:image/png;base64,"]
    ours = reader.scripts[-1] + "".join(reader.text)
    assert not re.search(r"https?:|//\w+\.\w|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|import\(", ours)
    # And if something did try, plotly's map tiles say, the browser would refuse.
    policy = next(a["content"] for a in reader.attributes("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_plotly_is_in_the_page_once_and_whole(html):
    from plotly.offline import get_plotlyjs

    reader = Reader(html)
    packed = [s for a, s in zip(reader.attributes("script"), reader.scripts, strict=True) if a.get("id") == "plotly-js"]
    assert len(packed) == 1
    assert gzip.decompress(base64.b64decode(packed[0])).decode() == get_plotlyjs()
    assert "plotly.js v" not in html.replace(packed[0], "")
    assert len(html.encode()) < 2_500_000  # a third of what plotly.js has uncompressed, and the data


def test_text_that_looks_like_markup_stays_text():
    reader, plain = Reader(a_page(ATTACK).html()), Reader(a_page().html())
    assert [name for name, _ in reader.tags] == [name for name, _ in plain.tags]
    assert "".join(reader.text).count(ATTACK) == "".join(plain.text).count("plain")
    drawn = [json.loads(script) for script in reader.scripts[:5]]  # names in figures are data
    assert drawn[2]["curves"][0]["name"] == ATTACK
    assert drawn[3]["names"] == [ATTACK, ATTACK]
    assert drawn[4]["rows"] == [ATTACK] * 3


def test_every_figure_is_described_and_reached_by_keyboard(html):
    reader = Reader(html)
    plots = [a for _, a in reader.tags if a.get("class") == "plot"]
    assert len(plots) == 3 + 2 + 1 + 1 + 1
    assert all("plain" in (a["aria-label"] or "") and a["tabindex"] == "0" for a in plots)
    assert [a["alt"] for a in reader.attributes("img")] == ["plain"]
    assert html.count('type="range"') == 2


def test_near_directions_have_near_colours_and_far_ones_far_colours():
    def rgb(direction):
        (text,) = colours(np.array([direction], dtype=float))
        return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)])

    near = np.abs(rgb((1, 0, 0)) - rgb((np.cos(0.05), np.sin(0.05), 0))).max()
    far = [np.abs(rgb(np.eye(3)[j]) - rgb(-np.eye(3)[j])).max() for j in range(3)]
    assert near < 12 < 60 < min(far)


def test_a_cloud_has_its_arrows_and_may_have_none():
    points, net = np.eye(3), np.zeros((2, 2, 3))
    arrows = np.array([[[0, 0, 0], [0.25, -0.5, 1]]])
    both = [Cloud("", "", points, net, arrows), Cloud("", "", points, net)]
    data = clouds("", "", both, hues=points, surface_hues=net, arrow_hues=np.array([[0.0, 0, 1]])).data
    assert [cloud["arrows"] for cloud in data["clouds"]] == [[[[0, 0, 0], [0.25, -0.5, 1]]], []]
    assert data["arrowColours"] == colours(np.array([[0.0, 0, 1]]))


def test_amounts_are_coloured_by_rank_and_kinds_by_name():
    amounts = colouring("", np.array([1e9, 0.5, 0.0, 2.0]))
    assert amounts["amounts"]
    assert amounts["which"] == [3, 1, 0, 2]
    kinds = colouring("", np.arange(300).astype(str))
    assert (kinds["amounts"], len(kinds["key"]), kinds["n"]) == (False, 24, 300)


def test_what_an_estimator_warns_of_is_on_the_page_only_where_it_warned():
    from dataclasses import replace

    page = a_page()
    (section,) = page.sections
    silent = replace(page, sections=(replace(section, warned=()),))
    assert "The estimator warns:" in page.html()
    assert "The estimator warns:" not in silent.html()


def test_a_long_loss_curve_is_drawn_by_means_that_keep_its_mean():
    (drawn,) = curves("", "", {"": np.arange(1200.0)}, guessing=0.0).data["curves"]
    assert len(drawn["loss"]) == 120
    assert drawn["loss"][0] == 4.5  # steps 0 to 9
    assert np.mean(drawn["loss"]) == pytest.approx(599.5)


def test_saving_makes_the_folder_and_leaves_one_readable_file(tmp_path):
    path = tmp_path / "new" / "page.html"
    write_whole(a_page().html(), path)
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]
    assert path.read_text(encoding="utf-8").endswith("</html>")
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode  # others may read it as they may any file


def test_a_failed_write_leaves_the_old_page_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(a_page().html(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_path_is_refused_with_path_cause_and_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="written"):
        check_writable(tmp_path / "file" / "page.html")
    with pytest.raises(IsADirectoryError, match="folder"):
        check_writable(tmp_path)


def test_importing_page_and_the_command_line_brings_neither_torch_nor_plotly_nor_jinja():
    code = (
        "import sys, pindown.auditing.page, pindown.cli\n"
        "print([m for m in ('torch', 'plotly', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def browsed(path, folder):
    """Return the document after a browser has drawn it; no script may complain."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("No Chromium or Chrome is installed, so the page is not looked at.")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
    command += ["--window-size=1280,4000", "--virtual-time-budget=20000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line and not re.search(EXPECTED, line)]
    assert complaints == []
    assert re.search(r'<html[^>]* class="drawn"', done.stdout)
    return done.stdout


EXPECTED = "willReadFrequently|GPU stall due to ReadPixels|fallback to software WebGL"
"""What plotly and a browser without a GPU say of every figure in three dimensions."""


@pytest.mark.slow
def test_a_browser_draws_all_figures(tmp_path):
    path = tmp_path / "page.html"
    write_whole(a_page("A <b>title</b>").html(), path)
    drawn = browsed(path, tmp_path)
    assert "needs a browser" not in re.sub(r"<script.*?</script>", "", drawn, flags=re.DOTALL)
    assert drawn.count('class="plot js-plotly-plot"') == 3 + 2 + 1 + 1 + 1
    assert len(re.findall("<canvas", drawn)) >= 3  # of the clouds
