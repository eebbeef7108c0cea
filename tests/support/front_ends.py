"""Front ends under load: they ask, show, click and send again what nobody acknowledged; and remember what was acknowledged."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

NAME, USERS, K = "movies", 400, 5
_PATIENCE = 120.0
_AGAIN = frozenset({429, 502, 503})
_NDJSON = {"Content-Type": "application/x-ndjson"}


@dataclass
class Remembered:
    """What front ends were told to be taken in, or given."""

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: int = 0
    repeats: int = 0

    def add(self, other: Remembered) -> None:
        self.answers |= other.answers
        self.shown |= other.shown
        self.done |= other.done
        self.failures += other.failures
        self.repeats += other.repeats


class FrontEnd(threading.Thread):
    """Where the platform is may change; a batch is sent with the same ids until it is acknowledged, some of them once more."""

    def __init__(self, number: int, where: Callable[[], str], token: str, pace: float = 0.0) -> None:
        super().__init__(name=f"front-end-{number}", daemon=True)
        self.remembered = Remembered()
        self.fault: Exception | None = None
        self._number = number
        self._where = where
        self._pace = pace
        self._client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=20)
        self._random = random.Random(number)
        self._ending = threading.Event()
        self._count = 0
        self._waiting: list[tuple[float, dict[str, Any]]] = []

    def end(self) -> None:
        self._ending.set()

    @property
    def acknowledged(self) -> int:
        return len(self.remembered.answers) + len(self.remembered.shown) + len(self.remembered.done)

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._visit()
                due = [event for at, event in self._waiting if at <= time.monotonic()]
                if len(due) >= self._random.randint(1, 8):
                    self._waiting = [one for one in self._waiting if one[1] not in due]
                    self._deliver(due)
                self._ending.wait(self._pace)
            self._deliver([event for _, event in self._waiting])
        except Exception as error:
            self.fault = error
        finally:
            self._client.close()

    def _visit(self) -> None:
        """One user sees one answer: mostly the gateway's, some of the front end's own."""
        user = self._random.randint(1, USERS)
        if self._random.random() < 0.1:
            name, items = self._id("p"), self._random.sample(range(1, 61), K)
            self._wait({"kind": "impression", "request_id": name, "user": user, "items": items, "version": 1})
        else:
            answer = self._ask(user)
            if answer is None:
                return
            name, items = answer["request_id"], [one["item"] for one in answer["items"]]
        for item in items:
            if self._random.random() < 0.3:
                self._react(user, item, name)

    def _react(self, user: int, item: int, name: str) -> None:
        kind = self._random.choice(["click", "click", "purchase", "rating", "view"])
        event = {"id": self._id("e"), "kind": kind, "user": user, "item": item}
        if kind == "purchase":
            event["revenue"] = round(self._random.uniform(-5, 100), 2)
        if kind == "rating":
            event["value"] = self._random.randint(1, 5)
        naming = self._random.random()
        if naming < 0.7:
            event["request_id"] = name if naming > 0.05 or not self.remembered.answers else self._random.choice([*self.remembered.answers])
        self._wait(event)

    def _ask(self, user: int) -> dict[str, Any] | None:
        try:
            response = self._client.post(f"{self._where()}/v1/recommend/{NAME}", json={"user": user, "k": K})
        except httpx.TransportError:
            response = None
        if response is None or response.status_code in _AGAIN:
            self.remembered.failures += 1
            self._ending.wait(0.02)
            return None
        answer: dict[str, Any] = response.raise_for_status().json()
        self.remembered.answers[answer["request_id"]] = answer | {"user": user}
        return answer

    def _wait(self, event: dict[str, Any]) -> None:
        """Sent at once, or late; its time is when it happened, and some clocks are behind."""
        behind = self._random.choice([0.0, 0.0, 0.0, 0.3, 3.0])
        at = datetime.now(UTC) - timedelta(seconds=behind)
        late = self._random.choice([0.0, 0.0, 0.0, 0.5, 4.0])
        self._waiting.append((time.monotonic() + late, {"recommender": NAME, "at": at.isoformat()} | event))

    def _deliver(self, events: list[dict[str, Any]]) -> None:
        self._random.shuffle(events)
        self._send(events)
        for event in events:
            kept = self.remembered.shown if event["kind"] == "impression" else self.remembered.done
            kept[event["request_id"] if event["kind"] == "impression" else event["id"]] = event
        if self._random.random() < 0.2:
            self._send(events)

    def _send(self, events: list[dict[str, Any]]) -> None:
        if not events:
            return
        end = time.monotonic() + _PATIENCE
        lines = self._random.random() < 0.5
        body = "\n".join(map(json.dumps, events)) if lines else json.dumps({"events": events})
        headers = _NDJSON if lines else {"Content-Type": "application/json"}
        while True:
            try:
                response = self._client.post(f"{self._where()}/v1/events", content=body, headers=headers)
            except httpx.TransportError:
                response = None
            if response is not None and response.status_code not in _AGAIN:
                taken = response.raise_for_status().json()
                assert (taken["accepted"], taken["refused"], taken["conflicts"]) == (len(events), 0, 0), taken
                self.remembered.repeats += taken["duplicates"]
                return
            self.remembered.failures += 1
            assert time.monotonic() < end, f"not acknowledged within {_PATIENCE:g} s"
            time.sleep(0.02)

    def _id(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._number}-{self._count}"
