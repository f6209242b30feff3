"""Real expression with a nuisance: blood cells in phases of their cycle, and bladder samples in batches.

Run ``python benchmarks/cells.py CELLS.h5ad SAMPLES.npz``, or one of both, with ``--seeds 20 22`` for fewer. The cells
are ``scanpy/datasets/10x_pbmc68k_reduced.h5ad`` of the package scanpy (700 × 765; 501, 182, 17 cells in three phases,
ten types): the phase is removed, the type must be kept. The samples are ``bladderbatch`` of Bioconductor (57 × 22,283,
five batches, three states), as arrays ``X``, ``batch``, ``cancer``: batch and state are confounded, and a fit must say
so. The selection rules and the shrinkage of estimates were changed after results on the cells were known (seeds 0 to 10
and from 100 on), so the cells are no independent test of them; nothing was chosen on the samples. Quote seeds 20 to 27,
which are other halves of the same samples. Each fit sees half of the samples; results are means over seeds. They are
saved in results/, next to those of the other study.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from _measure import save
from pindown_papers.erasers import PerValueStandardiser
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Forget
from pindown.data.labels import as_numbers
from pindown.metrics import confounding

RECORD = Path(__file__).parent / "results" / "cells_cpu.json"
COMPONENTS = (5, 10, 20)

Study = tuple[str, np.ndarray, np.ndarray, np.ndarray]


def studies(paths: list[str]) -> Iterator[Study]:
    """Yield name, observations, nuisance and label of each study."""
    for path in map(Path, paths):
        if path.suffix == ".h5ad":
            import anndata

            cells = anndata.read_h5ad(path)
            phase, kind = (np.asarray(cells.obs[name], dtype=str) for name in ("phase", "bulk_labels"))
            yield "blood cells: phase", np.asarray(cells.X, dtype=np.float64), phase, kind
        else:
            found = np.load(path)
            yield "bladder: batch", found["X"].astype(np.float64), found["batch"].astype(str), found["cancer"]


def codes(
    X: np.ndarray, e: np.ndarray, label: np.ndarray, fit: np.ndarray, seed: int
) -> Iterator[tuple[str, Any, dict]]:
    """Yield latents of all samples by each method, fitted to some of them, and details of the fit."""
    scaled = StandardScaler().fit(X[fit]).transform(X)
    yield "expression", X, {}
    own = PerValueStandardiser().fit(X[fit], e[fit])
    standard = own.transform(X, e)
    yield "z-score per value", standard, {}
    for k in COMPONENTS:
        yield f"PCA-{k}", PCA(k, random_state=0).fit(scaled[fit]).transform(scaled), {}
        yield f"z-score per value, PCA-{k}", PCA(k, random_state=0).fit(standard[fit]).transform(standard), {}
    for name, given in (("Forget", None), ("Forget, given the label", label[fit])):
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            forget = Forget(verbose=False, random_state=seed).fit(X[fit], e[fit], given=given)
        how = {"seconds": time.perf_counter() - start, "codes": forget.n_components_, "kept": str(forget.batch_maps_)}
        yield name, forget.transform(X, e), how | {"warned": [str(w.message) for w in caught]}


def read(code: np.ndarray, label: np.ndarray, fit: np.ndarray) -> float:
    """Return the score of a linear probe of a label, trained on the fitted samples, on the others."""
    reader = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1_000, class_weight="balanced"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label that is rare among the others
        return balanced_accuracy_score(label[~fit], reader.fit(code[fit], label[fit]).predict(code[~fit]))


def told(code: np.ndarray, e: np.ndarray, fit: np.ndarray, seed: int) -> float:
    """Return the mean score of probes of the nuisance over five splits of the samples that were not fitted."""
    left, scores = np.flatnonzero(~fit), []
    for some, others in StratifiedShuffleSplit(5, test_size=0.5, random_state=seed).split(left, e[left]):
        among = np.zeros(len(e), dtype=bool)
        among[left[some]] = True
        rows = np.r_[left[some], left[others]]
        scores.append(read(code[rows], e[rows], among[rows]))
    return float(np.mean(scores))


def on_record(new: set[str]) -> list[dict[str, Any]]:
    """Return the records of studies that were not run now."""
    saved = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.exists() else []
    return [row for row in saved if row["study"] not in new]


def main(paths: list[str], seeds: range) -> None:
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for study, X, e, label in studies(paths):
        print(study, confounding(as_numbers(label), as_numbers(e)))
        for seed in seeds:
            fit = np.zeros(len(X), dtype=bool)
            fit[next(StratifiedShuffleSplit(1, train_size=1 / 2, random_state=seed).split(X, e))[0]] = True
            for method, code, how in codes(X, e, label, fit, seed):
                scores = {"nuisance": told(code, e, fit, seed), "label": read(code, label, fit)}
                runs.append({"study": study, "seed": seed, "method": method} | scores | how)
                print(runs[-1], flush=True)
    means = pd.DataFrame(runs).groupby(["study", "method"], sort=False)[["nuisance", "label"]].mean().reset_index()
    over = {"mean over seeds": f"{seeds.start}–{seeds.stop - 1}"}
    save("cells", [*runs, *(over | row for row in means.to_dict(orient="records")), *on_record(set(means["study"]))])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+", metavar="FILE")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "STOP"), default=(20, 28))
    asked = parser.parse_args()
    main(asked.paths, range(*asked.seeds))
