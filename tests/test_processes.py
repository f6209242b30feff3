import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from pindown import theory
from pindown.distributions import (
    Around,
    GeneralizedNormal,
    Projected,
    Truncated,
    Uniform,
    VonMisesFisher,
    laplace,
    normal,
)
from pindown.mixing import identity, leaky_relu_mlp, orthogonal, smooth
from pindown.processes import Clusters, Nuisance, Pairs, Structured
from pindown.spaces import Box, Sphere

SUPPORT = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
G = leaky_relu_mlp(4, n_candidates=200, random_state=0)
CLUSTERS = Clusters(Sphere().uniform(3, 4, random_state=0), VonMisesFisher(10.0), G)
PROCESSES = [
    Pairs(Uniform(4), VonMisesFisher(5.0), G),
    Pairs(Uniform(4, Box()), Truncated(normal(0.05), Box()), G),
    CLUSTERS,
    Nuisance(CLUSTERS),
    Structured.from_support(SUPPORT, random_state=0),
]


def named(process):
    return type(process).__name__


def same(a, b):
    return all(p is q is None or torch.equal(p, q) for p, q in zip(a, b, strict=True))


# ---- every process ------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES, ids=named)
def test_samples_follow_the_seed_and_leave_the_global_generators_alone(process):
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = process.sample(40, random_state=0)
    assert same(first, process.sample(40, random_state=0))
    assert not torch.equal(first.x, process.sample(40, random_state=1).x)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize("process", PROCESSES, ids=named)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_have_the_asked_size_and_precision(process, dtype):
    sample = process.sample(7, random_state=0, dtype=dtype)
    assert sample.z.shape == (7, process.d)
    assert len(sample.x) == 7
    assert {sample.x.dtype, sample.z.dtype} == {dtype}
    assert sample.u is None or sample.u.dtype == torch.int64


@pytest.mark.parametrize("process", PROCESSES, ids=named)
def test_one_generator_gives_fresh_samples_each_time(process):
    rng = torch.Generator().manual_seed(0)
    assert not torch.equal(process.sample(5, random_state=rng).x, process.sample(5, random_state=rng).x)


@pytest.mark.parametrize("process", PROCESSES, ids=named)
def test_sampling_never_looks_at_a_value_so_it_never_waits_for_the_device(process):
    rng = torch.Generator().manual_seed(0)
    process.sample(6, random_state=rng)  # puts tables and constants in place, as before a CUDA graph
    with FakeTensorMode(allow_non_fake_inputs=True):  # a fake tensor has a shape, but no values
        sample = process.sample(6, random_state=rng)
        assert sample.z.shape == (6, process.d)
        with pytest.raises(DataDependentOutputException):
            sample.x.sum().item()
        with pytest.raises(DynamicOutputShapeException):
            sample.x[sample.x > 0]


@pytest.mark.parametrize("process", PROCESSES, ids=named)
def test_no_samples_are_refused(process):
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        process.sample(0)


@pytest.mark.parametrize("process", PROCESSES, ids=named)
def test_every_assumption_is_one_of_the_theory_s(process):
    assert process.assumptions <= set(theory.ASSUMPTIONS)


# ---- pairs --------------------------------------------------------------------------------------------


def test_pairs_are_seen_through_the_mixing_and_their_latents_follow_the_conditional():
    world = Pairs(Uniform(4), VonMisesFisher(10.0), G)
    x, z, u, x_pos, z_pos = world.sample(100_000, random_state=0)
    assert u is None
    torch.testing.assert_close(G.inverse(x), z, atol=1e-5, rtol=0)
    torch.testing.assert_close(G.inverse(x_pos), z_pos, atol=1e-5, rtol=0)
    cosine = (z * z_pos).sum(1)
    expected = special.ive(2, 10) / special.ive(1, 10)
    assert abs(cosine.mean().item() - expected) < 3 * cosine.std().item() / math.sqrt(100_000)
    # The partner of a uniform point is uniform: (1 + z_1)/2 ~ Beta(3/2, 3/2).
    assert stats.kstest((1 + z_pos[:, 0].numpy()) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 0.01


def test_pairs_in_a_box_stay_in_it_and_are_one_standard_deviation_apart():
    _, z, _, _, z_pos = Pairs.on_box(3, normal(0.05), random_state=0).sample(50_000, random_state=0)
    assert Box().contains(z_pos, tolerance=0)
    inner = ((z > 0.3) & (z < 0.7)).all(1)  # six deviations from the walls
    assert (z_pos - z)[inner].std().item() == pytest.approx(0.05, rel=0.02)


def test_the_worlds_of_the_papers_satisfy_the_assumptions_of_their_theorems():
    world = {theory.INJECTIVE_MIXING}
    sphere = Pairs.on_sphere(3, 5.0, random_state=0)
    assert sphere.assumptions == world | {theory.UNIFORM_SPHERE, theory.VMF_CONDITIONAL}
    box = Pairs.on_box(3, normal(0.05), random_state=0)
    assert box.assumptions == world | {theory.UNIFORM_CONVEX_BODY, theory.METRIC_CONDITIONAL}
    box = Pairs.on_box(3, laplace(0.05), random_state=0)
    assert box.assumptions == world | {
        theory.UNIFORM_CONVEX_BODY,
        theory.METRIC_CONDITIONAL,
        theory.LP_CONDITIONAL,
    }


def test_broken_assumptions_are_not_claimed():
    g = leaky_relu_mlp(3, n_candidates=10, random_state=0)
    around = Around((1.0, 0.0, 0.0), Projected(normal(1.0)))
    assert Pairs(around, Projected(laplace(0.05)), g).assumptions == {theory.INJECTIVE_MIXING}
    no_signal = Pairs(Uniform(3), VonMisesFisher(0.0), g)
    assert theory.VMF_CONDITIONAL not in no_signal.assumptions
    no_norm = Pairs(Uniform(3, Box()), Truncated(GeneralizedNormal(0.1, 0.5), Box()), g)
    assert theory.METRIC_CONDITIONAL not in no_norm.assumptions


@pytest.mark.parametrize(
    ("g", "diffeomorphic"),
    [(G, False), (orthogonal(4, random_state=0), True), (smooth(4, random_state=0), True)],
)
def test_only_a_mixing_without_kinks_is_called_diffeomorphic(g, diffeomorphic):
    held = Pairs(Uniform(4), VonMisesFisher(1.0), g).assumptions
    assert (theory.DIFFEOMORPHIC_MIXING in held) is diffeomorphic


def test_pairs_refuse_parts_that_do_not_fit():
    with pytest.raises(ValueError, match="latents have 3 dimensions, the mixing takes 4"):
        Pairs(Uniform(3), VonMisesFisher(1.0), G)
    with pytest.raises(ValueError, match=r"marginal lies in Box.*locations in Sphere"):
        Pairs(Uniform(4, Box()), VonMisesFisher(1.0), G)
    with pytest.raises(ValueError, match="Give both the same space"):
        Pairs(Uniform(4, Box()), Truncated(normal(0.1), Box(0.2, 0.8)), G)


# ---- clusters -----------------------------------------------------------------------------------------


def test_clusters_lie_around_their_class_vectors():
    sample = CLUSTERS.sample(60_000, random_state=0)
    torch.testing.assert_close(G.inverse(sample.x), sample.z, atol=1e-5, rtol=0)
    length = special.ive(2, 10) / special.ive(1, 10)
    for c, v in enumerate(CLUSTERS.vectors):
        torch.testing.assert_close(sample.z[sample.u == c].mean(0), length * v, atol=0.01, rtol=0)


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 5.0)])
def test_classes_come_with_their_weights(weights):
    world = Clusters(CLUSTERS.vectors, VonMisesFisher(1.0), G, weights)
    counts = world.sample(40_000, random_state=0).u.bincount(minlength=3).numpy()
    expected = np.array(weights or (1, 1, 1)) / sum(weights or (1, 1, 1)) * 40_000
    assert stats.chisquare(counts, expected).pvalue > 0.01


def test_clusters_on_the_sphere_satisfy_their_theorem_only_with_enough_classes():
    enough = Clusters.on_sphere(3, 4, 10.0, random_state=0)
    assert enough.assumptions == {theory.INJECTIVE_MIXING, theory.VMF_CLUSTERS, theory.AFFINE_GENERATORS}
    few = Clusters.on_sphere(3, 3, 10.0, random_state=0)
    assert theory.AFFINE_GENERATORS not in few.assumptions


def test_class_vectors_in_an_affine_hyperplane_generate_nothing():
    angle = torch.linspace(0, 6, 8)
    circle = torch.stack([angle.cos(), angle.sin(), torch.ones(8)], 1) / math.sqrt(2)
    held = Clusters(circle, VonMisesFisher(1.0), identity(3)).assumptions
    assert theory.AFFINE_GENERATORS not in held


@pytest.mark.parametrize(
    ("vectors", "weights", "message"),
    [
        (torch.ones(4), None, "one row per class"),
        (torch.eye(4, dtype=torch.int64), None, "floating-point matrix"),
        (2 * torch.eye(4), None, "Project them first"),
        (torch.eye(3), None, "mixing takes 4"),
        (torch.eye(4), (1.0, 1.0), "weights must be 4 positive numbers"),
        (torch.eye(4), (1.0, 1.0, 0.0, 1.0), "weights must be 4 positive numbers"),
    ],
)
def test_clusters_refuse_parts_that_do_not_fit(vectors, weights, message):
    with pytest.raises(ValueError, match=message):
        Clusters(vectors, VonMisesFisher(1.0), G, weights)


def test_one_class_is_no_side_information():
    with pytest.raises(ValueError, match="n_classes must be at least 2"):
        Clusters.on_sphere(3, 1, 1.0)


# ---- nuisance -----------------------------------------------------------------------------------------


def test_the_nuisance_space_and_its_complement_are_an_orthonormal_basis_with_equal_class_vectors_off_v():
    world = Nuisance.on_sphere(6, 3, 10.0, random_state=0)
    basis = torch.cat([world.nuisance_space, world.complement], 1)
    assert (world.nuisance_space.shape, world.d) == ((6, 2), 4)
    torch.testing.assert_close(basis.T @ basis, torch.eye(6).double())
    off = world.clusters.vectors @ world.complement
    torch.testing.assert_close(off, off[:1].expand(3, 4))


def test_what_survives_is_independent_of_the_nuisance_and_the_rest_is_not():
    world = Nuisance.on_sphere(5, 2, 10.0, random_state=0)
    x, z, u, *_ = world.sample(20_000, random_state=0)
    a = world.clusters.mixing.inverse(x)
    torch.testing.assert_close(a @ world.complement.float(), z, atol=1e-4, rtol=0)
    for column in z.T:
        assert stats.ks_2samp(column[u == 0].numpy(), column[u == 1].numpy()).pvalue > 0.01
    touched = (a @ world.nuisance_space.float())[:, 0]
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


def test_a_nuisance_that_leaves_nothing_alone_is_refused():
    with pytest.raises(ValueError, match=r"span all 3 dimensions.*at most as many as dimensions"):
        Nuisance.on_sphere(3, 4, 10.0, random_state=0)


# ---- structured ---------------------------------------------------------------------------------------


def test_structured_worlds_have_standard_normal_latents_and_the_given_support():
    world = Structured.from_support(SUPPORT, random_state=0)
    x, z, *_ = world.sample(50_000, random_state=0)
    assert np.array_equal(world.support, SUPPORT)
    torch.testing.assert_close(world.mixing(z), x)
    torch.testing.assert_close(z.T.cov(), torch.eye(3), atol=0.02, rtol=0)
    assert stats.kstest(z[:, 0].numpy(), stats.norm.cdf).pvalue > 0.01
    moved = world.mixing(z + torch.tensor([1.0, 0.0, 0.0])) != x
    assert np.array_equal(moved.all(0).numpy(), SUPPORT[:, 0] == 1)


def test_structured_worlds_claim_independent_latents_only_where_they_are():
    independent = {theory.POSITIVE_DENSITY, theory.INDEPENDENT_BLOCKS}
    world = Structured.from_support(SUPPORT, random_state=0)
    assert world.assumptions == independent
    assert Structured(world.mixing, Uniform(3)).assumptions == set()


def test_structured_worlds_refuse_a_marginal_that_does_not_fit():
    world = Structured.from_support(SUPPORT, random_state=0)
    with pytest.raises(ValueError, match="latents have 2 dimensions, the mixing takes 3"):
        Structured(world.mixing, Uniform(2))
