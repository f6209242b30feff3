"""Options that several commands share: `with_options` gives the shell an option for each field of a frozen value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from pindown.data.tables import Columns
    from pindown.runs import FitRequest


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command for `typer`: parameters that are dataclasses become an option for each of their fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            for kind in types.values():
                kind.__metadata__[0].rich_help_panel = str(groups[name].__doc__).rstrip(".")
            for field in fields(groups[name]):
                default = Parameter.empty if field.default is MISSING else field.default
                kind = types[field.name]
                parameters.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    def run(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    run.__doc__ = command.__doc__
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _complete_column(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a column of the data file."""
    from pindown.data.tables import open_table

    # While an option still lacks its value, the words before it are left over.
    words = [ctx.params.get("data"), *ctx.args]
    files = [Path(word) for word in words if word is not None and Path(word).is_file()]
    try:
        source = open_table(files[0])
    except (IndexError, ValueError, OSError):
        return []
    return [name for name in (*source.names, *source.blocks) if name.startswith(incomplete)]


def _column(help: str) -> Any:
    return typer.Option(help=help, autocompletion=_complete_column, show_default=False)


def _option(help: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **settings)


Name = str | None
Names = list[str] | None

FILES = "The data: .csv, .tsv, .xlsx, .npz, .npy, .parquet, .h5ad, or a folder of images."
OF_PACKAGE = "Address of the method, package.module:Class, if it is not installed as one. Its package is imported."
METHODS = (
    "Method: Contrast, Classify, Forget, Dictionary, Sparse, SparseBasis, one that a package registered, or "
    "package.module:Class. By default the one that uses the side variables."
)

DATA = Annotated[Path, typer.Argument(help=FILES, show_default=False)]
RUN = Annotated[Path, typer.Argument(help="The folder that `pindown fit` wrote.")]
DEVICE = Annotated[str | None, _option("Such as cpu or cuda. By default a GPU if there is one.", "--device")]
ADDRESS = Annotated[str | None, _option(OF_PACKAGE, "--estimator")]
QUOTE_FORMULAS = Annotated[
    bool, typer.Option("--quote-formulas", help="Put an apostrophe before ids that a spreadsheet would run, as =1+1.")
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class ColumnOptions:
    """Which column has which role."""

    signal: Annotated[Names, _column("Column with a label to learn from; repeat it for several measurements.")] = None
    nuisance: Annotated[Names, _column("Column to remove, such as a batch; repeat it for several.")] = None
    pairs: Annotated[Name, _column("Positives: a column whose equal values are some, an array, or `next` row.")] = None
    group: Annotated[Name, _column("Column with subjects, sessions …: validation holds out whole ones.")] = None
    given: Annotated[Name, _column("Label to keep: the nuisance is removed within its values.")] = None
    features: Annotated[Names, _column("Observed variables: names or patterns as 'gene_*'. By default all.")] = None
    drop: Annotated[Names, _column("Name or pattern of columns to leave out; repeatable.")] = None
    truth: Annotated[Names, _column("Known latents, which only the audit uses, to compare with; repeatable.")] = None
    id: Annotated[Name, _column("Names of the samples. By default the first text with distinct values.")] = None
    impute: Annotated[Name, _option("If numbers are missing: median or drop-rows. By default an error.")] = None
    counts: Annotated[bool, _option("Data are counts: scale each sample, then log(1 + x).", "--counts")] = False

    def read(self) -> Columns:
        """Return the columns by role."""
        from pindown.data.tables import Columns

        given = {name: part for name, part in vars(self).items() if part is not None}
        parts: dict[str, Any] = {n: tuple(part) if isinstance(part, list) else part for n, part in given.items()}
        return Columns(**parts)


@dataclass(frozen=True)
class ImageFolderOptions:
    """How the images of a folder are read."""

    size: Annotated[str | None, _option("Resize images: 64, or 48x64 for height and width.")] = None
    channels: Annotated[int | None, _option("Convert images to grey (1) or colour (3).")] = None
    background: Annotated[float | None, _option("Behind transparent pixels, 0 (black) to 1.")] = None
    skip_corrupt: Annotated[bool, typer.Option("--skip-corrupt", help="Leave out images that cannot be read.")] = False

    def read(self) -> dict[str, Any]:
        """Return the options that were given, as a run records them; raise if the size is not one."""
        given = {name: part for name, part in vars(self).items() if part is not None and part is not False}
        if self.size is not None:
            sides = self.size.lower().split("x")
            if len(sides) > 2 or not all(side.isdigit() and int(side) > 0 for side in sides):
                from pindown.errors import InputError

                raise InputError("size", f"`size` must be a number of pixels such as 64, or 48x64, got {self.size!r}.")
            given["size"] = [int(sides[0]), int(sides[-1])]
        return given | ({"labels": str(given["labels"].resolve())} if "labels" in given else {})


@dataclass(frozen=True)
class LabelledImageOptions(ImageFolderOptions):
    """How the images of a folder are read."""

    labels: Annotated[Path | None, _option("Labels of a folder of images: a .csv with a row per file.")] = None
    skip_unlabelled: Annotated[
        bool, typer.Option("--skip-unlabelled", help="Leave out images that --labels misses.")
    ] = False


@dataclass(frozen=True)
class MethodOptions:
    """Which estimator, with which parameters."""

    components: Annotated[
        int | None, _option("Number of latents. By default that of the plan.", "--latents", "--components", "-d", min=1)
    ] = None
    sparse: Annotated[
        int | None,
        _option("Fit a sparse dictionary of N atoms. Its gate: --option 'gate=TopK(32)'.", min=1, metavar="N"),
    ] = None
    estimator: Annotated[Name, _option(METHODS)] = None
    option: Annotated[Names, _option("Any other parameter, such as batch_size=64; repeatable.")] = None
    pca: Annotated[int | None, _option("Principal components to keep. By default those above noise.", min=1)] = None

    @property
    def name(self) -> str | None:
        """The method that was named; `sparse` names one, too."""
        if self.sparse is None:
            return self.estimator
        from pindown.errors import InputError
        from pindown.methods.registry import OF_ATOMS, address_of

        name = address_of(OF_ATOMS)
        for other in ("estimator", "components"):
            if getattr(self, other) is not None:
                message = f"`sparse={self.sparse}` stands for `estimator='{name}'` `n_components={self.sparse}`: leave "
                raise InputError("sparse", f"{message}out `{other}`, or `sparse`.")
        return name

    @property
    def n_components(self) -> int | None:
        """The number of latents that was given."""
        return self.components if self.sparse is None else self.sparse


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained."""

    folds: Annotated[
        int, typer.Option(min=0, help="If there is a label, encode each sample by a refit without it; 0: by the fit.")
    ] = 4
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps. By default the estimator's.")] = None
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same latents.")] = 0
    device: DEVICE = None


@dataclass(frozen=True)
class OutputOptions:
    """What is written."""

    output: Annotated[Path, _option("Folder of the run, to be made.", "-o", "--output")]
    force: Annotated[bool, typer.Option("--force", help="Replace a run that exists.")] = False
    quote_formulas: QUOTE_FORMULAS = False


def read_request(
    data: Path,
    columns: ColumnOptions,
    images: LabelledImageOptions,
    method: MethodOptions,
    *,
    steps: int | None = None,
    seed: int = 0,
    fitted: bool = True,
) -> FitRequest:
    """Check the options of a command against each other and against the names of columns, and return them."""
    chosen, of_images, source = columns.read(), images.read(), None
    if not data.is_dir() and not of_images:  # at once, before the seconds of importing torch
        from pindown.data.tables import open_table

        source = open_table(data)
        chosen.check(source)
    name = method.name
    from pindown.errors import InputError
    from pindown.methods.registry import find
    from pindown.runs import FitRequest, Recipe, estimator_for, read_options
    from pindown.runs.inputs import Images, open_data

    found = open_data(data, of_images) if source is None else source
    name = estimator_for(chosen, name, fitted=fitted)
    pca = [] if method.pca is None else [f"preprocess=whiten_signal(n_components={method.pca})"]
    options = read_options([*(method.option or ()), *pca], find(name))
    if isinstance(found, Images) and method.n_components is None:
        raise InputError("n_components", "`n_components` must be given for images, such as `n_components=5`.")
    return FitRequest(found, chosen, Recipe(name, method.n_components, steps, seed, options))
