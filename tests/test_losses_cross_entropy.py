import importlib
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pindown.errors import InputError
from pindown.losses import cross_entropy, pairwise

losses = importlib.import_module("pindown.losses.supervised")
SEEDS = st.integers(0, 2**32 - 1)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_labels(n, n_labels, seed=3):
    return torch.randint(n_labels, (n,), generator=torch.Generator().manual_seed(seed))


def naive(z, vectors, labels, scale=1.0, offsets=0.0):
    return nn.functional.cross_entropy(scale * z @ vectors.T + offsets, labels)


@pytest.fixture(autouse=True, scope="module")
def in_blocks():
    """Let scores never be held at once, however few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "MAX_SCORES", 0)
        yield


@pytest.mark.parametrize("with_offsets", [False, True])
def test_few_scores_held_at_once_give_the_same_loss_and_gradients(monkeypatch, with_offsets):
    def both():
        z, vectors, offsets = (t.requires_grad_() for t in (noise(9, 3), noise(5, 3, seed=1), noise(5, seed=2)))
        options = {"offsets": offsets} if with_offsets else {}
        loss = cross_entropy(z, vectors, some_labels(9, 5), scale=1.7, **options)
        return loss, *torch.autograd.grad(loss, (z, vectors, *options.values()))

    blocks = both()
    monkeypatch.setattr(losses, "MAX_SCORES", 45)
    for few, many in zip(both(), blocks, strict=True):
        torch.testing.assert_close(few, many, **EXACT)


# values known by thought


def test_latents_that_say_nothing_cost_the_log_of_the_number_of_labels():
    assert cross_entropy(torch.zeros(2, 3), noise(7, 3).float(), torch.tensor([0, 6])).item() == pytest.approx(
        math.log(7)
    )


def test_offsets_that_are_log_frequencies_make_it_the_entropy_of_the_labels():
    # One half, one quarter, one quarter: 1.5 bits.
    frequencies = torch.tensor([0.5, 0.25, 0.25])
    loss = cross_entropy(torch.zeros(4, 2), torch.zeros(3, 2), torch.tensor([0, 0, 1, 2]), offsets=frequencies.log())
    assert loss.item() == pytest.approx(1.5 * math.log(2))


def test_of_two_opposite_vectors_it_is_the_logistic_loss():
    # z·w = ±1 and scale 2: log(1 + e^(−4)) if the label is right, 4 more if it is wrong.
    z, vectors = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    right, wrong = (cross_entropy(z, vectors, torch.tensor([c]), scale=2.0).item() for c in (0, 1))
    assert right == pytest.approx(math.log1p(math.exp(-4)), rel=1e-5)
    assert wrong - right == pytest.approx(4, rel=1e-5)


# against the whole matrix


@pytest.mark.parametrize("entries", [10, 1 << 19])
@pytest.mark.parametrize("with_offsets", [False, True])
@pytest.mark.parametrize(("n", "n_labels"), [(1, 2), (9, 4), (4, 23)])
def test_value_and_gradients_equal_pytorchs_on_the_whole_matrix(monkeypatch, n, n_labels, with_offsets, entries):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", entries)
    labels = some_labels(n, n_labels)

    def all_of(function):
        z, vectors, scale = noise(n, 3), noise(n_labels, 3, seed=1), torch.tensor(1.7, dtype=torch.float64)
        inputs = [z, vectors, scale, *([noise(n_labels, seed=2)] if with_offsets else [])]
        z, vectors, scale, *offsets = (t.requires_grad_() for t in inputs)
        loss = function(z, vectors, labels, scale=scale, **({"offsets": offsets[0]} if offsets else {}))
        return loss, *torch.autograd.grad(loss, (z, vectors, scale, *offsets))

    for ours, theirs in zip(all_of(cross_entropy), all_of(naive), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_gradients_are_those_of_finite_differences(monkeypatch):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 6)
    labels = some_labels(4, 7)
    inputs = (noise(4, 2), noise(7, 2, seed=1), torch.tensor(1.7, dtype=torch.float64), noise(7, seed=2))

    def function(z, vectors, scale, offsets):
        return cross_entropy(z, vectors, labels, scale=scale, offsets=offsets)

    assert torch.autograd.gradcheck(function, tuple(t.requires_grad_() for t in inputs))


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.integers(1, 10), st.integers(1, 10))
def test_it_is_never_negative_and_the_order_of_the_labels_does_not_matter(seed, n, n_labels):
    z, vectors, labels = noise(n, 3, seed=seed), noise(n_labels, 3, seed=seed + 1), some_labels(n, n_labels, seed)
    loss = cross_entropy(z, vectors, labels, scale=30.0)
    assert loss >= 0
    order = torch.randperm(n_labels, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(cross_entropy(z, vectors[order], order.argsort()[labels], scale=30.0), loss, **EXACT)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.floats(-10, 10))
def test_a_common_shift_of_the_vectors_or_the_offsets_is_not_seen(seed, shift):
    z, vectors, labels, offsets = noise(6, 3, seed=seed), noise(5, 3, seed=seed + 1), some_labels(6, 5), noise(5)
    loss = cross_entropy(z, vectors, labels, offsets=offsets)
    torch.testing.assert_close(cross_entropy(z, vectors + shift, labels, offsets=offsets), loss, **EXACT)
    torch.testing.assert_close(cross_entropy(z, vectors, labels, offsets=offsets + shift), loss, **EXACT)


def test_a_shift_of_the_latents_is_seen():
    z, vectors, labels = noise(200, 3), noise(50, 3, seed=1), some_labels(200, 50)
    assert abs(cross_entropy(z + 3, vectors, labels) - cross_entropy(z, vectors, labels)) > 1


def test_half_precision_latents_are_summed_in_float32():
    # 5,000 equal terms: bfloat16 has 8 bits, so log 5,000 = 8.517 would come out as 8.5.
    z, vectors = torch.zeros(1, 2, dtype=torch.bfloat16), torch.zeros(5_000, 2, dtype=torch.bfloat16)
    loss = cross_entropy(z, vectors, torch.zeros(1, dtype=torch.int64))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(5_000), abs=1e-5)


def test_offsets_do_not_change_the_precision_of_the_latents():
    loss = cross_entropy(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), offsets=noise(3))
    assert loss.dtype == torch.float32


# memory


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize(("function", "holds_the_matrix"), [(cross_entropy, False), (naive, True)])
def test_the_matrix_of_all_scores_is_never_held(monkeypatch, function, holds_the_matrix):
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 5_000)
    n, n_labels, d = 200, 2_000, 3
    z, vectors = noise(n, d).requires_grad_(), noise(n_labels, d, seed=1).requires_grad_()
    with Largest() as largest:
        function(z, vectors, some_labels(n, n_labels), offsets=noise(n_labels, seed=2)).backward()
    assert (largest.entries >= n * n_labels) == holds_the_matrix
    if not holds_the_matrix:
        assert largest.entries <= n_labels * (d + 1)


# errors


def test_labels_outside_the_vectors_raise():
    for labels in ([0, 5], [-1, 0]):
        with pytest.raises(InputError) as error:
            cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), torch.tensor(labels))
        assert error.value.argument == "labels"


@pytest.mark.parametrize("labels", [torch.zeros(2), torch.zeros(2, dtype=torch.int32), torch.zeros(3).long(),
                                    torch.zeros(2, 1).long()])  # fmt: skip
def test_labels_of_another_kind_or_shape_raise(labels):
    with pytest.raises(InputError) as error:
        cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), labels)
    assert error.value.argument == "labels"


@pytest.mark.parametrize(("z", "vectors"), [((2, 3), (5, 4)), ((2,), (5, 2)), ((2, 3), (0, 3)), ((0, 3), (5, 3))])
def test_shapes_that_do_not_meet_raise(z, vectors):
    with pytest.raises(InputError) as error:
        cross_entropy(torch.zeros(z), torch.zeros(vectors), torch.zeros(z[0], dtype=torch.int64))
    assert error.value.argument == "vectors"


@pytest.mark.parametrize("shape", [(4,), (5, 1), ()])
def test_offsets_that_are_not_one_number_per_label_raise(shape):
    with pytest.raises(InputError) as error:
        cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), torch.tensor([0, 1]), offsets=torch.zeros(shape))
    assert error.value.argument == "offsets"
