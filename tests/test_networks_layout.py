"""Tensors lie in memory as files store them: where they do not, a sum runs in another order once they are read back."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pindown import Classify, Contrast, Dictionary, Forget, _random, networks
from pindown.data import ArraySource
from pindown.methods.latent_action import InverseDynamics

FEW = {"max_iter": 2, "random_state": 0, "device": "cpu"}


def rows(n=400, d=5):
    return np.random.default_rng(0).normal(size=(n, d))


def halves(n=400):
    return np.arange(n) % 2


FITS = {
    "Contrast": lambda: Contrast(3, **FEW).fit(rows()),
    "Contrast, any network": lambda: Contrast(3, encoder=networks.residual, **FEW).fit(rows()),
    "Classify": lambda: Classify(3, **FEW).fit(rows(), np.arange(400) % 10),
    "Forget": lambda: Forget(3, **FEW).fit(rows(), halves()),
    "Forget, linear": lambda: Forget(3, encoder=networks.linear, **FEW).fit(rows(), halves()),
    "Dictionary": lambda: Dictionary(3, **FEW).fit(rows()),
    "InverseDynamics": lambda: InverseDynamics(2, **FEW).fit(rows(), rows() + rows()[::-1], halves()),
}


def tensors(value, path, seen):
    """Go through all tensors that an object holds, in modules, containers and attributes, by where they are."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, nn.Module):
        for name, tensor in value.state_dict().items():
            yield f"{path}.{name}", tensor
    elif isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from tensors(part, f"{path}[{key}]", seen)
    elif type(value).__module__.startswith("pindown."):
        for name, part in vars(value).items():
            yield from tensors(part, f"{path}.{name}", seen)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("name", FITS)
def test_every_tensor_that_a_fit_leaves_behind_is_contiguous(name):
    found = dict(tensors(FITS[name](), name, set()))
    assert any(tensor.ndim == 2 for tensor in found.values())
    assert [where for where, tensor in found.items() if not tensor.is_contiguous()] == []


VECTORS = [
    networks.linear,
    networks.mlp,
    networks.zero_mlp,
    networks.small_mlp,
    networks.skip_mlp,
    networks.smooth,
    networks.residual,
]


@pytest.mark.parametrize("make", VECTORS)
def test_every_tensor_of_a_network_is_contiguous(make):
    with _random.forked(0):
        module = make(5, 3)
    assert all(tensor.is_contiguous() for tensor in module.state_dict().values())


def test_a_frame_and_what_whitens_are_contiguous_whatever_they_are_made_of():
    across = torch.as_tensor(rows()[:7].copy(order="F"))  # (7, 5), by columns
    assert not across.is_contiguous()
    for module in (
        networks.Frame(across[:3]),
        networks.preprocessing.whiten(ArraySource(across)),
        networks.Rescale(across.mean(0)),
    ):
        assert all(tensor.is_contiguous() for tensor in module.state_dict().values())
