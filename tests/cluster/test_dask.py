"""The chart's Dask cluster on a real cluster: etl by NVTabular on worker pods publishes what polars publishes, also if a worker dies.

EYAS_TEST_PLATFORM_IMAGES is REGISTRY:TAG of the image eyas-nvtabular (`make image ROLE=nvtabular`), HELM the program. The last test
measures polars, one pod, one worker and two in turn, EYAS_TEST_RUNS times each (3); `pytest -s` shows rows per second of whole stages.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from kubernetes import client, config, utils

from services.executors.jobs import KubernetesExecutor
from services.executors.jobsettings import JobSettings
from services.executors.kubernetes import connect
from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import Manifest, StageSpec
from shared.contracts.strict import read
from tests.cluster.conftest import ROOT, need_a_cluster, wanted
from tests.servers.platform_process import until
from tests.support.etl_stage import assert_same_etl
from tests.training.stages.test_nvtabular_stage import FEATURES
from tests.unit.pipelines.recommender import films, spec, write

need_a_cluster()

IMAGE = "the image eyas-nvtabular: build it with `make image ROLE=nvtabular REGISTRY=... TAG=...`, and name REGISTRY:TAG"
PARTS = ("control/accounts", "dask/certificates", "dask/deployments", "jobs/settings")
ROWS, USERS, ITEMS = 2_000_000, 50_000, 2_000
USER = 65532
SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}
pytestmark = pytest.mark.timeout(3600)


class DaskRelease:
    """Installs the chart's Dask cluster in its own namespace, and runs etl as Jobs with the chart's settings. The volume is a folder of the
    node."""

    def __init__(self, helm: str, images: str, kubeconfig: str) -> None:
        registry, _, tag = images.rpartition(":")
        config.load_kube_config(kubeconfig)
        self.core, self.apps = client.CoreV1Api(), client.AppsV1Api()
        self.folder = Path(tempfile.mkdtemp(prefix="eyas-dask-"))
        self.namespace = self.folder.name.replace("_", "x").lower()
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        values = {
            "images": {"registry": registry, "tag": tag},
            "volume": {"hostPath": str(self.folder)},
            "disruptionBudgets": {"enabled": False},
            "dask": {"workers": 2, "scheduler": SMALL, "worker": SMALL},
            "jobs": {"stages": {"etl": {"cpu": "1", "memory": "6Gi"}}},
        }
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values))
        shown = [f"--show-only=templates/{part}.yaml" for part in PARTS]
        command = [helm, "template", "eyas", str(ROOT / "helm/eyas"), f"--namespace={self.namespace}", *shown]
        ended = subprocess.run([*command, "--values", self.folder / "values.yaml"], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        objects = [document for document in yaml.safe_load_all(ended.stdout) if document]
        for document in objects:
            utils.create_from_dict(client.ApiClient(), document, namespace=self.namespace)
        (jobs,) = (document["data"]["jobs.yaml"] for document in objects if document["kind"] == "ConfigMap")
        self.settings: dict[str, Any] = yaml.safe_load(jobs)
        del self.settings["owner"]
        # The clone's module of a pod, and the paths of this machine, which is the node.
        self.settings["environment"] = {"PYTHONPATH": "/opt/eyas/lib/python3.11/site-packages/eyas"}
        self.settings["volumes"].append({"name": "place", "mount": str(self.folder), "host_path": str(self.folder)})
        self.settings["images"]["polars"] = self.settings["images"]["nvtabular"]
        (self.folder / "data").mkdir()
        self.artifacts = FsspecArtifacts(str(self.folder / "artifacts"))
        self.executors: list[KubernetesExecutor] = []
        self._count = 0

    def scale(self, workers: int) -> None:
        self.apps.patch_namespaced_deployment_scale("eyas-dask-worker", self.namespace, {"spec": {"replicas": workers}})
        until(f"{workers} workers are ready", lambda: len(self.pods()) == workers and all(map(is_ready, self.pods())), 180)

    def pods(self, part: str = "worker") -> list[client.V1Pod]:
        return list(self.core.list_namespaced_pod(self.namespace, label_selector=f"app.kubernetes.io/component=dask-{part}").items)

    @property
    def sessions(self) -> list[Path]:
        return list((self.folder / "dask").glob("nvtabular-*"))

    def etl(self, engine: str, on_dask: bool = False, during: Callable[[], None] = lambda: None) -> Manifest:
        """Runs etl as a Job. `during` is called after its start."""
        self._count += 1
        attempt = f"{engine}-etl-{self._count}"
        value = self.settings if on_dask else {name: setting for name, setting in self.settings.items() if name != "dask"}
        settings = read(JobSettings, value, "the test")
        executor = KubernetesExecutor(connect(settings, os.environ["KUBECONFIG"]), settings, self.artifacts, MODULES)
        recommender = spec(self.folder / "data", features=FEATURES[:-1], resources={"etl": {"engine": engine}})
        roots, url = (str(self.folder / "data"),), self.artifacts.url
        stage = StageSpec(stage="etl", run=engine, attempt=attempt, recommender=recommender, data_roots=roots, artifacts=url)
        previous = os.umask(0)
        try:
            executor.start(stage)
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, USER, USER)
            during()

            def ended() -> bool:
                job = executor.observe(attempt)
                assert job is not None
                assert job.phase in ("waiting", "running", "succeeded"), (job, executor.log(attempt)[0])
                return job.phase == "succeeded"

            until("etl has ended", ended, 900)
        finally:
            os.umask(previous)
            executor.close()
        manifest = self.artifacts.manifest(attempt)
        assert manifest is not None
        return manifest

    def close(self) -> None:
        self.core.delete_namespace(self.namespace, grace_period_seconds=0)
        shutil.rmtree(self.folder, ignore_errors=True)


MODULES = {"etl": "eyas.pipelines.stages.etl"}


def is_ready(pod: client.V1Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and any(
        condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ()
    )


@pytest.fixture(scope="module")
def release() -> Iterator[DaskRelease]:
    helm = shutil.which(wanted("HELM", "the helm program"))
    assert helm, f"HELM: there is no {os.environ['HELM']}"
    release = DaskRelease(helm, wanted("EYAS_TEST_PLATFORM_IMAGES", IMAGE), os.environ["KUBECONFIG"])
    try:
        chance = np.random.default_rng(1)
        rows = pl.DataFrame(
            {
                "userId": chance.integers(1, USERS, ROWS),
                "movieId": np.minimum(chance.zipf(1.3, ROWS), ITEMS),
                "rating": chance.choice([2.0, 5.0], ROWS),
                "at": 1.6e9 + np.arange(ROWS) * 30.0,
            }
        )
        write(release.folder / "data", rows, films(ITEMS))
        release.scale(2)
        yield release
    finally:
        release.close()


@pytest.fixture(scope="module")
def by_polars(release: DaskRelease) -> Manifest:
    return release.etl("polars")


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_etl_on_worker_pods_publishes_what_polars_publishes(
    release: DaskRelease, by_polars: Manifest, workers: int, tmp_path: Path
) -> None:
    if workers:
        release.scale(workers)
    assert_same_etl(release.artifacts, by_polars, release.etl("nvtabular", on_dask=bool(workers)), tmp_path, several_parts=True)
    assert release.sessions == []


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("moment", ["counts-*/*", "features-*/*"])
def test_a_killed_worker_pod_changes_nothing(release: DaskRelease, by_polars: Manifest, moment: str, tmp_path: Path) -> None:
    release.scale(2)
    before = {pod.metadata.name for pod in release.pods()}

    def kill() -> None:
        until("the workers are at work", lambda: [file for folder in release.sessions for file in folder.glob(moment)], 300)
        release.core.delete_namespaced_pod(min(before), release.namespace, grace_period_seconds=0)
        assert release.sessions, "the stage ended before"

    assert_same_etl(release.artifacts, by_polars, release.etl("nvtabular", on_dask=True, during=kill), tmp_path, several_parts=True)
    until("the Deployment replaces the worker", lambda: len([pod for pod in release.pods() if is_ready(pod)]) == 2, 120)
    assert min(before) not in {pod.metadata.name for pod in release.pods()}


def test_each_measured_run_publishes_what_polars_publishes(release: DaskRelease, by_polars: Manifest, tmp_path: Path) -> None:
    """Prints the rows per second of polars, of one pod, and of one and two workers."""
    rates: dict[str, list[float]] = {"polars": [], "nvtabular in its own pod": [], "1 worker": [], "2 workers": []}
    for _ in range(int(os.environ.get("EYAS_TEST_RUNS", "3"))):
        for case, measured in rates.items():
            if workers := case.partition(" worker")[0] if "worker" in case else "":
                release.scale(int(workers))
                release.etl("nvtabular", on_dask=True)  # not measured: a worker imports its libraries at its first task
            manifest = release.etl(case.split()[0] if not workers else "nvtabular", on_dask=bool(workers))
            assert_same_etl(release.artifacts, by_polars, manifest, tmp_path, several_parts=True)
            measured.append(ROWS / manifest.metrics["etl.stage_seconds"])
    for case, measured in rates.items():
        low, middle, high = min(measured), statistics.median(measured), max(measured)
        print(f"\n{case}, {ROWS:,} rows: {middle:,.0f} rows/s ({low:,.0f} to {high:,.0f}, {len(measured)} runs)")  # noqa: T201
