"""`pindown probe`: how well linear probes decode known factors from the features of frozen models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pindown.cli.messages import interruptible, print_json, print_text, spinner, user_errors
from pindown.cli.options import JSON, with_options

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


@dataclass(frozen=True)
class FactorOptions:
    """What is decoded."""

    factors: Annotated[Path, typer.Option(help="Table with a column per factor, a row per input.", show_default=False)]
    group: Annotated[
        str | None, typer.Option(help="Column of that table whose rows of one value stay together.", show_default=False)
    ] = None
    factor: Annotated[list[str] | None, typer.Option(help="Factors to decode; repeatable. By default all.")] = None
    quantity: Annotated[
        list[str] | None, typer.Option(help="Factors that are quantities though they are whole numbers; repeatable.")
    ] = None

    def read(self) -> tuple[dict[str, NDArray[Any]], NDArray[Any] | None]:
        """Return the columns of factors, and the groups of samples that stay together."""
        from pindown.data.tables import open_table

        source, only = open_table(self.factors), self.factor or []
        of_group = [] if self.group is None else [self.group]
        for name, option in [*((name, "factor") for name in only), *((name, "group") for name in of_group)]:
            source.require(name, option)
        chosen = only or [name for name in source.names if name != self.group]
        numeric = [name for name in chosen if name in source.numeric]
        texts = [name for name in chosen if name not in source.numeric]
        numbers, labels = source.read(numeric, [*texts, *of_group])
        columns = {name: numbers[:, numeric.index(name)] if name in numeric else labels[name] for name in chosen}
        return columns, None if self.group is None else labels[self.group]


@dataclass(frozen=True)
class ResamplingOptions:
    """How it is tested."""

    resamples: Annotated[int, typer.Option(min=2, help="Splits of the samples.")] = 10
    permutations: Annotated[
        int | None, typer.Option(min=19, help="Permutations of the labels in each split. By default as many as needed.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of resamples, permutations and control tasks.")] = 0


@with_options
def probe_features(
    features: FEATURES,
    factors: FactorOptions,
    tests: ResamplingOptions,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Other features to compare with, such as those of a random network: name=file; repeatable."),
    ] = None,
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
            found = _models(Path(path))
            if len(found) > 1:
                raise ValueError(f"--baseline: {path} has several arrays ({', '.join(found)}): give a file with one.")
            models[name] = next(iter(found.values()))
        columns, groups = factors.read()
        with spinner("Probing"):
            probed = probe(
                models,
                columns,
                groups=groups,
                quantities=factors.quantity or (),
                n_resamples=tests.resamples,
                n_permutations=tests.permutations,
                random_state=tests.seed,
            )
        page = None if output is None else probed.save(output)
    if as_json:
        print_json({"output": None if page is None else str(page), **probed.to_dict()})
        return
    print_text(str(probed))
    if page is not None:
        print_text(f"\nThe page: {page}")


def _models(path: Path) -> dict[str, NDArray[Any]]:
    """Return the features in a file, by name: of an .npz all arrays with rows and columns."""
    from pindown.data.tables import Columns, open_table, read_data

    source = open_table(path)  # raises if the file cannot be read
    if path.suffix.lower() != ".npz":
        return {path.stem: read_data(source, Columns()).X}
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        models = {name: array for name, array in file.items() if array.ndim > 1}
        if not models:
            raise ValueError(f"{path.name} has no array of rows and columns: it has {', '.join(file) or 'none'}.")
    return models
