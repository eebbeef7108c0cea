"""A platform is backed up while it answers, lost, and restored in an empty place: it answers, counts and remembers as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from services.store import dumps
from shared.artifacts.backups import BackupStore
from tests.platform.conftest import Copy
from tests.servers.platform_process import PlatformProcess, until
from tests.servers.postgres_server import Server
from tests.support.platform_world import quick_spec, write_world
from tests.support.request_load import Load, is_answered

pytestmark = [pytest.mark.requirement("U-11"), pytest.mark.timeout(600)]


def eyas(environment: Mapping[str, str], *words: str) -> Any:
    command = [sys.executable, "-m", "services.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def picture(platform: PlatformProcess) -> dict[str, Any]:
    """What a client sees, without times of this moment."""
    answers = [platform.post("/v1/recommend/movies", {"user": user, "k": 10}, trial="true") for user in range(1, 60)]
    kpis = platform.get("/v1/recommenders/movies/kpis", window="7d")
    return {
        "answers": [(answer["version"], answer["fallback"], answer["items"]) for answer in answers],
        "kpis": kpis["versions"],
        "history": platform.get("/v1/recommenders/movies/history"),
        "versions": platform.get("/v1/recommenders/movies/versions"),
        "runs": platform.get("/v1/recommenders/movies/runs"),
        "audit": platform.get("/v1/audit", limit=50)["items"],
    }


def events(platform: PlatformProcess) -> set[str]:
    exported: set[str] = set()
    page = platform.get("/v1/events/movies", limit=200)
    exported |= {event["id"] for event in page["items"]}
    while page.get("next"):
        page = platform.get("/v1/events/movies", limit=200, cursor=page["next"])
        exported |= {event["id"] for event in page["items"]}
    return exported


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the settings of a new installation."""
    if request.param == "sqlite":
        return dict
    server: Server = request.getfixturevalue("postgres")
    monkeypatch.setenv("PATH", f"{server.tools}:{os.environ['PATH']}")
    return lambda: {"EYAS_DATABASE_URL": server.new_database(migrated=False)}


def test_a_platform_that_was_backed_up_under_load_comes_back(place: Any, tmp_path: Path) -> None:
    write_world(tmp_path / "data")
    settings = place()
    backups, home = str(tmp_path / "backups"), tmp_path / "first" / "home"
    with PlatformProcess(home, tmp_path / "data", settings=settings) as platform:
        document = quick_spec(tmp_path / "data", serve={"order": {"explore": {"rate": 0}}})
        run = platform.wait_for_run(platform.post("/v1/recommenders", document)["run"], "registered")
        platform.wait_for_rollout(run["rollout"], "promoted")
        until("the model answers", platform.model_answer)
        with Load(platform) as load:
            until("events are stored", lambda: len(load.acknowledged) > 50)
            loaded = eyas(settings, "backup", backups, "--home", str(home), "--json")
            count = len(load.acknowledged)
            until("more events are stored", lambda: len(load.acknowledged) > count + 50)
        assert load.failures == []
        time.sleep(2)  # the newest impressions and attributions are stored
        quiet = eyas(settings, "backup", backups, "--home", str(home), "--json")
        assert quiet["copied_bytes"] == quiet["database"]["bytes"], "no artifact is copied again"
        before = picture(platform)
        sent = set(load.acknowledged)
        platform.kill()

    for name, folder in ((quiet["name"], "second"), (loaded["name"], "third")):
        new_settings, new_home = place(), tmp_path / folder / "home"
        eyas(new_settings, "restore", backups, "--backup", name, "--home", str(new_home), "--json")
        with PlatformProcess(new_home, tmp_path / "data", settings=new_settings) as restored:
            until("the model answers", partial(is_answered, restored))
            if name == quiet["name"]:
                assert picture(restored) == before
                assert events(restored) == sent
            else:
                at = datetime.fromisoformat(loaded["at"])
                assert {event for event, time in load.acknowledged.items() if time < at} <= events(restored) < sent
                assert picture(restored)["answers"] == before["answers"]


def test_a_lost_part_comes_back(copy_of_trained: Copy, tmp_path: Path) -> None:
    """The artifacts, and Triton's files, each while all else is there."""
    backups = str(tmp_path / "backups")
    platform = copy_of_trained(tmp_path)
    with platform:
        until("the model answers", platform.model_answer)
        before = picture(platform)["answers"]
    eyas({}, "backup", backups, "--home", str(platform.home), "--json")
    for lost, repair in (("artifacts", ("restore", backups, "--artifacts-only")), ("triton", ())):
        (platform.home / lost).rename(tmp_path / f"lost-{lost}")
        if repair:
            eyas({}, *repair, "--home", str(platform.home), "--json")
        platform.start()
        until("the model answers", platform.model_answer)
        assert picture(platform)["answers"] == before
        assert platform.stop() == 0
    assert BackupStore(backups).names()


def test_no_secret_of_the_url_is_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat "$PGSERVICEFILE" > {tmp_path}/service\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    url = make_url("postgresql://eyas:hunter2@db:5433/films?sslmode=require&sslpassword=hunter3")
    dumps._run(url, "pg_dump", "--file=x")
    assert "hunter" not in (tmp_path / "arguments").read_text()
    assert (tmp_path / "service").read_text().splitlines() == [
        *("[eyas]", "connect_timeout=10", "host=db", "port=5433", "user=eyas", "password=hunter2", "dbname=films"),
        *("sslmode=require", "sslpassword=hunter3"),
    ]
