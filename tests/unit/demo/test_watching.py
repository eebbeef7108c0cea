"""Waiting for the platform: progress is told once, another end than told is an error in one line, and nothing waits for ever."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from demo.client import ApiError
from demo.view import View
from demo.watching import UnexpectedOutcome, Watcher

ETL = {"stage": "etl", "attempt": "r1-etl-1", "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:02Z"}
METRICS = {"rows.train": 1000.0, "rows.holdout": 200.0}


def run(state: str, stages: list[dict[str, str]], reason: str = "") -> dict[str, Any]:
    return {"id": "r1", "state": state, "stages": stages, "metrics": METRICS, "reason": reason}


class Scripted:
    """Stands for the client: gives one answer after the other, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def run(self, id: str) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    rollout = run


def watcher(client: Scripted) -> tuple[Watcher, io.StringIO]:
    out = io.StringIO()
    ticks: Iterator[int] = iter(range(10_000))
    view = View(Console(file=out, width=120), lambda: "no users yet")
    return Watcher(client, view, clock=lambda: float(next(ticks)), sleep=lambda _: None), out  # type: ignore[arg-type]


def test_a_run_is_followed_to_its_end_and_each_stage_is_told_once() -> None:
    watch, out = watcher(Scripted(run("etl", []), run("train", [ETL]), run("train", [ETL]), run("registered", [ETL])))
    assert watch.run("r1", "registered")["state"] == "registered"
    assert out.getvalue().count("etl done in 2 s: 1,000 rows to train on, 200 held out") == 1


def test_another_end_than_told_says_which_and_why() -> None:
    watch, _ = watcher(Scripted(run("failed", [], "etl: the file is empty")))
    with pytest.raises(UnexpectedOutcome, match="run r1 ended as failed, not as registered: etl: the file is empty"):
        watch.run("r1", "registered")


def test_a_run_without_an_end_is_given_up() -> None:
    watch, _ = watcher(Scripted(run("train", [])))
    with pytest.raises(UnexpectedOutcome, match="run r1: not finished after"):
        watch.run("r1", "registered")


def test_a_platform_that_stopped_answering_ends_the_act() -> None:
    watch, _ = watcher(Scripted(ApiError("GET /v1/runs/r1: ConnectError")))
    with pytest.raises(UnexpectedOutcome, match="did not answer: GET /v1/runs/r1: ConnectError"):
        watch.run("r1", "registered")


def test_a_rollout_tells_its_steps_and_its_evidence() -> None:
    side = {"users": 50, "answers": 50, "hits": 30, "mean": 0.6}
    report = {"step": 0, "weight": 0.1, "stable": side, "candidate": side, "verdict": "inconclusive", "reason": ""}
    canary = {"id": "o1", "version": 2, "state": "canary", "step": 0, "steps": [0.1, 0.5], "reports": [report], "reason": ""}
    watch, out = watcher(Scripted({**canary, "step": -1, "state": "loading", "reports": []}, canary, {**canary, "state": "promoted"}))
    assert watch.rollout("o1", "promoted")["state"] == "promoted"
    assert out.getvalue().count("version 2 answers 10% of the users") == 1
    assert "hit rate 0.60 against 0.60" in out.getvalue()


def test_a_condition_that_never_comes_is_given_up() -> None:
    watch, _ = watcher(Scripted(None))
    with pytest.raises(UnexpectedOutcome, match="waiting for rain: not finished after 5 s"):
        watch.until("waiting for rain", 5, lambda: False)
