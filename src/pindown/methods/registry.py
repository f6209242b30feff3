"""The methods: those of this package, those that other packages register, and any by its address.

Another package registers its methods as entry points of the group ``pindown.methods``::

    [project.entry-points."pindown.methods"]
    Regress = "own_method.regress:Regress"
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from importlib.metadata import entry_points

from pindown._names import nearest, printable
from pindown.errors import InputError
from pindown.methods.base import BaseEncoder
from pindown.methods.classify.estimator import Classify
from pindown.methods.contrast.estimator import Contrast
from pindown.methods.dictionary import Dictionary
from pindown.methods.forget import Forget
from pindown.methods.sparse import Sparse, SparseBasis
from pindown.saving.table import GROUP

BUILT_IN: tuple[type[BaseEncoder], ...] = (Forget, Contrast, Classify, Dictionary, Sparse, SparseBasis)
"""In the order in which they are chosen if several suit the data."""

OF_ATOMS: type[Sparse] = Sparse  # the method of ``--sparse`` on the command line

SIDES = ("signal", "nuisance", "pairs", "given")
"""Roles of side variables that a fit may use; groups and true latents are for the audit alone."""


def registered() -> dict[str, str]:
    """Return the address of each method that other packages register, by name; nothing is imported."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def find(name: str) -> type[BaseEncoder]:
    """Return the method of this name, or at this address, ``package.module:Class``.

    Examples
    --------
    >>> find("Forget").__name__, find("pindown.methods:Contrast").__name__
    ('Forget', 'Contrast')
    >>> find("Forgot")
    Traceback (most recent call last):
    pindown.errors.InputError: `estimator`: there is no 'Forgot': did you mean 'Forget'?
    """
    ours, others = {kind.__name__: kind for kind in BUILT_IN}, registered()
    if name in ours:
        return ours[name]
    if name not in others and ":" not in name:
        hint = nearest(name, [*ours, *others])
        raise InputError("estimator", f"`estimator`: there is no {printable(name)!r}: {hint}")
    address = others.get(name, name)
    module, _, attribute = address.partition(":")
    try:
        kind = import_module(module)
        for part in attribute.split("."):
            kind = getattr(kind, part)
    except Exception as error:  # another package may raise anything
        raise InputError(
            "estimator",
            f"`estimator`: {name} cannot be imported from {address} ({type(error).__name__}: {error}). Check that its "
            "package is installed.",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, BaseEncoder)):
        raise InputError("estimator", f"`estimator`: {address} must be a subclass of pindown's BaseEncoder.")
    return kind


def installed(name: str) -> type[BaseEncoder] | None:
    """Return the method of this name if it is built in or registered, else None; nothing else is imported."""
    return find(name) if name in registered() or name in {kind.__name__ for kind in BUILT_IN} else None


def address_of(kind: type[BaseEncoder]) -> str:
    """Return the address by which `find` finds a method, also in another process."""
    address = f"{kind.__module__}:{kind.__qualname__}"
    names = {value: name for name, value in registered().items()}
    return kind.__name__ if kind in BUILT_IN else names.get(address, address)


def suited(roles: Collection[str]) -> type[BaseEncoder] | None:
    """Return the first built-in method that uses all side variables; None if there is none."""
    for kind in BUILT_IN:
        side = kind.spec.roles.y
        if set(roles) <= set(kind.spec.roles.used) and (side is None or side in roles):
            return kind
    return None
