"""What `Dictionary` recovers from observations alone: a graph, and the latents that it tells apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pindown import theory
from pindown.demo.drawing import N_DRAWN
from pindown.demo.recovery import BATCH_SIZE, Budget, Recovery, recover, recovered, samples
from pindown.metrics import chance_mcc, chance_support_f1, match_latents, mcc, support_f1
from pindown.report.page import Fact, Panel, Row, Scatters, Section, shown

if TYPE_CHECKING:
    from pindown.estimators import Dictionary
    from pindown.processes import Structured

    Fit = Recovery[Structured, Dictionary]

SUPPORT = ((1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1))
"""Six observed variables, three latents: every latent reaches other variables."""


def sections(random_state: int, budget: Budget, verbose: bool) -> tuple[Section, ...]:
    """Recover three latents and their graph without any side information; return their part of the page."""
    from pindown.estimators import Dictionary
    from pindown.processes import Structured

    world = Structured.well_posed(SUPPORT, n_candidates=5, separation=0.15, random_state=random_state)
    dictionary = Dictionary(
        3,
        n_restarts=2,
        batch_size=BATCH_SIZE,
        max_iter=(budget.max_iter + 1) // 2,  # two restarts, and the part with the penalty
        verbose=verbose,
        random_state=random_state,
    )
    train, test = samples(world, budget.n_pairs, budget.n_test, random_state)
    # Its Jacobian is nowhere singular; that distant latents have different observations, nobody looks up.
    return (_section(recover(world, dictionary, train, None, test, unchecked=(theory.DIFFEOMORPHIC_MIXING,))),)


def _section(fit: Fit) -> Section:
    matching = match_latents(fit.z_hat, fit.z)
    score = Row("A graph", "MCC", mcc(_principal_components(fit.x), fit.z), mcc(fit.z_hat, fit.z), chance_mcc(3))
    found, truth = fit.estimator.support_, fit.world.support
    wrong = int((found[:, matching] != truth).sum())
    blocks = ", ".join("{" + ", ".join(str(j + 1) for j in block.latents) + "}" for block in fit.estimator.blocks_)
    return fit.section(
        "A graph, from observations alone" if recovered(score) else "A graph, not recovered",
        "Three hidden variables, six observed ones, and no pairs, labels or time. What helps is that each hidden "
        "variable reaches other observed ones. Among all models that explain the data, Dictionary looks for the one "
        "with the fewest arrows. Principal components, which need no truth either, stand in place of a linear fit.",
        score,
        (
            Scatters(
                caption="Each hidden variable against its code; grey is what a linear fit to the truth makes of the "
                "raw data. The order of the codes, and what they are bent by, cannot be known.",
                description="Three panels, recovered against true.",
                panels=tuple(_panel(fit, j, int(matching[j])) for j in range(3)),
            ),
        ),
        Fact(
            "Arrows (F1)",
            shown(support_f1(found, truth, matching=matching), 3),
            f"{wrong} of {truth.size} possible arrows are wrong; chance {shown(chance_support_f1(truth))}",
        ),
        Fact("Blocks that may be claimed", blocks, "codes that reach the same observed variables come together only"),
        Fact(
            "Agreement between restarts",
            shown(float(fit.estimator.agreement_.min())),
            "correlation of their codes: low values say that the data do not decide",
        ),
    )


def _principal_components(x: np.ndarray) -> np.ndarray:
    """Return three; (n, m) → (n, 3)."""
    from sklearn.decomposition import PCA

    return PCA(3).fit_transform((x - x.mean(axis=0)) / x.std(axis=0))


def _panel(fit: Fit, latent: int, code: int) -> Panel:
    true, linear, recovered_ = (a[:N_DRAWN] for a in (fit.z[:, latent], fit.z_linear[:, latent], fit.z_hat[:, code]))
    slope, shift = np.polyfit(recovered_, true, 1)
    return Panel(f"Latent {latent + 1}", f"code {code + 1}", true, slope * recovered_ + shift, linear)
