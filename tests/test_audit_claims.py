"""Agreement up to what is free and no more; and reasons not to claim."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from pindown import Classify, Contrast, audit, theory
from pindown.auditing.agreement import HALVES, Agreement, measure_for
from pindown.auditing.checks import conditions
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.claims import leading_part, predictions_part
from pindown.auditing.evidence import AuditScore, Control, Evidence, Objection
from pindown.auditing.result import Audit
from pindown.auditing.spec import Part
from pindown.data.data import Data
from pindown.simulate import Clusters
from pindown.theory.structure import identified_blocks
from pindown.training import Trainer

# ---- agreement ------------------------------------------------------------------------------------------------------

Z = np.random.default_rng(5).normal(size=(1_000, 3))
TURN = np.linalg.qr(np.random.default_rng(6).normal(size=(3, 3)))[0]


def test_each_comparison_ignores_what_is_free_and_sees_the_next_coarser_map():
    signed, orthogonal, linear = (
        measure_for(free) for free in (theory.SIGNED_PERMUTATION, theory.ORTHOGONAL, theory.LINEAR)
    )
    flipped, turned, sheared = -Z[:, [2, 0, 1]], Z @ TURN, Z @ TURN * [1, 3, 9] @ TURN.T
    assert signed(Z, flipped) > 0.999 > 0.98 > signed(Z, turned)
    assert orthogonal(Z, turned) > 0.999 > 0.95 > orthogonal(Z, sheared)
    assert linear(Z, sheared) > 0.999 > 0.95 > linear(Z, Z**3)


def test_latents_in_one_block_may_be_mixed_and_others_may_not():
    blocks = identified_blocks([[1, 1, 0], [0, 0, 1]])  # the first two reach the same
    mixed = Z.copy()
    mixed[:, :2] = Z[:, :2] @ [[1, 1], [1, -1]]
    measure = measure_for(theory.BLOCKWISE, blocks=blocks)
    assert measure(Z, mixed) > 0.98
    across = Z @ [[1, 0, 1], [0, 1, 0], [1, 0, -1]]  # of a block and another latent
    assert measure(Z, across) < 0.9
    assert measure_for(theory.ELEMENTWISE)(Z, mixed) < 0.9
    assert measure.chance(Z) < 0.95


def test_each_value_of_a_nuisance_may_have_its_own_bijection_but_no_fold():
    values = np.arange(1_000) % 2
    own = np.where(values[:, None] == 0, Z, -np.sinh(Z))
    measure = measure_for(theory.BIJECTION_PER_LEVEL, values)
    assert measure(Z, own) > 0.8
    assert measure(Z, Z**2) < 0.5


def test_a_collapsed_latent_agrees_with_nothing():
    dead = Z * [1, 1, 0]
    assert [measure_for(free)(Z, dead) for free in (theory.SIGNED_PERMUTATION, theory.ORTHOGONAL)] == [0.0, 0.0]


def test_the_chance_of_a_single_latent_is_that_of_one_that_knows_nothing():
    one = Z[:, :1]
    blocks = identified_blocks([[1], [1]])
    assert measure_for(theory.SIGNED_PERMUTATION).chance(one) == pytest.approx(0.036, abs=0.001)  # √(2/500π)
    assert measure_for(theory.BLOCKWISE, blocks=blocks).chance(one) == 0


# ---- claims ---------------------------------------------------------------------------------------------------------

GOOD = Agreement("your fit and refits", "R²", (0.99,), 0.0)
WELL = Audit("", theory.CLASSIFY_FREE, agreement=(GOOD,))


def verdict(assumption, outcome):
    return Verdict(assumption, 0.0, 1.0, outcome, "so it is.")


def test_there_is_no_reason_not_to_claim_if_all_is_well():
    assert dataclasses.replace(WELL, verdicts=[verdict(theory.VMF_CLUSTERS, "undecided")]).reasons == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdicts": [verdict(theory.VMF_CLUSTERS, "fails")]}, "vMF clusters fails: so it is"),
        ({"evidence": Evidence((), (Control("shuffled", "", "", passed=False),))}, "a control failed: shuffled"),
        ({"evidence": Evidence((), (), (Objection("it learned nothing", ""),))}, "it learned nothing"),
        ({"agreement": [dataclasses.replace(GOOD, values=(0.99, 0.5))]}, "your fit and refits disagree: R² 0.500"),
        ({"agreement": [dataclasses.replace(GOOD, values=(np.nan,))]}, "your fit and refits disagree: R² nan"),
        ({"blocks": identified_blocks(np.ones((4, 3)))}, "no latent is identified: one block holds all 3"),
        ({"theorem": None}, "no theorem covers these parameters"),
    ],
)
def test_any_single_failure_is_a_reason_not_to_claim(change, reason):
    (found,) = dataclasses.replace(WELL, **change).reasons
    assert found.startswith(reason)


def test_what_a_theorem_does_not_need_may_fail():
    failing = [verdict(theory.LINEAR_ENCODER, "fails"), verdict(theory.UNIFORM_SPHERE, "fails")]
    assert needed(theory.FORGET_NONLINEAR, failing, ()) == ()
    assert needed(theory.CONTRAST_SPHERE, failing, ()) == (failing[1],)
    learned = Contrast()
    assert needed(theory.CONTRAST_SPHERE, failing, learned.spec.waived(learned, Data(Z))) == ()


def test_the_threshold_of_halves_is_below_that_of_fits_to_the_same_samples():
    halves = Agreement(HALVES, "R²", (0.85,), 0.0)
    assert dataclasses.replace(WELL, agreement=[GOOD, halves]).reasons == ()
    assert dataclasses.replace(WELL, agreement=[dataclasses.replace(halves, values=(0.75,))]).reasons != ()


def test_a_verdict_is_not_listed_as_trust():
    texts = Audit("", theory.CLASSIFY_FREE, [verdict(theory.VMF_CLUSTERS, "holds")]).not_shown
    assert not any("vMF clusters" in text for text in texts)
    assert sum(text.startswith("taken on trust") for text in texts) == 3


def test_a_score_is_good_above_chance_and_a_leak_at_chance():
    assert AuditScore("", 0.9, 0.5, 0.001).good
    assert not AuditScore("", 0.9, 0.5, 0.2).good
    assert not AuditScore("", 0.9, 0.5, 0.001, leak=True).good
    assert AuditScore("", 0.52, 0.5, 0.2, leak=True).good


def classes_beside_other_latents(seed, n=1_000, *, shuffled=False):
    """Return a fit to classes that speak of three latents, where X holds three more; and its audit."""
    rng = np.random.default_rng(seed)
    sample = Clusters.on_sphere(3, 8, 20.0, random_state=seed).sample(n, random_state=seed + 1)
    x = np.hstack([sample.x.numpy(), rng.normal(size=(n, 3))]) @ rng.normal(size=(6, 6))
    labels = rng.permutation(sample.u.numpy()) if shuffled else sample.u.numpy()
    est = Classify(
        3, max_iter=120, batch_size=256, trainer=Trainer(validation_fraction=0.0), verbose=False, random_state=seed
    ).fit(x, labels)
    return audit(est, x, labels, n_fits=2, random_state=seed)


def test_where_x_holds_more_than_a_label_speaks_of_fits_agree_and_no_latent_is_claimed():
    found = classes_beside_other_latents(0, n=6_000)
    assert found.theorem == theory.ROEDER
    assert found.claims
    assert "the latents behind X are not claimed" in found.claim
    assert "latents are recovered" not in found.claim
    told = next(verdict for verdict in found.verdicts if verdict.assumption == conditions.STRUCTURE_KEPT)
    assert told.outcome == "fails"
    assert "R² after a linear map" in found.claim


def two_classes(seed, *, shuffled=False):
    """Return the direction in which two classes of few rows differ, a fit to them, and its audit."""
    rng, labels = np.random.default_rng(seed), np.arange(300) % 2
    z = rng.normal(size=(300, 6)) + labels[:, None] * [3, 0, 0, 0, 0, 0]
    x, told = z @ rng.normal(size=(6, 6)), rng.permutation(labels) if shuffled else labels
    est = Classify(1, max_iter=60, trainer=Trainer(validation_fraction=0.0), verbose=False, random_state=seed).fit(
        x, told
    )
    return z[:, 0], est.transform(x)[:, 0], audit(est, x, told, n_fits=2, random_state=seed)


@pytest.mark.slow
def test_where_fits_put_rows_in_one_order_and_differ_in_how_far_apart_the_order_is_claimed():
    worlds = [two_classes(seed) for seed in range(4)]
    assert all(abs(spearmanr(true, codes)[0]) > 0.8 for true, codes, _ in worlds)
    claimed = [found.claim for *_, found in worlds if "an increasing or decreasing function" in found.claim]
    assert len(claimed) >= 2  # in one simulation of eight refits differ in the order, too
    assert all("no latents behind X are claimed" in claim for claim in claimed)
    assert not two_classes(0, shuffled=True)[-1].claims


def test_less_is_spoken_of_by_its_own_words():
    first = leading_part(Part(theory.ROEDER, ()), 2, 3, warped=False)
    assert first.theorem.indeterminacy == theory.LINEAR
    assert first.rest == "fits differ in the other 1 direction; no latents behind X are claimed"
    predicted = predictions_part(Part(theory.ROEDER, (verdict(theory.INDEPENDENT_DIFFERENCES, "fails"),)))
    assert not predicted.theorem.indeterminacy.allows
    assert theory.INDEPENDENT_DIFFERENCES not in predicted.theorem.assumes
    assert predicted.verdicts == ()


def test_what_leaves_nothing_open_is_compared_as_it_is():
    as_it_is = measure_for(theory.IDENTITY)
    assert as_it_is(Z, Z) == 1
    assert as_it_is(Z, 2 * Z) < 0.8
    assert as_it_is(Z, Z[::-1]) < 0
    assert np.sign(as_it_is(Z, np.broadcast_to(Z.mean(0), Z.shape))) == -1


@pytest.mark.slow
def test_nothing_is_claimed_of_classes_of_other_rows():
    assert not any(classes_beside_other_latents(seed, shuffled=True).claims for seed in range(1, 41))
