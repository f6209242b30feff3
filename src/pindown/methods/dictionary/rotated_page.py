"""A page that shows what a rotation of a decoder's latents changes: a slider for each latent, before and after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pindown.auditing.page import STEPS, Drawing, fill, sliders, write_whole
from pindown.methods.dictionary.disentangled import Disentangled, in_range
from pindown.simulate.images import tiles


@dataclass(frozen=True, eq=False)
class RotatedPage:
    """The content of the page of a rotated decoder."""

    title: str
    kicker: str
    lead: str
    footer: str
    claims: bool
    said: str
    drawings: tuple[Drawing, ...]

    @classmethod
    def of(cls, found: Disentangled, drawings: tuple[Drawing, ...]) -> RotatedPage:
        """Return the page of a result."""
        return cls(
            title="One rotation",
            kicker=f"pindown disentangle · {len(found.rotation)} latents",
            lead=f"A pixel depends on {found.after:.2f} latents along the new axes, {found.before:.2f} along the old "
            f"ones, and {found.chance:.2f} at chance. Nothing was trained.",
            footer="This page is self-contained.",
            claims=found.claim is not None,
            said=found.claim or "Nothing is claimed: " + "; ".join(found.against) + ".",
            drawings=drawings,
        )


def before_and_after(found: Disentangled, what: str = "The decoder") -> tuple[Drawing, Drawing]:
    """Return a slider for each latent of an image decoder, before and after the rotation; ``what`` names the decoder.

    Examples
    --------
    >>> import torch, pindown
    >>> corner, edge = torch.zeros(3, 8, 8), torch.zeros(3, 8, 8)
    >>> corner[:, :4, :4], edge[:, :, 7] = 1, 1
    >>> decoder = lambda z: z[:, 0, None, None, None] * corner + z[:, 1, None, None, None] * edge
    >>> codes = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> [str(drawing.svg).count('type="range"') for drawing in before_and_after(pindown.disentangle(decoder, codes))]
    [2, 2]
    """
    found.require_pictures("save_rotated")
    before, after = (
        tiles(in_range(found.traversed(steps=STEPS, rotated=rotated).float())) for rotated in (False, True)
    )
    shape = (len(found.rotation), STEPS, *before.shape[1:])
    caption = "Each slider moves one latent through its range; the others stay at their median."
    return (
        sliders(before.reshape(shape), f"{what}, as it was given. {caption}", "Before"),
        sliders(after.reshape(shape), f"The same decoder, with rotated latents. {caption}", "After one rotation"),
    )


def save_rotated(found: Disentangled, path: str | Path) -> Path:
    """Write a page with a slider for each latent of a decoder, before and after the rotation, and the claim.

    Parameters
    ----------
    found
        The result of `pindown.disentangle` for an image decoder.
    path
        The file, such as ``rotated.html``. The page is self-contained.

    Raises
    ------
    ValueError
        If the decoder does not return images.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile, torch, pindown
    >>> corner, edge = torch.zeros(3, 8, 8), torch.zeros(3, 8, 8)
    >>> corner[:, :4, :4], edge[:, :, 7] = 1, 1
    >>> decoder = lambda z: z[:, 0, None, None, None] * corner + z[:, 1, None, None, None] * edge
    >>> codes = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> found = pindown.disentangle(decoder, codes, n_codes=50)
    >>> with tempfile.TemporaryDirectory() as folder:  # two sliders before, two after
    ...     save_rotated(found, f"{folder}/rotated.html").read_text(encoding="utf-8").count('type="range"')
    4
    """
    drawings = before_and_after(found)
    path = Path(path)
    write_whole(fill("rotated.html.j2", page=RotatedPage.of(found, drawings)), path)
    return path
