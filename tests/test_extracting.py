"""Activations: run up to a layer and no further, kept in shards, gone on with after a stop, and read by estimators."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from pindown import Sparse, activations
from pindown.data import as_source
from pindown.methods.sparse.activations import every_input, every_place
from pindown.networks.gates import TopK


class Never(nn.Module):
    def forward(self, x):
        raise AssertionError("what follows the layer is not run")


class Pair(nn.Module):
    """A layer that returns a tuple, as those of transformers do."""

    def forward(self, x):
        return (2 * x, None)


def model(after=True):
    first = nn.Linear(3, 5)
    with torch.no_grad():
        first.weight.copy_(torch.arange(15.0).reshape(5, 3))
        first.bias.zero_()
    return nn.Sequential(first, nn.ReLU(), Never() if after else nn.Identity())


INPUTS = [torch.randn(4, 3, generator=torch.Generator().manual_seed(k)) for k in range(6)]


def test_the_model_is_run_up_to_the_layer_and_left_as_it_was(tmp_path):
    network = model().train()
    source = activations(network, INPUTS, "1", tmp_path)
    expected = torch.cat(INPUTS) @ network[0].weight.T
    np.testing.assert_allclose(source[np.arange(24)], expected.relu().detach().numpy(), rtol=1e-5)
    assert source.side_variables()["groups"].tolist() == list(range(24))
    assert network.training
    assert not network[1]._forward_hooks


def test_shards_have_whole_batches_and_are_read_in_any_order(tmp_path):
    source = activations(model(), INPUTS, "0", tmp_path, shard_rows=6)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3  # two batches of four each
    whole = activations(model(), INPUTS, "0", tmp_path / "one")
    rows = np.array([23, 0, 7, 8, 15])
    assert np.array_equal(source[rows], whole[rows])
    half = activations(model(), INPUTS, "0", tmp_path / "half", dtype=torch.float16)
    assert half[rows].dtype == np.float16
    np.testing.assert_allclose(half[rows], whole[rows], rtol=1e-3, atol=1e-3)


def test_an_extraction_that_was_broken_off_goes_on_after_its_last_shard(tmp_path):
    ran = []

    def broken():
        for k, batch in enumerate(INPUTS):
            if k == 5:
                raise KeyboardInterrupt
            yield batch

    class Counting(nn.Linear):
        def forward(self, x):
            ran.append(len(x))
            return super().forward(x)

    torch_state = torch.get_rng_state()
    network = nn.Sequential(Counting(3, 5))
    torch.set_rng_state(torch_state)
    with pytest.raises(KeyboardInterrupt):
        activations(network, broken(), "0", tmp_path, shard_rows=8)
    assert as_source(str(tmp_path)).n_samples == 16  # what is whole can be read already
    assert len(ran) == 5
    source = activations(network, INPUTS, "0", tmp_path, shard_rows=8)
    assert len(ran) == 5 + 2  # four batches were kept in two shards, the fifth was lost with the third
    assert np.allclose(source[np.arange(24)], network(torch.cat(INPUTS)).detach().numpy(), atol=1e-6)
    assert source.side_variables()["groups"].tolist() == list(range(24))
    ran.clear()
    activations(network, INPUTS, "0", tmp_path, shard_rows=8)
    assert not ran  # complete


def test_padding_is_left_out_and_rows_of_one_input_are_a_group(tmp_path):
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block = nn.Embedding(10, 4), Pair()

        def forward(self, input_ids, attention_mask):
            return self.block(self.embed(input_ids))

    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    batch = {"input_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]), "attention_mask": mask}
    network = Language()
    source = activations(network, [batch, batch], "block", tmp_path)
    assert source.side_variables()["groups"].tolist() == [0, 0, 0, 1, 2, 2, 2, 3]
    expected = 2 * network.embed(torch.tensor([1, 2, 3, 4])).detach().numpy()
    np.testing.assert_allclose(source[np.arange(4)], expected, rtol=1e-6)


def test_pictures_give_a_row_for_each_place_or_for_each_input(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 8, 3))
    batches = [(torch.randn(2, 3, 6, 6),)]
    assert activations(network, batches, "0", tmp_path / "a", rows=every_place).n_samples == 2 * 16
    assert activations(network, batches, "0", tmp_path / "b", rows=every_input).shape == (8 * 16,)


def test_estimators_read_the_folder_and_keep_inputs_together(tmp_path):
    network = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 8))
    tokens = torch.randint(50, (40, 10), generator=torch.Generator().manual_seed(0))
    activations(network, tokens.split(8), "1", tmp_path, shard_rows=100)
    options = {"gate": TopK(2), "max_iter": 20, "batch_size": 64, "verbose": False, "random_state": 0}
    sparse = Sparse(16, **options).fit(str(tmp_path))
    assert sparse.sparse_codes(str(tmp_path)).shape == (400, 16)
    assert sparse.held_out_.n_samples % 10 == 0  # whole inputs


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: activations(model(), INPUTS, "3", f), ValueError, "the model has no layer '3': there are 0, 1, 2"),
        (lambda f: activations(model(), INPUTS, "", f), ValueError, "the model has no layer ''"),
        (lambda f: activations("gpt2", INPUTS, "0", f), TypeError, "model must be an nn.Module, got str"),
        (lambda f: activations(model(), [], "0", f), ValueError, "inputs gave no batch"),
        (lambda f: activations(model(), INPUTS, "0", f, dtype=torch.int64), ValueError, "dtype must be torch.float32"),
        (lambda f: activations(model(), [INPUTS[0] / 0], "0", f), ValueError, "the layer gives NaN or infinity"),
        (lambda f: activations(nn.Sequential(nn.Identity()), [torch.ones(3, 2).long()], "0", f), ValueError,
         "the layer gives a tensor of torch.int64"),
    ],
)  # fmt: skip
def test_bad_input_is_named_in_a_sentence(call, error, message, tmp_path):
    with pytest.raises(error, match=message):
        call(tmp_path)


def test_a_layer_that_is_not_in_use_is_named(tmp_path):
    network = model(after=False)
    network.spare = nn.Linear(2, 2)
    network.forward = lambda x: network[0](x)
    with pytest.raises(ValueError, match="never came to the layer"):
        activations(network, INPUTS, "spare", tmp_path)


def test_a_folder_of_another_call_or_of_other_files_is_refused_and_nothing_is_lost(tmp_path):
    activations(model(), INPUTS, "0", tmp_path / "a")
    with pytest.raises(ValueError, match=r"was made by another call: layer \('0' there, '1' here\)"):
        activations(model(), INPUTS, "1", tmp_path / "a")
    other = model()
    other[0].weight.data += 1
    with pytest.raises(ValueError, match="was made by another call: model"):
        activations(other, INPUTS, "0", tmp_path / "a")
    assert json.loads((tmp_path / "a" / "activations.json").read_text())["complete"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        activations(model(), INPUTS, "0", tmp_path / "b")


def test_inputs_that_are_not_those_it_was_made_from_are_refused(tmp_path):
    def broken():
        yield from INPUTS[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        activations(model(), broken(), "0", tmp_path, shard_rows=8)
    with pytest.raises(ValueError, match="holds 4 batches, but inputs end after 2"):
        activations(model(), INPUTS[:2], "0", tmp_path, shard_rows=8)


def test_a_folder_that_is_damaged_is_named_and_nothing_in_it_is_touched(tmp_path):
    activations(model(), INPUTS, "0", tmp_path, shard_rows=8)
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    content = shard.read_bytes()
    for broken in (content[: len(content) // 2], b"nothing"):
        shard.write_bytes(broken)
        with pytest.raises(ValueError, match="a shard is missing or damaged"):
            Sparse(4).fit(str(tmp_path))
    shard.unlink()
    with pytest.raises(ValueError, match=r"a shard is missing or damaged .*activations-00001"):
        as_source(str(tmp_path))
    for text in ("{", "[]"):
        (tmp_path / "activations.json").write_text(text)
        for call in (lambda: as_source(str(tmp_path)), lambda: activations(model(), INPUTS, "0", tmp_path)):
            with pytest.raises(ValueError, match=r"activations.json is damaged"):
                call()
        assert (tmp_path / "activations.json").read_text() == text


def test_nan_in_rows_that_stay_on_the_disk_is_named(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    rows[5, 3] = np.nan
    np.save(tmp_path / "x.npy", rows)
    with pytest.raises(ValueError, match="Sample 5 of x has NaN"):
        Sparse(8, verbose=False).fit(np.load(tmp_path / "x.npy", mmap_mode="r"))


def test_a_model_that_returns_a_tuple_is_run_up_to_its_layer(tmp_path):
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Pair()

        def forward(self, x):
            return self.inner(x), {"more": x}

    source = activations(nn.Sequential(Returns()), INPUTS, "0", tmp_path)
    np.testing.assert_allclose(source[np.arange(24)], 2 * torch.cat(INPUTS).numpy(), rtol=1e-6)
