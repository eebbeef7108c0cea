"""The command line's table of contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from services.cli import (
    access,
    converting,
    data,
    doctor,
    encoding,
    explaining,
    features,
    items,
    kpis,
    models,
    online,
    recommenders,
    registry,
    report,
    rollouts,
    runs,
    trials,
    tuning,
)
from services.cli.faults import Guarded
from services.cli.home import default_home
from services.cli.session import Session

app = typer.Typer(
    name="eyas",
    cls=Guarded,
    help="Trains recommenders and lets them fly a little further at a time.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="EYAS_URL", help="Of the platform; what `eyas up` wrote down, when absent.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="EYAS_TOKEN_FILE", help="The file with the token; the one in the platform's home, when absent.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="EYAS_TOKEN", help="The token itself; better by the environment, for all see command lines.")
    ] = None,
) -> None:
    ctx.obj = Session(url, token_file, token)


@app.command()
def up(
    home: Annotated[
        Path | None, typer.Option(help="The one folder that holds all state; $EYAS_HOME or var/eyas when absent.", show_default=False)
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of the API; 8080, or a free one, when absent.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of /metrics; 9090, or a free one, when absent.")] = None,
    data_root: Annotated[
        list[str] | None, typer.Option(help="A folder, or s3://BUCKET/PREFIX, that specs may read data from; repeatable.")
    ] = None,
    tritons: Annotated[int | None, typer.Option(min=1, max=16, help="How many Tritons serve; one when absent.")] = None,
) -> None:
    """Start the platform on this machine. It stays until it is interrupted."""
    from services.wiring import serve

    given = {
        "role": "all",
        "home": home or default_home(),
        "port": port,
        "metrics_port": metrics_port,
        "data_roots": data_root or None,
        "triton_replicas": tritons,
    }
    raise typer.Exit(serve(given))


@app.command("serve")
def serve_role(
    role: Annotated[Literal["control", "gateway"], typer.Option(help="Which part.", show_default=False)],
    host: Annotated[str | None, typer.Option(help="The address to listen at; 127.0.0.1 when absent.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of the API; 8080, or a free one, when absent.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of /metrics; 9090, or a free one, when absent.")] = None,
) -> None:
    """Start one part of a platform, as a cluster does. What else it needs stands in the environment (EYAS_...)."""
    from services.wiring import serve

    raise typer.Exit(serve({"role": role, "host": host, "port": port, "metrics_port": metrics_port}))


@app.command()
def migrate() -> None:
    """Bring the database that the environment names (EYAS_DATABASE_URL) up to date, and end."""
    from services.wiring import migrate as begin

    begin()
    typer.echo("the database is up to date")


_COMMANDS: tuple[Callable[..., None], ...] = (
    recommenders.apply,
    runs.run,
    runs.runs,
    runs.cancel,
    runs.retry,
    runs.prioritise,
    runs.plan,
    runs.compare,
    runs.watch,
    runs.logs,
    report.validation,
    trials.evaluation,
    models.models,
    registry.versions,
    registry.card,
    registry.tag,
    registry.untag,
    registry.history,
    registry.gc,
    recommenders.rollback,
    recommenders.delete,
    online.recommend,
    online.similar,
    online.events,
    online.serving,
    kpis.kpis,
    recommenders.drift,
    recommenders.triggers,
    recommenders.retrain,
    access.whoami,
    access.audit,
    trials.evaluate,
    tuning.train,
    tuning.tune,
    doctor.doctor,
)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(rollouts.app, name="rollout")
app.add_typer(items.app, name="items")
features.app.command()(explaining.explain)
features.app.command()(converting.convert)
features.app.command()(encoding.encode)
app.add_typer(features.app, name="features")
app.add_typer(data.app, name="data")
app.add_typer(access.app, name="tokens")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
