"""Codes as a sparse matrix, a bounded number of rows at a time; and what atoms rebuild from them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from pindown.data.data import from_torch
from pindown.methods.base import BaseEncoder
from pindown.methods.sparse.autoencoder import Autoencoder
from pindown.networks.encoder import Encoder, is_cheap

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


class OfAtoms(BaseEncoder):
    """An estimator whose codes are strengths of atoms that add up to rows."""

    components_: NDArray[Any]

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1

    def inverse_transform(self, Z):
        """Rebuild rows from codes, dense or sparse; numpy in, numpy out; torch in, torch out."""
        check_is_fitted(self)
        kinds = [np.float64, np.float32]
        array = check_array(from_torch(Z), accept_sparse="csr", dtype=kinds, input_name="Z")
        if array.shape[1] != self.n_components_:
            name = type(self).__name__
            raise ValueError(f"{name}: Z has {array.shape[1]} columns, but n_components={self.n_components_}.")
        x = rebuilt(array, self.components_.astype(array.dtype), self.mean_.astype(array.dtype))
        return x if issparse(Z) else self._like(Z, array, torch.as_tensor(x))

    @property
    def mean_(self) -> NDArray[np.float64]:
        """What is taken off rows; (n_features,)."""
        return self.encoder_.preprocess.mean.cpu().numpy()


def rebuilt(codes: Any, components: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    """Return atoms times codes, dense or sparse, and the mean; (n, m)."""
    return np.asarray(codes @ components) + mean
