"""`data`: what can be done with data before a platform sees it: made, fetched, described, checked, converted. None needs one to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.datatools import asked, placed
from services.cli.exits import Exit
from services.cli.faults import Guarded, Refused
from services.cli.report import show_report
from services.cli.shown import AsJson, say, show_json, show_table
from shared.domain.errors import Invalid

if TYPE_CHECKING:
    from shared.contracts.datatools import Described, Written

app = typer.Typer(cls=Guarded, no_args_is_help=True, rich_markup_mode=None, help="Data, before a platform sees it.")

SetName = Annotated[str, typer.Argument(metavar="NAME", help="ml-100k, ml-1m, ml-20m, ml-25m or criteo.", show_default=False)]
To = Annotated[Path, typer.Option("--to", help="The folder to write to.", show_default=False)]


@app.command()
def synth(
    dataset: SetName,
    to: To,
    rows: Annotated[int | None, typer.Option(min=1, help="Of interactions; as many as the real set has, when absent.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other rows.")] = 0,
    parquet: Annotated[bool, typer.Option("--parquet", help="Parquet, in place of its makers' layout.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic twin: rows in the shape of a public data set, the same for the same seed."""
    from shared.contracts.datatools import Synth, Written

    _tell_rows(asked("synth", Synth(name=dataset, to=_absolute(to), rows=rows, seed=seed, parquet=parquet), Written), to, as_json)


@app.command()
def download(dataset: SetName, to: To, as_json: AsJson = False) -> None:
    """Fetch MovieLens from GroupLens, checked by size and sha256. Its licence is shown: it may not be handed on."""
    from shared.contracts.datatools import Download, Downloaded

    found = asked("download", Download(name=dataset, to=_absolute(to)), Downloaded)
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    say(f"{found.folder}: {found.bytes:,} bytes, sha256 {found.sha256[:16]}...")
    say(found.licence)


@app.command()
def describe(
    place: Annotated[str, typer.Argument(metavar="FILE", help="A file, a folder, a glob, or s3://BUCKET/KEY.", show_default=False)],
    top: Annotated[int, typer.Option(min=0, max=100, help="How many of the most frequent values of each column.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show what is in data: rows; types, nulls, distinct values, ends and the most frequent values of each column."""
    from shared.contracts.datatools import Describe, Described

    found = asked("describe", Describe(uri=_place(place), top=top), Described)
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    say(f"{place}: {found.rows:,} rows, {len(found.columns)} columns")
    show_table(
        ("COLUMN", "TYPE", "NULLS", "DISTINCT", "MIN", "MAX", "MOST FREQUENT"),
        [_row(one) for one in found.columns],
        "",
        drop=("MAX", "MIN", "MOST FREQUENT"),
    )


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A file, a folder, a glob, or s3://BUCKET/KEY.", show_default=False)],
    to: Annotated[Path, typer.Argument(metavar="TO", help="The file to write; for a data set, the folder.", show_default=False)],
    dataset: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The data set that FROM is, where its files don't tell.")
    ] = None,
    short: Annotated[list[str] | None, typer.Option(metavar="COLUMN=FEATURE", help="TFRecord: a feature's name; repeatable.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=1 << 20, help="TFRecord: so many rows an Example.")] = None,
    grouped: Annotated[bool, typer.Option("--grouped", help="TFRecord: columns of one type share a feature.")] = False,
    narrow: Annotated[bool, typer.Option("--narrow", help="TFRecord: fractions may lose what float32 doesn't hold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write data as another kind of file: what TO's name ends in. A public data set comes to interactions, items and users."""
    from shared.contracts.datatools import Convert, Written

    request = Convert(
        source=_place(source), to=_absolute(to), name=dataset, short=_pairs(short or []), batch=batch, grouped=grouped, narrow=narrow
    )
    _tell_rows(asked("convert", request, Written), to, as_json)


@app.command()
def validate(
    source: Annotated[str, typer.Argument(metavar="FILE|SPEC", help="A spec, or a file or glob of interactions.", show_default=False)],
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=NAME", help="A file's column of the user, item, time or label; found by its name when absent. Repeatable."
        ),
    ] = None,
    positive: Annotated[str, typer.Option(help="What of a file's label is liked.")] = ">= 4",
    data_root: Annotated[list[str] | None, typer.Option(help="Where a spec's relative paths lie; repeatable.")] = None,
    against: Annotated[Path | None, typer.Option(help="The profile.json of an accepted batch, to compare with.")] = None,
    to: Annotated[Path | None, typer.Option(help="A folder for the report, as JSON and as a page, the profile and the bad rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check interactions as a run would. Exit code 0: they may be used; 1: a run would stop; 2: something is wrong with the question."""
    request = {
        "source": source,
        "roots": [*(data_root or ()), *_roots(source)],
        "columns": dict(_pair(one) for one in column or ()),
        "positive": positive,
        "against": placed(against),
        "folder": placed(to),
    }
    from shared.contracts.datatools import Validated, ValidateRequest
    from shared.contracts.strict import read

    found = asked("validate", read(ValidateRequest, request, "eyas data validate"), Validated)
    if as_json:
        show_json(found.report.model_dump(mode="json"))
    else:
        show_report(found.report)
        say(f"stop: {found.refusal}" if found.refusal else f"{found.report.verdict}: a run would use it")
    if found.refusal is not None:
        raise typer.Exit(Exit.NO)


def _pair(written: str) -> tuple[str, str]:
    what, equals, name = written.partition("=")
    if not (what and equals and name):
        raise Invalid(f"--column: expected WHAT=NAME such as user=userId, got {written!r}")
    return what, name


def _tell_rows(found: Written, to: Path, as_json: bool) -> None:
    if as_json:
        show_json(found.model_dump(mode="json"))
        return
    folder = to if to.is_dir() else to.parent
    for name, rows in found.rows.items():
        say(f"{folder / name}: {rows:,} rows")


def _row(one: Described.Column) -> tuple[Any, ...]:
    about = "about " if one.estimated else ""
    distinct = None if one.distinct is None else f"{about}{one.distinct:,}"
    lists = f" of {one.shortest} to {one.longest}" if one.longest is not None else ""
    return one.name, one.type + lists, f"{one.nulls:,}", distinct, _end(one.min), _end(one.max), _most(one.top)


def _end(value: Any) -> Any:
    """In full, as data has it: a key isn't rounded."""
    return value if value is None else str(value)[:40]


def _most(top: tuple[tuple[Any, int], ...]) -> str | None:
    """What comes once is not frequent."""
    return ", ".join(f"{str(value)[:30]} ({rows:,})" for value, rows in top if rows > 1) or None


def _pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        column, _, feature = one.partition("=")
        if not column or not feature:
            raise Refused(f"--short {one}: expected COLUMN=FEATURE", Exit.WRONG)
        found[column] = feature
    return found


def _roots(source: str) -> list[str]:
    """Whoever asks may read all that he may read: there is no operator's list."""
    if source.startswith("s3://"):
        return ["s3://" + source.removeprefix("s3://").split("/")[0]]
    return [str(Path.cwd()), str(Path(source).absolute().parent), "/"]


def _absolute(path: Path) -> str:
    return str(path.expanduser().absolute())


def _place(text: str) -> str:
    return text if text.startswith("s3://") else _absolute(Path(text))
