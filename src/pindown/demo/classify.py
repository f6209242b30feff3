"""What `Classify` recovers from labels: clusters on a sphere; and of clusters in a plane, only the plane."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pindown.demo.drawing import N_DRAWN, encoded, filling, mixed, net
from pindown.demo.recovery import BATCH_SIZE, Budget, Recovery, loss_curves, recover, recovered, samples
from pindown.metrics import chance_linear_r2, linear_r2, procrustes
from pindown.report.page import Cloud, Clouds, Curve, Curves, Fact, Row, Section, shown

if TYPE_CHECKING:
    from pindown.estimators import Classify
    from pindown.processes import Clusters

    Fit = Recovery[Clusters, Classify]

CONCENTRATION = 10.0
"""κ of the clusters: a sample is about 25° away from its class vector."""

N_CLASSES = 20


def sections(random_state: int, budget: Budget, verbose: bool) -> tuple[Section, ...]:
    """Recover clusters all over a sphere, and clusters around one of its great circles; return their parts."""
    from sklearn.base import clone

    from pindown.estimators import Classify
    from pindown.processes import Clusters, in_hyperplane

    world = Clusters.on_sphere(3, N_CLASSES, CONCENTRATION, n_layers=4, random_state=random_state)
    flat = replace(world, vectors=in_hyperplane(world.vectors, offset=0.0))  # the same but for the class vectors
    classify = Classify(3, batch_size=BATCH_SIZE, max_iter=budget.max_iter, verbose=verbose, random_state=random_state)
    fit = _recovered(world, classify, budget, random_state)
    flat_fit = _recovered(flat, clone(classify), budget, random_state)
    return _clusters_section(fit), _flat_section(flat_fit, fit)


def _recovered(world: Clusters, classify: Classify, budget: Budget, random_state: int) -> Fit:
    train, test = samples(world, budget.n_labelled, budget.n_test, random_state)
    return recover(world, classify, train, train.u, test)


def _clusters_section(fit: Fit) -> Section:
    score = fit.r2("Clusters")
    rotation = procrustes(fit.z_hat, fit.z).rotation
    vectors, learned = fit.world.vectors.numpy(), fit.estimator.class_vectors_
    caption = (
        "The arrows are the class vectors: the true ones, the means of the classes, and the learned ones. A sample has "
        "the colour of its class, the net that of its true direction. Drag, or use the arrow keys."
    )
    return fit.section(
        "Clusters, from their labels" if recovered(score) else "Clusters, not recovered",
        f"{N_CLASSES} clusters on a sphere pass through a random network of four layers. Classify learns to tell their "
        "labels apart, and nothing else. Since the class vectors lie in no plane, that is enough: the whole sphere "
        "can be had back, also between the clusters and within them, and the class vectors with it.",
        score,
        (_shapes(fit, caption, net(), np.eye(3), rotation), _loss_curves(fit)),
        Fact(
            "Class vectors (R²)",
            shown(linear_r2(learned, vectors), 3),
            "a linear map fitted on half of the classes, scored on the other; chance "
            f"{shown(chance_linear_r2(*learned.shape))}",
        ),
        Fact(
            "Angle to the true ones",
            f"{_angles(learned @ rotation, vectors).mean():.1f}°",
            "after the rotation of the codes, without one of their own; random directions are 90° apart",
        ),
        Fact(
            "Concentration of the clusters",
            f"{fit.estimator.scale_:.1f}",
            f"the learned factor β of the softmax; in truth κ is {CONCENTRATION:g}",
        ),
        _accuracy(fit, "of held-out labels"),
    )


def _flat_section(fit: Fit, spread_out: Fit) -> Section:
    from pindown.estimators.classify import FLAT

    along, across = _plane(fit)
    score = Row(
        "Clusters in a plane",
        "R² across the plane",
        linear_r2(fit.z_linear, fit.z @ across),
        linear_r2(fit.z_hat, fit.z @ across),
        chance_linear_r2(*fit.z_hat.shape),
    )
    level = np.hstack([along, across])  # in these coordinates the plane is level, and the poles of the net are bare
    rotation = procrustes(fit.z_hat, fit.z).rotation
    caption = (
        "Now the arrows lie in one plane, drawn level. Round about it the net is where it was; nothing in the labels "
        "says what is above and what is below."
    )
    vectors = fit.estimator.class_vectors_
    sizes = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    return fit.section(
        "And when the class vectors lie in a plane",
        "The same mixing, the same network, as many classes, as many steps. Only the class vectors lie in one plane "
        "through the centre, so that no two classes differ in what is across it. Their labels say nothing about that "
        "direction, and a perfect classifier may lose it.",
        score,
        (_shapes(fit, caption, net()[4:-4] @ level.T, level, rotation), _loss_curves(fit, spread_out)),
        Fact(
            "Along the plane (R²)",
            shown(linear_r2(fit.z_hat, fit.z @ along), 3),
            "what the classes differ in comes back; for what is across, nothing is claimed",
        ),
        Fact(
            "Spread of the class vectors",
            shown(sizes[-1] / sizes[0]),
            f"of the learned ones: the least, as a share of the largest; the estimator warns below {shown(FLAT)}",
        ),
        _accuracy(fit, "a classifier without fault need not have found the latents"),
    )


def _shapes(fit: Fit, caption: str, surface: np.ndarray, turn: np.ndarray, rotation: np.ndarray) -> Clouds:
    """Return the true, the observed and the recovered cloud with their class vectors.

    The codes are brought to the truth by the rotation; then both are turned for the eye.
    """
    vectors, labels = fit.world.vectors.numpy(), _labels(fit)
    surface_x = mixed(fit, surface)
    member = labels[:, None] == np.arange(len(vectors))  # (n, n_classes)
    means = member.T @ fit.x / member.sum(axis=0).clip(1)[:, None]  # in a hasty run a class may have no sample
    true = (fit.z[:N_DRAWN], surface, _from_origin(vectors))
    observed = (fit.x[:N_DRAWN], surface_x, _from_origin(means))
    codes = (fit.z_hat[:N_DRAWN], encoded(fit, surface_x), _from_origin(fit.estimator.class_vectors_))
    return Clouds(
        caption,
        f"Three clouds of points in {len(vectors)} colours, one per class, with a net and an arrow per class: the "
        "truth, the distorted observations, and what was recovered.",
        clouds=(
            Cloud("True", "the hidden variables", *(part @ turn for part in true)),
            Cloud("Observed", "what pindown is given", *filling(fit.x, *observed)),
            Cloud(
                "Recovered", "up to a rotation, fitted for this picture", *(part @ rotation @ turn for part in codes)
            ),
        ),
        hues=(vectors @ turn)[labels[:N_DRAWN]],
        surface_hues=surface @ turn,
        arrow_hues=vectors @ turn,
    )


def _loss_curves(fit: Fit, spread_out: Fit | None = None) -> Curves:
    curve = Curve("flat classes" if spread_out else "spread classes", fit.estimator.loss_curve_)
    curves = (curve,) if spread_out is None else (Curve("spread classes", spread_out.estimator.loss_curve_), curve)
    caption = f"The loss while training, against that of guessing which of {N_CLASSES} is the class."
    return loss_curves(caption, float(np.log(N_CLASSES)), *curves)


def _accuracy(fit: Fit, note: str) -> Fact:
    """Return the share of held-out labels that are guessed right: by the fit, and by who knows the world."""
    best = (fit.world.log_posterior(fit.test.z).argmax(1).numpy() == _labels(fit)).mean()
    ours = fit.estimator.score(fit.x, _labels(fit))
    return Fact(
        "Accuracy", shown(ours, 3), f"{note}; the Bayes classifier, which knows the world, has {shown(best, 3)}"
    )


def _labels(fit: Fit) -> np.ndarray:
    """Return the true classes of the test samples; (n,)."""
    assert fit.test.u is not None
    return fit.test.u.numpy()


def _plane(fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """Return orthonormal bases of V = span{v_c − v_a}, what the classes differ in, and of the rest; in columns."""
    from scipy.linalg import null_space

    from pindown.processes.clusters import spread

    along = spread(fit.world.vectors).numpy()  # (d, k)
    return along, null_space(along.T)  # (d, d − k)


def _from_origin(tips: np.ndarray) -> np.ndarray:
    """Return arrows from the origin; (k, d) → (k, 2, d)."""
    return np.stack([np.zeros_like(tips), tips], axis=1)


def _angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the angles between rows of unit length, in degrees; (k, d), (k, d) → (k,)."""
    return np.degrees(np.arccos(np.clip((a * b).sum(axis=1), -1, 1)))
