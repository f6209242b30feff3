"""A row of Reizinger et al.: a simulation of clusters, and what `Classify` makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import gamma
from typing import TYPE_CHECKING

from pindown_papers._experiment import EVALUATION_SEEDS, Profile, Published
from pindown_papers._laws import projected_laplace, projected_normal, vmf

if TYPE_CHECKING:
    from torch import Tensor

    from pindown.methods import Classify
    from pindown.simulate import Clusters
    from pindown.simulate.distributions import Conditional
    from pindown.simulate.mixing import InvertibleNetwork
    from pindown.training.optimizers import MakeOptimizer
    from pindown_papers.simulations import Instances

_N_POSTERIOR = 2_048  # samples at which the posterior is compared: a mean over classes at each needs no more


VMF_10 = partial(vmf, 10.0)


# Class vectors, (n, d).


def uniform(n: int, d: int, seed: int) -> Tensor:
    """Draw from the uniform law on the sphere."""
    import torch

    from pindown.networks.spaces import Sphere

    return Sphere().uniform(n, d, random_state=seed, dtype=torch.float64)


def around_axis(shape: float, n: int, d: int, seed: int) -> Tensor:
    """Draw from Laplace (1) or normal (2) noise of scale or standard deviation 1 around the first axis, projected."""
    import torch

    from pindown.simulate.distributions import Around

    law = projected_laplace(1.0) if shape == 1 else projected_normal(1.0)
    return Around((1.0,) + (0.0,) * (d - 1), law).sample(n, random_state=seed, dtype=torch.float64)


def in_plane(n: int, d: int, seed: int) -> Tensor:
    """Draw from the uniform law, and move the vectors into one hyperplane through the origin."""
    from pindown_papers.simulations import in_hyperplane

    return in_hyperplane(uniform(n, d, seed), offset=0.0)


@dataclass(frozen=True)
class ClusterSetting:
    """A simulation of the paper; that of its first row unless said otherwise.

    Parameters
    ----------
    d, n_classes
        Latent dimensions and classes.
    n_instances
        Instances that serve as labels; None takes the classes.
    conditional
        Law of the latents around their class vector.
    class_vectors
        Called as ``class_vectors(n_classes, d, seed)``.
    """

    d: int = 5
    n_classes: int = 100
    n_instances: int | None = 1_000
    conditional: Callable[[], Conditional] = VMF_10
    class_vectors: Callable[[int, int, int], Tensor] = uniform

    def build(self, *, n_layers: int, most_instances: int, seed: int) -> Clusters | Instances:
        """Build the simulation; simulations of one dimension share the mixing of a seed."""
        from pindown.simulate import Clusters
        from pindown_papers.simulations import Instances

        vectors = self.class_vectors(self.n_classes, self.d, seed)
        clusters = Clusters(vectors, self.conditional(), _mixing(self.d, n_layers, seed))
        return clusters if self.n_instances is None else Instances(clusters, min(self.n_instances, most_instances))


@lru_cache(maxsize=16)
def _mixing(d: int, n_layers: int, seed: int) -> InvertibleNetwork:
    from pindown.simulate.mixing import leaky_relu_mlp

    return leaky_relu_mlp(d, n_layers=n_layers, random_state=seed)


@dataclass(frozen=True)
class Model:
    """What is kept at unit length: latents and class vectors alike, or neither."""

    name: str
    unit: bool


UNIT, FREE = Model("unit", unit=True), Model("free", unit=False)


@dataclass(frozen=True)
class Recipe(Profile):
    """How the simulations are mixed, how encoders are trained, and how they are scored.

    Parameters
    ----------
    n_layers
        Layers of the mixing.
    batch_size, max_iter, learning_rate, weight_decay, optimizer
        Of the fit.
    width, n_blocks
        Of the residual encoder.
    most_instances
        A simulation with more is cut down to so many.
    n_eval
        Held-out samples: a linear map is fitted on one half of them and scored on the other.
    """

    n_layers: int
    batch_size: int
    max_iter: int
    learning_rate: float
    weight_decay: float
    optimizer: MakeOptimizer
    width: int
    n_blocks: int
    most_instances: int
    n_eval: int


def published(*percent: float) -> tuple[Published, ...]:
    """Return the paper's numbers; NaN for those that we do not know."""
    return tuple(map(Published, percent))


@dataclass(frozen=True)
class Row:
    """A row of a table, or a point of a figure.

    Parameters
    ----------
    number
        Its place.
    cells
        The simulation in the paper's words, under all headings but the last.
    simulation
        Where latents and labels come from.
    assumptions_hold
        Whether the theorems may be applied to it.
    models
        What is fitted.
    published
        The paper's scores.
    batch_size
        Where it is the batch that is varied: instead of the recipe's.
    """

    number: int
    cells: tuple[str, ...]
    simulation: ClusterSetting
    assumptions_hold: bool
    models: tuple[Model, ...]
    published: tuple[Published, ...]
    batch_size: int | None = None

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        return (*self.cells, "yes" if self.assumptions_hold else "no")

    def estimator(self, model: Model, profile: Recipe, seed: int, device: str) -> Classify:
        """Return the estimator of a model, not yet fitted."""
        from pindown import networks
        from pindown.methods import Classify
        from pindown.networks.spaces import Reals, Sphere
        from pindown.training import Trainer

        space = Sphere() if model.unit else Reals()
        return Classify(
            self.simulation.d,
            space=space,
            vector_space=space,
            encoder=partial(networks.residual, width=profile.width, n_blocks=profile.n_blocks),
            batch_size=self.batch_size or profile.batch_size,
            max_iter=profile.max_iter,
            learning_rate=profile.learning_rate,
            trainer=Trainer(weight_decay=profile.weight_decay, optimizer=profile.optimizer),
            device=device,
            random_state=seed,
        )

    def measure(self, profile: Recipe, seed: int, device: str) -> dict[str, float]:
        """Train each model on fresh samples, and score it on others."""
        from pindown.metrics import linear_r2

        simulation = self.simulation.build(n_layers=profile.n_layers, most_instances=profile.most_instances, seed=seed)
        held_out = simulation.sample(profile.n_eval, random_state=EVALUATION_SEEDS + seed)
        scores = {"linear": linear_r2(held_out.x, held_out.z)} | _spread(simulation)
        n_warned = 0
        for model in self.models:
            classify = self.estimator(model, profile, seed, device)
            n_warned += _warns(partial(classify.fit_process, simulation))
            found = _scores(classify, simulation, held_out.x, held_out.z)
            scores |= {f"{model.name} {name}": value for name, value in found.items()}
        return scores | {"warned": n_warned / len(self.models)}


def _warns(fit: Callable[[], object]) -> bool:
    """Fit, and say whether that warned that the theorems do not apply; other warnings pass."""
    from pindown.errors import IdentifiabilityWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IdentifiabilityWarning)
        fit()
    others = [w for w in caught if not issubclass(w.category, IdentifiabilityWarning)]
    for other in others:
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return len(others) < len(caught)


def _scores(classify: Classify, simulation: Clusters | Instances, x: Tensor, z: Tensor) -> dict[str, float]:
    """Return what a fit recovers: latents, class vectors, the posterior, and with unit latents the angles."""
    import torch

    from pindown.metrics import linear_r2
    from pindown.networks.spaces import Sphere
    from pindown_papers.orthogonality import orthogonality_error

    z_hat = classify.transform(x)
    scores = {"z": linear_r2(z_hat, z)}
    if len(classify.classes_) >= 2 * (classify.n_components + 3):  # the fewest that linear_r2 can hold half of out
        scores["w"] = linear_r2(classify.class_vectors_, simulation.vectors)
    if classify.space == Sphere():
        # The paper's latents are free, and their length is the concentration: ours is the scale.
        target = _inverse_concentration(simulation)
        scores["MAE"] = orthogonality_error(classify.scale_ * z_hat, z, target=target).absolute
    with torch.inference_mode():
        scores["excess"] = _excess(classify, simulation, z_hat[:_N_POSTERIOR], z[:_N_POSTERIOR])
    return scores


def _law(simulation: Clusters | Instances) -> Conditional:
    from pindown_papers.simulations import Instances

    return (simulation.clusters if isinstance(simulation, Instances) else simulation).conditional


def _inverse_concentration(simulation: Clusters | Instances) -> float | None:
    from pindown.simulate.distributions import VonMisesFisher

    law = _law(simulation)
    return 1 / law.concentration if isinstance(law, VonMisesFisher) else None


def _spread(simulation: Clusters | Instances) -> dict[str, float]:
    """Mean absolute value of the noise in one dimension, s Γ(2/β)/Γ(1/β), where it is projected onto the sphere."""
    from pindown_papers.simulations import Projected

    law = _law(simulation)
    if not isinstance(law, Projected):
        return {}
    return {"spread": law.base.scale * gamma(2 / law.base.shape) / gamma(1 / law.base.shape)}


def _excess(classify: Classify, simulation: Clusters | Instances, z_hat: Tensor, z: Tensor) -> float:
    """Mean Kullback–Leibler divergence of the fit's posterior from the true one, in nats.

    Its mean over z is the cross-entropy of the fit less that of the best classifier, with far less noise than the
    difference of both on samples of the label.
    """
    import torch

    from pindown_papers.simulations import log_posterior

    vectors = torch.as_tensor(classify.class_vectors_).to(z_hat)
    total = 0.0
    for code, latent in zip(z_hat.split(128), z.split(128), strict=True):  # instances may be many
        truth = log_posterior(simulation, latent)
        fit = (classify.scale_ * code @ vectors.T).log_softmax(1)
        total += (truth.exp() * (truth - fit)).sum().item()
    return total / len(z)
