"""From JSON and tensors back to values, networks and estimators: the inverse of `pindown.saving.writing`.

Classes of the table are constructed with plain data, and networks without numbers are given the tensors of the file.
Called are only functions that made a network: those that the user handed over, and those of `pindown.networks`.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import signature
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from pindown import _random
from pindown._names import printable
from pindown.networks.encoder import MADE_BY, Encoder
from pindown.saving.table import LAYERS, LEFT_OUT, OLD_TAGS, TAGS, Named, fetch, is_value, look_up, settings_of
from pindown.saving.writing import (
    FITTED,
    NATIVE,
    Json,
    Unsaved,
    arguments_of,
    check_numbers,
    is_known,
    state_of,
)

MOST_CALLS = 100_000
"""Calls of modules by one call of a network: nested modules that are shared may need exponentially many."""

MOST_PADDING = 1 << 24
"""Bytes of texts beyond a multiple of those that a file has: numpy makes all texts of an array equally wide."""

Kind = TypeVar("Kind")
Collected = TypeVar("Collected", bound=Collection[Any])

INSIDE = "parameters buffers parts"  # keys of what a module holds, each of which a file leaves out where there is none


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
        self._stored: dict[str, tuple[Json, NDArray[Any] | Tensor]] = {}  # so that what was shared is shared
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
            case "set":
                return _whole({*self.value(content)}, _is(list, content))
            case "frozenset":
                return _whole(frozenset(self.value(content)), _is(list, content))
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

    def _array(self, at: Json, dtype: Json, shape: Json, strides: Json = None) -> NDArray[Any]:
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


def _whole(collection: Collected, content: list[Any]) -> Collected:
    if len(collection) != len(content):
        raise ValueError("it has the same key twice")
    return collection


def _texts(dtype: Json, shape: Json, values: Json) -> NDArray[Any]:
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


# ---- files of format 1

_RENAMED = {
    "BatchTopKModule": {"shares": "fractions"},
    "BodyChart": {"reading": "weights", "by": "fitted_to"},
    "DictionaryObjective": {"spread": "posterior", "turned": "to_latents", "turned_back": "from_latents"},
    "Dynamics": {"chart": "encoder", "n_actions": "n_components"},
    "Folding": {"share": "fraction", "doubt": "uncertainty"},
    "Forget": {"n_told_": "n_nuisance_directions_"},
    "GatedMap": {
        **{"bend": "activation", "shift": "outer_bias"},
        **{"first": "gate", "offset": "gate_bias", "second": "up", "other": "up_bias"},
    },
    "HeldOut": {"way": "step_plan", "straight": "linear"},
    "InverseDynamics": {
        **{"chart": "encoder", "n_actions": "n_components"},
        **{"n_actions_": "n_components_", "kept_back_": "held_out_samples_"},
    },
    "LatentAction": {"own_": "body_maps_", "stage_": "removal_"},
    "Matryoshka": {"shares": "fractions"},
    "OwnCharts": {"charts": "maps", "sights": "features"},
    "PairOfDictionaries": {"between": "map"},
    "PlainMap": {"bend": "activation", "shift": "outer_bias", "first": "weight", "offset": "bias"},
    "SecondStage": {"played": "applied"},
    "Sight": {"drawing": "decoder"},
    "SparseAutoencoder": {"revives": "revive", "until": "revive_until", "leftover": "residuals"},
    "SkipMLP": {"straight": "linear", "bend": "nonlinear"},
    "StepPlan": {"legs": "phases"},
    "Trainer": {"way": "step_plan"},
}
"""Attributes, tensors and parts that have another name now, by the tag of their class."""

_NESTED = {
    ("trainer", "Trainer"): {
        "weight_decay": "weight_decay",
        "optimizer": "optimizer",
        "holdout": "validation_fraction",
    },
    ("loss", "PairLoss"): {name: name for name in ("alpha", "any_marginal", "self_negatives")},
}
"""Parameters of estimators that are fields of one of their parameters now."""

_ADDED = {"Whiten": {"buffers": {"scale": None}}}  # what a class did not have then, and its files lack


def from_format_1(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the tensors and the entry of a file of format 1, converted to the present format; None for other files."""
    if not data[8:].startswith(b'{"__metadata__":{"pindown":"{\\"format\\":1,'):
        return None
    from safetensors.torch import load

    tensors, header = load(data), json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    entry = json.loads(header["__metadata__"]["pindown"])
    digest = hashlib.sha256(json.dumps(entry["content"], allow_nan=False, separators=(",", ":")).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    if entry["sha256"] != digest.hexdigest():
        raise ValueError("its content does not match its checksum: it is damaged")
    names = [_tag(name) for name in entry["content"]["names"]]
    return tensors, {**entry, "content": {**_upgraded(entry["content"], names), "names": names}}


def _tag(old: str) -> str:
    module, _, name = old.partition(":")
    ours = module.partition(".")[0] == "pindown"
    return (OLD_TAGS.get(old) or TAGS.get(old) or name) if ours else old.replace("torch.nn:", "nn.")


def _upgraded(old: Any, names: list[str]) -> Any:
    """Return JSON of format 1 with the present names of parts, without arguments that classes no longer have."""
    if isinstance(old, list):
        return [_upgraded(each, names) for each in old]
    if not isinstance(old, dict):
        return old
    new = {key: _upgraded(value, names) for key, value in old.items()}
    match new:
        case {"value": [int(number), dict(fields)]}:
            new["value"][1] = _known(_renamed(fields, names[number]), names[number])
        case {"class": int(number), "parameters": dict(parameters), "learned": dict(learned)}:
            parameters = _renamed(_nested(parameters, names), names[number])
            new["parameters"], new["learned"] = _known(parameters, names[number]), _renamed(learned, names[number])
        case {"class": int(number), "attributes": dict(attributes)}:
            attributes.pop("_is_accelerate_prepared", None)
            for kind in ("attributes", "parameters", "buffers", "parts"):
                new[kind] = _renamed(new.get(kind, {}), names[number])
            for kind, added in _ADDED.get(names[number], {}).items():
                new[kind] = added | new.get(kind, {})
    return new


def _nested(parameters: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the parameters of an estimator, of which some are fields of others now; ``names`` may grow."""
    for (outer, tag), fields in _NESTED.items():
        moved = {new: parameters[old] for old, new in fields.items() if old in parameters}
        if moved:
            if outer not in parameters and tag not in names:
                names.append(tag)
            number, present = parameters.get(outer, {"value": [names.index(tag), {}]})["value"]
            others = {name: value for name, value in parameters.items() if name not in fields}
            parameters = others | {outer: {"value": [number, present | moved]}}
    return parameters


def _renamed(fields: dict[str, Any], tag: str) -> dict[str, Any]:
    names = _RENAMED.get(tag, {})
    return {names.get(name, name): value for name, value in fields.items()}


def _known(fields: dict[str, Any], tag: str) -> dict[str, Any]:
    """Return the arguments that a class still has."""
    known = signature(look_up(tag)).parameters if tag in TAGS.values() else fields
    return {name: value for name, value in fields.items() if name in known and name not in LEFT_OUT.get(tag, ())}
