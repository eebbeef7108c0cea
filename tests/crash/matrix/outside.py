"""The world outside the control planes, in a process of its own that outlives them all: stages at work, people, and time.

A job is made by its name, as Kubernetes makes one: the name of one that is there is adopted, and every one that really began is
written down. Jobs end as their life tells it, whoever watches or doesn't. Time moves when every control plane that lives waits
for it, so nothing here takes real time; those that wait for each other (`meet`) go on together.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import Failure, Manifest
from tests.crash.matrix.lives import START, Life
from tests.crash.matrix.wire import Clock, Wire

SECOND = timedelta(seconds=1)
WAIT = timedelta(seconds=3)
AGES = 200
"""Seconds of the world's time in which every life has ended."""
_PATIENCE = 60.0
"""Real seconds of silence after which a process counts as stuck."""


@dataclass
class Work:
    """A job that really began, and what becomes of it."""

    name: str
    run: str
    stage: str
    at: datetime
    play: str
    phase: str = "running"
    reason: str = ""
    fault: str | None = None
    since: datetime | None = None
    """When it got a place."""

    def seen(self) -> dict[str, Any]:
        since = None if self.since is None else self.since.isoformat()
        return {"phase": self.phase, "reason": self.reason, "fault": self.fault, "since": since}


@dataclass
class Hand:
    """A control plane's process, as the world sees it."""

    pid: int
    wire: Wire
    waits: str = ""
    status: int | None = None
    """How it ended: an exit code, or minus a signal."""


@dataclass
class Outside:
    life: Life
    clock: Clock
    artifacts: FsspecArtifacts
    folder: Path
    state: Callable[[], str]
    ask: Callable[[str], None]
    """Asks the run for something, in a person's name."""
    jobs: list[Work] = field(default_factory=list)
    effects: list[tuple[str, str]] = field(default_factory=list)
    """What really happened, each time: (start | stop, name)."""
    adopted: int = 0
    ages: int = 0
    moves: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    stuck: str = ""

    def __post_init__(self) -> None:
        self._script = list(self.life.asks)
        self.clock.set(START)
        self.play()

    # Stages and people

    def start(self, name: str, run: str, stage: str, blindly: bool = False) -> None:
        """`blindly`: as if no job had ever had that name."""
        if self._job(name) is not None and not blindly:
            self.adopted += 1
            return
        plays = self.life.plays.get(stage, ())
        earlier = sum((one.run, one.stage) == (run, stage) for one in self.jobs)
        job = Work(name, run, stage, self.clock.now(), plays[earlier] if earlier < len(plays) else "publish")
        if job.play == "wait":
            job.phase, job.reason, job.fault = "waiting", "no machine has room", "unschedulable"
        else:
            job.since = job.at
        self.jobs.append(job)
        self.effects.append(("start", name))

    def stop(self, name: str) -> None:
        job = self._job(name)
        if job is not None and job.phase in ("waiting", "running"):
            job.phase, job.reason, job.fault = "failed", "killed by signal 15", None
            self.effects.append(("stop", name))

    def play(self) -> None:
        """What is due happens: jobs end, people ask."""
        for job in self.jobs:
            if job.phase == "waiting" and self.clock.now() >= job.at + WAIT:
                job.phase, job.reason, job.fault, job.since = "running", "", None, self.clock.now()
            elif job.phase == "running" and job.play != "hang" and self.clock.now() >= (job.since or job.at) + SECOND:
                self._end(job)
        if self._script and self.state() == self._script[0][0]:
            self.ask(self._script.pop(0)[1])

    def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.set(self.clock.now() + SECOND)
            self.ages += 1
            self.play()

    def _job(self, name: str) -> Work | None:
        return next((job for job in self.jobs if job.name == name), None)

    def _end(self, job: Work) -> None:
        if job.play == "crash":
            job.phase, job.reason = "failed", "killed by signal 9"
            return
        job.phase = "succeeded"
        if self.artifacts.manifest(job.name) is None:
            self._publish(job, Failure(kind="data", message="no column 'at'") if job.play == "refuse" else None)

    def _publish(self, job: Work, failure: Failure | None) -> None:
        path = self.folder / "output"
        path.write_text(f"{job.stage} of {job.run}")
        stage: Any = job.stage
        manifest = Manifest(
            stage=stage,
            run=job.run,
            attempt=job.name,
            started=job.at,
            ended=self.clock.now(),
            files={f"{job.stage}.bin": self.artifacts.put(path)},
            metrics=dict(self.life.metrics(job.stage)),
            failure=failure,
        )
        self.artifacts.publish(manifest)

    # Control planes

    def serve(self, hands: Sequence[Hand]) -> None:
        """Until all of them have ended."""
        alive = list(hands)
        with selectors.DefaultSelector() as selector:
            for hand in alive:
                selector.register(hand.wire.socket, selectors.EVENT_READ, hand)
            last = time.monotonic()
            while alive:
                for key, _ in selector.select(timeout=1.0):
                    last = time.monotonic()
                    hand = key.data
                    if not self._hear(hand):
                        selector.unregister(hand.wire.socket)
                        alive.remove(hand)
                if alive and (self.ages > AGES or time.monotonic() - last > _PATIENCE):
                    self.stuck = (
                        f"after {self.ages} s of the world's time, processes wait for {[hand.waits or 'nothing' for hand in alive]}"
                    )
                    for hand in alive:
                        os.kill(hand.pid, signal.SIGKILL)
                        self._bury(hand)
                    return
                self._release(alive)

    def _hear(self, hand: Hand) -> bool:
        """False: it has ended."""
        while True:
            words = hand.wire.receive()
            if words is None:
                self._bury(hand)
                return False
            self.answer(hand, words)
            if not hand.wire.more:
                return True

    def _bury(self, hand: Hand) -> None:
        hand.wire.close()
        hand.status = os.waitstatus_to_exitcode(os.waitpid(hand.pid, 0)[1])

    def answer(self, hand: Hand, words: dict[str, Any]) -> None:
        call = words.pop("call")
        if call in ("rest", "meet"):
            hand.waits = call
        elif call == "moved":
            self.moves.append(words)
        elif call == "said":
            self.said.append(words["text"])
        elif call == "observe":
            job = self._job(words["name"])
            hand.wire.send(job=None if job is None else job.seen())
        elif call == "start":
            self.start(**words)
            hand.wire.send()
        else:
            self.stop(**words)
            hand.wire.send()

    def _release(self, alive: Sequence[Hand]) -> None:
        """Everybody waits: those that wait for others have met, or else a second passes."""
        if not alive or not all(hand.waits for hand in alive):
            return
        going = [hand for hand in alive if hand.waits == "meet"]
        if not going:
            self.pass_by(1)
            going = list(alive)
        for hand in going:
            hand.waits = ""
        for hand in going:
            hand.wire.send()
