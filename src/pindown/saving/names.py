"""Functions and classes in a file: written as ``module:qualname``, and fetched only from where it is allowed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import nn

from pindown.saving.layers import LAYERS

MOVED: dict[str, str] = {
    "pindown.estimators.classify:Classify": "pindown.methods.classify.estimator:Classify",
    "pindown.estimators.classify:_Objective": "pindown.methods.classify.estimator:_Objective",
    "pindown.estimators.contrast:Contrast": "pindown.methods.contrast.estimator:Contrast",
    "pindown.estimators.contrast:_Objective": "pindown.methods.contrast.objective:PairObjective",
    "pindown.estimators.dictionary.autoencoder:Autoencoder": "pindown.methods.dictionary.autoencoder:Autoencoder",
    "pindown.estimators.dictionary.estimator:Dictionary": "pindown.methods.dictionary.estimator:Dictionary",
    "pindown.estimators.erasers:ComponentRemoval": "pindown.methods.forget.baselines:ComponentRemoval",
    "pindown.estimators.erasers:MeanProjection": "pindown.methods.forget.baselines:MeanProjection",
    "pindown.estimators.erasers:PerValueStandardiser": "pindown.methods.forget.baselines:PerValueStandardiser",
    "pindown.estimators.forget.estimator:Forget": "pindown.methods.forget.estimator:Forget",
    "pindown.estimators.forget.game:Game": "pindown.methods.forget.game:Game",
    "pindown.estimators.forget.game:History": "pindown.methods.forget.game:History",
    "pindown.estimators.forget.game:Rebuild": "pindown.methods.forget.game:Rebuild",
    "pindown.estimators.forget.nuisance:Column": "pindown.methods.forget.nuisance:Column",
    "pindown.estimators.latent_action.dynamics:Axes": "pindown.methods.latent_action.dynamics:Axes",
    "pindown.estimators.latent_action.dynamics:Dynamics": "pindown.methods.latent_action.dynamics:Dynamics",
    "pindown.estimators.latent_action.estimator:InverseDynamics": (
        "pindown.methods.latent_action.inverse:InverseDynamics"
    ),
    "pindown.estimators.latent_action.estimator:LatentAction": "pindown.methods.latent_action.estimator:LatentAction",
    "pindown.methods.contrast.estimator:_Objective": "pindown.methods.contrast.objective:PairObjective",
    "pindown.methods.latent_action.estimator:InverseDynamics": (
        "pindown.methods.latent_action.inverse:InverseDynamics"
    ),
    "pindown.networks.vectors:Unfolded": "pindown.networks.vectors:SkipMLP",
    "pindown.networks.vectors:flat": "pindown.networks.vectors:zero_mlp",
    "pindown.networks.vectors:reader": "pindown.networks.vectors:small_mlp",
    "pindown.networks.vectors:unfolded": "pindown.networks.vectors:skip_mlp",
    "pindown.estimators.encoding:Encoder": "pindown.networks.encoder:Encoder",
    "pindown.networks.bijections:Bijection": "pindown_papers.baselines.bijections:Bijection",
    "pindown.networks.bijections:couplings": "pindown_papers.baselines.bijections:couplings",
    "pindown.networks.bijections:splines": "pindown_papers.baselines.bijections:splines",
    "pindown.networks.building:Backbone": "pindown.networks.encoder:Backbone",
    "pindown.networks.building:Pretrained": "pindown.networks.encoder:Pretrained",
    "pindown.networks.denoising:Denoiser": "pindown_papers.baselines.denoising:Denoiser",
    "pindown.networks.denoising:denoising": "pindown_papers.baselines.denoising:denoising",
    "pindown.networks.first_layers:Decorrelate": "pindown.networks.preprocessing:Whiten",
    "pindown.networks.first_layers:Rescale": "pindown.networks.preprocessing:Rescale",
    "pindown.networks.first_layers:Whiten": "pindown.networks.preprocessing:Whiten",
    "pindown.networks.images:Painted": "pindown.methods.forget.images:PatternSum",
    "pindown.networks.images:level": "pindown.networks.images:zero_network",
    "pindown.networks.images:suited": "pindown.networks.images:default_network",
    "pindown.networks.preprocessing:beyond_noise": "pindown.networks.preprocessing:whiten_signal",
    "pindown.networks.preprocessing:evenly": "pindown.networks.preprocessing:common_scale",
    "pindown.networks.preprocessing:suited": "pindown.networks.preprocessing:default_preprocessing",
    "pindown.networks.resnet:Block": "pindown.networks.images:Block",
    "pindown.networks.resnet:resnet18": "pindown.networks.images:resnet18",
    "pindown.folding:Folding": "pindown.networks.folding:Folding",
    "pindown.gates:BatchTopK": "pindown.networks.gates:BatchTopK",
    "pindown.gates:JumpReLU": "pindown.networks.gates:JumpReLU",
    "pindown.gates:L1": "pindown.networks.gates:L1",
    "pindown.gates:Matryoshka": "pindown.networks.gates:Matryoshka",
    "pindown.gates:TopK": "pindown.networks.gates:TopK",
    "pindown.gates.openings:Largest": "pindown.networks.gates:TopKModule",
    "pindown.gates.openings:LargestOfBatch": "pindown.networks.gates:BatchTopKModule",
    "pindown.gates.openings:Ramp": "pindown.networks.gates:L1Module",
    "pindown.gates.openings:Jump": "pindown.networks.gates:JumpReLUModule",
    "pindown.penalties.weighted:DependencyCount": "pindown.losses.penalties:DependencyCount",
    "pindown.penalties.weighted:DependencySparsity": "pindown.losses.penalties:DependencySparsity",
    "pindown.penalties.weighted:HessianPenalty": "pindown_papers.penalties:HessianPenalty",
    "pindown.penalties.weighted:LatentSparsity": "pindown_papers.penalties:LatentSparsity",
    "pindown.penalties.weighted:OroJAR": "pindown_papers.penalties:OroJAR",
    "pindown.spaces:Box": "pindown.networks.spaces:Box",
    "pindown.spaces:Reals": "pindown.networks.spaces:Reals",
    "pindown.spaces:Sphere": "pindown.networks.spaces:Sphere",
    "pindown.structure.sets:Block": "pindown.theory.structure:Block",
    "pindown.theory:BIJECTION_PER_VALUE": "pindown.theory:BIJECTION_PER_LEVEL",
    "pindown.theory:CLASSIFY_UNIT_CODES": "pindown.theory:CLASSIFY_UNIT_FEATURES",
    "pindown.theory:COLUMN_NOISE": "pindown.theory:FEATURE_NOISE",
    "pindown.theory:EXACT_REBUILDING": "pindown.theory:EXACT_RECONSTRUCTION",
    "pindown.theory:SCATTERED_CODES": "pindown.theory:SCATTERED_ACTIVATIONS",
    "pindown.theory:SPARSEST_CODES": "pindown.theory:SPARSEST_ACTIVATIONS",
    "pindown.theory:SPARSE_CODES": "pindown.theory:SPARSE_ACTIVATIONS",
    "pindown.theory:UNIT_CODES": "pindown.theory:UNIT_FEATURES",
}
"""Names of pindown's own in files of this format that are other names today: what is renamed is entered here."""

FIELDS: dict[str, dict[str, str]] = {
    "pindown.networks.folding:Folding": {"share": "fraction", "doubt": "uncertainty"},
    "pindown.networks.gates:Matryoshka": {"shares": "fractions"},
}
"""Fields of frozen values that had other names in files of earlier versions: old and new, by the value's name today."""

GROUP = "pindown.methods"
"""Group of entry points by which packages register their estimators."""

_PLAIN = {f"builtins:{kind.__name__}" for kind in (bool, int, float, complex, str)}


@dataclass(frozen=True)
class Unsaved:
    """Stands for a parameter that no file can hold, such as a lambda, and says so when it is called.

    Examples
    --------
    >>> Unsaved("encoder", "<lambda>")(3, 2)
    Traceback (most recent call last):
    ValueError: encoder was <lambda>, which no file can hold, so that it was not saved: to fit again, give it anew by \
set_params.
    """

    where: str
    was: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Say that it is not there."""
        raise ValueError(
            f"{self.where} was {self.was}, which no file can hold, so that it was not saved: to fit again, give it "
            "anew by set_params."
        )


class Refused(ValueError):  # noqa: N818 (it becomes a part of the sentence of a ValueError)
    """A file names what may not be fetched, or is not there."""


def name_of(thing: Any) -> str | None:
    """Return the name by which others can import a function, a class or a constant beside its class; or None.

    Examples
    --------
    >>> from pindown import networks, theory
    >>> name_of(networks.linear), name_of(nn.Linear), name_of(lambda n_in, n_out: None)
    ('pindown.networks.vectors:linear', 'torch.nn:Linear', None)
    >>> name_of(theory.FORGET)
    'pindown.theory:FORGET'
    """
    if is_dataclass(thing) and not isinstance(thing, type):
        home = type(thing).__module__
        there = getattr(sys.modules.get(home), "__dict__", {})
        return next((f"{home}:{key}" for key, value in there.items() if value is thing), None)
    if not isinstance(thing, type | FunctionType | BuiltinFunctionType | MethodType):
        return None
    module, qualname = thing.__module__, thing.__qualname__
    if not isinstance(module, str) or _walk(sys.modules.get(module), qualname) != thing:
        return None
    # Where in torch a layer is written may change; what it is called does not.
    return f"torch.nn:{qualname}" if thing is getattr(nn, qualname, None) else f"{module}:{qualname}"


class Allowed:
    """What a file may be given for the names in it.

    Parameters
    ----------
    trust : iterable of str
        Packages that may be imported from, beside pindown and those that have registered an estimator.
    using : iterable
        Functions and classes, taken where a name in the file is theirs; and with them what stands in their modules.
    """

    def __init__(self, trust: Iterable[str] = (), using: Iterable[Any] = ()) -> None:
        if isinstance(trust, str) or isinstance(using, str):
            raise TypeError('pindown.load: trust and using are lists: trust=["own_method"], using=[own_function].')
        self._packages = set(trust)
        self._handed: dict[str, Any] = {}  # by whole names, and without their modules, which may be others by now
        self._modules: set[str] = set()
        for thing in using:
            thing = thing.func if isinstance(thing, partial) else thing
            if not isinstance(thing, type | FunctionType | BuiltinFunctionType | MethodType):
                raise TypeError(f"pindown.load: using must hold functions and classes, got {thing!r}.")
            self._handed |= dict.fromkeys((thing.__qualname__, f"{thing.__module__}:{thing.__qualname__}"), thing)
            self._modules.add(thing.__module__)

    def fetch(self, names: Sequence[str]) -> list[Any]:
        """Return what names stand for, or say which may not be fetched; nothing is imported before all may be."""
        names = [MOVED.get(name, name) for name in names]
        foreign = [name for name in names if not (self._is_handed(name) or _is_ours(name))]
        if foreign:  # only then the entry points, which take a while to be looked up
            packages = self._packages | {entry.module.partition(".")[0] for entry in entry_points(group=GROUP)}
            foreign = [name for name in foreign if _package(name) not in packages]
        if foreign:
            foreign = sorted(foreign, key=lambda name: (":_" in name, name))  # what is private last
            of_each_module = {name.split(":")[0]: name.split(":")[1] for name in reversed(foreign)}
            raise Refused(
                f"names {', '.join(foreign)}, which is no part of pindown, and may run anything. If you know where the "
                f"file is from, allow it by pindown.load(path, trust={sorted(set(map(_package, foreign)))}), or hand "
                f"it over, pindown.load(path, using=[{', '.join(of_each_module.values())}])."
            )
        return [self._handed.get(name) or self._handed.get(name.split(":")[1]) or _imported(name) for name in names]

    def _is_handed(self, name: str) -> bool:
        module, qualname = name.split(":")
        return name in self._handed or qualname in self._handed or module in self._modules


def _package(name: str) -> str:
    return name.partition(":")[0].partition(".")[0]


def _is_ours(name: str) -> bool:
    """Whether a name is pindown's own, a layer or function of torch.nn, or a kind of number."""
    module, qualname = name.split(":")
    path = module.split(".")
    if name in MOVED.values():  # also what is in pindown_papers today
        return True
    if path[0] == "pindown":
        return not {"__main__", ""} & set(path)  # to import a __main__ is to run it
    if module == "torch.nn":
        return qualname in LAYERS
    if module == "torch.nn.functional":  # an activation, say, that a layer has as an attribute
        return True
    return name in _PLAIN or (module == "numpy" and _is_scalar_type(getattr(np, qualname, None)))


def _is_scalar_type(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, np.generic)


def _imported(name: str) -> Any:
    module, qualname = name.split(":")
    try:
        found = _walk(import_module(module), qualname)
    except ImportError as error:
        raise Refused(f"names {name}, which cannot be imported here ({error}). Install what it needs.") from error
    # What a module has imported from elsewhere, such as pindown's os, is not its own to give away.
    if found is None or name_of(found) != name:
        raise Refused(
            f"names {name}, which is not there: it was written by another version. Install that one, or hand it over, "
            f"pindown.load(path, using=[…])."
        )
    return found


def _walk(found: Any, qualname: str) -> Any:
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
