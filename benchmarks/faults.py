"""Answers of `recommend` while something is broken, and how long until it is whole again.

    python -m benchmarks.faults [--rounds 3] [--rate 20]

The platform is a process of its own, as `eyas up` starts it, with a real Triton; users ask over HTTP at a steady rate, whatever the
answers take. One part after the other breaks: the model server, the version, the database, the version's vectors. Each request counts:
whether and how it was answered (the version's own order, candidates without its scores, popular items), and how long it took.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
from sqlalchemy import func, select

from benchmarks.faults_cases import Case, Cases, Moments
from benchmarks.faults_world import USERS, put_spec, register
from benchmarks.harness import Fields, Outcome, Row, benchmark, percentiles, say, scratch, until
from benchmarks.load import Reply, Users
from benchmarks.rollout_world import NAME, World
from services.eventlog.tables import impressions
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess
from tests.servers.postgres_server import Server, postgres_server

QUIET, CALM = 3.0, 2.0
_PATIENCE = 120.0
_CLIENTS = 64
OWN, FORMER = "its own", "the version before"
_FALLBACKS = ("scoring unavailable", "unknown user", "nothing left")
_WAITING = re.compile(r"^eyas_impressions_waiting(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Round:
    """One round of a case: the outcome of each request from the fault until all was whole."""

    kinds: Sequence[str]
    seconds: Sequence[float]
    recovery: float
    """From the repair (after a kill: from the death) to the end of the last request that the version didn't answer itself."""
    waited: float
    """The same, to the last moment in which an impression still waited."""
    lost: int
    """Answers without an impression in the end."""
    refused: int
    """Likes that were refused."""
    timeline: Mapping[int, Mapping[str, int]]
    """By the second in which requests were due, since the fault."""

    def share(self, kinds: Iterable[str]) -> float:
        return sum(kind in set(kinds) for kind in self.kinds) / len(self.kinds)


@benchmark("faults")
def faults(
    rounds: int = 3, rate: float = 20, cases: Annotated[Sequence[str], "only those that contain one of these words"] = ()
) -> Iterator[Outcome]:
    logging.basicConfig(level=logging.ERROR)
    timelines = {}
    with scratch() as folder, postgres_server() as server:
        for name, database in (("sqlite", None), ("postgres", server)):
            with Stage(folder / name / "home", rate, database) as stage:
                for case, act in stage.cases.items():
                    if not cases or any(word in case for word in cases):
                        measured = [stage.round(case, act) for _ in range(rounds)]
                        yield from _rows(case, measured)
                        timelines[case] = [own.timeline for own in measured]
    yield Fields(timelines=timelines)


def _rows(case: str, rounds: Sequence[Round]) -> Iterator[Row]:
    yield Row(case, "eyas", "answered", "share", [own.share((OWN, FORMER, *_FALLBACKS)) for own in rounds])
    for kind in sorted({kind for own in rounds for kind in own.kinds}):
        yield Row(case, "eyas", f"served: {kind}", "share", [own.share([kind]) for own in rounds])
    for share in (50, 99):
        yield Row(case, "eyas", f"latency p{share}", "ms", [percentiles(own.seconds, share, scale=1000)[f"p{share}"] for own in rounds])
    yield Row(case, "eyas", "repaired until its own answers are back", "s", [own.recovery for own in rounds])
    yield Row(case, "eyas", "repaired until no impression waits", "s", [own.waited for own in rounds])
    yield Row(case, "eyas", "answers without an impression", "answers", [own.lost for own in rounds])
    yield Row(case, "eyas", "likes refused", "events", [own.refused for own in rounds])


def kind(reply: Reply, version: int) -> str:
    """The outcome of a request: its fallback, or its status and the reason."""
    if not reply.failure:
        return OWN if reply.version == version else FORMER
    status, _, reason = reply.failure.partition(": ")
    return reason if status == "200" else status if status.isdigit() else reply.failure[:80]


class Stage:
    """A platform and all that can break of it."""

    def __init__(self, home: Path, rate: float, server: Server | None) -> None:
        self._home, self._rate, self._server = home, rate, server

    def __enter__(self) -> Stage:
        self._undo = ExitStack()
        url = self._server.new_database() if self._server else None
        self._world = World(self._home, USERS, {}, url)
        self._undo.callback(self._world.close)
        put_spec(self._world)
        self._good = register(self._world)
        self._world.serve(Route(self._good))
        settings = {"EYAS_DATABASE_URL": url} if url else {}
        self._platform = self._undo.enter_context(PlatformProcess(self._home, self._home, settings=settings))
        self.cases = Cases(self._world, self._platform, self._good, self._server).all()
        until("the first answer of the version's own", lambda: self._platform.model_answer(NAME))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def round(self, case: str, act: Case) -> Round:
        """Under load: a calm while, the fault, its repair, and all that follows until everything is whole."""
        put_spec(self._world)
        moments, before = Moments(self._good), self._impressions()
        url, token = str(self._platform.client.base_url), (self._platform.home / "token").read_text()
        with Users(url, token, NAME, USERS, self._rate, likes=0.2, threads=_CLIENTS) as users:
            time.sleep(QUIET)
            act(moments)
            waited, ended = self._calm(users, moments)
        answered = sum(reply.version > 0 for reply in users.replies)
        since = [(reply, self._kind(reply, moments)) for reply in users.replies if reply.due >= moments.broke]
        counted = [(reply, own) for reply, own in since if reply.due <= ended]
        amiss = [reply.due + reply.seconds for reply, own in since if own not in (OWN, FORMER)]
        timeline: dict[int, Counter[str]] = defaultdict(Counter)
        for reply, own in counted:
            timeline[int(reply.due - moments.broke)][own] += 1
        measured = Round(
            [own for _, own in counted],
            [reply.seconds for reply, _ in counted],
            max(0.0, max(amiss, default=0.0) - moments.repaired),
            max(0.0, waited - moments.repaired) if waited else 0.0,
            answered - self._stored(before, answered),
            users.refused_likes,
            timeline,
        )
        say(f"{case}: {dict(Counter(measured.kinds))}; {measured.recovery:.2f} s, {measured.waited:.2f} s; {measured.lost} lost")
        return measured

    def _kind(self, reply: Reply, moments: Moments) -> str:
        """After the repair the good version's answers are the ones that are wanted."""
        if moments.repaired and reply.due >= moments.repaired and not reply.failure and reply.version == self._good:
            return OWN
        return kind(reply, moments.version)

    def _calm(self, users: Users, moments: Moments) -> tuple[float, float]:
        """Waits until for a while only the good version's own answers have come and no impression waits. Returns the moment at which an
        impression waited last, or 0, and the moment from which on all was whole."""
        waited, end = 0.0, time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            now = time.monotonic()
            waited = now if float(_WAITING.findall(httpx.get(self._platform.metrics_url, timeout=10).text)[0]) else waited
            newest = [reply for reply in list(users.replies) if reply.due + reply.seconds > now - CALM]
            recovered = all(not reply.failure and reply.version == self._good for reply in newest)
            if now - max(moments.repaired, waited) > CALM and len(newest) >= CALM * self._rate / 2 and recovered:
                return waited, now - CALM
            time.sleep(0.05)
        raise SystemExit(f"not whole again within {_PATIENCE:g} s")

    def _impressions(self) -> int:
        with self._world.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(impressions)).scalar_one())

    def _stored(self, before: int, expected: int) -> int:
        """Of answers that went out while the log was away: they arrive late."""
        end = time.monotonic() + 20
        while (stored := self._impressions() - before) < expected and time.monotonic() < end:
            time.sleep(0.1)
        return stored


if __name__ == "__main__":
    faults()
