"""Activations of any torch module: run up to a layer, and stored in a folder, where a stopped run resumes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from pindown._files import atomic_path, remove_temporary, sha256, write_json
from pindown._names import nearest, printable
from pindown.data.files import RECORD, map_safetensors, open_shards, read_record, shard_name
from pindown.data.sources import Source
from pindown.errors import InputError

SHARD_SIZE = 65_536  # samples per shard, at least: as many whole batches as it takes
MOST_NAMED = 40  # layers that a message names
FORMAT = 2
SAME = 0.02  # difference of activations, relative to the largest, up to which they are the same on another device

ToSamples = Callable[[Tensor, Any], tuple[Tensor, Tensor]]
"""Turns the output of a layer for a batch, and the batch, into samples (k, d) and the input that each belongs to."""


class _Reached(Exception):  # noqa: N818 (not an error: what follows the layer is not needed)
    """The layer has been run."""


def every_token(output: Tensor, batch: object) -> tuple[Tensor, Tensor]:
    """Return one sample per position of a sequence, (n, …, d) → (n·…, d), unless an attention mask excludes it.

    Examples
    --------
    >>> samples, of = every_token(torch.zeros(2, 3, 4), {"attention_mask": torch.tensor([[1, 1, 0], [1, 1, 1]])})
    >>> tuple(samples.shape), of.tolist()
    ((5, 4), [0, 0, 1, 1, 1])
    """
    of = torch.arange(len(output)).repeat_interleave(max(1, output[0, ..., 0].numel()))
    samples = output.flatten(0, -2) if output.ndim > 1 else output[:, None]
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    if mask is None or output.ndim != 3 or tuple(mask.shape) != tuple(output.shape[:2]):
        return samples, of
    kept = mask.bool().reshape(-1)
    return samples[kept.to(samples.device)], of[kept.cpu()]


def every_position(output: Tensor, batch: object) -> tuple[Tensor, Tensor]:
    """Return one sample per position of an image, with its channels as features: (n, c, h, w) → (n·h·w, c).

    Examples
    --------
    >>> every_position(torch.zeros(2, 3, 4, 4), None)[0].shape
    torch.Size([32, 3])
    """
    return every_token(output.movedim(1, -1), None)


def every_input(output: Tensor, batch: object) -> tuple[Tensor, Tensor]:
    """Return one sample per input, with all numbers of the output as features: (n, …) → (n, d)."""
    return output.flatten(1), torch.arange(len(output))


def activations(
    model: nn.Module,
    inputs: Iterable[Any],
    layer: str,
    folder: str | Path,
    *,
    samples: ToSamples = every_token,
    dtype: torch.dtype = torch.float32,
    shard_size: int = SHARD_SIZE,
    device: str | torch.device | None = None,
) -> Source:
    """Run a model up to a layer, store the layer's output in a folder, and return it as a source.

    Nothing after the layer is run. Samples are written in shards of whole batches, so that memory is bounded. A run
    that was stopped resumes after its last shard. A complete one is not repeated: only its first batch is run, and must
    give the same activations. `Sparse` and all other estimators read the source, or the path of the folder; the samples
    of one input are a group.

    Parameters
    ----------
    model : nn.Module
        Any module. It is run in evaluation mode, and left as it was.
    inputs : iterable
        Batches: tensors, tuples, or mappings of arguments such as a tokenizer returns. They must be the same in every
        pass, such as those of a `DataLoader` that does not shuffle.
    layer : str
        Name of a part of the model, from ``model.named_modules()``. If the layer returns several tensors, the first is
        used.
    folder : str or Path
        Where the shards are stored.
    samples : callable
        What a sample is: `every_token` (the default), `every_position` of an image, `every_input`, or your own
        function.
    dtype : torch.dtype
        float32, or float16 for half of the space.
    shard_size : int
        Samples per shard, at least.
    device : str or None
        Where the model runs; None leaves it where it is.

    Raises
    ------
    InputError
        If the folder holds other activations, is damaged, or is in use by another process.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = activations(model, [torch.zeros(4, 3)] * 5, "1", folder)
    ...     source.shape, source.n_samples
    ((5,), 20)
    """
    part = _part(model, layer)
    if dtype not in (torch.float32, torch.float16):
        raise InputError("dtype", f"activations: `dtype` must be torch.float32 or torch.float16, got {dtype}.")
    if shard_size < 1:
        raise InputError("shard_size", f"activations: `shard_size` must be at least 1, got {shard_size}.")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    weights = hashlib.sha256()
    _update(weights, model.state_dict())
    settings = {"layer": layer, "weights": weights.hexdigest(), "dtype": str(dtype)}
    with _only_process(place), _evaluated(model, device), torch.no_grad():
        remove_temporary(place)
        extraction = _Extraction(model, part, samples, dtype, place, _record(place, settings))
        extraction.run(iter(inputs), len(inputs) if isinstance(inputs, Sized) else None, shard_size)
    return open_shards(place)


def _part(model: nn.Module, layer: str) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"activations: model must be an nn.Module, got {type(model).__name__}.")
    named = dict(model.named_modules())
    if layer not in named or not layer:
        known = [name for name in named if name]
        hint = nearest(layer, known[:MOST_NAMED]) if known else "it has no parts."
        raise InputError("layer", f"activations: the model has no layer {layer!r}: {hint}")
    return named[layer]


@dataclass
class _Extraction:
    """A model, a layer, and the folder that is filled."""

    model: nn.Module
    part: nn.Module
    samples: ToSamples
    dtype: torch.dtype
    place: Path
    record: dict[str, Any]

    def run(self, batches: Iterator[Any], n_batches: int | None, shard_size: int) -> None:
        """Check what is there against the batches, and add what is missing."""
        seen, shards = self._checked(batches, n_batches)
        found: list[tuple[Tensor, Tensor]] = []
        digest, first, n = hashlib.sha256(), seen, 0
        for batch in batches if not self.record["complete"] else ():
            samples, of, n_inputs = self._of(batch)
            found.append((samples, of + seen))
            seen, n = seen + n_inputs, n + 1
            _update(digest, batch)
            self.record.setdefault("first_sha256", digest.hexdigest())
            if sum(len(samples) for samples, _ in found) >= shard_size:
                shards.append(self._write(found, n, seen - first, digest))
                found, digest, first, n = [], hashlib.sha256(), seen, 0
        if found:
            shards.append(self._write(found, n, seen - first, digest))
        if not shards:
            raise InputError("inputs", "activations: `inputs` has no batch, so there is nothing to run.")
        if not self.record["complete"]:
            self.record["complete"] = True
            write_json(self.place / RECORD, self.record)

    def _checked(self, batches: Iterator[Any], n_batches: int | None) -> tuple[int, list[dict[str, Any]]]:
        """Go through the batches that the folder has; return how many inputs these are, and the shards.

        Of a complete folder only the first batch is looked at, and how many there are.
        """
        shards = self.record["shards"]
        total = sum(shard["batches"] for shard in shards)
        if self.record["complete"] and n_batches not in (None, total):
            raise _other_call(
                "inputs", self.place, f"`inputs` has {n_batches} batches, and the folder was made from {total}"
            )
        for shard in shards[: 1 if self.record["complete"] else None]:
            digest = hashlib.sha256()
            for k in range(shard["batches"]):
                batch = next(batches, None)
                if batch is None:
                    raise _other_call(
                        "inputs", self.place, f"`inputs` ends before the {total} batches that the folder was made from"
                    )
                _update(digest, batch)
                if k == 0 and shard is shards[0]:
                    self._check_first(batch, digest.hexdigest())
                    if self.record["complete"]:
                        break
            else:
                if digest.hexdigest() != shard["inputs_sha256"]:
                    raise _other_call("inputs", self.place, f"`inputs` has other batches than those of {shard['file']}")
        return sum(shard["inputs"] for shard in shards), shards

    def _check_first(self, batch: object, digest: str) -> None:
        """Raise if the first batch is another one, or the model turns it into other activations."""
        if digest != self.record["first_sha256"]:
            raise _other_call("inputs", self.place, "the first batch of `inputs` is another one")
        samples, _, _ = self._of(batch)
        stored = torch.from_numpy(np.array(map_safetensors(self.place / self.record["shards"][0]["file"])["x"]))
        stored, now = stored[: len(samples)].float(), samples.float()
        if stored.shape != now.shape or (stored - now).abs().max() > SAME * stored.abs().max():
            raise _other_call(
                "inputs", self.place, "the model turns the first batch of `inputs` into other activations"
            )

    def _of(self, batch: object) -> tuple[Tensor, Tensor, int]:
        """Return the samples of a batch, the input that each belongs to, and the number of inputs."""
        output = _output(self.model, self.part, batch)
        samples, of = self.samples(output, batch)
        return samples.to(self.dtype).cpu(), of.cpu(), len(output)

    def _write(
        self, found: list[tuple[Tensor, Tensor]], n_batches: int, n_inputs: int, digest: hashlib._Hash
    ) -> dict[str, Any]:
        from safetensors.torch import save_file

        path = self.place / shard_name(len(self.record["shards"]))
        x, of = (torch.cat(part).contiguous() for part in zip(*found, strict=True))
        with atomic_path(path) as temporary:
            save_file({"x": x, "input": of}, temporary)
            checksum = sha256(temporary)
        shard = {"file": path.name, "sha256": checksum, "samples": len(x), "batches": n_batches, "inputs": n_inputs}
        shard["inputs_sha256"] = digest.hexdigest()
        write_json(self.place / RECORD, {**self.record, "shards": [*self.record["shards"], shard]})
        return shard


def _output(model: nn.Module, part: nn.Module, batch: object) -> Tensor:
    """Run a model up to a layer, and return the output of the layer."""
    caught: list[object] = []

    def catch(module: nn.Module, args: object, output: object) -> None:
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
        raise InputError("layer", "activations: the model does not use this layer. Name another one.")
    found = _first_tensor(caught[0])
    if found is None or not found.is_floating_point() or found.ndim < 2:
        what = type(caught[0]).__name__ if found is None else f"a tensor of {found.dtype}, {tuple(found.shape)}"
        raise InputError("layer", f"activations: the layer returns {what}, not samples of numbers. Name another layer.")
    if not torch.isfinite(found).all():
        raise InputError(
            "inputs", "activations: the layer returns NaN or infinity. Run it in float32, or check `inputs`."
        )
    return found


def _first_tensor(output: object) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((found for part in parts if (found := _first_tensor(part)) is not None), None)


def _on(value: object, device: torch.device) -> object:
    return value.to(device) if isinstance(value, Tensor) else value


@contextmanager
def _evaluated(model: nn.Module, device: str | torch.device | None) -> Iterator[None]:
    """Put a model into evaluation mode and on a device inside the block."""
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


@contextmanager
def _only_process(place: Path) -> Iterator[None]:
    lock = FileLock(place / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise InputError("folder", f"activations: another process writes to {place}. Wait for it.") from None
    try:
        yield
    finally:
        lock.release()
        (place / ".lock").unlink(missing_ok=True)


def _record(place: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a folder, a new record if it is empty; raise if the folder holds something else."""
    if not (place / RECORD).exists():
        others = [other.name for other in place.iterdir() if not other.name.startswith(".")]
        if others:
            raise InputError(
                "folder",
                f"activations: {place} holds other files ({others[0]}, …). Give an empty folder, or a new one.",
            )
        return {"format": FORMAT, **settings, "shards": [], "complete": False}
    record = read_record(place)
    if changed := [name for name, value in settings.items() if record.get(name, value) != value]:
        short = [f"{name} ({str(record[name])[:12]} there, {str(settings[name])[:12]} here)" for name in changed]
        raise _other_call("folder", place, ", ".join(short))
    return record


def _other_call(argument: str, place: Path, why: str) -> InputError:
    return InputError(
        argument,
        f"activations: {place} belongs to another call: {printable(why, 500)}. Give another folder, or delete it. To "
        "use its activations as they are, pass the folder to an estimator.",
    )


def _update(digest: hashlib._Hash, value: object) -> None:
    """Add a tensor, an array, or anything that is made of such and of plain values, to a checksum."""
    match value:
        case Tensor() | np.ndarray():
            tensor = torch.as_tensor(value).detach().cpu().contiguous()
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        case Mapping():
            for name in sorted(value, key=str):
                digest.update(str(name).encode())
                _update(digest, value[name])
        case list() | tuple():
            for each in value:
                _update(digest, each)
        case _:
            plain = isinstance(value, str | bytes | bool | int | float) or value is None
            digest.update((repr(value) if plain else type(value).__qualname__).encode())
