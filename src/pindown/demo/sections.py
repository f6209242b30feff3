"""The eight sections of the demonstration's page, one per simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.linalg import null_space, subspace_angles
from scipy.optimize import linear_sum_assignment
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from torch import nn

from pindown import networks, theory
from pindown.auditing.report.drawings import Drawing, sheet, squares
from pindown.auditing.report.page import (
    Cloud,
    Clouds,
    Colouring,
    Curve,
    Curves,
    Fact,
    Latents,
    Panel,
    Row,
    Scatters,
    Section,
    shown,
)
from pindown.demo.recovery import BATCH_SIZE, N_DRAWN, Array, Budget, Recovery, loss_curves, recover, recovered
from pindown.methods import Classify, Contrast, Dictionary, Forget
from pindown.methods.classify.estimator import FLAT
from pindown.methods.dictionary.disentangle import disentangle
from pindown.methods.dictionary.disentangled import Disentangled
from pindown.methods.dictionary.rotated_page import before_and_after
from pindown.metrics import (
    Effort,
    Leakage,
    chance_linear_r2,
    chance_mcc,
    chance_support_f1,
    leakage,
    linear_r2,
    match_latents,
    mcc,
    procrustes,
    recovery_by_level,
    support_f1,
)
from pindown.networks.spaces import Box, Reals
from pindown.simulate import Clusters, Nuisance, Pairs, Structured, in_hyperplane
from pindown.simulate.clusters import span_of_differences
from pindown.simulate.distributions import Truncated, Uniform, VonMisesFisher, laplace
from pindown.simulate.images import nearest_traversals, swaps
from pindown.simulate.renderers import Room
from pindown.training import Trainer
from pindown.training.callbacks import Film

CONCENTRATION = 10.0
"""κ of positives and clusters: about 25° from the mean."""

SCALE = 0.1
"""Of the Laplace distribution of positives in the unit box."""

N_CLASSES = 20
SUPPORT = ((1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1))
FACTORS = ("floor_hue", "wall_hue", "object_hue", "azimuth")
NAMES = ("hue of the floor", "hue of the wall", "hue of the cube", "azimuth of the camera")


def all_sections(random_state: int, budget: Budget, verbose: bool) -> tuple[Section, ...]:
    """Fit all eight simulations; return their sections."""
    common: dict[str, Any] = {
        "batch_size": BATCH_SIZE,
        "max_iter": budget.max_iter,
        "verbose": verbose,
        "random_state": random_state,
    }
    paired = (budget.n_pairs, budget.n_test, random_state)
    labelled = (budget.n_labelled, budget.n_test, random_state)

    sphere = Pairs.on_sphere(3, CONCENTRATION, n_layers=4, random_state=random_state)
    box = Pairs.on_box(4, laplace(SCALE), n_layers=3, random_state=random_state)
    unrelated = replace(sphere, conditional=VonMisesFisher(0.0))
    contrast = Contrast(3, **common)
    in_box = clone(contrast).set_params(n_components=4, space=Reals(), p=1)
    sphere_fit = recover(sphere, contrast, *paired, side="x_pos")
    box_fit = recover(box, in_box, *paired, side="x_pos")
    unrelated_fit = recover(unrelated, clone(contrast), *paired, side="x_pos")

    clusters = Clusters.on_sphere(3, N_CLASSES, CONCENTRATION, n_layers=4, random_state=random_state)
    flat = replace(clusters, vectors=in_hyperplane(clusters.vectors, offset=0.0))
    clusters_fit = recover(clusters, Classify(3, **common), *labelled, side="u")
    flat_fit = recover(flat, Classify(3, **common), *labelled, side="u")

    nuisance = Nuisance.on_sphere(5, 3, CONCENTRATION, n_layers=1, random_state=random_state)
    nuisance_fit = recover(nuisance, Forget(encoder=networks.linear, **common), *labelled, side="u")

    structured = Structured.well_posed(SUPPORT, n_candidates=5, separation=0.15, random_state=random_state)
    half = common | {"max_iter": (budget.max_iter + 1) // 2}  # two restarts
    # The Jacobian is nowhere singular. Whether distant latents have different observations is not checked.
    graph_fit = recover(
        structured, Dictionary(3, n_restarts=2, **half), *paired, unchecked=(theory.DIFFEOMORPHIC_MIXING,)
    )
    return (
        _sphere(sphere_fit),
        _box(box_fit),
        _unrelated(unrelated_fit, sphere_fit),
        _clusters(clusters_fit),
        _flat_clusters(flat_fit, clusters_fit),
        _nuisance(nuisance_fit),
        _graph(graph_fit),
        _rooms(random_state, budget, verbose),
    )


def _sphere(fit: Recovery) -> Section:
    score, alignment = fit.r2("The sphere"), procrustes(fit.z_hat, fit.z)
    information = np.log(CONCENTRATION / np.sinh(CONCENTRATION)) + CONCENTRATION / np.tanh(CONCENTRATION) - 1
    return fit.section(
        "A sphere, unscrambled" if recovered(score) else "A sphere, not recovered",
        "Points on a sphere, each with a positive nearby, pass through a random network of four layers. From the "
        "distorted pairs alone, pindown learns a map back. A rotation cannot be identified from such data, and is not "
        "claimed.",
        score,
        (
            _clouds(
                fit,
                "Colour is the true direction of a sample; the same sample has the same colour everywhere. The net is "
                "laid over the true sphere and mapped along. Drag, or use the arrow keys: all three rotate together.",
                sphere_net(),
                alignment.rotation,
            ),
            _contrast_loss(fit),
        ),
        Fact("R² with a rotation alone", shown(alignment.r2, 3), "no stretching, no shearing"),
        Fact(
            "Concentration of the positives",
            f"{1 / fit.estimator.temperature_:.1f}",
            f"the inverse of the learned temperature; in truth {CONCENTRATION:g}",
        ),
        Fact(
            "Information in a pair",
            f"{fit.estimator.score(fit.x, fit.test.x_pos):.2f} nats",
            f"estimated on held-out pairs; in truth {information:.2f}",
        ),
        Fact(
            "Axes (MCC)",
            shown(mcc(fit.z_hat, fit.z)),
            f"a random rotation scores {shown(chance_mcc(3))} on average: the theorem does not identify the axes",
        ),
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
        "A box, down to its axes" if recovered(score) else "A box, not recovered",
        "Four variables in a box, with positives that differ by a Laplace distribution. Its density has ridges along "
        "the axes, so a rotated solution fits worse: here each latent is identified by itself.",
        score,
        (
            Scatters(
                "Recovered against true, one panel per latent. Grey: the best linear fit of the raw data to the truth.",
                f"{d} scatter plots of recovered against true values, with those of a linear fit for comparison.",
                panels,
            ),
            _contrast_loss(fit),
        ),
        Fact("R² with order and signs alone", shown(r2, 3), "plus a shift and one common scale"),
        Fact(
            "Information in a pair",
            f"{fit.estimator.score(fit.x, fit.test.x_pos):.2f} nats",
            "estimated on held-out pairs, without the truth",
        ),
    )


def _unrelated(fit: Recovery, related: Recovery) -> Section:
    score, net = fit.r2("Unrelated pairs"), sphere_net()
    # These latents may lie in a corner of the sphere, so no rotation is fitted.
    points, surface = _filling(fit.z_hat, fit.z_hat[:N_DRAWN], _encoded(fit, _mixed(fit, net)))
    cloud = Clouds(
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
        (cloud, _contrast_loss(fit, related)),
        Fact(
            "Information in a pair",
            f"{shown(fit.estimator.score(fit.x, fit.test.x_pos))} nats",
            "in truth none: the score shows without the truth that nothing was learned",
        ),
    )


def _clusters(fit: Recovery) -> Section:
    score, rotation = fit.r2("Clusters"), procrustes(fit.z_hat, fit.z).rotation
    vectors, learned = fit.process.vectors.numpy(), fit.estimator.class_vectors_
    angles = np.degrees(np.arccos(np.clip((learned @ rotation * vectors).sum(axis=1), -1, 1)))
    return fit.section(
        "Clusters, from their labels" if recovered(score) else "Clusters, not recovered",
        f"{N_CLASSES} clusters on a sphere pass through a random network of four layers. Classify learns to predict "
        "their labels, and nothing else. Since the class vectors lie in no plane, this identifies the whole sphere, "
        "also between and within the clusters, and the class vectors with it.",
        score,
        (
            _clouds(
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
            _clouds(
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


def _nuisance(fit: Recovery) -> Section:
    rng = np.random.default_rng(0)
    raw, latents, truth = (_leakage(values, fit) for values in (fit.x, fit.z_hat, fit.z))
    projections = [_leakage(fit.x @ rng.normal(size=(5, fit.z_hat.shape[1])), fit) for _ in range(3)]
    chance = float(np.mean([_invariance(each) for each in projections]))
    score = Row("A nuisance", "invariance", _invariance(raw), _invariance(latents), chance)
    kept = min(recovery_by_level(fit.z_hat, fit.z, fit.u).values())
    angle = np.degrees(subspace_angles(fit.estimator.components_.T, fit.process.invariant_space.numpy())).max()
    history = fit.estimator.history_
    numbers = (
        f"Held-out invariance {shown(score.recovered, 3)} (raw data {shown(score.linear)}, random projections "
        f"{shown(chance)}; best probe {shown(latents.worst, 3)}, chance {shown(latents.chance, 3)}), R² within a level "
        f"{shown(kept, 3)}"
    )
    return fit.section(
        "A nuisance, forgotten" if recovered(score) else "A nuisance, not forgotten",
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
                history.chance_loss,
                Curve("the classifier", history.classifier_loss),
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
        "A graph, from observations alone" if recovered(score) else "A graph, not recovered",
        "Three latents, six observed variables, and no pairs, labels or time. Each latent affects other observed "
        "variables. Among all models that explain the data, Dictionary looks for the one with the fewest edges. "
        "Principal components, which need no truth either, stand in place of a linear fit.",
        score,
        (
            Scatters(
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


def _rooms(random_state: int, budget: Budget, verbose: bool) -> Section:
    process = Pairs(Uniform(len(FACTORS), Box()), Truncated(laplace(SCALE)), _room(16))
    n_steps = max(1, int(0.35 * budget.max_iter))  # a step on images takes longer, and fewer are enough
    film_x = process.sample(budget.n_test, random_state=random_state + 2).x[:1_000]
    film = Film(film_x, steps=[max(1, int(n_steps * fraction)) for fraction in (0.05, 0.15, 0.3, 1)])
    n_pairs = int(0.4 * budget.n_pairs)
    contrast = Contrast(
        len(FACTORS),
        space=Reals(),
        p=1,
        batch_size=min(128, n_pairs),
        max_iter=n_steps,
        learning_rate=4e-3,
        trainer=Trainer(callbacks=(film,)),
        verbose=verbose,
        random_state=random_state,
    )
    fit = recover(process, contrast, n_pairs, budget.n_test, random_state, side="x_pos")
    score = Row("A room", "MCC", mcc(fit.z_linear, fit.z), mcc(fit.z_hat, fit.z), chance_mcc(len(FACTORS)))
    generator, before, after = _rotated_generator(random_state, budget)
    section = fit.section(
        "A room, seen" if recovered(score) else "A room, not recovered",
        "Images of rooms, 16 × 16 pixels, in pairs that differ a little: in the hues of floor, wall and cube and in "
        "the position of the camera. From pixels alone each of the four is identified, because positives differ by a "
        "Laplace distribution.",
        score,
        (
            loss_curves(
                "The training loss, against that of guessing.",
                float(np.log(contrast.batch_size or 1)),
                Curve("InfoNCE", contrast.loss_curve_),
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
    return replace(section, drawings=(*_room_drawings(fit, film), *sliders))


def _room_drawings(fit: Recovery, film: Film) -> tuple[Drawing, ...]:
    large = _room(48)(torch.as_tensor(fit.z[:2_000]).float()).numpy()
    order = linear_sum_assignment(_correlations(fit.z_hat, fit.z), maximize=True)[1]
    latents = fit.z_hat[:2_000, order]
    frames = film.frames or {fit.estimator.n_iter_: fit.z_hat}  # short fits have no frames
    matrices = [_correlations(then, fit.z[: len(then)])[:, order] for then in frames.values()]
    gaps = [np.pad(matrix, ((0, 0), (0, 1)), constant_values=np.nan) for matrix in matrices]
    moments = ", ".join(f"{step:,}" for step in frames)
    return (
        sheet(
            nearest_traversals(latents, large),
            f"Each row varies one latent from low to high, with the others fixed: {', '.join(NAMES)}. Shown are the "
            "nearest of the held-out images, drawn larger.",
        ),
        sheet(
            swaps(latents, large, random_state=0),
            "Each row begins with one image and ends with another. Between them, one latent after the other is taken "
            "from the last: floor, wall, cube, camera.",
        ),
        squares(
            np.hstack(gaps)[:, :-1],
            "Factors by latents during training",
            f"The training at steps {moments}: the correlation of each factor with each latent. At first all are "
            "mixed; at the end each factor has a latent of its own.",
            names=NAMES,
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
    found = disentangle(decoder, held_out, n_codes=200, n_outputs=300, n_starts=8)
    truth = z[n:].numpy()
    return found, mcc(held_out, truth), mcc(held_out @ found.rotation, truth)


def sphere_net() -> Array:
    """Return the sphere as a net with meshes of 7.5°; (25 parallels, 49 meridians, 3)."""
    latitude, longitude = np.meshgrid(np.linspace(-0.5, 0.5, 25) * np.pi, np.linspace(0, 2, 49) * np.pi, indexing="ij")
    across = np.cos(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)


def matched(z_hat: Array, z: Array) -> Array:
    """Return recovered latents in the order and with the signs of the true ones, at one common scale."""
    d = z.shape[1]
    correlation = np.corrcoef(z, z_hat, rowvar=False)[:d, d:]  # (d, d)
    order = linear_sum_assignment(np.abs(correlation), maximize=True)[1]
    aligned = z_hat[:, order] * np.sign(correlation[range(d), order])
    aligned, target = aligned - aligned.mean(axis=0), z - z.mean(axis=0)
    return z.mean(axis=0) + aligned * (aligned * target).sum() / (aligned**2).sum()


def _clouds(fit: Recovery, caption: str, surface: Array, rotation: Array, view: Array | None = None) -> Clouds:
    """Return the true, the observed and the recovered cloud, with class vectors where there are classes.

    The rotation aligns the recovered latents with the truth. ``view`` rotates both for the figure.
    """
    view = np.eye(3) if view is None else view
    surface_x = _mixed(fit, surface)
    true, observed, latents = ([each[:N_DRAWN]] for each in (fit.z, fit.x, fit.z_hat))
    true.append(surface)
    observed.append(surface_x)
    latents.append(_encoded(fit, surface_x))
    hues, arrow_hues = fit.z[:N_DRAWN], np.empty((0, 3))
    if fit.test.u is not None:
        vectors = arrow_hues = fit.process.vectors.numpy()
        member = fit.u[:, None] == np.arange(len(vectors))  # (n, n_classes)
        means = member.T @ fit.x / member.sum(axis=0).clip(1)[:, None]  # a class may have no test sample
        for parts, tips in ((true, vectors), (observed, means), (latents, fit.estimator.class_vectors_)):
            parts.append(np.stack([np.zeros_like(tips), tips], axis=1))
        hues = vectors[fit.u[:N_DRAWN]]
    return Clouds(
        caption,
        "Three clouds of the same coloured points, with a net: the true sphere, the distorted observations, and what "
        f"was recovered (R² {shown(linear_r2(fit.z_hat, fit.z), 3)}).",
        clouds=(
            Cloud("True", "the hidden variables", *(part @ view for part in true)),
            Cloud("Observed", "what pindown is given", *_filling(fit.x, *observed)),
            Cloud(
                "Recovered", "up to a rotation, fitted for this figure", *(part @ rotation @ view for part in latents)
            ),
        ),
        hues=hues @ view,
        surface_hues=surface @ view,
        arrow_hues=arrow_hues @ view,
    )


def _mixed(fit: Recovery, z: Array) -> Array:
    return fit.process.mixing(torch.from_numpy(z)).numpy()


def _encoded(fit: Recovery, x: Array) -> Array:
    return fit.estimator.transform(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def _filling(cloud: Array, *parts: Array) -> list[Array]:
    """Move and scale parts of a cloud as needed to make the cloud fill the unit ball."""
    centre = (cloud.min(axis=0) + cloud.max(axis=0)) / 2
    return [(part - centre) / np.linalg.norm(cloud - centre, axis=1).max() for part in parts]


def _contrast_loss(fit: Recovery, related: Recovery | None = None) -> Curves:
    own = Curve("unrelated pairs" if related else "related pairs", fit.estimator.loss_curve_)
    others = () if related is None else (Curve("related pairs", related.estimator.loss_curve_),)
    caption = f"The training loss, against that of guessing which of {BATCH_SIZE} is the positive."
    return loss_curves(caption, float(np.log(BATCH_SIZE)), *others, own)


def _classify_loss(fit: Recovery, spread_out: Recovery | None = None) -> Curves:
    own = Curve("classes in a plane" if spread_out else "classes all over", fit.estimator.loss_curve_)
    others = () if spread_out is None else (Curve("classes all over", spread_out.estimator.loss_curve_),)
    caption = f"The training loss, against that of guessing one of {N_CLASSES} classes."
    return loss_curves(caption, float(np.log(N_CLASSES)), *others, own)


def _accuracy(fit: Recovery) -> Fact:
    best = (fit.process.log_posterior(fit.test.z).argmax(1).numpy() == fit.u).mean()
    return Fact(
        "Accuracy",
        shown(fit.estimator.score(fit.x, fit.u), 3),
        f"the Bayes classifier of the truth has {shown(best, 3)}",
    )


def _leakage(latents: Array, fit: Recovery) -> Leakage:
    return leakage(
        latents,
        fit.u,
        probes=("linear", "quadratic", "kernel"),
        effort=Effort(n_seeds=1, n_permutations=20),
        random_state=0,
    )


def _invariance(found: Leakage) -> float:
    """Return 1 if the best probe is at chance, 0 if it is always right."""
    return 1 - max(0.0, (found.worst - found.chance) / (1 - found.chance))


def _latents(fit: Recovery, title: str, note: str, latents: Array, name: str) -> Latents:
    (points,) = _filling(latents, latents[:N_DRAWN])
    return Latents(
        caption=f"{title}: {note}. Choose the axes and the colouring.",
        description=f"{title}: {len(points)} points in three colours, one per level of the nuisance.",
        names=tuple(f"{name} {j + 1}" for j in range(latents.shape[1])),
        points=points,
        colourings=(
            Colouring("nuisance", fit.u[:N_DRAWN]),
            Colouring("an invariant latent", fit.z[:N_DRAWN, 0]),
        ),
    )


def _room(size: int, factors: tuple[str, ...] = FACTORS) -> Room:
    return Room(size, factors=factors, fixed={"shape": 0}, samples=1)


def _correlations(latents: Array, z: Array) -> Array:
    """Return absolute correlations; (factors, latents)."""
    d = z.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant latent correlates with nothing
        return np.nan_to_num(np.abs(np.corrcoef(z, latents, rowvar=False)[:d, d:]))
