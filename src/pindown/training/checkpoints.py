"""Checkpoints of a training run, a part of a fit: one safetensors file with a checksum, written completely or not."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pindown._files import atomic_path, pack_tensors, require_writable, unpack_tensors
from pindown._names import printable
from pindown.training.early_stopping import EarlyStopping

FORMAT = 2


@dataclass(frozen=True)
class State:
    """Everything the next step depends on, besides its number."""

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    accelerator: Any
    scale: Tensor | None = None  # of the loss, in float16
    stopping: EarlyStopping | None = None  # by the validation loss

    def live(self) -> dict[str, Tensor]:
        """Return weights, and what the optimiser keeps of them, by name: the tensors themselves."""
        named = {f"objective.{k}": v for k, v in self.objective.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            named |= {f"optimizer.{index}.{k}": v for k, v in moments.items()}
        return named

    @torch.no_grad()
    def put_back(self, named: dict[str, Tensor]) -> None:
        """Restore earlier values of the live tensors; a state that the optimiser did not have yet is zero."""
        for name, tensor in self.live().items():  # in place: a captured step knows them by their addresses
            if name in named:
                tensor.copy_(named[name])
            else:
                tensor.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Flatten to named tensors, the generators of all processes included."""
        named = self.live() | ({} if self.stopping is None else self.stopping.tensors())
        mine = self.generator.get_state()[None].to(self.accelerator.device)
        named["generators"] = self.accelerator.gather(mine)
        if self.scale is not None:
            named["scale"] = self.scale
        # Copies, since safetensors rejects tensors that share memory, as tied weights do.
        return {k: v.detach().to("cpu", copy=True).contiguous() for k, v in named.items()}

    def load(self, named: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        prefix = "objective."
        self.objective.load_state_dict({k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)})
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in named.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                moments.setdefault(int(index), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        # Fused steps go through memory side by side, so moments must lie there as their weights do.
        for weight, kept in self.optimizer.state.items():
            kept |= {k: torch.empty_like(weight).copy_(v) for k, v in kept.items() if v.shape == weight.shape}
        if self.scale is not None:
            self.scale.copy_(named["scale"])
        if self.stopping is not None:
            self.stopping.load(named, self.generator.device)
        # A copy: PyTorch crashes on a state that starts in the middle of another tensor's memory.
        drawn = named["generators"][self.accelerator.process_index].clone()
        # Another kind of device has other generators. A finished run draws no more numbers; a resumed one draws others.
        if len(drawn) == len(self.generator.get_state()):
            self.generator.set_state(drawn)


@dataclass
class Checkpoint:
    """A file that a run saves its state to, and resumes from.

    A file with other settings is refused, never overwritten.
    """

    path: Path  # its folder is made if need be
    settings: dict[str, Any]  # what the run depends on
    seconds: float = 10.0  # minimum time between two saves
    _last: float = field(default_factory=time.monotonic, repr=False)

    def is_due(self) -> bool:
        """Whether the last save is long enough ago."""
        return time.monotonic() - self._last >= self.seconds

    def restore(self, state: State) -> list[float]:
        """Load the file into the state if it is there; return the loss curve so far."""
        self._require_writable()
        if not self.path.exists():
            return []
        named, theirs = self._read()
        ours = json.loads(json.dumps(self.settings))
        if changed := sorted(k for k in theirs | ours if theirs.get(k) != ours.get(k)):
            listing = ", ".join(
                f"{k} ({printable(theirs.get(k))} there, {printable(ours.get(k))} here)" for k in changed
            )
            raise self._refused(f"was written by a different fit: {listing}")
        if len(named["generators"]) != state.accelerator.num_processes:
            raise ValueError(
                f"checkpoint: {self.path} was written by {len(named['generators'])} process(es), and this fit has "
                f"{state.accelerator.num_processes}. Launch as many again, or give another path."
            )
        curve = named.pop("loss_curve").tolist()
        try:
            state.load(named)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise self._refused(f"was written by a different network ({printable(error, 200)})") from error
        return curve

    def write(self, state: State, curve: list[float]) -> None:
        """Save the state to a temporary file, and move it into place: a kill leaves the old file or the new one."""
        named = state.tensors() | {"loss_curve": torch.tensor(curve, dtype=torch.float64)}
        if state.accelerator.is_main_process:
            with atomic_path(self.path) as temporary:
                temporary.write_bytes(pack_tensors(named, {"format": FORMAT, "settings": self.settings}))
        state.accelerator.wait_for_everyone()  # no process may go on, and perhaps read, before the file is there
        self._last = time.monotonic()

    def _read(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return tensors and settings, or raise if the file is damaged, or has what no fit would write."""
        try:
            named, entry = unpack_tensors(self.path.read_bytes())
            if entry.get("format") != FORMAT or not isinstance(entry.get("settings"), dict):
                raise ValueError("it is no checkpoint of this version")
            if missing := {"generators", "loss_curve"} - named.keys():
                raise ValueError(f"it lacks {missing.pop()}")
            learned = [name for name in named if name.startswith(("objective.", "optimizer.", "best."))]
            if bad := [name for name in learned if not named[name].isfinite().all()]:
                raise ValueError(f"{printable(bad[0])} has NaN or infinite numbers")
        except (ValueError, OSError) as error:
            raise self._refused(f"cannot be read: {error}") from error
        return named, entry["settings"]

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"checkpoint: {self.path} {why}. Delete the file to start again, or give another path.")

    def _require_writable(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"{error.strerror or error}. Give a path in a folder that you may write to"
            raise type(error)(f"checkpoint: {self.path} cannot be written: {why}.") from error
        require_writable(self.path)


def stable_repr(value: Any) -> str:
    """Return a repr without memory addresses, the same in the next process: ``<function adam>``."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
