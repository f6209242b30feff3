"""`Hierarchy`: sparse latents with a power law, trees and correlations, as in language; and `like_language`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pindown import theory
from pindown._random import RandomState, generator
from pindown.errors import InputError
from pindown.simulate import SparseDistribution, Superposed
from pindown.simulate.process import placed
from pindown.simulate.structured import active_values, atoms
from pindown.theory import Assumption


@dataclass(frozen=True)
class Hierarchy(SparseDistribution):
    r"""Sparse latents with Zipf frequencies, of which some depend on a parent and some are correlated.

    Frequencies fall by Zipf's law, :math:`p_r = p_1 r^{-s}`, from the most to the least frequent. The ``n_roots`` most
    frequent latents are roots of trees: each has ``branching`` children, and so on to a ``depth``. A child is active
    only if its parent is, so often that its frequency follows Zipf's law. Roots, and latents in no tree, are correlated
    by a Gaussian copula of low rank. After SynthSAEBench (Chanin and Garriga-Alonso, 2026), which has 16,384 latents;
    there siblings are never active together, here they may be.

    Parameters
    ----------
    d : int
        Number of latents.
    commonest, rarest : float
        Frequencies of the first and the last.
    n_roots, branching, depth : int
        Of the trees; with depth 0 there are none.
    correlation : float
        Fraction of the copula's variance that common factors explain.
    rank : int
        Number of common factors.
    spread : float
        Of active values, as in `KSparse`.

    Examples
    --------
    >>> distribution = Hierarchy(1_024, n_roots=8)
    >>> z = distribution.draw(2_000, torch.Generator().manual_seed(0), torch.device("cpu"), torch.float32)
    >>> without_parent = (z[:, 8:40] > 0) & (z[:, distribution.parent[8:40]] == 0)
    >>> int(without_parent.sum()), round(distribution.n_active)
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
        if self.d < 1:
            raise InputError("d", f"`d` must be at least 1, got {self.d}.")
        if not 0 < self.rarest <= self.commonest < 1:
            raise InputError("rarest", f"Use 0 < `rarest` <= `commonest` < 1, got {self.rarest} and {self.commonest}.")
        if not 0 <= self.correlation < 1:
            raise InputError("correlation", f"`correlation` must be in [0, 1), got {self.correlation}.")
        in_trees = self.n_roots * sum(self.branching**level for level in range(self.depth + 1)) if self.depth else 0
        if in_trees > self.d:
            raise InputError(
                "n_roots",
                f"{self.n_roots} trees of depth {self.depth} have {in_trees} latents, but `d={self.d}`. Use fewer "
                "roots or less depth.",
            )

    @property
    def _generations(self) -> list[tuple[int, int]]:
        """First child and number of parents of each generation of children."""
        found, first, width = [], 0, self.n_roots
        for _ in range(self.depth):
            found.append((first + width, width))
            first, width = first + width, width * self.branching
        return found

    @cached_property
    def parent(self) -> Tensor:
        """The parent of each latent, −1 for roots and latents in no tree; (d,). Latents are sorted by frequency."""
        parent = torch.full((self.d,), -1)
        for first, width in self._generations:
            children = torch.arange(width * self.branching)
            parent[first + children] = first - width + children % width  # siblings are a generation's width apart
        return parent

    @cached_property
    def frequency(self) -> Tensor:
        """Fraction of samples in which each latent is active."""
        rank = torch.arange(1, self.d + 1, dtype=torch.float64)
        slope = math.log(self.commonest / self.rarest) / max(math.log(self.d), 1e-12)
        return self.commonest * rank**-slope

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Scattered only without trees and correlations."""
        return frozenset({theory.SCATTERED_ACTIVATIONS} if not self.depth and not self.correlation else ())

    @cached_property
    def _copula(self) -> Tensor:
        """Thresholds of the copula, then its loadings; (1 + rank, d) in float64."""
        is_child = self.parent >= 0
        above = torch.where(is_child, self.frequency[self.parent.clamp(min=0)], 1.0)
        level = math.sqrt(2) * torch.special.erfinv(1 - 2 * self.frequency / above)
        factors = torch.randn(self.rank, self.d, generator=generator(0), dtype=torch.float64)
        factors *= math.sqrt(self.correlation) / factors.norm(dim=0)
        return torch.cat([level[None], torch.where(is_child, 0.0, factors)])

    def draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw n samples of the latents."""
        copula = placed(self._copula, device).float()
        common = torch.randn(n, self.rank, generator=rng, device=device) @ copula[1:]
        own = torch.randn(n, self.d, generator=rng, device=device) * (1 - copula[1:].square().sum(0)).sqrt()
        active = common.add_(own) > copula[0]
        for first, width in self._generations:  # parents before children
            parents = active[:, first - width : first].repeat(1, self.branching)
            active[:, first : first + width * self.branching] &= parents
        return active * active_values((n, self.d), self.spread, rng, device, dtype)


def like_language(
    d: int = 16_384, m: int = 768, *, n_roots: int | None = None, random_state: RandomState = None
) -> Superposed:
    """Return a `Superposed` simulation with latents from `Hierarchy` and an offset."""
    roots = max(1, d // 128) if n_roots is None else n_roots
    return Superposed(atoms(d, m, random_state=random_state), Hierarchy(d, n_roots=roots), offset=1.0)
