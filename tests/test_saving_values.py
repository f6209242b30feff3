"""Values and layers of every kind go through a file and come back as they were."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from pindown_papers.muon import muon
from sklearn.base import BaseEstimator
from torch import nn

import pindown
from pindown import networks, optimizers
from pindown.losses import penalties
from pindown.methods.forget.adversarial import History
from pindown.metrics import Effort, leakage
from pindown.networks.spaces import Box, Sphere
from pindown.saving import Saves
from pindown.saving.table import LAYERS
from pindown.theory.structure import identified_blocks


class Holder(Saves, BaseEstimator):
    """An estimator that is nothing but a parameter and what was learned."""

    def __init__(self, held=None):
        self.held = held


def through(value, tmp_path):
    holder = Holder()
    holder.value_ = value
    holder.save(tmp_path / "file")
    return pindown.load(tmp_path / "file", trust=[Holder]).value_


VALUES = [
    *(None, True, 3, -(10**30), 0.1, -0.0, 1e-310, math.inf, -math.inf, "größe \ud800 \0 😀", ""),
    *((), (1, (2.5, [None])), [], [1, "a", (2,)], {}, {"a": 1, 2: (3,), (4, None): {"b": []}}),
    *({3, 1}, frozenset({(1, 2)}), {"module": 1}, [{"tensor": "x"}]),
    *(torch.float32, torch.bool),
    *(
        np.float32(0.1),
        np.int8(-3),
        np.bool_(True),
        np.str_("word"),
        np.datetime64("2026-11-15T20:46"),
        np.float64("inf"),
    ),
    *(nn.Linear, nn.SiLU, networks.linear, muon, partial(networks.mlp, hidden=(8, 8))),
    *(partial(optimizers.rivals, answer_rate=5e-3), partial(networks.mlp, hidden=[4])),
    *(Sphere(), Box(), penalties.DependencyCount(0.3, epsilon=0.1), penalties.DependencySparsity(2.0)),
    *(identified_blocks(np.array([[1, 0], [1, 1], [0, 1]]))),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)  # the same in every process
def test_values_come_back_equal_and_of_their_type(tmp_path, value):
    found = through(value, tmp_path)
    assert type(found) is type(value)
    assert found == value or isinstance(value, partial)
    assert repr(found) == repr(value)


def test_what_is_no_number_stays_none(tmp_path):
    assert math.isnan(through(math.nan, tmp_path))
    assert math.isnan(through([1, math.nan], tmp_path)[1])
    found = through(np.float32("nan"), tmp_path)
    assert np.isnan(found)
    assert found.dtype == np.float32


ARRAYS = [
    *(np.arange(6.0).reshape(2, 3), np.zeros((0, 3)), np.array(3.5), np.ones((2, 1, 3), dtype=np.float16)),
    *(np.array([True, False]), np.arange(3, dtype=np.int8), np.arange(3, dtype=np.uint8)),
    *(np.arange(3, dtype=np.uint16), np.array([2**64 - 1], dtype=np.uint64), np.arange(4, dtype=">f8")),
    *(np.array([1 + 2j, 3]), np.array(["2026-11-15", "NaT"], dtype="datetime64[s]"), np.array([3], "timedelta64[h]")),
    *(np.array(["a", "größe"]), np.array([["x"], ["yz"]]), np.array([], dtype="<U3"), np.array([b"ab", b"\xff"])),
    *(np.array(["a", None, 3, (1, 2)], dtype=object), np.empty((0, 2), dtype=object), np.array("word")),
    *(np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(6)[::-2], np.arange(6.0).reshape(2, 3)[:, 1:]),
    np.array([math.nan, math.inf, -0.0]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_come_back_in_their_type_and_shape(tmp_path, array):
    found = through(array, tmp_path)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable
    if array.size and array.flags.f_contiguous:
        assert found.strides == array.strides


TENSORS = [
    *(torch.arange(6.0).reshape(2, 3), torch.zeros(0, 3), torch.tensor(2.5), torch.ones(3, dtype=torch.bfloat16)),
    *(torch.tensor([True]), torch.arange(3, dtype=torch.int16), torch.arange(6.0, dtype=torch.float64).view(2, 3).T),
    torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=torch.channels_last),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}")
def test_tensors_come_back_as_they_lie_in_memory(tmp_path, tensor):
    found = through(tensor, tmp_path)
    assert torch.equal(found, tensor)
    assert (found.dtype, found.stride(), found.requires_grad) == (tensor.dtype, tensor.stride(), False)


def test_arrays_and_tensors_that_are_shared_or_ask_for_gradients_stay_so(tmp_path):
    array, weight = np.ones(3), nn.Parameter(torch.ones(2), requires_grad=False)
    first, second, third, fourth, leaf = through(
        [array, array, weight, weight, torch.ones(1, requires_grad=True)], tmp_path
    )
    assert first is second
    assert third is fourth
    assert isinstance(third, nn.Parameter)
    assert not third.requires_grad
    assert leaf.requires_grad


def test_generators_go_on_where_they_were(tmp_path):
    numbers, generator = np.random.RandomState(3), torch.Generator().manual_seed(3)
    numbers.normal()  # which keeps the second of two for the next call
    torch.rand(5, generator=generator)
    found = through((numbers, generator), tmp_path)
    assert found[0].normal() == numbers.normal()
    assert torch.equal(torch.rand(5, generator=found[1]), torch.rand(5, generator=generator))


def test_what_was_measured_comes_back(tmp_path):
    z, e = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    probe = leakage(z, e, probes=["linear"], effort=Effort(n_permutations=19), random_state=0)
    history = History(np.arange(3.0), np.arange(3.0), 0.7, np.ones(3), probe)
    found = through(history, tmp_path)
    assert repr(found) == repr(history)
    assert found.probe.verdict == probe.verdict


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "value_ is a object, which a file cannot hold"),
        (lambda: 0, r"value_ is .*<lambda>, which a file cannot hold"),
        ([1, {2: object()}], "value_.1.2 is a object"),
        (np.zeros(2, dtype=[("a", float)]), "value_ is an array of"),
        (torch.ones(2, dtype=torch.complex64), "tensor of torch.complex64, which a file cannot hold"),
        (torch.eye(2).to_sparse(), "sparse"),
        (b"bytes", "value_ is a bytes"),
    ],
)
def test_what_no_file_can_hold_is_named_with_its_place(tmp_path, value, said):
    with pytest.raises(ValueError, match=f"Holder cannot be saved: .*{said}"):
        through(value, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_network_that_is_a_part_of_itself_is_refused(tmp_path):
    network = nn.Sequential(nn.Linear(2, 2))
    network.append(network)
    with pytest.raises(ValueError, match="value_"):
        through(network, tmp_path)


image, row = (2, 4, 8, 8), (2, 6)
EXAMPLES = {
    "Linear": (lambda: nn.Linear(6, 3, bias=False), row),
    "Bilinear": None,
    "Embedding": None,
    "Conv1d": (lambda: nn.Conv1d(4, 2, 3, stride=2, padding="valid", dilation=2), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, (3, 1), padding=(1, 0), groups=2, padding_mode="circular"), image),
    "Conv3d": (lambda: nn.Conv3d(4, 2, 2), (2, 4, 3, 3, 3)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=1), (2, 4, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1, bias=False), image),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 2, 2), (2, 4, 3, 3, 3)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4, eps=1e-3), image),
    "LayerNorm": (lambda: nn.LayerNorm(6, bias=False), row),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6, momentum=0.3).eval(), row),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, affine=False), image),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), (2, 4, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), image),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.3), row),
    "PReLU": (lambda: nn.PReLU(6, init=0.4), row),
    "ELU": (lambda: nn.ELU(0.7), row),
    "CELU": (lambda: nn.CELU(0.7), row),
    "GELU": (lambda: nn.GELU("tanh"), row),
    "Hardtanh": (lambda: nn.Hardtanh(-0.3, 0.2), row),
    "Softplus": (lambda: nn.Softplus(2, 5), row),
    "Softmax": (lambda: nn.Softmax(0), row),
    "LogSoftmax": (lambda: nn.LogSoftmax(1), row),
    "Dropout": (lambda: nn.Dropout(0.5).eval(), row),
    "Flatten": (lambda: nn.Flatten(2), image),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 3)), row),
    "AvgPool1d": (lambda: nn.AvgPool1d(2, count_include_pad=False, padding=1), (2, 4, 6)),
    "AvgPool2d": (lambda: nn.AvgPool2d((2, 3), stride=1), image),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), (2, 4, 6)),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, padding=1, ceil_mode=True), image),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(3), (2, 4, 6)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, None)), image),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), (2, 4, 6)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), image),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), image),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), image),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), image),
    "Sequential": (lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)), row),
    "ModuleList": None,
}


@pytest.mark.parametrize("name", [name for name in LAYERS if EXAMPLES.get(name, ()) is not None])
def test_every_layer_comes_back(tmp_path, name):
    make, shape = EXAMPLES.get(name, (getattr(nn, name), row))
    layer, generator = make(), torch.Generator().manual_seed(0)
    for tensor in layer.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator))
    x = torch.rand(shape, generator=generator)
    found = through(layer, tmp_path)
    assert repr(found) == repr(layer)
    assert torch.equal(found.eval()(x), layer.eval()(x))
    assert [(n, p.requires_grad) for n, p in found.named_parameters()] == [
        (n, p.requires_grad) for n, p in layer.named_parameters()
    ]


def test_layers_of_two_inputs_and_lists_come_back(tmp_path):
    x = torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    bilinear, embedding = nn.Bilinear(2, 2, 3), nn.Embedding(4, 2, padding_idx=1)
    found = through(nn.ModuleList([bilinear, embedding]), tmp_path)
    assert torch.equal(found[0](x, x), bilinear(x, x))
    assert torch.equal(found[1](torch.arange(4)), embedding(torch.arange(4)))


def test_weights_that_are_tied_stay_tied_and_precision_stays(tmp_path):
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)).double()
    network[2].weight = network[0].weight
    found = through(network, tmp_path)
    assert found[2].weight is found[0].weight
    assert found[0].weight.dtype == torch.float64


def test_a_class_derived_from_a_layer_is_not_taken_for_it(tmp_path):
    class Scaled(nn.Linear):
        pass

    with pytest.raises(ValueError, match="value_"):
        through(Scaled(2, 2), tmp_path)


NETWORKS = {
    "linear": (networks.linear, 5),
    "mlp": (networks.mlp, 5),
    "zero_mlp": (networks.zero_mlp, 5),
    "small_mlp": (networks.small_mlp, 5),
    "skip_mlp": (networks.skip_mlp, 5),
    "smooth": (networks.smooth, 5),
    "residual": (networks.residual, 5),
    "convolutional": (networks.convolutional, (2, 8, 8)),
    "temporal": (networks.temporal, (8, 2)),
    "deconvolutional": (lambda n_in, n_out: networks.deconvolutional(n_in, (2, 8, 8)), 5),
    "pretrained": (networks.Pretrained(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), frozen=False), (2, 8, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_of_this_package_comes_back(tmp_path, name):
    make, shape = NETWORKS[name]
    network, generator = make(shape, 3), torch.Generator().manual_seed(0)
    for weight in network.parameters():
        nn.init.normal_(weight.data, generator=generator)
    x = torch.randn((4, *shape) if isinstance(shape, tuple) else (4, shape), generator=generator)
    network(x)  # what normalises batches remembers them
    found = through(network, tmp_path)
    assert repr(found) == repr(network)
    assert torch.equal(found(x), network(x))
    assert torch.equal(found.train()(x), network.train()(x))
