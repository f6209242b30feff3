"""Conditions of practice: no theorem states them, since each speaks of unlimited data and the best encoder."""

from pindown.theory import Assumption

ENOUGH_ROWS = Assumption("enough samples", "model", "there are many more samples than latents, and several per value")
DIVISIBLE_ROWS = Assumption("rows to audit", "model",
    "there are rows enough, and groups of rows, to hold some out and to halve the rest")  # fmt: skip
COMMON_VALUES = Assumption("common values", "labels", "every value of the nuisance has rows enough to be compared")
RELATED_PARTNERS = Assumption("related partners", "conditional", "partners depend on each other: κ > 0, or λ > 0")
OVERLAPPING_VALUES = Assumption("overlapping values", "conditional",
    "samples of different values of the nuisance look alike now and then, as vMF laws do; where they never do, nothing"
    " says which latent of one value is which of another")  # fmt: skip
UNFOLDED_CODES = Assumption("unfolded codes", "model",
    "different latents have different codes, as they have at the optimum")  # fmt: skip
SIGNAL_TOLD = Assumption("signal told by the codes", "model",
    "codes tell what is signal in X: h = f∘g is injective, and no latent was left out")  # fmt: skip
INVARIANT_CODES = Assumption("invariant codes", "model", "ẑ ⟂ e: no reader tells the nuisance from the codes")
DISTINCT_ATOMS = Assumption("distinct atoms", "model", "no atom of a dictionary lies beside another")
CONDITIONED_ATOMS = Assumption("independent active atoms", "model", "atoms that fire together are far from dependent")
