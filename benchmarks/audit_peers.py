"""`pindown.audit` of methods of other packages, and of recordings whose samples were exchanged at random.

Run ``python benchmarks/audit_peers.py`` (ten minutes on two cores), with cebra and harmonypy installed; methods whose
package is missing are left out. Digits are real (scikit-learn), and PCA and FastICA see them as they are. For Harmony
half of them get another offset of each pixel. CEBRA learns from simulated place cells and the position, with samples in
order, and with samples exchanged at random: the recording then has nothing to do with the position, yet it is decoded
from nearest neighbours *in the samples of the fit* (CEBRA's issue 226).
"""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from _measure import save
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, FastICA
from sklearn.neighbors import KNeighborsRegressor

import pindown
from pindown import Embedder, theory
from pindown.auditing import peers

SEED, N_CELLS, N_MOMENTS, STEPS = 0, 100, 600, 1_500


def digits() -> tuple[np.ndarray, np.ndarray]:
    images, label = load_digits(return_X_y=True)
    return images[:, images.std(0) > 0] / 16, label


def two_labs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(SEED)
    x, label = digits()
    lab = rng.integers(2, size=len(x))
    return x + lab[:, None] * rng.normal(scale=0.1, size=x.shape[1]), label, lab


def place_cells(*, exchanged: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(SEED)
    angle = np.linspace(0, 12 * np.pi, N_MOMENTS)
    position = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.05 * rng.normal(size=(N_MOMENTS, 2))
    spikes = rng.poisson(np.exp(position @ rng.normal(size=(2, N_CELLS)))).astype(np.float32)
    return spikes[rng.permutation(N_MOMENTS)] if exchanged else spikes, position


def cebra_model() -> Any:
    import cebra

    return cebra.CEBRA(
        model_architecture="offset1-model",
        batch_size=256,
        learning_rate=1e-3,
        output_dimension=3,
        max_iterations=STEPS,
        conditional="time_delta",
        device="cpu",
        verbose=False,
    )


def audited(name: str, embedder: Embedder, *data: Any, **named: Any) -> dict[str, Any]:
    start = time.perf_counter()
    z = np.asarray(embedder.fit(data[0], data[1] if len(data) > 1 else None, SEED)(data[0]))
    one_fit, start = time.perf_counter() - start, time.perf_counter()
    found = pindown.audit(embedder, *data, random_state=SEED, **named)
    took = time.perf_counter() - start
    print(f"\n{name}: one fit {one_fit:.1f} s, audit {took:.1f} s\n{found}")
    row = {"case": name, "seed": SEED, "seconds_of_a_fit": one_fit, "seconds_of_the_audit": took, **found.to_dict()}
    if name.startswith("CEBRA"):
        row["position_from_neighbours_in_the_samples_of_the_fit"] = (
            KNeighborsRegressor(5).fit(z, data[1]).score(z, data[1])
        )
    return row


if __name__ == "__main__":
    x, digit = digits()
    mixed, of_mixed, lab = two_labs()
    order = np.arange(N_MOMENTS) // 20
    cases = [
        ("PCA, digits", "scikit-learn", Embedder(PCA(10), free=theory.ORTHOGONAL), (x,), {"labels": {"digit": digit}}),
        (
            "FastICA, digits",
            "scikit-learn",
            Embedder(FastICA(10, max_iter=1_000, tol=1e-3), free=theory.SCALED_PERMUTATION),
            (x,),
            {"labels": {"digit": digit}},
        ),
        ("PCA, two labs", "scikit-learn", PCA(10), (mixed,), {"labels": {"digit": of_mixed}, "nuisance": {"lab": lab}}),
        (
            "Harmony, two labs",
            "harmonypy",
            peers.harmony(10),
            (mixed, lab),
            {"labels": {"digit": of_mixed}, "nuisance": {"lab": lab}},
        ),
    ]
    rows, packages = [], {}
    for name, package, method, data, named in cases:
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            continue
        rows.append(audited(name, Embedder.of(method), *data, **named))
    try:
        packages["cebra"] = version("cebra")
    except PackageNotFoundError:
        pass
    else:
        for name, exchanged in (("CEBRA, place cells", False), ("CEBRA, place cells exchanged", True)):
            data = place_cells(exchanged=exchanged)
            rows.append(audited(name, peers.cebra(cebra_model()), *data, groups=order))
    for row in rows:
        row["packages"] = packages
    save("audit_peers", rows)
