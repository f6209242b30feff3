"""How verdicts are reached, what they are reached from, and all of them together before and after training."""

import math

import numpy as np
import pytest
import torch

from pindown import networks, theory
from pindown.auditing import checks
from pindown.auditing.checks import arrays, conditions
from pindown.auditing.checks.nuisances import same_covariance
from pindown.auditing.checks.samples import enough_levels
from pindown.auditing.checks.verdict import Estimate, at_least, at_most, estimate, unchecked
from pindown.data.data import Data
from pindown.errors import InputError
from pindown.methods import Classify, Contrast, Dictionary, Forget
from pindown.networks.spaces import Reals
from pindown.simulate import Clusters, Nuisance, Pairs, Structured


def rng(seed=0):
    return np.random.default_rng(seed)


# Verdicts and how they are reached.


def above(measured, threshold, **options):
    return at_least(conditions.ENOUGH_SAMPLES, measured, threshold, "", **options).outcome


def below(measured, threshold):
    return at_most(conditions.ENOUGH_SAMPLES, measured, threshold, "").outcome


def test_a_number_is_above_a_threshold_only_with_its_whole_interval():
    assert above(Estimate(3, 2, 4), 1) == "holds"
    assert above(Estimate(3, 2, 4), 5) == "fails"
    assert above(Estimate(3, 2, 4), 3.5) == "undecided"
    assert below(Estimate(3, 2, 4), 5) == "holds"
    assert below(Estimate(3, 2, 4), 1) == "fails"
    assert below(Estimate(3, 2, 4), 3.5) == "undecided"


def test_between_two_thresholds_nothing_is_decided():
    assert [above(Estimate(v, v, v), 6, unless_below=3) for v in (7, 5, 2)] == ["holds", "undecided", "fails"]


def test_what_could_not_be_measured_is_undecided():
    assert above(Estimate(math.nan, math.nan, math.nan), 0) == "undecided"


def test_an_interval_leaves_out_a_twentieth_on_each_side():
    assert estimate(np.arange(101)) == pytest.approx((50, 5, 95))


def test_a_verdict_prints_its_outcome_its_condition_and_its_reason():
    verdict = enough_levels(["a", "b"] * 10, theory.TCL, d=3)
    name, why = (
        "at least d + 1 segments",
        "3 latents need 4, and there are 2. Give 2 more segments, in general position.",
    )
    assert str(verdict) == f"fails      {name}: {why}"


def test_assumptions_without_a_verdict_are_named():
    verdict = same_covariance(rng().normal(size=(100, 2)), np.arange(100) % 2)
    left = unchecked(theory.FORGET, [verdict])
    assert theory.NUISANCE_VMF not in left
    assert theory.INFORMATION_KEPT in left
    assert len(left) == len(theory.FORGET.assumes) - 1


# Reading arrays.


@pytest.mark.parametrize("bad", [[1.0, 2.0], [[1.0], [math.nan]], np.ones((3, 0)), [["a"]]])
def test_inputs_that_cannot_be_read_raise_and_name_the_argument(bad):
    with pytest.raises(InputError) as raised:
        arrays.read("X", bad)
    assert raised.value.argument == "X"


def test_checks_repeat_themselves_and_leave_the_generators_alone():
    state = torch.get_rng_state()
    x, e = rng().normal(size=(400, 3)), np.arange(400) % 2
    first, second = (checks.before(x, 2, nuisance=e) for _ in range(2))
    assert first == second
    assert torch.equal(state, torch.get_rng_state())


# Before and after training.


def said(verdicts):
    return {verdict.assumption: verdict.outcome for verdict in verdicts}


def test_before_speaks_of_what_it_was_given():
    sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(500, random_state=0)
    groups = np.repeat(np.arange(250), 2)
    data = {theory.INJECTIVE_MIXING: "holds", conditions.ENOUGH_SAMPLES: "holds"}
    assert said(checks.before(sample.x, 3)) == data
    assert said(checks.before(sample.x, 3, pairs=sample.x_pos)) == data | {conditions.RELATED_PAIRS: "holds"}
    assert said(checks.before(sample.x, 3, pairs=groups)) == data | {conditions.RELATED_PAIRS: "fails"}


def test_before_sees_a_label_that_goes_with_the_nuisance():
    e = np.arange(600) % 2
    x = rng().normal(size=(600, 3)) + 3 * e[:, None] * [1, 0, 0]
    verdicts = said(checks.before(x, 1, signal=e, nuisance=e))
    assert verdicts[theory.NUISANCE_INDEPENDENT] == "fails"
    assert verdicts[theory.LINEAR_ENCODER] == "fails"  # one latent of the two that the nuisance does not touch


def test_after_contrast_bears_out_the_sphere():
    world = Pairs.on_sphere(3, 10.0, random_state=0)
    train, test = (world.sample(2_000, random_state=s) for s in (1, 2))
    contrast = Contrast(3, max_iter=150, verbose=False, random_state=0).fit(train.x, train.x_pos)
    assert said(checks.after(contrast, test.x, test.x_pos)) == {
        theory.VMF_CONDITIONAL: "holds",
        theory.UNIFORM_SPHERE: "holds",
        theory.MANY_NEGATIVES: "holds",
        conditions.INJECTIVE_ENCODER: "holds",
        conditions.STRUCTURE_KEPT: "holds",
    }


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_after_contrast_finds_an_untrained_perceptron_folded():
    sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(1_000, random_state=0)
    untrained = Contrast(3, space=Reals(), p=1, encoder=networks.mlp, max_iter=1, verbose=False, random_state=0)
    verdicts = said(checks.after(untrained.fit(sample.x, sample.x_pos), sample.x, sample.x_pos))
    assert verdicts[conditions.INJECTIVE_ENCODER] == "fails"
    assert {theory.MATCHING_MODEL, theory.METRIC_CONDITIONAL, theory.LP_CONDITIONAL} < set(verdicts)


def test_after_classify_needs_known_classes():
    sample = Clusters.on_sphere(2, 4, 10.0, random_state=0).sample(300, random_state=0)
    classify = Classify(2, max_iter=2, verbose=False, random_state=0).fit(sample.x, sample.u)
    with pytest.raises(ValueError, match="fit"):
        checks.after(classify, sample.x, sample.u + 1)
    assert set(said(checks.after(classify, sample.x))) == {conditions.INJECTIVE_ENCODER, conditions.STRUCTURE_KEPT}


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_after_forget_looks_for_leaks_and_for_life():
    sample = Nuisance.on_sphere(5, 2, 5.0, n_layers=1, random_state=0).sample(1_000, random_state=0)
    linear, bent = (
        Forget(5, encoder=encoder, max_iter=2, verbose=False, random_state=0)
        for encoder in (networks.linear, networks.skip_mlp)
    )
    verdicts = said(checks.after(linear.fit(sample.x, sample.u), sample.x, sample.u))
    assert verdicts == {conditions.INVARIANT_LATENTS: "fails"}  # a linear encoder has orthonormal rows
    assert theory.INFORMATION_KEPT in linear.spec.waived(linear, Data(sample.x))
    verdicts = said(checks.after(bent.fit(sample.x, sample.u), sample.x, sample.u))
    assert set(verdicts) == {conditions.INVARIANT_LATENTS, theory.EXACT_RECONSTRUCTION}
    assert verdicts[theory.EXACT_RECONSTRUCTION] == "holds"


def test_after_dictionary_judges_the_support():
    world = Structured.from_support(np.ones((4, 2)), random_state=0)
    sample = world.sample(1_000, random_state=0)
    dictionary = Dictionary(2, n_restarts=1, max_iter=20, verbose=False, random_state=1).fit(sample.x)
    verdicts = said(checks.after(dictionary, sample.x))
    of_codes = {conditions.STRUCTURE_KEPT, conditions.INJECTIVE_ENCODER}
    of_supports = {
        theory.SAME_DISTRIBUTION,
        theory.DIVERSE_SUPPORT,
        theory.INDEPENDENT_BLOCKS,
        theory.SUFFICIENT_NONLINEARITY,
    }
    assert set(verdicts) == of_supports | of_codes
    assert verdicts[theory.DIVERSE_SUPPORT] == "fails"


def test_after_knows_four_estimators():
    with pytest.raises(TypeError, match="got PCA"):
        checks.after(type("PCA", (), {})(), np.eye(3))
