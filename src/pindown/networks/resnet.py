"""A residual network of eighteen layers for images, beside the linear path that all encoders of images have."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from pindown.networks.images import checked, smooth_path
from pindown.networks.vectors import Unfolded, flat

GROUPS = 8
"""Of channels that are normalised together, within each image alone: a row's latents must not depend on others."""

LARGE = 64
"""Pixels a side from which an image is halved twice before the first block."""

KEPT = 2
"""Pixels a side that the last features are pooled to: one would forget where in the picture things are."""


class Block(nn.Module):
    """Two convolutions that change an image, beside the image itself: they start as no change.

    Examples
    --------
    >>> import torch
    >>> x = torch.rand(2, 8, 4, 4)
    >>> torch.equal(Block(8, 8)(x), x)
    True
    """

    def __init__(self, n_in: int, n_out: int, *, stride: int = 1) -> None:
        super().__init__()
        last = nn.GroupNorm(GROUPS, n_out)
        nn.init.zeros_(last.weight)
        self.change = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(GROUPS, n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            last,
        )
        same = n_in == n_out and stride == 1
        self.along = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (n, n_out, h, w), halved if there is a stride."""
        return nn.functional.relu(self.along(x) + self.change(x))


def resnet18(shape: tuple[int, ...], n_out: int, *, width: int = 64) -> nn.Module:
    """Return a residual network of eighteen layers, beside the linear path of :func:`convolutional`.

    For pictures that `networks.convolutional`, the default, is too small for: eleven million weights, and about thirty
    times its work. Groups of channels are normalised within each image, never across a batch.

    Parameters
    ----------
    shape
        Of an image, (c, h, w).
    n_out
        Number of codes.
    width
        Channels of the first blocks, a multiple of 8; each of the three further stages doubles them.

    References
    ----------
    He et al., Deep residual learning for image recognition, CVPR 2016. Wu and He, Group normalization, ECCV 2018.

    Examples
    --------
    >>> import torch
    >>> encoder = resnet18((3, 32, 32), 4, width=8)
    >>> images = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(encoder(2 * images), 2 * encoder(images), atol=1e-4)  # linear to begin with
    True
    """
    n_channels, *sizes = checked("resnet18", shape, "an image is (c, h, w)", 3)
    if width < GROUPS or width % GROUPS:
        raise ValueError(f"networks.resnet18: width must be a multiple of {GROUPS}, got {width}.")
    stem: list[nn.Module] = [nn.Conv2d(n_channels, width, 3, stride=2 if max(sizes) >= LARGE else 1, padding=1)]
    stem += [nn.GroupNorm(GROUPS, width), nn.ReLU()]
    if max(sizes) > LARGE:
        stem.append(nn.MaxPool2d(3, stride=2, padding=1))
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks: list[nn.Module] = []
    for stage, (before, after) in enumerate(pairwise(widths)):
        blocks += [Block(before, after, stride=2 if stage else 1), Block(after, after)]
    head = flat(widths[-1] * KEPT**2, n_out, hidden=())
    bend = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(KEPT), nn.Flatten(), *head.children())
    return Unfolded(smooth_path(n_channels, sizes, n_out), bend)
