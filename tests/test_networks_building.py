"""Networks that are handed over: functions and modules, backbones, and what is said of those that do not fit."""

import copy
from functools import partial

import pytest
import torch
from raising import input_error
from torch import nn

from pindown import Contrast, _random, networks
from pindown.errors import InputError
from pindown.networks import Pretrained, built, convolutional, deconvolutional, linear, mlp, skip_mlp, temporal
from pindown.networks.encoder import MADE_BY

IMAGE = (3, 16, 16)


def backbone():
    with _random.forked(0):
        return nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.Dropout(), nn.AdaptiveAvgPool2d(1))


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# functions and modules


def test_a_function_is_called_with_numbers_for_vectors_and_shapes_for_images():
    calls = []

    def make(n_in, n_out):
        calls.append((n_in, n_out))
        return networks.default_network(n_in, n_out)

    built("Contrast", "encoder", make, 5, 2)
    built("Contrast", "encoder", make, (5,), (2,))
    built("Contrast", "encoder", make, IMAGE, 2)
    assert calls == [(5, 2), (5, 2), (IMAGE, 2)]


def test_what_a_function_made_says_what_made_it():
    make = partial(mlp, hidden=(4,))
    assert getattr(built("Contrast", "encoder", make, (5,), 2), MADE_BY) == (make, 5, 2)
    assert getattr(built("Contrast", "encoder", convolutional, IMAGE, 2), MADE_BY) == (convolutional, IMAGE, 2)


def test_a_module_is_copied_and_not_marked():
    module = nn.Linear(5, 2)
    one, two = (built("Contrast", "encoder", module, 5, 2) for _ in range(2))
    assert one is not module
    assert one.weight.data_ptr() != two.weight.data_ptr() != module.weight.data_ptr()
    assert torch.equal(one.weight, module.weight)
    assert not hasattr(one, MADE_BY)  # a file would hold the module twice


def test_checking_a_network_leaves_no_trace():
    module = nn.Sequential(nn.Linear(5, 2), nn.BatchNorm1d(2))
    before = copy.deepcopy(module.state_dict())
    after = built("Contrast", "encoder", module, 5, 2).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.filterwarnings("ignore::UserWarning")  # that three steps are few
def test_a_second_fit_with_a_module_begins_where_the_first_began():
    x = noise(200, 4).numpy()
    module = nn.Linear(4, 2)
    start = module.weight.detach().clone()
    estimator = Contrast(2, encoder=module, max_iter=3, random_state=0, device="cpu")
    first, second = (estimator.fit(x).transform(x) for _ in range(2))
    assert (first == second).all()
    assert torch.equal(module.weight, start)
    assert not torch.equal(estimator.encoder_.body.weight, start)


# what does not fit


@pytest.mark.parametrize(
    ("make", "n_in", "n_out", "remedy"),
    [
        *((make, 30, 2, "networks.skip_mlp") for make in (convolutional, temporal, nn.Conv2d(3, 2, 3))),
        *((make, IMAGE, 2, "networks.convolutional") for make in (linear, skip_mlp, mlp, nn.Linear(768, 2))),
        (Pretrained(nn.Conv2d(3, 8, 3)), (1, 16, 16), 2, "networks.convolutional"),
        *((make, (50, 3), 2, "networks.temporal") for make in (linear, convolutional)),
        (linear, 4, IMAGE, "networks.deconvolutional"),
    ],
)
def test_a_network_that_does_not_fit_raises_and_another_is_suggested(make, n_in, n_out, remedy):
    with pytest.raises(InputError, match=remedy) as error:
        built("Contrast", "encoder", make, n_in, n_out)
    assert error.value.argument == "encoder"


def test_a_decoder_to_images_fits():
    assert built("Dictionary", "decoder", deconvolutional, 4, IMAGE)(torch.zeros(2, 4)).shape == (2, *IMAGE)


@pytest.mark.parametrize("make", [lambda n_in, n_out: nn.Linear(n_in, 1), nn.Linear(5, 3), nn.LSTM(5, 2)])
def test_a_wrong_result_raises(make):
    with pytest.raises(InputError) as error:
        built("Contrast", "encoder", make, 5, 2)
    assert error.value.argument == "encoder"


def test_an_error_in_a_function_is_the_cause():
    def make(n_in, n_out):
        raise KeyError("no such model")

    with input_error("encoder") as error:
        built("Contrast", "encoder", make, 5, 2)
    assert isinstance(error.value.__cause__, KeyError)


@pytest.mark.parametrize("make", ["mlp", None, lambda n_in, n_out: torch.zeros(n_in, n_out)])
def test_what_is_no_network_raises(make):
    with pytest.raises(TypeError):
        built("Contrast", "encoder", make, 5, 2)


# backbones


def test_a_frozen_backbone_stays_as_it_is_while_the_layer_on_top_learns():
    network = built("Contrast", "encoder", Pretrained(backbone()), IMAGE, 2)
    start = copy.deepcopy(network.state_dict())
    descent = torch.optim.SGD([weight for weight in network.parameters() if weight.requires_grad], lr=0.1)
    network.train()
    network(noise(8, *IMAGE)).square().sum().backward()
    descent.step()
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, start[name])}
    assert changed == {"head.weight", "head.bias"}


def test_a_backbone_that_is_trained_on_keeps_its_statistics():
    network = built("Contrast", "encoder", Pretrained(backbone(), frozen=False), IMAGE, 2).train()
    before = network.network[1].running_mean.clone()
    network(noise(8, *IMAGE)).square().sum().backward()
    assert network.network[0].weight.grad.abs().max() > 0
    assert torch.equal(network.network[1].running_mean, before)
    assert network.head.training
    assert not network.network.training


def test_a_sample_does_not_depend_on_its_neighbours_even_while_it_is_trained():
    network = built("Contrast", "encoder", Pretrained(backbone(), frozen=False), IMAGE, 2).train()
    x = noise(8, *IMAGE)
    torch.testing.assert_close(network(x)[:1], network(x[:1]))


def test_images_are_normalised_as_the_backbone_requires():
    network = built("Contrast", "encoder", Pretrained(nn.Identity(), mean=(1, 2, 3), std=(1, 2, 4)), IMAGE, 768)
    x = torch.tensor([2.0, 4.0, 7.0])[:, None, None].expand(1, *IMAGE)
    assert torch.equal(network.normalise(x), torch.ones(1, *IMAGE))


def test_the_layer_on_top_is_the_one_requested_and_fits_whatever_comes_out_below():
    network = built("Contrast", "encoder", Pretrained(nn.Conv2d(3, 2, 8, stride=8), head=skip_mlp), IMAGE, 5)
    assert isinstance(network.head, networks.SkipMLP)
    assert network.head.linear.in_features == 2 * 2 * 2


def test_a_backbone_must_be_a_module():
    with pytest.raises(TypeError):
        Pretrained("resnet18")


@pytest.mark.parametrize("units", [{"std": (0.0,)}, {"mean": (0.0, 1.0)}])
def test_a_backbone_needs_a_mean_and_a_scale_per_channel(units):
    with pytest.raises(InputError) as error:
        Pretrained(nn.Identity(), **units)
    assert error.value.argument == "std"
