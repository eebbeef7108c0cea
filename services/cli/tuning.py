"""`train` and `tune`: train a model, or search its settings, on a file without a platform."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from services.cli.datatools import placed, run_tool
from services.cli.files import read_text
from services.cli.output import AsJson, say, show_json, show_table
from services.cli.settings import Allow, Fewest, Settings, allowed, settings, value

if TYPE_CHECKING:
    from shared.contracts.ranges import NumberRange
    from shared.contracts.tuning import TriedRow, TunedAnswer
from shared.domain.errors import Invalid

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_BETWEEN = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(:log)?")

Spec = Annotated[Path | None, typer.Argument(metavar="[SPEC]", help="Spec with the `model` to train; or use --model.", show_default=False)]
Train = Annotated[Path, typer.Option(help="Interactions: user, item, and optionally time in each row.", show_default=False)]
Named = Annotated[str | None, typer.Option("--model", help="Family or preset.", show_default=False)]


def train(  # noqa: PLR0913, PLR0917  the options of a command
    train: Train,
    spec: Spec = None,
    model: Named = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model and its served unit.", show_default=False)] = None,
    set_: Settings = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of weights, shuffling and negatives. Default: the spec's, or 1.")] = None,
    min_interactions: Fewest = 1,
    allow: Allow = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on a whole file, and write what a run would publish, including the served unit for Triton."""
    from shared.contracts.strict import read
    from shared.contracts.tuning import TrainedAnswer, TrainRequest

    name, document = _model(spec, model, set_)
    request = {
        "train": str(train.absolute()),
        "name": name,
        "model": document,
        "allow": allowed(allow, model),
        "min_interactions": min_interactions,
        "seed": seed,
        "out": _folder(out),
    }
    answer = run_tool("train", read(TrainRequest, request, "eyas train"), TrainedAnswer)
    if as_json:
        show_json(answer.model_dump(mode="json"))
        return
    show_table(("METRIC", "VALUE"), [*answer.metrics.items(), ("parity of the served unit", f"{answer.parity:.2g}")], "")
    say(f"{answer.model}\n{answer.served}\n{answer.training}")


def tune(  # noqa: PLR0913, PLR0917  the options of a command
    train: Train,
    spec: Spec = None,
    model: Named = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search; the same command continues it.", show_default=False)] = None,
    set_: Settings = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=RANGE",
            help="Setting to search: width=32..256, train.learning_rate=1e-4..1e-2:log (log scale), or loss=als,softmax. Repeatable. "
            "Default: the spec's `model.tune`, or the family's ranges.",
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Test pairs that no trial sees; the best and the original settings are evaluated on them.")
    ] = None,
    on_test: Annotated[bool, typer.Option("--on-test", help="Evaluate the trials on --test instead of a holdout of --train.")] = False,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="Number of trials, including earlier ones.")] = 20,
    minutes: Annotated[float | None, typer.Option(help="Time in minutes after which no trial starts.")] = None,
    metric: Annotated[
        str, typer.Option(help="Metric: ndcg@10 and hr@10 rank the full catalogue, ndcg@10/99 ranks 99 negatives.")
    ] = "ndcg@10",
    holdout: Annotated[
        Literal["last", "random", "newest"] | None,
        typer.Option(help="Holdout: each user's newest item (if rows have times), a random item, or the newest tenth of the rows."),
    ] = None,
    min_interactions: Fewest = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the holdout, the search and the training.")] = 1,
    allow: Allow = None,
    as_json: AsJson = False,
) -> None:
    """Search the settings of a model. After an interruption, the same command continues."""
    from shared.contracts.strict import read
    from shared.contracts.tuning import TunedAnswer, TuneRequest

    name, document = _model(spec, model, set_)
    own = [_range(text) for text in search or ()]
    if len({key for key, _ in own}) < len(own):
        raise Invalid("--search: a setting is given twice")
    fixed_keys = {f"{part}.{key}" for part in ("params", "train") for key in document.get(part, {})} if spec is None else set()
    if both := sorted(fixed_keys & {key for key, _ in own}):
        raise Invalid(f"--search {both[0].removeprefix('params.')}: --set already fixes this setting; remove one of the two")
    ranges = dict(document.pop("tune", {})) if not own else {}
    request = {
        "train": str(train.absolute()),
        "name": name,
        "model": {key: value for key, value in document.items() if key != "tune"},
        "allow": allowed(allow, model),
        "ranges": ranges | dict(own),
        "test": placed(test),
        "on_test": on_test,
        "trials": trials,
        "minutes": minutes,
        "metric": metric,
        "holdout": holdout,
        "min_interactions": min_interactions,
        "seed": seed,
        "out": _folder(out),
    }
    answer = run_tool("tune", read(TuneRequest, request, "eyas tune"), TunedAnswer)
    if as_json:
        show_json(answer.model_dump(mode="json"))
        return
    _show(answer)


def _show(answer: TunedAnswer) -> None:
    names = list(dict.fromkeys(name for row in answer.best for name in row.params))
    heads = ("TRIAL", answer.metric.upper(), *(name.removeprefix("params.").upper() for name in names))
    show_table(heads, [_row(row, names) for row in answer.best], "")
    if answer.default not in answer.best:
        outcome = f"{answer.default.value:.4f}" if answer.default.value is not None else f"failed: {answer.default.reason}"
        say(f"original settings: {outcome}")
    if answer.failed:
        say(f"{answer.failed} of {answer.failed + answer.done} trials failed")
    if answer.gain is not None:
        gain = answer.gain
        say(f"on the test pairs: {gain.metric} {gain.after:.4f}, {gain.before:.4f} with the original settings")
    if answer.stopped:
        say("the time is over: the same command continues the search")
    for file in answer.files:
        say(file)


def _row(row: TriedRow, names: list[str]) -> tuple[Any, ...]:
    settings = (row.params.get(name) for name in names) if row.params else ("original" for _ in names)
    shown = (json.dumps(value) if isinstance(value, list) else value for value in settings)
    return (row.number + 1, f"{row.value:.4f}", *shown)


def _model(spec: Path | None, name: str | None, assignments: list[str] | None) -> tuple[str, dict[str, Any]]:
    """Returns the name, and the `model` part of a spec."""
    from shared.contracts.models import Model
    from shared.contracts.presets import named, with_settings
    from shared.contracts.spec import parse_spec
    from shared.contracts.strict import read

    if (spec is None) == (name is None):
        raise Invalid("model: set either SPEC or --model NAME, such as --model mf")
    if spec is not None:
        parsed_spec = parse_spec(read_text(spec), str(spec))
        document = parsed_spec.model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        name = parsed_spec.name
    else:
        document = named(str(name))
    document = with_settings(document, settings(assignments))
    read(Model, document, "model" if spec is None else str(spec))
    return str(name), document


def _folder(out: Path | None) -> str:
    if out is None:
        raise Invalid("--out: missing; set the folder to write to, such as --out model")
    return str(out.absolute())


def _range(text: str) -> tuple[str, NumberRange]:
    from shared.contracts.presets import FRAMEWORK, place_of
    from shared.contracts.ranges import NumberRange
    from shared.contracts.strict import read

    name, between, range_text = text.partition("=")
    if not between or not name or not range_text:
        raise Invalid(f"--search {text}: expected NAME=FROM..TO, NAME=FROM..TO:log or NAME=ONE,OTHER, such as width=32..256")
    where = f"--search {text}"
    if name == FRAMEWORK:
        raise Invalid(f"{where}: a search has one framework; use --set framework=torch")
    if numbers := _BETWEEN.fullmatch(range_text.strip()):
        low, high = _number(numbers[1]), _number(numbers[2])
        return place_of(name), read(NumberRange, {"from": low, "to": high, "log": numbers[3] is not None}, where)
    if ".." in range_text:
        raise Invalid(f"{where}: expected two numbers, such as width=32..256 or learning_rate=1e-4..1e-2:log")
    return place_of(name), read(NumberRange, {"of": _values(range_text)}, where)


def _values(text: str) -> list[Any]:
    """Parses values such as `[64],[128,64]` and `1,2` as JSON, else as words."""
    values = value(f"[{text}]")
    return values if isinstance(values, list) else [value(word.strip()) for word in text.split(",") if word.strip()]


def _number(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise Invalid(f"--search: the number {text} is too large")
    return int(number) if number.is_integer() and re.fullmatch(r"[+-]?\d+", text) else number
