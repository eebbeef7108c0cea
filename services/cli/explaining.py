"""`features explain`: what a spec's features are, what they weigh and what they need, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from services.cli.datatools import asked
from services.cli.drawing import dot, mermaid
from services.cli.files import read_text
from services.cli.settings import Allow, allowed
from services.cli.shown import AsJson, say, show_json, show_table, show_text

if TYPE_CHECKING:
    from shared.contracts.explanation import Explanation, FeatureExplained, InputExplained, OperatorExplained, Totals
    from shared.contracts.spec import RecommenderSpec

_KINDS = {"code": "codes", "float32": "number"}


def explain(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="The spec: YAML or JSON.", show_default=False)],
    data: Annotated[bool, typer.Option("--data/--no-data", help="Fit the features on the data; else its schemas alone are read.")] = True,
    rows: Annotated[int, typer.Option(min=1, help="Of more interactions than this a sample of users is fitted.")] = 2_000_000,
    data_root: Annotated[list[str] | None, typer.Option(help="Where a spec's relative paths lie; repeatable.")] = None,
    family: Annotated[
        str | None, typer.Option(help="As another family reads them than the spec's; or keys, sequence, deep or trees.", metavar="NAME")
    ] = None,
    allow: Allow = None,
    draw: Annotated[Literal["dot", "mermaid"] | None, typer.Option(help="Only the graph, for Graphviz or Mermaid.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the graph of features, their schema, the sizes of their tables, and what a version would be asked with."""
    from shared.contracts.explanation import ExplainRequest, Explanation
    from shared.contracts.spec import parse_spec

    spec = parse_spec(read_text(file), str(file))
    roots, modules = _roots(spec, data_root or [], file), allowed(allow, family)
    request = ExplainRequest(spec=spec, roots=roots, data=data, most=rows, family=family, allow=modules)
    found = asked("explain", request, Explanation)
    if as_json:
        show_json(found.model_dump(mode="json", by_alias=True))
    elif draw:
        show_text({"dot": dot, "mermaid": mermaid}[draw](found.nodes))
    else:
        _show(found)


def _roots(spec: RecommenderSpec, given: list[str], file: Path) -> tuple[str, ...]:
    """Who asks here reads with rights of their own: nothing is shut off."""
    buckets = [f"s3://{place.uri.split('/')[2]}" for place in spec.places().values() if place.uri and place.uri.startswith("s3://")]
    return *given, "data", str(Path.cwd()), str(file.absolute().parent), "/", *buckets


def _show(found: Explanation) -> None:
    say(_headline(found) + "\n")
    features = [(one.name, one.side, _KINDS[one.kind] + _length(one), _number(one.cardinality), one.made) for one in found.features]
    show_table(("FEATURE", "SIDE", "TYPE", "CODES", "MADE OF"), features, "")
    say("")
    tables = [
        (one.feature, _number(one.codes), _number(one.width), _bytes(one.bytes), one.values_per_row, _bytes(one.bytes_per_row))
        for one in found.tables
    ]
    show_table(("TABLE", "CODES", "WIDTH", "SIZE", "VALUES A ROW", "READ A ROW"), tables, f"the family {found.family} looks up nothing")
    if tables:
        say(_summed(found.totals))
    say("")
    inputs = [(one.name, one.dtype + _length(one), one.side, one.origin, ", ".join(one.features)) for one in found.inputs]
    show_table(("INPUT", "TYPE", "SIDE", "FROM", "FOR"), inputs, "")
    if found.left_out:
        say("")
        show_table(("LEFT OUT", "OF", "WHY"), [(one.operator, one.feature, one.why) for one in found.left_out], "")
    say("\n" + _runtimes(found.operators))


def _headline(found: Explanation) -> str:
    seen = found.data
    if seen is None:
        return f"{found.recommender}, family {found.family}: by the schemas alone; '-' is what only fitting tells"
    sample = f", of one user in {seen.one_user_in}: there may be more codes" if seen.one_user_in > 1 else ""
    counted = f"{seen.rows:,} rows to train on, {seen.items:,} items, {seen.users:,} users"
    return f"{found.recommender}, family {found.family}: fitted on {counted}{sample}"


def _length(one: FeatureExplained | InputExplained) -> str:
    if not one.several:
        return ""
    if one.width is not None:
        return f" x {one.width}"
    return f" x up to {one.width_at_most}" if one.width_at_most else " x ?"


def _summed(totals: Totals) -> str:
    if totals.bytes is None or totals.bytes_per_batch is None:
        return "in all: known once fitted"
    batch = f"{_bytes(totals.bytes_per_row)} a row, {_bytes(totals.bytes_per_batch)} a batch of {totals.batch_size:,}"
    padded = "widths are whole 16 bytes"
    if totals.padded_bytes != totals.bytes:
        padded = f"padded to whole 16 bytes it would be {_bytes(totals.padded_bytes)}"
    return f"in all {_bytes(totals.bytes)}; read {batch} ({totals.batch_size_why}); {padded}"


def _runtimes(operators: tuple[OperatorExplained, ...]) -> str:
    """What can compute which operators."""
    found: dict[tuple[str, ...], list[str]] = {}
    for one in operators:
        kinds = found.setdefault(one.runtimes, [])
        if one.operator not in kinds:
            kinds.append(one.operator)
    return "\n".join(f"in {', '.join(names)}: {', '.join(kinds)}" for names, kinds in found.items())


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
