"""A Triton of one's own with everything at hand, and what is left of one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from services.triton import orphan_cleanup
from services.triton.embedded import EmbeddedTriton
from services.triton.fleet import TritonFleet
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import Pending
from shared.ports import ServedUnit
from shared.testing.model_server_suite import tiny_model, tiny_unit


class Stand:
    """A server of its own, with everything at hand."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.store = FsspecArtifacts(str(folder / "artifacts"))
        self.triton = EmbeddedTriton(folder / "server")
        self.triton.start()
        self.server = TritonServer(
            self.triton, ModelRepository(self.triton.home, self.store), **{"probe_every": 0, "heal_every": 0, **more}
        )

    def unit(self, number: int, **more: Any) -> Any:
        return tiny_unit(self.store, "movies", number, **more)

    def like(self, number: int, factor: float, tags: bool = False) -> Any:
        """A version with the content that version `factor` has."""
        return self.unit(number, tags=tags, model=tiny_model(factor, tags=tags))

    @property
    def mark(self) -> str:
        return self.triton._mark

    def stubs(self) -> dict[str, int]:
        """Processes of the Python backend, by the version folder that they serve."""
        return {Path(folder).name: pid for folder, pid in self.stub_folders().items()}

    def stub_folders(self) -> dict[str, int]:
        assert self.triton.pid is not None
        return stub_folders(self.triton.pid)

    def regions(self) -> set[str]:
        """Its shared memory."""
        return {region.name for region in orphan_cleanup.marked_regions(self.mark.__eq__)}

    def close(self) -> None:
        self.server.close()
        self.triton.stop(grace=0)


def stub_folders(server: int) -> dict[str, int]:
    """Processes of the Python backend of a server, by model and version: a trial's too."""
    found = {}
    for child in psutil.Process(server).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie, which nobody can ask any more, is one
            line = child.cmdline()
            if len(line) > 1 and "stub" in line[0]:
                folder = Path(line[1]).parent
                found[f"{folder.parent.name}/{folder.name}"] = child.pid
    return found


class PatientFleet(TritonFleet):
    """Asks again while versions are still being loaded, as the control plane does."""

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        while True:
            try:
                return super().place(recommender, units)
            except Pending:
                time.sleep(0.05)


def left_of(mark: str) -> list[object]:
    return [*orphan_cleanup.marked_processes(mark.__eq__), *orphan_cleanup.marked_regions(mark.__eq__)]
