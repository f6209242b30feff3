"""`disentangle`: from a decoder and its codes to the rotation in which fewest latents reach each output."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_scalar
from torch import Tensor

from pindown._random import RandomState, draw_seed
from pindown.methods.dictionary import derivatives
from pindown.methods.dictionary.decoder_supports import FAINT, FEW, STRONG, bent_enough, held_by, supported
from pindown.methods.dictionary.disentangled import TIED, Disentangled
from pindown.methods.dictionary.law import Freedom, freedom
from pindown.methods.dictionary.rotation import Searched, reached_by, searched
from pindown.theory import structure

N_CODES, N_OUTPUTS, N_STARTS = 512, 1_000, 24
"""Codes at which derivatives are taken, outputs that are counted, and starts of the search, at most."""

COLLAPSED = 1e-3
"""Share of the strongest latent's effect up to which a latent has none."""

SAME = 0.9
"""Share of a latent's variance that must lie in another, or in its block, for two rotations to agree on it."""

CLEARLY, LEAST = 1.25, 0.15
"""How many times more must be cleared than where gradients have no axes in common, for a claim; three spreads; and so
many dependencies of an output. One layer of random weights has directions that are a little more common than others,
and clears up to .13."""

UNSEEN = 0.3
"""Change of an output, in its spreads, by a latent that its derivatives do not see, up to which it is none: derivatives
below the threshold of the support make .17 of it at most."""

FEWEST_CODES = 100
"""Codes below which nobody knows their law."""

N_TURNS, N_SCRAMBLED, SCRAMBLED_OUTPUTS, SCRAMBLED_STARTS = 64, 8, 200, 4
"""Random rotations that are counted; searches in gradients without common axes, with so many outputs and starts."""


def disentangle(
    decoder: Callable[[Tensor], Tensor],
    codes: Any,
    *,
    n_codes: int = N_CODES,
    n_outputs: int = N_OUTPUTS,
    n_starts: int = N_STARTS,
    random_state: RandomState = 0,
) -> Disentangled:
    r"""Turn the codes of a trained decoder so that the fewest latents reach each of its outputs.

    A Gaussian prior does not see a rotation, so training leaves it open. Here it is chosen, without any training, by
    the decoder's Jacobian: with :math:`M_i` the mean outer product of the gradients of output i,

    .. math:: \min_{Q^\top Q = I} \sum_{ij} \log\bigl(q_j^\top M_i q_j + \epsilon^2\bigr),

    a soft count of which latent reaches which output, in standardised units. Any decoder that torch differentiates
    will do: of a VAE, a GAN, a flow, a diffusion model, a simulator. Latents that do the same to all pixels (light,
    contrast) are not told apart from anything by it, and nothing is then claimed.

    Parameters
    ----------
    decoder
        Maps codes (n, d) to (n, …), each row by itself.
    codes
        Those that the decoder is used with, (n, d): of an encoder, or drawn from the prior. Best thousands.
    n_codes, n_outputs, n_starts
        Codes at which derivatives are taken, outputs that are counted, rotations from which the search starts, at
        most. Others are not looked at, or at random.
    random_state
        Seed of these choices.

    Returns
    -------
    Disentangled
        ``rotation``, so that ``codes @ rotation`` are the new codes; what it gains, how sure it is, what each latent
        reaches, and what may be claimed: ``print`` says it.

    Raises
    ------
    ValueError
        If the decoder takes other codes, cannot be differentiated, or does not depend on some or all of its codes.

    References
    ----------
    Zheng et al., Diverse Dictionary Learning.

    Examples
    --------
    A decoder of three latents, each with outputs of its own, that someone trained at an angle:

    >>> import torch
    >>> def decoder(z):
    ...     a, b, c = (z @ turn).unbind(1)
    ...     return torch.stack([a.sin(), b.exp(), c.tanh(), a * b, b * c, (a + c).sin(), a * c, c.cos()], dim=1)
    >>> rng = torch.Generator().manual_seed(0)
    >>> turn = torch.linalg.qr(torch.randn(3, 3, generator=rng))[0]
    >>> found = disentangle(decoder, torch.randn(1_000, 3, generator=rng))
    >>> (turn.T.numpy() @ found.rotation).round(1).__abs__().sum(0).tolist()  # one latent each
    [1.0, 1.0, 1.0]
    >>> found.before > 2.5 > 2 > found.after
    True
    >>> print(found.claim)
    Of the latents {0}, {1}, {2} each is recovered up to an invertible function of it ...
    """
    for name, value, least in (("n_codes", n_codes, 2), ("n_outputs", n_outputs, 1), ("n_starts", n_starts, 1)):
        check_scalar(value, name, numbers.Integral, min_val=least)
    every = derivatives.read_codes(decoder, codes)
    rng = np.random.default_rng(draw_seed(random_state))
    z = every[np.sort(rng.permutation(len(every))[:n_codes])]
    seen = derivatives.outputs(decoder, z)
    _refuse_constant(every, seen)
    lively = np.flatnonzero(seen.lively)
    counted = np.sort(rng.permutation(lively)[:n_outputs])
    try:
        moments = derivatives.moments(decoder, z, seen, counted)
    except (ValueError, RuntimeError, TypeError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"disentangle: {why}. The decoder must be made of what torch differentiates, from codes to outputs."
        ) from error
    _refuse_collapsed(moments)
    found = searched(moments, n_starts=n_starts, random_state=int(rng.integers(2**31)))
    best = found.rotations[0]
    strength = derivatives.reach(decoder, z, seen, best)
    support, threshold = supported(strength, seen.lively)
    bent = bent_enough(best.T @ moments @ best, support[counted])
    blocks = structure.identified_blocks(held_by(support[counted][bent]))
    free, ahead = freedom(every.double().cpu().numpy(), best), _lead(found, [sorted(b.latents) for b in blocks])
    after, (anyhow, chance) = float(found.counts[0]), _by_chance(moments, rng)
    shape = (len(best), *seen.shape)
    against = (
        *_of_law(free),
        *_of_dependence(strength[lively], support[lively], derivatives.changed(decoder, z, seen, best)[lively]),
        *_of_search(ahead, blocks, gain=anyhow - after, by_chance=anyhow - chance),
    )
    return Disentangled(
        rotation=best,
        before=float(reached_by(moments, np.eye(len(best))[None])[0]),
        after=after,
        chance=float(chance.mean()),
        lead=_lead(found, [[j] for j in range(len(best))]),
        freedom=free,
        dependence=strength.T.reshape(shape),
        support=support.T.reshape(shape),
        threshold=threshold,
        blocks=blocks,
        against=against,
        decoder=decoder,
        codes=z,
    )


def _refuse_constant(z: Tensor, seen: derivatives.Outputs) -> None:
    constant = np.flatnonzero((z == z[0]).all(0).cpu().numpy())
    if len(constant):
        raise ValueError(
            f"disentangle: column(s) {constant.tolist()} of codes are constant, as those of a collapsed latent are: "
            "leave these latents out of codes, and let the decoder set them."
        )
    if not seen.spread.max() > 0:
        raise ValueError(
            "disentangle: the decoder makes the same of all codes, so that it does not depend on them. Are these the "
            "codes that it was trained with, and is it trained?"
        )


def _refuse_collapsed(moments: np.ndarray) -> None:
    total = moments.mean(0)
    effect = np.sqrt(total.diagonal())
    if not effect.max() > 0:
        raise ValueError("disentangle: no derivative of the decoder by its codes differs from 0: is it quantised?")
    dead = np.flatnonzero(effect <= COLLAPSED * effect.max())
    if len(dead):
        raise ValueError(
            f"disentangle: the decoder does not respond to latent(s) {dead.tolist()}, which have collapsed: leave them "
            "out of codes, and let the decoder set them to 0."
        )
    effects = np.sqrt(np.maximum(np.linalg.eigvalsh(total), 0))
    idle = int((effects <= COLLAPSED * effects[-1]).sum())
    if idle:
        raise ValueError(
            f"disentangle: the decoder responds to {len(total) - idle} directions of its {len(total)} codes only: some "
            "latents have collapsed together. Train it with as many as it uses."
        )


def _lead(found: Searched, members: list[list[int]]) -> float:
    """Return how far behind the best start is that ended elsewhere: where sets of latents are others."""
    for rotation, count in zip(found.rotations[1:], found.counts[1:], strict=True):
        shares = (found.rotations[0].T @ rotation) ** 2  # of each new latent in each of the best
        inside = np.stack([shares[each].sum(0) for each in members])  # (sets, d)
        sizes = np.bincount(inside.argmax(0), minlength=len(members))
        if inside.max(0).min() < SAME or sizes.tolist() != [len(each) for each in members]:
            return float(count - found.counts[0])
    return float("inf")


def _by_chance(moments: np.ndarray, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Return what a random rotation leaves, and what searches leave where gradients have no axes in common.

    Each output's gradients are turned by themselves: how many latents they span stays, and where nothing is sparse the
    search gains as much as before. So it does in a linear decoder, of which any few outputs can be cleared.
    """
    d = moments.shape[1]
    turns, left = np.linalg.qr(rng.normal(size=(N_TURNS, d, d)))[0], []
    for _ in range(N_SCRAMBLED):
        some = moments[rng.permutation(len(moments))[:SCRAMBLED_OUTPUTS]]
        each = np.linalg.qr(rng.normal(size=some.shape))[0]
        left.append(searched(each.swapaxes(1, 2) @ some @ each, n_starts=SCRAMBLED_STARTS).counts[0])
    return float(reached_by(moments, turns).mean()), np.array(left)


def _of_law(free: Freedom) -> list[str]:
    """Return what in the law of the codes stands against a claim."""
    reasons = []
    if free.kind != "Gaussian":
        reasons.append("the codes are not Gaussian, so that latents are not independent along all axes")
    if free.n < FEWEST_CODES:
        reasons.append(f"{free.n} codes are too few to know their law: give {FEWEST_CODES}, better thousands")
    return reasons


def _of_dependence(strength: np.ndarray, support: np.ndarray, changed: np.ndarray) -> list[str]:
    """Return what stands against a claim in how outputs depend on latents: all (m, d), of those that vary."""
    reasons = []
    faint, between = int((strength < FAINT).sum()), int(((strength >= FAINT) & (strength <= STRONG)).sum())
    if between > faint:
        reasons.append(
            f"what depends on a latent is not told from what does not: {between} derivatives are neither strong nor "
            f"faint ({FAINT:g} to {STRONG:g}), and {faint} are faint"
        )
    unseen = int((~support & (changed > UNSEEN)).sum())
    if unseen > FEW * max(1, (~support).sum()):
        reasons.append(
            f"{unseen} outputs change with a latent that their derivatives do not see, as where a decoder jumps, "
            "rounds, or hides a part from differentiation"
        )
    return reasons


def _of_search(ahead: float, blocks: tuple[structure.Block, ...], *, gain: float, by_chance: np.ndarray) -> list[str]:
    """Return what stands against a claim in what the search found."""
    reasons = []
    if ahead < TIED:
        reasons.append("another rotation, that tells other latents apart, is as good")
    if len(blocks) < 2:
        reasons.append("no latents are told apart by what they reach")
    bound = max(by_chance.mean() + max(LEAST, 3 * by_chance.std()), CLEARLY * by_chance.mean())
    if gain < bound:
        reasons.append(
            f"the rotation clears {gain:.2f} dependencies of an output, and where gradients have no axes in common "
            f"{by_chance.mean():.2f} ± {by_chance.std():.2f} are cleared"
        )
    return reasons
