"""Could there be an injective mixing, and does an encoder undo it? Directions of X, folds, and structure kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks.arrays import GAMMA, n_landmarks, read, signal_coordinates, smooth_fits, whitened
from pindown.auditing.checks.conditions import INJECTIVE_ENCODER, STRUCTURE_KEPT
from pindown.auditing.checks.noise import MIN_SAMPLES, Encode, Noise, noise_left
from pindown.auditing.checks.verdict import Outcome, Verdict, at_least, bootstrap, judge
from pindown.metrics.arrays import Matrix, row_keys
from pindown.metrics.probes import smooth_regression
from pindown.networks.folding import THRESHOLD, Folding
from pindown.networks.preprocessing import SAMPLES_PER_DIRECTION
from pindown.theory import Assumption

FAINT, NOTHING = 1e-2, 1e-5  # relative spread along a principal direction that counts, and that is none
KEPT, NOT_KEPT = 0.9, 0.85  # fraction of the signal to explain, and that fails: four of five latents give .8
MAX_STRETCH, MIN_SIGNAL = 2.0, 0.05  # largest correction for noise in a prediction; least signal in a direction
MERGED, NOT_MERGED = 0.03, 0.01  # fraction of the variance of X by which samples with equal latents differ
N_NEIGHBOURS, NEAR = 10, 0.5  # of a sample; and fraction of the variance of X between neighbours that are near
ROOM = 1.0  # nats between the information found and the most that so many negatives can show


def enough_directions(X: ArrayLike, d: int, *, random_state: int = 0) -> Verdict:
    """Say whether the data vary in at least as many directions as there should be latents.

    No continuous injective map takes a d-dimensional ball, or the sphere in d dimensions, into fewer than d. The
    statistic is the spread along principal direction d of standardised features relative to the first; directions of
    noise do not count: see `networks.preprocessing`.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 2)) @ [[1, 0, 1], [0, 1, 1]]
    >>> [enough_directions(x, d).outcome for d in (2, 3, 4)]
    ['holds', 'fails', 'fails']
    """
    rows = read("X", X)
    n_features = rows.shape[1]
    if n_features < d:
        why = f"X has {counted(n_features, 'feature')}, fewer than the latents. Ask for at most {n_features}."
        return Verdict(theory.INJECTIVE_MIXING, n_features, d, "fails", why)
    along, found = signal_coordinates(rows)
    if found.n_kept < d:
        why = f"{found.account} Ask for at most {counted(found.n_kept, 'latent')}."
        return Verdict(theory.INJECTIVE_MIXING, found.n_kept, d, "fails", why)
    rng = np.random.default_rng(random_state)
    ratio = bootstrap(lambda some: principal_spreads(along[some])[d - 1], len(rows), rng)
    n_wide = int((principal_spreads(along) > FAINT).sum())
    return at_least(
        theory.INJECTIVE_MIXING,
        ratio,
        FAINT,
        f"the spread of X along principal direction {d} is {ratio} of the largest.",
        fails=f"Ask for at most {counted(n_wide, 'latent')}.",
        undecided=f"That may be noise: {counted(n_wide, 'latent')} would be safe.",
        unless_below=NOTHING,
    )


def principal_spreads(rows: Matrix) -> Matrix:
    """Return standard deviations along principal directions, relative to the first; zeros where nothing varies."""
    centred = rows - rows.mean(0)
    products = centred @ centred.T if len(rows) < rows.shape[1] else centred.T @ centred  # the smaller of the two
    size = np.sqrt(np.linalg.eigvalsh(products)[::-1].clip(0))
    padded = np.pad(size, (0, rows.shape[1] - len(size)))
    return padded / size[0] if size[0] > 0 else padded


def structure_kept(
    encode: Encode,
    X: ArrayLike,
    assumption: Assumption = STRUCTURE_KEPT,
    *,
    noise: Noise | None = None,
    random_state: int = 0,
) -> Verdict:
    r"""Say whether latents explain the signal in X, as they must if mixing and encoder are injective.

    For each direction :math:`u_k` of X above the noise (unit variance; at least a hundredth of the largest spread), a
    smooth regression on the latents predicts :math:`w_k`. It is fitted to half of the samples. The latents are
    computed from X, so :math:`w_k` and :math:`u_k` contain the same noise, which correlates. To correct for this,
    fresh noise ε of the measured size is added to X, and its effect is subtracted:

    .. math:: r^2_k = \frac{(\mathrm{cov}(w_k, u_k) - \mathrm{E}\, \Delta w_k ε_k)^2}
              {(\mathrm{var}\, w_k - \mathrm{E}\, \Delta w_k^2)\,(1 - \mathrm{var}\, ε_k)},

    the squared correlation of the signals. The statistic is its mean, weighted by the fraction of signal in each
    direction. Without noise it is the fraction of the variance of whitened X that latents explain. It does not detect
    one missing latent among many. For images directions are weighted by their variance, and a low value is undecided,
    since moving edges are no smooth function of the latents.

    Parameters
    ----------
    encode : callable
        Maps observations (n, …) to latents (n, d).
    X : array (n, …)
        The observations, best such as the encoder has not seen.
    assumption, noise
        What the verdict is about; and the noise of X, if it was measured already.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(2_000, 2)) @ [[1, 1], [1, -1]]
    >>> [structure_kept(encode, x).outcome for encode in (lambda x: x, lambda x: x[:, :1])]
    ['holds', 'fails']
    """
    rng, rows = np.random.default_rng(random_state), np.asarray(X)
    noise = noise_left(encode, rows) if noise is None else noise
    latents = read("latents", encode(rows))
    white, kept = _standing_out(rows, noise)
    pictures = rows.ndim == 4
    weights = noise.spectrum.variances[kept] if pictures else np.ones(len(kept))
    terms = _products(encode, latents, rows, white, noise, kept, rng)
    r2 = bootstrap(lambda some: _signal_r2(terms[:, some].mean(1), weights), len(rows), rng)
    directions, n_latents = counted(len(kept), "direction"), latents.shape[1]
    only = "only " if r2.value < KEPT else ""
    found = f"{only}{r2.percent} of the structure in the data is kept, averaged over {directions} of X."
    advice = "The encoder lost some of it: more samples, or more steps, may help."
    if n_latents < len(kept):
        advice = f"X varies in more ways than {counted(n_latents, 'latent')} can describe: leave out other features."
    verdict = at_least(assumption, r2, KEPT, found, fails=advice, unless_below=NOT_KEPT)
    if pictures and verdict.outcome == "fails":
        why = f"{found} Smooth maps of latents draw no edges, so that for images this alone decides nothing."
        return replace(verdict, outcome="undecided", why=why)
    return verdict


def _standing_out(rows: NDArray[np.float64], noise: Noise) -> tuple[Matrix, NDArray[np.int64]]:
    """Return samples along the directions above the noise, each of unit variance, and these directions."""
    spreads, most = np.sqrt(noise.spectrum.variances), max(1, len(rows) // SAMPLES_PER_DIRECTION)
    kept = np.flatnonzero(spreads[: noise.spectrum.n_signal] > FAINT * spreads[0])[:most]
    along = noise.spectrum.coordinates(rows.reshape(len(rows), -1), noise.spectrum.n_signal)
    return along[:, kept] / spreads[kept], kept


def _products(
    encode: Encode,
    latents: Matrix,
    rows: NDArray[np.float64],
    white: Matrix,
    noise: Noise,
    kept: NDArray[np.int64],
    rng: np.random.Generator,
) -> Matrix:
    """Return per sample and direction what the explained signal is computed from; (6, n, directions).

    Prediction times observation, the squares of both, and the same three for the effect of fresh noise.
    """
    moved, fresh = [], []
    for extra in noise.draws(len(rows), rng) if not noise.is_nil else ():
        moved.append(read("latents", encode(rows + extra)))
        along = noise.spectrum.coordinates(extra.reshape(len(rows), -1) + noise.spectrum.mean, noise.spectrum.n_signal)
        fresh.append(along[:, kept] / np.sqrt(noise.spectrum.variances[kept]))
    products = np.zeros((6, *white.shape))
    for fit, held_out, mean in smooth_fits(latents, white, rng):
        observed = white[held_out] - mean
        predicted = fit.predict(latents[held_out]).reshape(observed.shape) - mean
        products[:3, held_out] = predicted * observed, predicted**2, observed**2
        for z, extra in zip(moved, fresh, strict=True):
            change = fit.predict(z[held_out]).reshape(observed.shape) - mean - predicted
            products[3:, held_out] += np.stack([change * extra[held_out], change**2, extra[held_out] ** 2]) / len(moved)
    return products


def _signal_r2(products: Matrix, weights: Matrix) -> float:
    """Return the fraction of the signal that is explained, averaged over directions by their signal."""
    both, predicted, observed, both_noise, predicted_noise, noise = products
    signal = np.maximum(observed - noise, MIN_SIGNAL * observed)
    shared, explained = np.maximum(both - both_noise, 0), np.maximum(predicted - predicted_noise, 1e-12)
    stretch = np.minimum(shared / explained, MAX_STRETCH)  # noise shrinks predictions; far more would be noise itself
    missed = signal - 2 * stretch * shared + stretch**2 * explained
    fraction = signal / np.maximum(observed, 1e-300)
    return min(1.0, float(np.average(1 - missed / np.maximum(signal, 1e-300), weights=fraction * weights)))


def distinct_latents(encode: Encode, X: ArrayLike, *, noise: Noise | None = None, random_state: int = 0) -> Verdict:
    r"""Say whether samples that differ have latents that differ, by samples whose latents are neighbours.

    With :math:`u_i` the directions of X above the noise, :math:`c_i` the latents, both of unit variance, and
    i(k) the sample whose latents are the k-th nearest to those of sample i,

    .. math:: \gamma_k = \tfrac12 \mathrm{E} \lVert u_i - u_{i(k)} \rVert^2 \to
              \mathrm{E}\, \mathrm{var}(u \mid c) \quad\text{as}\quad
              \delta_k = \mathrm{E} \lVert c_i - c_{i(k)} \rVert^2 \to 0.

    The statistic is the intercept of a line through :math:`(\delta_k, \gamma_k)`, k up to ten [1]_, as a fraction of
    the variance, less the measured noise, and less the same intercept for a smooth regression of u on c. It is about 0
    if u is a function of c, however nonlinear, and not if the encoder merges distant samples. Blind to latents that
    leave out a smooth part of X. In many dimensions no latents are near each other: then it is undecided.

    References
    ----------
    .. [1] Stefánsson, Končar and Jones, A note on the gamma test, Neural Computing & Applications 5, 1997.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(1_000, 2))
    >>> x = np.column_stack([z, z[:, 0] * z[:, 1], z[:, 0] ** 2])
    >>> [distinct_latents(encode, x).outcome for encode in (lambda x: x[:, :2], lambda x: np.abs(x[:, :2]))]
    ['holds', 'fails']
    """
    rng, rows = np.random.default_rng(random_state), np.asarray(X)
    noise = noise_left(encode, rows) if noise is None else noise
    _, first = np.unique(row_keys(rows), return_index=True)
    different = np.sort(first)  # equal samples would be each other's neighbours
    rows, latents = rows[different], whitened(read("latents", encode(rows))[different])
    if len(rows) < MIN_SAMPLES or not latents.shape[1]:
        why = f"{counted(len(rows), 'sample')} are too few to have near neighbours. Give at least {MIN_SAMPLES}."
        return Verdict(INJECTIVE_ENCODER, math.nan, MERGED, "undecided", why)
    white, kept = _standing_out(rows, noise)
    distance, near = cKDTree(latents).query(latents, k=N_NEIGHBOURS + 1)
    smooth = smooth_regression(latents, white, GAMMA, n_landmarks(len(rows))).predict(latents)
    differ, by_distance = (
        np.square(u[:, None] - u[near[:, 1:]]).mean(2) / 2 for u in (white, np.asarray(smooth).reshape(white.shape))
    )
    own = (noise.spectrum.directions[:, kept] ** 2).T @ noise.spectrum.noise / noise.spectrum.variances[kept]

    def intercept(some: NDArray[np.int64]) -> float:
        means = (distance[some, 1:] ** 2).mean(0), (differ - by_distance)[some].mean(0)
        return max(float(np.polyfit(*means, 1)[1] - own.mean()), 0.0)

    merged = bootstrap(intercept, len(rows), rng)
    nearest = float(differ[:, 0].mean() - own.mean())
    outcome: Outcome = "undecided"
    if merged.high <= NOT_MERGED and nearest <= NEAR * (1 - own.mean()):
        outcome = "holds"
    elif merged.low > MERGED and merged.value > NEAR * nearest:
        outcome = "fails"
    return judge(
        INJECTIVE_ENCODER,
        merged,
        MERGED,
        outcome,
        f"samples with equal latents would differ by {merged.percent} of the variance of X (0 % if no two are merged).",
        fails="The encoder merges samples that differ. More restarts, samples, or features that distinguish them may "
        "help; where distant samples look nearly alike, nothing may.",
        undecided="Samples are too few to have near neighbours, or a few are merged: more samples would show.",
    )


def injective_encoder(folding: Folding) -> Verdict:
    """Return the verdict on what `folding.find_folding` measured.

    Examples
    --------
    >>> injective_encoder(Folding(fraction=0.4, uncertainty=0.01, flat=0, n_samples=2_000)).outcome
    'fails'
    """
    outcomes: dict[str, Outcome] = {"folded": "fails", "flat": "fails", "injective": "holds", "undecided": "undecided"}
    outcome = outcomes[folding.verdict]
    return Verdict(INJECTIVE_ENCODER, folding.fraction, THRESHOLD, outcome, f"the encoder is {folding}.")


def many_negatives(information: float, n_negatives: int) -> Verdict:
    """Say whether negatives are enough to show the information between positives, which InfoNCE bounds by log M.

    Examples
    --------
    >>> [many_negatives(information=2.0, n_negatives=m).outcome for m in (512, 16, 4)]
    ['holds', 'undecided', 'fails']
    """
    bound = math.log(n_negatives)
    room = bound - information
    found = f"positives share at least {information:.2f} nats, and {n_negatives} negatives can show {bound:.2f}."
    fails = "Use a larger batch_size."
    return at_least(theory.MANY_NEGATIVES, room, ROOM, found, fails=fails, unless_below=ROOM / 4)
