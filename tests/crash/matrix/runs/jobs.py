"""Outside of runs: stages at work.

A job is made by its name, as Kubernetes makes one: the name of one that is there is adopted, and every one that really began is
written down. Jobs end as their life tells it, whoever watches or doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import Failure, Manifest
from tests.crash.matrix.outside import SECOND, Outside
from tests.crash.matrix.runs.lives import RunLife
from tests.crash.matrix.wire import Clock

WAIT = timedelta(seconds=3)


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


class Jobs(Outside):
    def __init__(self, life: RunLife, clock: Clock, artifacts: Path, status: Callable[[], Any], ask: Callable[[str], object]) -> None:
        super().__init__(life.asks, clock, status, ask)
        self.life = life
        self.jobs: list[Work] = []
        self.effects: list[tuple[str, str]] = []
        """What really happened, each time: (start | stop, name)."""
        self.adopted = 0
        self._artifacts = FsspecArtifacts(str(artifacts))
        self._output = artifacts.parent / "output"

    def called(self, call: str, words: dict[str, Any]) -> dict[str, Any] | None:
        if call == "observe":
            job = self._job(words["name"])
            return {"job": None if job is None else job.seen()}
        if call == "start":
            self.start(**words)
        elif call == "stop":
            self.stop(**words)
        return {}

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

    def work(self) -> None:
        for job in self.jobs:
            if job.phase == "waiting" and self.clock.now() >= job.at + WAIT:
                job.phase, job.reason, job.fault, job.since = "running", "", None, self.clock.now()
            elif job.phase == "running" and job.play != "hang" and self.clock.now() >= (job.since or job.at) + SECOND:
                self._end(job)

    def _job(self, name: str) -> Work | None:
        return next((job for job in self.jobs if job.name == name), None)

    def _end(self, job: Work) -> None:
        if job.play == "crash":
            job.phase, job.reason = "failed", "killed by signal 9"
            return
        job.phase = "succeeded"
        if self._artifacts.manifest(job.name) is None:
            self._publish(job, Failure(kind="data", message="no column 'at'") if job.play == "refuse" else None)

    def _publish(self, job: Work, failure: Failure | None) -> None:
        self._output.write_text(f"{job.stage} of {job.run}")
        stage: Any = job.stage
        manifest = Manifest(
            stage=stage,
            run=job.run,
            attempt=job.name,
            started=job.at,
            ended=self.clock.now(),
            files={f"{job.stage}.bin": self._artifacts.put(self._output)},
            metrics=dict(self.life.metrics(job.stage)),
            failure=failure,
        )
        self._artifacts.publish(manifest)
