"""An encoder as one safetensors file: its tensors, and beside them how they are put together; no pickle.

Known are the parts that `pindown.networks` and the estimators build encoders from. Nothing in a file is executed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pindown._files import whole
from pindown.estimators.encoding import Encoder
from pindown.networks import FirstLayer, Frame, Rescale, Residual, Unfolded, Whiten
from pindown.spaces import Reals, Space, Sphere

FORMAT = "pindown encoder 1"

_SPACES: dict[str, Space] = {"Reals": Reals(), "Sphere": Sphere()}


def save_encoder(encoder: Encoder, path: Path) -> None:
    """Write an encoder to a file, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from pindown.networks import unfolded
    >>> encoder = Encoder(Whiten.of(torch.eye(3)), unfolded(3, 2), Sphere())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_encoder(encoder, Path(folder) / "encoder.safetensors")
    ...     again = load_encoder(Path(folder) / "encoder.safetensors")
    >>> torch.equal(encoder(torch.ones(1, 3)), again(torch.ones(1, 3)))
    True
    """
    from safetensors.torch import save

    # Copies, since safetensors refuses tensors that share memory.
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in encoder.state_dict().items()}
    metadata = {FORMAT: json.dumps(describe(encoder))}  # one entry, since several come in any order
    with whole(path) as beside:
        beside.write_bytes(save(tensors, metadata))  # not its save_file, whose files only their owner may read


def load_encoder(path: Path) -> Encoder:
    """Return the encoder that `save_encoder` wrote.

    Raises
    ------
    ValueError
        If the file is something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise SafetensorError("no encoder of this version")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        encoder = build(json.loads(metadata[FORMAT]))
        encoder.load_state_dict(tensors, assign=True)
    except (SafetensorError, OSError, RuntimeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as an encoder ({error}): fit again.") from error
    assert isinstance(encoder, Encoder)
    return encoder.eval()


def describe(module: nn.Module) -> list[Any]:
    """Return how a module is put together, as JSON has it.

    Examples
    --------
    >>> describe(nn.Sequential(nn.Linear(3, 2), nn.SiLU()))
    ['Sequential', ['Linear', 3, 2, True], ['SiLU']]
    """
    match module:
        case Encoder():
            return ["Encoder", describe(module.preprocess), describe(module.body), type(module.space).__name__]
        case Whiten():
            return ["Whiten", *module.matrix.shape]
        case Rescale():
            return ["Rescale", list(module.mean.shape), list(module.scale.shape), list(module.shape_in)]
        case Unfolded():
            return ["Unfolded", describe(module.straight), describe(module.bend)]
        case Residual():
            return ["Residual", describe(module.change)]
        case Frame():
            return ["Frame", *module.weight.shape]
        case nn.Linear():
            return ["Linear", module.in_features, module.out_features, module.bias is not None]
        case nn.LeakyReLU():
            return ["LeakyReLU", module.negative_slope]
        case nn.SiLU():
            return ["SiLU"]
        case nn.Sequential():
            return ["Sequential", *map(describe, module)]
    raise TypeError(
        f"an encoder with a {type(module).__name__} cannot be saved so: known are the parts of pindown.networks."
    )


def build(structure: list[Any]) -> nn.Module:
    """Return a module that is put together so, with weights that are still to be loaded."""
    match structure:
        case ["Encoder", whiten, body, space]:
            first = build(whiten)
            assert isinstance(first, FirstLayer)
            return Encoder(first, build(body), _SPACES[space])
        case ["Whiten", n_features, n_directions]:
            return Whiten(torch.zeros(n_features), torch.zeros(n_features, n_directions))
        case ["Rescale", mean, scale, shape]:
            return Rescale(torch.zeros(mean), torch.ones(scale), tuple(shape))
        case ["Unfolded", straight, bend]:
            return Unfolded(build(straight), build(bend))
        case ["Residual", change]:
            return Residual(build(change))
        case ["Frame", n_out, n_in]:
            return Frame(torch.zeros(n_out, n_in))
        case ["Linear", n_in, n_out, bias]:
            return nn.Linear(n_in, n_out, bias=bias)
        case ["LeakyReLU", slope]:
            return nn.LeakyReLU(slope)
        case ["SiLU"]:
            return nn.SiLU()
        case ["Sequential", *parts]:
            return nn.Sequential(*map(build, parts))
    raise ValueError(f"it has a part that is not known here, {structure[:1]}")
