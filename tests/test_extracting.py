"""Activations: run up to a layer and no further, kept in shards, gone on with after a stop, and read by estimators."""

import numpy as np
import pytest
import torch
from raising import input_error
from torch import nn

from pindown import Sparse, activations
from pindown._files import read_json, sha256, write_json
from pindown.data import as_source
from pindown.errors import InputError
from pindown.methods.sparse.activations import every_input, every_position
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
    source = activations(model(), INPUTS, "0", tmp_path, shard_size=6)
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
        activations(network, broken(), "0", tmp_path, shard_size=8)
    assert as_source(str(tmp_path)).n_samples == 16  # what is whole can be read already
    assert len(ran) == 5
    source = activations(network, INPUTS, "0", tmp_path, shard_size=8)
    assert len(ran) == 5 + 1 + 2  # four batches are in two shards, of which the first is compared; the fifth was lost
    assert np.allclose(source[np.arange(24)], network(torch.cat(INPUTS)).detach().numpy(), atol=1e-6)
    assert source.side_variables()["groups"].tolist() == list(range(24))
    ran.clear()
    activations(network, INPUTS, "0", tmp_path, shard_size=8)
    assert len(ran) == 1  # complete: the first batch is compared


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


def test_images_give_a_row_for_each_place_or_for_each_input(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 8, 3))
    batches = [(torch.randn(2, 3, 6, 6),)]
    assert activations(network, batches, "0", tmp_path / "a", samples=every_position).n_samples == 2 * 16
    assert activations(network, batches, "0", tmp_path / "b", samples=every_input).shape == (8 * 16,)


def test_estimators_read_the_folder_and_keep_inputs_together(tmp_path):
    network = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 8))
    tokens = torch.randint(50, (40, 10), generator=torch.Generator().manual_seed(0))
    activations(network, tokens.split(8), "1", tmp_path, shard_size=100)
    options = {"gate": TopK(2), "max_iter": 20, "batch_size": 64, "verbose": False, "random_state": 0}
    sparse = Sparse(16, **options).fit(str(tmp_path))
    assert sparse.transform_sparse(str(tmp_path)).shape == (400, 16)
    assert sparse.held_out_.n_samples % 10 == 0  # whole inputs


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: activations(model(), INPUTS, "3", f), ValueError, "the model has no layer '3': there are 0, 1, 2"),
        (lambda f: activations(model(), INPUTS, "", f), ValueError, "the model has no layer ''"),
        (lambda f: activations("gpt2", INPUTS, "0", f), TypeError, "model must be an nn.Module, got str"),
        (lambda f: activations(model(), [], "0", f), ValueError, "has no batch"),
        (lambda f: activations(model(), INPUTS, "0", f, dtype=torch.int64), ValueError, "must be torch.float32"),
        (lambda f: activations(model(), [INPUTS[0] / 0], "0", f), ValueError, "the layer returns NaN or infinity"),
        (lambda f: activations(nn.Sequential(nn.Identity()), [torch.ones(3, 2).long()], "0", f), ValueError,
         "the layer returns a tensor of torch.int64"),
    ],
)  # fmt: skip
def test_bad_input_is_named_in_a_sentence(call, error, message, tmp_path):
    with pytest.raises(error, match=message):
        call(tmp_path)


def test_a_layer_that_is_not_in_use_is_named(tmp_path):
    network = model(after=False)
    network.spare = nn.Linear(2, 2)
    network.forward = lambda x: network[0](x)
    with input_error("layer"):
        activations(network, INPUTS, "spare", tmp_path)


def refused(argument, call):
    with pytest.raises(InputError) as told:
        call()
    assert told.value.argument == argument
    return str(told.value)


def first_half(output, batch):
    return every_input(output[:, :2], batch)


class Squashed(nn.Module):
    """A network whose nonlinearity is an attribute, as in many models."""

    def __init__(self, act):
        super().__init__()
        self.first, self.act = model()[0], act

    def forward(self, x):
        return self.act(self.first(x))


@pytest.mark.parametrize("stopped", [False, True])
def test_what_was_made_by_another_model_layer_or_inputs_is_neither_returned_nor_continued(tmp_path, stopped):
    def batches():
        yield from INPUTS[:4]
        raise KeyboardInterrupt

    wrapped = nn.Sequential(Squashed(torch.relu))
    if stopped:
        with pytest.raises(KeyboardInterrupt):
            activations(wrapped, batches(), "0", tmp_path, shard_size=8)
    else:
        activations(wrapped, INPUTS, "0", tmp_path, shard_size=8)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    first_changed, third_changed = ([*INPUTS] for _ in range(2))
    first_changed[0], third_changed[2] = INPUTS[0] + 1e-3, INPUTS[2] + 1e-3
    another = nn.Sequential(Squashed(torch.relu))
    another[0].first.weight.data[4, 2] += 1e-3
    calls = {
        "weight": ("folder", lambda: activations(another, INPUTS, "0", tmp_path)),
        "nonlinearity": ("inputs", lambda: activations(nn.Sequential(Squashed(torch.tanh)), INPUTS, "0", tmp_path)),
        "layer": ("folder", lambda: activations(wrapped, INPUTS, "0.first", tmp_path)),
        "samples": ("inputs", lambda: activations(wrapped, INPUTS, "0", tmp_path, samples=first_half)),
        "type": ("folder", lambda: activations(wrapped, INPUTS, "0", tmp_path, dtype=torch.float16)),
        "inputs": ("inputs", lambda: activations(wrapped, first_changed, "0", tmp_path)),
        "fewer": ("inputs", lambda: activations(wrapped, INPUTS[:2], "0", tmp_path)),
    }
    if stopped:
        calls["later inputs"] = ("inputs", lambda: activations(wrapped, third_changed, "0", tmp_path))
    else:
        calls["more"] = ("inputs", lambda: activations(wrapped, [*INPUTS, INPUTS[0]], "0", tmp_path))
    for argument, call in calls.values():
        assert "give another folder" in refused(argument, call).lower()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    source = activations(wrapped, INPUTS, "0", tmp_path, shard_size=8)
    whole = activations(wrapped, INPUTS, "0", tmp_path / "whole")
    assert np.array_equal(source[np.arange(24)], whole[np.arange(24)])


def test_a_function_that_computes_something_else_by_now_is_noticed_in_the_first_batch(tmp_path):
    scale = [1.0]

    class Scaled(nn.Module):
        def forward(self, x):
            return scale[0] * x

    activations(nn.Sequential(Scaled()), INPUTS, "0", tmp_path)
    scale[0] = 2.0
    assert "into other activations" in refused(
        "inputs", lambda: activations(nn.Sequential(Scaled()), INPUTS, "0", tmp_path)
    )


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused("folder", lambda: activations(model(), INPUTS, "0", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_two_processes_do_not_write_to_one_folder(tmp_path):
    def batches():
        yield INPUTS[0]
        refused("folder", lambda: activations(model(), INPUTS, "0", tmp_path))
        yield from INPUTS[1:]

    activations(model(), batches(), "0", tmp_path, shard_size=4)


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    (tmp_path / ".activations-00000.safetensors.0123456789abcdef").write_bytes(b"half")
    (tmp_path / ".notes").write_text("mine")
    activations(model(), INPUTS, "0", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".notes", "activations.json", "activations-00000.safetensors"}


def damaged(folder):
    """Return whether the folder is refused wherever it is read, and whether that changes nothing in it."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for call in (lambda: as_source(str(folder)), lambda: Sparse(4).fit(str(folder))):
        refused("X", call)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_shard_that_is_cut_off_gone_or_swapped_is_named(tmp_path):
    activations(model(), INPUTS, "0", tmp_path, shard_size=8)
    first, second, _ = sorted(tmp_path.glob("*.safetensors"))
    content, other = second.read_bytes(), first.read_bytes()
    for broken in (content[: len(content) // 2], b"nothing", other):
        second.write_bytes(broken)
        damaged(tmp_path)
    second.unlink()
    damaged(tmp_path)


def test_every_flipped_bit_in_a_shard_or_its_record_is_seen(tmp_path):
    activations(model(), INPUTS, "0", tmp_path, shard_size=8)
    rng = np.random.default_rng(0)
    for path in (tmp_path / "activations.json", tmp_path / "activations-00001.safetensors"):
        whole = path.read_bytes()
        for place in rng.integers(len(whole), size=60):
            content = bytearray(whole)
            content[place] ^= 1 << rng.integers(8)
            path.write_bytes(content)
            refused("X", lambda: as_source(str(tmp_path)))
        path.write_bytes(whole)
    as_source(str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["shards"][0].update(file="../elsewhere/activations-00000.safetensors"),
        lambda record: record["shards"][0].update(file="/etc/passwd"),
        lambda record: record["shards"][0].update(samples=3),
        lambda record: record["shards"].append(record["shards"][0]),
        lambda record: record["shards"].reverse(),
        lambda record: record["shards"].reverse() or record["shards"][0].pop("sha256"),
        lambda record: record.update(shards=3),
        lambda record: record.update(shards=[3]),
        lambda record: record.update(format=1),
        lambda record: record.pop("complete"),
    ],
)
def test_a_record_that_was_changed_and_signed_again_is_refused_by_its_contents(tmp_path, change):
    activations(model(), INPUTS, "0", tmp_path, shard_size=8)
    record = read_json(tmp_path / "activations.json")
    change(record)
    write_json(tmp_path / "activations.json", record)
    damaged(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        "[1]",
        "null",
        "[" * 100_000,
        '{"x":{"dtype":"F32","shape":[8,5],"data_offsets":[-100,60]},"input":{"dtype":"I64","shape":[8],"data_offsets":[0,64]}}',
        '{"x":{"dtype":"F32","shape":[9,9999],"data_offsets":[0,160]},"input":{"dtype":"I64","shape":[8],"data_offsets":[0,64]}}',
    ],
)
def test_a_shard_that_was_changed_and_signed_again_is_refused_by_its_header(tmp_path, header):
    activations(model(), INPUTS, "0", tmp_path, shard_size=8)
    record = read_json(tmp_path / "activations.json")
    shard = tmp_path / record["shards"][0]["file"]
    shard.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(224))
    record["shards"][0]["sha256"] = sha256(shard)
    write_json(tmp_path / "activations.json", record)
    damaged(tmp_path)


def test_nan_in_rows_that_stay_on_the_disk_is_named(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    rows[5, 3] = np.nan
    np.save(tmp_path / "x.npy", rows)
    with input_error("x"):
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
