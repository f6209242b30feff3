"""Labels with values enough, of rows enough, that differ in directions enough; and those that have not."""

import numpy as np
import pytest
from pindown_papers.simulations import in_hyperplane

from pindown import theory
from pindown.auditing.checks.samples import (
    common_levels,
    diverse_levels,
    enough_levels,
    enough_samples,
    spanned_dimensions,
)
from pindown.errors import InputError
from pindown.simulate import Clusters

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)))


def rng(seed=0):
    return np.random.default_rng(seed)


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
    assert enough_levels(enough, theorem, 5, k).outcome == "holds"
    verdict = enough_levels(one_less, theorem, 5, k)
    assert (verdict.outcome, verdict.statistic, verdict.threshold) == ("fails", needed - 1, needed)
    assert "1 more" in verdict.why


def test_values_of_a_single_row_do_not_decide_a_count():
    labels = [0] * 50 + [1] * 50 + [2]
    assert enough_levels(labels, theory.CLASSIFY_FREE, 2).outcome == "undecided"


def test_a_theorem_that_counts_nothing_cannot_be_counted():
    with pytest.raises(InputError) as error:
        enough_levels([0, 1], theory.CONTRAST_SPHERE, 2)
    assert error.value.argument == "theorem"


def test_rows_are_enough_scarce_or_too_few():
    assert [enough_samples(n, 4).outcome for n in (400, 200, 79)] == ["holds", "undecided", "fails"]


def test_rows_may_be_many_and_still_too_few_for_their_values():
    per_value = {10: "holds", 5: "undecided", 1: "fails"}
    for rows, outcome in per_value.items():
        assert enough_samples(1_000, 2, labels=np.arange(1_000) // rows).outcome == outcome


def test_a_rare_value_is_noticed():
    for rare, outcome in {30: "holds", 17: "undecided", 3: "fails"}.items():
        assert common_levels([0] * 500 + [1] * 182 + [2] * rare).outcome == outcome


# Diversity of values.


@pytest.mark.parametrize("seed", SEEDS)
def test_class_means_of_latents_span_them_unless_in_a_hyperplane(seed):
    world = Clusters.on_sphere(4, 16, 10.0, random_state=seed)
    flat = Clusters(in_hyperplane(world.vectors), world.conditional, world.mixing)
    for process, outcome in ((world, "holds"), (flat, "fails")):
        sample = process.sample(3_000, random_state=seed)
        verdict = diverse_levels(sample.z, sample.u)
        assert (verdict.assumption, verdict.outcome) == (theory.AFFINE_GENERATORS, outcome)


@pytest.mark.parametrize("seed", SEEDS)
def test_class_means_of_observations_show_a_hyperplane_before_training(seed):
    world = Clusters.on_sphere(4, 16, 10.0, random_state=seed)
    flat = Clusters(in_hyperplane(world.vectors), world.conditional, world.mixing)
    seen = world.sample(3_000, random_state=seed), flat.sample(3_000, random_state=seed)
    spanning, lying = (diverse_levels(sample.x, sample.u, encoded=False) for sample in seen)
    assert spanning.outcome == "holds"
    assert lying.outcome == "fails"


def test_few_rows_do_not_decide_whether_classes_span():
    labels = np.arange(36) % 6
    means = np.array([[1, 0], [-1, 0], [0, 0.3], [0, -0.3], [0.5, 0], [-0.5, 0]])
    codes = means[labels] + rng().normal(size=(36, 2))
    assert diverse_levels(codes, labels).outcome == "undecided"


def test_as_many_classes_as_latents_cannot_span():
    labels = np.arange(300) % 3
    codes = np.eye(3)[labels] + 0.1 * rng().normal(size=(300, 3))
    verdict = diverse_levels(codes, labels)
    assert verdict.outcome == "fails"
    assert "about 2 dimensions" in verdict.why
    assert spanned_dimensions(codes, labels) == 2


def test_no_parameters_are_known_of_pairs():
    with pytest.raises(InputError) as error:
        diverse_levels(np.eye(2), [0, 1], theory.CONTRAST_SPHERE)
    assert error.value.argument == "theorem"
