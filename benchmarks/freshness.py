"""Milliseconds from an acknowledged event to an answer that reflects it, at 100 events a second, with two gateways.

    python -m benchmarks.freshness [--probes 200] [--rate 100]

The platform runs in processes as in a cluster: a control plane, a Triton, two gateways on one database. A new user likes an item through
the first gateway; from the acknowledgement on, the user is asked for at one of the gateways until an answer is the version's own, which
takes a like that the version reads. Besides the time, the number of answers until then counts: 1 means that no answer was stale.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import httpx
import numpy as np

from benchmarks.harness import Outcome, Row, benchmark, databases, say, scratch
from tests.servers.nats_server import NatsServer
from tests.servers.platform_parts import Part, Parts
from tests.servers.platform_process import checked, until
from tests.support.platform_world import quick_spec

CASES = ("SQLite", "PostgreSQL", "PostgreSQL and NATS")
_STRANGERS = 1_000_000
_SENDERS = 4


class Load:
    """Events at a steady rate, one a request, on a few threads."""

    def __init__(self, parts: Parts, items: Sequence[int], rate: float) -> None:
        self._items, self._rate = items, rate / _SENDERS
        self._ending = threading.Event()
        self._clients = [parts.client(parts.gateway) for _ in range(_SENDERS)]
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(_SENDERS)]
        self._sent = [0] * _SENDERS
        self._began = 0.0

    def __enter__(self) -> Load:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        for thread, client in zip(self._threads, self._clients, strict=True):
            thread.join()
            client.close()

    @property
    def reached(self) -> float:
        """Acknowledged events a second."""
        return sum(self._sent) / (time.monotonic() - self._began)

    def _send(self, number: int) -> None:
        random = np.random.default_rng([7, number])
        while not self._ending.wait(max(0.0, self._began + self._sent[number] / self._rate - time.monotonic())):
            like(self._clients[number], int(random.integers(1, 400)), int(random.choice(self._items)))
            self._sent[number] += 1


def like(client: httpx.Client, user: int, item: int) -> None:
    checked(client.post("/v1/events", json={"events": [{"recommender": "movies", "user": user, "item": item, "value": 5}]}))


def probe(sender: httpx.Client, asked: httpx.Client, user: int, item: int) -> tuple[float, int]:
    """Returns the seconds from the acknowledgement to the end of the first fresh answer, and the number of answers."""
    like(sender, user, item)
    acknowledged = time.perf_counter()
    for count in range(1, 10_000):
        answer = checked(asked.post("/v1/recommend/movies", json={"user": user, "k": 5}))
        if answer["fallback"] is None:
            return time.perf_counter() - acknowledged, count
    raise RuntimeError(f"user {user}: no answer reflects the event")


def measured(parts: Parts, second: Part, probes: int, rate: float) -> Iterator[tuple[str, str, str, list[float]]]:
    with ExitStack() as undo:
        control, first, other = (undo.enter_context(parts.client(part)) for part in (parts.control, parts.gateway, second))
        until("the control plane is ready", lambda: control.get("/readyz").is_success)
        checked(control.post("/v1/recommenders", json=quick_spec(parts.data)))
        until("the model answers", lambda: own_answer(first) and own_answer(other), 300)
        items = [item["item"] for item in checked(first.post("/v1/recommend/movies", json={"user": 3, "k": 50}))["items"]]
        load = undo.enter_context(Load(parts, items, rate))
        asked_at: dict[str, httpx.Client] = {"the gateway that took the event": first, "the other gateway": other}
        times: dict[str, list[tuple[float, int]]] = {name: [] for name in asked_at}
        user = _STRANGERS
        for number in range(probes):
            for name, asked in asked_at.items():
                user += 1
                times[name].append(probe(first, asked, user, items[number % len(items)]))
        for name, values in times.items():
            milliseconds = [1e3 * seconds for seconds, _ in values]
            yield name, "event to answer, p50", "ms", [statistics.median(milliseconds)]
            yield name, "event to answer, p99", "ms", [float(np.quantile(milliseconds, 0.99))]
            yield name, "fresh first answers", "%", [100 * sum(count == 1 for _, count in values) / len(values)]
        yield "both gateways", "events", "1/s", [load.reached]


def own_answer(client: httpx.Client) -> bool:
    answer = client.post("/v1/recommend/movies", json={"user": 3, "k": 5})
    return answer.is_success and answer.json()["fallback"] is None


@benchmark("freshness")
def freshness(
    probes: Annotated[int, "events whose answers are watched, at each gateway"] = 200,
    rate: Annotated[float, "events per second beside them"] = 100.0,
    cases: Annotated[Sequence[str], "stores of events"] = CASES,
) -> Iterator[Outcome]:
    for case in cases:
        say(case)
        with databases(durable=True) as new_database, scratch() as folder, ExitStack() as undo:
            more: dict[str, Any] = {}
            if "NATS" in case:
                server = NatsServer(folder / "nats")
                server.start()
                undo.callback(server.kill)
                more["EYAS_EVENTS"] = server.url
            parts = Parts(folder / "parts", new_database("postgresql") if "PostgreSQL" in case else None, **more)
            second = Part("gateway-2", parts.gateway.command[2:], folder, **_own(parts.gateway), EYAS_REPLICA="gateway-2")
            parts.parts = (second, *parts.parts)
            for part in reversed(parts.parts):
                undo.callback(part.stop)
            for contender, metric, unit, values in measured(parts, second, probes, rate):
                yield Row(case, contender, metric, unit, values)


def _own(part: Part) -> dict[str, str]:
    return {name: value for name, value in part.environment.items() if name.startswith("EYAS_") and name != "EYAS_REPLICA"}


if __name__ == "__main__":
    freshness()
