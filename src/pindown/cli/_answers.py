"""What commands share: printing, refusing what the user can mend, and saying how things stand when stopped.

Exit codes: 0 done, 2 the user can fix it, 1 it failed, 130 it was stopped by Ctrl-C, 143 by SIGTERM. Of several
processes, as torchrun starts them, the first one speaks.
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
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pindown._names import counted, listed, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from pindown.data.data import Data


LONGEST = 250
"""Characters of a word that are printed; a longer one is the name of a column, or worse."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def is_first_process() -> bool:
    """Return whether this is the only process of a command, or the first of several."""
    return os.environ.get("RANK", "0") == "0"


def safe(text: str) -> str:
    r"""Return text for a terminal: lines without control characters, and without words that fill the screen.

    Examples
    --------
    >>> safe("a\x1b[31m b\nc" + "d" * 300)[:20], len(safe("d" * 300))
    ('a\\x1b[31m b\ncddddddd', 250)
    """
    lines = ("".join(c if c.isprintable() else printable(c) for c in line) for line in text.split("\n"))
    return re.sub(rf"\S{{{LONGEST + 1},}}", lambda word: printable(word[0], LONGEST), "\n".join(lines))


def without_formulas(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of text in which no spreadsheet sees a formula: an apostrophe stands before what looks like one.

    Examples
    --------
    >>> without_formulas({"id": ["=1+1", "a", "-x"]})["id"].tolist()
    ["'=1+1", 'a', "'-x"]
    """
    import numpy as np

    arrays = {name: np.asarray(values) for name, values in columns.items()}
    return {
        name: np.array(
            [f"'{each}" if str(each).startswith(_FORMULA) else each for each in values.tolist()], dtype=object
        )
        if values.dtype.kind in "UO"
        else values
        for name, values in arrays.items()
    }


def console(*, stderr: bool = False) -> Console:
    """Return where to print."""
    from rich.console import Console

    return Console(highlight=False, stderr=stderr)


def say(text: str) -> None:
    """Print text as it is, however long its lines are."""
    if is_first_process():
        console().print(safe(text), markup=False, soft_wrap=True)


def observed(study: Data) -> str:
    """Say what the data are, in a few words: names of columns, or what a folder holds."""
    if not study.is_source:
        return listed(study.names)
    shape = study.X.shape
    return f"pictures of {' × '.join(map(str, shape))}" if len(shape) > 1 else counted(shape[0], "activation")


def say_json(content: dict[str, Any]) -> None:
    """Print an answer for machines."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    if is_first_process():
        typer.echo(re.sub("[\x7f-\x9f]", lambda c: f"\\u{ord(c[0]):04x}", text))  # controls that JSON lets through


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """Turn a wheel meanwhile, if there is a terminal to turn it on."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(message):
        yield


def grid(pairs: Sequence[tuple[str, str]]) -> RichTable:
    """Return labels and texts in two columns, the texts wrapped in theirs."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for label, text in pairs:
        table.add_row(safe(label), Text(safe(text)))  # Text, because brackets in a formula are no markup
    return table


@contextmanager
def refusing(*errors: type[Exception], then: str = "", of_estimator: bool = False) -> Iterator[None]:
    """Turn what the user can mend into a sentence; anything else is ours, and keeps its traceback.

    What an estimator says is put in our words. Elsewhere such a word may be the name of a column.
    """
    try:
        yield
    except errors as error:
        message = in_our_words(_said(error)) if of_estimator else _said(error)
        refuse(f"{message.rstrip('.')}. {then}" if then else message)


def _said(error: Exception) -> str:
    """Return the sentence of an error; of one from the operating system with the file first."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


@contextmanager
def _terminated_like_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM stop a command where Ctrl-C would; yield what was received."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield received
        return

    def interrupt(number: int, frame: Any) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def stopping(state: str, *, diverged: str | None = None) -> Iterator[None]:
    """Say how things stand when a command ends before its end: by Ctrl-C, by SIGTERM, or because training diverged."""
    try:
        with _terminated_like_interrupted() as received:
            yield
    except KeyboardInterrupt:
        complain(f"{'terminated' if received else 'stopped'}; {state}")
        raise typer.Exit(143 if received else 130) from None
    except RuntimeError as error:
        from pindown.training.divergence import TrainingDivergedError

        if not isinstance(error, TrainingDivergedError):
            raise
        complain(f"{in_our_words(str(error))} {diverged or f'Meanwhile, {state}'}")
        raise typer.Exit(1) from None


_OPTIONS = {
    "components": "-d",
    "groups": "--group",
    "max_iter": "--steps",
    "n_components": "-d",
    "output": "-o",
    "random_state": "--seed",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            *("background", "channels", "counts", "data", "device", "drop", "estimator", "features", "force", "given"),
            *("group", "id", "impute", "labels", "nuisance", "option", "pairs", "pca", "seed", "signal", "size"),
            *("skip_corrupt", "skip_unlabelled", "sparse", "steps", "truth"),
        )
    },
}
"""Options by the names of parameters."""

_OF_ESTIMATORS = ("batch_size", "decoder", "encoder", "gate", "learning_rate", "n_bins", "preprocess", "space")
"""Parameters of estimators that have no option of their own: ``--option name=value``."""


def in_shell(message: str) -> str:
    """Return a message with parameters in backticks written as options of the command line.

    Examples
    --------
    >>> in_shell("Leave it out: `drop='the size'`, or convert: `size=(64, 64)`, `skip_corrupt=True`.")
    "Leave it out: --drop 'the size', or convert: --size 64x64, --skip-corrupt."
    >>> in_shell("`learning_rate=0.1` needs more steps (`max_iter`). `encoder` is a network.")
    '--option learning_rate=0.1 needs more steps (--steps). `encoder` is a network.'
    """
    return re.sub(r"`(\w+)(?:=([^`]+))?`", _as_option, message)


def _as_option(found: re.Match[str]) -> str:
    name, text = found.groups()
    if name not in _OPTIONS:
        return f"--option {name}={text}" if text is not None and name in _OF_ESTIMATORS else found[0]
    if text is None:
        return _OPTIONS[name]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a placeholder, such as …
        return f"{_OPTIONS[name]} {text}"
    if value is True:
        return _OPTIONS[name]
    if value is None:
        return f"no {_OPTIONS[name]}"
    return f"{_OPTIONS[name]} {'x'.join(map(str, value)) if isinstance(value, tuple) else shlex.quote(str(value))}"


_IN_OUR_WORDS = {
    r"(['`])(n_components|max_iter|random_state|learning_rate|batch_size|n_bins)\1": r"\2",  # no quotes around options
    r"\bencoder=networks\.(\w+)": r"--option encoder=\1",
    r"\bn_components=None\b": "no -d",
    r"\bn_components=(\d+)": r"-d \1",
    r"\bn_components\b": "-d",
    r"\bmax_iter=(\d+)": r"--steps \1",
    r"\bmax_iter\b": "--steps",
    r"\brandom_state=(\d+)": r"--seed \1",
    r"\brandom_state\b": "--seed",
    r"(?<!--option )\b(space=\w+\(|encoder=…|(?:learning_rate|batch_size|n_bins)\b)": r"--option \1",
    r"^--option: (?=-)": "",
}


def in_our_words(message: str) -> str:
    """Return an estimator's message with parameters written as options, also those that stand outside backticks.

    Examples
    --------
    >>> in_our_words("Take encoder=networks.linear, more steps (max_iter), or a smaller learning_rate (now 0.1).")
    'Take --option encoder=linear, more steps (--steps), or a smaller --option learning_rate (now 0.1).'
    >>> in_our_words("Forget: n_components=None counts them, 'n_components' = 7 are too many.")
    'Forget: no -d counts them, -d = 7 are too many.'
    """
    message = in_shell(message)
    for theirs, ours in _IN_OUR_WORDS.items():
        message = re.sub(theirs, ours, message)
    return message


def complain(message: str) -> None:
    """Print a line to where errors go."""
    if is_first_process():
        typer.echo(safe(f"pindown: {in_shell(message)}"), err=True)


def refuse(message: str) -> NoReturn:
    """Say what is wrong, and end."""
    complain(message)
    raise typer.Exit(2)
