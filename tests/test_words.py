"""Old words of this project stay out of the library, its pages and the README: readers know the field's words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [
    ROOT / "README.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("src/pindown/**/*.py"),
    *ROOT.glob("src/pindown/**/*.j2"),
]

INSTEAD = {
    "a wheel": "a spinner",
    "anew": "again",
    "bent": "nonlinear",
    "beside": "next to, compared with",
    "by heart": "overfit, memorised",
    "charts": "batch-specific maps",
    "codes": "latents, embedding, feature activations",
    "for ever": "endlessly",
    "held back": "validation set, held out",
    "is asked": "threshold",
    "kept back": "validation set, held out",
    "mended": "fixed",
    "nobody": "the passive voice, or who it is",
    "partners": "positives",
    "past hope": "patience exhausted",
    "rows held out": "held-out samples",
    "share of": "fraction of",
    "stands against": "reasons not to claim",
    "strangers": "negatives",
    "tells": "explains, predicts",
    "the game": "adversarial training",
    "told": "explained by, decodable from, conditioned on",
    "unfolded": "an encoder with a linear skip path",
    "unrolled": "Isomap initialisation",
    "vigil": "early stopping",
    "world": "simulation",
    "world's truth": "ground truth",
    "worlds": "simulations",
}
"""What to write instead of a word."""

LEFT: dict[str, int] = {
    "beside": 7,
    "charts": 1,
    "codes": 34,
    "is asked": 1,
    "tells": 3,
    "told": 6,
    "unfolded": 2,
    "unrolled": 5,
    "world": 4,
    "worlds": 4,
}
"""How many lines still have a word. Only lower these numbers; remove a word's number when none is left."""

ALLOWED = r"real[- ]world"
"""Phrases of the field that hold one of the words."""


def lines_with(word):
    """List the lines that have a word, as file:line."""
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(re.sub(ALLOWED, "", line, flags=re.IGNORECASE))
    ]


@pytest.mark.parametrize("word", INSTEAD)
def test_an_old_word_is_replaced(word):
    found = lines_with(word)
    assert len(found) <= LEFT.get(word, 0), f"write {INSTEAD[word]!r} instead of {word!r} in {found}"
