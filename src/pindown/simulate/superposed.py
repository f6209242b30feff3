"""`Superposed`: sparse latents behind a dictionary, and the distributions of sparse latents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.simulate.process import Process, Sample
from pindown.theory import Assumption


class SparseLaw(ABC):
    """Abstract distribution of sparse latents (n, d). ``frequency`` (d,) is how often each is nonzero."""

    d: int

    @property
    @abstractmethod
    def frequency(self) -> Tensor:
        """Fraction of samples in which each latent is active; (d,) in float64."""

    @property
    def n_active(self) -> float:
        """Mean number of active latents per sample, L0."""
        return float(self.frequency.sum())

    @property
    @abstractmethod
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions of `pindown.theory` that hold."""

    @abstractmethod
    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n samples of the latents without synchronising with the device; (n, d)."""


@dataclass(frozen=True)
class BernoulliGaussian(SparseLaw):
    """Independent latents that are active with a given probability and then standard normal.

    Examples
    --------
    >>> round(BernoulliGaussian(50, 0.1).n_active, 6)
    5.0
    """

    d: int
    probability: float

    def __post_init__(self) -> None:
        if self.d < 1:
            raise InputError("d", f"`d` must be at least 1, got {self.d}.")
        if not 0 < self.probability <= 1:
            raise InputError("probability", f"`probability` must be in (0, 1], got {self.probability}.")

    @property
    def frequency(self) -> Tensor:
        """Fraction of samples in which each latent is active."""
        return torch.full((self.d,), self.probability, dtype=torch.float64)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Scattered, unless all latents are always active."""
        return frozenset({theory.SCATTERED_ACTIVATIONS} if self.probability < 1 else ())

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n samples of the latents."""
        values = torch.randn(n, self.d, generator=rng, device=device, dtype=dtype)
        active = torch.rand(n, self.d, generator=rng, device=device) < self.probability
        return values * active


@dataclass(frozen=True)
class KSparse(SparseLaw):
    r"""Latents of which exactly k are active per sample, in random combinations.

    Active values are :math:`|1 + s\,\varepsilon|`, ε standard normal.

    Parameters
    ----------
    d : int
        Number of latents.
    k : int
        Number of active latents.
    spread : float
        s.

    Examples
    --------
    >>> z = KSparse(50, 5).draw(10, torch.Generator().manual_seed(0), torch.device("cpu"), torch.float32)
    >>> (z > 0).sum(1).tolist()
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """

    d: int
    k: int
    spread: float = 0.25

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.d:
            raise InputError("k", f"`k` must be between 1 and `d={self.d}`, got {self.k}.")

    @property
    def frequency(self) -> Tensor:
        """Fraction of samples in which each latent is active."""
        return torch.full((self.d,), self.k / self.d, dtype=torch.float64)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Scattered, if fewer than half of the latents are active."""
        return frozenset({theory.SCATTERED_ACTIVATIONS} if 2 * self.k < self.d else ())

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n samples of the latents."""
        chosen = torch.rand(n, self.d, generator=rng, device=device).topk(self.k, dim=1).indices
        values = active_values((n, self.k), self.spread, rng, device, dtype)
        return torch.zeros(n, self.d, device=device, dtype=dtype).scatter_(1, chosen, values)


def active_values(
    shape: tuple[int, ...], spread: float, rng: torch.Generator, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Draw |1 + spread · ε|, ε standard normal."""
    return torch.randn(shape, generator=rng, device=device, dtype=dtype).mul_(spread).add_(1).abs_()


@dataclass(frozen=True, eq=False)
class Superposed(Process):
    r"""Sparse latents behind a dictionary: :math:`x = D^\top z + b + \sigma\varepsilon`.

    A simple model of the activations of a network: more features than dimensions, each a direction, few at a time.

    Parameters
    ----------
    dictionary : Tensor of shape (d, m)
        One atom of unit length per row.
    law : SparseLaw
        Distribution of z.
    offset : float
        Length of b, in a random direction, relative to the scale of x − b. Activations of networks are not centred,
        and a sparse autoencoder that does not centre them loses features.
    noise : float
        σ.

    Examples
    --------
    >>> process = Superposed.overcomplete(64, 16, n_active=3, random_state=0)
    >>> sample = process.sample(100, random_state=1)
    >>> tuple(sample.x.shape), tuple(sample.z.shape), process.law.n_active
    ((100, 16), (100, 64), 3.0)
    """

    dictionary: Tensor
    law: SparseLaw
    offset: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.dictionary.ndim != 2 or len(self.dictionary) != self.law.d:
            raise InputError(
                "dictionary",
                f"`dictionary` must have one row for each of {self.law.d} latents, got shape "
                f"{tuple(self.dictionary.shape)}.",
            )
        for name, value in (("noise", self.noise), ("offset", self.offset)):
            if value < 0:
                raise InputError(name, f"`{name}` must be at least 0, got {value}.")

    @classmethod
    def complete(
        cls, d: int, probability: float = 0.1, *, noise: float = 0.0, random_state: RandomState = None
    ) -> Superposed:
        """Return a simulation with as many dimensions as features, which are active independently."""
        return cls(atoms(d, d, random_state=random_state), BernoulliGaussian(d, probability), noise=noise)

    @classmethod
    def overcomplete(
        cls,
        d: int,
        m: int,
        *,
        n_active: int,
        coherence: float = 0.0,
        offset: float = 0.0,
        noise: float = 0.0,
        random_state: RandomState = None,
    ) -> Superposed:
        """Return a simulation with more features than dimensions, `n_active` of them at a time (superposition)."""
        return cls(atoms(d, m, coherence=coherence, random_state=random_state), KSparse(d, n_active), offset, noise)

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.dictionary)

    @property
    def truth(self) -> NDArray[np.float64]:
        """The true atoms, to compare with ``components_``; (d, m)."""
        return self.dictionary.double().numpy()

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation."""
        d, m = self.dictionary.shape
        held = set(self.law.assumptions)
        if not self.noise:
            held.add(theory.SPARSE_COMBINATION)
        if d <= m and int(torch.linalg.matrix_rank(self.dictionary.double())) == d:
            held.add(theory.INDEPENDENT_ATOMS)
        if self.law.n_active < (1 + 1 / max(largest_cosine(self.dictionary), 1e-12)) / 2:
            held.add(theory.FEWER_THAN_SPARK)
        return frozenset(held)

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        z = self.law.draw(n, rng, device, dtype)
        x = z @ placed(self.dictionary, device).to(dtype)
        if self.offset:
            x += placed(self._shift, device).to(dtype)
        if self.noise:
            x += self.noise * torch.randn(x.shape, generator=rng, device=device, dtype=dtype)
        return Sample(x=x, z=z)

    @cached_property
    def _shift(self) -> Tensor:
        """The vector b."""
        direction = torch.randn(self.dictionary.shape[1], generator=generator(0), dtype=torch.float64)
        return direction / direction.norm() * self.offset * self.law.n_active**0.5


def atoms(d: int, m: int, *, coherence: float = 0.0, random_state: RandomState = None) -> Tensor:
    """Draw d random unit vectors in m dimensions; (d, m).

    Parameters
    ----------
    d, m : int
        Number of atoms and of dimensions.
    coherence : float
        Expected cosine between atoms of the same group of four, in [0, 1). At 0 all atoms are independent.
    random_state : int, RandomState, Generator or None
        Seed.

    Examples
    --------
    >>> close = atoms(8, 5_000, coherence=0.9, random_state=0)
    >>> [round(abs(float(close[0] @ close[k])), 1) for k in (3, 4)]
    [0.9, 0.0]
    """
    if not 0 <= coherence < 1:
        raise InputError("coherence", f"`coherence` must be in [0, 1), got {coherence}.")
    rng = generator(random_state)
    own = torch.randn(d, m, generator=rng, dtype=torch.float64)
    shared = torch.randn(-(-d // 4), m, generator=rng, dtype=torch.float64).repeat_interleave(4, dim=0)[:d]
    mixed = coherence**0.5 * shared + (1 - coherence) ** 0.5 * own
    return torch.nn.functional.normalize(mixed).float()


def largest_cosine(dictionary: Tensor) -> float:
    """Return the largest absolute cosine between two atoms.

    Examples
    --------
    >>> round(largest_cosine(torch.tensor([[1.0, 0.0], [0.6, 0.8]])), 3)
    0.6
    """
    cosines = (dictionary @ dictionary.T).abs()
    return float(cosines.fill_diagonal_(0).max())
