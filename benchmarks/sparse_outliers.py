"""`Sparse` on activations with outliers, next to ``revive=False`` and as many principal components.

Run ``python benchmarks/sparse_outliers.py`` (two minutes on one core). All numbers are the explained variance of 1,000
new samples; the dictionaries have 64 atoms in 32 dimensions, of which three are active.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from _measure import record, write
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from pindown import Sparse
from pindown.metrics import fvu
from pindown.networks.gates import BatchTopK, JumpReLU, Matryoshka, TopK
from pindown.simulate import Superposed

N_ACTIVE, N_TRAIN, SEED = 3, 5_000, 0
GATES = (TopK(N_ACTIVE), BatchTopK(N_ACTIVE), JumpReLU(N_ACTIVE), Matryoshka(N_ACTIVE))
FIT = {"batch_size": 256, "max_iter": 400, "verbose": False, "random_state": SEED, "device": "cpu"}


def outliers(x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return samples with each kind of outliers."""
    rng, spread, d = np.random.default_rng(SEED), float(np.median(x.std(0))), x.shape[1]
    three = np.where(np.isin(np.arange(d), [3, 9, 20]), 20, 1)
    frame = np.linalg.qr(rng.normal(size=(d, d)))[0]
    few, some = (rng.random((len(x), 1)) < fraction for fraction in (0.005, 0.02))
    return {
        "none": x,
        "one feature × 40": x * np.where(np.arange(d) == 3, 40, 1),
        "three features × 20": x * three,
        "variance falls as 1/i²": (x @ frame) / np.arange(1, d + 1) @ frame.T,
        "0.5 % of the samples, two features": x + 100 * spread * few * np.isin(np.arange(d), [3, 9]),
        "2 % of the samples, one direction": x + 60 * spread * some * np.sign(rng.normal(size=d)),
        "heavy tails": x * rng.lognormal(size=(len(x), 1)),
    }


def main() -> None:
    torch.set_num_threads(1)
    simulation = Superposed.overcomplete(64, 32, n_active=N_ACTIVE, random_state=SEED)
    x = simulation.sample(N_TRAIN + 1_000, random_state=SEED + 1).x.double().numpy()
    rows: list[dict[str, Any]] = []
    for name, changed in outliers(x).items():
        train, test = changed[:N_TRAIN].astype(np.float32), changed[N_TRAIN:].astype(np.float32)
        pca = PCA(N_ACTIVE, random_state=SEED).fit(train)
        plain = 1 - fvu(test, pca.inverse_transform(pca.transform(test)))
        row: dict[str, Any] = {"outliers": name, "principal components": round(plain, 3)}
        for gate in GATES:
            for revive in (True, False):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    score = Sparse(64, gate=gate, revive=revive, **FIT).fit(train).score(test)
                row[f"{type(gate).__name__}{'' if revive else ', revive=False'}"] = round(score, 3)
                row["recognised"] = row.get("recognised", False) or "participation" in str([c.message for c in caught])
        rows.append(row)
        print(row, flush=True)
    write(record("sparse_outliers"), rows)


if __name__ == "__main__":
    main()
