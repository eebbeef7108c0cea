"""`evaluate`: trains and evaluates models on files without a platform; `evaluation`: the evaluation of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from services.cli import paths
from services.cli.datatools import placed, run_tool
from services.cli.output import AsJson, say, show_json, show_table
from services.cli.runs import RunId
from services.cli.session import client
from services.cli.settings import Allow, Fewest, Settings, allowed, settings

if TYPE_CHECKING:
    from shared.contracts.trials import SeedSpread
from shared.domain.errors import Invalid


def evaluate(  # noqa: PLR0913, PLR0917  the options of a command
    train: Annotated[Path, typer.Option(help="Interactions: user, item, and optionally rating and time in each row.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for report.json and report.html.", show_default=False)],
    model: Annotated[list[str] | None, typer.Option(help="Family to train; repeatable. Popularity is always evaluated too.")] = None,
    saved: Annotated[list[Path] | None, typer.Option(help="Folder of a saved model to evaluate without training; repeatable.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test pairs. Default: held out of --train.")] = None,
    negatives: Annotated[Path | None, typer.Option(help="Lines of (user,item) and its negatives. Default: drawn and verified.")] = None,
    set_: Settings = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Number of trainings of each model, each with its own seed.")] = 1,
    sampled: Annotated[int, typer.Option(min=1, max=9999, help="Number of negatives drawn for each pair.")] = 99,
    holdout: Annotated[
        Literal["last", "random", "newest"] | None,
        typer.Option(
            help="Holdout without --test: the newest item of each user, a random item of each user, or the newest tenth of the rows. "
            "Default: by time if the rows have times."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the holdout and the negatives.")] = 1,
    min_interactions: Fewest = 1,
    users: Annotated[Path | None, typer.Option(help="Table of users, for --slice.")] = None,
    items: Annotated[Path | None, typer.Option(help="Table of items, for --slice.")] = None,
    slice_: Annotated[list[str] | None, typer.Option("--slice", metavar="COLUMN", help="Column of --users or --items; repeatable.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Save the trained models in OUT/models.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at faults in the files instead of counting them.")] = False,
    allow: Allow = None,
    as_json: AsJson = False,
) -> None:
    """Train models on a file with each seed and evaluate them: sampled and full catalogue, slices, intervals. Writes JSON and HTML."""
    from shared.contracts.strict import read
    from shared.contracts.trials import EvaluatedModel, EvaluateRequest

    request = {
        "train": placed(train),
        "test": placed(test),
        "negatives": placed(negatives),
        "models": tuple(model or ()),
        "saved": tuple(placed(folder) for folder in saved or ()),
        "allow": allowed(allow, *model or ()),
        "keep": keep,
        "settings": settings(set_),
        "seeds": seeds,
        "out": placed(out),
        "sampled": sampled,
        "holdout": holdout,
        "seed": seed,
        "min_interactions": min_interactions,
        "users": placed(users),
        "items": placed(items),
        "slices": tuple(slice_ or ()),
        "strict": strict,
    }
    evaluation = run_tool("evaluate", read(EvaluateRequest, request, "eyas evaluate"), EvaluatedModel)
    if as_json:
        show_json(evaluation.model_dump(mode="json"))
        return
    metrics = list(dict.fromkeys(name for row in evaluation.rows for name in row.metrics))
    rows = [
        (row.model, *(_spread_text(row.metrics.get(name)) for name in metrics), None if row.minutes is None else f"{row.minutes:.2f}")
        for row in evaluation.rows
    ]
    show_table(("MODEL", *map(str.upper, metrics), "MINUTES"), rows, "")
    for fault in evaluation.faults:
        say(f"note: {fault}")
    say(f"{evaluation.report}\n{evaluation.page}")


def evaluation(
    ctx: typer.Context,
    id: RunId,
    to: Annotated[Path | None, typer.Option(help="Folder for report.json and report.html.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the metrics of a run's candidate on the holdout, with those of popularity and of the serving version."""
    from shared.contracts.trials import PAGE, REPORT

    answer = client(ctx).get(paths.run(id, "/evaluation"))
    if to is not None:
        _write(to, {REPORT: json.dumps(answer["report"], indent=1) + "\n", PAGE: answer["page"]})
    if as_json:
        show_json(answer["report"])
        return
    models = answer["report"]["models"]
    metrics = list(dict.fromkeys(name for model in models.values() for name in model["metrics"]))
    rows = [(name, *(_interval(model["metrics"].get(name)) for model in models.values())) for name in metrics]
    slices = dict.fromkeys(
        (part, name) for model in models.values() for part, slice_report in model["slices"].items() for name in slice_report["metrics"]
    )
    rows += [
        (f"{name}{{{part}}}", *(_interval(model["slices"].get(part, {}).get("metrics", {}).get(name)) for model in models.values()))
        for part, name in slices
    ]
    show_table(("METRIC", *map(str.upper, models)), rows, "no metrics")
    if to is not None:
        say(f"{to / REPORT}\n{to / PAGE}")


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"--to {folder}: cannot write: {error.strerror}") from None


def _interval(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "-"
    ends = figure.get("interval")
    return f"{figure['mean']:.4f}" + (f" ({ends[0]:.4f} to {ends[1]:.4f})" if ends else "")


def _spread_text(figure: SeedSpread | None) -> str:
    if figure is None:
        return "-"
    return f"{figure.mean:.4f}" + (f" ±{figure.std:.4f}" if figure.seeds > 1 else "")
