"""`Disentangled`: the rotation that was found, how sure it is, what each latent reaches, and what may be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import theory
from pindown.methods.dictionary.law import Freedom
from pindown.simulate.images import Bytes, contact_sheet
from pindown.theory import structure

BEYOND = 0.5
"""How far pictures may go beyond 0 and 1, as those of an autoencoder do here and there; further they have other
units."""

TIED = 0.01
"""Latents per variable by which the best rotation must be ahead of the next: less is told as a tie."""


@dataclass(frozen=True, eq=False)
class Disentangled:
    """What `disentangle` found.

    Attributes
    ----------
    rotation : ndarray (d, d)
        Orthogonal: ``codes @ rotation`` are the new codes, those that reach most first.
    before, after, chance : float
        Soft number of latents that reach an output, on average: along the old axes, along the new ones, and along
        those that the same search finds where each output's gradients are turned by themselves.
    lead : float
        By how much the best of the starts is ahead of the best of those that ended elsewhere, order and signs aside;
        infinite if none did.
    freedom : Freedom
        Which rotations the law of the codes leaves open.
    dependence : ndarray (d, *shape of an output row)
        Mean absolute derivative of each output by each new latent, both in standardised units.
    support : ndarray of bool (d, *shape)
        Which outputs each new latent reaches: of pictures, its pixels. None of those that hardly vary.
    threshold : float
        What separates them in `dependence`.
    blocks : tuple of structure.Block
        Latents that are told apart, alone or together, by outputs whose gradients bend enough.
    against : tuple of str
        What stands against a claim; empty if nothing that can be looked at does.
    """

    rotation: NDArray[np.float64]
    before: float
    after: float
    chance: float
    lead: float
    freedom: Freedom
    dependence: NDArray[np.float64]
    support: NDArray[np.bool_]
    threshold: float
    blocks: tuple[structure.Block, ...]
    against: tuple[str, ...]
    decoder: Callable[[Tensor], Tensor]
    codes: Tensor

    @property
    def is_tied(self) -> bool:
        """Whether another rotation is as good. If it only mixes latents of one block, blocks may still be claimed."""
        return self.lead < TIED

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if its other assumptions hold; None if something stands against it."""
        if self.against:
            return None
        single = all(block.is_single for block in self.blocks)
        return theory.DICTIONARY_SINGLE if single else theory.DICTIONARY_BLOCKS

    @property
    def claim(self) -> str | None:
        """What may be said, with what is assumed and cannot be seen in a decoder; None if nothing may."""
        theorem = self.guarantee
        if theorem is None:
            return None
        blocks = ", ".join("{" + ", ".join(map(str, sorted(block.latents))) + "}" for block in self.blocks)
        return (
            f"Of the latents {blocks} each is recovered up to an invertible function of it ({theorem.source}), if the "
            "decoder has the distribution of the data, is injective, and no bent map of its codes leaves fewer "
            "dependencies than this rotation does."
        )

    def decode(self, z: Tensor) -> Tensor:
        """Decode new codes: what the decoder makes of them, turned back."""
        return self.decoder(z @ torch.as_tensor(self.rotation.T.copy(), dtype=z.dtype, device=z.device))

    def pictures(self) -> Bytes:
        """Draw which pixels each new latent reaches, side by side, brighter where more; bytes (height, width, 3)."""
        self.require_pictures("pictures")
        return reach_pictures(self.dependence, self.support)

    def traversals(self, *, steps: int = 8, rotated: bool = True) -> Bytes:
        """Draw a row for each latent, which goes through its range while the others stay in the middle.

        Parameters
        ----------
        steps
            Pictures of a row.
        rotated
            Whether latents are the new ones; False draws the old ones, to compare.
        """
        self.require_pictures("traversals")
        x = in_range(self.traversed(steps=steps, rotated=rotated).float())
        return contact_sheet(x if x.shape[1] == 3 else x[:, :1].expand(-1, 3, -1, -1), columns=steps)

    def traversed(self, *, steps: int = 8, rotated: bool = True) -> Tensor:
        """Return what is decoded along each latent, one after the other, as `traversals` draws it; (d · steps, …)."""
        turn = torch.as_tensor(self.rotation if rotated else np.eye(len(self.rotation))).to(self.codes)
        codes = self.codes @ turn
        points = codes.median(0).values.repeat(codes.shape[1], steps, 1)  # (d, steps, d)
        shares = torch.linspace(0.05, 0.95, steps, dtype=codes.dtype, device=codes.device)
        for j, along in enumerate(codes.double().quantile(shares.double(), dim=0).T):  # none of half precision
            points[j, :, j] = along.to(points)
        with torch.no_grad():
            return self.decoder(points.flatten(0, 1) @ turn.mT).cpu()

    def require_pictures(self, what: str) -> None:
        """Refuse to draw what is no picture."""
        if self.support.ndim != 4:
            raise ValueError(
                f"{what}: the decoder makes rows of shape {self.support.shape[1:]}, no pictures (c, h, w). Look at "
                "dependence and support."
            )

    def __str__(self) -> str:
        lead = "no other was met" if np.isinf(self.lead) else f"the next is {self.lead:.3f} behind"
        told = f"a tie: {lead}" if self.is_tied else lead
        said = self.claim if self.claim else "Nothing may be claimed: " + "; ".join(self.against) + "."
        return (
            f"{self.after:.2f} latents reach an output, {self.before:.2f} before and {self.chance:.2f} by chance "
            f"({told}). {str(self.freedom)[:1].upper()}{str(self.freedom)[1:]} {said}"
        )


def in_range(x: Tensor) -> Tensor:
    """Return pictures from 0 to 1: as they are, or stretched from their own range if that is clearly another.

    Examples
    --------
    >>> in_range(torch.tensor([0.2, 1.02])).tolist() == torch.tensor([0.2, 1.02]).tolist()
    True
    >>> in_range(torch.tensor([0.0, 51.0, 255.0])).tolist()
    [0.0, 0.20000000298023224, 1.0]
    """
    low, high = min(0.0, float(x.min())), max(1.0, float(x.max()))
    return x if low > -BEYOND and high < 1 + BEYOND else (x - low) / (high - low)


def reach_pictures(dependence: NDArray[np.float64], support: NDArray[np.bool_]) -> Bytes:
    """Draw which pixels latents reach, side by side, brighter where more; (d, c, h, w) → bytes (height, width, 3).

    Examples
    --------
    >>> reach_pictures(np.ones((2, 3, 8, 8)), np.ones((2, 3, 8, 8), dtype=bool)).shape
    (8, 18, 3)
    """
    strength = torch.as_tensor(np.where(support, dependence, 0.0)).amax(1, keepdim=True)  # of any colour
    strength = strength / strength.amax((1, 2, 3), keepdim=True).clamp_min(1e-12)
    return contact_sheet(strength.expand(-1, 3, -1, -1), columns=len(strength))
