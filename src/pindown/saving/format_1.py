"""Files of format 1, converted to the present format: other names of classes, attributes and parameters."""

from __future__ import annotations

import hashlib
import json
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from pindown.saving.table import LEFT_OUT, OLD_TAGS, TAGS, look_up

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
