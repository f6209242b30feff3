"""Every check where it holds, where it fails, and where data cannot decide."""

import math

import numpy as np
import pytest
import torch

from pindown import checks, networks, theory
from pindown.checks import arrays, conditions
from pindown.checks.verdict import Estimate, above, below, estimate
from pindown.distributions import Around, Projected, Uniform, VonMisesFisher, laplace, normal
from pindown.estimators import Classify, Contrast, Dictionary, Forget
from pindown.folding import Folding
from pindown.processes import Clusters, Confounded, Nuisance, Pairs, ShapeNuisance, Structured, in_hyperplane
from pindown.spaces import Box, Reals
from pindown.structure import generators

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


def rng(seed=0):
    return np.random.default_rng(seed)


# Verdicts and how they are reached.


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
    verdict = checks.enough_values(["a", "b"] * 10, theory.TCL, d=3)
    name, why = "at least d + 1 segments", "2 of 4 that 3 latents need. Give 2 more segments, in general position."
    assert str(verdict) == f"fails      {name}: {why}"


def test_assumptions_without_a_verdict_are_named():
    verdict = checks.live_codes(rng().normal(size=(100, 2)))
    left = checks.unchecked(theory.FORGET, [verdict])
    assert theory.INFORMATION_KEPT not in left
    assert theory.NUISANCE_VMF in left
    assert len(left) == len(theory.FORGET.assumes) - 1


# Counts.


@pytest.mark.parametrize(
    ("theorem", "k", "needed"),
    [
        (theory.CLASSIFY_FREE, None, 6),
        (theory.ROEDER, None, 6),
        (theory.TCL, None, 6),
        (theory.AUXILIARY_ICA, None, 11),
        (theory.IVAE, 2, 11),
        (theory.INTERVENTIONS, None, 5),
        (theory.INTERVENTIONS_UNKNOWN, None, 10),
        (theory.FORGET, 3, 3),
    ],
)
def test_values_are_counted_against_each_theorem_at_five_latents(theorem, k, needed):
    enough, one_less = (np.arange(20 * n) % n for n in (needed, needed - 1))
    assert checks.enough_values(enough, theorem, 5, k).outcome == "holds"
    verdict = checks.enough_values(one_less, theorem, 5, k)
    assert (verdict.outcome, verdict.statistic, verdict.threshold) == ("fails", needed - 1, needed)
    assert "1 more" in verdict.why


def test_values_of_a_single_row_do_not_decide_a_count():
    labels = [0] * 50 + [1] * 50 + [2]
    assert checks.enough_values(labels, theory.CLASSIFY_FREE, 2).outcome == "undecided"


def test_a_theorem_that_counts_nothing_cannot_be_counted():
    with pytest.raises(ValueError, match="contrast-sphere counts nothing"):
        checks.enough_values([0, 1], theory.CONTRAST_SPHERE, 2)


def test_rows_are_enough_scarce_or_too_few():
    assert [checks.enough_rows(n, 4).outcome for n in (400, 200, 79)] == ["holds", "undecided", "fails"]


def test_rows_may_be_many_and_still_too_few_for_their_values():
    per_value = {10: "holds", 5: "undecided", 1: "fails"}
    for rows, outcome in per_value.items():
        assert checks.enough_rows(1_000, 2, labels=np.arange(1_000) // rows).outcome == outcome


def test_a_rare_value_is_noticed():
    for rare, outcome in {30: "holds", 17: "undecided", 3: "fails"}.items():
        assert checks.common_values([0] * 500 + [1] * 182 + [2] * rare).outcome == outcome


# Diversity of values.


@pytest.mark.parametrize("seed", SEEDS)
def test_class_means_of_latents_span_them_unless_in_a_hyperplane(seed):
    world = Clusters.on_sphere(4, 16, 10.0, random_state=seed)
    flat = Clusters(in_hyperplane(world.vectors), world.conditional, world.mixing)
    for process, outcome in ((world, "holds"), (flat, "fails")):
        sample = process.sample(3_000, random_state=seed)
        verdict = checks.diverse_values(sample.z, sample.u)
        assert (verdict.assumption, verdict.outcome) == (theory.AFFINE_GENERATORS, outcome)


@pytest.mark.parametrize("seed", SEEDS)
def test_class_means_of_observations_show_a_hyperplane_before_training(seed):
    world = Clusters.on_sphere(4, 16, 10.0, random_state=seed)
    flat = Clusters(in_hyperplane(world.vectors), world.conditional, world.mixing)
    seen = world.sample(3_000, random_state=seed), flat.sample(3_000, random_state=seed)
    spanning, lying = (checks.diverse_values(sample.x, sample.u, encoded=False) for sample in seen)
    assert spanning.outcome == "holds"
    assert lying.outcome == "fails"


def test_few_rows_do_not_decide_whether_classes_span():
    labels = np.arange(36) % 6
    means = np.array([[1, 0], [-1, 0], [0, 0.3], [0, -0.3], [0.5, 0], [-0.5, 0]])
    codes = means[labels] + rng().normal(size=(36, 2))
    assert checks.diverse_values(codes, labels).outcome == "undecided"


def test_as_many_classes_as_latents_cannot_span():
    labels = np.arange(300) % 3
    codes = np.eye(3)[labels] + 0.1 * rng().normal(size=(300, 3))
    verdict = checks.diverse_values(codes, labels)
    assert verdict.outcome == "fails"
    assert "about 2 dimensions" in verdict.why
    assert checks.spanned_dimensions(codes, labels) == 2


def modulated(seed, n_values, *, together, means=0.0, rows=200):
    """Latents with a spread, and perhaps a mean, for every value; ``together`` they are one function of the value."""
    draw = rng(seed)
    scales = np.exp(draw.normal(size=(n_values, 1 if together else 2)) * 0.5) * np.ones((1, 2))
    centres = means * draw.normal(size=(n_values, 2))
    labels = np.arange(rows * n_values) % n_values
    return centres[labels] + scales[labels] * draw.normal(size=(len(labels), 2)), labels


@pytest.mark.parametrize("seed", SEEDS[:1] + SEEDS[2:])
def test_segments_must_modulate_latents_apart(seed):
    for together, rows, outcome in ((False, 200, "holds"), (True, 3_000, "fails")):
        verdict = checks.diverse_values(*modulated(seed, 12, together=together, rows=rows), theory.TCL)
        assert (verdict.assumption, verdict.outcome) == (theory.MODULATED_SEGMENTS, outcome)


def test_few_rows_do_not_decide_whether_segments_modulate_latents_apart():
    assert checks.diverse_values(*modulated(0, 12, together=True), theory.TCL).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS[:1] + SEEDS[2:])
def test_natural_parameters_must_vary_apart(seed):
    for together, rows, outcome in ((False, 200, "holds"), (True, 2_000, "fails")):
        sample = modulated(seed, 20, together=together, means=2.0, rows=rows)
        verdict = checks.diverse_values(*sample, theory.IVAE)
        assert (verdict.assumption, verdict.outcome) == (theory.NATURAL_PARAMETERS, outcome)


def test_spreads_that_seem_not_to_vary_are_undecided_unless_rows_abound():
    labels = np.arange(20_000) % 10
    codes = 2 * rng().normal(size=(10, 2))[labels] + rng(1).normal(size=(20_000, 2))
    few = checks.diverse_values(codes[:2_000], labels[:2_000], theory.AUXILIARY_ICA)
    many = checks.diverse_values(codes, labels, theory.AUXILIARY_ICA)
    assert (few.assumption, few.outcome, many.outcome) == (theory.VARIABILITY, "undecided", "fails")


def test_no_parameters_are_known_of_pairs():
    with pytest.raises(ValueError, match="no parameters are known for contrast-sphere"):
        checks.diverse_values(np.eye(2), [0, 1], theory.CONTRAST_SPHERE)


# Laws of partners and clusters.


@pytest.mark.parametrize("seed", SEEDS)
def test_partners_of_a_vmf_law_are_told_from_those_of_a_laplace_law(seed):
    z = Uniform(4).sample(2_000, random_state=seed)
    for law, outcome in ((VonMisesFisher(10.0), "holds"), (Projected(laplace(0.2)), "fails")):
        assert checks.vmf_conditional(z, law.sample(z, random_state=seed + 1)).outcome == outcome


def test_few_partners_do_not_decide_their_law():
    z = Uniform(4).sample(12, random_state=0)
    assert checks.vmf_conditional(z, VonMisesFisher(10.0).sample(z, random_state=1)).outcome == "undecided"


def test_a_sphere_of_two_points_and_identical_partners_decide_nothing():
    assert checks.vmf_conditional(np.ones((9, 1)), -np.ones((9, 1))).outcome == "undecided"
    assert checks.vmf_conditional(np.eye(3), np.eye(3)).outcome == "undecided"
    assert checks.matching_model(np.eye(3), np.eye(3), 2).outcome == "undecided"


def test_very_tight_partners_are_judged_too():
    z = Uniform(3).sample(2_000, random_state=0, dtype=torch.float64)
    assert checks.vmf_conditional(z, VonMisesFisher(1e6).sample(z, random_state=1)).outcome == "holds"


@pytest.mark.parametrize("beta", [1.0, 2.0, 3.0])
def test_the_tail_index_is_the_power_in_the_exponent(beta):
    size = rng().gamma(3 / beta, size=4_000) ** (1 / beta)  # the radius of exp(−r^β) in three dimensions
    index = checks.tail_index(size, 3, sphere=False)
    assert index.low < beta < index.high
    assert index.high - index.low < 0.1 * beta


def test_clusters_are_judged_around_given_vectors_or_their_own_means():
    vectors = torch.eye(3)
    labels = torch.arange(3).repeat(400)
    for law, outcome in ((VonMisesFisher(10.0), "holds"), (Projected(laplace(0.3)), "fails")):
        codes = law.sample(vectors[labels], random_state=0)
        assert checks.vmf_clusters(codes, labels, vectors).outcome == outcome
        assert checks.vmf_clusters(codes, labels).outcome == outcome


def test_few_members_do_not_decide_the_law_of_clusters():
    labels = torch.arange(3).repeat(8)
    codes = VonMisesFisher(10.0).sample(torch.eye(3)[labels], random_state=0)
    assert checks.vmf_clusters(codes, labels).outcome == "undecided"


def in_box(seed, law, n=2_000):
    sample = Pairs.on_box(3, law, random_state=seed).sample(n, random_state=seed)
    return sample.z, sample.z_pos


@pytest.mark.parametrize("seed", SEEDS)
def test_the_norm_of_the_model_must_be_that_of_the_conditional(seed):
    for law, p in ((normal(0.1), 2), (laplace(0.1), 1)):
        pairs = in_box(seed, law)
        assert checks.matching_model(*pairs, p).outcome == "holds"
        assert checks.matching_model(*pairs, 3 - p).outcome == "fails"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_normal_law_singles_out_no_axes(seed):
    assert checks.lp_conditional(*in_box(seed, laplace(0.1))).outcome == "holds"
    assert checks.lp_conditional(*in_box(seed, normal(0.1))).outcome == "fails"


def test_few_pairs_decide_neither_norm_nor_axes():
    pairs = in_box(0, normal(0.1), n=10)
    assert checks.matching_model(*pairs, 2).outcome == "undecided"
    assert checks.lp_conditional(*pairs).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_metric_conditional_is_alike_everywhere(seed):
    z = rng(seed).uniform(size=(2_000, 3))
    noise = rng(seed + 100).normal(size=z.shape)
    assert checks.even_conditional(z, z + 0.1 * noise).outcome == "holds"
    assert checks.even_conditional(z, z + (0.02 + 0.25 * z[:, :1] ** 2) * noise).outcome == "fails"


def test_a_slightly_uneven_conditional_is_undecided():
    z = rng().uniform(size=(600, 2))
    noise = rng(1).normal(size=z.shape)
    assert checks.even_conditional(z, z + (0.6 + z[:, :1]) * noise).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_partners_are_related_unless_they_are_shuffled(seed):
    sample = Pairs.on_sphere(3, 10.0, random_state=seed).sample(300, random_state=seed)
    assert checks.related_partners(sample.x, sample.x_pos).outcome == "holds"
    assert checks.related_partners(sample.x, sample.x_pos.roll(7, 0)).outcome == "fails"


def test_weakly_related_partners_are_undecided():
    x, noise = rng(2).normal(size=(2, 300, 2))
    assert checks.related_partners(x, 0.2 * x + noise).outcome == "undecided"


def test_partners_must_match_row_by_row():
    with pytest.raises(ValueError, match=r"must have the shape of X, \(5, 2\), got \(4, 2\)"):
        checks.related_partners(np.ones((5, 2)), np.ones((4, 2)))


# Marginals.


@pytest.mark.parametrize("seed", SEEDS)
def test_a_uniform_sphere_is_told_from_one_gathered_at_a_pole(seed):
    pole = Around((1.0, 0.0, 0.0), Projected(normal(1.0)))
    for law, outcome in ((Uniform(3), "holds"), (pole, "fails")):
        assert checks.uniform_on_sphere(law.sample(1_000, random_state=seed)).outcome == outcome


def test_forty_points_do_not_decide_a_uniform_sphere():
    assert checks.uniform_on_sphere(Uniform(3).sample(40, random_state=0)).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_uniform_box_is_told_from_a_normal_law(seed):
    normal_law = Around((0.0,) * 3, normal(1.0))
    for law, outcome in ((Uniform(3, Box()), "holds"), (normal_law, "fails")):
        assert checks.uniform_on_body(law.sample(2_000, random_state=seed)).outcome == outcome


def test_fifty_points_do_not_decide_a_uniform_box():
    assert checks.uniform_on_body(Uniform(3, Box()).sample(50, random_state=1)).outcome == "undecided"


# Nuisances.


@pytest.mark.parametrize("seed", SEEDS)
def test_what_survives_a_nuisance_is_what_its_means_do_not_span(seed):
    sample = Nuisance.on_sphere(6, 3, 5.0, n_layers=1, random_state=seed).sample(3_000, random_state=seed)
    assert checks.surviving_dimensions(sample.x, sample.u, 4).outcome == "holds"
    verdict = checks.surviving_dimensions(sample.x, sample.u, 5)
    assert verdict.outcome == "fails"
    assert "ask for 4" in verdict.why


def test_a_faint_shift_leaves_undecided_what_survives():
    e = np.arange(200) % 2
    x = rng().normal(size=(200, 3)) + 0.5 * e[:, None] * [1, 0, 0]
    assert checks.surviving_dimensions(x, e, 3).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_nuisance_of_shape_is_told_from_one_of_means(seed):
    of_means = Nuisance.on_sphere(6, 3, 5.0, n_layers=1, random_state=seed)
    of_shape = ShapeNuisance.spread(6, 2, 3, n_layers=1, random_state=seed)
    for world, outcome in ((of_means, "holds"), (of_shape, "fails")):
        sample = world.sample(3_000, random_state=seed)
        assert checks.same_spread(sample.x, sample.u).outcome == outcome


def test_a_hundred_rows_do_not_decide_spreads():
    assert checks.same_spread(rng().normal(size=(100, 4)), np.arange(100) % 2).outcome == "undecided"


def test_nothing_is_left_to_compare_where_means_span_everything():
    e = np.arange(300) % 3
    x = 5 * np.eye(3)[e][:, :2] + rng().normal(size=(300, 2))
    verdict = checks.same_spread(x, e)
    assert verdict.outcome == "undecided"
    assert math.isnan(verdict.statistic)


def test_values_overlap_or_lie_apart():
    e = np.arange(600) % 3
    x = rng().normal(size=(600, 3))
    for shift, outcome in ((2, "holds"), (20, "fails")):
        assert checks.overlapping_values(x + shift * np.eye(3)[e], e).outcome == outcome
    assert checks.overlapping_values(x[:30] + 20 * np.eye(3)[e[:30]], e[:30]).outcome == "undecided"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_label_that_goes_with_the_nuisance_is_confounded(seed):
    for crossed, outcome in ((0.5, "holds"), (0.2, "fails")):
        joint = torch.tensor([[1 - crossed, crossed], [crossed, 1 - crossed]])
        world = Confounded(torch.eye(2), torch.tensor([[-1.0], [1.0]]), joint, Pairs.on_sphere(3, 1.0).mixing)
        sample = world.sample(2_000, random_state=seed)
        assert checks.unconfounded(sample.label, sample.u).outcome == outcome


def test_forty_rows_do_not_decide_confounding():
    label = np.repeat([0, 1], 20)
    e = np.tile([0, 1], 20)
    e[[0, 1]] = 1
    assert checks.unconfounded(label, e).outcome == "undecided"


def test_codes_that_tell_the_nuisance_are_found_and_collapsed_ones_prove_nothing():
    e = np.arange(2_000) % 2
    z = rng(1).normal(size=(2_000, 2))
    told = [checks.invariant_codes(codes, e).outcome for codes in (z, z + e[:, None], np.ones_like(z))]
    assert told == ["holds", "fails", "undecided"]


def test_a_nuisance_of_one_value_cannot_be_forgotten():
    with pytest.raises(ValueError, match="one value only"):
        checks.same_spread(np.eye(3), [1, 1, 1])


# Encoders.


def test_data_vary_in_enough_directions_too_few_or_barely():
    z = rng().normal(size=(400, 2))
    x = np.hstack([z, z.sum(1, keepdims=True)])
    assert checks.enough_directions(x, 2).outcome == "holds"
    assert checks.enough_directions(x, 3).outcome == "fails"
    assert checks.enough_directions(x + 1e-3 * rng(1).normal(size=x.shape), 3).outcome == "undecided"
    assert "3 columns" in checks.enough_directions(x, 4).why


@pytest.mark.parametrize("seed", SEEDS)
def test_codes_that_leave_out_a_latent_cannot_tell_the_observations(seed):
    sample = Pairs.on_sphere(4, 10.0, random_state=seed).sample(2_000, random_state=seed)
    assert checks.rebuilt_observations(sample.z, sample.x).outcome == "holds"
    assert checks.rebuilt_observations(sample.z[:, :2], sample.x).outcome == "fails"


def test_noisy_observations_leave_undecided_whether_codes_tell_them():
    z = rng().normal(size=(2_000, 2))
    assert checks.rebuilt_observations(z, z + 0.4 * rng(1).normal(size=z.shape)).outcome == "undecided"


def test_folds_become_verdicts():
    cases = {(0.4, 0.01, 0): "fails", (0.0, 0.0, 1): "fails", (0.02, 0.01, 0): "holds", (0.2, 0.1, 0): "undecided"}
    for (share, doubt, flat), outcome in cases.items():
        assert checks.unfolded_codes(Folding(share, doubt, flat, 2_000)).outcome == outcome
    assert checks.unfolded_codes(Folding(math.nan, math.nan, 0, 50)).outcome == "undecided"


def test_codes_are_alive_dead_or_nearly_so():
    z = rng().normal(size=(500, 2))
    assert [checks.live_codes(z * [1, s]).outcome for s in (0.5, 0.03, 1e-3)] == ["holds", "undecided", "fails"]
    assert checks.live_codes(0 * z).outcome == "fails"


def test_negatives_bound_the_information_they_can_show():
    outcomes = [checks.many_negatives(math.log(16), m).outcome for m in (512, 32, 16)]
    assert outcomes == ["holds", "undecided", "fails"]


# Structure.


def test_a_support_is_diverse_whatever_the_threshold_or_undecided():
    strong = generators.diverse(6, 3, random_state=0)
    assert checks.diverse_support(strong, 0.1).outcome == "holds"
    assert checks.diverse_support(np.ones((6, 3)), 0.1).outcome == "fails"
    assert checks.diverse_support(np.where(strong, 1, 0.1), 0.1).outcome == "undecided"


def test_latents_that_reach_the_same_variables_are_named():
    table = [[1, 1, 0], [1, 1, 1], [0, 0, 1]]
    assert "[0, 1] reach the same variables" in checks.diverse_support(table, 0.5).why
    assert "[2] reach nothing" in checks.diverse_support([[1, 0, 0], [0, 1, 0]], 0.5).why


@pytest.mark.parametrize("seed", SEEDS)
def test_bent_variables_are_told_from_linear_ones(seed):
    support = generators.diverse(6, 3, random_state=seed)
    world = Structured.from_support(support, random_state=seed)
    z = world.sample(500, random_state=seed).z.double()
    bent = world.mixing.gradients(z)
    assert checks.sufficient_nonlinearity(bent, support).outcome == "holds"
    straight = np.broadcast_to(support * rng(seed).normal(size=support.shape), bent.shape)
    assert checks.sufficient_nonlinearity(straight, support).outcome == "fails"


def test_barely_bent_variables_are_undecided_and_single_ones_need_no_bend():
    straight = np.ones((500, 1, 2))
    barely = straight + 0.06 * rng().normal(size=straight.shape) * [1, 0]
    assert checks.sufficient_nonlinearity(barely, [[1, 1]]).outcome == "undecided"
    assert checks.sufficient_nonlinearity(straight, [[1, 0]]).outcome == "holds"
    with pytest.raises(ValueError, match=r"must be \(n, 1, 2\)"):
        checks.sufficient_nonlinearity(np.ones((5, 2, 2)), [[1, 1]])


# Reading arrays.


def test_inputs_that_cannot_be_read_say_so():
    with pytest.raises(ValueError, match="X must be a matrix"):
        arrays.read("X", [1.0, 2.0])
    with pytest.raises(ValueError, match=r"NaN or infinity in 1 row\(s\), first row 1"):
        arrays.read("X", [[1.0], [math.nan]])
    with pytest.raises(ValueError, match="one value for each of the 3 rows"):
        arrays.read_labels("labels", [0, 1], 3)
    with pytest.raises(ValueError, match="it is no label"):
        arrays.read_labels("labels", [0.5, 1.5], 2)
    with pytest.raises(ValueError, match=r"missing in 1 row\(s\)"):
        arrays.read_labels("labels", np.array(["a", None], dtype=object), 2)


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
    data = {theory.INJECTIVE_MIXING: "holds", conditions.ENOUGH_ROWS: "holds"}
    assert said(checks.before(sample.x, 3)) == data
    assert said(checks.before(sample.x, 3, pairs=sample.x_pos)) == data | {conditions.RELATED_PARTNERS: "holds"}
    assert said(checks.before(sample.x, 3, pairs=groups)) == data | {conditions.RELATED_PARTNERS: "fails"}


def test_before_sees_a_label_that_goes_with_the_nuisance():
    e = np.arange(600) % 2
    x = rng().normal(size=(600, 3)) + 3 * e[:, None] * [1, 0, 0]
    verdicts = said(checks.before(x, 1, signal=e, nuisance=e))
    assert verdicts[theory.NUISANCE_INDEPENDENT] == "fails"
    assert verdicts[theory.LINEAR_ENCODER] == "holds"


def test_after_contrast_bears_out_the_sphere():
    world = Pairs.on_sphere(3, 10.0, random_state=0)
    train, test = (world.sample(2_000, random_state=s) for s in (1, 2))
    contrast = Contrast(3, max_iter=150, verbose=False, random_state=0).fit(train.x, train.x_pos)
    assert said(checks.after(contrast, test.x, test.x_pos)) == {
        theory.VMF_CONDITIONAL: "holds",
        theory.UNIFORM_SPHERE: "holds",
        theory.MANY_NEGATIVES: "holds",
        conditions.UNFOLDED_CODES: "holds",
        theory.INJECTIVE_MIXING: "holds",
    }


@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
def test_after_contrast_finds_an_untrained_perceptron_folded():
    sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(1_000, random_state=0)
    untrained = Contrast(3, space=Reals(), p=1, encoder=networks.mlp, max_iter=1, verbose=False, random_state=0)
    verdicts = said(checks.after(untrained.fit(sample.x, sample.x_pos), sample.x, sample.x_pos))
    assert verdicts[conditions.UNFOLDED_CODES] == "fails"
    assert {theory.MATCHING_MODEL, theory.METRIC_CONDITIONAL, theory.LP_CONDITIONAL} < set(verdicts)


def test_after_classify_needs_known_classes():
    sample = Clusters.on_sphere(2, 4, 10.0, random_state=0).sample(300, random_state=0)
    classify = Classify(2, max_iter=2, verbose=False, random_state=0).fit(sample.x, sample.u)
    with pytest.raises(ValueError, match="not there in fit"):
        checks.after(classify, sample.x, sample.u + 1)
    assert set(said(checks.after(classify, sample.x))) == {conditions.UNFOLDED_CODES, theory.INJECTIVE_MIXING}


@pytest.mark.filterwarnings("ignore::pindown.estimators.IdentifiabilityWarning")
def test_after_forget_looks_for_leaks_and_for_life():
    sample = Nuisance.on_sphere(5, 2, 5.0, n_layers=1, random_state=0).sample(1_000, random_state=0)
    linear, bent = (
        Forget(5, encoder=encoder, max_iter=2, verbose=False, random_state=0)
        for encoder in (networks.linear, networks.unfolded)
    )
    verdicts = said(checks.after(linear.fit(sample.x, sample.u), sample.x, sample.u))
    assert verdicts == {conditions.INVARIANT_CODES: "fails", theory.INFORMATION_KEPT: "holds"}
    verdicts = said(checks.after(bent.fit(sample.x, sample.u), sample.x, sample.u))
    assert verdicts == {conditions.INVARIANT_CODES: "fails", theory.EXACT_REBUILDING: "holds"}


def test_after_dictionary_judges_the_support():
    world = Structured.from_support(generators.dense(4, 2), random_state=0)
    sample = world.sample(1_000, random_state=0)
    dictionary = Dictionary(2, n_restarts=1, max_iter=20, verbose=False, random_state=0).fit(sample.x)
    verdicts = said(checks.after(dictionary, sample.x))
    assert set(verdicts) == {theory.DIVERSE_SUPPORT, theory.SUFFICIENT_NONLINEARITY, theory.INJECTIVE_MIXING}
    assert verdicts[theory.DIVERSE_SUPPORT] == "fails"


def test_after_knows_four_estimators():
    with pytest.raises(TypeError, match="got PCA"):
        checks.after(type("PCA", (), {})(), np.eye(3))
