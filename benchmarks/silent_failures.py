"""A search for fits that fail without a warning: random simulations and perturbed real tables, against plain baselines.

Run ``python benchmarks/silent_failures.py`` (all cores; about 15 seconds a case on one). ``--only classify`` takes a
part, ``--case "classify sphere 7"`` runs one case and prints it, ``--seconds 480`` stops in time. Each case is a line
of JSON in ``--to``, and cases that are there already are not run again.

`Contrast`, `Classify`, `Forget` and `Dictionary` have their defaults, and the true number of latents in simulations.
The baselines are the standardised features, their principal components (as many as latents), and for `Forget` the
features standardised within each site, where the sites of new samples are given. Scores are of samples held out:

- simulations: the R² of the true latents from the embedding by a linear map, for `Dictionary` their MCC;
- tables: the balanced accuracy of the label by logistic regression (R² of a quantity by ridge regression);
- for `Forget` less the accuracy of the site beyond chance, by the better of a linear and a quadratic probe.

A case in which a baseline is better by .05 and two standard errors, and no warning was given, is a *silent failure*.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch
from _measure import RESULTS, write
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from pindown import Classify, Contrast, Dictionary, Forget
from pindown.metrics import mcc
from pindown.networks.spaces import Reals
from pindown.simulate import Clusters, Nuisance, Pairs, Structured
from pindown.simulate.distributions import laplace, normal

Matrix = NDArray[Any]
Embed = Callable[[Matrix], Matrix]

MARGIN = 0.05
LONGEST = 90  # seconds of a case
TABLES = {"digits": load_digits, "wine": load_wine, "cancer": load_breast_cancer, "diabetes": load_diabetes}
N_TEST = 2_000


class Case(NamedTuple):
    """Training samples and side information, test samples, and what is scored: latents, or a label."""

    train: Matrix
    test: Matrix
    side: Matrix | None  # pairs, labels or sites of the training samples
    truth: tuple[Matrix, Matrix]  # of training and test samples: latents (n, d), or labels (n,)
    n_components: int | None
    site: tuple[Matrix, Matrix] | None = None  # of training and test samples
    site_is_known: bool = True  # when test samples are encoded
    options: Mapping[str, Any] = MappingProxyType({})


# ---- features of a simulation or a table, perturbed -----------------------------------------------------------------


def identity(x: Matrix, rng: np.random.Generator) -> Embed:
    return lambda a: a


def outlier(x: Matrix, rng: np.random.Generator) -> Embed:
    """Add a feature whose spread is forty times the median's, as in activations of transformers."""
    weights = rng.normal(size=x.shape[1])
    size = 40 * np.median(x.std(0)) / max((x @ weights).std(), 1e-9)
    return lambda a: np.c_[a, size * (a @ weights)]


def heavy(x: Matrix, rng: np.random.Generator) -> Embed:
    mean, spread = x.mean(0), x.std(0) + 1e-9
    return lambda a: np.sinh(np.clip(1.5 * (a - mean) / spread, -12, 12))


def noisy(x: Matrix, rng: np.random.Generator) -> Embed:
    """Add twice as many features of noise; the same for the same samples."""
    spread = x.std()

    def add(a: Matrix) -> Matrix:
        own = np.random.default_rng(int(abs(a).sum() * 1e3) % 2**32)
        return np.c_[a, spread * own.normal(size=(len(a), 2 * a.shape[1]))]

    return add


def units(x: Matrix, rng: np.random.Generator) -> Embed:
    scales = 10 ** rng.uniform(-3, 3, x.shape[1])
    return lambda a: a * scales


def doubled(x: Matrix, rng: np.random.Generator) -> Embed:
    """Add every feature again, and a constant."""
    return lambda a: np.c_[a, a, np.full(len(a), 7.0)]


def wide(x: Matrix, rng: np.random.Generator) -> Embed:
    """Take 200 random rectified features."""
    mean, spread, weights = x.mean(0), x.std(0) + 1e-9, rng.normal(size=(x.shape[1], 200)) / np.sqrt(x.shape[1])
    return lambda a: np.maximum((a - mean) / spread @ weights + 0.3, 0)


def coarse(x: Matrix, rng: np.random.Generator) -> Embed:
    spread = x.std(0) + 1e-9
    return lambda a: np.rint(2 * a / spread)


CHANGES = (identity, outlier, heavy, noisy, units, doubled, wide, coarse)


# ---- cases ----------------------------------------------------------------------------------------------------------


def arrays(*tensors: torch.Tensor) -> tuple[Matrix, ...]:
    return tuple(each.double().numpy() if each.is_floating_point() else each.numpy() for each in tensors)


def contrast_pairs(rng: np.random.Generator, change: Any) -> Case:
    d, n, seed = int(rng.integers(2, 7)), int(rng.choice([300, 1_000, 2_000])), int(rng.integers(2**31))
    layers, kind = int(rng.integers(1, 4)), int(rng.integers(3))
    if kind == 0:
        process, options = Pairs.on_sphere(d, float(rng.choice([3, 10, 50])), n_layers=layers, random_state=seed), {}
    else:
        law = (normal, laplace)[kind - 1](float(rng.choice([0.05, 0.2])))
        process = Pairs.on_box(d, law, n_layers=layers, random_state=seed)
        options = {"space": Reals(), "p": 3 - kind}
    x, z, pairs = arrays(*(process.sample(n, random_state=seed)[k] for k in (0, 1, 3)))
    test, truth = arrays(*process.sample(N_TEST, random_state=seed + 1)[:2])
    f = change(x, rng)
    return Case(f(x), f(test), f(pairs), (z, truth), d, options=options)


def contrast_recording(rng: np.random.Generator, change: Any) -> Case:
    """Slow latents of a recording, mixed; successive samples are pairs."""
    d, n, width = int(rng.integers(2, 5)), int(rng.choice([500, 2_000])), int(rng.choice([2, 5]))
    process = Pairs.on_box(d, normal(0.1), n_layers=int(rng.integers(1, 4)), random_state=int(rng.integers(2**31)))
    rho, steps = float(rng.choice([0.9, 0.99])), rng.normal(size=(2 * n + width, d))
    z = np.zeros_like(steps)
    for t in range(1, len(z)):
        z[t] = rho * z[t - 1] + np.sqrt(1 - rho**2) * steps[t]
    x = process.mixing(torch.as_tensor(z)).numpy()
    x = np.lib.stride_tricks.sliding_window_view(x, width, axis=0).reshape(len(x) - width + 1, -1)
    z = z[width // 2 : width // 2 + len(x)]
    f = change(x[:n], rng)
    options = {"space": Reals()} if rng.random() < 0.5 else {}
    return Case(f(x[:n]), f(x[n:]), None, (z[:n], z[n:]), d + (not options), options=options)


def classify_sphere(rng: np.random.Generator, change: Any) -> Case:
    d, n, seed = int(rng.integers(2, 6)), int(rng.choice([300, 1_000, 4_000])), int(rng.integers(2**31))
    n_classes, kappa = int(rng.integers(d + 1, 25)), float(rng.choice([3, 10, 30]))
    process = Clusters.on_sphere(d, n_classes, kappa, n_layers=int(rng.integers(1, 5)), random_state=seed)
    x, z, y = arrays(*process.sample(n, random_state=seed)[:3])
    test, truth = arrays(*process.sample(N_TEST, random_state=seed + 1)[:2])
    if rng.random() < 0.5:  # more features than latents
        weights = rng.normal(size=(d, 2 * d))
        x, test = np.c_[x, np.tanh(x @ weights)], np.c_[test, np.tanh(test @ weights)]
    f = change(x, rng)
    return Case(f(x), f(test), y, (z, truth), d)


def forget_sphere(rng: np.random.Generator, change: Any) -> Case:
    d, n, seed = int(rng.integers(3, 8)), int(rng.choice([300, 1_000, 3_000])), int(rng.integers(2**31))
    n_levels, kappa = int(rng.integers(2, d)), float(rng.choice([3, 10, 30]))
    process = Nuisance.on_sphere(d, n_levels, kappa, n_layers=int(rng.integers(1, 4)), random_state=seed)
    x, z, site = arrays(*process.sample(n, random_state=seed)[:3])
    test, truth, other = arrays(*process.sample(N_TEST, random_state=seed + 1)[:3])
    f = change(x, rng)
    return Case(f(x), f(test), site, (z, truth), None, (site, other))


def dictionary_structured(rng: np.random.Generator, change: Any) -> Case:
    seed, n = int(rng.integers(2**31)), int(rng.choice([500, 1_500, 4_000]))
    supports = (
        [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]],
        [[1, 0], [1, 1], [0, 1]],
        np.ones((6, 3)),
        [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]],
    )
    process = Structured.from_support(supports[int(rng.integers(4))], n_candidates=5, random_state=seed)
    d, correlation = process.d, float(rng.choice([0, 0.7]))
    chol = np.linalg.cholesky((1 - correlation) * np.eye(d) + correlation)
    z, truth = (rng.normal(size=(k, d)) @ chol.T for k in (n, N_TEST))
    x, test = (process.mixing(torch.as_tensor(each)).numpy() for each in (z, truth))
    f = change(x, rng)
    return Case(f(x), f(test), None, (z, truth), d)


def table(rng: np.random.Generator, change: Any) -> tuple[str, Matrix, Matrix, Matrix, Matrix]:
    """Return name, features of training and test samples, and labels or the quantity."""
    name = str(rng.choice(list(TABLES)))
    x, y = TABLES[name](return_X_y=True)
    is_class, seed = name != "diabetes", int(rng.integers(2**31))
    parts = train_test_split(x, y, test_size=0.3, stratify=y if is_class else None, random_state=seed)
    train, test, y_train, y_test = parts
    if rng.random() < 0.4:  # few samples
        train, y_train = train[:100], y_train[:100]
    f = change(train, rng)
    return name, f(train), f(test), y_train, y_test


def contrast_table(rng: np.random.Generator, change: Any) -> Case:
    """Pairs are samples of one class, or of near quantities."""
    _, x, test, y, truth = table(rng, change)
    label = y if y.dtype.kind == "i" else np.searchsorted(np.quantile(y, np.arange(1, 8) / 8), y)
    pairs = np.array([rng.choice(np.flatnonzero(label == own)) for own in label])
    return Case(x, test, x[pairs], (y, truth), int(rng.choice([2, 3, 8])))


def classify_table(rng: np.random.Generator, change: Any) -> Case:
    _, x, test, y, truth = table(rng, change)
    label = y if y.dtype.kind == "i" else np.searchsorted(np.quantile(y, np.arange(1, 5) / 5), y)
    return Case(x, test, label, (y, truth), None)


def forget_table(rng: np.random.Generator, change: Any) -> Case:
    """Sites shift and scale all features, a few, or one; they are independent of the label, or depend on it."""
    _, x, test, y, truth = table(rng, change)
    n_sites, kind = int(rng.integers(2, 5)), int(rng.integers(3))
    some = np.zeros(x.shape[1], dtype=bool)
    some[rng.permutation(x.shape[1])[: (x.shape[1], 4, 1)[kind]]] = True
    spread = x.std(0) + 1e-9
    shift, scale = (rng.normal(size=(n_sites, x.shape[1])) * some for _ in range(2))

    def moved(a: Matrix, site: Matrix) -> Matrix:
        return a * np.exp(0.4 * scale[site]) + spread * shift[site]

    sites = tuple(rng.integers(n_sites, size=len(part)) for part in (y, truth))
    if rng.random() < 0.4 and y.dtype.kind == "i":  # the site follows the label in 40 % of the samples
        sites = tuple(
            np.where(rng.random(len(own)) < 0.4, np.asarray(part) % n_sites, own)
            for own, part in zip(sites, (y, truth), strict=True)
        )
    return Case(moved(x, sites[0]), moved(test, sites[1]), sites[0], (y, truth), None, (sites[0], sites[1]))


def forget_unknown(rng: np.random.Generator, change: Any) -> Case:
    """As `forget_table`, where the sites of new samples are not given."""
    return forget_table(rng, change)._replace(site_is_known=False)


def dictionary_table(rng: np.random.Generator, change: Any) -> Case:
    _, x, test, y, truth = table(rng, change)
    return Case(x, test, None, (y, truth), int(rng.choice([2, 4])))


WORLDS: dict[str, tuple[Any, Callable[[np.random.Generator, Any], Case], int]] = {
    "contrast pairs": (Contrast, contrast_pairs, 110),
    "contrast recording": (Contrast, contrast_recording, 50),
    "contrast table": (Contrast, contrast_table, 70),
    "classify sphere": (Classify, classify_sphere, 170),
    "classify table": (Classify, classify_table, 120),
    "forget sphere": (Forget, forget_sphere, 120),
    "forget table": (Forget, forget_table, 160),
    "forget unknown site": (Forget, forget_unknown, 40),
    "dictionary structured": (Dictionary, dictionary_structured, 60),
    "dictionary table": (Dictionary, dictionary_table, 20),
}


# ---- scores ---------------------------------------------------------------------------------------------------------


def probed(z: Matrix, z_test: Matrix, y: Matrix, y_test: Matrix) -> float:
    """Return the balanced accuracy of a label, or the R² of a quantity."""
    if y.dtype.kind == "f":
        return float(make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 17))).fit(z, y).score(z_test, y_test))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(z, y)
    return float(balanced_accuracy_score(y_test, model.predict(z_test)))


def scores(case: Case, z: Matrix, z_test: Matrix, *, by_axes: bool) -> tuple[float, float]:
    """Return what an embedding keeps, and what it leaks beyond chance."""
    y, y_test = case.truth
    if y.ndim == 1:
        kept = probed(z, z_test, y, y_test)
    elif by_axes:
        alive = z_test.std(0) > 0
        kept = float(mcc(z_test[:, alive], y_test, random_state=0)) if alive.any() else 0.0
    else:
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-6, 4, 21))).fit(z, y)
        kept = float(ridge.score(z_test, y_test))
    if case.site is None:
        return kept, 0.0
    site, other = case.site
    chance = 1 / len(np.unique(site))
    spread = PCA().fit(z).explained_variance_
    n_leading = max(1, min(20, int((spread > 1e-6 * spread[0]).sum())))  # rounding errors of copies are no leak
    leading = PCA(n_leading).fit(z)
    square = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False)).fit(leading.transform(z))
    varies = z.std(0) > 1e-6 * z.std(0).max()
    views = [
        (z[:, varies], z_test[:, varies]),
        tuple(square.transform(leading.transform(part)) for part in (z, z_test)),
    ]
    leak = max(probed(a, b, site, other) for a, b in views)
    return kept, max(0.0, (leak - chance) / (1 - chance))


def noise(case: Case) -> float:
    """Return the standard error of a score: accuracies of test samples, that of the site in units beyond chance."""
    n, (_, truth) = len(case.test), case.truth
    of_label = 0.5 / np.sqrt(n) if truth.ndim == 1 else 0.0
    of_site = 0.0 if case.site is None else 0.5 / np.sqrt(n) / (1 - 1 / len(np.unique(case.site[0])))
    return float(np.hypot(of_label, of_site))


def embedded(case: Case, estimator: Any, seed: int) -> tuple[Matrix, Matrix]:
    options = {"random_state": seed % 1_000, "device": "cpu", "verbose": False, **case.options}
    if case.n_components is not None:
        options["n_components"] = case.n_components
    fit = estimator(**options)
    fit.fit(case.train) if case.side is None else fit.fit(case.train, case.side)
    if case.site is None or not case.site_is_known:
        parts = [fit.transform(part) for part in (case.train, case.test)]
    else:
        parts = [fit.transform(part, site) for part, site in zip((case.train, case.test), case.site, strict=True)]
    train, test = (np.asarray(part, dtype=np.float64) for part in parts)
    return train, test


def baselines(case: Case, k: int) -> dict[str, tuple[Matrix, Matrix]]:
    scaler = StandardScaler().fit(case.train)
    raw = scaler.transform(case.train), scaler.transform(case.test)
    pca = PCA(min(k, *raw[0].shape), random_state=0).fit(raw[0])
    found = {"raw": raw, "pca": (pca.transform(raw[0]), pca.transform(raw[1]))}
    if case.site is not None and case.site_is_known:
        within = []
        for part, site in zip((case.train, case.test), case.site, strict=True):
            own = np.zeros_like(part, dtype=np.float64)
            for level in np.unique(site):
                own[site == level] = StandardScaler().fit_transform(part[site == level])
            within.append(own)
        found["z-score"] = (within[0], within[1])
    return found


def run(name: str, seed: int) -> dict[str, Any]:
    """Fit one case and its baselines."""
    estimator, make, _ = WORLDS[name]
    rng = np.random.default_rng([sorted(WORLDS).index(name), seed])
    change = CHANGES[seed % len(CHANGES)]
    start = time.perf_counter()
    row: dict[str, Any] = {"world": name, "seed": seed, "change": change.__name__}
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case = make(rng, change)
        row |= {"n": len(case.train), "features": case.train.shape[1], "options": str(dict(case.options))}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            z, z_test = embedded(case, estimator, seed)
        words = [f"{each.category.__name__}: {each.message}" for each in caught if _is_ours(each)]
        by_axes = estimator is Dictionary
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept, leak = scores(case, z, z_test, by_axes=by_axes)
            plain = {kind: scores(case, *both, by_axes=by_axes) for kind, both in baselines(case, z.shape[1]).items()}
        row |= {"components": z.shape[1], "words": words, "score": kept - leak, "kept": kept, "leak": leak}
        row |= {kind: own[0] - own[1] for kind, own in plain.items()}
        row["excess"] = max(own[0] - own[1] for own in plain.values()) - row["score"]
        row["margin"] = MARGIN + 2 * noise(case)
        row["silent"] = row["excess"] > row["margin"] and not words
    except TimeoutError:
        row |= {"error": f"longer than {LONGEST} s", "silent": False}
    except Exception as error:  # every case has a line
        row |= {"error": f"{type(error).__name__}: {error}"[:300], "silent": False}
    finally:
        signal.alarm(0)
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError


def _is_ours(caught: warnings.WarningMessage) -> bool:
    return not issubclass(caught.category, DeprecationWarning | FutureWarning | PendingDeprecationWarning)


def _run(job: tuple[str, int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    return run(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--case", help="one case, such as 'classify sphere 7'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the cases of each kind")
    parser.add_argument("--to", type=Path, default=RESULTS / "silent_failures.jsonl", help="a line for each case")
    given = parser.parse_args()
    if given.case:
        name, _, seed = given.case.rpartition(" ")
        print(json.dumps(run(name, int(seed)), indent=1, ensure_ascii=False))
        return
    start = time.perf_counter()
    lines = given.to.read_text().splitlines() if given.to.exists() else []
    done = {(row["world"], row["seed"]): row for row in map(json.loads, lines)}
    wanted = [
        (name, k) for name, (_, _, n) in WORLDS.items() if given.only in name for k in range(int(n * given.fraction))
    ]
    jobs = [job for job in wanted if job not in done]
    np.random.default_rng(0).shuffle(jobs)
    jobs = [(str(name), int(k)) for name, k in jobs]
    with given.to.open("a", encoding="utf-8") as file, multiprocessing.get_context("fork").Pool(given.jobs) as pool:
        found = pool.imap_unordered(_run, jobs)
        for _ in jobs:
            try:
                row = found.next(timeout=max(0.1, given.seconds - (time.perf_counter() - start)))
            except multiprocessing.TimeoutError:
                break
            done[row["world"], row["seed"]] = row
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
        pool.terminate()
    rows = [done[job] for job in wanted if job in done]
    versions = {"numpy": np.__version__, "sklearn": sklearn.__version__, "torch": torch.__version__}
    where = versions | {"python": platform.python_version(), "processes": str(given.jobs)}
    seconds = f"{time.perf_counter() - start:.0f}"
    write(
        given.to.with_name("silent_failures_cpu.json"), rows, {"device": "CPU, 1 thread", "seconds": seconds, **where}
    )
    for name in WORLDS:
        own = [row for row in rows if row["world"] == name]
        worse = sum(row.get("excess", 0) > row.get("margin", 0) for row in own)
        errors = sum("error" in row for row in own)
        silent = sum(row["silent"] for row in own)
        print(f"{name:24} {len(own):4} cases  {worse:4} worse than a baseline  {silent:4} silently  {errors:3} errors")
    for row in sorted((row for row in rows if row["silent"]), key=lambda row: -row["excess"]):
        print(
            f"{row['world']} {row['seed']} ({row['change']}): {row['score']:.3f}, "
            f"a baseline {row['score'] + row['excess']:.3f}"
        )


if __name__ == "__main__":
    main()
