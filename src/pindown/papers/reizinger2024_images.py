"""Classification on pictures: a category is told, and continuous factors are read off linearly.

After the image experiments of Reizinger et al. (2024), on rooms of ours: their sets cannot be had here, and no number
of theirs is printed beside ours.

Torch is imported where a world is built, not where the table is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pindown.papers._experiment import EVALUATION_SEEDS, Experiment, Published
from pindown.papers.zimmermann2021_images import Size

if TYPE_CHECKING:
    from pindown.processes import Clusters

FACTORS = ("floor_hue", "wall_hue", "object_hue", "size", "azimuth")


@dataclass(frozen=True)
class Row:
    """How many classes there are, and how many latents their vectors span."""

    number: int
    n_classes: int
    n_spanned: int
    published: tuple[Published, ...] = ()

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        covered = "all five" if self.n_spanned == len(FACTORS) else ", ".join(FACTORS[: self.n_spanned])
        return str(self.n_classes), covered.replace("_", " ")

    def world(self, pixels: int, seed: int) -> Clusters:
        """Return rooms whose latents lie in clusters on the sphere."""
        import torch

        from pindown.distributions import VonMisesFisher
        from pindown.mixing import Room
        from pindown.processes import Clusters
        from pindown.spaces import Sphere

        vectors = torch.zeros(self.n_classes, len(FACTORS))
        rng = torch.Generator().manual_seed(seed)
        vectors[:, : self.n_spanned] = torch.randn(self.n_classes, self.n_spanned, generator=rng)
        room = Room(pixels, factors=FACTORS, fixed={"shape": 0}, samples=1, domain=Sphere())
        return Clusters(Sphere()(vectors), VonMisesFisher(10.0), room)

    def measure(self, profile: Size, seed: int, device: str) -> dict[str, float]:
        """Train, and read each factor off the codes of held-out pictures; as Pearson's r."""
        from pindown.estimators import Classify
        from pindown.metrics import linear_r2

        world = self.world(profile.pixels, seed)
        how: dict[str, Any] = {
            "batch_size": profile.batch_size,
            "max_iter": profile.max_iter,
            "device": device,
            "random_state": seed,
        }
        est = Classify(len(FACTORS), **how).fit_process(world)
        held_out = world.sample(profile.n_eval, random_state=EVALUATION_SEEDS + seed)
        z_hat = est.transform(held_out.x)
        r2 = [float(linear_r2(z_hat, held_out.z[:, [j]])) for j in range(len(FACTORS))]
        return {name.replace("_", " "): max(0.0, value) ** 0.5 for name, value in zip(FACTORS, r2, strict=True)}


PICTURES = Experiment(
    name="reizinger2024/pictures",
    title="rooms: factors read off categories, r in %",
    source="After Reizinger et al. 2024, image experiments",
    headings=("classes", "spanned by class vectors"),
    scores=(),
    beside=tuple(name.replace("_", " ") for name in FACTORS),
    rows=(Row(1, 20, 5), Row(2, 100, 5), Row(3, 20, 3)),
    quick=Size("quick", (0,), pixels=16, batch_size=512, max_iter=500, n_eval=4_000),
    full=Size("full", (0, 1, 2), pixels=64, batch_size=512, max_iter=2_000, n_eval=5_000),
    notes=(
        "The paper's image sets cannot be had here: these are rooms of ours, and its scores stand elsewhere.",
        "The theorem covers what class vectors span. Of the third row they say nothing of size and azimuth.",
        "Of the full profile, seed 0 of rows 1 and 3 is in `benchmarks/pictures.py`; the others were not run.",
    ),
)

EXPERIMENTS = (PICTURES,)
