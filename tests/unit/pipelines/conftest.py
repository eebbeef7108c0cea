"""The ETL stage in the test's process, and a machine that is short of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support.etl_stage import Etl, etl_stage


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many bytes of memory the machine has free."""
    return lambda size: monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size, total=size))


@pytest.fixture
def etl(tmp_path: Path) -> Etl:
    return etl_stage(tmp_path)
