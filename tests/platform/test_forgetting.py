"""A user with a random id is forgotten: afterwards no file of the platform has it, in bytes or decoded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from services.home import Home
from services.settings import Settings
from services.wiring import parts
from services.wiring.state import State
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import quick_spec, write_world

pytestmark = [pytest.mark.requirement("U-11"), pytest.mark.timeout(600)]

NUMBER = 7


def user_id(number: int, secret: str) -> str:
    return secret if number == NUMBER else f"user {number}"


def write_data(folder: Path, secret: str) -> None:
    write_world(folder)
    for name in ("ratings",):
        frame = pl.read_parquet(folder / f"{name}.parquet")
        texts = pl.col("userId").map_elements(lambda number: user_id(number, secret), pl.String)
        frame.with_columns(texts).write_parquet(folder / f"{name}.parquet")


def places_with(folder: Path, secret: str) -> list[str]:
    """Returns the files that have the text: in their bytes, or decoded if they are Parquet or NumPy files."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and any(secret in text for text in texts_of(path))
    )


def texts_of(path: Path) -> Iterator[str]:
    content = path.read_bytes()
    yield content.decode("latin-1")
    if content[:4] == b"PAR1":
        yield pl.read_parquet(path).write_ndjson()
    if content[:2] == b"PK":
        with np.load(BytesIO(content)) as arrays:
            yield " ".join(str(array.tolist()) for array in arrays.values())


def eyas(home: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "services.cli.main", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "EYAS_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Later:
    """The clock of some days later."""

    def __init__(self) -> None:
        self.days = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=self.days)


def collect_for_days(home: Path, days: float) -> None:
    """Collects garbage every twelve hours of the next days, on a stopped platform."""
    with ExitStack() as undo:
        settings = Settings.read({"home": home})
        state, clock = State(settings, Home(home), undo), Later()
        state.clock = clock  # type: ignore[assignment]
        collector = parts.collector(settings, state)
        while clock.days < days:
            clock.days += 0.5
            collector.sweep()


@pytest.fixture
def secret() -> str:
    return os.urandom(16).hex()


def test_no_file_has_a_forgotten_user_and_no_later_version_or_restored_backup_knows_it(tmp_path: Path, secret: str) -> None:
    home, data, backups = tmp_path / "home", tmp_path / "data", tmp_path / "backups"
    write_data(data, secret)
    document = quick_spec(data, serve={"batch": {"k": 5}})
    document["data"]["interactions"]["also"] = "events"
    with PlatformProcess(home, data, settings={"EYAS_COMPACT_EVERY": "1"}) as platform:
        first = promoted(platform, platform.post("/v1/recommenders", document)["run"])
        send_old_events(platform, secret)
        assert platform.post("/v1/recommend/movies", {"user": secret})["fallback"] is None
    with platform:  # the first look of a compactor is at its start
        until("the days are archived", lambda: archived(home, secret) and archived(home, "user 9"))
        eyas(home, "backup", str(backups))
        made = eyas(home, "backups", str(backups))["names"][0]

        response = platform.client.delete(f"/v1/users/{secret}")
        assert response.status_code == 200, response.text
        (forgotten,) = response.json()["recommenders"]
        assert (forgotten["recommender"], forgotten["interactions"], forgotten["impressions"]) == ("movies", 6, 1)
        assert forgotten["versions"] == [first["version"]]
        assert secret not in response.text
        assert places_with(home, secret) == [place for place in places_with(home, secret) if place.startswith(("artifacts/", "triton/"))]
        until("the archive lacks the user", lambda: not archived(home, secret))
        assert archived(home, "user 9")
        assert platform.get("/v1/audit", limit=1)["items"][0]["target"].startswith("/v1/users/")

        eyas(home, "backup", str(backups))
        second = promoted(platform, platform.post("/v1/recommenders/movies/runs", {"mode": "full"})["id"])
        until("the user is unknown", lambda: platform.post("/v1/recommend/movies", {"user": secret}, trial="true")["fallback"])
        files = platform.get(f"/v1/recommenders/movies/versions/{second['version']}")
        assert files["lineage"]["mode"] == "full"
    assert any(place.startswith("artifacts/") for place in places_with(home, secret)), "the search finds what the first version knows"
    collect_for_days(home, 30)
    assert places_with(home, secret) == []

    eyas(tmp_path / "restored", "restore", str(backups), "--backup", made)
    assert [place for place in places_with(tmp_path / "restored", secret) if not place.startswith("artifacts/")] == []


def promoted(platform: PlatformProcess, run: str) -> Any:
    made = platform.wait_for_run(run, "registered")
    if platform.wait_for_rollout(made["rollout"], "promoted", "canary")["state"] == "canary":
        platform.post(f"/v1/rollouts/{made['rollout']}:promote", {"reason": "no visitors"})
    platform.wait_for_rollout(made["rollout"], "promoted")
    until("the version answers", lambda: platform.model_answer("movies", made["version"], "user 1"))  # type: ignore[arg-type]
    return made


def send_old_events(platform: PlatformProcess, secret: str) -> None:
    """Sends events of three closed days, two of each user and day."""
    items = [item["item"] for item in platform.post("/v1/recommend/movies", {"user": secret}, trial="true")["items"]]
    now = datetime.now(UTC)
    events = [
        {"recommender": "movies", "user": user, "item": item, "value": 5, "at": (now - timedelta(days=days)).isoformat()}
        for days in (2, 3, 4)
        for user in (secret, "user 9")
        for item in items[:2]
    ]
    platform.post("/v1/events", {"events": events})


def archived(home: Path, text: str) -> bool:
    return bool(places_with(home / "artifacts/events", text)) if (home / "artifacts/events").exists() else False
