"""What users get of `recommend` while something is broken, and how long until it is whole again.

    python -m benchmarks.faults [--rounds 3] [--rate 20]

The platform is a process of its own, as `eyas up` starts it, with a real Triton; users ask over HTTP at a steady rate, whatever the
answers take. One thing after the other breaks: the model server, the version, the database, the version's vectors. Each request counts:
whether it was answered, with what (the version's own order, candidates without its scores, popular items), and how long it took.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from sqlalchemy import func, select

from benchmarks.faults_cases import Case, Cases, Moments
from benchmarks.faults_world import USERS, put_spec, register
from benchmarks.report import Row, publish
from benchmarks.rollout_load import Asked, Load
from benchmarks.rollout_world import NAME, World
from services.eventlog.tables import impressions
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess, until
from tests.servers.postgres_server import Server, postgres_server

QUIET, CALM = 3.0, 2.0
_PATIENCE = 120.0
_CLIENTS = 64
OWN, FORMER = "its own", "the version before"
_FALLBACKS = ("scoring unavailable", "unknown user", "nothing left")


@dataclass(frozen=True)
class Seen:
    """One round of a case: what became of each request from when it broke until all was whole."""

    kinds: Sequence[str]
    seconds: Sequence[float]
    recovery: float
    """From the repair (of what is killed: from its death) to the end of the last request that the version didn't answer itself."""
    waited: float
    """The same, to the last moment in which an impression still waited."""
    lost: int
    """Answers without an impression in the end."""
    untold: int
    """Likes that were refused."""
    timeline: Mapping[int, Mapping[str, int]]
    """By the second in which requests were due, since it broke."""

    def share(self, kinds: Iterable[str]) -> float:
        return sum(one in set(kinds) for one in self.kinds) / len(self.kinds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--cases", nargs="+", help="only those that hold one of these words")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    rows: list[Row] = []
    lines: dict[str, list[Mapping[int, Mapping[str, int]]]] = {}
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder, postgres_server() as server:
        for name, database in (("sqlite", None), ("postgres", server)):
            with Stage(Path(folder) / name / "home", asked.rate, database) as stage:
                for case, act in stage.cases.items():
                    if asked.cases is None or any(one in case for one in asked.cases):
                        found = [stage.round(case, act) for _ in range(asked.rounds)]
                        rows += _rows(case, found)
                        lines[case] = [one.timeline for one in found]
    path = publish("faults", rows)
    path.write_text(json.dumps({**json.loads(path.read_text()), "timelines": lines}, indent=1))
    return 0


def _rows(case: str, found: Sequence[Seen]) -> list[Row]:
    figures: dict[tuple[str, str], list[float]] = {
        ("answered", "share"): [one.share((OWN, FORMER, *_FALLBACKS)) for one in found],
        **{(f"served: {kind}", "share"): [one.share([kind]) for one in found] for kind in sorted({k for one in found for k in one.kinds})},
        **{(f"latency p{p}", "ms"): [float(np.percentile(one.seconds, p)) * 1e3 for one in found] for p in (50, 99)},
        ("repaired until its own answers are back", "s"): [one.recovery for one in found],
        ("repaired until no impression waits", "s"): [one.waited for one in found],
        ("answers without an impression", "answers"): [float(one.lost) for one in found],
        ("likes refused", "events"): [float(one.untold) for one in found],
    }
    return [Row(case, "eyas", metric, unit, values) for (metric, unit), values in figures.items()]


def kind(one: Asked, version: int) -> str:
    """What a request came to: its fallback, or its status and what was said."""
    if not one.failure:
        return OWN if one.version == version else FORMER
    status, _, said = one.failure.partition(": ")
    return said if status == "200" else status if status.isdigit() else one.failure[:80]


class Stage:
    """A platform and all that can break of it."""

    def __init__(self, home: Path, rate: float, server: Server | None) -> None:
        self._home, self._rate, self._server = home, rate, server
        self._say = Console(stderr=True, width=160).print

    def __enter__(self) -> Stage:
        self._undo = ExitStack()
        url = self._server.new_database() if self._server else None
        self._world = World(self._home, USERS, {}, url)
        self._undo.callback(self._world.close)
        self._good = register(self._world)
        self._world.serve(Route(self._good))
        settings = {"EYAS_DATABASE_URL": url} if url else {}
        self._platform = self._undo.enter_context(PlatformProcess(self._home, self._home, settings=settings))
        self.cases = Cases(self._world, self._platform, self._good, self._server).all()
        until("the first answer of the version's own", self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def round(self, case: str, act: Case) -> Seen:
        """Under load: a calm while, the fault, its repair, and all that follows until nothing is amiss any more."""
        put_spec(self._world)
        moments, before = Moments(self._good), self._impressions()
        url, token = str(self._platform.client.base_url), (self._platform.home / "token").read_text()
        with Load(url, token, NAME, USERS, self._rate, likes=lambda _: 0.2, threads=_CLIENTS) as load:
            time.sleep(QUIET)
            act(moments)
            waited, ended = self._calm(load, moments)
        answered = sum(one.version > 0 for one in load.asked)
        since = [(one, self._kind(one, moments)) for one in load.asked if one.due >= moments.broke]
        asked = [(one, found) for one, found in since if one.due <= ended]
        amiss = [one.due + one.seconds for one, found in since if found not in (OWN, FORMER)]
        timeline: dict[int, Counter[str]] = {}
        for one, found in asked:
            timeline.setdefault(int(one.due - moments.broke), Counter())[found] += 1
        seen = Seen(
            [found for _, found in asked],
            [one.seconds for one, _ in asked],
            max(0.0, max(amiss, default=0.0) - moments.repaired),
            max(0.0, waited - moments.repaired) if waited else 0.0,
            answered - self._stored(before, answered),
            load.untold,
            timeline,
        )
        self._say(f"{case}: {dict(Counter(seen.kinds))}; {seen.recovery:.2f} s, {seen.waited:.2f} s; {seen.lost} lost")
        return seen

    def _kind(self, one: Asked, moments: Moments) -> str:
        """After the repair the good version's answers are the ones that are wanted."""
        if moments.repaired and one.due >= moments.repaired and not one.failure and one.version == self._good:
            return OWN
        return kind(one, moments.version)

    def _calm(self, load: Load, moments: Moments) -> tuple[float, float]:
        """Waits until for a while nothing but the good version's own answers has come and nothing waits. When something last did,
        or 0, and when all was whole."""
        waited, end = 0.0, time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            now = time.monotonic()
            waited = now if self._waiting() else waited
            newest = [one for one in list(load.asked) if one.due + one.seconds > now - CALM]
            whole = all(not one.failure and one.version == self._good for one in newest)
            if now - max(moments.repaired, waited) > CALM and len(newest) >= CALM * self._rate / 2 and whole:
                return waited, now - CALM
            time.sleep(0.05)
        raise SystemExit(f"not whole again within {_PATIENCE:g} s")

    def _waiting(self) -> float:
        """Impressions that wait for the event log."""
        text = httpx.get(self._platform.metrics_url, timeout=10).text
        found: Any = [one for one in text_string_to_metric_families(text) if one.name == "eyas_impressions_waiting"]
        return float(found[0].samples[0].value)

    def _answers(self) -> bool:
        found = self._platform.client.post(f"/v1/recommend/{NAME}", json={"user": 1, "k": 5})
        return found.is_success and found.json()["fallback"] is None

    def _impressions(self) -> int:
        with self._world.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(impressions)).scalar_one())

    def _stored(self, before: int, expected: int) -> int:
        """Of answers that went out while the log was away: they come by and by."""
        end = time.monotonic() + 20
        while (found := self._impressions() - before) < expected and time.monotonic() < end:
            time.sleep(0.1)
        return found


if __name__ == "__main__":
    raise SystemExit(main())
