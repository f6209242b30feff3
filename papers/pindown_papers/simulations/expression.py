"""`Expression`: gene expression of cell types and programmes, with a shift and scale of every gene per laboratory."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.simulate import Process, Sample
from pindown.simulate.process import frequencies, placed
from pindown.theory import Assumption


@dataclass(frozen=True, eq=False)
class Expression(Process):
    r"""Cells of several types, measured by laboratories that shift and scale every gene in their own way.

    .. math:: x = b_e + s_e \odot (z^\top A + \varepsilon), \qquad z \mid c \sim \mathcal N(l_c, I), \qquad
              \varepsilon \sim \mathcal N(0, \sigma^2 I)

    z are the activities of programmes, which depend on the cell type c, the ``label`` of a sample. The laboratory e is
    its nuisance ``u``. A dropout reads 0. No fixed map of x is invariant to e and keeps z, since e affects every gene.
    A map per laboratory, x ↦ (x − b_e) / s_e, does both.

    Parameters
    ----------
    type_vectors : Tensor of shape (n_types, d)
        The means l_c of the programmes.
    loadings : Tensor of shape (d, n_genes)
        What a programme adds to each gene.
    shifts, stretches : Tensor of shape (n_values, n_genes)
        b_e and s_e.
    joint : Tensor of shape (n_types, n_values)
        Frequencies of pairs of type and laboratory, up to a factor.
    noise : float
        Standard deviation σ of what is each gene's own.
    dropout : float
        Fraction of entries that are lost.

    Examples
    --------
    >>> simulation = Expression.of_cells(50, random_state=0)
    >>> sample = simulation.sample(1000, random_state=1)
    >>> tuple(sample.x.shape), simulation.d, len(sample.label.unique()), len(sample.u.unique())
    ((1000, 50), 5, 4, 3)
    """

    role_of_u = "nuisance"

    type_vectors: Tensor
    loadings: Tensor
    shifts: Tensor
    stretches: Tensor
    joint: Tensor
    noise: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        n_types, n_values, n_genes = len(self.type_vectors), len(self.shifts), self.loadings.shape[1]
        if self.joint.shape != (n_types, n_values) or not (self.joint >= 0).all() or not self.joint.sum() > 0:
            raise InputError(
                "joint",
                f"joint must be {n_types} × {n_values} frequencies, a row per type and a column per "
                f"laboratory, got shape {tuple(self.joint.shape)}.",
            )
        if self.shifts.shape != (n_values, n_genes) or self.stretches.shape != (n_values, n_genes):
            raise InputError(
                "shifts",
                f"shifts and stretches must be {n_values} × {n_genes}, a row per laboratory and a column "
                f"per gene, got shapes {tuple(self.shifts.shape)} and {tuple(self.stretches.shape)}.",
            )

    @classmethod
    def of_cells(
        cls,
        n_genes: int,
        *,
        n_types: int = 4,
        n_values: int = 3,
        d: int = 5,
        separation: float = 5.5,
        signal: float = 0.2,
        shift: float = 1.0,
        stretch: float = 0.35,
        dropout: float = 0.15,
        skew: float = 1.0,
        random_state: RandomState = None,
    ) -> "Expression":
        """Make a simulation with random types, programmes and laboratories.

        ``separation`` is the distance between types in standard deviations of a programme, ``signal`` what a programme
        adds to a gene, relative to the noise. ``shift`` and the logarithm ``stretch`` say how far laboratories differ.
        With a ``skew`` above 1 each has so many times as many cells of one type as of any other.
        """
        rng = generator(random_state)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        # As far from each other as programmes allow: the first types are at one distance from all others.
        vectors = torch.cat([torch.linalg.qr(normal(d, d)).Q for _ in range(-(-n_types // d))])[:n_types]
        vectors *= separation / 2**0.5
        joint = torch.ones(n_types, n_values, dtype=torch.float64)
        own = torch.arange(n_values)
        joint[own % n_types, own] = skew
        base = 3 + normal(n_genes)
        return cls(
            vectors,
            signal * normal(d, n_genes),
            base + shift * normal(n_values, n_genes),
            (stretch * normal(n_values, n_genes)).exp(),
            joint,
            dropout=dropout,
        )

    @property
    def d(self) -> int:
        """Number of programmes."""
        return len(self.loadings)

    @property
    def prior(self) -> NDArray[np.float64]:
        """How often each laboratory comes."""
        return frequencies(self.joint.sum(0))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this simulation: the laboratory and the type are independent, or not."""
        outer = self.joint.sum(1, keepdim=True) * self.joint.sum(0) / self.joint.sum()
        return frozenset({theory.NUISANCE_INDEPENDENT} if torch.allclose(outer, self.joint) else set())

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        def normal(columns: int) -> Tensor:
            return torch.randn(n, columns, generator=rng, device=device, dtype=dtype)

        def uniform(*columns: int) -> Tensor:
            return torch.rand(n, *columns, generator=rng, device=device, dtype=torch.float64)

        pair = self._draw_categories(n, rng, device)
        label, u = pair // self.joint.shape[1], pair % self.joint.shape[1]
        z = normal(self.d) + placed(self.type_vectors, device).to(dtype)[label]
        seen = z @ placed(self.loadings, device).to(dtype)
        seen = seen + self.noise * normal(seen.shape[1])
        x = placed(self.shifts, device).to(dtype)[u] + placed(self.stretches, device).to(dtype)[u] * seen
        kept = uniform(x.shape[1]) >= self.dropout
        return Sample(x=x * kept, z=z, u=u, label=label)

    @cached_property
    def _thresholds(self) -> Tensor:
        return torch.as_tensor(frequencies(self.joint.flatten())).cumsum(0)[:-1]
