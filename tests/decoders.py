"""Decoders of every kind, in float64 with known weights, and their Jacobians and L1 norms by reverse mode."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from pindown import networks

RAW = torch.ones(())


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def latents(n=6, d=3, dtype=torch.float64):
    return torch.randn(n, d, generator=rng(), dtype=dtype)


def seeded(build):
    """A decoder in float64 with known weights, none of them zero."""
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        decoder = build().double()
        for weight in decoder.parameters():
            nn.init.normal_(weight, std=0.4)
    return decoder


def perceptron(activation):
    return lambda: nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 3))


class Bilinear(nn.Module):
    """A layer without a rule."""

    def forward(self, z):
        return torch.stack([z[:, 0] * z[:, 1], z[:, 1] * z[:, 2], z[:, 0]], dim=1)


class Causal(nn.Module):
    """Attention by torch's own function, as layers of other packages have it; without a rule."""

    def forward(self, x):
        return x + nn.functional.scaled_dot_product_attention(x, x, x.tanh(), is_causal=True)


def attending(**options):
    options = {"activation": nn.SiLU(), "dropout": 0.0, "batch_first": True} | options
    layer = nn.TransformerEncoderLayer(4, 2, 2, **options)
    return nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), layer, nn.Flatten(), nn.Linear(8, 2))


SMOOTH = {
    "tanh": perceptron(nn.Tanh()),
    "sigmoid": perceptron(nn.Sigmoid()),
    "softplus": perceptron(nn.Softplus(beta=2.0)),
    "silu": perceptron(nn.SiLU()),
    "gelu": perceptron(nn.GELU()),
    "gelu by tanh": perceptron(nn.GELU(approximate="tanh")),
    "elu": perceptron(nn.ELU(alpha=0.5)),
    "no rule": lambda: nn.Sequential(nn.Linear(3, 3), Bilinear(), nn.Linear(3, 4)),
    "no rule at all": Bilinear,
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 4)),
    "group norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(2, 6), nn.Tanh(), nn.Linear(6, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4)).eval(),
    "softmax": lambda: nn.Sequential(nn.Linear(3, 6), nn.Softmax(1), nn.Linear(6, 4)),
    "images": lambda: nn.Sequential(
        nn.Linear(3, 4),
        nn.Tanh(),
        nn.Unflatten(1, (2, 1, 2)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2, 2, 3, padding=1, groups=2),
        nn.SiLU(),
        nn.ConvTranspose2d(2, 1, 4, stride=2, padding=1),
        nn.AvgPool2d(2),
    ),
    "images in groups": lambda: nn.Sequential(
        nn.Linear(3, 16),
        nn.Unflatten(1, (4, 2, 2)),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.ConvTranspose2d(4, 2, 2, stride=2),
        nn.GroupNorm(1, 2, affine=False),
    ),
    "attention": lambda: attending(),
    "attention of one's own": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.Unflatten(1, (2, 2)), Causal(), nn.Flatten(), nn.Linear(4, 2)
    ),
    "circular": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Tanh(), nn.Flatten()
    ),
}
KINKED = {
    "relu": perceptron(nn.ReLU()),
    "in place": perceptron(nn.ReLU(inplace=True)),
    "leaky": perceptron(nn.LeakyReLU(0.1)),
    "skip mlp": lambda: networks.skip_mlp(3, 5, hidden=(8,)),
    "residual": lambda: networks.residual(3, 5, width=8),
    "linear": lambda: nn.Linear(3, 5),
    "attention, normalised first": lambda: attending(norm_first=True, activation="relu"),
    "deconvolutional": lambda: networks.deconvolutional(3, (1, 8, 8), widths=(2,), hidden=(4,)),
}
DECODERS = SMOOTH | KINKED
ALL, NONLINEAR = (pytest.mark.parametrize("build", c.values(), ids=c.keys()) for c in (DECODERS, SMOOTH))


def reference(decoder, z):
    """The Jacobian of each row by reverse mode, (n, m, d)."""
    with sdpa_kernel(SDPBackend.MATH):  # torch's fast attention has no such derivatives
        return torch.func.vmap(torch.func.jacrev(lambda row: decoder(row[None])[0].flatten()))(z)


def by_hand(decoder, z):
    scaled = reference(decoder, z) * z.std(0, correction=0) / decoder(z).flatten(1).std(0, correction=0)[:, None]
    return scaled.abs().sum() / len(z)
