"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def to_mathml(latex: str, *, display: str = "inline") -> str:
    r"""Return a formula as a <math> element.

    >>> "<mi>&#x0211D;</mi>" in to_mathml(r"\mathbb R^d")  # ℝ
    True

    Raises
    ------
    ValueError
        If it has a command that is not known.
    """
    latex = re.sub(r"\\(math\w+)\s+(\w)", r"\\\1{\2}", latex)  # as TeX reads it
    latex = latex.replace(r"\arg\min", r"\operatorname{arg\,min}")
    mathml = convert(latex, display=display)
    if unknown := re.findall(r"\\\w+", mathml):
        raise ValueError(f"unknown {', '.join(unknown)}")
    return mathml


def _draw(translator: HTML5Translator, node: nodes.Element, display: str) -> str:
    latex = node.astext()
    try:
        return to_mathml(latex, display=display)
    except Exception as error:  # latex2mathml has no common error
        logger.warning("no MathML of %r: %s: %s", latex, type(error).__name__, error, location=node)
        return f"<code>{translator.encode(latex)}</code>"


def _inline(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(_draw(translator, node, "inline"))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(_draw(translator, node, "block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer as "mathml"."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
