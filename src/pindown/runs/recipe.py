"""An estimator and its parameters as text: which estimator, what its parameters can be, and how they are read."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import Any

from pindown import _random
from pindown._names import listed, nearest, printable
from pindown.auditing.refits import check_roles
from pindown.data.tables import Columns
from pindown.errors import InputError
from pindown.methods.base import BaseEncoder
from pindown.methods.registry import BUILT_IN, SIDES, address_of, find, suited
from pindown.saving.table import TABLE, is_value, look_up
from pindown.training import Trainer


def _of(*modules: str) -> dict[str, Any]:
    """Return the functions and values of modules that files may name, too, by their names."""
    addresses = {f"pindown.{module}" for module in modules}
    found = {tag: look_up(tag) for tag, address in TABLE.items() if address.removesuffix(f":{tag}") in addresses}
    return {tag: thing for tag, thing in found.items() if isinstance(thing, FunctionType) or is_value(thing)}


_NETWORKS, _PREPROCESSING, _OPTIMIZERS = map(_of, ("networks.vectors", "networks.preprocessing", "training.optimizers"))
NAMED = _NETWORKS | _PREPROCESSING | _OPTIMIZERS | _of("networks.spaces", "networks.gates", "losses.penalties")
"""Values that have a name: networks, preprocessing, optimisers, spaces, gates, penalties."""

_FUNCTIONS = {
    **dict.fromkeys(("encoder", "decoder", "classifier"), _NETWORKS),
    "preprocess": _PREPROCESSING,
    "optimizer": _OPTIMIZERS,
}
"""The functions that a parameter can be."""

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
        parsed = read_value(name, value)
        if name in _FUNCTIONS:
            _check_function(name, value, parsed)
        options[name] = value
    return options


def _check_function(name: str, text: str, value: Any) -> None:
    """Raise if a parameter that is a function is not one of those there are for it, or has wrong arguments."""
    known = _FUNCTIONS[name]
    function, keywords = (value.func, value.keywords) if isinstance(value, partial) else (value, {})
    if function not in known.values():
        raise _wrong(name, f"{text} is none of {listed([*known], most=20)}.")
    parameters = signature(function).parameters.values()
    try:
        signature(function).bind_partial(**keywords)
        with _random.forked(0):
            _ = value(3, 2) if known is _NETWORKS else None
    except (TypeError, ValueError, RuntimeError) as error:
        defaults = ", ".join(
            f"{each.name}={each.default}" for each in parameters if each.default is not Parameter.empty
        )
        like = f"{function.__name__}({defaults})" if defaults else function.__name__
        raise _wrong(name, f"{text} cannot be made ({error}). It is written like {like}.") from error


def _wrong(name: str, message: str) -> InputError:
    return InputError(name, f"`option` {name}: {message}")


def read_value(name: str, text: str) -> Any:
    """Parse a text: return a number, a word such as None, or a value that has a name.

    A name may have arguments. Of a class they make an instance, of a function they are fixed: ``mlp(hidden=(64, 64))``.
    """
    try:
        tree = ast.parse(text, mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        if not isinstance(call.func, ast.Name):
            return ast.literal_eval(tree)
        word, args = call.func.id, [ast.literal_eval(arg) for arg in call.args]
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise _wrong(name, f"{printable(text)!r} is neither a number nor a name such as linear or Reals.") from None
    if word not in NAMED:
        raise _wrong(name, f"there is no value {printable(word)!r}: {nearest(word, [*NAMED])}")
    value = NAMED[word]
    if isinstance(value, FunctionType):
        if args:
            raise _wrong(name, f"arguments of {word} have names, such as {word}(name=value).")
        return partial(value, **keywords) if keywords else value
    try:
        return value(*args, **keywords)
    except TypeError as error:
        raise _wrong(name, f"{word} takes other arguments ({error}).") from error


@dataclass(frozen=True)
class Recipe:
    """An estimator and its parameters, as text and numbers; None is what the plan or the estimator chooses."""

    estimator: str
    n_components: int | None = None
    max_iter: int | None = None
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def parameters(
        self, *, checkpoint: Path | None = None, device: str | None = None, verbose: bool = False
    ) -> dict[str, Any]:
        """Return the parameters of the estimator, with where and how it is trained."""
        options = {name: read_value(name, text) for name, text in self.options.items()}
        training = {name: options.pop(name) for name in TRAINER_OPTIONS if name in options}
        options |= {"n_components": self.n_components}
        options |= {} if self.max_iter is None else {"max_iter": self.max_iter}
        trainer, names = Trainer(checkpoint=checkpoint, **training), find(self.estimator)._get_param_names()
        where = {"trainer": trainer, "device": device, "verbose": verbose, "random_state": self.seed}
        return options | {name: value for name, value in where.items() if name in names}

    def build(self) -> BaseEncoder:
        """Return the estimator, not fitted; raise if a parameter is wrong."""
        estimator = find(self.estimator)(**self.parameters())
        try:
            estimator._check_parameters()
        except TypeError as error:  # text for a number, or a network where there must be an optimiser
            raise InputError("option", str(error)) from error
        return estimator

    def having(self, parameters: Mapping[str, Any]) -> Recipe:
        """Return the recipe with these parameters, unless it has them already."""
        chosen = {name: _written(value) for name, value in parameters.items() if name != "n_components"}
        n_components = parameters.get("n_components") if self.n_components is None else self.n_components
        return replace(self, n_components=n_components, options={**chosen, **self.options})


def _written(value: Any) -> str:
    """Return the text that `read_value` takes for a value."""
    return value.__name__ if callable(value) and value in NAMED.values() else repr(value)


def estimator_for(columns: Columns, name: str | None = None, *, fitted: bool = True) -> str:
    """Return the name of the estimator that these columns lead to, as `pindown.plan` does.

    Parameters
    ----------
    columns : Columns
        The role of each column.
    name : str, optional
        The requested estimator.
    fitted : bool
        Whether it is to be fitted: a plan may use more side variables than a fit.

    Examples
    --------
    >>> estimator_for(Columns(nuisance=("batch",))), estimator_for(Columns())
    ('Forget', 'Dictionary')
    """
    columns.check_roles()
    roles = [role for role in SIDES if getattr(columns, role)]
    if columns.given and not columns.nuisance:
        why = "is a label within which a nuisance is removed, but there is no `nuisance`. Name one, or take `signal`."
        raise InputError("given", f"`given={columns.given!r}` {why}")
    if name is not None:
        kind = find(name)
        if fitted:
            check_roles(kind.__name__, roles, kind.spec.roles.used)
        return address_of(kind)
    if (suits := suited(roles)) is not None:
        return address_of(suits)
    if fitted and {"nuisance", "signal"} <= {*roles}:
        raise InputError(
            "signal",
            "a fit that forgets `nuisance` learns nothing from `signal`. If it must survive, take "
            f"`given={columns.signal[0]!r}`; otherwise leave it out. (check and plan use both.)",
        )
    if fitted:
        both = " and ".join(f"`{role}`" for role in roles)
        raise InputError(roles[-1], f"no method learns from {both} at once: choose one of them.")
    return address_of(next(kind for kind in BUILT_IN if kind.spec.roles.y in roles))
