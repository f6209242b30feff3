"""`SparsePair`: its Jacobian against autograd's, what the penalty does, the graph, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import issparse
from sklearn.base import clone
from torch import nn

import pindown
from pindown import Sparse, SparsePair, activations, audit
from pindown.losses import feature_jacobian
from pindown.methods.sparse.pair import read_map
from pindown.networks.gates import L1, BatchTopK, TopK
from pindown.simulate import Superposed

G = torch.Generator().manual_seed(0)
X = Superposed.overcomplete(32, 16, n_active=2, offset=3.0, random_state=0).sample(1_500, random_state=1).x.numpy()
QUICK = {"gate": TopK(3), "max_iter": 60, "batch_size": 128, "verbose": False, "random_state": 0}


def linear(n_in, n_out):
    layer = nn.Linear(n_in, n_out)
    layer.weight.data = torch.randn(n_out, n_in, generator=G) / n_in**0.5
    layer.bias.data = 0.1 * torch.randn(n_out, generator=G)
    return layer


class Llama(nn.Module):
    """A gated MLP, with the names that models of that family give its parts."""

    def __init__(self, m=16, h=24):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(m, h), linear(m, h), linear(h, m)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


PLAIN, LLAMA = nn.Sequential(linear(16, 40), nn.GELU(), nn.Dropout(0.1), linear(40, 12)).eval(), Llama()


@pytest.fixture(scope="module")
def pairs():
    return [SparsePair(PLAIN, 32, weight=weight, n_jacobians=16, **QUICK).fit(X) for weight in (0.0, 0.3)]


def by_autograd(model, x, atoms, readers, active, active_out):
    def driven(z, x, at, at_out):
        return readers[at_out] @ model(x + z @ atoms[at])

    zero = torch.zeros(active.shape, dtype=x.dtype)
    return torch.stack(
        [torch.func.jacrev(driven)(*each) for each in zip(zero, x, active, active_out, strict=True)]
    )  # (n, k_out, k)


@pytest.mark.parametrize("n_samples", [3, 30], ids=["gathered, then folded", "folded, then gathered"])
@pytest.mark.parametrize("model", [PLAIN, LLAMA], ids=["plain", "gated"])
def test_the_jacobian_and_its_gradients_are_those_of_autograd(model, n_samples):
    model, between = model.double(), read_map(model)
    between.double()
    x = torch.randn(n_samples, 16, generator=G, dtype=torch.float64)
    m_out = len(between.outer)
    atoms, readers = (torch.randn(20, m, generator=G, dtype=torch.float64, requires_grad=True) for m in (16, m_out))
    active, active_out = (torch.rand(n_samples, 20, generator=G).argsort(1)[:, :k] for k in (4, 3))
    ours = feature_jacobian(
        atoms, between.inner, between.slopes(x), between.outer, readers, active=active, active_out=active_out
    )
    theirs = by_autograd(model.double(), x, atoms, readers, active, active_out)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    for a, b in zip(*(torch.autograd.grad(j.abs().sum(), (atoms, readers)) for j in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("model", [PLAIN, LLAMA], ids=["plain", "gated"])
def test_the_map_is_the_model_and_a_copy_of_it(model):
    between, x = read_map(model.float()), torch.randn(5, 16, generator=G)
    with torch.no_grad():
        torch.testing.assert_close(between(x), model(x))
    assert not list(between.parameters())
    assert len(between.inner) == (1 if model is PLAIN else 2)
    before = between(x)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
        assert torch.equal(between(x), before)
        for weight in model.parameters():
            weight.sub_(1)


def test_the_penalty_is_the_mean_jacobian_between_active_features(pairs):
    pair = copy.deepcopy(pairs[0].objective_).cpu().eval()
    x = torch.as_tensor(X[:64])
    before, after = pair.dictionaries
    active, active_after = before.encode(pair.encoder.preprocess(x)), after.encode(pair.preprocess_mapped(x))
    units = pair.encoder.preprocess.scale / pair.after.preprocess.scale
    whole = by_autograd(PLAIN, x, before.atoms.detach(), after.weight.detach(), active.indices, active_after.indices)
    fires = (active_after.values > 0)[:, :, None] & (active.values > 0)[:, None]
    expected = (units * whole * fires)[:16].abs().sum() / (16 * 3)
    plain = pair(x)
    pair.weight = 0.7
    torch.testing.assert_close(pair(x) - plain, 0.7 * expected, atol=1e-4, rtol=1e-3)


def test_the_penalty_lets_features_drive_fewer_and_dictionaries_still_reconstruct(pairs):
    without, with_ = pairs
    assert with_.graph(X).total < 0.65 * without.graph(X).total
    assert with_.graph(X).n_large < without.graph(X).n_large
    assert with_.score(X) > without.score(X) - 0.15
    assert without.score(X) > 0.5  # of the mean: 0
    assert with_.held_out_.score == pytest.approx(with_.score(X), abs=0.1)


def test_both_sides_are_dictionaries_with_activations_atoms_and_files(pairs, tmp_path):
    pair = pairs[0]
    assert isinstance(pair.before_, Sparse)
    assert (pair.before_.components_.shape, pair.after_.components_.shape) == ((32, 16), (32, 12))
    assert np.allclose(pair.transform(X), pair.before_.transform(X), atol=1e-5)
    assert np.linalg.norm(pair.after_.components_, axis=1) == pytest.approx(np.ones(32), abs=1e-6)
    again = Sparse.from_saelens(pair.after_.to_saelens(tmp_path / "after"))
    assert again.score(pair.apply_map(X)) == pytest.approx(pair.after_.score(pair.apply_map(X)), abs=1e-3)
    assert pair.score(X) == pytest.approx((pair.before_.score(X) + pair.after_.score(pair.apply_map(X))) / 2)


def test_the_graph_is_data_and_a_picture(pairs, tmp_path):
    graph = pairs[0].graph(X[:600])  # more rows than are looked at in one go
    assert issparse(graph.strength)
    assert graph.strength.shape == (32, 32)
    assert np.abs(graph.signed).sum() <= graph.strength.sum() + 1e-9
    assert graph.frequency.max() <= 1
    assert graph.frequency.sum() == pytest.approx(9, abs=0.5)  # three active drive three
    assert graph.total == pytest.approx(np.mean([pairs[0].graph(part).total for part in X[:600].reshape(2, 300, 16)]))
    edges = graph.strongest(5)
    assert edges[0].strength == graph.strength.max() == graph.strength[edges[0].source, edges[0].target]
    assert [edge.strength for edge in edges] == sorted((edge.strength for edge in edges), reverse=True)
    page = graph.save(tmp_path / "graph.html", 5).read_text()
    assert page.count("<line") == 5
    assert "http" not in page
    assert str(graph).startswith("Σ|J| of a sample is")


def test_it_is_saved_loaded_and_cloned(pairs, tmp_path):
    pairs[1].save(tmp_path / "pair.pindown")
    again = pindown.load(tmp_path / "pair.pindown")
    assert np.array_equal(again.transform(X), pairs[1].transform(X))
    assert again.graph(X[:100]).total == pytest.approx(pairs[1].graph(X[:100]).total)
    assert clone(pairs[1]).get_params()["weight"] == 0.3


def test_samples_may_be_activations_before_a_gated_mlp(tmp_path):
    model = nn.Sequential(nn.Embedding(100, 16), nn.LayerNorm(16), LLAMA.float())
    tokens = torch.randint(100, (60, 10), generator=G)
    activations(model, tokens.split(20), "1", tmp_path)
    pair = SparsePair(LLAMA, 24, **QUICK | {"gate": BatchTopK(2), "max_iter": 20}).fit(str(tmp_path))
    with torch.no_grad():
        rows = model[1](model[0](tokens)).reshape(-1, 16)
        assert np.allclose(pair.apply_map(rows), LLAMA(rows).numpy(), atol=1e-5)
    assert pair.graph(rows).total > 0
    assert pair.held_out_.n_samples % 10 == 0  # whole texts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_an_audit_compares_atoms_and_claims_nothing(pairs):
    found = audit(pairs[1].set_params(max_iter=20), X[:600], n_fits=2, random_state=0)
    assert not found.claims
    assert {each.metric for each in found.agreement} == {"PW-MCC of atoms"}


@pytest.mark.parametrize(
    ("model", "options", "rows", "error", "message"),
    [
        (
            nn.Linear(16, 16),
            {},
            X,
            TypeError,
            r"map must be nn.Sequential\(Linear, nonlinearity, Linear\), .* Linear",
        ),
        (
            nn.Sequential(linear(16, 4), nn.ReLU(), linear(5, 2)),
            {},
            X,
            ValueError,
            r"hidden units each, got \[4, 5\]",
        ),
        (PLAIN, {}, X[:, :7], ValueError, "map takes 16 features, but X has 7. Give the samples that go into"),
        (PLAIN, {"gate": L1()}, X, ValueError, "active features of L1 is not bounded"),
        (PLAIN, {"gate": "topk"}, X, TypeError, "gate must be one of pindown.networks.gates"),
        (PLAIN, {"gate": TopK(40)}, X, ValueError, "`k=40`"),
        (PLAIN, {"weight": -1.0}, X, ValueError, "weight == -1.0, must be >= 0"),
        (PLAIN, {"n_jacobians": 0}, X, ValueError, "n_jacobians == 0, must be >= 1"),
        (PLAIN, {}, X[:31], ValueError, r"n_samples=31, but n_components=32"),
        (PLAIN, {}, np.where(X > 3, np.nan, X), ValueError, "of X has NaN"),
    ],
)
def test_bad_input_raises(model, options, rows, error, message):
    with pytest.raises(error, match=message):
        SparsePair(model, 32, **QUICK | options).fit(rows)


def test_active_features_must_be_indices():
    between, x = read_map(PLAIN.float()), torch.zeros(2, 16)
    weights = (torch.eye(16), between.inner, between.slopes(x), between.outer, torch.eye(12))
    with pytest.raises(ValueError, match="active_out"):
        feature_jacobian(*weights, active=torch.zeros(2, 3).long(), active_out=torch.zeros(3, 2).long())
