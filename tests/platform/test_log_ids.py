"""The lines of a run, a rollout and a request are found by their ids, as text and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.platform.conftest import Copy
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import quick_spec

STAGES = ("etl", "train", "evaluate", "refit", "export", "verify")
LINE = re.compile(r"\S+ \S+ (?:DEBUG|INFO|WARNING|ERROR) +[a-z._]+: ([a-z%].*?: .*)")
Fields = dict[str, Any]


def of_text(line: str) -> Fields:
    """Returns the pairs of a line, whose values are taken up to the first blank."""
    match = LINE.fullmatch(line)
    assert match, f"not a log line: {line}"
    return {"message": match[1], **dict(re.findall(r" ([a-z_]+)=(\S+)", match[1]))}


def of_json(line: str) -> Fields:
    fields: Fields = json.loads(line)
    assert fields.keys() >= {"time", "level", "logger", "message"}
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9 _-]*: [^=]+( .*)?", fields["message"]), line
    return fields


def read(platform: PlatformProcess, parse: Callable[[str], Fields]) -> list[Fields]:
    return [parse(line) for line in platform.log.splitlines()]


def changes(lines: list[Fields], kind: str, id: str) -> list[str]:
    """Returns the states that the lines of one row name."""
    own = [line for line in lines if line.get(kind) == id and line["message"].startswith(f"{kind}: state changed")]
    assert {line["recommender"] for line in own} == {"movies"}
    return [line["to"] for line in own]


@pytest.mark.requirement("C-01")
@pytest.mark.parametrize(("form", "parse"), [("text", of_text), ("json", of_json)])
def test_lines_are_found_by_the_id_of_their_run_rollout_and_request(
    tmp_path: Path, copy_of_trained: Copy, monkeypatch: pytest.MonkeyPatch, form: str, parse: Callable[[str], Fields]
) -> None:
    monkeypatch.setenv("EYAS_LOG", form)
    with copy_of_trained(tmp_path) as platform:
        until("the first answer", platform.model_answer)
        run = platform.post("/v1/recommenders", quick_spec(platform.data, regularisation=900))["run"]
        rollout = platform.wait_for_run(run, "registered")["rollout"]
        platform.wait_for_rollout(rollout, "canary")
        platform.post(f"/v1/rollouts/{rollout}:promote")
        platform.wait_for_rollout(rollout, "promoted")
        answered = platform.client.post("/v1/recommend/movies", json={"user": 1})
        refused = platform.client.get("/v1/runs/none")
        stage_logs = [platform.get(f"/v1/runs/{run}/logs", stage=stage) for stage in STAGES]
        platform.stop()
    lines = read(platform, parse)
    assert changes(lines, "run", run) == [*STAGES, "registered"]
    assert changes(lines, "rollout", rollout) == ["loading", "canary", "promoted"]
    for stage, log in zip(STAGES, stage_logs, strict=True):
        own, stage_lines = log["attempt"] == f"{run}-{stage}-1", log["text"].splitlines()
        assert stage_lines and (own or stage == "etl"), "etl is reused: its log is that of the earlier attempt"
        if form == "text":
            assert [line for line in stage_lines if not line.endswith(f" attempt={log['attempt']}")] == []
        elif own:
            ids = [(line["run"], line["recommender"], line["attempt"]) for line in map(of_json, stage_lines)]
            assert set(ids) == {(run, "movies", log["attempt"])}
    assert answered.headers["x-request-id"] == answered.json()["request_id"]
    assert re.fullmatch("q[0-9a-z]{16}", refused.headers["x-request-id"])
