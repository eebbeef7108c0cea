"""Who is sent to the candidate: 100,000 requests through the platform's own gateway, its loops and a real Triton, at rising weights.

Inside the platform's process: over HTTP most of the time would be the web server's, and it has no part in the choice.
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Row
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
        """How far from what was asked: each user is one throw."""
        return (len(self.candidates) - self.users * self.weight) / math.sqrt(self.users * self.weight * (1 - self.weight))


def split(home: Path, requests: int, say: Callable[[str], None]) -> tuple[list[Row], bool]:
    """Of `requests`, a part at each weight. The second value: whether all was as promised."""
    users = requests // len(WEIGHTS) // _TIMES
    world = World(home, users, {"steps": [0.5]})
    stable, candidate = world.version(), world.version()
    salt = secrets.token_hex(8)
    found: list[Split] = []
    with ExitStack() as undo:
        undo.callback(world.close)
        gateway = _platform(home, undo)
        for step, weight in enumerate(WEIGHTS):
            route = world.serve(Route(stable, candidate, weight, salt, step))
            _served(gateway, route)
            found.append(_asked(gateway, users, weight, candidate))
            one = found[-1]
            say(
                f"  {weight:4.0%}: {one.requests:,} requests of {users:,} users, {len(one.candidates):,} users on the candidate "
                f"({len(one.candidates) / users:.2%}, {one.sigmas:+.1f} sigma), {one.changed} on both, {one.failed} failed"
            )
    moved_back = sum(len(before.candidates - after.candidates) for before, after in itertools.pairwise(found))
    say(f"  moved back as the weight grew: {moved_back}")
    good = not moved_back and all(abs(one.sigmas) <= 3 and not one.changed and not one.failed for one in found)
    return [*_rows(found), Row("all weights", "eyas", "canary users moved back", "users", [moved_back])], good


def _platform(home: Path, undo: ExitStack) -> Gateway:
    """All of it but the listening socket."""
    place = Home(home)
    place.open()
    undo.callback(place.close)
    platform = Platform(Settings.read({"home": home}), place, place.token(), (), undo)
    platform.start()
    assert platform.gateway is not None
    return platform.gateway


def _served(gateway: Gateway, route: Route) -> None:
    """Until the gateway serves that route, and every version of it scores."""
    deadline = time.monotonic() + _PATIENCE
    waiting = set(route.named())
    for user in range(1_000_000):
        served = gateway._loader.snapshot.served.get(NAME)
        if served is not None and served.route.generation == route.generation:
            answer = gateway.recommend(NAME, user % 2000)
            if answer.fallback is None:
                waiting.discard(answer.version)
            if not waiting:
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"versions {sorted(waiting)} don't answer within {_PATIENCE:g} s")
        time.sleep(0.005)


def _asked(gateway: Gateway, users: int, weight: float, candidate: int) -> Split:
    def ask(user: int) -> list[Answer]:
        return [gateway.recommend(NAME, user) for _ in range(_TIMES)]

    with ThreadPoolExecutor(_THREADS) as pool:
        answers: Sequence[list[Answer]] = list(pool.map(ask, range(users)))
    flat = [one for of_user in answers for one in of_user]
    failed = sum(one.fallback is not None or (one.version == candidate) != (one.variant == "candidate") for one in flat)
    changed = sum(len({one.variant for one in of_user}) > 1 for of_user in answers)
    canary = frozenset(user for user, of_user in enumerate(answers) if of_user[0].variant == "candidate")
    return Split(weight, users, len(flat), failed, changed, canary)


def _rows(found: Sequence[Split]) -> list[Row]:
    rows: list[Row] = []
    for one in found:
        case = f"weight {one.weight:.0%}"
        rows += [
            Row(case, "eyas", "requests", "", [one.requests]),
            Row(case, "eyas", "share on the candidate", "%", [100 * len(one.candidates) / one.users]),
            Row(case, "eyas", "distance from what was asked", "sigma", [one.sigmas]),
            Row(case, "eyas", "users on both variants", "users", [one.changed]),
            Row(case, "eyas", "failed requests", "", [one.failed]),
        ]
    return rows
