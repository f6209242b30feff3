"""Whether forgetting the body, after a first stage, is worth what it bends: measured on held-out episodes, decided."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_predict

from pindown.errors import IdentifiabilityWarning, warn
from pindown.methods.alignment import PolynomialRidge
from pindown.methods.forget import Forget
from pindown.metrics import Effort, Leakage, leakage

BLIND = 0.05
"""How far above chance the worst probe may read codes that are called blind: true actions are read nearly so well."""

GAIN, LOSS = 0.01, 0.02
"""By how much the second stage must lower what the worst probe reads, and how much it may cost otherwise."""

FOLDS = 5
"""Of pairs, each of which is predicted by a map fitted to the others."""

FEWEST = 4
"""Transitions of a body with which it can be read at all: two to fit a probe, and two to score it."""

LEAST_ROWS = 10
"""Held-out transitions of a body, of two episodes, that probes can be scored on; with fewer, all transitions are."""


@dataclass(frozen=True)
class SecondStage:
    """Whether `Forget` was played on the codes of the first stage, and what was measured on episodes held out.

    Attributes
    ----------
    played : bool
        Whether codes go through it.
    reason : str
        Why, or why not.
    chance : float
        What a guess of the body scores: balanced accuracy.
    before, after : float
        What the worst probe reads of the body, without and with the second stage; None if it was not tried.
    kept : float
        R² of an affine map from codes after it to those before, the worst body's: how straight it is; None as above.
    transfer_before, transfer_after : float
        R² of an affine map from a body's codes to another's, over pairs it was not fitted to; None with few or none.
    """

    played: bool
    reason: str
    chance: float
    before: float
    after: float | None = None
    kept: float | None = None
    transfer_before: float | None = None
    transfer_after: float | None = None

    def __str__(self) -> str:
        return f"second stage {'played' if self.played else 'left out'}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes, whose they are, and of which episode; (n, k), (n,), (n,)."""

    codes: np.ndarray
    body: np.ndarray
    episode: np.ndarray

    def take(self, rows: np.ndarray) -> Codes:
        """Return some of them."""
        return Codes(self.codes[rows], self.body[rows], self.episode[rows])

    def beside(self, others: Codes) -> Codes:
        """Return these and others."""
        mine, theirs = ((each.codes, each.body, each.episode) for each in (self, others))
        return Codes(*(np.concatenate(parts) for parts in zip(mine, theirs, strict=True)))

    def common(self) -> np.ndarray:
        """Return the bodies of which probes can be shown some rows, of one episode, and scored on others."""
        own = {body: self.body == body for body in np.unique(self.body)}
        found = [b for b, rows in own.items() if rows.sum() >= FEWEST and len(np.unique(self.episode[rows])) > 1]
        if len(found) < 2:
            raise ValueError(
                f"LatentAction: probes read the body off {FEWEST} transitions of each, of two episodes, and no "
                "two bodies have so many. Give more."
            )
        return np.array(found)

    def can_be_read(self, bodies: np.ndarray) -> bool:
        """Say whether there is enough of each body for probes to learn from some episodes, and be scored on others."""
        own = [self.body == body for body in bodies]
        return all(rows.sum() >= LEAST_ROWS and len(np.unique(self.episode[rows])) > 1 for rows in own)

    def read(self, seed: int) -> Leakage:
        """Return what probes read of the body."""
        return leakage(
            self.codes, self.body, groups=self.episode, effort=Effort(n_seeds=1, n_permutations=199), random_state=seed
        )


Paired = list[tuple[Any, np.ndarray, Any, np.ndarray]]
"""Two bodies at a time, and codes of the same motions in the first and in the second."""


def decided(
    forget: Forget, learned: Codes, held_out: Codes, pairs: Paired, seed: int, *, asked: bool = False
) -> tuple[SecondStage, Forget | None]:
    """Say whether to play the second stage, and return it fitted if so; else None.

    It is not tried where codes are blind without it, and kept where it lowers what the worst probe reads, keeps codes
    straight within each body, and costs no transfer where there are pairs to measure it. If fewer codes are ``asked``
    for than the first stage has, it is what makes them, and always played.
    """
    whole = learned.beside(held_out)
    bodies = whole.common()
    if rare := int((~np.isin(whole.body, bodies)).sum()):
        warn(f"LatentAction: {rare} transitions are of bodies too rare for probes to read: nothing is said of them.")
    enough = held_out.can_be_read(bodies)
    shown = held_out if enough else whole
    shown = shown.take(np.isin(shown.body, bodies))
    where = "held-out transitions" if enough else "all transitions, for too few are held out,"
    read = shown.read(seed)
    before, chance = read.worst, read.chance
    if not asked and (not read.leaks or before <= chance + BLIND):
        unsure = before > chance + BLIND
        doubt = f": with so few episodes that may be chance, p = {read.p_value:.2g}" if unsure else ""
        reason = f"the worst probe reads the body off {before:.3f} of {where} (chance {chance:.3f}){doubt}."
        return SecondStage(False, reason, chance, before), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # what it leaves is measured below, and said
        forget.fit(learned.codes, learned.body)
    made = forget.transform(shown.codes)
    after = Codes(made, shown.body, shown.episode).read(seed).worst
    whose = [shown.body == body for body in np.unique(shown.body)]
    kept = min(_straight(made[own], shown.codes[own]) for own in whose)
    moved = [(a, forget.transform(x), b, forget.transform(y)) for a, x, b, y in pairs]
    transfer, transfer_after = _transfer(pairs), _transfer(moved)
    lost, cost = 1 - kept, f"straight within bodies to R² {kept:.3f}"
    if transfer is not None and transfer_after is not None:
        lost, cost = max(lost, transfer - transfer_after), f"{cost}, transfer {transfer:.3f} → {transfer_after:.3f}"
    played = asked or (after <= before - GAIN and lost <= LOSS)
    reason = f"worst probe {before:.3f} → {after:.3f} on {where} (chance {chance:.3f}), {cost}."
    if asked:
        reason = f"{made.shape[1]} of {learned.codes.shape[1]} codes were asked for; {reason}"
    stage = SecondStage(played, reason, chance, before, after, kept, transfer, transfer_after)
    return stage, forget if played else None


def _straight(made: np.ndarray, codes: np.ndarray) -> float:
    return float(r2_score(codes, PolynomialRidge().fit(made, codes).predict(made), multioutput="variance_weighted"))


def _transfer(pairs: Paired) -> float | None:
    scores = [
        r2_score(y, cross_val_predict(PolynomialRidge(), x, y, cv=FOLDS), multioutput="variance_weighted")
        for _, x, _, y in pairs
        if len(x) >= 2 * FOLDS
    ]
    return float(np.mean(scores)) if scores else None
