"""Checks of dictionaries: what each sees, and what it refuses. What they say of fits is in test_theorems_sparse."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from pindown import SparseBasis, plan, theory
from pindown.auditing.checks.dictionaries import (
    conditioned_atoms,
    distinct_atoms,
    samples_for_atoms,
    scattered_activations,
    sparse_combination,
    sparsest_activations,
)
from pindown.errors import InputError
from pindown.metrics import l0, matching_pursuit, sparsity
from pindown.simulate import Superposed

RNG = np.random.default_rng(0)
WORLD = Superposed.overcomplete(40, 20, n_active=2, random_state=0)
SAMPLE = WORLD.sample(400, random_state=1)
X, Z, ATOMS = SAMPLE.x.numpy().astype(np.float64), SAMPLE.z.numpy(), WORLD.truth


def test_a_search_on_the_true_atoms_finds_the_activations():
    found = matching_pursuit(X, ATOMS, 2).toarray()
    exact = (found > 0.01) == (Z > 0)
    assert exact.all(1).mean() > 0.8
    assert np.abs(found - Z)[exact.all(1)].max() < 0.05
    assert matching_pursuit(X, ATOMS, 1).nnz <= 400


def test_a_row_that_is_rebuilt_takes_no_more_atoms():
    found = matching_pursuit(np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.eye(3), 3)
    assert found.nnz == 1
    assert found[0, 0] == pytest.approx(2)


def test_the_true_dictionary_and_its_activations_pass_all_checks():
    verdicts = [
        sparse_combination(X, ATOMS, 2),
        distinct_atoms(ATOMS),
        conditioned_atoms(csr_array(Z), ATOMS),
        scattered_activations(Z),
        sparsest_activations(X, Z, ATOMS),
    ]
    assert [verdict.outcome for verdict in verdicts] == ["holds"] * 5


def test_noise_is_no_sparse_combination_and_activations_elsewhere_are_not_the_sparsest():
    assert sparse_combination(RNG.normal(size=X.shape), ATOMS, 2).outcome == "fails"
    assert sparsest_activations(X, Z[::-1], ATOMS).outcome == "fails"


def test_more_active_atoms_than_dimensions_are_dependent():
    assert conditioned_atoms(np.ones((5, 40)), ATOMS).outcome == "fails"


def test_activations_that_fire_too_rarely_to_be_counted_decide_nothing():
    assert scattered_activations(np.eye(30)).outcome == "undecided"


def test_rows_are_counted_by_the_theorem_on_as_many_atoms():
    few, many = samples_for_atoms(1_000, 20, 30), samples_for_atoms(1_000, 200, 30)
    assert (few.outcome, many.outcome) == ("holds", "fails")
    assert (few.assumption, many.assumption) == tuple(
        theorem.diversity for theorem in (theory.SPARSE_COMPLETE, theory.SPARSE_OVERCOMPLETE)
    )
    assert many.threshold == pytest.approx(200**2 / 30 * np.log(200**2 / 30), abs=1)


def test_sparsity_is_zero_for_normal_activations_and_negative_for_even_ones():
    z = RNG.normal(size=(20_000, 3))
    assert sparsity(z) == pytest.approx(0, abs=0.02)
    assert sparsity(np.sign(z)) == pytest.approx(1 - np.pi / 2, abs=0.02)
    assert sparsity(z * (RNG.random(z.shape) < 0.2)) == pytest.approx(0.8, abs=0.02)
    assert l0(z) == 3


@pytest.mark.parametrize(("n_components", "rows", "most"), [(21, X, 20), (20, X[:, :1] @ X[:1], 1)])
def test_more_atoms_than_directions_raise(n_components, rows, most):
    with pytest.raises(InputError, match=f"at most {most}:") as error:
        SparseBasis(n_components).fit(rows)
    assert error.value.argument == "n_components"


def test_a_basis_is_planned_with_as_many_atoms_as_data_vary_in():
    found = plan(X[:, :3] @ RNG.normal(size=(3, 6)), estimator=SparseBasis)
    assert found.estimator == "SparseBasis(n_components=3)"
    assert found.outcome == "holds"
