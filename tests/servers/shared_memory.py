"""Shared memory of Tritons in /dev/shm, by the process that owns the Triton: other platforms of the machine have theirs there too."""

from __future__ import annotations

from services.triton import orphan_cleanup


class Owners:
    """Processes that may own a Triton, remembered beyond their end. A name in /dev/shm holds its owner's pid and start time."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def add(self, *pids: int) -> None:
        """While they run."""
        self._seen |= {(str(pid), str(started)) for pid in pids if (started := orphan_cleanup._started(pid)) is not None}

    def regions(self) -> set[str]:
        def is_ours(mark: str) -> bool:
            _, _, pid, started, *_ = mark.split("_")
            return (pid, started) in self._seen

        return {region.name for region in orphan_cleanup.marked_regions(is_ours)}
