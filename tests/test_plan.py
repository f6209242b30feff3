"""Plans: which estimator, which theorem, and what is missing."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Confounded, ShapeNuisance, in_hyperplane
from raising import input_error

import pindown
from pindown import Classify, Contrast, Dictionary, Forget, Sparse, audit, networks, plan, theory
from pindown.auditing.checks import conditions
from pindown.auditing.checks.samples import splittable_samples
from pindown.data.data import Data
from pindown.simulate import Clusters, Nuisance, Pairs
from pindown.simulate.distributions import VonMisesFisher
from pindown.simulate.mixing import leaky_relu_mlp, orthogonal

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


def outcome_of(planned, assumption):
    return next(verdict.outcome for verdict in planned.verdicts if verdict.assumption == assumption)


def test_a_plan_is_a_public_name():
    assert pindown.plan is plan


@pytest.mark.parametrize("seed", SEEDS)
def test_a_label_leads_to_classify(seed):
    sample = Clusters.on_sphere(4, 16, 10.0, random_state=seed).sample(2_000, random_state=seed)
    planned = plan(sample.x, signal=sample.u, n_components=4)
    assert planned.estimator == "Classify(n_components=4)"
    assert planned.theorem is theory.CLASSIFY_NORMALISED
    assert (planned.outcome, planned.needs) == ("holds", ())


@pytest.mark.parametrize("seed", SEEDS)
def test_too_few_classes_are_counted_out(seed):
    world = Clusters(torch.eye(5)[:4], VonMisesFisher(10.0), leaky_relu_mlp(5, n_layers=2, random_state=seed))
    sample = world.sample(2_000, random_state=seed)
    planned = plan(sample.x, signal=sample.u, n_components=5)
    assert planned.outcome == "fails"
    assert planned.needs == ("two more classes in general position",)


def test_classes_in_a_hyperplane_need_one_outside():
    world = Clusters.on_sphere(3, 12, 10.0, random_state=2)
    flat = Clusters(in_hyperplane(world.vectors), world.conditional, world.mixing)
    sample = flat.sample(4_000, random_state=0)
    planned = plan(sample.x, signal=sample.u, n_components=3)
    assert outcome_of(planned, theory.AFFINE_GENERATORS) == "fails"
    assert planned.needs == ("one more class in general position",)


def test_without_a_number_as_many_latents_are_planned_as_classes_span():
    sample = Clusters.on_sphere(5, 3, 10.0, random_state=0).sample(2_000, random_state=0)
    planned = plan(sample.x, signal=sample.u)
    assert (planned.n_components, planned.outcome) == (2, "holds")
    assert "3 classes identify at most 2 latents" in planned.notes[0]


def test_of_many_rows_behind_a_deep_mixing_a_plan_counts_as_the_fit_does():
    sample = Clusters.on_sphere(5, 30, 10.0, n_layers=4, random_state=0).sample(3_000, random_state=1)
    x, labels = sample.x.numpy(), sample.u.numpy()
    found = plan(x, signal=labels)
    assert found.n_components == Classify(random_state=3).prepare(Data(x, signal=labels)).summary.n_components == 5
    spans = next(v for v in found.verdicts if v.assumption == theory.AFFINE_GENERATORS)
    assert spans.outcome != "fails"  # means span fewer, since the mixing bends them


def test_all_theorems_that_count_labels_are_listed():
    sample = Clusters.on_sphere(3, 6, 10.0, random_state=0).sample(1_000, random_state=0)
    counts = {
        count.theorem: (count.needed, count.missing) for count in plan(sample.x, signal=sample.u, n_components=3).counts
    }
    assert counts == {
        theory.CLASSIFY_NORMALISED: (4, 0),
        theory.ROEDER: (4, 0),
        theory.TCL: (4, 0),
        theory.IVAE: (7, 1),
        theory.AUXILIARY_ICA: (7, 1),
        theory.INTERVENTIONS: (3, 0),
        theory.INTERVENTIONS_UNKNOWN: (6, 0),
    }


def test_pairs_lead_to_contrast_unless_they_are_unrelated():
    sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(600, random_state=0)
    planned = plan(sample.x, pairs=sample.x_pos, n_components=3)
    assert (planned.estimator, planned.theorem) == ("Contrast(n_components=3)", theory.CONTRAST_SPHERE)
    assert (planned.outcome, planned.needs) == ("holds", ())
    strangers = plan(sample.x, pairs=sample.x_pos.roll(5, 0), n_components=3)
    assert (strangers.outcome, strangers.needs) == ("fails", ("positives that are related to each other",))


def test_a_label_next_to_pairs_is_reported_as_unused():
    sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(300, random_state=0)
    planned = plan(sample.x, pairs=sample.x_pos, signal=np.arange(300) % 3, n_components=3)
    assert planned.notes[-1] == "signal is not used: plan for it alone, too."


def test_nothing_leads_to_a_dictionary_of_as_many_latents_as_directions():
    z = np.random.default_rng(0).normal(size=(500, 2))
    planned = plan(z @ [[1, 0, 1], [0, 1, 1]])
    assert (planned.estimator, planned.theorem) == ("Dictionary(n_components=2)", theory.DICTIONARY_BLOCKS)
    too_many = plan(z @ [[1, 0, 1], [0, 1, 1]], n_components=3)
    assert too_many.needs == ("more observed variables, or fewer latents",)


def test_a_linear_forget_of_a_nuisance_of_means_has_the_directions_that_are_left():
    sample = Nuisance.on_sphere(6, 3, 5.0, n_layers=1, random_state=0).sample(3_000, random_state=0)
    linear = Forget(encoder=networks.linear)
    planned = plan(sample.x, nuisance=sample.u, estimator=linear)
    assert planned.estimator == "Forget(n_components=4, encoder=networks.linear)"
    assert (planned.theorem, planned.outcome) == (theory.FORGET, "holds")
    more = plan(sample.x, nuisance=sample.u, n_components=5, estimator=linear)
    assert (more.outcome, more.needs) == ("fails", ("at most 4 latents, since the nuisance moves 2 dimensions",))


def test_a_nuisance_of_shape_leads_to_a_nonlinear_forget():
    sample = ShapeNuisance.spread(5, 2, 3, n_layers=1, random_state=0).sample(3_000, random_state=0)
    planned = plan(sample.x, nuisance=sample.u, n_components=3)
    assert planned.estimator == "Forget(n_components=3)"
    assert planned.theorem is theory.FORGET_NONLINEAR
    assert any("linear latents cannot be invariant" in note for note in planned.notes)


def test_a_confounded_label_is_to_be_given():
    joint = torch.tensor([[9.0, 1.0], [1.0, 9.0]])
    world = Confounded(3 * torch.eye(2), torch.tensor([[-1.0], [1.0]]), joint, orthogonal(3, random_state=0))
    sample = world.sample(2_000, random_state=0)
    planned = plan(sample.x, signal=sample.label, nuisance=sample.u, n_components=1)
    assert planned.estimator.endswith(".fit(X, nuisance, given=label)")
    assert outcome_of(planned, theory.NUISANCE_INDEPENDENT) == "fails"
    assert "crossed" in planned.needs[0]


def test_values_that_never_meet_need_pairs_across_them():
    e = np.arange(600) % 2
    x = np.random.default_rng(0).normal(size=(600, 3)) + 30 * e[:, None] * [1, 0, 0]
    planned = plan(x, nuisance=e)
    assert outcome_of(planned, conditions.OVERLAPPING_LEVELS) == "fails"
    assert planned.needs == ("pairs across levels of the nuisance, to map latents from one to another",)


def test_few_samples_are_undecided():
    sample = Clusters.on_sphere(2, 8, 10.0, random_state=0).sample(100, random_state=0)
    planned = plan(sample.x, signal=sample.u, n_components=2)
    assert planned.outcome == "undecided"
    assert "more samples" in planned.needs


def test_a_plan_prints_what_it_checked_and_what_it_did_not():
    sample = Clusters.on_sphere(2, 8, 10.0, random_state=0).sample(1_000, random_state=0)
    text = str(plan(sample.x, signal=sample.u, n_components=2))
    assert text.startswith("Classify(n_components=2): classify-normalised (Reizinger et al. 2024")
    assert "not checked before training: vMF clusters, global optimum reached" in text
    assert "tcl                    8 of 3 segments" in text


PAGE = Path(__file__).parents[1] / "docs" / "results" / "checks.md"


def test_the_table_of_the_page_has_the_counts_of_the_results():
    text = PAGE.read_text(encoding="utf-8")
    rows = json.loads((PAGE.parents[2] / "benchmarks" / "results" / "checks_cpu.json").read_text("utf-8"))["rows"]
    names = ("when", "world", "condition", "truth", "holds", "fails", "undecided")
    table = [line for line in text.splitlines() if line.startswith(("| before |", "| after |"))]
    assert table == [f"| {' | '.join(str(row[name]) for name in names)} |" for row in rows]


def test_one_latent_lies_on_the_line_because_its_sphere_has_two_points():
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=400)
    x = rng.normal(size=(400, 3)) + 3 * label[:, None]
    two, three = plan(x, signal=label), plan(x, signal=label, n_components=3)
    assert (two.n_components, two.theorem) == (1, theory.CLASSIFY_FREE)
    assert (three.estimator, three.theorem) == ("Classify(n_components=3)", theory.CLASSIFY_NORMALISED)
    assert plan(x, pairs=x, n_components=1).theorem is theory.CONTRAST_METRIC


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize(("n_samples", "n_columns", "n_values"), [(50, 300, 3), (400, 6, 2), (400, 2, 4)])
def test_a_plan_counts_as_many_latents_as_the_fit_would_take(n_samples, n_columns, n_values):
    rng = np.random.default_rng(0)
    e = rng.integers(n_values, size=n_samples)
    x = rng.normal(size=(n_samples, n_columns)) + 4 * np.eye(n_values, n_columns)[e]
    for encoder in (None, networks.linear, networks.skip_mlp):
        est = Forget(encoder=encoder, max_iter=1, verbose=False, random_state=0)
        assert plan(x, nuisance=e, estimator=est).n_components == est.fit(x, e).n_components_
    assert plan(x, nuisance=e).n_components == Forget(verbose=False).fit(x, e).n_components_


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_a_plan_counts_given_the_label_where_it_says_so():
    rng = np.random.default_rng(0)
    e = rng.integers(3, size=900)
    label = np.where(rng.random(900) < 0.7, e, rng.integers(5, size=900))
    x = rng.normal(size=(900, 4)) * (1 + e[:, None]) + 4 * np.eye(3, 4)[e]  # spreads differ: no linear encoder is blind
    planned = plan(x, signal=label, nuisance=e)
    assert planned.estimator == f"Forget(n_components={planned.n_components}).fit(X, nuisance, given=label)"
    fitted = Forget(max_iter=1, verbose=False, random_state=0).fit(x, e, given=label)
    assert planned.n_components == fitted.n_components_ == 4  # one less than there are labels


def test_where_the_fit_would_refuse_the_plan_still_has_its_verdicts():
    rng = np.random.default_rng(0)
    planned = plan(rng.normal(size=(300, 3)), nuisance=np.arange(300) == 0)
    rare = [verdict for verdict in planned.verdicts if verdict.outcome == "fails"]
    assert any("merge it" in str(verdict) for verdict in rare)


def test_a_plan_says_what_an_audit_would_refuse():
    sample = Clusters.on_sphere(2, 8, 10.0, random_state=0).sample(400, random_state=0)
    subjects = np.arange(400) % 5
    planned = plan(sample.x, signal=sample.u, groups=subjects)
    assert "needs 8 groups, and there are 5. Give more groups" in planned.needs[-1]
    assert plan(sample.x, signal=sample.u, groups=np.arange(400) % 8).needs == plan(sample.x, signal=sample.u).needs
    with input_error("X"):
        audit(
            Classify(2, max_iter=1, verbose=False, random_state=0).fit(sample.x, sample.u),
            sample.x,
            sample.u,
            groups=subjects,
        )


@pytest.mark.parametrize(
    ("n_samples", "options", "outcome", "why"),
    [
        (59, {}, "fails", "needs 60 samples, and there are 59. Give more samples."),
        (60, {}, "holds", "needs 60 samples, and there are 60."),
        (90, {"nuisance": np.arange(90) % 2}, "fails", "needs 80 samples of the commonest level of the nuisance"),
        (90, {"nuisance": np.arange(90) // 80}, "holds", "and there are 80."),
        (90, {"groups": np.arange(90) % 7}, "fails", "needs 8 groups, and there are 7."),
    ],
)
def test_an_audit_divides_rows_values_and_groups(n_samples, options, outcome, why):
    verdict = splittable_samples(n_samples, **options)
    assert verdict.outcome == outcome
    assert why in verdict.why


@pytest.mark.parametrize("as_data", [False, True])
@pytest.mark.parametrize("sides", [{"nuisance": np.arange(300) % 3}, {}])
@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.slow
def test_the_call_that_is_planned_for_sequences_can_be_made(sides, as_data):
    x = np.random.default_rng(0).normal(size=(300, 5, 2))
    planned = plan(Data(x, **sides)) if as_data else plan(x, **sides)
    assert "n_components=10, preprocess=preprocessing.whiten" in planned.estimator
    assert "samples of shape (5, 2) are made vectors" in planned.notes[-1]
    names = {"Forget": Forget, "Dictionary": Dictionary, "networks": networks, "preprocessing": networks.preprocessing}
    est = eval(planned.estimator, names)
    codes = est.set_params(max_iter=2, verbose=False).fit(x, sides.get("nuisance")).transform(x)
    assert codes.shape == (300, 10)


def test_a_method_that_only_takes_vectors_refuses_images_in_its_plan_as_in_its_fit():
    with pytest.raises(ValueError, match=r"X\.reshape"):
        plan(np.ones((30, 1, 4, 4)), estimator=Sparse(4))


def test_images_are_planned_for_as_they_are_fitted():
    x = np.random.default_rng(0).random((300, 1, 4, 4))
    assert plan(x, nuisance=np.arange(300) % 3, n_components=2).estimator == "Forget(n_components=2)"
    assert plan(x, n_components=2).estimator == "Dictionary(n_components=2)"


@pytest.mark.parametrize("kind", [Contrast, Dictionary, Sparse])
def test_a_plan_has_as_many_latents_as_the_fit_that_counts_them(kind):
    z = np.random.default_rng(0).normal(size=(300, 3))
    x = z @ np.random.default_rng(1).normal(size=(3, 6)) + 0.01 * np.random.default_rng(2).normal(size=(300, 6))
    planned = plan(x, estimator=kind)
    est = kind(None, max_iter=2, verbose=False, random_state=0, device="cpu")
    prepared = est.prepare(Data(x))
    with warnings.catch_warnings(action="ignore"):
        fitted = est.fit(prepared)
        again = kind(None, max_iter=2, verbose=False, random_state=0, device="cpu").fit(x)
    assert planned.n_components == prepared.summary.n_components == fitted.n_components_ == again.n_components_
    np.testing.assert_array_equal(fitted.transform(x), again.transform(x))
