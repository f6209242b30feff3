import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from pindown_papers.baselines import Flow, couplings, splines
from torch import nn

from pindown import disentangle
from pindown.errors import IdentifiabilityWarning
from pindown.losses import DependencySparsity
from pindown.metrics import linear_r2, mcc
from pindown.simulate import Structured
from pindown.training import Trainer

LADDER = [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
QUICK = {
    "max_iter": 5,
    "batch_size": 64,
    "random_state": 0,
    "device": "cpu",
    "verbose": False,
    "trainer": Trainer(validation_fraction=0),
}


@pytest.fixture(scope="module")
def simulation():
    return Structured.well_posed(LADDER, random_state=2)


@pytest.fixture(scope="module")
def flow(simulation):
    est = Flow(3, batch_size=256, max_iter=250, random_state=2, device="cpu", verbose=False)
    with warnings.catch_warnings(action="ignore", category=IdentifiabilityWarning):  # it may know its own rows better
        return est.fit(simulation.sample(2_000, random_state=1).x)


# ---- the map and its inverse --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [couplings, splines])
def test_a_bijection_begins_as_the_identity_and_knows_its_volume(make):
    rng = torch.Generator().manual_seed(0)
    bijection, x = make(3, 3).double(), torch.randn(5, 3, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(bijection(x), x)
    for weight in bijection.parameters():
        nn.init.normal_(weight, std=0.15, generator=rng)
    codes, volume = bijection.with_volume(x)
    jacobians = torch.stack([torch.func.jacrev(lambda row: bijection(row[None])[0])(row) for row in x])
    assert volume.abs().max() > 0.01  # it does something by now
    torch.testing.assert_close(volume, torch.linalg.slogdet(jacobians).logabsdet)
    torch.testing.assert_close(bijection.inverse(codes), x)


def test_rows_come_back_from_their_latents(flow, simulation):
    x = simulation.sample(200, random_state=3).x
    torch.testing.assert_close(flow.inverse_transform(flow.transform(x)), x, atol=1e-4, rtol=1e-4)


def test_the_likelihood_is_that_of_the_law_it_was_drawn_from():
    rng = np.random.default_rng(0)
    mixing = np.array([[2.0, 0.0], [1.0, 1.0]])
    est = Flow(2, **QUICK | {"max_iter": 1}).fit(rng.normal(size=(20_000, 2)) @ mixing)
    # Of white rows, a standard normal law: minus half of log 2π + 1 for each of two directions.
    assert est.score(rng.normal(size=(20_000, 2)) @ mixing) == pytest.approx(-np.log(2 * np.pi) - 1, abs=0.06)


def test_latents_are_the_leading_directions_of_wide_rows_before_anything_is_learned():
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(400, 2))
    x = latents @ rng.normal(size=(2, 20)) + 0.1 * rng.normal(size=(400, 20))
    assert linear_r2(Flow(2, **QUICK | {"max_iter": 1}).fit(x).transform(x), latents) > 0.98


# ---- what it is worth ---------------------------------------------------------------------------------


def test_it_is_disentangled_without_training(flow, simulation):
    test = simulation.sample(2_000, random_state=2)
    codes = flow.transform(test.x).numpy()
    found = disentangle(flow.decoder_, codes)
    assert linear_r2(codes, test.z) > 0.79
    assert mcc(codes @ found.unmixing, test.z) > mcc(codes, test.z)
    assert flow.held_out_.score > flow.held_out_.chance  # a normal law of the same covariance


@pytest.mark.slow
def test_a_penalty_clears_dependencies():
    costs = {None: [], DependencySparsity(5.0, n_columns=1): []}
    for seed, penalty in itertools.product((2, 3), costs):
        x = Structured.well_posed(LADDER, random_state=seed).sample(300, random_state=1).x
        est = Flow(3, penalty=penalty, **QUICK | {"max_iter": 20}).fit(x)
        z = est.transform(x)
        costs[penalty].append(DependencySparsity(1.0)(est.decoder_, z.float(), torch.rand(len(z), 3))[1].item())
    without, with_penalty = map(np.mean, costs.values())
    assert with_penalty < without


# ---- reasons_not_to_claim and footprints --------------------------------------------------------------------------


def test_a_network_that_cannot_be_inverted_raises():
    with pytest.raises(TypeError):
        Flow(2, encoder=nn.Linear, **QUICK).fit(np.random.default_rng(0).normal(size=(80, 3)))


def test_more_latents_than_directions_are_refused():
    with pytest.raises(ValueError, match="n_components=4"):
        Flow(4, **QUICK).fit(np.random.default_rng(0).normal(size=(80, 3)))


def test_without_zuko_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(ImportError, match="zuko"):
        couplings(3, 3)


def test_torch_goes_on_checking_distributions_when_zuko_has_been_imported():
    code = (
        "import torch\nfrom pindown_papers.baselines.bijections import couplings\ncouplings(2, 2)\n"
        "try: torch.distributions.Normal(0.0, torch.tensor(-1.0))\nexcept ValueError: print('checked')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "checked\n"
