"""From files as users have them to an answer, in one attempt each: `eyas init`, `plan`, `apply`, `recommend`, typed as commands."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.support.first_data import write_listening, write_orders, write_shop
from tests.support.spec_mistakes import MISTAKES
from tests.support.spec_mistakes import write_shop as write_small_shop

pytestmark = [pytest.mark.requirement("U-03"), pytest.mark.requirement("U-04"), pytest.mark.timeout(900)]

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
DATA_SETS: dict[str, tuple[Callable[[Path], list[Path]], str, str]] = {
    "shop-events": (write_shop, "u3@mail.example", "SKU-"),
    "listening": (write_listening, "3", "Artist № "),
    "bestellungen": (write_orders, "1003", ""),
}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PlatformProcess, Path]]:
    folder = tmp_path_factory.mktemp("first-hour")
    (folder / "data").mkdir()
    with PlatformProcess(folder / "home", folder / "data") as platform:
        yield platform, folder


def eyas(platform: PlatformProcess, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    url, token = str(platform.client.base_url), str(platform.home / "token")
    command = [sys.executable, "-m", "services.cli.main", "--url", url, "--token-file", token, *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def typed(platform: PlatformProcess, folder: Path, *words: str) -> str:
    finished = eyas(platform, folder, *words)
    assert finished.returncode == 0, f"{words}: {finished.stdout}{finished.stderr}"
    return finished.stdout


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_first_attempt_gives_an_answer(
    started: tuple[PlatformProcess, Path], name: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    platform, folder = started
    write, user, item = DATA_SETS[name]
    files = [path.relative_to(folder).as_posix() for path in write(folder / "data")]
    begin = time.monotonic()
    typed(platform, folder, "init", *files)
    assert "a run would start" in typed(platform, folder, "plan", f"{name}.yaml")
    typed(platform, folder, "apply", f"{name}.yaml", "--no-run")
    assert "registered  all gates passed" in typed(platform, folder, "run", name, "--wait")
    answer = until(f"{name} answers", lambda: _answer(platform, folder, name, user))
    record_testsuite_property(f"minutes of {name}", round((time.monotonic() - begin) / 60, 2))
    rows = [line.split(maxsplit=1)[1] for line in answer.splitlines()[2:]]
    assert len(rows) == 5 and all(row.startswith(item) for row in rows), answer


def _answer(platform: PlatformProcess, folder: Path, name: str, user: str) -> str | None:
    finished = eyas(platform, folder, "recommend", name, user, "-k", "5")
    return finished.stdout if finished.returncode == 0 and "version 1 (stable)" in finished.stdout else None


@pytest.mark.timeout(1200)
def test_plan_refuses_forty_mistakes_by_line(started: tuple[PlatformProcess, Path], subtests: pytest.Subtests) -> None:
    platform, folder = started
    write_small_shop(folder / "data")
    correct = typed(platform, folder, "plan", "data/shop.yaml")
    assert "a run would start, with 1,500 rows" in correct and "note" not in correct
    for number, mistake in enumerate(MISTAKES):
        with subtests.test(number=number, says=mistake.says):
            for file in (folder / "data").iterdir():
                file.unlink()
            mistake.write(folder / "data")
            finished = eyas(platform, folder, "apply", "--dry-run", "data/shop.yaml")
            assert finished.returncode == 1, finished.stdout + finished.stderr
            named = [line for line in finished.stdout.splitlines() if line.startswith(f"data/shop.yaml:{mistake.line}: ")]
            assert any(mistake.says in line and mistake.near in line for line in named), finished.stdout
    assert platform.get("/v1/recommenders")["items"] == [] or all(
        entry["name"] != "shop" for entry in platform.get("/v1/recommenders")["items"]
    )
