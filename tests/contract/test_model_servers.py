"""The ModelServer suite on a real embedded Triton, and on a fleet of two."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.triton.embedded import EmbeddedTriton, TritonNetwork
from services.triton.fleet import TritonFleet
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from services.triton.server_processes import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.ports import ServedUnit
from shared.testing.model_server_suite import ModelServerSuite, tiny_unit
from shared.testing.waiting import wait_for
from tests.servers.ports import free_ports
from tests.servers.triton_certificates import Authority
from tests.servers.triton_fixture import PatientFleet

PATIENT = 20.0
"""Seconds: what is proven here is no matter of a busy machine's time."""
_names = (f"rec-{n}" for n in itertools.count())


class Units:
    """Real ones, of a recommender of their own."""

    def __init__(self, store: FsspecArtifacts) -> None:
        self.store = store
        self.recommender = next(_names)

    def unit(self, number: int, *, tags: bool = False) -> ServedUnit:
        return tiny_unit(self.store, self.recommender, number, tags=tags)

    def broken(self, number: int) -> ServedUnit:
        return tiny_unit(self.store, self.recommender, number, model=b"this is no model")


class TritonBench(Units):
    def __init__(self, triton: EmbeddedTriton, server: TritonServer, store: FsspecArtifacts) -> None:
        super().__init__(store)
        self.triton = triton
        self.server = server

    def restart(self) -> None:
        assert self.triton.pid
        os.kill(self.triton.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.triton.pid, os.WEXITED | os.WNOWAIT)
        assert self.server.ensure_running()


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedTriton, TritonServer, FsspecArtifacts]]:
    folder: Path = tmp_path_factory.mktemp("triton")
    store = FsspecArtifacts(str(folder / "artifacts"))
    # Whoever has the key and the certificates notices nothing of them.
    certificates = Authority.create(folder / "ca").server()
    network = TritonNetwork("127.0.0.1", *free_ports(2), key="sesame", certificates=certificates)
    embedded = EmbeddedTriton(folder / "server", network=network)
    embedded.start()
    server = TritonServer(embedded, ModelRepository(embedded.home, store), timeout=PATIENT)
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


class FleetBench(Units):
    """Units for every replica; the one that is restarted is the second."""

    def __init__(self, tritons: EmbeddedTritons, server: TritonFleet, store: FsspecArtifacts) -> None:
        super().__init__(store)
        self.tritons = tritons
        self.server = server

    def restart(self) -> None:
        killed = self.tritons.servers["triton-2"]
        assert killed.pid
        os.kill(killed.pid, signal.SIGKILL)
        wait_for(self.server.ensure_running)
        wait_for(lambda: self.server.ensure_running() is False and {one.state for one in self.server.info().replicas} == {"ready"})


@pytest.fixture(scope="module")
def tritons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedTritons, TritonFleet, FsspecArtifacts]]:
    folder: Path = tmp_path_factory.mktemp("tritons")
    store = FsspecArtifacts(str(folder / "artifacts"))
    embedded = EmbeddedTritons(folder / "server", 2)
    embedded.start()
    server = PatientFleet(embedded, store, timeout=PATIENT)
    yield embedded, server, store
    server.close()
    embedded.stop()


@pytest.mark.requirement("C-05", "C-09")
class TestTritonFleet(ModelServerSuite):
    @pytest.fixture
    def bench(self, tritons: tuple[EmbeddedTritons, TritonFleet, FsspecArtifacts]) -> Iterator[FleetBench]:
        bench = FleetBench(*tritons)
        yield bench
        bench.server.place(bench.recommender, [])

    def test_every_replica_has_every_version(self, bench: FleetBench) -> None:
        bench.server.place(bench.recommender, [bench.unit(1), bench.unit(2)])
        bench.server.ensure_running()
        found = {one.name: one for one in bench.server.info().replicas}
        assert set(found) == {"triton-1", "triton-2"}
        for one in found.values():
            assert one.state == "ready"
            assert {number for name, number in one.versions if name == bench.recommender} == {1, 2}
