"""Fakes of processes and servers for unit tests; they pass the conformance suites of their ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid, Unavailable
from shared.domain.run import Job
from shared.ports import ServedUnit, ServerInfo

Feed = Mapping[str, np.ndarray[Any, Any]]


class FakeExecutor:
    """Starts no process: each attempt runs until the test ends it."""

    def __init__(self) -> None:
        self.started: list[StageSpec] = []
        self.stopped: list[str] = []
        self._jobs: dict[str, Job] = {}
        self._logs: dict[str, bytes] = {}

    def start(self, spec: StageSpec) -> None:
        if spec.attempt not in self._jobs:
            self.started.append(spec)
            self._jobs[spec.attempt] = Job("running")

    def observe(self, attempt: str) -> Job | None:
        return self._jobs.get(_named(attempt))

    def stop(self, attempt: str) -> None:
        job = self._jobs.get(_named(attempt))
        if job is not None and job.phase == "running":
            self.stopped.append(attempt)
            self.end(attempt, Job("failed", "killed by signal 15"))

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        content = self._logs.get(_named(attempt), b"")[offset:]
        return content.decode(), offset + len(content)

    def say(self, attempt: str, text: str) -> None:
        self._logs[attempt] = self._logs.get(attempt, b"") + text.encode()

    def end(self, attempt: str, job: Job) -> None:
        self._jobs[attempt] = job

    def forget(self, attempt: str) -> None:
        """Forgets the attempt, as a cluster does when its Job is deleted: the name is free again."""
        del self._jobs[attempt]


def _named(attempt: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", attempt):
        raise Invalid(f"{attempt!r} is not an attempt name: use lower-case letters, digits and dashes")
    return attempt


def user_plus_number_times_item(unit: ServedUnit, feed: Feed) -> np.ndarray[Any, Any]:
    return np.asarray(feed["user"] + unit.number * feed["item"], dtype=np.float32)


class FakeModelServer:
    """Scores with a function. Versions in `broken` can't be loaded; versions in `silent` are loaded and don't answer."""

    def __init__(self, model: Callable[[ServedUnit, Feed], np.ndarray[Any, Any]] = user_plus_number_times_item) -> None:
        self.broken: dict[tuple[str, int], str] = {}
        self.silent: set[tuple[str, int]] = set()
        self.down = False
        self._model = model
        self._placed: Mapping[tuple[str, int], ServedUnit] = {}
        self._successes: dict[tuple[str, int], int] = {}

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        self._check_up()
        faults = {unit.number: self.broken[recommender, unit.number] for unit in units if (recommender, unit.number) in self.broken}
        others = {key: unit for key, unit in self._placed.items() if key[0] != recommender}
        self._placed = others | {(recommender, unit.number): unit for unit in units if unit.number not in faults}
        return faults

    def answering(self, recommender: str) -> frozenset[int]:
        if self.down:
            return frozenset()
        return frozenset(number for name, number in self._placed.keys() - self.silent if name == recommender)

    def score(self, recommender: str, number: int, feed: Feed, patience: float | None = None) -> np.ndarray[Any, Any]:
        self._check_up()
        key = (recommender, number)
        unit = self._placed.get(key)
        if unit is None or key in self.silent:
            raise Unavailable(f"{recommender} version {number} is not on the model server")
        scores = self._model(unit, feed)
        self._successes[key] = self._successes.get(key, 0) + 1
        return scores

    def successes(self) -> Mapping[tuple[str, int], int]:
        return dict(self._successes)

    def info(self) -> ServerInfo:
        self._check_up()
        return ServerInfo(
            "fake",
            tuple({"name": f"fake-{name}", "version": str(number), "state": "READY", "recommender": name} for name, number in self._placed),
        )

    def restart(self) -> None:
        """Brings the server back with the placed versions."""
        self.down = False

    def _check_up(self) -> None:
        if self.down:
            raise Unavailable("the model server does not answer")
