"""Whoever reaches a Triton runs code as its user, so no other user of the machine and no stranger of the network may reach one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from benchmarks.rollout_world import NAME, World
from services.triton.certificates import Certificates
from services.triton.embedded import EmbeddedTriton, TritonNetwork, disposable
from shared.domain.errors import Unavailable
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess, until
from tests.servers.ports import free_ports
from tests.servers.triton_certificates import Authority

NOBODY = 65534
ATTACK = """
import base64, json, os, sys
import grpc
from tritonclient.grpc import InferenceServerClient, InferInput
addresses, user, folder = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if user:
    os.setgroups([]), os.setgid(user), os.setuid(user)
code = b"import os; os.system('id > /tmp/never-written')"
config = json.dumps({"backend": "python", "input": [], "output": [], "parameters": {}})
row = InferInput("x", [1], "FP32")
row.set_data_from_numpy(__import__("numpy").zeros(1, "float32"))
CALLS = {
    "live": lambda c: c.is_server_live(client_timeout=2),
    "ready": lambda c: c.is_server_ready(client_timeout=2),
    "metadata": lambda c: c.get_server_metadata(client_timeout=2),
    "index": lambda c: c.get_model_repository_index(client_timeout=2),
    "load": lambda c: c.load_model("evil", config=config, files={"file:1/model.py": code}, client_timeout=5),
    "unload": lambda c: c.unload_model("evil", client_timeout=2),
    "config": lambda c: c.get_model_config("evil", client_timeout=2),
    "infer": lambda c: c.infer("evil", [row], client_timeout=2),
    "statistics": lambda c: c.get_inference_statistics(client_timeout=2),
    "trace": lambda c: c.get_trace_settings(client_timeout=2),
    "trace file": lambda c: c.update_trace_settings(settings={"trace_level": ["OFF"]}, client_timeout=2),
    "log": lambda c: c.get_log_settings(client_timeout=2),
    "log file": lambda c: c.update_log_settings({"log_verbose_level": 0}, client_timeout=2),
    "shared memory": lambda c: c.get_system_shared_memory_status(client_timeout=2),
    "register": lambda c: c.register_system_shared_memory("evil", "/evil", 8, client_timeout=2),
    "cuda memory": lambda c: c.get_cuda_shared_memory_status(client_timeout=2),
}
creds = None
if folder:
    ca, certificate, key = (open(os.path.join(folder, n), "rb").read() for n in ("ca.crt", "tls.crt", "tls.key"))
    creds = grpc.ssl_channel_credentials(ca, key, certificate)
answered = []
for address in addresses:
    client = InferenceServerClient(address, creds=creds, channel_args=[("grpc.ssl_target_name_override", "eyas-triton")])
    for name, call in CALLS.items():
        try:
            call(client)
            answered.append(f"{address}: {name}")
        except Exception as error:
            # An answer from Triton itself is one too: only a connection that is refused counts as closed.
            if "UNAVAILABLE" not in str(error) and "DEADLINE_EXCEEDED" not in str(error):
                answered.append(f"{address}: {name}: {error}")
    client.close()
print(json.dumps(answered))
"""


def answers(addresses: Sequence[str], user: int = 0, folder: Path | None = None) -> list[str]:
    """What Tritons at these addresses answer to that user, who may have the certificates of a folder."""
    command = [sys.executable, "-c", ATTACK, json.dumps(addresses), str(user), str(folder or "")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    answered: list[str] = json.loads(ended.stdout)
    return answered


def addresses_of(process: psutil.Process) -> list[str]:
    """Everything that a tritonserver and its children listen at."""
    listening = [
        # A socket is named as it was bound: relative to the server's folder.
        f"unix:{Path(process.cwd(), connection.laddr)}" if kind == "unix" else f"127.0.0.1:{connection.laddr.port}"
        for child in (process, *process.children(recursive=True))
        for kind in ("inet", "unix")
        for connection in child.net_connections(kind)
        if connection.laddr and (kind == "unix" or connection.status == psutil.CONN_LISTEN)
    ]
    return sorted(set(listening))


@pytest.fixture(scope="module")
def other_user() -> int:
    if os.geteuid() != 0:
        assert os.environ.get("CI") != "true", "CI runs as root"
        pytest.skip("only root can become another user: run `sudo make security` or let CI try it")
    return NOBODY


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """With two Tritons that serve one version."""
    folder = tmp_path_factory.mktemp("closed")
    world = World(folder / "home", 10, {})
    world.serve(Route(world.version()))
    with PlatformProcess(folder / "home", folder, settings={"EYAS_TRITON_REPLICAS": "2"}) as running:
        until("it answers", lambda: running.client.post(f"/v1/recommend/{NAME}", json={"user": 1}).is_success)
        yield running
    world.close()


@pytest.mark.requirement("C-07")
def test_no_other_user_reaches_a_triton_of_the_platform(platform: PlatformProcess, other_user: int) -> None:
    servers = [one for one in platform.children() if one.name() == "tritonserver"]
    assert len(servers) == 2
    for server in servers:
        addresses = addresses_of(server)
        assert len(addresses) == 1
        assert addresses[0].startswith("unix:/"), "it listens on a network"
        assert len(answers(addresses)) >= 14, "its own user gets answers"
        assert answers(addresses, other_user) == []


@pytest.mark.requirement("C-07")
def test_no_other_user_reaches_a_disposable_triton_even_in_an_open_folder(tmp_path: Path, other_user: int) -> None:
    """That of the stage verify."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o777)
    triton = disposable(tmp_path / "triton")
    (tmp_path / "triton").chmod(0o777)
    triton.start()
    try:
        addresses = addresses_of(psutil.Process(triton.pid))
        assert answers(addresses)
        assert answers(addresses, other_user) == []
    finally:
        triton.stop(grace=0)


@pytest.fixture(scope="module")
def networked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedTriton, Mapping[str, Certificates]]]:
    folder = tmp_path_factory.mktemp("networked")
    authority, stranger = Authority.create(folder / "ca"), Authority.create(folder / "other")
    triton = EmbeddedTriton(folder / "server", network=TritonNetwork("127.0.0.1", *free_ports(2), certificates=authority.server()))
    triton.start()
    yield triton, {"client": authority.client(), "stranger": stranger.client()}
    triton.stop(grace=0)


@pytest.mark.requirement("C-07")
def test_a_triton_on_a_network_answers_only_clients_with_its_certificates(
    networked: tuple[EmbeddedTriton, Mapping[str, Certificates]],
) -> None:
    triton, certificates = networked
    address = [triton.address]
    assert len(answers(address, folder=certificates["client"].folder)) >= 14
    assert answers(address) == [], "without TLS"
    assert answers(address, folder=certificates["stranger"].folder) == [], "with a certificate of another CA"
    mixed = certificates["stranger"].folder
    (mixed / "ca.crt").write_bytes((certificates["client"].folder / "ca.crt").read_bytes())
    assert answers(address, folder=mixed) == [], "with a certificate of another CA, trusting the right one"


@pytest.mark.requirement("C-07")
def test_a_client_refuses_a_server_that_does_not_prove_its_name(tmp_path: Path) -> None:
    """The certificate is of the right CA and names another server: even the server's own owner doesn't talk to it."""
    network = TritonNetwork("127.0.0.1", *free_ports(2), certificates=Authority.create(tmp_path / "ca").issue("impostor"))
    triton = EmbeddedTriton(tmp_path / "server", start_timeout=5, network=network)
    with pytest.raises(Unavailable, match="no answer within 5 s"):
        triton.start()
    triton.stop(grace=0)
