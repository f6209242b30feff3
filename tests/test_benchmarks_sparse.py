"""The benchmark of known worlds: rates are chosen on a seed that is not reported, the table is made of the others."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from sparse_worlds import CASES, TUNED, best_rate, runs, table

SMALL = replace(CASES[0], steps=2, batch=64, seeds=(0,), n_test=200)


def row(method, seed, cosine, **more):
    scores = {"cosine": cosine, "f1": 0.5, "dead": 0.25, "rebuilt": 0.75}
    return {"method": method, "seed": seed, "steps": SMALL.steps, "batch": SMALL.batch, **scores, **more}


def test_a_rate_is_chosen_on_a_seed_of_its_own_and_the_table_has_the_others():
    tried = [row("SAELens TopK", TUNED, cosine, rate=rate) for rate, cosine in ((0.01, 0.3), (0.02, 0.9), (0.04, 0.4))]
    kept = [*tried, row("SAELens TopK", 0, 0.6, rate=0.02), row("SAELens TopK", 1, 0.8, rate=0.02)]
    assert best_rate(SMALL, "SAELens TopK", kept) == 0.02
    assert best_rate(SMALL, "SAELens BatchTopK", kept) == SMALL.rates[0]
    *_, line = table(SMALL, kept).splitlines()
    assert line == "| SAELens, TopK | 0.700 | 0.500 | 25.0% | 0.750 | 0–1 |"


@pytest.mark.filterwarnings("ignore::UserWarning")  # two steps have things to say
def test_what_is_on_record_is_not_run_again(capsys):
    names = ("pindown TopK", "pindown BatchTopK", "pindown JumpReLU")
    (made,) = runs(replace(SMALL, theirs=()), [row(name, 0, 0.5) for name in names])
    assert made["method"] == "pindown Matryoshka"
    assert 0 < made["cosine"] < 1
    assert 0 <= made["f1"] <= 1
