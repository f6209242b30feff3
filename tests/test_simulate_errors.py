"""Bad input to simulations raises `InputError` with the name of the argument, or a `TypeError`."""

import math

import numpy as np
import pytest
import torch
from pindown_papers.simulations import (
    Arm,
    Bodies,
    Confounded,
    Projected,
    ShapeNuisance,
    Sprites,
    in_hyperplane,
    log_posterior,
)
from pindown_papers.simulations.bodies import FARTHEST

from pindown.errors import InputError
from pindown.networks.spaces import Box, Sphere
from pindown.simulate import BernoulliGaussian, Clusters, KSparse, Nuisance, Pairs, Structured, Superposed
from pindown.simulate.distributions import (
    Around,
    GeneralizedNormal,
    Truncated,
    Uniform,
    VonMisesFisher,
    laplace,
    normal,
)
from pindown.simulate.images import contact_sheet, nearest_traversals, png, save_png
from pindown.simulate.mixing import LeakyReLU, SinhArcsinh, identity, leaky_relu_mlp, orthogonal, smooth, sparse
from pindown.simulate.structured import atoms

G = identity(4)
VMF = VonMisesFisher(1.0)
SUPPORT = [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]]
IMAGES = torch.rand(5, 3, 8, 6, generator=torch.Generator().manual_seed(0))
NAN_LATENTS = np.array([[0.0], [1.0], [2.0], [np.nan], [4.0]])
PAIRS = Pairs(Uniform(5, Box()), Truncated(laplace(0.1)), Sprites(8))
ROTATION = orthogonal(6, random_state=0)

BAD = [
    # Distributions.
    *(("concentration", lambda bad=bad: VonMisesFisher(bad)) for bad in (-1.0, math.nan, math.inf)),
    ("loc", lambda: VMF.sample(torch.ones(3, 1))),
    *(("scale", lambda bad=bad: GeneralizedNormal(bad, 2.0)) for bad in (0.0, -1.0, math.nan)),
    *(("shape", lambda bad=bad: GeneralizedNormal(1.0, bad)) for bad in (0.0, math.inf)),
    ("d", lambda: Uniform(0)),
    ("loc", lambda: Around((1.0, 1.0), VMF)),
    # Mixings.
    ("slope", lambda: LeakyReLU(0.0)),
    ("softness", lambda: SinhArcsinh(softness=0.0)),
    ("strength", lambda: SinhArcsinh(strength=math.inf)),
    ("n_layers", lambda: smooth(3, n_layers=0)),
    ("n_candidates", lambda: leaky_relu_mlp(3, n_candidates=0)),
    ("support", lambda: sparse([[1, 1, 0], [0, 1, 1]])),
    ("support", lambda: sparse([[1, 1, 0], [0, 0, 1], [0, 0, 1]])),
    ("width", lambda: sparse(SUPPORT, width=2)),
    # Processes.
    ("n", lambda: PAIRS.sample(0)),
    ("mixing", lambda: Pairs(Uniform(3), VMF, G)),
    ("mixing", lambda: Pairs(Uniform(2), VMF, Sprites(16, factors=("x", "y")))),
    ("conditional", lambda: Pairs(Uniform(4, Box()), VMF, G)),
    ("conditional", lambda: Pairs(Uniform(4, Box()), Truncated(normal(0.1), Box(0.2, 0.8)), G)),
    ("mixing", lambda: Structured(Structured.from_support(SUPPORT, random_state=0).mixing, Uniform(2))),
    ("vectors", lambda: Clusters(torch.ones(4), VMF, G)),
    ("vectors", lambda: Clusters(torch.eye(4, dtype=torch.int64), VMF, G)),
    ("vectors", lambda: Clusters(2 * torch.eye(4), VMF, G)),
    ("mixing", lambda: Clusters(torch.eye(3), VMF, G)),
    ("weights", lambda: Clusters(torch.eye(4), VMF, G, (1.0, 1.0))),
    ("weights", lambda: Clusters(torch.eye(4), VMF, G, (1.0, 1.0, 0.0, 1.0))),
    ("n_classes", lambda: Clusters.on_sphere(3, 1, 1.0)),
    *(("offset", lambda bad=bad: in_hyperplane(torch.ones(3, 4), offset=bad)) for bad in (1.0, -1.5, math.nan)),
    ("clusters", lambda: Nuisance.on_sphere(3, 4, 10.0, random_state=0)),
    ("scales", lambda: ShapeNuisance(torch.zeros(2, 1), identity(3))),
    ("scales", lambda: ShapeNuisance(torch.ones(2, 3), identity(3))),
    ("weights", lambda: ShapeNuisance(torch.ones(2, 1), identity(3), (1.0,))),
    ("mixing", lambda: ShapeNuisance.spread(6, 2, 3, n_layers=2, random_state=0).invariant_space),
    ("joint", lambda: Confounded(torch.eye(2), torch.eye(1), torch.ones(1, 1), identity(3))),
    ("mixing", lambda: Confounded(torch.eye(2), torch.eye(2), torch.ones(2, 2), identity(3))),
    ("probability", lambda: BernoulliGaussian(3, 0.0)),
    ("k", lambda: KSparse(3, 4)),
    ("dictionary", lambda: Superposed(torch.eye(3), KSparse(4, 1))),
    ("noise", lambda: Superposed(torch.eye(3), KSparse(3, 1), noise=-1.0)),
    ("coherence", lambda: atoms(3, 3, coherence=1.0)),
    ("arms", lambda: Bodies((Arm(2.4),), (ROTATION,))),
    ("cameras", lambda: Bodies((Arm(2.4), Arm(2.5)), (ROTATION,))),
    ("arms", lambda: Bodies((Arm(2.4), Arm(FARTHEST)), (ROTATION,) * 2)),
    ("cameras", lambda: Bodies((Arm(2.4), Arm(2.5)), (orthogonal(5, random_state=0),) * 2)),
    *(("reach", lambda bad=bad: Arm(bad)) for bad in (0.0, -1.0, math.inf)),
    ("n_elbows", lambda: Arm(2.0, 0)),
    # Images.
    ("images", lambda: contact_sheet(IMAGES[:0])),
    ("images", lambda: contact_sheet(IMAGES[0])),
    ("columns", lambda: contact_sheet(IMAGES, columns=0)),
    ("latents", lambda: nearest_traversals(IMAGES[:3, 0, 0], IMAGES)),
    ("latents", lambda: nearest_traversals(NAN_LATENTS, IMAGES)),
    ("steps", lambda: nearest_traversals(IMAGES[:, 0, 0], IMAGES, steps=1)),
    ("image", lambda: png(np.zeros((4, 4, 3)))),
    ("image", lambda: save_png("never.png", np.zeros((4, 4, 3)))),
]


@pytest.mark.parametrize(("argument", "make"), BAD)
def test_bad_input_names_the_argument(argument, make):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.argument == argument


@pytest.mark.parametrize("support", [[1, 0, 1], [[1, 0.5], [0, 1]], [[1, 1], [0, 0], [0, 1]], [[1, 0], [1, 0]]])
def test_a_support_must_be_a_binary_matrix_without_empty_lines(support):
    with pytest.raises(ValueError, match="support"):
        sparse(support)


@pytest.mark.parametrize(
    "make",
    [
        lambda: log_posterior(
            Clusters(Sphere()(torch.ones(3, 4)), Projected(laplace(0.1), Box(-1, 1)), G), torch.ones(2, 4)
        ),
    ],
)
def test_a_wrong_type_raises_a_type_error(make):
    with pytest.raises(TypeError):
        make()
