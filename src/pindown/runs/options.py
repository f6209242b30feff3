"""Parameters of an estimator as text: ``batch_size=64``, ``encoder=linear``, ``space=Reals()``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pindown import _random, networks
from pindown._names import nearest
from pindown.errors import InputError
from pindown.losses import penalties
from pindown.methods.base import BaseEncoder
from pindown.networks import gates, preprocessing, spaces
from pindown.training import optimizers

_NETWORKS = (
    *(networks.linear, networks.mlp, networks.zero_mlp, networks.small_mlp, networks.skip_mlp, networks.smooth),
    networks.residual,
)
_PREPROCESSING = (
    *(
        preprocessing.whiten_signal,
        preprocessing.tempered,
        preprocessing.whiten,
        preprocessing.standardise,
        preprocessing.centre,
    ),
    preprocessing.nothing,
)
_OPTIMIZERS = (optimizers.adam, optimizers.muon, optimizers.rivals)
_VALUES = (
    *(*_NETWORKS, *_PREPROCESSING, *_OPTIMIZERS, spaces.Sphere, spaces.Reals),
    *(penalties.DependencyCount, penalties.DependencySparsity),
    *(gates.TopK, gates.BatchTopK, gates.Matryoshka, gates.JumpReLU, gates.L1),
)
NAMED: Mapping[str, Any] = {value.__name__: value for value in _VALUES}
"""Values that have a name: networks, preprocessing, optimisers, spaces, penalties, gates."""

_FUNCTIONS = {
    **dict.fromkeys(("encoder", "decoder", "classifier"), _NETWORKS),
    "preprocess": _PREPROCESSING,
    "optimizer": _OPTIMIZERS,
}
"""Parameters that are functions, and those that there are for them."""

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
    """Split ``name=value``, and say of each whether this estimator has such a parameter.

    Examples
    --------
    >>> from pindown.methods import Forget
    >>> read_options(["strength=0.2", "encoder=linear"], Forget)
    {'strength': '0.2', 'encoder': 'linear'}
    """
    known = [name for name in estimator._get_param_names() if name not in _ELSEWHERE]
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError("option", f"`option` must be name=value, such as batch_size=64, got {text!r}.")
        if name in _ELSEWHERE:
            raise InputError("option", f"`option` {name}: use {_ELSEWHERE[name]}.")
        if name not in known:
            hint = nearest(name, known)
            raise InputError("option", f"`option`: {estimator.__name__} has no parameter {name!r}: {hint}")
        _try(name, value)
        options[name] = value
    return options


def _try(name: str, text: str) -> None:
    """Raise if a text stands for nothing, for a function of another kind, or for one with wrong arguments."""
    value = read_value(name, text)
    known = _FUNCTIONS.get(name)
    if known is None:
        return
    function, args, keywords = (
        (value.func, value.args, value.keywords) if isinstance(value, partial) else (value, (), {})
    )
    if function not in known:
        raise _wrong(name, f"{text} is none of {', '.join(each.__name__ for each in known)}.")
    try:
        inspect.signature(function).bind_partial(*args, **keywords)
        with _random.forked(0):
            _ = value(3, 2) if known is _NETWORKS else None
    except (TypeError, ValueError, RuntimeError) as error:
        own = [
            f"{each.name}={each.default}"
            for each in inspect.signature(function).parameters.values()
            if each.default is not each.empty
        ]
        like = f"{function.__name__}({', '.join(own)})" if own else function.__name__
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
            return _made(name, _named(name, word), (), {})
        case ast.Call(func=ast.Name(id=word), args=args, keywords=keywords):
            fixed = {str(keyword.arg): _literal(name, keyword.value) for keyword in keywords}
            return _made(name, _named(name, word), [_literal(name, arg) for arg in args], fixed)
    return _literal(name, tree)


def _made(option: str, value: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
    if not isinstance(value, type):
        return partial(value, *args, **keywords) if args or keywords else value
    try:
        return value(*args, **keywords)
    except TypeError as error:
        raise _wrong(option, f"{value.__name__} takes other arguments ({error}).") from error


def _named(option: str, word: str) -> Any:
    if word not in NAMED:
        raise _wrong(option, f"there is no value {word!r}: {nearest(word, [*NAMED])}")
    return NAMED[word]


def _literal(option: str, tree: ast.expr) -> Any:
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise _wrong(option, f"{ast.unparse(tree)!r} is neither a number nor a name such as linear or Reals.") from None


def written(value: Any) -> str:
    """Return the text that `read_value` takes for a value.

    Examples
    --------
    >>> written(networks.linear), written(spaces.Reals()), written(8)
    ('linear', 'Reals()', '8')
    """
    return value.__name__ if callable(value) and value in NAMED.values() else repr(value)
