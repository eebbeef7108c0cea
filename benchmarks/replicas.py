"""How long a killed tritonserver is missed: SIGKILL until the right versions answer there again, and what requests failed meanwhile.

One fleet as the embedded platform runs it (looked after five times a second), two versions placed, callers who ask for both without a
pause and count each call that failed. The newest replica is killed, round after round.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from benchmarks.report import Row, publish
from services.triton.fleet import TritonFleet
from services.triton.hosts import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import EyasError
from shared.testing.model_server_suite import FEED, tiny_unit

_LOOK = 0.2
_CALLERS = 4
_VERSIONS = (1, 2)
_LIMIT = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    rows: list[Row] = []
    for replicas in (1, 2):
        rows += _case(replicas, rounds)
    publish("replicas", rows)
    return 0


def _case(replicas: int, rounds: int) -> list[Row]:
    case = "1 replica" if replicas == 1 else f"{replicas} replicas"
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        store = FsspecArtifacts(str(Path(folder) / "artifacts"))
        tritons = EmbeddedTritons(Path(folder) / "server", replicas)
        tritons.start()
        fleet = TritonFleet(tritons, store)
        try:
            fleet.place("movies", [tiny_unit(store, "movies", number) for number in _VERSIONS])
            with _Looking(fleet):
                _until_ready(fleet)
                found = [_round(fleet, tritons, f"triton-{replicas}") for _ in range(rounds)]
        finally:
            fleet.close()
            tritons.stop()
    return [
        Row(case, "eyas", "SIGKILL until its versions answer there again", "s", [one[0] for one in found]),
        Row(case, "eyas", "failed calls meanwhile", "calls", [float(one[1]) for one in found]),
        Row(case, "eyas", "answered calls meanwhile", "calls", [float(one[2]) for one in found]),
    ]


def _round(fleet: TritonFleet, tritons: EmbeddedTritons, killed: str) -> tuple[float, int, int]:
    pid = tritons.servers[killed].pid
    assert pid
    with _Callers(fleet) as callers:
        time.sleep(0.5)
        failed, answered = callers.failed, callers.answered
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        while tritons.servers[killed].pid == pid or not tritons.servers[killed].alive:
            _pause(began)
        _until_ready(fleet, began)
        took = time.monotonic() - began
        counted = callers.failed - failed, callers.answered - answered
    time.sleep(1)
    return took, *counted


def _until_ready(fleet: TritonFleet, began: float | None = None) -> None:
    """Every replica is ready, and every version answered a real inference on each."""
    began = began or time.monotonic()
    while not _ready(fleet) or fleet.answering("movies") != set(_VERSIONS):
        _pause(began)


def _ready(fleet: TritonFleet) -> bool:
    try:
        return {one.state for one in fleet.info().replicas} == {"ready"}
    except EyasError:  # nobody answers
        return False


def _pause(began: float) -> None:
    if time.monotonic() - began > _LIMIT:
        raise SystemExit(f"a killed Triton was not back within {_LIMIT:g} s")
    time.sleep(0.01)


class _Looking:
    """The loop of the platform."""

    def __init__(self, fleet: TritonFleet) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK):
            try:
                self._fleet.ensure_running()
            except EyasError as error:
                Console(stderr=True).print(f"[dim]{error}")


class _Callers:
    def __init__(self, fleet: TritonFleet) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(_VERSIONS[n % 2],)) for n in range(_CALLERS)]
        self.failed = self.answered = 0

    def __enter__(self) -> _Callers:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for one in self._threads:
            one.join()

    def _run(self, number: int) -> None:
        while not self._over.wait(0.005):
            try:
                self._fleet.score("movies", number, FEED)
            except EyasError:
                with self._lock:
                    self.failed += 1
            else:
                with self._lock:
                    self.answered += 1


if __name__ == "__main__":
    raise SystemExit(main())
