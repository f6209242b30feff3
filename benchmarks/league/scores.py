"""Scores of embeddings: ``python scores.py STUDY.npz EMBEDDING.npz … -- STUDY.npz …`` prints a line of JSON for each.

*batch*, *bio* and *total* (.4 batch + .6 bio) are those of scib-metrics with clusters by k-means, without rescaling.
*b-in-type*: how well the best of three classifiers recognises the batch within a type, held out; 0 is chance, 1 is
certain. *type*: balanced accuracy of a linear classifier, cross-validated. *carried*: balanced accuracy of nearest
neighbours of one batch for the types of the others. Samples of unknown type are left out.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

MIN_CELL = 15
"""Samples of a batch within a type from which it is recognised."""

MOST = 1_000
"""Samples that are scored; of more a random part, the same for all methods."""

BIO = ("isolated labels", "NMI", "ARI", "silhouette", "cLISI")
BATCH = ("BRAS", "iLISI", "kBET", "graph connectivity", "PCR")


def scib(x: np.ndarray, z: np.ndarray, batch: np.ndarray, kind: np.ndarray) -> dict[str, float | None]:
    """Return the scores of scib-metrics; one that cannot be computed is left out of the means."""
    import scib_metrics as scib
    from scib_metrics import nearest_neighbors

    def exact(z: np.ndarray, n_neighbors: int, random_state: int = 0, n_jobs: int = 1) -> Any:
        distances, indices = NearestNeighbors(n_neighbors=n_neighbors).fit(z).kneighbors(z)
        return nearest_neighbors.NeighborsResults(indices=indices, distances=distances)

    nearest_neighbors.pynndescent = exact  # which kBET calls; its approximation takes half a minute to compile
    near = exact(z, min(90, len(z) // 3))
    clusters: dict[str, float] = {}

    def clustered(name: str) -> float:
        if not clusters:
            clusters.update(scib.nmi_ari_cluster_labels_kmeans(z, kind))
        return clusters[name]

    functions: dict[str, Callable[[], float]] = {
        "isolated labels": lambda: scib.isolated_labels(z, kind, batch),
        "NMI": lambda: clustered("nmi"),
        "ARI": lambda: clustered("ari"),
        "silhouette": lambda: scib.silhouette_label(z, kind),
        "cLISI": lambda: scib.clisi_knn(near, kind),
        "BRAS": lambda: scib.bras(z, kind, batch),
        "iLISI": lambda: scib.ilisi_knn(near, batch),
        "kBET": lambda: scib.kbet_per_label(near, batch, kind),
        "graph connectivity": lambda: scib.graph_connectivity(near, kind),
        "PCR": lambda: scib.pcr_comparison(x, z, batch, categorical=True),
    }
    found: dict[str, float | None] = {}
    for name, function in functions.items():
        try:
            value = float(function())
            found[name] = value if np.isfinite(value) else None
        except (ValueError, IndexError, ZeroDivisionError, TypeError):
            found[name] = None
    for name, parts in (("batch", BATCH), ("bio", BIO)):
        found[name] = float(np.mean([value for part in parts if (value := found[part]) is not None]))
    found["total"] = 0.4 * found["batch"] + 0.6 * found["bio"]  # type: ignore[operator]
    return found


def batch_within_types(z: np.ndarray, batch: np.ndarray, kind: np.ndarray) -> float | None:
    """Return how well the best of three classifiers recognises the batch within types, beyond chance."""
    excess, sizes, folds = [], [], StratifiedKFold(3, shuffle=True, random_state=0)
    for k in np.unique(kind):
        own = np.flatnonzero(kind == k)
        own = own[np.isin(batch[own], np.flatnonzero(np.bincount(batch[own]) >= MIN_CELL))]
        levels, number = np.unique(batch[own], return_inverse=True)
        if len(levels) < 2:
            continue
        part, few = StandardScaler().fit_transform(z[own]), min(8, z.shape[1], int(np.bincount(number).min()) // 2)
        quadratic = QuadraticDiscriminantAnalysis(reg_param=0.1, priors=np.full(len(levels), 1 / len(levels)))
        probes = (
            LogisticRegression(C=0.1, max_iter=200, class_weight="balanced"),
            make_pipeline(PCA(few), quadratic),
            KNeighborsClassifier(15),
        )
        found = max(balanced_accuracy_score(number, cross_val_predict(p, part, number, cv=folds)) for p in probes)
        excess.append((found - 1 / len(levels)) / (1 - 1 / len(levels)))
        sizes.append(len(own))
    return float(np.average(excess, weights=sizes)) if sizes else None


def types(z: np.ndarray, batch: np.ndarray, kind: np.ndarray) -> dict[str, float | None]:
    """Return how well types are recognised, and how well one batch shows the types of the others."""
    common = np.isin(kind, np.flatnonzero(np.bincount(kind) >= 6))
    part, known, site = z[common], kind[common], batch[common]
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    guessed = cross_val_predict(linear, part, known, cv=StratifiedKFold(3, shuffle=True, random_state=0))
    carried = []
    for e in np.unique(site):
        own = site == e
        shared = np.flatnonzero(np.bincount(known[own], minlength=known.max() + 1) >= 5)
        others = ~own & np.isin(known, shared)
        if len(shared) > 1 and others.any():
            near = KNeighborsClassifier(min(15, int(own.sum()) // 4)).fit(part[own], known[own])
            carried.append(balanced_accuracy_score(known[others], near.predict(part[others])))
    return {
        "type": float(balanced_accuracy_score(known, guessed)),
        "carried": float(np.mean(carried)) if carried else None,
    }


def score(study: str, embeddings: Sequence[str]) -> None:
    """Print the scores of embeddings of a study."""
    with np.load(study) as file:
        data = dict(file)
    known = np.flatnonzero(data["kind"] >= 0)
    known = np.sort(np.random.default_rng(int(data["seed"])).permutation(known)[:MOST])
    batch, kind = data["batch"][known], np.unique(data["kind"][known], return_inverse=True)[1]
    for path in embeddings:
        with np.load(path) as file:
            z = np.ascontiguousarray(file["z"][known])
        found = {**scib(data["pcs"][known], z, batch, kind), "b-in-type": batch_within_types(z, batch, kind)}
        print(json.dumps({**found, **types(z, batch, kind)}), flush=True)


def main(*words: str) -> None:
    """Print the scores of embeddings of several studies."""
    warnings.simplefilter("ignore")
    left = [*words, "--"]
    while left:
        end = left.index("--")
        score(left[0], left[1:end])
        left = left[end + 1 :]


if __name__ == "__main__":
    main(*sys.argv[1:])
