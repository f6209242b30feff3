"""Codes as a sparse matrix, a bounded number of rows at a time; and what is rebuilt from them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor

from pindown.estimators.encoding import Encoder, is_cheap
from pindown.estimators.sparse.autoencoder import Autoencoder

ROWS = 1_024
"""Rows that are encoded at once."""


def sparse_codes(encoder: Encoder, x: Tensor) -> csr_array:
    """Encode (n, m) to a sparse matrix (n, n_codes), in the units of X; in float64 where that is cheap."""
    model = copy.deepcopy(encoder).double() if is_cheap(encoder) else encoder
    model.eval()
    with torch.no_grad():
        parts = [_encoded(model, part) for part in x.split(ROWS)]
    return csr_array(vstack(parts, format="csr"))


def _encoded(encoder: Encoder, x: Tensor) -> csr_array:
    body = encoder.body
    assert isinstance(body, Autoencoder)
    dtype = body.atoms.dtype
    rows = encoder.preprocess(x.to(encoder.device).to(torch.promote_types(x.dtype, dtype))).to(dtype)
    values, indices, _ = body.codes(rows)
    values = values * body.unit
    if indices is None:
        return csr_array(values.cpu().numpy())
    row = torch.arange(len(x), device=x.device).repeat_interleave(indices.shape[1]).cpu().numpy()
    flat, at = values.reshape(-1).cpu().numpy(), indices.reshape(-1).cpu().numpy()
    fires = flat != 0
    found = csr_array((flat[fires], (row[fires], at[fires])), shape=(len(x), body.n_codes))
    found.sort_indices()
    return found


def rebuilt(codes: Any, components: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    """Return atoms times codes, dense or sparse, and the mean; (n, m)."""
    return np.asarray(codes @ components) + mean
