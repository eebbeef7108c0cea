"""Users who go on asking whatever happens: so many requests a second by the clock, and each failure is kept with what it was and when.

Half of the askers keep their connection, as services do; half make a new one for each request, as many users do.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from shared.testing.threads import Threads

ASKERS = 20


@dataclass
class Traffic:
    url: str
    headers: dict[str, str] = field(repr=False)
    rate: float
    asked: int = 0
    failed: list[str] = field(default_factory=list)
    fallbacks: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._threads = Threads(*(lambda kept=number % 2 == 0: self._ask(kept) for number in range(ASKERS)))  # type: ignore[misc]

    def __enter__(self) -> Traffic:
        self._threads.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.__exit__()

    @property
    def achieved(self) -> float:
        return self.asked / (time.monotonic() - self._began)

    def _ask(self, kept: bool) -> None:
        client = httpx.Client(base_url=self.url, headers=self.headers, timeout=30) if kept else None
        while True:
            number = next(self._numbers)
            if self._threads.over.wait(max(0.0, self._began + number / self.rate - time.monotonic())):
                break
            body = {"user": number % 60 + 1, "k": 5}
            sent = time.monotonic()
            try:
                if client:
                    answer = client.post("/v1/recommend/movies", json=body)
                else:
                    answer = httpx.post(f"{self.url}/v1/recommend/movies", json=body, headers=self.headers, timeout=30)
                told = None if answer.is_success else f"{answer.status_code} {answer.text[:200]}"
                fallback = str(answer.json()["fallback"]) if answer.is_success else ""
            except httpx.TransportError as error:
                told, fallback = f"{type(error).__name__}: {error}", ""
            now = time.monotonic()
            with self._lock:
                self.asked += 1
                self.slowest = max(self.slowest, now - sent)
                if told:
                    how = "kept" if kept else "new"
                    self.failed.append(
                        f"request {number} at {sent - self._began:.2f} s on a {how} connection, after {now - sent:.2f} s: {told}"
                    )
                elif fallback != "None":
                    self.fallbacks[fallback] += 1
        if client:
            client.close()

    def said(self) -> str:
        return (
            f"{self.asked} requests at {self.achieved:.1f}/s, {len(self.failed)} failed, without the model: {dict(self.fallbacks)}, "
            f"slowest {self.slowest:.2f} s"
        )
