"""`up`, `serve`, `migrate`: the platform as a whole, a part of it, and its database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from services.cli.home import default_home
from services.cli.output import say

Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API. Default: 8080, or a free port.")]
MetricsPort = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of /metrics. Default: 9090, or a free port.")]


def up(
    home: Annotated[Path | None, typer.Option(help="Folder of all state. Default: $EYAS_HOME, or var/eyas.", show_default=False)] = None,
    port: Port = None,
    metrics_port: MetricsPort = None,
    data_root: Annotated[
        list[str] | None, typer.Option(help="Folder or s3://BUCKET/PREFIX that specs may read data from; repeatable.")
    ] = None,
    tritons: Annotated[int | None, typer.Option(min=1, max=16, help="Number of Triton replicas. Default: 1.")] = None,
) -> None:
    """Start the platform on this machine. Runs until it is interrupted."""
    from services.wiring import serve

    options = {
        "role": "all",
        "home": home or default_home(),
        "port": port,
        "metrics_port": metrics_port,
        "data_roots": data_root or None,
        "triton_replicas": tritons,
    }
    raise typer.Exit(serve(options))


def serve_role(
    role: Annotated[Literal["control", "gateway"], typer.Option(help="Part to run.", show_default=False)],
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.", show_default=False)] = None,
    port: Port = None,
    metrics_port: MetricsPort = None,
) -> None:
    """Start one part of a platform in a cluster. Other settings come from the environment (EYAS_...)."""
    from services.wiring import serve

    raise typer.Exit(serve({"role": role, "host": host, "port": port, "metrics_port": metrics_port}))


def migrate(
    to: Annotated[str | None, typer.Option(help="Older revision to go back to. Refused if rows would be lost.", show_default=False)] = None,
) -> None:
    """Migrate the database of EYAS_DATABASE_URL to the tables of this release, then exit."""
    from services.wiring import migrate as run

    say(f"the database is at revision {run(to)}")
