"""Removal of the body from latent actions by `Forget`: tried if the body is decodable, kept if it costs little."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import cross_val_predict

from pindown import networks
from pindown.errors import IdentifiabilityWarning, InputError, warn
from pindown.methods.alignment import PolynomialRidge
from pindown.methods.forget import Forget
from pindown.metrics import Effort, Leakage, leakage
from pindown.metrics.arrays import Labels, Mask, Matrix, pooled_r2

TOLERATED = 0.05  # balanced accuracy above chance up to which latents count as invariant: true actions reach as much
MIN_GAIN = 0.01  # by which the removal must lower the accuracy of the worst probe
MAX_LOSS = 0.02  # of R², within bodies and of transfer between them, that the removal may cost
N_FOLDS = 5  # folds of the pairs, each of which is predicted by a map fitted to the others
MIN_TRANSITIONS = 4  # transitions of a body, of two episodes, that probes need
MIN_HELD_OUT = 10  # held-out transitions of a body: with fewer, all transitions are probed

PairedLatents = list[tuple[Matrix, Matrix]]
"""For some pairs of bodies, latents of the same motions in the first and in the second."""


@dataclass(frozen=True)
class BodyRemoval:
    """Whether `Forget` was applied to the latents, and what was measured on held-out episodes.

    Attributes
    ----------
    applied : bool
        Whether latents go through it.
    reason : str
        Why, or why not.
    chance : float
        Balanced accuracy of a guess of the body.
    before, after : float
        Balanced accuracy of the worst probe, without and with the removal; None if it was not tried.
    """

    applied: bool
    reason: str
    chance: float
    before: float
    after: float | None = None

    def __str__(self) -> str:
        return f"body removal {'applied' if self.applied else 'not applied'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class LabelledLatents:
    """Latents with the number of the body and of the episode of each transition; (n, k), (n,), (n,)."""

    latents: Matrix
    body: Labels
    episode: Labels

    def take(self, which: Mask) -> LabelledLatents:
        """Return some of them."""
        return LabelledLatents(self.latents[which], self.body[which], self.episode[which])

    def bodies(self, min_transitions: int) -> Labels:
        """Return the bodies with so many transitions, of two episodes or more."""
        own = {body: self.body == body for body in np.unique(self.body)}
        enough = [b for b, o in own.items() if o.sum() >= min_transitions and len(np.unique(self.episode[o])) > 1]
        return np.array(enough, dtype=np.int64)

    def leakage(self, seed: int) -> Leakage:
        """Return how well probes predict the body."""
        effort = Effort(n_seeds=1, n_permutations=199)
        return leakage(self.latents, self.body, groups=self.episode, effort=effort, random_state=seed)


def remove_body(
    forget: Forget, data: LabelledLatents, held_out: Mask, pairs: PairedLatents, seed: int, *, required: bool = False
) -> tuple[BodyRemoval, Forget | None]:
    """Decide whether to remove the body, and return `Forget`, fitted, if so.

    It is tried if probes predict the body, and kept if it lowers the accuracy of the worst one, is nearly linear within
    each body, and costs no transfer between bodies. It is always kept if ``required``.
    """
    bodies = data.bodies(MIN_TRANSITIONS)
    if len(bodies) < 2:
        message = f"probes need {MIN_TRANSITIONS} transitions, of two episodes, of two bodies at least. Give more"
        raise InputError("body", f"LatentAction: {message}.")
    known = np.isin(data.body, bodies)
    if not known.all():
        message = f"LatentAction: {(~known).sum()} transitions are of bodies that are too rare to be probed."
        warn(IdentifiabilityWarning(message, "rare bodies"))
    enough = set(bodies) <= set(data.take(held_out).bodies(MIN_HELD_OUT))
    shown = data.take(known & held_out if enough else known)
    where = "held-out transitions" if enough else "all transitions, since too few are held out"
    found = shown.leakage(seed)
    before, chance = found.worst, found.chance
    if not required and (not found.leaks or before <= chance + TOLERATED):
        doubt = f"; this may be chance, p = {found.p_value:.2g}" if before > chance + TOLERATED else ""
        reason = f"the worst probe predicts the body with balanced accuracy {before:.3f} (chance {chance:.3f}"
        return BodyRemoval(False, f"{reason}{doubt}) on {where}.", chance, before), None
    learned = data.take(~held_out)
    if forget.encoder is None:
        forget.set_params(encoder=networks.skip_mlp)  # one map for all bodies: later the body is unknown
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # what remains is measured below
        forget.fit(learned.latents, learned.body)
    made = forget.transform(shown.latents)
    after = LabelledLatents(made, shown.body, shown.episode).leakage(seed).worst
    linear = min(
        pooled_r2(shown.latents[own], PolynomialRidge().fit(made[own], shown.latents[own]).predict(made[own]))
        for own in (shown.body == body for body in bodies)
    )
    transfer = _transfer(pairs)
    loss, cost = 1 - linear, f"linear within bodies up to R² {linear:.3f}"
    if transfer is not None:
        transferred = _transfer([(forget.transform(x), forget.transform(y)) for x, y in pairs]) or 0.0
        loss, cost = max(loss, transfer - transferred), f"{cost}, transfer R² {transfer:.3f} → {transferred:.3f}"
    accuracy = f"balanced accuracy of the worst probe {before:.3f} → {after:.3f} (chance {chance:.3f})"
    reason = f"{accuracy} on {where}, {cost}."
    if required:
        reason = f"n_components asks for {made.shape[1]} of {data.latents.shape[1]} latents; {reason}"
    applied = required or (after <= before - MIN_GAIN and loss <= MAX_LOSS)
    return BodyRemoval(applied, reason, chance, before, after), forget if applied else None


def _transfer(pairs: PairedLatents) -> float | None:
    """Return the mean R² of latents of one body, predicted from another's by affine maps; None with too few pairs."""
    scores = [
        pooled_r2(y, cross_val_predict(PolynomialRidge(), x, y, cv=N_FOLDS)) for x, y in pairs if len(x) >= 2 * N_FOLDS
    ]
    return float(np.mean(scores)) if scores else None
