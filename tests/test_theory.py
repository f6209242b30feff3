import subprocess
import sys
from dataclasses import FrozenInstanceError
from itertools import pairwise, product

import numpy as np
import pytest

from pindown import theory
from pindown.errors import InputError
from pindown.theory import (
    AFFINE,
    AFFINE_GENERATORS,
    AFFINE_OF_STATISTICS,
    ASSUMPTIONS,
    AUXILIARY_ICA,
    BIJECTION,
    BIJECTION_PER_LEVEL,
    BLOCKWISE,
    CLASSIFY_FREE,
    CLASSIFY_NORMALISED,
    CLASSIFY_UNIT_FEATURES,
    CONTRAST_LP,
    CONTRAST_METRIC,
    CONTRAST_SPHERE,
    DICTIONARY_BLOCKS,
    DICTIONARY_SINGLE,
    DICTIONARY_STRUCTURE,
    DIVERSE_SUPPORT,
    ELEMENTWISE,
    FORGET,
    IDENTITY,
    INDEPENDENT_BLOCKS,
    INDETERMINACIES,
    INFORMATION_KEPT,
    INTERVENTIONS,
    INTERVENTIONS_UNKNOWN,
    IVAE,
    LINEAR,
    ORTHOGONAL,
    PERMUTATION,
    ROEDER,
    SCALED_PERMUTATION,
    SHIFTED_SIGNED_PERMUTATION,
    SIGNED_PERMUTATION,
    SPARSE_ACTIVATIONS,
    SPARSE_COMPLETE,
    SPARSE_OVERCOMPLETE,
    TCL,
    THEOREMS,
    Assumption,
    Freedom,
    Indeterminacy,
    Theorem,
)


def constants(kind):
    return {value for value in vars(theory).values() if isinstance(value, kind)}


# Counting conditions. Every number is worked out by hand from section 5 of the theory page.


@pytest.mark.parametrize(
    ("theorem", "d", "k", "needed"),
    [
        (AUXILIARY_ICA, 5, None, 11),  # 2·5 + 1
        (AUXILIARY_ICA, 1, None, 3),
        (TCL, 5, None, 6),
        (IVAE, 5, 2, 11),  # Gaussian with free mean and variance: two statistics per latent
        (IVAE, 5, 1, 6),
        (IVAE, 3, 4, 13),
        (ROEDER, 16, None, 17),
        (CLASSIFY_NORMALISED, 5, None, 6),
        (CLASSIFY_FREE, 2, None, 3),  # a triangle is the smallest figure in no line of the plane
        (INTERVENTIONS, 5, None, 5),
        (INTERVENTIONS_UNKNOWN, 5, None, 10),
        (FORGET, 8, 5, 4),  # 8 actions, 5 survive: dim V = 3 = rank of at least 4 centred class vectors
        (FORGET, 3, 3, 1),  # nothing to forget
        (SPARSE_COMPLETE, 100, None, 461),  # 100 · 4.605
        (SPARSE_COMPLETE, 1, None, 1),
        (SPARSE_OVERCOMPLETE, 1024, 256, 34_070),  # 4,096 · 8.318
    ],
)
def test_a_theorem_needs_as_many_values_as_its_formula_says(theorem, d, k, needed):
    assert theorem.diversity.needed(d, k) == needed


@pytest.mark.parametrize(
    "theorem",
    [CONTRAST_SPHERE, CONTRAST_METRIC, CONTRAST_LP, DICTIONARY_BLOCKS, DICTIONARY_STRUCTURE, SPARSE_ACTIVATIONS],
)
def test_pairs_and_dictionaries_count_nothing(theorem):
    assert theorem.diversity is None


def test_needed_takes_the_integers_of_numpy():
    assert TCL.diversity.needed(np.int64(5)) == 6


@pytest.mark.parametrize(
    ("theorem", "d", "k", "argument"),
    [
        *((TCL, d, None, "d") for d in (0, -3, 2.5, "5", None)),
        *((IVAE, 5, k, "k") for k in (0, -1, 1.5)),
        (IVAE, 5, None, "k"),  # missing
        (TCL, 5, 2, "k"),  # superfluous
        (SPARSE_OVERCOMPLETE, 100, 200, "k"),  # not overcomplete: fewer atoms than dimensions
        (FORGET, 3, 4, "k"),  # more dimensions than there were
    ],
)
def test_a_count_that_makes_no_sense_raises_and_names_the_argument(theorem, d, k, argument):
    with pytest.raises(InputError) as raised:
        theorem.diversity.needed(d, k)
    assert raised.value.argument == argument


# The order of indeterminacies.


def test_the_order_is_reflexive():
    assert all(a.within(a) for a in INDETERMINACIES)


def test_the_order_is_antisymmetric():
    assert all(a is b for a, b in product(INDETERMINACIES, repeat=2) if a.within(b) and b.within(a))


def test_the_order_is_transitive():
    triples = product(INDETERMINACIES, repeat=3)
    assert all(a.within(c) for a, b, c in triples if a.within(b) and b.within(c))


def test_the_identity_is_within_all_and_all_fixed_invertible_maps_within_a_bijection_per_value():
    assert all(IDENTITY.within(a) for a in INDETERMINACIES)
    outside = {a for a in INDETERMINACIES if not a.within(BIJECTION_PER_LEVEL)}
    assert outside == {AFFINE_OF_STATISTICS}  # it may square a latent, which no bijection does


@pytest.mark.parametrize(
    "chain",
    [
        (
            IDENTITY,
            PERMUTATION,
            SIGNED_PERMUTATION,
            ORTHOGONAL,
            LINEAR,
            AFFINE,
            BIJECTION,
            BIJECTION_PER_LEVEL,
        ),
        (
            SIGNED_PERMUTATION,
            SHIFTED_SIGNED_PERMUTATION,
            SCALED_PERMUTATION,
            ELEMENTWISE,
            BLOCKWISE,
            BIJECTION,
        ),
        (SCALED_PERMUTATION, AFFINE, AFFINE_OF_STATISTICS),
        (ELEMENTWISE, AFFINE_OF_STATISTICS),
    ],
)
def test_each_link_of_a_chain_is_strictly_within_the_next(chain):
    for finer, coarser in pairwise(chain):
        assert finer.within(coarser)
        assert not coarser.within(finer)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (SCALED_PERMUTATION, ORTHOGONAL),  # diag(1, 2) bends angles; a rotation by 45° mixes axes
        (SCALED_PERMUTATION, LINEAR),  # a shift is not linear; a shear is not axis-aligned
        (SHIFTED_SIGNED_PERMUTATION, ORTHOGONAL),  # a shift moves the origin
        (SHIFTED_SIGNED_PERMUTATION, LINEAR),
        (ELEMENTWISE, AFFINE),  # z³ is not affine; a rotation is not coordinatewise
        (ELEMENTWISE, ORTHOGONAL),
        (BLOCKWISE, AFFINE),  # a rotation mixes blocks
        (BLOCKWISE, AFFINE_OF_STATISTICS),  # a warp inside a block is no sum of warped coordinates
    ],
)
def test_neither_of_two_incomparable_indeterminacies_is_within_the_other(a, b):
    assert not a.within(b)
    assert not b.within(a)


def matrix_freedoms(matrix):
    """Name the elementary moves that a linear map of the plane needs, from the matrix alone."""
    moves = set()
    scales = np.linalg.svd(matrix, compute_uv=False)
    if not np.isclose(scales[0], scales[-1]):
        moves.add(Freedom.COORDINATE_SCALE)
    elif not np.isclose(scales[0], 1):
        moves.add(Freedom.SCALE)
    used = ~np.isclose(matrix, 0)
    if (used.sum(axis=0) > 1).any():
        moves.add(Freedom.ROTATION)
    elif not used.diagonal().all():
        moves.add(Freedom.PERMUTATION)
    if not moves & {Freedom.ROTATION} and (matrix < -1e-9).any():
        moves.add(Freedom.SIGN)
    return moves


@pytest.mark.parametrize(
    ("matrix", "finest"),
    [
        ([[1, 0], [0, 1]], {IDENTITY}),
        ([[0, 1], [1, 0]], {PERMUTATION}),
        ([[0, -3], [3, 0]], {SIGNED_PERMUTATION}),
        ([[2, -2], [2, 2]], {ORTHOGONAL}),
        ([[1, 0], [0, -5]], {SCALED_PERMUTATION, LINEAR}),  # one brings a shift along, the other rotations
        ([[1, 1], [0, 1]], {LINEAR}),
    ],
)
def test_a_matrix_is_allowed_by_its_finest_indeterminacies_and_all_coarser_ones(matrix, finest):
    moves = matrix_freedoms(np.array(matrix, dtype=float))
    allowing = {a for a in INDETERMINACIES if moves <= a.allows}
    assert allowing == {a for a in INDETERMINACIES if any(fine.within(a) for fine in finest)}


# What each theorem promises.


@pytest.mark.parametrize(
    ("theorem", "indeterminacy"),
    [
        (CONTRAST_SPHERE, ORTHOGONAL),
        (CONTRAST_METRIC, AFFINE),
        (CONTRAST_LP, SHIFTED_SIGNED_PERMUTATION),
        (CLASSIFY_NORMALISED, ORTHOGONAL),
        (CLASSIFY_UNIT_FEATURES, ORTHOGONAL),
        (CLASSIFY_FREE, LINEAR),
        (FORGET, BIJECTION_PER_LEVEL),
        (DICTIONARY_BLOCKS, BLOCKWISE),
        (DICTIONARY_STRUCTURE, PERMUTATION),
        (DICTIONARY_SINGLE, ELEMENTWISE),
        (ROEDER, LINEAR),
    ],
)
def test_a_theorem_leaves_free_what_its_paper_leaves_free(theorem, indeterminacy):
    assert theorem.indeterminacy is indeterminacy


def test_what_a_dictionary_recovers_alone_costs_one_assumption_more_than_blocks():
    assert set(DICTIONARY_SINGLE.assumes) - set(DICTIONARY_BLOCKS.assumes) == {DIVERSE_SUPPORT}
    assert set(DICTIONARY_BLOCKS.assumes) - set(DICTIONARY_STRUCTURE.assumes) == {INDEPENDENT_BLOCKS}
    assert DICTIONARY_SINGLE.indeterminacy.within(DICTIONARY_BLOCKS.indeterminacy)


def test_unit_norm_buys_angles():
    for normalised in (CLASSIFY_NORMALISED, CLASSIFY_UNIT_FEATURES):
        assert set(CLASSIFY_FREE.assumes) < set(normalised.assumes)
        assert normalised.indeterminacy.within(CLASSIFY_FREE.indeterminacy)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def log_softmax(scores):
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def test_with_free_features_a_linear_map_and_a_shift_of_the_class_vectors_are_not_seen():
    rng = np.random.default_rng(0)
    z, v = unit(rng.normal(size=(50, 4))), unit(rng.normal(size=(9, 4)))
    a, shift, kappa, beta = rng.normal(size=(4, 4)), rng.normal(size=4), 10.0, 3.0
    w = kappa / beta * v @ np.linalg.inv(a) + shift
    np.testing.assert_allclose(log_softmax(beta * z @ a.T @ w.T), log_softmax(kappa * z @ v.T))
    # A shift of the features is seen: it needs offsets per class that are not the prior's.
    moved = log_softmax(beta * (z @ a.T + shift) @ w.T)
    assert np.abs(moved - log_softmax(kappa * z @ v.T)).max() > 0.1


def test_unit_class_vectors_fix_the_angles_only_if_there_are_enough_of_them():
    # Three directions in the plane can be mapped to any three others: the features then are a shear of the latents.
    v, w = (np.stack([np.cos(t), np.sin(t)], 1) for t in (np.deg2rad([0, 120, 240]), np.deg2rad([0, 90, 180])))
    a = np.linalg.solve(w[1:] - w[0], v[1:] - v[0])
    z = unit(np.random.default_rng(0).normal(size=(50, 2)))
    np.testing.assert_allclose(log_softmax(z @ a.T @ w.T), log_softmax(z @ v.T), atol=1e-12)
    assert np.ptp(np.linalg.svd(a, compute_uv=False)) > 0.1
    # Another map of unit vectors to unit vectors is a quadric through all of them. Those of d(d + 3)/2 in general
    # position satisfy no quadratic equation but that of the sphere, 1 − ‖v‖² = 0; one vector fewer satisfies another.
    for d in (2, 3, 5):
        for n, equations in ((d * (d + 3) // 2, 1), (d * (d + 3) // 2 - 1, 2)):
            v = unit(np.random.default_rng(0).normal(size=(n, d)))
            i, j = np.triu_indices(d)
            terms = np.concatenate([v[:, i] * v[:, j], v, np.ones((n, 1))], 1)
            assert terms.shape[1] - np.linalg.matrix_rank(terms) == equations


def test_forgetting_never_comes_without_keeping_information():
    assert INFORMATION_KEPT in FORGET.assumes


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda theorem: theorem.name)
def test_a_claim_is_one_sentence_with_every_condition_the_freedom_and_the_source(theorem):
    claim = theorem.claim()
    assert claim.startswith("If these hold: ")
    assert claim.endswith(f" up to {theorem.indeterminacy.name} ({theorem.source}).")
    assert all(assumption.name in claim for assumption in theorem.assumes)
    assert theorem.diversity is None or f"at least {theorem.diversity.formula} {theorem.diversity.unit}" in claim
    assert "\n" not in claim


def test_the_claim_of_two_fits_is_not_about_the_true_latents():
    assert "the features of two fits agree up to an invertible linear map" in ROEDER.claim()
    assert "latents are recovered" not in ROEDER.claim()


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda theorem: theorem.name)
def test_every_theorem_says_what_it_does_not_promise(theorem):
    assert theorem.not_promised
    assert all(isinstance(limit, str) and limit for limit in theorem.not_promised)


# The tables.


@pytest.mark.parametrize(
    ("kind", "table"), [(Assumption, ASSUMPTIONS), (Indeterminacy, INDETERMINACIES), (Theorem, THEOREMS)]
)
def test_a_table_lists_every_constant_once_under_a_name_of_its_own(kind, table):
    assert len(table) == len(set(table)) == len({entry.name for entry in table})
    assert set(table) == constants(kind)


def test_every_assumption_of_a_theorem_is_listed():
    assert all(set(theorem.assumes) <= set(ASSUMPTIONS) for theorem in THEOREMS)


def test_no_theorem_lists_an_assumption_twice():
    assert all(len(theorem.assumes) == len(set(theorem.assumes)) for theorem in THEOREMS)


@pytest.mark.parametrize("entry", [AFFINE_GENERATORS, ORTHOGONAL, FORGET, TCL.diversity])
def test_a_statement_cannot_be_changed(entry):
    field = "formula" if entry is TCL.diversity else "name"
    with pytest.raises(FrozenInstanceError):
        setattr(entry, field, "another")


def test_the_statements_import_without_torch():
    code = "import sys, pindown.theory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
