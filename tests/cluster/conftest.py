"""A real cluster, of whoever runs the tests: KUBECONFIG says which. Each test has a namespace of its own and removes it.

Pods of these tests run a few lines of a test, not the platform's image: they mount this working copy, the environment's
packages and the test's folder from the node, so the node must be this machine. EYAS_TEST_IMAGE is an image with Python 3.11.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from services.executors.jobs import KubernetesExecutor
from services.executors.jobsettings import JobSettings
from services.executors.kubernetes import connect
from shared.artifacts import FsspecArtifacts
from shared.contracts.strict import read

ROOT = Path(__file__).parents[2]
MISSING = "no cluster: set KUBECONFIG to that of a cluster whose node is this machine, then `make test-cluster`"
STAGE = """
import json, os, pathlib, signal, sys
path = pathlib.Path(sys.argv[sys.argv.index("--spec") + 1])
attempt = json.loads(path.read_text())["attempt"]
behaviour = pathlib.Path(os.environ["BEHAVIOUR"])
with (behaviour / (attempt + ".starts")).open("a") as stream:
    stream.write(f"{os.getpid()}\\n")
how = (behaviour / attempt).read_text()
if how == "succeeds":
    print("hello w\\u00f6rld")
elif how == "fails":
    print("something\\nno such file\\n")
    sys.exit(1)
elif how == "eats":
    kept = []
    while True:
        kept.append(bytearray(8 << 20))
elif how == "tells":
    facts = {"environment": dict(os.environ), "user": os.getuid(), "token": os.path.exists("/var/run/secrets/kubernetes.io"), "refused": []}
    for folder in ("/", "/usr"):
        try:
            pathlib.Path(folder, "written").write_text("x")
        except OSError as error:
            facts["refused"].append(error.errno)
    for folder in ("/scratch", "/tmp", "/dev/shm"):
        pathlib.Path(folder, "written").write_text("x")
    print(json.dumps(facts))
elif how == "gate":
    print("at the gate", flush=True)
    while not (behaviour / "open").exists():
        signal.sigtimedwait([signal.SIGCHLD], 0.1)
    print("through")
else:
    if how == "talks":
        print("at work", flush=True)
    signal.pause()
"""


def need_a_cluster() -> None:
    """Called by each module before its tests: said once, not once a test."""
    if not os.environ.get("KUBECONFIG"):
        if os.environ.get("EYAS_TEST_CLUSTER"):
            raise RuntimeError(MISSING)
        pytest.skip(MISSING, allow_module_level=True)


def wanted(name: str, how: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        if os.environ.get("EYAS_TEST_CLUSTER"):
            pytest.fail(f"{name} isn't set: {how}")
        pytest.skip(f"{name} isn't set: {how}")
    return value


class Place:
    """A namespace, executors of it, and stages that do what a test needs: an executor suite's bench."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        found = client.Configuration()
        config.load_kube_config(config_file=kubeconfig, client_configuration=found)
        api = client.ApiClient(found)
        self.core, self.jobs = client.CoreV1Api(api), client.BatchV1Api(api)
        self.namespace = f"eyas-test-{secrets.token_hex(4)}"
        self.behaviour = folder / "behaviour"
        for made in (folder / "modules", self.behaviour, folder / "artifacts"):
            made.mkdir()
        self.behaviour.chmod(0o777)
        (folder / "modules" / "tiny_stage.py").write_text(STAGE)
        self.folder = folder
        self.artifacts = FsspecArtifacts(str(folder / "artifacts"))
        self.executors: list[KubernetesExecutor] = []
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        self.executor = self.again()

    def settings(self, **more: Any) -> JobSettings:
        packages = sysconfig.get_paths()["purelib"]
        mounts = [
            ("code", ROOT / "shared", "/code/shared"),
            ("packages", Path(packages), "/packages"),
            ("place", self.folder, str(self.folder)),
        ]
        value = {
            "namespace": self.namespace,
            "images": {"default": os.environ.get("EYAS_TEST_IMAGE", "localhost/debian-python:3.11")},
            "gpu_images": {"tensorflow": os.environ.get("EYAS_TEST_IMAGE", "localhost/debian-python:3.11")},
            "python": "python3.11",
            "stages": {"etl": {"cpu": "300m", "memory": "192Mi"}},
            "scratch": "64Mi",
            "shared_memory": "16Mi",
            "environment": {
                "BEHAVIOUR": str(self.behaviour),
                "PYTHONPATH": f"{self.folder}/modules:/code:/packages",
                "MALLOC_ARENA_MAX": "2",
            },
            "volumes": [
                {"name": name, "mount": mount, "host_path": str(path), "read_only": name != "place"} for name, path, mount in mounts
            ],
            "grace": "2s",
            "ttl": "10m",
        }
        return read(JobSettings, value | more, "the test")

    def again(self, **more: Any) -> KubernetesExecutor:
        settings = self.settings(**more)
        executor = KubernetesExecutor(connect(settings, self.kubeconfig), settings, self.artifacts, {"etl": "tiny_stage"})
        self.executors.append(executor)
        return executor

    def behave(self, attempt: str, how: str) -> None:
        (self.behaviour / attempt).write_text(how)

    def starts(self, attempt: str) -> int:
        path = self.behaviour / f"{attempt}.starts"
        return len(path.read_text().split()) if path.exists() else 0

    def pods(self, attempt: str) -> list[str]:
        return [pod.metadata.name for pod in self.core.list_namespaced_pod(self.namespace, label_selector=f"job-name={attempt}").items]

    def close(self) -> None:
        for executor in self.executors:
            executor.close()
        self.core.delete_namespace(self.namespace, grace_period_seconds=0)


@pytest.fixture
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="eyas-cluster-"))
    folder.chmod(0o755)
    place = Place(os.environ["KUBECONFIG"], folder)
    try:
        yield place
    finally:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)


def hook(name: str) -> str:
    """A command of whoever runs the tests, such as the one that stops the API server."""
    command = os.environ.get(name, "")
    if not command:
        pytest.skip(f"{name} is not set: a command that does it to this cluster")
    return command


def run(command: str) -> None:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, json.dumps([done.stdout, done.stderr])
