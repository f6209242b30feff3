"""The demonstration, `pindown demo`: recover the latents of simulations, and show the result on one page."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import subspace_angles
from sklearn.linear_model import LinearRegression

from pindown import metrics, networks
from pindown.auditing.page import (
    Drawing,
    check_writable,
    colouring,
    curves,
    fill,
    latent_cloud,
    rounded,
    shown,
    write_whole,
)
from pindown.errors import IdentifiabilityWarning
from pindown.methods import Contrast, Forget
from pindown.simulate import Nuisance, Pairs
from pindown.theory import Assumption, Theorem

Array = NDArray[Any]  # float32 or float64

RECOVERED = 0.9
"""Latents count as recovered if the fit closes this fraction of the gap between a linear fit and a perfect score."""

BATCH_SIZE, N_DRAWN = 512, 1_500
"""Samples per step; points in a figure, enough to show a surface, few enough to rotate it smoothly."""

CONCENTRATION = 10.0
"""κ of positives and clusters: about 25° from the mean."""

THREE_CLOUDS = "Three clouds of the same points, with a net: the true sphere, the observations, and what was recovered."


# ---- clouds of points -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points in space, a surface (a net of meridians and parallels), and arrows."""

    title: str
    note: str
    points: Array  # (n, 3)
    surface: Array  # (n_parallels, n_meridians, 3)
    arrows: Array = field(default_factory=lambda: np.empty((0, 2, 3)))  # (n_arrows, tail and tip, 3)


def clouds(
    caption: str,
    description: str,
    parts: Sequence[Cloud],
    *,
    hues: Array,
    surface_hues: Array,
    arrow_hues: Array | None = None,
) -> Drawing:
    """Return clouds of the same points side by side, which rotate together.

    Hues are unit vectors, one for each point, vertex or arrow: near directions have near colours.
    """
    data = {
        "clouds": [{name: rounded(getattr(part, name)) for name in ("points", "surface", "arrows")} for part in parts],
        "colours": colours(hues),
        "surfaceColours": colours(surface_hues),
        "arrowColours": [] if arrow_hues is None else colours(arrow_hues),
    }
    panels = tuple((part.title, part.note) for part in parts)
    return Drawing("clouds", caption, description, data, panels, wide=len(parts) > 1)


def colours(directions: Array) -> list[Any]:
    """Return the colours of unit vectors (…, 3) as hexadecimal strings, nested as they are.

    The angle is the hue and the height the lightness, so that near directions have near colours.

    Examples
    --------
    >>> colours(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]))
    ['#a6a6a6', '#595959']
    """
    array = np.asarray(directions, dtype=np.float64)
    flat = np.empty(array[..., 0].size, dtype=object)
    for k, (x, y, z) in enumerate(array.reshape(-1, 3)):
        hue, saturation = math.atan2(y, x) / (2 * math.pi) % 1, min(1.0, 0.7 * math.hypot(x, y))
        rgb = hls_to_rgb(hue, 0.5 + 0.15 * max(-1.0, min(1.0, z)), saturation)
        flat[k] = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
    return flat.reshape(array.shape[:-1]).tolist()


# ---- the page -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The score of one simulation, next to those of a linear fit of the raw data and of chance.

    Examples
    --------
    >>> Row("sphere", "R²", linear=0.8, recovered=0.99, chance=0.0).gap_closed
    0.95
    """

    name: str
    metric: str
    linear: float
    recovered: float
    chance: float

    @property
    def gap_closed(self) -> float:
        """The fraction of the gap between the linear fit and a perfect score that is closed; negative if it grew."""
        return round((self.recovered - self.linear) / (1 - self.linear), 6)

    @property
    def success(self) -> bool:
        """Whether the latents count as recovered."""
        return self.gap_closed >= RECOVERED


class Fact(NamedTuple):
    """A number with its name and how to read it."""

    label: str
    value: str
    note: str


class Condition(NamedTuple):
    """An assumption of a theorem, and whether it holds here; one ``of the fit`` is approached, never reached."""

    name: str
    statement: str
    status: Literal["holds", "broken", "not checked", "of the fit"]


@dataclass(frozen=True, eq=False)
class Section:
    """One simulation: what was done, figures, numbers, and the supported claim."""

    title: str
    text: str
    score: Row
    figures: tuple[Drawing, ...]
    facts: tuple[Fact, ...]
    claim: str
    conditions: tuple[Condition, ...]
    not_promised: tuple[str, ...]
    warned: tuple[str, ...] = ()  # warnings of the estimator


@dataclass(frozen=True, eq=False)
class Demo:
    """The results of the demonstration, as its page shows them."""

    title: str
    kicker: str
    lead: str
    sections: tuple[Section, ...]
    footer: str

    @property
    def table(self) -> tuple[Row, ...]:
        """One row per simulation: name, metric, linear, recovered, chance."""
        return tuple(section.score for section in self.sections)

    @property
    def claims(self) -> tuple[str, ...]:
        """One sentence per simulation: the supported claim and its theorem."""
        return tuple(section.claim for section in self.sections)

    def html(self) -> str:
        """Return the page as self-contained HTML."""
        return fill("demo.html.j2", page=self, title=self.title)


# ---- the demonstration ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """Number of samples and steps per simulation; the defaults take about ten seconds each on two cores."""

    n_pairs: int = 20_000
    n_labelled: int = 40_000
    n_test: int = 4_000
    max_iter: int = 1_000


MakeSections = Callable[[Budget, dict[str, Any]], tuple[Section, ...]]
"""Fits simulations and returns the sections of a page, given a budget and parameters of the estimators."""


def run(
    output: Path,
    *,
    random_state: int = 0,
    verbose: bool = True,
    budget: Budget = Budget(),  # noqa: B008 (a frozen value)
    make_sections: MakeSections | None = None,
) -> Demo:
    """Recover the latents of simulations, and write a page that shows them.

    Parameters
    ----------
    output : Path
        The HTML file to write; missing folders are created.
    random_state : int
        Seed of the simulations, the samples and the fits.
    verbose : bool
        Show the progress of the fits on a terminal.
    budget : Budget
        Number of samples and steps.
    make_sections : callable, optional
        Returns the sections: by default of all eight simulations; `main_sections` has a sphere and a nuisance.

    Raises
    ------
    OSError
        If the file cannot be written; checked before any training.

    Examples
    --------
    >>> import tempfile
    >>> small = Budget(n_pairs=2_000, n_labelled=2_000, n_test=500, max_iter=25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "demo.html"
    ...     print([row.metric for row in run(path, budget=small, make_sections=main_sections).table])
    ['R²', 'invariance']
    """
    check_writable(output)
    start = time.monotonic()
    options = {"batch_size": BATCH_SIZE, "max_iter": budget.max_iter, "verbose": verbose, "random_state": random_state}
    if make_sections is None:
        from pindown_papers.demo_sections import all_sections as make_sections  # which imports this module
    sections = make_sections(budget, options)
    seconds = time.monotonic() - start
    # Latents are to be recovered exactly if all assumptions hold.
    success = all(each.score.success != any(c.status == "broken" for c in each.conditions) for each in sections)
    demo = Demo(
        title="Hidden variables, recovered" if success else "Not everything came out as the theorems promise",
        kicker=f"pindown demo · seed {random_state}",
        lead="Each simulation below hides a few variables behind a mixing. pindown sees only the mixed data, and at "
        "most a hint: pairs of samples, labels, or a nuisance. The true latents only serve to score the result, on "
        "samples that were not used in the fit.",
        sections=sections,
        footer=f"{budget.n_pairs:,} pairs or {budget.n_labelled:,} labelled samples and {budget.max_iter:,} steps per "
        f"simulation, {budget.n_test:,} test samples; {seconds:.0f} seconds in total.",
    )
    write_whole(demo.html(), output)
    return demo


def main_sections(budget: Budget, options: dict[str, Any]) -> tuple[Section, ...]:
    """Fit the simulations of the README, pairs on a sphere and a nuisance, and return their sections.

    ``options`` are parameters of all estimators: `batch_size`, `max_iter`, `random_state` and `verbose`.
    """
    return sphere_section(fit_sphere(budget, options)), nuisance_section(budget, options)


def fit_sphere(budget: Budget, options: dict[str, Any]) -> Recovery:
    """Fit `Contrast` to pairs on a sphere."""
    sphere = Pairs.on_sphere(3, CONCENTRATION, n_layers=4, random_state=options["random_state"])
    return recover(sphere, Contrast(3, **options), budget.n_pairs, budget.n_test)


@dataclass(frozen=True, eq=False)
class Recovery:
    """A simulation, the fitted estimator, and test samples: observed, true, recovered, linearly fitted."""

    process: Any  # Pairs, Clusters, Nuisance or Structured, which have different attributes
    estimator: Any  # the estimator for it
    x: Array  # (n, m) the observations
    side: Array  # positives (n, m), or the class or level of the nuisance (n,); empty if there is neither
    z: Array  # (n, d) the true latents
    z_hat: Array  # (n, d)
    z_linear: Array  # (n, d) linear regression of the true latents on x
    warned: tuple[str, ...]  # warnings of the fit
    unchecked: tuple[Assumption, ...]  # assumptions that cannot be checked here

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions about the data that do not hold."""
        known, theorem = {*self.process.assumptions, *self.unchecked}, self.estimator.guarantee
        return tuple(a for a in theorem.assumes if a.about != "model" and a not in known)

    def r2(self, name: str) -> Row:
        """Return the R² of all latents, with that of a linear fit of the raw data."""
        chance = metrics.chance_linear_r2(*self.z_hat.shape)
        return Row(name, "R²", metrics.linear_r2(self.z_linear, self.z), metrics.linear_r2(self.z_hat, self.z), chance)

    def section(
        self, title: str, text: str, score: Row, figures: tuple[Drawing, ...], *facts: Fact, numbers: str = ""
    ) -> Section:
        """Return the section of the page; ``numbers`` replace those of the score in the claim."""
        theorem: Theorem = self.estimator.guarantee
        status: dict[Assumption, Literal["broken", "not checked"]] = dict.fromkeys(self.broken, "broken")
        status |= dict.fromkeys(self.unchecked, "not checked")
        conditions = tuple(
            Condition(a.name, a.statement, "of the fit" if a.about == "model" else status.get(a, "holds"))
            for a in theorem.assumes
        )
        numbers = numbers or (
            f"Held-out {score.metric} {shown(score.recovered, 3)} (linear fit of the raw data {shown(score.linear)}, "
            f"chance {shown(score.chance)})"
        )
        *first, last = (assumption.name for assumption in theorem.assumes)
        claim = (
            f"{theorem.subject} up to {theorem.indeterminacy.name}, as {theorem.source} promises given "
            f"{', '.join(first)}, and {last}." + "".join(f" Not checked here: {a.name}." for a in self.unchecked)
        )
        if self.broken:
            missing = " and ".join(assumption.name for assumption in self.broken)
            claim = f"no claim is supported, because an assumption of {theorem.source} is broken: {missing}."
        elif not score.success:
            claim = f"not recovered. {theorem.source} promises more, but only at the optimum: train longer."
        not_promised = () if self.broken else theorem.not_promised
        return Section(title, text, score, figures, facts, f"{numbers}: {claim}", conditions, not_promised, self.warned)


def recover(
    process: Any, estimator: Any, n_train: int, n_test: int, *, unchecked: tuple[Assumption, ...] = ()
) -> Recovery:
    """Fit an estimator to samples and their side variable, and encode test samples; its seed is that of the samples."""
    train, test = (process.sample(n, random_state=estimator.random_state + k) for n, k in ((n_train, 1), (n_test, 2)))
    side, test_side = (part.u if part.x_pos is None else part.x_pos for part in (train, test))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        estimator.fit(train.x, side)
    warned = tuple(str(warning.message) for warning in caught)
    x, z = test.x.numpy(), test.z.numpy()
    z_linear = LinearRegression().fit(train.x.flatten(1).numpy(), train.z.numpy()).predict(x.reshape(len(x), -1))
    known = np.empty(0) if test_side is None else test_side.numpy()
    return Recovery(process, estimator, x, known, z, estimator.transform(x), z_linear, warned, unchecked)


def sphere_section(fit: Recovery) -> Section:
    """Return the section of related pairs on a sphere."""
    score, alignment, net = fit.r2("The sphere"), metrics.procrustes(fit.z_hat, fit.z), sphere_net()
    information = np.log(CONCENTRATION / np.sinh(CONCENTRATION)) + CONCENTRATION / np.tanh(CONCENTRATION) - 1
    return fit.section(
        "A sphere, unscrambled" if score.success else "A sphere, not recovered",
        "Points on a sphere, each with a positive nearby, pass through a random network of four layers. From the "
        "distorted pairs alone, pindown learns a map back. A rotation cannot be identified from such data, and is not "
        "claimed.",
        score,
        (
            clouds(
                "Colour is the true direction of a sample; the same sample has the same colour everywhere. The net is "
                "laid over the true sphere and mapped along. Drag, or use the arrow keys: all three rotate together.",
                THREE_CLOUDS,
                aligned_clouds(fit, net, alignment.rotation),
                hues=fit.z[:N_DRAWN],
                surface_hues=net,
            ),
            contrast_loss(fit),
        ),
        Fact("R² with a rotation alone", shown(alignment.r2, 3), "no stretching, no shearing"),
        Fact(
            "Concentration of the positives",
            f"{1 / fit.estimator.temperature_:.1f}",
            f"the inverse of the learned temperature; in truth {CONCENTRATION:g}",
        ),
        Fact(
            "Information in a pair",
            f"{fit.estimator.score(fit.x, fit.side):.2f} nats",
            f"estimated on held-out pairs; in truth {information:.2f}",
        ),
        Fact(
            "Axes (MCC)",
            shown(metrics.mcc(fit.z_hat, fit.z)),
            f"a random rotation scores {shown(metrics.chance_mcc(3))} on average: no axes are identified",
        ),
    )


def nuisance_section(budget: Budget, options: dict[str, Any]) -> Section:
    """Fit `Forget` to observations that a nuisance moves; return the section."""
    process = Nuisance.on_sphere(5, 3, CONCENTRATION, n_layers=1, random_state=options["random_state"])
    forget = Forget(encoder=networks.linear, **options)
    fit = recover(process, forget, budget.n_labelled, budget.n_test)
    rng = np.random.default_rng(0)
    raw, latents, truth = (_leakage(values, fit) for values in (fit.x, fit.z_hat, fit.z))
    projections = [_leakage(fit.x @ rng.normal(size=(5, fit.z_hat.shape[1])), fit) for _ in range(3)]
    chance = float(np.mean([_invariance(each) for each in projections]))
    score = Row("A nuisance", "invariance", _invariance(raw), _invariance(latents), chance)
    kept = min(metrics.recovery_by_level(fit.z_hat, fit.z, fit.side).values())
    angle = np.degrees(subspace_angles(forget.components_.T, process.invariant_space.numpy())).max()
    numbers = (
        f"Held-out invariance {shown(score.recovered, 3)} (raw data {shown(score.linear)}, random projections "
        f"{shown(chance)}; best probe {shown(latents.worst, 3)}, chance {shown(latents.chance, 3)}), R² within a level "
        f"{shown(kept, 3)}"
    )
    return fit.section(
        "A nuisance, forgotten" if score.success else "A nuisance, not forgotten",
        "A nuisance of three levels, such as a batch, a camera or a body, moves five observed variables. Forget trains "
        "adversarially: a classifier predicts the nuisance from the latents, and the encoder removes what it uses. "
        "Invariance is 1 if no probe, trained afterwards, predicts the nuisance better than chance, and 0 if one is "
        "always right. Here it is compared with the raw data in place of a linear fit, and with random projections.",
        score,
        (
            _latents(fit, "Observed", "what pindown is given, three of the observed variables", fit.x, "x"),
            _latents(fit, "Recovered", "the levels are mixed, none has a place of its own", fit.z_hat, "latent"),
            loss_curves(
                "The loss of the classifier of the nuisance, against that of guessing. Only probes trained afterwards "
                "show that the nuisance is gone.",
                forget.history_.chance_loss,
                {"the classifier": forget.history_.classifier_loss},
            ),
        ),
        Fact(
            "Best probe (accuracy)",
            shown(latents.worst, 3),
            f"on the latents; {shown(raw.worst, 3)} on the raw data, {shown(truth.worst, 3)} on the true invariant "
            f"latents; chance {shown(latents.chance, 3)}",
        ),
        Fact("Kept (R² within a level)", shown(kept, 3), "of the invariant latents, the smallest over the levels"),
        Fact("Angle to the invariant space", f"{angle:.1f}°", "the largest; a random direction is far off"),
        numbers=numbers,
    )


def _leakage(latents: Array, fit: Recovery) -> metrics.Leakage:
    probes, effort = ("linear", "quadratic", "kernel"), metrics.Effort(n_seeds=1, n_permutations=20)
    return metrics.leakage(latents, fit.side, probes=probes, effort=effort, random_state=0)


def _invariance(found: metrics.Leakage) -> float:
    """Return 1 if the best probe is at chance, 0 if it is always right."""
    return 1 - max(0.0, (found.worst - found.chance) / (1 - found.chance))


def _latents(fit: Recovery, title: str, note: str, z: Array, name: str) -> Drawing:
    (points,) = filling(z, z[:N_DRAWN])
    return latent_cloud(
        f"{title}: {note}. Choose the axes and the colouring.",
        f"{title}: {len(points)} points in three colours, one per level of the nuisance.",
        [f"{name} {j + 1}" for j in range(z.shape[1])],
        points,
        [colouring("nuisance", fit.side[:N_DRAWN]), colouring("an invariant latent", fit.z[:N_DRAWN, 0])],
    )


def sphere_net() -> Array:
    """Return the sphere as a net with meshes of 7.5°; (25 parallels, 49 meridians, 3)."""
    latitude, longitude = np.meshgrid(np.linspace(-0.5, 0.5, 25) * np.pi, np.linspace(0, 2, 49) * np.pi, indexing="ij")
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)


def aligned_clouds(fit: Recovery, surface: Array, rotation: Array) -> tuple[Cloud, Cloud, Cloud]:
    """Return the true, the observed, and the recovered cloud, rotated as given to align it with the truth."""
    surface_x = fit.process.mixing(torch.from_numpy(surface)).numpy()
    z_hat = fit.z_hat[:N_DRAWN] @ rotation, encoded(fit, surface_x) @ rotation
    return (
        Cloud("True", "the hidden variables", fit.z[:N_DRAWN], surface),
        Cloud("Observed", "what pindown is given", *filling(fit.x, fit.x[:N_DRAWN], surface_x)),
        Cloud("Recovered", "rotated to match the true one", *z_hat),
    )


def encoded(fit: Recovery, x: Array) -> Array:
    """Return the latents of observations (..., d)."""
    return fit.estimator.transform(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def filling(cloud: Array, *parts: Array) -> list[Array]:
    """Move and scale parts of a cloud as needed to make the cloud fill the unit ball."""
    centre = (cloud.min(axis=0) + cloud.max(axis=0)) / 2
    return [(part - centre) / np.linalg.norm(cloud - centre, axis=1).max() for part in parts]


def contrast_loss(fit: Recovery, others: Mapping[str, Array] | None = None, name: str = "related pairs") -> Drawing:
    """Return the training loss of `Contrast`, after those of others."""
    n = fit.estimator.batch_size
    caption = f"The training loss, against that of guessing which of {n} is the positive."
    return loss_curves(caption, float(np.log(n)), {**(others or {}), name: fit.estimator.loss_curve_})


def loss_curves(caption: str, guessing: float, losses: Mapping[str, Array]) -> Drawing:
    """Return a figure of training losses, with their final values as its description."""
    ends = ", ".join(f"{values[-25:].mean():.2f} with {name}" for name, values in losses.items())
    n_steps = max(map(len, losses.values()))
    description = f"Loss over {n_steps:,} steps. It ends at {ends}; guessing has {guessing:.2f}."
    return curves(caption, description, losses, guessing)
