import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pindown.errors import InputError
from pindown.losses import pairwise
from pindown.losses.pairwise import logsumexp_similarity

POWERS = [None, 1, 1.5, 2, 3]
SEEDS = st.integers(0, 2**32 - 1)
modest = settings(deadline=None, max_examples=25)


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def naive(a, b, p=None, potential=None, diagonal=None):
    """The same with the whole matrix, by PyTorch's own operations."""
    s = a @ b.T if p is None else -(a[:, None] - b[None]).abs().pow(p).sum(-1)  # (n, m)
    s = s if potential is None else s + potential
    if diagonal is not None:
        s = s.masked_fill(torch.arange(len(a))[:, None] + diagonal == torch.arange(len(b)), -math.inf)
    return s.logsumexp(1)


def value_and_gradients(function, a, b, **case):
    a, b = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    result = function(a, b, **case)
    weights = noise(len(a), seed=99).to(result.dtype)  # rows weigh differently, so that a mix-up of rows shows
    return result.detach(), *torch.autograd.grad((result * weights).sum(), (a, b))


def assert_same(ours, theirs, **tolerance):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), **tolerance)


EXACT = {"rtol": 1e-9, "atol": 1e-9}


# values known by thought


def test_all_zero_latents_give_the_log_of_their_number():
    assert logsumexp_similarity(torch.zeros(2, 4), torch.zeros(3, 4)).exp().tolist() == pytest.approx([3, 3])


def test_skipping_the_diagonal_leaves_one_fewer():
    zero = torch.zeros(3, 4)
    assert logsumexp_similarity(zero, zero, diagonal=0).exp().tolist() == pytest.approx([2, 2, 2])


@pytest.mark.parametrize(("p", "similarity"), [(None, 2.0), (1, -3.0), (1.5, -(1 + 2**1.5)), (2, -5.0), (3, -9.0)])
def test_of_a_single_pair_the_result_is_the_similarity_itself(p, similarity):
    # (1, 2) against (2, 0) differ by 1 and 2; their product is 2.
    result = logsumexp_similarity(torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 0.0]]), p=p)
    assert result.tolist() == pytest.approx([similarity], rel=1e-6)


def test_the_diagonal_is_counted_from_where_the_samples_of_a_stand_in_b():
    z = noise(9, 3)
    whole = logsumexp_similarity(z, z, p=2, diagonal=0)
    stretch = logsumexp_similarity(z[3:7], z, p=2, diagonal=3)
    misplaced = logsumexp_similarity(z[3:7], z, p=2, diagonal=0)
    torch.testing.assert_close(stretch, whole[3:7])
    assert (misplaced - whole[3:7]).abs().min() > 0.01


# against the naive version


@pytest.mark.parametrize("diagonal", [None, 0])
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("n", "m", "d"), [(1, 2, 3), (2, 2, 1), (7, 7, 5), (13, 29, 2), (29, 13, 2)])
def test_value_and_gradients_equal_the_naive_version(n, m, d, p, diagonal):
    case = {"p": p, "diagonal": diagonal}
    a, b = noise(n, d), noise(m, d, seed=1)
    assert_same(
        value_and_gradients(logsumexp_similarity, a, b, **case), value_and_gradients(naive, a, b, **case), **EXACT
    )


@pytest.mark.parametrize("diagonal", [None, 0])
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("entries", [1, 30, 64, 10_000])  # 17 columns: one row, one row, three rows, all at once
def test_the_size_of_a_block_changes_nothing(monkeypatch, entries, p, diagonal):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", entries)
    case = {"p": p, "diagonal": diagonal}
    a, b = noise(23, 3), noise(17, 3, seed=1)
    assert_same(
        value_and_gradients(logsumexp_similarity, a, b, **case), value_and_gradients(naive, a, b, **case), **EXACT
    )


@pytest.mark.parametrize("p", POWERS)
def test_memory_layout_changes_nothing(p):
    a, b = noise(3, 11).T, noise(14, 6, seed=1)[::2, ::2]
    assert not a.is_contiguous()
    assert not b.is_contiguous()
    theirs = value_and_gradients(naive, a, b, p=p)
    a, b = a.requires_grad_(), b.requires_grad_()  # not cloned: a clone may be contiguous
    result = logsumexp_similarity(a, b, p=p)
    gradients = torch.autograd.grad(result @ noise(len(a), seed=99), (a, b))
    assert_same((result.detach(), *gradients), theirs, **EXACT)


@pytest.mark.parametrize("p", POWERS)
def test_latents_that_agree_have_finite_gradients(p):
    z = torch.cat([noise(3, 2), noise(3, 2), torch.zeros(2, 2, dtype=torch.float64)])  # each latent twice
    ours = value_and_gradients(logsumexp_similarity, z, z, p=p)
    assert all(t.isfinite().all() for t in ours)
    assert_same(ours, value_and_gradients(naive, z, z, p=p), **EXACT)


@pytest.mark.parametrize("p", POWERS)
def test_one_tensor_on_both_sides_gets_the_sum_of_both_gradients(p):
    z = noise(9, 3).requires_grad_()
    ours, theirs = (torch.autograd.grad(f(z, z, p=p).sum(), z)[0] for f in (logsumexp_similarity, naive))
    torch.testing.assert_close(ours, theirs, **EXACT)


def test_a_potential_adds_to_every_similarity_of_its_sample():
    # Zero latents, and weights 1, 2 and 3 for the rows of b: log (1 + 2 + 3).
    weights = torch.tensor([1.0, 2.0, 3.0]).log()
    for p in POWERS:
        result = logsumexp_similarity(torch.zeros(2, 4), torch.zeros(3, 4), p=p, potential=weights)
        assert result.exp().tolist() == pytest.approx([6, 6])


@pytest.mark.parametrize("diagonal", [None, 0])
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("entries", [30, 10_000])
def test_with_a_potential_value_and_gradients_equal_the_naive_version(monkeypatch, entries, p, diagonal):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", entries)

    def all_of(function):
        a, b, potential = (t.requires_grad_() for t in (noise(13, 3), noise(17, 3, seed=1), noise(17, seed=2)))
        result = function(a, b, p=p, potential=potential, diagonal=diagonal)
        return result, *torch.autograd.grad((result * noise(13, seed=99)).sum(), (a, b, potential))

    assert_same(all_of(logsumexp_similarity), all_of(naive), **EXACT)


def test_a_side_without_gradient_is_left_alone():
    a, b = noise(4, 2).requires_grad_(), noise(5, 2, seed=1)
    logsumexp_similarity(a, b, p=1).sum().backward()
    assert a.grad is not None
    assert b.grad is None


def test_a_second_derivative_is_an_error_rather_than_wrong():
    # Squared distances have a part that PyTorch could differentiate again: half of a second derivative.
    for p in (None, 1, 2):
        a = noise(4, 2).requires_grad_()
        (gradient,) = torch.autograd.grad(logsumexp_similarity(a, a, p=p).sum(), a, create_graph=True)
        with pytest.raises(RuntimeError):
            gradient.square().sum().backward()


@modest
@given(SEEDS, st.sampled_from(POWERS), st.integers(1, 12), st.integers(1, 12))
def test_the_order_of_the_samples_does_not_matter(seed, p, n, m):
    a, b = noise(n, 3, seed=seed), noise(m, 3, seed=seed + 1)
    shuffler = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(k, generator=shuffler) for k in (n, m))
    shuffled = logsumexp_similarity(a[rows], b[columns], p=p)
    torch.testing.assert_close(shuffled, logsumexp_similarity(a, b, p=p)[rows], **EXACT)


@modest
@given(SEEDS, st.sampled_from(POWERS[1:]), st.floats(-10, 10))
def test_distances_do_not_see_a_common_shift(seed, p, shift):
    a, b = noise(6, 3, seed=seed), noise(5, 3, seed=seed + 1)
    shifted = logsumexp_similarity(a + shift, b + shift, p=p)
    torch.testing.assert_close(shifted, logsumexp_similarity(a, b, p=p), **EXACT)


def test_the_dot_product_sees_a_common_shift():
    a, b = noise(6, 3), noise(5, 3, seed=1)
    assert (logsumexp_similarity(a + 1, b + 1) - logsumexp_similarity(a, b)).abs().max() > 0.1


def test_squared_distances_stay_exact_far_from_the_origin():
    # Around 1,000 a float32 code has steps of 6e-5 but its square has steps of .06: without removing the mean first,
    # the expanded square would be off by that much.
    a, b = noise(50, 4, dtype=torch.float32) + 1_000, noise(50, 4, seed=1, dtype=torch.float32) + 1_000
    torch.testing.assert_close(
        logsumexp_similarity(a, b, p=2).double(), naive(a.double(), b.double(), 2), rtol=0, atol=1e-5
    )


# precision


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(("dtype", "steps"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_half_precision_latents_are_summed_in_float32_and_get_gradients_of_their_own_kind(dtype, steps, p):
    a, b = noise(40, 4).to(dtype), noise(50, 4, seed=1).to(dtype)
    value, *gradients = value_and_gradients(logsumexp_similarity, a, b, p=p)
    reference, *references = value_and_gradients(naive, a.double(), b.double(), p=p)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), reference, rtol=1e-5, atol=1e-5)
    for gradient, exact in zip(gradients, references, strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.double(), exact, rtol=steps, atol=1e-5 + steps * 1e-3)


def test_half_precision_sums_would_be_wrong_by_more_than_we_are():
    # 5,000 equal terms: bfloat16 has 8 bits, so log 5,000 = 8.517 would come out as 8.5.
    zero = torch.zeros(1, 2, dtype=torch.bfloat16)
    many = torch.zeros(5_000, 2, dtype=torch.bfloat16)
    assert logsumexp_similarity(zero, many).item() == pytest.approx(math.log(5_000), abs=1e-5)
    assert naive(zero, many).item() != pytest.approx(math.log(5_000), abs=1e-2)


@pytest.mark.parametrize("p", [None, 1, 2])
def test_two_precisions_meet_in_the_wider_one(p):
    a, b = noise(4, 3).bfloat16(), noise(5, 3, seed=1)
    value, grad_a, grad_b = value_and_gradients(logsumexp_similarity, a, b, p=p)
    assert (value.dtype, grad_a.dtype, grad_b.dtype) == (torch.float64, torch.bfloat16, torch.float64)
    torch.testing.assert_close(value, naive(a.double(), b, p), **EXACT)
    torch.testing.assert_close(logsumexp_similarity(b, a, p=p), naive(b, a.double(), p), **EXACT)


@pytest.mark.parametrize("p", POWERS)
def test_autocast_does_not_touch_the_sums(p):
    a, b = noise(20, 4, dtype=torch.float32), noise(30, 4, seed=1, dtype=torch.float32)
    plain = value_and_gradients(logsumexp_similarity, a, b, p=p)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = value_and_gradients(logsumexp_similarity, a, b, p=p)
        assert (a @ b.T).dtype == torch.bfloat16  # the twin: autocast is really on
    assert_same(automatic, plain, rtol=0, atol=0)


@pytest.mark.parametrize("p", POWERS)
def test_latents_ten_thousand_apart_stay_finite(p):
    a = torch.tensor([[0.0, 0.0], [1e4, 0.0], [0.0, -1e4]])
    assert all(t.isfinite().all() for t in value_and_gradients(logsumexp_similarity, a, a.flip(0), p=p))


class Watch(TorchDispatchMode):
    """Notes, of all tensors that any operation returns, the largest, and whether an exponential is subnormal."""

    def __init__(self):
        super().__init__()
        self.largest = 0
        self.exponentials = 0
        self.subnormals = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.element_size())
        if func.__name__ in ("exp.default", "exp_.default", "_softmax.default"):
            values = tree_leaves(result)[0].detach()
            self.exponentials += values.numel()
            self.subnormals += int(((values > 0) & (values < torch.finfo(values.dtype).tiny)).sum())
        return result


def watched(function, a, b, **case):
    with Watch() as watch:
        value_and_gradients(function, a, b, **case)
    return watch


@pytest.mark.parametrize("p", POWERS)
def test_the_matrix_of_all_pairs_is_never_held_forward_or_backward(monkeypatch, p):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 1_000)
    d = 2
    for n in (10, 40, 100, 300):  # all pairs in one block, two by two, four by four, ten by ten blocks
        a, b = noise(n, d), noise(n, d, seed=1)
        assert watched(logsumexp_similarity, a, b, p=p).largest <= max(1_000, n * (d + 1))


def test_the_naive_version_does_hold_it():
    assert watched(naive, noise(300, 2), noise(300, 2, seed=1)).largest >= 300**2


def test_far_apart_latents_make_no_subnormal_numbers_which_are_slow_on_a_cpu():
    # exp(−95) = 6e-42 lies below float32's smallest normal number, 1.2e-38, and above its smallest, 1.4e-45.
    a, b = torch.zeros(1, 1), torch.tensor([[0.0], [95.0]])
    watch = watched(logsumexp_similarity, a, b, p=1)
    assert watch.exponentials == 5  # two forward and one that carries the sum so far, two backward
    assert watch.subnormals == 0


def test_a_plain_softmax_does_make_them():
    assert watched(lambda a, b: torch.softmax(-torch.cdist(a, b, 1), 1).sum(1), torch.zeros(1, 1),
                   torch.tensor([[0.0], [95.0]])).subnormals > 0  # fmt: skip


# errors


@pytest.mark.parametrize(
    ("a", "b", "options", "argument"),
    [
        *((a, b, {}, "b") for a, b in [((3, 2), (3, 4)), ((3,), (3, 2)), ((3, 2), (2,)), ((1, 3, 2), (3, 2))]),
        ((3, 2), (0, 2), {}, "b"),
        ((1, 2), (1, 2), {"diagonal": 0}, "b"),
        *(((3, 2), (5, 2), {"potential": torch.zeros(shape)}, "potential") for shape in [(4,), (5, 1), (1, 5), ()]),
        *(((3, 2), (3, 2), {"p": p}, "p") for p in [0, 0.5, -1, math.inf, math.nan]),
    ],
)
def test_inputs_that_do_not_fit_raise(a, b, options, argument):
    with pytest.raises(InputError) as error:
        logsumexp_similarity(torch.zeros(a), torch.zeros(b), **options)
    assert error.value.argument == argument


# blocks of columns, for candidates by the million


@pytest.mark.parametrize(("n", "m", "entries"), [(5, 41, 20), (41, 5, 20), (12, 12, 9), (1, 100, 7), (3, 8, 1)])
@pytest.mark.parametrize("with_potential", [False, True])
@pytest.mark.parametrize("diagonal", [None, 0, 3])
@pytest.mark.parametrize("p", POWERS)
def test_several_blocks_of_columns_change_nothing(monkeypatch, p, diagonal, with_potential, n, m, entries):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", entries)
    height, width = pairwise._block_shape(n, m, entries)
    assert height * width <= entries
    assert width < m or height < n  # more than one block, or the test shows nothing

    def all_of(function):
        inputs = [noise(n, 3), noise(m, 3, seed=1), *([noise(m, seed=2)] if with_potential else [])]
        a, b, *potential = (t.requires_grad_() for t in inputs)
        case = {"p": p, "diagonal": diagonal}
        result = function(a, b, potential=potential[0] if potential else None, **case)
        return result, *torch.autograd.grad((result * noise(n, seed=99)).sum(), (a, b, *potential))

    assert_same(all_of(logsumexp_similarity), all_of(naive), **EXACT)


@pytest.mark.parametrize("p", [None, 1.5, 2, 3])  # at p = 1 the gradient jumps, and finite differences may straddle it
def test_gradients_over_blocks_of_columns_are_those_of_finite_differences(monkeypatch, p):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 6)
    a, b, potential = (t.requires_grad_() for t in (noise(4, 2), noise(7, 2, seed=1), noise(7, seed=2)))

    def function(a, b, potential):
        return logsumexp_similarity(a, b, p=p, potential=potential, diagonal=2)

    assert torch.autograd.gradcheck(function, (a, b, potential))


def test_a_block_never_has_more_entries_than_it_may_and_is_square_where_it_can_be():
    assert pairwise._block_shape(1024, 10**6, 1 << 20) == (1024, 1024)
    assert pairwise._block_shape(4, 10**6, 1 << 20) == (4, 1 << 18)  # few rows: wide
    assert pairwise._block_shape(10**6, 4, 1 << 20) == (1 << 18, 4)  # few columns: high
    assert pairwise._block_shape(3, 5, 1 << 20) == (3, 5)  # all at once
    assert pairwise._block_shape(0, 5, 1 << 20) == (1, 5)  # no row at all


def test_a_sum_over_many_blocks_is_as_exact_as_over_one(monkeypatch):
    a, b = noise(3, 4, dtype=torch.float32), noise(20_000, 4, seed=1, dtype=torch.float32)
    exact = naive(a.double(), b.double())
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 30)  # two thousand blocks of ten columns
    torch.testing.assert_close(logsumexp_similarity(a, b).double(), exact, rtol=0, atol=1e-5)


def test_temporary_memory_does_not_grow_with_the_number_of_candidates(monkeypatch):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 1_000)
    for m in (100, 1_000, 10_000):
        a, b = noise(5, 2), noise(m, 2, seed=1)
        assert watched(logsumexp_similarity, a, b).largest <= max(1_000, m * 2)  # b and its gradient have 2 m entries
