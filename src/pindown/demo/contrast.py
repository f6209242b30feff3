"""What `Contrast` recovers from pairs: a sphere, a box down to its axes, and nothing where nothing is to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pindown.demo.drawing import N_DRAWN, encoded, filling, mixed, net
from pindown.demo.recovery import BATCH_SIZE, Budget, Recovery, loss_curves, recover, recovered, samples
from pindown.metrics import chance_mcc, mcc, procrustes
from pindown.report.page import Cloud, Clouds, Curve, Curves, Fact, Panel, Row, Scatters, Section, shown

if TYPE_CHECKING:
    from pindown.estimators import Contrast
    from pindown.processes import Pairs

    Fit = Recovery[Pairs, Contrast]

CONCENTRATION = 10.0
"""κ of the partners on the sphere: a partner is about 25° away."""

SCALE = 0.1
"""Of the Laplace law of the partners in the unit box."""


def sections(random_state: int, budget: Budget, verbose: bool) -> tuple[Section, ...]:
    """Recover a sphere, a box, and the sphere with unrelated partners; return their parts of the page."""
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
    related_fit = _recovered(sphere, spherical, budget, random_state)
    box_fit = _recovered(box, rectangular, budget, random_state)
    unrelated_fit = _recovered(unrelated, clone(spherical), budget, random_state)
    return _sphere_section(related_fit), _box_section(box_fit), _unrelated_section(unrelated_fit, related_fit)


def _recovered(world: Pairs, contrast: Contrast, budget: Budget, random_state: int) -> Fit:
    train, test = samples(world, budget.n_pairs, budget.n_test, random_state)
    return recover(world, contrast, train, train.x_pos, test)


def _sphere_section(fit: Fit) -> Section:
    score = fit.r2("The sphere")
    alignment = procrustes(fit.z_hat, fit.z)
    grid = net()
    grid_x = mixed(fit, grid)
    points, codes = fit.z[:N_DRAWN], fit.z_hat[:N_DRAWN]
    note = "up to a rotation, fitted for this picture"
    shape = Clouds(
        caption="Colour is the true direction of a sample, and the same sample has the same colour everywhere; the net "
        "is laid over the true sphere and carried along. Drag, or use the arrow keys: all three turn together.",
        description="Three clouds of the same coloured points, with a net: the true sphere, the distorted "
        f"observations, and what was recovered (R² {shown(alignment.r2, 3)} with the true sphere).",
        clouds=(
            Cloud("True", "the hidden variables", points, grid),
            Cloud("Observed", "what pindown is given", *filling(fit.x, fit.x[:N_DRAWN], grid_x)),
            Cloud("Recovered", note, codes @ alignment.rotation, encoded(fit, grid_x) @ alignment.rotation),
        ),
        hues=points,
        surface_hues=grid,
    )
    return fit.section(
        "A sphere, unscrambled" if recovered(score) else "A sphere, not recovered",
        "Points on a sphere, each with a partner nearby, pass through a random network of four layers. From the "
        "distorted pairs alone, pindown learns a map back. A rotation cannot be known from such data, and is not "
        "claimed.",
        score,
        (shape, _loss_curves(fit)),
        Fact("R² with a rotation alone", shown(alignment.r2, 3), "no stretching, no shearing: the shape counts too"),
        Fact(
            "Concentration of the partners",
            f"{1 / fit.estimator.temperature_:.1f}",
            f"the inverse of the learned temperature; in truth {CONCENTRATION:g}",
        ),
        Fact(
            "Information between partners",
            f"{_found(fit):.2f} nats",
            f"found in held-out pairs without any truth; there are {_information(CONCENTRATION):.2f}",
        ),
        Fact(
            "Axes (MCC)",
            shown(mcc(fit.z_hat, fit.z)),
            f"a random rotation scores {shown(chance_mcc(3))} on average: the theorem does not pin the axes",
        ),
    )


def _box_section(fit: Fit) -> Section:
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
    return fit.section(
        "A box, down to its axes" if recovered(score) else "A box, not recovered",
        "Four variables in a box, with partners that differ by a Laplace law. Its density has ridges along the axes, "
        "so that a rotated solution would fit worse: here each hidden variable can be found by itself.",
        score,
        (agreement, _loss_curves(fit)),
        Fact(
            "R² with order and signs alone",
            shown(r2, 3),
            "besides a shift, and one scale for all: what the theorem leaves free, and no more",
        ),
        Fact("Information between partners", f"{_found(fit):.2f} nats", "found in held-out pairs without any truth"),
    )


def _unrelated_section(fit: Fit, related: Fit) -> Section:
    score = fit.r2("Unrelated partners")
    grid = net()
    # Nothing holds these codes apart, so they may lie in a corner of the sphere: no rotation is worth fitting.
    codes = filling(fit.z_hat, fit.z_hat[:N_DRAWN], encoded(fit, mixed(fit, grid)))
    shape = Clouds(
        caption="The codes after training, moved and enlarged to fill the picture, in the colours of above. Nothing in "
        "unrelated pairs says how to unfold the net.",
        description="A cloud of coloured points with a net: the codes "
        f"(R² {shown(score.recovered)}; linear fit of the raw data {shown(score.linear)}).",
        clouds=(Cloud("Codes", "same sphere, same mixing, same fit", *codes),),
        hues=fit.z[:N_DRAWN],
        surface_hues=grid,
    )
    return fit.section(
        "And when the assumption is broken",
        "The same sphere, the same mixing, the same network and the same number of steps. Only the partners are drawn "
        "at random, so that a pair says nothing about its latents. A method that still reported success here would "
        "deserve no trust above.",
        score,
        (shape, _loss_curves(fit, related)),
        Fact(
            "Information between partners",
            f"{shown(_found(fit))} nats",
            "there are none: the score needs no truth to say that nothing was learned",
        ),
    )


def _found(fit: Fit) -> float:
    """Return the information between partners that the codes show, in nats."""
    return fit.estimator.score(fit.x, fit.test.x_pos)


def _loss_curves(fit: Fit, related: Fit | None = None) -> Curves:
    curve = Curve("unrelated partners" if related else "related partners", fit.estimator.loss_curve_)
    curves = (curve,) if related is None else (Curve("related partners", related.estimator.loss_curve_), curve)
    caption = f"The loss while training, against that of guessing which of {BATCH_SIZE} is the partner."
    return loss_curves(caption, float(np.log(BATCH_SIZE)), *curves)


def _information(concentration: float) -> float:
    """Return the mutual information of partners on the 2-sphere, in nats: log(κ / sinh κ) + κ coth κ − 1."""
    return float(np.log(concentration / np.sinh(concentration)) + concentration / np.tanh(concentration) - 1)


def _matched(z_hat: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return codes in the order and with the signs of the latents, at one scale for all; (n, d) → (n, d)."""
    from scipy.optimize import linear_sum_assignment

    d = z.shape[1]
    correlation = np.corrcoef(z, z_hat, rowvar=False)[:d, d:]  # (d, d)
    order = linear_sum_assignment(np.abs(correlation), maximize=True)[1]
    codes = z_hat[:, order] * np.sign(correlation[range(d), order])
    codes, target = codes - codes.mean(axis=0), z - z.mean(axis=0)
    return z.mean(axis=0) + codes * (codes * target).sum() / (codes**2).sum()
