"""A platform on loopback whose stages and whose Triton are fakes; everything else of it is the real thing, wired as always.

    python -m tests.security.platform --home FOLDER [--database URL]

It lives by itself: a recommender `films` that runs, is rolled out and recommends, and is made anew when somebody has deleted it.
Ends with the process that started it.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import logging
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from services.api.app import create_app
from services.control.worker_loop import Loop
from services.home import Home
from services.listening import bind
from services.settings import Settings
from services.wiring import parts
from services.wiring.http_server import BoundedServer, connection_limit
from services.wiring.platform import Platform
from services.wiring.state import State
from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import File, Manifest, StageSpec
from shared.domain.run import Job
from shared.telemetry import logs
from shared.testing.fakes import FakeExecutor, FakeModelServer
from tests.servers.platform_process import checked

NAME = "films"
TOKEN = "the-first-token-of-a-platform-that-is-fuzzed"
_TAKES = 0.1
_ITEMS = [10, 20, 30, 40, 50]
_REFIT = {"refit.hr@10": 0.3, "refit.candidate.hr@10": 0.25, "refit.hr@10.se_to.candidate": 0.01, "refit.hr@10.users": 900.0}
_METRICS: Mapping[str, Mapping[str, float]] = {"evaluate": {"candidate.auc": 0.8}, "refit": _REFIT, "verify": {"parity": 1e-7}}


def spec(data: Path) -> dict[str, Any]:
    return {
        "name": NAME,
        "data": {"interactions": {"uri": str(data / "ratings.csv")}, "items": {"uri": str(data / "films.csv"), "key": "film"}},
        "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
        "gates": [{"metric": "auc", "min": 0.6}, {"parity": 1e-4}],
        "rollout": {
            "steps": ["20%", "50%"],
            "analysis": {
                "attribution": "1s",
                "window": "1s",
                "max_harm": "30%",
                "min_users": 30,
                "min_answers": 30,
                "deadline": "20s",
                "every": "1s",
            },
        },
        "retrain": {"on": [{"drift": {"psi": 0.2}}], "mode": "warm", "cooldown": "10s"},
    }


class Stages(FakeExecutor):
    """Every stage takes a moment and publishes what a gateway can load; every ninth attempt crashes."""

    def __init__(self, artifacts: FsspecArtifacts, folder: Path) -> None:
        super().__init__()
        self._artifacts = artifacts
        self._began: dict[str, float] = {}
        self._unit = {name: _kept(artifacts, folder / name, content) for name, content in _unit().items()}

    def start(self, spec: StageSpec) -> None:
        super().start(spec)
        self.say(spec.attempt, f"{spec.stage}: begun\n")
        self._began.setdefault(spec.attempt, time.monotonic())

    def observe(self, attempt: str) -> Job | None:
        job = super().observe(attempt)
        if job is not None and job.phase == "running" and time.monotonic() - self._began[attempt] > _TAKES:
            number, spec = next((n, one) for n, one in enumerate(self.started) if one.attempt == attempt)
            if number % 9 == 8:
                self.end(attempt, Job("failed", "killed by signal 9"))
            else:
                self._publish(spec)
                self.end(attempt, Job("succeeded"))
        return super().observe(attempt)

    def _publish(self, spec: StageSpec) -> None:
        now = datetime.now(UTC)
        metrics = dict(_METRICS.get(spec.stage, {}))
        self._artifacts.publish(
            Manifest(stage=spec.stage, run=spec.run, attempt=spec.attempt, started=now, ended=now, files=self._unit, metrics=metrics)
        )


class Server(FakeModelServer):
    """With what the owner of a Triton does beside the port."""

    def __init__(self) -> None:
        super().__init__(lambda unit, feed: np.linspace(1, 0, len(feed["film"]), dtype=np.float32))

    def ensure_running(self) -> bool:
        return False

    def vouch(self) -> None:
        """All is placed: nobody waits to hear it."""


def _unit() -> dict[str, bytes]:
    inputs = [{"name": "person", "dtype": "int64", "side": "user"}, {"name": "film", "dtype": "int64", "side": "item"}]
    return {
        "signature.json": json.dumps({"user": "person", "item": "film", "inputs": inputs}).encode(),
        "catalogue.npz": _npz(film=np.array(_ITEMS, np.int64)),
        "popular.npy": _npy(_ITEMS[::-1]),
        "users.npy": _npy([1, 2, 3, 4, 5]),
    }


def _npy(keys: list[int]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(keys, np.int64))
    return stream.getvalue()


def _npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _kept(artifacts: FsspecArtifacts, path: Path, content: bytes) -> File:
    path.write_bytes(content)
    return artifacts.put(path)


class Caretaker:
    """Somebody who uses the platform in earnest meanwhile: so there is always something to ask for."""

    def __init__(self, url: str, data: Path) -> None:
        self._client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20)
        self._data = data
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._client.get(f"/v1/recommenders/{NAME}").status_code == 404:
            checked(self._client.post("/v1/recommenders", json=spec(self._data)))
        if self._ticks % 10 == 0:
            self._client.post(f"/v1/recommenders/{NAME}/runs", json={"fresh": self._ticks % 20 == 0, "reason": "the caretaker"})
        for user in range(1, 6):
            self._client.post(f"/v1/recommend/{NAME}", json={"user": user, "k": 3})


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    asked = argparse.ArgumentParser()
    asked.add_argument("--home", type=Path, required=True)
    asked.add_argument("--database")
    asked.add_argument("--rates", action="store_true", help="with the usual rate limits, which a fuzzer would meet all the time")
    given = asked.parse_args()
    data: Path = given.home / "data"
    data.mkdir(parents=True, exist_ok=True)
    for name in ("ratings.csv", "films.csv"):
        (data / name).write_text("one,two\n1,2\n")
    more: dict[str, Any] = {"database_url": given.database} if given.database else {}
    more |= {} if given.rates else {"control_rate": 0, "online_rate": 0, "recommender_rate": 0, "failure_rate": 0}
    settings = Settings.read({"home": given.home / "home", "data_roots": [str(data)], **more})
    logs.configure()
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def executor(_: Settings, home: Home, state: State, undo: ExitStack) -> Stages:
        return Stages(state.artifacts, given.home)

    parts.executor = executor  # type: ignore[assignment]
    parts.model_server = lambda *_: Server()  # type: ignore[assignment]
    try:
        with ExitStack() as undo:
            home = Home(settings.home)
            home.open()
            undo.callback(home.close)
            listener = undo.enter_context(bind("the API", 0, 0))
            platform = Platform(settings, home, TOKEN, (str(data),), undo)
            app = create_app(platform.door, platform.parts, platform.gateway)
            server = BoundedServer(app, connection_limit(settings.connections), timeout_graceful_shutdown=2)
            platform.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            caretaker = Loop("caretaker", [Caretaker(url, data).tick], 1.0)
            caretaker.start()
            undo.callback(caretaker.stop)
            (given.home / "url").write_text(url)
            server.run(sockets=[listener])
    except KeyboardInterrupt:
        logging.getLogger(__name__).info("stopped")


if __name__ == "__main__":
    main()
