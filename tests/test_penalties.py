"""The penalties against float64 references, and their gradients against finite differences."""

import math

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from pindown import networks
from pindown.penalties import (
    DependencyCount,
    DependencySparsity,
    dependency_sparsity,
    derivative,
    exact_hessian_penalty,
    group_lasso_sparsity,
    hessian_penalty,
    latent_sparsity,
    orojar,
    pushforward,
)

RAW = torch.ones(())


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def latents(n=6, d=3, dtype=torch.float64):
    return torch.randn(n, d, generator=rng(), dtype=dtype)


def seeded(build):
    """A decoder in float64 with known weights, none of them zero."""
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        decoder = build().double()
        for weight in decoder.parameters():
            nn.init.normal_(weight, std=0.4)
    return decoder


def perceptron(activation):
    return lambda: nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 3))


class Bilinear(nn.Module):
    """A layer without a rule."""

    def forward(self, z):
        return torch.stack([z[:, 0] * z[:, 1], z[:, 1] * z[:, 2], z[:, 0]], dim=1)


class Causal(nn.Module):
    """Attention by torch's own function, as layers of other packages have it; without a rule."""

    def forward(self, x):
        return x + nn.functional.scaled_dot_product_attention(x, x, x.tanh(), is_causal=True)


def attending(**options):
    options = {"activation": nn.SiLU(), "dropout": 0.0, "batch_first": True} | options
    layer = nn.TransformerEncoderLayer(4, 2, 2, **options)
    return nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), layer, nn.Flatten(), nn.Linear(8, 2))


SMOOTH = {
    "tanh": perceptron(nn.Tanh()),
    "sigmoid": perceptron(nn.Sigmoid()),
    "softplus": perceptron(nn.Softplus(beta=2.0)),
    "silu": perceptron(nn.SiLU()),
    "gelu": perceptron(nn.GELU()),
    "gelu by tanh": perceptron(nn.GELU(approximate="tanh")),
    "elu": perceptron(nn.ELU(alpha=0.5)),
    "no rule": lambda: nn.Sequential(nn.Linear(3, 3), Bilinear(), nn.Linear(3, 4)),
    "no rule at all": Bilinear,
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 4)),
    "group norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(2, 6), nn.Tanh(), nn.Linear(6, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4)).eval(),
    "softmax": lambda: nn.Sequential(nn.Linear(3, 6), nn.Softmax(1), nn.Linear(6, 4)),
    "images": lambda: nn.Sequential(
        nn.Linear(3, 4),
        nn.Tanh(),
        nn.Unflatten(1, (2, 1, 2)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2, 2, 3, padding=1, groups=2),
        nn.SiLU(),
        nn.ConvTranspose2d(2, 1, 4, stride=2, padding=1),
        nn.AvgPool2d(2),
    ),
    "pictures in groups": lambda: nn.Sequential(
        nn.Linear(3, 16),
        nn.Unflatten(1, (4, 2, 2)),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.ConvTranspose2d(4, 2, 2, stride=2),
        nn.GroupNorm(1, 2, affine=False),
    ),
    "attention": lambda: attending(),
    "attention of one's own": lambda: nn.Sequential(
        nn.Linear(3, 4), nn.Unflatten(1, (2, 2)), Causal(), nn.Flatten(), nn.Linear(4, 2)
    ),
    "circular": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Tanh(), nn.Flatten()
    ),
}
KINKED = {
    "relu": perceptron(nn.ReLU()),
    "in place": perceptron(nn.ReLU(inplace=True)),
    "leaky": perceptron(nn.LeakyReLU(0.1)),
    "unfolded": lambda: networks.unfolded(3, 5, hidden=(8,)),
    "residual": lambda: networks.residual(3, 5, width=8),
    "linear": lambda: nn.Linear(3, 5),
    "attention, normalised first": lambda: attending(norm_first=True, activation="relu"),
    "deconvolutional": lambda: networks.deconvolutional(3, (1, 8, 8), widths=(2,), hidden=(4,)),
}
DECODERS = SMOOTH | KINKED
ALL, BENT = (pytest.mark.parametrize("build", c.values(), ids=c.keys()) for c in (DECODERS, SMOOTH))


def reference(decoder, z):
    """The Jacobian of each row by reverse mode, (n, m, d)."""
    with sdpa_kernel(SDPBackend.MATH):  # torch's fast attention has no such derivatives
        return torch.func.vmap(torch.func.jacrev(lambda row: decoder(row[None])[0].flatten()))(z)


# ---- tangents -----------------------------------------------------------------------------------------


@ALL
def test_pushed_columns_are_those_of_the_jacobian(build):
    decoder, z = seeded(build), latents()
    x, columns = pushforward(decoder, z)
    torch.testing.assert_close(x, decoder(z))
    torch.testing.assert_close(columns.flatten(2).permute(1, 2, 0), reference(decoder, z))


@ALL
def test_each_row_may_choose_columns_of_its_own(build):
    decoder, z = seeded(build), latents()
    chosen = torch.randint(3, (2, len(z)), generator=rng(1))
    columns = pushforward(decoder, z, chosen).columns.flatten(2)  # (2, n, m)
    jacobian = reference(decoder, z)
    expected = torch.stack([jacobian[torch.arange(len(z)), :, row] for row in chosen])
    torch.testing.assert_close(columns, expected)


@ALL
def test_derivatives_along_directions_are_products_with_the_jacobian(build):
    decoder, z = seeded(build), latents()
    directions = torch.randn(2, *z.shape, generator=rng(1), dtype=z.dtype)
    moved = derivative(decoder, z, directions).columns.flatten(2)
    torch.testing.assert_close(moved, torch.einsum("nmd,knd->knm", reference(decoder, z), directions))


def test_an_empty_decoder_is_the_identity():
    assert torch.equal(pushforward(nn.Sequential(), latents()).columns[:, 0], torch.eye(3).double())


# ---- dependency sparsity ------------------------------------------------------------------------------


def by_hand(decoder, z):
    scaled = reference(decoder, z) * z.std(0, correction=0) / decoder(z).flatten(1).std(0, correction=0)[:, None]
    return scaled.abs().sum() / len(z)


@ALL
def test_dependency_sparsity_is_the_l1_norm_of_the_standardised_jacobian(build):
    decoder, z = seeded(build), latents(40)
    torch.testing.assert_close(dependency_sparsity(decoder, z), by_hand(decoder, z))


@BENT
def test_its_gradients_agree_with_finite_differences(build):
    decoder, z = seeded(build), latents(4).requires_grad_()
    weights = dict(decoder.named_parameters())
    names = list(weights)

    def penalty(z, *values):
        given = dict(zip(names, values, strict=True))
        stand_in = Substituted(decoder, given)
        return dependency_sparsity(stand_in if given else decoder, z)

    assert torch.autograd.gradcheck(penalty, (z, *weights.values()), eps=1e-6, atol=1e-5)


class Substituted(nn.Module):
    """A decoder whose weights are given from outside; it has no rule, so `torch.func` pushes through it."""

    def __init__(self, decoder, weights):
        super().__init__()
        self.decoder, self.given = [decoder], weights

    def forward(self, z):
        return torch.func.functional_call(self.decoder[0], self.given, (z,))


@BENT
def test_closed_form_gradients_of_the_weights_agree_with_those_of_the_reference(build):
    decoder, z = seeded(build), latents(7)
    weights = list(decoder.parameters())
    if not weights:
        pytest.skip("nothing to train")
    ours = torch.autograd.grad(dependency_sparsity(decoder, z), weights, allow_unused=True)
    theirs = torch.autograd.grad(by_hand(decoder, z), weights, allow_unused=True)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine if mine is not None else torch.zeros(()), zero_if_none(other, mine))


def zero_if_none(gradient, like):
    return torch.zeros_like(like if like is not None else torch.zeros(())) if gradient is None else gradient


def blocks_of_draws(penalty, z, n_blocks=40, n_draws=500):
    """Means over many draws: a row that stands in a batch many times draws anew each time, and no scale changes."""
    return torch.stack([penalty(z.repeat(n_draws, 1)) for _ in range(n_blocks)])


@pytest.mark.parametrize(
    "build", [SMOOTH["pictures in groups"], KINKED["deconvolutional"], SMOOTH["layer norm"], attending]
)
def test_decoders_of_pictures_their_normalisations_and_attention_are_pushed_in_closed_form(build, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("torch.func was asked")

    decoder, z = seeded(build), latents()
    expected = reference(decoder, z)
    monkeypatch.setattr(torch.func, "jvp", refuse)
    torch.testing.assert_close(pushforward(decoder, z).columns.flatten(2).permute(1, 2, 0), expected)


@pytest.mark.parametrize("penalty", [DependencySparsity(n_rows=2), DependencyCount(n_columns=1)])
def test_rows_and_columns_that_are_taken_have_the_mean_of_all(penalty):
    decoder, z = seeded(SMOOTH["pictures in groups"]), latents()
    whole = type(penalty)()(decoder, z, torch.zeros(z.shape))[1]
    if isinstance(penalty, DependencySparsity):  # the first rows of a batch: of all the batches that begin elsewhere
        parts = [penalty(decoder, z.roll(k, 0), torch.zeros(z.shape)) for k in range(len(z))]
    else:  # the latent with the least of some random numbers: of all the latents that may have it
        parts = [penalty(decoder, z, -torch.eye(3)[[j] * len(z)]) for j in range(3)]
    torch.testing.assert_close(torch.stack([cost for _, cost in parts]).mean(), whole)
    assert all(x.shape == decoder(z).shape for x, _ in parts)
    torch.testing.assert_close(parts[0][0], decoder(z))


@pytest.mark.parametrize("kind", [DependencySparsity, DependencyCount])
@pytest.mark.parametrize("n_pixels", [1, 5])
def test_pixels_that_are_taken_have_the_mean_of_all_in_value_and_gradient(kind, n_pixels):
    decoder, z = seeded(SMOOTH["pictures in groups"]), latents().requires_grad_()
    whole = kind()(decoder, z, torch.zeros(z.shape))[1]
    m = decoder(z)[0].numel()
    # From each pixel on as often as from any other, which is what a uniform number makes of it.
    starts = [(pixel + 0.5) / m for pixel in range(m)]
    parts = [kind(n_pixels=n_pixels)(decoder, z, torch.full(z.shape, start)) for start in starts]
    mean = torch.stack([cost for _, cost in parts]).mean()
    torch.testing.assert_close(mean, whole)
    for weight in (z, decoder[0].weight):
        ours, theirs = (torch.autograd.grad(cost, weight, retain_graph=True)[0] for cost in (mean, whole))
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(parts[0][0], decoder(z))


def test_each_row_takes_pixels_of_its_own_and_a_batch_may_take_fewer_rows():
    decoder, z = seeded(SMOOTH["pictures in groups"]), latents()
    whole = DependencySparsity()(decoder, z, torch.zeros(z.shape))[1]
    draws = [
        DependencySparsity(n_pixels=3, n_rows=4)(decoder, z, torch.rand(z.shape, generator=rng(k)))[1]
        for k in range(100)
    ]
    # Rows that are taken are the first of a batch, so that only pixels vary here.
    four = DependencySparsity(n_rows=4)(decoder, z, torch.zeros(z.shape))[1]
    error = torch.stack(draws).std() / math.sqrt(len(draws))
    assert abs(torch.stack(draws).mean() - four) < 4 * error < 0.2 * four
    assert abs(four - whole) > 0


@pytest.mark.parametrize("n_columns", [1, 2])
def test_sampled_columns_are_unbiased_in_value_and_gradient(n_columns):
    decoder, z = seeded(SMOOTH["tanh"]), latents(8)
    weight, source = decoder[0].weight, rng()
    exact = dependency_sparsity(decoder, z)
    (slope,) = torch.autograd.grad(exact, weight)
    draws = blocks_of_draws(lambda z: dependency_sparsity(decoder, z, n_columns=n_columns, generator=source), z)
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - exact) < 4 * error < 0.02 * exact
    (sampled,) = torch.autograd.grad(draws.mean(), weight)
    assert (sampled - slope).abs().max() < 0.02 * slope.abs().max()


def test_a_gaussian_direction_is_a_group_lasso_and_not_the_l1_norm():
    decoder, z = seeded(SMOOTH["tanh"]), latents(8)
    lengths = reference(decoder, z).norm(dim=2).sum() / len(z)
    source = rng()
    draws = blocks_of_draws(
        lambda z: group_lasso_sparsity(decoder, z, z_scale=RAW, x_scale=RAW, generator=source).detach(), z
    )
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - lengths) / error < 6
    assert draws.mean() < 0.95 * dependency_sparsity(decoder, z, z_scale=RAW, x_scale=RAW)


def test_a_rotation_leaves_the_group_lasso_alone_and_raises_the_l1_norm():
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double()
    sparse, z = nn.Linear(2, 2, bias=False).double(), latents(5, 2)
    sparse.weight.data = torch.eye(2).double()
    dense = nn.Linear(2, 2, bias=False).double()
    dense.weight.data = turn
    l1 = [dependency_sparsity(g, z, z_scale=RAW, x_scale=RAW).item() for g in (sparse, dense)]
    assert l1 == pytest.approx([2.0, 2.8])
    many = latents(200_000, 2)
    group = [group_lasso_sparsity(g, many, z_scale=RAW, x_scale=RAW, generator=rng()).item() for g in (sparse, dense)]
    assert group == pytest.approx([2.0, 2.0], rel=0.01)


def test_scaling_latents_or_observations_does_not_cheat_standardised_units_but_does_cheat_raw_ones():
    decoder, z = seeded(SMOOTH["tanh"]), latents(30)
    first, last = decoder[0], decoder[-1]
    before = dependency_sparsity(decoder, z), dependency_sparsity(decoder, z, z_scale=RAW, x_scale=RAW)
    with torch.no_grad():
        first.weight /= 10
        last.weight *= 3
        last.bias *= 3
    after = dependency_sparsity(decoder, 10 * z), dependency_sparsity(decoder, 10 * z, z_scale=RAW, x_scale=RAW)
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1], 0.3 * before[1])


def test_active_latents_alone_are_counted():
    decoder, z = seeded(KINKED["leaky"]), latents(9)
    active = z.abs().topk(2).indices  # (n, 2)
    restricted = dependency_sparsity(decoder, z, active=active, z_scale=RAW, x_scale=RAW)
    mask = torch.zeros_like(z).scatter(1, active, 1.0)
    torch.testing.assert_close(restricted, (reference(decoder, z) * mask[:, None]).abs().sum() / len(z))
    everything = torch.arange(3).expand(9, 3)
    torch.testing.assert_close(dependency_sparsity(decoder, z, active=everything), dependency_sparsity(decoder, z))


def test_thousands_of_latents_need_no_unit_vectors():
    # One-hot tangents would take 64 · 32 · 20,000 · 4 bytes = 164 MB beside the 5 MB of weights.
    decoder, z = nn.Sequential(nn.Linear(20_000, 64), nn.ReLU(), nn.Linear(64, 4)), torch.zeros(32, 20_000)
    active = torch.randint(20_000, (32, 64), generator=rng())
    largest = LargestResult()
    with largest:
        dependency_sparsity(decoder, z, active=active, z_scale=RAW, x_scale=RAW)
    assert largest.size <= 20_000 * 64


class LargestResult(torch.utils._python_dispatch.TorchDispatchMode):
    """Watches how large the results of operations are."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.untyped_storage().nbytes() // result.element_size())
        return result


def test_a_pixel_that_never_changes_is_no_division_by_zero():
    decoder = nn.Linear(2, 2, bias=False)
    decoder.weight.data = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    penalty = dependency_sparsity(decoder, latents(10, 2, torch.float32))
    (slope,) = torch.autograd.grad(penalty, decoder.weight)
    assert penalty.item() == pytest.approx(1.0)
    assert slope.isfinite().all()


# ---- the other penalties ------------------------------------------------------------------------------


def test_latent_sparsity_is_the_l1_norm_of_standardised_latents():
    z = torch.tensor([[1.0, 10.0], [-1.0, -10.0]])
    assert latent_sparsity(z).item() == 2.0
    assert latent_sparsity(100 * z).item() == 2.0


@ALL
def test_orojar_is_the_off_diagonal_of_the_gram_matrix(build):
    decoder, z = seeded(build), latents()
    gram = torch.einsum("nmj,nmk->njk", *[reference(decoder, z)] * 2)
    off_diagonal = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(orojar(decoder, z), off_diagonal.square().sum() / len(z))


def test_orojar_from_random_directions_is_unbiased():
    decoder, z = seeded(SMOOTH["tanh"]), latents(4)
    source = rng()
    draws = torch.stack([orojar(decoder, z, n_directions=2, generator=source) for _ in range(1_500)])
    assert abs(draws.mean() - orojar(decoder, z)) / (draws.std() / math.sqrt(len(draws))) < 5


def test_orojar_vanishes_for_a_rotation_which_is_anything_but_sparse():
    decoder, z = nn.Linear(3, 3).double(), latents()
    with torch.no_grad():
        decoder.weight.copy_(torch.eye(3) - torch.full((3, 3), 2 / 3))  # a reflection; ⅓ and ⅔ everywhere
    assert 0 <= orojar(decoder, z).item() < 1e-10
    assert dependency_sparsity(decoder, z, z_scale=RAW, x_scale=RAW).item() == pytest.approx(3 * (1 / 3 + 2 * 2 / 3))


def products(z):
    return torch.stack([z[:, 0] * z[:, 1], z[:, 0] ** 2 * z[:, 1]], dim=1)


def test_the_hessian_penalty_of_two_products_is_that_worked_out_by_hand():
    z = latents(50, 2)
    by_hand = torch.stack([torch.full((50,), 4.0).double(), 16 * z[:, 0] ** 2], dim=1)
    torch.testing.assert_close(exact_hessian_penalty(products, z), by_hand)
    source = rng()
    draws = torch.stack([hessian_penalty(products, z, generator=source) for _ in range(1_500)])
    error = draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - by_hand).abs() / (error + 1e-9)).max() < 6  # of a hundred


def test_the_hessian_penalty_is_blind_to_what_each_latent_does_alone():
    z = latents(20, 2)

    def separate(z):
        return (z**3).sum(1, keepdim=True)

    assert exact_hessian_penalty(separate, z).abs().max() < 1e-20
    assert hessian_penalty(separate, z, generator=rng()).abs().max() < 1e-20


def test_only_finite_differences_see_the_kinks_of_a_piecewise_linear_decoder():
    decoder, z = seeded(KINKED["relu"]), latents(200)
    assert exact_hessian_penalty(decoder, z).abs().max() == 0
    assert hessian_penalty(decoder, z, generator=rng()).mean() > 1e-3


# ---- refusals -----------------------------------------------------------------------------------------


class Cut(nn.Module):
    def forward(self, z):
        return z.detach() * 2


@pytest.mark.parametrize("decoder", [Cut(), nn.Sequential(nn.Linear(3, 3), Cut()), lambda z: (z > 0).double()])
def test_a_decoder_that_is_not_differentiable_is_refused(decoder):
    with pytest.raises(ValueError, match=r"not differentiable.*detach"):
        dependency_sparsity(decoder.double() if isinstance(decoder, nn.Module) else decoder, latents())


class Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return z * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_function_without_a_forward_derivative_is_refused_by_name():
    with pytest.raises(ValueError, match=r"torch.func cannot push a tangent.*jvp"):
        dependency_sparsity(Opaque.apply, latents())


def test_batch_normalisation_is_refused_while_it_mixes_rows_and_taken_once_it_does_not():
    decoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()).double()
    with pytest.raises(ValueError, match=r"batch normalisation in training mode.*eval"):
        dependency_sparsity(decoder, latents())
    decoder.eval()
    torch.testing.assert_close(dependency_sparsity(decoder, latents()), by_hand(decoder, latents()))


def test_a_transformer_whose_rows_attend_to_each_other_is_refused():
    decoder = attending(batch_first=False).double()
    for penalty in (DependencySparsity(), DependencySparsity(n_pixels=1)):
        with pytest.raises(ValueError, match=r"rows attend to each other.*batch_first=True"):
            penalty(decoder, latents(), torch.zeros(6, 3))


def test_a_transformer_that_drops_tokens_is_given_to_torch_and_stays_right_once_it_drops_none():
    decoder = seeded(lambda: attending(dropout=0.5)).eval()
    torch.testing.assert_close(dependency_sparsity(decoder, latents()), by_hand(decoder, latents()))
    assert torch.isfinite(dependency_sparsity(decoder.train(), latents()))


@pytest.mark.parametrize(
    "build", [attending, SMOOTH["attention of one's own"], SMOOTH["layer norm"], perceptron(nn.ReLU())]
)
def test_pixels_are_pulled_back_through_attention_and_normalisation(build):
    decoder, z = seeded(build), latents()
    m = decoder(z)[0].numel()
    whole, all_pixels = (DependencySparsity(n_pixels=k)(decoder, z, torch.zeros(z.shape))[1] for k in (None, m))
    torch.testing.assert_close(all_pixels, whole)
    weight = decoder[0].weight
    ours, theirs = (torch.autograd.grad(cost, weight)[0] for cost in (all_pixels, whole))
    torch.testing.assert_close(ours, theirs)


def test_counts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="give one of the two"):
        DependencyCount(n_columns=1, n_pixels=1)
    with pytest.raises(ValueError, match="n_pixels must be at least 1"):
        DependencySparsity(n_pixels=0)
    with pytest.raises(ValueError, match="not differentiable"):
        DependencySparsity(n_pixels=1)(torch.detach, latents(), torch.zeros(6, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_columns": 4}, "n_columns must be between 1 and d=3, got 4"),
        ({"n_columns": 0}, "n_columns must be between 1"),
        ({"active": torch.zeros(5, 1, dtype=torch.int64)}, "active must be int64 of shape"),
        ({"active": torch.zeros(6, 1)}, "active must be int64 of shape"),
        ({"active": torch.zeros(6, 1, dtype=torch.int64), "n_columns": 1}, "give one of the two"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        dependency_sparsity(nn.Linear(3, 3).double(), latents(), **arguments)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="z must be a matrix"):
        pushforward(nn.Identity(), torch.zeros(3))
    with pytest.raises(ValueError, match="columns must be int64"):
        pushforward(nn.Identity(), torch.zeros(3, 2), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="two rows or more"):
        dependency_sparsity(nn.Linear(3, 3).double(), latents(1))
    with pytest.raises(ValueError, match="at least 2"):
        hessian_penalty(nn.Identity(), torch.zeros(3, 2), n_directions=1)
