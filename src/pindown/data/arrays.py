"""A former place of `pindown.data.sources.is_mapped`: remove this file when no module uses it."""

from pindown.data.sources import is_mapped

__all__ = ["is_mapped"]
