"""What a session does before it computes on a Dask cluster; tests/training/stages/test_nvtabular_stage.py has real ones."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.features.engines.nvtabular import session
from shared.domain.errors import Invalid, Unavailable

SCHEDULER = "tls://dask:8786"


class Client:
    def __init__(self, writes: dict[str, bool]) -> None:
        self.writes = writes

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if len(self.writes) < count:
            raise TimeoutError

    def run(self, *call: Any) -> dict[str, bool]:
        return self.writes


def test_workers_must_come_and_share_the_folder(tmp_path: Path) -> None:
    session._check_workers(Client({"tls://a:1": True}), SCHEDULER, tmp_path)
    with pytest.raises(Unavailable, match="its scheduler has no worker after 60 seconds; start workers"):
        session._check_workers(Client({}), SCHEDULER, tmp_path)
    message = f"the worker tls://b:1 cannot write to {tmp_path}; set EYAS_DASK_FOLDER to a folder that all share"
    with pytest.raises(Invalid, match=re.escape(message)):
        session._check_workers(Client({"tls://a:1": True, "tls://b:1": False}), SCHEDULER, tmp_path)


def test_folders_of_killed_stages_are_removed_after_a_week(tmp_path: Path) -> None:
    for name in ("nvtabular-old", "nvtabular-new", "other"):
        (tmp_path / name / "rows-0").mkdir(parents=True)
    for name in ("nvtabular-old", "other"):
        os.utime(tmp_path / name, (1.7e9, 1.7e9))
    session._remove_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"nvtabular-new", "other"}
