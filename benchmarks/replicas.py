"""How long a killed tritonserver is missed: SIGKILL until the right versions answer there again, and the requests that failed meanwhile.

One fleet as the embedded platform runs it (its loop checks five times a second), two versions placed, callers who ask for both without a
pause and count each call that failed. The newest replica is killed, round after round.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from benchmarks.harness import Row, benchmark, scratch, until
from services.triton.fleet import TritonFleet
from services.triton.server_processes import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import EyasError
from shared.testing.askers import Askers
from shared.testing.model_server_suite import tiny_unit
from shared.testing.threads import Threads
from tests.servers.triton_fixture import PatientFleet

_CHECK_EVERY = 0.2
_CALLERS = 4
_VERSIONS = (1, 2)
_LIMIT = 120.0


@benchmark("replicas")
def replicas(rounds: int = 5) -> Iterator[Row]:
    for count in (1, 2):
        case = "1 replica" if count == 1 else f"{count} replicas"
        with scratch() as folder:
            store = FsspecArtifacts(str(folder / "artifacts"))
            tritons = EmbeddedTritons(folder / "server", count)
            tritons.start()
            fleet = PatientFleet(tritons, store)
            try:
                fleet.place("movies", [tiny_unit(store, "movies", number) for number in _VERSIONS])
                with _checked(fleet):
                    _wait(fleet)
                    results = [_round(fleet, tritons, f"triton-{count}") for _ in range(rounds)]
            finally:
                fleet.close()
                tritons.stop()
        seconds, failed, answered = zip(*results, strict=True)
        yield Row(case, "eyas", "SIGKILL until its versions answer there again", "s", seconds)
        yield Row(case, "eyas", "failed calls meanwhile", "calls", failed)
        yield Row(case, "eyas", "answered calls meanwhile", "calls", answered)


def _round(fleet: TritonFleet, tritons: EmbeddedTritons, killed: str) -> tuple[float, int, int]:
    pid = tritons.servers[killed].pid
    assert pid
    callers = [Askers(fleet, "movies", number, _CALLERS // len(_VERSIONS), pause=0.005) for number in _VERSIONS]
    with callers[0], callers[1]:
        time.sleep(0.5)
        failed, answered = _calls(callers)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        until("a new Triton", lambda: tritons.servers[killed].pid != pid and tritons.servers[killed].alive, _LIMIT, 0.01)
        _wait(fleet)
        seconds = time.monotonic() - began
        failed_now, answered_now = _calls(callers)
    time.sleep(1)
    return seconds, failed_now - failed, answered_now - answered


def _calls(callers: Sequence[Askers]) -> tuple[int, int]:
    """Failed and answered calls."""
    return sum(len(caller.failures) for caller in callers), sum(caller.answered for caller in callers)


def _wait(fleet: TritonFleet) -> None:
    """Until every replica is ready, and every version answered a real inference on each."""

    def is_ready() -> bool:
        try:
            return {replica.state for replica in fleet.info().replicas} == {"ready"} and fleet.answering("movies") == set(_VERSIONS)
        except EyasError:  # no server answers
            return False

    until("every version on every Triton", is_ready, _LIMIT, 0.01)


def _checked(fleet: TritonFleet) -> Threads:
    """By the loop of the platform."""

    def check() -> None:
        while not threads.over.wait(_CHECK_EVERY):
            with suppress(EyasError):
                fleet.ensure_running()

    threads = Threads(check)
    return threads


if __name__ == "__main__":
    replicas()
