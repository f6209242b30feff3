"""A denoiser of diffusers as a decoder: from latents to images, by way of noise. It can be saved.

diffusers is imported when one is made.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

LEVELS, STEPS = 1_000, 4
"""Amounts of noise that it is trained on, and how many of them an image is drawn in."""

TOKEN, WIDTH, GROUPS = 16, 32, 8
"""Size of the token of a latent, channels of the first layers (on a quarter of the pixels twice as many), and groups
that are normalised."""


class Denoiser(nn.Module):
    r"""Guesses an image behind noise from latents, each shown to it as a token of its own.

    An image x is seen as :math:`\sqrt{\bar\alpha_t} \, x + \sqrt{1 - \bar\alpha_t} \, \epsilon`. Where nothing but
    noise is left to see, the best guess is the mean of all images with these latents.

    Parameters
    ----------
    network : nn.Module
        Called with noisy images (n, c, h, w), amounts of noise (n,) and tokens (n, d, k).
    n_codes : int
        Number of latents.
    shape : (c, h, w)
        Of an image.
    """

    levels: Tensor
    start: Tensor

    def __init__(self, network: nn.Module, n_codes: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.scale, self.shift = (nn.Parameter(torch.randn(n_codes, TOKEN)) for _ in range(2))
        self.mix = nn.Sequential(nn.SiLU(), nn.Linear(TOKEN, TOKEN))
        angle = torch.linspace(0, math.pi / 2, LEVELS + 1)[:-1] + 0.5 * math.pi / (2 * LEVELS)
        self.register_buffer("levels", angle.cos() ** 2)  # how much of an image is left to see
        self.register_buffer("start", torch.randn(1, *shape))

    def forward(self, z: Tensor) -> Tensor:
        """Draw images of latents, always from the same noise; (n, d) → (n, c, h, w)."""
        x = self.start.expand(len(z), *self.start.shape[1:])
        levels = torch.linspace(LEVELS - 1, 0, STEPS + 1).long()[:-1].tolist()
        for now, then in zip(levels, [*levels[1:], None], strict=True):
            guess = self.guessed(x, torch.full((len(z),), now, device=z.device), z)
            if then is None:
                return guess
            noise = (x - self.levels[now].sqrt() * guess) / (1 - self.levels[now]).sqrt()
            x = self.levels[then].sqrt() * guess + (1 - self.levels[then]).sqrt() * noise
        raise AssertionError("there is a last level")

    def mean(self, z: Tensor) -> Tensor:
        """Guess images of latents where all else is noise: their mean; (n, d) → (n, c, h, w)."""
        x = self.start.expand(len(z), *self.start.shape[1:])
        return self.guessed(x, torch.full((len(z),), LEVELS - 1, device=z.device), z)

    def noisy(self, x: Tensor, level: Tensor, noise: Tensor) -> Tensor:
        """Return images with noise; (n, c, h, w), amounts (n,)."""
        kept = self.levels[level][:, None, None, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise

    def guessed(self, x: Tensor, level: Tensor, z: Tensor) -> Tensor:
        """Return what images are behind noise, as far as latents determine them."""
        tokens = self.mix(z[:, :, None] * self.scale + self.shift)
        return self.network(x, level, tokens).sample


def denoising(n_in: int, n_out: Any) -> Denoiser:
    """Return a decoder of latents to images that guesses them behind noise: a small U-Net of diffusers, with attention.

    Yang et al., Diffusion model with cross attention as an inductive bias for disentanglement, NeurIPS 2024.
    """
    shape = tuple(n_out) if isinstance(n_out, tuple) else (n_out,)
    if len(shape) != 3 or any(side % 2 for side in shape[1:]):
        raise ValueError(f"pictures (c, h, w) with even sides are drawn from noise, got rows of shape {shape}")
    network = _unets()(
        sample_size=shape[1:],
        in_channels=shape[0],
        out_channels=shape[0],
        layers_per_block=1,
        block_out_channels=(WIDTH, 2 * WIDTH),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        mid_block_type="UNetMidBlock2DCrossAttn",
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=GROUPS,
        cross_attention_dim=TOKEN,
        attention_head_dim=GROUPS,
    )
    return Denoiser(network, n_in, shape)


def _unets() -> Any:
    try:
        from diffusers import UNet2DConditionModel
    except ImportError as error:
        raise ImportError(
            "EncDiff needs diffusers, which is not installed: pip install 'pindown[generators]'."
        ) from error
    return UNet2DConditionModel
