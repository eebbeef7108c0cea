"""Registry of the commands: the place, the example and the `--json` output of each. A command's module is imported only when needed."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from services.cli.faults import FaultReportingGroup


@dataclass(frozen=True)
class CommandEntry:
    name: str
    place: str
    """`module:function` below services.cli; for a group, `module:app`."""
    example: str = ""
    json: str = ""
    """What `--json` prints: the API operation whose answer is printed, or a description; empty without `--json`."""

    def load(self) -> Any:
        module, _, attribute = self.place.partition(":")
        return getattr(import_module(f"services.cli.{module}"), attribute)

    @property
    def about(self) -> str:
        """First line of the help text, for the list of commands."""
        implementation = self.load()
        text = implementation.info.help if isinstance(implementation, typer.Typer) else implementation.__doc__
        return str(text or "").strip().split("\n")[0]

    def command(self) -> Any:
        implementation = self.load()
        if isinstance(implementation, typer.Typer):
            return get_command(implementation)
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(self.name)(implementation)
        return get_command(app)


RECOMMENDER = "/v1/recommenders/{name}"
ENTRIES = (
    CommandEntry("up", "platform:up", "eyas up --data-root data"),
    CommandEntry("serve", "platform:serve_role", "eyas serve --role gateway --host 0.0.0.0"),
    CommandEntry("migrate", "platform:migrate", "eyas migrate"),
    CommandEntry(
        "backup",
        "backups:backup",
        "eyas backup /backups --keep 7",
        "`name`, `at`, `database`, `artifacts`, `copied_bytes`, `missing`, `pruned`",
    ),
    CommandEntry("backups", "backups:backups", "eyas backups /backups", "`names`, the oldest first"),
    CommandEntry("restore", "backups:restore", "eyas restore /backups --home var/restored", "as `backup`"),
    CommandEntry("init", "drafting:init", "eyas init data/ratings.csv data/movies.csv", "`file`, `uris` and `guesses`"),
    CommandEntry("apply", "recommenders:apply", "eyas apply movies.yaml", "POST /v1/recommenders"),
    CommandEntry("recommenders", "listing:recommenders", "eyas recommenders --watch", "GET /v1/recommenders"),
    CommandEntry("overview", "listing:overview", "eyas overview --watch", "GET /v1/overview"),
    CommandEntry("run", "runs:run", "eyas run movies --mode warm --watch", f"POST {RECOMMENDER}/runs"),
    CommandEntry("runs", "runs:runs", "eyas runs movies --limit 5", f"GET {RECOMMENDER}/runs"),
    CommandEntry("cancel", "runs:cancel", "eyas cancel r01m7z4vbw2yfz2a9 --reason 'wrong data'", "POST /v1/runs/{id}:cancel"),
    CommandEntry("retry", "runs:retry", "eyas retry r01m7z4vbw2yfz2a9 --from train", "POST /v1/runs/{id}:retry"),
    CommandEntry("prioritise", "runs:prioritise", "eyas prioritise r01m7z4vbw2yfz2a9 10", "POST /v1/runs/{id}:prioritise"),
    CommandEntry(
        "plan",
        "planning:plan",
        "eyas plan movies",
        f"POST {RECOMMENDER}:plan",
    ),
    CommandEntry("compare", "runs:compare", "eyas compare r01m7z4vbw2yfz2a9 r01m7z2yyn7qyezgy", "GET /v1/runs/{id}/compare"),
    CommandEntry("watch", "runs:watch", "eyas watch r01m7z4vbw2yfz2a9", "JSON Lines: `state` and `end` of `GET /v1/runs/{id}/stream`"),
    CommandEntry("logs", "runs:logs", "eyas logs r01m7z4vbw2yfz2a9 --follow", "JSON Lines: `stage`, `attempt` and `text` of each piece"),
    CommandEntry("validation", "report:validation", "eyas validation r01m7z4vbw2yfz2a9", "GET /v1/runs/{id}/validation"),
    CommandEntry(
        "evaluation",
        "trials:evaluation",
        "eyas evaluation r01m7z4vbw2yfz2a9 --to report",
        "the `report` of `GET /v1/runs/{id}/evaluation`, without its page",
    ),
    CommandEntry("schema", "schema:schema", "eyas schema specs", "`file`, and `line`, the first line of a spec"),
    CommandEntry("models", "models:models", "eyas models", "`families` and `presets`, as lists"),
    CommandEntry("versions", "registry:versions", "eyas versions movies", f"GET {RECOMMENDER}/versions"),
    CommandEntry("card", "registry:card", "eyas card movies serving", f"GET {RECOMMENDER}/versions/{{version}}/card"),
    CommandEntry("tag", "registry:tag", "eyas tag movies 7 champion", f"PUT {RECOMMENDER}/versions/{{version}}/tags/{{tag}}"),
    CommandEntry("untag", "registry:untag", "eyas untag movies 7 champion", "`recommender`, `version`, `untagged`"),
    CommandEntry("history", "registry:history", "eyas history movies --at 2026-01-01T12:00:00Z", f"GET {RECOMMENDER}/history"),
    CommandEntry("gc", "registry:gc", "eyas gc --dry-run", "POST /v1/gc"),
    CommandEntry("rollback", "recommenders:rollback", "eyas rollback movies --reason 'fewer clicks'", f"POST {RECOMMENDER}:rollback"),
    CommandEntry("delete", "recommenders:delete", "eyas delete movies --yes", "`recommender`, `deleted`"),
    CommandEntry("recommend", "online:recommend", "eyas recommend movies 42 -k 5 --explain", "POST /v1/recommend/{name}"),
    CommandEntry("similar", "online:similar", "eyas similar movies 318 -k 5", "POST /v1/similar/{name}"),
    CommandEntry("events", "online:events", "eyas events movies clicks.jsonl", "`accepted`, `duplicates` and `hits` of all requests"),
    CommandEntry("export-events", "online:export_events", "eyas export-events movies events.jsonl", "`recommender`, `events`, `file`"),
    CommandEntry("serving", "online:serving", "eyas serving --watch", "GET /v1/serving"),
    CommandEntry("kpis", "kpis:kpis", "eyas kpis movies --window 1h --parts", f"GET {RECOMMENDER}/kpis"),
    CommandEntry("drift", "recommenders:drift", "eyas drift movies", f"GET {RECOMMENDER}/drift"),
    CommandEntry("triggers", "recommenders:triggers", "eyas triggers movies --history", f"GET {RECOMMENDER}/triggers"),
    CommandEntry("retrain", "recommenders:retrain", "eyas retrain movies --reason 'new catalogue'", f"POST {RECOMMENDER}:retrain"),
    CommandEntry("whoami", "access:whoami", "eyas whoami", "GET /v1/whoami"),
    CommandEntry("audit", "access:audit", "eyas audit --recommender movies --limit 20", "GET /v1/audit"),
    CommandEntry(
        "evaluate", "trials:evaluate", "eyas evaluate --train ratings.csv --out report --model mf --model ease", "the figures of each model"
    ),
    CommandEntry(
        "train", "tuning:train", "eyas train --train ratings.csv --model mf --out model", "the metrics, the parity and the files' paths"
    ),
    CommandEntry(
        "tune",
        "tuning:tune",
        "eyas tune --train ratings.csv --model mf --out search --trials 20",
        "the best trials and the paths of the files",
    ),
    CommandEntry("open", "open_console:open_", "eyas open movies", "`url`"),
    CommandEntry("install-triton", "doctor:install", "eyas install-triton"),
    CommandEntry("doctor", "doctor:doctor", "eyas doctor", "`able`, and `findings` as a list"),
    CommandEntry("completion", "completing:completion", "eyas completion bash"),
    CommandEntry("rollout", "rollouts:app"),
    CommandEntry("forget-user", "users:forget_user", "eyas forget-user 42 --yes", "DELETE /v1/users/{id}"),
    CommandEntry("items", "items:app"),
    CommandEntry("features", "features:app"),
    CommandEntry("data", "data:app"),
    CommandEntry("tokens", "access:app"),
)
INNER = {
    "rollout start": ("eyas rollout start movies 7 --reason 'network failure is fixed'", f"POST {RECOMMENDER}/rollouts"),
    "rollout status": ("eyas rollout status movies --watch", "GET /v1/rollouts/{id}"),
    **{f"rollout {verb}": (f"eyas rollout {verb} movies", "POST /v1/rollouts/{id}:{verb}") for verb in ("pause", "resume", "skip")},
    "rollout promote": ("eyas rollout promote movies --reason 'enough evidence'", "POST /v1/rollouts/{id}:{verb}"),
    "rollout abort": ("eyas rollout abort movies --reason 'wrong items'", "POST /v1/rollouts/{id}:{verb}"),
    "items put": ("eyas items put movies items.jsonl --partial", "`accepted` and `changed` of all requests together"),
    "items get": ("eyas items get movies 318", "GET /v1/items/{name}/{item}"),
    "items list": ("eyas items list movies --limit 500", "GET /v1/items/{name}, all pages as one"),
    "items delete": ("eyas items delete movies 318 527", "POST /v1/items/{name}:delete"),
    "features list": ("eyas features list movies", "GET /v1/features/{name}"),
    "features get": ("eyas features get movies user 42", "GET /v1/features/{name}/{view}/{key}"),
    "features put": ("eyas features put movies user users.jsonl", "`accepted` and `standing` of all requests together"),
    "features materialise": ("eyas features materialise movies", "POST /v1/features/{name}:materialise"),
    "features explain": ("eyas features explain movies.yaml --no-data", "the features, tables and inputs, with their readers"),
    "features convert": ("eyas features convert model.json", "`features` and `notes`"),
    "features encode": (
        "eyas features encode movies.csv --encoder clip.onnx --key movieId --column poster --out vectors.parquet",
        "the counts, and the file's width",
    ),
    "data synth": ("eyas data synth ml-100k --to data --seed 1", "`rows` by file"),
    "data download": ("eyas data download ml-100k --to data", "the folder, its size, its digest and its licence"),
    "data describe": ("eyas data describe data/ml-100k/ratings.parquet", "`rows`, and `columns` as a list"),
    "data convert": ("eyas data convert ratings.csv ratings.parquet", "`rows` by file"),
    "data validate": ("eyas data validate movies.yaml --to report", "the report"),
    "tokens list": ("eyas tokens list", "GET /v1/tokens"),
    "tokens create": ("eyas tokens create ada --role viewer --expires-in 30d", "POST /v1/tokens"),
    "tokens revoke": ("eyas tokens revoke t01m7z4vbw2yfz2a9", "DELETE /v1/tokens/{id}"),
}


class _Commands(MutableMapping[str, Any]):
    """Commands by name, each created at its first use."""

    def __init__(self) -> None:
        self._entries = {entry.name: entry for entry in ENTRIES}
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._entries[name].command()
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"cannot delete the command '{name}'")

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class CommandGroup(FaultReportingGroup):
    """The root command `eyas`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Uses the first lines only, so that no command is created."""
        widest = max(len(entry.name) for entry in ENTRIES)
        room = formatter.width - widest - 6
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, _short(entry.about, room)) for entry in ENTRIES])


def _short(line: str, room: int) -> str:
    """Returns the first sentence, cut at a word to fit into `room`."""
    sentence = line.split(". ", maxsplit=1)[0].rstrip(".")
    if len(sentence) <= room:
        return sentence
    return sentence[: max(room - 3, 1)].rsplit(" ", 1)[0].rstrip(",:;") + "..."
