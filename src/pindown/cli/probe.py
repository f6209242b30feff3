"""`pindown probe`: how well linear probes decode known factors from the features of frozen models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown.cli.messages import interruptible, print_json, print_text, spinner, user_errors
from pindown.cli.options import JSON

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEATURES = Annotated[
    Path,
    typer.Argument(
        help="Features, a row per input: .npz with an array for each model, the first compared with the others; or "
        ".npy, .csv, .tsv, .parquet with one.",
        show_default=False,
    ),
]


def probe_features(
    features: FEATURES,
    factors: Annotated[
        Path, typer.Option(help="Table with a column for each factor, a row per input.", show_default=False)
    ],
    group: Annotated[
        str | None,
        typer.Option("--group", help="Column of that table whose rows of one value stay together.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--factor", help="Factors to decode; repeatable. By default all columns.")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Other features to compare with, such as those of a random network: name=file; repeatable."),
    ] = None,
    resamples: Annotated[int, typer.Option(min=2, help="Splits of the samples.")] = 10,
    permutations: Annotated[
        int | None, typer.Option(min=19, help="Permutations of the labels in each split. By default as many as needed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of resamples, permutations and control tasks.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Page (.html), table (.csv) or numbers (.json).", show_default=False),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Measure how well linear probes decode known factors, next to chance, control tasks and other features."""
    with interruptible("nothing was written."), user_errors(ValueError, OSError):
        from pindown.auditing.page import check_writable
        from pindown.auditing.probing import probe

        if output is not None:
            check_writable(output)
        models = _models(features)
        for text in baseline or ():
            name, equals, path = text.partition("=")
            if not (name and equals and path):
                raise ValueError(f"--baseline must be name=file, such as raw=pixels.npy, got {text!r}.")
            models[name] = _only(Path(path), _models(Path(path)))
        columns, groups = _factors(factors, group, only or [])
        with spinner("Probing"):
            found = probe(
                models,
                columns,
                groups=groups,
                n_resamples=resamples,
                n_permutations=permutations,
                random_state=seed,
            )
        page = None if output is None else found.save(output)
    if as_json:
        print_json({"output": None if page is None else str(page), **found.to_dict()})
        return
    print_text(str(found))
    if page is not None:
        print_text(f"\nThe page: {page}")


def _models(path: Path) -> dict[str, NDArray[Any]]:
    """Return the features in a file, by name: of an .npz all arrays with rows and columns."""
    import numpy as np

    from pindown.data.tables import Columns, open_table, read_data

    source = open_table(path)  # raises if the file cannot be read
    if path.suffix.lower() == ".npz":
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        models = {name: array for name, array in arrays.items() if array.ndim > 1}
        if not models:
            raise ValueError(f"{path.name} has no array of rows and columns: it has {', '.join(arrays) or 'none'}.")
        return models
    return {path.stem: read_data(source, Columns()).X}


def _only(path: Path, models: dict[str, NDArray[Any]]) -> NDArray[Any]:
    if len(models) > 1:
        raise ValueError(f"--baseline: {path.name} has several arrays ({', '.join(models)}): give a file with one.")
    return next(iter(models.values()))


def _factors(path: Path, group: str | None, only: list[str]) -> tuple[dict[str, NDArray[Any]], NDArray[Any] | None]:
    """Return the columns of factors, and the groups of samples that stay together."""
    from pindown.data.tables import open_table

    source = open_table(path)
    for name, option in [*((name, "factor") for name in only), *([(group, "group")] if group else [])]:
        source.require(name, option)
    chosen = only or [name for name in source.names if name != group]
    numeric = [name for name in chosen if name in source.numeric]
    texts = [name for name in chosen if name not in source.numeric]
    numbers, labels = source.read(numeric, [*texts, *([group] if group else [])])
    columns: dict[str, NDArray[Any]] = {name: numbers[:, k] for k, name in enumerate(numeric)}
    columns |= {name: labels[name] for name in texts}
    return {name: columns[name] for name in chosen}, None if group is None else labels[group]
