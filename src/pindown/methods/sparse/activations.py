"""Activations of any torch module: run up to a layer, and kept in a folder that a broken-off run goes on with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pindown._files import atomic_path
from pindown._names import nearest
from pindown.data.files import RECORD, open_shards, read_record
from pindown.data.sources import Source

SHARD_ROWS = 65_536
"""Rows of a shard, at least: as many whole batches as it takes."""

MOST_NAMED = 40
"""Layers that a message names."""

FORMAT = 1

Rows = Callable[[Tensor, Any], tuple[Tensor, Tensor]]
"""Turns what a layer gives for a batch, and the batch, into rows (k, d) and the input in the batch that each is of."""


class _Reached(Exception):  # noqa: N818 (it is no error: what follows the layer is not needed)
    """The layer has been run."""


def every_token(output: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
    """Return a row for each place of a sequence, (n, …, d) → (n·…, d), but for those that an attention mask leaves out.

    Examples
    --------
    >>> rows, of = every_token(torch.zeros(2, 3, 4), {"attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]])})
    >>> tuple(rows.shape), of.tolist()
    ((5, 4), [0, 0, 1, 1, 1])
    """
    of = torch.arange(len(output)).repeat_interleave(max(1, output[0, ..., 0].numel()))
    rows = output.flatten(0, -2) if output.ndim > 1 else output[:, None]
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    if mask is None or output.ndim != 3 or tuple(mask.shape) != tuple(output.shape[:2]):
        return rows, of
    kept = mask.bool().reshape(-1)
    return rows[kept.to(rows.device)], of[kept.cpu()]


def every_place(output: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
    """Return a row for each place of a picture, channels in columns: (n, c, h, w) → (n·h·w, c).

    Examples
    --------
    >>> every_place(torch.zeros(2, 3, 4, 4), None)[0].shape
    torch.Size([32, 3])
    """
    return every_token(output.movedim(1, -1), None)


def every_input(output: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
    """Return one row for each input, all of its numbers side by side: (n, …) → (n, d)."""
    return output.flatten(1), torch.arange(len(output))


def activations(
    model: nn.Module,
    inputs: Iterable[Any],
    layer: str,
    folder: str | Path,
    *,
    rows: Rows = every_token,
    dtype: torch.dtype = torch.float32,
    shard_rows: int = SHARD_ROWS,
    device: str | torch.device | None = None,
) -> Source:
    """Run a model up to a layer, keep what it gives there in a folder, and return it as a source.

    Nothing after the layer is run. Rows are written in shards, of whole batches each, so that memory is bounded; a run
    that was broken off goes on after its last whole shard, and one that is complete is not run again. `Sparse` and all
    other estimators read the source, or the path of the folder; rows of one input are its groups.

    Parameters
    ----------
    model : nn.Module
        Any module. It is run in evaluation mode, and left as it was.
    inputs : iterable
        Batches, the same whenever it is gone through: tensors, or tuples, or mappings of arguments, as a tokenizer
        gives. A `DataLoader` that does not shuffle.
    layer : str
        Name of a part of the model, of ``model.named_modules()``. Of a layer that returns several things, the first
        tensor is taken.
    folder : str or Path
        Where shards are kept.
    rows : callable
        What is a row: `every_token` (the default), `every_place` of a picture, `every_input`, or a function of yours.
    dtype : torch.dtype
        float32, or float16 for half of the space.
    shard_rows : int
        Rows of a shard, at least.
    device : str or None
        Where to run; None: where the model is.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = activations(model, [torch.zeros(4, 3)] * 5, "1", folder)
    ...     source.shape, source.n_samples
    ((5,), 20)
    """
    part = _found(model, layer)
    if dtype not in (torch.float32, torch.float16):
        raise ValueError(f"activations: dtype must be torch.float32 or torch.float16, got {dtype}.")
    if shard_rows < 1:
        raise ValueError(f"activations: shard_rows must be at least 1, got {shard_rows}.")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    record = _record(place, {"layer": layer, "model": _fingerprint(model), "rows": _name(rows), "dtype": str(dtype)})
    if not record["complete"]:
        with _evaluated(model, device), torch.no_grad():
            _written(model, part, iter(inputs), place, record, rows, dtype, shard_rows)
    return open_shards(place)


def _found(model: nn.Module, layer: str) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"activations: model must be an nn.Module, got {type(model).__name__}.")
    named = dict(model.named_modules())
    if layer not in named or not layer:
        known = [name for name in named if name]
        hint = nearest(layer, known[:MOST_NAMED]) if known else "it has no parts."
        raise ValueError(f"activations: the model has no layer {layer!r}: {hint}")
    return named[layer]


def _written(
    model: nn.Module,
    part: nn.Module,
    batches: Iterator[Any],
    place: Path,
    record: dict[str, Any],
    rows: Rows,
    dtype: torch.dtype,
    shard_rows: int,
) -> None:
    done = sum(shard["batches"] for shard in record["shards"])
    seen = sum(shard["inputs"] for shard in record["shards"])
    for skipped in range(done):
        if next(batches, None) is None:
            raise ValueError(
                f"activations: {place} holds {done} batches, but inputs end after {skipped}: they are not those it was "
                "made from. Give the same, or another folder."
            )
    kept: list[Tensor] = []
    of: list[Tensor] = []
    n_batches, first = 0, seen
    for batch in batches:
        output = _output(model, part, batch)
        found, which = rows(output, batch)
        kept.append(found.to(dtype).cpu())
        of.append(which + seen)
        seen, n_batches = seen + len(output), n_batches + 1
        if sum(map(len, kept)) >= shard_rows:
            _shard(place, record, kept, of, n_batches, seen - first)
            kept, of, n_batches, first = [], [], 0, seen
    if kept:
        _shard(place, record, kept, of, n_batches, seen - first)
    if not record["shards"]:
        raise ValueError("activations: inputs gave no batch, so that there is nothing to run.")
    _write(place, {**record, "complete": True})


def _output(model: nn.Module, part: nn.Module, batch: Any) -> Tensor:
    """Run a model up to a layer, and return what that gives."""
    caught: list[Any] = []

    def catch(module: nn.Module, args: Any, output: Any) -> None:
        caught.append(output)
        raise _Reached

    where = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    hook = part.register_forward_hook(catch)
    try:
        match batch:
            case Mapping():
                model(**{name: _on(value, where) for name, value in batch.items()})
            case tuple() | list():
                model(*(_on(value, where) for value in batch))
            case _:
                model(_on(batch, where))
    except _Reached:
        pass
    finally:
        hook.remove()
    if not caught:
        raise ValueError("activations: the model ran to its end, and never came to the layer. Is it in use at all?")
    found = _first_tensor(caught[0])
    if found is None or not found.is_floating_point() or found.ndim < 2:
        what = type(caught[0]).__name__ if found is None else f"a tensor of {found.dtype}, {tuple(found.shape)}"
        raise ValueError(f"activations: the layer gives {what}, where rows of numbers are needed. Name another layer.")
    if not torch.isfinite(found).all():
        raise ValueError("activations: the layer gives NaN or infinity. Run it in float32, or look at the inputs.")
    return found


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((found for part in parts if (found := _first_tensor(part)) is not None), None)


def _on(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


@contextmanager
def _evaluated(model: nn.Module, device: str | torch.device | None) -> Iterator[None]:
    """Put a model into evaluation mode, and on a device, for a while."""
    training = {module: module.training for module in model.modules()}
    was = next((weight.device for weight in model.parameters()), None)
    model.eval()
    if device is not None:
        model.to(device)
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
        if device is not None and was is not None:
            model.to(was)


# ---- the folder -----------------------------------------------------------------------------------------------------


def _record(place: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what a folder holds, or begin it; refuse one that holds something else."""
    path = place / RECORD
    if not path.exists():
        others = [other.name for other in place.iterdir() if not other.name.startswith(".")]
        if others:
            raise ValueError(
                f"activations: {place} holds other files ({others[0]}, …). Give an empty folder, or a new one."
            )
        record = {"format": FORMAT, **settings, "shards": [], "complete": False}
        _write(place, record)
        return record
    record = read_record(place)
    changed = [name for name, value in settings.items() if record.get(name) != value]
    if changed:
        listing = ", ".join(f"{name} ({record.get(name)!r} there, {settings[name]!r} here)" for name in changed)
        raise ValueError(
            f"activations: {place} was made by another call: {listing}. Give another folder, or delete it."
        )
    return record


def _shard(
    place: Path, record: dict[str, Any], kept: list[Tensor], of: list[Tensor], n_batches: int, n_inputs: int
) -> None:
    from safetensors.torch import save_file

    name = f"activations-{len(record['shards']):05d}.safetensors"
    with atomic_path(place / name) as beside:
        save_file({"x": torch.cat(kept).contiguous(), "input": torch.cat(of).contiguous()}, beside)
    n_samples = sum(map(len, kept))
    record["shards"].append({"file": name, "rows": n_samples, "batches": n_batches, "inputs": n_inputs})
    _write(place, record)


def _write(place: Path, record: dict[str, Any]) -> None:
    with atomic_path(place / RECORD) as beside:
        beside.write_text(json.dumps(record, indent=1), "utf-8")


def _fingerprint(model: nn.Module) -> str:
    """Return a few letters that change with the kind of a model, and with its weights."""
    total = hashlib.sha256(type(model).__name__.encode())
    for name, weight in model.state_dict().items():
        some = weight.detach().reshape(-1)[:: max(1, weight.numel() // 64)].double().cpu()
        total.update(f"{name}{tuple(weight.shape)}".encode() + some.numpy().tobytes())
    return total.hexdigest()[:16]


def _name(rows: Rows) -> str:
    return getattr(rows, "__qualname__", type(rows).__name__)
