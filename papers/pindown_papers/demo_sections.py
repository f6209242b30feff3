"""The eight simulations of the demonstration: the sphere and the nuisance of `pindown_papers.demo`, and six more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import null_space
from scipy.optimize import linear_sum_assignment
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from torch import nn

from pindown import theory
from pindown.auditing.page import Drawing, matrix, picture, rounded, shown
from pindown.methods import Classify, Contrast, Dictionary
from pindown.methods.classify.estimator import FLAT
from pindown.methods.dictionary.disentangle import Disentangled, before_and_after, disentangle
from pindown.metrics import (
    chance_linear_r2,
    chance_mcc,
    linear_r2,
    match_latents,
    mcc,
    procrustes,
)
from pindown.networks.spaces import Box, Reals
from pindown.simulate import Clusters, Pairs
from pindown.simulate.distributions import Truncated, Uniform, VonMisesFisher, laplace
from pindown.simulate.images import nearest_traversals, swaps
from pindown.simulate.process import span_of_differences
from pindown.training import Trainer
from pindown_papers.demo import (
    CONCENTRATION,
    N_DRAWN,
    THREE_CLOUDS,
    Array,
    Budget,
    Cloud,
    Fact,
    Recovery,
    Row,
    Section,
    aligned_clouds,
    clouds,
    contrast_loss,
    encoded,
    filling,
    fit_sphere,
    loss_curves,
    nuisance_section,
    recover,
    sphere_net,
    sphere_section,
)
from pindown_papers.latent_frames import LatentFrames
from pindown_papers.sets import chance_support_f1, support_f1
from pindown_papers.simulations import Room, in_hyperplane, log_posterior, well_separated

SCALE = 0.1
"""Of the Laplace distribution of positives in the unit box."""

N_CLASSES = 20
SUPPORT = ((1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1))
FACTORS = ("floor_hue", "wall_hue", "object_hue", "azimuth")
NAMES = ("hue of the floor", "hue of the wall", "hue of the cube", "azimuth of the camera")


def all_sections(budget: Budget, options: dict[str, Any]) -> tuple[Section, ...]:
    """Fit all eight simulations; return their sections. ``options`` are parameters of all estimators."""
    seed = options["random_state"]
    paired, labelled = (budget.n_pairs, budget.n_test), (budget.n_labelled, budget.n_test)
    sphere_fit = fit_sphere(budget, options)
    box = Pairs.on_box(4, laplace(SCALE), n_layers=3, random_state=seed)
    box_fit = recover(box, Contrast(4, space=Reals(), p=1, **options), *paired)
    unrelated = replace(sphere_fit.process, conditional=VonMisesFisher(0.0))
    unrelated_fit = recover(unrelated, clone(sphere_fit.estimator), *paired)

    clusters = Clusters.on_sphere(3, N_CLASSES, CONCENTRATION, n_layers=4, random_state=seed)
    flat = replace(clusters, vectors=in_hyperplane(clusters.vectors, offset=0.0))
    clusters_fit, flat_fit = (recover(each, Classify(3, **options), *labelled) for each in (clusters, flat))

    structured = well_separated(SUPPORT, random_state=seed)
    half = options | {"max_iter": (budget.max_iter + 1) // 2}  # two restarts
    # The Jacobian is nowhere singular. Whether distant latents have different observations is not checked.
    graph_fit = recover(
        structured, Dictionary(3, n_restarts=2, **half), *paired, unchecked=(theory.DIFFEOMORPHIC_MIXING,)
    )
    return (
        sphere_section(sphere_fit),
        _box(box_fit),
        _unrelated(unrelated_fit, sphere_fit),
        _clusters(clusters_fit),
        _flat_clusters(flat_fit, clusters_fit),
        nuisance_section(budget, options),
        _graph(graph_fit),
        _rooms(budget, options),
    )


def _box(fit: Recovery) -> Section:
    d = fit.process.d
    score = Row("The box", "MCC", mcc(fit.z_linear, fit.z), mcc(fit.z_hat, fit.z), chance_mcc(d))
    aligned = matched(fit.z_hat, fit.z)
    r2 = 1 - ((fit.z - aligned) ** 2).sum() / ((fit.z - fit.z.mean(axis=0)) ** 2).sum()
    panels = tuple(
        Panel(
            f"Latent {j + 1}",
            f"correlation {shown(np.corrcoef(fit.z[:, j], aligned[:, j])[0, 1], 3)}",
            *(values[: N_DRAWN // 3, j] for values in (fit.z, aligned, fit.z_linear)),
        )
        for j in range(d)
    )
    return fit.section(
        "A box, down to its axes" if score.success else "A box, not recovered",
        "Four variables in a box, with positives that differ by a Laplace distribution. Its density has ridges along "
        "the axes, so a rotated solution fits worse: here each latent is identified by itself.",
        score,
        (
            scatters(
                "Recovered against true, one panel per latent. Grey: the best linear fit of the raw data to the truth.",
                f"{d} scatter plots of recovered against true values, with those of a linear fit for comparison.",
                panels,
            ),
            contrast_loss(fit),
        ),
        Fact("R² with order and signs alone", shown(r2, 3), "plus a shift and one common scale"),
        Fact(
            "Information in a pair",
            f"{fit.estimator.score(fit.x, fit.side):.2f} nats",
            "estimated on held-out pairs, without the truth",
        ),
    )


def _unrelated(fit: Recovery, related: Recovery) -> Section:
    """Return the section of pairs on a sphere that are not related."""
    score, net = fit.r2("Unrelated pairs"), sphere_net()
    # These latents may lie in a corner of the sphere, so no rotation is fitted.
    net_x = fit.process.mixing(torch.from_numpy(net)).numpy()
    points, surface = filling(fit.z_hat, fit.z_hat[:N_DRAWN], encoded(fit, net_x))
    cloud = clouds(
        "The latents after training, moved and enlarged to fill the figure, in the colours of above. Unrelated pairs "
        "do not say how to unfold the net.",
        f"A cloud of coloured points with a net (R² {shown(score.recovered)}; linear fit {shown(score.linear)}).",
        (Cloud("Recovered", "same sphere, same mixing, same fit", points, surface),),
        hues=fit.z[:N_DRAWN],
        surface_hues=net,
    )
    return fit.section(
        "And when the assumption is broken",
        "The same sphere, the same mixing, the same network and the same number of steps. Only the pairs are drawn at "
        "random, so that they are not informative. A method that reported success here would deserve no trust above.",
        score,
        (cloud, contrast_loss(fit, {"related pairs": related.estimator.loss_curve_}, "unrelated pairs")),
        Fact(
            "Information in a pair",
            f"{shown(fit.estimator.score(fit.x, fit.side))} nats",
            "in truth none: the score shows without the truth that nothing was learned",
        ),
    )


def _clusters(fit: Recovery) -> Section:
    score, rotation = fit.r2("Clusters"), procrustes(fit.z_hat, fit.z).rotation
    vectors, learned = fit.process.vectors.numpy(), fit.estimator.class_vectors_
    angles = np.degrees(np.arccos(np.clip((learned @ rotation * vectors).sum(axis=1), -1, 1)))
    return fit.section(
        "Clusters, from their labels" if score.success else "Clusters, not recovered",
        f"{N_CLASSES} clusters on a sphere pass through a random network of four layers. Classify learns to predict "
        "their labels, and nothing else. Since the class vectors lie in no plane, this identifies the whole sphere, "
        "also between and within the clusters, and the class vectors with it.",
        score,
        (
            _clouds_with_arrows(
                fit,
                "The arrows are the class vectors: the true ones, the means of the classes, and the learned ones. A "
                "sample has the colour of its class, the net that of its true direction. Drag, or use the arrow keys.",
                sphere_net(),
                rotation,
            ),
            _classify_loss(fit),
        ),
        Fact(
            "Class vectors (R²)",
            shown(linear_r2(learned, vectors), 3),
            f"linear map fitted on half of the classes; chance {shown(chance_linear_r2(*learned.shape))}",
        ),
        Fact("Angle to the true ones", f"{angles.mean():.1f}°", "after the rotation of the latents; chance 90°"),
        Fact(
            "Concentration of the clusters",
            f"{fit.estimator.scale_:.1f}",
            f"the learned scale of the softmax; in truth κ is {CONCENTRATION:g}",
        ),
        _accuracy(fit),
    )


def _flat_clusters(fit: Recovery, spread_out: Recovery) -> Section:
    along = span_of_differences(fit.process.vectors).numpy()  # (d, k) what the classes differ in
    across = null_space(along.T)
    score = Row(
        "Clusters in a plane",
        "R² across the plane",
        linear_r2(fit.z_linear, fit.z @ across),
        linear_r2(fit.z_hat, fit.z @ across),
        chance_linear_r2(*fit.z_hat.shape),
    )
    view = np.hstack([along, across])  # the plane is horizontal, and the poles of the net are removed
    sizes = np.linalg.svd(fit.estimator.class_vectors_ - fit.estimator.class_vectors_.mean(axis=0), compute_uv=False)
    return fit.section(
        "And when the class vectors lie in a plane",
        "The same mixing, the same network, as many classes and steps. Only the class vectors lie in one plane through "
        "the centre. No two classes differ in the direction across it, so a perfect classifier may lose it.",
        score,
        (
            _clouds_with_arrows(
                fit,
                "Now the arrows lie in one plane, drawn horizontally. Around it the net is where it was. The labels do "
                "not say what is above and what is below.",
                sphere_net()[4:-4] @ view.T,
                procrustes(fit.z_hat, fit.z).rotation,
                view,
            ),
            _classify_loss(fit, spread_out),
        ),
        Fact("Along the plane (R²)", shown(linear_r2(fit.z_hat, fit.z @ along), 3), "where the classes differ"),
        Fact(
            "Spread of the class vectors",
            shown(sizes[-1] / sizes[0]),
            f"smallest over largest singular value of the learned ones; the estimator warns below {shown(FLAT)}",
        ),
        _accuracy(fit),
    )


def _graph(fit: Recovery) -> Section:
    matching = match_latents(fit.z_hat, fit.z)
    components = PCA(3).fit_transform((fit.x - fit.x.mean(axis=0)) / fit.x.std(axis=0))
    score = Row("A graph", "MCC", mcc(components, fit.z), mcc(fit.z_hat, fit.z), chance_mcc(3))
    found, truth = fit.estimator.support_, fit.process.support
    wrong = int((found[:, matching] != truth).sum())
    blocks = ", ".join("{" + ", ".join(str(j + 1) for j in block.latents) + "}" for block in fit.estimator.blocks_)
    panels = []
    for j, own in enumerate(matching):
        true, linear, latent = (a[:N_DRAWN] for a in (fit.z[:, j], fit.z_linear[:, j], fit.z_hat[:, own]))
        slope, shift = np.polyfit(latent, true, 1)
        panels.append(Panel(f"Latent {j + 1}", f"recovered latent {own + 1}", true, slope * latent + shift, linear))
    return fit.section(
        "A graph, from observations alone" if score.success else "A graph, not recovered",
        "Three latents, six observed variables, and no pairs, labels or time. Each latent affects other observed "
        "variables. Among all models that explain the data, Dictionary looks for the one with the fewest edges. "
        "Principal components, which need no truth either, stand in place of a linear fit.",
        score,
        (
            scatters(
                "Recovered against true latents; grey is a linear fit of the raw data to the truth. Order and "
                "elementwise transformations of the latents cannot be identified.",
                "Three panels, recovered against true.",
                tuple(panels),
            ),
        ),
        Fact(
            "Edges (F1)",
            shown(support_f1(found, truth, matching=matching), 3),
            f"{wrong} of {truth.size} possible edges are wrong; chance {shown(chance_support_f1(truth))}",
        ),
        Fact("Identified blocks", blocks, "latents that affect the same observed variables are identified jointly"),
        Fact(
            "Agreement between restarts",
            shown(float(fit.estimator.agreement_.min())),
            "correlation of their latents: low values mean that the data do not decide",
        ),
    )


def _rooms(budget: Budget, options: dict[str, Any]) -> Section:
    seed = options["random_state"]
    process = Pairs(Uniform(len(FACTORS), Box()), Truncated(laplace(SCALE)), _room(16))
    n_steps = max(1, int(0.35 * budget.max_iter))  # a step on images takes longer, and fewer are enough
    film_x = process.sample(budget.n_test, random_state=seed + 2).x[:1_000]
    film = LatentFrames(film_x, steps=[max(1, int(n_steps * fraction)) for fraction in (0.05, 0.15, 0.3, 1)])
    n_pairs = int(0.4 * budget.n_pairs)
    contrast = Contrast(
        len(FACTORS),
        space=Reals(),
        p=1,
        learning_rate=4e-3,
        trainer=Trainer(callbacks=(film,)),
        **options | {"batch_size": min(128, n_pairs), "max_iter": n_steps},
    )
    fit = recover(process, contrast, n_pairs, budget.n_test)
    score = Row("A room", "MCC", mcc(fit.z_linear, fit.z), mcc(fit.z_hat, fit.z), chance_mcc(len(FACTORS)))
    generator, before, after = _rotated_generator(seed, budget)
    section = fit.section(
        "A room, seen" if score.success else "A room, not recovered",
        "Images of rooms, 16 × 16 pixels, in pairs that differ a little: in the hues of floor, wall and cube and in "
        "the position of the camera. From pixels alone each of the four is identified, because positives differ by a "
        "Laplace distribution.",
        score,
        (
            loss_curves(
                "The training loss, against that of guessing.",
                float(np.log(contrast.batch_size or 1)),
                {"InfoNCE": contrast.loss_curve_},
            ),
        ),
        Fact("Axes (MCC)", shown(score.recovered, 3), f"a random rotation scores {shown(score.chance)} on average"),
        Fact(
            "A generator, rotated (MCC)",
            shown(after, 3),
            f"{shown(before, 3)} before. A generator of three hues, without pairs; we rotated its latents at random",
        ),
    )
    sliders = before_and_after(generator, "A generator of such rooms, with latents that we rotated at random")
    return replace(section, figures=(*section.figures, *_room_drawings(fit, film), *sliders))


def _room_drawings(fit: Recovery, film: LatentFrames) -> tuple[Drawing, ...]:
    large = _room(48)(torch.as_tensor(fit.z[:2_000]).float()).numpy()
    order = linear_sum_assignment(_correlations(fit.z_hat, fit.z), maximize=True)[1]
    latents = fit.z_hat[:2_000, order]
    frames = film.frames or {fit.estimator.n_iter_: fit.z_hat}  # short fits have no frames
    matrices = [_correlations(then, fit.z[: len(then)])[:, order] for then in frames.values()]
    gaps = [np.pad(matrix, ((0, 0), (0, 1)), constant_values=np.nan) for matrix in matrices]
    moments = ", ".join(f"{step:,}" for step in frames)
    return (
        picture(
            nearest_traversals(latents, large),
            f"Each row varies one latent from low to high, with the others fixed: {', '.join(NAMES)}. Shown are the "
            "nearest of the held-out images, drawn larger.",
        ),
        picture(
            swaps(latents, large, random_state=0),
            "Each row begins with one image and ends with another. Between them, one latent after the other is taken "
            "from the last: floor, wall, cube, camera.",
        ),
        matrix(
            np.hstack(gaps)[:, :-1],
            "Factors by latents during training",
            f"The training at steps {moments}: the correlation of each factor with each latent. At first all are "
            "mixed; at the end each factor has a latent of its own.",
            rows=NAMES,
        ),
    )


def _rotated_generator(random_state: int, budget: Budget) -> tuple[Disentangled, float, float]:
    """Train a generator of rooms on randomly rotated Isomap coordinates; return it and the MCC before and after.

    `disentangle` finds the rotation from the Jacobian of the generator alone.
    """
    room, rng = _room(12, FACTORS[:3]), torch.Generator().manual_seed(random_state)
    n, n_steps = min(1_000, budget.n_pairs), min(150, budget.max_iter)
    z = torch.rand(2 * n, 3, generator=rng)
    x = room(z)
    flat = x.flatten(1).double().numpy()
    isomap = Isomap(n_neighbors=10, n_components=3).fit(flat[:n])
    whiten = PCA(3, whiten=True).fit(isomap.embedding_)
    rotation = ortho_group.rvs(3, random_state=random_state)
    inputs = torch.as_tensor(whiten.transform(isomap.embedding_) @ rotation).float()
    decoder = nn.Sequential(nn.Linear(3, 96), nn.Tanh(), nn.Linear(96, flat.shape[1]), nn.Unflatten(1, x.shape[1:]))
    for parameter in decoder.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5, generator=rng)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-2)
    for _ in range(n_steps):
        optimizer.zero_grad()
        (decoder(inputs) - x[:n]).square().mean().backward()
        optimizer.step()
    held_out = whiten.transform(isomap.transform(flat[n:])) @ rotation
    found = disentangle(decoder, held_out, n_samples=200, n_outputs=300, n_starts=8)
    truth = z[n:].numpy()
    return found, mcc(held_out, truth), mcc(held_out @ found.unmixing, truth)


class Panel(NamedTuple):
    """True values of a latent, the recovered ones, and those of a linear fit of the raw data."""

    title: str
    note: str
    true: Array  # (n,)
    recovered: Array  # (n,)
    linear: Array  # (n,)


def scatters(caption: str, description: str, panels: Sequence[Panel]) -> Drawing:
    """Return recovered against true values, one panel per latent."""
    names = ("true", "recovered", "linear")
    data = [{name: rounded(getattr(panel, name)) for name in names} for panel in panels]
    return Drawing("scatters", caption, description, {"panels": data}, tuple(panel[:2] for panel in panels))


def matched(z_hat: Array, z: Array) -> Array:
    """Return recovered latents in the order and with the signs of the true ones, at one common scale."""
    d = z.shape[1]
    correlation = np.corrcoef(z, z_hat, rowvar=False)[:d, d:]  # (d, d)
    order = linear_sum_assignment(np.abs(correlation), maximize=True)[1]
    aligned = z_hat[:, order] * np.sign(correlation[range(d), order])
    aligned, target = aligned - aligned.mean(axis=0), z - z.mean(axis=0)
    return z.mean(axis=0) + aligned * (aligned * target).sum() / (aligned**2).sum()


def _clouds_with_arrows(
    fit: Recovery, caption: str, surface: Array, rotation: Array, view: Array | None = None
) -> Drawing:
    """Return clouds with class vectors: the true ones, the means of the classes, and the learned ones.

    Samples have the colours of their classes. ``view`` rotates the true and the recovered cloud for the figure.
    """
    view = np.eye(3) if view is None else view
    vectors, learned = fit.process.vectors.numpy(), fit.estimator.class_vectors_ @ rotation
    member = fit.side[:, None] == np.arange(len(vectors))  # (n, n_classes)
    means = member.T @ fit.x / member.sum(axis=0).clip(1)[:, None]  # a class may have no test sample

    def arrows(tips: Array) -> Array:
        return np.stack([np.zeros_like(tips), tips], axis=1)

    true, observed, recovered_cloud = aligned_clouds(fit, surface, rotation)
    true, recovered_cloud = (
        replace(cloud, points=cloud.points @ view, surface=cloud.surface @ view, arrows=arrows(tips) @ view)
        for cloud, tips in ((true, vectors), (recovered_cloud, learned))
    )
    return clouds(
        caption,
        THREE_CLOUDS,
        (true, replace(observed, arrows=filling(fit.x, arrows(means))[0]), recovered_cloud),
        hues=vectors[fit.side[:N_DRAWN]] @ view,
        surface_hues=surface @ view,
        arrow_hues=vectors @ view,
    )


def _classify_loss(fit: Recovery, spread_out: Recovery | None = None) -> Drawing:
    own = {"classes in a plane" if spread_out else "classes all over": fit.estimator.loss_curve_}
    others = {} if spread_out is None else {"classes all over": spread_out.estimator.loss_curve_}
    caption = f"The training loss, against that of guessing one of {N_CLASSES} classes."
    return loss_curves(caption, float(np.log(N_CLASSES)), {**others, **own})


def _accuracy(fit: Recovery) -> Fact:
    best = (log_posterior(fit.process, torch.as_tensor(fit.z)).argmax(1).numpy() == fit.side).mean()
    return Fact(
        "Accuracy",
        shown(fit.estimator.score(fit.x, fit.side), 3),
        f"the Bayes classifier of the truth has {shown(best, 3)}",
    )


def _room(size: int, factors: tuple[str, ...] = FACTORS) -> Room:
    return Room(size, factors=factors, fixed={"shape": 0}, samples=1)


def _correlations(latents: Array, z: Array) -> Array:
    """Return absolute correlations; (factors, latents)."""
    d = z.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant latent correlates with nothing
        return np.nan_to_num(np.abs(np.corrcoef(z, latents, rowvar=False)[:d, d:]))
