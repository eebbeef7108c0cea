"""The embedded Triton under violence: killed servers, dead stubs, broken models, and what is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper

from services.triton import orphan_cleanup, wheel
from services.triton.client import Client
from services.triton.embedded import EmbeddedTriton, TritonNetwork
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from services.triton.wheel import find_wheel
from shared.artifacts import FsspecArtifacts
from shared.domain.errors import EyasError, Unavailable
from shared.testing.askers import FEED, Askers, scores
from shared.testing.model_server_suite import tiny_model, tiny_unit
from shared.testing.waiting import wait_for
from tests.servers.ports import free_ports
from tests.servers.triton_fixture import Stand, left_of

OWNER = """
import pathlib, sys, threading
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from shared.artifacts import FsspecArtifacts
from shared.testing.model_server_suite import tiny_unit
folder = pathlib.Path(sys.argv[1])
store = FsspecArtifacts(str(folder / "artifacts"))
triton = EmbeddedTriton(folder / "server")
triton.start()
TritonServer(triton, ModelRepository(triton.home, store)).place("movies", [tiny_unit(store, "movies", 1)])
(folder / "pid.part").write_text(str(triton.pid))
(folder / "pid.part").rename(folder / "pid")
threading.Event().wait()
"""


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path)
    yield stand
    stand.close()


@pytest.mark.requirement("C-05")
def test_a_killed_server_comes_back_with_the_same_versions(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1), stand.unit(2)])
    assert stand.server.ensure_running() is False
    assert stand.triton.pid
    os.kill(stand.triton.pid, signal.SIGKILL)
    wait_for(lambda: not stand.triton.alive)
    assert stand.server.answering("movies") == frozenset()
    with pytest.raises(Unavailable):
        stand.server.score("movies", 1, FEED)
    assert stand.server.ensure_running() is True
    assert stand.server.answering("movies") == {1, 2}
    assert stand.server.score("movies", 2, FEED).tolist() == scores(2)


def test_a_repository_that_triton_does_not_read_is_refused_at_once(tmp_path: Path) -> None:
    store, triton = FsspecArtifacts(str(tmp_path / "artifacts")), EmbeddedTriton(tmp_path / "server")
    with pytest.raises(ValueError, match="models are written to"):
        TritonServer(triton, ModelRepository(tmp_path / "elsewhere", store))
    triton.stop()


def test_a_model_server_may_be_built_before_its_triton_is_started(tmp_path: Path) -> None:
    store, triton = FsspecArtifacts(str(tmp_path / "artifacts")), EmbeddedTriton(tmp_path / "server")
    server = TritonServer(triton, ModelRepository(triton.home, store))
    assert server.successes() == {}
    assert server.ensure_running() is False
    with pytest.raises(Unavailable):
        server.place("movies", [tiny_unit(store, "movies", 1)])
    triton.start()
    assert server.ensure_running() is False
    assert server.answering("movies") == {1}
    server.close()
    triton.stop(grace=0)


@pytest.mark.requirement("C-07")
def test_who_lacks_the_key_may_ask_but_neither_load_nor_unload(tmp_path: Path) -> None:
    grpc, metrics = free_ports(2)
    store = FsspecArtifacts(str(tmp_path / "artifacts"))
    triton = EmbeddedTriton(tmp_path / "server", network=TritonNetwork("127.0.0.1", grpc, metrics, key="sesame"))
    triton.start()
    server = TritonServer(triton, ModelRepository(triton.home, store))
    strangers = [Client(triton.address), Client(triton.address, "guess")]
    try:
        server.place("movies", [tiny_unit(store, "movies", 1)])
        ((model, version),) = strangers[0].successes()
        assert version == "1"
        for stranger in strangers:
            assert stranger.ready()
            for refused in (
                stranger.index,
                lambda stranger=stranger: stranger.load(model),
                lambda stranger=stranger: stranger.unload(model),
            ):
                with pytest.raises(Unavailable, match="restricted"):
                    refused()
        assert server.score("movies", 1, FEED).tolist() == scores(1)
        assert "nv_inference_queue_duration_us{" in httpx.get(f"http://127.0.0.1:{metrics}/metrics").text, "what Tritons are scaled by"
        server.place("movies", [])
        assert strangers[0].successes() == {}
        assert "sesame" not in triton.log.read_text()
    finally:
        for one in (*strangers, server):
            one.close()
        triton.stop(grace=0)


@pytest.mark.requirement("C-05")
def test_a_dead_stub_is_healed_and_its_neighbour_never_notices(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1), stand.unit(2)])
    os.kill(stand.stubs()["1"], signal.SIGKILL)
    wait_for(lambda: stand.server.answering("movies") == {2})
    with Askers(stand.server, "movies", 2) as traffic:
        assert stand.server.ensure_running() is False
    assert stand.server.answering("movies") == {1, 2}
    assert traffic.failures == []
    assert traffic.answered > 0


def test_the_only_stub_of_a_model_is_healed_too(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1)])
    os.kill(stand.stubs()["1"], signal.SIGKILL)
    wait_for(lambda: stand.server.answering("movies") == frozenset())
    stand.server.ensure_running()
    assert stand.server.score("movies", 1, FEED).tolist() == scores(1)


def test_a_version_that_stays_keeps_its_process_while_others_come_and_go(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1)])
    process = stand.stubs()["1"]
    stand.server.place("movies", [stand.unit(1), stand.unit(2)])
    stand.server.place("movies", [stand.unit(1), stand.unit(3)])
    stand.server.place("movies", [stand.unit(1)])
    assert stand.stubs()["1"] == process
    assert sorted(path.name for path in stand.triton.repository.glob("eyas-movies_*/*") if path.is_dir()) == ["1"]


def graph(output: str, shape: list[Any], *nodes: Any) -> bytes:
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows"]) for name in ("user", "item")]
    score = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
    made = helper.make_model(
        helper.make_graph(list(nodes), "g", inputs, [score]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return bytes(made.SerializeToString())


SUM = helper.make_node("Add", ["user", "item"], ["sum"])
BROKEN = {
    "cut short": tiny_model(2)[:40],
    "empty": b"",
    "wants an input that the signature hasn't": tiny_model(2, tags=True),
    "gives another output": graph("points", ["rows"], SUM, helper.make_node("Cast", ["sum"], ["points"], to=TensorProto.FLOAT)),
    "gives one score for all rows": graph(
        "score",
        [1],
        SUM,
        helper.make_node("Cast", ["sum"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["float"], ["score"], keepdims=1),
    ),
}


@pytest.mark.requirement("C-05")
def test_no_broken_model_disturbs_the_version_that_serves(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1)])
    with Askers(stand.server, "movies", 1) as traffic:
        for number, (what, content) in enumerate(BROKEN.items(), start=2):
            faults = stand.server.place("movies", [stand.unit(1), stand.unit(number, model=content)])
            assert set(faults) == {number}, what
            assert len(faults[number]) > 10, what
    assert traffic.failures == []
    assert traffic.answered > 50
    assert stand.server.answering("movies") == {1}


def test_a_proven_version_that_no_longer_loads_takes_nobody_with_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.server.place("movies", [stand.unit(1), stand.unit(2), stand.unit(3)])
    add = ModelRepository.add

    def add_and_damage(self: ModelRepository, unit: Any) -> Any:
        placed = add(self, unit)
        if unit.number == 2:
            (self.root / placed.model / "2" / "model.onnx").write_bytes(b"damaged after it was checked")
        return placed

    monkeypatch.setattr(ModelRepository, "add", add_and_damage)
    os.kill(stand.triton.pid or 0, signal.SIGKILL)
    wait_for(lambda: not stand.triton.alive)
    assert stand.server.ensure_running() is True
    assert stand.server.answering("movies") == {1, 3}


def test_an_artifact_that_is_gone_is_a_fault_of_that_version_alone(stand: Stand) -> None:
    unit = stand.unit(2)
    sha = unit.files["model.onnx"].sha256
    Path(stand.store.url, "blobs", sha[:2], sha).unlink()
    faults = stand.server.place("movies", [stand.unit(1), unit])
    assert "not in" in faults[2]
    assert stand.server.answering("movies") == {1}


def test_a_request_that_fails_leaves_the_version_alive(stand: Stand) -> None:
    stand.server.place("movies", [stand.unit(1)])
    with pytest.raises(Unavailable, match="Triton"):
        stand.server.score("movies", 1, FEED | {"item": np.array([1, 2])})
    assert stand.server.score("movies", 1, FEED).tolist() == scores(1)


def test_two_servers_stand_side_by_side(stand: Stand, tmp_path: Path) -> None:
    stand.server.place("movies", [stand.unit(1)])
    other = Stand(tmp_path / "other")
    try:
        other.server.place("movies", [other.unit(2)])
        assert stand.server.answering("movies") == {1}
        assert other.server.answering("movies") == {2}
    finally:
        other.close()
    assert stand.server.answering("movies") == {1}


@pytest.mark.parametrize("grace", [10.0, 0.0])
def test_a_stopped_server_leaves_no_process_and_no_shared_memory(tmp_path: Path, grace: float) -> None:
    stand = Stand(tmp_path)
    stand.server.place("movies", [stand.unit(1), stand.unit(2)])
    os.kill(stand.stubs()["1"], signal.SIGKILL)  # the worst case: nobody unlinks its region
    assert left_of(stand.mark)
    stand.server.close()
    stand.triton.stop(grace)
    wait_for(lambda: not left_of(stand.mark))


@pytest.mark.requirement("C-09")
def test_a_killed_owner_takes_its_server_along_and_the_next_start_sweeps_up(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)])
    try:
        pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        region = next(iter(orphan_cleanup.marked_regions(lambda mark: f"_{owner.pid}_" in mark)))
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    orphan_cleanup.sweep()
    wait_for(lambda: not list(orphan_cleanup.marked_processes(lambda mark: f"_{owner.pid}_" in mark)))
    assert not region.exists()


def test_a_missing_wheel_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.triton.wheel.ENVIRONMENT", tmp_path / "missing")
    with pytest.raises(Unavailable, match="the embedded Triton is not installed; run: eyas install-triton"):
        EmbeddedTriton(tmp_path).start()


def test_a_python_without_numpy_1_names_the_version_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_PYTHONS", ("3.1", "3.0"))
    with pytest.raises(
        Unavailable, match=r"needs Python 3\.1 or 3\.0 beside this Python .*: install python3\.0 and python3\.0-venv, then run: eyas"
    ):
        wheel._interpreter()


def test_libraries_of_another_version_of_eyas_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "environment.lock"
    lock.write_text(wheel.LOCK.read_text().replace("onnxruntime==", "onnxruntime==9."))
    monkeypatch.setattr(wheel, "LOCK", lock)
    with pytest.raises(Unavailable, match=r"needs onnxruntime 9\..*, has 1\..*; run: eyas install-triton"):
        find_wheel()


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(find_wheel(), server=tmp_path / "nothing")
    monkeypatch.setattr("services.triton.embedded.find_server", lambda: broken)
    triton = EmbeddedTriton(tmp_path / "server")
    with pytest.raises(Unavailable, match=r"does not start: shim: can't run .*nothing: No such file.*triton\.log"):
        triton.start()
    triton.stop()


def test_a_home_with_a_long_path_has_a_socket_too(tmp_path: Path) -> None:
    """A Unix socket's path has at most 107 bytes: clients reach a longer one by its folder's descriptor, from other processes too."""
    triton = EmbeddedTriton(tmp_path / ("long-" * 20) / ("name-" * 20))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    triton.start()
    ask = f"from services.triton.client import Client; print(Client('{triton.address}').version())"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "2.51.0"
    triton.stop(grace=0)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1, "at most gRPC's own"


def test_a_start_replaces_the_socket_of_a_killed_server(tmp_path: Path) -> None:
    triton = EmbeddedTriton(tmp_path / "server")
    triton.start()
    assert triton.pid
    os.kill(triton.pid, signal.SIGKILL)
    wait_for(lambda: not triton.alive)
    assert (tmp_path / "server/socket/grpc:1").is_socket()
    assert triton.ensure_running()
    client = Client(triton.address)
    assert client.ready()
    client.close()
    triton.stop(grace=0)
    assert stat.S_IMODE((tmp_path / "server/socket").stat().st_mode) == 0o700


def test_a_stub_that_is_loading_ends_with_its_server(tmp_path: Path) -> None:
    """At any moment of it: left alone, one in four of them never did."""
    store, luck = FsspecArtifacts(str(tmp_path / "artifacts")), random.Random(2)
    for number in range(5):
        triton = EmbeddedTriton(tmp_path / f"server-{number}")
        triton.start()
        server = TritonServer(triton, ModelRepository(triton.home, store))
        placing = threading.Thread(target=_place, args=(server, tiny_unit(store, "movies", 1)))
        placing.start()
        try:
            assert triton.pid
            process = psutil.Process(triton.pid)
            wait_for(process.children)
            time.sleep(luck.random())  # the moment is what is tried
            stubs = process.children()
            os.kill(triton.pid, signal.SIGKILL)
            wait_for(lambda triton=triton: not triton.alive)
            _, outlived = psutil.wait_procs(stubs, timeout=30)
            assert not outlived
        finally:
            triton.stop()
            placing.join()


def _place(server: TritonServer, unit: Any) -> None:
    with contextlib.suppress(EyasError):
        server.place("movies", [unit])
