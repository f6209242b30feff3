"""Audits of methods that are not ours: what agrees, what leaks, what shuffled data show, and what is claimed."""

import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, FastICA
from typer.testing import CliRunner

import pindown
from pindown import Embedder, theory
from pindown.auditing import peers
from pindown.auditing.checks.verdict import Verdict
from pindown.auditing.embedding import NEIGHBOURS, audit_alone
from pindown.cli import app
from pindown.errors import InputError

RNG = np.random.default_rng(0)
N = 800
SOURCES = RNG.laplace(size=(N, 3))
SITE, KIND = RNG.integers(3, size=N), np.where(SOURCES[:, 0] > 0, "up", "down")
X = SOURCES @ RNG.normal(size=(3, 12)) + 0.1 * RNG.normal(size=(N, 12))
SHIFTED = X + 3 * RNG.normal(size=(3, 12))[SITE]


def audited(method, *data, **named):
    return pindown.audit(method, *data, random_state=0, **named)


def test_a_method_that_finds_the_same_in_other_samples_is_consistent_and_not_identified():
    found = audited(Embedder(FastICA(3, max_iter=1_000), free=theory.SCALED_PERMUTATION), X, labels={"kind": KIND})
    assert found.reasons == ()
    assert not found.identified
    assert found.claim.startswith(
        "Consistent up to a permutation, and a sign, scale and shift of each coordinate, which"
    )
    assert [each.worst > 0.95 for each in found.agreement] == [True, True]
    label = found.labels[0]
    assert label.value > 0.9 > label.chance
    assert found.structure[1].value > 0.9 > found.structure[1].random
    assert found.n_fits == 6


def test_a_rotation_is_no_agreement_where_only_a_permutation_is_free():
    rng = np.random.default_rng(3)
    gaussian = rng.normal(size=(N, 3)) @ rng.normal(size=(3, 12)) + 0.1 * rng.normal(size=(N, 12))
    freedoms = (theory.SCALED_PERMUTATION, theory.AFFINE)
    found = [audited(Embedder(FastICA(3, max_iter=200, tol=0.1), free=free), gaussian) for free in freedoms]
    assert [bool(each.reasons) for each in found] == [True, False]


def test_noise_is_not_consistent():
    found = audited(PCA(2), RNG.normal(size=(300, 30)))
    assert "fits to two halves of the samples disagree" in found.claim


def test_what_agrees_in_shuffled_data_as_well_is_no_evidence():
    scales = RNG.normal(size=(N, 6)) * [50, 20, 1, 1, 1, 1]  # two features dominate, whatever the others do
    found = audited(Embedder(PCA(2), free=theory.ORTHOGONAL), scales)
    assert found.agreement[1].worst > 0.99
    assert "fits to shuffled data agree as well, and keep as much" in found.claim


def memorised(n=200, d=1_000):
    """Return recordings without any relation to a behaviour that a method can memorise."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, d)), np.cos(np.linspace(0, 20 * np.pi, n))


def test_shuffled_recordings_that_look_fine_are_caught():
    # CEBRA's issue 226: on the samples of the fit, shuffled data are consistent, and decoded well.
    recording, behaviour = memorised()
    fit = PLSRegression(2).fit(recording, behaviour)
    assert fit.score(recording, behaviour) > 0.9
    found = audited(Embedder(PLSRegression(2), free=theory.ORTHOGONAL), recording, behaviour)
    assert found.agreement[0].worst > 0.99  # other seeds are consistent, too
    assert found.learned.value < 0.2
    assert "nothing of the side variable shows on held-out samples" in found.claim
    recording[:, :200] += behaviour[:, None]  # and with a relation, it is found
    related = audited(Embedder(PLSRegression(1), free=theory.ORTHOGONAL), recording, behaviour)
    assert related.learned.value > 0.9
    assert related.reasons == ()


def test_what_is_named_is_measured_next_to_raw_features_and_a_random_network():
    found = audited(PCA(3), SHIFTED, nuisance={"site": SITE}, labels={"kind": KIND})
    site = found.nuisances[0]
    assert site.name == "site (balanced accuracy)"
    assert min(site.value, site.raw) > 0.9 > site.chance
    assert site.random is not None
    assert site.shuffled is not None


def test_data_and_sparse_matrices_are_taken_too():
    dense = audited(PCA(3), SHIFTED, nuisance={"nuisance": SITE})
    of_data = audited(PCA(3), pindown.Data(SHIFTED, nuisance=SITE))
    sparse = audited(PCA(3), csr_array(SHIFTED), nuisance={"nuisance": SITE})
    assert dense == of_data == sparse


def test_a_nuisance_that_a_method_removes_need_not_be_decodable():
    def centred(x, site, seed):
        means = np.stack([x[site == level].mean(0) for level in np.unique(site)])
        pca = PCA(3, random_state=seed).fit(x - means[np.unique(site, return_inverse=True)[1]])
        nearest = lambda new: means[((new[:, None] - means) ** 2).sum(2).argmin(1)]  # noqa: E731
        return lambda new: pca.transform(new - nearest(new))

    found = audited(Embedder(centred, free=theory.ORTHOGONAL), SHIFTED, SITE, nuisance={"site": SITE})
    assert found.learned is None
    assert found.nuisances[0].value < found.nuisances[0].raw


@pytest.mark.parametrize(("outcome", "identified"), [("holds", True), ("fails", False), ("undecided", False)])
def test_identification_needs_a_theorem_and_checks_that_hold(outcome, identified):
    theorem = theory.CONTRAST_SPHERE
    assumption = theorem.assumes[0]

    def checks(x, side, z):
        return [Verdict(assumption, 1.0, 0.0, outcome, "it was measured.")]

    found = audited(Embedder(PCA(3), theorem=theorem, checks=checks), X)
    assert found.free == theorem.indeterminacy
    assert found.identified == identified
    assert ("which is not identification" in found.claim) != identified
    if identified:
        assert "If these hold: " in found.claim
        assert assumption.name not in found.claim.partition(", then ")[0]


def test_a_theorem_without_checks_identifies_nothing():
    found = audited(Embedder(PCA(3), theorem=theory.CONTRAST_SPHERE), X)
    assert not found.identified
    assert "none of its assumptions was checked" in found.claim


def test_layouts_agree_in_their_neighbours():
    def layout(x, side, seed):
        pca = PCA(3).fit(x)
        return lambda new: np.sinh(pca.transform(new) / 4)

    found = audited(Embedder(layout, free=NEIGHBOURS), X)
    assert found.agreement[0].metric == "neighbours kept"
    assert found.reasons == ()


def test_a_series_without_groups_is_pointed_out():
    series = np.cumsum(RNG.normal(size=(300, 4)), axis=0)
    found = [audited(PCA(2), series, **named) for named in ({}, {"groups": np.arange(300) // 20})]
    assert [any("as groups" in note for note in each.notes) for each in found] == [True, False]
    assert not any("as groups" in note for note in audited(PCA(2), X).notes)


def test_groups_stay_together_and_global_random_numbers_are_left_alone():
    seen = []

    def careless(x, side, seed):
        seen.append({*x[:, 0].astype(int)})
        weights = np.random.normal(size=(x.shape[1], 2)) + torch.randn(2).numpy()  # noqa: NPY002
        return lambda new: new @ weights

    subjects = np.arange(120) // 10
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    x = np.column_stack([subjects + 0.5, RNG.normal(size=(120, 3))])
    found = [audited(careless, x, groups=subjects) for _ in range(2)]
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(torch_before, torch.get_rng_state())
    assert found[0].to_dict() == found[1].to_dict()
    train, _, first, second = seen[:4]
    assert first | second <= train
    assert not first & second


@pytest.mark.slow
def test_an_estimator_of_our_own_can_be_audited_like_any_other():
    linear = pindown.Contrast(2, encoder=pindown.networks.linear, max_iter=20, verbose=False, device="cpu")
    found = audited(Embedder(linear), X, X + 0.1)
    assert found.learned is None  # y are positives
    assert found.n_held_out == 200


@pytest.mark.parametrize(
    ("call", "kind", "argument"),
    [
        (lambda: audited(3, X), TypeError, None),
        (lambda: audited(PCA, X), TypeError, None),
        (lambda: audited(PCA(2), X, nuisance={"site": SITE[:5]}), InputError, "site"),
        (lambda: audited(PCA(2), X, SITE[:5]), InputError, "signal"),
        (lambda: audited(PCA(2), X, groups=np.zeros(N)), InputError, "groups"),
        (lambda: audited(PCA(2), X, n_fits=1), ValueError, None),
        (lambda: audited(lambda x, side, seed: lambda new: new[:, : 1 + seed % 5], X), InputError, "method"),
        (lambda: audited(lambda x, side, seed: lambda new: np.full((len(new), 2), np.nan), X), InputError, None),
        (lambda: audited(pindown.Contrast(2), X, nuisance={"site": SITE}), InputError, "nuisance"),
    ],
)
def test_bad_input_is_named(call, kind, argument):
    with pytest.raises(kind) as error:
        call()
    assert argument is None or error.value.argument == argument


def test_an_embedding_alone_is_measured_and_nothing_is_claimed():
    z = PCA(3).fit_transform(SHIFTED)
    found = audit_alone(z, SHIFTED, nuisance={"site": SITE}, labels={"kind": KIND})
    assert not found.identified
    assert "an embedding alone" in found.claim
    assert found.nuisances[0].value > 0.9
    assert found.structure[0].value > found.structure[0].random
    assert any("other seeds" in each for each in found.not_shown)
    assert audit_alone(z, nuisance={"site": SITE}).structure == ()


def test_the_result_is_saved_as_a_page_and_as_numbers(tmp_path):
    found = audited(PCA(3), SHIFTED, nuisance={"<site>": SITE})
    numbers = json.loads(found.save(tmp_path / "audit.json").read_text())
    assert numbers["claim"] == found.claim
    assert numbers["nuisances"][0]["raw"] == pytest.approx(found.nuisances[0].raw)
    page = found.save(tmp_path / "audit.html").read_text()
    assert "&lt;site&gt;" in page
    assert "<site>" not in page
    with pytest.raises(InputError) as error:
        found.save(tmp_path / "audit.txt")
    assert error.value.argument == "path"


def test_the_command_reads_an_embedding_and_its_data(tmp_path):
    import pandas as pd

    names = [f"g{j}" for j in range(12)]
    pd.DataFrame(SHIFTED, columns=names).assign(donor=SITE.astype(str), type=KIND).to_csv(tmp_path / "X.csv")
    pd.DataFrame(PCA(3).fit_transform(SHIFTED), columns=["z0", "z1", "z2"]).to_csv(tmp_path / "Z.csv", index=False)
    words = ["audit", "--embedding", str(tmp_path / "Z.csv"), "--data", str(tmp_path / "X.csv"), "--nuisance", "donor"]
    result = CliRunner().invoke(app, [*words, "--labels", "type", "-o", str(tmp_path / "page.html"), "--json"])
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout)
    assert numbers["nuisances"][0]["name"] == "donor (balanced accuracy)"
    assert numbers["nuisances"][0]["value"] > 0.9
    assert (tmp_path / "page.html").is_file()
    for wrong in ([], [*words, "run"], [*words[:4], "Z.csv"]):
        assert CliRunner().invoke(app, wrong or ["audit"]).exit_code == 2


@pytest.mark.slow
def test_harmony_removes_the_batch_of_new_cells():
    pytest.importorskip("harmonypy")
    found = audited(peers.harmony(3), SHIFTED, SITE, nuisance={"site": SITE})
    assert found.learned is None
    assert found.nuisances[0].value < found.nuisances[0].raw


@pytest.mark.slow
def test_cebra_with_shuffled_recordings_is_caught():
    cebra = pytest.importorskip("cebra")
    recording, behaviour = memorised()
    settings = {"model_architecture": "offset1-model", "batch_size": 128, "max_iterations": 300, "device": "cpu"}
    model = cebra.CEBRA(output_dimension=3, conditional="time_delta", **settings)
    found = audited(peers.cebra(model), recording, behaviour, groups=np.arange(200) // 10)
    assert any("side variable" in reason for reason in found.reasons)


def test_a_sparse_autoencoder_is_audited_through_its_encode():
    class Autoencoder:
        """What SAELens gives: an object with `encode`, for tensors; here the positive parts of principal components."""

        def __init__(self, x, seed):
            self.directions = torch.as_tensor(PCA(3, random_state=seed).fit(x).components_, dtype=torch.float32)

        def encode(self, x):
            return (x @ self.directions.T).clamp_min(0)

    found = audited(peers.saelens(Autoencoder), X, labels={"kind": KIND})
    assert found.method == "SAE"
    assert found.agreement[0].metric == "MCC"
    assert found.labels[0].value > 0.8


@pytest.mark.slow
def test_scvi_encodes_new_cells_of_any_batch():
    pytest.importorskip("scvi")
    counts = np.random.default_rng(0).poisson(np.exp(X[:300] / X.std()))
    found = audited(peers.scvi(3, max_epochs=5), counts, SITE[:300], nuisance={"site": SITE[:300]})
    assert found.learned is None
    assert found.n_fits == 6
