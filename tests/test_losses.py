import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pindown.errors import InputError
from pindown.losses import align_uniform, infonce, pairwise

POWERS = [None, 1, 1.5, 2, 3]
SEEDS = st.integers(0, 2**32 - 1)
modest = settings(deadline=None, max_examples=25)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def similarities(a, b, p):
    return a @ b.T if p is None else -(a[:, None] - b[None]).abs().pow(p).sum(-1)


def naive_infonce(z, z_pos, *, temperature=1.0, p=None, positive_in_denominator=True, self_negatives=False):
    """The formula, word for word, with the whole matrix."""
    positive = similarities(z, z_pos, p).diagonal() / temperature  # (n,)
    candidates = similarities(z, z if self_negatives else z_pos, p) / temperature  # (n, n)
    if self_negatives and positive_in_denominator:
        candidates = torch.cat([candidates, positive[:, None]], 1)
    if not self_negatives and not positive_in_denominator:
        candidates = candidates.masked_fill(torch.eye(len(z), dtype=torch.bool), -math.inf)
    return (candidates.logsumexp(1) - positive).mean()


def naive_align_uniform(z, z_pos, *, alpha=0.5, p=2):
    distances = -similarities(z, z, p)  # (n, n)
    apart = ~torch.eye(len(z), dtype=torch.bool)
    uniformity = torch.stack(
        [row[others].neg().exp().mean().log() for row, others in zip(distances, apart, strict=True)]
    ).mean()
    return alpha * uniformity - (1 - alpha) * similarities(z, z_pos, p).diagonal().mean()


def value_and_gradients(loss, z, z_pos, temperature=None, **case):
    inputs = [t.detach().clone().requires_grad_() for t in (z, z_pos, temperature) if isinstance(t, torch.Tensor)]
    if temperature is not None:
        case["temperature"] = (inputs[2:] or [temperature])[0]
    value = loss(*inputs[:2], **case)
    return value.detach(), *torch.autograd.grad(value, inputs)


def assert_same(ours, theirs, **tolerance):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


# infonce, by thought


@pytest.mark.parametrize("p", POWERS)
def test_constant_latents_cost_the_log_of_the_number_of_candidates(p):
    z = torch.ones(4, 2)
    assert infonce(z, z, p=p).exp().item() == pytest.approx(4)
    assert infonce(z, z, p=p, positive_in_denominator=False).exp().item() == pytest.approx(3)
    assert infonce(z, z, p=p, self_negatives=True).exp().item() == pytest.approx(5)
    assert infonce(z, z, p=p, self_negatives=True, positive_in_denominator=False).exp().item() == pytest.approx(4)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_two_latents_whose_similarities_differ_by_one_cost_log_of_one_plus_exp_of_minus_one_over_the_temperature(
    p, temperature
):
    # Axes e1, e2 have products 1 and 0; points 0, 1 have distances 0 and 1, whatever the power.
    z = torch.eye(2) if p is None else torch.tensor([[0.0], [1.0]])
    assert infonce(z, z, p=p, temperature=temperature).item() == pytest.approx(math.log1p(math.exp(-1 / temperature)))


def test_far_apart_each_latent_finds_its_positive():
    z = column(0, 10, 20)
    assert infonce(z, z, p=2).item() == pytest.approx(0, abs=1e-12)
    assert infonce(z, z.roll(1, 0), p=2).item() == pytest.approx((100 + 100 + 400) / 3)  # and misses a stranger's


def test_a_single_pair_costs_nothing_for_there_is_nothing_to_mistake_it_for():
    assert infonce(torch.ones(1, 3), torch.zeros(1, 3)).item() == 0


def test_without_the_positive_in_the_denominator_the_loss_is_not_bounded_from_below():
    z = column(0, 50)
    assert infonce(z, z, p=1, positive_in_denominator=False).item() == pytest.approx(-50)
    assert infonce(z, z, p=1).item() >= 0


def test_as_its_own_negative_a_sample_lies_nearer_than_its_positive():
    # Partner at distance 1, own copy at 0, the other far away: log(1 + e) with, log 1 = 0 without.
    z, z_pos = column(0, 1000), column(1, 1001)
    assert infonce(z, z_pos, p=1, self_negatives=True).item() == pytest.approx(math.log1p(math.e))
    assert infonce(z, z_pos, p=1).item() == pytest.approx(0, abs=1e-12)


def test_a_potential_is_a_head_start_of_each_positive():
    # Constant latents leave the potential alone to choose: weights 1 and 3 give log 4 − (log 1 + log 3) / 2.
    z = torch.ones(2, 1)
    loss = infonce(z, z, potential=torch.tensor([1.0, 3.0]).log())
    assert loss.item() == pytest.approx(math.log(4) - math.log(3) / 2)


# infonce, against the naive version


@pytest.mark.parametrize("positive_in_denominator", [False, True])
@pytest.mark.parametrize("p", POWERS)
def test_with_a_potential_infonce_and_its_gradients_equal_the_formula(p, positive_in_denominator):
    def naive(z, z_pos, potential):
        s = similarities(z, z_pos, p) / 0.7 + potential
        own = torch.eye(len(z), dtype=torch.bool)
        return (s.masked_fill(own & (not positive_in_denominator), -math.inf).logsumexp(1) - s.diagonal()).mean()

    def ours(z, z_pos, potential):
        case = {"p": p, "temperature": 0.7, "positive_in_denominator": positive_in_denominator}
        return infonce(z, z_pos, potential=potential, **case)

    def all_of(loss):
        inputs = [t.requires_grad_() for t in (noise(11, 3), noise(11, 3, seed=1), noise(11, seed=2))]
        return loss(*inputs).detach(), *torch.autograd.grad(loss(*inputs), inputs)

    assert_same(all_of(ours), all_of(naive), **EXACT)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
def test_infonce_and_its_gradients_equal_the_formula_the_temperatures_gradient_among_them(p, flags):
    case = dict(zip(("positive_in_denominator", "self_negatives"), flags, strict=True), p=p)
    z, z_pos, temperature = noise(11, 3), noise(11, 3, seed=1), torch.tensor(0.7, dtype=torch.float64)
    ours = value_and_gradients(infonce, z, z_pos, temperature, **case)
    theirs = value_and_gradients(naive_infonce, z, z_pos, temperature, **case)
    assert_same(ours, theirs, **EXACT)


@pytest.mark.parametrize("p", POWERS)
def test_the_gradient_of_the_temperature_is_the_slope_of_the_loss(p):
    z, z_pos, t, h = noise(11, 3), noise(11, 3, seed=1), 0.7, 1e-6
    gradient = value_and_gradients(infonce, z, z_pos, torch.tensor(t, dtype=torch.float64), p=p)[-1]
    slope = (infonce(z, z_pos, temperature=t + h, p=p) - infonce(z, z_pos, temperature=t - h, p=p)) / (2 * h)
    assert gradient.item() == pytest.approx(slope.item(), rel=1e-6)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("n", [1, 2, 9, 23])
def test_the_number_of_samples_need_not_fit_the_blocks(monkeypatch, n, p):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 30)
    z, z_pos = noise(n, 3), noise(n, 3, seed=1)
    assert_same(value_and_gradients(infonce, z, z_pos, p=p), value_and_gradients(naive_infonce, z, z_pos, p=p), **EXACT)


@modest
@given(SEEDS, st.sampled_from(POWERS), st.integers(1, 12))
def test_the_order_of_the_pairs_does_not_matter(seed, p, n):
    z, z_pos = noise(n, 3, seed=seed), noise(n, 3, seed=seed + 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(infonce(z[order], z_pos[order], p=p), infonce(z, z_pos, p=p), **EXACT)


def test_who_is_whose_positive_does_matter():
    z = noise(200, 3)
    assert infonce(z, z.roll(1, 0), p=2) > infonce(z, z, p=2) + 1  # by 6, the mean squared distance of two


@modest
@given(SEEDS, st.sampled_from(POWERS[1:]), st.floats(-10, 10), st.booleans())
def test_distance_losses_do_not_see_a_common_shift(seed, p, shift, flag):
    z, z_pos = noise(7, 3, seed=seed), noise(7, 3, seed=seed + 1)
    moved = infonce(z + shift, z_pos + shift, p=p, self_negatives=flag)
    torch.testing.assert_close(moved, infonce(z, z_pos, p=p, self_negatives=flag), **EXACT)
    torch.testing.assert_close(align_uniform(z + shift, z_pos + shift, p=p), align_uniform(z, z_pos, p=p), **EXACT)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("dtype", "steps"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_half_precision_latents_are_scaled_and_summed_in_float32(dtype, steps, p):
    z, z_pos = noise(40, 4).to(dtype), noise(40, 4, seed=1).to(dtype)
    value, *gradients = value_and_gradients(infonce, z, z_pos, p=p, temperature=0.3)
    exact, *references = value_and_gradients(naive_infonce, z.double(), z_pos.double(), p=p, temperature=0.3)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    for gradient, reference in zip(gradients, references, strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.double(), reference, rtol=2 * steps, atol=1e-5)


def test_a_low_temperature_does_not_overflow_half_precision():
    # 20 / 1e-4 = 200,000 is more than float16 holds (65,504).
    z = torch.tensor([[20.0], [0.0]], dtype=torch.float16)
    assert infonce(z, z, temperature=1e-4).item() == pytest.approx(math.log(2) / 2)


def test_autocast_does_not_touch_the_loss():
    z, z_pos = noise(30, 4, dtype=torch.float32), noise(30, 4, seed=1, dtype=torch.float32)
    for p in POWERS:
        plain = value_and_gradients(infonce, z, z_pos, p=p, temperature=0.3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_same(value_and_gradients(infonce, z, z_pos, p=p, temperature=0.3), plain, rtol=0, atol=0)


class Largest(TorchDispatchMode):
    """Notes the entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        storages = [t.untyped_storage() for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.entries = max([self.entries, *(s.nbytes() // 8 for s in storages)])  # of float64
        return result


def largest(loss, n, **case):
    with Largest() as watch:
        value_and_gradients(loss, noise(n, 2), noise(n, 2, seed=1), **case)
    return watch.entries


@pytest.mark.parametrize(
    ("loss", "case"),
    [(infonce, {}), (infonce, {"p": 1}), (infonce, {"p": 2, "self_negatives": True}),
     (align_uniform, {})],
)  # fmt: skip
def test_no_loss_holds_the_matrix_of_all_pairs(monkeypatch, loss, case):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 200)
    assert largest(loss, 250, **case) <= 250 * 3
    assert largest(loss, 100, **case) <= 100 * 3


def test_the_formulas_word_for_word_do_hold_it():
    assert min(largest(naive_infonce, 250), largest(naive_align_uniform, 250)) >= 250**2


@pytest.mark.parametrize("p", POWERS)
def test_latents_ten_thousand_apart_give_finite_losses_and_gradients(p):
    z = torch.tensor([[0.0, 0.0], [1e4, 0.0], [0.0, -1e4]])
    for loss in (infonce, align_uniform) if p else (infonce,):
        assert all(t.isfinite().all() for t in value_and_gradients(loss, z, z.flip(0), p=p))


# align_uniform


def test_alignment_alone_is_the_distance_of_positives():
    z, z_pos = column(0, 5), column(3, 2)  # both pairs at distance 3
    assert align_uniform(z, z_pos, alpha=0).item() == pytest.approx(9)
    assert align_uniform(z, z_pos, alpha=0, p=1).item() == pytest.approx(3)


def test_uniformity_alone_is_the_log_of_the_mean_over_negatives():
    # Latents 0, 0, 2: the first two see exp(0) and exp(−4), mean (1 + e⁻⁴)/2; the third sees exp(−4) twice.
    z = column(0, 0, 2)
    expected = (2 * math.log((1 + math.exp(-4)) / 2) - 4) / 3
    assert align_uniform(z, z + 7, alpha=1).item() == pytest.approx(expected)


def test_two_samples_at_distance_two_each_equal_to_its_positive_give_minus_two():
    assert align_uniform(column(0, 2), column(0, 2)).item() == pytest.approx(-2)


@pytest.mark.parametrize("p", POWERS[1:])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_align_uniform_and_its_gradients_equal_the_formula(alpha, p):
    z, z_pos = noise(11, 3), noise(11, 3, seed=1)
    ours = value_and_gradients(align_uniform, z, z_pos, alpha=alpha, p=p)
    assert_same(ours, value_and_gradients(naive_align_uniform, z, z_pos, alpha=alpha, p=p), **EXACT)


def test_at_one_half_it_is_half_of_what_infonce_tends_to_with_many_negatives():
    # Partners with the law of the samples (an autoregression of N(0, 1)), so that negatives are alike in both.
    n = 3_000
    z = noise(n, 2)
    z_pos = 0.9 * z + math.sqrt(1 - 0.9**2) * noise(n, 2, seed=1)
    half = align_uniform(z, z_pos).item()
    assert 2 * half == pytest.approx(infonce(z, z_pos, p=2).item() - math.log(n), abs=0.02)
    assert align_uniform(z, z_pos, alpha=0.4).item() != pytest.approx(half, abs=0.02)


@pytest.mark.parametrize("p", POWERS[1:])
@pytest.mark.parametrize("alpha", [0.3, 0.5])
def test_with_potentials_and_a_temperature_align_uniform_and_its_gradients_equal_the_formula(alpha, p):
    def naive(z, z_pos, c, c_pos, temperature):
        negatives = (similarities(z, z, p) / temperature + c).masked_fill(torch.eye(11, dtype=torch.bool), -math.inf)
        uniformity = negatives.logsumexp(1) - math.log(10) - c_pos
        return (alpha * uniformity - (1 - alpha) * similarities(z, z_pos, p).diagonal() / temperature).mean()

    def ours(z, z_pos, c, c_pos, temperature):
        return align_uniform(z, z_pos, alpha=alpha, p=p, potentials=(c, c_pos), temperature=temperature)

    def all_of(loss):
        latents = noise(11, 3), noise(11, 3, seed=1), noise(11, seed=2), noise(11, seed=3)
        inputs = [t.requires_grad_() for t in (*latents, torch.tensor(0.7, dtype=torch.float64))]
        return loss(*inputs).detach(), *torch.autograd.grad(loss(*inputs), inputs)

    assert_same(all_of(ours), all_of(naive), **EXACT)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
def test_potentials_are_free_up_to_a_constant_whatever_the_weight(alpha):
    z, z_pos, c, c_pos = noise(11, 3), noise(11, 3, seed=1), noise(11, seed=2), noise(11, seed=3)
    there = align_uniform(z, z_pos, alpha=alpha, potentials=(c, c_pos))
    shifted = align_uniform(z, z_pos, alpha=alpha, potentials=(c + 5, c_pos + 5))
    assert shifted.item() == pytest.approx(there.item())
    assert align_uniform(z, z_pos, alpha=alpha).item() != pytest.approx(there.item(), abs=0.01)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.8])
def test_every_weight_is_a_share_of_the_one_half_and_an_extra_pull_on_positives(alpha):
    z, z_pos = noise(11, 3), noise(11, 3, seed=1)
    pull = (z - z_pos).square().sum(1).mean()
    expected = 2 * alpha * align_uniform(z, z_pos) + (1 - 2 * alpha) * pull
    assert align_uniform(z, z_pos, alpha=alpha).item() == pytest.approx(expected.item())


def best_scale(z, z_pos, **case):
    """The factor of the latents at which the loss is least, and that loss."""
    found = minimize_scalar(lambda s: align_uniform(s * z, s * z_pos, **case).item(), bounds=(0, 200))
    return found.x, found.fun


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.4, 0.6])
def test_where_only_near_negatives_count_another_weight_only_scales_the_latents(alpha, p):
    z = torch.rand(1_500, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z_pos = z + 0.03 * noise(1_500, 1)
    (scale, _), (at_half, _) = best_scale(z, z_pos, alpha=alpha, p=p), best_scale(z, z_pos, p=p)
    assert scale / at_half == pytest.approx((alpha / (1 - alpha)) ** (1 / p), rel=0.05)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
def test_at_its_best_scale_the_loss_lies_between_zero_and_minus_alpha_log_of_the_negatives(alpha, p):
    # So many that negatives are much nearer than positives, or no scale would be best.
    z = noise(1_000, 2)
    _, loss = best_scale(z, z + 0.3 * noise(1_000, 2, seed=1), alpha=alpha, p=p)
    assert -alpha * math.log(999) < loss < 0


def test_with_positives_nearer_than_all_negatives_no_scale_is_best_and_infonce_has_a_floor():
    z = column(0, 1, 2)
    losses = [align_uniform(s * z, s * z + 0.1 * s).item() for s in (1, 10, 100)]
    assert losses[2] < 50 * losses[1] < 50 * 50 * losses[0] < 0
    assert losses[2] < -0.5 * math.log(2)  # what a best scale would have at least
    assert all(infonce(s * z, s * z + 0.1 * s, p=2).item() >= 0 for s in (1, 10, 100))


# errors


@pytest.mark.parametrize("loss", [infonce, align_uniform])
@pytest.mark.parametrize(
    ("z", "z_pos"), [((3, 2), (4, 2)), ((3, 2), (3, 1)), ((3,), (3,)), ((0, 2), (0, 2)), ((1, 3, 2), (1, 3, 2))]
)
def test_shapes_that_are_not_pairs_raise(loss, z, z_pos):
    with pytest.raises(InputError) as error:
        loss(torch.zeros(z), torch.zeros(z_pos))
    assert error.value.argument == "z_pos"


@pytest.mark.parametrize("loss", [infonce, align_uniform])
@pytest.mark.parametrize(
    ("argument", "value"),
    [("temperature", value) for value in (0, -1.0, math.inf, math.nan)]
    + [("p", value) for value in (0.5, 0, math.inf)],
)
def test_options_out_of_range_raise(loss, argument, value):
    with pytest.raises(InputError) as error:
        loss(torch.zeros(3, 2), torch.zeros(3, 2), **{argument: value})
    assert error.value.argument == argument


@pytest.mark.parametrize(
    ("loss", "options", "argument"),
    [
        *((infonce, {"potential": torch.zeros(shape)}, "potential") for shape in [(4,), (3, 1), ()]),
        (infonce, {"potential": torch.zeros(3), "self_negatives": True}, "potential"),
        (align_uniform, {"p": None}, "p"),
        (align_uniform, {"potentials": (torch.zeros(3), torch.zeros(2))}, "potential"),
        (align_uniform, {"potentials": (torch.zeros(3, 1), torch.zeros(3))}, "potential"),
        *((align_uniform, {"alpha": alpha}, "alpha") for alpha in [-0.1, 1.1, math.nan]),
    ],
)
def test_options_that_do_not_fit_raise(loss, options, argument):
    with pytest.raises(InputError) as error:
        loss(torch.zeros(3, 2), torch.zeros(3, 2), **options)
    assert error.value.argument == argument


def test_a_single_pair_without_a_candidate_raises():
    for loss, options in ((infonce, {"positive_in_denominator": False}), (align_uniform, {})):
        with pytest.raises(InputError):
            loss(torch.zeros(1, 2), torch.zeros(1, 2), **options)


def test_the_loss_of_latents_far_apart_is_not_negative():
    z = 3_000 * torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    assert infonce(z, z, p=2).item() >= 0  # −‖a−b‖² loses digits out there, and the loss would be −0.35
