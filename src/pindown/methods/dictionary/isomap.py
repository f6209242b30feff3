"""Isomap initialisation of an autoencoder: distances along the data are not affected by folds."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.preprocessing import PolynomialFeatures
from torch import Tensor, nn

from pindown.methods.dictionary.autoencoder import EncoderDecoder
from pindown.metrics.arrays import Matrix
from pindown.training import Trainer

N_LANDMARKS = 300  # samples whose distances from all others are taken
N_NEIGHBOURS = 10  # neighbours of each sample in the graph
DIRECTIONS = (2, 3, 4, 5, 6, 8)  # per latent, in which neighbours are tried: few fold the data, many lose their paths
ITERATIONS = 6  # subspace iterations that find these leading directions of images
SCORED_DIRECTIONS, SCORED_SAMPLES, SCORED_NEIGHBOURS = 5, 3_000, 5  # by which the number of directions is chosen
PARABOLIC = 0.1  # fraction of a coordinate that is a quadratic function of earlier ones, above which it is removed
LEAST_SPREAD = 1e-6  # standard deviation below which a coordinate is constant
FOLDED = 0.05  # how much less variance the latents of a folded fit explain; two fits without folds differ by less
FIT_STEPS, ON_GPU = 200, 4  # most steps in which networks learn the coordinates; how many times more on a GPU
FIT_BATCH, FIT_RATE = 512, 1e-2  # their batch size and learning rate


def isomap(x: Matrix, d: int) -> Matrix:
    """Return d coordinates of unit variance along the data: landmark Isomap.

    de Silva, Tenenbaum, Global versus local methods in nonlinear dimensionality reduction, NeurIPS 2002.
    """
    n_landmarks = min(N_LANDMARKS, len(x))
    graph = kneighbors_graph(x, min(N_NEIGHBOURS, len(x) - 1), mode="distance")
    distance = dijkstra(graph, directed=False, indices=np.arange(n_landmarks))  # (landmarks, n)
    connected = np.isfinite(distance)
    squares = np.where(connected, distance, distance[connected].max()) ** 2  # unconnected samples are far
    mean = squares[:, :n_landmarks].mean(1)  # (landmarks,)
    inner = -0.5 * (squares[:, :n_landmarks] - mean - mean[:, None] + mean.mean())
    direction = np.linalg.eigh(inner)[1][:, ::-1][:, :d]  # (landmarks, d)
    found = (mean[:, None] - squares).T @ direction
    return (found - found.mean(0)) / np.maximum(found.std(0), LEAST_SPREAD)


class _Regression(nn.Module):
    """The errors of the encoder as a map to given latents, and of the decoder as a map from these."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, x: Tensor, z: Tensor, standardised: Tensor) -> Tensor:
        return (self.encoder(x) - z).square().mean() + (self.decoder(z) - standardised).square().mean()


def isomap_init(
    model: EncoderDecoder, x: Tensor, *, max_iter: int, seed: int, device: str | torch.device = "cpu"
) -> None:
    """Fit encoder and decoder to Isomap coordinates of samples, in at most ``max_iter`` steps; in place."""
    # Each sample once: duplicates are each other's only neighbours, and would not be connected to the rest.
    x = x[np.sort(np.unique(_fingerprints(x), axis=0, return_index=True)[1])]
    standardised = model.standardised(x)
    coordinates = isomap if x.ndim == 2 else least_folded
    z = torch.as_tensor(coordinates(_neighbour_space(model, x, device), model.d), dtype=standardised.dtype)
    model.set_linear_paths(x, z)
    model.to(device)
    samples = tuple(each.to(device) for each in (x, z, standardised))

    def draw(step: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        which = torch.randint(len(x), (FIT_BATCH,), generator=generator, device=generator.device)
        return tuple(each[which] for each in samples)

    Trainer().train(
        _Regression(model),
        draw,
        max_iter=min(FIT_STEPS * (ON_GPU if torch.device(device).type == "cuda" else 1), max_iter),
        learning_rate=FIT_RATE,
        seed=seed,
    )
    model.estimate_noise(samples[0])


def least_folded(x: Matrix, d: int) -> Matrix:
    """Return Isomap coordinates along as many leading directions (columns) of x as leave the fewest folds."""
    choices = {min(times * d, x.shape[1]) for times in DIRECTIONS}
    some = x[:SCORED_SAMPLES]
    goal = some[:, : SCORED_DIRECTIONS * d]
    best = max(sorted(choices), key=lambda n: explained_by_neighbours(without_parabolas(isomap(some[:, :n], d)), goal))
    return without_parabolas(isomap(x[:, :best], d))


def without_parabolas(z: Matrix) -> Matrix:
    """Remove from each coordinate what is a quadratic function of those before it; unit variance.

    Where images change faster, paths along the data are longer, which adds a parabola of the leading coordinates.
    """
    kept = z[:, :1]
    for coordinate in z.T[1:]:
        terms = PolynomialFeatures(2).fit_transform(kept)
        parabola = terms @ np.linalg.lstsq(terms, coordinate, rcond=None)[0]
        own = coordinate - parabola if parabola.var() > PARABOLIC * coordinate.var() else coordinate
        kept = np.column_stack([kept, own / max(own.std(), LEAST_SPREAD)])
    return kept


def explained_by_neighbours(z: Matrix, x: Matrix) -> float:
    """Return the fraction of the variance of x that nearest neighbours in z explain, mean over columns.

    Where z is folded, distant samples are neighbours and explain little: no ground truth is needed to see it.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(2_000, 2))
    >>> round(explained_by_neighbours(x, x), 1), round(explained_by_neighbours(np.abs(x), x), 1)
    (1.0, 0.0)
    """
    k = min(SCORED_NEIGHBOURS, len(z) - 1)
    near = NearestNeighbors(n_neighbors=k).fit(z).kneighbors(return_distance=False)
    error = (x - x[near].mean(1)).var(0) * k / (k + 1)  # the error of the neighbours' mean is a part of it
    return float((1 - error / x.var(0)).mean())


def explained_by_latents(model: EncoderDecoder, x: Tensor) -> float:
    """Return the fraction of the variance of images, along whitened leading directions, that the latents explain."""
    along = _neighbour_space(model, x, x.device)[:, : SCORED_DIRECTIONS * model.d]
    return explained_by_neighbours(model.encode(x).cpu().numpy(), along)


def _neighbour_space(model: EncoderDecoder, x: Tensor, device: str | torch.device) -> Matrix:
    """Return whitened samples, of images their leading directions, in which neighbours are found."""
    found = model.encoder.preprocess(x)
    if found.ndim == 2:
        return found.cpu().numpy()
    flat = found.flatten(1).float().to(device)
    flat -= flat.mean(0)
    n = min(max(DIRECTIONS) * model.d, len(flat) - 1, flat.shape[1])
    # Subspace iterations from fixed directions: the same on every device.
    basis = torch.randn(flat.shape[1], n, generator=torch.Generator().manual_seed(0)).to(device)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(flat.mT @ (flat @ basis))[0]
    along, spreads, _ = torch.linalg.svd(flat @ basis, full_matrices=False)
    kept = spreads > LEAST_SPREAD * spreads[0]
    return along[:, kept].double().cpu().numpy() * len(flat) ** 0.5


def _fingerprints(x: Tensor) -> Matrix:
    """Return vectors that are equal for equal samples: of images three sums of pixels with random weights."""
    if x.ndim == 2:
        return x.numpy()
    weights = torch.rand(3, x[0].numel(), generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return (x.flatten(1) @ weights.mT).numpy()
