"""A former place of `pindown.data.files.require_in_memory`: remove this file when no module uses it."""

from pindown.data.files import require_in_memory

__all__ = ["require_in_memory"]
