"""`Classify` with its defaults on held-out samples of real tables, compared with logistic and ridge regression.

Run ``python benchmarks/real_tables.py`` (all cores; about ten seconds a split on one), or in parts, as in `_parts`. The
tables are scikit-learn's wine, breast cancer, digits and diabetes; 30 % of the samples are held out, five times, by
seeds 0 to 4. Defaults were chosen on splits from 100 on. The baseline is logistic regression on standardised features,
with a penalty chosen by five-fold cross-validation. The target of diabetes is a quantity. `Classify` learns from its
quintiles; a linear map from the latent to the target, fitted to the same samples, is compared with ridge regression by
R². *Said* is the score on new samples that the fit predicts. *Codes in other units* is the number of latents after
features are rescaled by factors of up to a million.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from _measure import save
from _parts import asked, runs, spans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import LinearRegression, LogisticRegressionCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Classify, Data

TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits, "diabetes": load_diabetes}
REPORT = range(5)
N_BINS = 5
PENALTIES = np.logspace(-4, 4, 17)


def measured(number: int, seed: int) -> list[dict[str, Any]]:
    """Return the scores on one split of one table."""
    warnings.simplefilter("ignore")
    name, load = list(TABLES.items())[number]
    X, y = load(return_X_y=True)
    is_class = name != "diabetes"
    split = train_test_split(X, y, test_size=0.3, stratify=y if is_class else None, random_state=seed)
    found = classes(*split, seed) if is_class else quantity(*split, seed)
    return [{"world": name, "seed": seed, "rows": len(split[0]), "columns": X.shape[1], **found}]


def classes(train: np.ndarray, test: np.ndarray, y: np.ndarray, y_test: np.ndarray, seed: int) -> dict[str, Any]:
    """Compare accuracies."""
    plain = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=1 / PENALTIES, cv=5, max_iter=5_000)).fit(train, y)
    fit, about = fitted(train, y, seed)
    return {"score": fit.score(test, y_test), "plain": float(plain.score(test, y_test)), **about}


def quantity(train: np.ndarray, test: np.ndarray, y: np.ndarray, y_test: np.ndarray, seed: int) -> dict[str, Any]:
    """Compare R² of a quantity; the fit has seen its quintiles."""
    plain = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(train, y)
    fifths = np.searchsorted(np.quantile(y, np.arange(1, N_BINS) / N_BINS), y)
    fit, about = fitted(train, fifths, seed)
    line = LinearRegression().fit(fit.transform(train), y)
    return {"score": float(line.score(fit.transform(test), y_test)), "plain": float(plain.score(test, y_test)), **about}


def fitted(train: np.ndarray, y: np.ndarray, seed: int) -> tuple[Classify, dict[str, Any]]:
    """Return a fit with all defaults, and the score that it predicts."""
    start = time.perf_counter()
    fit = Classify(verbose=False, random_state=seed).fit(train, y)
    seconds = time.perf_counter() - start
    units = 10 ** np.random.default_rng(seed).uniform(-3, 3, train.shape[1])
    assert fit.held_out_ is not None
    about = {
        "said": fit.held_out_.score,
        "codes": fit.n_components_,
        "codes_other_units": Classify(random_state=seed).prepare(Data(train * units, signal=y)).summary.n_components,
        "straight": fit.held_out_.linear,
        "steps": fit.n_iter_,
        "seconds": seconds,
    }
    return fit, about


def means(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each table: means over splits, and the error of the mean difference."""
    rows = []
    for name in TABLES:
        own = [run for run in found if run["world"] == name]
        if not own:
            continue
        values = {
            key: np.array([run[key] for run in own], dtype=float) for key in ("score", "plain", "said", "seconds")
        }
        difference = values["score"] - values["plain"]
        rows.append(
            {
                "table": name,
                "splits": spans(run["seed"] for run in own),
                "rows": own[0]["rows"],
                "columns": own[0]["columns"],
                "codes": ", ".join(str(n) for n in sorted({run["codes"] for run in own})),
                "codes_other_units": ", ".join(str(n) for n in sorted({run["codes_other_units"] for run in own})),
                "differ": sum(run["codes"] != run["codes_other_units"] for run in own),
                "score": float(values["score"].mean()),
                "plain": float(values["plain"].mean()),
                "difference": float(difference.mean()),
                "error": float(difference.std(ddof=1) / np.sqrt(len(own))) if len(own) > 1 else None,
                "said": float(values["said"].mean()) if name != "diabetes" else None,
                "seconds": float(values["seconds"].mean()),
            }
        )
    return rows


def main() -> None:
    wanted = asked(__doc__)
    seeds = range(*wanted.seeds) if wanted.seeds else REPORT
    jobs = [(number, seed) for number, name in enumerate(TABLES) if wanted.only in name for seed in seeds]
    found = runs(measured, jobs, wanted)
    if wanted.to is None:
        save("real_tables_runs", sorted(found, key=lambda run: (run["world"], run["seed"])))
        save("real_tables", means(found))


if __name__ == "__main__":
    main()
