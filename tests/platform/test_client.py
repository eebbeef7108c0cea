"""eyas_client on a real platform: every operation, by both clients, and requests whose answers get lost."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from eyas_client import AsyncClient, Client, Conflict, Denied, Invalid, NotFound, Unavailable, Unsuccessful, WaitTimeout

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import quick_spec
from tests.unit.client.test_openapi import call, operations

Do = Callable[..., Awaitable[Any]]


def film_spec(platform: PlatformProcess, name: str, **changes: Any) -> dict[str, Any]:
    serve = {"order": {"explore": {"rate": 0}}, "retrieve": {"candidates": 20}}
    document = quick_spec(platform.data, name=name, serve=serve, **changes)
    document["model"] = {"family": "mf", "params": {"width": 8}}
    return document


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_every_operation_on_a_real_platform(platform: PlatformProcess, kind: str) -> None:
    called: set[str] = set()
    client: Client | AsyncClient = (Client if kind == "sync" else AsyncClient)(home=platform.home)

    async def do(operation: str, *args: Any, **kwargs: Any) -> Any:
        called.add(operation)
        answer = call(client, operation, *args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    async def story() -> None:
        try:
            await life_of_a_recommender(do, film_spec(platform, f"films-{kind}"))
        finally:
            if isinstance(client, AsyncClient):
                await client.close()
            else:
                client.close()

    asyncio.run(story())
    assert called == operations()


async def life_of_a_recommender(do: Do, spec: dict[str, Any]) -> None:
    name = spec["name"]
    assert (await do("recommenders.validate", spec)).spec["name"] == name
    assert (await do("recommenders.plan", spec)).stages[0].does == "run"
    applied = await do("recommenders.apply", spec, run=False)
    assert (applied.name, applied.generation, applied.run) == (name, 1, None)
    assert (await do("recommenders.get", name)).serving is None
    assert name in [recommender.name for recommender in await do("recommenders.list", limit=None)]
    await catalogue(do, name)
    first = await first_version(do, name)
    await answers(do, name)
    await rollouts(do, name, first)
    assert [route.stable for route in await do("recommenders.history", name)][:2] == [1, 2]
    await do("recommenders.delete", name)
    with pytest.raises(NotFound, match=r"^not-found: "):
        await do("recommenders.get", name)


async def catalogue(do: Do, name: str) -> None:
    rows = ({"item": item, "attributes": {"age": item % 18}, "available": item != 7} for item in range(1, 13))
    written = await do("items.put", name, rows)
    assert (written.accepted, written.changed) == (12, 12)
    assert [(item.item, item.available) for item in await do("items.list", name, limit=7)][-2:] == [(6, True), (7, False)]
    assert (await do("items.get", name, 3)).attributes == {"age": 3}
    assert (await do("items.delete", name, [7, 12, 999])).deleted == 2
    assert len(await do("items.list", name)) == 10


async def first_version(do: Do, name: str) -> Any:
    states: list[str] = []
    started = await do("runs.start", name, reason="a test")
    with pytest.raises(WaitTimeout):
        await do("runs.wait", started.id, 0)
    run = await do("runs.wait", started.id, 180, every=0.2, progress=lambda run: states.append(run.state), check=True)
    assert (run.id, run.state, run.version, states[-1]) == (started.id, "registered", 1, "registered")
    assert {"train", "verify"} <= {stage.stage for stage in run.stages}
    extra = await do("runs.start", name, fresh=True)
    assert (await do("runs.cancel", extra.id, "enough")).id == extra.id
    with pytest.raises(Unsuccessful, match=f"^run {extra.id} is cancelled"):
        await do("runs.wait", extra.id, 60, every=0.2, check=True)
    assert [row.id for row in await do("runs.list", name)] == [extra.id, started.id]
    assert (await do("runs.get", started.id)).stages == run.stages
    assert [version.aliases for version in await do("versions.list", name)] in ([[]], [["serving"]])
    assert (await do("versions.get", name, 1)).run == started.id
    assert (await do("versions.card", name, 1))["recommender"] == name
    rollout = await do("rollouts.wait", run.rollout, 60, every=0.2, check=True)
    assert (rollout.state, [row.id for row in await do("rollouts.list", name)]) == ("promoted", [rollout.id])
    return run


async def answers(do: Do, name: str) -> None:
    answer = await do("recommend", name, 5, k=3, explain=True)
    while answer.fallback is not None or answer.explain["retrieved"] == 20:  # until the gateway has the version, then its new items
        await asyncio.sleep(0.1)
        answer = await do("recommend", name, 5, k=3, explain=True)
    items = [item.item for item in answer.items]
    assert (answer.version, answer.variant, len(items)) == (1, "stable", 3)
    assert answer.explain["retrieved"] == 20 + 5, "new items of the catalogue come beside the retrieved ones"
    trial = await do("recommend", name, 5, slots={"hero": 1, "more": 2}, trial=True)
    assert [item.item for slot in ("hero", "more") for item in trial.slots[slot]] == items
    scores = await do("score", name, 5, items[::-1])
    assert [item.item for item in scores.items] == items[::-1]
    assert scores.items[-1].score == pytest.approx(answer.items[0].score)
    assert len((await do("similar", name, items[0], k=4)).items) == 4
    clicks = ({"user": 5, "item": item, "value": 5, "request_id": answer.request_id} for item in items)
    accepted = await do("events", name, clicks)
    assert (accepted.accepted, accepted.duplicates, accepted.conflicts, accepted.hits) == (3, 0, 0, 1)
    for _ in range(100):
        kpis = await do("kpis", name, "10m")
        if kpis.versions and kpis.versions[0].hits:
            break
        await asyncio.sleep(0.1)
    assert (kpis.versions[0].version, kpis.versions[0].hits) == (1, 1)
    assert (await do("drift", name)).version in (1, None)


async def rollouts(do: Do, name: str, first: Any) -> None:
    """A second version: paused, resumed, taken a step on, aborted, started again, promoted, rolled back."""
    run = await do("runs.wait", (await do("runs.start", name, fresh=True)).id, 180, every=0.2, check=True)
    assert run.version == 2
    await state(do, run.rollout, "canary")
    await do("rollouts.pause", run.rollout, "a look")
    await state(do, run.rollout, "paused")
    await do("rollouts.resume", run.rollout)
    await state(do, run.rollout, "canary")
    await do("rollouts.skip", run.rollout)
    while (await do("rollouts.get", run.rollout)).step != 1:
        await asyncio.sleep(0.1)
    await do("rollouts.abort", run.rollout, "enough")
    with pytest.raises(Unsuccessful, match="is aborted"):
        await do("rollouts.wait", run.rollout, 60, every=0.2, check=True)
    again = await do("rollouts.start", name, 2, "again")
    await state(do, again.id, "canary")
    await do("rollouts.promote", again.id)
    assert (await do("rollouts.wait", again.id, 60, every=0.2)).state == "promoted"
    assert (await do("recommenders.rollback", name, reason="a test")).stable == first.version


async def state(do: Do, rollout: str, wanted: str) -> None:
    for _ in range(300):
        if (await do("rollouts.get", rollout)).state == wanted:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"rollout {rollout} is not {wanted}")


class LostAnswers(httpx.HTTPTransport):
    """Delivers each request, and loses the answer of every other one."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        self.count += 1
        if self.count % 2:
            answer.read()
            raise httpx.ReadError("the answer is lost", request=request)
        return answer


@pytest.fixture
def lossy(platform: PlatformProcess) -> Iterator[tuple[Client, LostAnswers]]:
    transport = LostAnswers()
    with Client(home=platform.home, transport=transport) as client:
        yield client, transport


def test_a_retry_after_a_lost_answer_counts_nothing_twice(platform: PlatformProcess, lossy: tuple[Client, LostAnswers]) -> None:
    client, transport = lossy
    name = client.recommenders.apply(film_spec(platform, "lossy"), run=False).name
    accepted = client.events(name, ({"user": 1, "item": 1 + number % 50, "value": 5} for number in range(1200)))
    assert (accepted.accepted, accepted.duplicates, accepted.conflicts) == (1200, 1200, 0)
    assert count_events(platform, name) == 1200
    started = client.runs.start(name)
    assert [run.id for run in client.runs.list(name)] == [started.id]
    client.runs.cancel(started.id)
    assert client.runs.wait(started.id, 60, every=0.2).state == "cancelled"
    assert transport.count >= 12


def count_events(platform: PlatformProcess, name: str) -> int:
    page = platform.get(f"/v1/events/{name}", limit=200)
    count = len(page["items"])
    while page.get("next"):
        page = platform.get(f"/v1/events/{name}", limit=200, cursor=page["next"])
        count += len(page["items"])
    return count


def test_errors_of_a_real_platform(platform: PlatformProcess) -> None:
    with Client(home=platform.home) as client:
        with pytest.raises(NotFound, match=r"^not-found: no recommender is called 'nobody'$") as fault:
            client.recommenders.get("nobody")
        assert (fault.value.status, fault.value.type) == (404, "https://eyas.dev/problems/not-found")
        with pytest.raises(Invalid, match="unknown field 'modle'") as wrong:
            client.recommenders.validate(film_spec(platform, "films") | {"modle": {}})
        assert wrong.value.errors
        with pytest.raises(Invalid):
            client.items.get("movies", "../../v1/tokens")
        with pytest.raises(Conflict):
            client.rollouts.pause(client.rollouts.list("movies")[0].id)
        url = client.url
    with pytest.raises(Denied, match=r"unauthenticated: .*; set a valid token"), Client(url, "wrong") as stranger:
        stranger.drift("movies")
    with pytest.raises(Unavailable, match="nothing answers"), Client("http://127.0.0.1:9", "a-token", retries=1) as nobody:
        nobody.drift("movies")


@contextmanager
def all_logs(level: int) -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        yield
    finally:
        root.setLevel(before)


def test_no_log_of_any_library_has_the_token(platform: PlatformProcess, caplog: pytest.LogCaptureFixture) -> None:
    token = (platform.home / "token").read_text().strip()
    with all_logs(logging.DEBUG), caplog.at_level(logging.DEBUG, "httpcore"), Client(home=platform.home) as client:
        assert client.recommend("movies", 1, trial=True).version == 1
        asyncio.run(read_async(platform.home))
    assert "send_request_headers" in caplog.text
    assert token not in caplog.text
    assert token not in platform.log


async def read_async(home: Path) -> None:
    async with AsyncClient(home=home) as client:
        assert await asyncio.gather(client.drift("movies"), client.kpis("movies"))
