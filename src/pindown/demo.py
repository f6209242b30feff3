"""The demonstration: worlds whose truth is known are scrambled, recovered, and shown on one page.

Three worlds, three lessons: on the sphere latents come back up to a rotation; in a box with Laplace partners
even the axes come back; and when the partners are unrelated, nothing does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pindown.audit.page import (
    Cloud,
    Clouds,
    Condition,
    Curve,
    Curves,
    Fact,
    Figure,
    Page,
    Panel,
    Row,
    Scatters,
    Section,
    check_writable,
    save,
    shown,
)
from pindown.metrics import chance_linear_r2, chance_mcc, linear_r2, mcc, procrustes
from pindown.theory import Assumption, Theorem

if TYPE_CHECKING:  # torch is imported when it is needed: `pindown --help` should not wait for it
    from pindown.estimators import Contrast
    from pindown.processes import Pairs

CONCENTRATION = 10.0
"""κ of the partners on the sphere: a partner is about 25° away."""

SCALE = 0.1
"""Of the Laplace law of the partners in the unit box."""

RECOVERED = 0.9
"""The share of the way from the linear fit to perfection from which a world counts as recovered."""

BATCH_SIZE = 512

N_DRAWN = 1_500
"""Points in a picture: enough to see a surface, few enough to turn it smoothly."""


@dataclass(frozen=True)
class Budget:
    """How much data and how many steps each world gets; the defaults take about half a minute on two cores."""

    n_pairs: int = 20_000
    n_test: int = 4_000
    max_iter: int = 1_000


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demonstration found, and where the page is."""

    page: Page
    output: Path

    @property
    def table(self) -> tuple[Row, ...]:
        """One row per world: name, metric, linear, recovered, chance."""
        return tuple(section.score for section in self.page.sections)

    @property
    def claims(self) -> tuple[str, ...]:
        """One sentence per world: what may be claimed, under which theorem."""
        return tuple(section.claim for section in self.page.sections)


def run(output: Path, *, random_state: int = 0, verbose: bool = True, budget: Budget = Budget()) -> Demo:  # noqa: B008
    """Recover three worlds whose truth is known, and write a page that shows it.

    Parameters
    ----------
    output : Path
        The HTML file to write; its folder is made if need be.
    random_state : int
        Seed of the worlds, the samples and the fits.
    verbose : bool
        Show the progress of the fits, if there is a terminal.
    budget : Budget
        Data and steps.

    Raises
    ------
    OSError
        If the file cannot be written; found out before any training.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     demo = run(Path(folder) / "demo.html", budget=Budget(n_pairs=2_000, n_test=500, max_iter=25))
    ...     print(demo.output.name, [row.metric for row in demo.table])
    demo.html ['R²', 'MCC', 'R²']
    """
    output = Path(output)
    check_writable(output)
    start = time.monotonic()
    sphere, box, unrelated = _fit_worlds(random_state, budget, verbose)
    seconds = time.monotonic() - start

    sections = (_sphere_section(sphere), _box_section(box), _unrelated_section(unrelated, sphere))
    as_promised = _recovered(sections[0].score) and _recovered(sections[1].score) and not _recovered(sections[2].score)
    page = Page(
        title="Hidden variables, recovered" if as_promised else "Not everything came out as the theorems promise",
        kicker=f"pindown demo · seed {random_state}",
        lead="Each world below hides a few variables behind a nonlinear mixing. pindown sees only the mixed data, and "
        "which samples belong together. The truth was kept aside to check the result: every score is from samples "
        "that were not used in the fit.",
        sections=sections,
        footer=f"{budget.n_pairs:,} pairs and {budget.max_iter:,} steps per world, {budget.n_test:,} samples to "
        f"score; {seconds:.0f} seconds for the three fits. This page is one file and asks nothing of the network.",
    )
    save(page, output)
    return Demo(page, output)


@dataclass(frozen=True, eq=False)
class _Fit:
    """A world, the fitted estimator, and test samples: observed, true, recovered, linearly fitted."""

    world: Pairs
    contrast: Contrast
    x: np.ndarray  # (n, d)
    z: np.ndarray  # (n, d)
    z_hat: np.ndarray  # (n, d)
    z_linear: np.ndarray  # (n, d)
    found: float  # information between partners that the codes show, in nats

    @property
    def theorem(self) -> Theorem:
        assert self.contrast.guarantee is not None
        return self.contrast.guarantee

    @property
    def broken(self) -> tuple[Assumption, ...]:
        """The assumptions about the world that do not hold in it."""
        return tuple(a for a in self.theorem.assumes if a.about != "model" and a not in self.world.assumptions)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        def status(assumption: Assumption) -> Any:
            if assumption.about == "model":
                return "of the fit"
            return "broken" if assumption in self.broken else "holds"

        return tuple(Condition(a.name, a.statement, status(a)) for a in self.theorem.assumes)


def _fit_worlds(random_state: int, budget: Budget, verbose: bool) -> tuple[_Fit, _Fit, _Fit]:
    from sklearn.base import clone

    from pindown.distributions import VonMisesFisher, laplace
    from pindown.estimators import Contrast
    from pindown.processes import Pairs
    from pindown.spaces import Reals

    sphere = Pairs.on_sphere(3, CONCENTRATION, n_layers=4, random_state=random_state)
    unrelated = Pairs(sphere.marginal, VonMisesFisher(0.0), sphere.mixing)  # the same but for the partners
    box = Pairs.on_box(4, laplace(SCALE), n_layers=3, random_state=random_state)
    spherical = Contrast(3, batch_size=BATCH_SIZE, max_iter=budget.max_iter, verbose=verbose, random_state=random_state)
    rectangular = clone(spherical).set_params(n_components=4, space=Reals(), p=1)
    return (
        _fit(sphere, spherical, budget, random_state),
        _fit(box, rectangular, budget, random_state),
        _fit(unrelated, clone(spherical), budget, random_state),
    )


def _fit(world: Pairs, contrast: Contrast, budget: Budget, random_state: int) -> _Fit:
    from sklearn.linear_model import LinearRegression

    train = world.sample(budget.n_pairs, random_state=random_state + 1)
    test = world.sample(budget.n_test, random_state=random_state + 2)
    contrast.fit(train.x, train.x_pos)
    x, z = test.x.numpy(), test.z.numpy()
    return _Fit(
        world,
        contrast,
        x=x,
        z=z,
        z_hat=contrast.transform(x),
        z_linear=LinearRegression().fit(train.x.numpy(), train.z.numpy()).predict(x),
        found=contrast.score(x, test.x_pos),
    )


def _recovered(row: Row) -> bool:
    return row.gap_closed >= RECOVERED


def _claim(row: Row, fit: _Fit) -> str:
    theorem = fit.theorem
    numbers = (
        f"Held-out {row.metric} {shown(row.recovered, 3)} (linear fit of the raw data {shown(row.linear)}, "
        f"chance {shown(row.chance)})"
    )
    if fit.broken:
        missing = " and ".join(assumption.name for assumption in fit.broken)
        return f"{numbers}: nothing may be claimed, for {theorem.source} assumes a {missing}, which is broken here."
    if not _recovered(row):
        return f"{numbers}: not recovered; {theorem.source} promises more, but only at the optimum: train longer."
    *first, last = (assumption.name for assumption in theorem.assumes)
    return (
        f"{numbers}: {theorem.subject} up to {theorem.indeterminacy.name}, as {theorem.source} promises given "
        f"{', '.join(first)}, and {last}."
    )


def _section(title: str, text: str, score: Row, fit: _Fit, figures: tuple[Figure, ...], *facts: Fact) -> Section:
    not_promised = () if fit.broken else fit.theorem.not_promised
    return Section(title, text, score, figures, facts, _claim(score, fit), fit.conditions, not_promised)


def _sphere_section(fit: _Fit) -> Section:
    score = _r2("The sphere", fit)
    alignment = procrustes(fit.z_hat, fit.z)
    net = _net()
    net_x = _mixed(fit, net)
    points, codes = fit.z[:N_DRAWN], fit.z_hat[:N_DRAWN]
    note = "up to a rotation, fitted for this picture"
    shape = Clouds(
        caption="Colour is the true direction of a sample, and the same sample has the same colour everywhere; the net "
        "is laid over the true sphere and carried along. Drag, or use the arrow keys: all three turn together.",
        description="Three clouds of the same coloured points, with a net: the true sphere, the distorted "
        f"observations, and what was recovered (R² {shown(alignment.r2, 3)} with the true sphere).",
        clouds=(
            Cloud("True", "the hidden variables", points, net),
            Cloud("Observed", "what pindown is given", *_filling(fit.x, fit.x[:N_DRAWN], net_x)),
            Cloud("Recovered", note, codes @ alignment.rotation, _encoded(fit, net_x) @ alignment.rotation),
        ),
        hues=points,
        surface_hues=net,
    )
    return _section(
        "A sphere, unscrambled" if _recovered(score) else "A sphere, not recovered",
        "Points on a sphere, each with a partner nearby, pass through a random network of four layers. From the "
        "distorted pairs alone, pindown learns a map back. A rotation cannot be known from such data, and is not "
        "claimed.",
        score,
        fit,
        (shape, _loss_curves(fit)),
        Fact("R² with a rotation alone", shown(alignment.r2, 3), "no stretching, no shearing: the shape counts too"),
        Fact(
            "Concentration of the partners",
            f"{1 / fit.contrast.temperature_:.1f}",
            f"the inverse of the learned temperature; in truth {CONCENTRATION:g}",
        ),
        Fact(
            "Information between partners",
            f"{fit.found:.2f} nats",
            f"found in held-out pairs without any truth; there are {_information(CONCENTRATION):.2f}",
        ),
        Fact(
            "Axes (MCC)",
            shown(mcc(fit.z_hat, fit.z)),
            f"a random rotation scores {shown(chance_mcc(3))} on average: the theorem does not pin the axes",
        ),
    )


def _box_section(fit: _Fit) -> Section:
    d = fit.world.d
    score = Row("The box", "MCC", mcc(fit.z_linear, fit.z), mcc(fit.z_hat, fit.z), chance_mcc(d))
    aligned = _matched(fit.z_hat, fit.z)
    r2 = 1 - ((fit.z - aligned) ** 2).sum() / ((fit.z - fit.z.mean(axis=0)) ** 2).sum()
    few = slice(N_DRAWN // 3)
    panels = tuple(
        Panel(
            f"Latent {j + 1}",
            f"correlation {shown(np.corrcoef(fit.z[:, j], aligned[:, j])[0, 1], 3)}",
            *(values[few, j] for values in (fit.z, aligned, fit.z_linear)),
        )
        for j in range(d)
    )
    agreement = Scatters(
        caption="Recovered against true, one panel per hidden variable. Behind it in grey: the best that a linear fit "
        "of the raw data can do, even when it is shown the truth.",
        description=f"{d} scatter plots of recovered against true values, with those of a linear fit for comparison.",
        panels=panels,
    )
    return _section(
        "A box, down to its axes" if _recovered(score) else "A box, not recovered",
        "Four variables in a box, with partners that differ by a Laplace law. Its density has ridges along the axes, "
        "so that a rotated solution would fit worse: here each hidden variable can be found by itself.",
        score,
        fit,
        (agreement, _loss_curves(fit)),
        Fact(
            "R² with order and signs alone",
            shown(r2, 3),
            "besides a shift, and one scale for all: what the theorem leaves free, and no more",
        ),
        Fact("Information between partners", f"{fit.found:.2f} nats", "found in held-out pairs without any truth"),
    )


def _unrelated_section(fit: _Fit, related: _Fit) -> Section:
    score = _r2("Unrelated partners", fit)
    net = _net()
    # Nothing holds these codes apart, so they may lie in a corner of the sphere: no rotation is worth fitting.
    codes = _filling(fit.z_hat, fit.z_hat[:N_DRAWN], _encoded(fit, _mixed(fit, net)))
    shape = Clouds(
        caption="The codes after training, moved and enlarged to fill the picture, in the colours of above. Nothing in "
        "unrelated pairs says how to unfold the net.",
        description="A cloud of coloured points with a net: the codes "
        f"(R² {shown(score.recovered)}; linear fit of the raw data {shown(score.linear)}).",
        clouds=(Cloud("Codes", "same sphere, same mixing, same fit", *codes),),
        hues=fit.z[:N_DRAWN],
        surface_hues=net,
    )
    return _section(
        "And when the assumption is broken",
        "The same sphere, the same mixing, the same network and the same number of steps. Only the partners are drawn "
        "at random, so that a pair says nothing about its latents. A method that still reported success here would "
        "deserve no trust above.",
        score,
        fit,
        (shape, _loss_curves(fit, related)),
        Fact(
            "Information between partners",
            f"{shown(fit.found)} nats",
            "there are none: the score needs no truth to say that nothing was learned",
        ),
    )


def _r2(name: str, fit: _Fit) -> Row:
    chance = chance_linear_r2(*fit.z_hat.shape)
    return Row(name, "R²", linear_r2(fit.z_linear, fit.z), linear_r2(fit.z_hat, fit.z), chance)


def _loss_curves(fit: _Fit, related: _Fit | None = None) -> Curves:
    curve = Curve("unrelated partners" if related else "related partners", fit.contrast.loss_curve_)
    curves = (curve,) if related is None else (Curve("related partners", related.contrast.loss_curve_), curve)
    ends = ", ".join(f"{c.values[-25:].mean():.2f} with {c.name}" for c in curves)
    return Curves(
        caption=f"The loss while training, against that of guessing which of {BATCH_SIZE} is the partner.",
        description=f"Loss over {len(curve.values):,} steps; it ends at {ends}; guessing has {np.log(BATCH_SIZE):.2f}.",
        curves=curves,
        guessing=float(np.log(BATCH_SIZE)),
    )


def _information(concentration: float) -> float:
    """Return the mutual information of partners on the 2-sphere, in nats: log(κ / sinh κ) + κ coth κ − 1."""
    return float(np.log(concentration / np.sinh(concentration)) + concentration / np.tanh(concentration) - 1)


def _net() -> np.ndarray:
    """Return the sphere as a net with meshes of 7.5°; (25 parallels, 49 meridians, 3)."""
    latitude, longitude = np.meshgrid(np.linspace(-0.5, 0.5, 25) * np.pi, np.linspace(0, 2, 49) * np.pi, indexing="ij")
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)


def _mixed(fit: _Fit, z: np.ndarray) -> np.ndarray:
    """Return g(z); (…, d) → (…, d)."""
    import torch

    return fit.world.mixing(torch.from_numpy(z)).numpy()


def _encoded(fit: _Fit, x: np.ndarray) -> np.ndarray:
    """Return f(x); (…, d) → (…, d)."""
    return fit.contrast.transform(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def _filling(cloud: np.ndarray, *parts: np.ndarray) -> list[np.ndarray]:
    """Return parts of a cloud, moved and scaled by what makes the cloud fill the unit ball."""
    centre = (cloud.min(axis=0) + cloud.max(axis=0)) / 2
    return [(part - centre) / np.linalg.norm(cloud - centre, axis=1).max() for part in parts]


def _matched(z_hat: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return codes in the order and with the signs of the latents, at one scale for all; (n, d) → (n, d)."""
    from scipy.optimize import linear_sum_assignment

    d = z.shape[1]
    correlation = np.corrcoef(z, z_hat, rowvar=False)[:d, d:]  # (d, d)
    order = linear_sum_assignment(np.abs(correlation), maximize=True)[1]
    codes = z_hat[:, order] * np.sign(correlation[range(d), order])
    codes, target = codes - codes.mean(axis=0), z - z.mean(axis=0)
    return z.mean(axis=0) + codes * (codes * target).sum() / (codes**2).sum()
