"""`MethodSpec`: what a method says about itself to plans, audits, runs and the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pindown import theory
from pindown._names import counted
from pindown.auditing.agreement import Measure, measure_for
from pindown.auditing.checks.encoders import enough_directions, injective_encoder, structure_kept
from pindown.auditing.checks.noise import Ceiling, Moved, linear_ceiling, matched_ceiling
from pindown.auditing.checks.samples import enough_samples
from pindown.auditing.checks.verdict import Verdict, at_least, with_better
from pindown.auditing.evidence import (
    LINEAR,
    AuditScore,
    Evidence,
    linear_fit,
    linear_test,
    measured,
    reconstruction_evidence,
    recovery,
    side_information_evidence,
)
from pindown.auditing.plans import Plan, Summary, in_words, missing_in_general
from pindown.auditing.refits import E, Estimator, Refits, Samples, encoder_of, read, refitted
from pindown.data.data import Data
from pindown.metrics.arrays import Matrix
from pindown.networks.folding import Folding, find_flat_directions, find_folding
from pindown.networks.spaces import Space
from pindown.theory import UNIT_FEATURES, UNIT_NORM, Assumption, Theorem

Verdicts = tuple[Verdict, ...]

MAX_PIXELS = 1_024  # of an image up to which an encoder is checked for folding; beyond, for flat directions only


class Figure(NamedTuple):
    """What the report draws of a fit: the loss at each step, the loss at chance, and a support if there is one."""

    curve: np.ndarray
    chance: float | None = None
    support: NDArray[np.int64] | None = None


class FitScore(NamedTuple):
    """One number that says how well a fit works, its chance level, and the samples it was measured on."""

    name: str
    value: float | None = None
    chance: float | None = None
    rows: str = "learned from"


class ChosenParameters(NamedTuple):
    """Parameters chosen from the data, and notes that say why."""

    parameters: Mapping[str, object] = {}
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Roles:
    """The side variables that a method uses, by role: ``"signal"``, ``"nuisance"``, ``"pairs"`` or ``"given"``."""

    y: str | None = "signal"  # the role of ``y`` in ``fit``; None if X is all that is used
    also: tuple[str, ...] = ()  # further roles that ``fit`` takes as keywords
    plan_only: tuple[str, ...] = ()  # further roles that only the plan uses
    categorical: bool = False  # whether a signal must be categorical

    @property
    def used(self) -> tuple[str, ...]:
        """The roles of all side variables that ``fit`` uses."""
        return self.also if self.y is None else (self.y, *self.also)


@dataclass(frozen=True)
class Part:
    """A part of what a fit has learned that a claim can be about: its theorem, verdicts on it, and what is left out."""

    theorem: Theorem
    verdicts: Verdicts
    rest: str = "the latents behind X are not claimed, since X holds more than the latents explain"


class Comparison(Generic[E]):
    """How fits of a method are compared: with each other, and with ground truth. Override what differs."""

    def measure(self, est: E, samples: Samples) -> Measure:
        """Return the score of two fits: up to what the theorem leaves open; up to an affine map if there is none."""
        free = theory.AFFINE if est.guarantee is None else est.guarantee.indeterminacy
        return measure_for(free, samples.strata, getattr(est, "blocks_", None))

    def matrix(self, est: E, samples: Samples) -> Matrix | None:
        """Return what of a fit is compared with other fits; None stands for its latents of the samples."""
        return None

    def recovery(self, latents: Matrix, samples: Samples) -> tuple[AuditScore, ...]:
        """Compare latents with the ground truth, if it is known."""
        return recovery(latents, samples)

    def ceiling(self, est: E, found: Moved, samples: Samples) -> Ceiling:
        """Return the highest recovery that noise in X allows: per latent, if the theorem identifies single ones."""
        single = est.guarantee is not None and est.guarantee.indeterminacy.within(theory.ELEMENTWISE)
        return matched_ceiling(found) if single else linear_ceiling(found)

    def features(self, est: E, data: Data, latents: Matrix) -> Part | None:
        """Return what can be claimed where latents keep only part of X, or fits agree in some directions only."""
        return None

    def leading(self, est: E, train: Data, data: Data) -> Matrix:
        """Return latents along the directions that predict the side variable best, the best first, for `features`."""
        raise NotImplementedError

    def predictions(self, est: E, data: Data) -> Matrix:
        """Return the side variable as predicted from the latents, for `features`."""
        raise NotImplementedError


class Refitting(Generic[E]):
    """How an audit splits the samples and fits a method again. Override what differs."""

    def read(self, est: E, X: Any, y: Any, groups: Any) -> Samples:
        """Return what is given to an audit as samples of one table."""
        return read(est, X, y, groups)

    def samples(self, est: E, samples: Samples) -> Samples:
        """Return the samples with how to split them: strata that are split evenly, groups that stay together."""
        return samples

    def fit(self, est: E, data: Data, *, seed: int, elsewhere: bool) -> E:
        """Return a clone, fitted with another seed, and if ``elsewhere`` from another initialisation."""
        return refitted(est, data, seed=seed, elsewhere=elsewhere)

    def copy_choices(self, est: E, fresh: E) -> None:
        """Let an unfitted refit use what the fit has chosen from its data, so that both are of one kind."""

    def null(self, est: E, samples: Samples, rng: np.random.Generator) -> tuple[E, Samples] | None:
        """Return an estimator and data from which nothing can be learned; a shuffled nuisance would leave no task."""
        return None if samples.role == "nuisance" else (est, samples.shuffled(rng))


class MethodSpec(Generic[E]):
    """What a method says about itself. Subclass it and override what differs.

    ``est`` is the fitted estimator, unless a method's docstring says otherwise.

    Attributes
    ----------
    roles : Roles
        The side variables that it uses.
    comparison : Comparison
        How fits are compared with each other and with ground truth, and what they support if not the full claim.
    refitting : Refitting
        How an audit splits the samples and fits it again.

    Examples
    --------
    >>> from pindown import Forget
    >>> Forget.spec.roles.y, Forget.spec.roles.also, Forget.spec.roles.used
    ('nuisance', ('given',), ('nuisance', 'given'))
    """

    roles: ClassVar[Roles] = Roles()
    comparison: ClassVar[Comparison[Any]] = Comparison()
    refitting: ClassVar[Refitting[Any]] = Refitting()

    # ---- latents and score ------------------------------------------------------------------------------------------

    def latents(self, est: E, data: Data) -> Any:
        """Return the latents of data, an array or a sparse matrix, with the side variables that the encoder uses."""
        return est.transform(data.X)

    def score(self, est: E, data: Data) -> FitScore:
        """Return how well a fit works on data."""
        own = getattr(est, "score", None)
        if own is not None:
            return FitScore("score", float(own(data.X) if data.signal is None else own(data.X, data.signal)))
        if data.signal is None:
            return FitScore("")
        return FitScore(LINEAR, linear_fit(est.transform(data.X), data.signal)[0], 0.0)

    # ---- before a fit: plan, parameters -----------------------------------------------------------------------------

    def plan(self, est: E, data: Data, summary: Summary) -> Plan:
        """Return which theorem could apply to an unfitted estimator, given what a fit would read off the data."""
        theorem, d = est.guarantee, summary.n_components
        verdicts = self.checks_before(est, data, d, data)
        more = [
            (int(verdict.threshold - verdict.statistic), verdict.assumption.unit)
            for verdict in verdicts
            if isinstance(verdict.assumption, theory.Diversity) and verdict.outcome == "fails"
        ]
        needs = tuple(f"{in_words(n)} more {unit.removesuffix('s') if n == 1 else unit}" for n, unit in more)
        call = f"{type(est).__name__}(n_components={d})"
        return Plan(call, theorem, d, verdicts, (*needs, *missing_in_general(verdicts)), notes=summary.notes)

    def choose(self, est: E, data: Data) -> ChosenParameters:
        """Return parameters of an unfitted estimator that the data decide on the command line."""
        return ChosenParameters()

    # ---- assumptions ------------------------------------------------------------------------------------------------

    def checks_before(self, est: E, data: Data, n_components: int, whole: Data) -> Verdicts:
        """Return what data show before training; counts are taken from ``whole``, which has all samples."""
        verdicts = (enough_directions(_flat(data.X), n_components), enough_samples(len(whole), n_components))
        theorem = est.guarantee
        if data.signal is None or theorem is None or theorem.diversity is None or theorem.diversity.k_means:
            return verdicts
        found, needed = n_independent(data.signal), theorem.diversity.needed(n_components)
        needs = "needs" if n_components == 1 else "need"
        why = f"y has {found}, and {counted(n_components, 'latent')} {needs} {needed}."
        fails = f"Give {needed - found} more, or ask for fewer latents."
        return (*verdicts, at_least(theorem.diversity, found, needed, why, fails=fails))

    def checks_after(self, est: E, data: Data, known: Verdicts = ()) -> Verdicts:
        """Return what latents show about assumptions, with the verdicts that the evidence has ``known`` already."""
        _, *verdicts = encoder_checks(est, data)  # away from the surface on which latents lie, an encoder may fold
        return with_better(tuple(verdicts), *known)

    def waived(self, est: E, data: Data) -> tuple[Assumption, ...]:
        """Return the assumptions that are met by construction, or that the method does without."""
        return (UNIT_NORM, UNIT_FEATURES)

    # ---- evidence and report ----------------------------------------------------------------------------------------

    def evidence(self, refits: Refits[E], rng: np.random.Generator) -> Evidence:
        """Return scores on held-out samples next to chance, and controls."""
        if refits.held_out.side is not None:
            return side_information_evidence(refits, linear_test, rng)
        return reconstruction_evidence(refits, refits.held_out.with_permuted_columns(rng))

    def figure(self, est: E) -> Figure:
        """Return what the report draws of a fit."""
        return Figure(est.loss_curve_)


# ---- functions that specifications share ----------------------------------------------------------------------------


def spec_of(est: object, caller: str) -> MethodSpec[Any]:
    """Return the specification of an estimator, or raise."""
    if isinstance(est, type):
        name = est.__name__
        raise TypeError(f"{caller}: `est` must be fitted, got the class {name}. Use {name}(…).fit(X, …).")
    if not isinstance(spec := getattr(est, "spec", None), MethodSpec):
        kind = type(est).__name__
        raise TypeError(
            f"{caller}: `est` must be an estimator of pindown or a subclass of its BaseEncoder, got {kind}."
        )
    return spec


def is_large_image(shape: Sequence[int]) -> bool:
    """Return whether samples are images too large to check for folding."""
    return len(shape) == 3 and math.prod(shape) > MAX_PIXELS


def encoder_checks(est: Estimator, data: Data) -> Verdicts:
    """Check whether the encoder is injective, and how much of the observations the latents explain."""
    folding = folding_of(lambda rows: torch.as_tensor(est.transform(rows)), torch.as_tensor(data.X), est.encoder_.space)
    return (injective_encoder(folding), structure_kept(encoder_of(est, data), data.X))


def folding_of(encode: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, space: Space) -> Folding:
    """Return whether an encoder maps different samples to the same latents; of large images, by the latents alone."""
    if is_large_image(x.shape[1:]):
        return find_flat_directions(encode(x), space)
    return find_folding(lambda rows: encode(rows.reshape(-1, *x.shape[1:])), x.flatten(1), space)


def n_independent(side: np.ndarray) -> int:
    """Return the number of linearly independent measurements, or of levels of a label."""
    table = measured(side)
    return table.shape[1] if np.asarray(side).ndim == 1 else int(np.linalg.matrix_rank(table, tol=1e-6 * len(table)))


def _flat(X: np.ndarray) -> np.ndarray:
    return np.asarray(X).reshape(len(X), -1)
