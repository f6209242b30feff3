"""Parameters of an estimator as text: ``batch_size=64``, ``encoder=linear``, ``space=Reals()``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from inspect import Parameter, signature
from types import FunctionType
from typing import Any

from pindown import _random
from pindown._names import listed, nearest, printable
from pindown.errors import InputError
from pindown.methods.base import BaseEncoder
from pindown.saving.table import TABLE, is_value, look_up


def _of(*modules: str) -> dict[str, Any]:
    """Return the functions and values of some modules that files may name, too, by their names."""
    tags = [tag for tag, address in TABLE.items() if address in {f"pindown.{module}:{tag}" for module in modules}]
    found = {tag: look_up(tag) for tag in tags}
    return {tag: thing for tag, thing in found.items() if isinstance(thing, FunctionType) or is_value(thing)}


_NETWORKS, _PREPROCESSING, _OPTIMIZERS = map(_of, ("networks.vectors", "networks.preprocessing", "training.optimizers"))
NAMED = {
    **(_NETWORKS | _PREPROCESSING | _OPTIMIZERS),
    **_of("networks.spaces", "networks.gates", "losses.penalties"),
}
"""Values that have a name: networks, preprocessing, optimisers, spaces, penalties, gates."""

_FUNCTIONS = {
    **dict.fromkeys(("encoder", "decoder", "classifier"), _NETWORKS),
    "preprocess": _PREPROCESSING,
    "optimizer": _OPTIMIZERS,
}
"""Parameters that are functions, and those that there are for them."""

TRAINER_OPTIONS = ("weight_decay", "optimizer", "validation_fraction", "accumulate", "patience", "tol")
"""Parameters of the trainer that can be written as text; they are given like the estimator's own."""

_ELSEWHERE = {
    "n_components": "`n_components`",
    "max_iter": "`max_iter`",
    "random_state": "`random_state`",
    "device": "`device`",
    "trainer": "Python instead; `output` says where runs are kept",
    "augment": "Python instead, where it can be a function",
    "verbose": "nothing: progress shows if there is a terminal",
}


def read_options(texts: Sequence[str], estimator: type[BaseEncoder]) -> dict[str, str]:
    """Return the parameters in ``name=value``, or raise if the estimator does not have one, or not with such a value.

    Examples
    --------
    >>> from pindown.methods import Forget
    >>> read_options(["strength=0.2", "encoder=linear"], Forget)
    {'strength': '0.2', 'encoder': 'linear'}
    """
    known = [name for name in (*estimator._get_param_names(), *TRAINER_OPTIONS) if name not in _ELSEWHERE]
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError("option", f"`option` must be name=value, such as batch_size=64, got {text!r}.")
        if name in _ELSEWHERE:
            raise InputError("option", f"`option` {name}: use {_ELSEWHERE[name]}.")
        if name not in known:
            hint = nearest(name, known)
            raise InputError("option", f"`option`: {estimator.__name__} has no parameter {printable(name)!r}: {hint}")
        _check_function(name, value)
        options[name] = value
    return options


def _check_function(name: str, text: str) -> None:
    """Raise if a parameter that is a function is not one of those there are for it, or has wrong arguments."""
    value, known = read_value(name, text), _FUNCTIONS.get(name)
    if known is None:
        return
    function, keywords = (value.func, value.keywords) if isinstance(value, partial) else (value, {})
    if function not in known.values():
        raise _wrong(name, f"{text} is none of {listed([*known], most=20)}.")
    own = signature(function).parameters.values()
    try:
        signature(function).bind_partial(**keywords)
        with _random.forked(0):
            _ = value(3, 2) if known is _NETWORKS else None
    except (TypeError, ValueError, RuntimeError) as error:
        defaults = [f"{each.name}={each.default}" for each in own if each.default is not Parameter.empty]
        like = f"{function.__name__}({', '.join(defaults)})" if defaults else function.__name__
        raise _wrong(name, f"{text} cannot be made ({error}). It is written like {like}.") from error


def _wrong(name: str, message: str) -> InputError:
    return InputError(name, f"`option` {name}: {message}")


def read_value(name: str, text: str) -> Any:
    """Return what a text stands for: a number, a word such as None, or a value that has a name.

    A name may have arguments. Of a class they make an instance, of a function they are fixed: ``mlp(hidden=(64, 64))``.

    Examples
    --------
    >>> read_value("scale", "1e-3"), read_value("space", "Reals"), read_value("gate", "TopK(8)")
    (0.001, Reals(), TopK(k=8))
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise _wrong(name, f"{text!r} is neither a number nor a name ({error.msg}).") from None
    match tree:
        case ast.Name(id=word):
            args, keywords = [], {}
        case ast.Call(func=ast.Name(id=word)):
            args = [_literal(name, arg) for arg in tree.args]
            keywords = {str(keyword.arg): _literal(name, keyword.value) for keyword in tree.keywords}
        case _:
            return _literal(name, tree)
    if word not in NAMED:
        raise _wrong(name, f"there is no value {printable(word)!r}: {nearest(word, [*NAMED])}")
    value = NAMED[word]
    if isinstance(value, FunctionType) and args:
        raise _wrong(name, f"arguments of {word} have names, such as {word}(name=value).")
    try:
        return value if isinstance(value, FunctionType) and not keywords else _made(value, args, keywords)
    except TypeError as error:
        raise _wrong(name, f"{word} takes other arguments ({error}).") from error


def _made(value: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
    return partial(value, **keywords) if isinstance(value, FunctionType) else value(*args, **keywords)


def _literal(option: str, tree: ast.expr) -> Any:
    try:
        return ast.literal_eval(tree)
    except ValueError:
        text = printable(ast.unparse(tree))
        raise _wrong(option, f"{text!r} is neither a number nor a name such as linear or Reals.") from None


def written(value: Any) -> str:
    """Return the text that `read_value` takes for a value.

    Examples
    --------
    >>> from pindown import networks
    >>> written(networks.linear), written(networks.spaces.Reals()), written(8)
    ('linear', 'Reals()', '8')
    """
    return value.__name__ if callable(value) and value in NAMED.values() else repr(value)
