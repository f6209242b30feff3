"""Random numbers from ``random_state``, and torch's global settings. A fit leaves both as they were."""

import numbers
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch

GLOBAL_GENERATOR = threading.RLock()
"""Held while torch's global generator is lent out, so that fits in several threads keep their seeds."""

_DTYPE_LOCK = threading.Lock()

RandomState = int | np.random.RandomState | torch.Generator | None
Device = str | torch.device


def generator(random_state: RandomState = None, device: Device = "cpu") -> torch.Generator:
    """Return the generator on `device` that `random_state` stands for.

    An integer gives a fresh generator with that seed; a ``RandomState`` has a seed drawn from it; a generator is
    returned as it is, so that successive calls continue one stream; None asks the system for entropy.

    >>> torch.equal(torch.rand(3, generator=generator(0)), torch.rand(3, generator=generator(0)))
    True
    """
    device = torch.device(device)
    if isinstance(random_state, torch.Generator):
        own = random_state.device
        if own.type != device.type or (device.index is not None and (own.index or 0) != device.index):
            remedy = f"Make it with torch.Generator('{device}'), or pass an integer seed"
            raise ValueError(f"random_state is on {own}, but the numbers are needed on {device}. {remedy}.")
        return random_state
    fresh = torch.Generator(device)
    if random_state is None:
        fresh.seed()
        return fresh
    return fresh.manual_seed(draw_seed(random_state))


def draw_seed(random_state: RandomState = None) -> int:
    """Return an integer seed: `random_state` itself, or one drawn from it."""
    if random_state is None:
        return torch.Generator().seed()
    if isinstance(random_state, torch.Generator):
        draw = torch.randint(2**31, (1,), generator=random_state, device=random_state.device)
        return int(draw)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    kinds = "an integer, a numpy.random.RandomState, a torch.Generator or None"
    raise TypeError(f"random_state must be {kinds}, got {random_state!r}.")


@contextmanager
def forked(random_state: RandomState = None) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block, and restore it afterwards.

    ``nn.Module`` initialisers accept no generator. This is the one place that lends them a seeded one. Other threads
    that use it have to wait.

    >>> def weights():
    ...     with forked(0):
    ...         return torch.nn.Linear(2, 2).weight
    >>> torch.equal(weights(), weights())
    True
    """
    seed = draw_seed(random_state)
    with GLOBAL_GENERATOR, _float32(), torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the GPUs' generators, which this fork does not restore.
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Compute with gradients, in float32 and on the CPU by default, whatever is set outside the block.

    >>> with torch.no_grad(), torch_defaults():
    ...     torch.is_grad_enabled()
    True
    """
    on_cpu = torch.get_default_device().type == "cpu"  # then nothing is set, for it costs time in each operation
    with torch.inference_mode(False), torch.enable_grad(), _float32(), nullcontext() if on_cpu else torch.device("cpu"):
        yield


_OUTSIDE: list[torch.dtype] = []
"""The default dtype that the user set, once for each block of any thread that computes in float32."""


@contextmanager
def _float32() -> Iterator[None]:
    with _DTYPE_LOCK:
        _OUTSIDE.append(_OUTSIDE[0] if _OUTSIDE else torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        with _DTYPE_LOCK:
            outside = _OUTSIDE.pop()
            if not _OUTSIDE:
                torch.set_default_dtype(outside)
