"""`disentangle`: the rotation of a trained decoder's latents in which the fewest of them reach each output."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm
from sklearn.utils import check_scalar
from torch import Tensor, nn

from pindown import theory
from pindown._random import RandomState, draw_seed
from pindown.auditing.page import STEPS, Drawing, fill, sliders, write_whole
from pindown.data.data import from_torch
from pindown.errors import InputError
from pindown.losses.jacobian import Decoder, check_samples_apart
from pindown.methods.dictionary.dependence import (
    FAINT,
    RARE,
    STRONG,
    Outputs,
    common_rows,
    gradient_moments,
    is_nonlinear,
    mean_changes,
    mean_derivatives,
    outputs,
    reach_images,
    support_of,
)
from pindown.methods.dictionary.rotation import Optima, dependencies, rotation_optima
from pindown.metrics.arrays import Mask, Matrix, correlations
from pindown.simulate.images import Bytes, contact_sheet, tiles
from pindown.theory import structure

N_SAMPLES, N_OUTPUTS, N_STARTS = 512, 1_000, 24  # latents, outputs and starts of the search, at most
COLLAPSED = 1e-3  # effect of a latent, relative to the strongest one, up to which it has collapsed
SAME_ROTATION = 0.9  # fraction of a latent's variance within another, or its block, for two rotations to agree on it
TIED = 0.01  # latents per output by which the best rotation must be ahead of the next: with less it is a tie
GAIN_RATIO = 1.25  # times the chance level that a claim must gain
LEAST_GAIN = 0.15  # dependencies of an output above it; one layer of random weights gains up to .13
UNSEEN = 0.3  # change of an output without derivatives that counts as none; faint derivatives change it by .17 at most
FEWEST_SAMPLES = 100  # latents from which their distribution can be estimated
N_RANDOM = 64  # random rotations
N_SCRAMBLED, SCRAMBLED_OUTPUTS, SCRAMBLED_STARTS = 8, 200, 4  # searches in gradients without common axes
SAME_OUTPUT = 1e-2  # difference of outputs, relative to the largest, that is none: bfloat16 has two digits

TOLERATED = 0.03  # distance of two distributions, in standard deviations, up to which they count as the same …
BY_CHANCE = 1.2  # … and what sampling adds, over the root of n; uniform and Gaussian are .16 apart
ISOTROPIC = 1.1  # ratio of standard deviations along directions up to which latents are isotropic
DEPENDENT = 0.1  # correlation of latents, or of their absolute values, up to which they count as independent …
DEPENDENT_BY_CHANCE = 4.0  # … and what sampling adds, over the root of n
N_ROTATIONS, N_LEVELS = 16, 400  # random rotations that are tried, and quantiles at which distributions are compared


# ---- which rotations leave the distribution of the latents unchanged ------------------------------------------------


@dataclass(frozen=True)
class Symmetry:
    """Which rotations leave the distribution of some latents unchanged.

    Attributes
    ----------
    kind : {"Gaussian", "isotropic", "other"}
        Gaussian with one variance in all directions, so that latents stay independent under any rotation; the same
        along all directions, but not Gaussian; or neither.
    to_gaussian, to_new : float
        Largest distance, in standard deviations, of the distribution along an axis, old or new, from a Gaussian one;
        and of those along old axes from those along new ones.
    anisotropy : float
        Ratio of the largest to the smallest standard deviation along a direction.
    dependence : float
        Largest correlation of two new latents, or of their absolute values.
    is_isotropic, is_independent : bool
        Whether latents vary as much along all directions, and new latents are independent, as far as samples show.
    is_kept : bool
        Whether the new latents have the distribution of the old ones.
    """

    kind: Literal["Gaussian", "isotropic", "other"]
    to_gaussian: float
    to_new: float
    anisotropy: float
    dependence: float
    is_isotropic: bool
    is_independent: bool
    is_kept: bool

    def __str__(self) -> str:
        gaussian = f"{self.to_gaussian:.2f}"
        if self.kind == "Gaussian":
            return f"The latents are Gaussian (distance at most {gaussian} along an axis): all rotations are free."
        if self.kind == "isotropic":
            return (
                f"The latents have one distribution along all axes, but not a Gaussian one (distance {gaussian}): all "
                "rotations are free, and the latents are not independent."
            )
        if not self.is_isotropic:
            return (
                f"The latents vary {min(self.anisotropy, 999):.2f} times as much along one direction as along another, "
                "so a rotation changes their distribution. Whiten them, with a decoder that undoes it."
            )
        what = f"not Gaussian (distance {gaussian} along an axis)"
        if not self.is_independent:
            what += f", or dependent (two of them, or their absolute values, correlate by {self.dependence:.2f})"
        return (
            f"The latents are {what}: only rotations that keep their distribution are free. This rotation "
            f"{'keeps' if self.is_kept else 'does not keep'} it (distance {self.to_new:.2f})."
        )


def symmetry(latents: Matrix, rotation: Matrix, *, random_state: int = 0) -> Symmetry:
    r"""Return which rotations leave the distribution of latents unchanged.

    Distributions along single axes are compared by their quantiles, :math:`W_1 = \int |F^{-1}(p) - G^{-1}(p)| \, dp`,
    in standard deviations; those of old and new axes in the order that matches best.

    Parameters
    ----------
    latents
        (n, d).
    rotation
        Orthogonal, (d, d): the new latents are ``latents @ rotation``.
    random_state
        Seed of the random rotations.

    Examples
    --------
    >>> rng, rotation = np.random.default_rng(0), np.array([[0.8, -0.6], [0.6, 0.8]])
    >>> [symmetry(latents, rotation).kind for latents in (rng.normal(size=(5_000, 2)), rng.uniform(size=(5_000, 2)))]
    ['Gaussian', 'other']
    """
    centred, (n, d) = latents - latents.mean(0), latents.shape
    variances = np.linalg.eigvalsh(centred.T @ centred / n)
    anisotropy, few = float(np.sqrt(variances[-1] / max(variances[0], 1e-300))), (d / n) ** 0.5
    is_isotropic = few < 1 and anisotropy <= ISOTROPIC * (1 + few) / (1 - few)
    dependence = _dependence(centred @ rotation)
    is_independent = dependence <= DEPENDENT + DEPENDENT_BY_CHANCE / n**0.5
    others = np.linalg.qr(np.random.default_rng(random_state).normal(size=(N_ROTATIONS, *rotation.shape)))[0]
    old, new = _quantiles(centred), _quantiles(centred @ rotation)
    levels = norm.ppf((np.arange(N_LEVELS) + 0.5) / N_LEVELS)
    to_gaussian = max(float(np.abs(each - levels).mean(1).max()) for each in (old, new))
    to_random, to_new = max(_distance(old, _quantiles(centred @ other)) for other in others), _distance(old, new)
    tolerated = TOLERATED + BY_CHANCE / n**0.5
    kind: Literal["Gaussian", "isotropic", "other"] = "other"
    if is_isotropic and to_random <= tolerated:
        kind = "isotropic" if to_gaussian > tolerated else "Gaussian" if is_independent else "other"
    is_kept = kind != "other" or (is_isotropic and to_new <= tolerated)
    return Symmetry(kind, to_gaussian, to_new, anisotropy, dependence, is_isotropic, is_independent, is_kept)


def _dependence(latents: Matrix) -> float:
    """Return the largest correlation of two columns, or of their absolute values."""
    if latents.shape[1] < 2:
        return 0.0
    both = np.stack([correlations(some, some) for some in (latents, np.abs(latents))])
    return float(np.abs(both[:, ~np.eye(latents.shape[1], dtype=bool)]).max())


def _quantiles(latents: Matrix) -> Matrix:
    """Return quantiles of each column, of unit variance; (d, levels)."""
    levels = np.quantile(latents, (np.arange(N_LEVELS) + 0.5) / N_LEVELS, axis=0).T
    return levels / np.maximum(latents.std(0)[:, None], 1e-300)


def _distance(old: Matrix, new: Matrix) -> float:
    """Return the largest distance of distributions along axes that match best, with either sign."""
    both = np.stack([new, -new[:, ::-1]])  # (2, d, levels)
    distance = np.abs(old[:, None, None] - both).mean(3).min(1)  # (d, d)
    return float(distance[linear_sum_assignment(distance)].max())


# ---- what was found -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Disentangled:
    """What `disentangle` found.

    Attributes
    ----------
    rotation : ndarray (d, d)
        Orthogonal: ``latents @ rotation`` are the new latents, those that reach most outputs first.
    before, after, chance : float
        Soft number of latents that reach an output, on average: along the old axes, along the new ones, and along
        those that the same search finds where the gradients of each output are rotated independently.
    lead : float
        By how much the best of the starts is ahead of the best of those that ended elsewhere, order and signs aside;
        infinite if none did.
    symmetry : Symmetry
        Which rotations leave the distribution of the latents unchanged.
    dependence : ndarray (d, *shape of an output)
        Mean absolute derivative of each output by each new latent, both in standardised units.
    support : ndarray of bool (d, *shape)
        Which outputs each new latent reaches: of images, its pixels. None of those that hardly vary.
    threshold : float
        What separates them in `dependence`.
    blocks : tuple of structure.Block
        Latents that are identified, alone or together, by outputs that are nonlinear enough.
    reasons_not_to_claim : tuple of str
        Empty if nothing that can be checked is against a claim.
    """

    rotation: Matrix
    before: float
    after: float
    chance: float
    lead: float
    symmetry: Symmetry
    dependence: Matrix
    support: NDArray[np.bool_]
    threshold: float
    blocks: tuple[structure.Block, ...]
    reasons_not_to_claim: tuple[str, ...]
    decoder: Callable[[Tensor], Tensor]
    latents: Tensor

    @property
    def is_tied(self) -> bool:
        """Whether another rotation is as good. If it only mixes latents of one block, blocks may still be claimed."""
        return self.lead < TIED

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if its other assumptions hold; None if there are reasons not to claim."""
        if self.reasons_not_to_claim:
            return None
        single = all(block.is_single for block in self.blocks)
        return theory.DICTIONARY_SINGLE if single else theory.DICTIONARY_BLOCKS

    @property
    def claim(self) -> str | None:
        """The supported claim, with the assumptions that a decoder does not show; None if there is none."""
        theorem = self.guarantee
        if theorem is None:
            return None
        blocks = ", ".join("{" + ", ".join(map(str, sorted(block.latents))) + "}" for block in self.blocks)
        return (
            f"Of the latents {blocks} each is recovered up to an invertible function of it ({theorem.source}), if the "
            "decoder has the distribution of the data, is injective, and no nonlinear map of its latents leaves fewer "
            "dependencies than this rotation does."
        )

    def decode(self, z: Tensor) -> Tensor:
        """Decode new latents: rotate them back, and apply the decoder."""
        return self.decoder(z @ torch.as_tensor(self.rotation.T.copy(), dtype=z.dtype, device=z.device))

    def pictures(self) -> Bytes:
        """Draw which pixels each new latent reaches, side by side, brighter where more; bytes (height, width, 3)."""
        self.require_images("pictures")
        return reach_images(self.dependence, self.support)

    def traversals(self, *, steps: int = 8, rotated: bool = True) -> Bytes:
        """Draw a row for each latent, which goes through its range while the others stay at their median.

        Parameters
        ----------
        steps
            Images in a row.
        rotated
            Whether latents are the new ones; False draws the old ones, to compare.
        """
        self.require_images("traversals")
        return contact_sheet(self.traversed(steps=steps, rotated=rotated), columns=steps)

    def traversed(self, *, steps: int = 8, rotated: bool = True) -> Tensor:
        """Return what is decoded along each latent, one after the other, as `traversals` draws it; (d · steps, …)."""
        rotation = torch.as_tensor(self.rotation if rotated else np.eye(len(self.rotation))).to(self.latents)
        latents = self.latents @ rotation
        points = latents.median(0).values.repeat(latents.shape[1], steps, 1)  # (d, steps, d)
        levels = torch.linspace(0.05, 0.95, steps, dtype=latents.dtype, device=latents.device)
        quantiles = latents.double().quantile(levels.double(), dim=0)  # not in half precision
        for j, along in enumerate(quantiles.T.to(points)):
            points[j, :, j] = along
        with torch.no_grad():
            return self.decoder(points.flatten(0, 1) @ rotation.mT).cpu()

    def require_images(self, what: str) -> None:
        """Raise unless the decoder makes images."""
        if self.support.ndim != 4:
            message = f"{what}: the outputs must be images (c, h, w), got {self.support.shape[1:]}. See `support`."
            raise InputError("decoder", message)

    @property
    def conclusion(self) -> str:
        """The claim, or the reasons not to claim."""
        return self.claim or f"No claim is supported: {'; '.join(self.reasons_not_to_claim)}."

    def __str__(self) -> str:
        lead = "no other optimum was found" if np.isinf(self.lead) else f"the next optimum is {self.lead:.3f} behind"
        return (
            f"{self.after:.2f} latents reach an output, {self.before:.2f} before and {self.chance:.2f} by chance "
            f"({'a tie: ' if self.is_tied else ''}{lead}). {self.symmetry} {self.conclusion}"
        )


def before_and_after(found: Disentangled, what: str = "The decoder") -> tuple[Drawing, Drawing]:
    """Return a slider for each latent of an image decoder, before and after the rotation; ``what`` names the decoder.

    Examples
    --------
    >>> images = torch.eye(2).repeat_interleave(32, 1).reshape(2, 1, 8, 8)  # the upper and the lower half
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> found = disentangle(lambda z: torch.einsum("nd,dchw->nchw", z, images), z)
    >>> [drawing.data["n_latents"] for drawing in before_and_after(found)]
    [2, 2]
    """
    found.require_images("save_rotated")
    before, after = (tiles(found.traversed(steps=STEPS, rotated=rotated)) for rotated in (False, True))
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
        The result of `disentangle` for an image decoder.
    path
        The file, such as ``rotated.html``. The page is self-contained.

    Examples
    --------
    >>> import tempfile
    >>> images = torch.eye(2).repeat_interleave(32, 1).reshape(2, 1, 8, 8)  # the upper and the lower half
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> found = disentangle(lambda z: torch.einsum("nd,dchw->nchw", z, images), z, n_samples=50)
    >>> with tempfile.TemporaryDirectory() as folder:  # two sliders before, two after
    ...     save_rotated(found, f"{folder}/rotated.html").read_text(encoding="utf-8").count('type="range"')
    4
    """
    path = Path(path)
    page = fill(
        "rotated.html.j2",
        title="One rotation",
        kicker=f"pindown disentangle · {len(found.rotation)} latents",
        lead=f"A pixel depends on {found.after:.2f} latents along the new axes, {found.before:.2f} along the old "
        f"ones, and {found.chance:.2f} at chance. Nothing was trained.",
        claims=found.claim is not None,
        said=found.conclusion,
        drawings=before_and_after(found),
    )
    write_whole(page, path)
    return path


# ---- the search -----------------------------------------------------------------------------------------------------


def disentangle(
    decoder: Callable[[Tensor], Tensor],
    latents: ArrayLike | Tensor,
    *,
    n_samples: int = N_SAMPLES,
    n_outputs: int = N_OUTPUTS,
    n_starts: int = N_STARTS,
    random_state: RandomState = 0,
) -> Disentangled:
    r"""Rotate the latents of a trained decoder so that the fewest of them reach each of its outputs.

    A Gaussian prior is the same for all rotations, so training leaves the rotation open. Here it is chosen, without
    any training, by the decoder's Jacobian: with :math:`M_i` the mean outer product of the gradients of output i,

    .. math:: \min_{Q^\top Q = I} \sum_{ij} \log\bigl(q_j^\top M_i q_j + \epsilon^2\bigr),

    a soft count of which latent reaches which output, in standardised units. Any decoder that torch differentiates
    will do: of a VAE, a GAN, a flow, a diffusion model, a simulator. Latents that change all pixels alike (light,
    contrast) cannot be separated in this way, and nothing is then claimed.

    Parameters
    ----------
    decoder
        Maps latents (n, d) to (n, …), each sample by itself.
    latents
        Those that the decoder is used with, (n, d): of an encoder, or drawn from the prior. Best thousands.
    n_samples, n_outputs, n_starts
        Latents at which derivatives are taken, outputs that are counted, and rotations from which the search starts,
        at most. They are drawn at random.
    random_state
        Seed of these choices.

    Returns
    -------
    Disentangled
        ``rotation``, so that ``latents @ rotation`` are the new latents; what it gains, how certain it is, what each
        latent reaches, and the supported claim. ``print`` shows a summary.

    Raises
    ------
    ValueError
        If the decoder takes other latents, cannot be differentiated, or does not depend on some or all of its latents.

    References
    ----------
    Zheng et al., Diverse Dictionary Learning.

    Examples
    --------
    A decoder of three latents, each with outputs of its own, behind an unknown rotation:

    >>> def decoder(z):
    ...     a, b, c = (z @ rotation).unbind(1)
    ...     return torch.stack([a.sin(), b.exp(), c.tanh(), a * b, b * c, (a + c).sin(), a * c, c.cos()], dim=1)
    >>> rng = torch.Generator().manual_seed(0)
    >>> rotation = torch.linalg.qr(torch.randn(3, 3, generator=rng))[0]
    >>> found = disentangle(decoder, torch.randn(1_000, 3, generator=rng))
    >>> (rotation.T.numpy() @ found.rotation).round(1).__abs__().sum(0).tolist()  # one latent each
    [1.0, 1.0, 1.0]
    >>> found.before > 2.5 > 2 > found.after
    True
    >>> print(found.claim)
    Of the latents {0}, {1}, {2} each is recovered up to an invertible function of it ...
    """
    for name, value, least in (("n_samples", n_samples, 2), ("n_outputs", n_outputs, 1), ("n_starts", n_starts, 1)):
        check_scalar(value, name, numbers.Integral, min_val=least)
    given = _read_latents(decoder, latents)
    rng = np.random.default_rng(draw_seed(random_state))
    z = given[np.sort(rng.permutation(len(given))[:n_samples])]
    varies = outputs(decoder, z)
    _check_varying(given, varies)
    varying = np.flatnonzero(varies.varying)
    counted = np.sort(rng.permutation(varying)[:n_outputs])
    try:
        moments = gradient_moments(decoder, z, varies, counted)
    except (ValueError, RuntimeError, TypeError) as error:
        message = f"{str(error).splitlines()[0].rstrip('.')}. Use operations that torch differentiates."
        raise InputError("decoder", message) from error
    _check_collapsed(moments)
    found = rotation_optima(moments, n_starts=n_starts, random_state=int(rng.integers(2**31)))
    best = found.rotations[0]
    strength = mean_derivatives(decoder, z, varies, best)
    support, threshold = support_of(strength, varies.varying)
    nonlinear = is_nonlinear(best.T @ moments @ best, support[counted])
    blocks = structure.identified_blocks(common_rows(support[counted][nonlinear]))
    free, lead = symmetry(given.double().cpu().numpy(), best), _lead(found, [sorted(b.latents) for b in blocks])
    after, (anyhow, chance) = float(found.counts[0]), _chance(moments, rng)
    shape = (len(best), *varies.shape)
    reasons = (
        *_by_distribution(free, len(given)),
        *_by_dependence(strength[varying], support[varying], mean_changes(decoder, z, varies, best)[varying]),
        *_by_search(lead, blocks, gain=anyhow - after, by_chance=anyhow - chance),
    )
    return Disentangled(
        rotation=best,
        before=float(dependencies(moments, np.eye(len(best))[None])[0]),
        after=after,
        chance=float(chance.mean()),
        lead=_lead(found, [[j] for j in range(len(best))]),
        symmetry=free,
        dependence=strength.T.reshape(shape),
        support=support.T.reshape(shape),
        threshold=threshold,
        blocks=blocks,
        reasons_not_to_claim=reasons,
        decoder=decoder,
        latents=z,
    )


def _read_latents(decoder: Decoder, latents: ArrayLike | Tensor) -> Tensor:
    """Return latents as the decoder takes them; raise if it cannot decode them, each by itself."""
    array = np.asarray(from_torch(latents))
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not np.isfinite(array).all() or len(array) < 2:
        message = "`latents` must be a matrix (n, d) of finite numbers, with two samples or more"
        raise InputError("latents", f"{message}, got {array.dtype} of shape {array.shape}.")
    given = latents if isinstance(latents, Tensor) and latents.is_floating_point() else torch.zeros(())
    like: Tensor = next(decoder.parameters(), given) if isinstance(decoder, nn.Module) else given
    z = torch.as_tensor(array).to(like.device, like.dtype)
    check_samples_apart(decoder)
    try:
        with torch.no_grad():
            x, again, alone = decoder(z[:2]), decoder(z[:2]), decoder(z[[0, 0]])
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        message = f"The decoder does not take `latents` of {z.shape[1]} columns ({str(error).splitlines()[0]})."
        raise InputError("latents", message) from error
    if not isinstance(x, Tensor) or x.ndim < 2 or len(x) != 2:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InputError("decoder", f"The decoder must map latents (n, d) to a tensor (n, …), got {shape} for n = 2.")
    if not x.isfinite().all():
        raise InputError("decoder", "The output of the decoder has NaN or infinity. Does it take a logarithm?")
    if _differ(x, again):
        message = (
            "The decoder returns other outputs when it is called again: it is random. Fix the noise that it draws."
        )
        raise InputError("decoder", message)
    if _differ(x[0], alone[0]):
        message = "The output of a sample depends on other samples, as with batch normalisation in training mode. Call"
        raise InputError("decoder", f"{message} `eval()` on the decoder.")
    return z


def _differ(x: Tensor, other: Tensor) -> bool:
    """Return whether outputs differ by more than low precision, or the order of additions on a device, explains."""
    return bool((x - other).abs().max() > SAME_OUTPUT * torch.maximum(x.abs().max(), other.abs().max()))


def _check_varying(z: Tensor, found: Outputs) -> None:
    constant = np.flatnonzero((z == z[0]).all(0).cpu().numpy())
    if len(constant):
        message = (
            f"column(s) {constant.tolist()} of `latents` are constant. Leave them out, and let the decoder set them."
        )
        raise InputError("latents", message)
    if not found.spread.max() > 0:
        message = "The decoder returns the same for all latents: it does not depend on them. Is it trained with these?"
        raise InputError("decoder", message)


def _check_collapsed(moments: Matrix) -> None:
    total = moments.mean(0)
    effect, effects = np.sqrt(total.diagonal()), np.sqrt(np.maximum(np.linalg.eigvalsh(total), 0))
    if not effect.max() > 0:
        raise InputError("decoder", "No derivative of the decoder by its latents differs from 0. Is it quantised?")
    if len(dead := np.flatnonzero(effect <= COLLAPSED * effect.max())):
        message = (
            f"The decoder does not respond to latent(s) {dead.tolist()}. Leave them out, and let it set them to 0."
        )
        raise InputError("latents", message)
    if n_dead := int((effects <= COLLAPSED * effects[-1]).sum()):
        used = f"{len(total) - n_dead} directions of its {len(total)} latents"
        raise InputError("latents", f"The decoder responds to {used} only. Train it with as many as it uses.")


def _lead(found: Optima, members: list[list[int]]) -> float:
    """Return how far the best optimum is ahead of the best one whose sets of latents are others."""
    for rotation, count in zip(found.rotations[1:], found.counts[1:], strict=True):
        overlap = (found.rotations[0].T @ rotation) ** 2  # of each new latent with each of the best
        inside = np.stack([overlap[each].sum(0) for each in members])  # (sets, d)
        sizes = np.bincount(inside.argmax(0), minlength=len(members))
        if inside.max(0).min() < SAME_ROTATION or sizes.tolist() != [len(each) for each in members]:
            return float(count - found.counts[0])
    return float("inf")


def _chance(moments: Matrix, rng: np.random.Generator) -> tuple[float, Matrix]:
    """Return the count of random rotations, and those of searches where gradients have no axes in common.

    The gradients of each output are rotated independently: how many latents they span stays, and where nothing is
    sparse the search gains as much as before. So it does in a linear decoder, where any few outputs can be cleared.
    """
    d = moments.shape[1]
    rotations, counts = np.linalg.qr(rng.normal(size=(N_RANDOM, d, d)))[0], []
    for _ in range(N_SCRAMBLED):
        some = moments[rng.permutation(len(moments))[:SCRAMBLED_OUTPUTS]]
        each = np.linalg.qr(rng.normal(size=some.shape))[0]
        counts.append(rotation_optima(each.swapaxes(1, 2) @ some @ each, n_starts=SCRAMBLED_STARTS).counts[0])
    return float(dependencies(moments, rotations).mean()), np.array(counts)


def _by_distribution(free: Symmetry, n_samples: int) -> list[str]:
    """Return the reasons not to claim that the distribution of the latents gives."""
    reasons = []
    if free.kind != "Gaussian":
        reasons.append("the latents are not Gaussian, so they are not independent along all axes")
    if n_samples < FEWEST_SAMPLES:
        reasons.append(f"{n_samples} samples are too few to estimate the distribution of the latents: give thousands")
    return reasons


def _by_dependence(strength: Matrix, support: Mask, change: Matrix) -> list[str]:
    """Return the reasons not to claim that the dependence of outputs on latents gives; (m, d) of those that vary."""
    reasons = []
    faint, between = int((strength < FAINT).sum()), int(((strength >= FAINT) & (strength <= STRONG)).sum())
    if between > faint:
        reasons.append(
            f"no gap separates dependence from none: {between} derivatives are neither strong nor faint ({FAINT:g} to "
            f"{STRONG:g}), and {faint} are faint"
        )
    unseen = int((~support & (change > UNSEEN)).sum())
    if unseen > RARE * max(1, (~support).sum()):
        reasons.append(
            f"{unseen} outputs change with a latent that their derivatives do not see, as where a decoder jumps, or "
            "hides a part from differentiation"
        )
    return reasons


def _by_search(lead: float, blocks: tuple[structure.Block, ...], *, gain: float, by_chance: Matrix) -> list[str]:
    """Return the reasons not to claim that the result of the search gives."""
    reasons = []
    if lead < TIED:
        reasons.append("another rotation, with other latents, is as good")
    if len(blocks) < 2:
        reasons.append("all latents reach the same outputs, so no block of them is identified")
    chance, spread = by_chance.mean(), by_chance.std()
    if gain < max(chance + max(LEAST_GAIN, 3 * spread), GAIN_RATIO * chance):
        reasons.append(
            f"the rotation removes {gain:.2f} dependencies of an output, but {chance:.2f} ± {spread:.2f} where "
            "gradients have no axes in common"
        )
    return reasons
