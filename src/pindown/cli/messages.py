"""What commands print, how they report errors, and how they end.

Exit codes: 0 done, 2 the user can fix it, 1 failed, 130 stopped by Ctrl-C, 143 by SIGTERM. If there are several
processes, as with torchrun, only the first one prints.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pindown._names import printable, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table as RichTable

LONGEST = 250
"""Characters of a word that are printed; a longer one is probably the name of a column."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def is_first_process() -> bool:
    """Return whether this is the only process of a command, or the first of several."""
    return os.environ.get("RANK", "0") == "0"


def command_line() -> str:
    """Return the command that was given, for a shell."""
    return shlex.join(["pindown", *sys.argv[1:]])


# ---- print ----------------------------------------------------------------------------------------------------------


def safe(text: str) -> str:
    r"""Return text for a terminal: control characters are escaped, and long words are cut.

    Examples
    --------
    >>> safe("a\x1b[31m b\nc" + "d" * 300)[:20], len(safe("d" * 300))
    ('a\\x1b[31m b\ncddddddd', 250)
    """
    lines = ("".join(c if c.isprintable() else printable(c) for c in line) for line in text.split("\n"))
    return re.sub(rf"\S{{{LONGEST + 1},}}", lambda word: printable(word[0], LONGEST), "\n".join(lines))


def console(*, stderr: bool = False) -> Console:
    """Return the console to print to."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


def print_text(text: str) -> None:
    """Print text without wrapping its lines."""
    if is_first_process():
        console().print(safe(text), markup=False, soft_wrap=True)


def print_json(content: Mapping[str, object]) -> None:
    """Print a result for machines."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    if is_first_process():
        typer.echo(re.sub("[\x7f-\x9f]", lambda c: f"\\u{ord(c[0]):04x}", text))  # JSON does not escape these controls


def print_warning(message: str) -> None:
    """Print a line to standard error."""
    if is_first_process():
        typer.echo(safe(f"pindown: {as_options(message)}"), err=True)


def grid(pairs: Sequence[tuple[str, str]]) -> RichTable:
    """Return labels and texts in two columns, with the texts wrapped in theirs."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for label, text in pairs:
        table.add_row(safe(label), Text(safe(text)))  # Text, because brackets in a formula are not markup
    return table


def formulas_checked(columns: Mapping[str, NDArray[Any]], *, quote: bool) -> dict[str, NDArray[Any]]:
    """Return columns with an apostrophe before text that spreadsheets run as a formula; or warn, unless ``quote``.

    Examples
    --------
    >>> import numpy as np
    >>> formulas_checked({"id": np.array(["=1+1", "a", "-x"])}, quote=True)["id"].tolist()
    ["'=1+1", 'a', "'-x"]
    """
    import numpy as np

    checked = dict(columns)
    for name, values in columns.items():
        texts = [str(each) for each in values] if values.dtype.kind in "UO" else []
        found = [text for text in texts if text.startswith(_FORMULA)]
        if found and quote:
            checked[name] = np.array([f"'{text}" if text.startswith(_FORMULA) else text for text in texts])
        elif found:
            print_warning(
                f"spreadsheets run text such as {quoted(found[0])} as a formula: --quote-formulas prevents it."
            )
    return checked


@contextmanager
def spinner(message: str) -> Iterator[None]:
    """Show a spinner if there is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(message):
        yield


# ---- end ------------------------------------------------------------------------------------------------------------


def fail(message: str) -> NoReturn:
    """Print what is wrong, and exit with code 2."""
    print_warning(message)
    raise typer.Exit(2)


@contextmanager
def user_errors(*errors: type[Exception], then: str = "") -> Iterator[None]:
    """Print these errors as a sentence and exit; other errors are bugs and keep their traceback."""
    try:
        yield
    except errors as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
            message = f"{error.filename}: {error.strerror}."
        fail(f"{message.rstrip('.')}. {then}" if then else message)


@contextmanager
def interruptible(state: str, *, diverged: str | None = None) -> Iterator[None]:
    """Print the state when a command is stopped by Ctrl-C or SIGTERM, or because training diverged."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()  # only the main thread may set handlers
    previous = signal.signal(signal.SIGTERM, stop) if in_main else None
    try:
        yield
    except KeyboardInterrupt:
        print_warning(f"{'terminated' if received else 'stopped'}; {state}")
        raise typer.Exit(143 if received else 130) from None
    except RuntimeError as error:
        from pindown.training.divergence import TrainingDivergedError

        if not isinstance(error, TrainingDivergedError):
            raise
        print_warning(f"{error} {diverged or state}")
        raise typer.Exit(1) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, previous)


# ---- parameters as options ------------------------------------------------------------------------------------------

_SAME_NAME = (
    "background channels counts data device drop estimator features force given group id impute labels nuisance option "
    "pairs pca seed signal size skip_corrupt skip_unlabelled sparse steps truth"
)
_OPTIONS = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME_NAME.split()},
    **{"components": "-d", "groups": "--group", "max_iter": "--steps", "n_components": "-d", "output": "-o"},
    "random_state": "--seed",
}
"""Options by the names of parameters."""

_OF_ESTIMATORS = ("batch_size", "decoder", "encoder", "gate", "learning_rate", "n_bins", "preprocess", "space")
"""Parameters of estimators that have no option of their own: ``--option name=value``."""

_PARAMETER = re.compile(
    r"`(\w+)(?:=([^`]+))?`"  # in backticks; or a name that is hardly that of a column
    r"|(?<!['\w])(?<!--option )"
    r"(batch_size|learning_rate|max_iter|n_bins|n_components|random_state|(?:encoder|space)(?==))"
    r"\b(?:=(…|[\w.()]*[\w)]))?"
)


def as_options(message: str) -> str:
    """Return a message with parameters written as options.

    Examples
    --------
    >>> as_options("Leave it out: `drop='the size'`, or convert: `size=(64, 64)`, `skip_corrupt=True`.")
    "Leave it out: --drop 'the size', or convert: --size 64x64, --skip-corrupt."
    >>> as_options("`learning_rate=0.1` needs more steps (`max_iter`). `encoder` is a network.")
    '--option learning_rate=0.1 needs more steps (--steps). `encoder` is a network.'
    >>> as_options("Take encoder=networks.linear, max_iter=9, or another learning_rate (now 0.1).")
    'Take --option encoder=linear, --steps 9, or another --option learning_rate (now 0.1).'
    """
    return _PARAMETER.sub(_as_option, message)


def _as_option(found: re.Match[str]) -> str:
    marked, marked_text, plain, plain_text = found.groups()
    name, text = marked or plain, marked_text or plain_text
    option = _OPTIONS.get(name)
    if option is None:
        if name not in _OF_ESTIMATORS or (marked and text is None):
            return found[0]
        return f"--option {name}" if text is None else f"--option {name}={text.removeprefix('networks.')}"
    if text in (None, "True"):
        return option
    if text == "None":
        return f"no {option}"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a placeholder, such as …
        return f"{option} {text}"
    return f"{option} {'x'.join(map(str, value)) if isinstance(value, tuple) else shlex.quote(str(value))}"
