"""Studies of the league: ``python studies.py NAME SEED DATA_FOLDER OUT.npz`` writes one of them.

Of a real study, a seed takes nine tenths of the samples; of a simulation it draws another one. OUT has the features
``x``, ``batch``, ``kind`` (−1: unknown), principal components ``pcs``, ``seed``, and ``counts`` of simulated cells.
"""

from __future__ import annotations

import gzip
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers import centred, components, z_scored
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier


class Study(NamedTuple):
    """Samples, the level of their batch, their type (−1: unknown), and raw counts if there are."""

    x: np.ndarray
    batch: np.ndarray
    kind: np.ndarray
    counts: np.ndarray | None = None


GITHUB = "https://raw.githubusercontent.com"
DEBIAN = "https://deb.debian.org/debian/pool/main/r/r-bioc-bladderbatch/r-bioc-bladderbatch_1.36.0-1_all.deb"
FILES = {
    "pbmc_3500_pcs.tsv.gz": f"{GITHUB}/slowkow/harmonypy/4d2b63f52216/data/pbmc_3500_pcs.tsv.gz",
    "pbmc_3500_meta.tsv.gz": f"{GITHUB}/slowkow/harmonypy/4d2b63f52216/data/pbmc_3500_meta.tsv.gz",
    "cell_lines.rda": f"{GITHUB}/immunogenomics/harmony/df19af23ae06/data/cell_lines.rda",
    "pbmcs_exprs_small.rda": f"{GITHUB}/immunogenomics/symphony/bf7aaf9a2919/data/pbmcs_exprs_small.rda",
    "pbmcs_meta_small.rda": f"{GITHUB}/immunogenomics/symphony/bf7aaf9a2919/data/pbmcs_meta_small.rda",
    "AD_data.rda": f"{GITHUB}/EvaYiwenWang/PLSDAbatch/24f8f48ba77c/data/AD_data.rda",
    "MTBLS79.rda": f"{GITHUB}/computational-metabolomics/pmp/0e59c646626f/data/MTBLS79.rda",
    "bladderdata.rda": DEBIAN,  # usr/lib/R/site-library/bladderbatch/data/bladderdata.rda in it
}
"""The files of the real studies, and where they come from."""


def blood_cells(folder: Path) -> Study:
    """Read blood cells of three donors, by principal components; types are those on which three rules agree."""
    with gzip.open(folder / "pbmc_3500_pcs.tsv.gz", "rt") as file:
        x = np.loadtxt(file, skiprows=1)
    with gzip.open(folder / "pbmc_3500_meta.tsv.gz", "rt") as file:
        donors = [line.split("\t")[0] for line in file.read().splitlines()[1:]]
    batch = np.unique(donors, return_inverse=True)[1]
    own = batch == np.bincount(batch).argmax()
    kind = KMeans(9, n_init=5, random_state=0).fit_predict(x[own])
    scaled, middle = z_scored(x, batch), centred(x, batch)
    guesses = [
        LogisticRegression(max_iter=300).fit(scaled[own], kind).predict(scaled),
        *(KNeighborsClassifier(15).fit(part[own], kind).predict(part) for part in (middle, x)),
    ]
    agreed = np.where((guesses[0] == guesses[1]) & (guesses[1] == guesses[2]), guesses[0], -1)
    agreed[own] = kind
    return Study(x, batch, agreed)


def cell_lines(folder: Path) -> Study:
    """Read two cell lines in three datasets, two of which have one line each, by principal components."""
    found = _r(folder / "cell_lines.rda")["cell_lines"]
    about = found["meta_data"]
    return Study(np.asarray(found["scaled_pcs"], dtype=float), _levels(about["dataset"]), _levels(about["cell_type"]))


def technologies(folder: Path) -> Study:
    """Read blood cells measured by three technologies, log-normalised."""
    about = _r(folder / "pbmcs_meta_small.rda")["pbmcs_meta_small"]
    matrix = _r(folder / "pbmcs_exprs_small.rda")["pbmcs_exprs_small"]
    from scipy.sparse import csc_matrix

    x = csc_matrix((matrix.x, matrix.i, matrix.p), shape=tuple(matrix.Dim)).toarray().T
    return Study(x, _levels(about["donor"]), _levels(about["cell_type"]))


def cell_cycle(folder: Path) -> Study:
    """Read blood cells whose phase of the cell cycle is to be removed; cycling cells are not of all types."""
    import scanpy

    cells = scanpy.datasets.pbmc68k_reduced()
    return Study(np.asarray(cells.X, dtype=float), _levels(cells.obs["phase"]), _levels(cells.obs["bulk_labels"]))


def bladder(folder: Path) -> Study:
    """Read gene expression of bladder tissue by microarrays in five batches, which are unequal in cancer."""
    found = _r(folder / "bladderdata.rda")["bladderEset"]
    about, exprs = found.phenoData.data, found.assayData["exprs"]
    return Study(np.asarray(exprs, dtype=float).T, _levels(about["batch"]), _levels(about["cancer"]))


def metabolites(folder: Path) -> Study:
    """Read metabolites of cow and sheep serum and of pooled controls in eight batches."""
    found = _r(folder / "MTBLS79.rda")["MTBLS79"]
    x = np.asarray(found.assays.data.listData[0], dtype=float).T
    x = x[:, np.isnan(x).mean(0) < 0.2]
    x = np.log(np.where(np.isnan(x), np.nanmedian(x, axis=0), x))
    about = found.colData.listData
    return Study(x, _levels(about["Batch"]), _levels(about["Class"]))


def digesters(folder: Path) -> Study:
    """Read microbes in anaerobic digesters on five dates under two treatments, by centred log-ratios."""
    found = _r(folder / "AD_data.rda")["AD_data"]["EgData"]
    about = found.rowRanges.elementMetadata.listData
    x = np.asarray(found.assays.data.listData["Clr_value"], dtype=float)
    return Study(x, _levels(about["Y.bat"]), _levels(about["Y.trt"]))


def sessions(folder: Path) -> Study:
    """Read muscle activity in four sessions: gestures by the log spread of eight channels in half a second."""
    import importlib.util

    import pandas as pd

    package = importlib.util.find_spec("geomstats")
    assert package is not None
    assert package.origin is not None
    samples = pd.read_csv(Path(package.origin).parent / "datasets" / "data" / "emg" / "emg.csv")
    begins = (samples[["label", "exp"]] != samples[["label", "exp"]].shift()).any(axis=1)
    recording = begins.cumsum().rename("recording")
    cut = samples.groupby([recording, (samples.groupby(recording).cumcount() // 125).rename("window")])
    whole = cut.size() == 125
    x = np.log(cut[[f"c{i}" for i in range(8)]].std() + 0.5)[whole].to_numpy()
    first = cut[["label", "exp"]].first()[whole]
    return Study(x, _levels(first["exp"]), _levels(first["label"]))


def protocols(seed: int, composition: str) -> Study:
    """Draw counts of ten types of cells by two protocols; the second may lack three types."""
    rng, n, genes, kinds = np.random.default_rng(seed), 2_000, 1_000, 10
    base = rng.normal(-1.0, 1.2, genes)
    programme = rng.normal(0, 0.7, (kinds, genes)) * (rng.random((kinds, genes)) < 0.08)
    batch, weights = rng.integers(2, size=n), rng.dirichlet(np.full(kinds, 2.0), 2)
    if composition == "equal":
        weights[1] = weights[0]
    if composition == "missing":
        weights[1, :3] = 0
        weights /= weights.sum(1, keepdims=True)
    kind = np.array([rng.choice(kinds, p=weights[e]) for e in batch])
    graded = rng.normal(0, 1, (n, 3)) @ (rng.normal(0, 0.3, (3, genes)) * (rng.random((3, genes)) < 0.1))
    protocol = np.stack([np.zeros(genes), rng.normal(0, 0.6, genes)])
    of_type = rng.normal(0, 0.2, (2, kinds, genes))
    size = np.exp(rng.normal([6.8, 7.3], 0.3, (n, 2)))[np.arange(n), batch]
    mean = np.exp(base + programme[kind] + graded + protocol[batch] + of_type[batch, kind])
    mean *= size[:, None] / mean.sum(1, keepdims=True)
    dispersion = np.array([0.3, 0.6])[batch][:, None]
    counts = rng.poisson(mean * rng.gamma(1 / dispersion, dispersion, mean.shape))
    x = np.log1p(counts / np.maximum(counts.sum(1, keepdims=True), 1) * 1e4)
    return Study(x, batch, kind, counts)


def sites(seed: int) -> Study:
    """Shift and scale the features of scikit-learn's breast cancers by three sites of equal composition."""
    found = datasets.load_breast_cancer()
    rng, x = np.random.default_rng(seed), (found.data - found.data.mean(0)) / found.data.std(0)
    batch = rng.integers(3, size=len(x))
    x = x * np.exp(rng.normal(0, 0.4, (3, x.shape[1])))[batch] + rng.normal(0, 1.0, (3, x.shape[1]))[batch]
    return Study(x, batch, found.target)


def shuffled(seed: int) -> Study:
    """Give scikit-learn's digits three batches at random, which have no effect."""
    found = datasets.load_digits()
    x = found.data[:, found.data.std(0) > 0]
    return Study((x - x.mean(0)) / x.std(0), np.random.default_rng(seed).integers(3, size=len(x)), found.target)


def _r(path: Path) -> Any:
    """Return what a file of R holds."""
    import rdata

    return rdata.conversion.convert(rdata.parser.parse_file(path))


def _levels(values: Any) -> np.ndarray:
    return np.unique(np.asarray(values).astype(str), return_inverse=True)[1].reshape(-1)


REAL: dict[str, Callable[[Path], Study]] = {
    "blood, three donors": blood_cells,
    "blood, three technologies": technologies,
    "blood, phases of the cell cycle": cell_cycle,
    "cell lines, three datasets": cell_lines,
    "bladder, five batches of arrays": bladder,
    "metabolites, eight batches": metabolites,
    "digesters, five dates": digesters,
    "gestures, four sessions": sessions,
}
SIMULATED: dict[str, Callable[[int], Study]] = {
    "counts, equal composition": partial(protocols, composition="equal"),
    "counts, unequal composition": partial(protocols, composition="unequal"),
    "counts, types missing": partial(protocols, composition="missing"),
    "breast cancer, three simulated sites": sites,
    "digits, batches without effect": shuffled,
}
NAMES = (*REAL, *SIMULATED)


def main(name: str, seed: str, folder: str, target: str) -> None:
    """Write a study."""
    warnings.simplefilter("ignore")
    number = int(seed)
    if name in SIMULATED:
        study = SIMULATED[name](number)
    else:
        whole = REAL[name](Path(folder))
        some = np.sort(np.random.default_rng(number).permutation(len(whole.x))[: len(whole.x) * 9 // 10])
        x = whole.x[some]
        study = Study(x[:, x.std(0) > 0], _levels(whole.batch[some]), whole.kind[some])
    counts = {} if study.counts is None else {"counts": study.counts}
    pcs = components(study.x)
    np.savez_compressed(target, x=study.x, batch=study.batch, kind=study.kind, pcs=pcs, seed=number, **counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
