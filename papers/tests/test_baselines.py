import math

import numpy as np
import pytest
import torch
from pindown_papers.baselines import AdaGVAE, BetaVAE, DisCo, FactorVAE, Flow, SlowVAE
from pindown_papers.baselines.divergences import Posterior, Slow, TotalCorrelation, Weighed, adapted, kl
from pindown_papers.simulations import Room, Sprites, well_separated
from scipy import integrate, stats

from pindown import audit, disentangle, load
from pindown.errors import IdentifiabilityWarning, InputError
from pindown.losses import DependencySparsity
from pindown.metrics import linear_r2, mcc

SUPPORT = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]])
QUICK = {"max_iter": 10, "batch_size": 32, "random_state": 0, "device": "cpu", "verbose": False}
ALONE, PAIRED = (BetaVAE, DisCo, FactorVAE, Flow), (SlowVAE, AdaGVAE)


@pytest.fixture(scope="module")
def simulation():
    return well_separated(SUPPORT, random_state=0)


@pytest.fixture(scope="module")
def plain(simulation):
    return BetaVAE(3, beta=1, max_iter=500, random_state=0, device="cpu").fit(
        simulation.sample(3_000, random_state=1).x
    )


# ---- manners of all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*ALONE, *PAIRED])
@pytest.mark.parametrize("shape", [(6,), (3, 8, 8)])
@pytest.mark.slow
def test_each_fits_encodes_decodes_samples_and_is_saved(kind, shape, tmp_path):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(120, *shape, generator=rng)
    if len(shape) == 3:
        x = Sprites(8, factors=("x", "hue"))(torch.rand(120, 2, generator=rng)) + 0.1 * x
    est = kind(2, **QUICK).fit(x, x + 0.1) if kind in PAIRED else kind(2, **QUICK).fit(x)
    codes = est.transform(x)
    assert codes.shape == (120, 2)
    assert est.inverse_transform(codes).shape == x.shape
    assert est.sample(3, random_state=0).shape == (3, *shape)
    assert math.isfinite(est.score(x))
    assert est.guarantee is None
    est.save(tmp_path / "fit.pindown")
    assert torch.equal(load(tmp_path / "fit.pindown", trust=[kind]).transform(x), codes)


@pytest.mark.parametrize("kind", [BetaVAE, DisCo, FactorVAE])
def test_a_penalty_is_taken_along(kind, simulation):
    x = simulation.sample(200, random_state=1).x
    est = kind(3, penalty=DependencySparsity(5.0, n_columns=1), **QUICK | {"max_iter": 20}).fit(x)
    without = kind(3, **QUICK | {"max_iter": 20}).fit(x)
    assert not torch.equal(est.transform(x), without.transform(x))


def test_latents_of_hues_stay_folded_without_the_isomap_initialisation():
    rng, hues = torch.Generator().manual_seed(0), ("floor_hue", "wall_hue", "object_hue")
    z = torch.rand(1_500, 3, generator=rng)
    x = Room(8, factors=hues, fixed={"shape": 0}, samples=1)(z)
    options = QUICK | {"max_iter": 60, "batch_size": 64}
    held = {}
    for unrolled in (True, False):
        est = BetaVAE(3, beta=1, unrolled=unrolled, **options).fit(x[:1_000])
        held[unrolled] = linear_r2(est.transform(x[1_000:]), z[1_000:])
    assert held[True] > 0.91  # .975 to .979 of seeds 0 to 3
    assert held[False] < 0.7  # .563 to .602


def test_rows_without_positives_go_with_the_next(simulation):
    x = simulation.sample(100, random_state=1).x
    assert SlowVAE(3, **QUICK).fit(x).transform(x).shape == (100, 3)


# ---- a plain autoencoder is turned by its Jacobian ----------------------------------------------------


def test_a_trained_autoencoder_is_disentangled_without_training(plain, simulation):
    test = simulation.sample(3_000, random_state=2)
    evenly = torch.tensor([[2.0, -1.0, 2.0], [2.0, 2.0, -1.0], [-1.0, 2.0, 2.0]]) / 3  # each axis into all
    codes, back = plain.transform(test.x).float() @ evenly, torch.nn.Linear(3, 3, bias=False)
    back.weight.data = evenly
    found = disentangle(torch.nn.Sequential(back, plain.decoder_.float()), codes.numpy())
    assert mcc(codes.numpy() @ found.unmixing, test.z) > mcc(codes, test.z)
    assert found.after <= found.before


def test_directions_rotate_latents_and_leave_the_generator_as_it_was(simulation):
    x = simulation.sample(300, random_state=1).x
    est = DisCo(3, **QUICK | {"max_iter": 20}).fit(x)
    turn = est.directions_
    np.testing.assert_allclose(turn.T @ turn, np.eye(3), atol=1e-5)
    assert np.abs(turn - np.eye(3)).max() > 0.01  # they were looked for
    codes, bound = est.transform(x).numpy(), est.score(x)
    rebuilt = est.inverse_transform(codes)
    with torch.no_grad():
        est.objective_.turn.angles.zero_()
    np.testing.assert_allclose(codes, est.transform(x).numpy() @ turn, atol=1e-5)
    np.testing.assert_allclose(rebuilt, est.inverse_transform(codes @ turn.T), atol=1e-4)
    assert est.score(x) == pytest.approx(bound, rel=1e-6)


# ---- divergences, by hand -----------------------------------------------------------------------------


def posterior(mean, std):
    return Posterior(torch.tensor([mean]), torch.tensor([std]).log())


def test_beta_weighs_the_divergence():
    one = posterior([1.0, 0.0], [1.0, 0.5])
    by_hand = 0.5 + 0.5 * (0.25 - 1) + math.log(2)
    assert kl(one).sum().item() == pytest.approx(by_hand)
    assert Weighed(4.0)((one,), (), torch.zeros(1, 2)).item() == pytest.approx(4 * by_hand)


def test_a_slow_step_costs_what_an_integral_says():
    first, second = posterior([0.2], [0.5]), posterior([1.0], [0.3])
    law, step = stats.norm(1.0, 0.3), stats.laplace(0.2, 1 / 6)
    expected, _ = integrate.quad(lambda z: law.pdf(z) * (law.logpdf(z) - step.logpdf(z)), -1, 3, points=[0.2])
    cost = Slow(beta=2.0, gamma=10.0, rate=6.0)((first, second), (), torch.zeros(1, 1)).item()
    assert cost == pytest.approx(2 * kl(first).item() + 10 * expected, rel=1e-5)


def test_latents_in_which_views_agree_are_averaged():
    first, second = posterior([0.0, 0.0, 1.0], [1.0, 1.0, 1.0]), posterior([0.2, 4.0, 1.0], [1.0, 1.0, 3.0])
    a, b = adapted(first, second)
    assert a.mean.tolist()[0] == pytest.approx([0.1, 0.0, 1.0])
    assert b.mean.tolist()[0] == pytest.approx([0.1, 4.0, 1.0])
    assert a.variance.tolist()[0] == pytest.approx([1.0, 1.0, 5.0])


def test_total_correlation_is_estimated_by_a_classifier_that_the_latents_do_not_train():
    divergence, n = TotalCorrelation(2, gamma=1.0), 500
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(n, 1, generator=rng).repeat(1, 2).requires_grad_()  # two latents that are the same
    optimiser = torch.optim.Adam(divergence.parameters(), lr=5e-3)
    law = Posterior(torch.zeros(n, 2), torch.zeros(n, 2))
    costs = []
    for _ in range(40):
        optimiser.zero_grad()
        cost = divergence((law,), (z,), torch.rand(n, 2, generator=rng))
        cost.backward()
        optimiser.step()
        costs.append(cost.item())
    assert costs[0] == pytest.approx(math.log(2), abs=0.2)  # tells nothing yet, guesses
    assert np.mean(costs[-3:]) > 1.4  # nats of correlation, of which there is no end
    assert z.grad.any()


# ---- reasons_not_to_claim -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("est", "message"),
    [
        (BetaVAE(2, beta=-1), "beta == -1"),
        (FactorVAE(2, gamma=-1), "gamma == -1"),
        (FactorVAE(2, gamma=math.nan), "gamma must be finite, got nan"),
        (SlowVAE(2, rate=0), "rate == 0"),
        (AdaGVAE(2, beta=math.inf), "beta must be finite"),
    ],
)
def test_weights_that_make_no_sense_are_refused(est, message):
    with pytest.raises(ValueError, match=message):
        est.fit(np.random.default_rng(0).normal(size=(50, 3)))


@pytest.mark.parametrize("kind", [*ALONE, *PAIRED])
def test_images_of_one_colour_are_refused(kind):
    with pytest.raises(ValueError, match=rf"^{kind.__name__}: X has 60 pictures that are all the same, such as"):
        kind(2, **QUICK).fit(np.full((60, 3, 8, 8), 0.3))


def test_a_collapsed_latent_is_named_and_its_generator_is_not_rotated():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1)) @ np.ones((1, 4)) + 0.3 * rng.normal(size=(300, 4))  # one latent, and noise
    with pytest.warns(IdentifiabilityWarning, match="collapsed"):
        est = BetaVAE(2, beta=8, **QUICK | {"max_iter": 150}).fit(x)
    idle = int(est.transform(x).std(0).argmin())
    decoder = torch.nn.Linear(2, 4)
    torch.nn.init.zeros_(decoder.weight[:, idle])
    with pytest.raises(ValueError, match=rf"latent\(s\) \[{idle}\]"):
        disentangle(decoder, est.transform(x))


def test_a_baseline_has_no_guarantee(plain, simulation):
    found = audit(BetaVAE(3, **QUICK).fit(x := simulation.sample(120, random_state=1).x), x, random_state=0)
    assert plain.guarantee is None
    assert "no theorem covers" in found.claim
    assert found.theorem is None


def test_what_cannot_be_learned_from_is_refused(plain):
    with pytest.raises(InputError) as error:
        BetaVAE(2, **QUICK).fit(np.ones((50, 3)))
    assert error.value.argument == "X"
    for penalty in (0.1, DependencySparsity):  # a number, a class
        with pytest.raises(TypeError, match="penalty"):
            BetaVAE(2, penalty=penalty, **QUICK).fit(np.random.default_rng(0).normal(size=(50, 3)))
    with pytest.raises(ValueError, match="columns"):
        plain.inverse_transform(np.zeros((4, 2)))
