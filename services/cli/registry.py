"""`versions`, `card`, `tag`, `untag`, `history`, `gc`: registered versions, their tags, and what served when."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from services.cli import completing, paths, watching
from services.cli.output import AsJson, say, show, show_json, show_table, when
from services.cli.session import Name, client
from services.cli.tables import HARD
from shared.domain.metric import is_detail

Version = Annotated[
    int, typer.Argument(metavar="VERSION", min=1, autocompletion=completing.versions, help="Version number.", show_default=False)
]
Called = Annotated[
    str, typer.Argument(metavar="VERSION", autocompletion=completing.called, help="Version number, alias or tag.", show_default=False)
]
Tag = Annotated[str, typer.Argument(metavar="TAG", help="Tag: a lower-case word.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, max=200, help="Maximum number of rows.")]


def versions(ctx: typer.Context, name: Name, limit: Limit = 20, watch: watching.Watch = False, as_json: AsJson = False) -> None:
    """List registered versions, the newest first."""
    http = client(ctx)
    ask = partial(http.get, paths.recommender(name, "/versions"), limit=limit)
    watching.shown(ask, partial(_draw_versions, name), as_json, watch)


def _draw_versions(name: str, page: Any) -> None:
    rows = [
        (
            version["version"],
            ", ".join([*version["aliases"], *version["tags"], *(["collected"] if version["collected_at"] else [])]),
            when(version["created_at"]),
            version["run"],
            version["lineage"].get("mode"),
            version["parent"],
            _candidate(version["metrics"]),
        )
        for version in page["items"]
    ]
    columns = ("VERSION", "NAMES", "REGISTERED", "RUN", "MODE", "PARENT", "METRICS")
    show_table(columns, rows, f"{name} has no version yet", drop=("PARENT", "MODE", "RUN", "REGISTERED", "METRICS"))


def card(ctx: typer.Context, name: Name, version: Called, as_json: AsJson = False) -> None:
    """Show a version's model card: data, metrics with the baseline's, gates with reasons, lineage, sizes."""
    card = client(ctx).get(paths.card(name, version))
    if as_json:
        show_json(card)
        return
    data, lineage = card["data"], card["lineage"]
    span = " to ".join(when(data[end]) or "?" for end in ("oldest", "newest"))
    counts = ", ".join(f"{value:,.0f} {part}" for part, value in data["rows"].items())
    say(f"{name}: run {card['run']}, {lineage['cause']}" + (f", from version {lineage['parent']}" if lineage["parent"] else ""))
    versions = "".join(f"; {source}: {version}" for source, version in data.get("versions", {}).items())
    say(f"data: {counts}; {span}; {data['fingerprint'][:24]}{versions}")
    for fit in card.get("fits", ()):
        epochs = "" if fit["epochs"] is None else f"; epochs, sweeps or trees: {fit['epochs']}"
        label = "candidate (evaluated)" if fit["stage"] == "train" else "refit (serves)"
        say(f"{label}: {fit['rows']:,} rows; newest {when(fit['newest']) or '?'}{epochs}")
    who = [name for name in ("candidate", "popularity", "baseline", "serving") if name != "baseline" or _named(card["metrics"], name)]
    show_table(("METRIC", *map(str.upper, who)), [(metric, *map(of.get, who)) for metric, of in card["metrics"].items()], "no metrics")
    show_table(("GATE", "VERDICT", "REASON"), [(gate["gate"], gate["verdict"], gate["reason"]) for gate in card["gates"]], "no gates")
    show_table(("SERVING", "VALUE"), sorted(card["serving"].items()), "not measured")
    show_table(("FILE", "SIZE"), [(file, _mebibytes(size)) for file, size in card["files"].items()], "no files")


def _named(metrics: dict[str, dict[str, float]], who: str) -> bool:
    return any(who in of for of in metrics.values())


def tag(ctx: typer.Context, name: Name, version: Version, tag: Tag, as_json: AsJson = False) -> None:
    """Put a tag on a version. A tag names one version at a time; a tagged version keeps its files."""
    answer = client(ctx).put(paths.tag(name, version, tag))
    show(answer, as_json, lambda answer: say(f"{name}: version {answer['version']} is tagged {', '.join(answer['tags'])}"))


def untag(ctx: typer.Context, name: Name, version: Version, tag: Tag, as_json: AsJson = False) -> None:
    """Remove a tag from a version."""
    client(ctx).delete(paths.tag(name, version, tag))
    answer = {"recommender": name, "version": version, "untagged": tag}
    show(answer, as_json, lambda _: say(f"{name}: version {version} is no longer tagged {tag}"))


def history(
    ctx: typer.Context,
    name: Name,
    at: Annotated[str | None, typer.Option(help="Show what served at a time, such as 2026-01-01T12:00:00Z.", show_default=False)] = None,
    limit: Limit = 20,
    watch: watching.Watch = False,
    as_json: AsJson = False,
) -> None:
    """Show which versions served when and who decided, the newest first."""
    http = client(ctx)
    ask = partial(http.get, paths.recommender(name, "/history"), limit=limit, at=at)
    watching.shown(ask, partial(_draw_history, name, at), as_json, watch)


def _draw_history(name: str, at: str | None, page: Any) -> None:
    rows = [
        (
            route["generation"],
            when(route["since"]),
            when(route["until"]) or "now",
            route["stable"],
            route["candidate"],
            route["weight"] if route["candidate"] else None,
            route["actor"],
            route["reason"],
        )
        for route in page["items"]
    ]
    empty = f"{name} served nothing {'at ' + at if at else 'yet'}"
    columns = ("GENERATION", "SINCE", "UNTIL", "STABLE", "CANDIDATE", "WEIGHT", "BY", "REASON")
    show_table(columns, rows, empty, drop=("GENERATION", "UNTIL", "BY", "WEIGHT", "CANDIDATE"))


def gc(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be collected.")] = False,
    as_json: AsJson = False,
) -> None:
    """Collect garbage now: versions beyond the kept number, outputs of old runs, and files without a reference."""
    report = client(ctx).post("/v1/gc", dry_run=str(dry_run).lower())
    if as_json:
        show_json(report)
        return
    would = "would move" if dry_run else "moved"
    counted = f"{len(report['versions'])} versions, {len(report['attempts'])} attempts and {report['blobs']} files {would} to the trash"
    freed = f"{'would free' if dry_run else 'freed'} {_mebibytes(report['erased_bytes'])}"
    say(f"{counted} ({_mebibytes(report['bytes'])}); the trash {freed}")
    for version in report["versions"]:
        say(f"{version['recommender']} version {version['version']}")


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _candidate(metrics: dict[str, float]) -> str:
    """Formats the candidate's own metrics, without slices and details."""
    own = {name.removeprefix("candidate."): value for name, value in metrics.items() if name.startswith("candidate.")}
    shown = {name: value for name, value in own.items() if "{" not in name and not is_detail(name)}
    return "  ".join(f"{name}{HARD}{value:.4g}" for name, value in sorted(shown.items()))
