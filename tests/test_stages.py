"""Work in stages says what it is at."""

import io
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from pindown import Classify, Contrast, Forget, audit
from pindown.auditing.audit import stages


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_which_stage_it_is_and_of_how_many(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with stages("Audit", 3) as begin:
        begin("one thing")
        begin("another")
    said = sys.stderr.getvalue()
    assert "Audit" in said
    assert "2/3  another" in said


def test_without_a_terminal_no_progress_is_shown(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with stages("Audit", 3) as begin:
        begin("one thing")
    assert sys.stderr.getvalue() == ""


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("estimator", [Classify(2, max_iter=2), Forget(2, max_iter=2)], ids=lambda e: type(e).__name__)
@pytest.mark.slow
def test_an_audit_has_as_many_stages_as_it_says(monkeypatch, estimator):
    begun, totals = [], []

    @contextmanager
    def counted(title, total):
        totals.append(total)
        yield begun.append

    monkeypatch.setattr("pindown.auditing.audit.stages", counted)
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    X = rng.normal(size=(240, 4)) + 3 * np.eye(4)[y]
    audit(estimator.set_params(verbose=False, random_state=0).fit(X, y), X, y, n_fits=2, random_state=0)
    assert [len(begun)] == totals
    assert begun[:2] == ["fit with another seed"] * 2


def test_an_estimator_that_is_not_verbose_shows_no_progress(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with stages("Audit", 3, Contrast(verbose=False)) as begin:
        begin("fit with another seed")
    assert terminal.getvalue() == ""
