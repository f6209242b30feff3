"""A start of an autoencoder, such as that of `Dictionary`, at data that have been unrolled.

From a linear start the codes are at first a projection of the data. If that folds the data, so that distant latents
share a code, every restart ends in the same poor likelihood: to unfold them, rows would have to pass through each
other. Distances along the data see no fold.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.preprocessing import PolynomialFeatures
from torch import Tensor, nn

from pindown.methods.dictionary.autoencoder import Coding
from pindown.training import Trainer

N_LANDMARKS, N_NEIGHBOURS = 300, 10
"""Rows whose distances from all others are taken, and neighbours of each row that the ways go through."""

DIRECTIONS, ITERATIONS = (2, 3, 4, 5, 6, 8), 6
"""Leading directions of pictures for each latent, in which neighbours are looked for: those are taken whose coordinates
tell most. And iterations that find them. With too few, factors that change little are folded onto others, with too many
ways along the data are lost: which is which depends on the factors."""

TOLD_DIRECTIONS, TOLD_ROWS, TOLD_NEIGHBOURS = 5, 3_000, 5
"""Directions for each latent that coordinates should tell, by the rows that are neighbours in them; and rows that the
number of directions is chosen by."""

BENT = 0.1
"""Share of a coordinate that is a parabola of those before it, above which it is taken out: below, it is chance."""

LEAST_SPREAD = 1e-6
"""Standard deviation below which a coordinate is constant: there are fewer directions than were asked for."""

FOLDED = 0.05
"""By how much less of pictures the codes of a folded fit tell: more than two fits differ by that have no folds."""

LESSON_STEPS, ON_GPU, LESSON_ROWS, LESSON_RATE = 200, 4, 512, 1e-2
"""Most steps in which encoder and decoder learn unrolled coordinates; how many times more on a GPU, where those of
pictures are wider and steps cost little; rows per step; learning rate. A decoder that has not learned them starts with
much noise, in which factors that change few pixels are lost."""


def unrolled(x: np.ndarray, d: int) -> np.ndarray:
    """Return d coordinates of each row, of unit variance, whose distances are those along the data: landmark Isomap.

    Distances go from neighbour to neighbour. Those between the first rows, the landmarks, are turned into coordinates
    by classical scaling, and the other rows are placed by their distances from these.

    References
    ----------
    de Silva, Tenenbaum, Global versus local methods in nonlinear dimensionality reduction, NeurIPS 2002.

    Examples
    --------
    Three quarters of a circle become a line, from which the angle can be read off:

    >>> angle = np.random.default_rng(0).uniform(0, 1.5 * np.pi, 500)
    >>> line = unrolled(np.stack([np.cos(angle), np.sin(angle)], axis=1), 1)[:, 0]
    >>> bool(abs(np.corrcoef(line, angle)[0, 1]) > 0.999)
    True
    """
    n_landmarks = min(N_LANDMARKS, len(x))
    graph = kneighbors_graph(x, min(N_NEIGHBOURS, len(x) - 1), mode="distance")
    distance = dijkstra(graph, directed=False, indices=np.arange(n_landmarks))  # (landmarks, n)
    connected = np.isfinite(distance)
    squares = np.where(connected, distance, distance[connected].max()) ** 2  # what cannot be reached is far
    mean = squares[:, :n_landmarks].mean(1)  # (landmarks,)
    inner = -0.5 * (squares[:, :n_landmarks] - mean - mean[:, None] + mean.mean())
    direction = np.linalg.eigh(inner)[1][:, ::-1][:, :d]  # (landmarks, d)
    found = (mean[:, None] - squares).T @ direction
    return (found - found.mean(0)) / np.maximum(found.std(0), LEAST_SPREAD)


class _Lesson(nn.Module):
    """How far codes are from those given, and what is decoded from these is from the data."""

    def __init__(self, model: Coding) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, x: Tensor, z: Tensor, standardised: Tensor) -> Tensor:
        return (self.encoder(x) - z).square().mean() + (self.decoder(z) - standardised).square().mean()


def start_unrolled(model: Coding, x: Tensor, *, max_iter: int, seed: int, device: str | torch.device = "cpu") -> None:
    """Teach an autoencoder the coordinates of unrolled rows, in no more than so many steps; in place."""
    # Each row once: between equal rows there is no way, and ten of them would have no other neighbours.
    x = x[np.sort(np.unique(_marks(x), axis=0, return_index=True)[1])]
    standardised = model.standardised(x)
    unroll = unrolled if x.ndim == 2 else least_folded
    z = torch.as_tensor(unroll(_laid_out(model, x, device), model.d), dtype=standardised.dtype)
    model.straighten(x, z)
    model.to(device)
    rows = tuple(each.to(device) for each in (x, z, standardised))

    def draw(step: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        which = torch.randint(len(x), (LESSON_ROWS,), generator=generator, device=generator.device)
        return tuple(each[which] for each in rows)

    Trainer().train(
        _Lesson(model),
        draw,
        max_iter=min(LESSON_STEPS * (ON_GPU if torch.device(device).type == "cuda" else 1), max_iter),
        learning_rate=LESSON_RATE,
        seed=seed,
        device=device,
        verbose=False,
    )
    model.settle_noise(rows[0])


def least_folded(seen: np.ndarray, d: int) -> np.ndarray:
    """Return unrolled coordinates of rows along as many of their leading directions as leave the fewest folds."""
    choices = {min(times * d, seen.shape[1]) for times in DIRECTIONS}
    some = seen[:TOLD_ROWS]
    goal = some[:, : TOLD_DIRECTIONS * d]
    best = max(sorted(choices), key=lambda n: told_by_neighbours(unbent(unrolled(some[:, :n], d)), goal))
    return unbent(unrolled(seen[:, :best], d))


def unbent(z: np.ndarray) -> np.ndarray:
    """Return coordinates without what is a bend of those before them, of unit variance.

    Ways along the data are longer than distances between latents where pictures change faster. Along a wide sheet this
    makes a coordinate of its own, a parabola of the leading ones, larger than one of a factor that changes little: both
    share what is left. Sprites have their places, a bend of these, and their size.

    Examples
    --------
    >>> place, size = np.random.default_rng(0).normal(size=(2, 1_000))
    >>> bent = np.stack([place, 3 * place**2 + size], axis=1)
    >>> [round(float(abs(np.corrcoef(found[:, 1], size)[0, 1])), 1) for found in (bent, unbent(bent))]
    [0.2, 1.0]
    """
    kept = z[:, :1]
    for coordinate in z.T[1:]:
        terms = PolynomialFeatures(2).fit_transform(kept)
        bend = terms @ np.linalg.lstsq(terms, coordinate, rcond=None)[0]
        own = coordinate - bend if bend.var() > BENT * coordinate.var() else coordinate
        kept = np.column_stack([kept, own / max(own.std(), LEAST_SPREAD)])
    return kept


def told_by_neighbours(codes: np.ndarray, seen: np.ndarray) -> float:
    """Return how much of the variance of rows those tell whose codes are nearest, the mean over columns.

    Where codes are folded, distant rows share them, and neighbours tell little: no truth is needed to see it.

    Examples
    --------
    >>> seen = np.random.default_rng(0).normal(size=(2_000, 2))
    >>> round(told_by_neighbours(seen, seen), 1), round(told_by_neighbours(np.abs(seen), seen), 1)
    (1.0, 0.0)
    """
    k = min(TOLD_NEIGHBOURS, len(codes) - 1)
    near = NearestNeighbors(n_neighbors=k).fit(codes).kneighbors(return_distance=False)
    error = (seen - seen[near].mean(1)).var(0) * k / (k + 1)  # of which that of neighbours is a part
    return float((1 - error / seen.var(0)).mean())


def told(model: Coding, x: Tensor) -> float:
    """Return how much of pictures those tell whose codes are nearest, along their leading directions, whitened."""
    seen = _laid_out(model, x, x.device)[:, : TOLD_DIRECTIONS * model.d]
    return told_by_neighbours(model.codes(x).cpu().numpy(), seen)


def _laid_out(model: Coding, x: Tensor, device: str | torch.device) -> np.ndarray:
    """Return rows in which neighbours are looked for, of pictures along their leading directions.

    Whitened, since a direction in which the data vary little may be the one that keeps their folds apart: of rooms, the
    size of a thing and the angle it is seen from are told by a hundredth of what colours tell.
    """
    seen = model.encoder.preprocess(x)
    if seen.ndim == 2:
        return seen.cpu().numpy()
    flat = seen.flatten(1).float().to(device)
    flat -= flat.mean(0)
    n = min(max(DIRECTIONS) * model.d, len(flat) - 1, flat.shape[1])
    # By subspace iterations, from directions that are the same whatever the device.
    start = torch.randn(flat.shape[1], n, generator=torch.Generator().manual_seed(0)).to(device)
    for _ in range(ITERATIONS):
        start = torch.linalg.qr(flat.mT @ (flat @ start))[0]
    along, spreads, _ = torch.linalg.svd(flat @ start, full_matrices=False)
    kept = spreads > LEAST_SPREAD * spreads[0]
    return along[:, kept].double().cpu().numpy() * len(flat) ** 0.5


def _marks(x: Tensor) -> np.ndarray:
    """Return rows by which equal ones are told: of pictures three sums of their pixels, with random weights."""
    if x.ndim == 2:
        return x.numpy()
    weights = torch.rand(3, x[0].numel(), generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return (x.flatten(1) @ weights.mT).numpy()
