"""Messages that name options: the words for these depend on who listens, a program or a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option as Python has it: its name, or with a value ``name='value'``; see `Message`."""

    name: str

    def __format__(self, value: str) -> str:
        return f"{self.name}={value!r}" if value else self.name


class Message(str):
    """A sentence with gaps: for values, which are given, and for options, which every listener calls otherwise.

    Examples
    --------
    >>> message = Message("column {name!r} has NaN. Leave it out: {drop:{name}}.", name="the size")
    >>> print(message)
    column 'the size' has NaN. Leave it out: drop='the size'.
    """

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> Message:
        message = super().__new__(cls, template.format_map(_Gaps(values, Option)))
        message.template, message.values = template, values
        return message

    def said(self, word: Callable[[str], Any]) -> str:
        """Return the sentence, with ``word(name)`` for an option; a value after a colon is its format."""
        return self.template.format_map(_Gaps(self.values, word))


class _Gaps(dict[str, Any]):
    def __init__(self, values: dict[str, Any], word: Callable[[str], Any]) -> None:
        super().__init__(values)
        self._word = word

    def __missing__(self, name: str) -> Any:
        return self._word(name)


class MessageError(ValueError):
    """What the user can mend, as a `Message`: ``template`` with ``values``."""

    def __init__(self, template: str, **values: Any) -> None:
        super().__init__(Message(template, **values))
