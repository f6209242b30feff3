"""Transport: latents of images whose values adversarial training left different are brought to one law."""

import copy

import numpy as np
import pytest
import torch

from pindown import Forget, load
from pindown.auditing.audit_page import _along_each
from pindown.methods.transport import MIN_SAMPLES, SlicedTransport
from pindown.metrics import Effort, leakage
from pindown.training import Trainer

PROBES = ["quadratic", "boosting"]


def rings(n: int, seed: int, *, bent: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return three latents of two values; nonlinear, the second has a skew first code and the second goes with it."""
    rng = np.random.default_rng(seed)
    z, e = rng.normal(size=(n, 3)), np.arange(n) % 2
    other = np.stack([np.exp(0.7 * z[:, 0]) - 1, z[:, 1] + 0.8 * z[:, 0] ** 2, z[:, 2]], 1)
    return np.where(bent & (e[:, None] == 1), other, z), e


def scanned(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return soft discs of 6 × 6 pixels, and which of two scanners saw them: the second has another gamma."""
    rng = np.random.default_rng(seed)
    place, scanner, grid = rng.random((n, 2)), np.arange(n) % 2, np.arange(6)
    apart = [(grid - 5 * place[:, [axis]]) ** 2 for axis in (0, 1)]
    images = np.exp(-(apart[0][:, :, None] + apart[1][:, None, :]) / 3)[:, None]
    return (images ** (1 + 2 * scanner)[:, None, None, None]).astype(np.float32), scanner


def fitted(z: np.ndarray, e: np.ndarray) -> SlicedTransport:
    return SlicedTransport.fitted(torch.as_tensor(z), torch.as_tensor(e), torch.Generator().manual_seed(0), n_rounds=60)


def worst(codes: np.ndarray, e: np.ndarray) -> float:
    return leakage(codes, e, probes=PROBES, effort=Effort(n_seeds=1, n_permutations=19), random_state=0).worst


def test_latents_of_levels_with_other_maps_have_one_distribution_on_other_samples_and_the_inverse_is_exact():
    transport, (z, e) = fitted(*rings(8_000, 0, bent=True)), rings(4_000, 1, bent=True)
    moved = transport(z, e)
    assert worst(z, e) > 0.65  # chance .5; .685 to .708 over five seeds
    assert worst(moved.numpy(), e) < 0.57  # .512 to .540
    np.testing.assert_allclose(transport.inverse(moved, e), z, atol=1e-6)


def test_latents_of_one_law_and_values_of_few_rows_stay_where_they_are():
    z, e = rings(5_000, 0, bent=False)
    assert float((fitted(z, e)(z, e) - torch.as_tensor(z)).square().mean()) < 2e-3
    z, e = rings(2 * MIN_SAMPLES - 2, 0, bent=True)
    np.testing.assert_allclose(fitted(z, e)(z, e), z)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_adversarial_training_on_images_is_followed_by_a_transport_that_uses_the_nuisance(tmp_path):
    images, scanner = scanned(6_000, 0)
    quick = {
        "max_iter": 5,
        "trainer": Trainer(validation_fraction=0.3),
        "verbose": False,
        "device": "cpu",
        "random_state": 0,
    }
    forget = Forget(2, **quick).fit(images, scanner)
    assert forget.transport_ is not None
    alone, told = forget.transform(images), forget.transform(images, scanner)
    assert worst(told, scanner) < worst(alone, scanner) - 0.05  # .107 to .13 over four seeds
    one_map = copy.copy(forget)
    one_map.transport_ = None
    np.testing.assert_array_equal(one_map.transform(images, scanner), alone)
    rebuilt = forget.inverse_transform(told, scanner)
    np.testing.assert_allclose(rebuilt, one_map.inverse_transform(alone, scanner), atol=1e-4)
    forget.save(tmp_path / "forget.pindown")
    np.testing.assert_array_equal(load(tmp_path / "forget.pindown").transform(images, scanner), told)
    drawn = _along_each(
        forget, told[:50].astype(float), images[:50]
    )  # no slider decodes what has to be told the nuisance
    assert drawn.shape[0] == 2
