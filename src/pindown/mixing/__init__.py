"""Maps g: z → x whose truth is known: networks, sparse maps, and renderers, whose x are pictures.

They hold buffers only, so there is nothing in them to train. Weights are kept in float64 and used in the precision of
their input: a world is the same at every precision. A renderer is a mixing like any other: `Room`, `Sprites` and `Arm`
draw what latents say, with nothing random in them; `contact_sheet` and `traversals` show it.
"""

from pindown.mixing.arm import Arm
from pindown.mixing.factors import Factor
from pindown.mixing.maps import Bend, Leaky, Mixing, SinhArcsinh, identity, leaky_relu_mlp, orthogonal, smooth
from pindown.mixing.renderer import Renderer
from pindown.mixing.room import Room
from pindown.mixing.sheets import (
    contact_sheet,
    film_strip,
    nearest_traversals,
    save_animation,
    save_png,
    swaps,
    thumbnails,
    traversals,
)
from pindown.mixing.sparse_maps import SparseMixing, sparse
from pindown.mixing.sprites import Sprites

__all__ = [
    "Arm",
    "Bend",
    "Factor",
    "Leaky",
    "Mixing",
    "Renderer",
    "Room",
    "SinhArcsinh",
    "SparseMixing",
    "Sprites",
    "contact_sheet",
    "film_strip",
    "identity",
    "leaky_relu_mlp",
    "nearest_traversals",
    "orthogonal",
    "save_animation",
    "save_png",
    "smooth",
    "sparse",
    "swaps",
    "thumbnails",
    "traversals",
]
