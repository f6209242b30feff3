"""Activations as of a network: more features than dimensions, each a direction, few at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import RandomState, generator
from pindown.processes._base import Process, Sample
from pindown.processes.code_laws import BernoulliGaussian, CodeLaw, Exactly, Hierarchy
from pindown.theory import Assumption


@dataclass(frozen=True, eq=False)
class Superposed(Process):
    r"""Sparse codes behind a dictionary: :math:`x = D^\top z + b + \sigma\varepsilon`, z from a law of sparse codes.

    Parameters
    ----------
    dictionary : Tensor of shape (d, m)
        An atom of unit length in each row.
    law : CodeLaw
        Of the codes: see `pindown.processes.code_laws`.
    offset : float
        Length of b, in a direction of its own, relative to the spread of x − b: activations of networks are not
        centred, which kills features of those who do not centre them.
    noise : float
        σ.

    Examples
    --------
    >>> world = Superposed.overcomplete(64, 16, n_active=3, random_state=0)
    >>> sample = world.sample(100, random_state=1)
    >>> tuple(sample.x.shape), tuple(sample.z.shape), world.law.n_active
    ((100, 16), (100, 64), 3.0)
    """

    dictionary: Tensor
    law: CodeLaw
    offset: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.dictionary.ndim != 2 or len(self.dictionary) != self.law.d:
            raise ValueError(
                f"Superposed: the dictionary must have an atom in a row for each of {self.law.d} codes, got shape "
                f"{tuple(self.dictionary.shape)}."
            )
        if self.noise < 0 or self.offset < 0:
            raise ValueError(f"Superposed: noise and offset must be at least 0, got {self.noise} and {self.offset}.")

    @classmethod
    def complete(
        cls, d: int, share: float = 0.1, *, noise: float = 0.0, random_state: RandomState = None
    ) -> Superposed:
        """As many dimensions as features, which fire independently of each other, with normal values."""
        return cls(atoms(d, d, random_state=random_state), BernoulliGaussian(d, share), noise=noise)

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
        """More features than dimensions, of which just so many fire at a time: superposition."""
        return cls(atoms(d, m, coherence=coherence, random_state=random_state), Exactly(d, n_active), offset, noise)

    @classmethod
    def like_language(
        cls, d: int = 16_384, m: int = 768, *, n_roots: int | None = None, random_state: RandomState = None
    ) -> Superposed:
        """Frequencies by Zipf's law, a hierarchy and correlations, behind an offset: see `code_laws.Hierarchy`."""
        roots = max(1, d // 128) if n_roots is None else n_roots
        return cls(atoms(d, m, random_state=random_state), Hierarchy(d, n_roots=roots), offset=1.0)

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.dictionary)

    @property
    def truth(self) -> NDArray[np.float64]:
        """The atoms, to compare ``components_`` with; (d, m)."""
        return self.dictionary.double().numpy()

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """What the theorems may rest on in this world."""
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
        atoms = placed(self.dictionary, device).to(dtype)
        x = z @ atoms
        if self.offset:
            x += placed(self._shift, device).to(dtype)
        if self.noise:
            x += self.noise * torch.randn(x.shape, generator=rng, device=device, dtype=dtype)
        return Sample(x=x, z=z)

    @cached_property
    def _shift(self) -> Tensor:
        """The vector b."""
        m = self.dictionary.shape[1]
        direction = torch.randn(m, generator=generator(0), dtype=torch.float64)
        return direction / direction.norm() * self.offset * self.law.n_active**0.5


def atoms(d: int, m: int, *, coherence: float = 0.0, random_state: RandomState = None) -> Tensor:
    """Return d directions of unit length in m dimensions, drawn at random; (d, m).

    Parameters
    ----------
    d, m : int
        How many, and in how many dimensions.
    coherence : float
        In [0, 1): the cosine of atoms, four by four, with each other. At 0 they have nothing to do with each other.
    random_state : int, RandomState, Generator or None
        Seed.

    Examples
    --------
    >>> close = atoms(8, 5_000, coherence=0.9, random_state=0)
    >>> [round(abs(float(close[0] @ close[k])), 1) for k in (3, 4)]
    [0.9, 0.0]
    """
    if not 0 <= coherence < 1:
        raise ValueError(f"atoms: coherence must be in [0, 1), got {coherence}.")
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
