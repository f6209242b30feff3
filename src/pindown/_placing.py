"""Constants on the device where they are needed, copied there once."""

import copy
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn


@lru_cache(maxsize=64)
def placed(constant: Tensor | nn.Module, device: torch.device) -> Any:
    """Return the constant on a device, copied there once: a copy per draw would wait for the device."""
    return copy.deepcopy(constant).to(device)
