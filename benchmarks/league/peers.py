"""Methods of batch correction: ``python peers.py METHOD IN.npz OUT.npz …``, in the environment of the methods.

IN has features ``x``, ``batch``, ``kind`` (−1: unknown), ``seed``, and ``counts`` where there are raw counts. OUT has
the latents ``z``, the ``seconds`` of CPU without imports and the most memory of the process, ``megabytes``, or the
``error`` that the method raised.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

N_COMPONENTS, WIDE = 30, 200


def components(x: np.ndarray) -> np.ndarray:
    """Return principal components of wide data, and others as they are."""
    if x.shape[1] <= WIDE:
        return x
    return PCA(min(N_COMPONENTS, len(x) // 4), random_state=0).fit_transform(x)


def centred(x: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Return features without the mean of each batch."""
    return x - np.stack([x[batch == e].mean(0) for e in range(batch.max() + 1)])[batch]


def z_scored(x: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Return features standardised in each batch, in the units that they have in all."""
    spread = np.stack([x[batch == e].std(0) for e in range(batch.max() + 1)])
    return centred(x, batch) / np.where(spread > 0, spread, 1.0)[batch] * x.std(0)


def z_score(data: Any) -> np.ndarray:
    return components(z_scored(data["x"], data["batch"]))


def combat(data: Any) -> np.ndarray:
    from inmoose.pycombat import pycombat_norm

    return components(_varying(data, lambda x: pycombat_norm(x.T, data["batch"].tolist()).T))


def combat_given_type(data: Any) -> np.ndarray:
    from inmoose.pycombat import pycombat_norm

    kind = data["kind"].astype(str).tolist()
    return components(_varying(data, lambda x: pycombat_norm(x.T, data["batch"].tolist(), covar_mod=kind).T))


def _varying(data: Any, correct: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Correct the features that vary in every batch, which ComBat needs."""
    x, batch = data["x"].astype(float), data["batch"]
    varies = np.all([x[batch == e].std(0) > 0 for e in np.unique(batch)], axis=0)
    x[:, varies] = np.asarray(correct(x[:, varies]))
    return x


def leace(data: Any) -> np.ndarray:
    """Erase the means of batches by the least change of x: closed form of Belrose et al. (2023), theorem 4.3."""
    x, batch = components(data["x"]), data["batch"]
    middle = x.mean(0)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    kept = values > values.max() * 1e-10
    values, vectors = values[kept], vectors[:, kept]
    whiten, colour = vectors / np.sqrt(values), (vectors * np.sqrt(values)).T
    levels = np.eye(batch.max() + 1)[batch]
    shown = whiten.T @ ((x - middle).T @ (levels - levels.mean(0)) / len(x))
    left, sizes, _ = np.linalg.svd(shown, full_matrices=False)
    left = left[:, sizes > sizes.max() * 1e-10]
    return x - (x - middle) @ whiten @ left @ left.T @ colour


def harmony(data: Any) -> np.ndarray:
    import harmonypy
    import pandas as pd

    meta = pd.DataFrame({"batch": data["batch"].astype(str)})
    x = np.ascontiguousarray(components(data["x"]))
    found = harmonypy.run_harmony(x, meta, "batch", verbose=False, random_state=int(data["seed"]))
    z = np.asarray(found.Z_corr)
    return z if len(z) == len(x) else z.T


def scanorama(data: Any) -> np.ndarray:
    import scanorama as peer

    x, batch = components(data["x"]), data["batch"]
    parts = peer.assemble([x[batch == e] for e in range(batch.max() + 1)], verbose=False)
    z = np.empty_like(x)
    for e, part in enumerate(parts):
        z[batch == e] = part
    return z


def _variational(data: Any, *, labelled: bool) -> np.ndarray:
    import scvi
    from anndata import AnnData

    scvi.settings.seed = int(data["seed"])
    kind = np.where(data["kind"] < 0, "unknown", data["kind"].astype(str))
    cells = AnnData(data["counts"].astype(np.float32), obs={"batch": data["batch"].astype(str), "kind": kind})
    scvi.model.SCVI.setup_anndata(cells, batch_key="batch")
    model = scvi.model.SCVI(cells)
    model.train(accelerator="cpu", enable_progress_bar=False)
    if labelled:
        model = scvi.model.SCANVI.from_scvi_model(model, "unknown", labels_key="kind")
        model.train(max_epochs=20, accelerator="cpu", enable_progress_bar=False)
    return np.asarray(model.get_latent_representation())


def pindown(data: Any) -> np.ndarray:
    from pindown import Forget

    x, batch = data["x"], data["batch"]
    return Forget(verbose=False, random_state=int(data["seed"])).fit(x, batch).transform(x, batch)


def pindown_given_type(data: Any) -> np.ndarray:
    """Encode each sample by a fit that has not seen its type."""
    from pindown import Forget
    from pindown.data import Data
    from pindown.methods import out_of_fold

    x, batch = data["x"], data["batch"]
    kind = np.array([None if k < 0 else f"type {k}" for k in data["kind"]], dtype=object)
    forget = Forget(verbose=False, random_state=int(data["seed"])).fit(x, batch, kind)
    z, _ = out_of_fold(forget, Data(x, nuisance=batch, given=kind), n_folds=4)
    return z


METHODS: dict[str, tuple[str, str, Callable[[Any], np.ndarray]]] = {
    "PCA": ("peers", "sklearn", lambda data: components(data["x"])),
    "z-score": ("peers", "sklearn", z_score),
    "ComBat": ("peers", "inmoose.pycombat", combat),
    "LEACE": ("peers", "sklearn", leace),
    "Harmony": ("peers", "harmonypy", harmony),
    "Scanorama": ("peers", "scanorama", scanorama),
    "scVI": ("scvi", "scvi", lambda data: _variational(data, labelled=False)),
    "pindown": ("pindown", "pindown.methods", pindown),
    "ComBat, types": ("peers", "inmoose.pycombat", combat_given_type),
    "scANVI, types": ("scvi", "scvi", lambda data: _variational(data, labelled=True)),
    "pindown, types": ("pindown", "pindown.methods", pindown_given_type),
}
"""The environment, the package and the function of each method; those with types use them."""


def embed(method: str, source: str, target: str) -> None:
    """Run a method, and write what it gives, or the error."""
    with np.load(source) as file:
        data = dict(file)
    start = time.process_time()
    try:
        z = np.asarray(METHODS[method][2](data), dtype=float)
    except Exception as error:  # methods of others may raise anything
        np.savez(target, error=f"{type(error).__name__}: {error}"[:200])
        return
    seconds = time.process_time() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(target, z=z, seconds=seconds, megabytes=megabytes)


def main(*words: str) -> None:
    """Run methods on studies, each in a process of its own that has imported its package already."""
    warnings.simplefilter("ignore")
    for method, source, target in zip(words[::3], words[1::3], words[2::3], strict=True):
        importlib.import_module(METHODS[method][1])
        child = os.fork()
        if child == 0:
            try:
                embed(method, source, target)
            finally:
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
