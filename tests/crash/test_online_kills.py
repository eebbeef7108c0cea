"""kill -9 of a whole platform under load, again and again: what was acknowledged is there once, and KPIs are what they are to be.

Gateway, monitor, event log, compaction and a real tritonserver are in the process that is killed, or die with it. Two kills unless
EYAS_TEST_KILLS says otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
from sqlalchemy import Engine, text

from services.eventlog.kpis import SqlKpis
from services.store.engine import open_engine, sqlite_url
from shared.contracts.events import Impression, Interaction
from shared.testing.event_oracle import Oracle
from tests.servers.platform_process import PlatformProcess, until
from tests.support.front_ends import NAME, FrontEnd, Remembered
from tests.support.platform_world import spec, write_world

log = logging.getLogger(__name__)

KILLS = int(os.environ.get("EYAS_TEST_KILLS", "2"))
FRONT_ENDS = 4
ATTRIBUTION = timedelta(seconds=2)
POSITIVE = {"click", "purchase"}
LONG_AGO, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


def counted(data: Path) -> dict[str, Any]:
    """The fastest version to make; what is asked of it here is to answer."""
    document = spec(data) | {"model": {"family": "popularity"}, "gates": [{"parity": 1e-6}]}
    document["rollout"]["analysis"]["attribution"] = f"{ATTRIBUTION.total_seconds():g}s"
    return document


def serve(platform: PlatformProcess, data: Path) -> None:
    run = platform.post("/v1/recommenders", counted(data))["run"]
    rollout = platform.wait_for_run(run, "registered")["rollout"]
    platform.wait_for_rollout(rollout, "promoted")


def of_three_days_ago(platform: PlatformProcess) -> dict[str, dict[str, Any]]:
    """Of a closed day, so that each life of the platform begins with compacting it, until one lives long enough."""
    at = datetime.now(UTC) - timedelta(days=3)
    events = [
        {"id": f"old-{n}", "recommender": NAME, "user": n % 50, "item": 1 + n % 60, "kind": "click", "at": at.isoformat()}
        for n in range(5000)
    ]
    for start in range(0, len(events), 1000):
        platform.post("/v1/events", {"events": events[start : start + 1000]})
    return {str(one["id"]): one for one in events}


@pytest.mark.timeout(3600)
@pytest.mark.requirement("G-13")
def test_nothing_acknowledged_is_lost_or_doubled_and_kpis_are_exact_after_kills_under_load(tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "home"
    write_world(data)
    chance, began = random.Random(7), time.monotonic()
    with PlatformProcess(home, data) as platform:
        serve(platform, data)
        old = of_three_days_ago(platform)
        token = (home / "token").read_text()
        front_ends = [FrontEnd(n, lambda: str(platform.client.base_url).rstrip("/"), token, pace=0.005) for n in range(FRONT_ENDS)]
        for one in front_ends:
            one.start()
        down = 0.0
        orphans: list[psutil.Process] = []
        for number in range(KILLS):
            enough = sum(one.acknowledged for one in front_ends) + chance.randint(10, 300)
            until(f"load before kill {number + 1}", lambda least=enough: _busy(front_ends, least), 120)  # type: ignore[misc]
            at = time.monotonic()
            orphans += platform.strike()
            platform.start()
            down += time.monotonic() - at
        enough = sum(one.acknowledged for one in front_ends) + 100
        until("load after the last kill", lambda: _busy(front_ends, enough), 120)
        told = Remembered(done=dict(old))
        for one in front_ends:
            one.end()
        for one in front_ends:
            one.join(180)
            assert one.fault is None and not one.is_alive(), one.fault
            told.add(one.remembered)
        _, alive = psutil.wait_procs(orphans, timeout=30)
        assert not alive, f"outlived the platform and its successors: {alive}"
        engine = open_engine(sqlite_url(home / "eyas.db"))
        answers = _shown(engine)
        _check_events(engine, told)
        lost = [name for name, given in told.answers.items() if not _as_given(answers.get(name), given)]
        assert not lost, (
            f"{len(lost)} of {len(told.answers)} answers; the log was away {platform.log.count('event log: unavailable')} times"
        )
        front = {name: one for name, one in answers.items() if name.startswith(f"{NAME}/")}
        assert front.keys() == {f"{NAME}/{name}" for name in told.shown}
        assert all(_as_given(answers[f"{NAME}/{name}"], one) for name, one in told.shown.items())
        _check_kpis(engine, platform, Oracle(answers.values(), _positives(told), ATTRIBUTION))
        engine.dispose()
        until("the old day is written", lambda: _written(home) == Counter(old.keys()))
        log.info(
            "%d kills in %.0f s (down %.0f s): %d answers, %d impressions, %d events acknowledged, %d tries in vain, %d came again, "
            "%d more answers written than acknowledged; the log was away %d times",
            *(KILLS, time.monotonic() - began, down, len(told.answers), len(told.shown), len(told.done) - len(old)),
            *(told.failures, told.repeats, len(answers) - len(front) - len(told.answers), platform.log.count("event log: unavailable")),
        )


def _busy(front_ends: list[FrontEnd], least: int) -> bool:
    for one in front_ends:
        assert one.fault is None, one.fault
    return sum(one.acknowledged for one in front_ends) >= least


def _shown(engine: Engine) -> dict[str, Impression]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM impressions")).mappings().all()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {
        row["request_id"]: Impression(
            **{name: row[name] for name in ("request_id", "recommender", "user", "version", "variant", "generation", "step", "fallback")},
            items=tuple(json.loads(row["items"])),
            at=epoch + timedelta(microseconds=row["at"]),
        )
        for row in rows
    }


def _as_given(found: Impression | None, given: Mapping[str, Any]) -> bool:
    items = [one["item"] if isinstance(one, dict) else one for one in given["items"]]
    return found is not None and (found.user, list(found.items), found.version) == (given["user"], items, given["version"])


def _check_events(engine: Engine, told: Remembered) -> None:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT event, user, item, kind, value, request_id FROM interactions")).all()
    assert Counter(row.event for row in rows) == Counter(told.done.keys())
    found = {row.event: (row.user, row.item, row.kind, row.value, row.request_id) for row in rows}
    assert found == {
        id: (one["user"], one["item"], one["kind"], one.get("value"), _name(one.get("request_id"), told)) for id, one in told.done.items()
    }


def _name(request_id: str | None, told: Remembered) -> str | None:
    """What a front end calls its own answers is kept under its recommender's name."""
    return f"{NAME}/{request_id}" if request_id is not None and request_id not in told.answers else request_id


def _positives(told: Remembered) -> list[Interaction]:
    return [
        Interaction.model_validate(one | {"request_id": _name(one.get("request_id"), told)})
        for one in told.done.values()
        if one["kind"] in POSITIVE or (one["kind"] == "rating" and one["value"] >= 4)
    ]


def _check_kpis(engine: Engine, platform: PlatformProcess, oracle: Oracle) -> None:
    """By the log for several windows, and as people see it once the last answer's window has closed."""
    kpis = SqlKpis(engine)
    for version in (0, 1):
        for window in (timedelta(milliseconds=100), ATTRIBUTION, timedelta(hours=1)):
            expected = oracle.earned(NAME, version, LONG_AGO, LATER, window, {"purchase"})
            assert kpis.earned(NAME, version, LONG_AGO, LATER, window, {"purchase"}) == expected
    expected = oracle.earned(NAME, 1, LONG_AGO, LATER, ATTRIBUTION, {"purchase"})
    assert expected.hits > 50 and expected.conversions > 10 and expected.revenue and len(expected.clicked) == 5

    def closed() -> Any:
        [found] = platform.get(f"/v1/recommenders/{NAME}/kpis", window="5h")["versions"]
        return found if found["answers"] == expected.answers else None

    found = until("the last answer's window is closed", closed)
    assert (found["hits"], found["conversions"]) == (expected.hits, expected.conversions)
    assert found["revenue_per_answer"] == pytest.approx(expected.revenue_per_answer, rel=1e-12)
    log.info("hits %d, conversions %d of %d answers, as counted", expected.hits, expected.conversions, expected.answers)


def _written(home: Path) -> Counter[str]:
    paths = list((home / f"artifacts/events/{NAME}/interactions").rglob("*.parquet"))
    return Counter(id for path in paths for id in pl.read_parquet(path)["id"].to_list())
