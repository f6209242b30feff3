"""Methods of other packages, ready for `pindown.audit`. Each is imported when it is fitted.

scikit-learn's methods, and others with its interface such as umap-learn's, need nothing from here: pass the object, or
an `Embedder` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pindown import theory
from pindown.auditing.embedding import Array, Embedder, Transform


def cebra(model: object) -> Embedder:
    """Return a ``cebra.CEBRA`` for an audit: fits may differ by a linear map, as its theory says.

    Pass the behaviour, or another label, as ``y``, and sessions or blocks of time as ``groups``.
    """
    return Embedder(model, "CEBRA", free=theory.AFFINE)


def harmony(n_components: int = 20) -> Embedder:
    """Return Harmony after a PCA, by harmonypy; ``y`` is the batch, and belongs to ``nuisance``, too.

    Harmony corrects the cells that it is fitted to. A new cell gets the correction of the nearest of these.
    """

    def fit(X: Array, batch: Array | None, seed: int) -> Transform:
        import harmonypy
        import pandas as pd
        from sklearn.decomposition import PCA
        from sklearn.neighbors import NearestNeighbors

        pca = PCA(n_components, random_state=seed).fit(X)
        cells, table = pca.transform(X), pd.DataFrame({"batch": np.asarray(batch).astype(str)})
        found = harmonypy.run_harmony(cells, table, ["batch"], verbose=False, random_state=seed)
        corrected = np.asarray(found.Z_corr)
        change = (corrected if corrected.shape == cells.shape else corrected.T) - cells
        near = NearestNeighbors(n_neighbors=1).fit(cells)

        def transform(new: Array) -> ArrayLike:
            z = pca.transform(new)
            return z + change[near.kneighbors(z, return_distance=False)[:, 0]]

        return transform

    return Embedder(fit, "Harmony", free=theory.ORTHOGONAL)


def scvi(n_latent: int = 10, max_epochs: int = 100) -> Embedder:
    """Return an ``scvi.model.SCVI`` for counts; ``y`` is the batch, and belongs to ``nuisance``, too.

    The encoder of the default model does not see the batch, so that new cells need none.
    """

    def fit(X: Array, batch: Array | None, seed: int) -> Transform:
        import anndata
        import scvi

        def cells(counts: Array, batches: Array) -> anndata.AnnData:
            return anndata.AnnData(counts.astype(np.float32), obs={"batch": batches.astype(str)})

        batches = np.zeros(len(X)) if batch is None else np.asarray(batch)
        scvi.settings.seed = seed
        train = cells(X, batches)
        scvi.model.SCVI.setup_anndata(train, batch_key="batch")
        model = scvi.model.SCVI(train, n_latent=n_latent)
        model.train(max_epochs=max_epochs)
        return lambda new: model.get_latent_representation(cells(new, np.full(len(new), batches[0])))

    return Embedder(fit, "scVI", free=theory.AFFINE)


def saelens(train: Callable[[Array, int], Any]) -> Embedder:
    """Return a sparse autoencoder of SAELens: ``train(activations, seed)`` returns one, whose ``encode`` is used."""

    def fit(X: Array, side: Array | None, seed: int) -> Transform:
        import torch

        sae = train(X, seed)

        def transform(new: Array) -> ArrayLike:
            with torch.no_grad():
                return sae.encode(torch.as_tensor(new, dtype=torch.float32)).cpu().numpy()

        return transform

    return Embedder(fit, "SAE", free=theory.SCALED_PERMUTATION)
