"""`Dictionary` of images: latents from pixels alone, on a CPU.

Chance, a random rotation of three latents, has an MCC of .826.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Room, Sprites
from raising import input_error
from torch import nn

from pindown import Dictionary, load, networks, theory
from pindown.auditing.checks.conditions import needed
from pindown.errors import InputError
from pindown.losses import DependencyCount, DependencySparsity
from pindown.methods.dictionary import estimator
from pindown.methods.dictionary.isomap import isomap, least_folded, without_parabolas
from pindown.metrics import linear_r2, mcc

SIZE, N = 8, 1_500
ROOM = Room(SIZE, factors=("floor_hue", "wall_hue", "object_hue"), fixed={"shape": 2}, samples=1)
QUICK = {"n_restarts": 1, "max_iter": 4, "batch_size": 32, "random_state": 0, "device": "cpu", "verbose": False}
SMALL = {
    "encoder": partial(networks.convolutional, widths=(8, 16)),
    "decoder": partial(networks.deconvolutional, widths=(8, 16)),
}


def rooms(n, seed):
    z = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))
    return ROOM(z), z


@pytest.fixture(scope="module")
def pictures():
    return rooms(N, 1)[0]


@pytest.fixture(scope="module")
def fitted(pictures):
    options = QUICK | SMALL | {"max_iter": 120, "batch_size": 64, "learning_rate": 8e-3}
    return Dictionary(3, penalty=DependencyCount(n_columns=1, n_samples=16), **options).fit(pictures)


@pytest.mark.slow
def test_latents_of_rooms_are_recovered_from_pixels_alone(fitted):
    x, z = rooms(1_000, 2)
    assert mcc(fitted.transform(x), z) > 0.93  # chance .83
    assert fitted.guarantee is theory.DICTIONARY_BLOCKS
    assert all(block.is_single for block in fitted.blocks_)


def test_the_support_shows_which_pixels_a_latent_reaches(fitted):
    assert fitted.support_.shape == fitted.dependence_.shape == (3, SIZE, SIZE, 3)
    x, z = rooms(500, 3)
    latents = fitted.transform(x).numpy()
    which = [int(np.abs(np.corrcoef(latents.T, z.numpy().T)[:3, 3 + j]).argmax()) for j in range(3)]
    floor, wall = (fitted.dependence_[..., which[j]].mean(0) for j in (0, 1))
    assert floor[-1].mean() > 2 * floor[0].mean()  # below
    assert wall[0].mean() > 2 * wall[-1].mean()  # above
    assert fitted.pictures().shape == (SIZE, 3 * (SIZE + 2) - 2, 3)


def test_images_are_decoded_sampled_scored_and_differentiated(fitted):
    x, _ = rooms(20, 4)
    again = fitted.inverse_transform(fitted.transform(x))
    assert again.shape == x.shape
    assert float((again - x).square().mean() / x.var(0).mean()) < 0.5  # of the variance
    assert fitted.sample(4, random_state=0).shape == (4, 3, SIZE, SIZE)
    assert np.array_equal(fitted.sample(4, random_state=0), fitted.sample(4, random_state=0))
    assert fitted.jacobian(x[:2]).shape == (2, 3, SIZE, SIZE, 3)
    assert fitted.score(x) > fitted.score(x.flip(2))


def test_assumptions_are_checked_of_images_too(fitted):
    from pindown.data.data import Data

    verdicts = fitted.spec.checks_after(fitted, Data(rooms(300, 5)[0].numpy()))
    assert [verdict.outcome in ("holds", "fails", "undecided") for verdict in verdicts] == [True] * 4
    assert next(verdict for verdict in verdicts if verdict.assumption == theory.INDEPENDENT_BLOCKS).outcome == "holds"


def graded(n, seed):
    """One image in other light: brightness, contrast and warmth change every pixel."""
    z = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))
    brightness, contrast, warmth = (z[:, j, None, None, None] for j in range(3))
    tint = 1 + 0.4 * (warmth - 0.5) * torch.tensor([1.0, 0.3, -1.0])[:, None, None]
    picture = Room(SIZE)(torch.full((1, 6), 0.4)).clamp(0.02, 1)
    return (0.5 + 0.5 * brightness) * tint * picture ** (0.5 + contrast), z


@pytest.mark.slow
def test_where_every_latent_reaches_every_pixel_there_is_one_block_and_nothing_is_claimed():
    from pindown.data.data import Data

    x, _ = graded(1_300, 1)
    options = QUICK | SMALL | {"max_iter": 120, "batch_size": 64, "learning_rate": 8e-3}
    est = Dictionary(3, penalty=DependencyCount(n_columns=1, n_samples=16), **options).fit(x[:1_000])
    # Levels of red and of blue reach fewer pixels than brightness and warmth do, and depend on each other.
    assert [sorted(block.latents) for block in est.blocks_] == [[0, 1, 2]]
    verdicts = est.spec.checks_after(est, Data(x[1_000:].numpy()))
    refused = [verdict.assumption for verdict in needed(est.guarantee, verdicts) if verdict.outcome == "fails"]
    assert theory.INDEPENDENT_BLOCKS in refused


def test_a_fit_to_images_is_saved_and_loaded(fitted, tmp_path):
    x = rooms(5, 6)[0]
    fitted.save(tmp_path / "fit.pindown")
    assert torch.equal(load(tmp_path / "fit.pindown").transform(x), fitted.transform(x))


def test_explained_variance_is_that_between_samples_rather_than_within_posteriors(fitted):
    model, (x, _) = fitted.objective_, rooms(200, 3)
    normal = torch.randn(2_000, 1, 3, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        triangle, _ = model._triangle(model.encoder.preprocess(x))
        draws = model.encode(x) + model.to_latents((triangle @ normal)[..., 0])  # (draws, rows, latents)
    within = draws.var(0).mean(0)
    explained = model.encode(x).var(0) / (model.encode(x).var(0) + within)
    torch.testing.assert_close(1 - model.explained_variance(x), 1 - explained, rtol=0.1, atol=1e-4)
    assert (model.explained_variance(x) > 0.9).all()


def along_leading_directions(x: torch.Tensor, n: int) -> np.ndarray:
    flat = x.flatten(1).double()
    along, _, _ = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    return along[:, :n].numpy() * len(x) ** 0.5  # whitened, the leading directions first


def test_isomap_uses_as_many_directions_as_leave_no_fold():
    x, z = rooms(1_000, 7)
    seen = along_leading_directions(x, 24)
    assert linear_r2(least_folded(seen, 3), z) > 0.95
    assert linear_r2(isomap(seen[:, :15], 3), z) < 0.75  # five for each latent: the paths along the data are lost


@pytest.mark.slow
def test_the_size_of_sprites_is_not_hidden_by_a_parabola_of_their_positions():
    sprites, explained, hidden = Sprites(16, factors=("size", "x", "y"), fixed={"shape": 0, "rotation": 0}), [], []
    for seed in (0, 1):
        z = torch.rand(2_500, 3, generator=torch.Generator().manual_seed(seed))
        seen, size = along_leading_directions(sprites(z), 24), z[:, :1]
        explained.append(linear_r2(least_folded(seen, 3), size))
        hidden.append(linear_r2(isomap(seen[:, :12], 3), size))  # the third coordinate is a parabola of the places
    assert np.mean(explained) > 0.6
    assert np.mean(hidden) < 0.3


def test_coordinates_without_parabolas_stay_the_same():
    z = np.random.default_rng(0).normal(size=(1_000, 3))
    z /= z.std(0)
    np.testing.assert_allclose(without_parabolas(z), z)


def test_restarts_of_images_use_isomap_and_linear_initialisation_in_turns(pictures):
    est = Dictionary(3, **QUICK | {"n_restarts": 2}).fit(pictures[:200])
    assert est.bounds_.shape == est.agreement_.shape == (2,)


class Restart(nn.Module):
    """A restart whose latents are known."""

    def __init__(self, latents):
        super().__init__()
        self.d, self.of = latents.shape[1], latents
        self.encoder = SimpleNamespace(preprocess=lambda x: x)

    def encode(self, x):
        return self.of


@pytest.mark.parametrize("bounds", [[0.0, 100.0, 90.0], [100.0, 0.0, -10.0]])
def test_a_folded_restart_is_not_taken_for_its_larger_bound(bounds):
    x, z = rooms(1_000, 8)
    z = z - z.mean(0)
    folded = torch.stack([z[:, 0], z[:, 1], z[:, 2].abs()], 1)
    nonlinear = z + 0.3 * torch.sin(3 * z)
    best = estimator._best_of([Restart(z), Restart(folded), Restart(nonlinear)], np.array(bounds), x)
    assert best == (0 if bounds[0] > bounds[2] else 2)


@pytest.mark.parametrize("penalty", [DependencySparsity(), DependencyCount(), None])
def test_penalties_of_images_use_some_latents_and_samples_by_default(penalty, pictures):
    est = Dictionary(3, penalty=penalty, **QUICK).fit(pictures[:100])
    taken = est.objective_.penalty
    assert (taken is None) == (penalty is None)
    assert taken is None or (taken.n_columns, taken.n_samples) == (2, 64)


def test_images_that_cannot_be_used_are_refused(pictures, fitted):
    with pytest.raises(InputError) as error:
        Dictionary(3, **QUICK).fit(torch.ones(50, 3, 8, 8))
    assert error.value.argument == "X"
    with pytest.raises(ValueError, match=r"networks\.deconvolutional"):
        Dictionary(3, decoder=networks.linear, **QUICK).fit(pictures[:50])
    with pytest.raises(ValueError, match="columns"):
        fitted.inverse_transform(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="n_samples"):
        fitted.sample(0)
    with input_error("X"):
        Dictionary(2, **QUICK).fit(np.random.default_rng(0).normal(size=(100, 3))).pictures()
