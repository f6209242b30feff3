"""Simulations of sparse activations: the frequencies, supports and atoms that they say they have."""

import math

import pytest
import torch
from pindown_papers.simulations import Hierarchy, like_language

from pindown import theory
from pindown.simulate import BernoulliGaussian, KSparse, Superposed
from pindown.simulate.structured import atoms

CPU = torch.device("cpu")


def drawn(distribution, n=20_000):
    return distribution.draw(n, torch.Generator().manual_seed(0), CPU, torch.float32)


@pytest.mark.parametrize("distribution", [BernoulliGaussian(30, 0.1), KSparse(30, 4), Hierarchy(512, n_roots=4)])
def test_latents_fire_as_often_as_their_law_says(distribution):
    found, expected = (drawn(distribution) != 0).double().mean(0), distribution.frequency
    errors = (expected * (1 - expected) / 20_000).sqrt()
    assert ((found - expected).abs() < 5.5 * errors).all()
    assert distribution.n_active == pytest.approx(expected.sum().item())


def test_a_child_never_fires_without_its_parent_and_roots_fire_alone():
    distribution = Hierarchy(512, n_roots=4, branching=3, depth=2)
    fires, child = drawn(distribution) > 0, distribution.parent >= 0
    assert int(child.sum()) == 4 * (3 + 9)
    assert not (fires[:, child] & ~fires[:, distribution.parent[child]]).any()
    first = int(torch.nonzero(child)[0])
    assert (fires[:, distribution.parent[first]] & ~fires[:, first]).any()


def test_frequencies_fall_by_zipf_from_the_commonest_to_the_rarest():
    often = Hierarchy(16_384).frequency
    assert often[0].item() == pytest.approx(0.4)
    assert often[-1].item() == pytest.approx(5e-4)
    slopes = often.log().diff() / torch.arange(1, 16_385, dtype=torch.float64).log().diff()
    assert slopes.std().item() < 1e-6


def test_common_factors_make_latents_fire_together():
    together, alone = Hierarchy(64, depth=0, rank=1, correlation=0.5, rarest=0.1), Hierarchy(64, depth=0, correlation=0)
    size = [
        torch.corrcoef((drawn(distribution) > 0).float().T).fill_diagonal_(0).abs().mean().item()
        for distribution in (together, alone)
    ]
    assert size[0] > 0.1 > 0.02 > size[1]


def test_observations_are_atoms_times_latents_an_offset_and_noise():
    process = Superposed.overcomplete(40, 10, n_active=3, offset=2.0, noise=0.1, random_state=0)
    x, z = process.sample(20_000, random_state=1)[:2]
    rest = x - z @ process.dictionary
    assert rest.std(0).mean().item() == pytest.approx(0.1, rel=0.02)
    assert rest.mean(0).norm().item() == pytest.approx(2 * math.sqrt(3), rel=0.02)


def test_atoms_have_unit_length_and_the_coherence_that_was_requested():
    assert torch.allclose(atoms(50, 20, random_state=0).norm(dim=1), torch.ones(50))
    assert Superposed(atoms(40, 400, coherence=0.8, random_state=0), KSparse(40, 1)).coherence == pytest.approx(
        0.8, abs=0.1
    )


def test_what_simulations_promise():
    complete = Superposed.complete(8, random_state=0).assumptions
    assert complete >= {theory.SPARSE_COMBINATION, theory.INDEPENDENT_ATOMS, theory.SCATTERED_ACTIVATIONS}
    wide = Superposed.overcomplete(64, 16, n_active=3, random_state=0).assumptions
    assert theory.INDEPENDENT_ATOMS not in wide
    assert theory.SPARSE_COMBINATION not in Superposed.complete(8, noise=0.1, random_state=0).assumptions
    assert theory.SCATTERED_ACTIVATIONS not in Superposed.complete(8, probability=1.0, random_state=0).assumptions
    assert theory.SCATTERED_ACTIVATIONS not in like_language(256, 16, random_state=0).assumptions
    one = Superposed(torch.eye(4), KSparse(4, 1))
    assert theory.FEWER_THAN_SPARK in one.assumptions  # orthogonal atoms
    assert theory.FEWER_THAN_SPARK not in Superposed(atoms(8, 4, coherence=0.9), KSparse(8, 2)).assumptions
