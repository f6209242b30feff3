"""`forget`: remove a batch effect from annotated data, as scverse has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pindown._random import RandomState
from pindown.data.tables import log_counts
from pindown.errors import InputError, warn
from pindown.methods.forget.estimator import Forget

KEY = "X_pindown"  # where latents are written, in ``obsm``


def forget(
    adata: Any,
    batch_key: str | Sequence[str],
    *,
    labels_key: str | None = None,
    layer: str | None = None,
    n_components: int | None = None,
    random_state: RandomState = 0,
) -> Forget:
    """Write latents without a batch effect to ``adata.obsm["X_pindown"]``; return the fitted `Forget`.

    What was found is in ``adata.uns["pindown"]``. Raw counts are normalised first, with a warning: each sample to ten
    thousand counts, then log(1 + x).

    Parameters
    ----------
    adata : AnnData
        The data; ``X``, or the layer, may be sparse.
    batch_key : str or sequence of str
        The columns of ``adata.obs`` that hold the batch.
    labels_key : str, optional
        The column of ``adata.obs`` with known classes, which must survive; some may be missing.
    layer : str, optional
        A layer in the place of ``X``; or a key of ``obsm``, such as ``"X_pca"``.
    n_components : int, optional
        Number of latents: see `Forget`.
    random_state : int, numpy.random.RandomState or None
        Seed.

    Examples
    --------
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> donor = np.array(["a", "b"])[np.arange(300) % 2]
    >>> adata = AnnData(rng.normal(size=(300, 6)) + 2 * (donor == "b")[:, None], obs={"donor": donor})
    >>> fit = forget(adata, "donor")
    >>> adata.obsm["X_pindown"].shape
    (300, 6)
    """
    keys = [batch_key] if isinstance(batch_key, str) else [*batch_key]
    for key in (*keys, *([] if labels_key is None else [labels_key])):
        if key not in adata.obs:
            raise InputError("batch_key", f"adata.obs has no column {key!r}. It has {', '.join(map(str, adata.obs))}.")
    if layer is not None and layer not in adata.layers and layer not in adata.obsm:
        raise InputError("layer", f"adata has neither a layer nor an obsm {layer!r}.")
    found = adata.X if layer is None else adata.layers[layer] if layer in adata.layers else adata.obsm[layer]
    x = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
    if x.dtype.kind in "buif" and x.max() > 1 and (x >= 0).all() and (x == np.rint(x)).all():
        warn("forget: X looks like raw counts: normalised to ten thousand per sample, then log(1 + x).", UserWarning)
        x = log_counts(x)
    batch = adata.obs[keys].astype(str).to_numpy(dtype=object)
    given = None
    if labels_key is not None:
        column = adata.obs[labels_key]
        given = np.where(pd.isna(column), None, column.astype(str).to_numpy(dtype=object))
    fit = Forget(n_components, verbose=False, random_state=random_state).fit(x, batch, given)
    adata.obsm[KEY] = fit.transform(x, batch)
    adata.uns["pindown"] = {
        "batch_key": keys,
        "labels_key": "" if labels_key is None else labels_key,
        "what": str(fit.batch_maps_),
        "batch": "" if fit.held_out_ is None else str(fit.held_out_),
        "kept": str(fit.structure_kept_),
    }
    return fit
