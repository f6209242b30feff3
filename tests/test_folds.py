"""Latents of rows that a fit has seen, as if it had not: a label that says nothing cannot be read, a real one can."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Classify, Contrast, Data, Forget, theory
from pindown.methods import out_of_fold
from pindown.methods.folds import aligned, folds_of
from pindown.metrics import linear_r2, procrustes
from pindown.networks.spaces import Reals
from pindown.simulate import Pairs
from pindown.training import Trainer

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")

line = {
    "space": Reals(),
    "vector_space": Reals(),
    "verbose": False,
    "device": "cpu",
    "trainer": Trainer(validation_fraction=0),
}


def read(codes, label):
    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000))
    return cross_val_score(reader, codes, label, cv=5).mean()


@pytest.mark.slow
def test_random_classes_are_decodable_in_sample_and_not_out_of_fold():
    plain, without = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, coin = rng.normal(size=(300, 15)), rng.integers(2, size=300)
        est = Classify(1, max_iter=150, random_state=seed, **line).fit(X, coin)
        plain.append(read(est.transform(X), coin))
        without.append(read(out_of_fold(est, X, coin, random_state=seed).latents, coin))
    assert np.mean(plain) > 0.6
    assert np.mean(without) == pytest.approx(0.5, abs=0.08)


@pytest.mark.slow
def test_a_tossed_label_that_was_given_to_forget_reads_at_chance():
    without = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        batch, coin = rng.integers(3, size=600), rng.integers(2, size=600)
        X = rng.normal(size=(600, 20)) + 2 * rng.normal(size=(3, 20))[batch]
        est = Forget(max_iter=60, verbose=False, device="cpu", random_state=seed).fit(X, batch, given=coin)
        found = out_of_fold(est, X, batch, given=coin, n_folds=2, random_state=seed)
        without.append(read(found.latents, coin))
    assert np.mean(without) == pytest.approx(0.5, abs=0.08)


def test_a_label_that_rows_show_is_still_there():
    X, y = load_wine(return_X_y=True)
    est = Classify(
        2, max_iter=150, trainer=Trainer(validation_fraction=0), verbose=False, device="cpu", random_state=0
    ).fit(X, y)
    codes, fold = out_of_fold(est, X, y)
    assert read(codes, y) > 0.9
    assert np.bincount(fold).tolist() == [45, 45, 44, 44]
    assert procrustes(codes, est.transform(X)).r2 > 0.7  # in the frame of the fit


@pytest.mark.slow
def test_latents_of_a_simulation_come_into_the_frame_of_the_fit():
    sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(1_500, random_state=1)
    X, partners = sample.x.numpy(), sample.x_pos.numpy()
    est = Contrast(
        3,
        max_iter=200,
        trainer=Trainer(validation_fraction=0),
        batch_size=128,
        verbose=False,
        device="cpu",
        random_state=0,
    ).fit(X, partners)
    codes = out_of_fold(est, X, partners, n_folds=2).latents
    assert np.mean((codes - est.transform(X)) ** 2) < 0.1 * est.transform(X).var()
    assert linear_r2(codes, sample.z) > 0.9


def test_groups_and_positives_stay_together_and_labels_are_divided_evenly():
    rng = np.random.default_rng(0)
    groups, label = rng.integers(10, size=200), rng.integers(3, size=200)
    fold = folds_of(Data(np.zeros((200, 1)), signal=label, groups=groups), 4)
    assert all(len(set(fold[groups == g])) == 1 for g in range(10))
    assert np.bincount(fold).min() > 25
    fold = folds_of(Data(np.zeros((200, 1)), signal=label), 4)
    table = np.array([[np.sum((fold == k) & (label == c)) for c in range(3)] for k in range(4)])
    assert np.ptp(table, axis=0).max() <= 1
    partners = np.arange(200) // 2
    fold = folds_of(Data(np.zeros((200, 1)), pairs=partners), 4)
    assert (fold[::2] == fold[1::2]).all()


@pytest.mark.parametrize(
    ("free", "change"),
    [
        (theory.ORTHOGONAL, lambda z: 3 * z @ np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3))).Q),
        (theory.SCALED_PERMUTATION, lambda z: z[:, [2, 0, 1]] * [1.0, -2.0, 0.5] + 4),
        (theory.AFFINE, lambda z: z @ np.random.default_rng(6).normal(size=(3, 3)) - 1),
    ],
)
def test_what_a_theorem_leaves_free_is_undone_and_no_more(free, change):
    z = np.random.default_rng(0).normal(size=(300, 3))
    other = change(z)
    assert np.abs(aligned(other[:200], z[:200], other[200:], free) - z[200:]).max() < 1e-8
    bent = np.tanh(2 * z @ [[1, 1, 0], [0, 1, 0], [0, 0, 3]])
    assert np.abs(aligned(bent[:200], z[:200], bent[200:], free) - z[200:]).max() > 0.1


def test_what_cannot_be_divided_is_refused():
    X = np.random.default_rng(0).normal(size=(40, 4))
    est = Contrast(2, max_iter=3, verbose=False, random_state=0).fit(X)
    with pytest.raises(ValueError, match="pairs='next'"):
        out_of_fold(est, Data(X, pairs="next"))
    with pytest.raises(ValueError, match="n_folds"):
        out_of_fold(est, X, X, groups=np.arange(40) // 20)


def test_folds_that_support_fewer_latents_than_the_fit_are_mapped_to_its_latents():
    rng = np.random.default_rng(0)
    batch, kind = np.arange(60) % 2, np.arange(60) // 2 % 3
    X = rng.normal(size=(60, 40)) @ rng.normal(size=(40, 40)) + 4 * np.eye(3, 40)[kind] + batch[:, None]
    est = Forget(verbose=False, random_state=0).fit(X, batch, kind)
    with pytest.raises(ValueError, match="n_components"):  # three quarters of the samples support fewer
        Forget(est.n_components_, verbose=False).fit(X[:45], batch[:45], kind[:45])
    latents, _ = out_of_fold(est, X, batch, given=kind)
    assert latents.shape == (60, est.n_components_)
    assert np.isfinite(latents).all()
