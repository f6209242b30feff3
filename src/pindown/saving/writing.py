"""Values, networks and estimators as JSON beside tensors: what `pindown.saving.reading` puts together again.

Text, whole numbers, finite floats, None and lists are what they are in JSON. Anything else is an object with one key,
which says what it is. Functions and classes are numbers in the list ``names``, networks are numbers in ``modules``.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from pindown.networks.encoder import MADE_BY
from pindown.saving.layers import arguments, is_layer
from pindown.saving.names import Unsaved, name_of

NATIVE = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
"""Numbers that a file holds as they are; arrays of others are written as their bytes."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_EVERY_MODULE = set(vars(nn.Module()))


class Writer:
    """Turns values into JSON; collects the tensors, names and modules that it refers to.

    Examples
    --------
    >>> writer = Writer()
    >>> writer.value({"a": (1, math.inf)}, "where")
    {'dict': [['a', {'tuple': [1, {'float': 'inf'}]}]]}
    >>> writer.value(np.zeros((2, 3)), "curve")
    {'array': {'at': 'curve', 'dtype': '<f8', 'shape': [2, 3]}}
    >>> writer.tensors["curve"].shape
    torch.Size([2, 3])
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.modules: list[dict[str, Any]] = []
        self.tensors: dict[str, Tensor] = {}
        self.unsaved: list[str] = []  # parameters that nobody can name
        self._written: dict[int, dict[str, Any]] = {}  # by identity, so that what is shared stays shared
        self._alive: list[Any] = []  # or an identity might come twice
        self._under_way: set[int] = set()
        self._lenient = False

    def value(self, thing: Any, path: str) -> Any:
        """Return anything as JSON; ``path`` says where it was found."""
        if id(thing) in self._written:
            return self._written[id(thing)]
        match thing:
            case np.generic():
                return {"scalar": self._array(np.asarray(thing), path)}
            case Enum():
                return {"member": [self._name(type(thing), path), thing.name]}
            case None | bool() | int() | str():
                return thing
            case float():
                return thing if math.isfinite(thing) else {"float": str(thing)}
            case Path():
                return {"path": str(thing)}
            case torch.dtype() | torch.device():
                return {type(thing).__name__: str(thing).removeprefix("torch.")}
            case np.dtype():
                return {"numpy": thing.str}
            case np.ndarray():
                return self._once(thing, self._array(thing, path))
            case Tensor():
                return self._once(thing, {"tensor": self._tensor(thing, path)})
            case nn.Module():
                return (self._given_module if self._lenient else self._module)(thing, path)
            case BaseEstimator() if not isinstance(thing, type):
                return self._estimator(thing, path)
        return self._compound(thing, path)

    def _compound(self, thing: Any, path: str) -> Any:
        if is_dataclass(thing) and not isinstance(thing, type) and name_of(thing) is None:
            return self._value(thing, [field.name for field in fields(thing) if field.init], path)
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return self._value(thing, thing._fields, path)
        kind = type(thing)
        if kind is list:
            return self._each(thing, path)
        if kind in (tuple, torch.Size):
            return {"tuple": self._each(thing, path)}
        if kind in (set, frozenset):
            return {kind.__name__: self._each(sorted(thing, key=repr), path)}
        if kind in (dict, OrderedDict):
            return {"dict": [[self.value(k, path), self.value(v, _join(path, k))] for k, v in thing.items()]}
        if kind is partial:
            return {"partial": [self.value(part, path) for part in (thing.func, thing.args, thing.keywords)]}
        if kind is np.random.RandomState:
            return {"random_state": self.value(thing.get_state(), path)}
        if kind is torch.Generator and thing.device.type == "cpu":
            return {"generator": self.value(thing.get_state(), path)}
        return self._function(thing, path)

    def _value(self, thing: Any, names: Sequence[str], path: str) -> Any:
        if self._lenient and name_of(type(thing)) is None:
            return self._left_out(thing, path)
        named = {name: getattr(thing, name) for name in names}
        return {"value": [self._name(type(thing), path), self._named(named, path)]}

    def _function(self, thing: Any, path: str) -> Any:
        if name_of(thing) is not None:
            return {"name": self._name(thing, path)}
        if self._lenient:
            return self._left_out(thing, path)
        raise ValueError(
            f"{path} is {_called(thing)}, which no file can hold: it is no number, array, layer or frozen value, and "
            "has no name by which it could be imported. Define it, or its class, at the top of a module."
        )

    def _left_out(self, thing: Any, path: str) -> Any:
        self.unsaved.append(f"{path} ({_called(thing)})")
        return self.value(Unsaved(path, _called(thing)), path)

    def _each(self, things: Any, path: str) -> list[Any]:
        return [self.value(thing, _join(path, k)) for k, thing in enumerate(things)]

    def _named(self, things: dict[str, Any], path: str) -> dict[str, Any]:
        return {name: self.value(thing, _join(path, name)) for name, thing in things.items()}

    def _once(self, thing: Any, written: dict[str, Any]) -> dict[str, Any]:
        self._written[id(thing)] = written
        self._alive.append(thing)
        return written

    def _name(self, thing: Any, path: str) -> int:
        name = name_of(thing)
        if name is None:
            raise ValueError(
                f"{path} is made of {thing.__qualname__}, which has no name by which it could be imported: define it "
                "at the top of a module, not in a function."
            )
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _array(self, array: np.ndarray, path: str) -> dict[str, Any]:
        dtype, shape = array.dtype.str, list(array.shape)
        if array.dtype.kind in "US":
            texts = [t.decode("latin-1") if isinstance(t, bytes) else str(t) for t in array.ravel().tolist()]
            return {"texts": {"dtype": dtype, "shape": shape, "values": texts}}
        if array.dtype.kind == "O":
            return {"objects": {"shape": shape, "values": self._each(array.ravel().tolist(), path)}}
        if array.dtype.kind not in "biufcmM":
            raise ValueError(f"{path} is an array of {array.dtype}, which no file can hold. Take its columns apart.")
        if array.dtype.isnative and array.dtype.name in NATIVE:
            array = np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else array
            tensor = torch.from_numpy(np.array(array, order="K"))  # a copy: the array may be read-only
            return {"array": self._placed(tensor, path) | {"dtype": dtype}}
        content = torch.from_numpy(np.frombuffer(array.tobytes(), dtype=np.uint8).copy())
        return {"array": {"at": self._placed(content, path)["at"], "dtype": dtype, "shape": shape}}

    def _tensor(self, tensor: Tensor, path: str) -> dict[str, Any]:
        if str(tensor.dtype).removeprefix("torch.") not in NATIVE or tensor.layout != torch.strided:
            raise ValueError(f"{path} is a {tensor.layout} tensor of {tensor.dtype}, which no file can hold.")
        more = {"parameter": isinstance(tensor, nn.Parameter), "grad": tensor.requires_grad}
        kept = {name: True for name, holds in more.items() if holds}
        where = {} if tensor.device.type == "cpu" else {"device": tensor.device.type}
        return self._placed(tensor, path) | kept | where

    def _placed(self, tensor: Tensor, path: str) -> dict[str, Any]:
        """Put a copy among the tensors; return where, of what kind, and how it lies in memory if not row by row."""
        at, k = path, 1
        while at in self.tensors:
            at, k = f"{path}~{k}", k + 1
        # In order, on the CPU: what a file holds does not depend on where it was made.
        self.tensors[at] = tensor.detach().to("cpu", copy=True).contiguous()
        placed = {"at": at, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        strides = list(tensor.stride())
        # Sums come out the same to the bit only if numbers lie in memory as they did.
        row_by_row = list(torch.empty(tensor.shape, device="meta").stride())
        return placed if strides == row_by_row or not is_dense(tensor.shape, strides) else placed | {"strides": strides}

    def _estimator(self, estimator: BaseEstimator, path: str) -> dict[str, Any]:
        parameters = estimator.get_params(deep=False)
        learned = {name: value for name, value in vars(estimator).items() if name not in parameters}
        with self._leniently(True):
            given = self._named(parameters, path)
        with self._leniently(False):
            own = self._named(learned, path)
        return {"estimator": {"class": self._name(type(estimator), path), "parameters": given, "learned": own}}

    @contextmanager
    def _leniently(self, lenient: bool) -> Iterator[None]:
        """Let what no file can hold be left out, or not: codes do not depend on parameters once they are learned."""
        before, self._lenient = self._lenient, lenient
        try:
            yield
        finally:
            self._lenient = before

    def _given_module(self, module: nn.Module, path: str) -> Any:
        """Write a network that is a parameter, all of it or a word in its place."""
        before = {name: copy.copy(value) for name, value in vars(self).items()}
        try:
            with self._leniently(False):
                return self._module(module, path)
        except ValueError:
            vars(self).update(before)
            return self._left_out(module, path)

    def _module(self, module: nn.Module, path: str) -> dict[str, Any]:
        if id(module) in self._under_way:
            raise ValueError(f"{path} is a part of itself, which no file can hold.")
        if any(getattr(module, hooks) for hooks in _HOOKS):
            raise ValueError(f"{path} has hooks, which no file can hold. Remove them before saving.")
        self._under_way.add(id(module))
        made_by = getattr(module, MADE_BY, None)
        if made_by is not None and not all(map(_is_known, module.modules())):
            part = self._by_factory(module, made_by, path)
        elif is_layer(module):
            part = {"layer": type(module).__name__, "arguments": self._named(arguments(module), path)}
            part |= self._insides(module, path)
        else:
            named = {k: v for k, v in vars(module).items() if k not in _OF_EVERY_MODULE | {MADE_BY}}
            part = {"class": self._name(type(module), path), "attributes": self._named(named, path)}
            part |= self._insides(module, path)
        self._under_way.remove(id(module))
        self.modules.append(part)
        return self._once(module, {"module": len(self.modules) - 1})

    def _insides(self, module: nn.Module, path: str) -> dict[str, Any]:
        insides: dict[str, Any] = {
            "parameters": module._parameters,
            "buffers": module._buffers,
            "parts": module._modules,
        }
        written = {kind: self._named(things, path) for kind, things in insides.items() if things}
        passing = {"passing": sorted(module._non_persistent_buffers_set)} if module._non_persistent_buffers_set else {}
        return written | passing | {"training": module.training}

    def _by_factory(self, module: nn.Module, made_by: tuple[Any, ...], path: str) -> dict[str, Any]:
        unknown = next(type(part) for part in module.modules() if not _is_known(part))
        func = made_by[0]
        while isinstance(func, partial):
            func = func.func
        if name_of(func) is None and not is_dataclass(func):
            raise ValueError(
                f"{path} holds a {unknown.__qualname__}, a layer that is not known here, and was made by "
                f"{getattr(func, '__qualname__', func)}, which has no name by which it could be imported. Define the "
                "function that makes it at the top of a module."
            )
        tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
            module.named_buffers(remove_duplicate=False)
        )
        return {
            "made": self._each(made_by, path),
            "tensors": self._named(tensors, path),
            "training": [name for name, part in module.named_modules() if part.training],
        }


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether numbers that lie so in memory fill it without a gap or an overlap.

    Examples
    --------
    >>> is_dense((2, 3), (3, 1)), is_dense((2, 3), (1, 2)), is_dense((2, 3), (4, 1))
    (True, True, False)
    """
    expected, largest = 1, max(math.prod(shape), 1)
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return all(0 <= stride <= largest for stride in strides)


def _is_known(module: nn.Module) -> bool:
    return is_layer(module) or type(module).__module__.partition(".")[0] == "pindown"


def _called(thing: Any) -> str:
    return getattr(thing, "__qualname__", None) or f"a {type(thing).__name__}"


def _join(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)
