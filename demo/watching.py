"""Waits for runs, rollouts and conditions with a timeout, and shows the progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from demo.client import ApiError, Client, Json
from demo.view import View

POLL = 0.5
RUN_SECONDS, ROLLOUT_SECONDS = 600.0, 600.0
STAGES = ("etl", "train", "evaluate", "refit", "export", "verify")


class UnexpectedOutcome(Exception):
    """An act has another outcome than expected."""


@dataclass(frozen=True)
class Watcher:
    client: Client
    view: View
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Any] = time.sleep

    def run(self, id: str, wanted: str) -> Json:
        """Waits for the end of a run; raises UnexpectedOutcome if its state is not `wanted`."""
        printed = 0
        for run in self._each(lambda: self.client.run(id), RUN_SECONDS, f"run {id}"):
            for stage in run["stages"][printed:]:
                self.view.say(f"  {stage['stage']} done in {_length(stage):.0f} s{_figures(stage['stage'], run['metrics'])}", style="green")
            printed = len(run["stages"])
            if run["state"] not in ("pending", *STAGES):
                return _expected(run, wanted, f"run {id}")
            self.view.show(f"run {id}: {run['state']}")
        raise AssertionError("unreachable")

    def rollout(self, id: str, wanted: str) -> Json:
        """Waits for the end of a rollout; raises UnexpectedOutcome if its state is not `wanted`."""
        step = -1
        for rollout in self._each(lambda: self.client.rollout(id), ROLLOUT_SECONDS, f"rollout {id}"):
            if rollout["step"] != step:
                step = rollout["step"]
                self.view.say(f"  version {rollout['version']} answers {rollout['steps'][step]:.0%} of the users", style="green")
            if rollout["state"] not in ("pending", "loading", "shadow", "canary"):
                return _expected(rollout, wanted, f"rollout {id}")
            self.view.show(f"version {rollout['version']}: {rollout['state']}", **_evidence(rollout))
        raise AssertionError("unreachable")

    def until(self, activity: str, seconds: float, condition: Callable[[], bool]) -> None:
        for met in self._each(condition, seconds, activity):
            if met:
                return
            self.view.show(activity)

    def settle(self, activity: str, seconds: float) -> None:
        """Waits while users visit, because a hit rate needs answers."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.view.show(activity)
            self.sleep(POLL)

    def _each(self, ask: Callable[[], Any], seconds: float, subject: str) -> Any:
        deadline = self.clock() + seconds
        while True:
            try:
                yield ask()
            except ApiError as error:
                raise UnexpectedOutcome(f"{subject}: the platform did not answer: {error}") from error
            if self.clock() > deadline:
                raise UnexpectedOutcome(f"{subject}: not finished after {seconds:.0f} s")
            self.sleep(POLL)


def _expected(row: Json, wanted: str, subject: str) -> Json:
    if row["state"] != wanted:
        raise UnexpectedOutcome(f"{subject} ended as {row['state'].replace('_', ' ')}, not as {wanted.replace('_', ' ')}: {row['reason']}")
    return row


def _evidence(rollout: Json) -> dict[str, str]:
    report = next((report for report in rollout["reports"] if report["step"] == rollout["step"]), None)
    if report is None:
        return {}
    stable, candidate = report["stable"], report["candidate"]
    users = f"{candidate['users']} users of the candidate, {stable['users']} of the stable version"
    return {"observed": users, "hit rate": f"{candidate['mean']:.2f} against {stable['mean']:.2f}"}


def _figures(stage: str, metrics: Json) -> str:
    """Most important figures of a stage."""
    try:
        if stage == "etl":
            return f": {metrics['rows.train']:,.0f} rows to train on, {metrics['rows.holdout']:,.0f} held out"
        if stage == "refit":
            return f": {metrics['refit.rows']:,.0f} rows, including the holdout"
        if stage == "evaluate":
            others = [
                f"{name}'s {metrics[f'{name}.hr@10']:.3f}" for name in ("popularity", "baseline", "serving") if f"{name}.hr@10" in metrics
            ]
            return f": hr@10 {metrics['candidate.hr@10']:.3f}, {', '.join(others)}"
    except KeyError:
        return ""
    return ""


def _length(stage: Json) -> float:
    return (datetime.fromisoformat(stage["ended_at"]) - datetime.fromisoformat(stage["started_at"])).total_seconds()
