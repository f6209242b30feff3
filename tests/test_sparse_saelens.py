"""Files of SAELens: what is written is read again, by us and, where it is installed, by SAELens itself."""

import json

import numpy as np
import pytest
import torch
from raising import input_error
from safetensors.torch import load_file, save_file

from pindown import Sparse
from pindown.networks.gates import L1, BatchTopK, JumpReLU, Matryoshka, TopK
from pindown.simulate import Superposed

GATES = [TopK(2), BatchTopK(2), Matryoshka(2), JumpReLU(2), L1()]
X = Superposed.overcomplete(24, 12, n_active=2, offset=2.0, random_state=0).sample(1_200, random_state=1).x.numpy()


def fitted(gate):
    return Sparse(24, gate=gate, max_iter=30, batch_size=128, verbose=False, random_state=0).fit(5 * X)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_a_written_folder_loads_with_the_same_activations(gate, tmp_path):
    first = fitted(gate)
    again = Sparse.from_saelens(first.to_saelens(tmp_path / "sae"))
    assert np.allclose(again.components_, first.components_, atol=1e-6)
    same = np.isclose(again.transform(5 * X), first.transform(5 * X), atol=1e-3)
    assert same.mean() > 0.999  # an activation at its threshold may fall to either side
    assert again.score(5 * X) == pytest.approx(first.score(5 * X), abs=1e-3)


def test_shapes_and_names_are_those_of_saelens(tmp_path):
    fitted(TopK(2)).to_saelens(tmp_path)
    weights, config = load_file(tmp_path / "sae_weights.safetensors"), json.loads((tmp_path / "cfg.json").read_text())
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {
        "W_enc": (12, 24),
        "W_dec": (24, 12),
        "b_enc": (24,),
        "b_dec": (12,),
    }
    assert config["architecture"] == "topk"
    assert (config["d_in"], config["d_sae"], config["k"]) == (12, 24, 2)


def test_without_centring_in_the_file_activations_are_the_same(tmp_path):
    fitted(TopK(2)).to_saelens(tmp_path)
    weights, config = load_file(tmp_path / "sae_weights.safetensors"), json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps(config | {"apply_b_dec_to_input": False}))
    x = torch.as_tensor(5 * X)
    scores = x @ weights["W_enc"] + weights["b_enc"]
    values, at = scores.topk(2, dim=1)
    expected = torch.zeros_like(scores).scatter(1, at, values.relu()).numpy()
    assert np.allclose(Sparse.from_saelens(tmp_path).transform(5 * X), expected, atol=1e-2)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_saelens_reads_it_with_the_same_activations(gate, tmp_path):
    sae_lens = pytest.importorskip("sae_lens")
    est = fitted(gate)
    sae = sae_lens.SAE.load_from_disk(str(est.to_saelens(tmp_path)))
    with torch.no_grad():
        activations = sae.encode(torch.as_tensor(5 * X))
        reconstructed = sae.decode(activations)
    assert np.isclose(activations.numpy(), est.transform(5 * X), atol=1e-2).mean() > 0.999
    assert np.isclose(reconstructed.numpy(), est.inverse_transform(activations.numpy()), atol=1e-2).all()


def test_a_dictionary_that_saelens_wrote_is_read(tmp_path):
    sae_lens = pytest.importorskip("sae_lens")
    sae = sae_lens.TopKSAE(sae_lens.TopKSAEConfig(d_in=12, d_sae=24, k=3))
    sae.save_model(str(tmp_path))
    est = Sparse.from_saelens(tmp_path)
    with torch.no_grad():
        assert np.allclose(est.transform(X), sae.encode(torch.as_tensor(X)).numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "gated"}, "architecture is 'gated', must be one of topk"),
        ({"normalize_activations": "layer_norm"}, "activations are scaled by 'layer_norm'"),
        ({"architecture": "jumprelu"}, "lacks threshold"),
    ],
)
def test_what_cannot_be_read_is_named(change, message, tmp_path):
    fitted(TopK(2)).to_saelens(tmp_path)
    config = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        Sparse.from_saelens(tmp_path)


def test_files_that_are_missing_or_damaged_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cfg\.json"):
        Sparse.from_saelens(tmp_path)
    fitted(TopK(2)).to_saelens(tmp_path)
    weights = load_file(tmp_path / "sae_weights.safetensors")
    save_file(
        {**weights, "W_enc": weights["W_enc"].T.contiguous()[:, :5].contiguous()}, tmp_path / "sae_weights.safetensors"
    )
    with input_error("folder"):
        Sparse.from_saelens(tmp_path)
    (tmp_path / "sae_weights.safetensors").write_bytes(b"nothing")
    with input_error("folder"):
        Sparse.from_saelens(tmp_path)
