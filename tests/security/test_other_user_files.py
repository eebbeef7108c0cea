"""Another user of the machine opens nothing that the platform writes: no file of its home, no socket, no shared memory of its Triton."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from services.executors.processes import SHIM
from tests.servers.platform_process import PlatformProcess, until
from tests.support.platform_world import quick_spec, write_world

pytestmark = pytest.mark.requirement("C-01")

NOBODY = 65534
_OPEN = 'while IFS= read -r path; do if (: < "$path") 2> /dev/null || [ -w "$path" ]; then printf "%s\\n" "$path"; fi; done'
"""Prints those of the paths that it can open or write; a socket cannot be opened, but connected to by who may write it."""


def opened_by_nobody(paths: Iterable[Path]) -> list[str]:
    done = subprocess.run(
        ["/bin/sh", "-c", _OPEN],
        input="".join(f"{path}\n" for path in paths),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        text=True,
        capture_output=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def tree(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def open_to_others(paths: Iterable[Path]) -> list[str]:
    """By mode alone: what a link or a mount beside the folder would give away. Links have no mode of their own."""
    modes = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # memory that Triton shares with a process that has just ended
            modes[path] = path.lstat().st_mode
    return [f"{path} {stat.filemode(mode)}" for path, mode in modes.items() if not stat.S_ISLNK(mode) and mode & 0o007]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that everybody can enter, as the home in it: then it is the modes of the files that count."""
    if os.geteuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("files were not opened by another user: only root can become one")
        pytest.skip("files were not opened by another user: only root can become one (sudo)")
    made = Path(tempfile.mkdtemp(prefix="eyas-other-user-"))
    mask = os.umask(0o022)  # the platform has one of its own
    try:
        made.chmod(0o755)
        (made / "home").mkdir(mode=0o755)
        yield made
    finally:
        os.umask(mask)
        shutil.rmtree(made)


def test_nobody_opens_a_file_of_a_platform_that_serves(folder: Path) -> None:
    write_world(folder / "data")
    (folder / "tmp").mkdir()
    with PlatformProcess(folder / "home", folder / "data", settings={"TMPDIR": str(folder / "tmp")}) as platform:
        platform.wait_for_run(platform.post("/v1/recommenders", quick_spec(folder / "data"))["run"], "registered")
        until("version 1 answers", lambda: platform.model_answer(version=1))
        platform.children()
        regions = [Path("/dev/shm") / name for name in platform.shared_memory()]
        files = [*tree(folder / "home"), *tree(folder / "tmp")]
        names = {path.name for path in files}
        assert {"token", "eyas.db", "endpoint.json", "lock", "model.onnx", "log.txt"} <= names and regions, sorted(names)
        assert opened_by_nobody([*files, *regions]) == []
        programs = folder / "home/triton/backends"  # copies of what is installed, with its modes
        assert open_to_others(path for path in [*files, *regions] if programs not in path.parents) == []


def test_nobody_opens_a_database_that_migrate_made(folder: Path) -> None:
    environment = {**os.environ, "EYAS_HOME": str(folder / "home")}
    subprocess.run([sys.executable, "-m", "services.cli.main", "migrate"], env=environment, check=True, timeout=120)
    files = tree(folder / "home")
    assert folder / "home/eyas.db" in files
    assert opened_by_nobody(files) == open_to_others(files) == []


def test_a_file_that_is_open_to_others_is_noticed(folder: Path) -> None:
    (folder / "home/leak").write_text("x")
    (folder / "home/folder").mkdir()
    os.mkfifo(folder / "home/fifo", 0o600)
    assert opened_by_nobody(tree(folder / "home")) == [str(folder / "home/folder"), str(folder / "home/leak")]
    assert len(open_to_others(tree(folder / "home"))) == 2


@pytest.mark.parametrize(("options", "mode"), [(["--private"], 0o600), ([], 0o644)])
def test_a_private_child_cannot_open_its_files_to_others(tmp_path: Path, options: list[str], mode: int) -> None:
    """What Boost does with each region of shared memory that it creates, in the child of a child."""
    code = f"import os; os.umask(0o077); os.fchmod(os.open({str(tmp_path / 'region')!r}, os.O_CREAT | os.O_WRONLY, 0o644), 0o644)"
    command = [sys.executable, "-I", str(SHIM), *options, str(os.getpid()), "/bin/sh", "-c", f'{sys.executable} -c "{code}"; true']
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "region").stat().st_mode & 0o777 == mode
