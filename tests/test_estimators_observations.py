"""Any observation: images, sequences, sources, side variables by role, lots of rows one after the other."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from pindown import Classify, Contrast, Data, Dictionary, Forget, Sparse, load, networks
from pindown.auditing.refits import refitted
from pindown.data import ArraySource
from pindown.data.labels import combined
from pindown.methods import PairLoss
from pindown.metrics import linear_r2
from pindown.networks import preprocessing
from pindown.networks.spaces import Reals
from pindown.simulate import Clusters, Pairs
from pindown.training import Trainer

QUICK = {"max_iter": 20, "random_state": 0, "device": "cpu", "verbose": False}


def discs(n, seed, size=12):
    """Draw soft discs at random places; (n, 1, size, size), and the places in [0, 1]², (n, 2)."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(size=(n, 2))
    return drawn(place, size), place


def drawn(place, size=12):
    axis = np.linspace(-0.2, 1.2, size)
    x, y = place[:, 0, None, None], place[:, 1, None, None]
    away = (axis[None, :, None] - x) ** 2 + (axis[None, None] - y) ** 2  # (n, size, size)
    return np.exp(-away / 0.02)[:, None].astype(np.float32)


def near(place, seed, scale=0.05):
    rng = np.random.default_rng(seed)
    moved = place + rng.laplace(scale=scale, size=place.shape)
    return np.where((moved >= 0) & (moved <= 1), moved, place)


# images and sequences


@pytest.mark.slow
def test_places_of_a_disc_are_recovered_from_pixels_by_a_convolution_without_another_argument():
    images, place = discs(3_000, 0)
    held_out, truth = discs(1_000, 1)
    contrast = Contrast(2, space=Reals(), p=1, max_iter=150, batch_size=256, random_state=0, device="cpu")
    z_hat = contrast.fit(images, drawn(near(place, 2))).transform(held_out)
    assert (z_hat.shape, z_hat.dtype) == ((1_000, 2), np.float32)
    pca = PCA(2).fit(images.reshape(3_000, -1)).transform(held_out.reshape(1_000, -1))
    assert linear_r2(pca, truth) < 0.88 < 0.95 < linear_r2(z_hat, truth)


@pytest.mark.slow
def test_classes_of_images_are_predicted_and_a_sample_does_not_depend_on_its_neighbours():
    images, place = discs(600, 0)
    corner = combined(*(place > 0.5).T)
    classify = Classify(2, max_iter=60, random_state=0, device="cpu").fit(images, corner)
    others, elsewhere = discs(300, 1)
    assert classify.score(others, combined(*(elsewhere > 0.5).T)) > 0.9
    together = classify.transform(images)
    np.testing.assert_array_equal(classify.transform(images[7:9]), together[7:9])


def test_sequences_are_read_with_their_channels_last():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 20, 3))
    codes = Contrast(2, **QUICK).fit(x, x + 0.1 * rng.normal(size=x.shape)).transform(x)
    assert codes.shape == (64, 2)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_whole_numbers_such_as_pixels_are_read_as_they_are():
    images = (255 * discs(64, 0)[0]).astype(np.uint8)
    assert Contrast(2, **QUICK).fit(images, images).transform(images).shape == (64, 2)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_images_laid_out_as_vectors_can_be_forgotten_in_and_taken_apart():
    images, place = discs(400, 0, size=6)
    side = (place[:, 0] > 0.5).astype(int)
    flat = {"preprocess": preprocessing.whiten}
    assert Forget(2, **flat, **QUICK).fit(images, side).transform(images).shape == (400, 2)
    with pytest.raises(ValueError, match=r"preprocess=preprocessing\.whiten"):
        Dictionary(2, preprocess=preprocessing.standardise, **QUICK).fit(images)
    with pytest.raises(ValueError, match=r"X\.reshape"):
        Sparse(4).fit(ArraySource(images))


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_a_nuisance_is_forgotten_in_images_as_they_are(tmp_path):
    images, place = discs(400, 0, size=6)
    side = (place[:, 0] > 0.5).astype(int)
    forget = Forget(2, **QUICK).fit(images, side)
    assert any(isinstance(layer, nn.Conv2d) for layer in forget.encoder_.modules())
    codes = forget.transform(images)
    assert forget.inverse_transform(codes, side).shape == images.shape
    forget.save(tmp_path / "forget.pindown")
    np.testing.assert_array_equal(load(tmp_path / "forget.pindown").transform(images), codes)
    from_source = Forget(2, **QUICK).fit(ArraySource(images, nuisance=side))
    np.testing.assert_allclose(from_source.transform(images), codes, atol=1e-4)
    named = Forget(2, encoder=networks.convolutional, **QUICK).fit(images, side)  # as the default of images is
    np.testing.assert_array_equal(named.transform(images), codes)
    with pytest.raises(ValueError, match="n_components"):
        Forget(**QUICK).fit(images, side)


def test_networks_for_other_shapes_are_refused_with_the_one_to_take():
    rows, images = np.random.default_rng(0).normal(size=(64, 5)), discs(64, 0)[0]
    with pytest.raises(ValueError, match="encoder=convolutional"):
        Contrast(2, encoder=networks.convolutional, **QUICK).fit(rows, rows)
    with pytest.raises(ValueError, match="encoder=skip_mlp"):
        Contrast(2, encoder=networks.skip_mlp, **QUICK).fit(images, images)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_images_with_channels_last_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match="c, h, w"):
        Contrast(2, max_iter=3).fit(np.zeros((50, 16, 16, 3)))


def test_rows_of_another_shape_than_fitted_are_refused():
    images = discs(64, 0)[0]
    fitted = Contrast(2, **QUICK).fit(images, images)
    with pytest.raises(ValueError, match="Contrast"):
        fitted.transform(images[:, :, ::2, ::2])


def test_a_module_is_an_encoder_and_a_second_fit_begins_where_the_first_began():
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    contrast = Contrast(
        2, encoder=nn.Linear(4, 2), trainer=Trainer(validation_fraction=0), **QUICK
    )  # negatives: nothing is to be held out for
    first, second = (contrast.fit(x, x[::-1].copy()).transform(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_more_latents_than_columns_are_refused_where_the_theorem_needs_an_injective_mixing():
    x = np.random.default_rng(0).normal(size=(64, 3))
    with pytest.raises(ValueError, match="n_components=4"):
        Contrast(4, **QUICK).fit(x, x)
    assert Contrast(4, loss=PairLoss(0.3), **QUICK).fit(x, x).transform(x).shape == (
        64,
        4,
    )  # no theorem speaks of this loss


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("preprocess", [preprocessing.standardise, preprocessing.centre, preprocessing.nothing])
@pytest.mark.slow
def test_every_preprocessing_serves_every_estimator(preprocess):
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(300, 4)), rng.integers(2, size=300)
    for estimator, y in (
        (Contrast(2), x),
        (Classify(2), rng.integers(5, size=300)),
        (Forget(2), e),
        (Dictionary(2), None),
    ):
        codes = estimator.set_params(preprocess=preprocess, **QUICK).fit(x, y).transform(x)
        assert codes.shape == (300, 2)
        assert np.isfinite(codes).all()


def test_a_linear_encoder_is_blind_whatever_the_preprocessing():
    rng = np.random.default_rng(0)
    e = rng.integers(2, size=1_000)
    x = rng.normal(size=(1_000, 3)) + e[:, None] * [5.0, 0, 0]
    forget = Forget(encoder=networks.linear, preprocess=preprocessing.standardise, **QUICK).fit(x, e)
    assert forget.n_components_ == 2
    assert np.abs(forget.components_[:, 0]).max() < 0.05


# side variables by role


def test_data_say_what_keywords_say():
    rng = np.random.default_rng(0)
    x, e, label = rng.normal(size=(300, 4)), rng.integers(2, size=300), rng.integers(3, size=300)
    x[:, 0] += 3 * label
    for forget in (Forget(2, **QUICK), Forget(2, encoder=networks.skip_mlp, **QUICK)):
        by_keyword = forget.fit(x, e, given=label).transform(x, e)
        np.testing.assert_array_equal(forget.fit(Data(x, nuisance=e, given=label)).transform(x, e), by_keyword)


def test_a_side_variable_that_a_method_cannot_use_is_refused_by_its_part():
    x, e = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    with pytest.raises(ValueError, match="nuisance"):
        Classify(2, **QUICK).fit(Data(x, signal=e, nuisance=e))
    with pytest.raises(ValueError, match="pairs"):
        Dictionary(2, **QUICK).fit(Data(x, pairs=x))
    with pytest.raises(ValueError, match="variables"):
        Classify(2, **QUICK).fit(Data(x, signal=e), e)


def test_positives_come_from_groups_of_consecutive_samples():
    x = np.random.default_rng(0).normal(size=(40, 3))
    contrast = Contrast(2, batch_size=38, **QUICK).fit(Data(x, pairs="next", groups=np.arange(40) // 20))
    assert contrast.n_iter_ == 20  # of 40 rows 38 have a next row in their group
    with pytest.raises(ValueError, match="batch_size=39"):
        Contrast(2, batch_size=39, **QUICK).fit(Data(x, pairs="next", groups=np.arange(40) // 20))


def told(codes, e):
    """Share of the variance of a nuisance that is linear in latents."""
    return linear_r2(codes, np.eye(e.max() + 1)[e])


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # what shifts, folds
@pytest.mark.slow
def test_negatives_of_the_same_batch_make_predicting_it_no_help():
    """Partners share their batch, which shifts all columns: without being told, latents spend themselves on it."""
    leaks, scores = [], []
    for seed in range(3):
        sample = Pairs.on_sphere(3, 5.0, random_state=seed).sample(4_000, random_state=seed + 1)
        e = np.random.default_rng(seed).integers(4, size=4_000)
        shift = np.random.default_rng(seed + 1).normal(size=(4, 3))[e]
        x, x_pos = (part.numpy() + shift for part in (sample.x, sample.x_pos))
        contrast = Contrast(3, max_iter=300, random_state=seed, device="cpu")
        codes = [contrast.fit(x, x_pos, nuisance=nuisance).transform(x) for nuisance in (None, e)]
        leaks.append([told(z_hat, e) for z_hat in codes])
        scores.append([linear_r2(z_hat, sample.z) for z_hat in codes])
    (alone, beside), (before, after) = np.mean(leaks, 0), np.mean(scores, 0)
    assert beside < 0.8 * alone
    assert after > before + 0.03


def test_a_nuisance_may_have_several_columns_and_be_text():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    e = np.stack([rng.choice(["a", "b"], 200), rng.choice(["x", "y"], 200)], 1)
    assert Contrast(2, **QUICK).fit(x, x, nuisance=e).transform(x).shape == (200, 2)


# what is seen before training


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # five steps hide little
def test_preparing_twice_gives_the_same_and_changes_nothing():
    world = Clusters.on_sphere(3, 6, 8.0, random_state=0)
    sample = world.sample(400, random_state=1)
    x, u = sample.x.numpy(), sample.u.numpy()
    forget = Forget(random_state=0, max_iter=5, verbose=False)
    summary = forget.prepare(Data(x, nuisance=u % 2)).summary
    assert not hasattr(forget, "encoder_")
    fitted = forget.fit(x, u % 2)
    assert (summary.n_components, summary.n_nuisance_directions) == (
        fitted.n_components_,
        fitted.n_nuisance_directions_,
    )
    with pytest.raises(AttributeError):
        summary.n_components = 3


# lots of rows, one after the other


def test_lots_that_come_one_after_the_other_teach_what_all_rows_teach():
    world = Clusters.on_sphere(3, 20, 10.0, random_state=0)
    test = world.sample(2_000, random_state=99)
    classify = Classify(3, learning_rate=3e-3, random_state=0, device="cpu")
    for k in range(30):
        lot = world.sample(4_096, random_state=k)
        classify.partial_fit(lot.x, lot.u, classes=np.arange(20))
    assert classify.n_iter_ == 30 * 8
    assert linear_r2(test.x, test.z) < 0.96 < 0.97 < linear_r2(classify.transform(test.x), test.z)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_a_later_lot_must_have_the_same_columns_and_known_classes():
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    classify = Classify(2, **QUICK).partial_fit(x, y, classes=[0, 1, 2, 3])
    assert classify.partial_fit(x, np.full(60, 3)).n_iter_ == 2
    with pytest.raises(ValueError, match="expecting"):
        classify.partial_fit(x[:, :2], y)
    with pytest.raises(ValueError, match="class 7"):
        classify.partial_fit(x, y + 7)
    with pytest.raises(ValueError, match="classes"):
        Classify(2, **QUICK).partial_fit(x, y, classes=[0, 1])


def test_lots_after_a_fit_begin_again_and_learn():
    world = Pairs.on_sphere(3, 5.0, random_state=0)
    lot = world.sample(2_048, random_state=0)
    contrast = Contrast(3, max_iter=5, random_state=0, device="cpu")
    fresh = contrast.partial_fit(lot.x, lot.x_pos).transform(lot.x)
    after = contrast.fit(lot.x, lot.x_pos).partial_fit(lot.x, lot.x_pos).transform(lot.x)
    np.testing.assert_array_equal(after, fresh)  # not steps of the optimiser of weights that are gone


def test_a_module_can_be_refitted_behind_another_map():
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    contrast = Contrast(2, encoder=nn.Linear(4, 2), **QUICK).fit(x, x)
    again = refitted(contrast, Data(x, pairs=x), seed=1, elsewhere=True)
    assert np.abs(again.transform(x) - contrast.transform(x)).max() > 1e-3


def test_positives_can_come_in_lots_too():
    world = Pairs.on_sphere(3, 5.0, random_state=0)
    contrast = Contrast(3, random_state=0, device="cpu")
    for k in range(30):
        lot = world.sample(4_096, random_state=k)
        contrast.partial_fit(lot.x, lot.x_pos)
    test = world.sample(2_000, random_state=99)
    assert linear_r2(contrast.transform(test.x), test.z) > 0.97


# precision


def test_a_big_network_stays_in_float32_and_a_small_one_is_run_in_float64():
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(50, 4)))
    small = Contrast(2, **QUICK).fit(x, x)
    big = Contrast(
        2, encoder=lambda n_in, n_out: networks.mlp(n_in, n_out, hidden=(2_300, 2_300)), **QUICK | {"max_iter": 1}
    )
    assert small._encode(x).dtype == torch.float64
    assert big.fit(x, x)._encode(x).dtype == torch.float32
    np.testing.assert_array_equal(big.transform(x[3:5]), big.transform(x)[3:5])


def test_read_only_rows_and_sources_are_not_written_to():
    x = np.random.default_rng(0).normal(size=(64, 3))
    x.flags.writeable = False
    assert Contrast(2, **QUICK).fit(ArraySource(x), x).transform(ArraySource(x)).shape == (64, 2)
