"""`features explain`: shows a spec's features, their table sizes and a version's inputs before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from services.cli.datatools import run_tool
from services.cli.drawing import dot, mermaid
from services.cli.files import read_text
from services.cli.output import AsJson, say, show_json, show_table, show_text
from services.cli.planning import DataRoot, roots
from services.cli.settings import Allow, allowed

if TYPE_CHECKING:
    from shared.contracts.explanation import Explanation, FeatureExplained, InputExplained, OperatorExplained, Totals

_KINDS = {"code": "codes", "float32": "number"}


def explain(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="The spec: YAML or JSON.", show_default=False)],
    data: Annotated[bool, typer.Option("--data/--no-data", help="Fit the features on the data, or read only the schemas.")] = True,
    rows: Annotated[int, typer.Option(min=1, help="Fit a sample of users if there are more interactions.")] = 2_000_000,
    data_root: DataRoot = None,
    family: Annotated[
        str | None,
        typer.Option(help="Family instead of the spec's family; or keys, sequence, sequence_and_items, deep or trees.", metavar="NAME"),
    ] = None,
    allow: Allow = None,
    draw: Annotated[Literal["dot", "mermaid"] | None, typer.Option(help="Print only the graph, for Graphviz or Mermaid.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the feature graph, its schema, the sizes of the embedding tables, and the inputs of a version."""
    from shared.contracts.explanation import ExplainRequest, Explanation
    from shared.contracts.spec import parse_spec

    spec = parse_spec(read_text(file), str(file))
    modules = allowed(allow, family)
    request = ExplainRequest(spec=spec, roots=roots(spec, data_root or [], file), data=data, most=rows, family=family, allow=modules)
    explanation = run_tool("explain", request, Explanation)
    if as_json:
        show_json(explanation.model_dump(mode="json", by_alias=True))
    elif draw:
        show_text({"dot": dot, "mermaid": mermaid}[draw](explanation.nodes))
    else:
        _show(explanation)


def _show(explanation: Explanation) -> None:
    say(_headline(explanation) + "\n")
    features = [
        (feature.name, feature.side, _KINDS[feature.kind] + _length(feature), _number(feature.cardinality), feature.made)
        for feature in explanation.features
    ]
    show_table(("FEATURE", "SIDE", "TYPE", "CODES", "MADE FROM"), features, "")
    say("")
    tables = [
        (table.feature, _number(table.codes), _number(table.width), _bytes(table.bytes), table.values_per_row, _bytes(table.bytes_per_row))
        for table in explanation.tables
    ]
    show_table(
        ("TABLE", "CODES", "WIDTH", "SIZE", "VALUES / ROW", "READ / ROW"), tables, f"family {explanation.family} has no embedding tables"
    )
    if tables:
        say(_summed(explanation.totals))
    say("")
    inputs = [
        (model_input.name, model_input.dtype + _length(model_input), model_input.side, model_input.origin, ", ".join(model_input.features))
        for model_input in explanation.inputs
    ]
    show_table(("INPUT", "TYPE", "SIDE", "FROM", "FOR"), inputs, "")
    if explanation.left_out:
        say("")
        show_table(
            ("LEFT OUT", "OF", "WHY"), [(omission.operator, omission.feature, omission.why) for omission in explanation.left_out], ""
        )
    say("\n" + _runtimes(explanation.operators))
    for warning in explanation.warnings:
        say(f"warning: {warning}")


def _headline(explanation: Explanation) -> str:
    training_data = explanation.data
    if training_data is None:
        return f"{explanation.recommender}, family {explanation.family}: from the schemas only; '-' needs a fit on data"
    sample = f", from one user in {training_data.one_user_in}: there may be more codes" if training_data.one_user_in > 1 else ""
    counted = f"{training_data.rows:,} rows to train on, {training_data.items:,} items, {training_data.users:,} users"
    return f"{explanation.recommender}, family {explanation.family}: fitted on {counted}{sample}"


def _length(field: FeatureExplained | InputExplained) -> str:
    if not field.several:
        return ""
    if field.width is not None:
        return f" x {field.width}"
    return f" x up to {field.width_at_most}" if field.width_at_most else " x ?"


def _summed(totals: Totals) -> str:
    if totals.bytes is None or totals.bytes_per_batch is None:
        return "total: known after a fit"
    batch = f"{_bytes(totals.bytes_per_row)} per row, {_bytes(totals.bytes_per_batch)} per batch of {totals.batch_size:,}"
    padded = "widths are multiples of 16 bytes"
    if totals.padded_bytes != totals.bytes:
        padded = f"padded to multiples of 16 bytes: {_bytes(totals.padded_bytes)}"
    return f"total {_bytes(totals.bytes)}; read {batch} ({totals.batch_size_why}); {padded}"


def _runtimes(operators: tuple[OperatorExplained, ...]) -> str:
    """Groups the operators by the runtimes that can compute them."""
    by_runtimes: dict[tuple[str, ...], list[str]] = {}
    for operator in operators:
        kinds = by_runtimes.setdefault(operator.runtimes, [])
        if operator.operator not in kinds:
            kinds.append(operator.operator)
    return "\n".join(f"in {', '.join(names)}: {', '.join(kinds)}" for names, kinds in by_runtimes.items())


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
