"""The search for silent failures sees an embedding that is noise, and none that is as good as the data."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import silent_failures as search


@pytest.mark.parametrize("name", ["classify sphere", "classify table", "contrast recording"])
def test_noise_is_a_silent_failure_and_the_data_are_not(monkeypatch, name):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(search, "embedded", lambda case, *_: tuple(rng.normal(size=(len(x), 3)) for x in case[:2]))
    lost = search.run(name, 0)
    assert lost["silent"], lost
    monkeypatch.setattr(search, "embedded", lambda case, *_: (case.train, case.test))
    kept = search.run(name, 0)
    assert not kept["silent"], kept
    assert kept["raw"] == lost["raw"]


def test_a_warning_makes_a_failure_heard_and_an_error_has_a_line(monkeypatch):
    def warned(case, *_):
        search.warnings.warn("this fit keeps nothing", stacklevel=1)
        return tuple(np.random.default_rng(0).normal(size=(len(x), 3)) for x in case[:2])

    monkeypatch.setattr(search, "embedded", warned)
    heard = search.run("classify sphere", 0)
    assert heard["excess"] > heard["margin"]
    assert not heard["silent"]
    monkeypatch.setattr(search, "embedded", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in search.run("classify sphere", 0)["error"]


def test_a_leak_of_the_site_counts_against_what_is_kept():
    rng = np.random.default_rng(0)
    y, site = (tuple(rng.integers(2, size=n) for n in (400, 400)) for _ in range(2))
    z = [np.c_[label, place] + 0.01 * rng.normal(size=(400, 2)) for label, place in zip(y, site, strict=True)]
    case = search.Case(z[0], z[1], site[0], y, None, site)
    kept, leak = search.scores(case, *z, by_axes=False)
    assert kept > 0.99
    assert leak > 0.99
    assert search.scores(case, *(part[:, :1] for part in z), by_axes=False)[1] < 0.15
