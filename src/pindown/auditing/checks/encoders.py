"""Could there be an injective mixing, and does an encoder undo it? Directions of data, folds, what codes tell of X."""

import math
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from pindown import theory
from pindown._names import counted
from pindown.auditing.checks.arrays import GAMMA, N_LANDMARKS, N_RESAMPLES, Matrix, read, seen, smooth_fits, whitened
from pindown.auditing.checks.conditions import INJECTIVE_ENCODER, STRUCTURE_KEPT
from pindown.auditing.checks.noise import MIN_ROWS, Encode, Noise, noise_left
from pindown.auditing.checks.verdict import Estimate, Outcome, Verdict, above, below, estimate
from pindown.metrics.probes import smooth_regression
from pindown.networks.folding import THRESHOLD, Folding
from pindown.networks.spectrum import SAMPLES_PER_DIRECTION
from pindown.theory import Assumption

FAINT, NOTHING = 1e-2, 1e-5
"""Spread along a principal direction, relative to the largest, that counts as one; and below which there is none."""

REBUILT, NOT_REBUILT = 0.9, 0.85
"""Share of the signal in X that codes must tell, and below which they do not: four of five latents tell .8."""

STRETCH, LEAST_SIGNAL = 2.0, 0.05
"""By how much a prediction that noise has shrunk is stretched at most; and the least share of signal in a direction."""

ALIKE, NOT_ALIKE = 0.03, 0.01
"""Share of the variance of X by which rows with one code differ, from which they were laid on each other; and surely
not below: .05 to .1 where a latent is folded, .013 at the most where none is."""

NEAREST, NEAR = 10, 0.5
"""Neighbours among codes that are looked at; and share of the variance of X that must lie between the nearest at most,
as well as of their difference that distance must leave unexplained before they count as laid on each other."""

DEAD = 1e-2
"""Spread of codes along any direction, relative to the largest, below which it has been given up."""

ROOM = 1.0
"""Nats that must lie between the information found and the most that so many negatives can show."""


def enough_directions(X: Any, d: int, *, random_state: int = 0) -> Verdict:
    """Say whether the data vary in as many directions as there are to be latents.

    No continuous injective map takes a d-dimensional ball, or the sphere in d dimensions, into fewer than d. The
    statistic is the spread along principal direction d of standardised columns relative to the first; noise is no
    direction: see `networks.spectrum`.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 2)) @ [[1, 0, 1], [0, 1, 1]]
    >>> [enough_directions(x, d).outcome for d in (2, 3, 4)]
    ['holds', 'fails', 'fails']
    """
    rows = read("X", X)
    if rows.shape[1] < d:
        why = (
            f"X has {counted(rows.shape[1], 'column')}: no injective mixing makes fewer observed than hidden variables."
        )
        return Verdict(theory.INJECTIVE_MIXING, rows.shape[1], d, "fails", f"{why} Ask for fewer latents.")
    along, found = seen(rows)
    if found.n_kept < d:
        why = f"{found.account} There are fewer latents than {d}, or X was reduced: ask for at most {found.n_kept}."
        return Verdict(theory.INJECTIVE_MIXING, found.n_kept, d, "fails", why)
    rng = np.random.default_rng(random_state)
    resampled = (rng.integers(len(rows), size=len(rows)) for _ in range(N_RESAMPLES))
    ratio = estimate([principal_spreads(along[some])[d - 1] for some in resampled])
    outcome = above(ratio, FAINT, unless_below=NOTHING)
    why = f"X varies along its principal direction {d} by {ratio} of the most."
    if outcome == "fails":
        why += " There are fewer latents than that, or X was reduced: ask for fewer."
    elif outcome == "undecided":
        why += " That may be noise: ask for fewer latents."
    return Verdict(theory.INJECTIVE_MIXING, ratio.value, FAINT, outcome, why)


def structure_kept(
    encode: Encode,
    X: Any,
    assumption: Assumption = STRUCTURE_KEPT,
    *,
    noise: Noise | None = None,
    random_state: int = 0,
) -> Verdict:
    r"""Say whether codes tell the signal in X, as they must if mixing and encoder are injective.

    Each direction :math:`u_k` of X that stands out of noise (unit variance; at least a hundredth of the largest spread)
    is told by a smooth regression on codes, :math:`w_k`, made on half of the rows. Both hold the same noise, and would
    agree in it. So fresh noise ε of the size that was measured is added to X, and what it moves is subtracted:

    .. math:: \text{told}_k = \frac{(\mathrm{cov}(w_k, u_k) - \mathrm{E}\, \Delta w_k ε_k)^2}
              {(\mathrm{var}\, w_k - \mathrm{E}\, \Delta w_k^2)\,(1 - \mathrm{var}\, ε_k)},

    the squared correlation of their signals. The statistic is its mean, weighted by the share of signal in each
    direction. Without noise it is the share of the variance of whitened X that codes tell. One latent of many is not
    missed. Of pictures directions count by their variance, and that little is told leaves the question open: moving
    edges are no smooth function of anything.

    Parameters
    ----------
    encode : callable
        Maps rows (n, …) to codes (n, d).
    X : array (n, …)
        The observations, best such as the encoder has not seen.
    assumption : Assumption
        What the verdict speaks of.
    noise : Noise, optional
        Of X, if it was measured already.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(2_000, 2)) @ [[1, 1], [1, -1]]
    >>> [structure_kept(encode, x).outcome for encode in (lambda x: x, lambda x: x[:, :1])]
    ['holds', 'fails']
    """
    rng, rows = np.random.default_rng(random_state), np.asarray(X)
    noise = noise_left(encode, rows) if noise is None else noise
    codes = read("codes", encode(rows))
    white, kept = _standing_out(rows, noise)
    pictures = rows.ndim == 4
    counts = noise.seen.variances[kept] if pictures else np.ones(len(kept))
    told = _signal_r2(_terms(encode, codes, rows, white, noise, kept, rng), counts, rng)
    outcome = above(told, REBUILT, unless_below=NOT_REBUILT)
    n_codes, n_directions = codes.shape[1], len(kept)
    alike = "each counted by its variance" if pictures else "each counted alike"
    why = f"codes tell {told} of the signal in {counted(n_directions, 'direction')} of X, {alike}."
    if pictures and outcome == "fails":
        outcome = "undecided"  # as edges move, pixels are no smooth function of what is seen
        why += " A smooth map of codes draws no edges, so that of pictures this alone decides nothing."
    elif outcome != "holds" and n_codes < n_directions:
        why += (
            f" X holds more than {counted(n_codes, 'code')} can tell: try more latents, where the side variable "
            "supports them, or leave out columns that it is not about."
        )
    elif outcome != "holds":
        why += " The encoder has given some of it up: more rows, or more steps, may help."
    return Verdict(assumption, told.value, REBUILT, outcome, why)


def distinct_latents(
    encode: Encode,
    X: Any,
    assumption: Assumption = INJECTIVE_ENCODER,
    *,
    noise: Noise | None = None,
    random_state: int = 0,
) -> Verdict:
    r"""Say whether rows that differ have codes that differ, by rows whose codes are neighbours.

    With :math:`u_i` the directions of X that stand out of noise, :math:`c_i` the codes, both of unit variance, and
    i(k) the row whose code is the k-th nearest to that of row i,

    .. math:: \gamma_k = \tfrac12 \mathrm{E} \lVert u_i - u_{i(k)} \rVert^2 \to
              \mathrm{E}\, \mathrm{var}(u \mid c) \quad\text{as}\quad
              \delta_k = \mathrm{E} \lVert c_i - c_{i(k)} \rVert^2 \to 0.

    The statistic is where a line through :math:`(\delta_k, \gamma_k)`, k up to ten, meets 0 [1]_, as a share of the
    variance, less the noise that was measured, and less where it does for a smooth regression of u on c, which is a
    function of codes, so that what it shows is distance. It is about 0 if u is a function of c, however bent, and not
    if codes lay one sheet of rows on another: what these differ by is then left to chance. Codes that leave out a
    smooth rest of X, as those of a short fit do, pass. In many dimensions no codes are near: that is undecided.

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
    codes = whitened(read("codes", encode(rows)))
    white, kept = _standing_out(rows, noise)
    if len(rows) < MIN_ROWS or not codes.shape[1]:
        why = f"{counted(len(rows), 'row')} have no codes near enough to each other to be compared: give {MIN_ROWS}."
        return Verdict(assumption, math.nan, ALIKE, "undecided", why)
    apart, near = cKDTree(codes).query(codes, k=NEAREST + 1)
    smooth = smooth_regression(codes, white, GAMMA, min(N_LANDMARKS, len(rows) // 4)).predict(codes)
    differ, by_distance = (
        np.square(u[:, None] - u[near[:, 1:]]).mean(2) / 2 for u in (white, np.asarray(smooth).reshape(white.shape))
    )
    own = (noise.seen.directions[:, kept] ** 2).T @ noise.seen.noise / noise.seen.variances[kept]
    resampled = []
    for some in (rng.integers(len(rows), size=len(rows)) for _ in range(N_RESAMPLES)):
        means = (apart[some, 1:] ** 2).mean(0), (differ - by_distance)[some].mean(0)
        resampled.append(np.polyfit(*means, 1)[1] - own.mean())
    share = estimate(np.maximum(resampled, 0.0))
    nearest, outcome = float(differ[:, 0].mean() - own.mean()), below(share, NOT_ALIKE)
    if outcome == "fails" and (share.low <= ALIKE or share.value <= NEAR * nearest):
        outcome = "undecided"
    if outcome == "holds" and nearest > NEAR * (1 - own.mean()):
        outcome = "undecided"
    why = f"rows with one code would differ by {share} of the variance of X, and not at all if codes told them apart."
    if outcome == "fails":
        why += (
            " Codes lay rows that differ on each other: give more restarts, more rows, or more columns that tell them "
            "apart; where distant latents look nearly alike, none may help."
        )
    elif outcome == "undecided":
        why += " So few rows have no nearer codes, or some rows that differ lie on each other: more rows would show."
    return Verdict(assumption, share.value, ALIKE, outcome, why)


def _standing_out(rows: Any, noise: Noise) -> tuple[Matrix, NDArray[np.int64]]:
    """Return rows along the directions that stand out of noise, each of unit variance, and which these are."""
    spreads, most = np.sqrt(noise.seen.variances), max(1, len(rows) // SAMPLES_PER_DIRECTION)
    kept = np.flatnonzero(spreads[: noise.seen.n_signal] > FAINT * spreads[0])[:most]
    return noise.seen.coordinates(rows.reshape(len(rows), -1), noise.seen.n_signal)[:, kept] / spreads[kept], kept


def _terms(
    encode: Encode, codes: Matrix, rows: Any, white: Matrix, noise: Noise, kept: NDArray[np.int64], rng: Generator
) -> Matrix:
    """Return per row and direction what signal is counted by; (5, n, directions).

    Products of prediction and observation, squares of both, what fresh noise moves both by together, squares of that,
    and of the noise.
    """
    moved, fresh = [], []
    if not noise.is_nil:
        for extra in noise.draws(len(rows), rng):
            moved.append(read("codes", encode(rows + extra)))
            along = noise.seen.coordinates(extra.reshape(len(rows), -1) + noise.seen.mean, noise.seen.n_signal)
            fresh.append(along[:, kept] / np.sqrt(noise.seen.variances[kept]))
    terms = np.zeros((6, *white.shape))
    for fit, held_out, mean in smooth_fits(codes, white, rng):
        observed = white[held_out] - mean
        said = _like(fit.predict(codes[held_out]), observed) - mean
        terms[:3, held_out] = said * observed, said**2, observed**2
        for code, extra in zip(moved, fresh, strict=True):
            by = _like(fit.predict(code[held_out]), observed) - mean - said
            terms[3:, held_out] += np.stack([by * extra[held_out], by**2, extra[held_out] ** 2]) / len(moved)
    return terms


def _like(predicted: Any, observed: Matrix) -> Matrix:
    return np.asarray(predicted).reshape(observed.shape)


def _signal_r2(terms: Matrix, counts: NDArray[np.float64], rng: Generator) -> Estimate:
    """Return the squared correlation of signals, mean over directions by their share of signal; resampled by rows."""
    n = terms.shape[1]
    resampled = []
    for _ in range(N_RESAMPLES):
        both, said, observed, both_noise, said_noise, noise = terms[:, rng.integers(n, size=n)].mean(1)
        signal = np.maximum(observed - noise, LEAST_SIGNAL * observed)
        shared, told = np.maximum(both - both_noise, 0), np.maximum(said - said_noise, 1e-12)
        stretch = np.minimum(shared / told, STRETCH)  # what noise has shrunk; far more would be noise itself
        missed = signal - 2 * stretch * shared + stretch**2 * told
        share = signal / np.maximum(observed, 1e-300)
        resampled.append(np.average(1 - missed / np.maximum(signal, 1e-300), weights=share * counts))
    return estimate(np.minimum(resampled, 1.0))


def injective_encoder(folding: Folding) -> Verdict:
    """Turn what `folding.find_folding` saw into a verdict.

    Examples
    --------
    >>> injective_encoder(Folding(fraction=0.4, uncertainty=0.01, flat=0, n_samples=2_000)).outcome
    'fails'
    """
    outcomes: dict[str, Outcome] = {"folded": "fails", "flat": "fails", "injective": "holds", "undecided": "undecided"}
    return Verdict(
        INJECTIVE_ENCODER, folding.fraction, THRESHOLD, outcomes[folding.verdict], f"the encoder is {folding}."
    )


def live_latents(codes: Any, assumption: Assumption = theory.INFORMATION_KEPT, *, random_state: int = 0) -> Verdict:
    """Say whether codes vary in all their directions: a constant is invariant, and worth nothing.

    The statistic is the least spread along a principal direction relative to the largest.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(500, 2))
    >>> [live_latents(z * size).outcome for size in ([1, 1], [1, 0])]
    ['holds', 'fails']
    """
    rows = read("codes", codes)
    rng = np.random.default_rng(random_state)
    resampled = (rng.integers(len(rows), size=len(rows)) for _ in range(N_RESAMPLES))
    least = estimate([principal_spreads(rows[some])[-1] for some in resampled])
    outcome = above(least, 10 * DEAD, unless_below=DEAD)
    why = f"along the direction in which codes vary least they vary by {least} of the most."
    if outcome == "fails":
        why += " A latent was given up: ask for fewer, or for a weaker push towards invariance."
    return Verdict(assumption, least.value, DEAD, outcome, why)


def many_negatives(information: float, n_negatives: int) -> Verdict:
    """Say whether there were enough negatives to show the information between partners, which InfoNCE bounds by log M.

    Examples
    --------
    >>> [many_negatives(information=2.0, n_negatives=m).outcome for m in (512, 16, 4)]
    ['holds', 'undecided', 'fails']
    """
    room = math.log(n_negatives) - information
    outcome = above(Estimate(room, room, room), ROOM, unless_below=ROOM / 4)
    most = math.log(n_negatives)
    why = f"partners share at least {information:.2f} nats, and {n_negatives} negatives show at most {most:.2f}."
    if outcome != "holds":
        why += " Take a larger batch_size."
    return Verdict(theory.MANY_NEGATIVES, room, ROOM, outcome, why)


def principal_spreads(rows: Matrix) -> Matrix:
    """Return standard deviations along principal directions, relative to the first; zeros where nothing varies.

    Examples
    --------
    >>> principal_spreads(np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).tolist()
    [1.0, 0.25]
    """
    centred = rows - rows.mean(0)
    within = centred @ centred.T if len(rows) < rows.shape[1] else centred.T @ centred  # the smaller of the two
    size = np.sqrt(np.linalg.eigvalsh(within)[::-1].clip(0))
    padded = np.pad(size, (0, rows.shape[1] - len(size)))
    return padded / size[0] if size[0] > 0 else padded
