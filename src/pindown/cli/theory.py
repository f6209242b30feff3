"""`pindown theory`: the theorems, with what they assume and how much diversity they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pindown._names import nearest
from pindown.cli.messages import console, fail, grid

if TYPE_CHECKING:
    from pindown.theory import Diversity, Theorem


def show_theory(
    name: Annotated[str | None, typer.Argument(help="A theorem, to see it in full.", show_default=False)] = None,
    d: Annotated[
        int | None, typer.Option("--dimensions", "-d", min=1, help="Count the diversity needed at d dimensions.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Second dimension of some counts: the theorem says which.")
    ] = None,
) -> None:
    """List the theorems: side information, conclusion, indeterminacy."""
    from rich.padding import Padding
    from rich.text import Text

    from pindown.theory import THEOREMS

    if k is not None and d is None:
        fail("-k counts nothing without -d: give both.")
    names = [theorem.name for theorem in THEOREMS]
    if name is not None and name not in names:
        fail(f"there is no theorem {name!r}: {nearest(name, names)}")
    out = console()
    for theorem in THEOREMS:
        if name in (None, theorem.name):
            out.print(Text.assemble((theorem.name, "bold"), "  ", (theorem.source, "dim")))
            facts = _facts(theorem, d, k) + (_fine_print(theorem) if name else [])
            out.print(Padding(grid(facts), (0, 0, 1, 2), expand=False))
    out.print(
        Text(next(theorem.claim() for theorem in THEOREMS if theorem.name == name))
        if name
        else Text("pindown theory NAME shows one with its assumptions; -d 5 counts what it needs.", "dim")
    )


def _facts(theorem: Theorem, d: int | None, k: int | None) -> list[tuple[str, str]]:
    facts = [
        ("given", theorem.side_information),
        ("promise", theorem.promises),
        ("up to", theorem.indeterminacy.name),
    ]
    return facts if theorem.diversity is None else [*facts, ("needs", _needs(theorem.diversity, d, k))]


def _needs(diversity: Diversity, d: int | None, k: int | None) -> str:
    formula = f"{diversity.formula} {diversity.unit}"
    if diversity.k_means:
        formula += f"; k is {diversity.k_means}" if "k" in diversity.formula else f"; -k is {diversity.k_means}"
    if d is None:
        return formula
    if not diversity.k_means:
        return f"{formula}: {diversity.needed(d)} at d = {d}"
    # Without a k, the first few show how the count grows.
    counts = []
    for value in (1, 2, 3) if k is None else (k,):
        try:
            counts.append(f"{diversity.needed(d, value)} at k = {value}")
        except ValueError:
            counts.append(f"none at k = {value}, which is more than d")
    return f"{formula}: with d = {d}, {', '.join(counts)}"


def _fine_print(theorem: Theorem) -> list[tuple[str, str]]:
    assumed = [("assumes", f"{a.name} ({a.about}): {a.statement}") for a in theorem.assumes]
    return [
        ("that is", theorem.indeterminacy.statement),
        *((label if i == 0 else "", text) for i, (label, text) in enumerate(assumed)),
        *(("not promised" if i == 0 else "", text) for i, text in enumerate(theorem.not_promised)),
    ]
