"""A running platform exports its audit log, and continues after a kill where it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.servers.platform_process import PlatformProcess, until


@pytest.mark.requirement("U-12")
def test_a_platform_exports_its_writes_and_continues_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def exported() -> list[tuple[str, str, int]]:
        """Without duplicates: the kill may come before the export is recorded."""
        lines = {line["id"]: line for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
        return [(line["actor"], line["action"], line["status"]) for line in lines.values()]

    written = ("owner", "POST /v1/tokens", 201)
    with PlatformProcess(tmp_path / "home", tmp_path / "data", settings={"EYAS_AUDIT_EXPORT": str(path)}) as platform:
        made = platform.post("/v1/tokens", {"name": "shop", "role": "client"})
        until("the first entry is exported", lambda: exported() == [written])
        platform.kill()
        platform.start()
        platform.post("/v1/tokens", {"name": "ada", "role": "viewer"})
        until("the second entry is exported", lambda: exported() == [written] * 2)
        assert made["token"] not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0, "other users could read it"
