"""`disentangle`: the axes of a trained decoder's latents along which the fewest of them reach each output."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import sqrtm
from sklearn.utils import check_scalar
from torch import Tensor, nn

from pindown import theory
from pindown._random import RandomState, draw_seed
from pindown.auditing.checks.supports import SHARED, shared_by_blocks
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
    conditional_spread,
    gradient_moments,
    is_nonlinear,
    mean_changes,
    mean_derivatives,
    outputs,
    reach_images,
    support_of,
    without_independence,
)
from pindown.methods.dictionary.rotation import Optima, dependencies, oblique_optima, rotation_optima, sparsest
from pindown.metrics.arrays import Mask, Matrix, correlations
from pindown.simulate.images import Bytes, contact_sheet, tiles
from pindown.theory import structure

N_SAMPLES, N_OUTPUTS, N_STARTS = 512, 1_000, 24  # latents, outputs and starts of the search, at most
COLLAPSED = 1e-3  # effect of a latent, relative to the strongest one, up to which it has collapsed
SAME_LATENTS = 0.9  # fraction of a latent's variance within another, or its block, for two maps to agree on it
TIED = 0.01  # latents per output by which the best map must be ahead of the next: with less it is a tie
GAIN_RATIO = 1.25  # times the chance level that a claim must gain
LEAST_GAIN = 0.15  # dependencies of an output above it; one layer of random weights gains up to .13
UNSEEN = 0.3  # change of an output without derivatives that counts as none; faint derivatives change it by .17 at most
FEWEST_SAMPLES = 100  # latents from which their covariance can be estimated
N_RANDOM = 64  # random rotations
N_SCRAMBLED, SCRAMBLED_OUTPUTS, SCRAMBLED_STARTS = 8, 200, 4  # searches in gradients without common axes
SAME_OUTPUT = 1e-2  # difference of outputs, relative to the largest, that is none: bfloat16 has two digits
DEPENDENT, BY_CHANCE = 0.1, 4.0  # correlation of absolute values that counts as none, and what sampling adds, times √n


@dataclass(frozen=True, eq=False)
class Disentangled:
    """What `disentangle` found.

    Attributes
    ----------
    unmixing : ndarray (d, d)
        ``latents @ unmixing`` are the new latents, of unit variance, those that reach most outputs first.
    covariance : ndarray (d, d)
        Covariance of the new latents. The identity unless an oblique map was chosen.
    before, rotation, after, chance : float
        Soft number of latents that reach an output, on average: along the old axes, after whitening and the best
        rotation, along the new axes, and along those that the same search finds where the gradients of each output are
        rotated independently.
    lead : float
        By how much the best of the starts is ahead of the best of those that ended elsewhere, order and signs aside;
        infinite if none did.
    is_dependent : bool
        Whether the new latents depend on each other: an oblique map is clearly sparser than the best rotation, or
        their absolute values correlate.
    dependence : ndarray (d, *shape of an output)
        Mean absolute derivative of each output by each new latent, in units of the standard deviation of the output,
        and of that of the latent given the other latents.
    support : ndarray of bool (d, *shape)
        Which outputs each new latent reaches: of images, its pixels. None of those that hardly vary.
    threshold : float
        What separates them in `dependence`.
    blocks : tuple of structure.Block
        Latents that are identified, alone or together, by outputs that are nonlinear enough.
    reasons_not_to_claim : tuple of str
        Empty if nothing that can be checked is against a claim.
    """

    unmixing: Matrix
    covariance: Matrix
    before: float
    rotation: float
    after: float
    chance: float
    lead: float
    is_dependent: bool
    dependence: Matrix
    support: NDArray[np.bool_]
    threshold: float
    blocks: tuple[structure.Block, ...]
    reasons_not_to_claim: tuple[str, ...]
    decoder: Callable[[Tensor], Tensor]
    latents: Tensor

    @property
    def is_tied(self) -> bool:
        """Whether another map is as good. If it only mixes latents of one block, blocks may still be claimed."""
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
            "dependencies than this linear one does."
        )

    def decode(self, z: Tensor) -> Tensor:
        """Decode new latents: map them back, and apply the decoder."""
        return self.decoder(z @ torch.as_tensor(np.linalg.inv(self.unmixing), dtype=z.dtype, device=z.device))

    def pictures(self) -> Bytes:
        """Draw which pixels each new latent reaches, side by side, brighter where more; bytes (height, width, 3)."""
        self.require_images("pictures")
        return reach_images(self.dependence, self.support)

    def traversals(self, *, steps: int = 8, new: bool = True) -> Bytes:
        """Draw a row for each latent, which goes through its range while the others stay at their median.

        Parameters
        ----------
        steps
            Images in a row.
        new
            Whether latents are the new ones; False draws the old ones, to compare.
        """
        self.require_images("traversals")
        return contact_sheet(self.traversed(steps=steps, new=new), columns=steps)

    def traversed(self, *, steps: int = 8, new: bool = True) -> Tensor:
        """Return what is decoded along each latent, one after the other, as `traversals` draws it; (d · steps, …)."""
        unmixing = self.unmixing if new else np.eye(len(self.unmixing))
        latents = self.latents.double().cpu().numpy() @ unmixing
        points = np.tile(np.median(latents, 0), (latents.shape[1], steps, 1))  # (d, steps, d)
        for j, along in enumerate(np.quantile(latents, np.linspace(0.05, 0.95, steps), axis=0).T):
            points[j, :, j] = along
        with torch.no_grad():
            back = points.reshape(-1, len(unmixing)) @ np.linalg.inv(unmixing)
            return self.decoder(torch.as_tensor(back).to(self.latents)).cpu()

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
        largest = np.abs(self.covariance - np.eye(len(self.covariance))).max()
        dependent = f" The new latents depend on each other (largest correlation {largest:.2f})."
        return (
            f"{self.after:.2f} latents reach an output, {self.before:.2f} before and {self.chance:.2f} by chance "
            f"({'a tie: ' if self.is_tied else ''}{lead}).{dependent if self.is_dependent else ''} {self.conclusion}"
        )


def before_and_after(found: Disentangled, what: str = "The decoder") -> tuple[Drawing, Drawing]:
    """Return a slider for each latent of an image decoder, before and after; ``what`` names the decoder."""
    found.require_images("save_rotated")
    old, new = (tiles(found.traversed(steps=STEPS, new=new)) for new in (False, True))
    shape = (len(found.unmixing), STEPS, *old.shape[1:])
    caption = "Each slider moves one latent through its range; the others stay at their median."
    return (
        sliders(old.reshape(shape), f"{what}, as it was given. {caption}", "Before"),
        sliders(new.reshape(shape), f"The same decoder, along the new axes. {caption}", "After one linear map"),
    )


def save_rotated(found: Disentangled, path: str | Path) -> Path:
    """Write a page with a slider for each latent of a decoder, before and after the search, and the claim.

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
        title="One linear map",
        kicker=f"pindown disentangle · {len(found.unmixing)} latents",
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
    r"""Find the axes of a trained decoder's latents along which the fewest of them reach each of its outputs.

    A prior leaves linear maps of the latents open. Here one is chosen, without any training, by the decoder's Jacobian.
    Latents are whitened. With :math:`M_i` the mean outer product of the gradients of output i,

    .. math:: \min_A \sum_{ij} \log\bigl(b_j^\top M_i b_j + \epsilon^2\bigr), \qquad B = A^{-\top},
              \quad \operatorname{diag}(A^\top A) = I

    is a soft count of which latent reaches which output, in standardised units. A is the best rotation, so that the
    latents do not correlate, unless an oblique A is clearly sparser: then they do. Any decoder that torch
    differentiates will do: of a VAE, a GAN, a flow, a diffusion model, a simulator. Latents that change all pixels
    alike (light, contrast) cannot be separated in this way, and nothing is then claimed.

    Parameters
    ----------
    decoder
        Maps latents (n, d) to (n, …), each sample by itself.
    latents
        Those that the decoder is used with, (n, d): of an encoder, or drawn from the prior. Best thousands.
    n_samples, n_outputs, n_starts
        Latents at which derivatives are taken, outputs that are counted, and rotations from which the search starts, at
        most. They are drawn at random.
    random_state
        Seed of these choices.

    Returns
    -------
    Disentangled
        ``unmixing``, so that ``latents @ unmixing`` are the new latents; what it gains, how certain it is, what each
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
    >>> (abs(rotation.T.numpy() @ found.unmixing) > 0.1).sum(0).tolist()  # one latent each
    [1, 1, 1]
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
    array = given.double().cpu().numpy()
    try:
        old = gradient_moments(decoder, z, varies, counted, np.diag(array.std(0)))
    except (ValueError, RuntimeError, TypeError) as error:
        message = f"{str(error).splitlines()[0].rstrip('.')}. Use operations that torch differentiates."
        raise InputError("decoder", message) from error
    _check_collapsed(old)
    unwhiten = np.asarray(sqrtm(np.cov(array.T, bias=True).reshape(len(old.T), -1)).real)
    to_white = unwhiten / array.std(0)
    moments = to_white @ old @ to_white.T
    best = sparsest(moments, n_starts=n_starts, random_state=int(rng.integers(2**31)))
    linear = best.optima.maps[0]
    directions = np.linalg.solve(linear, unwhiten)  # along which one new latent changes
    strength = mean_derivatives(decoder, z, varies, directions) * conditional_spread(linear.T @ linear)
    support, threshold = support_of(strength, varies.varying)
    inverse = np.linalg.inv(linear)
    nonlinear = is_nonlinear(inverse @ moments @ inverse.T, support[counted])
    blocks = structure.identified_blocks(common_rows(support[counted][nonlinear]))
    unmixing = np.linalg.inv(directions)
    new, members = array @ unmixing, [[j] for j in range(len(linear))]
    of_sizes = np.abs(correlations(np.abs(new), np.abs(new)) - np.eye(len(linear))).max()
    is_dependent = best.is_oblique or bool(of_sizes > DEPENDENT + BY_CHANCE / len(new) ** 0.5)
    if is_dependent:
        blocks = without_independence(blocks)
    lead, after = _lead(best.optima, [sorted(b.latents) for b in blocks]), float(best.optima.counts[0])
    anyhow, chance = _chance(moments, rng, oblique=best.is_oblique)
    shape = (len(linear), *varies.shape)
    reasons = (
        *_by_distribution(len(given), shared_by_blocks(new, members)),
        *_by_dependence(strength[varying], support[varying], mean_changes(decoder, z, varies, directions)[varying]),
        *_by_search(lead, blocks, gain=anyhow - after, by_chance=anyhow - chance),
    )
    return Disentangled(
        unmixing=unmixing,
        covariance=linear.T @ linear,
        before=float(dependencies(old, np.eye(len(old.T))[None])[0]),
        rotation=best.rotation,
        after=after,
        chance=float(chance.mean()),
        lead=_lead(best.optima, members),
        is_dependent=is_dependent,
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
    if np.linalg.matrix_rank(((z - z.mean(0)) / z.std(0)).float().cpu().numpy()) < z.shape[1]:
        raise InputError("latents", "columns of `latents` are linear functions of others. Leave them out.")
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
    best, sizes = found.maps[0], [len(each) for each in members]
    for linear, count in zip(found.maps[1:], found.counts[1:], strict=True):
        # The fraction of the variance of each latent that each set of the best latents explains, (sets, d).
        projected = [np.linalg.qr(best[:, each])[0].T @ linear for each in members]
        inside = np.stack([(along**2).sum(0) for along in projected])
        nearest = np.bincount(inside.argmax(0), minlength=len(members)).tolist()
        if inside.max(0).min() < SAME_LATENTS or nearest != sizes:
            return float(count - found.counts[0])
    return float("inf")


def _chance(moments: Matrix, rng: np.random.Generator, *, oblique: bool) -> tuple[float, Matrix]:
    """Return the count of random rotations, and those of searches where gradients have no axes in common.

    The gradients of each output are rotated independently: how many latents they span stays, and where nothing is
    sparse the search gains as much as before. So it does in a linear decoder, where any few outputs can be cleared.
    """
    d, search = moments.shape[1], oblique_optima if oblique else rotation_optima
    rotations, counts = np.linalg.qr(rng.normal(size=(N_RANDOM, d, d)))[0], []
    for _ in range(N_SCRAMBLED):
        some = moments[rng.permutation(len(moments))[:SCRAMBLED_OUTPUTS]]
        each = np.linalg.qr(rng.normal(size=some.shape))[0]
        counts.append(search(each.swapaxes(1, 2) @ some @ each, n_starts=SCRAMBLED_STARTS).counts[:1])
    return float(dependencies(moments, rotations).mean()), np.concatenate(counts)


def _by_distribution(n_samples: int, shared: tuple[float, tuple[int, int]]) -> list[str]:
    """Return the reasons not to claim that the distribution of the latents gives."""
    reasons, (nats, pair) = [], shared
    if nats > SHARED:
        reasons.append(f"new latents {pair[0]} and {pair[1]} nearly determine each other ({nats:.2f} nats in common)")
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
        reasons.append("another map, to other latents, is as good")
    if len(blocks) < 2:
        reasons.append("the outputs that latents reach do not tell them apart, so no block of them is identified")
    chance, spread = by_chance.mean(), by_chance.std()
    if gain < max(chance + max(LEAST_GAIN, 3 * spread), GAIN_RATIO * chance):
        reasons.append(
            f"the new axes remove {gain:.2f} dependencies of an output, but {chance:.2f} ± {spread:.2f} where "
            "gradients have no axes in common"
        )
    return reasons
