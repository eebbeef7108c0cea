"""Who is sent to the candidate: 100,000 requests through the platform's own gateway, its loops and a real Triton, at rising weights.

Inside the platform's process: over HTTP most of the time would be the web server's, and it has no part in the choice.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Missed, Outcome, Row, until
from benchmarks.rollout_world import NAME, World
from services.gateway import Answer, Gateway
from services.home import Home
from services.settings import Settings
from services.wiring.platform import Platform
from shared.domain.route import Route

WEIGHTS = (0.01, 0.05, 0.10, 0.25, 0.50)
_TIMES = 2
"""Requests of each user at each weight."""
_THREADS = 4
_PATIENCE = 120.0


@dataclass(frozen=True)
class Split:
    weight: float
    users: int
    requests: int
    failed: int
    """Without scores, or by a version that isn't the variant's."""
    changed: int
    """Users who met both variants at this weight."""
    candidates: frozenset[int]

    @property
    def sigmas(self) -> float:
        """Distance from the weight: each user is one throw."""
        return (len(self.candidates) - self.users * self.weight) / math.sqrt(self.users * self.weight * (1 - self.weight))


def split(home: Path, requests: int) -> Iterator[Outcome]:
    """Sends a part of the requests at each weight."""
    users = requests // len(WEIGHTS) // _TIMES
    world = World(home, users, {"steps": [0.5]})
    stable, candidate = world.version(), world.version()
    salt, splits = secrets.token_hex(8), list[Split]()
    with ExitStack() as undo:
        undo.callback(world.close)
        gateway = _platform(home, undo)
        for step, weight in enumerate(WEIGHTS):
            _wait_for(gateway, world.serve(Route(stable, candidate, weight, salt, step)))
            splits.append(measured := _send(gateway, users, weight, candidate))
            case = f"weight {weight:.0%}"
            yield Row(case, "eyas", "requests", "", [measured.requests])
            yield Row(case, "eyas", "share on the candidate", "%", [100 * len(measured.candidates) / users])
            yield Row(case, "eyas", "distance from what was asked", "sigma", [measured.sigmas])
            yield Row(case, "eyas", "users on both variants", "users", [measured.changed])
            yield Row(case, "eyas", "failed requests", "", [measured.failed])
            if abs(measured.sigmas) > 3 or measured.changed or measured.failed:
                yield Missed(f"{case}: within 3 sigma, no user on both variants, no failed request")
    moved_back = sum(len(before.candidates - after.candidates) for before, after in itertools.pairwise(splits))
    yield Row("all weights", "eyas", "canary users moved back", "users", [moved_back])
    if moved_back:
        yield Missed("no user moves back while the weight grows")


def _platform(home: Path, undo: ExitStack) -> Gateway:
    """All of it but the listening socket."""
    place = Home(home)
    place.open()
    undo.callback(place.close)
    platform = Platform(Settings.read({"home": home}), place, place.token(), (), undo)
    platform.start()
    assert platform.gateway is not None
    return platform.gateway


def _wait_for(gateway: Gateway, route: Route) -> None:
    """Until the gateway serves that route, and every version of it scores."""
    silent, users = set(route.named()), itertools.count()

    def all_answer() -> bool:
        served = gateway._loader.snapshot.served.get(NAME)
        if served is not None and served.route.generation == route.generation:
            for user in itertools.islice(users, 100):
                answer = gateway.recommend(NAME, user % 2000)
                if answer.fallback is None:
                    silent.discard(answer.version)
        return not silent

    until(f"versions {sorted(route.named())} answer", all_answer, _PATIENCE)


def _send(gateway: Gateway, users: int, weight: float, candidate: int) -> Split:
    def visit(user: int) -> list[Answer]:
        return [gateway.recommend(NAME, user) for _ in range(_TIMES)]

    with ThreadPoolExecutor(_THREADS) as pool:
        answers = list(pool.map(visit, range(users)))
    flat = list(itertools.chain.from_iterable(answers))
    failed = sum(answer.fallback is not None or (answer.version == candidate) != (answer.variant == "candidate") for answer in flat)
    changed = sum(len({answer.variant for answer in own}) > 1 for own in answers)
    canary = frozenset(user for user, own in enumerate(answers) if own[0].variant == "candidate")
    return Split(weight, users, len(flat), failed, changed, canary)
