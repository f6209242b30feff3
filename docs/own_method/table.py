"""Fourth file: the table, with simulations as rows and what the theory says next to what we measure."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from pindown_papers import Experiment, Profile, Published
from torch import Tensor

from own_method.regress import Regress
from pindown.metrics import linear_r2
from pindown.simulate import Pairs


class GeneratorSource(NamedTuple):
    """Observations, their latents, and measurements."""

    x: Tensor  # (n, d)
    z: Tensor  # (n, d)
    y: Tensor  # (n, n_targets)


def drawn(d: int, *, n_targets: int, n: int, seed: int, part: int = 0) -> GeneratorSource:
    """Draw from world ``seed``: latents on the sphere, three mixing layers, y = B z + noise; parts are independent."""
    world = Pairs.on_sphere(d, 1.0, n_layers=3, random_state=seed)
    weights = torch.randn(n_targets, d, generator=torch.Generator().manual_seed(seed))
    rng = torch.Generator().manual_seed(1_000 + 2 * seed + part)
    x, z, *_ = world.sample(n, random_state=rng)
    return GeneratorSource(x, z, z @ weights.T + 0.5 * torch.randn(n, n_targets, generator=rng))


@dataclass(frozen=True)
class Size(Profile):
    """How large a world, and how long a fit."""

    d: int
    n: int
    max_iter: int


@dataclass(frozen=True)
class Row:
    """A world with so many targets."""

    number: int
    n_targets: int
    published: tuple[Published, ...] = ()

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        return (f"{self.n_targets} targets", "yes" if self.n_targets >= QUICK.d else "no")

    def measure(self, profile: Size, seed: int, device: str) -> dict[str, float]:
        """Train, and score on held-out samples."""
        train, test = (drawn(profile.d, n_targets=self.n_targets, n=profile.n, seed=seed, part=part) for part in (0, 1))
        regress = Regress(profile.d, max_iter=profile.max_iter, device=device, random_state=seed)
        z_hat = regress.fit(train.x, train.y).transform(test.x)
        return {"linear": linear_r2(test.x, test.z), "r2": linear_r2(z_hat, test.z)}


QUICK = Size("quick", seeds=(0,), d=4, n=5_000, max_iter=200)

TARGETS = Experiment(
    name="own/targets",
    title="latents recovered from measurements, R² in %",
    source="Add your own method",
    headings=("simulation", "assumptions hold"),
    scores=(),  # no paper has printed any
    further=("linear", "r2"),
    rows=(Row(1, 8), Row(2, 2)),
    quick=QUICK,
    full=QUICK,
    notes=("Four latents on the sphere, three mixing layers. Chance is an R² of 0.",),
)
