"""Simulated gene expression in three laboratories: how well latents predict the laboratory, and the type of a cell.

Run ``python benchmarks/expression.py`` (seeds 4 to 7, all cores; some three minutes a seed on one), or in parts, with
``--seeds``, ``--to`` and ``--parts`` as in `_parts`. Settings were chosen on seeds from 100 on. Saved in results/, and
written to docs/results/batch-effects.md.

*balanced*: 600 cells × 200 genes and 300 × 2,000, with the same types in every laboratory; `Forget` with its defaults.
Scores on 1,200 new cells: the laboratory by the worst of three families of probes, the type by a linear probe trained
on the fitted cells, and the agreement of k-means clusters with types. *composition*: 4,000 × 200, each laboratory has
six times as many cells of one type as of any other; `Forget` is given the type. Scores on 4,000 new cells: the
laboratory within types, the type within laboratories, and transferred from one to the others. *coin toss*: 600 × 200,
given a random label: how well a linear probe predicts it.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _measure import save
from _parts import asked, put_into, runs, spans
from pindown_papers.erasers import Leace, PerValueStandardiser
from pindown_papers.simulations import Expression
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Forget
from pindown.errors import IdentifiabilityWarning
from pindown.methods import out_of_fold
from pindown.methods.forget import LinearErasure
from pindown.metrics import Effort, leakage

REPORT = range(4, 8)
TOSSED = range(100, 140)
"""Seeds of tosses: a few would not distinguish a bias from chance."""

PAGE = Path(__file__).parents[1] / "docs" / "results" / "batch-effects.md"
READERS = ["linear", "quadratic", "boosting"]
COMPONENTS = (3, 5, 10, 20)
"""Numbers of principal components. The best counts, which a user without the types could not choose."""

SKEW = 6.0
"""How many times as many cells of one type as of any other a laboratory has."""


class Cells(NamedTuple):
    """Expression, laboratory and type of cells."""

    X: np.ndarray
    lab: np.ndarray
    type: np.ndarray


Codes = Iterator[tuple[str, np.ndarray, np.ndarray]]


def drawn(n_genes: int, n_cells: int, n_fresh: int, seed: int, skew: float = 1.0) -> tuple[Cells, Cells]:
    """Return training cells, and new cells of the same simulation."""
    world = Expression.of_cells(n_genes, skew=skew, random_state=seed)
    samples = (world.sample(n, random_state=1_000 * k + seed) for k, n in ((1, n_cells), (2, n_fresh)))
    train, test = (Cells(*(part.numpy() for part in (s.x.double(), s.u, s.label))) for s in samples)
    return train, test


def baselines(train: Cells, test: Cells) -> Codes:
    """Yield latents of training and of new cells by each closed form."""
    yield "expression", train.X, test.X
    own = PerValueStandardiser().fit(train.X, train.lab)
    standard = tuple(own.transform(part.X, part.lab) for part in (train, test))
    yield "z-score per lab", *standard
    scaled = StandardScaler().fit(train.X)
    pooled = tuple(scaled.transform(part.X) for part in (train, test))
    for k in COMPONENTS:
        yield f"z-score per lab, PCA-{k}", *_both(PCA(k, random_state=0).fit(standard[0]), *standard)
    for k in COMPONENTS:
        parts = _both(PCA(k, random_state=0).fit(pooled[0]), *pooled)
        again = PerValueStandardiser().fit(parts[0], train.lab)
        yield (
            f"PCA-{k}, z-score per lab",
            *(again.transform(a, b.lab) for a, b in zip(parts, (train, test), strict=True)),
        )
    for k in COMPONENTS[1:]:
        parts = _both(PCA(k, random_state=0).fit(pooled[0]), *pooled)
        yield f"PCA-{k}, means projected off", *_both(LinearErasure().fit(parts[0], train.lab), *parts)
        if importlib.util.find_spec("concept_erasure") is not None:
            yield f"PCA-{k}, LEACE", *_both(Leace().fit(parts[0], train.lab), *parts)


def _both(fitted: Any, *parts: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(fitted.transform(part) for part in parts)


def forgotten(train: Cells, test: Cells, given: np.ndarray | None, seed: int) -> tuple[Codes, dict[str, Any]]:
    """Return latents with and without the laboratory of new cells, and details of the fit."""
    start = time.perf_counter()
    forget = Forget(verbose=False, random_state=seed).fit(train.X, train.lab, given=given)
    how = {"seconds": time.perf_counter() - start, "codes": forget.n_components_, "kept": str(forget.batch_maps_)}
    told = tuple(forget.transform(part.X, part.lab) for part in (train, test))
    return iter([("Forget", *told), ("Forget, laboratory unknown", *_both(forget, train.X, test.X))]), how


def read(fitted: np.ndarray, label: np.ndarray, codes: np.ndarray, true: np.ndarray) -> float:
    reader = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(fitted, label)
    return balanced_accuracy_score(true, reader.predict(codes))


def told(codes: np.ndarray, test: Cells, given: np.ndarray | None, seed: int) -> float:
    effort = Effort(n_seeds=1, n_permutations=19)
    return leakage(codes, test.lab, given=given, probes=READERS, effort=effort, random_state=seed).worst


def balanced(train: Cells, test: Cells, fitted: np.ndarray, codes: np.ndarray, seed: int) -> dict[str, float]:
    clusters = KMeans(len(np.unique(test.type)), n_init=10, random_state=seed).fit_predict(codes)
    return {
        "lab": told(codes, test, None, seed),
        "type": read(fitted, train.type, codes, test.type),
        "clusters": adjusted_rand_score(test.type, clusters),
    }


def composition(train: Cells, test: Cells, fitted: np.ndarray, codes: np.ndarray, seed: int) -> dict[str, float]:
    own, carried = [], []
    for lab in np.unique(test.lab):
        here, there = test.lab == lab, test.lab != lab
        label = fitted[train.lab == lab], train.type[train.lab == lab]
        own.append(read(*label, codes[here], test.type[here]))
        carried.append(read(*label, codes[there], test.type[there]))
    return {
        "lab within types": told(codes, test, test.type, seed),
        "type": float(np.mean(own)),
        "type carried to another lab": float(np.mean(carried)),
    }


class Study(NamedTuple):
    """Numbers of genes, training and new cells; how far compositions differ between laboratories; and the score."""

    name: str
    size: tuple[int, int, int]
    skew: float
    score: Callable[..., dict[str, float]]


STUDIES = (
    Study("600 × 200", (200, 600, 1_200), 1.0, balanced),
    Study("300 × 2,000", (2_000, 300, 1_200), 1.0, balanced),
    Study("4,000 × 200, composition differs", (200, 4_000, 4_000), SKEW, composition),
)


def measured(number: int, seed: int) -> list[dict[str, Any]]:
    """Return a record for each method in a study; the last study is that of the coin toss."""
    warnings.simplefilter("ignore", IdentifiabilityWarning)
    if number == len(STUDIES):
        return [coin_toss(seed)]
    study = STUDIES[number]
    train, test = drawn(*study.size, seed, study.skew)
    given = train.type if study.score is composition else None
    found, how = forgotten(train, test, given, seed)
    plain = [(codes, {}) for codes in baselines(train, test)]
    ours = [(codes, how) for codes in found]
    return [
        {"world": study.name, "seed": seed, "condition": method} | study.score(train, test, fitted, codes, seed) | about
        for (method, fitted, codes), about in (*plain, *ours)
    ]


def coin_toss(seed: int) -> dict[str, Any]:
    train, _ = drawn(200, 600, 1, seed)
    coin = np.random.default_rng(seed).integers(2, size=len(train.X))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forget = Forget(verbose=False, random_state=seed).fit(train.X, train.lab, given=coin)
        exported = out_of_fold(forget, train.X, train.lab, given=coin).latents
    half = np.arange(len(coin)) % 2 == 0

    def told(codes: np.ndarray) -> float:
        return float(np.mean([read(codes[some], coin[some], codes[~some], coin[~some]) for some in (half, ~half)]))

    said = any("do not show the given label" in str(w.message) for w in caught)
    return {
        "world": "coin toss given",
        "seed": seed,
        "condition": "Forget",
        "coin read": told(exported),
        "coin read off seen rows": told(forget.transform(train.X, train.lab)),
        "said so": said,
    }


def means(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean over seeds of every score, for each study and method."""
    rows = []
    for world, condition in dict.fromkeys((run["world"], run["condition"]) for run in runs):
        own = [run for run in runs if (run["world"], run["condition"]) == (world, condition)]
        scores = [name for name, value in own[0].items() if isinstance(value, float)]
        about = {"mean over seeds": spans(run["seed"] for run in own), "world": world, "condition": condition}
        rows.append(about | {name: float(np.mean([run[name] for run in own])) for name in scores})
    return rows


BALANCED = ("expression", "z-score per lab", *(f"z-score per lab, PCA-{k}" for k in COMPONENTS[:2]))
BALANCED += ("PCA-5, z-score per lab", "PCA-5, means projected off", "Forget", "Forget, laboratory unknown")
COMPOSED = (
    "expression",
    "z-score per lab, PCA-5",
    "PCA-5, means projected off",
    "Forget",
    "Forget, laboratory unknown",
)
"""Methods in the tables of the page; the others are in results/."""


def report(rows: list[dict[str, Any]]) -> None:
    """Put both tables into their page."""
    of = {(row["world"], row["condition"]): row for row in rows}
    one, two, three = (study.name for study in STUDIES)
    toss = of["coin toss given", "Forget"]
    read = ("lab", "type", "clusters")
    within = ("lab within types", "type", "type carried to another lab")
    lines = [
        f"Means over seeds {rows[0]['mean over seeds']}.",
        "",
        f"| codes | {one}: laboratory | type | clusters | {two}: laboratory | type | clusters |",
        "|---|---|---|---|---|---|---|",
        *(_line(name, [of[study, name][score] for study in (one, two) for score in read]) for name in BALANCED),
        "",
        "And where every laboratory has six times as many cells of one type as of any other "
        f"({three.split(', ')[0]}, given the type):",
        "",
        "| codes | laboratory within types | type | type, carried to another laboratory |",
        "|---|---|---|---|",
        *(_line(name, [of[three, name][score] for score in within]) for name in COMPOSED),
        "",
        f"A coin toss that was given is read off exported codes with {toss['coin read']:.3f}, off those of rows that "
        f"the fit has seen with {toss['coin read off seen rows']:.3f} (chance .5; seeds {toss['mean over seeds']}, "
        "each of which errs by .02, and their mean by .003).",
    ]
    put_into(PAGE, "\n".join(lines))


def _line(name: str, scores: list[float]) -> str:
    return f"| {name} | {' | '.join(f'{score:.2f}' for score in scores)} |"


def main() -> None:
    wanted = asked(__doc__)
    seeds = range(*wanted.seeds) if wanted.seeds else REPORT
    tossed = range(*wanted.seeds) if wanted.seeds else TOSSED
    jobs = [(len(STUDIES), seed) for seed in tossed]
    jobs += [] if "coin" in wanted.only else [(n, seed) for n in reversed(range(len(STUDIES))) for seed in seeds]
    found = runs(measured, jobs, wanted)
    if wanted.to is None:
        rows = means(sorted(found, key=lambda run: run["seed"]))
        save("expression", [*found, *rows])
        report(rows)


if __name__ == "__main__":
    main()
