"""Estimators, networks and values as JSON and tensors (`Writer`), and back (`Reader`).

Text, integers, finite floats, None and lists are themselves in JSON. Everything else is an object with one key, which
says what it is. Functions and classes are numbers in the list ``names``, networks are numbers in ``modules``.

Back, classes of the table are constructed with plain data, and networks without numbers are given the tensors of the
file. Called are only functions that made a network: those that the user handed over, and those of `pindown.networks`.
"""

from __future__ import annotations

import copy
import math
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from inspect import signature
from types import FunctionType
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from pindown import _random
from pindown._names import printable
from pindown.networks.encoder import MADE_BY, Encoder
from pindown.saving.table import LAYERS, LEFT_OUT, Named, fetch, is_layer, is_value, settings_of, tag_of

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

MOST_CALLS = 100_000  # of modules by one call of a network: shared parts of parts may need exponentially many
MOST_PADDING = 1 << 24  # bytes of texts beyond a multiple of those in the file: numpy makes all equally wide

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Kind = TypeVar("Kind")
Collected = TypeVar("Collected", bound=Collection[object])

INSIDE = "parameters buffers parts"  # keys of what a module holds, each of which a file leaves out where there is none


@dataclass(frozen=True)
class Unsaved:
    """Stands for a parameter that a file cannot hold, such as a lambda. Calling it raises an error that says so."""

    where: str
    was: str

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise an error that names the parameter."""
        raise ValueError(f"`{self.where}` was {self.was}, which no file can hold. Pass it to set_params to fit again.")


class Writer:
    """Turns values into JSON, and collects the tensors, names and modules that they refer to."""

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
            is_default = value is signature(kind).parameters[name].default
            if is_default and isinstance(value, FunctionType) and ":" in (tag_of(value) or ""):
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


def _called(thing: object) -> str:
    return getattr(thing, "__qualname__", None) or f"a {type(thing).__name__}"


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


# ---- reading ------------------------------------------------------------------------------------------------------


class Reader:
    """Turns the content of a file into its `estimator`, with what the user hands over, on a device."""

    def __init__(
        self,
        content: Json,
        tensors: Mapping[str, Tensor],
        handed: Sequence[Named | nn.Module],
        device: torch.device | None,
    ) -> None:
        whole = _part(content, "estimator modules names")
        self._tensors, self._handed, self._device = tensors, handed, device
        self._names = [_is(str, name) for name in _is(list, whole["names"])]
        self._things = fetch(self._names, handed)
        self._modules: list[nn.Module] = []
        self._calls: dict[int, int] = {}  # of modules, by one call of each module
        self._stored: dict[str, tuple[Json, NDArray[np.generic] | Tensor]] = {}  # so that what was shared is shared
        self._used: set[tuple[str, int]] = set()
        for part in _is(list, whole["modules"]):
            module = self._module(_is(dict, part))
            self._calls[id(module)] = 1 + sum(self._calls.get(id(each), 0) for each in module._modules.values())
            if self._calls[id(module)] > MOST_CALLS:
                raise ValueError("its networks call each other too often")
            self._modules.append(module)
        self.estimator = self.value(whole["estimator"])
        n_parts = len(self._names) + len(self._modules)
        if tensors.keys() != self._stored.keys() or len(self._used) != n_parts:
            raise ValueError("it holds more or less than an estimator")
        if not isinstance(self.estimator, BaseEstimator):
            raise ValueError("it does not hold an estimator")

    def value(self, written: Json) -> Any:
        """Return what was written."""
        if isinstance(written, list):
            return [self.value(each) for each in written]
        if not isinstance(written, dict):
            return written
        ((kind, content),) = written.items()
        match kind:
            case "array" | "tensor":
                layout = _part(content, "at dtype shape", "strides parameter grad device")
                if (at := _is(str, layout["at"])) not in self._stored:
                    self._stored[at] = written, self._array(**layout) if kind == "array" else self._tensor(**layout)
                if self._stored[at][0] != written:
                    raise ValueError(f"it describes {printable(at)} in two ways")
                return self._stored[at][1]
            case "dict":
                pairs = [self.value(_is(list, pair)) for pair in _is(list, content)]
                return _whole(dict(pairs), pairs)
            case "dtype":
                return NATIVE[_is(str, content)]
            case "estimator":
                return self._estimator(_part(content, "class parameters learned", "output"))
            case "float" if content in ("nan", "inf", "-inf"):
                return float(_is(str, content))
            case "generator":
                return torch.Generator().set_state(self.value(content))
            case "module":
                return self._modules[self._number(kind, content)]
            case "name":
                tag, function = self._named_as(content)
                if not (isinstance(function, FunctionType) or tag.startswith("nn.") or ":" in tag):
                    raise ValueError(f"it takes {printable(tag)} for a function")
                return function
            case "objects":
                part = _part(content, "shape values")
                array = np.empty(len(_is(list, part["values"])), dtype=object)
                array[:] = self.value(part["values"]) or None
                return array.reshape(_shape(part["shape"]))
            case "partial":
                function, args, keywords = map(self.value, _is(list, content))
                if args or not any(function is thing for thing in self._things):
                    raise ValueError("it has arguments for what is not a function")
                signature(function).bind_partial(**keywords)
                return partial(function, **keywords)
            case "random_state":
                generator, state = np.random.RandomState(), self.value(content)
                if not 0 <= state[2] <= 624:  # numpy would read beyond its memory
                    raise ValueError("it has a random state at no position")
                generator.set_state(state)
                return generator
            case "scalar":
                return self.value(content)[()]
            case "set" | "frozenset":
                items = self.value(_is(list, content))
                return _whole(set(items) if kind == "set" else frozenset(items), items)
            case "tuple":
                return tuple(self.value(_is(list, content)))
            case "texts":
                return _texts(**_part(content, "dtype shape values"))
            case "unsaved":
                where, was = _is(list, content)
                return Unsaved(printable(where, 200), printable(was, 200))
            case "value":
                number, named = _is(list, content)
                tag, class_ = self._named_as(number)
                fields = self._named(named)
                if not is_value(class_) or any(name in fields for name in LEFT_OUT.get(tag, ())):
                    raise ValueError(f"it takes {printable(tag)} for a value")
                return class_(**fields)
        raise ValueError(f"it has a {printable(kind)}, which this version does not know")

    def _named(self, content: Json) -> dict[str, Any]:
        return {name: self.value(value) for name, value in _is(dict, content).items()}

    def _number(self, kind: str, number: Json) -> int:
        if (at := _is(int, number)) < 0:
            raise ValueError(f"it counts its {kind}s from the end")
        self._used.add((kind, at))
        return at

    def _named_as(self, number: Json) -> tuple[str, Named]:
        at = self._number("name", number)
        return self._names[at], self._things[at]

    def _class(self, number: Json, base: type[Kind]) -> type[Kind]:
        tag, kind = self._named_as(number)
        if not (isinstance(kind, type) and issubclass(kind, base)):
            raise ValueError(f"it takes {printable(tag)} for a {base.__name__}")
        return kind

    def _estimator(self, part: dict[str, Json]) -> BaseEstimator:
        kind = self._class(part["class"], BaseEstimator)
        estimator = kind(**self._named(part["parameters"]))
        for name, value in self._named(part["learned"]).items():
            if not FITTED.fullmatch(name) or callable(getattr(kind, name, None)):
                raise ValueError(f"{kind.__name__} cannot have a fitted attribute {printable(name)}")
            vars(estimator)[name] = value
        _check_encoder(vars(estimator))
        if (output := part.get("output")) not in (None, "default", "pandas", "polars"):
            raise ValueError(f"there is no output {printable(output)}")
        return estimator if output is None else estimator.set_output(transform=output)

    def _module(self, part: dict[str, Json]) -> nn.Module:
        if "tensors" in part:
            return self._from_outside(_part(part, "tensors training", "made like"))
        module = self._layer(part) if "layer" in part else self._of_class(part)
        module.training = _is(bool, part["training"])
        return module

    def _layer(self, written: Json) -> nn.Module:
        part = _part(written, "layer arguments training", INSIDE)
        given, layer = self._named(part["arguments"]), _is(str, part["layer"])
        if not all(map(_is_plain, given.values())):
            raise ValueError(f"its {layer} has an argument that is not a number or text")
        with torch.device("meta"):  # no numbers yet, so that sizes take no memory
            module = LAYERS[layer](**given)
        own, parts = arguments_of(module), self._named(part.get("parts", {}))
        holds_parts = isinstance(module, nn.Sequential | nn.ModuleList)
        if any(repr(own.get(name)) != repr(value) for name, value in given.items()) or (parts and not holds_parts):
            raise ValueError(f"its {layer} has what such a layer cannot have")
        tensors = self._named(part.get("parameters", {})) | self._named(part.get("buffers", {}))
        _replace(module, tensors, {**module._parameters, **module._buffers})
        for name, each in parts.items():
            module.add_module(name, each)
        return module

    def _of_class(self, written: Json) -> nn.Module:
        part = _part(written, "class attributes training", INSIDE)
        kind = self._class(part["class"], nn.Module)
        attributes = self._named(part["attributes"])
        parameters, buffers, parts = (self._named(part.get(name, {})) for name in INSIDE.split())
        odd = [name for name in attributes if name not in settings_of(kind)]
        odd += [k for k in (*parameters, *buffers, *parts) if k.startswith("_") or callable(getattr(kind, k, None))]
        odd += [name for name, value in attributes.items() if isinstance(value, Tensor | nn.Module)]
        if odd:
            raise ValueError(f"{kind.__name__} cannot have {printable(odd[0])}")
        module = kind.__new__(kind)
        nn.Module.__init__(module)
        for name, value in attributes.items():
            setattr(module, name, value)
        for name, tensor in parameters.items():
            module.register_parameter(name, tensor)
        for name, tensor in buffers.items():
            module.register_buffer(name, tensor)
        for name, each in parts.items():
            module.add_module(name, each)
        check_numbers({**module._parameters, **module._buffers}, kind.__name__)
        return module

    def _from_outside(self, part: dict[str, Json]) -> nn.Module:
        """Return a network that the user can make or hands over, with the tensors of the file."""
        state = self._named(part["tensors"])
        module = self._made(*self.value(part["made"])) if "made" in part else self._like(part.get("like"), state)
        _replace(module, state, state_of(module))
        for name, each in module.named_modules():
            each.training = name in _is(list, part["training"])
        return module

    def _made(self, make: Any, *shapes: Any) -> nn.Module:
        function = make
        while isinstance(function, partial):
            function = function.func
        ours = (getattr(function, "__module__", None) or "").startswith("pindown.networks.")
        if not (ours or any(function is thing for thing in self._handed)):
            raise ValueError(f"it was made by {printable(function)}, which does not make networks")
        with _random.forked(0), torch.device("meta") if ours else nullcontext():  # ours take no memory for numbers
            module = make(*shapes)
        setattr(module, MADE_BY, (make, *shapes))
        return module

    def _like(self, number: Json, state: Mapping[str, Tensor]) -> nn.Module:
        kind, shapes = self._class(number, nn.Module), {name: tensor.shape for name, tensor in state.items()}
        for network in self._handed:
            if type(network) is kind and {name: tensor.shape for name, tensor in state_of(network).items()} == shapes:
                return copy.deepcopy(network)
        name = kind.__name__
        raise ValueError(f"it needs a {name} with the same layers: hand one over, `trust=[{name}(…)]`")

    def _array(self, at: Json, dtype: Json, shape: Json, strides: Json = None) -> NDArray[np.generic]:
        kind = np.dtype(_is(str, dtype))
        if kind.kind not in "biufcmM":
            raise ValueError(f"it has an array of {printable(dtype)}, which this version does not know")
        if kind.isnative and kind.name in NATIVE:
            return self._laid_out(at, kind.name, shape, strides).numpy()
        stored = self._tensors[_is(str, at)].numpy()
        return np.frombuffer(stored.tobytes(), dtype=kind).copy().reshape(_shape(shape))

    def _tensor(
        self,
        at: Json,
        dtype: Json,
        shape: Json,
        strides: Json = None,
        parameter: Json = False,
        grad: Json = False,
        device: Json = "cpu",
    ) -> Tensor:
        here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        was = here if here is not None and here.type == device else "cpu"
        tensor = self._laid_out(at, dtype, shape, strides).to(was if self._device is None else self._device)
        return nn.Parameter(tensor, _is(bool, grad)) if _is(bool, parameter) else tensor.requires_grad_(_is(bool, grad))

    def _laid_out(self, at: Json, dtype: Json, shape: Json, strides: Json) -> Tensor:
        """Return a copy with its own memory, laid out as it was: the last bit of sums depends on that."""
        stored, sizes = self._tensors[_is(str, at)], _shape(shape)
        if stored.dtype != NATIVE[_is(str, dtype)] or list(stored.shape) != sizes:
            raise ValueError(f"its tensor {printable(at)} is {_described(stored)}, not what it says")
        if strides is None:
            return stored.clone()
        blank = torch.empty_strided(sizes, _shape(strides), device="meta")
        if list(torch.empty_like(blank).stride()) != strides:  # torch makes strides with gaps or overlaps row by row
            raise ValueError(f"its tensor {printable(at)} cannot lie in memory by strides {printable(strides)}")
        return torch.empty_strided(sizes, _shape(strides), dtype=stored.dtype).copy_(stored)


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)


def _is(kind: type[Kind], value: Json) -> Kind:
    if type(value) is not kind:
        raise ValueError(f"it has {printable(value)} in place of a {kind.__name__}")
    return value


def _part(value: Json, needs: str, may: str = "") -> dict[str, Json]:
    """Return an object that has some keys, and perhaps others, or raise."""
    part, least = _is(dict, value), {*needs.split()}
    if not least <= part.keys() <= {*least, *may.split()}:
        raise ValueError(f"it has an object with {printable(', '.join(part))}, and not with {needs.replace(' ', ', ')}")
    return part


def _shape(value: Json) -> list[int]:
    sizes = [_is(int, size) for size in _is(list, value)]
    if min(sizes, default=0) < 0:
        raise ValueError(f"it has an array of shape {printable(value)}")
    return sizes


def _whole(collection: Collected, content: Collection[object]) -> Collected:
    if len(collection) != len(content):
        raise ValueError("it has the same key twice")
    return collection


def _texts(dtype: Json, shape: Json, values: Json) -> NDArray[np.generic]:
    kind, texts = np.dtype(_is(str, dtype)), [_is(str, text) for text in _is(list, values)]
    too_wide = kind.itemsize * len(texts) > 64 * sum(len(text) + 1 for text in texts) + MOST_PADDING
    if kind.kind not in "US" or too_wide:
        raise ValueError(f"it has texts of {printable(dtype)}, which this version does not know")
    written = texts if kind.kind == "U" else [text.encode("latin-1") for text in texts]
    array = np.array(written, dtype=kind)
    if array.tolist() != written:  # numpy cuts text that is longer than its type
        raise ValueError(f"it has texts that {printable(dtype)} does not hold")
    return array.reshape(_shape(shape))


def _replace(module: nn.Module, tensors: Mapping[str, Any], own: Mapping[str, Tensor | None]) -> None:
    """Put tensors in place of those that a network has, which must have the same names and shapes."""
    for name in sorted(own.keys() | tensors.keys()):
        ours, theirs = own.get(name), tensors.get(name)
        same = type(ours) is type(theirs) and getattr(ours, "shape", None) == getattr(theirs, "shape", None)
        if not same or name not in own or name not in tensors:
            raise ValueError(f"its tensor {printable(name)} is {_described(theirs)}, the network's {_described(ours)}")
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        (owner._parameters if leaf in owner._parameters else owner._buffers)[leaf] = theirs
    check_numbers(tensors, type(module).__name__)


def _check_encoder(fitted: Mapping[str, Any]) -> None:
    """Raise if there is an encoder that does not map samples of the fitted shape to the fitted number of latents."""
    encoder, shape, n = (fitted.get(name) for name in ("encoder_", "shape_in_", "n_components_"))
    if "encoder_" in fitted and not isinstance(encoder, nn.Module):
        raise ValueError("its encoder is not a network")
    if isinstance(encoder, Encoder) and shape is not None and all(map(is_known, encoder.modules())):
        with torch.no_grad():  # on the device without numbers, which takes no time and memory
            z = copy.deepcopy(encoder).eval().to("meta")(torch.zeros(2, *shape, device="meta"))
        if tuple(z.shape) != (2, n):
            raise ValueError("its encoder does not fit its number of latents")


def _described(tensor: object) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else "missing"
