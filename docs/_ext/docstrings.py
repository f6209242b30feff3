"""Docstrings are written to be read as they are: what reStructuredText would trip over is escaped on the way."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# What must stay as it is: code, names, formulas, examples.
_LITERAL = re.compile(
    r"``.+?``|`[^`]+`_?"
    r"|^[ ]*\.\. \w+::.*?(?=^[ ]*$|\Z)"  # a directive up to the next empty line
    r"|^[ ]*(?:>>>|\.\.\.) .*?$",
    re.DOTALL | re.MULTILINE,
)
_MARKUP = re.compile(r"\||(?<=\w)_(?!\w)")


def escaped(text: str) -> str:
    r"""Return a docstring whose bars and trailing underscores mean themselves.

    >>> print(escaped("p(z|u), shape (n_iter_,), and `a|b` stays"))
    p(z\|u), shape (n_iter\_,), and `a|b` stays
    >>> print(escaped("As usual [1]_."))
    As usual [1].
    """
    parts, end = [], 0
    for literal in _LITERAL.finditer(text):
        parts += [_escaped(text[end : literal.start()]), literal.group()]
        end = literal.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    # References are numbered within a docstring, and many docstrings share a page: let them be plain text.
    text = re.sub(r"(\[\d\])_", r"\1", text)
    text = re.sub(r"^([ ]*)\.\. (\[\d\])", r"\1* \2", text, flags=re.MULTILINE)
    return _MARKUP.sub(lambda found: f"\\{found.group()}", text)


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = escaped("\n".join(lines)).splitlines()
    if what in ("attribute", "data", "property"):
        lines.insert(0, "")  # or napoleon would take what stands before a colon for its type


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a class has from elsewhere: scikit-learn, torch and Python document theirs themselves."""
    if what not in ("class", "exception"):
        return None
    if str(getattr(obj, "__doc__", "")).startswith("Alias for field number"):  # of a named tuple
        return True
    function = getattr(obj, "fget", obj)
    elsewhere = not str(getattr(function, "__module__", None)).startswith("pindown")
    return True if callable(function) and elsewhere else None


def _trim(app: Sphinx, doctree: nodes.document) -> None:
    """Drop the empty line with which an example in Markdown ends, so that doctest does not read on."""
    for block in doctree.findall(nodes.literal_block):
        if block.rawsource == block.astext():
            block.rawsource = block.rawsource.rstrip()
            block.children = [nodes.Text(block.rawsource)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before napoleon, which turns sections into fields."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _trim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
