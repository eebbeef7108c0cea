"""Cleans up after a killed tritonserver: processes of its Python backend, and shared memory in /dev/shm.

A server's shared memory carries a mark that names the server's owner process; stubs carry it in their arguments. Whatever carries the mark
of a dead process is residue, and the next start removes it. (Measured on 2.51: stubs of a dead server end within 3 s and unlink their
region; a killed stub leaves 1 MiB or more.)
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

SHM = Path("/dev/shm")  # noqa: S108  the kernel's folder
PROC = Path("/proc")
_MARK = re.compile(r"eyas_(\d+)_(\d+)_(\d+)_\d+_")
_count = itertools.count()


def new_mark() -> str:
    """Returns a unique mark: namespace, pid, start time (pids are reused) and a count."""
    pid = os.getpid()
    return f"eyas_{_namespace()}_{pid}_{_started(pid)}_{next(_count)}_"


def sweep(mark: str | None = None) -> None:
    """Removes whatever carries this mark; without one, whatever carries the mark of a dead process of this machine."""
    ours = _dead_owner if mark is None else mark.__eq__
    for pid in marked_processes(ours):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for region in marked_regions(ours):
        with contextlib.suppress(OSError):
            region.unlink()


def sweep_deserted(mark: str, age: float = 60.0) -> None:
    """Unlinks the shared memory of dead stubs under a live server, which Triton does not. A stub names its region in its arguments; Triton
    creates the region just before it starts the stub, so young regions are kept.
    """
    oldest = time.time() - age
    deserted = [region for region in marked_regions(mark.__eq__) if _changed(region) < oldest]
    if deserted:
        named = " ".join(_command(pid) for pid in marked_processes(mark.__eq__))
        for region in deserted:
            if region.name not in named:
                region.unlink(missing_ok=True)


def sweep_all() -> None:
    """Unlinks all marked shared memory. Only for a container with its own /dev/shm.

    Marks of the pod's former container name processes of another namespace, which cannot be checked.
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
    """Returns an empty text for a process that has ended."""
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
    if not match or int(match[1]) != _namespace():  # another container's pids mean nothing here
        return False
    return _started(int(match[2])) != int(match[3])


def _namespace() -> int:
    return (PROC / "self" / "ns" / "pid").stat().st_ino


def _started(pid: int) -> int | None:
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
