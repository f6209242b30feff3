"""What a file may name: a closed table. A file has a short tag; the table says where the tag is defined.

Nothing else is looked up, apart from what the user hands over to `pindown.load`. A class or function that moves, or is
renamed, keeps its tag: change its line here, ``tag=new_name``, and files load forever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from types import FunctionType
from typing import TypeAlias

from sklearn.base import BaseEstimator
from torch import nn

from pindown._names import listed, printable
from pindown.errors import InputError

Named: TypeAlias = "type | FunctionType"  # what a file may name
GROUP = "pindown.methods"  # group of entry points by which packages register their estimators

_BY_MODULE = {
    # Estimators, and the modules and values that they learn
    "pindown.methods.classify.estimator": "Classify ClassifyObjective",
    "pindown.methods.contrast.estimator": "Contrast",
    "pindown.methods.contrast.objective": "PairLoss PairObjective",
    "pindown.methods.dictionary.autoencoder": "DictionaryObjective=Autoencoder",
    "pindown.methods.dictionary.estimator": "Dictionary",
    "pindown.methods.forget.linear_erasure": "MeanProjection=LinearErasure",
    "pindown.methods.forget.adversarial": "Game=AdversarialObjective History Rebuild",
    "pindown.methods.forget.batch_maps": "BatchMaps",
    "pindown.methods.forget.estimator": "Forget",
    "pindown.methods.forget.images": "PatternSum",
    "pindown.methods.forget.mixture": "Mixture",
    "pindown.methods.forget.nuisance": "Column NuisanceReader",
    "pindown.methods.forget.closed_form": "StraightObjective=LinearMap",
    "pindown.methods.forget.approach": "Candidate Choice",
    "pindown.methods.held_out": "HeldOut",
    "pindown.methods.latent_action.body_maps": "BodyChart=BodyMap OwnCharts=BodyMaps SecondStage=BodyRemoval",
    "pindown.methods.latent_action.estimator": "LatentAction",
    "pindown.methods.latent_action.frames": "Flow=OpticalFlow Sight=SlowFeatures",
    "pindown.methods.latent_action.inverse_dynamics": "Axes=PrincipalAxes Dynamics=DynamicsModel InverseDynamics",
    "pindown.methods.sparse.autoencoder": "SparseAutoencoder Seeds sparse_optimizer=adam_by_angle",
    "pindown.methods.sparse.estimator": "Basis Sparse SparseBasis Volume",
    "pindown.methods.sparse.pair": "GatedMap=Mlp PairOfDictionaries=Pair PlainMap=Mlp SparsePair",
    "pindown.methods.transport": "Transport=SlicedTransport",
    "pindown_papers.muon": "muon",
    "pindown_papers.erasers": "ComponentRemoval PerValueStandardiser Untouched",
    "pindown.metrics.dependence": "Confounding",
    "pindown.metrics.invariance": "Leakage ProbeScore",
    "pindown.metrics.structure": "StructureKept",
    "pindown.theory.structure": "Block",
    # Networks and the functions that make them, preprocessing, spaces, gates
    "pindown.networks.encoder": "Backbone Encoder Pretrained",
    "pindown.networks.folding": "Folding",
    "pindown.networks.gates": (
        "BatchTopK BatchTopKModule JumpReLU JumpReLUModule L1 L1Module Matryoshka TopK TopKModule"
    ),
    "pindown.networks.images": (
        "Block2d=ResidualBlock Cosines Swap Synthesis convolutional deconvolutional default_network "
        "resnet18 temporal zero_network"
    ),
    "pindown.networks.preprocessing": (
        "Rescale Whiten centre common_scale default_preprocessing nothing standardise tempered whiten whiten_signal"
    ),
    "pindown.networks.spaces": "Box Reals Sphere",
    "pindown.networks.vectors": "Frame Residual SkipMLP linear mlp residual skip_mlp small_mlp smooth zero_mlp",
    # Penalties and training
    "pindown.losses.penalties": "DependencyCount DependencySparsity",
    "pindown.training.optimizers": "adam constant cosine rivals",
    "pindown.training.trainer": "Trainer",
    "pindown.training.early_stopping": "Phase Rollback StepPlan",
    "torch.nn.functional": "elu leaky_relu relu silu",
}

LAYERS: dict[str, type[nn.Module]] = {
    name: getattr(nn, name)
    for name in (
        *("Linear", "Bilinear", "Embedding", "Conv1d", "Conv2d", "Conv3d"),
        *("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "GroupNorm", "LayerNorm", "BatchNorm1d"),
        *("BatchNorm2d", "InstanceNorm1d", "InstanceNorm2d", "ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "CELU"),
        *("SELU", "GELU", "SiLU", "Mish", "Hardtanh", "Hardswish", "Softplus", "Softsign", "Softmax", "LogSoftmax"),
        *("Sigmoid", "Tanh", "Dropout", "Flatten", "Unflatten", "AvgPool1d", "AvgPool2d", "MaxPool1d", "MaxPool2d"),
        *("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "Upsample"),
        *("PixelShuffle", "PixelUnshuffle", "Identity", "Sequential", "ModuleList"),
    )
}
"""Layers of ``torch.nn`` that a file may hold, by name; their tags start with ``nn.``."""


TABLE = {
    tag: f"{module}:{name or tag}"
    for module, line in _BY_MODULE.items()
    for tag, _, name in (word.partition("=") for word in line.split())
}
"""Tag → ``module:name``."""

TAGS = {address: tag for tag, address in TABLE.items()}

LEFT_OUT = {"Trainer": ("callbacks", "checkpoint")}
"""Fields that are not saved: a file names nothing that a later fit would write to."""

OLD_TAGS = {
    "pindown.estimators.classify:_Objective": "ClassifyObjective",
    "pindown.estimators.contrast:_Objective": "PairObjective",
    "pindown.estimators.dictionary.autoencoder:Autoencoder": "DictionaryObjective",
    "pindown.gates.openings:Jump": "JumpReLUModule",
    "pindown.gates.openings:Largest": "TopKModule",
    "pindown.gates.openings:LargestOfBatch": "BatchTopKModule",
    "pindown.gates.openings:Ramp": "L1Module",
    "pindown.networks.images:suited": "default_network",
    "pindown.networks.preprocessing:beyond_noise": "whiten_signal",
    "pindown.networks.preprocessing:Decorrelate": "Whiten",
    "pindown.networks.preprocessing:evenly": "common_scale",
    "pindown.networks.preprocessing:suited": "default_preprocessing",
    "pindown.networks.vectors:flat": "zero_mlp",
    "pindown.networks.vectors:reader": "small_mlp",
    "pindown.networks.vectors:Unfolded": "SkipMLP",
    "pindown.networks.vectors:unfolded": "skip_mlp",
    "pindown.training.validation:Leg": "Phase",
    "pindown.training.validation:Turn": "Rollback",
    "pindown.training.validation:Way": "StepPlan",
}
"""Names in files of format 1 for what has another tag now; the tag of all others is the last part of their name."""


def is_layer(module: nn.Module) -> bool:
    """Return whether a module is one of `LAYERS`, and not of a class derived from it."""
    return LAYERS.get(type(module).__name__) is type(module)


def is_value(kind: object) -> bool:
    """Return whether a class is one of values: a dataclass that is no estimator, or a named tuple."""
    if not isinstance(kind, type) or issubclass(kind, BaseEstimator):
        return False
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def settings_of(kind: type[nn.Module]) -> set[str]:
    """Return the plain attributes of a module that a file may hold: its annotations and its constructor's arguments."""
    classes = kind.__mro__[: kind.__mro__.index(nn.Module)]
    annotated = {name for each in classes for name in vars(each).get("__annotations__", {})}
    return (annotated | {*signature(kind).parameters}) - {"forward", "training"}


def tag_of(thing: object) -> str | None:
    """Return what a file calls a function or class: its tag, or its address if it is from elsewhere, or None."""
    if not isinstance(thing, type | FunctionType):
        return None
    if thing in LAYERS.values():
        return f"nn.{thing.__name__}"
    address = f"{thing.__module__}:{thing.__qualname__}"
    foreign = _package(address) != "pindown" and _loaded(address) is thing
    return TAGS.get(address, address if foreign else None)


def handed_over(trust: Iterable[Named | nn.Module | str]) -> list[Named | nn.Module]:
    """Return classes, functions and networks that the user hands over; methods that are named are imported."""
    if isinstance(trust, str):
        raise TypeError(f"`trust` must be a list, such as trust=[{trust!r}].")
    things = [_registered(thing) if isinstance(thing, str) else thing for thing in trust]
    if odd := [thing for thing in things if not isinstance(thing, type | FunctionType | nn.Module)]:
        raise TypeError(f"`trust` must hold classes, functions, networks, or names of methods, got {odd[0]!r}.")
    return things


def fetch(tags: Sequence[str], things: Iterable[Named | nn.Module]) -> list[Named]:
    """Return what tags stand for. Raise `InputError` if some are neither in the table nor handed over.

    An estimator that is handed over brings along the networks and values of its package that are imported already.
    """
    handed: dict[str, Named] = {}
    for named in (type(thing) if isinstance(thing, nn.Module) else thing for thing in things):
        # By its name alone, too: the module of a script is called otherwise when it is imported.
        handed |= dict.fromkeys((f"{named.__module__}:{named.__qualname__}", named.__qualname__), named)
    estimators = (named for named in handed.values() if isinstance(named, type) and issubclass(named, BaseEstimator))
    packages = {_package(f"{estimator.__module__}:") for estimator in estimators}

    def look(tag: str) -> Named | None:
        if ":" not in tag:
            return LAYERS.get(tag[3:]) if tag.startswith("nn.") else look_up(tag) if tag in TABLE else None
        thing = handed.get(tag, handed.get(tag.partition(":")[2]))
        near = _loaded(tag) if thing is None and _package(tag) in packages else None
        passive = is_value(near) or (isinstance(near, type) and issubclass(near, nn.Module))
        return near if passive else thing

    found = {tag: look(tag) for tag in tags}
    if missing := [tag for tag, thing in found.items() if thing is None]:
        names = {point.value: repr(point.name) for point in entry_points(group=GROUP)}
        public = [tag for tag in missing if ":_" not in tag] or missing  # private classes come along
        wanted = [names.get(tag) or printable(tag.partition(":")[2]) for tag in public]
        remedy = f"If you know where the file comes from, hand it over: `trust=[{', '.join(wanted)}]`"
        raise InputError("trust", f"it needs {listed(missing)}, which is no part of this version of pindown. {remedy}.")
    return [thing for tag in tags if (thing := found[tag]) is not None]


def look_up(tag: str) -> Named:
    """Return what a tag of the table stands for."""
    module, _, name = TABLE[tag].partition(":")
    return getattr(import_module(module), name)


def _registered(name: str) -> type:
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        known = listed(sorted(points)) or "none"
        raise InputError("trust", f"`trust`: there is no registered method {name!r} ({known}). Hand over the class.")
    return points[name].load()


def _package(address: str) -> str:
    return address.partition(":")[0].partition(".")[0]


def _loaded(address: str) -> Named | None:
    """Return what stands at an address, if it is imported already; unlike getattr, this calls nothing."""
    module, _, qualname = address.partition(":")
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type | FunctionType) and found.__module__ == module else None
