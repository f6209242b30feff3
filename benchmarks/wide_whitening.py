"""Whitening of samples with 30,000 features: seconds and megabytes, against scikit-learn's randomised PCA.

Run ``python benchmarks/wide_whitening.py`` (some minutes on two cores). Samples are in a file and vary along 50
directions and, weakly, along all others. Where it fits into memory, the whole covariance is measured, too. ``kept`` is
the fraction of the variance of new samples, which vary along those 50 directions only, that a projection onto the
directions found keeps.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import cpu_peak_bytes, save
from sklearn.decomposition import PCA

from pindown.data import ArraySource
from pindown.networks.preprocessing import MAX_DIRECTIONS, whiten

SIZES = ((2_000, 5_000), (2_000, 30_000), (10_000, 30_000))
COVARIANCE_FITS = 5_000
N_DIRECTIONS, FAINT = 50, 0.05


def drawn(n: int, d: int, seed: int) -> np.ndarray:
    """Return samples (n, d) in float32."""
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(d, N_DIRECTIONS)))[0].astype(np.float32)
    chance = np.random.default_rng(seed)
    codes = chance.normal(size=(n, N_DIRECTIONS)).astype(np.float32)
    return codes @ directions.T + FAINT * chance.normal(size=(n, d)).astype(np.float32)


def fit(how: str, path: str, warm_up: bool = False) -> torch.Tensor:
    """Return the directions found, (d, k)."""
    rows = np.load(path, mmap_mode="r")
    if warm_up:
        rows = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    n_directions = min(MAX_DIRECTIONS, len(rows) - 1, rows.shape[1])
    match how:
        case "scikit-learn PCA":
            pca = PCA(n_directions, whiten=True, svd_solver="randomized", random_state=0).fit(rows)
            return torch.as_tensor(pca.components_.T)
        case "pindown whiten":
            return whiten(ArraySource(rows), n_components=n_directions).matrix
        case "whole covariance":
            variance, directions = torch.linalg.eigh(torch.as_tensor(np.array(rows)).double().T.cov())
            return (directions / variance.clamp_min(1e-4 * variance[-1]).sqrt()).flip(1)[:, :n_directions].float()
    raise ValueError(how)


def measured(how: str, path: str, unseen: torch.Tensor) -> dict[str, Any]:
    fit(how, path, warm_up=True)
    start = time.perf_counter()
    directions = fit(how, path)
    took = time.perf_counter() - start
    basis = torch.linalg.qr(directions.float()).Q
    kept = ((unseen @ basis).square().sum() / unseen.square().sum()).item()
    return {"how": how, "seconds": took, "megabytes": cpu_peak_bytes(fit, how, path) / 2**20, "kept": kept}


if __name__ == "__main__":
    table = []
    for n, d in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "rows.npy")
            np.save(path, drawn(n, d, seed=1))
            directions = torch.linalg.qr(torch.as_tensor(np.random.default_rng(0).normal(size=(d, N_DIRECTIONS)))).Q
            unseen = torch.randn(1_000, N_DIRECTIONS, generator=torch.Generator().manual_seed(2)) @ directions.float().T
            ways = ["scikit-learn PCA", "pindown whiten", *(["whole covariance"] if d <= COVARIANCE_FITS else [])]
            rows = [measured(how, path, unseen) for how in ways]
        for row in rows:
            ratios = {
                "time_ratio": row["seconds"] / rows[0]["seconds"],
                "memory_ratio": row["megabytes"] / rows[0]["megabytes"],
            }
            table.append({"rows": n, "columns": d, "baseline": "scikit-learn PCA", **row, **ratios})
    save("wide_whitening", table)
