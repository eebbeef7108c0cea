"""The same trivial runs of two steps: on our loop and store, and on Prefect with a server of its own. Both keep every state in SQLite.

Prefect is installed on first use into an environment of its own (var/bench/prefect); it isn't a dependency of the project. A trivial run
of ours has the same loop, store, intents and history as a run, and two steps, one after the other, each a function call.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import httpx
import psutil

from benchmarks.control_loop import Clock
from benchmarks.harness import Peak, Row, environment, family, say, scratch, until, watched
from services.control.reconcile import Reconciler, Simple
from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.resources import SqlResources
from shared.contracts.records import RetrainerSpec
from shared.domain.machine import Decision, Edge, Machine, Request
from shared.ports import Record, ResourceStore

MACHINE = Machine(
    "trivial", "pending", (Edge("pending", "one", "start"), Edge("one", "two", "step one ended"), Edge("two", "done", "step two ended"))
)
_FOLLOWING = {"pending": "one", "one": "two", "two": "done"}
_PREFECT = ("prefect==3.8.8", "fastapi==0.148.*")  # with a newer FastAPI that release's server doesn't start
_THREADS = 2
"""Of Prefect's client: with more of them its server on SQLite answers 503 where cores are few."""


@dataclass(frozen=True)
class Status:
    state: str = "pending"
    reason: str = ""


@dataclass(frozen=True)
class Step:
    name: str
    kind: Literal["step"] = "step"


class Trivial(Simple[Status, Step]):
    """The Kind. `results` stands for an executor that is done at once; a step's name is used once."""

    machine = MACHINE
    status_type: Any = Status
    effect_type: Any = Step

    def __init__(self, store: ResourceStore[Status, RetrainerSpec], work: Callable[[str], int]) -> None:
        self.store = store
        self.results: dict[str, int] = {}
        self._work = work

    def observe(self, record: Record[Status, RetrainerSpec]) -> Request | None:
        return record.request

    def decide(self, record: Record[Status, RetrainerSpec], observation: Request | None, now: datetime) -> Decision[Status, Step]:
        state = _FOLLOWING[record.status.state]
        effects = (Step(f"{record.id}-{state}-1"),) if state in ("one", "two") else ()
        return Decision(replace(record.status, state=state), effects)

    def act(self, record: Record[Status, RetrainerSpec], following: Status, effect: Step) -> None:
        if effect.name not in self.results:
            self.results[effect.name] = self._work(effect.name)

    def committed(self, record: Record[Status, RetrainerSpec], following: Status) -> None:
        pass


def trivial_runs(new_database: Callable[[str], str], databases: Sequence[str], count: int, rounds: int, peer: bool) -> Iterator[Row]:
    figures: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(rounds):
        for database in databases:
            command = [sys.executable, "-m", "benchmarks.control_peer", new_database(database), str(count)]
            ours = watched(command).document
            figures[f"eyas on {database}"].append((ours["speed"], ours["memory"]))
        if peer:
            say(f"Prefect: {count} runs, which take some minutes")
            figures["prefect on sqlite"].append(_run_prefect(count))
    medians = {name: median(speed for speed, _ in own) for name, own in figures.items()}
    for name, own in figures.items():
        ratios = {other: medians[name] / speed for other, speed in medians.items() if other != name}
        yield Row(f"{count} runs of two steps", name, "throughput", "runs/s", [speed for speed, _ in own], ratios)
        yield Row(f"{count} runs of two steps", name, "resident memory", "MiB", [memory for _, memory in own])


def run_ours(url: str, count: int) -> tuple[float, float]:
    """Runs a second (made, run and read back), and MiB of this process, which does nothing else."""
    engine = open_engine(url)
    upgrade(engine)
    store, clock = SqlResources(engine, "trivial", Status, RetrainerSpec), Clock()
    kind = Trivial(store, len)
    reconciler, began = Reconciler(kind, clock), time.monotonic()
    for number in range(count):
        store.create(Record(f"t{number:06}", "trivial", RetrainerSpec(), Status(), clock.now(), clock.now()), "bench")
    while reconciler.tick():
        pass
    ended = sum(record.status.state == "done" for record in store.list(active=False, limit=count))
    seconds = time.monotonic() - began
    engine.dispose()
    if ended != count or len(kind.results) != 2 * count:
        raise SystemExit(f"{ended} of {count} runs ended, after {len(kind.results)} steps")
    return count / seconds, psutil.Process().memory_info().rss / 2**20


def _run_prefect(count: int) -> tuple[float, float]:
    """Runs a second, and MiB of Prefect's server with the process that runs the flows."""
    python = environment("prefect", *_PREFECT)
    with scratch() as home, _server(python, home) as (server, env):
        command = [str(python), str(Path(__file__).parent / "peers" / "prefect_runs.py"), str(count), str(_THREADS)]
        with (home / "output").open("w+") as output, (home / "flows.log").open("w+") as errors:
            flows = subprocess.Popen(command, env=env, stdout=output, stderr=errors)  # noqa: S603
            with Peak(lambda: _resident(server) + _resident(flows.pid), every=1) as memory:
                flows.wait()
        lines, reason = (home / "output").read_text().strip().splitlines(), (home / "flows.log").read_text().strip().splitlines()[-1:]
    result = json.loads(lines[-1]) if lines else {"completed": 0}
    if result["completed"] != count:
        raise SystemExit(f"Prefect completed {result['completed']} of {count} runs: {' '.join(reason) or 'no output'}")
    return count / result["seconds"], memory.value


def _resident(pid: int) -> float:
    try:
        return sum(float(process.memory_info().rss) for process in family(pid)) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


@contextmanager
def _server(python: Path, home: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    quiet = {"PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    env = {**os.environ, **quiet, "PREFECT_HOME": str(home), "PREFECT_API_URL": api}
    command = [str(python.parent / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)  # noqa: S603

    def is_healthy() -> bool:
        if server.poll() is not None:
            raise SystemExit(f"Prefect's server ended: {(home / 'server.log').read_text()[-500:]}")
        try:
            return httpx.get(f"{api}/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until("Prefect's server answers", is_healthy, pause=0.1)
        yield server.pid, env
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    speed, memory = run_ours(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write(json.dumps({"speed": speed, "memory": memory}))
