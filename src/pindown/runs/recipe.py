"""From data and options to an estimator: which one, with how many latents, in which space; and how well it fits."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pindown.auditing.refits import can_split, check_roles
from pindown.auditing.result import plain
from pindown.auditing.spec import FitScore
from pindown.data.data import Data
from pindown.data.tables import Columns
from pindown.errors import InputError
from pindown.methods.base import BaseEncoder
from pindown.methods.planning import Plan, plan
from pindown.methods.registry import BUILT_IN, SIDES, address_of, find, suited
from pindown.runs.options import TRAINER_OPTIONS, read_value, written
from pindown.training import Trainer

LOOKED_AT, NUMBERS_LOOKED_AT = 20_000, 1 << 25
"""Samples that a plan is based on, and numbers that these have at most if they are images: more would take minutes."""

LAST = 25
"""Steps at the end over which the loss is averaged."""


def looked_at(data: Data) -> int:
    """Return how many samples a plan is based on.

    Examples
    --------
    >>> looked_at(Data([[0.0, 1.0]]))
    20000
    """
    return min(LOOKED_AT, max(1_000, NUMBERS_LOOKED_AT // max(1, data.n_features)))


@dataclass(frozen=True)
class Recipe:
    """An estimator and its parameters, as text and numbers.

    Parameters
    ----------
    estimator : str
        Its name, or its address: see `pindown.methods.registry.find`.
    n_components, max_iter : int or None
        None: what the plan says, or the estimator's own default.
    seed : int
        Its random state.
    options : mapping of str to str
        Other parameters, as `options.read_value` reads them.
    """

    estimator: str
    n_components: int | None = None
    max_iter: int | None = None
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    def build(self, *, checkpoint: Path | None = None, device: str | None = None, verbose: bool = False) -> BaseEncoder:
        """Return the estimator, not fitted; raise if a parameter is wrong."""
        numbers = {"n_components": self.n_components, "max_iter": self.max_iter}
        parameters = {name: number for name, number in numbers.items() if number is not None}
        options = {name: read_value(name, text) for name, text in self.options.items()}
        training = {name: options.pop(name) for name in TRAINER_OPTIONS if name in options}
        parameters |= options
        where = {
            "trainer": Trainer(checkpoint=checkpoint, **training),
            "device": device,
            "verbose": verbose,
            "random_state": self.seed,
        }
        kind = find(self.estimator)
        known = kind._get_param_names()
        estimator = kind(**parameters, **{name: value for name, value in where.items() if name in known})
        try:
            estimator._check_parameters()
        except TypeError as error:  # text for a number, or a network where there must be an optimiser
            raise InputError("option", f"`option`: {error}") from error
        return estimator

    def having(self, parameters: Mapping[str, Any]) -> Recipe:
        """Return the recipe with these parameters, unless it has them already."""
        n_components = parameters.get("n_components") if self.n_components is None else self.n_components
        chosen = {name: written(value) for name, value in parameters.items() if name != "n_components"}
        return replace(self, n_components=n_components, options={**chosen, **self.options})

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, as JSON has them."""
        return asdict(self)


def estimator_for(columns: Columns, name: str | None = None, *, fitted: bool = True) -> str:
    """Return the name of the estimator that these columns lead to, as `pindown.plan` does.

    Parameters
    ----------
    columns : Columns
        Which column plays which part.
    name : str, optional
        Of the estimator that was asked for.
    fitted : bool
        Whether it is to be fitted: a plan may look at more than a fit can use.

    Examples
    --------
    >>> estimator_for(Columns(nuisance=("batch",))), estimator_for(Columns())
    ('Forget', 'Dictionary')
    """
    columns.check_roles()
    roles = [role for role in SIDES if getattr(columns, role)]
    if columns.given and not columns.nuisance:
        raise InputError(
            "given",
            f"`given={columns.given!r}` is a label within which a nuisance is forgotten, but there is no `nuisance`. "
            "Name one, or take `signal` if the label is to be learned from.",
        )
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
            f"`given={columns.signal[0]!r}`; otherwise leave it out. (check and plan look at both.)",
        )
    if fitted:
        both = " and ".join(f"`{role}`" for role in roles)
        raise InputError(roles[-1], f"no method learns from {both} at once: choose one of them.")
    return address_of(next(kind for kind in BUILT_IN if kind.spec.roles.y in roles))


def planned(recipe: Recipe, data: Data) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe with what was left open filled in as its method says, and notes that say what was decided.

    If an audit would refuse the rows, it is said before they are fitted to.
    """
    asked = frozenset([*recipe.options, *(["n_components"] if recipe.n_components is not None else [])])
    with warnings.catch_warnings(action="ignore"):  # the fit warns again
        est = recipe.build()
    settled = est.spec.choose(est, data, asked, lambda est: look(data, est, recipe.n_components))
    audited = can_split(est, data)
    missing = () if audited.outcome == "holds" else (audited.why,)
    return recipe.having(settled.parameters), (*settled.notes, *missing)


def look(data: Data, est: BaseEncoder, n_components: int | None = None) -> Plan:
    """Return the plan for data, from a sample of their rows if there are many; an audit divides all of them."""
    some = data.sample(looked_at(data))
    some = some.take(range(len(some))) if some.is_source else some
    found, audited = plan(some, estimator=est, n_components=n_components), can_split(est, data)
    needs = [need for need in found.needs if need != can_split(est, some).why]
    return replace(found, needs=(*needs, *([audited.why] if audited.outcome != "holds" else [])))


def fit(estimator: BaseEncoder, data: Data) -> BaseEncoder:
    """Fit an estimator to the side variables that it uses; partners that are the next rows, within groups."""
    data = data.paired() if data.groups is not None else data
    return estimator.fit(data.only(*estimator.spec.roles.used, "groups"))


def scores(estimator: BaseEncoder, data: Data) -> dict[str, Any]:
    """Return what was fitted to how many samples, and how well, for JSON; a score comes with its chance level."""
    held_out = getattr(estimator, "held_out_", None)
    if held_out is None:
        score = estimator.spec.score(estimator, data.sample(looked_at(data)))
    else:
        score = FitScore(held_out.name, held_out.score, held_out.chance, held_out.rows)
    return plain(
        {
            "estimator": type(estimator).__name__,
            "n_components": estimator.n_components_,
            "n_samples": len(data),
            "n_features": data.n_features,
            "n_steps": estimator.n_iter_,
            "loss": float(np.mean(estimator.loss_curve_[-LAST:])),
            "score": score._asdict(),
        }
    )
