"""Fit an estimator to a simulation, and say what was recovered and which claim is supported."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.report.page import Condition, Curve, Curves, Fact, Figure, Row, Section, shown
from pindown.errors import IdentifiabilityWarning
from pindown.metrics import chance_linear_r2, linear_r2
from pindown.theory import Assumption, Theorem

if TYPE_CHECKING:  # `import pindown.demo` does not load torch
    from torch import Tensor

    from pindown.simulate import Sample

Array = NDArray[Any]  # float32 or float64

RECOVERED = 0.9
"""Latents count as recovered if the fit closes this fraction of the gap between a linear fit and a perfect score."""

N_DRAWN = 1_500
"""Points in a figure: enough to show a surface, few enough to rotate it smoothly."""

BATCH_SIZE = 512


@dataclass(frozen=True)
class Budget:
    """Number of samples and steps per simulation; the defaults take about a minute and a half on two cores."""

    n_pairs: int = 20_000
    n_labelled: int = 40_000
    n_test: int = 4_000
    max_iter: int = 1_000


@dataclass(frozen=True, eq=False)
class Recovery:
    """A simulation, the fitted estimator, and test samples: observed, true, recovered, linearly fitted."""

    process: Any  # Pairs, Clusters, Nuisance or Structured, which have different attributes
    estimator: Any  # the estimator for it
    test: Sample
    z_hat: Array  # (n, d)
    z_linear: Array  # (n, d) linear regression of the true latents on x
    warned: tuple[str, ...]  # identifiability warnings of the fit
    unchecked: tuple[Assumption, ...] = ()  # assumptions that nobody can check here

    @property
    def x(self) -> Array:
        """The observations; (n, d)."""
        return self.test.x.numpy()

    @property
    def z(self) -> Array:
        """The true latents; (n, d)."""
        return self.test.z.numpy()

    @property
    def u(self) -> NDArray[np.int64]:
        """The class or the level of the nuisance; (n,)."""
        assert self.test.u is not None
        return self.test.u.numpy()

    @property
    def theorem(self) -> Theorem:
        """The theorem of the estimator, whether or not its assumptions hold."""
        return self.estimator.guarantee

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions about the data that do not hold."""
        known = {*self.process.assumptions, *self.unchecked}
        return tuple(a for a in self.theorem.assumes if a.about != "model" and a not in known)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The status of each assumption of the theorem."""

        def status(assumption: Assumption) -> Literal["holds", "broken", "not checked", "of the fit"]:
            if assumption.about == "model":
                return "of the fit"
            if assumption in self.unchecked:
                return "not checked"
            return "broken" if assumption in self.broken else "holds"

        return tuple(Condition(a.name, a.statement, status(a)) for a in self.theorem.assumes)

    def r2(self, name: str) -> Row:
        """Return the R² of all latents, with that of a linear fit of the raw data."""
        chance = chance_linear_r2(*self.z_hat.shape)
        return Row(name, "R²", linear_r2(self.z_linear, self.z), linear_r2(self.z_hat, self.z), chance)

    def claim(self, row: Row, numbers: str | None = None) -> str:
        """Return the numbers and the supported claim, or why there is none."""
        theorem = self.theorem
        numbers = numbers or (
            f"Held-out {row.metric} {shown(row.recovered, 3)} (linear fit of the raw data {shown(row.linear)}, "
            f"chance {shown(row.chance)})"
        )
        if self.broken:
            missing = " and ".join(assumption.name for assumption in self.broken)
            return f"{numbers}: no claim is supported, because an assumption of {theorem.source} is broken: {missing}."
        if not recovered(row):
            return f"{numbers}: not recovered. {theorem.source} promises more, but only at the optimum: train longer."
        *first, last = (assumption.name for assumption in theorem.assumes)
        unchecked = "".join(f" Not checked here: {assumption.name}." for assumption in self.unchecked)
        return (
            f"{numbers}: {theorem.subject} up to {theorem.indeterminacy.name}, as {theorem.source} promises given "
            f"{', '.join(first)}, and {last}.{unchecked}"
        )

    def section(
        self, title: str, text: str, score: Row, figures: tuple[Figure, ...], *facts: Fact, numbers: str | None = None
    ) -> Section:
        """Return the section of the page."""
        not_promised = () if self.broken else self.theorem.not_promised
        claim = self.claim(score, numbers)
        return Section(title, text, score, figures, facts, claim, self.conditions, not_promised, self.warned)


def recover(
    process: Any,
    estimator: Any,
    n_train: int,
    n_test: int,
    random_state: int,
    *,
    side: Literal["x_pos", "u"] | None = None,
    unchecked: tuple[Assumption, ...] = (),
) -> Recovery:
    """Fit an estimator to samples and their side variable, and encode test samples."""
    from sklearn.linear_model import LinearRegression

    train, test = (process.sample(n, random_state=random_state + k) for n, k in ((n_train, 1), (n_test, 2)))
    warned = _fit(estimator, train.x, None if side is None else getattr(train, side))
    flat, flat_test = (part.flatten(1).numpy() for part in (train.x, test.x))
    z_linear = LinearRegression().fit(flat, train.z.numpy()).predict(flat_test)
    return Recovery(process, estimator, test, estimator.transform(test.x.numpy()), z_linear, warned, unchecked)


def recovered(row: Row) -> bool:
    """Return whether the fit closes most of the gap between a linear fit and a perfect score."""
    return row.gap_closed >= RECOVERED


def loss_curves(caption: str, guessing: float, *curves: Curve) -> Curves:
    """Return a figure of training losses, with their final values as its description."""
    ends = ", ".join(f"{curve.values[-25:].mean():.2f} with {curve.name}" for curve in curves)
    n_steps = len(curves[-1].values)
    description = f"Loss over {n_steps:,} steps. It ends at {ends}; guessing has {guessing:.2f}."
    return Curves(caption, description, curves, guessing)


def _fit(estimator: Any, x: Tensor | None, side: Tensor | None) -> tuple[str, ...]:
    """Fit, and return the identifiability warnings, which the page shows; other warnings pass."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        estimator.fit(x, side)
    for other in caught:
        if not issubclass(other.category, IdentifiabilityWarning):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return tuple(str(w.message) for w in caught if issubclass(w.category, IdentifiabilityWarning))
