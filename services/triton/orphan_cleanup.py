"""What a tritonserver that was killed leaves behind: processes of its Python backend, and shared memory under /dev/shm.

Every server's shared memory carries a mark that names the process that owns the server. Stubs carry it too: Triton gives them
the region's name as an argument. What carries the mark of a process that no longer lives is residue, and whoever starts
next ends and unlinks it. (Measured on 2.51: stubs notice a dead server and end within 3 s, and unlink their region; a stub that
was itself killed leaves 1 MiB or more until somebody unlinks it.)
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SHM = Path("/dev/shm")  # noqa: S108  the kernel's own, not a temporary folder of ours
PROC = Path("/proc")
_MARK = re.compile(r"eyas_(\d+)_(\d+)_(\d+)_\d+_")
_count = itertools.count()


def new_mark() -> str:
    """Unique to a server of this process: namespace, pid and its start (pids come again), and a count."""
    pid = os.getpid()
    return f"eyas_{_namespace()}_{pid}_{_started(pid)}_{next(_count)}_"


def sweep(mark: str | None = None) -> None:
    """Removes what carries this mark, or what carries the mark of any process of this machine that no longer lives."""
    ours = _dead_owner if mark is None else mark.__eq__
    for pid in marked_processes(ours):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for region in marked_regions(ours):
        with contextlib.suppress(OSError):
            region.unlink()


def sweep_deserted(mark: str, age: float = 60.0) -> None:
    """Unlinks the shared memory of stubs that died under a server that lives: Triton forgets it. A stub names its region as an argument,
    and Triton makes the region just before it starts the stub: what is young is left alone."""
    oldest = time.time() - age
    deserted = [region for region in marked_regions(mark.__eq__) if _changed(region) < oldest]
    if deserted:
        named = " ".join(_command(pid) for pid in marked_processes(mark.__eq__))
        for region in deserted:
            if region.name not in named:
                region.unlink(missing_ok=True)


def sweep_all() -> None:
    """Removes whatever carries a mark, whoever's: for a container of its own, where nobody else's can be.

    What a former container of the same pod left in /dev/shm names processes of another namespace: nobody can ask for them.
    """
    for region in marked_regions(lambda _: True):
        with contextlib.suppress(OSError):
            region.unlink()


def marked_processes(ours: Callable[[str], bool]) -> Iterator[int]:
    for folder in PROC.iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                match = _MARK.search(_command(int(folder.name)))
                if match and ours(match[0]):
                    yield int(folder.name)


def _command(pid: int) -> str:
    """Empty once it has ended."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    return ""


def _changed(region: Path) -> float:
    with contextlib.suppress(OSError):
        return region.stat().st_ctime
    return time.time()


def marked_regions(ours: Callable[[str], bool]) -> Iterator[Path]:
    for path in SHM.glob("eyas_*") if SHM.is_dir() else ():
        match = _MARK.match(path.name)
        if match and ours(match[0]):
            yield path


def _dead_owner(mark: str) -> bool:
    match = _MARK.fullmatch(mark)
    if not match or int(match[1]) != _namespace():  # another container's: its pids mean nothing here
        return False
    return _started(int(match[2])) != int(match[3])


def _namespace() -> int:
    return (PROC / "self" / "ns" / "pid").stat().st_ino


def _started(pid: int) -> int | None:
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
