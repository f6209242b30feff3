"""Partners as arrays: a row and a partner of it, side by side."""

from typing import Any

import torch

from pindown.auditing.checks.arrays import Matrix
from pindown.data.data import as_array
from pindown.data.pairing import pair_up


def partners_of(rows: Matrix, pairs: Any) -> tuple[Matrix, Matrix]:
    """Return rows and a partner of each, from partners, groups, or None or "next" for the next row.

    Examples
    --------
    >>> import numpy as np
    >>> [part.ravel().tolist() for part in partners_of(np.arange(3.0)[:, None], None)]
    [[0.0, 1.0], [1.0, 2.0]]
    """
    pairing = pair_up(rows, None if pairs is None or isinstance(pairs, str) else as_array(pairs))
    generator = torch.Generator().manual_seed(0)
    anchors, partners = pairing.take(torch.arange(len(pairing)), generator)
    return anchors.numpy(), partners.numpy()
