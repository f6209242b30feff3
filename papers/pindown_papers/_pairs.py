"""A row about pairs: a simulation of positives, and the `Contrast` that is fitted to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pindown_papers._experiment import Profile

if TYPE_CHECKING:
    from pindown.methods import Contrast
    from pindown.networks.spaces import Space
    from pindown.simulate import Pairs
    from pindown.simulate.distributions import Conditional, Marginal


@dataclass(frozen=True)
class Size(Profile):
    """How the simulations are made, how the encoder is trained, and how it is scored.

    Parameters
    ----------
    d
        Latent dimensions.
    n_layers
        Layers of the mixing.
    batch_size, max_iter, learning_rate, weight_decay
        Of the fit without supervision.
    hidden
        Widths of the hidden layers of the encoder.
    n_eval
        Held-out samples: maps and matchings are fitted on one half of them and scored on the other.
    """

    d: int
    n_layers: int
    batch_size: int
    max_iter: int
    learning_rate: float
    weight_decay: float
    hidden: tuple[int, ...]
    n_eval: int


@dataclass(frozen=True)
class PairsRow:
    """A simulation, and the space and the norm of the model.

    Parameters
    ----------
    number
        Its place in the table.
    latents, positives
        The simulation in words.
    marginal, conditional
        Its laws.
    space, p
        Where the latents live, and the power of the norm that compares them.
    """

    number: int
    latents: str
    positives: str
    marginal: Callable[[int], Marginal]
    conditional: Callable[[], Conditional]
    space: Callable[[], Space]
    p: int

    def simulation(self, d: int, *, n_layers: int, seed: int) -> Pairs:
        """Build the simulation; rows share the mixing of a seed, as in the paper."""
        from pindown.simulate import Pairs
        from pindown.simulate.mixing import leaky_relu_mlp

        return Pairs(self.marginal(d), self.conditional(), leaky_relu_mlp(d, n_layers=n_layers, random_state=seed))

    def contrast(self, size: Size, seed: int, device: str) -> Contrast:
        """Return the estimator, not yet fitted, which learns the temperature and the density of the latents."""
        from pindown import networks
        from pindown.methods import Contrast
        from pindown.training import Trainer

        return Contrast(
            size.d,
            space=self.space(),
            p=self.p,
            encoder=partial(networks.skip_mlp, hidden=size.hidden),
            batch_size=size.batch_size,
            max_iter=size.max_iter,
            learning_rate=size.learning_rate,
            trainer=Trainer(weight_decay=size.weight_decay),
            device=device,
            random_state=seed,
        )
