"""One platform for the tests of a module that don't hurt it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import write_world


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("platform")
    data = folder / "data"
    write_world(data)
    with PlatformProcess(folder / "home", data) as running:
        yield running
