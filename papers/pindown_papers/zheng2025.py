"""Zheng et al., Diverse Dictionary Learning: what a sparse Jacobian recovers without any side information.

`FIGURE_4`: parts of the latents that must not explain each other. `FIGURE_5`: latents recovered where the structure is
diverse, and where it is dense. `TABLE_4`: other penalties on the same simulations. `TABLE_5`: noise. `TABLE_6`:
the weight of the penalty. Torch is imported where a simulation is built, not where a table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from math import nan
from typing import TYPE_CHECKING

from pindown_papers._experiment import EVALUATION_SEEDS, Axes, Experiment, Profile, Published

if TYPE_CHECKING:
    import numpy as np

    from pindown.losses import Penalty
    from pindown.methods import Dictionary
    from pindown.simulate import Structured

_UNKNOWN = Published(nan)


# Penalties, made when they are needed.


def count() -> Penalty:
    """Return our default: the number of dependencies, softened."""
    from pindown.losses import DependencyCount

    return DependencyCount()


def l1(weight: float = 0.1) -> Penalty:
    """Return the paper's penalty, in standardised units."""
    from pindown.losses import DependencySparsity

    return DependencySparsity(weight)


def orojar() -> Penalty:
    """Return orthogonal columns of the Jacobian."""
    from pindown_papers.penalties import OroJAR

    return OroJAR()


def hessian() -> Penalty:
    """Return latents that do not interact."""
    from pindown_papers.penalties import HessianPenalty

    return HessianPenalty()


def none() -> None:
    """Return no penalty."""


@dataclass(frozen=True)
class Recipe(Profile):
    """How many samples, and how long to train.

    Parameters
    ----------
    n_samples
        Rows to train on.
    n_restarts, max_iter
        Of `Dictionary`.
    supervised_iter
        Steps of the fit to the truth.
    n_eval
        Held-out samples.
    """

    n_samples: int
    n_restarts: int
    max_iter: int
    supervised_iter: int
    n_eval: int


@dataclass(frozen=True)
class Row:
    """A row of a table: a simulation, and the penalty of the fit.

    Parameters
    ----------
    number
        Its place.
    d
        Latents; there are twice as many observed variables.
    is_diverse
        Whether the structure is diverse, or else dense: every latent reaches everything.
    name, penalty
        What the fit is asked for next to its likelihood.
    noise
        Standard deviation of additive noise, in units of that of each observed variable.
    published
        The paper's scores.
    """

    number: int
    d: int
    is_diverse: bool
    name: str
    penalty: Callable[[], Penalty | None]
    noise: float
    published: tuple[Published, ...]

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        structure = "diverse" if self.is_diverse else "dense"
        return (
            f"d = {self.d}",
            structure,
            f"noise = {self.noise:g}",
            self.name,
            "yes" if self.is_diverse and self.has_theorem else "no",
        )

    @property
    def has_theorem(self) -> bool:
        """Whether the penalty is one that the theorems speak of."""
        return self.name == "count" or self.name.startswith("L1")

    def simulation(self, seed: int) -> Structured:
        """Build the simulation: as nonlinear and as injective as the theorem wants it, if the structure is diverse."""
        import numpy as np

        from pindown.simulate import Structured
        from pindown_papers.supports import diverse

        m = 2 * self.d
        if not self.is_diverse:
            return Structured.well_posed(np.ones((m, self.d)), nonlinearity=0.02, random_state=seed)
        support = diverse(m, self.d, density=min(0.5, 2.5 / self.d), random_state=seed)
        return Structured.well_posed(support, random_state=seed)

    def estimator(self, profile: Recipe, seed: int, device: str) -> Dictionary:
        """Return the estimator of this row, not yet fitted."""
        from pindown.methods import Dictionary

        return Dictionary(
            self.d,
            penalty=self.penalty(),
            n_restarts=profile.n_restarts,
            max_iter=profile.max_iter,
            device=device,
            random_state=seed,
        )

    def measure(self, profile: Recipe, seed: int, device: str) -> dict[str, float]:
        """Fit with and without the truth, and score both on held-out samples."""
        import torch

        from pindown import _random, metrics
        from pindown_papers._supervised import fit_supervised
        from pindown_papers.sets import support_f1

        simulation = self.simulation(seed)
        chance = _random.generator(seed)

        def seen(x: torch.Tensor) -> torch.Tensor:
            return x + self.noise * x.std(0) * torch.randn(x.shape, generator=chance)

        train = simulation.sample(profile.n_samples, random_state=seed)
        held_out = simulation.sample(profile.n_eval, random_state=EVALUATION_SEEDS + seed)
        dictionary = self.estimator(profile, seed, device).fit(seen(train.x))
        z_hat = dictionary.transform(seen(held_out.x)).cpu()
        supervised = fit_supervised(
            simulation,
            space=dictionary.encoder_.space,
            body=dictionary.encoder,
            batch_size=512,
            max_iter=profile.supervised_iter,
            learning_rate=5e-3,
            weight_decay=0.0,
            seed=seed,
            device=device,
        )
        with torch.inference_mode():
            z_supervised = supervised(held_out.x.to(device)).cpu()
        matching = metrics.match_latents(z_hat, held_out.z)
        scores = {
            "mcc": metrics.mcc(z_hat, held_out.z),
            "chance": metrics.chance_mcc(self.d),
            "supervised": metrics.mcc(z_supervised, held_out.z),
            "linear r2": metrics.linear_r2(z_hat, held_out.z),
            "support f1": support_f1(dictionary.support_, simulation.support, matching=matching),
            "nonlinearity": float(simulation.nonlinearity().min()),
        }
        return scores | _set_scores(z_hat.numpy(), held_out.z.numpy(), simulation.support, matching)


def _set_scores(z_hat: np.ndarray, z: np.ndarray, support: np.ndarray, matching: np.ndarray) -> dict[str, float]:
    """Return Figure 4's scores, for the first two groups of observed variables of which each has all three parts."""
    from pindown_papers.sets import chance_set_scores, set_scores

    groups = next(_overlapping_groups(support), None)
    if groups is None:
        return {}
    found = set_scores(z_hat, z, support, *groups, matching=matching)
    chance = chance_set_scores(support, *groups)
    return {
        "Int": found.intersection,
        "SymDiff": found.symmetric_difference,
        "Comp A": found.complement_a,
        "Comp B": found.complement_b,
        "Ref": found.reference,
        "chance Int": chance.intersection,
        "chance SymDiff": chance.symmetric_difference,
    }


def _overlapping_groups(support: np.ndarray) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield pairs of groups of one or two observed variables that share latents, and have some each for themselves.

    Examples
    --------
    >>> import numpy as np
    >>> next(_overlapping_groups(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]])))
    ((0,), (1,))
    """
    from pindown_papers.supports import parts

    variables = range(len(support))
    groups = list(chain(combinations(variables, 1), combinations(variables, 2)))
    for first, second in combinations(groups, 2):
        found = parts(support, first, second)
        if found.shared and found.only_first and found.only_second:
            yield first, second


def _rows(*cases: tuple[int, bool, str, Callable[[], Penalty | None], float, tuple[Published, ...]]) -> tuple[Row, ...]:
    return tuple(Row(number, *case) for number, case in enumerate(cases, start=1))


def _mcc(mean: float, spread: float | None = None) -> tuple[Published]:
    return (Published(100 * mean, None if spread is None else 100 * spread),)


def _weighed(weight: float) -> tuple[str, Callable[[], Penalty | None]]:
    """Return a penalty of Table 6 by its name in the other tables, where no weight is no penalty."""
    return ("none", none) if weight == 0 else (f"L1, λ = {weight:g}", partial(l1, weight))


# The paper's numbers. fmt: off
_OURS = {3: _mcc(0.8258, 0.0085), 4: _mcc(0.8449, 0.0043), 5: _mcc(0.8048, 0.0080), 10: (_UNKNOWN,)}
_BASE = {3: _mcc(0.3814, 0.0369), 4: _mcc(0.5467, 0.0326), 5: _mcc(0.4576, 0.1075)}
_OROJAR = {3: _mcc(0.7288, 0.0280), 4: _mcc(0.6301, 0.0810), 5: _mcc(0.5119, 0.1482)}
_HESSIAN = {3: _mcc(0.8257, 0.0240), 4: _mcc(0.8352, 0.0396), 5: _mcc(0.7789, 0.0174)}
_NOISY = {3: _mcc(0.8210, 0.0088), 4: _mcc(0.8381, 0.0093), 5: _mcc(0.7944, 0.0134)}
_WEIGHTS = {
    0.0: (_mcc(0.6789, 0.0364), _mcc(0.7317, 0.1092), _mcc(0.6989, 0.0133)),
    0.001: (_mcc(0.7313, 0.0242), _mcc(0.7294, 0.0147), _mcc(0.7513, 0.0007)),
    0.005: (_mcc(0.7765, 0.0363), _mcc(0.7826, 0.0244), _mcc(0.7681, 0.0455)),
    0.01: (_mcc(0.8145, 0.0221), _mcc(0.8032, 0.0327), _mcc(0.7979, 0.0421)),
    0.03: (_mcc(0.8268, 0.0268), _mcc(0.8232, 0.0187), _mcc(0.8101, 0.0112)),
    0.05: (_mcc(0.8256, 0.0088), _mcc(0.8420, 0.0401), _mcc(0.8099, 0.0296)),
}
# fmt: on

QUICK = Recipe("quick", (0,), n_samples=10_000, n_restarts=2, max_iter=600, supervised_iter=600, n_eval=10_000)
FULL = Recipe(
    "full", tuple(range(10)), n_samples=10_000, n_restarts=3, max_iter=2_000, supervised_iter=2_000, n_eval=10_000
)

_HEADINGS = ("latents", "structure", "noise", "penalty", "assumptions hold")
_FURTHER = ("chance", "supervised", "linear r2", "support f1", "nonlinearity")
_NOTES = (
    "mcc: mean correlation after the best matching; chance is that of a random rotation. supervised: the same encoder"
    " trained on the true latents, without noise. linear r2: of all latents together, which a rotation leaves as it"
    " is.",
    "support f1: of the recovered graph, its columns matched by the latents. nonlinearity: the least of the"
    " simulation's observed variables, √(λ_min/λ_max) of the mean outer product of gradients on the support, × 100.",
    "The paper's simulations are not published: widths, masks and activation are ours. Twice as many observed variables"
    " as latents, 10,000 samples; diverse supports of density min(.5, 2.5/d), simulations whose nonlinearity is at"
    " least .05 and whose standardised Jacobian has no singular value below .1 (dense: .02 and .1).",
    "count is our default, a soft number of dependencies; L1 the paper's penalty, in standardised units, so that its"
    " weights are no multiples of the paper's.",
)

FIGURE_4 = Experiment(
    name="zheng2025/figure4",
    title="parts that must not explain each other, R² in %",
    source="Zheng et al., Diverse Dictionary Learning, Figure 4",
    headings=_HEADINGS,
    scores=("Int", "SymDiff", "Comp A", "Comp B", "Ref"),
    further=("chance Int", "chance SymDiff", "mcc"),
    rows=_rows(
        *(
            (d, True, name, penalty, 0.0, (_UNKNOWN,) * 5)
            for name, penalty in (("count", count), ("none", none))
            for d in (3, 4, 5)
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(*_NOTES, "The paper draws this and prints no numbers. Low is good, next to a high Ref."),
)

FIGURE_5 = Experiment(
    name="zheng2025/figure5",
    title="single latents by structure, MCC in %",
    source="Zheng et al., Diverse Dictionary Learning, Figure 5",
    headings=_HEADINGS,
    scores=("mcc",),
    further=_FURTHER,
    rows=_rows(
        *((d, True, "count", count, 0.0, _OURS[d]) for d in (3, 4, 5, 10)),
        *((d, False, "count", count, 0.0, _BASE[d]) for d in (3, 4, 5)),
    ),
    quick=QUICK,
    full=FULL,
    notes=(
        *_NOTES,
        "At d = 10 the figure reads about 84 for diverse structures; no dense simulation of ours is injective there.",
    ),
    axes=Axes(x="latents", line="structure", scores=("mcc", "support f1")),
)

TABLE_4 = Experiment(
    name="zheng2025/table4",
    title="other penalties, MCC in %",
    source="Zheng et al., Diverse Dictionary Learning, Table 4",
    headings=_HEADINGS,
    scores=("mcc",),
    further=_FURTHER,
    rows=_rows(
        *(
            case
            for d in (3, 4, 5)
            for case in (
                (d, True, "count", count, 0.0, _OURS[d]),
                (d, True, "L1", l1, 0.0, _OURS[d]),
                (d, True, "OroJAR", orojar, 0.0, _OROJAR[d]),
                (d, True, "Hessian", hessian, 0.0, _HESSIAN[d]),
            )
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=_NOTES,
)

TABLE_5 = Experiment(
    name="zheng2025/table5",
    title="additive noise, MCC in %",
    source="Zheng et al., Diverse Dictionary Learning, Table 5",
    headings=_HEADINGS,
    scores=("mcc",),
    further=_FURTHER,
    rows=_rows(
        *(
            (d, True, "count", count, noise, published[d])
            for noise, published in ((0.0, _OURS), (0.1, _NOISY))
            for d in (3, 4, 5)
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(*_NOTES, "The paper does not say how large its noise is; ours is a tenth of each variable's spread."),
)

TABLE_6 = Experiment(
    name="zheng2025/table6",
    title="the weight of the paper's penalty, MCC in %",
    source="Zheng et al., Diverse Dictionary Learning, Table 6",
    headings=_HEADINGS,
    scores=("mcc",),
    further=_FURTHER,
    rows=_rows(
        *(
            (d, True, *_weighed(weight), 0.0, published[d - 3])
            for d in (3, 4, 5)
            for weight, published in _WEIGHTS.items()
        )
    ),
    quick=QUICK,
    full=FULL,
    notes=(*_NOTES, "λ multiplies the L1 norm in nats per row; none is λ = 0, where nothing is rotated either."),
    axes=Axes(x="penalty", line="latents", scores=("mcc",)),
)

EXPERIMENTS = (FIGURE_4, FIGURE_5, TABLE_4, TABLE_5, TABLE_6)
