"""Platforms for the tests of this folder: one that all may ask, and copies of one for tests that change or kill theirs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import quick_spec, write_world

Copy = Callable[[Path], PlatformProcess]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped platform, with `home` and `data`: version 1 of `movies` is promoted. Only to be copied."""
    folder = tmp_path_factory.mktemp("trained")
    write_world(folder / "data")
    # Answers are compared: none of them is drawn.
    document = quick_spec(folder / "data", serve={"order": {"explore": {"rate": 0}}})
    with PlatformProcess(folder / "home", folder / "data") as platform:
        run = platform.wait_for_run(platform.post("/v1/recommenders", document)["run"], "registered")
        platform.wait_for_rollout(run["rollout"], "promoted")
        assert platform.stop() == 0
    return folder


@pytest.fixture(scope="session")
def copy_of_trained(trained: Path) -> Copy:
    """Makes a platform, not started yet, on a copy of the home in a folder. It reads the same data."""

    def copy(folder: Path) -> PlatformProcess:
        shutil.copytree(trained / "home", folder / "home")
        return PlatformProcess(folder / "home", trained / "data")

    return copy


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory, copy_of_trained: Copy) -> Iterator[PlatformProcess]:
    """One for the tests that don't hurt it. Each of them uses recommenders of its own; `movies` is there to be asked."""
    with copy_of_trained(tmp_path_factory.mktemp("platform")) as running:
        yield running
