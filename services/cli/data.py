"""`data`: creates, downloads, describes, converts and validates data without a platform."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.datatools import placed, run_tool
from services.cli.exit_codes import Exit
from services.cli.faults import FaultReportingGroup, ReportedError
from services.cli.output import AsJson, say, show_json, show_table
from services.cli.planning import SPECS, DataRoot, roots_of_file
from services.cli.report import show_report
from shared.domain.errors import Invalid
from shared.domain.object_uris import is_object, split

if TYPE_CHECKING:
    from shared.contracts.datatools import DescribedData, WrittenFiles

app = typer.Typer(cls=FaultReportingGroup, no_args_is_help=True, rich_markup_mode=None, help="Data files, without a platform.")

SetName = Annotated[str, typer.Argument(metavar="NAME", help="Data set: ml-100k, ml-1m, ml-20m, ml-25m or criteo.", show_default=False)]
To = Annotated[Path, typer.Option("--to", help="Folder to write to.", show_default=False)]


@app.command()
def synth(
    dataset: Annotated[
        str, typer.Argument(metavar="NAME", help="Data set: films, ml-100k, ml-1m, ml-20m, ml-25m or criteo.", show_default=False)
    ],
    to: To,
    rows: Annotated[int | None, typer.Option(min=1, help="Number of interactions. Default: as in the real data set.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the rows.")] = 0,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write Parquet instead of the original layout.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write synthetic data: `films` (ratings of users with tastes; the newest in later.parquet), or data in the shape of a public data set.
    Equal seeds give equal rows."""
    from shared.contracts.datatools import Synth, WrittenFiles

    _tell_rows(run_tool("synth", Synth(name=dataset, to=_absolute(to), rows=rows, seed=seed, parquet=parquet), WrittenFiles), to, as_json)


@app.command()
def download(dataset: SetName, to: To, as_json: AsJson = False) -> None:
    """Download MovieLens from GroupLens and check its size and sha256. Prints the licence, which forbids redistribution."""
    from shared.contracts.datatools import Download, Downloaded

    answer = run_tool("download", Download(name=dataset, to=_absolute(to)), Downloaded)
    if as_json:
        show_json(answer.model_dump(mode="json"))
        return
    say(f"{answer.folder}: {answer.bytes:,} bytes, sha256 {answer.sha256[:16]}...")
    say(answer.licence)


@app.command()
def describe(
    place: Annotated[str, typer.Argument(metavar="FILE", help="File, folder, glob, or s3://BUCKET/KEY.", show_default=False)],
    top: Annotated[int, typer.Option(min=0, max=100, help="Number of most frequent values to show for each column.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Describe data: the number of rows, and each column's type, nulls, distinct values, range and most frequent values."""
    from shared.contracts.datatools import Describe, DescribedData

    description = run_tool("describe", Describe(uri=_place(place), top=top), DescribedData)
    if as_json:
        show_json(description.model_dump(mode="json"))
        return
    say(f"{place}: {description.rows:,} rows, {len(description.columns)} columns")
    show_table(
        ("COLUMN", "TYPE", "NULLS", "DISTINCT", "MIN", "MAX", "MOST FREQUENT"),
        [_row(column) for column in description.columns],
        "",
        drop=("MAX", "MIN", "MOST FREQUENT"),
    )


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="FROM", help="File, folder, glob, or s3://BUCKET/KEY.", show_default=False)],
    to: Annotated[Path, typer.Argument(metavar="TO", help="File to write; for a data set, the folder.", show_default=False)],
    dataset: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Data set of FROM, if its files do not show it.")] = None,
    short: Annotated[list[str] | None, typer.Option(metavar="COLUMN=FEATURE", help="TFRecord: name of a feature; repeatable.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=1 << 20, help="TFRecord: number of rows per Example.")] = None,
    grouped: Annotated[bool, typer.Option("--grouped", help="TFRecord: columns of one type share a feature.")] = False,
    narrow: Annotated[bool, typer.Option("--narrow", help="TFRecord: round fractions to float32.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert data to the file type of TO. A public data set becomes interactions, items and users."""
    from shared.contracts.datatools import Convert, WrittenFiles

    request = Convert(
        source=_place(source), to=_absolute(to), name=dataset, short=_pairs(short or []), batch=batch, grouped=grouped, narrow=narrow
    )
    _tell_rows(run_tool("convert", request, WrittenFiles), to, as_json)


@app.command()
def validate(
    source: Annotated[str, typer.Argument(metavar="FILE|SPEC", help="Spec, or a file or glob of interactions.", show_default=False)],
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=NAME", help="Column of the user, item, time or label in a file. Default: recognised by name. Repeatable."
        ),
    ] = None,
    positive: Annotated[str, typer.Option(help="Condition on a file's label for a positive.")] = ">= 4",
    data_root: DataRoot = None,
    against: Annotated[Path | None, typer.Option(help="profile.json of an accepted batch to compare with.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder for the report (JSON and HTML), the profile and the bad rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check interactions as a run would. Exit code 0: usable; 1: a run would stop; 2: the command line is wrong."""
    request = {
        "source": source,
        "roots": _roots(source, data_root or []),
        "columns": dict(pair(text) for text in column or ()),
        "positive": positive,
        "against": placed(against),
        "folder": placed(to),
    }
    from shared.contracts.datatools import Validated, ValidateRequest
    from shared.contracts.strict import read

    validation = run_tool("validate", read(ValidateRequest, request, "eyas data validate"), Validated)
    if as_json:
        show_json(validation.report.model_dump(mode="json"))
    else:
        show_report(validation.report)
        say(f"stop: {validation.refusal}" if validation.refusal else f"{validation.report.verdict}: a run would use the data")
    if validation.refusal is not None:
        raise typer.Exit(Exit.NO)


def pair(written: str) -> tuple[str, str]:
    role, equals, name = written.partition("=")
    if not (role and equals and name):
        raise Invalid(f"--column: expected WHAT=NAME such as user=userId, got {written!r}")
    return role, name


def _tell_rows(answer: WrittenFiles, to: Path, as_json: bool) -> None:
    if as_json:
        show_json(answer.model_dump(mode="json"))
        return
    folder = to if to.is_dir() else to.parent
    for name, rows in answer.rows.items():
        say(f"{folder / name}: {rows:,} rows")


def _row(column: DescribedData.Column) -> tuple[Any, ...]:
    about = "about " if column.estimated else ""
    distinct = None if column.distinct is None else f"{about}{column.distinct:,}"
    lists = f" of {column.shortest} to {column.longest}" if column.longest is not None else ""
    return column.name, column.type + lists, f"{column.nulls:,}", distinct, _end(column.min), _end(column.max), _most(column.top)


def _end(value: Any) -> Any:
    """Keeps all digits, because rounding would change a key."""
    return value if value is None else str(value)[:40]


def _most(top: tuple[tuple[Any, int], ...]) -> str | None:
    """Leaves out values that occur only once."""
    return ", ".join(f"{str(value)[:30]} ({rows:,})" for value, rows in top if rows > 1) or None


def _pairs(options: list[str]) -> dict[str, str]:
    features = {}
    for option in options:
        column, _, feature = option.partition("=")
        if not column or not feature:
            raise ReportedError(f"--short {option}: expected COLUMN=FEATURE", Exit.WRONG)
        features[column] = feature
    return features


def _roots(source: str, data_roots: list[str]) -> list[str]:
    """Allows every local path, because the caller reads with their own rights. A spec's data is looked for as `eyas plan` does."""
    if is_object(source):
        return [*data_roots, split(source)[0]]
    if source.lower().endswith(SPECS) and Path(source).is_file():
        return list(roots_of_file(Path(source), data_roots))
    return [*data_roots, str(Path.cwd()), str(Path(source).absolute().parent), "/"]


def _absolute(path: Path) -> str:
    return str(path.expanduser().absolute())


def _place(text: str) -> str:
    return text if is_object(text) else _absolute(Path(text))
