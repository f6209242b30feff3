"""Charts: maps of observations that are told the nuisance, and which codes `Forget` keeps."""

import dataclasses
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from forgetting import moved, normal, small
from pindown_papers.simulations import Expression
from sklearn.linear_model import LogisticRegression

from pindown import Forget, load, networks
from pindown.auditing.refits import refitted
from pindown.data.data import Data
from pindown.errors import IdentifiabilityWarning
from pindown.methods.forget import playing
from pindown.methods.forget.charts import closed_form, effects, turned
from pindown.methods.forget.choosing import BENT, CLOSED, EVEN, FEWEST_JUDGES, FIXED, Candidate, best
from pindown.methods.forget.game import History
from pindown.metrics import Effort, leakage
from pindown.simulate import Nuisance
from pindown.training import Trainer

quick = partial(Forget, encoder=small, decoder=small, verbose=False, device="cpu", random_state=0)


def cells(n=400, n_genes=60, seed=0, **world):
    """Return expression, laboratory and type of cells that are fitted, and of as many others."""
    world = Expression.of_cells(n_genes, random_state=seed, **world)
    samples = [world.sample(n, random_state=seed + k, dtype=torch.float64) for k in (1, 2)]
    return [tuple(part.numpy() for part in (s.x, s.u, s.label)) for s in samples]


def told(codes, e, **options):
    probes = ["linear", "quadratic"]
    return leakage(
        codes, e, probes=probes, effort=Effort(n_seeds=1, n_permutations=19), random_state=0, **options
    ).worst


def read(fitted, label, codes, true):
    return LogisticRegression(max_iter=500).fit(fitted, label).score(codes, true)


def standardised(x, e):
    """Return columns standardised within each laboratory: what one would do by hand."""
    moments = [(x[e == value].mean(0), x[e == value].std(0)) for value in np.unique(e)]
    mean, spread = (np.stack(part)[e] for part in zip(*moments, strict=True))
    return (x - mean) / spread


# the closed forms


def test_shifts_and_stretches_are_found_beside_a_label_that_values_see_in_other_mixtures():
    rng = np.random.default_rng(0)
    e = rng.integers(2, size=4_000)
    label = (rng.random(4_000) < np.where(e, 0.8, 0.2)).astype(int)
    shared = normal(4_000, 3) + 2 * label[:, None]
    x = np.where(e[:, None], 1 + 3 * shared, shared)
    alone, beside = (effects(x, e, 2, strata) for strata in (0 * e, label))

    def apart(found):
        even = (x - found.shift[e]) / found.scale[e]
        return [even[(label == c) & (e == 1)].mean() - even[(label == c) & (e == 0)].mean() for c in (0, 1)]

    assert np.allclose(beside.scale[1] / beside.scale[0], 3, atol=0.15)
    assert np.abs(apart(beside)).max() < 0.05
    assert np.min(np.abs(apart(alone))) > 0.3  # the mixture was taken for a shift


def test_few_rows_are_shrunk_towards_what_all_share_and_values_that_do_nothing_change_nothing():
    x, e = normal(600, 50), np.arange(600) % 3
    shift, scale = effects(x, e, 3, 0 * e)
    means = np.stack([x[e == k].mean(0) for k in range(3)])
    assert np.linalg.norm(shift - x.mean(0)) < 0.6 * np.linalg.norm(means - x.mean(0))
    assert (scale / x.std(0)).std() < 0.03  # of √(1 / 400) without shrinking
    e, kept = np.r_[np.zeros(597, dtype=int), 1, 1, 1], []  # three rows, of which the mean is off by 1/√3
    for seed in range(10):
        x = normal(600, 50, seed=seed)
        x[e == 1] += 0.5 * normal(50, seed=100 + seed)
        shift, _ = effects(x, e, 2, 0 * e)
        kept.append(np.linalg.norm(shift[1] - shift[0]) / np.linalg.norm(x[e == 1].mean(0) - x[e == 0].mean(0)))
    assert 0.33 < np.mean(kept) < 0.6  # .43 would be best


def test_a_value_with_one_row_and_a_column_that_never_varies_are_no_trouble():
    x, e = normal(40, 4), np.r_[np.zeros(39, dtype=int), 1]
    x[:, 3] = 7.0
    charts = closed_form(x, e, 2, 0 * e, 2)
    assert np.isfinite(charts.encode(x, e)).all()
    assert np.isfinite(turned(charts, x, e, 0 * e).encode(x, e)).all()


def test_a_gene_that_no_cell_of_a_rare_value_expresses_is_not_stretched_without_end():
    on, e = normal(416, 60) > 1.5, np.r_[np.zeros(400, dtype=int), np.ones(16, dtype=int)]
    x = np.where(on, 1 + normal(416, 60, seed=1) ** 2, 0.0)
    few = e.copy()
    few[400:408] = 2  # eight cells to fit to, of which many have none of some gene, and eight of the same kind
    silent = (x[few == 1] == 0).all(0)
    assert silent.sum() > 20
    shift, scale = effects(x[few < 2], e[few < 2], 2, 0 * e[few < 2])
    other = (x[few == 2] - shift[1]) / scale[1]
    assert np.sqrt((other[:, silent] ** 2).mean()) < 3  # and not thousands
    assert (scale[1] / scale[0])[silent].min() > 0.3


def test_turned_charts_have_one_covariance_and_can_be_undone():
    e = np.arange(3_000) % 2
    x = normal(3_000, 3)
    x = np.where(e[:, None], x @ [[1, 0.8, 0], [0, 0.6, 0], [0, 0, 1]], x)
    charts = closed_form(x, e, 2, 0 * e)
    even = turned(charts, x, e, 0 * e)

    def gap(charts):
        first, second = (np.cov(charts.encode(x, e)[e == k].T) for k in (0, 1))
        return np.abs(first - second).max()

    assert gap(charts) > 0.5
    assert gap(even) < 0.05
    back = even.inverse(even(torch.as_tensor(x), torch.as_tensor(e)), torch.as_tensor(e)).numpy()
    assert np.abs(back - x).max() < 1e-6


# what is kept


def test_where_every_column_is_shifted_and_stretched_charts_are_blind_and_keep_the_type():
    (x, lab, kind), (x_new, lab_new, kind_new) = cells()
    forget = quick().fit(x, lab)
    assert forget.chosen_.kept.name == CLOSED
    assert 3 <= forget.n_components_ <= 5  # programmes; of 60 directions
    assert forget.n_iter_ == len(forget.loss_curve_) == len(forget.history_.classifier_loss) == 1
    codes = forget.transform(x_new, lab_new)
    assert told(codes, lab_new) < 0.52 < 0.9 < told(x_new, lab_new)
    each, each_new = (standardised(part, of) for part, of in ((x, lab), (x_new, lab_new)))
    assert read(forget.transform(x, lab), kind, codes, kind_new) > read(each, kind, each_new, kind_new) - 0.03
    rebuilt = forget.inverse_transform(codes, lab_new)
    assert np.abs(forget.transform(rebuilt, lab_new) - codes).max() < 1e-8


def test_rows_of_unknown_value_are_encoded_by_one_map_in_the_same_frame():
    (x, lab, kind), (x_new, lab_new, kind_new) = cells()
    forget = quick().fit(x, lab)
    codes, unknown = forget.transform(x_new, lab_new), forget.transform(x_new)
    assert np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(codes.T, unknown.T, strict=True)]) > 0.5
    assert read(forget.transform(x, lab), kind, unknown, kind_new) > 0.7
    assert told(unknown, lab_new) < 0.55
    with pytest.raises(ValueError, match=r"not there in fit: 9\. It knows 0, 1, 2\. Rows of other values are encoded"):
        forget.transform(x_new[:2], [0, 9])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        forget.transform(x_new[:3], [0, 1])


def test_with_a_label_given_what_mixtures_make_is_not_taken_off():
    (x, lab, kind), (x_new, lab_new, kind_new) = cells(n=1_500, skew=6.0)
    given, alone = quick().fit(x, lab, given=kind), closed_form(x, lab, 3, 0 * lab)
    codes = given.transform(x_new, lab_new)

    def carried(codes):
        one, others = lab_new == 0, lab_new != 0
        return read(codes[one], kind_new[one], codes[others], kind_new[others])

    assert given.charts_ is not None
    assert carried(codes) > max(0.75, carried(alone.encode(x_new, lab_new)) + 0.05)
    assert told(codes, lab_new, given=kind_new) < 0.5


@pytest.mark.filterwarnings("ignore:Forget. on 150 rows held out, e leaks")  # after so few steps
def test_a_label_that_rows_do_not_show_is_not_told_and_the_fit_says_so():
    x, e = moved(n=600)
    coin = np.random.default_rng(5).integers(2, size=600)
    half = np.arange(600) % 2 == 0
    for charts in (True, False):
        with pytest.warns(IdentifiabilityWarning, match="do not show the given label: .* nothing may be claimed of it"):
            forget = quick(max_iter=100, charts=charts).fit(x, e, given=coin)
        codes = forget.transform(x, e)
        assert abs(read(codes[half], coin[half], codes[~half], coin[~half]) - 0.5) < 0.1


def test_labels_and_values_that_nothing_connects_are_warned_of():
    (x, lab, _), _ = cells(n=300)
    with pytest.warns(IdentifiabilityWarning, match="given and y fall into 2 blocks"):
        quick().fit(x, np.where(lab == 2, 2 + np.arange(300) % 2, lab), given=(lab == 2).astype(int))


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
def test_behind_a_nonlinear_mixing_charts_leak_and_one_map_is_kept():
    world = Nuisance.on_sphere(5, 2, 10.0, n_layers=2, random_state=0)
    train = world.sample(4_000, random_state=1)
    bending = partial(networks.skip_mlp, hidden=(64, 64))
    forget = Forget(encoder=bending, decoder=bending, max_iter=400, verbose=False, device="cpu", random_state=0)
    forget.fit(train.x, train.u)
    assert forget.chosen_.kept.name == FIXED
    assert forget.charts_ is None
    assert forget.n_components_ == world.d
    assert torch.equal(forget.transform(train.x, train.u), forget.transform(train.x))
    closed, fixed, *_ = forget.chosen_.compared
    assert closed.excess >= fixed.excess


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_charts_that_bend_start_at_the_closed_form_and_are_kept_with_their_way_back(monkeypatch, tmp_path):
    e = np.arange(1_200) % 2
    x = normal(1_200, 3)
    x = np.where(e[:, None], np.sinh(1.5 * x), x)  # no shift and no stretch, which a linear code could not show
    monkeypatch.setattr(playing, "best", lambda candidates, n: best([c for c in candidates if c.name == BENT], n))
    forget = quick(strength=0.0, max_iter=30, learning_rate=1e-6).fit(x, e)
    assert forget.chosen_.kept.name == BENT
    codes = forget.transform(x, e)
    straight = forget.charts_.charts.encode(x, e)
    assert np.abs(np.corrcoef(codes.T, straight.T)[:3, 3:].diagonal()).min() > 0.99
    rebuilt = forget.inverse_transform(codes, e)
    assert 1 - np.square(rebuilt - x).sum() / np.square(x).sum() > 0.9
    forget.save(tmp_path / "fit.pindown")
    assert np.array_equal(load(tmp_path / "fit.pindown").transform(x, e), codes)


def test_where_one_map_is_asked_for_no_chart_is_looked_for():
    x, e = moved(n=800)
    for forget in (quick(charts=False, max_iter=5), quick(trainer=Trainer(validation_fraction=0.0), max_iter=5)):
        assert forget.fit(x, e).charts_ is None
        assert forget.chosen_ is None
        assert np.array_equal(forget.transform(x, e), forget.transform(x))


def bent_apart(n, n_rare, noise):
    """Return rows whose first two columns are nearly one in the second value, which no shift or stretch undoes."""
    x, e = normal(n, 6), np.arange(n) % 2
    x[e == 1, 1] = x[e == 1, 0] + noise * x[e == 1, 1]
    e[:n_rare] = 2
    return x, e


@pytest.mark.parametrize(("n", "n_rare", "noise", "n_steps"), [(300, 0, 0.4, 1), (900, 10, 0.2, 1), (900, 0, 0.2, 5)])
def test_where_rows_held_out_are_too_few_to_judge_a_game_none_is_played_and_charts_are_kept(n, n_rare, noise, n_steps):
    forget = quick(max_iter=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forget.fit(*bent_apart(n, n_rare, noise))
    assert forget.n_iter_ == n_steps
    leaks = [str(w.message) for w in caught if "leaks" in str(w.message)]
    assert all(("too few to judge more than closed forms" in text) == (n_steps == 1) for text in leaks)
    assert (forget.chosen_.n_samples == n) == (n_steps == 1)
    assert EVEN in {compared.name for compared in forget.chosen_.compared}


def test_of_few_rows_codes_are_worth_whatever_these_show():
    codes, e = normal(60, 2), np.arange(60) % 2
    codes[:, 0] += 0.4 * e
    few, many = (
        Candidate(
            FIXED,
            leakage(codes[rows], e[rows], probes=["linear"], effort=Effort(n_permutations=19), random_state=0),
            0.8,
        )
        for rows in (slice(None), np.tile(np.arange(60), 4))
    )
    assert few.leak.n_samples < FEWEST_JUDGES < many.leak.n_samples
    assert few.worth == pytest.approx(0.8 - 2 * max(0.0, few.leak.excess))
    assert many.worth == pytest.approx(0.8 - 2 * many.excess)


def test_codes_are_worth_what_they_tell_less_twice_what_leaks():
    e = np.repeat([0, 1], 200)
    leaks = leakage(np.c_[e + 0.5 * normal(400), normal(400, seed=1)], e, probes=["linear"], random_state=0)
    silent = leakage(normal(400, 2), e, probes=["linear"], random_state=0)
    loud, quiet, poor = Candidate(CLOSED, leaks, 1.0), Candidate(FIXED, silent, 0.6), Candidate(EVEN, silent, 0.1)
    assert best([loud, quiet, poor], 400).kept is quiet
    assert "one map for all values: nuisance 0.45 (chance 0.50), signal told 0.60; against" in str(
        best([loud, quiet], 4)
    )
    assert best([quiet, Candidate(EVEN, silent, 0.6)], 400).kept is quiet  # the simpler of two equals


def test_an_adversary_that_learned_rows_by_heart_is_named():
    curve = np.full(100, 0.025)
    by_heart = History(curve, curve, 1.1, curve, None, held_out_loss=3.0)
    assert "has learned its rows by heart: its loss is 0.025 there, 3.000 on rows held out" in by_heart.doubts[0]
    assert History(np.full(100, 1.0), curve, 1.1, curve, None, held_out_loss=1.2).doubts == ()
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(200, 40)), rng.integers(3, size=200)
    options = {"classifier": partial(networks.mlp, hidden=(256, 256)), "charts": False, "max_iter": 300}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick(strength=1e-6, trainer=Trainer(weight_decay=0.0), **options).fit(x, e)
    assert any("learned its rows by heart" in str(w.message) for w in caught)


def test_linear_codes_stay_where_they_began_if_the_adversary_learned_its_rows_by_heart():
    x, e = normal(400, 20), np.arange(400) % 2
    x[:, 0] += 2 * e
    options = {"encoder": networks.linear, "verbose": False, "device": "cpu", "random_state": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        played = Forget(max_iter=400, **options).fit(x, e)
        begun = Forget(max_iter=1, learning_rate=1e-12, **options).fit(x, e)
    assert any("codes stay those that the game began with" in str(w.message) for w in caught)
    assert played.history_.went_back
    assert not begun.history_.went_back
    assert np.allclose(played.transform(x), begun.transform(x), atol=1e-4)


def test_one_seed_gives_the_same_charts_and_files_keep_them(tmp_path):
    (x, lab, _), _ = cells(n=200)
    first, again = (quick().fit(x, lab) for _ in range(2))
    codes = first.transform(x, lab)
    assert np.array_equal(again.transform(x, lab), codes)
    first.save(tmp_path / "fit.pindown")
    loaded = load(tmp_path / "fit.pindown")
    assert np.array_equal(loaded.transform(x, lab), codes)
    assert np.array_equal(loaded.transform(x), first.transform(x))
    assert str(loaded.chosen_) == str(first.chosen_)
    names = np.array(["a", "b", "c"])[lab]
    two = np.stack([names, np.where(np.arange(200) % 2, "x", "y")], 1)
    both = quick().fit(x, two)
    assert both.transform(torch.as_tensor(x), two).shape == (200, both.n_components_)
    with pytest.raises(ValueError, match=r"y must have 2 column\(s\)"):
        both.transform(x, names)


def test_a_refit_keeps_the_kind_of_codes_that_the_fit_chose():
    rng, batch = np.random.default_rng(0), np.arange(240) % 2
    x = rng.normal(size=(240, 4)) * (1 + batch[:, None]) + 3 * batch[:, None]
    est = Forget(verbose=False, random_state=0).fit(x, batch)
    assert est.chosen_.kept.name == CLOSED
    for kind in (CLOSED, EVEN):
        est.chosen_ = dataclasses.replace(est.chosen_, kept=dataclasses.replace(est.chosen_.kept, name=kind))
        again = refitted(est, Data(x[:160], nuisance=batch[:160]), seed=1)
        assert again.chosen_.kept.name == kind
        assert again.charts_ is not None
    est.chosen_ = dataclasses.replace(est.chosen_, kept=dataclasses.replace(est.chosen_.kept, name=FIXED))
    fresh = Forget()
    Forget.spec.refitting.copy_choices(est, fresh)
    assert fresh.charts is False
