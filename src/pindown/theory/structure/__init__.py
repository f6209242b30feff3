"""Structure: which latent reaches which observed variable, and what that alone decides; numpy and scipy only.

>>> S = generators.diverse(6, 3, random_state=0)
>>> is_diverse(S), [sorted(block.latents) for block in identified_blocks(S)]
(True, [[0], [1], [2]])
"""

from pindown.theory.structure import generators
from pindown.theory.structure.conditions import Condition, LatentDiversity, Witness, diversity, is_diverse
from pindown.theory.structure.drawing import draw
from pindown.theory.structure.sets import (
    Block,
    Parts,
    as_support,
    atomic_regions,
    identified_blocks,
    index_set,
    parts,
    splitting_variables,
)

__all__ = [
    "Block",
    "Condition",
    "LatentDiversity",
    "Parts",
    "Witness",
    "as_support",
    "atomic_regions",
    "diversity",
    "draw",
    "generators",
    "identified_blocks",
    "index_set",
    "is_diverse",
    "parts",
    "splitting_variables",
]
