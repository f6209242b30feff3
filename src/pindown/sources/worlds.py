"""`World`: rows that a world of `pindown.processes` draws, new whenever they are asked for."""

from __future__ import annotations

import torch

from pindown.processes import Process
from pindown.sources.source import Batch, Drawn


class World(Drawn):
    """Fresh samples of a world, on the device of the generator: what can be observed of them, and nothing else.

    Partners are ``pairs``, a label beside the nuisance is ``given``, and the world says what its u is.
    Drawing waits for no device, so that a CUDA graph can capture it.

    Parameters
    ----------
    process : Process
        The world.

    Examples
    --------
    >>> from pindown.processes import Clusters
    >>> source = World(Clusters.on_sphere(3, 5, 10.0, random_state=0))
    >>> source.shape, source.n_rows
    ((3,), None)
    >>> batch = source.draw(4, torch.Generator().manual_seed(0))
    >>> {name: tuple(part.shape) for name, part in batch.items()}
    {'x': (4, 3), 'signal': (4,)}
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.shape = tuple(process.sample(1, random_state=0).x.shape[1:])

    def __repr__(self) -> str:
        return repr(self.process)

    def draw(self, n_rows: int, generator: torch.Generator) -> Batch:
        """Return so many new rows, and what belongs to them, by role."""
        sample = self.process.sample(n_rows, random_state=generator, device=generator.device)
        sides = {"pairs": sample.x_pos, self.process.role_of_u or "y": sample.u, "given": sample.label}
        return {"x": sample.x, **{role: side for role, side in sides.items() if side is not None}}
