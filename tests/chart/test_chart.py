"""What the chart renders: accepted by real schemas, by either Helm, and what the platform understands."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from docs.gpu_requests import GPU_IMAGES, PLATFORMS
from eyas import __version__
from services.executors.jobspec import MEETING_PORT
from services.settings import Settings
from services.triton.addresses import folder_of
from services.triton.certificates import SERVER_NAME
from services.wiring.parts import role_rules
from shared.domain.access import Role, RoleRule
from shared.domain.errors import Invalid
from tests.chart import crds
from tests.chart.cases import CASES, VERSIONS, jobs_settings, kinds, pods, stage, workloads
from tests.chart.helm import CHART, helm, rendered, run, template, values


def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in run("lint", "--strict", str(CHART))


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_every_kubernetes_understands_every_object(case: str, subtests: pytest.Subtests) -> None:
    objects = template(**CASES[case])
    assert len(kinds(objects, "Deployment")) == (5 if "dask" in CASES[case] else 3)
    for one in objects:
        with subtests.test(kind=one["kind"], name=one["metadata"]["name"]):
            if crds.is_custom(one):
                crds.validate(one)
            for version in () if crds.is_custom(one) else VERSIONS:
                kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize(("case", "kind"), [("everything", "Deployment"), ("everything", "PodMonitor"), ("exposed", "HTTPRoute")])
def test_an_unknown_field_is_noticed(case: str, kind: str) -> None:
    manifest = next(manifest for manifest in template(**CASES[case]) if manifest["kind"] == kind)
    manifest["spec"]["replica"] = 3
    with pytest.raises((kubernetes_validate.ValidationError, jsonschema.ValidationError)):
        crds.validate(manifest) if crds.is_custom(manifest) else kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_helm_3_makes_the_same_of_it(case: str) -> None:
    """But for what is random."""

    def sure(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted((one for one in objects if one["kind"] != "Secret"), key=lambda one: (one["kind"], one["metadata"]["name"]))

    assert sure(template(**CASES[case], program=helm(3))) == sure(template(**CASES[case]))


def test_helm_3_finds_nothing_wrong_and_refuses_what_helm_4_refuses() -> None:
    assert "0 chart(s) failed" in run("lint", "--strict", str(CHART), program=helm(3))
    assert "scrach" in run("template", "eyas", str(CHART), *values({"jobs": {"settings": {"scrach": "1Gi"}}}), program=helm(3), fails=True)
    assert "set images.registry" in run("template", "eyas", str(CHART), *values({"image": {"tag": "7"}}), program=helm(3), fails=True)


@pytest.mark.parametrize("case", CASES)
def test_the_platform_understands_the_settings_of_its_jobs(case: str, tmp_path: Path) -> None:
    objects = template(**CASES[case])
    settings = jobs_settings(objects, tmp_path)
    pod = pods(objects)["eyas-control"]
    assert settings.namespace == "there"
    assert settings.service_account in kinds(objects, "ServiceAccount")
    tag = str(CASES[case].get("images", {}).get("tag", __version__))
    place = "registry.example/team/" if tag == "7" else ""
    stages = f"{place}eyas-pipelines:{tag}"
    wanted = {"polars": stages, "tensorflow": stages, "triton": f"{place}eyas-triton{'-gpu' * (case == 'gpu')}:{tag}"}
    dask = CASES[case].get("dask")
    wanted |= {"nvtabular": f"{place}{dask.get('image', 'eyas-nvtabular')}:{tag}"} if dask else {}
    assert settings.images == wanted
    for_gpus = {"all said": {"torch": "stages-gpu"}, "gpu": GPU_IMAGES}.get(case, {})
    assert settings.gpu_images == {engine: f"{place}{image}:{tag}" for engine, image in for_gpus.items()}
    assert pods(objects)["eyas-triton"]["containers"][0]["image"] == settings.images["triton"]
    for part in ("eyas-control", "eyas-gateway"):
        assert pods(objects)[part]["containers"][0]["image"] == f"{place}eyas-control:{tag}"
    assert (settings.identity.user, settings.identity.group) == (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"])
    assert settings.owner is not None
    assert settings.owner.name in kinds(objects, "Deployment")
    (volume,) = [one for one in settings.volumes if one.name == "state"]
    (state,) = [one for one in pod["volumes"] if one["name"] == "state"]
    assert volume.mount == "/var/lib/eyas"
    assert volume.host_path == state.get("hostPath", {}).get("path")
    assert volume.claim == state.get("persistentVolumeClaim", {}).get("claimName")


def test_what_the_chart_does_not_decide_is_handed_on(tmp_path: Path) -> None:
    settings = jobs_settings(template(jobs={"settings": {"ttl": "1h", "environment": {"A": "b"}}}), tmp_path)
    assert settings.ttl.total_seconds() == 3600
    assert settings.environment == {"A": "b"}


def test_services_choose_the_pods_of_their_part_and_name_the_protocol() -> None:
    objects = template()
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in kinds(objects, "Deployment").items()}
    for name, service in kinds(objects, "Service").items():
        chosen = [part for part, found in labels.items() if service["spec"]["selector"].items() <= found.items()]
        assert chosen == ([] if name == "eyas-ranks" else [name.replace("tritons", "triton")])
        assert all(port["protocol"] == "TCP" for port in service["spec"]["ports"])
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize("case", CASES)
def test_every_triton_is_found_by_name_and_by_its_own_folder(case: str) -> None:
    objects = template(**CASES[case])
    deployment, service = kinds(objects, "Deployment")["eyas-triton"], kinds(objects, "Service")["eyas-tritons"]
    wanted = {"gpu": 2, "everything": None}.get(case, CASES[case].get("triton", {}).get("replicas", 1))
    assert deployment["spec"].get("replicas") == wanted
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    for part in ("eyas-control", "eyas-gateway"):
        env = {one["name"]: one.get("value") for one in pods(objects)[part]["containers"][0]["env"]}
        assert env["EYAS_TRITON"] == "dns:eyas-tritons:8001"
        assert Settings(triton=env["EYAS_TRITON"]).triton_alone is False
    (container,) = pods(objects)["eyas-triton"]["containers"]
    address = f"{{ip}}:{service['spec']['ports'][0]['port']}"
    assert container["args"][:2] == ["--home", f"/var/lib/eyas/triton/{folder_of(address).format(ip='$(POD_IP)')}"]
    (place,) = [one for one in container["env"] if one["name"] == "POD_IP"]
    assert place["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/", "livenessProbe": "/", "readinessProbe": "/ready"}


@pytest.mark.requirement("C-02", "C-07", "G-27")
@pytest.mark.parametrize("case", CASES)
def test_ranks_of_a_training_find_each_other(case: str, tmp_path: Path) -> None:
    objects = template(**CASES[case])
    settings = jobs_settings(objects, tmp_path)
    jobs = {"one": stage(settings), "several": stage(settings, framework="torch", train={"processes": 2})}
    labels = {name: job["spec"]["template"]["metadata"]["labels"] for name, job in jobs.items()}
    assert {name: job["spec"]["template"]["spec"].get("subdomain") for name, job in jobs.items()} == {"one": None, "several": "eyas-ranks"}

    def chosen(selector: dict[str, Any], pod: str) -> bool:
        return bool(selector.items() <= labels[pod].items())

    service = kinds(objects, "Service")["eyas-ranks"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True), "rank 0 has an address before it listens"
    assert [one["port"] for one in service["ports"]] == [MEETING_PORT]
    assert (chosen(service["selector"], "several"), chosen(service["selector"], "one")) == (True, False)


def test_other_jobs_settings_restart_the_control_plane() -> None:
    def checksum(**given: Any) -> str:
        control = kinds(template(**given), "Deployment")["eyas-control"]
        return str(control["spec"]["template"]["metadata"]["annotations"]["checksum/jobs"])

    assert checksum() == checksum()
    assert checksum() != checksum(jobs={"settings": {"ttl": "1h"}})


def test_a_token_is_made_unless_a_secret_is_named() -> None:
    made = kinds(template(), "Secret")["eyas-token"]
    rendered.cache_clear()
    assert made["data"]["token"] != kinds(template(), "Secret")["eyas-token"]["data"]["token"]
    assert "eyas-token" not in kinds(template(token={"existingSecret": "mine"}), "Secret")


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_the_control_plane_alone_can_load_and_unload(case: str) -> None:
    """Gateways reach the same port of Triton, and don't have what opens its repository."""
    objects = template(**CASES[case])
    assert len(base64.b64decode(kinds(objects, "Secret")["eyas-triton"]["data"]["key"])) > 32
    knowing = []
    for name, one in workloads(objects).items():
        env = {
            wanted_value["name"]: wanted_value.get("valueFrom")
            for each in one["spec"]["containers"]
            for wanted_value in each.get("env", [])
        }
        if "eyas-triton'" in str(one):
            knowing.append(name)
            assert env["EYAS_TRITON_KEY"] == {"secretKeyRef": {"name": "eyas-triton", "key": "key"}}
    assert knowing == ["eyas-control", "eyas-triton"]


@pytest.mark.requirement("C-07")
@pytest.mark.parametrize("case", CASES)
def test_connections_to_triton_are_mutual_tls(case: str, tmp_path: Path) -> None:
    """A server's certificate names Triton, a client's doesn't; no pod mounts the CA's key."""
    objects = template(**CASES[case])
    mounted = {}
    for name, pod in pods(objects).items():
        for volume in pod["volumes"]:
            secret = volume.get("secret", {})
            assert secret.get("secretName") != "eyas-triton-ca"
            if volume["name"] == "triton-tls":
                assert secret["defaultMode"] == 0o440
                (container,) = pod["containers"]
                (mount,) = [each for each in container["volumeMounts"] if each["name"] == "triton-tls"]
                mounted[name] = secret["secretName"]
                folder = {each["name"]: each.get("value") for each in container["env"]}.get("EYAS_TRITON_TLS") or next(
                    each.removeprefix("--tls=") for each in container["args"] if each.startswith("--tls=")
                )
                assert mount["mountPath"] == folder
    assert mounted == {"eyas-control": "eyas-triton-client", "eyas-gateway": "eyas-triton-client", "eyas-triton": "eyas-triton-server"}
    if case == "everything":
        issued = {one["spec"]["secretName"]: one["spec"].get("dnsNames") for one in kinds(objects, "Certificate").values()}
        of_dask = {"eyas-dask-ca": None, "eyas-dask-tls": ["eyas-dask"]}
        assert issued == {"eyas-triton-ca": None, "eyas-triton-server": [SERVER_NAME], "eyas-triton-client": ["eyas-client"]} | of_dask
        return
    for part, names in (("server", [SERVER_NAME]), ("client", ["eyas-client"])):
        secret = kinds(objects, "Secret")[f"eyas-triton-{part}"]["data"]
        for name, content in secret.items():
            (tmp_path / name).write_bytes(base64.b64decode(content))
        assert [name for name in (SERVER_NAME, "eyas-client") if is_certificate_of(name, tmp_path)] == names


def is_certificate_of(name: str, folder: Path) -> bool:
    command = ["openssl", "verify", "-CAfile", folder / "ca.crt", "-verify_hostname", name, folder / "tls.crt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.requirement("C-07")
def test_without_tls_a_triton_says_so_and_nothing_mounts_certificates() -> None:
    objects = template(triton={"tls": {"enabled": False}})
    assert "--plaintext" in pods(objects)["eyas-triton"]["containers"][0]["args"]
    assert "tls" not in str(pods(objects))
    assert {name for name in kinds(objects, "Secret") if "triton" in name} == {"eyas-triton"}


@pytest.mark.requirement("C-07", "C-10")
@pytest.mark.parametrize("case", CASES)
def test_a_dask_cluster_and_etl_by_nvtabular_alone_have_its_certificate(case: str, tmp_path: Path) -> None:
    objects = template(**CASES[case])
    settings = jobs_settings(objects, tmp_path)
    dask_pods = {name: pod for name, pod in pods(objects).items() if "dask" in name}
    holders = {name for name, pod in workloads(objects).items() if "eyas-dask-" in str(pod["spec"].get("volumes"))}
    if "dask" not in CASES[case]:
        assert (dask_pods, holders, settings.dask) == ({}, set(), None)
        return
    assert dask_pods.keys() == holders == {"eyas-dask-scheduler", "eyas-dask-worker"}
    assert settings.dask is not None
    for pod in dask_pods.values():
        (container,) = pod["containers"]
        assert container["image"] == settings.images["nvtabular"]
        (mount,) = [volume["mountPath"] for volume in container["volumeMounts"] if volume["name"] == "state"]
        assert settings.dask.folder.startswith(f"{mount}/")
        assert {"--tls-ca-file=/run/eyas/dask-tls/ca.crt", "--dashboard-address=:8787"} <= set(container["args"])
    assert settings.dask.scheduler == dask_pods["eyas-dask-worker"]["containers"][0]["args"][1] == "tls://eyas-dask-scheduler:8786"
    assert "dask" not in str(stage(settings)["spec"]), "a training has no access"
    secret = kinds(objects, "Secret" if case != "everything" else "Certificate")[settings.dask.secret]
    assert "ca.crt" in secret["data"] if case != "everything" else secret["spec"]["issuerRef"]["name"] == "eyas-dask-ca"


def test_a_gateway_goes_when_its_successor_answers_and_nodes_have_heard_of_it() -> None:
    objects = template(database={"existingSecret": "postgres"})
    gateway = kinds(objects, "Deployment")["eyas-gateway"]["spec"]
    assert gateway["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    for part in ("eyas-control", "eyas-gateway"):
        env = {one["name"]: one.get("value") for one in pods(objects)[part]["containers"][0]["env"]}
        drain = Settings(drain=env["EYAS_DRAIN"]).drain
        assert drain is not None
        # Requests that still run get ten seconds more, and what the process holds has to be put away.
        assert pods(objects)[part]["terminationGracePeriodSeconds"] >= drain.total_seconds() + 10 + 10
    alone = {one["name"] for one in pods(template())["eyas-control"]["containers"][0]["env"]}
    assert "EYAS_DRAIN" not in alone, "nobody takes over from a control plane on SQLite before it has gone"


def test_stages_run_from_the_image_of_their_engine(tmp_path: Path) -> None:
    for images, expected in (
        ({"gpu": {"torch": "for-gpus"}}, "for-gpus"),
        ({"engines": ["polars", "tensorflow", "torch"]}, "eyas-pipelines"),
    ):
        settings = jobs_settings(template(images={"tag": "7", **images}), tmp_path)
        used = {engine: settings.image(engine) for engine in ("polars", "tensorflow", "torch", "triton")}
        assert used == {
            "polars": "eyas-pipelines:7",
            "tensorflow": "eyas-pipelines:7",
            "torch": f"{expected}:7",
            "triton": "eyas-triton:7",
        }
    with pytest.raises(Invalid, match="'torch' has no image here"):
        jobs_settings(template(), tmp_path).image("torch")


def test_a_stage_with_gpus_runs_from_the_image_that_the_values_name(tmp_path: Path) -> None:
    settings = jobs_settings(template(images={"gpu": {"tensorflow": "triton"}, "tag": "7"}), tmp_path)
    assert settings.image("tensorflow", 1) == "triton:7", "a name is a name, also that of a role"
    assert settings.image("tensorflow") == settings.image("polars", 1) == "eyas-pipelines:7"


def test_the_table_of_gpu_requests_is_that_of_the_chart(tmp_path: Path) -> None:
    """The documents say of these two installations which image runs a stage."""
    for heading, images, gpu in (("chart, CPUs", {}, 0), ("chart, `images.gpu`, `triton.gpu`", {"gpu": GPU_IMAGES}, 1)):
        rendered = template(images={"tag": "7", **images}, triton={"gpu": gpu})
        rendered_settings, documented = jobs_settings(rendered, tmp_path), PLATFORMS[heading]
        assert documented is not None
        assert rendered_settings.images == {engine: f"{image}:7" for engine, image in documented.images.items()}
        assert rendered_settings.gpu_images == {engine: f"{image}:7" for engine, image in documented.gpu_images.items()}


@pytest.mark.requirement("T-12", "T-13")
def test_a_triton_with_gpus_asks_for_them_in_its_own_image_and_says_so_to_its_server(tmp_path: Path) -> None:
    triton = pods(template(images={"gpu": {"triton": "mine"}, "tag": "7"}, triton={"gpu": 2}))["eyas-triton"]["containers"][0]
    assert triton["image"] == "mine:7"
    assert triton["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": 2}}
    assert {"name": "EYAS_GPUS", "value": "2"} in triton["env"]
    without = pods(template(images={"gpu": {"triton": "mine"}, "tag": "7"}))["eyas-triton"]["containers"][0]
    assert without["image"] == "eyas-triton:7" and "nvidia" not in str(without) and "EYAS_GPUS" not in str(without)
    assert "triton" not in jobs_settings(template(images={"gpu": {"triton": "mine"}}), tmp_path).gpu_images
    with pytest.raises(AssertionError, match=r"triton\.gpu: no image has a Triton for GPUs"):
        template(triton={"gpu": 1})


def test_passwords_come_by_reference_alone() -> None:
    objects = template(database={"existingSecret": "postgres"}, features={"existingSecret": "redis"}, events={"existingSecret": "nats"})
    for part in ("eyas-control", "eyas-gateway"):
        env = {one["name"]: one for one in pods(objects)[part]["containers"][0]["env"]}
        assert env["EYAS_DATABASE_URL"]["valueFrom"] == {"secretKeyRef": {"name": "postgres", "key": "url"}}
        assert env["EYAS_EVENTS"]["valueFrom"] == {"secretKeyRef": {"name": "nats", "key": "url"}}
        assert env["EYAS_FEATURES"]["valueFrom"] == {"secretKeyRef": {"name": "redis", "key": "url"}}
        assert env["EYAS_DATABASE_PASSWORD"]["valueFrom"]["secretKeyRef"]["optional"] is True
    assert kinds(objects, "Deployment")["eyas-control"]["spec"]["strategy"]["type"] == "RollingUpdate"
    assert kinds(template(), "Deployment")["eyas-control"]["spec"]["strategy"]["type"] == "Recreate"


@pytest.mark.requirement("G-29")
def test_object_stores_and_databases_are_named_to_the_control_plane_and_the_jobs(tmp_path: Path) -> None:
    objects = template(data=CASES["all said"]["data"])
    control = pods(objects)["eyas-control"]["containers"][0]
    env = {one["name"]: one.get("value") for one in control["env"]}
    assert env["EYAS_DATA_ROOTS"] == "/var/lib/eyas/data:s3://lake/films:s3://pond"
    assert control["envFrom"] == [{"secretRef": {"name": "s3"}}]
    jobs = jobs_settings(objects, tmp_path)
    assert jobs.secrets == ("s3",)
    assert jobs.environment["EYAS_DATABASES"] == env["EYAS_DATABASES"] == "/run/eyas/databases/databases.yaml"
    assert [(one.mount, one.secret) for one in jobs.volumes if one.secret] == [("/run/eyas/databases", "shops")]
    for part in ("eyas-gateway", "eyas-triton"):
        assert "s3" not in str([container.get("envFrom") for container in pods(objects)[part]["containers"]])
    plain = pods(template())["eyas-control"]["containers"][0]
    assert "envFrom" not in plain


def test_families_and_hosts_of_pictures_are_named_to_the_control_plane_alone() -> None:
    for case, families, hosts in (("all said", "acme.fading,acme.others", "a.example,b.example"), ("one node", None, None)):
        parts = pods(template(**CASES[case]))
        found = {part: {one["name"]: one.get("value") for one in pod["containers"][0]["env"]} for part, pod in parts.items()}
        for name, wanted_value in (("EYAS_FAMILIES", families), ("EYAS_IMAGE_HOSTS", hosts)):
            assert found["eyas-control"].get(name) == wanted_value
            assert not [part for part in found if part != "eyas-control" and name in found[part]]


@pytest.mark.requirement("U-12")
def test_the_platform_understands_the_settings_of_the_identity_provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client's secret is a file of the control plane alone."""
    parts = pods(template(**CASES["all said"]))
    secret = [part for part, pod in parts.items() if "client-secret" in str(pod)]
    assert secret == ["eyas-control"]
    for part in ("eyas-control", "eyas-gateway"):
        variables = {each["name"]: each["value"] for each in parts[part]["containers"][0]["env"] if "OIDC" in each["name"]}
        assert (variables.pop("EYAS_OIDC_CLIENT_SECRET_FILE", None) is not None) == (part == "eyas-control")
        for name, value in variables.items() | {("EYAS_CONSOLE_URL", "https://eyas.example")}:
            monkeypatch.setenv(name, value)
        settings = Settings.read({"home": tmp_path})
        assert role_rules(settings) == (RoleRule("ml", Role.ADMIN), RoleRule("shop: #1", Role.OPERATOR, frozenset({"films"})))
        assert (settings.oidc_issuer, settings.oidc_audience) == ("https://sso.example/realms/ml", "eyas")
    assert "OIDC" not in str(pods(template()))


@pytest.mark.requirement("U-12")
def test_the_control_plane_alone_exports_the_audit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = pods(template(**CASES["all said"]))
    assert [part for part, pod in parts.items() if "AUDIT_EXPORT" in str(pod)] == ["eyas-control"]
    for each in parts["eyas-control"]["containers"][0]["env"]:
        if "AUDIT" in each["name"]:
            monkeypatch.setenv(each["name"], each["value"])
    settings = Settings.read({})
    assert (settings.audit_export, settings.audit_export_token_file) == ("https://collector.example/eyas", Path("/run/eyas/audit/token"))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data": {"roots": ["/srv/data"]}}, "roots"),
    ({"families": ["acme:Two"]}, "families"),
    ({"imagee": {}}, "imagee"),
    ({"control": {"replica": 2}}, "replica"),
    ({"identity": {"user": 0}}, "user"),
    ({"volume": {"hostPath": "relative"}}, "hostPath"),
    ({"images": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"images": {"registry": "https://registry.example"}}, "registry"),
    ({"image": {"tag": "7"}}, "image: each role now has its own image; set images.registry"),
    ({"jobs": {"stages": {"train": {"cpus": 2}}}}, "cpus"),
    ({"jobs": {"settings": {"scrach": "1Gi"}}}, "scrach"),
    ({"tolerations": [{"kee": "gpu"}]}, "kee"),
    ({"triton": {"replicas": 0}}, "replicas"),
    ({"control": {"replicas": 2}}, "SQLite supports only one control plane; set database.existingSecret"),
    ({"auditExport": {"url": "http://a.example", "tokenSecret": "a"}}, "auditExport.tokenSecret: others could read the token"),
    ({"auditExport": {"url": "https://user:secret@a.example"}}, "url"),
    ({"oidc": {"audience": "eyas"}}, "oidc: no effect without the provider; set oidc.issuer"),
    ({"oidc": {"issuer": "https://sso.example", "audience": "eyas"}}, "oidc.issuer: set oidc.roles"),
    ({"oidc": {"issuer": "http://sso.example"}}, "issuer"),
    ({"oidc": {"roles": {"ml": {"role": "root"}}}}, "role"),
    ({"volume": {"hostPath": "/a", "existingClaim": "b"}}, "set existingClaim or hostPath, not both"),
    ({"networkPolicy": False}, "networkPolicy: set networkPolicies.enabled"),
    ({"networkPolicies": {"clients": [{"podSelector": {"matchLabel": {}}}]}}, "matchLabel"),
    ({"networkPolicies": {"database": {"ports": []}}}, "ports"),
    (
        {"postgresql": {"enabled": True}, "database": {"existingSecret": "mine"}},
        "postgresql.enabled: the Secret mine already sets another server",
    ),
    ({"nats": {"enabled": True}, "events": {"existingSecret": "mine"}}, "nats.enabled: the Secret mine already sets another server"),
    ({"jobs": {"quota": {"requests.cpu": 4}}}, "jobs.quota: the stages have no PriorityClass"),
    ({"gateway": {"autoscaling": {"enabled": True, "min": 4, "max": 3}}}, "gateway.autoscaling: min 4 is above max 3"),
]


def test_values_that_make_no_sense_are_refused(subtests: pytest.Subtests) -> None:
    for given, message in REFUSED:
        with subtests.test(message):
            assert message in run("template", "eyas", str(CHART), *values(given), fails=True)


def test_two_releases_share_nothing() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in template(release)}

    assert not names("eyas") & names("second")
    assert all(name.startswith("second-eyas") for _, name in names("second"))


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
