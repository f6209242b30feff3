"""Laws of sparse codes: how often each fires, with which others, and how strongly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pindown import theory
from pindown._placing import placed
from pindown._random import generator
from pindown.theory import Assumption


class CodeLaw(ABC):
    """What codes (n, d) are drawn from; abstract. ``frequency`` (d,) is how often each is not 0."""

    d: int

    @property
    @abstractmethod
    def frequency(self) -> Tensor:
        """Share of rows at which each code fires; (d,) in float64."""

    @property
    def n_active(self) -> float:
        """Mean number of codes that fire at a row, L0."""
        return float(self.frequency.sum())

    @property
    @abstractmethod
    def assumptions(self) -> frozenset[Assumption]:
        """What theorems may rest on."""

    @abstractmethod
    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n rows of codes; waits for no device."""


@dataclass(frozen=True)
class BernoulliGaussian(CodeLaw):
    """Codes that fire independently of each other, each at a share of the rows, with standard normal values.

    Examples
    --------
    >>> round(BernoulliGaussian(50, 0.1).n_active, 6)
    5.0
    """

    d: int
    share: float

    def __post_init__(self) -> None:
        _require_count("BernoulliGaussian", "d", self.d)
        if not 0 < self.share <= 1:
            raise ValueError(f"BernoulliGaussian: share must be in (0, 1], got {self.share}.")

    @property
    def frequency(self) -> Tensor:
        """Share of rows at which each code fires."""
        return torch.full((self.d,), self.share, dtype=torch.float64)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Normal values that are there now and then are scattered; those that are always there are not."""
        return frozenset({theory.SCATTERED_CODES} if self.share < 1 else ())

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n rows of codes."""
        values = torch.randn(n, self.d, generator=rng, device=device, dtype=dtype)
        fires = torch.rand(n, self.d, generator=rng, device=device) < self.share
        return values * fires


@dataclass(frozen=True)
class Exactly(CodeLaw):
    r"""Codes of which just so many fire at a row, any with any others, at a strength of about 1.

    Strengths are :math:`|1 + s\,\varepsilon|`, ε standard normal.

    Parameters
    ----------
    d : int
        Number of codes.
    n_active_codes : int
        How many fire.
    spread : float
        s.

    Examples
    --------
    >>> law = Exactly(50, 5)
    >>> codes = law.draw(10, torch.Generator().manual_seed(0), torch.device("cpu"), torch.float32)
    >>> (codes > 0).sum(1).tolist()
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """

    d: int
    n_active_codes: int
    spread: float = 0.25

    def __post_init__(self) -> None:
        _require_count("Exactly", "d", self.d)
        if not 1 <= self.n_active_codes <= self.d:
            raise ValueError(f"Exactly: n_active_codes must be 1 to d={self.d}, got {self.n_active_codes}.")

    @property
    def frequency(self) -> Tensor:
        """Share of rows at which each code fires."""
        return torch.full((self.d,), self.n_active_codes / self.d, dtype=torch.float64)

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Few of many, in all combinations, are scattered; as soon as half of them fire they need not be."""
        return frozenset({theory.SCATTERED_CODES} if 2 * self.n_active_codes < self.d else ())

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n rows of codes."""
        lots = torch.rand(n, self.d, generator=rng, device=device)
        chosen = lots.topk(self.n_active_codes, dim=1).indices
        strength = _strengths((n, self.n_active_codes), self.spread, rng, device, dtype)
        return torch.zeros(n, self.d, device=device, dtype=dtype).scatter_(1, chosen, strength)


@dataclass(frozen=True)
class Hierarchy(CodeLaw):
    r"""Codes as of a language: some common, most rare, some only with others, and some often together.

    Frequencies fall by Zipf's law, :math:`p_r = p_1 r^{-s}`, from the commonest to the rarest. The commonest
    ``n_roots`` are roots of trees: each has ``branching`` children, these as many again, to a ``depth``; a child fires
    only if its parent does, and just so often that its frequency is Zipf's. Roots, and codes that are in no tree,
    depend on each other by a Gaussian copula of low rank. After the recipe of SynthSAEBench (Chanin and
    Garriga-Alonso, 2026), whose world has 16,384 codes; there siblings never fire together, and here they may.

    Parameters
    ----------
    d : int
        Number of codes.
    commonest, rarest : float
        Shares of rows at which the first and the last fire.
    n_roots, branching, depth : int
        Of the trees; depth 0 has none.
    correlation : float
        Share of the copula's variance that common factors have.
    rank : int
        Their number.
    spread : float
        Of strengths, as in `Exactly`.

    Examples
    --------
    >>> law = Hierarchy(1_024, n_roots=8)
    >>> codes = law.draw(2_000, torch.Generator().manual_seed(0), torch.device("cpu"), torch.float32)
    >>> alone = (codes[:, 8:40] > 0) & (codes[:, law.parent[8:40]] == 0)
    >>> int(alone.sum()), round(law.n_active)
    (0, 3)
    """

    d: int
    commonest: float = 0.4
    rarest: float = 5e-4
    n_roots: int = 128
    branching: int = 4
    depth: int = 3
    correlation: float = 0.1
    rank: int = 25
    spread: float = 0.15

    def __post_init__(self) -> None:
        _require_count("Hierarchy", "d", self.d)
        if not 0 < self.rarest <= self.commonest < 1:
            raise ValueError(
                f"Hierarchy: shares must have 0 < rarest <= commonest < 1, got {self.rarest} and {self.commonest}."
            )
        if not 0 <= self.correlation < 1:
            raise ValueError(f"Hierarchy: correlation must be in [0, 1), got {self.correlation}.")
        if self._n_in_trees > self.d:
            raise ValueError(
                f"Hierarchy: {self.n_roots} trees of depth {self.depth} have {self._n_in_trees} codes, but d={self.d}. "
                "Take fewer roots, or less depth."
            )

    @property
    def _n_in_trees(self) -> int:
        return self.n_roots * sum(self.branching**level for level in range(self.depth + 1)) if self.depth else 0

    @cached_property
    def parent(self) -> Tensor:
        """The parent of each code, −1 for roots and codes in no tree; (d,). Codes are in order of frequency."""
        parent = torch.full((self.d,), -1)
        first, width = 0, self.n_roots
        for _ in range(self.depth):
            children = torch.arange(width * self.branching)
            parent[first + width + children] = first + children % width  # siblings are a generation's width apart
            first, width = first + width, width * self.branching
        return parent

    @cached_property
    def frequency(self) -> Tensor:
        """Share of rows at which each code fires: Zipf's."""
        rank = torch.arange(1, self.d + 1, dtype=torch.float64)
        slope = math.log(self.commonest / self.rarest) / max(math.log(self.d), 1e-12)
        return self.commonest * rank**-slope

    def _generations(self) -> list[tuple[int, int]]:
        """Return of each generation of children where it begins, and how many parents it has."""
        found, first, width = [], 0, self.n_roots
        for _ in range(self.depth):
            found.append((first + width, width))
            first, width = first + width, width * self.branching
        return found

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """A child that never fires without its parent is not scattered."""
        return frozenset({theory.SCATTERED_CODES} if not self.depth and not self.correlation else ())

    @cached_property
    def _settings(self) -> Tensor:
        """Thresholds of the copula, then its loadings; (1 + rank, d) in float64."""
        is_child = self.parent >= 0
        above = torch.where(is_child, self.frequency[self.parent.clamp(min=0)], 1.0)
        level = math.sqrt(2) * torch.special.erfinv(1 - 2 * self.frequency / above)
        factors = torch.randn(self.rank, self.d, generator=generator(0), dtype=torch.float64)
        factors *= math.sqrt(self.correlation) / factors.norm(dim=0)
        return torch.cat([level[None], torch.where(is_child, 0.0, factors)])

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n rows of codes."""
        settings = placed(self._settings, device).float()
        common = torch.randn(n, self.rank, generator=rng, device=device) @ settings[1:]
        own = torch.randn(n, self.d, generator=rng, device=device) * (1 - settings[1:].square().sum(0)).sqrt()
        fires = common.add_(own) > settings[0]
        for first, width in self._generations():  # parents before children, whose lots are independent of theirs
            fires[:, first : first + width * self.branching] &= fires[:, first - width : first].repeat(
                1, self.branching
            )
        return fires * _strengths((n, self.d), self.spread, rng, device, dtype)


def _strengths(
    shape: tuple[int, ...], spread: float, rng: torch.Generator, device: torch.device, dtype: torch.dtype
) -> Tensor:
    return torch.randn(shape, generator=rng, device=device, dtype=dtype).mul_(spread).add_(1).abs_()


def _require_count(owner: str, name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{owner}: {name} must be at least 1, got {value}.")
