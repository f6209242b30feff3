"""Sessions removed from EMG recordings: how well probes still predict the session, and the gesture, for each method.

Run ``python benchmarks/emg.py`` (all cores, about twelve minutes on one; the recordings come with geomstats: ``pip
install "pindown[examples]"``), or in parts, as in `_parts`. Settings were chosen on seeds 0 and 1, and from 10 on;
quote seeds 2 to 6. Saved in results/, and written to docs/results/batch-effects.md.

There are two kinds of held-out windows. *windows*: a random third of the windows, so that methods and probes have seen
their neighbours in time. *repetitions*: two of six repetitions of all gestures, as a whole; probes are then trained on
one of the two and scored on the other.
"""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _measure import save
from _parts import asked, put_into, runs, spans
from pindown_papers.erasers import ComponentRemoval, Leace, PerValueStandardiser, Untouched
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Classify, Forget, networks
from pindown.errors import IdentifiabilityWarning
from pindown.methods.forget import LinearErasure
from pindown.metrics import PROBES, Effort, leakage
from pindown.training import Trainer

REPORT = 2, 7
KINDS = "windows", "repetitions"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "batch-effects.md"
WINDOW = 125
"""Samples in a window, about half a second."""

READERS = [probe for probe in PROBES if probe.name in ("linear", "boosting")]


class Windows(NamedTuple):
    """Log standard deviation of eight channels in each window, its gesture, session and repetition."""

    X: np.ndarray
    gesture: np.ndarray
    session: np.ndarray
    repetition: np.ndarray

    def of(self, rows: np.ndarray) -> Windows:
        """Return some of them."""
        return Windows(*(part[rows] for part in self))


@cache
def read_windows() -> Windows:
    package = importlib.util.find_spec("geomstats")  # importing it asks for an older numpy
    if package is None or package.origin is None:
        raise ImportError('The EMG recordings come with geomstats: pip install "pindown[examples]".')
    samples = pd.read_csv(Path(package.origin).parent / "datasets" / "data" / "emg" / "emg.csv")
    begins = (samples[["label", "exp"]] != samples[["label", "exp"]].shift()).any(axis=1)
    recording = begins.cumsum().rename("recording")
    window = (samples.groupby(recording).cumcount() // WINDOW).rename("window")
    cut = samples.assign(repetition=(recording - 1) // 5 % 6).groupby([recording, window])
    whole = cut.size() == WINDOW
    spread = np.log(cut[[f"c{i}" for i in range(8)]].std() + 0.5)[whole]  # samples are whole numbers: spreads may be 0
    first = cut[["label", "exp", "repetition"]].first()[whole]
    return Windows(spread.to_numpy(), *(first[name].to_numpy() for name in first))


def held_out(data: Windows, kind: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "windows":
        return rng.random(len(data.X)) < 1 / 3
    return np.isin(data.repetition, rng.permutation(6)[:2])


def codes(train: Windows, test: Windows, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return latents of training and of held-out windows by each method."""
    erasers = {
        "untouched": Untouched(),
        "components dropped": ComponentRemoval(),
        "means projected off": LinearErasure(),
    }
    if importlib.util.find_spec("concept_erasure") is not None:
        erasers["LEACE"] = Leace()
    made = {name: _both(eraser.fit(train.X, train.session), train.X, test.X) for name, eraser in erasers.items()}
    own = PerValueStandardiser().fit(train.X, train.session)
    standard = made["own mean and spread"] = tuple(own.transform(part.X, part.session) for part in (train, test))
    recorded = train.X, test.X
    for name, (fitted, scored), n_components in (
        ("Forget", standard, None),
        ("Forget, 8 codes", standard, 8),
        ("Forget, not standardised", recorded, None),
    ):
        forget = _forget(n_components, seed).fit(fitted, train.session, given=train.gesture)
        made[name] = _both(forget, fitted, scored)
    default = Forget(verbose=False, random_state=seed).fit(train.X, train.session, given=train.gesture)
    made["Forget, all defaults"] = tuple(default.transform(part.X, part.session) for part in (train, test))
    made["Forget, all defaults, session unknown"] = _both(default, *recorded)
    gestures = Classify(4, max_iter=400, verbose=False, random_state=seed).fit(standard[0], train.gesture)
    kept = made["Classify"] = _both(gestures, *standard)
    again = PerValueStandardiser().fit(kept[0], train.session)
    made["Classify, own mean and spread"] = tuple(
        again.transform(code, part.session) for code, part in zip(kept, (train, test), strict=True)
    )
    made["Classify, then Forget"] = _both(_forget(4, seed).fit(kept[0], train.session, given=train.gesture), *kept)
    return made


def _both(fitted: Any, *parts: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(fitted.transform(part) for part in parts)


def _forget(n_components: int | None, seed: int) -> Forget:
    return Forget(
        n_components,
        encoder=networks.skip_mlp,
        strength=0.5,
        max_iter=1_000,
        trainer=Trainer(validation_fraction=0),
        verbose=False,
        random_state=seed,
    )


def measured(number: int, seed: int) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore", IdentifiabilityWarning)  # no direction is blind: what leaks is what is measured
    data, kind = read_windows(), KINDS[number]
    out = held_out(data, kind, seed)
    train, test = data.of(~out), data.of(out)
    groups = np.char.add(test.session.astype(str), test.repetition.astype(str)) if kind == "repetitions" else None
    rows = []
    for name, (fitted, scored) in codes(train, test, seed).items():
        told = leakage(
            scored,
            test.session,
            groups=groups,
            probes=READERS,
            effort=Effort(n_seeds=1, n_permutations=19),
            random_state=seed,
        )
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        boosted = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, early_stopping=False, random_state=0)
        gesture = [reader.fit(fitted, train.gesture).score(scored, test.gesture) for reader in (linear, boosted)]
        session = [told.by_probe[reader.name].score for reader in READERS]
        rows.append(
            {"world": kind, "seed": seed, "condition": name}
            | {f"session, {probe.name}": score for probe, score in zip(READERS, session, strict=True)}
            | {"gesture, linear": gesture[0], "gesture, boosting": gesture[1]}
        )
    return rows


SHOWN = {
    "untouched": "recordings",
    "means projected off": "means projected off",
    "own mean and spread": "standardised per session",
    "Forget, all defaults": "`Forget` with all its defaults, told the session",
    "Forget, all defaults, session unknown": "the same, session unknown",
    "Forget, not standardised": "recordings, then `Forget`",
    "Forget": "standardised, then `Forget`",
    "Forget, 8 codes": "standardised, then `Forget` with 8 codes",
    "Classify": "standardised, then `Classify` by gesture",
    "Classify, then Forget": "the same, then `Forget`",
}
"""Methods in the tables of the page, with their names there; the others are in results/."""


def report(found: list[dict[str, Any]]) -> None:
    """Save runs and means, and write a table for each kind of held-out windows to the page."""
    scores = [name for name in found[0] if ", " in name]
    means = pd.DataFrame(found).groupby(["world", "condition"], sort=False)[scores].mean()
    over = {"mean over seeds": spans(run["seed"] for run in found)}
    records = means.reset_index().to_dict(orient="records")
    save("emg", [*found, *(over | {str(name): value for name, value in row.items()} for row in records)])
    columns = ["session, boosting", "gesture, linear", "gesture, boosting"]
    for kind in KINDS:
        lines = ["| codes | session, boosted trees | gesture, linear | gesture, boosted trees |", "|---|---|---|---|"]
        for method, called in SHOWN.items():
            if (kind, method) not in means.index:  # not run, where parts are of different ages
                continue
            numbers = (f"{means.loc[(kind, method), column]:.2f}" for column in columns)
            lines.append(f"| {called} | {' | '.join(numbers)} |")
        put_into(PAGE, "\n".join(lines), kind)


def main() -> None:
    wanted = asked(__doc__)
    kinds = [number for number, kind in enumerate(KINDS) if wanted.only in kind]
    jobs = [(number, seed) for number in kinds for seed in range(*wanted.seeds or REPORT)]
    found = sorted(runs(measured, jobs, wanted), key=lambda run: (KINDS.index(run["world"]), run["seed"]))
    if wanted.to is None:
        report(found)


if __name__ == "__main__":
    main()
