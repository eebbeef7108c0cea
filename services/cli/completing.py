"""Shell completion: names, ids and versions come from the platform.

A completion never prints an error: after a fault or a timeout it offers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from services.cli import paths
from services.cli.home import ClientSession

if TYPE_CHECKING:
    from services.cli.client import Client

VARIABLE = "_EYAS_COMPLETE"
SECONDS = 0.8
"""Timeout of a request for completions."""
_MOST = 200
_STAGES = ("etl", "train", "evaluate", "refit", "export", "verify")
_SCRIPTS = {
    "bash": 'Add to ~/.bashrc: eval "$(eyas completion bash)"',
    "zsh": 'Add to ~/.zshrc, after compinit: eval "$(eyas completion zsh)"',
    "fish": "Add to ~/.config/fish/config.fish: eyas completion fish | source",
}

Words = list[tuple[str, str]]


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the completion script of a shell. Load it with: eval "$(eyas completion bash)"."""
    from typer._completion_shared import get_completion_script

    typer.echo(f"# {_SCRIPTS[shell]}")
    typer.echo(get_completion_script(prog_name="eyas", complete_var=VARIABLE, shell=shell))


def names(ctx: typer.Context, incomplete: str) -> Words:
    def ask(http: Client) -> Iterator[tuple[str, str]]:
        for recommender in http.get("/v1/recommenders", limit=_MOST, prefix=incomplete or None)["items"]:
            serving = recommender.get("serving")
            yield recommender["name"], f"serves version {serving['stable']}" if serving else "serves nothing yet"

    return _complete(ctx, ask, incomplete)


def runs(ctx: typer.Context, incomplete: str) -> Words:
    def ask(http: Client) -> Iterator[tuple[str, str]]:
        for run in http.get("/v1/runs", limit=_MOST)["items"]:
            yield run["id"], f"{run['recommender']}, {run['state']}"

    return _complete(ctx, ask, incomplete)


def rollouts(ctx: typer.Context, incomplete: str) -> Words:
    def ask(http: Client) -> Iterator[tuple[str, str]]:
        for rollout in http.get(paths.recommender(_argument(ctx, "name"), "/rollouts"), limit=_MOST)["items"]:
            yield rollout["id"], f"version {rollout['version']}, {rollout['state']}"

    return _complete(ctx, ask, incomplete)


def versions(ctx: typer.Context, incomplete: str) -> Words:
    return [completion for completion in called(ctx, incomplete) if completion[0].isdecimal()]


def called(ctx: typer.Context, incomplete: str) -> Words:
    """Completes version numbers, aliases and tags."""

    def ask(http: Client) -> Iterator[tuple[str, str]]:
        for version in http.get(paths.recommender(_argument(ctx, "name"), "/versions"), limit=_MOST)["items"]:
            words = [*version["aliases"], *version["tags"]]
            yield str(version["version"]), ", ".join(words) or f"run {version['run']}"
            yield from ((word, f"version {version['version']}") for word in words)

    return _complete(ctx, ask, incomplete)


def stages(incomplete: str) -> list[str]:
    return [stage for stage in _STAGES if stage.startswith(incomplete)]


def _complete(ctx: Any, ask: Any, incomplete: str) -> Words:
    root = ctx.find_root().params
    try:
        http = ClientSession(root.get("url"), root.get("token_file"), root.get("token")).client(SECONDS)
        try:
            return [(word, about) for word, about in ask(http) if word.startswith(incomplete)]
        finally:
            http.close()
    except Exception:  # a completion must not print errors
        return []


def _argument(ctx: Any, name: str) -> str:
    """Returns an argument, also when click has not parsed it yet because an option before it lacks its value."""
    return str(ctx.params.get(name) or next(iter(ctx.args), ""))
