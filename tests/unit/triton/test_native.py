"""NVIDIA's tritonserver in its image: where it is, and what is said if a part of it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.triton.embedded import EmbeddedTriton
from services.triton.native import SERVER, find_server
from shared.contracts.gpus import GPUS
from shared.domain.errors import Unavailable


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("bin", "backends/onnxruntime", "backends/fil"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/tritonserver").touch()
    monkeypatch.setenv(SERVER, str(tmp_path))
    return tmp_path


def test_the_servers_own_backends_run_and_no_variable_of_the_platform_reaches_it(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYAS_TRITON_KEY", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/cuda")
    server = find_server()
    assert (server.server, server.lay_out(image / "home")) == (image / "bin/tritonserver", image / "backends")
    assert not (image / "home").exists()
    environment = server.environment()
    assert environment["LD_LIBRARY_PATH"] == "/cuda" and not [name for name in environment if name.startswith("EYAS")]


def test_a_part_that_is_missing_is_named(image: Path) -> None:
    (image / "backends/fil").rmdir()
    with pytest.raises(Unavailable, match=r"EYAS_TRITON_SERVER: .*backends/fil does not exist; use NVIDIA's image"):
        find_server()


def test_only_a_native_server_whose_pod_has_gpus_computes_on_them(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = EmbeddedTriton(image / "home")
    assert not triton.gpu
    monkeypatch.setenv(GPUS, "1")
    assert triton.gpu
    monkeypatch.delenv(SERVER)
    assert not triton.gpu, "the server of the wheel has no backend for GPUs"
