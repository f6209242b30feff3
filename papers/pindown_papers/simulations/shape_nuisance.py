"""`ShapeNuisance`: a nuisance that changes scales, not means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.networks.spaces import Reals
from pindown.simulate import Process, Sample
from pindown.simulate.mixing import Mixing, leaky_relu_mlp
from pindown.simulate.process import check_mixing, frequencies, invariant_directions, placed
from pindown.theory import Assumption


@dataclass(frozen=True, eq=False)
class ShapeNuisance(Process):
    """A nuisance that changes scales, not means: ã = (z, w), z ~ N(0, I), w | e ~ N(0, diag(s_e²)), x = g(ã).

    If g is linear, the means of x agree for all levels of e. A method that only compares means finds nothing to remove,
    although the scale of w still predicts e.

    Parameters
    ----------
    scales : Tensor of shape (n_levels, n_affected)
        The standard deviations s_e of w, one row per level of e.
    mixing : Mixing
        The map g. Its first latents are z, its last n_affected are w.
    weights : tuple of float, optional
        Frequencies of the levels of e, up to a factor; equal by default.

    Examples
    --------
    >>> from pindown.simulate.mixing import identity
    >>> process = ShapeNuisance(torch.tensor([[1.0], [3.0]]), identity(3))
    >>> sample = process.sample(10_000, random_state=0)
    >>> process.d, [round(sample.x[sample.u == e, 2].std().item()) for e in (0, 1)]
    (2, [1, 3])
    """

    role_of_u = "nuisance"

    scales: Tensor
    mixing: Mixing
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.scales.ndim != 2 or not (self.scales > 0).all():
            raise InputError(
                "scales",
                "`scales` must be a matrix of positive numbers, one row per level of the nuisance, "
                f"got shape {tuple(self.scales.shape)}.",
            )
        if not 0 < self.scales.shape[1] < self.mixing.d:
            raise InputError(
                "scales",
                f"The nuisance affects {self.scales.shape[1]} of {self.mixing.d} latents. It must affect at least "
                "one, and not all of them.",
            )
        check_mixing(self.mixing.d, Reals(), self.mixing)
        if self.weights is not None and len(self.weights) != len(self.scales):
            raise InputError("weights", f"`weights` must be {len(self.scales)} numbers, one per row of `scales`.")

    @classmethod
    def spread(
        cls,
        d: int,
        n_affected: int,
        n_levels: int,
        ratio: float = 5.0,
        *,
        n_layers: int = 1,
        weights: tuple[float, ...] | None = None,
        random_state: RandomState = None,
    ) -> ShapeNuisance:
        """Return a simulation in d dimensions with scales from 1 to ``ratio``, in random order per affected latent.

        With one layer the mixing is linear; with more, leaky ReLUs are between them.
        """
        rng = generator(random_state)
        mixing = leaky_relu_mlp(d, n_layers=n_layers, random_state=rng)
        steps = torch.logspace(0, 1, n_levels, base=ratio, dtype=torch.float64)
        orders = torch.rand(n_levels, n_affected, generator=rng, dtype=torch.float64).argsort(0)
        return cls(steps[orders], mixing, weights)

    @property
    def d(self) -> int:
        """Number of invariant latents."""
        return self.mixing.d - self.scales.shape[1]

    @property
    def invariant_space(self) -> Tensor:
        """Orthonormal basis of the directions of x that an invariant linear encoder reads; (d_a, d)."""
        return invariant_directions(self.mixing, torch.eye(self.mixing.d, self.d, dtype=torch.float64))

    @property
    def prior(self) -> NDArray[np.float64]:
        """Probability of each level of the nuisance."""
        return frequencies(self.weights or np.ones(len(self.scales)))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation."""
        return self.mixing.assumptions | {theory.NUISANCE_INDEPENDENT}

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        u = self._draw_categories(n, rng, device)
        white = torch.randn(n, self.mixing.d, generator=rng, device=device, dtype=dtype)
        a = white * placed(self._all_scales, device).to(dtype)[u]
        return Sample(x=placed(self.mixing, device)(a), z=a[:, : self.d], u=u)

    @cached_property
    def _all_scales(self) -> Tensor:
        """Standard deviations of ã = (z, w), one row per level; (n_levels, d_a)."""
        return torch.cat([torch.ones(len(self.scales), self.d), self.scales], 1)
