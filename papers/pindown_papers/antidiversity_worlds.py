"""What `Forget` hides and keeps in simulations with known latents, next to the erasers it is compared with.

The post "Anti-Diversity is All You Need to Get a Unified Latent Space" states a theorem and has no numbers; these are
the simulations of its theorem (linear encoder, vMF clusters), and two in which closed forms must leak: equal means with
different spreads, and clusters behind a nonlinear mixing.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pindown_papers._experiment import EVALUATION_SEEDS, Experiment, Profile, Published

if TYPE_CHECKING:
    import numpy as np

    from pindown.methods import Forget
    from pindown.simulate import Nuisance, Sample
    from pindown_papers.simulations import ShapeNuisance

KAPPA = 10.0


@dataclass(frozen=True)
class Hidden(Profile):
    """How many rows to train on and to audit, and for how many steps.

    Parameters
    ----------
    n_samples, n_eval
        Rows to train on, and held-out rows to audit.
    max_iter
        Steps of `Forget`; all else is its default.
    """

    n_samples: int
    n_eval: int
    max_iter: int


@dataclass(frozen=True)
class WorldRow:
    """A simulation with a nuisance.

    Parameters
    ----------
    number
        Its place in the table.
    d, n_values
        Observed variables, and values of the nuisance.
    n_layers
        Of the mixing; one is linear, and so is the encoder then.
    ratio
        How much more frequent the first value is than each of the others.
    n_spread
        If not 0, the nuisance changes the spread of so many dimensions, and no mean; else it moves vMF clusters.
    """

    number: int
    d: int
    n_values: int
    n_layers: int = 1
    ratio: float = 1.0
    n_spread: int = 0

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        differs = "spreads" if self.n_spread else "means" if self.ratio == 1 else f"means, {self.ratio:g} : 1"
        mixing = "linear" if self.n_layers == 1 else f"{self.n_layers} layers"
        return f"d = {self.d}, {self.n_values} values", differs, mixing

    @property
    def published(self) -> tuple[Published, ...]:
        """Nothing: the post states a theorem."""
        return (Published(math.nan),) * len(WORLDS.scores)

    def build(self, seed: int) -> Nuisance | ShapeNuisance:
        """Build the simulation."""
        from pindown.simulate import Nuisance
        from pindown_papers.simulations import ShapeNuisance

        if self.n_spread:
            return ShapeNuisance.spread(self.d, self.n_spread, self.n_values, n_layers=self.n_layers, random_state=seed)
        weights = (self.ratio, *[1.0] * (self.n_values - 1))
        return Nuisance.on_sphere(
            self.d, self.n_values, KAPPA, n_layers=self.n_layers, weights=weights, random_state=seed
        )

    def measure(self, profile: Hidden, seed: int, device: str) -> dict[str, float]:
        """Train, and audit latents and what erasers leave, all of held-out rows; degrees and seconds in hundreds."""
        import numpy as np

        from pindown.metrics import Effort, effective_rank, leakage, recovery_by_level

        simulation = self.build(seed)
        train = simulation.sample(profile.n_samples, random_state=seed + 1)
        test = simulation.sample(profile.n_eval, random_state=EVALUATION_SEEDS + seed)
        assert test.u is not None
        e = test.u.numpy()
        forget, seconds = self.fitted(train, profile, seed, device)
        codes = forget.transform(test.x.numpy())

        def told(codes: np.ndarray) -> float:
            return leakage(codes, e, effort=Effort(n_seeds=1, n_permutations=19), random_state=seed).worst

        def kept(codes: np.ndarray) -> float:
            return min(recovery_by_level(codes, test.z, e, random_state=seed).values())

        floor = told(test.z.numpy())
        scores = {
            "above floor": told(codes) - floor,
            "recovery": kept(codes),
            "recovery beside w": kept(np.hstack([codes, _touched(simulation, test)])),
            "recovery from x": kept(test.x.numpy()),
            "dimensions filled": effective_rank(codes) / codes.shape[1],
            "floor": floor - 1 / self.n_values,
            "fit, s": seconds / 100,
        }
        erased = _erased(train, test)
        for name, left in erased.items():
            scores[name] = told(left) - floor
        scores["recovery from class means"] = kept(erased["class means"])
        return scores | (self.angles(simulation, train, forget) if self.n_layers == 1 else {})

    def fitted(self, train: Sample, profile: Hidden, seed: int, device: str) -> tuple[Forget, float]:
        """Train, and say how many seconds it took."""
        from pindown import networks
        from pindown.errors import IdentifiabilityWarning
        from pindown.methods import Forget

        forget = Forget(
            encoder=networks.linear if self.n_layers == 1 else networks.skip_mlp,
            max_iter=profile.max_iter,
            device=device,
            verbose=False,
            random_state=seed,
        )
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)  # what leaks is what the table says
            forget.fit(train.x.numpy(), train.u)
        return forget, time.monotonic() - start

    def angles(self, simulation: Nuisance | ShapeNuisance, train: Sample, forget: Forget) -> dict[str, float]:
        """Return the largest angle between the rows and those of an invariant encoder, in hundreds of degrees."""
        import numpy as np
        from scipy.linalg import subspace_angles

        from pindown.methods.forget import LinearErasure

        rows = {"angle": forget.components_}
        if not self.n_spread:
            rows["angle, means"] = LinearErasure().fit(train.x.numpy(), train.u).components_
        blind = simulation.invariant_space.numpy()
        return {name: float(np.degrees(subspace_angles(some.T, blind).max())) / 100 for name, some in rows.items()}


def _touched(simulation: Nuisance | ShapeNuisance, sample: Sample) -> np.ndarray:
    """Return w, the coordinates of ã that the nuisance touches."""
    from pindown.simulate.mixing import InvertibleNetwork
    from pindown_papers.simulations import ShapeNuisance

    mixing = simulation.mixing if isinstance(simulation, ShapeNuisance) else simulation.clusters.mixing
    assert isinstance(mixing, InvertibleNetwork), "the table's simulations are no pictures"
    a = mixing.inverse(sample.x).numpy()
    return a[:, simulation.d :] if isinstance(simulation, ShapeNuisance) else a @ simulation.nuisance_space.numpy()


def _erased(train: Sample, test: Sample) -> dict[str, np.ndarray]:
    """Return what erasers leave of held-out rows."""
    from pindown.methods.forget import LinearErasure
    from pindown_papers.erasers import Leace, PerValueStandardiser

    x, e, seen = train.x.numpy(), train.u, test.x.numpy()
    left = {
        "class means": LinearErasure().fit(x, e).transform(seen),
        "own mean and spread": PerValueStandardiser().fit(x, e).transform(seen, test.u),
        "nothing": seen,
    }
    if find_spec("concept_erasure"):
        left["LEACE"] = Leace().fit(x, e).transform(seen)
    return left


WORLDS = Experiment(
    name="antidiversity/worlds",
    title="what Forget hides and keeps, in %",
    source="Anti-diversity",
    headings=("simulation", "values differ in", "mixing"),
    scores=("above floor", "recovery"),
    further=(
        "recovery beside w",
        "recovery from x",
        "recovery from class means",
        "dimensions filled",
        "floor",
        "class means",
        "LEACE",
        "own mean and spread",
        "nothing",
        "angle",
        "angle, means",
        "fit, s",
    ),
    rows=(
        WorldRow(1, 8, 4),
        WorldRow(2, 16, 6),
        WorldRow(3, 8, 4, ratio=10.0),
        WorldRow(4, 8, 3, n_spread=3),
        WorldRow(5, 5, 2, n_layers=2),
        WorldRow(6, 6, 3, n_layers=2),
        WorldRow(7, 8, 4, n_layers=2),
    ),
    quick=Hidden("quick", (0, 1, 2, 3, 4), n_samples=20_000, n_eval=12_000, max_iter=2_000),
    full=Hidden("full", (0, 1, 2, 3, 4), n_samples=200_000, n_eval=20_000, max_iter=20_000),
    notes=(
        "above floor: balanced accuracy of the worst of six families of probes that predict the nuisance from the"
        " latents, less that of the worst on the true latents, which are independent of it; floor: the latter, less"
        " chance. class means, LEACE, own mean and spread (which is given the nuisance), nothing: the same for what"
        " these erasers leave of the data. LEACE needs the extra erasure.",
        "recovery: R² of a nonlinear regression from latents to the true latents within a value of the nuisance, the"
        " worst value's; beside w: from latents and the true coordinates that the nuisance touches, together, so that"
        " what is missing without these is not lost but entangled; from x: from the data, which hold all latents, so"
        " that what is missing there is the regression's; from class means: from what the closed form leaves."
        " dimensions filled: effective rank of the latents, as a fraction of their number.",
        "angle: the largest, in degrees, between the rows of a linear encoder and those of an invariant one; means: of"
        " the closed form, the complement of the differences of class means.",
        "vMF clusters have κ = 10. Linear mixings have encoder=networks.linear; all else is the default of Forget. All"
        " scores are of held-out samples. Settings were chosen on seeds 10 and above; the full profile was never run.",
    ),
)

EXPERIMENTS = (WORLDS,)
