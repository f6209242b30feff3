"""A world whose truth is known, recovered by an estimator: what was found, and what may be claimed of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from pindown.metrics import chance_linear_r2, linear_r2
from pindown.report.page import Condition, Curve, Curves, Fact, Figure, Row, Section, shown
from pindown.theory import Assumption, Theorem

if TYPE_CHECKING:  # torch is imported when it is needed: `pindown --help` should not wait for it
    from torch import Tensor

    from pindown.estimators import Classify, Contrast, Dictionary, Forget
    from pindown.processes import Clusters, Nuisance, Pairs, Sample, Structured

World = TypeVar("World", bound="Pairs | Clusters | Nuisance | Structured")
Estimator = TypeVar("Estimator", bound="Contrast | Classify | Forget | Dictionary")

RECOVERED = 0.9
"""The share of the way from the linear fit to perfection from which a world counts as recovered."""

BATCH_SIZE = 512


@dataclass(frozen=True)
class Budget:
    """How much data and how many steps each world gets; the defaults take a minute and a half on two cores.

    Labels say less about a sample than a partner does, so there are more of them.
    """

    n_pairs: int = 20_000
    n_labelled: int = 40_000
    n_test: int = 4_000
    max_iter: int = 1_000


@dataclass(frozen=True, eq=False)
class Recovery(Generic[World, Estimator]):
    """A world, the fitted estimator, and test samples: observed, true, recovered, linearly fitted."""

    world: World
    estimator: Estimator
    test: Sample
    z_hat: np.ndarray  # (n, d)
    z_linear: np.ndarray  # (n, d)
    warned: tuple[str, ...]  # why the estimator itself says that no theorem applies
    unchecked: tuple[Assumption, ...] = ()  # assumptions about the world of which nobody knows whether they hold

    @property
    def x(self) -> np.ndarray:
        """The observations; (n, d)."""
        return self.test.x.numpy()

    @property
    def z(self) -> np.ndarray:
        """The truth; (n, d)."""
        return self.test.z.numpy()

    @property
    def theorem(self) -> Theorem:
        """What would be promised if its assumptions held."""
        assert self.estimator.guarantee is not None
        return self.estimator.guarantee

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions about the world that do not hold in it."""
        known = {*self.world.assumptions, *self.unchecked}
        return tuple(a for a in self.theorem.assumes if a.about != "model" and a not in known)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """How the assumptions of the theorem stand."""

        def status(assumption: Assumption) -> Literal["holds", "broken", "not checked", "of the fit"]:
            if assumption.about == "model":
                return "of the fit"
            if assumption in self.unchecked:
                return "not checked"
            return "broken" if assumption in self.broken else "holds"

        return tuple(Condition(a.name, a.statement, status(a)) for a in self.theorem.assumes)

    def r2(self, name: str) -> Row:
        """Return R² of all latents, beside a linear fit of the raw data."""
        chance = chance_linear_r2(*self.z_hat.shape)
        return Row(name, "R²", linear_r2(self.z_linear, self.z), linear_r2(self.z_hat, self.z), chance)

    def claim(self, row: Row) -> str:
        """Return the sentence that may be written down."""
        theorem = self.theorem
        numbers = (
            f"Held-out {row.metric} {shown(row.recovered, 3)} (linear fit of the raw data {shown(row.linear)}, "
            f"chance {shown(row.chance)})"
        )
        if self.broken:
            missing = " and ".join(_with_article(assumption.name) for assumption in self.broken)
            return f"{numbers}: nothing may be claimed, for {theorem.source} assumes {missing}, which is broken here."
        if not recovered(row):
            return f"{numbers}: not recovered; {theorem.source} promises more, but only at the optimum: train longer."
        return f"{numbers}: {self.promise}"

    @property
    def promise(self) -> str:
        """What the theorem promises, and given what."""
        *first, last = (assumption.name for assumption in self.theorem.assumes)
        unchecked = "".join(f" Not checked here: {assumption.name}." for assumption in self.unchecked)
        return (
            f"{self.theorem.subject} up to {self.theorem.indeterminacy.name}, as {self.theorem.source} promises given "
            f"{', '.join(first)}, and {last}.{unchecked}"
        )

    def section(self, title: str, text: str, score: Row, figures: tuple[Figure, ...], *facts: Fact) -> Section:
        """Return the world's part of the page."""
        not_promised = () if self.broken else self.theorem.not_promised
        return Section(
            title, text, score, figures, facts, self.claim(score), self.conditions, not_promised, self.warned
        )


def recover(
    world: World,
    estimator: Estimator,
    train: Sample,
    side: Tensor | None,
    test: Sample,
    unchecked: tuple[Assumption, ...] = (),
) -> Recovery[World, Estimator]:
    """Fit an estimator to samples of a world and their side variable, and encode others."""
    from sklearn.linear_model import LinearRegression

    warned = _fit(estimator, train.x, side)
    x = test.x.numpy()
    flat, flat_test = (part.flatten(1).numpy() for part in (train.x, test.x))
    z_linear = LinearRegression().fit(flat, train.z.numpy()).predict(flat_test)
    return Recovery(world, estimator, test, estimator.transform(x), z_linear, warned, unchecked)


def samples(world: World, n_train: int, n_test: int, random_state: int) -> tuple[Sample, Sample]:
    """Draw samples to fit and samples to score."""
    return world.sample(n_train, random_state=random_state + 1), world.sample(n_test, random_state=random_state + 2)


def recovered(row: Row) -> bool:
    """Whether most of what a linear fit misses was found."""
    return row.gap_closed >= RECOVERED


def loss_curves(caption: str, guessing: float, *curves: Curve) -> Curves:
    """Return losses while training, with their last values told to those who cannot see them."""
    ends = ", ".join(f"{curve.values[-25:].mean():.2f} with {curve.name}" for curve in curves)
    n_steps = len(curves[-1].values)
    description = f"Loss over {n_steps:,} steps; it ends at {ends}; guessing has {guessing:.2f}."
    return Curves(caption, description, curves, guessing)


def _fit(estimator: Any, x: Tensor, side: Tensor | None) -> tuple[str, ...]:
    """Fit, and return what the estimator warns of: on the page it is a result, on a terminal noise."""
    from pindown.estimators import IdentifiabilityWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        estimator.fit(x, side)
    for other in caught:
        if not issubclass(other.category, IdentifiabilityWarning):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return tuple(str(w.message) for w in caught if issubclass(w.category, IdentifiabilityWarning))


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
