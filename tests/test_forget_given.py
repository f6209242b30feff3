"""`Forget` given a label: latents tell the label, and of the nuisance no more than the label does."""

from functools import partial

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Confounded
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Forget, networks
from pindown.data import ArraySource
from pindown.errors import IdentifiabilityWarning
from pindown.methods.forget.adversarial import AdversarialObjective, Networks
from pindown.methods.forget.nuisance import assemble, read_columns
from pindown.metrics import PROBES, Effort, leakage
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder
from pindown.networks.spaces import Reals
from pindown.simulate.mixing import leaky_relu_mlp
from pindown.training import Trainer

small = partial(networks.skip_mlp, hidden=(32, 32))
bending = partial(
    Forget,
    strength=1.0,
    encoder=small,
    decoder=small,
    max_iter=400,
    batch_size=256,
    learning_rate=5e-3,
    trainer=Trainer(validation_fraction=0.0),
    random_state=0,
    device="cpu",
)


def told(Z, e, **options):
    return leakage(
        Z, e, probes=PROBES[:2], effort=Effort(n_seeds=1, n_permutations=19), random_state=0, **options
    ).worst


def read(Z, label):
    """Return how often a linear reader of half of the rows recognises the label of the others."""
    half = len(Z) // 2
    reader = make_pipeline(StandardScaler(), LogisticRegression())
    return reader.fit(Z[:half], label[:half]).score(Z[half:], label[half:])


def folded(n=1_500, seed=0):
    """Four columns; the label says whether the first is far from 0, the nuisance moves the last."""
    rng = np.random.default_rng(seed)
    e = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4)) + 3 * np.stack([0 * e, 0 * e, 0 * e, e], 1)
    return X, e, (np.abs(X[:, 0]) > 0.6745).astype(int)  # half of a normal law


def crossed(label, e):
    """Return the nuisance of rows, given their labels."""
    columns, kinds = read_columns(np.array(e), len(e), None)
    return assemble(columns, kinds, np.array(label))


def silence(monkeypatch):
    """Let nobody ask for the label."""
    monkeypatch.setattr(AdversarialObjective, "label_loss", lambda self, z, groups, strata: z.new_zeros(()))


# what must survive


@pytest.mark.slow
def test_a_given_label_survives_that_rebuilding_would_not_show(monkeypatch):
    X, e, label = folded()
    Z = bending(3).fit(X, e, given=label).transform(X)
    assert read(Z, label) > 0.93  # a line of slope 0 tells far from near: it takes a bend
    assert told(Z, e, given=label) < 0.6
    assert told(X, e, given=label) > 0.9
    silence(monkeypatch)
    assert read(bending(3).fit(X, e, given=label).transform(X), label) < 0.75


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize(("n_columns", "blind"), [(3, "every direction shows"), (4, "only 1 direction.s. do not show")])
def test_there_are_latents_enough_for_the_label_even_if_directions_are_not_blind(n_columns, blind):
    rng = np.random.default_rng(0)
    e, label = np.arange(600) % 4, rng.integers(3, size=600)
    label[:4] = range(10, 14)  # too rare to be told
    X = rng.normal(size=(600, n_columns))
    X[:, :3] += 5 * np.eye(4)[e][:, :3]
    X[:, 0] += 2 * (label % 3)
    said = rf"{blind} the nuisance: in 3 of {n_columns} directions means differ .* {{}} latent\(s\) are kept"
    with pytest.warns(IdentifiabilityWarning, match=said.format(2)):
        assert bending(max_iter=5).fit(X, e, given=label).n_components_ == 2
    assert bending(max_iter=5, encoder=networks.linear).fit(X, e, given=label).n_components_ == 1


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_latents_beyond_the_blind_directions_start_alive():
    rng = np.random.default_rng(0)
    label, e = rng.integers(4, size=1_000), rng.integers(2, size=1_000)
    turn = np.radians(90 * label + 45 * e)  # four labels on a circle, by an eighth of a turn
    X = 5 * np.stack([np.cos(turn), np.sin(turn)], 1) + rng.normal(size=(1_000, 2))
    assert bending(2, max_iter=1).fit(X, e, given=label).transform(X).std(0).min() > 0.9


# and yet be no excuse


def test_a_confounded_nuisance_is_no_reason_to_predict_the_label():
    joint = torch.tensor([[8.0, 1.0], [1.0, 8.0]])
    labels, values = torch.tensor([[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]), torch.tensor([[-2.0], [2.0]])
    world = Confounded(labels, values, joint, leaky_relu_mlp(4, n_layers=1, random_state=0))
    x, z, e, label = (getattr(world.sample(3_000, random_state=1), name).numpy() for name in ("x", "z", "u", "label"))
    Z = bending(3).fit(x, e, given=label).transform(x)
    assert told(Z, e, given=label) < told(z, e, given=label) + 0.02 < 0.88 < told(x, e, given=label)
    assert abs(read(Z, label) - read(z, label)) < 0.05  # the nuisance alone would tell it in eight of nine rows
    assert read(x, label) > read(z, label) + 0.1


def test_of_each_value_the_labels_that_go_with_it_count_the_same_and_a_value_as_its_rows_do():
    # Value 0 has 6 and 3 rows, which count 4.5 / 6 and 4.5 / 3; value 1 has one label, label 2 too few rows.
    label, e = [0] * 6 + [1] * 3 + [1] * 4 + [2] * 2, [0] * 9 + [1] * 4 + [0] * 2
    table = crossed(label, e).label_weights()
    assert np.allclose(table / table[0, 0], [[1, 2, 0], [0, 0, 0]])
    counts = np.bincount(3 * np.array(e) + label, minlength=6).reshape(2, 3)
    assert np.isclose((table * counts).sum(), len(e))


def game(nuisance, label_reader):
    """Return adversarial training of three columns and two latents."""
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    parts = Networks(
        Encoder(preprocessing.whiten(ArraySource(x)), networks.linear(3, 2), Reals()),
        networks.small_mlp(2 + nuisance.n_strata, sum(nuisance.sizes)),
        networks.linear(2 + nuisance.shown.shape[1], 3),
        label_reader,
    )
    # The strength is what a nat of the label is worth.
    return AdversarialObjective(parts, nuisance, strength=0.5, worth=torch.eye(3), n_steps=1)


def test_the_nuisance_alone_predicts_the_label_at_chance():
    # Value 0 goes with two labels, in four and eight rows, value 1 with three, in four rows each; one is too rare.
    nuisance = crossed([0] * 4 + [1] * 8 + [1] * 4 + [2] * 4 + [3] * 4 + [0], [0] * 12 + [1] * 13)
    chance = (12 * np.log(2) + 12 * np.log(3)) / 24
    reader = networks.linear(2, 4).requires_grad_(False)
    played, rows = game(nuisance, reader), [torch.as_tensor(part) for part in (nuisance.groups, nuisance.strata)]
    knows = torch.eye(2)[rows[0][:, 0]]
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        reader.weight.normal_(generator=generator)
        assert played.label_loss(knows, *rows) >= chance - 1e-5
    reader.weight.zero_()
    assert played.label_loss(knows, *rows).item() == pytest.approx(chance, rel=1e-5)


# labels of all kinds


def test_a_label_with_one_value_changes_nothing():
    X, e, _ = folded(n=300)
    alone, constant = (bending(2, max_iter=20).fit(X, e, given=g).transform(X) for g in (None, ["a"] * 300))
    assert np.array_equal(alone, constant)


def test_a_linear_encoder_is_not_pulled_at_by_the_label(monkeypatch):
    X, e, label = folded(n=300)
    fit = partial(bending(2, encoder=networks.linear, max_iter=20).fit, X, e, given=label)
    heard = fit()
    assert heard.objective_.label_reader is None
    silence(monkeypatch)
    assert np.array_equal(heard.components_, fit().components_)


@pytest.mark.slow
def test_labels_that_are_many_or_have_one_sample_are_left_out_and_the_others_are_predicted():
    scores = []
    for seed in range(3):  # in one simulation of nine adversarial training leaves the label to one side of the fold
        X, e, label = folded(seed=seed)
        label = label.astype(object)
        label[:40] = [f"only {i}" for i in range(40)]
        with pytest.warns(IdentifiabilityWarning, match="samples"):
            Z = bending(3).fit(X, e, given=label.astype(str)).transform(X)
        assert np.isfinite(Z).all()
        scores.append(read(Z[40:], label[40:].astype(int)))
    assert np.median(scores) > 0.9


def test_a_label_may_go_with_quantities_and_with_several_columns():
    X, e, label = folded(n=600)
    dose = e + np.random.default_rng(1).random(600)
    for y, options in ((dose, {"n_bins": 4}), (np.stack([e, np.arange(600) % 3], 1), {})):
        forget = bending(3, max_iter=20, **options).fit(X, y, given=label)
        assert forget.objective_.label_weights.shape == (4 if options else 6, 2)
        assert np.isfinite(forget.transform(X)).all()


def test_a_label_that_no_two_rows_share_is_refused():
    X, e, _ = folded(n=300)
    with pytest.raises(ValueError, match="within"):
        bending(2).fit(X, e, given=np.arange(300))
