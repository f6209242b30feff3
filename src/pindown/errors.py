"""Errors and warnings of pindown, with fields that a program can read.

In messages, parameters stand in backticks (`` `n_components=5` ``). The command line replaces them by its own options.
"""

import sys
import warnings


class InputError(ValueError):
    """Raise for bad input. The message says what is wrong and what to do.

    Parameters
    ----------
    argument : str
        Name of the input at fault, such as ``"X"`` or ``"n_components"``.
    message : str
        What is wrong, with which input, and what to do.

    Examples
    --------
    >>> error = InputError("y", "y has 3 samples, but X has 4. Pass one label per sample.")
    >>> error.argument, str(error)
    ('y', 'y has 3 samples, but X has 4. Pass one label per sample.')
    """

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(argument, message)
        self.argument = argument

    def __str__(self) -> str:
        return self.args[1]


class IdentifiabilityWarning(UserWarning):
    """The fit goes through, but no theorem covers it. The message says why; `cause` is a short key for programs."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


def warn(message: str | Warning, category: type[Warning] = IdentifiabilityWarning) -> None:
    """Emit a warning that points to the line outside this package that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pindown."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
