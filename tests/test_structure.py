import xml.etree.ElementTree as ElementTree
from itertools import chain, combinations, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pindown_papers import supports as random_supports
from pindown_papers.supports import diversity, index_set, parts, splitting_variables

from pindown.errors import InputError
from pindown.simulate import mixing
from pindown.theory.drawing import draw_support
from pindown.theory.structure import as_support, atomic_regions, identified_blocks, is_diverse

modest = settings(deadline=None, max_examples=60)
SEVEN = np.array([[code >> k & 1 for code in range(1, 8)] for k in range(3)])  # latent c − 1 is seen by the bits of c
# Latent 0 lies above 1 and 2, and below 3 and 4; no two columns are equal.
IN_BETWEEN = np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]])


@st.composite
def supports(draw, largest=5):
    m, d = draw(st.tuples(st.integers(1, largest), st.integers(1, largest)))
    matrix = draw(arrays(bool, (m, d)))
    empty_rows, empty_columns = ~matrix.any(1), ~matrix.any(0)
    matrix[empty_rows, draw(st.integers(0, d - 1))] = True
    matrix[draw(st.integers(0, m - 1)), empty_columns] = True
    return matrix


def blocks_of(support):
    return {block.latents for block in identified_blocks(support)}


def conditions(witnesses):
    return tuple(witness.condition for witness in witnesses)


def conditions_by_search(support):
    """Try every set A of observed variables, as the definition has it."""
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in support]
    m, d = support.shape
    met = [set() for _ in range(d)]
    for chosen in chain.from_iterable(combinations(range(m), size) for size in range(1, m + 1)):
        left = {"intersection": [frozenset.intersection(*(sets[k] for k in chosen))]}
        others = [(k, [sets[other] for other in chosen if other != k]) for k in chosen]
        left["difference"] = [sets[k].difference(*rest) for k, rest in others]
        left["remainder"] = [frozenset.intersection(*rest) - sets[k] for k, rest in others if rest]
        for condition, found in left.items():
            for latents in found:
                if len(latents) == 1:
                    met[min(latents)].add(condition)
    return met


# ---- supports and index sets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "support",
    [
        [1, 0],
        np.ones((0, 2)),
        [[1, 0.5], [0, 1]],
        [[1, np.nan], [0, 1]],
        [[1, 1], [0, 0]],  # an observed variable that depends on no latent
        [[0, 1], [0, 1]],  # a latent that reaches no observed variable
    ],
)
@pytest.mark.parametrize(
    "function", [as_support, atomic_regions, identified_blocks, diversity, is_diverse, draw_support]
)
def test_a_wrong_support_raises(function, support):
    with pytest.raises(InputError) as raised:
        function(support)
    assert raised.value.argument == "support"


def test_a_fitted_support_may_have_a_dead_latent_where_that_is_allowed():
    assert as_support([[1, 0], [1, 0]], allow_empty=True).sum() == 2


def test_an_index_set_is_the_union_of_the_rows():
    support = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert index_set(support, 1) == {1, 2}
    assert index_set(support, [0, 2]) == {0, 1, 3}
    assert index_set(support, np.int64(2)) == {3}


@pytest.mark.parametrize("observed", [3, -1, [], [0, 3]])
def test_an_observed_variable_that_does_not_exist_raises(observed):
    with pytest.raises(InputError) as raised:
        index_set(np.eye(3), observed)
    assert raised.value.argument == "observed"


@modest
@given(supports(), st.data())
def test_the_parts_of_two_groups_are_disjoint_and_make_up_their_union(support, data):
    groups = st.sets(st.integers(0, len(support) - 1), min_size=1)
    first, second = data.draw(groups), data.draw(groups)
    found = parts(support, first, second)
    a, b = index_set(support, first), index_set(support, second)
    assert found.unshared == a ^ b
    assert found.union == a | b
    assert len(found.shared) + len(found.only_first) + len(found.only_second) == len(a | b)


# ---- regions and blocks -------------------------------------------------------------------------------


def test_a_diagonal_support_has_a_region_for_each_latent():
    assert atomic_regions(np.eye(3)) == {frozenset({k}): frozenset({k}) for k in range(3)}
    assert all(block.is_single and not block.needs_independence for block in identified_blocks(np.eye(3)))


def test_a_support_of_ones_has_one_region():
    assert atomic_regions(np.ones((4, 3))) == {frozenset(range(4)): frozenset(range(3))}


def test_dense_minus_one_edge_splits_off_one_latent():
    # x_1 does not see z_2: that latent is what the other variables see beyond x_1.
    support = np.ones((4, 3), dtype=int)
    support[1, 2] = 0
    alone, rest = sorted(identified_blocks(support), key=lambda block: len(block.latents))
    assert (alone.latents, alone.reach, alone.above) == ({2}, {0, 2, 3}, {0, 1})
    assert (rest.latents, rest.reach, rest.above) == ({0, 1}, {0, 1, 2, 3}, set())


def test_three_sets_have_seven_regions():
    regions = atomic_regions(SEVEN)
    assert len(regions) == 7
    for reach, (latent,) in regions.items():
        assert sum(1 << k for k in reach) == latent + 1
    above = {min(block.latents): block.above for block in identified_blocks(SEVEN)}
    assert above[0] == {2, 4, 6}  # seen by x_0 alone; others that x_0 sees are seen by more
    assert above[6] == set()


@modest
@given(supports())
def test_regions_partition_the_latents_by_equal_columns(support):
    regions = atomic_regions(support)
    assert sorted(chain.from_iterable(regions.values())) == list(range(support.shape[1]))
    region_of = {j: reach for reach, latents in regions.items() for j in latents}
    for i, j in product(region_of, repeat=2):
        assert (region_of[i] == region_of[j]) == np.array_equal(support[:, i], support[:, j])


@modest
@given(supports(), st.randoms(use_true_random=False))
def test_blocks_follow_the_order_of_latents_and_ignore_that_of_observed_variables(support, random):
    m, d = support.shape
    rows, columns = random.sample(range(m), m), random.sample(range(d), d)
    moved = identified_blocks(support[np.ix_(rows, columns)])
    back = {(frozenset(columns[j] for j in b.latents), frozenset(columns[j] for j in b.above)) for b in moved}
    assert back == {(b.latents, b.above) for b in identified_blocks(support)}


def reached(function, d):
    """Return which outputs of a function change with which of its d inputs, at some of 20 points."""
    z = torch.randn(20, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = [(function(z + step) - function(z)).abs().amax(0) > 1e-9 for step in torch.eye(d, dtype=torch.float64)]
    return torch.stack(moved, dim=1).numpy()


def test_only_a_latent_from_above_can_be_mixed_in_without_changing_the_support():
    # z_i = ẑ_i + tanh(ẑ_j) leaves the support as it was if and only if reach(i) ⊆ reach(j).
    support = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]])
    g = mixing.sparse(support, random_state=0)
    blocks = {j: block for block in identified_blocks(support) for j in block.latents}
    hidden = []
    for i, j in permutations(range(4), 2):

        def other(z_hat, i=i, j=j):
            return g(z_hat + torch.eye(4, dtype=torch.float64)[i] * z_hat[:, j, None].tanh())

        unchanged = np.array_equal(reached(other, 4), support)
        assert unchanged == (j in blocks[i].above | blocks[i].latents)
        hidden += [(i, j)] * unchanged
    assert hidden == [(0, 1), (2, 3), (3, 2)]


def test_independence_does_not_keep_a_wider_latent_from_rotating_a_block():
    # z_0, z_1 are rotated by the angle z_2, which reaches more: Gaussians stay independent, the support stays the same.
    support = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [0, 0, 1]])
    g = mixing.sparse(support, random_state=0)

    def rotated(z_hat):
        a, b, angle = z_hat.T
        return torch.stack([angle.cos() * a - angle.sin() * b, angle.sin() * a + angle.cos() * b, angle], dim=1)

    assert np.array_equal(reached(lambda z_hat: g(rotated(z_hat)), 3), support)
    z = rotated(torch.randn(20_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    moments = torch.cat([z, z**2], 1).T.corrcoef()[:3]  # ± 1/√20000 = .007, or thrice, of squares
    assert (moments - torch.eye(3, 6, dtype=torch.float64)).abs().max() < 0.06
    (block,) = [b for b in identified_blocks(support) if not b.is_single]
    assert block.above == {2}  # which is what `above` warns of


# ---- extra observed variables -------------------------------------------------------------------------


def test_no_variable_is_suggested_where_all_latents_are_alone():
    assert splitting_variables(IN_BETWEEN).shape == (0, 5)


@modest
@given(supports())
def test_suggested_variables_leave_every_latent_alone_and_none_can_be_spared(support):
    extra = splitting_variables(support)
    assert extra.any(1).all()
    assert len(atomic_regions(np.vstack([support, extra]))) == support.shape[1]
    # r rows separate at most 2^r latents that were equal.
    largest = max(map(len, atomic_regions(support).values()))
    assert 2 ** len(extra) >= largest > 2 ** (len(extra) - 1) * (len(extra) > 0)


def test_one_variable_fewer_than_suggested_does_not_do():
    support = np.ones((1, 3), dtype=bool)
    assert len(splitting_variables(support)) == 2
    rows = [np.array(row) for row in product([False, True], repeat=3) if any(row)]
    assert max(len(atomic_regions(np.vstack([support, row]))) for row in rows) == 2


# ---- diversity ----------------------------------------------------------------------------------------


def test_on_a_diagonal_every_latent_meets_all_conditions():
    for witnesses in diversity(np.eye(3)):
        assert conditions(witnesses) == ("difference", "remainder", "intersection")


def test_in_a_support_of_ones_no_latent_meets_any_condition():
    assert diversity(np.ones((4, 3))) == ((),) * 3
    assert is_diverse(np.ones((4, 1)))  # where there is one latent, nothing can be mixed with it


def test_dense_minus_one_edge_is_diverse_for_two_latents_but_not_for_three():
    support = np.ones((3, 3), dtype=int)
    support[1, 2] = 0
    alone = diversity(support)[2]
    # Sets without z_2 leave z_0, z_1 out of no difference but I_k ∖ I_1; I_0 ∩ I_2 holds all three.
    assert conditions(alone) == ("difference", "remainder")
    assert alone[0].observed == (0, 1)
    assert str(alone[0]) == "I_0 ∖ I_1 = {2}"
    assert not is_diverse(support)
    assert is_diverse(support[:, 1:])


def test_dense_minus_a_matching_is_diverse_in_all_three_ways():
    # I_k = all but k: the sets with i meet in {i} once all of them are taken, and any of them is I_i but for i and k.
    for latent, (difference, remainder, intersection) in enumerate(diversity(1 - np.eye(4, dtype=int))):
        assert intersection.others == tuple(k for k in range(4) if k != latent)
        assert difference.others == (latent,)
        assert remainder.pivot == latent


def test_a_latent_can_be_alone_in_its_region_and_yet_meet_no_condition():
    assert len(atomic_regions(IN_BETWEEN)) == 5
    assert [bool(witnesses) for witnesses in diversity(IN_BETWEEN)] == [False, True, True, True, True]
    # Without one of the latents below it, or one of those above it, it meets one.
    assert conditions(diversity(IN_BETWEEN[:, [0, 1, 3, 4]])[0]) == ("difference",)
    assert conditions(diversity(IN_BETWEEN[:3, [0, 1, 2, 3]])[0]) == ("remainder",)


@settings(deadline=None, max_examples=150)
@given(supports())
@pytest.mark.slow
def test_the_polynomial_criterion_agrees_with_the_search_over_all_sets(support):
    found = diversity(support)
    assert [set(conditions(witnesses)) for witnesses in found] == conditions_by_search(support)
    assert is_diverse(support) == all(found)


@modest
@given(supports(largest=8))
def test_a_witness_isolates_its_latent_and_has_no_variable_to_spare(support):
    for witness in chain.from_iterable(diversity(support)):
        assert witness.isolated(support) == {witness.latent}
        assert witness.others or witness.condition == "difference"  # the intersection of no sets is no witness
        for spared in witness.others:
            rest = tuple(k for k in witness.others if k != spared)
            if rest or witness.condition == "difference":
                smaller = type(witness)(witness.latent, witness.condition, witness.pivot, rest)
                assert smaller.isolated(support) != {witness.latent}


def test_a_set_that_was_taken_first_and_is_covered_by_others_is_dropped_from_a_witness():
    # To clear 1…6 from I_0, {2, 3, 4, 5} looks best and is taken first; {1, 2, 3} and {4, 5, 6} do without it.
    support = np.zeros((4, 7), dtype=int)
    support[0], support[1, 2:6], support[2, 1:4], support[3, 4:] = 1, 1, 1, 1
    assert str(diversity(support)[0][0]) == "I_0 ∖ (I_2 ∪ I_3) = {0}"


@modest
@given(supports())
def test_a_diverse_latent_is_alone_in_its_region_and_intersections_need_no_independence(support):
    blocks = {j: block for block in identified_blocks(support) for j in block.latents}
    for latent, witnesses in enumerate(diversity(support)):
        block = blocks[latent]
        assert block.is_single or not witnesses
        assert ("intersection" in conditions(witnesses)) == (block.is_single and not block.needs_independence)


def test_diversity_of_a_thousand_variables_and_a_hundred_latents_is_found_with_witnesses():
    support = random_supports.diverse(1000, 100, density=0.3, random_state=0)
    found = diversity(support)
    assert all(found)
    assert all(w.isolated(support) == {latent} for latent in range(5) for w in found[latent])


# ---- random supports ----------------------------------------------------------------------------------

SIZES = [(1, 1), (2, 2), (6, 3), (5, 5), (20, 10), (30, 30)]
RANDOM = [random_supports.diverse, random_supports.nested]


@pytest.mark.parametrize(
    ("m", "d", "density"), [*((m, d, 0.5) for m, d in SIZES), (8, 8, 0.2), (10, 5, 0.9), (400, 3, 0.2)]
)
@pytest.mark.parametrize("seed", range(5))
def test_diverse_supports_are_diverse_and_allow_an_injective_map(m, d, density, seed):
    support = random_supports.diverse(m, d, density=density, random_state=seed)
    assert support.shape == (m, d)
    assert is_diverse(support)
    assert mixing.sparse(support, width=d, random_state=0).d == d  # refuses empty rows and deficient rank


def test_edges_of_diverse_supports_are_independent_given_that_no_row_is_empty():
    # Many rows meet the other conditions anyway. At p = .3, d = 2 a row is (1, 1) in .09 of .51, the others in .21.
    rows = random_supports.diverse(20_000, 2, density=0.3, random_state=0)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    assert kinds.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert counts / 20_000 == pytest.approx([21 / 51, 21 / 51, 9 / 51], abs=0.014)  # four standard errors


@pytest.mark.parametrize(("m", "d"), SIZES)
@pytest.mark.parametrize("seed", range(5))
def test_nested_supports_are_chains_that_rest_on_independence(m, d, seed):
    support = random_supports.nested(m, d, random_state=seed)
    by_size = support[np.argsort(support.sum(1))]
    assert (np.diff(by_size, axis=0) >= 0).all()
    assert mixing.sparse(support, width=d, random_state=0).d == d
    assert is_diverse(support)
    assert sum("intersection" in conditions(witnesses) for witnesses in diversity(support)) == 1  # the innermost
    assert sum(block.needs_independence for block in identified_blocks(support)) == d - 1


def test_dense_supports_recover_nothing_but_the_whole():
    assert blocks_of(np.ones((5, 3))) == {frozenset({0, 1, 2})}


@pytest.mark.parametrize("make", RANDOM)
def test_random_supports_follow_their_seed_and_differ_between_seeds(make):
    first = make(8, 4, random_state=0)
    assert np.array_equal(first, make(8, 4, random_state=0))
    assert np.array_equal(first, make(8, 4, random_state=np.random.default_rng(0)))
    assert len({make(8, 4, random_state=seed).tobytes() for seed in range(10)}) > 3


@pytest.mark.parametrize("make", RANDOM)
@pytest.mark.parametrize(("m", "d"), [(2, 3), (0, 0)])
def test_fewer_observed_variables_than_latents_raise(make, m, d):
    with pytest.raises(InputError) as raised:
        make(m, d)
    assert raised.value.argument == "m"


@pytest.mark.parametrize("density", [0, 1, 0.999])  # at the last one no draw is diverse
def test_a_density_that_allows_no_diverse_support_raises(density):
    with pytest.raises(InputError) as raised:
        random_supports.diverse(4, 4, density=density, random_state=0)
    assert raised.value.argument == "density"


# ---- images -----------------------------------------------------------------------------------------


def texts(picture):
    return [element.text for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


def count(picture, tag):
    return len(list(ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}" + tag)))


@pytest.mark.parametrize(
    "support", [np.eye(1), SEVEN, IN_BETWEEN, np.ones((3, 6)), random_supports.nested(12, 10)], ids=len
)
def test_a_picture_is_well_formed_with_a_line_for_each_edge_and_every_name(support):
    m, d = support.shape
    picture = draw_support(support, latents=[f"a{j}" for j in range(d)], observed=[f"b{k}" for k in range(m)])
    assert count(picture, "line") == support.sum()
    shown = texts(picture)
    assert all(shown.count(f"a{j}") == 1 for j in range(d))
    assert all(shown.count(f"b{k}") == 1 for k in range(m))


def test_a_picture_says_how_many_latents_are_alone_and_what_rests_on_independence():
    support = np.ones((3, 3), dtype=int)
    support[1, 2] = 0
    shown = texts(draw_support(support))
    assert "1 of 3 latents alone in a block, the others in 1 block" in shown
    assert any("dashed ring" in text for text in shown if text)
    assert not any("dashed ring" in text for text in texts(draw_support(np.eye(3))) if text)


def test_names_in_a_picture_are_escaped_and_long_ones_shortened_but_kept_whole_in_the_title():
    picture = draw_support(np.eye(2), latents=["<script>&", "a name that is far too long to print"])
    assert "<script>" not in picture
    assert "<script>&" in texts(picture)
    assert "a name that is far too long to print" not in texts(picture)
    titles = [element.text for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert "a name that is far too long to print" in titles


@pytest.mark.parametrize(
    ("support", "names", "argument"),
    [
        (np.eye(2), {"latents": ["a"]}, "latents"),
        (np.eye(2), {"observed": "ab"}, "observed"),
        (np.ones((61, 1)), {}, "support"),
    ],
)
def test_wrong_names_and_supports_too_large_to_read_raise(support, names, argument):
    with pytest.raises(InputError) as raised:
        draw_support(support, **names)
    assert raised.value.argument == argument
