"""Checks: can a theorem apply to these data, and do the codes bear it out? Each returns a `Verdict`.

`before` looks at data alone, `after` at a fitted estimator. Every single check is a function of arrays that can be
called by itself, and says what it is blind to.
"""

from pindown.auditing.checks import conditions
from pindown.auditing.checks.assembled import after, before
from pindown.auditing.checks.conditionals import (
    even_conditional,
    lp_conditional,
    matching_model,
    related_partners,
    tail_index,
    vmf_clusters,
    vmf_conditional,
)
from pindown.auditing.checks.dictionaries import (
    conditioned_atoms,
    distinct_atoms,
    rows_for_atoms,
    scattered_codes,
    sparse_combination,
    sparsest_codes,
)
from pindown.auditing.checks.encoders import (
    enough_directions,
    live_codes,
    many_negatives,
    rows_told_apart,
    signal_told,
    unfolded_codes,
)
from pindown.auditing.checks.marginals import uniform_on_body, uniform_on_sphere
from pindown.auditing.checks.nuisances import (
    invariant_codes,
    overlapping_values,
    same_spread,
    surviving_dimensions,
    unconfounded,
)
from pindown.auditing.checks.supports import diverse_support, independent_blocks, sufficient_nonlinearity
from pindown.auditing.checks.values import (
    common_values,
    diverse_values,
    divisible_rows,
    enough_rows,
    enough_values,
    spanned_dimensions,
)
from pindown.auditing.checks.verdict import Estimate, Outcome, Verdict, unchecked

__all__ = [
    "Estimate",
    "Outcome",
    "Verdict",
    "after",
    "before",
    "common_values",
    "conditioned_atoms",
    "conditions",
    "distinct_atoms",
    "diverse_support",
    "diverse_values",
    "divisible_rows",
    "enough_directions",
    "enough_rows",
    "enough_values",
    "even_conditional",
    "independent_blocks",
    "invariant_codes",
    "live_codes",
    "lp_conditional",
    "many_negatives",
    "matching_model",
    "overlapping_values",
    "related_partners",
    "rows_for_atoms",
    "rows_told_apart",
    "same_spread",
    "scattered_codes",
    "signal_told",
    "spanned_dimensions",
    "sparse_combination",
    "sparsest_codes",
    "sufficient_nonlinearity",
    "surviving_dimensions",
    "tail_index",
    "unchecked",
    "unconfounded",
    "unfolded_codes",
    "uniform_on_body",
    "uniform_on_sphere",
    "vmf_clusters",
    "vmf_conditional",
]
