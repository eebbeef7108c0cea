"""Versions that come and go beside one that stays and is asked by 32 threads: what fails, what grows, what is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from services.triton import orphan_cleanup
from shared.testing.askers import Askers
from tests.servers.triton_fixture import Stand
from tests.support.broken_models import BROKEN

_DISTINCT = 20
_QUICK = ("truncated", "one score for all rows", "no numbers", "crashing", "crashing at load")


@dataclass(frozen=True)
class Point:
    """The server after so many cycles."""

    cycles: int
    server: float
    """MiB that only it holds."""
    stubs: float
    """MiB of all its Python processes."""
    processes: int
    regions: int
    """Files in shared memory."""
    asker: float
    """MiB of the process that places and asks."""


@dataclass
class Cycles:
    asked: int
    failures: list[str]
    latencies: list[float]
    curve: list[Point]
    places: list[float]
    """Seconds of each change."""
    reported: int
    """Broken versions that were among the changes, each of them reported."""


def cycle(stand: Stand, times: int, points: int, pause: float, said: Callable[[Point], None] = lambda _: None) -> Cycles:
    """Each cycle loads one version and unloads another; every tenth has content that was never tried; every 25th a broken one comes along.

    Version 1 stays. The stand ends with it and the version of the last cycle.
    """
    one, reported = stand.unit(1), 0
    curve: list[Point] = []
    places: list[float] = []
    stand.server.place("movies", [one])
    with Askers(stand.server, "movies", 1, threads=32, pause=pause) as askers:
        for number in range(times):
            version, factor = number + 2, 1000 + number if number % 10 == 9 else number % _DISTINCT
            units: list[Any] = [one, stand.like(version, factor, tags=number % 7 == 3)]
            wrong = number % 25 == 24
            if wrong:
                units.append(stand.unit(1_000_000 + number, model=BROKEN[_QUICK[number // 25 % len(_QUICK)]][0]()))
            began = time.monotonic()
            faults = stand.server.place("movies", units)
            places.append(time.monotonic() - began)
            assert set(faults) == ({1_000_000 + number} if wrong else set()), faults
            reported += len(faults)
            if (number + 1) % max(1, times // points) == 0:
                curve.append(measure(stand, number + 1))
                said(curve[-1])
    return Cycles(len(askers.calls), askers.failures, askers.latencies(), curve, places, reported)


def measure(stand: Stand, cycles: int) -> Point:
    orphan_cleanup.sweep_deserted(stand.mark, age=5)
    stubs = [*stand.stub_folders().values()]
    held = 0
    for pid in stubs:
        with contextlib.suppress(psutil.NoSuchProcess):
            held += psutil.Process(pid).memory_info().rss
    server, asker = psutil.Process(stand.triton.pid).memory_info().rss, psutil.Process().memory_info().rss
    return Point(cycles, server / 2**20, held / 2**20, len(stubs), len(stand.regions()), asker / 2**20)
