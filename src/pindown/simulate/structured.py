"""Simulations with sparse structure: few latents per observed variable (`Structured`) or per sample (`Superposed`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.metrics.arrays import check_positive
from pindown.networks.spaces import Box
from pindown.simulate.distributions import Around, GeneralizedNormal, Marginal, Truncated, Uniform, normal
from pindown.simulate.mixing import SparseMixing, sparse
from pindown.simulate.process import Process, Sample, check_mixing, placed
from pindown.theory import Assumption

NONLINEAR = 0.05  # above this an observed variable counts as sufficiently nonlinear
MAX_DRAWS = 500  # of simulations in `Structured.well_posed`


@dataclass(frozen=True, eq=False)
class Structured(Process):
    """Observed variables that each depend on some latents only, without side variable: z ~ p(z), x = g(z).

    Zheng et al., Diverse dictionary learning.

    Parameters
    ----------
    mixing : SparseMixing
        The map g; the support of its Jacobian is the structure.
    marginal : Marginal
        Distribution of z.

    Examples
    --------
    >>> process = Structured.from_support([[1, 0], [1, 1], [0, 1]], random_state=0)
    >>> tuple(process.sample(5, random_state=0).x.shape)
    (5, 3)
    """

    mixing: SparseMixing
    marginal: Marginal

    def __post_init__(self) -> None:
        check_mixing(self.marginal.d, self.marginal.space, self.mixing)

    @classmethod
    def from_support(cls, support: ArrayLike, *, n_candidates: int = 1, random_state: RandomState = None) -> Structured:
        """Return a simulation with standard normal latents and a random smooth mixing with this m×d support.

        A larger `n_candidates` makes the observed variables more nonlinear: see `mixing.sparse`.
        """
        mixing = sparse(support, n_candidates=n_candidates, random_state=random_state)
        return cls(mixing, Around((0.0,) * mixing.d, normal(1.0)))

    @classmethod
    def well_posed(
        cls,
        support: ArrayLike,
        *,
        nonlinearity: float = NONLINEAR,
        injectivity: float = 0.1,
        n_candidates: int = 1,
        random_state: RandomState = None,
    ) -> Structured:
        """Return a simulation as `from_support` does, with a margin in the assumptions of the theorem.

        Draws simulations until `nonlinearity` and `injectivity` reach these thresholds, which conflict with each other.
        Strongly nonlinear data are harder to learn.

        Examples
        --------
        >>> process = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0)
        >>> process.nonlinearity().min() >= 0.05 and process.injectivity() >= 0.1
        True
        """
        rng = generator(random_state)
        for _ in range(MAX_DRAWS):
            process = cls.from_support(support, n_candidates=n_candidates, random_state=rng)
            if process.nonlinearity().min() >= nonlinearity and process.injectivity() >= injectivity:
                return process
        requested = f"`nonlinearity={nonlinearity}` and `injectivity={injectivity}`"
        why = f"none of {MAX_DRAWS} simulations with this `support` reached {requested}"
        raise InputError("support", f"{why}. Lower one of these thresholds, or add observed variables.")

    @property
    def d(self) -> int:
        return self.marginal.d

    @property
    def support(self) -> NDArray[np.int32]:
        """Which latent affects which observed variable; (m, d) zeros and ones."""
        return self.mixing.support

    def nonlinearity(self, n: int = 4_000) -> NDArray[np.float64]:
        """Return the nonlinearity of each observed variable, from n samples: see `SparseMixing.nonlinearity`."""
        return self.mixing.nonlinearity(self.marginal.sample(n, random_state=0, dtype=torch.float64))

    def injectivity(self, n: int = 4_000) -> float:
        """Return the least singular value of the standardised Jacobian over n samples; near 0, x loses latents."""
        z = self.marginal.sample(n, random_state=0, dtype=torch.float64)
        gradients = self.mixing.gradients(z) * z.std(0) / self.mixing(z).std(0)[:, None]
        return float(torch.linalg.svdvals(gradients)[:, -1].min())

    @property
    def assumptions(self) -> frozenset[Assumption]:
        held = frozenset[Assumption]()
        if self.nonlinearity().min() >= NONLINEAR:  # then gradients span all directions of the support
            held |= {theory.SUFFICIENT_NONLINEARITY}
        match self.marginal:
            case Around(distribution=GeneralizedNormal() | Truncated()) | Uniform(space=Box()):
                held |= {theory.POSITIVE_DENSITY, theory.INDEPENDENT_BLOCKS}
        return held

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        z = self.marginal.sample(n, random_state=rng, device=device, dtype=dtype)
        return Sample(x=placed(self.mixing, device)(z), z=z)


class SparseDistribution(ABC):
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
class BernoulliGaussian(SparseDistribution):
    """Independent latents that are active with a given probability and then standard normal.

    Examples
    --------
    >>> round(BernoulliGaussian(50, 0.1).n_active, 6)
    5.0
    """

    d: int
    probability: float

    def __post_init__(self) -> None:
        check_positive(d=self.d)
        if not 0 < self.probability <= 1:
            raise InputError("probability", f"`probability` must be in (0, 1], got {self.probability}.")

    @property
    def frequency(self) -> Tensor:
        return torch.full((self.d,), self.probability, dtype=torch.float64)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        return frozenset({theory.SCATTERED_ACTIVATIONS} if self.probability < 1 else ())

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        values = torch.randn(n, self.d, generator=rng, device=device, dtype=dtype)
        active = torch.rand(n, self.d, generator=rng, device=device) < self.probability
        return values * active


@dataclass(frozen=True)
class KSparse(SparseDistribution):
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
        return torch.full((self.d,), self.k / self.d, dtype=torch.float64)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        return frozenset({theory.SCATTERED_ACTIVATIONS} if 2 * self.k < self.d else ())

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
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
    distribution : SparseDistribution
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
    >>> tuple(sample.x.shape), tuple(sample.z.shape), process.distribution.n_active
    ((100, 16), (100, 64), 3.0)
    """

    dictionary: Tensor
    distribution: SparseDistribution
    offset: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.dictionary.ndim != 2 or len(self.dictionary) != self.distribution.d:
            shape = tuple(self.dictionary.shape)
            raise InputError(
                "dictionary", f"`dictionary` must have a row for each of {self.distribution.d} latents, got {shape}."
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
        return len(self.dictionary)

    @property
    def coherence(self) -> float:
        """Largest absolute cosine between two atoms."""
        return float((self.dictionary @ self.dictionary.T).abs().fill_diagonal_(0).max())

    @property
    def truth(self) -> NDArray[np.float64]:
        """The true atoms, to compare with ``components_``; (d, m)."""
        return self.dictionary.double().numpy()

    @property
    def assumptions(self) -> frozenset[Assumption]:
        d, m = self.dictionary.shape
        held = {
            theory.SPARSE_COMBINATION: not self.noise,
            theory.INDEPENDENT_ATOMS: d <= m and int(torch.linalg.matrix_rank(self.dictionary.double())) == d,
            theory.FEWER_THAN_SPARK: self.distribution.n_active < (1 + 1 / max(self.coherence, 1e-12)) / 2,
        }
        return self.distribution.assumptions | {assumption for assumption, holds in held.items() if holds}

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        z = self.distribution.draw(n, rng, device, dtype)
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
        return direction / direction.norm() * self.offset * self.distribution.n_active**0.5


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
