"""The one place that builds adapters and hands them over: the embedded platform.

It owns the order of things. Up: home locked, state migrated, Triton answers, loops run, then traffic. Down: traffic ends
first, then the loops, the stages, Triton; nothing outlives the process.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from prometheus_client import start_http_server

from services.api.app import create_app
from services.api.parts import Parts
from services.control.bases import Bases
from services.control.loop import Loop
from services.control.placement import Placement
from services.control.reconcile import Reconciler
from services.control.retrainers import Retrainers
from services.control.rollouts import Rollouts
from services.control.runs import Runs
from services.control.turns import Turns
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.executors.local import LocalExecutor
from services.gateway import Gateway
from services.home import Endpoint, Home
from services.listening import LOOPBACK, bind
from services.monitor.signals import Monitor
from services.settings import Settings
from services.sources import code_version
from services.store.audit import SqlAudit
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from services.store.outputs import SqlStageOutputs
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.tokens import SqlTokens
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from shared.artifacts import FsspecArtifacts
from shared.datafiles import DataFiles
from shared.domain.errors import Conflict
from shared.domain.retrainer import RetrainerStatus
from shared.domain.rollout import RolloutStatus
from shared.domain.run import RunStatus
from shared.telemetry import logs

log = logging.getLogger(__name__)

STAGES = {
    "etl": "pipelines.stages.etl",
    "train": "pipelines.stages.train",
    "evaluate": "pipelines.stages.evaluate",
    "export": "pipelines.stages.export",
    "verify": "services.triton.verify",
}


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Platform:
    """Everything of the embedded platform but its listening sockets."""

    def __init__(self, home: Home, data_roots: tuple[str, ...], max_runs: int, undo: ExitStack) -> None:
        clock = SystemClock()
        engine = open_engine(sqlite_url(home.database))
        undo.callback(engine.dispose)
        upgrade(engine)
        runs = SqlResources(engine, "run", RunStatus)
        rollouts = SqlResources(engine, "rollout", RolloutStatus)
        retrainers = SqlResources(engine, "retrainer", RetrainerStatus)
        recommenders, registry, routes = SqlRecommenders(engine), SqlRegistry(engine), SqlRoutes(engine)
        events, kpis = SqlEventLog(engine), SqlKpis(engine)
        artifacts = FsspecArtifacts(str(home.artifacts))

        self._triton = EmbeddedTriton(home.triton)
        undo.callback(self._triton.stop)
        self._triton.start()
        server = TritonServer(self._triton, ModelRepository(home.triton, artifacts))
        undo.callback(server.close)
        executor = LocalExecutor(home.work, STAGES)
        undo.callback(executor.close)

        monitor = Monitor(recommenders, routes, registry, kpis, events, artifacts, clock)
        self._placement = Placement(routes, rollouts, registry, server, clock)
        bases = Bases(runs, registry, artifacts, SqlStageOutputs(engine), DataFiles(data_roots), code_version())
        turns = Turns(runs, clock, max_runs)
        run_kind = Runs(rollouts, executor, events, clock, data_roots, bases, turns)
        rollout_kind = Rollouts(rollouts, routes, server, kpis, self._placement, clock)
        retrainer_kind = Retrainers(retrainers, runs, rollouts, recommenders, routes, monitor, clock)
        gateway = Gateway(routes, registry, artifacts, server, events, recommenders, clock, "embedded")
        steps: list[Callable[[], object]] = [
            server.ensure_running,
            Reconciler(run_kind, clock).tick,
            Reconciler(rollout_kind, clock).tick,
            self._placement.tick,
            retrainer_kind.ensure,
            Reconciler(retrainer_kind, clock).tick,
        ]
        self._control = Loop("control", steps, 0.2)
        self._loops = (
            self._control,
            Loop("gateway", [gateway.refresh], 0.1),
            Loop("monitor", [monitor.export, self._placement.export], 2.0),
        )
        self.parts = Parts(
            recommenders=recommenders,
            runs=runs,
            rollouts=rollouts,
            retrainers=retrainers,
            registry=registry,
            routes=routes,
            executor=executor,
            artifacts=artifacts,
            server=server,
            gateway=gateway,
            clock=clock,
            token=home.token(),
            tokens=SqlTokens(engine),
            audit=SqlAudit(engine),
            drift=monitor.drift,
            kpis=monitor.kpis,
            wake=self._control.wake,
            ready=lambda: [] if gateway.ready else ["the gateway has not read its routes yet"],
        )
        undo.callback(self._stop_loops)

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def _stop_loops(self) -> None:
        for loop in self._loops:
            loop.stop()


def serve(home: Path | None, port: int | None, metrics_port: int | None, data_roots: list[Path]) -> int:
    """Runs the embedded platform until SIGINT or SIGTERM. What isn't given comes from the environment (`EYAS_...`)."""
    given = {"home": home, "port": port, "metrics_port": metrics_port, "data_roots": data_roots or None}
    settings = Settings.read({name: value for name, value in given.items() if value is not None})
    logs.configure()
    os.umask(0o077)  # what users liked is nobody else's business on a shared machine
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: what has been started is stopped
    try:
        with ExitStack() as undo:
            _serve(settings, undo)
    except KeyboardInterrupt:
        log.info("interrupted while starting")
    log.info("stopped")
    return 0


def _serve(settings: Settings, undo: ExitStack) -> None:
    began = time.monotonic()
    place = Home(settings.home)
    place.open()
    undo.callback(place.close)
    listener = undo.enter_context(bind("the API", settings.port, 8080))
    metrics_url = _export_metrics(settings.metrics_port, undo)
    roots = tuple(str(root.absolute()) for root in settings.data_roots or [Path("data")])
    for root in roots:
        if not Path(root).is_dir():
            log.warning("data root %s is not a folder: specs can't read anything there until it is", root)
    platform = Platform(place, roots, settings.max_runs, undo)
    server = uvicorn.Server(uvicorn.Config(create_app(platform.parts), log_config=None, timeout_graceful_shutdown=10))
    platform.start()
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    place.announce(Endpoint(url, metrics_url, os.getpid()))
    log.info("ready in %.1f s: %s (metrics on %s, home %s)", time.monotonic() - began, url, metrics_url, place.folder)
    # uvicorn handles signals only while it runs, and raises what it caught once more when it has shut down.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    server.run(sockets=[listener])
    log.info("stopping")


def _export_metrics(wanted: int | None, undo: ExitStack) -> str:
    with bind("/metrics", wanted, 9090) as probe:
        port = probe.getsockname()[1]
    try:
        server, thread = start_http_server(port, LOOPBACK)
    except OSError as error:
        raise Conflict(f"port {port} for /metrics is not free ({error.strerror}); choose another with --metrics-port") from None
    undo.callback(thread.join, 5)
    undo.callback(server.server_close)
    undo.callback(server.shutdown)
    return f"http://{LOOPBACK}:{port}/metrics"
