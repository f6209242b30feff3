"""Reports: what was found as plain frozen data, apart from the one self-contained HTML page that shows it."""

from pindown.auditing.report.colouring import Colouring
from pindown.auditing.report.page import (
    Cloud,
    Clouds,
    Condition,
    Curve,
    Curves,
    Fact,
    Figure,
    Latents,
    Page,
    Panel,
    Row,
    Scatters,
    Section,
    check_writable,
    render,
    save,
    shown,
)

__all__ = [
    "Cloud",
    "Clouds",
    "Colouring",
    "Condition",
    "Curve",
    "Curves",
    "Fact",
    "Figure",
    "Latents",
    "Page",
    "Panel",
    "Row",
    "Scatters",
    "Section",
    "check_writable",
    "render",
    "save",
    "shown",
]
