"""From JSON and tensors back to values, networks and estimators: the inverse of `pindown.saving.writing`.

Called are only classes and functions that `names.Allowed` let through, and of these only frozen values, estimators,
and the functions that made a user's networks. Networks of pindown's own are put together without their constructors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from pindown import _random
from pindown.networks.encoder import MADE_BY
from pindown.saving.layers import made
from pindown.saving.names import FIELDS
from pindown.saving.writing import NATIVE, is_dense


class Reader:
    """Turns JSON into what it was.

    Parameters
    ----------
    tensors : dict
        The tensors of the file.
    things : list
        What the names in the file stand for.
    device : torch.device or None
        Where tensors go; None puts them where they were, if there is such a device here.
    """

    def __init__(self, tensors: dict[str, Tensor], things: list[Any], device: torch.device | None) -> None:
        self._tensors, self._things, self._device = tensors, things, device
        self._modules: list[nn.Module] = []
        self._read: dict[tuple[str, str], Any] = {}  # so that what was shared is shared

    def add_module(self, part: dict[str, Any]) -> None:
        """Put the next network together; its parts came before it."""
        if "made" in part:
            module = self._from_factory(part)
        elif "layer" in part:
            module = made(part["layer"], self._named(part["arguments"]))
            parameters, buffers, parts = self._insides(part)
            _check_alike(module._parameters, parameters)
            _check_alike(module._buffers, buffers)
            module._parameters.update(parameters)
            module._buffers.update(buffers)
            module._modules.update(parts)
            module.training = bool(part["training"])
        else:
            module = self._put_together(part)
        self._modules.append(module)

    def value(self, written: Any) -> Any:
        """Return what was written."""
        if isinstance(written, list):
            return [self.value(each) for each in written]
        if not isinstance(written, dict):
            return written
        ((kind, content),) = written.items()
        if kind not in _KINDS:
            raise ValueError(f"it has a {kind}, which is not known here")
        return _KINDS[kind](self, content)

    def _class(self, number: int, base: type) -> Any:
        kind = self._things[number]
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise ValueError(f"it takes {kind!r} for a {base.__name__}")
        return kind

    def _put_together(self, part: dict[str, Any]) -> nn.Module:
        kind = self._class(part["class"], nn.Module)
        parameters, buffers, parts = self._insides(part)
        state = vars(nn.Module()) | {"_parameters": parameters, "_buffers": buffers, "_modules": parts}
        state |= {"_non_persistent_buffers_set": set(part.get("passing", ())), "training": bool(part["training"])}
        module = kind.__new__(kind)
        # As a pickle does: a class whose attributes have changed brings those of old files up to date there.
        module.__setstate__(state | self._named(part["attributes"]))
        return module

    def _insides(self, part: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return the parameters, buffers and parts of a network."""
        kinds = (("parameters", nn.Parameter), ("buffers", Tensor), ("parts", nn.Module))
        return tuple({k: self._maybe(v, kind) for k, v in part.get(name, {}).items()} for name, kind in kinds)

    def _maybe(self, written: Any, kind: type) -> Any:
        value = self.value(written)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"it has a {type(value).__name__} where a {kind.__name__} must be")
        return value

    def _from_factory(self, part: dict[str, Any]) -> nn.Module:
        make, *sizes = (self.value(each) for each in part["made"])
        module = None
        if _makes_networks(make):
            with _random.forked(0):
                module = make(*sizes)
        if not isinstance(module, nn.Module):
            raise ValueError(f"it was made by {make!r}, which makes no network here")
        there = {name: self._maybe(value, Tensor) for name, value in part["tensors"].items()}
        own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
        _check_alike(own, there)
        for name, tensor in there.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            (owner._parameters if leaf in owner._parameters else owner._buffers)[leaf] = tensor
        for name, inner in module.named_modules():
            inner.training = name in part["training"]
        setattr(module, MADE_BY, (make, *sizes))
        return module

    def _module(self, number: int) -> nn.Module:
        return self._modules[number]

    def _estimator(self, content: dict[str, Any]) -> BaseEstimator:
        kind = self._class(content["class"], BaseEstimator)
        estimator = kind(**self._named(content["parameters"]))
        vars(estimator).update(self._named(content["learned"]))
        return estimator

    def _named(self, content: dict[str, Any]) -> dict[str, Any]:
        return {name: self.value(value) for name, value in content.items()}

    def _value(self, content: list[Any]) -> Any:
        number, named = content
        kind = self._class(number, object)
        if not (is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))):
            raise ValueError(f"it takes {kind!r} for a frozen value")
        today = FIELDS.get(f"{kind.__module__}:{kind.__qualname__}", {})
        return kind(**{today.get(name, name): self.value(value) for name, value in named.items()})

    def _member(self, content: list[Any]) -> Any:
        return self._class(content[0], Enum)[content[1]]

    def _partial(self, content: list[Any]) -> Any:
        func, args, keywords = (self.value(part) for part in content)
        return partial(func, *args, **keywords)

    def _dict(self, content: list[Any]) -> dict[Any, Any]:
        return {self.value(key): self.value(value) for key, value in content}

    def _scalar(self, content: dict[str, Any]) -> Any:
        array = self.value(content)
        assert isinstance(array, np.ndarray)
        return array[()]

    def _texts(self, content: dict[str, Any]) -> np.ndarray:
        dtype = _numpy_dtype(content["dtype"], "US")
        values = content["values"] if dtype.kind == "U" else [text.encode("latin-1") for text in content["values"]]
        return np.array(values, dtype=dtype).reshape(content["shape"])

    def _objects(self, content: dict[str, Any]) -> np.ndarray:
        array = np.empty(len(content["values"]), dtype=object)
        array[:] = [self.value(each) for each in content["values"]] or None
        return array.reshape(content["shape"])

    def _array(self, content: dict[str, Any]) -> np.ndarray:
        return self._once("array", content, self._new_array)

    def _tensor(self, content: dict[str, Any]) -> Tensor:
        return self._once("tensor", content, self._new_tensor)

    def _once(self, kind: str, content: dict[str, Any], new: Callable[[dict[str, Any]], Any]) -> Any:
        key = (kind, content["at"])
        if key not in self._read:
            self._read[key] = new(content)
        return self._read[key]

    def _new_array(self, content: dict[str, Any]) -> np.ndarray:
        dtype = _numpy_dtype(content["dtype"], "biufcmM")
        if dtype.isnative and dtype.name in NATIVE:
            return self._laid_out(content | {"dtype": dtype.name}).numpy()
        stored = self._stored(content["at"])
        return np.frombuffer(stored.numpy().tobytes(), dtype=dtype).reshape(content["shape"]).copy()

    def _new_tensor(self, content: dict[str, Any]) -> Tensor:
        tensor = self._laid_out(content).to(self._place(content.get("device", "cpu")))
        if content.get("parameter"):
            return nn.Parameter(tensor, requires_grad=bool(content.get("grad")))
        return tensor.requires_grad_(bool(content.get("grad")))

    def _place(self, was: str) -> torch.device:
        if self._device is not None:
            return self._device
        here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return torch.device(was if here is not None and here.type == was else "cpu")

    def _laid_out(self, content: dict[str, Any]) -> Tensor:
        """Return a copy in memory of its own, in the order in which it was: sums depend on both in the last bit."""
        stored, shape = self._stored(content["at"]), tuple(content["shape"])
        if stored.dtype != NATIVE[content["dtype"]] or stored.shape != shape:
            raise ValueError(
                f"its tensor {content['at']} is {_described(stored)}, not {content['dtype']} of shape {shape}"
            )
        strides = content.get("strides")
        if strides is None:
            return stored.clone()
        if not is_dense(shape, strides):
            raise ValueError(f"its tensor {content['at']} cannot lie in memory by strides {strides}")
        return torch.empty_strided(shape, strides, dtype=stored.dtype).copy_(stored)

    def _stored(self, at: str) -> Tensor:
        if at not in self._tensors:
            raise ValueError(f"its tensor {at} is missing")
        return self._tensors[at]


_KINDS: dict[str, Callable[[Reader, Any], Any]] = {
    "array": Reader._array,
    "device": lambda reader, content: torch.device(content),
    "dict": Reader._dict,
    "dtype": lambda reader, content: NATIVE[content],
    "estimator": Reader._estimator,
    "float": lambda reader, content: float(content),
    "frozenset": lambda reader, content: frozenset(reader.value(content)),
    "generator": lambda reader, content: _generator(reader.value(content)),
    "member": Reader._member,
    "module": Reader._module,
    "name": lambda reader, content: reader._things[content],
    "numpy": lambda reader, content: _numpy_dtype(content, "biufcmMUSO"),
    "objects": Reader._objects,
    "partial": Reader._partial,
    "path": lambda reader, content: Path(content),
    "random_state": lambda reader, content: _random_state(reader.value(content)),
    "scalar": Reader._scalar,
    "set": lambda reader, content: set(reader.value(content)),
    "tensor": Reader._tensor,
    "texts": Reader._texts,
    "tuple": lambda reader, content: tuple(reader.value(content)),
    "value": Reader._value,
}


def _makes_networks(make: Any) -> bool:
    """Whether a function may be called: one that the user trusts, or of those of pindown's that only make networks."""
    while isinstance(make, partial):
        make = make.func
    name = getattr(make, "__module__", None) or ""
    return not name.startswith("pindown.") or name.startswith("pindown.networks.")


def _generator(state: Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _random_state(state: Any) -> np.random.RandomState:
    random_state = np.random.RandomState()
    random_state.set_state(state)
    return random_state


def _numpy_dtype(text: str, kinds: str) -> np.dtype:
    dtype = np.dtype(text)
    if dtype.kind not in kinds:
        raise ValueError(f"it has an array of {text}, which is not known here")
    return dtype


def _check_alike(own: Mapping[str, Tensor | None], there: Mapping[str, Tensor | None]) -> None:
    for name in sorted(own.keys() | there.keys()):
        ours, theirs = own.get(name), there.get(name)
        if (None if ours is None else ours.shape) != (None if theirs is None else theirs.shape):
            raise ValueError(f"its tensor {name} is {_described(theirs)}, where the network has {_described(ours)}")


def _described(tensor: Tensor | None) -> str:
    if tensor is None:
        return "none"
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
