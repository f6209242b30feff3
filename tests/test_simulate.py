import math

import numpy as np
import pytest
import torch
from pindown_papers.simulations import (
    Confounded,
    Instances,
    Projected,
    ShapeNuisance,
    in_hyperplane,
    like_language,
    log_posterior,
    log_prob,
)
from scipy import special, stats
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from pindown import theory
from pindown.errors import InputError
from pindown.networks.spaces import Box, Sphere
from pindown.simulate import Clusters, Nuisance, Pairs, Structured, Superposed
from pindown.simulate.distributions import (
    Around,
    GeneralizedNormal,
    Truncated,
    Uniform,
    VonMisesFisher,
    laplace,
    normal,
)
from pindown.simulate.mixing import identity, leaky_relu_mlp, orthogonal, smooth

SUPPORT = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
G = leaky_relu_mlp(4, n_candidates=200, random_state=0)
CLUSTERS = Clusters(Sphere().uniform(3, 4, random_state=0), VonMisesFisher(10.0), G)
PROCESSES = [
    Pairs(Uniform(4), VonMisesFisher(5.0), G),
    Pairs(Uniform(4, Box()), Truncated(normal(0.05), Box()), G),
    CLUSTERS,
    Instances(CLUSTERS, 7),
    Nuisance(CLUSTERS),
    ShapeNuisance(torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]), G),
    Confounded(torch.eye(3), torch.tensor([[-1.0], [1.0]]), torch.tensor([[3.0, 1.0], [1.0, 2.0], [1.0, 1.0]]), G),
    Structured.from_support(SUPPORT, random_state=0),
    Superposed.complete(6, random_state=0),
    Superposed.overcomplete(12, 6, n_active=2, offset=1.0, noise=0.1, random_state=0),
    like_language(256, 16, random_state=0),
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
def test_samples_have_the_requested_size_and_precision(process, dtype):
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
def test_every_assumption_is_one_of_the_theory_s(process):
    assert process.assumptions <= set(theory.ASSUMPTIONS)


# ---- pairs --------------------------------------------------------------------------------------------


def test_pairs_are_seen_through_the_mixing_and_their_latents_follow_the_conditional():
    process = Pairs(Uniform(4), VonMisesFisher(10.0), G)
    x, z, u, x_pos, z_pos, _ = process.sample(100_000, random_state=0)
    assert u is None
    torch.testing.assert_close(G.inverse(x), z, atol=1e-5, rtol=0)
    torch.testing.assert_close(G.inverse(x_pos), z_pos, atol=1e-5, rtol=0)
    cosine = (z * z_pos).sum(1)
    expected = special.ive(2, 10) / special.ive(1, 10)
    assert abs(cosine.mean().item() - expected) / cosine.std().item() * math.sqrt(100_000) < 5
    # The positive of a uniform point is uniform: (1 + z_1)/2 ~ Beta(3/2, 3/2).
    assert stats.kstest((1 + z_pos[:, 0].numpy()) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 0.01


def test_pairs_in_a_box_stay_in_it_and_are_one_standard_deviation_apart():
    _, z, _, _, z_pos, _ = Pairs.on_box(3, normal(0.05), random_state=0).sample(50_000, random_state=0)
    assert Box().contains(z_pos, tolerance=0)
    inner = ((z > 0.3) & (z < 0.7)).all(1)  # six deviations from the walls
    assert (z_pos - z)[inner].std().item() == pytest.approx(0.05, rel=0.02)


def test_the_simulations_of_the_papers_satisfy_the_assumptions_of_their_theorems():
    process = {theory.INJECTIVE_MIXING}
    sphere = Pairs.on_sphere(3, 5.0, random_state=0)
    assert sphere.assumptions == process | {theory.UNIFORM_SPHERE, theory.VMF_CONDITIONAL}
    box = Pairs.on_box(3, normal(0.05), random_state=0)
    assert box.assumptions == process | {theory.UNIFORM_CONVEX_BODY, theory.METRIC_CONDITIONAL}
    box = Pairs.on_box(3, laplace(0.05), random_state=0)
    assert box.assumptions == process | {
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


# ---- clusters -----------------------------------------------------------------------------------------


def test_clusters_lie_around_their_class_vectors():
    sample = CLUSTERS.sample(60_000, random_state=0)
    torch.testing.assert_close(G.inverse(sample.x), sample.z, atol=1e-5, rtol=0)
    length = special.ive(2, 10) / special.ive(1, 10)
    for c, v in enumerate(CLUSTERS.vectors):
        torch.testing.assert_close(sample.z[sample.u == c].mean(0), length * v, atol=0.01, rtol=0)


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 5.0)])
def test_classes_come_with_their_weights(weights):
    process = Clusters(CLUSTERS.vectors, VonMisesFisher(1.0), G, weights)
    counts = process.sample(40_000, random_state=0).u.bincount(minlength=3).numpy()
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


# ---- class vectors ------------------------------------------------------------------------------------


CONDITIONALS = [VonMisesFisher(10.0), Projected(laplace(1.0)), Truncated(laplace(1.0), Box(-2, 2))]


@pytest.mark.parametrize(
    "distribution", [Uniform(4), *(Around((1.0, 0, 0, 0), Projected(p(1.0))) for p in (normal, laplace))]
)
@pytest.mark.parametrize("conditional", CONDITIONALS, ids=str)
def test_class_vectors_of_any_distribution_generate_as_long_as_they_are_spread(distribution, conditional):
    vectors = distribution.sample(20, random_state=0)
    assert theory.AFFINE_GENERATORS in Clusters(vectors, conditional, G).assumptions
    assert theory.AFFINE_GENERATORS not in Clusters(in_hyperplane(vectors), conditional, G).assumptions
    assert theory.AFFINE_GENERATORS not in Clusters(vectors[:4], conditional, G).assumptions


def test_only_vmf_clusters_are_called_so():
    vectors = Sphere().uniform(20, 4, random_state=0)
    distributions = [Projected(laplace(1.0)), Truncated(laplace(1.0), Box(-2, 2)), GeneralizedNormal(1.0, 1.5)]
    assert not any(
        theory.VMF_CLUSTERS in Clusters(vectors, distribution, G).assumptions for distribution in distributions
    )
    assert theory.VMF_CLUSTERS in Clusters(vectors, VonMisesFisher(1.0), G).assumptions


def test_vectors_in_a_hyperplane_are_unit_vectors_at_its_offset_in_their_old_direction():
    before = Sphere().uniform(50, 4, random_state=0, dtype=torch.float64)
    after = in_hyperplane(before, offset=-0.3)
    assert Sphere().contains(after, tolerance=1e-12)
    torch.testing.assert_close(after.sum(1) / 2, torch.full((50,), -0.3).double())  # along (1, 1, 1, 1)/2
    across = [v - v.mean(1, keepdim=True) for v in (before, after)]
    torch.testing.assert_close(*map(Sphere(), across))
    assert after.std(0).min() > 0.1  # no coordinate is constant


def test_truncated_clusters_stay_in_their_box_and_off_the_sphere():
    z = Clusters(CLUSTERS.vectors, Truncated(laplace(1.0), Box(-1.5, 1.5)), G).sample(2_000, random_state=0).z
    assert Box(-1.5, 1.5).contains(z, tolerance=0)
    assert not Sphere().contains(z)


# ---- the posterior ------------------------------------------------------------------------------------

DISTRIBUTIONS = [
    VonMisesFisher(10.0),
    GeneralizedNormal(0.5, 1.5),
    Truncated(laplace(0.5), Box(-1, 1)),
    Projected(normal(0.5)),
    Projected(laplace(0.5)),
    Projected(GeneralizedNormal(0.5, 4.0)),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_the_posterior_is_calibrated(distribution):
    process = Clusters(CLUSTERS.vectors, distribution, G, (1.0, 2.0, 5.0))
    sample = process.sample(10_000, random_state=1, dtype=torch.float64)
    posterior = log_posterior(process, sample.z).exp()
    torch.testing.assert_close(posterior.sum(1), torch.ones(10_000).double())
    hits = torch.nn.functional.one_hot(sample.u, 3) - posterior  # of mean zero, given z or any function of it
    for weight in (1, posterior, sample.z[:, :1]):
        off = weight * hits
        assert (off.mean(0).abs() / off.std(0)).max() * math.sqrt(10_000) < 8


def test_no_other_posterior_has_a_lower_cross_entropy():
    process = Clusters(Sphere().uniform(10, 4, random_state=0), VonMisesFisher(10.0), G)
    others = [Clusters(process.vectors, VonMisesFisher(k), G) for k in (8.0, 12.5)]
    sample = process.sample(20_000, random_state=1)
    loss, *worse = (-log_posterior(w, sample.z).gather(1, sample.u[:, None]).mean() for w in (process, *others))
    assert all(other > loss + 0.005 for other in worse)


def test_the_posterior_of_vmf_clusters_is_a_softmax_of_dot_products():
    z = Sphere().uniform(5, 4, random_state=1, dtype=torch.float64)
    v = Sphere().uniform(3, 4, random_state=0, dtype=torch.float64)
    expected = (10 * z @ v.T).log_softmax(1)
    torch.testing.assert_close(log_posterior(Clusters(v, VonMisesFisher(10.0), G), z), expected)


@pytest.mark.parametrize("distribution", [Projected(p(s)) for p in (normal, laplace) for s in (0.1, 1.0)], ids=str)
def test_projected_densities_integrate_to_one_over_the_circle(distribution):
    angle = torch.arange(2_000, dtype=torch.float64) * 2 * math.pi / 2_000
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    total = log_prob(distribution, circle, Sphere()(torch.tensor([[2.0, 1.0]]))).exp().sum() * 2 * math.pi / 2_000
    assert total.item() == pytest.approx(1, abs=1e-4)


def test_the_projected_normal_density_is_the_one_known_on_the_circle():
    # By hand, c = vᵀz: ∫ r e^{−(r² − 2rc + 1)/2} dr / 2π = e^{−1/2} (1 + c Φ(c) / φ(c)) / 2π.
    v = torch.tensor([[1.0, 0.0]]).double()
    z = Sphere().uniform(6, 2, random_state=0, dtype=torch.float64)
    c = (z @ v.T)[:, 0].numpy()
    expected = math.exp(-0.5) / (2 * math.pi) * (1 + c * stats.norm.cdf(c) / stats.norm.pdf(c))
    found = log_prob(Projected(normal(1.0)), z, v).exp().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# ---- instances ----------------------------------------------------------------------------------------


def test_instances_are_equally_frequent_views_of_their_classes():
    process = Instances(CLUSTERS, 7)
    sample = process.sample(40_000, random_state=0)
    assert stats.chisquare(sample.u.bincount(minlength=7).numpy()).pvalue > 0.01
    torch.testing.assert_close(G.inverse(sample.x), sample.z, atol=1e-5, rtol=0)
    length = special.ive(2, 10) / special.ive(1, 10)
    means = torch.stack([sample.z[sample.u == i].mean(0) for i in range(7)])
    torch.testing.assert_close(means, length * CLUSTERS.vectors[[0, 1, 2, 0, 1, 2, 0]], atol=0.02, rtol=0)
    assert torch.equal(process.vectors, CLUSTERS.vectors[[0, 1, 2, 0, 1, 2, 0]])


def test_views_of_an_instance_are_new_at_every_draw():
    process = Instances(CLUSTERS, 3)
    first, second = (process.sample(100, random_state=seed) for seed in (0, 1))
    assert not torch.isclose(first.z[first.u == 0][0], second.z[second.u == 0][0]).any()


def test_instances_of_a_class_cannot_be_distinguished():
    z = Sphere().uniform(5, 4, random_state=0, dtype=torch.float64)
    posterior = log_posterior(Instances(CLUSTERS, 7), z).exp()
    torch.testing.assert_close(posterior.sum(1), torch.ones(5).double())
    assert torch.equal(posterior[:, 0], posterior[:, 3])
    by_class = log_posterior(Clusters(CLUSTERS.vectors, CLUSTERS.conditional, G, (3.0, 2.0, 2.0)), z).exp()
    torch.testing.assert_close(posterior[:, [0, 3, 6]].sum(1), by_class[:, 0])


def test_instances_share_the_assumptions_of_their_clusters():
    assert Instances(CLUSTERS, 7).assumptions == CLUSTERS.assumptions


@pytest.mark.parametrize(
    ("argument", "clusters", "n_instances"),
    [
        ("n_instances", CLUSTERS, 2),
        ("clusters", Clusters(CLUSTERS.vectors, VonMisesFisher(1.0), G, (1.0, 1.0, 2.0)), 7),
    ],
)
def test_instances_need_enough_ids_and_equal_weights(argument, clusters, n_instances):
    with pytest.raises(InputError) as error:
        Instances(clusters, n_instances)
    assert error.value.argument == argument
