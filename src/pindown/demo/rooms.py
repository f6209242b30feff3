"""Pictures: what `Contrast` recovers from pairs of rooms, and a generator of rooms that one rotation disentangles."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pindown.demo.recovery import Budget, Recovery, loss_curves, recover, recovered, samples
from pindown.metrics import chance_mcc, mcc
from pindown.report.drawings import Drawing, sheet, squares
from pindown.report.page import Curve, Fact, Row, Section, shown

if TYPE_CHECKING:
    from torch import Tensor

    from pindown.disentangling import Disentangled
    from pindown.estimators import Contrast
    from pindown.mixing import Room
    from pindown.processes import Pairs
    from pindown.training.callbacks import Film

    Fit = Recovery[Pairs, Contrast]

FACTORS = ("floor_hue", "wall_hue", "object_hue", "azimuth")
NAMES = ("hue of the floor", "hue of the wall", "hue of the cube", "azimuth of the camera")

SEEN, DRAWN = 16, 48
"""Pixels of an edge that the encoder sees, and those of the same rooms on the page."""

PAIRS, STEPS = 0.4, 0.35
"""Shares of the pairs and of the steps of other worlds: a step of pictures takes longer, and they need fewer."""

BATCH_SIZE, LEARNING_RATE, SCALE = 128, 4e-3, 0.1

HUES, SMALL = FACTORS[:3], 12
"""Factors and pixels of an edge of the rooms that a generator is trained on, without pairs."""

GENERATED, GENERATOR_STEPS = 1_000, 60
"""Pictures and steps that it is trained with, at most."""

N_DRAWN = 2_000
"""Pictures that those on the page are chosen from."""


def sections(random_state: int, budget: Budget, verbose: bool) -> tuple[Section, ...]:
    """Recover what a room looks like; return its part of the page."""
    from pindown.distributions import Truncated, Uniform, laplace
    from pindown.estimators import Contrast
    from pindown.processes import Pairs
    from pindown.report.sliders import before_and_after
    from pindown.spaces import Box, Reals
    from pindown.training import Trainer
    from pindown.training.callbacks import Film

    world = Pairs(Uniform(len(FACTORS), Box()), Truncated(laplace(SCALE)), _room(SEEN))
    train, test = samples(world, int(PAIRS * budget.n_pairs), budget.n_test, random_state)
    n_steps = max(1, int(STEPS * budget.max_iter))
    film = Film(test.x[:1_000], steps=[max(1, int(n_steps * share)) for share in (0.05, 0.15, 0.3, 1)])
    contrast = Contrast(
        len(FACTORS),
        space=Reals(),
        p=1,
        batch_size=min(BATCH_SIZE, len(train.x)),
        max_iter=n_steps,
        learning_rate=LEARNING_RATE,
        trainer=Trainer(callbacks=(film,)),
        verbose=verbose,
        random_state=random_state,
    )
    section = _section(recover(world, contrast, train, train.x_pos, test), film)
    found, before, after = _turned(random_state, budget)
    fact = Fact(
        "A generator, turned (MCC)",
        shown(after, 3),
        f"{shown(before, 3)} before: three hues in the codes of an autoencoder, without pairs",
    )
    drawings = (*section.drawings, *before_and_after(found, "An autoencoder of such rooms, trained without pairs"))
    return (replace(section, facts=(*section.facts, fact), drawings=drawings),)


def _turned(random_state: int, budget: Budget) -> tuple[Disentangled, float, float]:
    """Train a generator of rooms, and turn its codes by its Jacobian; return MCC of held-out rooms before and after."""
    import torch

    from pindown.baselines import BetaVAE
    from pindown.disentangling import disentangle

    room, rng = _room(SMALL, HUES), torch.Generator().manual_seed(random_state)
    n = min(GENERATED, budget.n_pairs)
    z = torch.rand(n + budget.n_test, len(HUES), generator=rng)
    n_steps = min(GENERATOR_STEPS, budget.max_iter)
    est = BetaVAE(
        len(HUES), beta=1, batch_size=64, max_iter=n_steps, random_state=random_state, device="cpu", verbose=False
    )
    with warnings.catch_warnings(action="ignore"):  # that more steps would help
        est.fit(room(z[:n]))
    codes, hidden = est.transform(room(z[n:])).numpy(), z[n:].numpy()
    decode, scale, centre = est.decoder_, *map(est.objective_.get_buffer, ("scale", "centre"))

    def decoder(code: Tensor) -> Tensor:  # in the colours of pictures
        return decode(code) * scale.to(code) + centre.to(code)

    found = disentangle(decoder, codes, n_codes=200, n_outputs=300, n_starts=8)
    return found, mcc(codes, hidden), mcc(codes @ found.rotation, hidden)


def _room(size: int, factors: tuple[str, ...] = FACTORS) -> Room:
    from pindown.mixing import Room

    return Room(size, factors=factors, fixed={"shape": 0}, samples=1)


def _section(fit: Fit, film: Film) -> Section:
    found = mcc(fit.z_hat, fit.z)
    score = Row("A room", "MCC", mcc(fit.z_linear, fit.z), found, chance_mcc(len(FACTORS)))
    section = fit.section(
        "A room, seen" if recovered(score) else "A room, not recovered",
        f"Pictures of rooms, {SEEN} × {SEEN} pixels, in pairs that differ a little: in the hues of floor, wall and "
        "cube and in where the camera stands. From pixels alone each of the four is found by itself, because partners "
        "differ by a Laplace law.",
        score,
        (
            loss_curves(
                "The loss while training, against that of guessing.",
                float(np.log(fit.estimator.batch_size or 1)),
                Curve("InfoNCE", fit.estimator.loss_curve_),
            ),
        ),
        Fact("Axes (MCC)", shown(found, 3), f"a random rotation scores {shown(score.chance)} on average"),
    )
    return replace(section, drawings=_drawings(fit, film))


def _drawings(fit: Fit, film: Film) -> tuple[Drawing, ...]:
    import torch

    from pindown.mixing import nearest_traversals, swaps

    large = _room(DRAWN)(torch.as_tensor(fit.z[:N_DRAWN]).float()).numpy()
    order = _order(fit.z_hat, fit.z)
    codes = fit.z_hat[:N_DRAWN, order]
    frames = film.frames or {fit.estimator.n_iter_: fit.z_hat}  # of few rows fits of folds go side by side, unseen
    pictures = [_going_with(then, fit.z[: len(then)])[:, order] for then in frames.values()]
    moments = ", ".join(f"{step:,}" for step in frames)
    film_of_codes = squares(
        np.hstack([np.pad(frame, ((0, 0), (0, 1)), constant_values=np.nan) for frame in pictures])[:, :-1],
        "Factors by codes while training",
        f"A film of the training, at steps {moments}: the correlation of each factor with each code. At first all is "
        "mixed; at the end each factor has a code of its own.",
        names=NAMES,
    )
    return (
        sheet(
            nearest_traversals(codes, large),
            f"Each row goes along one code, from low to high, while the others stay: {', '.join(NAMES)}. Shown are the "
            "nearest of the held-out pictures, drawn larger.",
        ),
        sheet(
            swaps(codes, large, random_state=0),
            "Each row begins with one picture and ends with another. Between them one code after the other is taken "
            "from the last: floor, wall, cube, camera.",
        ),
        film_of_codes,
    )


def _going_with(codes: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return absolute correlations; (factors, codes)."""
    d = z.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):  # a code that has collapsed goes with nothing
        return np.nan_to_num(np.abs(np.corrcoef(z, codes, rowvar=False)[:d, d:]))


def _order(codes: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return which code goes with each factor."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(_going_with(codes, z), maximize=True)[1]
