"""A stage as a Job: what its manifest says, and what is refused before the cluster sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.training.ranks import rank_of
from services.executors.jobsettings import JobSettings, read_settings
from services.executors.jobspec import LONGEST_NAME, MEETING_PORT, StoredSpec, job_name, manifest, selector
from shared.contracts import ranks
from shared.contracts.stage import File, StageSpec
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.domain.run import RESOURCES
from shared.testing.executor_suite import stage_spec

FILE = StoredSpec("s3://eyas", File(sha256="ab" * 32, size=321))
MODULES = {stage: f"stages.{stage}" for stage in ("etl", "train", "evaluate", "refit", "export", "verify")}
SETTINGS: dict[str, Any] = {"namespace": "eyas", "images": {"default": "eyas:1"}}
FULL: dict[str, Any] = {
    **SETTINGS,
    "instance": "team-a",
    "images": {"default": "eyas:1"},
    "gpu_images": {"tensorflow": "eyas-gpu:1", "torch": "eyas-gpu:1"},
    "pull_secrets": ["registry"],
    "service_account": "eyas-stage",
    "stages": {
        "train": {
            "cpu": 4,
            "memory": "16Gi",
            "gpu": 1,
            "node_selector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    },
    "cache": "eyas-cache",
    "volumes": [
        {"name": "data", "mount": "/data", "claim": "movies", "read_only": True},
        {"name": "artifacts", "mount": "/artifacts", "host_path": "/srv/eyas"},
        {"name": "ca", "mount": "/etc/ca", "config_map": "ca"},
        {"name": "keys", "mount": "/etc/keys", "secret": "keys", "read_only": True},
    ],
    "environment": {"AWS_ENDPOINT_URL": "http://s3:9000", "HOME": "/cache/home"},
    "secret_variables": [{"name": "AWS_SECRET_ACCESS_KEY", "secret": "s3", "key": "secret"}],
    "secrets": ["eyas-s3"],
    "artifacts_secret": "eyas-artifacts",
    "node_selector": {"zone": "a"},
    "tolerations": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
    "priority_class": "batch",
    "owner": {"name": "eyas-control", "uid": "0f8b-11"},
    "rendezvous": "eyas-stages",
    "ttl": "2h",
    "longest_wait": "12h",
}


def settings(value: dict[str, Any]) -> JobSettings:
    return read(JobSettings, value, "jobs.yaml")


def made(stage: str = "train", value: dict[str, Any] | None = None, resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    spec = with_resources(stage_spec(f"r1-{stage}-1", stage=stage), **{RESOURCES.get(stage, stage): resources or {}})
    return manifest(spec, FILE, settings((FULL if value is None else value) | more), MODULES)


def with_resources(spec: StageSpec, **resources: Any) -> StageSpec:
    document = spec.model_dump(mode="json", by_alias=True)
    document["recommender"]["resources"] = resources
    return StageSpec.model_validate(document)


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod_of(job)["containers"]
    return dict(found)


@pytest.mark.requirement("C-02")
@pytest.mark.parametrize("version", ["1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"])
def test_every_manifest_is_valid_for_every_kubernetes(version: str, subtests: pytest.Subtests) -> None:
    for name, value in (("least", SETTINGS), ("full", FULL)):
        for stage in MODULES:
            with subtests.test(settings=name, stage=stage):
                kubernetes_validate.validate(made(stage, value), version, strict=True)
    with subtests.test("several ranks"):
        kubernetes_validate.validate(several(4), version, strict=True)


def test_the_same_attempt_gives_the_same_manifest() -> None:
    assert made() == made()


def test_a_manifest_names_what_it_is_and_whose() -> None:
    job = made()
    metadata = job["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("r1-train-1", "eyas")
    assert metadata["labels"] == {
        "app.kubernetes.io/name": "eyas",
        "app.kubernetes.io/instance": "team-a",
        "app.kubernetes.io/component": "stage",
        "app.kubernetes.io/managed-by": "eyas",
        "eyas.dev/run": "r1",
        "eyas.dev/stage": "train",
        "eyas.dev/recommender": "movies",
        "eyas.dev/attempt": "r1-train-1",
    }
    assert metadata["annotations"]["eyas.dev/attempt"] == "r1-train-1"
    assert metadata["ownerReferences"] == [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "eyas-control", "uid": "0f8b-11"}]
    assert job["spec"]["template"]["metadata"]["labels"] == metadata["labels"]
    for pair in selector(settings(FULL)).split(","):
        key, _, value = pair.partition("=")
        assert metadata["labels"][key] == value


def test_one_job_is_one_attempt_and_only_time_on_a_node_counts() -> None:
    job = made(resources={"timeout": "90m"})
    assert job["spec"]["backoffLimit"] == 0
    assert pod_of(job)["restartPolicy"] == "Never"
    assert pod_of(job)["activeDeadlineSeconds"] == 90 * 60
    assert job["spec"]["activeDeadlineSeconds"] == 90 * 60 + 12 * 3600
    assert job["spec"]["ttlSecondsAfterFinished"] == 2 * 3600


def test_a_timeout_below_a_second_is_a_second() -> None:
    assert pod_of(made(resources={"timeout": "200ms"}))["activeDeadlineSeconds"] == 1


def test_the_user_has_the_last_word_over_the_operators_defaults() -> None:
    assert container_of(made())["resources"]["limits"] == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    asked = made(resources={"cpu": "1500m", "memory": "24Gi", "gpu": 2})
    expected = {"cpu": "1500m", "memory": "24Gi", "nvidia.com/gpu": "2"}
    assert container_of(asked)["resources"] == {"limits": expected, "requests": expected}
    assert "nvidia.com/gpu" not in container_of(made(resources={"gpu": 0}))["resources"]["limits"]
    assert container_of(made("etl"))["resources"]["limits"] == {"cpu": "1", "memory": "4Gi"}


def test_a_job_gets_no_gpu_that_its_stage_cannot_use() -> None:
    defaults = {"stages": {stage: {"gpu": 1} for stage in ("etl", "train", "evaluate", "export", "verify")}}
    gpus = {stage: container_of(made(stage, **defaults))["resources"]["limits"].get("nvidia.com/gpu") for stage in MODULES}
    assert gpus == dict.fromkeys(MODULES, None) | {"train": "1", "refit": "1"}
    assert {"name": "EYAS_GPUS", "value": "1"} in container_of(made("train", **defaults))["env"]
    assert "EYAS_GPUS" not in {variable["name"] for variable in container_of(made("etl", **defaults))["env"]}
    assert "nvidia.com/gpu" not in container_of(made(gpu_images={}))["resources"]["limits"], "its engine has no image for GPUs"


def test_a_stage_with_gpus_runs_from_the_image_of_its_engine_for_gpus() -> None:
    used = {stage: container_of(made(stage))["image"] for stage in MODULES}
    assert used == dict.fromkeys(MODULES, "eyas:1") | {"train": "eyas-gpu:1", "refit": "eyas-gpu:1"}
    assert container_of(made(resources={"gpu": 0}))["image"] == "eyas:1"
    without_default = settings(
        {"namespace": "eyas", "images": dict.fromkeys(("polars", "tensorflow", "triton"), "eyas:1")} | {"gpu_images": {"torch": "gpu:1"}}
    )
    assert without_default.image("torch") == "gpu:1", "without GPUs too, because no other image has the engine"
    with pytest.raises(Invalid, match="gpu_images"):
        settings(SETTINGS | {"gpu_images": {"nvtabular": "eyas:1"}})
    with pytest.raises(Invalid, match="gpu_images: expected an image name for 'torch', got ''"):
        settings(SETTINGS | {"gpu_images": {"torch": ""}})


def test_the_image_follows_the_engine() -> None:
    images = {"default": "eyas:1", "polars": "polars:1", "tensorflow": "tf:1", "triton": "triton:1"}
    found = {stage: container_of(made(stage, images=images, gpu_images={}))["image"] for stage in MODULES}
    assert found == {"etl": "polars:1", "train": "tf:1", "evaluate": "tf:1", "refit": "tf:1", "export": "tf:1", "verify": "triton:1"}
    assert container_of(made("etl"))["image"] == "eyas:1"


def test_nvtabular_has_an_image_of_its_own_and_nothing_else_stands_for_it() -> None:
    wanted = {"engine": "nvtabular"}
    assert container_of(made("etl", resources=wanted, images={"default": "eyas:1", "nvtabular": "nvt:1"}))["image"] == "nvt:1"
    with pytest.raises(Invalid, match="'nvtabular' has no image here"):
        made("etl", resources=wanted, images={"default": "eyas:1"})


@pytest.mark.requirement("C-10")
def test_a_dask_cluster_is_for_etl_by_nvtabular() -> None:
    dask = {"scheduler": "tls://dask:8786", "folder": "/data/dask", "secret": "dask-tls"}
    images = {"default": "eyas:1", "nvtabular": "nvt:1"}
    job = made("etl", resources={"engine": "nvtabular"}, images=images, dask=dask)
    variables = {entry["name"]: entry["value"] for entry in container_of(job)["env"] if entry["name"].startswith("EYAS_DASK")}
    tls = "/run/eyas/dask-tls"
    assert variables == {"EYAS_DASK": "tls://dask:8786", "EYAS_DASK_FOLDER": "/data/dask", "EYAS_DASK_TLS": tls}
    assert {"name": "dask-tls", "secret": {"secretName": "dask-tls", "defaultMode": 0o440}} in pod_of(job)["volumes"]
    assert {"name": "dask-tls", "mountPath": tls, "readOnly": True} in container_of(job)["volumeMounts"]
    for other in (made("etl", images=images, dask=dask), made("train", images=images, dask=dask)):
        assert "dask" not in str(other)
    with pytest.raises(Invalid, match=r"dask\.scheduler"):
        settings(SETTINGS | {"dask": dask | {"scheduler": "tcp://dask:8786"}})


@pytest.mark.parametrize("value", [SETTINGS, FULL], ids=["least", "full"])
def test_pods_are_as_restricted_as_kubernetes_knows(value: dict[str, Any]) -> None:
    pod = pod_of(made(value=value))
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert container_of(made(value=value))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_what_may_be_written_has_a_size() -> None:
    volumes = {volume["name"]: volume for volume in pod_of(made())["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of(made())["volumeMounts"]}
    assert volumes["scratch"]["emptyDir"] == {"sizeLimit": "20Gi"}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert mounts == {
        "scratch": "/scratch", "tmp": "/tmp", "shm": "/dev/shm", "cache": "/cache",
        "data": "/data", "artifacts": "/artifacts", "ca": "/etc/ca", "keys": "/etc/keys",
    }  # fmt: skip
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "movies", "readOnly": True}
    assert volumes["artifacts"]["hostPath"]["path"] == "/srv/eyas"


def test_secrets_are_named_and_never_written() -> None:
    container = container_of(made())
    environment = {one["name"]: one for one in container["env"]}
    assert environment["AWS_SECRET_ACCESS_KEY"] == {
        "name": "AWS_SECRET_ACCESS_KEY",
        "valueFrom": {"secretKeyRef": {"name": "s3", "key": "secret"}},
    }
    kept = {"prefix": "EYAS_ARTIFACTS_", "secretRef": {"name": "eyas-artifacts"}}
    assert container["envFrom"] == [{"secretRef": {"name": "eyas-s3"}}, kept]
    assert environment["HOME"]["value"] == "/cache/home"
    assert environment["PYTHONUNBUFFERED"]["value"] == "1"
    assert len(environment) == len(container["env"])


def test_placement_of_all_stages_and_of_one_add_up() -> None:
    pod = pod_of(made())
    assert pod["nodeSelector"] == {"zone": "a", "pool": "gpu"}
    assert [one["key"] for one in pod["tolerations"]] == ["team", "gpu"]
    assert pod["priorityClassName"] == "batch"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod_of(made("etl"))["nodeSelector"] == {"zone": "a"}


def test_the_spec_comes_through_the_artifact_store() -> None:
    assert container_of(made())["command"] == [
        "python", "-P", "-m", "shared.pod", "--module", "stages.train",
        "--artifacts", "s3://eyas",
        "--spec", f"{'ab' * 32}:321", "--scratch", "/scratch",
    ]  # fmt: skip


def several(processes: int, stage: str = "train", **more: Any) -> dict[str, Any]:
    document = stage_spec(f"r1-{stage}-1", stage=stage).model_dump(mode="json", by_alias=True)
    document["recommender"]["model"] = {"framework": "torch", "train": {"processes": processes}}
    return manifest(StageSpec.model_validate(document), FILE, settings(FULL | more), MODULES)


@pytest.mark.requirement("C-02", "G-27")
def test_several_processes_are_one_indexed_job_that_ends_as_a_whole() -> None:
    job = several(4)
    assert {key: job["spec"][key] for key in ("completionMode", "completions", "parallelism", "backoffLimit")} == {
        "completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimit": 0,
    }  # fmt: skip
    assert job["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}, "rank 0 publishes"
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    assert container_of(job)["resources"] == container_of(made())["resources"], "each rank has what the stage has"
    assert not {"completionMode", "successPolicy", "podReplacementPolicy"} & set(made()["spec"])


def test_ranks_are_told_what_training_reads() -> None:
    environment = {one["name"]: one for one in container_of(several(4))["env"]}
    assert (
        environment[ranks.RANK]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    )
    said = {name: str(environment[name]["value"]) for name in (ranks.RANKS, ranks.MEET)}
    document = stage_spec("r1-train-1", stage="train").model_dump(mode="json", by_alias=True)
    document["recommender"]["model"] = {"framework": "torch", "train": {"processes": 4}}
    found = rank_of(StageSpec.model_validate(document), said | {ranks.RANK: "3"})
    assert found is not None
    assert (found.number, found.count, found.host, found.port) == (3, 4, "r1-train-1-0.eyas-stages.eyas.svc", MEETING_PORT)
    assert "EYAS_RANK" not in {one["name"] for one in container_of(made())["env"]}


def test_the_address_of_rank_0_is_a_legal_one_for_the_longest_of_names() -> None:
    """A pod of an indexed Job is called after the Job and its index, and that is its host name."""
    assert LONGEST_NAME + len("-63") <= 63
    pod = pod_of(several(4))
    assert pod["subdomain"] == "eyas-stages"
    assert "hostname" not in pod, "the Job gives each pod its own"


def test_ranks_alone_are_labelled_as_such() -> None:
    for job in (several(2), several(2)["spec"]["template"]):
        assert job["metadata"]["labels"]["eyas.dev/ranks"] == "several"
    assert "eyas.dev/ranks" not in made()["metadata"]["labels"]


def test_a_refit_is_given_what_train_is_given() -> None:
    stages = {"train": {"cpu": "3", "gpu": 1}}
    train, refit = (container_of(made(stage, resources={"memory": "3Gi"}, stages=stages)) for stage in ("train", "refit"))
    assert refit["resources"] == train["resources"]
    assert several(4, "refit")["spec"]["completions"] == 4


def test_other_stages_of_such_a_spec_are_one_process() -> None:
    for stage in ("etl", "evaluate", "export", "verify"):
        assert "completionMode" not in several(4, stage, rendezvous=None)["spec"]


def test_torch_and_jax_have_the_default_image_unless_they_have_their_own() -> None:
    assert container_of(several(2, gpu_images={}))["image"] == "eyas:1"
    assert container_of(several(2, images={"default": "eyas:1", "torch": "torch:1"}, gpu_images={}))["image"] == "torch:1"
    apart = settings(SETTINGS | {"images": {"polars": "a:1", "tensorflow": "a:1", "triton": "a:1"}})
    for engine in ("torch", "jax"):
        assert settings(SETTINGS).image(engine) == "eyas:1"
        with pytest.raises(Invalid, match=f"'{engine}' has no image here"):
            apart.image(engine)


def test_nobody_but_the_cluster_gives_ranks() -> None:
    said = {"EYAS_RANK": "7", "EYAS_RANKS": "9", "EYAS_MEET": "elsewhere:1"}
    given = container_of(several(2, environment=said))["env"]
    assert [one["name"] for one in given if one["name"] in said] == list(said)
    assert {one.get("value") for one in given if one["name"] in said} == {None, "2", f"r1-train-1-0.eyas-stages.eyas.svc:{MEETING_PORT}"}


def test_several_processes_need_a_meeting_place() -> None:
    with pytest.raises(Invalid, match="headless Service"):
        several(2, rendezvous=None)


def test_a_stage_without_a_module_is_refused() -> None:
    with pytest.raises(Invalid, match="'train' has no module here"):
        manifest(stage_spec("r1-train-1", stage="train"), FILE, settings(SETTINGS), {"etl": "stages.etl"})


@hypothesis.settings(max_examples=50)
@given(st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,119}[a-z0-9])?", fullmatch=True))
def test_every_attempt_has_a_legal_name_of_its_own(attempt: str) -> None:
    name = job_name(attempt)
    assert len(name) <= LONGEST_NAME
    assert name == job_name(attempt)
    assert name[0].isalnum()
    assert name[-1].isalnum()
    assert name == attempt or job_name(f"{attempt[:-1]}-x") != name


def test_an_illegal_name_is_refused(subtests: pytest.Subtests) -> None:
    for attempt in ["", "R1-etl-1", "r1_etl", "-r1", "r1-", "r1/etl", "r1.etl", "a" * 122, "r1\n"]:
        with subtests.test(attempt=attempt), pytest.raises(Invalid, match="is not an attempt name"):
            job_name(attempt)


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"namspace": "x"}, "unknown field 'namspace': did you mean 'namespace'"),
    ({"namespace": "Eyas"}, "namespace: expected a name of lower-case letters"),
    ({"images": {"polars": "p:1"}}, "no image for tensorflow, triton"),
    ({"images": {"default": "e:1", "tensorfow": "t:1"}}, "did you mean 'tensorflow'"),
    ({"images": {"default": ""}}, "expected an image name for 'default'"),
    ({"identity": {"user": 0}}, "identity.user"),
    ({"stages": {"train": {"memory": "16G"}}}, "stages.train.memory: expected an amount of memory"),
    ({"stages": {"tran": {}}}, "stages.tran"),
    ({"volumes": [{"name": "d", "mount": "/d"}]}, "expected one of claim, host_path"),
    ({"volumes": [{"name": "d", "mount": "/d", "claim": "a", "secret": "b"}]}, "config_map, secret; got 2"),
    ({"volumes": [{"name": "tmp", "mount": "/d", "claim": "a"}]}, "are reserved"),
    ({"volumes": [{"name": "d", "mount": "/d/../etc", "claim": "a"}]}, "without '..'"),
    ({"volumes": [{"name": "d", "mount": "data", "claim": "a"}]}, "an absolute path"),
    ({"volumes": [{"name": "d", "mount": "/a", "claim": "a"}, {"name": "d", "mount": "/b", "claim": "a"}]}, "'d' is given twice"),
    ({"environment": {"A": "1"}, "secret_variables": [{"name": "A", "secret": "s", "key": "k"}]}, "'A' is given twice"),
    ({"environment": {"A-B": "1"}}, "the name of an environment variable"),
    ({"ttl": "soon"}, "ttl: expected a duration"),
]


def test_settings_are_strict(subtests: pytest.Subtests) -> None:
    for change, message in WRONG_SETTINGS:
        with subtests.test(message):
            with pytest.raises(Invalid) as caught:
                settings(SETTINGS | change)
            assert message in str(caught.value)
            assert "\n" not in str(caught.value)


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("namespace: eyas\nimages: {default: eyas:1}\nstages: {train: {gpu: 1, memory: 16Gi}}\n")
    found = read_settings(path)
    assert (found.of("train").gpu, found.of("train").memory, found.of("etl").gpu) == (1, 16 << 30, 0)
    with pytest.raises(Invalid, match="cannot read the settings of Jobs: No such file"):
        read_settings(tmp_path / "none.yaml")
    path.write_text("- namespace\n")
    with pytest.raises(Invalid, match="expected a mapping"):
        read_settings(path)
