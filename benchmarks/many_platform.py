"""The real platform's process, but for two parts behind their ports: a model server that scores with a sum, stages that end at once.

Twice a second it writes to a file what the loops' steps take and how many statements the database was sent.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, event

from benchmarks.control_loop import Stages
from services.control import worker_loop as loops
from services.wiring import parts, serve
from shared.ports import ServedUnit
from shared.testing.fakes import FakeModelServer

COUNTS = "counts.json"
HELD = "held-"
"""Begins the names of recommenders whose stages go on."""


class Server(FakeModelServer):
    """One recommender placed costs the same however many there are."""

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        placed: Any = self._placed
        for key in [(recommender, number) for number in range(1, 10)]:
            placed.pop(key, None)
        placed |= {(recommender, unit.number): unit for unit in units}
        return {}

    def answering(self, recommender: str) -> frozenset[int]:
        return frozenset(number for number in range(1, 10) if (recommender, number) in self._placed)

    def ensure_running(self) -> bool:
        return False

    def vouch(self) -> None:
        pass


class Watch:
    """Of each step of each loop: how often it was done, seconds of the clock and of the processor, and statements to the database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, list[float]] = {}
        self._statements: Counter[str] = Counter()
        self._own = threading.local()
        inner = loops.Loop._guarded

        def timed(loop: Any, number: int, step: Any) -> None:
            began, busy, self._own.name = time.perf_counter(), time.thread_time(), f"{loop._thread.name}/{number}"
            inner(loop, number, step)
            sums = self._seconds.setdefault(self._own.name, [0.0, 0.0, 0.0])
            sums[:] = [sums[0] + 1, sums[1] + time.perf_counter() - began, sums[2] + time.thread_time() - busy]

        loops.Loop._guarded = timed  # type: ignore[method-assign, assignment]
        event.listen(Engine, "before_cursor_execute", self._count)
        threading.Thread(target=self._write, daemon=True).start()

    def _count(self, *_: Any) -> None:
        self._statements[getattr(self._own, "name", "requests")] += 1

    def _write(self) -> None:
        while True:
            counts = {"at": time.monotonic(), "steps": dict(self._seconds), "statements": dict(self._statements)}
            self._path.with_suffix(".new").write_text(json.dumps(counts))
            self._path.with_suffix(".new").replace(self._path)
            time.sleep(0.5)


class AtOnce(Stages):
    def start(self, spec: Any) -> None:
        self.at_once = not spec.recommender.name.startswith(HELD)
        super().start(spec)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    home: Path = parser.parse_args().home
    home.mkdir(parents=True, exist_ok=True)
    changed: Any = parts
    changed.executor = lambda settings, place, state, undo: AtOnce(state.artifacts)
    changed.model_server = lambda *_: Server(lambda unit, feed: np.zeros(len(next(iter(feed.values()))), np.float32))
    Watch(home / COUNTS)
    return serve({"home": home, "port": 0, "metrics_port": 0})


if __name__ == "__main__":
    raise SystemExit(main())
