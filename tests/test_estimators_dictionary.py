import copy

import numpy as np
import pytest
import torch
from pindown_papers.penalties import HessianPenalty, LatentSparsity, OroJAR
from pindown_papers.sets import support_f1
from pindown_papers.simulations import well_separated
from raising import input_error
from torch import nn

from pindown import Dictionary, networks, theory
from pindown.data import ArraySource
from pindown.errors import InputError
from pindown.losses import DependencyCount, DependencySparsity
from pindown.methods.dictionary.autoencoder import Autoencoder
from pindown.methods.dictionary.dependence import latent_graph, moments_of, widest_gap
from pindown.methods.dictionary.isomap import isomap, isomap_init
from pindown.methods.dictionary.rotation import rotation_optima
from pindown.metrics import linear_r2, mcc
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.spaces import Reals
from pindown.simulate import Structured
from pindown.training import Trainer

SUPPORT = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]])
QUICK = {"n_restarts": 1, "max_iter": 30, "device": "cpu", "random_state": 0}


@pytest.fixture(scope="module")
def world():
    return well_separated(SUPPORT, random_state=0)


@pytest.fixture(scope="module")
def data(world):
    return world.sample(3_000, random_state=1), world.sample(3_000, random_state=2)


@pytest.fixture(scope="module")
def fitted(data):
    return Dictionary(3, n_restarts=2, max_iter=300, random_state=0, device="cpu").fit(data[0].x)


# ---- what a fit gives ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fit_finds_the_support(fitted, data):
    assert fitted.support_.shape == fitted.dependence_.shape == (6, 3)
    assert support_f1(fitted.support_, SUPPORT) > 0.9
    assert (fitted.dependence_[fitted.support_ == 0] <= fitted.threshold_).all()
    assert mcc(fitted.transform(data[1].x), data[1].z) > 0.95


def test_blocks_are_those_of_the_support(fitted):
    assert sorted(j for block in fitted.blocks_ for j in block.latents) == [0, 1, 2]
    assert all(block.is_single for block in fitted.blocks_) == (len(np.unique(fitted.support_.T, axis=0)) == 3)


def test_decoding_inverts_encoding(fitted, data):
    x = data[1].x.double().numpy()
    again = fitted.inverse_transform(fitted.transform(x))
    assert (1 - (x - again).var(0) / x.var(0)).min() > 0.97


def test_the_jacobian_is_the_derivative_of_decoding(fitted, data):
    x = data[1].x[:5].double()
    z, jacobian, step = fitted.transform(x), fitted.jacobian(x), 1e-6
    for j in range(3):
        ahead, behind = z.clone(), z.clone()
        ahead[:, j] += step
        behind[:, j] -= step
        difference = (fitted.inverse_transform(ahead) - fitted.inverse_transform(behind)) / (2 * step)
        torch.testing.assert_close(jacobian[:, :, j], difference, atol=1e-6, rtol=1e-4)


def test_arrays_and_tensors_keep_their_type(fitted, data):
    x = data[1].x[:5]
    for method in (fitted.transform, fitted.jacobian, lambda x: fitted.inverse_transform(x[:, :3])):
        assert isinstance(method(x), torch.Tensor)
        assert method(x).dtype == torch.float32
        assert isinstance(method(x.numpy()), np.ndarray)


def test_the_restart_with_the_best_bound_goes_on(fitted):
    best = fitted.bounds_.argmax()
    assert fitted.bounds_.shape == fitted.agreement_.shape == (2,)
    assert fitted.agreement_[best] == pytest.approx(1)
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 600


def test_the_score_is_lower_for_permuted_features(fitted, data):
    x = data[1].x
    permuted = torch.stack([column.roll(i) for i, column in enumerate(x.T)], dim=1)
    assert -fitted.score(permuted) > 10 * fitted.score(x) > 0


def test_fits_repeat_themselves_and_leave_the_global_generator_alone(data):
    before = torch.get_rng_state()
    first, second = (Dictionary(3, **QUICK).fit(data[0].x).transform(data[1].x) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_simulation_can_be_fitted_directly(world):
    dictionary = Dictionary(3, **QUICK).fit_process(world)
    assert dictionary.transform(world.sample(7, random_state=0).x).shape == (7, 3)


def test_a_fit_can_be_resumed_part_by_part(data, tmp_path):
    settings = QUICK | {"trainer": Trainer(checkpoint=tmp_path / "fit.safetensors")}
    first = Dictionary(3, **settings).fit(data[0].x)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "fit-restart-0.safetensors",
        "fit-sharp.safetensors",
        "fit-sparse.safetensors",
    ]
    for part in ("sparse", "sharp"):
        (tmp_path / f"fit-{part}.safetensors").unlink()
    assert np.array_equal(Dictionary(3, **settings).fit(data[0].x).dependence_, first.dependence_)


# ---- guarantees ---------------------------------------------------------------------------------------


def test_only_sparse_jacobians_carry_a_theorem():
    assert Dictionary().guarantee is Dictionary(penalty=DependencySparsity()).guarantee is theory.DICTIONARY_BLOCKS
    for penalty in (None, DependencyCount(0.0), OroJAR()):
        assert Dictionary(penalty=penalty).guarantee is None


@pytest.mark.parametrize(
    "penalty",
    [DependencySparsity(n_columns=1), LatentSparsity(), OroJAR(), HessianPenalty(), None, DependencyCount(0.0)],
    ids=str,
)
def test_other_penalties_can_be_compared(penalty, data):
    dictionary = Dictionary(3, penalty=penalty, **QUICK).fit(data[0].x)
    trained_on = penalty is not None and penalty.weight > 0
    assert dictionary.n_iter_ == (60 if trained_on else 30)


# ---- the autoencoder and the rotation -----------------------------------------------------------------


def autoencoder(x, d=3):
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        encoder = Encoder(preprocessing.whiten(ArraySource(x)), networks.smooth(x.shape[1], d), Reals())
        return Autoencoder(encoder, networks.smooth(d, x.shape[1]), d, x).double()


def some_rotation(d=3):
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]


def test_a_linear_map_changes_latents_and_their_dependence_but_not_the_bound(data):
    x = data[0].x.double()
    model = autoencoder(x)
    bound, latents, white = model.bound(x, seed=0), model.encoder(x), moments_of(model, x)
    linear = some_rotation() + 0.3
    model.map_latents(linear)
    model.map_latents(linear)  # maps add up
    assert model.bound(x, seed=0) == pytest.approx(bound, rel=1e-9)
    torch.testing.assert_close(model.encoder(x), latents @ linear @ linear)
    np.testing.assert_allclose(moments_of(model, x), white)  # along white latents nothing changes


def test_the_prior_of_mapped_latents_is_what_samples_are_drawn_from(fitted):
    model = copy.deepcopy(fitted)
    model.objective_.map_latents(torch.tensor([[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 1.0]]))
    drawn = model._from_white(torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0)))
    np.testing.assert_allclose(np.cov(drawn.numpy().T), model.objective_.covariance(), atol=0.03)


def test_the_graph_between_latents_has_the_edges_that_the_data_have(data):
    model = autoencoder(data[0].x.double())
    z = model.encode(data[0].x.double())
    z = z - z.mean(0)
    white = torch.linalg.inv(torch.linalg.cholesky(z.mT @ z / len(z))).mT
    for linear, edges in (
        (torch.eye(3), ()),
        (torch.tensor([[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 1.0]]), ((0, 1),)),
    ):
        changed = copy.deepcopy(model)
        changed.map_latents(white @ linear.double())
        graph = latent_graph(changed, data[0].x.double(), n_resamples=100, random_state=0)
        assert set(edges) <= set(graph.edges)
        low, high = graph.interval
        assert (low <= graph.correlation + 1e-9).all()
        assert (graph.correlation <= high + 1e-9).all()


def test_the_bound_is_exact_for_a_linear_gaussian_model():
    # x = W z + noise has the distribution N(0, W Wᵀ + σ² I), and the posterior is a Gaussian that the encoder can have.
    rng = torch.Generator().manual_seed(0)
    w, sigma = torch.randn(4, 2, generator=rng, dtype=torch.float64), 0.5
    z, noise = (torch.randn(20_000, k, generator=rng, dtype=torch.float64) for k in (2, 4))
    x = z @ w.mT + sigma * noise
    model = autoencoder(x, d=2)
    posterior = torch.linalg.inv(torch.eye(2) + w.mT @ w / sigma**2)
    triangle = torch.linalg.cholesky(posterior)
    with torch.no_grad():
        model.centre.zero_()
        model.scale.fill_(1.0)
        model.log_noise.fill_(0.5 * np.log(sigma**2 - 0.02**2))
        linear_path, last = model.encoder.body[0].linear, model.posterior[-1]
        first = model.encoder.preprocess
        whitening = first.linear_map
        linear_path.weight.copy_(posterior @ w.mT / sigma**2 @ torch.linalg.inv(whitening).mT)
        linear_path.bias.copy_(posterior @ w.mT @ model.encoder.preprocess.mean / sigma**2)
        model.decoder[1].linear.weight.copy_(w)
        last.bias.copy_(torch.stack([triangle[0, 0].log(), triangle[1, 1].log(), triangle[1, 0]]))
        last.bias[:2] -= np.log(0.3)
    distribution = torch.distributions.MultivariateNormal(torch.zeros(4).double(), w @ w.mT + sigma**2 * torch.eye(4))
    exact = distribution.log_prob(x).mean().item() + 2 * np.log(2 * np.pi)  # the bound leaves out (m/2) log 2π
    assert model.bound(x, seed=0) == pytest.approx(exact, abs=0.02)


def a_roll(n=2_000):
    """Most of a cylinder, which every projection to a plane folds: angle and height, and the points."""
    rng = np.random.default_rng(0)
    angle, height = rng.uniform(0, 1.6 * np.pi, n), rng.uniform(-2, 2, n)
    return np.stack([angle, height], axis=1), np.stack([np.cos(angle), np.sin(angle), height], axis=1)


def test_a_linear_initialisation_folds_a_roll_and_isomap_does_not():
    z, x = (torch.as_tensor(array, dtype=torch.float32) for array in a_roll())
    model = autoencoder(x, d=2).float()
    missed, noise = 1 - linear_r2(model.encoder(x).detach(), z), model.noise()
    isomap_init(model, x, max_iter=200, seed=0)
    left = 1 - linear_r2(model.encoder(x).detach(), z)
    assert left < 0.03
    assert left < missed / 4
    assert model.noise() < 0.3 * noise  # the reconstruction error


def test_isomap_initialisation_uses_duplicates_once():
    z, x = (torch.as_tensor(array, dtype=torch.float32) for array in a_roll(500))
    model = autoencoder(x, d=2).float()
    isomap_init(model, x.repeat(15, 1), max_iter=200, seed=0)
    assert linear_r2(model.encoder(x).detach(), z) > 0.97


def test_isomap_coordinates_of_equal_samples_are_finite():
    assert np.isfinite(isomap(np.ones((5, 3)), 2)).all()
    apart = np.concatenate([np.random.default_rng(0).normal(size=(50, 3)), 1e3 + np.zeros((50, 3))])
    assert np.isfinite(isomap(apart, 2)).all()  # two groups without a way between them


def rotated(moments, turn):
    return np.einsum("aj,ijk,bk->iab", turn, moments, turn)


@pytest.mark.parametrize("seed", range(3))
def test_the_sparsest_rotation_is_found_from_any_angle(seed):
    world = Structured.well_posed(SUPPORT, random_state=seed)
    z = torch.randn(2_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = world.mixing.gradients(z) / world.mixing(z).std(0)[:, None]
    moments = (torch.einsum("nij,nik->ijk", gradients, gradients) / len(z)).numpy()
    turn = some_rotation().numpy()
    found = np.abs(turn.T @ rotation_optima(rotated(moments, turn)).maps[0])
    assert np.sort(found.max(0))[0] > 0.999
    assert sorted(found.argmax(0)) == [0, 1, 2]


def two_sparse_features_and_three_dense(nonlinearity):
    v, w = np.array([1.0, 1.0]) / np.sqrt(2), np.array([1.0, -1.0]) / np.sqrt(2)
    slanted = np.outer(v, v) + nonlinearity**2 * np.outer(w, w)
    return np.stack([np.diag([1.0, 0.0]), np.diag([0.0, 1.0]), *[slanted] * 3])


def test_the_count_of_dependencies_finds_the_truth_where_the_l1_norm_prefers_another_basis():
    moments = two_sparse_features_and_three_dense(nonlinearity=0.15)
    found = rotation_optima(moments).maps[0]
    assert np.abs(found).max(0) == pytest.approx([1, 1], abs=1e-3)
    slant = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)

    def root_mean_squares(q):  # their sum bounds the mean L1 norm from above
        return np.sqrt(np.einsum("aj,iab,bj->ij", q, moments, q)).sum()

    assert root_mean_squares(slant) < root_mean_squares(np.eye(2))


def test_nearly_linear_features_hide_the_truth_from_any_count():
    found = rotation_optima(two_sparse_features_and_three_dense(nonlinearity=0.0)).maps[0]
    assert np.abs(found).max() == pytest.approx(np.sqrt(0.5), abs=1e-3)  # three slanted rows become single


def test_the_threshold_lies_in_the_widest_gap():
    assert widest_gap(np.array([[0.9, 0.06, 0.07, 0.12]])) == pytest.approx(np.sqrt(0.07 * 0.12))
    assert 0.05 < widest_gap(np.zeros((3, 2))) < 0.15


# ---- input that is refused -----------------------------------------------------------------------------------------


class Cut(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer = nn.Linear(n_in, n_out)

    def forward(self, z):
        return self.layer(z.detach())


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_components": 7}, ValueError, "n_components=7 is more than n_features=6"),
        ({"n_restarts": 0}, ValueError, "n_restarts == 0, must be >= 1"),
        ({"penalty": "l1"}, TypeError, "penalty must be a value such as"),
        ({"decoder": "mlp"}, TypeError, "`decoder` must be a function"),
        ({"decoder": Cut}, ValueError, "not differentiable"),
        ({"decoder": lambda d, m: nn.Linear(d, m + 1)}, ValueError, r"maps \(2, 3\) to \(2, 7\)"),
    ],
)
def test_parameters_that_cannot_work_are_refused(parameters, error, message, data):
    with pytest.raises(error, match=message):
        Dictionary(**{"n_components": 3} | QUICK | parameters).fit(data[0].x)


def test_constant_columns_are_refused_by_number(data):
    x = data[0].x.clone()
    x[:, [1, 4]] = 3.0
    with input_error("X"):
        Dictionary(3, **QUICK).fit(x)


def test_latents_of_another_size_are_refused(fitted):
    with pytest.raises(ValueError, match="columns"):
        fitted.inverse_transform(np.zeros((4, 2)))


@pytest.mark.parametrize("make", [DependencyCount, DependencySparsity])
def test_a_negative_weight_raises(make):
    with pytest.raises(InputError) as error:
        make(weight=-1.0)
    assert error.value.argument == "weight"
