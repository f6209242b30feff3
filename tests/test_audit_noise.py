"""Noise and blocks in the audit: what is claimed of noisy columns is true, and of pairs only what positives share."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pindown import Contrast, audit, theory
from pindown.auditing.agreement import shared_block
from pindown.auditing.checks.noise import Band, Moved, ceiling_within, linear_ceiling, matched_ceiling, noise_of
from pindown.auditing.result import Audit
from pindown.data.data import Data
from pindown.metrics import linear_r2, mcc, recovery_by_level
from pindown.networks.spaces import Reals
from pindown.simulate.mixing import leaky_relu_mlp

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the simulations of the table are those of the test
from noise_bands import CASES

may_warn = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")


def rng(seed=0):
    return np.random.default_rng(seed)


# ---- ceilings, by arithmetic ----------------------------------------------------------------------------------------


def noisy_latents(share, n=20_000):
    """Return latents, latents that are a turned image of them with noise, and latents with noise once more."""
    z = rng().normal(size=(n, 3))
    turn, _ = np.linalg.qr(rng(1).normal(size=(3, 3)))
    size = np.sqrt(share / (1 - share))
    latents = (z + size * rng(2).normal(size=z.shape)) @ turn
    return z, Moved(latents, tuple(latents + size * rng(3 + k).normal(size=z.shape) @ turn for k in range(4)))


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_ceiling_of_a_linear_map_is_what_latents_score(share):
    z, found = noisy_latents(share)
    assert linear_ceiling(found).value == pytest.approx(linear_r2(found.latents, z), abs=0.02)
    assert linear_ceiling(found).value == pytest.approx(1 - share, abs=0.02)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_ceiling_of_matched_latents_is_what_they_score(share):
    z = rng().normal(size=(20_000, 2))
    size = np.sqrt(share / (1 - share))
    latents = z + size * rng(1).normal(size=z.shape)
    found = Moved(latents, (latents + size * rng(2).normal(size=z.shape),))
    assert matched_ceiling(found).value == pytest.approx(mcc(latents, z), abs=0.02)  # √(1 − share)


def test_the_ceiling_within_values_is_what_latents_score_there():
    z, found = noisy_latents(0.3, n=2_000)
    values = np.arange(2_000) % 3
    true = min(recovery_by_level(found.latents, z, values).values())
    assert ceiling_within(found, values).value == pytest.approx(true, abs=0.06)


def test_noise_that_may_leave_nothing_is_a_reason_not_to_claim():
    band = Band("R²", 0.05, 0.3, ceiling=0.2, noise=0.9)
    assert any("next to nothing" in reason for reason in Audit("", theory.ROEDER, band=band).reasons)


def test_features_without_noise_have_none_whether_linear_or_not():
    z = rng().normal(size=(1_000, 3))
    assert noise_of(z @ rng(1).normal(size=(3, 40))).is_nil
    assert noise_of(leaky_relu_mlp(3, random_state=0)(torch.as_tensor(z)).numpy()).is_nil


# ---- whole audits ---------------------------------------------------------------------------------------------------


def audited(case, seed):
    est, x, y, z = case.make(seed, case.share, case.shuffled)
    est.set_params(random_state=seed, verbose=False, device="cpu").fit(x, y)
    return audit(est, Data(x, truth=z, **({} if y is None else {est.spec.roles.y: y})), n_fits=2, random_state=seed)


QUICK = [case for case in CASES if case.share == 0.3 and case.world in ("labels", "nuisance")]


@may_warn
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.world)
def test_noisy_simulations_give_a_claim_whose_band_holds_the_true_score(case):
    found = audited(case, 2)
    assert found.noise == pytest.approx(case.share, abs=0.05)
    true = next(score.value for score in found.recovery if score.name == found.band.score)
    assert found.band.holds(true)
    assert found.band.high - found.band.low < 0.35  # or it would say little
    assert found.reasons == ()
    assert str(found.band) in found.claim
    assert theory.FEATURE_NOISE.name in found.claim.split(", then ")[0]


@may_warn
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.world}, {case.share:.0%}")
def test_all_noisy_simulations_give_true_bands_and_shuffled_ones_no_claim(case):
    found = audited(case, 1)
    if case.shuffled:
        assert not found.claims
    else:
        true = next(score.value for score in found.recovery if score.name == found.band.score)
        assert found.band.low - 0.03 <= true <= found.band.high + 0.03  # one simulation of twenty may lie outside


# ---- blocks ---------------------------------------------------------------------------------------------------------


def recurring(n_shared, *, shuffled=False, n=1_600, d=5, seed=1):
    """Return rows and positives of which some latents are nearly the same, and the others are drawn again."""
    z, other = rng(seed).normal(size=(2, n, d))
    other[:, :n_shared] = 0.95 * z[:, :n_shared] + np.sqrt(1 - 0.95**2) * other[:, :n_shared]
    mixing = leaky_relu_mlp(d, random_state=seed)
    x, partners = (mixing(torch.as_tensor(latents)).numpy() for latents in (z, other))
    return x, rng(seed + 1).permutation(partners) if shuffled else partners, z


@may_warn
@pytest.mark.parametrize(("n_shared", "shuffled"), [(3, False), (5, False), (3, True)])
@pytest.mark.slow
def test_positives_that_share_three_of_five_latents_give_a_claim_of_a_block_of_three(n_shared, shuffled):
    x, partners, z = recurring(n_shared, shuffled=shuffled)
    est = Contrast(5, space=Reals(), max_iter=150, batch_size=256, verbose=False, random_state=0).fit(x, partners)
    found = audit(est, x, partners, n_fits=2, random_state=0)
    assert found.claims != shuffled
    if shuffled or n_shared == 5:
        assert found.block is None
        assert shuffled or found.theorem == theory.CONTRAST_METRIC
        return
    assert found.block.n_shared == 3
    assert found.theorem.name == "contrast-content"
    assert "the block of 3 directions of the latents that positives share is recovered" in found.claim
    assert "the other 2 directions of the latents are not recovered" in found.claim
    latents, alone = est.transform(x), np.zeros(len(x), dtype=int)
    assert recovery_by_level(latents, z[:, :3], alone)[0] > 0.9 > 0.6 > recovery_by_level(latents, z[:, 3:], alone)[0]


def test_unrelated_positives_share_no_block():
    first, second = rng().normal(size=(2, 400, 4))
    assert shared_block([(first, second)], rng(1)) is None
