"""Anti-diversity: one cross-entropy with two signs, and actions that are blind to the body that acts.

`SIGNS` is the table of the post "Anti-Diversity is All You Need to Get a Unified Latent Space" as an experiment: a
linear encoder that separates the values of e lands in V = span{v_e − v_e'}, one that hides them in V^⊥. The post has
no numbers, so there are none to compare with. Its other experiments are in `pindown_papers.antidiversity_bodies` and
`pindown_papers.antidiversity_worlds`.

Torch is imported where a simulation is built, not where a table is read.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pindown_papers._experiment import Experiment, Profile, Published

if TYPE_CHECKING:
    import numpy as np

    from pindown.simulate import Nuisance

_UNKNOWN = Published(math.nan)


# One cross-entropy, two signs.


@dataclass(frozen=True)
class Signed(Profile):
    """How many samples, and how long each sign is trained.

    Parameters
    ----------
    n_samples
        Rows to train on.
    align_iter, forget_iter
        Steps of `Classify` and of `Forget`.
    """

    n_samples: int
    align_iter: int
    forget_iter: int


@dataclass(frozen=True)
class SignRow:
    """A simulation of vMF clusters, seen as it is, and a sign of the cross-entropy.

    Parameters
    ----------
    number
        Its place in the table.
    d, n_values
        Dimensions of ã, and values of e.
    aligns
        Whether the encoder minimises the cross-entropy, or else maximises it.
    ratio
        How much more frequent the first value is than each of the others.
    shuffled
        Whether labels are shuffled: then V is not in the data.
    """

    number: int
    d: int
    n_values: int
    aligns: bool
    ratio: float = 1.0
    shuffled: bool = False

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        balance = "labels shuffled" if self.shuffled else "balanced" if self.ratio == 1 else f"{self.ratio:g} : 1"
        sign = "minimise (align)" if self.aligns else "maximise (forget)"
        return f"d = {self.d}, {self.n_values} values", balance, sign, "no" if self.shuffled else "yes"

    @property
    def published(self) -> tuple[Published, ...]:
        """Nothing: the post states a theorem."""
        return (_UNKNOWN, _UNKNOWN)

    def build(self, seed: int) -> Nuisance:
        """Build the simulation: ã itself is observed."""
        from pindown.networks.spaces import Sphere
        from pindown.simulate import Clusters, Nuisance
        from pindown.simulate.distributions import VonMisesFisher
        from pindown.simulate.mixing import identity

        vectors = Sphere().uniform(self.n_values, self.d, random_state=seed)
        weights = (self.ratio, *[1.0] * (self.n_values - 1))
        return Nuisance(Clusters(vectors, VonMisesFisher(10.0), identity(self.d), weights=weights))

    def measure(self, profile: Signed, seed: int, device: str) -> dict[str, float]:
        """Train, and return the angles of the encoder's rows to V and to V^⊥, in hundreds of degrees."""
        import numpy as np

        simulation = self.build(seed)
        sample = simulation.sample(profile.n_samples, random_state=seed + 1)
        assert sample.u is not None
        x, u = sample.x.numpy(), sample.u.numpy()
        if self.shuffled:
            u = np.random.default_rng(seed).permutation(u)
        rows = self.rows(x, u, profile, seed, device)
        along, across = simulation.nuisance_space.numpy(), simulation.complement.numpy()
        means = np.stack([x[u == e].mean(0) for e in range(self.n_values)])
        spanned, rest = _spanned(means - means.mean(0), self.n_values - 1)
        return {
            "to V": _angle(rows, along) / 100,
            "to V⊥": _angle(rows, across) / 100,
            "class means": _angle(spanned, along) / 100 if self.aligns else _angle(rest, across) / 100,
        }

    def rows(self, x: np.ndarray, u: np.ndarray, profile: Signed, seed: int, device: str) -> np.ndarray:
        """Return an orthonormal basis of the rows of a linear encoder trained with this sign, in columns."""
        import numpy as np

        from pindown import networks
        from pindown.methods import Classify, Forget
        from pindown.networks.spaces import Reals
        from pindown.training import Trainer

        common: dict[str, Any] = {"encoder": networks.linear, "device": device, "random_state": seed, "verbose": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of shuffled labels, of which a row is made on purpose
            if not self.aligns:
                n_kept = self.d - self.n_values + 1
                forget = Forget(n_kept, max_iter=profile.forget_iter, trainer=Trainer(validation_fraction=0), **common)
                return forget.fit(x, u).components_.T
            free: dict[str, Any] = {"space": Reals(), "vector_space": Reals(), "trainer": Trainer(weight_decay=0.0)}
            classify = Classify(self.n_values - 1, max_iter=profile.align_iter, **free, **common).fit(x, u)
        # The linear part of the encoder, from its latents: they are those of the axes, less that of the origin.
        codes = classify.transform(np.vstack([np.eye(self.d), np.zeros((1, self.d))]))
        return np.linalg.qr(codes[:-1] - codes[-1]).Q  # (d, n_values − 1)


def _spanned(vectors: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bases, in columns, of the leading directions of some vectors (in rows) and of the rest."""
    import numpy as np

    directions = np.linalg.svd(vectors, full_matrices=True)[2].T
    return directions[:, :rank], directions[:, rank:]


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest principal angle between the spans of columns, in degrees."""
    import numpy as np
    from scipy.linalg import subspace_angles

    return float(np.degrees(subspace_angles(a, b).max()))


_WORLDS: tuple[dict[str, Any], ...] = (
    {"d": 8, "n_values": 4},
    {"d": 16, "n_values": 6},
    {"d": 8, "n_values": 4, "ratio": 10.0},
    {"d": 8, "n_values": 4, "shuffled": True},
)

SIGNS = Experiment(
    name="antidiversity/signs",
    title="where two signs of one loss lead, in degrees",
    source="Anti-diversity",
    headings=("simulation", "values of e", "cross-entropy", "assumptions hold"),
    scores=("to V", "to V⊥"),
    further=("class means",),
    rows=tuple(
        SignRow(number, aligns=aligns, **simulation)
        for number, (simulation, aligns) in enumerate(((w, a) for w in _WORLDS for a in (True, False)), start=1)
    ),
    quick=Signed("quick", (0, 1, 2, 3, 4), n_samples=20_000, align_iter=1_000, forget_iter=600),
    full=Signed("full", (0, 1, 2, 3, 4), n_samples=200_000, align_iter=10_000, forget_iter=5_000),
    notes=(
        "Largest principal angle, in degrees, between the row space of the encoder and V = span{v_e − v_e'}, and its"
        " complement. Where the sign is right, one is near 0 and the other 90.",
        "vMF clusters, κ = 10, observed as they are. The encoder that aligns has dim V rows, the one that forgets"
        " d − dim V.",
        "class means: the angle of the closed form, the span of differences of class means (align) or its complement"
        " (forget), to what it estimates. It is what these samples allow.",
        "Shuffled labels say nothing of V: the last two rows are the control. With nothing to hide, the encoder that"
        " forgets keeps the directions of largest variance, and V is among them.",
    ),
)

EXPERIMENTS = (SIGNS,)
