"""`Sparse`: what it learns, keeps, refuses and says of itself. Recovery is in tests/test_theorems_sparse.py."""

import copy
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from raising import input_error
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from torch.utils.data import DataLoader, TensorDataset

import pindown
from pindown import Sparse, Trainer, audit, plan
from pindown.data.data import Data
from pindown.methods.sparse import estimator
from pindown.methods.sparse.audit import compare_seeds
from pindown.methods.sparse.autoencoder import DEAD_AFTER, MAX_REVIVED, SparseAutoencoder
from pindown.metrics import dead_fraction, fvu, l0
from pindown.networks.gates import L1, BatchTopK, JumpReLU, Matryoshka, TopK
from pindown.simulate import Superposed
from pindown.training.callbacks import Callback

GATES = [TopK(3), BatchTopK(3), Matryoshka(3), JumpReLU(3), L1()]
SIMULATION = Superposed.overcomplete(32, 16, n_active=2, offset=3.0, random_state=0)
X = SIMULATION.sample(1_500, random_state=1).x.numpy()
QUICK = {"gate": TopK(3), "max_iter": 40, "batch_size": 128, "verbose": False, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return Sparse(32, n_seeds=2, **QUICK).fit(X)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_every_gate_has_sparse_activations_that_reconstruct_samples_and_atoms_of_unit_length(gate):
    sparse = Sparse(32, **QUICK | {"gate": gate}).fit(X)
    activations = sparse.transform(X)
    assert activations.shape == (1_500, 32)
    assert (activations >= 0).all()
    assert l0(activations) < (16 if isinstance(gate, L1) else 6)
    assert np.linalg.norm(sparse.components_, axis=1) == pytest.approx(np.ones(32), abs=1e-6)
    assert sparse.score(X) == pytest.approx(1 - fvu(X, sparse.inverse_transform(activations)), abs=1e-6)
    assert sparse.score(X) > 0.3  # of the mean: 0
    assert sparse.held_out_.score == pytest.approx(sparse.score(X), abs=0.15)


def test_sparse_output_has_the_same_activations(fitted):
    activations = fitted.transform(X)
    sparse = copy.copy(fitted).set_params(sparse_output=True).transform(X)
    assert issparse(sparse)
    assert sparse.format == "csr"
    assert sparse.dtype == X.dtype
    assert sparse.nnz == np.count_nonzero(activations) == 3 * 1_500
    assert np.abs(sparse - activations).max() < 1e-5
    assert np.allclose(fitted.inverse_transform(sparse), fitted.inverse_transform(activations), atol=1e-4)


def test_activations_of_many_features_are_never_dense():
    wide = Sparse(6_000, **QUICK | {"max_iter": 1, "trainer": Trainer(validation_fraction=0), "sparse_output": True})
    samples = np.random.default_rng(0).normal(size=(6_001, 4)).astype(np.float32)
    wide.fit(samples)
    tracemalloc.start()
    activations = wide.transform(samples)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert activations.shape == (6_001, 6_000)
    assert activations.nnz <= 3 * 6_001
    assert most < 6_001 * 6_000 * 4 / 20  # of which as a matrix, in bytes


def test_activations_are_in_the_units_of_x():
    first = Sparse(32, **QUICK).fit(X)
    other = Sparse(32, **QUICK).fit(1_000 * X + 50)
    assert np.allclose(first.components_, other.components_, atol=1e-3)
    assert np.allclose(1_000 * first.transform(X), other.transform(1_000 * X + 50), atol=2.0, rtol=1e-2)


def test_samples_may_come_from_a_memory_map_a_loader_and_a_simulation(tmp_path, fitted):
    np.save(tmp_path / "x.npy", X)
    mapped = Sparse(32, **QUICK).fit(np.load(tmp_path / "x.npy", mmap_mode="r"))
    alone = Sparse(32, **QUICK).fit(X)
    # A sum in another order activates another feature now and then, and so they are alike, not equal.
    assert (mapped.components_ * alone.components_).sum(1).mean() > 0.98
    loader = DataLoader(TensorDataset(torch.as_tensor(X)), batch_size=100)
    assert Sparse(32, **QUICK).fit(loader).score(X) > 0.3
    simulated = Sparse(32, **QUICK).fit_process(SIMULATION)
    assert simulated.score(X) > 0.3
    activations = copy.copy(fitted).set_params(sparse_output=True).transform(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert np.abs(activations - fitted.transform(X)).max() < 1e-5
    with pytest.raises(ValueError, match="no end"):
        simulated.transform_sparse(SIMULATION)


def test_partial_fit_improves_the_score_with_every_call():
    sparse = Sparse(32, **QUICK)
    scores = [sparse.partial_fit(X).score(X) for _ in range(5)]
    assert scores[-1] > scores[0]
    assert sparse.n_iter_ == 5 * (1_500 // 128)


def test_saved_and_loaded_it_is_the_same(tmp_path, fitted):
    fitted.save(tmp_path / "sparse.pindown")
    again = pindown.load(tmp_path / "sparse.pindown")
    assert np.array_equal(again.transform(X), fitted.transform(X))
    assert again.agreement().values == fitted.agreement().values
    assert clone(again).get_params() == clone(fitted).get_params()


class Stop(Callback):
    """Presses Ctrl-C, as it were, half way."""

    def report(self, report):
        if report.step == 25:
            raise KeyboardInterrupt


def test_an_interrupted_fit_that_resumes_equals_an_uninterrupted_one(tmp_path):
    options = QUICK | {"max_iter": 50}
    unbroken = Sparse(32, **options).fit(X)
    trainer = Trainer(checkpoint=tmp_path / "c.safetensors", save_every=0)
    with pytest.raises(KeyboardInterrupt):
        Sparse(32, **options, trainer=Trainer(checkpoint=trainer.checkpoint, save_every=0, callbacks=(Stop(),))).fit(X)
    resumed = Sparse(32, **options, trainer=trainer).fit(X)
    assert np.array_equal(resumed.components_, unbroken.components_)


# ---- seeds ----------------------------------------------------------------------------------------------------------


def test_seeds_train_independently_from_different_initialisations(fitted):
    alone = Sparse(32, **QUICK).fit(X)
    assert np.allclose(alone.components_, fitted.components_, atol=2e-2)  # when to stop is decided by both
    first, second = (each.atoms for each in fitted.objective_.dictionaries)
    assert not torch.allclose(first, second, atol=0.1)


def test_agreement_has_a_chance_level_and_bands_of_frequency(fitted):
    found = fitted.agreement(X)
    assert 0.35 < found.chance < 0.55
    assert found.chance < found.worst <= 1
    assert sum(band.n for band in found.bands) == 32
    assert "PW-MCC of seeds" in str(found)
    assert found.found == (found.cosine >= 0.9).mean()


def test_equal_dictionaries_agree_and_random_ones_by_chance():
    rng = np.random.default_rng(0)
    atoms = rng.normal(size=(60, 12))
    assert compare_seeds([atoms, atoms[::-1] * 2], None).worst == pytest.approx(1)
    found = compare_seeds([rng.normal(size=(60, 12)) for _ in range(3)], None)
    assert found.worst == pytest.approx(found.chance, abs=0.03)
    assert found.found < 0.05


# ---- revival --------------------------------------------------------------------------------------------------------


def test_a_dead_feature_is_revived_as_the_residual_of_a_sample():
    model = SparseAutoencoder(4, 8).configure(TopK(1), torch.ones(())).train()
    with torch.no_grad():
        model.weight[3] = 0
        model.bias[3] = -100.0
    samples = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(DEAD_AFTER * 8 // 200 + 1):
        model.loss(samples)
    assert model.silent[3] > DEAD_AFTER * 8
    left = model.residuals.clone()
    model.loss(samples)
    assert model.bias[3] == 0
    cosines = torch.nn.functional.cosine_similarity(left, model.weight[3].detach()[None])
    assert cosines.max().item() == pytest.approx(1, abs=1e-5)
    assert len(left) == min(MAX_REVIVED, 8)


def test_a_dead_feature_stays_dead_without_revival():
    model = SparseAutoencoder(4, 8).configure(TopK(1), torch.ones(()), revive=False).train()
    with torch.no_grad():
        model.bias[3] = -100.0
    samples = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(DEAD_AFTER * 8 // 200 + 3):
        model.loss(samples)
    assert model.bias[3] == -100
    assert model.silent[3] == 200 * (DEAD_AFTER * 8 // 200 + 3)
    assert not Sparse(32, **QUICK | {"max_iter": 1, "revive": False}).fit(X).encoder_.body.revive


def test_no_feature_is_revived_in_the_last_quarter_of_the_steps_except_by_partial_fit():
    model = SparseAutoencoder(4, 8).configure(TopK(1), torch.ones(()), revive_until=200).train()
    with torch.no_grad():
        model.bias[3] = -100.0
    samples = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(DEAD_AFTER * 8 // 200 + 3):
        model.loss(samples)
    assert model.bias[3] == -100
    few = Sparse(32, **QUICK | {"max_iter": 4}).fit(X)
    assert few.encoder_.body.revive_until == 3 * int(few.encoder_.body.seen) // 4
    assert Sparse(32, **QUICK | {"max_iter": 1}).partial_fit(X).encoder_.body.revive_until is None


def test_evaluation_revives_and_records_nothing():
    model = SparseAutoencoder(4, 8).configure(TopK(1), torch.ones(())).eval()
    before = copy.deepcopy(model.state_dict())
    model.loss(torch.randn(50, 4))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_far_from_the_origin_no_feature_dies():
    far = Superposed.overcomplete(64, 16, n_active=2, offset=10.0, random_state=3).sample(3_000, random_state=0).x
    sparse = Sparse(64, **QUICK | {"max_iter": 100, "gate": TopK(2)}).fit(far)
    assert dead_fraction(sparse.transform(far)).fraction <= 0.02


# ---- samples that a few features dominate ---------------------------------------------------------------------------

WIDE = Superposed.overcomplete(64, 32, n_active=3, random_state=0).sample(2_500, random_state=1).x.numpy()
BRIEF = {"batch_size": 256, "max_iter": 200, "verbose": False, "random_state": 0}


def dominated(kind):
    """Return activations with outliers, as transformers have them: a feature, three, or a decaying spectrum."""
    x, rng = WIDE.copy(), np.random.default_rng(0)
    match kind:
        case "one feature":
            x[:, 3] *= 40
        case "three features":
            x[:, [3, 9, 20]] *= 20
        case "spectrum":
            turned = np.linalg.qr(rng.normal(size=(32, 32)))[0]
            x = ((x @ turned) / np.arange(1, 33) @ turned.T).astype(np.float32)
        case "few samples":
            x[rng.random(len(x)) < 0.005] += 100 * x.std() * np.eye(32, dtype=np.float32)[3]
    return x[:2_000], x[2_000:]


def scores(x, new, **options):
    """Return the explained variance of new samples, and the causes of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score = Sparse(64, **BRIEF | options).fit(x).score(new)
    return score, " ".join(str(each.message) for each in caught)


@pytest.mark.parametrize(
    ("kind", "gate"),
    [("one feature", BatchTopK(3)), ("three features", TopK(3)), ("spectrum", BatchTopK(3))],
    ids=["one feature", "three features", "spectrum"],
)
def test_where_few_directions_dominate_nothing_is_revived_and_a_warning_says_so(kind, gate):
    score, said = scores(*dominated(kind), gate=gate)
    assert score > 0.85
    assert "participation ratio" in said


def test_a_few_massive_samples_do_not_keep_features_from_being_revived():
    x, new = dominated("few samples")
    for gate in (TopK(3), BatchTopK(3)):
        score, said = scores(x, new, gate=gate)
        assert score > scores(x, new, gate=gate, revive=False)[0] - 0.02
        assert "participation ratio" not in said


def test_with_revival_such_samples_leave_the_first_step_which_a_warning_says(monkeypatch):
    monkeypatch.setattr(estimator, "MIN_DIRECTIONS", 0)
    score, said = scores(*dominated("one feature"), gate=JumpReLU(3))
    assert score < 0.5
    assert "hardly anything was learned" in said
    assert "principal components" in said


def test_principal_components_that_explain_more_are_named():
    rng = np.random.default_rng(0)
    plane = (rng.normal(size=(2_500, 9)) @ rng.normal(size=(9, 32))).astype(np.float32)
    assert "principal components" in scores(plane[:2_000], plane[2_000:], gate=TopK(9), learning_rate=1e-4)[1]
    assert "principal components" not in scores(WIDE[:2_000], WIDE[2_000:], gate=TopK(3))[1]


# ---- what it says of itself -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_an_audit_compares_atoms_with_chance_and_claims_nothing(fitted):
    found = audit(fitted, Data(X, truth=SIMULATION.sample(1_500, random_state=1).z.numpy()), n_fits=2, random_state=0)
    assert not found.claims
    assert found.claim == "Nothing is claimed: no theorem covers these parameters."
    assert {each.metric for each in found.agreement} == {"PW-MCC of atoms"}
    assert all(each.worst > each.chance for each in found.agreement)
    assert found.agreement[0].shuffled < found.agreement[0].worst
    assert found.recovery[0].value > found.recovery[0].chance + 0.2


def test_a_plan_says_how_many_atoms_and_what_is_missing():
    found = plan(X[:400], estimator=Sparse)
    assert found.estimator == "Sparse(n_components=40)"
    assert found.theorem is None
    assert plan(X, estimator=Sparse).n_components == 64


def test_the_default_is_four_atoms_per_feature_and_at_most_one_per_ten_samples():
    assert Sparse(**QUICK | {"gate": TopK(), "max_iter": 1}).fit(X).n_components_ == 64
    assert Sparse(**QUICK | {"gate": TopK(), "max_iter": 1}).fit(X[:300]).n_components_ == 30


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "samples", "error", "message"),
    [
        ({"gate": TopK(40)}, X, ValueError, "`k=40`"),
        ({}, X[:31], ValueError, r"n_samples=31, but n_components=32: with an atom per sample"),
        ({}, np.where(X > 3, np.nan, X), ValueError, "of X has NaN"),
        ({}, np.ones((100, 3)), ValueError, "samples of X are equal"),
        ({"gate": "topk"}, X, TypeError, "gate must be one of pindown.networks.gates, such as TopK"),
        ({"n_seeds": 0}, X, ValueError, "n_seeds == 0, must be >= 1"),
    ],
)
def test_bad_input_raises(options, samples, error, message):
    with pytest.raises(error, match=message):
        Sparse(32, **QUICK | options).fit(samples)


def test_constant_features_warn_and_atoms_are_zero_there():
    samples = np.column_stack([X, np.full(len(X), 7.0)])
    with pytest.warns(pindown.IdentifiabilityWarning, match="constant"):
        sparse = Sparse(32, **QUICK | {"max_iter": 400, "trainer": Trainer(validation_fraction=0)}).fit(samples)
    assert np.abs(sparse.components_[:, 16]).mean() < 0.1


def test_activations_of_another_width_and_agreement_of_one_seed_raise(fitted):
    with input_error("Z"):
        fitted.inverse_transform(np.ones((2, 5)))
    with input_error("n_seeds"):
        Sparse(32, **QUICK).fit(X).agreement()


def test_a_good_fit_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", pindown.IdentifiabilityWarning)
        activations = Sparse(32, **QUICK).fit(X).transform(csr_array(np.eye(16, dtype=np.float32)).toarray())
    assert activations.shape == (16, 32)
