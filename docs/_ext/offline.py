"""The site must work without a network: a page that asks for something elsewhere, or leads nowhere, is a warning."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


class Page(HTMLParser):
    """What a page fetches by itself, where it leads, and which places in it can be led to.

    >>> page = Page('<img src="a.png"><a href="https://arxiv.org">paper</a><p id="here">')
    >>> page.requests, page.links, page.places
    (['a.png'], ['https://arxiv.org'], {'here'})
    """

    FETCHING: ClassVar = {"src", "srcset", "poster", "data", "xlink:href"}
    LEADING: ClassVar = {"canonical", "next", "prev", "search", "index", "author", "copyright"}  # not followed

    def __init__(self, text: str) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read the attributes that name something."""
        self._in_style = tag == "style"
        for name, value in attrs:
            if not value:
                continue
            if name == "id":
                self.places.add(value)
            elif name == "href" and tag == "a":
                self.links.append(value)
            elif name == "href" and dict(attrs).get("rel") not in self.LEADING:
                self.requests.append(value)
            elif name == "style":
                self.requests += urls_of(value)
            elif name in self.FETCHING:
                self.requests += [part.split()[0] for part in value.split(",") if part.strip()]

    def handle_endtag(self, tag: str) -> None:
        """See where a style ends."""
        self._in_style = False

    def handle_data(self, data: str) -> None:
        """Read what a style imports."""
        if self._in_style:
            self.requests += urls_of(data)


def urls_of(style: str) -> list[str]:
    """Return what a style sheet fetches.

    >>> urls_of("a { background: url('a.png') } @import 'b.css';")
    ['a.png', 'b.css']
    """
    return re.findall(r"""(?:url\(|@import\s)\s*["']?([^"')\s;]+)""", style)


def elsewhere(url: str) -> bool:
    """Whether a request leaves the site.

    >>> elsewhere("//cdn.org/a.js"), elsewhere("../a.js"), elsewhere("data:image/png;base64,AAAA")
    (True, False, False)
    """
    return not url.startswith("data:") and bool(urlsplit(url).netloc)


def broken_links(pages: dict[Path, Page]) -> list[tuple[Path, str]]:
    """Return the links within the site that lead to no page, or to no place in it."""
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                broken.append((path, link))
    return broken


def _look(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir).resolve()
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    styles = {path: urls_of(path.read_text("utf-8")) for path in site.rglob("*.css")}
    for path, requests in (*((path, page.requests) for path, page in pages.items()), *styles.items()):
        for url in filter(elsewhere, requests):
            logger.warning("%s asks the network for %s", path.relative_to(site), url)
    for path, link in broken_links(pages):
        logger.warning("%s has a link that leads nowhere: %s", path.relative_to(site), link)


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at the site once all of it is written."""
    app.connect("build-finished", _look, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
