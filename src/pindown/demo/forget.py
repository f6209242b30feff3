"""What `Forget` makes of a nuisance: codes that nobody can read it from, and that keep the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pindown.demo.drawing import N_DRAWN, filling
from pindown.demo.recovery import BATCH_SIZE, Budget, Recovery, loss_curves, recover, recovered, samples
from pindown.metrics import Leakage, leakage, recovery_by_value
from pindown.report.page import Colouring, Curve, Fact, Latents, Row, Section, shown

if TYPE_CHECKING:
    from pindown.estimators import Forget
    from pindown.processes import Nuisance

    Fit = Recovery[Nuisance, Forget]

CONCENTRATION = 10.0
"""κ of what is seen given the nuisance."""

N_DIMENSIONS, N_VALUES = 5, 3

N_RANDOM = 3
"""Random projections, for comparison."""


def sections(random_state: int, budget: Budget, verbose: bool) -> tuple[Section, ...]:
    """Forget which of three values a nuisance has; return its part of the page."""
    from pindown import networks
    from pindown.estimators import Forget
    from pindown.processes import Nuisance

    world = Nuisance.on_sphere(N_DIMENSIONS, N_VALUES, CONCENTRATION, n_layers=1, random_state=random_state)
    forget = Forget(
        encoder=networks.linear,
        batch_size=BATCH_SIZE,
        max_iter=budget.max_iter,
        verbose=verbose,
        random_state=random_state,
    )
    train, test = samples(world, budget.n_labelled, budget.n_test, random_state)
    return (_section(recover(world, forget, train, train.u, test)),)


def _section(fit: Fit) -> Section:
    e = _values(fit)
    of_raw, of_codes, of_truth = (_told(a, e) for a in (fit.x, fit.z_hat, fit.z))
    score = Row("A nuisance", "blindness", _blindness(of_raw), _blindness(of_codes), _blindness_of_random(fit))
    kept = min(recovery_by_value(fit.z_hat, fit.z, e).values())
    return Section(
        title="A nuisance, forgotten" if recovered(score) else "A nuisance, not forgotten",
        text=f"{N_DIMENSIONS} observed variables are moved by a nuisance of {N_VALUES} values: a batch, a camera, a "
        "body. Forget plays a game. A classifier looks for the nuisance in the codes, the encoder hides it, and what "
        "the nuisance does not touch is kept. Blindness is 1 if no probe, trained afterwards from scratch, reads the "
        "nuisance better than by guessing, and 0 if one reads it without error. Here that of the raw data stands in "
        "place of a linear fit, and that of random projections is the chance.",
        score=score,
        figures=(
            _latents(fit, "Observed", "what pindown is given, three of the observed variables", fit.x),
            _latents(fit, "Recovered", "the codes: colours are mixed, none has a place of its own", fit.z_hat),
            loss_curves(
                "The loss of the classifier that looks for the nuisance, against that of guessing. That it ends "
                "there proves nothing: only probes trained afterwards do.",
                fit.estimator.history_.chance_loss,
                Curve("the classifier", fit.estimator.history_.classifier_loss),
            ),
        ),
        facts=(
            Fact(
                "Best probe (accuracy)",
                shown(of_codes.worst, 3),
                f"of codes; {shown(of_raw.worst, 3)} of the raw data, {shown(of_truth.worst, 3)} of the untouched "
                f"latents themselves; guessing has {shown(of_codes.chance, 3)}",
            ),
            Fact("Kept (R² within a value)", shown(kept, 3), "of the untouched latents, the least over the values"),
            Fact(
                "Angle to the blind space",
                f"{_angle(fit):.1f}°",
                "the largest between the codes' directions and those that the nuisance does not touch; a random "
                "direction is far off",
            ),
        ),
        claim=_claim(fit, score, of_codes, kept),
        conditions=fit.conditions,
        not_promised=fit.theorem.not_promised,
        warned=fit.warned,
    )


def _claim(fit: Fit, score: Row, told: Leakage, kept: float) -> str:
    numbers = (
        f"Held-out blindness {shown(score.recovered, 3)} (raw data {shown(score.linear)}, random projections "
        f"{shown(score.chance)}; best probe {shown(told.worst, 3)}, guessing {shown(told.chance, 3)}), R² within a "
        f"value {shown(kept, 3)}"
    )
    if not recovered(score):
        return f"{numbers}: not forgotten; {fit.theorem.source} promises more, but only at the optimum: train longer."
    return f"{numbers}: {fit.promise}"


def _told(codes: np.ndarray, e: np.ndarray) -> Leakage:
    return leakage(codes, e, probes=("linear", "quadratic", "kernel"), n_seeds=1, n_permutations=20, random_state=0)


def _blindness(told: Leakage) -> float:
    """Return 1 if the best probe only guesses, 0 if it is always right."""
    return 1 - max(0.0, (told.worst - told.chance) / (1 - told.chance))


def _blindness_of_random(fit: Fit) -> float:
    """Return the mean blindness of random projections onto as many codes."""
    rng = np.random.default_rng(0)
    directions = [rng.normal(size=(fit.x.shape[1], fit.z_hat.shape[1])) for _ in range(N_RANDOM)]
    return float(np.mean([_blindness(_told(fit.x @ some, _values(fit))) for some in directions]))


def _angle(fit: Fit) -> float:
    """Return the largest angle between the row space of the codes and that of a blind code, in degrees."""
    from scipy.linalg import subspace_angles

    return float(np.degrees(subspace_angles(fit.estimator.components_.T, fit.world.blind_space.numpy())).max())


def _latents(fit: Fit, title: str, note: str, codes: np.ndarray) -> Latents:
    (points,) = filling(codes, codes[:N_DRAWN])
    values = _values(fit)[:N_DRAWN]
    return Latents(
        caption=f"{title}: {note}. Choose what to see, and what to colour by.",
        description=f"{title}: {len(points)} points in {N_VALUES} colours, one per value of the nuisance.",
        names=tuple(f"{'x' if codes.shape[1] == N_DIMENSIONS else 'code'} {j + 1}" for j in range(codes.shape[1])),
        points=points,
        colourings=(Colouring("nuisance", values), Colouring("an untouched latent", fit.z[:N_DRAWN, 0])),
    )


def _values(fit: Fit) -> np.ndarray:
    """Return the value of the nuisance of each test sample; (n,)."""
    assert fit.test.u is not None
    return fit.test.u.numpy()
