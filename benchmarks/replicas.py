"""How long a killed tritonserver is missed: SIGKILL until the right versions answer there again, and what requests failed meanwhile.

One fleet as the embedded platform runs it (looked after five times a second), two versions placed, callers who ask for both without a
pause and count each call that failed. The newest replica is killed, round after round.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.report import Row, publish
from services.triton.fleet import TritonFleet
from services.triton.server_processes import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import EyasError
from shared.testing.askers import Askers
from shared.testing.model_server_suite import tiny_unit
from shared.testing.threads import Threads
from tests.servers.triton_fixture import PatientFleet

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
        fleet = PatientFleet(tritons, store)
        try:
            fleet.place("movies", [tiny_unit(store, "movies", number) for number in _VERSIONS])
            with _looked_after(fleet):
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
    callers = [Askers(fleet, "movies", number, _CALLERS // len(_VERSIONS), pause=0.005) for number in _VERSIONS]
    with callers[0], callers[1]:
        time.sleep(0.5)
        before = _counted(callers)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        while tritons.servers[killed].pid == pid or not tritons.servers[killed].alive:
            _pause(began)
        _until_ready(fleet, began)
        took = time.monotonic() - began
        after = _counted(callers)
    time.sleep(1)
    return took, after[0] - before[0], after[1] - before[1]


def _counted(callers: Sequence[Askers]) -> tuple[int, int]:
    """Failed and answered calls."""
    return sum(len(one.failures) for one in callers), sum(one.answered for one in callers)


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


def _looked_after(fleet: TritonFleet) -> Threads:
    """By the loop of the platform."""

    def look() -> None:
        while not threads.over.wait(_LOOK):
            try:
                fleet.ensure_running()
            except EyasError as error:
                Console(stderr=True).print(f"[dim]{error}")

    threads = Threads(look)
    return threads


if __name__ == "__main__":
    raise SystemExit(main())
