"""What a user meets first on a machine with a GPU: every estimator fits there, and what it says comes back."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from pindown import Classify, Contrast, Dictionary, Forget, LatentAction, networks
from pindown.methods import InverseDynamics
from pindown.simulate import Pairs
from pindown.training import Trainer

RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=400)
X = RNG.normal(size=(400, 5)) + 3 * np.eye(4, 5)[LABELS]
NEXT = X + 0.3 * RNG.normal(size=X.shape)
HALVES = np.arange(400) % 2

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def moved(x, generator):
    """Return another view of rows, wherever they are."""
    return x + 0.1 * torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)


def options(device):
    return {"max_iter": 6, "verbose": False, "random_state": 0, "device": device}


FITS = {
    "Contrast": lambda device: Contrast(2, **options(device)).fit(X, NEXT),
    "Contrast, groups": lambda device: Contrast(2, **options(device)).fit(X, LABELS),
    "Contrast, a world": lambda device: Contrast(3, **options(device)).fit_process(
        Pairs.on_sphere(3, concentration=4.0, random_state=0)
    ),
    "Classify": lambda device: Classify(2, **options(device)).fit(X, LABELS),
    "Classify, views": lambda device: Classify(2, augment=moved, **options(device)).fit(X),
    "Forget": lambda device: Forget(2, **options(device)).fit(X, HALVES),
    "Forget, given": lambda device: Forget(2, **options(device)).fit(X, HALVES, LABELS),
    "Forget, linear": lambda device: Forget(2, encoder=networks.linear, **options(device)).fit(X, HALVES),
    "Dictionary": lambda device: Dictionary(2, n_restarts=1, **options(device)).fit(X),
}


def quietly(fit, device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # six steps recover nothing
        return fit(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FITS)
def test_a_fit_runs_on_the_requested_device_and_returns_latents(name, device):
    fitted = quietly(FITS[name], device)
    assert next(fitted.encoder_.parameters()).device.type == device
    rows = X[:, : fitted.n_features_in_]
    codes = fitted.transform(rows)
    assert isinstance(codes, np.ndarray)
    assert fitted.transform(torch.as_tensor(rows)).device.type == "cpu"
    assert fitted.transform(torch.as_tensor(rows, device=device)).device.type == device
    elsewhere = copy.deepcopy(fitted)
    elsewhere.encoder_.cpu()
    np.testing.assert_allclose(elsewhere.transform(rows), codes, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["Contrast", "Classify"])
def test_a_fit_is_scored_where_it_is(name, device):
    fitted = quietly(FITS[name], device)
    assert np.isfinite(fitted.score(X, NEXT if name == "Contrast" else LABELS))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_latents_of_transitions_are_counted_where_they_are_learned(device):
    dynamics = InverseDynamics(**options(device)).fit(X, NEXT, HALVES)
    assert dynamics.transform(X, NEXT).shape == (400, dynamics.n_components_)
    assert dynamics.model_.axes.centre.device.type == device
    assert 0 <= dynamics.model_.n_informative(torch.as_tensor(X)) <= dynamics.n_components_  # rows from anywhere


@pytest.mark.parametrize("device", DEVICES)
def test_both_stages_of_latent_actions_run_on_the_requested_device(device):
    stages = {
        "dynamics": InverseDynamics(**options(device)),
        "forget": Forget(trainer=Trainer(validation_fraction=0), **options(device)),
    }
    act = quietly(lambda _: LatentAction(1, random_state=0, **stages).fit(X, NEXT, HALVES), device)
    codes = act.transform(torch.as_tensor(X), torch.as_tensor(NEXT))
    assert codes.device.type == "cpu"
    assert act.predict_next(torch.as_tensor(X), codes, HALVES).shape == (400, 5)


@pytest.mark.parametrize("device", DEVICES)
def test_an_encoder_of_ones_own_is_moved_to_where_it_is_trained(device):
    def own(n_in, n_out):
        return nn.Sequential(nn.Linear(n_in, 8), nn.Tanh(), nn.Linear(8, n_out))

    fitted = quietly(lambda where: Contrast(2, encoder=own, **options(where)).fit(X, NEXT), device)
    assert {w.device.type for w in fitted.encoder_.parameters()} == {device}


class Waiting(nn.Module):
    """A network that the host asks for a number in every step, as many that people bring do."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer = nn.Linear(n_in, n_out)

    def forward(self, x):
        return self.layer(x) if self.layer.weight.abs().max().item() < 1e6 else x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("encoder", "captured"), [(Waiting, False), (networks.linear, True)])
def test_a_step_is_captured_on_a_gpu_unless_the_network_waits_for_it(encoder, captured, device, monkeypatch):
    graphs = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda make=torch.cuda.CUDAGraph: graphs.append(1) or make())
    fitted = quietly(lambda where: Contrast(2, encoder=encoder, **options(where)).fit(X, NEXT), device)
    assert np.isfinite(fitted.transform(X)).all()
    assert bool(graphs) == (captured and device == "cuda")
