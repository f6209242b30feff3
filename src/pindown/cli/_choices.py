"""Options that several commands share: which column is what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pindown.data.tables import Columns
    from pindown.runs.inputs import ImageOptions, Source


def _columns_in_file(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a column from the data file that was named before it."""
    from pindown.data.tables import open_table

    # While an option still lacks its value, the words before it are left over.
    words = [ctx.params.get("data"), *ctx.args]
    files = [Path(word) for word in words if word is not None and Path(word).is_file()]
    try:
        source = open_table(files[0])
    except (IndexError, ValueError, OSError):
        return []
    return [name for name in (*source.names, *source.blocks) if name.startswith(incomplete)]


DATA = Annotated[
    Path,
    typer.Argument(
        help="The data: .csv, .tsv, .xlsx, .npz, .npy, .parquet, .h5ad, or a folder of images.", show_default=False
    ),
]
LABELS = Annotated[
    Path | None,
    typer.Option("--labels", help="Of a folder of pictures: a .csv with a row per file.", show_default=False),
]
SIZE = Annotated[
    str | None, typer.Option("--size", help="Resize pictures: 64, or 48x64 for height and width.", show_default=False)
]
CHANNELS = Annotated[
    int | None, typer.Option("--channels", help="Turn pictures to grey (1) or colour (3).", show_default=False)
]
BACKGROUND = Annotated[
    float | None,
    typer.Option("--background", help="What shows through transparent pixels, 0 (black) to 1.", show_default=False),
]
SKIP_CORRUPT = Annotated[bool, typer.Option("--skip-corrupt", help="Leave out pictures that cannot be read.")]
SKIP_UNLABELLED = Annotated[bool, typer.Option("--skip-unlabelled", help="Leave out pictures that --labels misses.")]
SIGNAL = Annotated[
    list[str] | None,
    typer.Option(
        "--signal",
        help="Column with a label to learn from; repeat it for several measurements.",
        autocompletion=_columns_in_file,
    ),
]
NUISANCE = Annotated[
    list[str] | None,
    typer.Option("--nuisance", help="Column to forget; repeat it for several.", autocompletion=_columns_in_file),
]
PAIRS = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        help="Column whose equal values are partners, an array of partners (.npz), or `next`: the next row.",
        autocompletion=_columns_in_file,
    ),
]
GROUP = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Column with subjects, sessions …: rows of one are never split between learning and held-out.",
        autocompletion=_columns_in_file,
    ),
]
GIVEN = Annotated[
    str | None,
    typer.Option("--given", help="Label that must survive: forget within its values.", autocompletion=_columns_in_file),
]
FEATURES = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        help="Observed variables: a name or a pattern such as 'gene_*'; repeatable. By default all other numbers.",
        autocompletion=_columns_in_file,
    ),
]
DROP = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", help="Name or pattern of columns to leave out; repeatable.", autocompletion=_columns_in_file
    ),
]
ID = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Column that names the rows, written beside their latents. By default the first text that does.",
        autocompletion=_columns_in_file,
        show_default=False,
    ),
]
IMPUTE = Annotated[
    str | None,
    typer.Option("--impute", help="Where numbers are missing: median or drop-rows. By default that is refused."),
]
COUNTS = Annotated[
    bool, typer.Option("--counts", help="Observed variables are counts: bring rows to one size, then log(1 + x).")
]
PCA = Annotated[
    int | None,
    typer.Option(
        "--pca",
        min=1,
        help="Keep so many leading directions of the data, in place of those beyond noise.",
        show_default=False,
    ),
]
COMPONENTS = Annotated[
    int | None, typer.Option("--latents", "--components", "-d", min=1, help="How many. By default what the plan says.")
]
SPARSE = Annotated[
    int | None,
    typer.Option(
        "--sparse",
        min=1,
        metavar="N",
        help="Short for a sparse dictionary of N atoms: --estimator Sparse -d N. Its gate: --option 'gate=TopK(32)'.",
        show_default=False,
    ),
]
OPTION = Annotated[
    list[str] | None,
    typer.Option("--option", help="Any other parameter of the estimator, such as batch_size=64; repeatable."),
]
ESTIMATOR = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        help="Method: Contrast, Classify, Forget, Dictionary, Sparse, SparseBasis, one that a package registered, "
        "or package.module:Class. By default what uses the side variables there are.",
        show_default=False,
    ),
]
DEVICE = Annotated[
    str | None,
    typer.Option("--device", help="Such as cpu or cuda. A GPU is taken if there is one.", show_default=False),
]
FOREIGN = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        help="Address of the method, package.module:Class, if it is not installed as one: its package is imported.",
        show_default=False,
    ),
]
QUOTE_FORMULAS = Annotated[
    bool,
    typer.Option(
        "--quote-formulas",
        help="Write ids that a spreadsheet would take for a formula, such as =1+1, with an apostrophe before them.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead, for machines.")]


def columns(
    *,
    signal: list[str] | None,
    nuisance: list[str] | None,
    pairs: str | None,
    group: str | None,
    given: str | None,
    features: list[str] | None,
    drop: list[str] | None,
    id: str | None,
    impute: str | None,
    counts: bool,
    truth: list[str] | None = None,
) -> Columns:
    """Return the options as one value."""
    from pindown.data.tables import Columns

    return Columns(
        features=tuple(features or ()),
        drop=tuple(drop or ()),
        signal=tuple(signal or ()),
        nuisance=tuple(nuisance or ()),
        pairs=pairs,
        group=group,
        given=given,
        truth=tuple(truth or ()),
        id=id,
        impute=impute,
        counts=counts,
    )


def in_full(sparse: int | None, estimator: str | None, components: int | None) -> tuple[str | None, int | None]:
    """Return the estimator and its number of latents, where a number of atoms may stand for both."""
    if sparse is None:
        return estimator, components
    from pindown.errors import InputError
    from pindown.methods.registry import OF_ATOMS, address_of

    name = address_of(OF_ATOMS)
    twice = [word for word, value in (("estimator", estimator), ("components", components)) if value is not None]
    if twice:
        raise InputError(
            "sparse",
            f"`sparse={sparse}` stands for `estimator='{name}'` `n_components={sparse}`: leave out `{twice[0]}`, or "
            "`sparse`.",
        )
    return name, sparse


def parameters(option: list[str] | None, pca: int | None) -> list[str]:
    """Return parameters of an estimator as text, with the number of directions among them."""
    directions = [] if pca is None else [f"preprocess=whiten_signal(n_components={pca})"]
    return [*(option or ()), *directions]


def pictures(
    *,
    labels: Path | None,
    size: str | None,
    channels: int | None,
    background: float | None,
    skip_corrupt: bool,
    skip_unlabelled: bool,
) -> ImageOptions:
    """Return the options of a folder of pictures as one value, or say what is wrong with the size."""
    from pindown.errors import InputError
    from pindown.runs.inputs import ImageOptions

    sides = [] if size is None else size.lower().split("x")
    if not all(side.isdigit() and int(side) > 0 for side in sides) or len(sides) > 2:
        raise InputError("size", f"`size` must be a number of pixels such as 64, or 48x64, got {size!r}.")
    return ImageOptions(
        None if labels is None else str(labels.resolve()),
        (int(sides[0]), int(sides[-1])) if sides else None,
        channels,
        background,
        skip_corrupt,
        skip_unlabelled,
    )


def named(data: Path, chosen: Columns, options: dict[str, Any]) -> Source:
    """Open the data, and see that the columns are there: at once, before the seconds that importing torch takes."""
    if not data.is_dir() and not any(value not in (None, False) for value in options.values()):
        from pindown.data.tables import open_table

        source = open_table(data)
        chosen.check(source)
        return source
    from pindown.runs.inputs import open_data

    return open_data(data, pictures(**options))
