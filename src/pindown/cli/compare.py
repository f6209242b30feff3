"""`pindown compare`: how many atoms several sparse dictionaries share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown.cli.messages import fail, interruptible, print_json, print_text, print_warning, spinner, user_errors
from pindown.cli.options import JSON

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROVENANCE = ("architecture", "model_name", "hook_name")  # of a configuration of SAELens


def compare_sparse(
    dictionaries: Annotated[
        list[Path],
        typer.Argument(help="Two or more: folders of SAELens, .pindown files or runs.", show_default=False),
    ],
    activations: Annotated[
        Path | None,
        typer.Option(help="Activations in which firing is counted: what `fit` reads.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Numbers and all matchings (.json).", show_default=False)
    ] = None,
    absolute: Annotated[bool, typer.Option("--absolute", help="Let an atom match the negative of one.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of chance and noise floor.")] = 0,
    as_json: JSON = False,
) -> None:
    """Match the atoms of sparse dictionaries one to one: PW-MCC, next to chance and a noise floor."""
    if len(dictionaries) < 2:
        fail("compare: give two dictionaries or more.")
    if output is not None and output.suffix != ".json":
        fail(f"--output must end in .json, got {output}.")
    with interruptible("nothing was written."), user_errors(ValueError, TypeError, OSError), spinner("Comparing"):
        from pindown.methods.sparse.comparison import compare_dictionaries

        known = {_name(path, dictionaries): path for path in dictionaries}
        atoms, provenance, firing = {}, {}, {}
        for name, path in known.items():
            atoms[name], provenance[name] = _read(path)
            if activations is not None:
                firing[name] = _firing(path, activations)
        found = compare_dictionaries(atoms, firing or None, signed=not absolute, random_state=seed)
        if output is not None:
            found.save(output, provenance)
    for field in PROVENANCE[1:]:
        if len(places := {str(each[field]) for each in provenance.values() if each.get(field)}) > 1:
            print_warning(f"dictionaries of different {field} are compared: {', '.join(sorted(places))}.")
    if as_json:
        print_json(found.to_dict(provenance))
        return
    print_text(str(found))
    if output is not None:
        print_text(f"\nThe numbers: {output}")


def _name(path: Path, all_paths: list[Path]) -> str:
    """Return the last part of a path, or the whole path if another one ends alike."""
    alike = [other for other in all_paths if other.resolve().name == path.resolve().name]
    return path.resolve().name if len(alike) == 1 else str(path)


def _read(path: Path) -> tuple[NDArray[np.floating], dict[str, object]]:
    """Return the atoms of a dictionary, and what is known of it."""
    from pindown._files import sha256
    from pindown.methods.sparse import saelens

    if (path / saelens.CONFIG).is_file():
        atoms = saelens.read_atoms(path)
        config = json.loads((path / saelens.CONFIG).read_text("utf-8"))
        fields = {**config, **(config.get("metadata") or {})}
        known = {name: fields.get(name) for name in PROVENANCE}
        file = path / saelens.WEIGHTS
    else:
        file = path / "estimator.pindown" if path.is_dir() else path
        est = _load(file)
        atoms, known = est.components_, {"architecture": type(est).__name__}
    return atoms, {"path": str(path), "sha256": sha256(file), "n_atoms": len(atoms), "d": atoms.shape[1], **known}


def _firing(path: Path, activations: Path) -> NDArray[np.float64]:
    """Return how often each feature fires in activations."""
    from pindown.errors import InputError
    from pindown.methods.registry import OF_ATOMS
    from pindown.methods.sparse import SparsePair, saelens
    from pindown.metrics import firing

    est = OF_ATOMS.from_saelens(path) if (path / saelens.CONFIG).is_file() else _load(path)
    est = est.before_ if isinstance(est, SparsePair) else est
    if not isinstance(est, OF_ATOMS):
        raise InputError("activations", f"{path}: features of {type(est).__name__} do not fire. Leave activations out.")
    return firing(est.transform_sparse(str(activations)))


def _load(path: Path) -> Any:
    import pindown

    file = path / "estimator.pindown" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{path}: there is no cfg.json of SAELens, no run and no .pindown file.")
    est = pindown.load(file)
    if not hasattr(est, "components_"):
        raise TypeError(f"{path}: {type(est).__name__} has no atoms.")
    return est
