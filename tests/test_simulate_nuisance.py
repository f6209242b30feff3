import pytest
import torch
from pindown_papers.simulations import Confounded, Projected, ShapeNuisance
from scipy import stats

from pindown import theory
from pindown.simulate import Clusters, Nuisance
from pindown.simulate.distributions import VonMisesFisher, laplace
from pindown.simulate.mixing import identity, leaky_relu_mlp

G = leaky_relu_mlp(4, n_candidates=200, random_state=0)


def named(process):
    return type(process).__name__


def test_the_nuisance_space_and_its_complement_are_an_orthonormal_basis_with_equal_class_vectors_off_v():
    process = Nuisance.on_sphere(6, 3, 10.0, random_state=0)
    basis = torch.cat([process.nuisance_space, process.complement], 1)
    assert (process.nuisance_space.shape, process.d) == ((6, 2), 4)
    torch.testing.assert_close(basis.T @ basis, torch.eye(6).double())
    off = process.clusters.vectors @ process.complement
    torch.testing.assert_close(off, off[:1].expand(3, 4))


def test_what_survives_is_independent_of_the_nuisance_and_the_rest_is_not():
    process = Nuisance.on_sphere(5, 2, 10.0, random_state=0)
    x, z, u, *_ = process.sample(20_000, random_state=0)
    a = process.clusters.mixing.inverse(x)
    torch.testing.assert_close(a @ process.complement.float(), z, atol=1e-4, rtol=0)
    for column in z.T:
        assert stats.ks_2samp(column[u == 0].numpy(), column[u == 1].numpy()).pvalue > 0.01
    touched = (a @ process.nuisance_space.float())[:, 0]
    assert stats.ks_2samp(touched[u == 0].numpy(), touched[u == 1].numpy()).pvalue < 1e-9


def test_only_a_vmf_nuisance_is_claimed_to_leave_its_complement_alone():
    vmf = Nuisance.on_sphere(4, 2, 10.0, random_state=0)
    claims = {theory.NUISANCE_VMF, theory.NUISANCE_INDEPENDENT}
    assert claims <= vmf.assumptions
    other = Nuisance(Clusters(vmf.clusters.vectors, Projected(laplace(0.3)), vmf.clusters.mixing))
    assert not claims & other.assumptions


def test_equal_nuisance_vectors_touch_nothing():
    v = torch.eye(4)[:1].expand(3, 4).clone()
    assert Nuisance(Clusters(v, VonMisesFisher(1.0), G)).d == 4


def test_values_of_a_nuisance_can_be_unequally_frequent():
    process = Nuisance.on_sphere(6, 3, 10.0, weights=(10.0, 1.0, 1.0), random_state=0)
    assert abs((process.sample(20_000, random_state=0).u == 0).float().mean().item() - 10 / 12) < 0.02


@pytest.mark.parametrize(
    "process",
    [Nuisance.on_sphere(6, 3, 10.0, n_layers=1, random_state=0), ShapeNuisance.spread(6, 2, 3, random_state=0)],
    ids=named,
)
def test_the_invariant_space_of_a_linear_mixing_reads_the_surviving_latents_off_the_observations(process):
    sample = process.sample(2_000, random_state=0, dtype=torch.float64)
    latents = sample.x @ process.invariant_space
    fitted = latents @ torch.linalg.lstsq(latents, sample.z).solution
    torch.testing.assert_close(fitted, sample.z, atol=1e-8, rtol=0)
    others = sample.x[:, : process.d]  # as many columns, but not blind ones
    assert (others @ torch.linalg.lstsq(others, sample.z).solution - sample.z).abs().mean() > 0.02


def test_a_shape_nuisance_keeps_means_and_changes_spreads_of_what_it_touches():
    sample = ShapeNuisance(torch.tensor([[1.0], [3.0]]), identity(3)).sample(50_000, random_state=0)
    for e, spread in ((0, 1.0), (1, 3.0)):
        of_value = sample.x[sample.u == e]
        assert (of_value.mean(0).abs() / of_value.std(0)).max() * len(of_value) ** 0.5 < 5
        assert torch.allclose(of_value.std(0), torch.tensor([1.0, 1.0, spread]), atol=0.05)


def test_a_confounded_label_moves_what_the_nuisance_does_not_and_goes_with_it():
    joint = torch.tensor([[3.0, 1.0], [0.0, 4.0]])
    process = Confounded(torch.tensor([[0.0, 0.0], [5.0, 0.0]]), torch.tensor([[0.0], [7.0]]), joint, identity(3))
    x, z, u, _, _, label = process.sample(40_000, random_state=0)
    counts = torch.stack([((label == c) & (u == e)).float().mean() for c in (0, 1) for e in (0, 1)])
    assert torch.allclose(counts, joint.flatten() / 8, atol=0.01)
    assert torch.equal(z, x[:, :2])
    for e in (0, 1):
        of_cell = x[(label == 0) & (u == e)].mean(0)
        assert torch.allclose(of_cell, torch.tensor([0.0, 0.0, 7.0 * e]), atol=0.06)  # given the label, z is as ever
    assert theory.NUISANCE_INDEPENDENT not in process.assumptions
    assert z[u == 1, 0].mean() - z[u == 0, 0].mean() > 2  # without it, z goes with the nuisance
