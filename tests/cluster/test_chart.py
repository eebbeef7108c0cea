"""The chart on a real cluster, by a real Helm: install, a run as real Jobs, a recommendation over HTTP, who may do what, an upgrade and its
way back while users ask, and nothing left behind.

EYAS_TEST_PLATFORM_IMAGES is REGISTRY:TAG of the images (`make image`), HELM the program, EYAS_TEST_CHART another chart than the one
here (`make release`: "oci://REGISTRY/charts/eyas --version 0.1.0"). What each step took is printed.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from kubernetes import client, config
from kubernetes.stream import stream

from demo import datasets, specs
from services.store.engine import open_engine, sqlite_url
from services.store.registry import SqlRegistry
from services.triton.certificates import Certificates
from services.triton.client import Client as TritonClient
from services.wiring.backup import restore
from shared.artifacts import FsspecArtifacts
from shared.testing.threads import Threads
from tests.cluster import objects
from tests.cluster.conftest import wanted
from tests.cluster.objects import Right
from tests.cluster.traffic import Traffic
from tests.servers.platform_process import checked, until
from tests.servers.s3_server import S3Server
from tests.support.platform_world import spec, write_world

ROOT = Path(__file__).parents[2]
USER = 65532
IMAGES = "the platform's images: build them with `make image REGISTRY=... TAG=...`, and name them by EYAS_TEST_PLATFORM_IMAGES=REGISTRY:TAG"
NEWER = (
    "the control image of a release with one more migration: build it from tests/support/newer_release/Containerfile under the same "
    "registry and tag, and name it by EYAS_TEST_NEWER_CONTROL=eyas-control-newer"
)
CHART = os.environ.get("EYAS_TEST_CHART", str(ROOT / "helm/eyas")).split()
TOKEN = "/var/run/secrets/kubernetes.io"
SMALL = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


class Release:
    """One installation in a namespace of its own; its volume is a folder of this machine, which must be the node."""

    def __init__(self, helm: str, images: str, kubeconfig: str) -> None:
        self.helm = helm
        self.registry, _, self.tag = images.rpartition(":")
        self.namespace = f"eyas-chart-{secrets.token_hex(3)}"
        self.volume = Path(tempfile.mkdtemp(prefix="eyas-chart-"))
        self.data = self.volume / "data"
        self.data.mkdir()
        config.load_kube_config(kubeconfig)
        self.api = client.ApiClient()
        self.core, self.jobs, self.apps = client.CoreV1Api(), client.BatchV1Api(), client.AppsV1Api()
        self.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=self.namespace)))
        self.before = objects.present(self.api, None)

    def run(self, *arguments: str) -> str:
        command = [self.helm, *arguments, "--namespace", self.namespace]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\n{self.told()}"
        return ended.stdout

    def left(self) -> set[tuple[str, str]]:
        """Everything of the namespace but what every one has, and what lies in none and wasn't there before."""
        here = objects.present(self.api, self.namespace) - {("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")}
        own = {one for one in here if one[0] == "secrets" and one[1].startswith("default-token-")}
        return here - own | objects.present(self.api, None) - self.before

    def install(self, **more: Any) -> str:
        for one in (self.volume, *self.volume.rglob("*")):
            os.chown(one, USER, USER)
        stage = {"cpu": "500m", "memory": "3Gi"}
        values = {
            "images": {"registry": self.registry, "tag": self.tag},
            "volume": {"hostPath": str(self.volume)},
            "disruptionBudgets": {"enabled": False},  # this cluster has no policy/v1
            "control": {"resources": SMALL},
            "gateway": {"resources": SMALL},
            "triton": {
                "replicas": 2,
                "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
                "tls": {"rotateAfter": 5},
            },
            # A whole core for what is measured: half of one is given in slices, and waiting for the next one is latency.
            "jobs": {"stages": dict.fromkeys(("etl", "train", "evaluate", "export"), stage) | {"verify": stage | {"cpu": "1"}}},
        } | more
        file = self.volume / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        return self.run("install", "eyas", *CHART, "--values", str(file), "--wait", "--timeout", "10m")

    @contextmanager
    def client(self, part: str) -> Iterator[httpx.Client]:
        service = self.core.read_namespaced_service(f"eyas-{part}", self.namespace)
        secret = self.core.read_namespaced_secret("eyas-token", self.namespace)
        headers = {"Authorization": "Bearer " + base64.b64decode(secret.data["token"]).decode()}
        with httpx.Client(base_url=f"http://{service.spec.cluster_ip}:8080", headers=headers, timeout=30) as found:

            def routed() -> bool:
                """A pod is ready a moment before the node knows the way to it, and until then somebody else may answer at its address."""
                try:
                    return found.get("/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            until_told(self, f"the Service of {part} leads to it", routed, 60)
            yield found

    def pods(self) -> dict[str, str]:
        return {one.metadata.name: one.status.phase for one in self.core.list_namespaced_pod(self.namespace).items}

    def tritons(self) -> dict[str, str]:
        """The addresses of those that are ready and stay."""
        found = self.core.list_namespaced_pod(self.namespace, label_selector="app.kubernetes.io/component=triton").items
        staying = [one for one in found if one.metadata.deletion_timestamp is None and one.status.container_statuses]
        return {one.metadata.name: one.status.pod_ip for one in staying if all(c.ready for c in one.status.container_statuses)}

    def log(self, pod: str) -> str:
        return str(self.core.read_namespaced_pod_log(pod, self.namespace))

    def certificates(self, part: str, folder: Path) -> Certificates:
        """Those of Tritons (`server`) or of their clients, as files."""
        folder.mkdir()
        for name, content in self.core.read_namespaced_secret(f"eyas-triton-{part}", self.namespace).data.items():
            (folder / name).write_bytes(base64.b64decode(content))
        return Certificates(folder)

    def serving(self) -> set[str]:
        """Gateways and Tritons, by their pods."""
        return {name for name in self.pods() if name.startswith(("eyas-gateway-", "eyas-triton-"))}

    def cpu(self) -> dict[str, str]:
        """What each of them is given, by what the cluster was told last."""
        found = {part: self.apps.read_namespaced_deployment(f"eyas-{part}", self.namespace) for part in ("gateway", "triton")}
        return {part: one.spec.template.spec.containers[0].resources.requests["cpu"] for part, one in found.items()}

    def revision(self) -> str:
        """The revision of the database, which is SQLite on the volume."""
        with closing(sqlite3.connect(f"file:{self.volume}/eyas.db?mode=ro", uri=True)) as connection:
            return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])

    def job_names(self) -> list[str]:
        return [one.metadata.name for one in self.jobs.list_namespaced_job(self.namespace).items]

    def told(self) -> str:
        """What everybody said, for a failure's message."""
        lines = [f"pods: {self.pods()}"]
        for name in self.pods():
            try:
                lines += [f"--- {name}", self.core.read_namespaced_pod_log(name, self.namespace, tail_lines=25)]
            except client.ApiException as error:
                lines.append(f"no log: {error.reason}")
        return "\n".join(lines)

    def remove(self) -> None:
        self.core.delete_namespace(self.namespace)
        shutil.rmtree(self.volume, ignore_errors=True)


@pytest.fixture
def release() -> Iterator[Release]:
    kubeconfig = wanted("KUBECONFIG", "a cluster whose node is this machine")
    helm = shutil.which(wanted("HELM", "the helm program"))
    assert helm, f"HELM: there is no {os.environ['HELM']}"
    found = Release(helm, wanted("EYAS_TEST_PLATFORM_IMAGES", IMAGES), kubeconfig)
    try:
        yield found
    finally:
        found.remove()


class Clock:
    def __init__(self) -> None:
        self.took: dict[str, float] = {}

    @contextmanager
    def measures(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.took[what] = time.monotonic() - began

    def say(self, title: str) -> None:
        print(f"\n{title}: " + ", ".join(f"{what} {seconds / 60:.2f} min" for what, seconds in self.took.items()))  # noqa: T201


def run_to_promotion(
    release: Release, document: dict[str, Any], seconds: float, looks: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """`looks` is called again and again on the way."""
    with release.client("control") as control:
        checked(control.post("/v1/recommenders", json=document))
        (run,) = checked(control.get("/v1/recommenders/movies/runs"))["items"]

        def promoted() -> bool:
            looks()
            state = checked(control.get(f"/v1/runs/{run['id']}"))
            assert state["state"] not in ("rejected", "failed", "cancelled"), f"{state}\n{release.told()}"
            rollout = control.get(f"/v1/rollouts/{run['id']}-rollout")
            return rollout.is_success and rollout.json()["state"] == "promoted"

        until_told(release, "the first version is promoted", promoted, seconds)
        return dict(checked(control.get(f"/v1/runs/{run['id']}")))


def until_told(release: Release, what: str, probe: Callable[[], Any], seconds: float) -> Any:
    try:
        return until(what, probe, seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{release.told()}") from None


def answer_of(release: Release, user: int) -> dict[str, Any]:
    with release.client("gateway") as gateway:

        def answered() -> dict[str, Any] | None:
            found = gateway.post("/v1/recommend/movies", json={"user": user, "k": 5})
            return found.json() if found.is_success and found.json()["fallback"] is None else None

        return dict(until_told(release, "the gateway answers with the model", answered, 60))


def hits_of_a_click(release: Release, user: int) -> int:
    """On the first item of an answer. The spec's users click within half a second, which a busy machine may be too slow for."""
    answer = answer_of(release, user)
    event = {"recommender": "movies", "user": user, "item": answer["items"][0]["item"], "value": 5, "request_id": answer["request_id"]}
    with release.client("gateway") as gateway:
        return int(checked(gateway.post("/v1/events", json={"events": [event]}))["hits"])


def uninstall(release: Release) -> None:
    release.run("uninstall", "eyas", "--wait", "--timeout", "5m")
    until_told(release, "no Job and no pod is left", lambda: not release.pods() and not release.job_names(), 120)
    try:
        until("nothing is left that wasn't there before", lambda: not release.left(), 60)
    except AssertionError as error:
        raise AssertionError(f"{error}: {sorted(release.left())}") from None


@pytest.mark.requirement("C-07")
@pytest.mark.timeout(1200)
def test_a_bare_installation_has_the_declared_rights_and_leaves_nothing(release: Release) -> None:
    """Of all that the chart makes, before any run: it needs no image of stages."""
    clock = Clock()
    with clock.measures("install"):
        release.install()
    with clock.measures("helm test"):
        assert "Phase:          Succeeded" in release.run("test", "eyas", "--timeout", "5m")
    with clock.measures("who may do what"):
        _rights_are_the_declared_role_and_no_more(release)
    with clock.measures("uninstall"):
        uninstall(release)
    clock.say("bare")


# The Kubernetes client leaves the socket of an exec open, whatever is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.requirement("C-02", "C-07")
@pytest.mark.timeout(1800)
def test_installed_by_helm_a_run_as_jobs_becomes_an_answer_and_nothing_is_left(release: Release, tmp_path: Path) -> None:
    clock = Clock()
    write_world(release.data)
    with clock.measures("install"):
        said = release.install()
    assert "port-forward service/eyas-control" in said
    with clock.measures("run"):
        stages = Stages(release)
        run = run_to_promotion(release, _on_the_volume(spec(release.data), release), 900, stages.look)
    assert run["state"] == "registered"
    assert len(release.job_names()) == 6
    stages.have_no_token()
    _every_role_runs_from_its_own_image(release)
    with clock.measures("first answer"):
        answer = answer_of(release, 3)
    assert answer["version"] == 1
    assert len(answer["items"]) == 5
    until_told(release, "what is clicked in time is a hit", lambda: hits_of_a_click(release, 3) == 1, 60)
    with release.client("gateway") as gateway:
        assert gateway.get("/v1/recommenders").status_code == 404
    _upgrade_keeps_the_token(release)
    with clock.measures("a Triton's replacement"):
        _one_triton_goes_and_nobody_notices(release, release.certificates("client", tmp_path / "client"))
    with clock.measures("new certificates"):
        _new_certificates_restart_every_triton_and_nobody_notices(release, tmp_path)
    with clock.measures("uninstall"):
        uninstall(release)
    clock.say("small world")


@pytest.mark.requirement("C-02", "C-07")
@pytest.mark.timeout(1800)
def test_artifacts_in_a_bucket_become_an_answer(release: Release) -> None:
    """The store is a real one beside the cluster; on the volume there is no artifact."""
    clock = Clock()
    write_world(release.data)
    (node,) = release.core.list_node().items
    (address,) = (one.address for one in node.status.addresses if one.type == "InternalIP")
    with tempfile.TemporaryDirectory(prefix="eyas-s3-") as folder, closing(S3Server(Path(folder), "1s", address)) as store:
        kept = store.buckets / "kept"
        kept.mkdir()
        metadata = client.V1ObjectMeta(name="keeper")
        release.core.create_namespaced_secret(release.namespace, client.V1Secret(metadata=metadata, string_data=store.environment))
        with clock.measures("install"):
            release.install(artifacts={"url": "s3://kept/films", "existingSecret": "keeper"})
        with clock.measures("run"):
            run_to_promotion(release, _on_the_volume(spec(release.data), release), 900)
        with clock.measures("first answer"):
            assert answer_of(release, 3)["version"] == 1
        stages = {one.name.split("-")[-2] for one in (kept / "films/manifests").iterdir()}
        assert stages == {"etl", "train", "evaluate", "refit", "export", "verify"}
        assert len([one for one in (kept / "films/blobs").rglob("*") if one.is_file()]) > 10
        assert not list(release.volume.rglob("blobs"))
        release.core.delete_namespaced_secret("keeper", release.namespace)
        with clock.measures("uninstall"):
            uninstall(release)
    clock.say("artifacts in a bucket")


@pytest.mark.requirement("C-02")
@pytest.mark.timeout(1800)
def test_the_demos_run_as_real_jobs_to_a_registered_version(release: Release) -> None:
    clock = Clock()
    world = datasets.world_of(1)
    files = datasets.make(world, release.data, time.time(), 1)
    with clock.measures("install"):
        release.install()
    with clock.measures("run"):
        run = run_to_promotion(release, _on_the_volume(specs.learning_from(files.full, files.items), release), 1500)
    assert run["state"] == "registered"
    with clock.measures("first answer"):
        assert answer_of(release, int(world.user_ids[0]))["version"] == 1
    with clock.measures("uninstall"):
        uninstall(release)
    clock.say("the demo's data")


@pytest.mark.requirement("C-07", "U-11")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("migrates", [False, True])
def test_an_upgrade_and_its_way_back_fail_no_request(release: Release, migrates: bool) -> None:
    """Of gateways and Tritons at once, each two: every pod of both is another one in the end, twice. The newer release may have one more
    migration; after the rollback, older code works on its tables."""
    newer = ["--set", f"images.control={wanted('EYAS_TEST_NEWER_CONTROL', NEWER)}"] if migrates else []
    clock = Clock()
    write_world(release.data)
    with clock.measures("install"):
        release.install(gateway={"replicas": 2, "resources": SMALL})
    with clock.measures("run"):
        run_to_promotion(release, _on_the_volume(spec(release.data), release), 900)
    assert answer_of(release, 3)["version"] == 1
    with release.client("gateway") as gateway:
        url, headers = str(gateway.base_url), dict(gateway.headers)
    first = release.serving()
    with Traffic(url, {"Authorization": headers["authorization"]}, rate=50) as traffic:
        until("users ask", lambda: traffic.asked > 250, 120)
        with clock.measures("upgrade"):
            release.run("upgrade", "eyas", *CHART, *CHANGED, *newer, "--reuse-values", "--wait", "--timeout", "10m")
            second = until_told(release, "all old pods are gone", lambda: _changed(release, first), 300)
        upgraded = traffic.said()
        assert release.cpu() == {"gateway": "110m", "triton": "120m"}
        assert release.revision() == ("notes" if migrates else "audit_export")
        with clock.measures("rollback"):
            release.run("rollback", "eyas", "1", "--wait", "--timeout", "10m")
            until_told(release, "all pods of the upgrade are gone", lambda: _changed(release, second), 300)
        assert release.cpu() == {"gateway": "100m", "triton": "100m"}
        asked = traffic.asked
        until("users go on", lambda: traffic.asked > asked + 250, 120)
    assert release.revision() == ("notes" if migrates else "audit_export")
    with release.client("control") as control:
        assert control.get("/v1/recommenders/movies").json()["serving"]["stable"] == 1
    print(f"\nafter the upgrade: {upgraded}\nafter the rollback: {traffic.said()}")  # noqa: T201
    assert not traffic.failed, f"{traffic.said()}\n" + "\n".join(traffic.failed)
    with clock.measures("uninstall"):
        uninstall(release)
    clock.say("upgrade under traffic")


CHANGED = ("--set", "gateway.resources.requests.cpu=110m", "--set", "triton.resources.requests.cpu=120m")


def _changed(release: Release, before: set[str]) -> set[str] | None:
    """Who serves now, when none of those from before is left."""
    now = release.serving()
    return now if len(now) == 4 and not now & before and not set(release.pods()) & before else None


@pytest.mark.requirement("U-11")
@pytest.mark.timeout(1200)
def test_the_job_of_the_cronjob_backs_up_while_users_ask(release: Release, tmp_path: Path) -> None:
    """The Job is made from the CronJob's template, since this cluster has no batch/v1 CronJob; the claim is a folder of the node."""
    write_world(release.data)
    release.install()
    run_to_promotion(release, _on_the_volume(spec(release.data), release), 900)
    backups = release.volume / "backups"
    backups.mkdir()
    os.chown(backups, USER, USER)
    shown = release.run(
        *("template", "eyas", *CHART, "--values", str(release.volume / "values.yaml"), "--show-only", "templates/backup/cronjob.yaml"),
        *("--set", "backup.schedule=@daily,backup.existingClaim=backups"),
    )
    job = yaml.safe_load(shown)["spec"]["jobTemplate"] | {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "first-backup"}}
    (volume,) = (volume for volume in job["spec"]["template"]["spec"]["volumes"] if volume["name"] == "backups")
    volume["hostPath"] = {"path": str(backups)}
    del volume["persistentVolumeClaim"]
    with release.client("gateway") as gateway:
        url, headers = str(gateway.base_url), dict(gateway.headers)
    with Traffic(url, {"Authorization": headers["authorization"]}, rate=50) as traffic:
        until("users ask", lambda: traffic.asked > 250, 120)
        release.jobs.create_namespaced_job(release.namespace, job)
        until_told(
            release, "the backup is made", lambda: release.jobs.read_namespaced_job("first-backup", release.namespace).status.succeeded, 300
        )
    assert not traffic.failed, "\n".join(traffic.failed)
    home = tmp_path / "home"
    restore({"home": home}, str(backups), None, False, lambda _: None)
    engine = open_engine(sqlite_url(home / "eyas.db"))
    (version,) = SqlRegistry(engine).list("movies")
    engine.dispose()
    assert all(FsspecArtifacts(str(home / "artifacts")).holds(file) for file in version.files.values())


class Stages:
    """Looks into stages' pods while they run, and at what they were made of."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._seen: dict[str, str] = {}
        """What lies where a token would, by stage."""

    def look(self) -> None:
        for pod in self._pods():
            stage = pod.metadata.labels["eyas.dev/stage"]
            if stage in self._seen or pod.status.phase != "Running":
                continue
            ask = ["python", "-c", f"import os; print(os.path.exists({TOKEN!r}), 'KUBERNETES_SERVICE_HOST' in os.environ, os.getuid())"]
            try:
                asked = stream(
                    self._release.core.connect_get_namespaced_pod_exec,
                    pod.metadata.name,
                    self._release.namespace,
                    container="stage",
                    command=ask,
                    stderr=False,
                    stdin=False,
                    stdout=True,
                    tty=False,
                    _preload_content=False,
                )
            except client.ApiException:  # it has ended meanwhile
                continue
            with closing(asked):
                asked.run_forever(timeout=20)
                told = asked.read_all().strip()
                asked.sock.shutdown()
            if told:
                self._seen[stage] = told

    def have_no_token(self) -> None:
        assert self._seen, "no stage was looked into while it ran"
        assert {told.split()[0] for told in self._seen.values()} == {"False"}, self._seen
        assert {told.split()[2] for told in self._seen.values()} == {str(USER)}, self._seen
        pods = self._pods()
        assert {pod.spec.service_account_name for pod in pods} == {"eyas-stages"}
        assert {pod.metadata.labels["eyas.dev/stage"] for pod in pods} == {"etl", "train", "evaluate", "refit", "export", "verify"}
        for pod in pods:
            assert pod.spec.automount_service_account_token is False
            assert not [one.name for one in pod.spec.volumes if one.secret or one.projected], pod.metadata.name
            mounts = {one.mount_path for container in pod.spec.containers for one in container.volume_mounts}
            assert mounts == {"/var/lib/eyas", "/scratch", "/tmp", "/dev/shm"}, pod.metadata.name

    def _pods(self) -> list[client.V1Pod]:
        chosen = "app.kubernetes.io/component=stage"
        return list(self._release.core.list_namespaced_pod(self._release.namespace, label_selector=chosen).items)


def _every_role_runs_from_its_own_image(release: Release) -> None:
    found: dict[str, set[str]] = {}
    for pod in release.core.list_namespaced_pod(release.namespace).items:
        labels = pod.metadata.labels
        part = labels.get("eyas.dev/stage", labels["app.kubernetes.io/component"])
        found.setdefault(part, set()).update(container.image for container in pod.spec.containers)
    of = {"control": "control", "gateway": "control", "triton": "triton", "verify": "triton"}
    stages = dict.fromkeys(("etl", "train", "evaluate", "refit", "export"), "pipelines")
    assert found == {part: {f"{release.registry}/eyas-{role}:{release.tag}"} for part, role in (of | stages).items()}


def _rights_are_the_declared_role_and_no_more(release: Release) -> None:
    """Every verb on every kind that the cluster knows, here and in another namespace, asked of the cluster as each account."""
    known = list(objects.kinds(release.api))
    anybody = {Right("authorization.k8s.io", one, "create") for one in ("selfsubjectaccessreviews", "selfsubjectrulesreviews")}
    (role,) = client.RbacAuthorizationV1Api().list_namespaced_role(release.namespace).items
    everywhere, named = objects.declared(release.api.sanitize_for_serialization(role.rules))
    assert everywhere
    assert everywhere | named.keys() <= {Right(one.group, one.name, verb) for one in known for verb in one.verbs | {"list"}}
    control = objects.acting_as(release.api, release.namespace, "eyas-control")
    assert objects.table(control, known, release.namespace) == anybody | everywhere
    for right, names in named.items():
        assert all(objects.may(control, right, release.namespace, name) for name in names)
        assert not objects.may(control, right, release.namespace, "eyas-gateway")
    assert objects.table(control, known, "default") == anybody, "nothing in another namespace"
    stages = objects.acting_as(release.api, release.namespace, "eyas-stages")
    assert objects.table(stages, known, release.namespace) == anybody
    pods = release.core.list_namespaced_pod(release.namespace).items
    accounts = {(one.metadata.labels["app.kubernetes.io/component"], one.spec.service_account_name) for one in pods}
    assert accounts == {("control", "eyas-control"), ("gateway", "eyas-stages"), ("triton", "eyas-stages")}


@contextmanager
def users_who_notice_nothing(release: Release) -> Iterator[None]:
    """Users ask all the time, and every answer is the model's."""
    answers: list[str] = []
    with release.client("gateway") as gateway:

        def ask() -> None:
            while not users.over.wait(0.02):
                answer = gateway.post("/v1/recommend/movies", json={"user": len(answers) % 60 + 1, "k": 5})
                answers.append(answer.text if not answer.is_success else str(answer.json()["fallback"]))

        users = Threads(ask)
        with users:
            yield
    assert len(answers) > 60
    assert set(answers) == {"None"}, Counter(answers)
    print(f"\n{len(answers)} requests, none failed")  # noqa: T201


def _one_triton_goes_and_nobody_notices(release: Release, certificates: Certificates) -> None:
    before = release.tritons()
    assert len(before) == 2, f"two ready ones: {release.told()}"
    with users_who_notice_nothing(release):
        gone = min(before)
        release.core.delete_namespaced_pod(gone, release.namespace)

        def replaced() -> dict[str, str]:
            return {name: address for name, address in release.tritons().items() if name not in before}

        ((_, address),) = until_told(release, "a new Triton is ready", replaced, 180).items()
        with closing(TritonClient(f"{address}:8001", certificates=certificates)) as triton:
            versions = [version for _, version in triton.successes()]
        assert versions == ["1"], "it is ready when it has its versions, not before"
        with closing(TritonClient(f"{address}:8001")) as stranger:
            assert not stranger.ready(), "it answers without a certificate"
        until_told(release, "the old one is gone", lambda: gone not in release.pods(), 120)


def _new_certificates_restart_every_triton_and_nobody_notices(release: Release, folder: Path) -> None:
    before = {part: release.certificates(part, folder / f"before-{part}") for part in ("server", "client")}
    servers = release.tritons()
    with users_who_notice_nothing(release):
        release.run("upgrade", "eyas", *CHART, "--reuse-values", "--set-string=triton.tls.issue=2", "--timeout=5m")

        def restarted() -> bool:
            return all("restarting with new certificates" in release.log(name) for name in servers)

        until_told(release, "both Tritons restarted", restarted, 300)
        until_told(release, "both are ready", lambda: release.tritons() == servers, 120)
        time.sleep(5)
    after = {part: release.certificates(part, folder / f"after-{part}") for part in ("server", "client")}
    for part in ("server", "client"):
        for name, same in (("ca.crt", True), ("tls.crt", False), ("tls.key", False)):
            assert ((before[part].folder / name).read_bytes() == (after[part].folder / name).read_bytes()) is same


def _on_the_volume(document: dict[str, Any], release: Release) -> dict[str, Any]:
    """The spec as pods read it: the volume is mounted elsewhere there."""
    return dict(json.loads(json.dumps(document).replace(str(release.volume), "/var/lib/eyas")))


def _upgrade_keeps_the_token(release: Release) -> None:
    before = release.core.read_namespaced_secret("eyas-token", release.namespace).data
    release.run("upgrade", "eyas", *CHART, "--reuse-values", "--wait", "--timeout", "5m")
    assert release.core.read_namespaced_secret("eyas-token", release.namespace).data == before
