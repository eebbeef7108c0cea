"""Outside of rollouts: a model server, gateways, and users.

The server answers with a version a second after it was placed; it may be told to be slow, to fall silent, or that a version can't
be loaded. Gateways read the real store of routes each second, and one of them reports what it read a second late. What users do is
told by the life, in numbers that don't change while a step lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from services.store.routes import SqlRoutes
from shared.contracts.codec import encode
from shared.domain.route import Route
from shared.domain.sequential_test import VariantSample
from shared.domain.traffic import ShadowCounts, Traffic, UserShares, bucket_of
from tests.crash.matrix.outside import SECOND, Outside
from tests.crash.matrix.rollouts.lives import RolloutLife
from tests.crash.matrix.subject import NAME
from tests.crash.matrix.wire import Clock

GATEWAYS = ("gate-1", "gate-2")
SLOWLY = timedelta(seconds=4)
_PEOPLE = 10_000
_FAST, _SLOW = bucket_of(0.01), bucket_of(0.1)


def _users(count: int, rate: float) -> VariantSample:
    hits = round(count * rate)
    return VariantSample(users=count, total=float(hits), squares=float(hits), answers=count, hits=hits, converted=hits)


def _answers(count: int) -> Traffic:
    return Traffic(users=count, answers=count, latency={_FAST: count}, fallback=UserShares(count), empty=UserShares(count))


@dataclass(frozen=True)
class Counts:
    """What is known of a step: how many people came, how often the two versions were liked, how fast a shadow answered."""

    people: int
    candidate: float = 0.5
    shadow: int = _FAST

    def samples(self) -> dict[str, VariantSample]:
        half = self.people // 2
        return {"stable": _users(half, 0.5), "candidate": _users(half, self.candidate)}

    def traffic(self, weight: float) -> dict[str, Traffic]:
        its = round(self.people * weight)
        return {"stable": _answers(self.people - its), "candidate": _answers(its)}

    def mirror(self) -> ShadowCounts:
        return ShadowCounts(
            compared=self.people, stable={_FAST: self.people}, candidate={self.shadow: self.people}, overlap=self.people / 2
        )


_COUNTS = {"good": Counts(_PEOPLE), "harm": Counts(_PEOPLE, candidate=0.1, shadow=_SLOW), "few": Counts(10)}


class Serving(Outside):
    def __init__(self, life: RolloutLife, clock: Clock, engine: Engine, status: Callable[[], Any], ask: Callable[[str], object]) -> None:
        super().__init__(life.script, clock, status, ask)
        self._life = life
        self._counts = life.counts
        self._routes = SqlRoutes(engine)
        self._placed: dict[int, datetime] = {}
        self._broken: set[int] = set()
        self._slow: set[int] = set()
        self._silent: set[int] = set()
        self._mute: set[str] = set()
        self._late = 0
        self._counted: dict[int, datetime] = {}
        self.served: dict[int, datetime] = {}
        """By generation: since when every gateway that isn't mute serves it."""
        self.answered: dict[int, datetime] = {}
        """By version: since when it was seen to answer."""
        self.puts: list[dict[str, Any]] = []
        """Every call that sets a route, and what came of it: moved, repeated, refused."""
        self.faults: list[str] = []
        """What must not happen, seen as it happened."""
        for what in life.begins:
            self.happen(what)
        for entry in self._routes.history(NAME):
            assert entry.route.since is not None
            self._placed[entry.route.stable] = self.answered[entry.route.stable] = entry.route.since

    def is_at(self, status: Any, where: str) -> bool:
        facts = {status.state, f"step-{status.step}", *(["sick"] if status.sick_since else []), *status.reason.split()}
        if any(report.step == status.step for report in status.reports):
            facts.add("looked")
        return {word.rstrip(",") for word in where.split()} <= {fact.rstrip(",:") for fact in facts}

    def happen(self, what: str) -> None:
        verb, _, whom = what.partition(" ")
        if verb == "silence":
            self._silent.add(int(whom))
        elif verb == "heal":
            self._silent.clear()
        elif verb == "break":
            self._broken.add(int(whom))
        elif verb == "slow":
            self._slow.add(int(whom))
        elif verb == "mute":
            self._mute.add(whom)
        elif verb == "hear":
            self._mute.discard(whom)
        elif verb == "route":
            self._routes.put(NAME, Route(int(whom)), self.clock.now(), "ada", "by hand")
        elif verb == "count":
            self._counts = (whom,)
        else:
            self.ask(verb)

    def called(self, call: str, words: dict[str, Any]) -> dict[str, Any] | None:
        if call == "put":
            self.puts.append(words)
            return None
        if call == "place":
            return {"faults": self._place(words["versions"])}
        if call == "answering":
            return {"versions": sorted(self._answering())}
        return {"found": self._seen(**words)}

    def work(self) -> None:
        """Gateways read and report; versions that were placed begin to answer."""
        now = self.clock.now()
        self._answering()
        route = self._routes.get(NAME)
        if route is None:
            return
        if route.generation < self._late:
            self.faults.append(f"the route went back from generation {self._late} to {route.generation}")
        reports = dict(zip(GATEWAYS, (route.generation, self._late), strict=True))
        self._late = route.generation
        for gateway in GATEWAYS:
            if gateway not in self._mute:
                self._routes.report(gateway, {NAME: reports[gateway]}, now)
        everywhere = min((served for gateway, served in reports.items() if gateway not in self._mute), default=0)
        for generation in range(1, everywhere + 1):
            self.served.setdefault(generation, now)

    def _place(self, versions: list[int]) -> dict[str, str]:
        route = self._routes.get(NAME)
        missing = sorted((route.named() if route else frozenset()) - set(versions) - self._broken)
        if missing:
            self.faults.append(f"the server was told to serve {versions} alone, while the route {_said(route)} names {missing}")
        now = self.clock.now()
        self._placed = {version: self._placed.get(version, now) for version in versions if version not in self._broken}
        return {str(version): "unexpected end of file" for version in versions if version in self._broken}

    def _answering(self) -> set[int]:
        now = self.clock.now()
        found = {
            version
            for version, since in self._placed.items()
            if version not in self._silent and now - since >= (SLOWLY if version in self._slow else SECOND)
        }
        for version in found:
            self.answered.setdefault(version, now)
        return found

    def _seen(self, what: str, generation: int) -> Any:
        """None: it can't be counted. Too few came as long as anything is left to happen, or the route is new."""
        route = self._routes.get(NAME)
        assert route is not None
        counts = self._counts[min(max(0, route.step), len(self._counts) - 1)]
        if counts == "fails":
            return None
        served = self.served.get(generation)
        enough = not self.script and served is not None and self.clock.now() - served >= SECOND
        known = _COUNTS[counts if enough else "few"]
        if what == "mirror":
            return encode(ShadowCounts, known.mirror())
        if what == "traffic":
            return encode(dict[str, Traffic], known.traffic(route.weight))
        return encode(dict[str, VariantSample], known.samples())


def _said(route: Route | None) -> str:
    return "" if route is None else f"{route.stable}/{route.candidate} at {route.weight:.0%}"
