"""Disentanglement scores against reference implementations, on 10,000 samples of 10 latents and 6 factors.

Run ``python benchmarks/disentanglement.py`` (a few minutes on one core). The references are written plainly with
scikit-learn, as common implementations are: a boosted classifier per factor (DCI), a linear SVM per pair (SAP), one
batch at a time (BetaVAE, FactorVAE), a call of scikit-learn per pair (information), a Lasso per latent and pair of fits
(UDR). They compute the value alone. pindown also computes both chance levels, which is three times the work:
``speedup`` compares all of it, ``value_speedup`` a third of it. Seconds are CPU seconds.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _measure import save
from pindown_papers import scores as ours
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import mutual_info_classif
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.preprocessing import StandardScaler, label_binarize
from sklearn.svm import LinearSVC

SIZES = (10, 10, 10, 8, 4, 15)  # values of the factors of Shapes3D
N, BATCH = 10_000, 64
Matrix = Any


def data(seed: int) -> tuple[Matrix, Matrix]:
    """Return latents and factors: six noisy factors, two of them rotated into each other, and four mixtures."""
    rng = np.random.default_rng(seed)
    factors = np.stack([rng.integers(0, size, N) for size in SIZES], axis=1)
    known = (factors - factors.mean(axis=0)) / factors.std(axis=0)
    codes = known + 0.1 * rng.normal(size=known.shape)
    codes[:, :2] = codes[:, :2] @ np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    codes = np.concatenate([codes, known @ rng.normal(size=(6, 4)) / 2 + rng.normal(size=(N, 4))], axis=1)
    return codes / codes.std(axis=0), factors  # the reference's scores depend on scales, ours do not


def halves(z: Matrix, f: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    return z[: N // 2], f[: N // 2], z[N // 2 :], f[N // 2 :]


def cut(column: Matrix) -> Matrix:
    return np.digitize(column, np.histogram(column, 20)[1][:-1])


def pairwise_information(z: Matrix, f: Matrix) -> Matrix:
    return np.array([[mutual_info_score(f[:, j], cut(z[:, i])) for j in range(f.shape[1])] for i in range(z.shape[1])])


def mig(z: Matrix, f: Matrix) -> dict[str, float]:
    information = pairwise_information(z, f) / [mutual_info_score(column, column) for column in f.T]
    best = np.sort(information, axis=0)[::-1]
    return {"mig": float(np.mean(best[0] - best[1]))}


def modularity(z: Matrix, f: Matrix) -> dict[str, float]:
    squares = pairwise_information(z, f) ** 2
    most = squares.max(axis=1)
    return {"modularity": float(np.mean(1 - (squares.sum(axis=1) - most) / (most * (f.shape[1] - 1))))}


def explicitness(z: Matrix, f: Matrix) -> dict[str, float]:
    fit, known, test, asked = halves(z, f)
    areas = []
    for j in range(f.shape[1]):
        said = LogisticRegression().fit(fit, known[:, j]).predict_proba(test)
        areas.append(roc_auc_score(label_binarize(asked[:, j], classes=np.unique(known[:, j])), said))
    return {"explicitness": float(np.mean(areas))}


def sap(z: Matrix, f: Matrix) -> dict[str, float]:
    fit, known, test, asked = halves(z, f)
    found = np.zeros((z.shape[1], f.shape[1]))
    for i, j in itertools.product(*map(range, found.shape)):
        machine = LinearSVC(C=0.01, class_weight="balanced").fit(fit[:, [i]], known[:, j])
        found[i, j] = machine.score(test[:, [i]], asked[:, j])
    best = np.sort(found, axis=0)[::-1]
    return {"sap": float(np.mean(best[0] - best[1]))}


def dci(z: Matrix, f: Matrix) -> dict[str, float]:
    fit, known, test, asked = halves(z, f)
    boosters = [GradientBoostingClassifier(random_state=0).fit(fit, column) for column in known.T]
    importance = np.stack([booster.feature_importances_ for booster in boosters], axis=1)

    def concentration(rows: Matrix) -> Matrix:
        share = rows / rows.sum(axis=1, keepdims=True) + 1e-12
        return 1 + (share * np.log(share)).sum(axis=1) / np.log(rows.shape[1])

    weight = importance.sum(axis=1) / importance.sum()
    return {
        "dci disentanglement": float(np.sum(weight * concentration(importance))),
        "dci completeness": float(np.mean(concentration(importance.T))),
        "dci informativeness": float(np.mean([b.score(test, c) for b, c in zip(boosters, asked.T, strict=True)])),
    }


def irs(z: Matrix, f: Matrix) -> dict[str, float]:
    widest = np.abs(z - z.mean(axis=0)).max(axis=0)
    moves = np.zeros((z.shape[1], f.shape[1]))
    for j in range(f.shape[1]):
        values = np.unique(f[:, j])
        for value in values:
            rows = z[f[:, j] == value]
            moves[:, j] += np.percentile(np.abs(rows - rows.mean(axis=0)), 99, axis=0) / len(values)
    return {"irs": float(np.average(1 - (moves / widest[:, None]).min(axis=1), weights=widest))}


def infomec(z: Matrix, f: Matrix) -> dict[str, float]:
    information = np.stack([mutual_info_classif(z, column, n_neighbors=10, random_state=0) for column in f.T], axis=1)
    entropies = np.array([mutual_info_score(column, column) for column in f.T])
    shares = information / entropies
    fit, known, test, asked = halves(z, f)
    readers = []
    for j, entropy in enumerate(entropies):
        said = LogisticRegression().fit(fit, known[:, j]).predict_log_proba(test)
        readers.append(1 + said[np.arange(len(said)), asked[:, j]].mean() / entropy)

    def peaks(rows: Matrix) -> float:
        n = rows.shape[1]
        return float(np.mean((rows.max(axis=1) / rows.sum(axis=1) - 1 / n) / (1 - 1 / n)))

    names = ("infomec modularity", "infomec compactness", "infomec explicitness")
    return dict(zip(names, (peaks(shares), peaks(shares.T), float(np.mean(readers))), strict=True))


def beta_vae(z: Matrix, f: Matrix) -> dict[str, float]:
    rng, points, shared = np.random.default_rng(0), [], []
    groups = [[np.flatnonzero(column == value) for value in range(column.max() + 1)] for column in f.T]
    for _ in range(15_000):
        j = rng.integers(f.shape[1])
        one = rng.integers(len(z), size=BATCH)
        other = [rng.choice(groups[j][value]) for value in f[one, j]]
        points.append(np.abs(z[one] - z[other]).mean(axis=0))
        shared.append(j)
    model = LogisticRegression().fit(points[:10_000], shared[:10_000])
    return {"beta_vae": float(model.score(points[10_000:], shared[10_000:]))}


def factor_vae(z: Matrix, f: Matrix) -> dict[str, float]:
    rng, scale = np.random.default_rng(0), z.var(axis=0)
    groups = [[np.flatnonzero(column == value) for value in range(column.max() + 1)] for column in f.T]
    counts = np.zeros((2, z.shape[1], f.shape[1]))
    for batch in range(15_000):
        j = rng.integers(f.shape[1])
        rows = z[rng.choice(groups[j][rng.integers(len(groups[j]))], BATCH)]
        counts[int(batch >= 10_000), (rows.var(axis=0) / scale).argmin(), j] += 1
    majority = counts[0].argmax(axis=1)
    return {"factor_vae": float(counts[1][np.arange(z.shape[1]), majority].sum() / counts[1].sum())}


def fits(z: Matrix) -> list[Matrix]:
    """Return latents of five fits: the same axes, permuted, each with its own noise."""
    rng = np.random.default_rng(1)
    return [z[:, rng.permutation(z.shape[1])] + 0.3 * rng.normal(size=z.shape) for _ in range(5)]


def udr(z: Matrix, f: Matrix) -> dict[str, float]:
    codes = [StandardScaler().fit_transform(one) for one in fits(z)]
    of_fits = []
    for s, one in enumerate(codes):
        agreements = []
        for other in (code for t, code in enumerate(codes) if t != s):
            r = np.abs([Lasso(alpha=0.1).fit(one, column).coef_ for column in other.T])
            agreements.append(np.mean([np.mean(m.max(axis=0) ** 2 / m.sum(axis=0)) for m in (r, r.T)]))
        of_fits.append(np.median(agreements))
    return {"udr": float(np.mean(of_fits))}


OURS: dict[Callable[..., dict[str, float]], Callable[..., Any]] = {
    beta_vae: ours.beta_vae,
    factor_vae: ours.factor_vae,
    mig: lambda z, f: ours.mig(z, f, information=ours.EqualWidth(20)),
    modularity: lambda z, f: ours.modularity(z, f, information=ours.EqualWidth(20)),
    explicitness: ours.explicitness,
    sap: ours.sap,
    dci: ours.dci,
    irs: ours.irs,
    infomec: ours.infomec,
    udr: lambda z, f: ours.udr(fits(z)),
}


def timed(work: Callable[[], Any], repeat: int = 1) -> tuple[Any, float]:
    best = np.inf
    for _ in range(repeat):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    return found, best


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    z, f = data(0)
    rows = []
    for reference, own in OURS.items():
        own(z[:500], f[:500])
        found, seconds = timed(lambda own=own: own(z, f), repeat=3)
        theirs, reference_seconds = timed(lambda reference=reference: reference(z, f))
        for score in found:
            rows.append(
                {
                    "score": score.name,
                    "baseline": "the reference way",
                    "reference": theirs[score.name],
                    "ours": score.value,
                    "noise": score.noise,
                    "rotation": score.rotation,
                    "reference_seconds": reference_seconds,
                    "seconds": seconds,
                    "speedup": reference_seconds / seconds,
                    "value_speedup": 3 * reference_seconds / seconds,
                }
            )
            print(rows[-1], flush=True)
    _, whole = timed(lambda: [own(z, f) for own in OURS.values()])
    rows.append({"score": "all ten, with chance levels", "seconds": whole})
    save("disentanglement", rows)
