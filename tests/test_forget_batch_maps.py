"""Batch-specific maps: what `Forget` does to tables by default, and what it leaves alone."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from forgetting import moved, normal, small
from pindown_papers.simulations import Expression
from raising import input_error
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import pindown
from pindown import Forget, load, networks
from pindown.auditing.refits import refitted
from pindown.data.data import Data
from pindown.errors import IdentifiabilityWarning
from pindown.methods.forget.adversarial import History
from pindown.methods.forget.batch_maps import are_components, batch_matters, fit_batch_maps, level_effects
from pindown.methods.forget.mixture import fit_mixture
from pindown.metrics import Effort, leakage
from pindown.training import Trainer

quick = {"verbose": False, "random_state": 0, "device": "cpu"}


def cells(n=400, n_genes=60, seed=0, **simulation):
    """Return expression, laboratory and type of cells that are fitted, and of as many others."""
    simulation = Expression.of_cells(n_genes, random_state=seed, **simulation)
    samples = [simulation.sample(n, random_state=seed + k, dtype=torch.float64) for k in (1, 2)]
    return [tuple(part.numpy() for part in (s.x, s.u, s.label)) for s in samples]


def sites(n=1_500, d=8, seed=0, missing=()):
    """Return six clusters that two sites see in other proportions, shifted and scaled by the second; and clusters."""
    rng = np.random.default_rng(seed)
    site = np.arange(n) % 2
    weights = np.array([[0.3, 0.2, 0.2, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.2, 0.2, 0.3]])
    for level, cluster in missing:
        weights[level, cluster] = 0
    weights /= weights.sum(1, keepdims=True)
    cluster = (rng.random(n)[:, None] > weights[site].cumsum(1)).sum(1)
    centres = np.random.default_rng(7).normal(scale=3, size=(6, d))
    shared = centres[cluster] + rng.normal(size=(n, d))
    scale, shift = np.exp(0.3 * np.random.default_rng(8).normal(size=d)), np.random.default_rng(9).normal(size=d)
    return np.where(site[:, None], shift + scale * shared, shared), site, cluster


def standardised(x, e):
    """Return features standardised within each level."""
    moments = [(x[e == level].mean(0), x[e == level].std(0)) for level in np.unique(e)]
    mean, spread = (np.stack(part)[e] for part in zip(*moments, strict=True))
    return (x - mean) / spread


def worst(latents, e, **options):
    probes = ["linear", "quadratic"]
    effort = Effort(n_seeds=1, n_permutations=19)
    return leakage(latents, e, probes=probes, effort=effort, random_state=0, **options).worst


def recognised(fitted, label, latents, true):
    return LogisticRegression(max_iter=500).fit(fitted, label).score(latents, true)


def carried(latents, label, site):
    """Return how well a classifier of one site recognises labels in the other."""
    one, other = site == 0, site == 1
    return recognised(latents[one], label[one], latents[other], label[other])


def apart(latents, site, cluster):
    """Return the distance of each cluster's means between the sites, relative to that of clusters."""
    means = np.stack([[latents[(site == e) & (cluster == c)].mean(0) for c in np.unique(cluster)] for e in (0, 1)])
    return (
        np.linalg.norm(means[0] - means[1], axis=1) / np.linalg.norm(means.mean(0) - means.mean((0, 1)), axis=1).mean()
    )


# shifts and scales of features


def test_shifts_and_stretches_are_found_next_to_a_label_that_values_see_in_other_mixtures():
    rng = np.random.default_rng(0)
    e = rng.integers(2, size=4_000)
    label = (rng.random(4_000) < np.where(e, 0.8, 0.2)).astype(int)
    shared = normal(4_000, 3) + 2 * label[:, None]
    x = np.where(e[:, None], 1 + 3 * shared, shared)
    alone, beside = (level_effects(x, e, 2, strata) for strata in (0 * e, label))

    def apart(found):
        even = (x - found.shift[e]) / found.scale[e]
        return [even[(label == c) & (e == 1)].mean() - even[(label == c) & (e == 0)].mean() for c in (0, 1)]

    assert np.allclose(beside.scale[1] / beside.scale[0], 3, atol=0.15)
    assert np.abs(apart(beside)).max() < 0.05
    assert np.min(np.abs(apart(alone))) > 0.3  # the mixture was taken for a shift


def test_few_rows_are_shrunk_towards_what_all_share_and_values_that_do_nothing_change_nothing():
    x, e = normal(600, 50), np.arange(600) % 3
    shift, scale = level_effects(x, e, 3, 0 * e)
    means = np.stack([x[e == k].mean(0) for k in range(3)])
    assert np.linalg.norm(shift - x.mean(0)) < 0.6 * np.linalg.norm(means - x.mean(0))
    assert (scale / x.std(0)).std() < 0.03  # of √(1 / 400) without shrinking
    e, kept = np.r_[np.zeros(597, dtype=int), 1, 1, 1], []  # three rows, of which the mean is off by 1/√3
    for seed in range(10):
        x = normal(600, 50, seed=seed)
        x[e == 1] += 0.5 * normal(50, seed=100 + seed)
        shift, _ = level_effects(x, e, 2, 0 * e)
        kept.append(np.linalg.norm(shift[1] - shift[0]) / np.linalg.norm(x[e == 1].mean(0) - x[e == 0].mean(0)))
    assert 0.33 < np.mean(kept) < 0.6  # .43 would be best


def test_a_value_with_one_row_and_a_column_that_never_varies_are_no_trouble():
    x, e = normal(40, 4), np.r_[np.zeros(39, dtype=int), 1]
    x[:, 3] = 7.0
    maps = fit_batch_maps(x, e, 2, n_components=2)
    assert np.isfinite(maps.encode(x, e)).all()


def test_a_gene_that_no_cell_of_a_rare_value_expresses_is_not_stretched_without_end():
    on, e = normal(416, 60) > 1.5, np.r_[np.zeros(400, dtype=int), np.ones(16, dtype=int)]
    x = np.where(on, 1 + normal(416, 60, seed=1) ** 2, 0.0)
    few = e.copy()
    few[400:408] = 2  # eight cells to fit to, of which many have none of some gene, and eight of the same kind
    silent = (x[few == 1] == 0).all(0)
    assert silent.sum() > 20
    shift, scale = level_effects(x[few < 2], e[few < 2], 2, 0 * e[few < 2])
    other = (x[few == 2] - shift[1]) / scale[1]
    assert np.sqrt((other[:, silent] ** 2).mean()) < 3  # and not thousands
    assert (scale[1] / scale[0])[silent].min() > 0.3


# a mixture


def test_other_proportions_of_clusters_are_no_batch_effect():
    x, site, cluster = sites()
    maps = fit_batch_maps(x, site, 2)
    assert apart(standardised(x, site), site, cluster).max() > 0.35
    assert apart(maps.encode(x, site), site, cluster).max() < 0.15
    assert carried(maps.encode(x, site), cluster, site) > 0.97 > carried(standardised(x, site), cluster, site)


def test_a_cluster_that_one_batch_lacks_stays_where_it_is():
    x, site, cluster = sites(missing=[(1, 0)])
    latents = fit_batch_maps(x, site, 2).encode(x, site)
    means = np.stack([latents[cluster == c].mean(0) for c in range(6)])
    assert min(np.linalg.norm(means[0] - means[c]) for c in range(1, 6)) > 3 * latents[cluster == 1].std(0).mean()
    shared = cluster > 0
    assert apart(latents[shared], site[shared], cluster[shared]).max() < 0.2


def test_what_a_batch_does_to_one_known_class_is_removed():
    x, site, cluster = sites()
    x[(site == 1) & (cluster == 2)] += 0.7
    maps = fit_batch_maps(x, site, 2, labels=cluster)
    own, among = cluster == 2, maps.encode(x, site)
    assert worst(standardised(x, site)[own], site[own]) > 0.8
    assert worst(among[own], site[own]) < 0.65


def test_a_mixture_without_shifts_explains_composition_alone():
    x, site, _ = sites()
    found = fit_mixture(x, site, np.zeros((2, 8)), 6, removes=False)
    assert not found.offsets.any()
    assert np.abs(found.shifts).max() < 1e-12
    assert np.abs(found.weights[0] - found.weights[1]).max() > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_with_shuffled_batches_nothing_is_removed_and_latents_are_principal_components(seed):
    x, site, _ = sites(n=600, seed=seed)
    shuffled = np.random.default_rng(seed).permutation(site)
    maps = fit_batch_maps(x, shuffled, 2)
    assert maps.removes_nothing
    centred = (x - x.mean(0)) / x.std(0)
    distances = [np.linalg.norm(part[:1] - part[1:50], axis=1) for part in (centred, maps.encode(x, shuffled))]
    np.testing.assert_allclose(*distances)


def test_coin_tosses_seldom_matter():
    x = normal(400, 6) ** 3  # heavy tails
    found = [
        batch_matters(x, np.random.default_rng(k).integers(2, size=400), 2, np.random.default_rng(k)) for k in range(40)
    ]
    assert sum(found) <= 2


def test_principal_components_keep_their_scale_and_their_number():
    rng = np.random.default_rng(0)
    scores, batch = rng.normal(size=(900, 40)) * np.linspace(9, 1, 40), np.arange(900) % 3
    assert are_components(scores)
    maps = fit_batch_maps(scores + batch[:, None], batch, 3)
    assert maps.n_components == 40
    spread = maps.encode(scores + batch[:, None], batch).std(0)
    assert spread[0] > 6 * spread[-1]
    assert fit_batch_maps(scores / scores.std(0) + batch[:, None], batch, 3).n_components == 40  # uncorrelated


def test_a_map_can_be_undone():
    x, site, _ = sites()
    maps = fit_batch_maps(x, site, 2)
    back = maps.decode(maps.encode(x, site), site)
    assert np.sqrt(np.square(back - x).mean()) < 1e-3


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # a little leaks
def test_a_new_batch_is_mapped_onto_the_others_from_a_few_hundred_samples():
    x, site, cluster = sites()
    other, lab, kind = sites(seed=1, missing=[(1, 0)])
    new = np.where((lab == 1)[:, None], 2 + 1.5 * (other - 1), other)[lab == 1][:300]
    forget = Forget(**quick).fit(x, np.array(["a", "b"])[site])
    before = forget.transform(x, np.array(["a", "b"])[site])
    forget.add_batch(new, "aa")
    np.testing.assert_array_equal(forget.transform(x, np.array(["a", "b"])[site]), before)
    latents = forget.transform(new, np.repeat("aa", 300))
    assert recognised(before, cluster, latents, kind[lab == 1][:300]) > 0.95
    with pytest.raises(ValueError, match="fit"):
        forget.add_batch(new, "a")
    with pytest.raises(ValueError, match="closed form"):
        Forget(encoder=networks.linear, max_iter=2, **quick).fit(x, site).add_batch(new, 2)


# the estimator


def test_where_every_feature_is_shifted_and_scaled_the_batch_goes_and_the_type_stays():
    (x, lab, kind), (x_new, lab_new, kind_new) = cells()
    forget = Forget(**quick).fit(x, lab)
    assert 3 <= forget.n_components_ <= 5  # programmes; of 60 directions
    assert forget.n_iter_ == len(forget.loss_curve_) == len(forget.history_.classifier_loss) == 1
    latents = forget.transform(x_new, lab_new)
    assert worst(latents, lab_new) < 0.52 < 0.9 < worst(x_new, lab_new)
    each, each_new = (standardised(part, of) for part, of in ((x, lab), (x_new, lab_new)))
    kept = recognised(forget.transform(x, lab), kind, latents, kind_new)
    assert kept > recognised(each, kind, each_new, kind_new) - 0.03
    rebuilt = forget.inverse_transform(latents, lab_new)
    assert np.abs(forget.transform(rebuilt, lab_new) - latents).max() < 1e-2
    assert forget.structure_kept_.variance > 0.2
    assert forget.held_out_.n_folds == 3


def test_samples_of_unknown_batch_are_encoded_by_one_map():
    (x, lab, kind), (x_new, lab_new, kind_new) = cells()
    forget = Forget(**quick).fit(x, lab)
    latents, unknown = forget.transform(x_new, lab_new), forget.transform(x_new)
    assert np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(latents.T, unknown.T, strict=True)]) > 0.5
    assert recognised(forget.transform(x, lab), kind, unknown, kind_new) > 0.7
    assert worst(unknown, lab_new) < 0.55
    with pytest.raises(ValueError, match="Levels"):
        forget.transform(x_new[:2], [0, 9])
    with pytest.raises(ValueError, match="inconsistent"):
        forget.transform(x_new[:3], [0, 1])


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # a little leaks
@pytest.mark.parametrize("known", [1.0, 0.3])
def test_known_classes_take_the_place_of_clusters_and_some_may_be_missing(known):
    (x, lab, kind), (x_new, lab_new, kind_new) = cells(n=1_500, skew=6.0)
    names = np.array(["T", "B", "NK", "DC"], dtype=object)[kind]
    names[np.random.default_rng(0).random(len(kind)) > known] = None
    given, alone = Forget(**quick).fit(x, lab, given=names), standardised(x_new, lab_new)
    latents = given.transform(x_new, lab_new)
    own = carried(latents, kind_new, lab_new)
    assert own > max(0.75, carried(alone, kind_new, lab_new) + 0.05)
    assert worst(latents, lab_new, given=kind_new) < 0.55


def test_labels_and_levels_that_nothing_connects_are_warned_of_and_confounded_ones_refused():
    (x, lab, _), _ = cells(n=300)
    with pytest.warns(IdentifiabilityWarning, match="2 blocks"):
        Forget(**quick).fit(x, np.where(lab == 2, 2 + np.arange(300) % 2, lab), given=(lab == 2).astype(int))
    with pytest.raises(ValueError, match="removed"):
        Forget(**quick).fit(x, lab, given=lab)


def test_a_label_that_samples_do_not_show_is_not_predicted_and_the_fit_says_so():
    x, e = moved(n=600)
    coin = np.random.default_rng(5).integers(2, size=600)
    half = np.arange(600) % 2 == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forget = Forget(encoder=small, decoder=small, max_iter=100, **quick).fit(x, e, given=coin)
    assert any("do not show the given label" in str(w.message) for w in caught)
    latents = forget.transform(x, e)
    assert abs(recognised(latents[half], coin[half], latents[~half], coin[~half]) - 0.5) < 0.1


def test_a_batch_of_one_sample_is_kept_with_a_warning():
    x, e = moved(n=300)
    e[0] = 9
    with pytest.warns(IdentifiabilityWarning, match="samples"):
        forget = Forget(**quick).fit(x, e)
    assert np.isfinite(forget.transform(x, e)).all()


def test_many_small_batches_are_warned_of():
    x, e = normal(600, 4), np.arange(600) % 200
    with pytest.warns(IdentifiabilityWarning, match="samples"):
        forget = Forget(**quick).fit(x, e)
    assert np.isfinite(forget.transform(x, e)).all()


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # its spread cannot be restored
def test_a_feature_that_is_constant_within_a_batch_is_no_trouble():
    x, e = normal(300, 5), np.arange(300) % 2
    x[e == 1, 0] = 4.0
    forget = Forget(**quick).fit(x, e)
    latents = forget.transform(x, e)
    assert np.abs(latents).max() < 20
    assert np.isfinite(forget.inverse_transform(latents, 1 - e)).all()


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # a little leaks
def test_corrected_features_come_from_the_inverse_of_a_reference_batch():
    x, site, cluster = sites()
    forget = Forget(**quick).fit(x, site)
    corrected = forget.inverse_transform(forget.transform(x, site), np.zeros(len(x), dtype=int))
    assert apart(corrected, site, cluster).max() < 0.15
    np.testing.assert_allclose(corrected[site == 0], x[site == 0], atol=0.05)


def test_several_nuisances_and_quantities_have_maps_for_their_combinations():
    rng = np.random.default_rng(0)
    lab, day = np.arange(1_200) % 2, np.arange(1_200) // 2 % 2
    x = normal(1_200, 5) + np.outer(lab, [2, 0, 0, 0, 0]) + np.outer(day, [0, 2, 0, 0, 0])
    names = np.stack([np.array(["a", "b"])[lab], np.array(["x", "y"])[day]], 1)
    both = Forget(**quick).fit(x, names)
    assert worst(both.transform(x, names), 2 * lab + day) < 0.35
    with pytest.raises(ValueError, match="column"):
        both.transform(x, names[:, 0])
    dose = rng.normal(size=1_200)
    moving = Forget(n_bins=6, **quick).fit(x + np.outer(dose, [0, 0, 2, 0, 0]), dose)
    assert np.abs(np.corrcoef(moving.transform(x + np.outer(dose, [0, 0, 2, 0, 0]), dose).T, dose)[-1, :-1]).max() < 0.3


def test_annotated_data_are_refused_with_what_to_pass():
    class Annotated:
        obs = obsm = None

    with pytest.raises(TypeError, match="adata"):
        Forget().fit(Annotated())


def test_a_classifier_that_memorised_its_samples_is_named():
    curve = np.full(100, 0.025)
    memorised = History(curve, curve, 1.1, curve, None, held_out_loss=3.0)
    assert "memorised its training samples: its loss there is 0.025, 3.000 on held-out samples" in memorised.doubts[0]
    assert History(np.full(100, 1.0), curve, 1.1, curve, None, held_out_loss=1.2).doubts == ()


def test_linear_latents_stay_at_their_initialisation_if_the_classifier_memorised_its_samples():
    x, e = normal(400, 20), np.arange(400) % 2
    x[:, 0] += 2 * e
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = Forget(encoder=networks.linear, max_iter=400, **quick).fit(x, e)
        initial = Forget(encoder=networks.linear, max_iter=1, learning_rate=1e-12, **quick).fit(x, e)
    assert any("stay at their initialisation" in str(w.message) for w in caught)
    assert trained.history_.went_back
    assert not initial.history_.went_back
    assert np.allclose(trained.transform(x), initial.transform(x), atol=1e-4)


def test_an_encoder_is_one_map_for_all_levels():
    x, e = moved(n=800)
    options = {"encoder": small, "decoder": small, "max_iter": 5, **quick}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # after five steps it leaks
        forget = Forget(trainer=Trainer(validation_fraction=0.2), **options).fit(x, e)
    assert forget.batch_maps_ is None
    assert forget.structure_kept_.n_samples == 200
    assert np.array_equal(forget.transform(x, e), forget.transform(x))


def test_one_seed_gives_the_same_maps_and_files_keep_them(tmp_path):
    (x, lab, _), _ = cells(n=300)
    first, again = (Forget(**quick).fit(x, lab) for _ in range(2))
    latents = first.transform(x, lab)
    assert np.array_equal(again.transform(x, lab), latents)
    first.save(tmp_path / "fit.pindown")
    loaded = load(tmp_path / "fit.pindown")
    assert np.array_equal(loaded.transform(x, lab), latents)
    assert np.array_equal(loaded.transform(x), first.transform(x))
    assert str(loaded.structure_kept_) == str(first.structure_kept_)


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # a little leaks
def test_a_refit_is_of_the_same_kind():
    x, site, _ = sites(n=400)
    est = Forget(**quick).fit(x, site)
    again = refitted(est, Data(x[:300], nuisance=site[:300]), seed=1)
    assert again.batch_maps_ is not None


def test_annotated_data_get_latents_and_what_was_found():
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    donor = np.arange(300) % 2
    counts = rng.poisson(np.exp(rng.normal(size=20) + 0.5 * np.outer(donor, rng.normal(size=20)) + 1))
    obs = {"donor": np.array(["a", "b"])[donor], "type": np.where(np.arange(300) < 200, "T", None)}
    adata = anndata.AnnData(sparse.csr_matrix(counts.astype(np.float32)), obs=obs)
    with pytest.warns(UserWarning, match="normalised"):
        fit = pindown.forget(adata, batch_key="donor", labels_key="type")
    assert adata.obsm["X_pindown"].shape == (300, fit.n_components_)
    assert adata.uns["pindown"]["batch_key"] == ["donor"]
    assert worst(adata.obsm["X_pindown"], donor) < 0.65 < worst(np.log1p(counts), donor)
    with input_error("batch_key"):
        pindown.forget(adata, "lane")


def test_with_classes_given_shuffled_batches_are_left_alone_too():
    x, site, cluster = sites(n=600)
    assert fit_batch_maps(x, np.random.default_rng(3).permutation(site), 2, labels=cluster).removes_nothing


# what is kept, and what is left


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # a little leaks
def test_a_cluster_of_one_batch_is_named():
    x, site, cluster = sites(missing=[(1, 0)])
    forget = Forget(**quick).fit(x, np.array(["a", "b"])[site])
    alone = forget.batch_maps_.clusters(x, site)
    named = {int(name.split()[1]) for name in forget.alone_}
    assert set(forget.alone_.values()) == {"a"}
    assert set(cluster[np.isin(alone, list(named))].tolist()) == {0}
    given = Forget(**quick).fit(x, site, given=np.array(list("uvwxyz"))[cluster])
    assert given.alone_ == {"u": "0"}
    assert Forget(**quick).fit(*sites()[:2]).alone_ == {}


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # a part of the effects stays
def test_strength_removes_a_part_and_the_curve_has_the_plain_tools():
    x, site, _ = sites(n=800)
    forget = Forget(**quick).fit(x, site)
    points = forget.curve(x, site, fractions=(0.0, 0.5, 1.0))
    assert [point.name for point in points] == ["Forget"] * 3 + ["z-score", "ComBat", "LEACE"]
    none, half, full = (point.leakage for point in points[:3])
    assert none > half > full
    assert full < min(point.leakage for point in points[3:]) + 0.02
    assert min(point.structure.neighbours for point in points) > 0.6
    partly = Forget(strength=0.25, **quick).fit(x, site)
    latents = partly.transform(x, site)
    np.testing.assert_allclose(partly.inverse_transform(latents, site), x, atol=1e-2)
    assert full < worst(latents, site) < none
    with pytest.raises(ValueError, match="curve"):
        Forget(encoder=networks.linear, max_iter=2, **quick).fit(x, site).curve(x, site)


def test_a_small_shift_of_one_cluster_is_halved_without_labels():
    x, site, cluster = sites(n=2_000)
    x[(site == 1) & (cluster == 2)] += 0.7  # with 1.5, nothing tells it from a type of its own
    latents = fit_batch_maps(x, site, 2).encode(x, site)
    assert apart(standardised(x, site), site, cluster)[2] > 2 * apart(latents, site, cluster)[2]


def test_a_new_batch_that_is_unlike_the_others_is_warned_of():
    x, site, _ = sites()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)  # a little leaks
        forget = Forget(**quick).fit(x, site)
    unlike = np.random.default_rng(0).choice([-40.0, 0.0, 40.0], size=(300, 8))
    with pytest.warns(IdentifiabilityWarning, match="unlike the others"):
        forget.add_batch(unlike, 2)


def test_a_nuisance_that_a_given_label_determines_is_refused_by_plan_and_fit_alike():
    x, site, _ = sites(n=300)
    reasons = []
    fit = partial(Forget(**quick).fit, x, site, given=site)
    for refused in (fit, partial(pindown.plan, x, nuisance=site, given=site)):
        with pytest.raises(ValueError, match="given") as error:
            refused()
        reasons.append(str(error.value))
    assert reasons[0] == reasons[1]


def test_large_batches_of_correlated_features_leave_no_trace_in_small_components():
    rng = np.random.default_rng(0)
    site = np.arange(900) % 3
    x = rng.normal(size=(900, 3)) @ rng.normal(size=(3, 12)) + 0.02 * rng.normal(size=(900, 12))
    x = x * np.exp(0.4 * rng.normal(size=(3, 12)))[site] + rng.normal(size=(3, 12))[site]
    latents = fit_batch_maps(x, site, 3).encode(x, site)
    assert latents.shape == x.shape
    assert (
        np.abs([np.corrcoef(a, b)[0, 1] for a, b in zip(latents.T, standardised(x, site).T, strict=True)]).min() > 0.9
    )
    assert worst(latents, site) < worst(standardised(x, site), site) + 0.05


@pytest.mark.parametrize("seed", range(3))
def test_samples_without_clusters_get_one_component_and_leak_no_more_than_after_a_z_score(seed):
    rng = np.random.default_rng(seed)
    batch = rng.integers(0, 2, 600)
    fitted = Forget(random_state=0, verbose=False).fit(rng.normal(size=(600, 3)) + batch[:, None], batch)
    assert fitted.batch_maps_.mixture.n_components == 1
    assert fitted.held_out_.score < 0.56  # three standard errors above chance
