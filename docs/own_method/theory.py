"""Second file: what is promised, and under which assumptions. In pindown it would stand in ``theory.py``."""

from pindown.theory import AFFINE, INJECTIVE_MIXING, OPTIMUM_REACHED, Assumption, Diversity, Theorem

LINEAR_TARGETS = Assumption(
    "linear targets of full rank", "labels", "E[y|z] = B z + c, and the columns of B are linearly independent"
)

# The optimum has W f(x) + b = E[y|x] = B z + c for some W, b. B has a left inverse, so z is affine in the d codes.
REGRESS = Theorem(
    "regress",
    "least squares, argued here",
    side_information="several measurements that are signal",
    assumes=(INJECTIVE_MIXING, LINEAR_TARGETS, OPTIMUM_REACHED),
    indeterminacy=AFFINE,
    promises="The codes are an affine image of the latents.",
    not_promised=("axis alignment", "latents that no target depends on", "targets that bend"),
    diversity=Diversity("d", "linearly independent targets", lambda d, k: d),
)
