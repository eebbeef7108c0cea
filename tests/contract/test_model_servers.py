"""The ModelServer suite on the fake and on a real embedded Triton."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from shared.artifacts import FsspecArtifacts
from shared.ports import ServedUnit
from shared.testing.fakes import FakeModelServer
from shared.testing.model_server_suite import ModelServerSuite, tiny_unit

_names = (f"rec-{n}" for n in itertools.count())


class FakeBench:
    def __init__(self) -> None:
        self.server = FakeModelServer()
        self.recommender = next(_names)

    def unit(self, number: int, *, tags: bool = False) -> ServedUnit:
        return ServedUnit(self.recommender, number, {})

    def broken(self, number: int) -> ServedUnit:
        self.server.broken[self.recommender, number] = "not an ONNX file"
        return ServedUnit(self.recommender, number, {})

    def restart(self) -> None:
        self.server.restart()


class TestFakeModelServer(ModelServerSuite):
    @pytest.fixture
    def bench(self) -> FakeBench:
        return FakeBench()


class TritonBench:
    def __init__(self, triton: EmbeddedTriton, server: TritonServer, store: FsspecArtifacts) -> None:
        self.triton = triton
        self.server = server
        self.store = store
        self.recommender = next(_names)

    def unit(self, number: int, *, tags: bool = False) -> ServedUnit:
        return tiny_unit(self.store, self.recommender, number, tags=tags)

    def broken(self, number: int) -> ServedUnit:
        return tiny_unit(self.store, self.recommender, number, model=b"this is no model")

    def restart(self) -> None:
        assert self.triton.pid
        os.kill(self.triton.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.triton.pid, os.WEXITED | os.WNOWAIT)
        assert self.server.ensure_running()


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedTriton, TritonServer, FsspecArtifacts]]:
    folder: Path = tmp_path_factory.mktemp("triton")
    store = FsspecArtifacts(str(folder / "artifacts"))
    embedded = EmbeddedTriton(folder / "server")
    embedded.start()
    server = TritonServer(embedded, ModelRepository(embedded.home, store))
    yield embedded, server, store
    server.close()
    embedded.stop()


@pytest.mark.requirement("C-05", "C-09")
class TestTritonServer(ModelServerSuite):
    @pytest.fixture
    def bench(self, triton: tuple[EmbeddedTriton, TritonServer, FsspecArtifacts]) -> Iterator[TritonBench]:
        bench = TritonBench(*triton)
        yield bench
        bench.server.place(bench.recommender, [])
