"""Estimators, networks and values as JSON and tensors: what `pindown.saving.reading` turns back.

Text, integers, finite floats, None and lists are themselves in JSON. Everything else is an object with one key, which
says what it is. Functions and classes are numbers in the list ``names``, networks are numbers in ``modules``.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from types import FunctionType
from typing import NoReturn, TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from pindown.networks.encoder import MADE_BY
from pindown.saving.table import LEFT_OUT, is_layer, is_value, settings_of, tag_of

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

NATIVE = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
"""Types of numbers that a file holds as they are; arrays of other types are written as bytes."""

FITTED = re.compile(r"[A-Za-z]\w*_")  # names of fitted attributes
LARGEST_WEIGHT = 1e18  # magnitude above which products of weights leave the range of float32

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Unsaved:
    """Stands for a parameter that a file cannot hold, such as a lambda. Calling it raises an error that says so."""

    where: str
    was: str

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise an error that names the parameter."""
        raise ValueError(f"`{self.where}` was {self.was}, which no file can hold. Pass it to set_params to fit again.")


class Writer:
    """Turns values into JSON, and collects the tensors, names and modules that they refer to.

    >>> writer = Writer()
    >>> writer.value({"a": (1, math.inf)}, "where")
    {'dict': [['a', {'tuple': [1, {'float': 'inf'}]}]]}
    >>> writer.value(np.zeros((2, 3)), "curve"), writer.tensors["curve"].shape
    ({'array': {'at': 'curve', 'dtype': '<f8', 'shape': [2, 3]}}, torch.Size([2, 3]))
    """

    def __init__(self) -> None:
        self.names: list[Json] = []  # texts
        self.modules: list[Json] = []
        self.tensors: dict[str, Tensor] = {}
        self.unsaved: list[str] = []  # parameters that no file can hold
        self._written: dict[int, tuple[object, Json]] = {}  # by identity, so that what is shared stays shared

    def value(self, thing: object, path: str) -> Json:
        """Return anything as JSON; `path` says where it was found."""
        kind = type(thing)
        if id(thing) in self._written:
            return self._written[id(thing)][1]
        if isinstance(thing, np.generic):
            return {"scalar": self._array(np.asarray(thing), path)}
        if thing is None or isinstance(thing, bool | int | str) or (isinstance(thing, float) and math.isfinite(thing)):
            return thing
        if isinstance(thing, float | torch.dtype):
            return {kind.__name__: str(thing).removeprefix("torch.")}
        if isinstance(thing, np.ndarray):
            return self._once(thing, self._array(thing, path))
        if isinstance(thing, Tensor):
            return self._once(thing, self._tensor(thing, path))
        if isinstance(thing, nn.Module):
            return self._once(thing, self._module(thing, path))
        if isinstance(thing, BaseEstimator):
            return {"estimator": self._estimator(thing, path)}
        if isinstance(thing, Unsaved):
            return {"unsaved": [thing.where, thing.was]}
        if is_value(kind):
            kept = [name for name in signature(kind).parameters if name not in LEFT_OUT.get(tag_of(kind) or "", ())]
            return {"value": [self._name(kind, path), self._named({name: getattr(thing, name) for name in kept}, path)]}
        if isinstance(thing, list | tuple | set | frozenset) and kind in (list, tuple, torch.Size, set, frozenset):
            items: Iterable[object] = sorted(thing, key=repr) if isinstance(thing, set | frozenset) else thing
            written = [self.value(item, _join(path, k)) for k, item in enumerate(items)]
            return written if kind is list else {"tuple" if kind is torch.Size else kind.__name__: written}
        if isinstance(thing, dict) and kind in (dict, OrderedDict):
            return {"dict": [[self.value(k, path), self.value(v, _join(path, k))] for k, v in thing.items()]}
        if isinstance(thing, np.random.RandomState):
            return {"random_state": self.value(thing.get_state(), path)}
        if isinstance(thing, torch.Generator) and thing.device.type == "cpu":
            return {"generator": self.value(thing.get_state(), path)}
        if isinstance(thing, partial) and not thing.args and tag_of(thing.func) is not None:
            return {"partial": [self.value(part, path) for part in (thing.func, thing.args, thing.keywords)]}
        if isinstance(thing, type | FunctionType) and tag_of(thing) is not None:
            return {"name": self._name(thing, path)}
        remedy = "Define it, or its class, at the top level of a module"
        raise ValueError(f"{path} is {_called(thing)}, which a file cannot hold. {remedy}.")

    def _once(self, thing: object, written: Json) -> Json:
        self._written[id(thing)] = thing, written  # held on to, or another thing might get its identity
        return written

    def _named(self, things: Mapping[str, object], path: str) -> dict[str, Json]:
        return {name: self.value(thing, _join(path, name)) for name, thing in things.items()}

    def _name(self, thing: type | FunctionType, path: str) -> int:
        tag = tag_of(thing)
        if tag is None:
            where = "pindown.saving.table" if thing.__module__.startswith("pindown.") else "the top level of a module"
            raise ValueError(f"{path} is made of {thing.__qualname__}, which a file cannot name. Put it into {where}.")
        self.names += [] if tag in self.names else [tag]
        return self.names.index(tag)

    def _array(self, array: np.ndarray, path: str) -> dict[str, Json]:
        dtype, shape = array.dtype.str, list[Json](array.shape)
        if array.dtype.kind in "US":
            texts: list[Json] = [str(t, "latin-1") if isinstance(t, bytes) else t for t in array.ravel().tolist()]
            return {"texts": {"dtype": dtype, "shape": shape, "values": texts}}
        if array.dtype.kind == "O":
            return {"objects": {"shape": shape, "values": self.value(array.ravel().tolist(), path)}}
        if array.dtype.kind not in "biufcmM":
            raise ValueError(f"{path} is an array of {array.dtype}, which a file cannot hold. Take its fields apart.")
        if array.dtype.isnative and array.dtype.name in NATIVE:
            array = np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else array
            tensor = torch.from_numpy(np.array(array, order="K"))  # a copy: the array may be read-only
            return {"array": self._placed(tensor, path) | {"dtype": dtype}}
        content = torch.from_numpy(np.frombuffer(array.tobytes(), dtype=np.uint8).copy())
        return {"array": {"at": self._placed(content, path)["at"], "dtype": dtype, "shape": shape}}

    def _tensor(self, tensor: Tensor, path: str) -> dict[str, Json]:
        if tensor.dtype not in NATIVE.values() or tensor.layout != torch.strided:
            raise ValueError(f"{path} is a {tensor.layout} tensor of {tensor.dtype}, which a file cannot hold.")
        written = self._placed(tensor, path)
        flags = {"parameter": isinstance(tensor, nn.Parameter), "grad": tensor.requires_grad}
        written.update({name: True for name, holds in flags.items() if holds})
        if tensor.device.type != "cpu":
            written["device"] = tensor.device.type
        return {"tensor": written}

    def _placed(self, tensor: Tensor, path: str) -> dict[str, Json]:
        """Store a copy of a tensor; return where, what it is, and how it lies in memory if not row by row."""
        at, k = path, 1
        while at in self.tensors:
            at, k = f"{path}~{k}", k + 1
        self.tensors[at] = tensor.detach().to("cpu", copy=True).contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        placed: dict[str, Json] = {"at": at, "dtype": dtype, "shape": list[Json](tensor.shape)}
        strides = torch.empty_like(tensor, device="meta").stride()  # sums are the same to the bit only with these
        return placed if strides == self.tensors[at].stride() else placed | {"strides": list[Json](strides)}

    def _estimator(self, estimator: BaseEstimator, path: str) -> dict[str, Json]:
        kind, parameters, given = type(estimator), estimator.get_params(deep=False), dict[str, Json]()
        for name, value in parameters.items():
            if value is signature(kind).parameters[name].default and _is_foreign(value):
                continue  # a function of another package, which need not be handed over for this
            where = _join(path, name)
            try:  # latents do not depend on parameters once they are learned, so that these may be left out
                Writer().value(value, where)
                given[name] = self.value(value, where)
            except ValueError:
                self.unsaved.append(f"`{where}` ({_called(value)})")
                given[name] = {"unsaved": [where, _called(value)]}
        fitted = {name: value for name, value in vars(estimator).items() if name not in parameters}
        output = fitted.pop("_sklearn_output_config", None)
        if odd := [name for name in fitted if not FITTED.fullmatch(name)]:
            raise ValueError(f"{_join(path, odd[0])} is not named like a fitted attribute: no underscore at its end.")
        learned = self._named(fitted, path)
        content: dict[str, Json] = {"class": self._name(kind, path), "parameters": given, "learned": learned}
        return content if output is None else content | {"output": output["transform"]}

    def _module(self, module: nn.Module, path: str) -> dict[str, Json]:
        kind, made_by = type(module), getattr(module, MADE_BY, None)
        if any(getattr(module, hooks) for hooks in _HOOKS):
            raise ValueError(f"{path} has hooks, which a file cannot hold. Remove them before saving.")
        if any(each is module for part in module.children() for each in part.modules()):
            raise ValueError(f"{path} is a part of itself, which a file cannot hold.")
        check_numbers({**module._parameters, **module._buffers}, path)
        plain = {k: v for k, v in vars(module).items() if not k.startswith("_") and k not in ("training", MADE_BY)}
        undeclared = plain.keys() - settings_of(kind)
        part: dict[str, Json]
        if is_layer(module):
            part = {"layer": kind.__name__, "arguments": self._named(arguments_of(module), path)}
        elif made_by is not None and not all(map(is_known, module.modules())):
            part = {"made": [self.value(each, path) for each in made_by]}
        elif not undeclared:
            part = {"class": self._name(kind, path), "attributes": self._named(plain, path)}
        elif not is_known(module):
            part = {"like": self._name(kind, path)}
        else:
            raise ValueError(f"{path} is a {kind.__name__}. Annotate in its class: {', '.join(sorted(undeclared))}.")
        if "made" in part or "like" in part:
            part["tensors"] = self._named(state_of(module), path)
            part["training"] = [name for name, each in module.named_modules() if each.training]
        else:
            inside: dict[str, Mapping[str, object]]
            inside = {"parameters": module._parameters, "buffers": module._buffers, "parts": module._modules}
            part |= {name: self._named(things, path) for name, things in inside.items() if things}
            part["training"] = module.training
        self.modules.append(part)
        return {"module": len(self.modules) - 1}


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, shared ones under each of their names."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def check_numbers(tensors: Mapping[str, Tensor | None], path: str) -> None:
    """Raise ValueError if weights or buffers are NaN, infinite, or too large to be the result of a fit."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_floating_point() and tensor.numel():
            largest = LARGEST_WEIGHT if isinstance(tensor, nn.Parameter) else math.inf
            if not tensor.detach().abs().max().item() < largest:
                raise ValueError(f"{_join(path, name)} has NaN, infinite or absurdly large numbers")


def arguments_of(layer: nn.Module) -> dict[str, object]:
    """Return the arguments that make a layer of torch: its attributes of the same names."""
    if isinstance(layer, nn.Sequential | nn.ModuleList):
        return {}
    named = {k: getattr(layer, k) for k in signature(type(layer)).parameters if k[0] != "_" and hasattr(layer, k)}
    return {name: value is not None if name == "bias" else value for name, value in named.items()}


def is_known(module: nn.Module) -> bool:
    """Return whether a module is a layer of the table, or of a class of pindown."""
    return is_layer(module) or type(module).__module__.partition(".")[0] == "pindown"


def _is_foreign(thing: object) -> bool:
    return isinstance(thing, FunctionType) and ":" in (tag_of(thing) or "")


def _called(thing: object) -> str:
    return getattr(thing, "__qualname__", None) or f"a {type(thing).__name__}"


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
