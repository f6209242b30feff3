"""Gates and the sums behind them: numbers by hand, gradients against the dense computation, bounded memory."""

import pytest
import torch

from pindown.errors import InputError
from pindown.networks import gates
from pindown.networks.gates import L1, BatchTopK, JumpReLU, Matryoshka, TopK, chosen, combined, scattered

G = torch.Generator().manual_seed(0)
X, W, B, D = (torch.randn(*shape, generator=G, dtype=torch.float64) for shape in ((9, 5), (12, 5), (12,), (12, 5)))


def dense(values, indices, n_features=12):
    return torch.zeros(len(values), n_features, dtype=values.dtype).scatter_add(1, indices, values)


def test_the_largest_scores_are_chosen_and_their_gradient_is_that_of_the_dense_product():
    x, w, b = (part.clone().requires_grad_() for part in (X, W, B))
    values, indices = chosen(x, w, b, 3)
    expected = torch.addmm(b, x, w.T).topk(3, dim=1)
    torch.testing.assert_close(values.sort(1).values, expected.values.sort(1).values)
    weights = torch.randn(values.shape, generator=G, dtype=torch.float64)
    ours = torch.autograd.grad((values * weights).sum(), (x, w, b))
    whole = torch.addmm(b, x, w.T).gather(1, indices)
    theirs = torch.autograd.grad((whole * weights).sum(), (x, w, b))
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, c)


def test_combined_and_scattered_are_products_with_the_dense_latents():
    values, indices = chosen(X, W, B, 3)
    torch.testing.assert_close(combined(values, indices, D), dense(values, indices) @ D)
    torch.testing.assert_close(scattered(values, indices, X, 12), dense(values, indices).T @ X)


def test_gradients_of_combined_are_those_of_the_dense_product_also_where_an_atom_comes_twice():
    indices = torch.tensor([[0, 0, 2], [2, 1, 0], [5, 5, 5]])
    values, atoms = torch.randn(3, 3, generator=G, dtype=torch.float64).requires_grad_(), D.clone().requires_grad_()
    ours = torch.autograd.grad(combined(values, indices, atoms).square().sum(), (values, atoms))
    theirs = torch.autograd.grad((dense(values, indices) @ atoms).square().sum(), (values, atoms))
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, c)


def test_samples_in_blocks_are_the_same_samples(monkeypatch):
    whole = chosen(X, W, B, 3)
    monkeypatch.setattr(gates, "AT_ONCE", 24)  # two rows at a time
    blocks = chosen(X, W, B, 3)
    torch.testing.assert_close(dense(*blocks), dense(*whole))


def test_no_matrix_of_samples_and_latents_is_kept_for_the_gradient():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        weight = torch.randn(4_000, 3, requires_grad=True)
        values, indices = chosen(torch.randn(500, 3), weight, torch.zeros(4_000), 2)
        combined(values, indices, weight).sum()
    assert max(kept) < 500 * 4_000 / 100


def test_topk_lets_k_positive_latents_of_a_sample_through():
    module = TopK(2)(4)
    assert module.n_candidates == 2
    assert module(torch.tensor([[3.0, -1.0], [2.0, 1.0]])).tolist() == [[3.0, 0.0], [2.0, 1.0]]


def test_batch_topk_shares_a_budget_within_a_batch_and_keeps_a_threshold_for_later():
    module = BatchTopK(1)(4).train()
    scores = torch.tensor([[3.0, 2.5, 1.0, 0.5], [2.0, 0.1, -1.0, -2.0]])
    assert (module(scores) > 0).sum(1).tolist() == [2, 0]
    assert module.threshold.item() == 2.5
    module.eval()
    assert (module(torch.tensor([[2.6, 2.4, 0.0, 0.0]])) > 0).tolist() == [[True, False, False, False]]
    for _ in range(1_000):
        module.train()(torch.tensor([[2.0, 1.0, 0.0, 0.0]]))
    assert module.threshold.item() == pytest.approx(2.0, abs=1e-3)


def test_matryoshka_has_levels_that_each_reconstruct_and_the_last_has_all_features():
    assert Matryoshka(2)(64).levels(64) == (4, 8, 16, 32, 64)
    assert BatchTopK(2)(64).levels(64) == (64,)


def test_jumprelu_keeps_scores_above_its_threshold_and_learns_it_from_scores_nearby():
    module = JumpReLU(2, bandwidth=1.0)(4)
    level = module.threshold[0].item()
    scores = torch.tensor([[level + 0.1, level - 0.1, level + 5, level - 5]], requires_grad=True)
    activations = module(scores)
    assert (activations > 0).tolist() == [[True, False, True, False]]
    (gradient,) = torch.autograd.grad(activations.sum(), module.threshold)
    assert gradient.tolist() == pytest.approx([-level, -level, 0, 0], abs=1e-6)
    # Two of four fire, as asked: it costs nothing, and what it costs grows with the square.
    assert module.penalty(scores, activations, 9).item() == 0
    assert JumpReLU(1, bandwidth=1.0)(4).penalty(scores + 10, activations, 9).item() == 9  # four in place of one


def test_a_threshold_that_is_exceeded_too_often_rises():
    module = JumpReLU(1, bandwidth=1.0)(4)
    scores = module.threshold.detach()[None] + torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    (gradient,) = torch.autograd.grad(module.penalty(scores, scores, 9), module.threshold)
    assert (gradient < 0).all()  # descent raises the threshold


def test_l1_charges_for_each_unit():
    module = L1(3.0)(4)
    activations = module(torch.tensor([[1.0, 2.0, -1.0, 0.0]]))
    assert module.penalty(activations, activations, 9).item() == pytest.approx(3 * 3 / 9)


@pytest.mark.parametrize("gate", [TopK, BatchTopK, Matryoshka, JumpReLU])
def test_by_default_one_feature_in_thirty_two_fires_and_at_most_thirty_two(gate):
    assert [gate()(n).n_expected for n in (3, 320, 5_000)] == [1, 10, 32]


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: TopK(5)(4), "k"),
        (lambda: BatchTopK(0)(4), "k"),
        (lambda: Matryoshka(1, fractions=(0.5,))(4), "fractions"),
        (lambda: L1(0.0)(4), "weight"),
        (lambda: JumpReLU(1, bandwidth=-1.0)(4), "bandwidth"),
    ],
)
def test_gates_out_of_range_raise(make, argument):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.argument == argument


def test_gates_are_values():
    assert gates.TopK(3) == gates.TopK(3) != gates.TopK(4)
    assert repr(gates.TopK(3)) == "TopK(k=3)"
