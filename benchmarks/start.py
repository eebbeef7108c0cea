"""How long the embedded platform takes to be ready, and its memory while idle, process by process."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Row, benchmark, family, say, scratch, until
from benchmarks.platforms import running

_IDLE_SECONDS = 5.0
_DEMO_HOME = Path("var/demo/home")


@benchmark("start")
def start(runs: int = 5) -> Iterator[Row]:
    with scratch() as folder:
        yield from _case("empty home", folder / "empty", runs)
        if _DEMO_HOME.exists():
            shutil.copytree(_DEMO_HOME, folder / "demo", ignore=shutil.ignore_patterns("lock", "endpoint.json"))
            yield from _case("after make demo", folder / "demo", runs)
        else:
            say("no home of `make demo` here: run it first to measure a platform that serves")


def _case(case: str, home: Path, runs: int) -> Iterator[Row]:
    _start(home)  # the first start migrates and lays out backends
    measured = [_start(home) for _ in range(runs)]
    yield Row(case, "eyas", "time to ready", "s", [seconds for seconds, _ in measured])
    for name in sorted(set().union(*(resident for _, resident in measured))):
        values = [resident[name] for _, resident in measured if name in resident]
        yield Row(case, f"eyas: {name}", "resident memory", "MiB", values)


def _start(home: Path) -> tuple[float, dict[str, float]]:
    """Seconds to ready; resident memory by process."""
    with running(home) as platform:
        until("the platform is ready", platform.is_ready, pause=0.01)
        seconds = time.monotonic() - platform.began
        time.sleep(_IDLE_SECONDS)
        resident: dict[str, float] = defaultdict(float)
        for process in family(platform.process.pid):
            name = "platform" if process == platform.process else process.name()
            resident[name] += process.memory_info().rss / 2**20
        return seconds, {**resident, "all": sum(resident.values())}


if __name__ == "__main__":
    start()
