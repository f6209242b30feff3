"""Recordings in sessions: what latents from pairs of neighbouring time steps predict, on sessions that no fit has seen.

Run ``python benchmarks/sessions.py`` (all cores; some three minutes a seed on one), or in parts, as in `_parts`.

*walks*, seeds 0 to 4: an animal walks through a box; sixty cells fire as Poisson processes, each around its own place,
with gains that differ between sessions. `Contrast(2, space=Reals())` is fitted to ten sessions of 300 time steps, with
the next step of a session as the positive. Ten other sessions are scored: the nats of information between positives,
and R² of the place by a linear probe. *muscles*, seeds 0 to 2: electromyograms of four sessions (geomstats' wheel has
them) in windows of 125 samples, with the next window of a movement as the positive. A third of the repetitions is held
out, and the gesture is predicted from three latents (balanced accuracy). *Within sessions*: negatives are from the same
session. For comparison there are principal components, as many as latents and as many as predict best, and all
features. *Best stopping time* is the best of fits that hold nothing out and take 50 to 3,200 steps, chosen on the test
samples, which a user does not have. *Printed* is the score on new samples that the fit predicts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from _measure import save
from _parts import asked, runs, spans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Contrast, Data
from pindown.data.labels import combined
from pindown.networks.spaces import Reals
from pindown.training import Trainer

N_SESSIONS, N_MOMENTS, N_CELLS = 10, 300, 60
STEPS = (50, 100, 200, 400, 800, 1_600, 3_200)
COMPONENTS = (2, 3, 5, 8, 10, 20)


class Sessions(NamedTuple):
    """Samples in order, the block that each belongs to, its session, and what latents are to predict."""

    X: np.ndarray
    stretch: np.ndarray
    session: np.ndarray
    truth: np.ndarray

    @property
    def data(self) -> Data:
        """Samples whose positive is the next one of their block."""
        return Data(self.X, pairs="next", groups=self.stretch).paired()


def walks(seed: int) -> tuple[Sessions, Sessions]:
    """Return sessions to fit, and others of the same cells."""
    rng = np.random.default_rng(seed)
    centre, width = rng.uniform(-1, 1, (N_CELLS, 2)), rng.uniform(0.3, 0.6, N_CELLS)
    peak = rng.uniform(2, 8, N_CELLS)

    def some() -> Sessions:
        place = np.stack([_walk(rng) for _ in range(N_SESSIONS)])  # (sessions, moments, 2)
        gain = np.exp(0.2 * rng.normal(size=(N_SESSIONS, 1, N_CELLS)))
        rate = 0.2 + gain * peak * np.exp(-((place[:, :, None] - centre) ** 2).sum(-1) / (2 * width**2))
        session = np.repeat(np.arange(N_SESSIONS), N_MOMENTS)
        return Sessions(np.sqrt(rng.poisson(rate)).reshape(-1, N_CELLS), session, session, place.reshape(-1, 2))

    return some(), some()


def _walk(rng: np.random.Generator) -> np.ndarray:
    """Walk through a box, and turn at its walls; (steps, 2)."""
    place, speed = np.zeros((N_MOMENTS, 2)), np.zeros(2)
    place[0] = rng.uniform(-1, 1, 2)
    for t in range(1, N_MOMENTS):
        speed = 0.9 * speed + 0.05 * rng.normal(size=2)
        there = place[t - 1] + speed
        speed[np.abs(there) > 1] *= -1
        place[t] = there.clip(-1, 1)
    return place


def muscles(seed: int) -> tuple[Sessions, Sessions]:
    """Return windows of four repetitions, and of two others."""
    from emg import held_out, read_windows

    windows = read_windows()
    stretch = combined(windows.session, windows.repetition, windows.gesture)
    test = held_out(windows, "repetitions", seed)
    parts = (windows.X, stretch, windows.session, windows.gesture)
    return Sessions(*(part[~test] for part in parts)), Sessions(*(part[test] for part in parts))


def place_read(fitted: np.ndarray, place: np.ndarray, codes: np.ndarray, true: np.ndarray) -> float:
    """Return R² of the place, predicted by a linear probe trained on the fitted samples."""
    return float(make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(fitted, place).score(codes, true))


def gesture_read(fitted: np.ndarray, gesture: np.ndarray, codes: np.ndarray, true: np.ndarray) -> float:
    """Return the balanced accuracy of a linear probe of the gesture, trained on the fitted samples."""
    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)).fit(fitted, gesture)
    return float(balanced_accuracy_score(true, reader.predict(codes)))


class World(NamedTuple):
    """The source of the samples, the number of latents, their probe, and the seeds that are reported."""

    name: str
    draw: Callable[[int], tuple[Sessions, Sessions]]
    n_codes: int
    read: Callable[..., float]
    report: range


WORLDS = (World("walks", walks, 2, place_read, range(5)), World("muscles", muscles, 3, gesture_read, range(3)))


def measured(number: int, seed: int) -> list[dict[str, Any]]:
    """Return the scores of one simulation."""
    warnings.simplefilter("ignore")
    world = WORLDS[number]
    train, test = world.draw(seed)
    others = test.data

    def fitted(data: Data = train.data, **options: Any) -> Contrast:
        return Contrast(world.n_codes, space=Reals(), verbose=False, random_state=seed, **options).fit(data)

    def read(encode: Callable[[np.ndarray], np.ndarray]) -> float:
        return world.read(encode(train.X), train.truth, encode(test.X), test.truth)

    start = time.perf_counter()
    fit = fitted()
    seconds = time.perf_counter() - start
    stopped = [fitted(trainer=Trainer(validation_fraction=0), max_iter=n) for n in STEPS]
    nats = [each.score(others.X, others.pairs) for each in stopped]
    best = int(np.argmax(nats))
    within = fitted(Data(train.X, pairs="next", groups=train.stretch, nuisance=train.session).paired())
    scaled = StandardScaler().fit(train.X)
    of_components = {}
    for k in COMPONENTS:
        if k <= train.X.shape[1]:
            of_components[k] = read(make_pipeline(scaled, PCA(k)).fit(train.X).transform)
    assert fit.held_out_ is not None
    return [
        {
            "world": world.name,
            "seed": seed,
            "rows": len(train.X),
            "nats": fit.score(others.X, others.pairs),
            "best_nats": nats[best],
            "last_nats": nats[-1],
            "printed": fit.held_out_.score,
            "read": read(fit.transform),
            "read_within": read(within.transform),
            "read_best_stopping": read(stopped[best].transform),
            "read_pca": of_components[world.n_codes],
            "read_best_pca": max(of_components.values()),
            "read_columns": read(scaled.transform),
            "seconds": seconds,
            "steps": fit.n_iter_,
            "best_steps": STEPS[best],
        }
    ]


def means(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each simulation: means over seeds, and the most nats that a fit missed."""
    rows = []
    for name in dict.fromkeys(run["world"] for run in found):
        own = [run for run in found if run["world"] == name]
        scores = [key for key, value in own[0].items() if isinstance(value, float)]
        about = {"mean_of": name, "seeds": spans(run["seed"] for run in own)}
        missed = max(run["best_nats"] - run["nats"] for run in own)
        rows.append(about | {key: float(np.mean([run[key] for run in own])) for key in scores} | {"missed": missed})
    return rows


def main() -> None:
    wanted = asked(__doc__)
    cases = [(number, world) for number, world in enumerate(WORLDS) if wanted.only in world.name]
    jobs = [(n, seed) for n, world in cases for seed in (range(*wanted.seeds) if wanted.seeds else world.report)]
    found = sorted(runs(measured, jobs, wanted), key=lambda run: (run["world"], run["seed"]))
    if wanted.to is None:
        save("sessions_runs", found)
        save("sessions", means(found))


if __name__ == "__main__":
    main()
