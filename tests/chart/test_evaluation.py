"""PostgreSQL, NATS and object storage that the chart brings along: their secrets, their settings, and what of them can be tried here.

Their images can't be fetched here. The settings of NATS and the command of the object store are given to the real programs.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.artifacts import FsspecArtifacts
from shared.datafiles.object_store import ObjectStore
from tests.chart.cases import CASES, EVERYTHING, jobs_settings, kinds, stage, workloads
from tests.chart.helm import CHART, run, template, values
from tests.servers.nats_server import nats_server
from tests.servers.platform_process import until
from tests.servers.ports import free_port


def secret(objects: list[dict[str, Any]], name: str) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in kinds(objects, "Secret")[name]["data"].items()}


def test_every_role_is_told_where_they_are(tmp_path: Path) -> None:
    objects = template(**EVERYTHING)
    database, events, store = (secret(objects, f"eyas-{name}") for name in ("postgresql", "nats", "objects"))
    assert database["url"] == "postgresql://eyas@eyas-postgresql:5432/eyas"
    assert len(database["password"]) > 32
    assert events["url"] == f"nats://eyas:{events['password']}@eyas-nats:4222"
    assert store["AWS_ENDPOINT_URL"] == "http://eyas-objects:9000"
    found = workloads(objects)
    for part in ("eyas-control", "eyas-gateway", "eyas-migrate"):
        env = {one["name"]: one.get("valueFrom", {}).get("secretKeyRef") for one in found[part]["spec"]["containers"][0]["env"]}
        assert env["EYAS_DATABASE_URL"] == {"name": "eyas-postgresql", "key": "url"}
        assert env.get("EYAS_EVENTS") == (None if part == "eyas-migrate" else {"name": "eyas-nats", "key": "url"})
    control = found["eyas-control"]["spec"]["containers"][0]
    assert {one["name"]: one.get("value") for one in control["env"]}["EYAS_DATA_ROOTS"] == "/var/lib/eyas/data:s3://films"
    kept = {"prefix": "EYAS_ARTIFACTS_", "secretRef": {"name": "eyas-objects"}}
    assert control["envFrom"] == [{"secretRef": {"name": "eyas-objects"}}, kept]
    assert jobs_settings(objects, tmp_path).secrets == ("eyas-objects",)


def urls(objects: list[dict[str, Any]]) -> dict[str, str | None]:
    """Where each part of the platform has artifacts; nothing said is the volume."""
    found = workloads(objects)
    env = {part: found[f"eyas-{part}"]["spec"]["containers"][0]["env"] for part in ("control", "gateway")}
    return {part: next((one["value"] for one in those if one["name"] == "EYAS_ARTIFACTS_URL"), None) for part, those in env.items()}


def given_of(container: dict[str, Any], prefix: str) -> list[str]:
    return [one["secretRef"]["name"] for one in container.get("envFrom", []) if one.get("prefix", "") == prefix]


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize(
    ("given", "url", "keys", "of_data"),
    [
        ({}, None, [], []),
        (EVERYTHING, "s3://films-artifacts", ["eyas-objects"], ["eyas-objects"]),
        (EVERYTHING | {"objects": {"enabled": True, "artifacts": False}}, None, [], ["eyas-objects"]),
        ({"artifacts": {"url": "s3://kept/films", "existingSecret": "keeper"}}, "s3://kept/films", ["keeper"], []),
        ({"artifacts": {"url": "s3://kept"}, "data": {"existingSecret": "s3"}}, "s3://kept", ["s3"], ["s3"]),
        (CASES["all said"], "s3://kept/films", ["keeper"], ["s3"]),
    ],
)
def test_artifacts_are_in_a_bucket_where_it_is_said(
    given: dict[str, Any], url: str | None, keys: list[str], of_data: list[str], tmp_path: Path
) -> None:
    """For control plane, gateways and stages alike, and with keys of their own; Tritons are given files by the control plane."""
    objects = template(**given)
    assert urls(objects) == {"control": url, "gateway": url}
    found = workloads(objects)
    for part in ("control", "gateway"):
        container = found[f"eyas-{part}"]["spec"]["containers"][0]
        assert given_of(container, "EYAS_ARTIFACTS_") == keys
        assert given_of(container, "") == (of_data if part == "control" else [])
    assert "envFrom" not in found["eyas-triton"]["spec"]["containers"][0]
    job = stage(jobs_settings(objects, tmp_path))["spec"]["template"]["spec"]["containers"][0]
    assert (given_of(job, "EYAS_ARTIFACTS_"), given_of(job, "")) == (keys, of_data)


def test_where_the_bucket_is_may_stand_in_values(tmp_path: Path) -> None:
    objects = template(**CASES["all said"])
    wanted = {"EYAS_ARTIFACTS_AWS_ENDPOINT_URL": "https://store.example:9000", "EYAS_ARTIFACTS_AWS_REGION": "eu-west-3"}
    containers = [workloads(objects)[f"eyas-{part}"]["spec"]["containers"][0] for part in ("control", "gateway")]
    containers.append(stage(jobs_settings(objects, tmp_path))["spec"]["template"]["spec"]["containers"][0])
    for container in containers:
        assert wanted.items() <= {one["name"]: one.get("value") for one in container["env"]}.items()


def test_gateways_need_no_volume_where_a_database_and_a_bucket_hold_all() -> None:
    bucket = {"artifacts": {"url": "s3://kept", "existingSecret": "keeper"}}
    server = {"database": {"existingSecret": "postgres"}}
    for given, source in ((bucket | server, "emptyDir"), (bucket, "persistentVolumeClaim"), (server, "persistentVolumeClaim")):
        (state,) = [one for one in workloads(template(**given))["eyas-gateway"]["spec"]["volumes"] if one["name"] == "state"]
        assert source in state, given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"artifacts": {"url": "s3://kept"}}, "artifacts.url: the store's credentials are missing; set artifacts.existingSecret"),
        ({"artifacts": {"existingSecret": "keeper"}}, "artifacts.existingSecret: no effect without a store; set artifacts.url"),
        ({"artifacts": {"url": "https://kept"}}, "artifacts"),
    ],
)
def test_half_of_a_bucket_is_refused(given: dict[str, Any], said: str) -> None:
    assert said in run("template", "eyas", str(CHART), *values(given), fails=True)


def test_no_password_stands_outside_a_secret() -> None:
    objects = template(**EVERYTHING)
    passwords = [value for name in ("postgresql", "nats") for key, value in secret(objects, f"eyas-{name}").items() if key == "password"]
    passwords += [value for key, value in secret(objects, "eyas-objects").items() if key.startswith("AWS_") and "KEY" in key]
    assert len(set(passwords)) == 4
    told = str([one for one in objects if one["kind"] != "Secret"])
    assert not [one for one in passwords if one in told or base64.b64encode(one.encode()).decode() in told]


def test_images_are_pinned() -> None:
    found = {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in kinds(template(**EVERYTHING), "StatefulSet").values()}
    assert len(found) == 3
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*", one) for one in found)


@pytest.mark.parametrize(
    ("given", "hooks"),
    [
        ({}, None),
        ({"database": {"existingSecret": "mine"}}, "pre-install,pre-upgrade"),
        ({"postgresql": {"enabled": True}}, "pre-upgrade"),
    ],
)
def test_one_process_migrates_a_database_server_before_control_planes_start(given: dict[str, Any], hooks: str | None) -> None:
    """SQLite lies on a volume that the running control plane holds; a PostgreSQL of the chart's own isn't there before the first one."""
    job = kinds(template(**given), "Job").get("eyas-migrate")
    assert (job and job["metadata"]["annotations"]["helm.sh/hook"]) == hooks
    if job:
        container = job["spec"]["template"]["spec"]["containers"][0]
        assert container["args"] == ["migrate"]
        assert job["spec"]["template"]["spec"]["serviceAccountName"] == "default", "an account of the release isn't there yet"


def test_nats_understands_its_settings(tmp_path: Path) -> None:
    container = workloads(template(**EVERYTHING))["eyas-nats"]["spec"]["containers"][0]
    assert [one["name"] for one in container["env"]] == ["NATS_PASSWORD"]
    file = tmp_path / "nats.conf"
    file.write_text((CHART / "files/nats.conf").read_text())
    environment = os.environ | {"NATS_PASSWORD": secret(template(**EVERYTHING), "eyas-nats")["password"]}
    ended = subprocess.run([nats_server(), "--config", str(file), "-t"], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    file.write_text(file.read_text().replace("jetstream", "jetstraem"))
    assert subprocess.run([nats_server(), "--config", str(file), "-t"], env=environment, capture_output=True, check=False).returncode != 0


def test_the_object_store_serves_its_bucket_to_who_has_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = template(**EVERYTHING)
    pod = workloads(objects)["eyas-objects"]["spec"]
    keys = secret(objects, "eyas-objects")
    port = free_port()

    def here(command: list[str]) -> list[str]:
        """As the kubelet would start it, in this folder."""
        named = [re.sub(r"\$\((\w+)\)", lambda found: keys[found[1]], one) for one in command]
        moved = [re.sub(r"^(--\S+=)?/(data|tmp)", rf"\1{tmp_path}/\2", one).replace(":9000", f"127.0.0.1:{port}") for one in named]
        return [str(Path(sys.executable).parent / moved[0]), *moved[1:]]

    for one in pod["initContainers"]:
        subprocess.run(here(one["command"]), check=True)
    (tmp_path / "data/films/ratings.csv").write_text("user,item\n1,2\n")
    server = subprocess.Popen(here(pod["containers"][0]["command"]), stderr=subprocess.DEVNULL)
    try:
        store = ObjectStore(keys | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}, timeout=5.0)

        def listed() -> list[str]:
            return [entry.key for entry in store.list("s3://films/")]

        assert until("the bucket is listed", listed, 30) == ["ratings.csv"]
        for name, value in (keys | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}).items():
            monkeypatch.setenv(f"EYAS_ARTIFACTS_{name}", value)
        artifacts = FsspecArtifacts(str(urls(objects)["control"]))
        assert artifacts.read(artifacts.put(tmp_path / "data/films/ratings.csv")).startswith(b"user,item")
        stranger = ObjectStore(keys | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_SECRET_ACCESS_KEY": "guess"}, tries=1)
        with pytest.raises(Exception, match="films"):
            stranger.list("s3://films/")
    finally:
        server.terminate()
        server.wait(10)
