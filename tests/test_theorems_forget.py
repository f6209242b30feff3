"""The theorems of `Forget`: their assumptions hold and latents are blind and keep the rest; one breaks, and they leak.

All scores are held-out, and leakage is read by probes trained afterwards. Each test runs with one seed by default;
``pytest -m slow`` runs the others.
"""

from functools import cache, partial

import numpy as np
import pytest
import torch
from pindown_papers.simulations import ShapeNuisance
from scipy.linalg import subspace_angles

from pindown import Forget, networks, theory
from pindown.errors import IdentifiabilityWarning
from pindown.methods.forget import LinearErasure, adversarial, linear_erasure
from pindown.metrics import PROBES, Effort, effective_rank, leakage, recovery_by_level
from pindown.simulate import Nuisance
from pindown.training import Trainer

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
READERS = [probe for probe in PROBES if probe.name in ("linear", "quadratic", "network")]


def angle(rows, basis):
    """Return the largest principal angle between a row space and a column space, in degrees."""
    return np.degrees(subspace_angles(np.asarray(rows).T, np.asarray(basis)).max())


def worst(Z, e):
    return leakage(Z, e, probes=READERS, effort=Effort(n_seeds=1, n_permutations=19), random_state=0).worst


def split(world, seed):
    """Training and test sample."""
    return world.sample(10_000, random_state=100 + seed), world.sample(6_000, random_state=200 + seed)


def fitted(train, seed, n_components=None, **parameters):
    parameters = {
        "random_state": seed,
        "device": "cpu",
        "max_iter": 300,
        "trainer": Trainer(validation_fraction=0.0),
    } | parameters
    return Forget(n_components, **parameters).fit(train.x, train.u)


# forget: clusters, linear encoder


@cache
def clusters(seed):
    world = Nuisance.on_sphere(8, 4, 10.0, n_layers=1, random_state=seed)
    return world, *split(world, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_linear_encoder_lands_in_the_complement_of_v_and_is_blind(seed):
    world, train, test = clusters(seed)
    forget = fitted(train, seed, encoder=networks.linear)
    assert forget.guarantee is theory.FORGET
    assert forget.n_components_ == world.d == 5
    closed = angle(LinearErasure().fit(train.x, train.u).components_, world.invariant_space)
    assert angle(forget.components_, world.invariant_space) < 1.2 * closed + 0.4
    Z = forget.transform(test.x)
    assert worst(test.x, test.u) > 0.7
    assert worst(Z, test.u) < worst(test.z, test.u) + 0.03
    assert min(recovery_by_level(Z, test.z, test.u).values()) > 0.98


@pytest.mark.parametrize("seed", SEEDS)
def test_one_latent_more_than_the_complement_has_dimensions_leaks_with_a_warning(seed):
    _, train, test = clusters(seed)
    with pytest.warns(IdentifiabilityWarning, match="n_components=6"):
        forget = fitted(train, seed, 6, encoder=networks.linear)
    assert worst(forget.transform(test.x), test.u) > worst(test.z, test.u)


@pytest.mark.parametrize("seed", SEEDS)
def test_adversarial_training_finds_the_complement_from_a_random_initialisation_only_with_reversal(seed, monkeypatch):
    world, train, _ = clusters(seed)
    anywhere = np.linalg.qr(np.random.default_rng(seed).normal(size=(8, 5))).Q.T
    monkeypatch.setattr(linear_erasure.Directions, "keep", lambda self, n: anywhere)
    # The rate is the one it takes to come from afar.
    played = fitted(train, seed, encoder=networks.linear, learning_rate=1e-2, max_iter=1_000)
    unmoved = fitted(train, seed, encoder=networks.linear, strength=0.0, max_iter=20)
    assert angle(unmoved.components_, world.invariant_space) > 20
    assert angle(played.components_, world.invariant_space) < 10


# the same theorem's limit: equal means


@cache
def shapes(seed):
    world = ShapeNuisance.spread(8, 3, 3, random_state=seed)
    return world, *split(world, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_means_agree_and_spreads_differ_projection_leaks_and_forget_does_not(seed):
    world, train, test = shapes(seed)
    assert theory.NUISANCE_VMF not in world.assumptions
    forget = fitted(train, seed, encoder=networks.linear)
    assert (forget.n_components_, forget.n_nuisance_directions_) == (5, (0, 3))
    assert angle(forget.components_, world.invariant_space) < 5
    assert worst(forget.transform(test.x), test.u) < worst(test.z, test.u) + 0.03
    assert worst(LinearErasure().fit(train.x, train.u).transform(test.x), test.u) > 1 / 3 + 0.1


# forget-nonlinear: a latent that can bend, behind a mixing that is not linear


@cache
def bent(seed):
    world = Nuisance.on_sphere(5, 2, 10.0, n_layers=2, random_state=seed)
    return world, *split(world, seed)


small = partial(networks.skip_mlp, hidden=(64, 64))


def bending(train, seed, **parameters):
    return fitted(train, seed, encoder=small, decoder=small, max_iter=800, batch_size=256, **parameters)


@pytest.mark.parametrize("seed", SEEDS)
def test_behind_a_nonlinear_mixing_a_nonlinear_encoder_removes_what_a_linear_one_leaks(seed):
    world, train, test = bent(seed)
    forget = bending(train, seed)
    assert forget.guarantee is theory.FORGET_NONLINEAR
    assert forget.n_components_ == world.d == 4
    Z, floor = forget.transform(test.x), worst(test.z, test.u)
    assert worst(Z, test.u) < floor + 0.05
    assert worst(LinearErasure().fit(train.x, train.u).transform(test.x), test.u) > floor + 0.02
    assert min(recovery_by_level(Z, test.z, test.u).values()) > 0.9
    assert effective_rank(Z) > 3.5


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_without_reversal_a_nonlinear_encoder_leaks(seed):
    _, train, test = bent(seed)
    autoencoder = bending(train, seed, strength=0.0)
    assert worst(autoencoder.transform(test.x), test.u) > worst(test.z, test.u) + 0.02


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("part", ["the game", "the distance"])
def test_adversarial_training_and_energy_distance_remove_together_what_neither_removes_alone(part, seed, monkeypatch):
    world = Nuisance.on_sphere(6, 3, 10.0, n_layers=2, random_state=seed)
    train, test = world.sample(20_000, random_state=100 + seed), world.sample(12_000, random_state=200 + seed)

    def told():
        codes = fitted(train, seed, encoder=networks.skip_mlp, max_iter=2_000).transform(test.x)
        return leakage(codes, test.u, effort=Effort(n_seeds=1, n_permutations=19), random_state=0).worst

    both = told()
    if part == "the game":
        monkeypatch.setattr(adversarial, "ENERGY_WEIGHT", 0.0)
    else:
        monkeypatch.setattr(adversarial, "reverse_gradient", lambda z, strength: z.detach())
    assert told() > both + 0.02


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shuffled_nuisance_is_not_forgotten(seed):
    _, train, test = clusters(seed)
    order = torch.randperm(len(train.u), generator=torch.Generator().manual_seed(seed))
    forget = fitted(train._replace(u=train.u[order]), seed, 5, encoder=networks.linear, max_iter=100)
    assert forget.n_nuisance_directions_ == (0, 0)
    assert worst(forget.transform(test.x), test.u) > 0.5
