"""Builds the Kubernetes Job of an attempt: pure functions of the user's spec and the operator's settings.

One Job is one attempt: the cluster never retries; the run retries under a new name. The stage's timeout counts from when
its pod has a node, so waiting for a GPU doesn't count; the Job's deadline ends a Job that waits too long.

A training in several processes is one indexed Job and one attempt: each pod is a rank, and its index is the rank's number. The ranks find
rank 0 by its host name, under a headless Service of the operator. So only the Job is created, without further rights.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.executors.jobsettings import ARTIFACTS, DaskCluster, JobSettings, StageDefaults, Volume
from shared.contracts import ranks
from shared.contracts.gpus import GPUS, gpu_fault, gpus_of, stage_engine
from shared.contracts.quantities import write_cpu, write_memory
from shared.contracts.resources import StageResources
from shared.contracts.stage import File, StageSpec
from shared.domain.errors import Invalid

GPU = "nvidia.com/gpu"
CONTAINER = "stage"
SCRATCH, CACHE = "/scratch", "/cache"
DASK_TLS = "/run/eyas/dask-tls"
LONGEST_NAME = 57
"""A pod's name is its Job's name and six more characters, and a host name has at most 63 characters."""
INDEX = "batch.kubernetes.io/job-completion-index"
MEETING_PORT = 29500
RANKS = "eyas.dev/ranks"
"""Label of pods that are one of several ranks, which may reach each other."""

MANAGED = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
ATTEMPT = "eyas.dev/attempt"

_SECRET_MODE = 0o440
"""Readable by root and the fsGroup only: stages refuse a secret that everybody can read, and Kubernetes' default is 0644."""

_ATTEMPT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,119}[a-z0-9])?")


@dataclass(frozen=True)
class Needs:
    """Resources of an attempt: from the spec, or else the operator's defaults."""

    cpu: int
    memory: int
    gpu: int
    """GPUs per process."""
    processes: int
    gpu_fault: str = ""
    """Why a requested GPU is not given."""


def job_name(attempt: str) -> str:
    """Returns the attempt's name; a long name is cut and ends with its hash. The same attempt always has the same name."""
    if not _ATTEMPT.fullmatch(attempt):
        raise Invalid(f"{attempt!r} is not an attempt name: use at most 121 lower-case letters, digits and dashes")
    if len(attempt) <= LONGEST_NAME:
        return attempt
    return f"{attempt[: LONGEST_NAME - 11].rstrip('-')}-{hashlib.sha256(attempt.encode()).hexdigest()[:10]}"


def selector(settings: JobSettings) -> str:
    """Returns the label selector of this platform's Jobs and pods."""
    return f"{MANAGED}=eyas,{INSTANCE}={settings.instance},{COMPONENT}=stage"


def needs(spec: StageSpec, settings: JobSettings) -> Needs:
    resources: StageResources = spec.recommender.resources.of(spec.stage)
    default: StageDefaults = settings.of(spec.stage)
    gpu = gpus_of(spec.recommender, spec.stage, default.gpu)
    fault = gpu_fault(spec.recommender, spec.stage, gpu, settings.gpu_images, spec.mode) if gpu else ""
    return Needs(
        cpu=default.cpu if resources.cpu is None else resources.cpu,
        memory=default.memory if resources.memory is None else resources.memory,
        gpu=0 if fault else gpu,
        processes=spec.recommender.model.train.processes if spec.stage in ranks.TRAINING else 1,
        gpu_fault=fault,
    )


@dataclass(frozen=True)
class StoredSpec:
    """A stage spec's document in the artifact store."""

    url: str
    file: File


def manifest(spec: StageSpec, stored: StoredSpec, settings: JobSettings, modules: Mapping[str, str]) -> dict[str, Any]:
    """Returns the Job of an attempt. `modules`: the Python module of each stage."""
    module = modules.get(spec.stage)
    if module is None:
        raise Invalid(f"stage '{spec.stage}' has no module here; known stages: {', '.join(sorted(modules))}")
    if settings.dask is not None and stage_engine(spec.recommender, spec.stage, spec.mode) == "nvtabular":
        settings = _with_dask(settings, settings.dask)
    name = job_name(spec.attempt)
    wanted = needs(spec, settings)
    limit = math.ceil(spec.recommender.resources.of(spec.stage).timeout.total_seconds())
    labels = _labels(spec, settings, name) | ({RANKS: "several"} if wanted.processes > 1 else {})
    annotations = {ATTEMPT: spec.attempt, "eyas.dev/run": spec.run}
    job: dict[str, Any] = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": limit + math.ceil(settings.longest_wait.total_seconds()),
        "ttlSecondsAfterFinished": math.ceil(settings.ttl.total_seconds()),
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": _pod(spec, settings, wanted, limit) | {"containers": [_container(spec, stored, settings, wanted, module)]},
        },
    }
    if wanted.processes > 1:
        job |= _ranks(wanted.processes)
        job["template"]["spec"]["subdomain"] = _rendezvous(settings)
    metadata: dict[str, Any] = {"name": name, "namespace": settings.namespace, "labels": labels, "annotations": annotations}
    if settings.owner is not None:
        metadata["ownerReferences"] = [settings.owner.model_dump(by_alias=True)]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}


def _with_dask(settings: JobSettings, dask: DaskCluster) -> JobSettings:
    """Adds the variables and the certificate of the Dask cluster."""
    variables = {"EYAS_DASK": dask.scheduler, "EYAS_DASK_FOLDER": dask.folder, "EYAS_DASK_TLS": DASK_TLS}
    certificate = Volume.model_construct(name="dask-tls", mount=DASK_TLS, secret=dask.secret, read_only=True)
    return settings.model_copy(update={"environment": variables | settings.environment, "volumes": (*settings.volumes, certificate)})


def _ranks(count: int) -> dict[str, Any]:
    """A rank that fails ends the Job. Rank 0 publishes, so its success is the Job's success. A deleted pod isn't replaced while it ends."""
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "podReplacementPolicy": "Failed",
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
    }


def _labels(spec: StageSpec, settings: JobSettings, name: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "eyas",
        INSTANCE: settings.instance,
        COMPONENT: "stage",
        MANAGED: "eyas",
        "eyas.dev/run": job_name(spec.run),
        "eyas.dev/stage": spec.stage,
        "eyas.dev/recommender": spec.recommender.name.rstrip("-"),
        ATTEMPT: name,
    }


def _pod(spec: StageSpec, settings: JobSettings, wanted: Needs, limit: int) -> dict[str, Any]:
    """Returns the pod spec without its container."""
    default = settings.of(spec.stage)
    who = settings.identity
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": limit,
        "terminationGracePeriodSeconds": math.ceil(settings.grace.total_seconds()),
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The stage must not be process 1, which ignores SIGTERM by default; and the pause process reaps orphans.
        "shareProcessNamespace": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": who.user,
            "runAsGroup": who.group,
            "fsGroup": who.group,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": _volumes(settings),
    }
    more: dict[str, Any] = {
        "nodeSelector": settings.node_selector | default.node_selector,
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in (*settings.tolerations, *default.tolerations)],
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        "priorityClassName": settings.priority_class,
    }
    return pod | {key: value for key, value in more.items() if value}


def _container(spec: StageSpec, stored: StoredSpec, settings: JobSettings, wanted: Needs, module: str) -> dict[str, Any]:
    amounts = {"cpu": write_cpu(wanted.cpu), "memory": write_memory(wanted.memory)} | ({GPU: str(wanted.gpu)} if wanted.gpu else {})
    launch = [
        "--module",
        module,
        "--artifacts",
        stored.url,
        "--spec",
        f"{stored.file.sha256}:{stored.file.size}",
        "--scratch",
        SCRATCH,
    ]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.image(stage_engine(spec.recommender, spec.stage, spec.mode), wanted.gpu),
        "imagePullPolicy": settings.pull_policy,
        "command": [settings.python, "-P", "-m", "shared.pod", *launch],
        "workingDir": SCRATCH,
        "env": _environment(spec, settings, wanted),
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": _mounts(settings),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    env_from: list[dict[str, Any]] = [{"secretRef": {"name": name}} for name in settings.secrets]
    if settings.artifacts_secret is not None:
        env_from.append({"prefix": ARTIFACTS, "secretRef": {"name": settings.artifacts_secret}})
    if env_from:
        container["envFrom"] = env_from
    return container


def _environment(spec: StageSpec, settings: JobSettings, wanted: Needs) -> list[dict[str, Any]]:
    """Returns the variables. The operator's variables may replace the defaults, but not the rank variables."""
    ours = {
        "HOME": SCRATCH,
        "TMPDIR": "/tmp",  # noqa: S108  a volume of the pod's own
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    if settings.cache is not None:
        ours["XDG_CACHE_HOME"] = CACHE
    if wanted.gpu:
        ours[GPUS] = str(wanted.gpu)
    from_secrets = [
        {"name": variable.name, "valueFrom": {"secretKeyRef": {"name": variable.secret, "key": variable.key}}}
        for variable in settings.secret_variables
    ]
    named = {variable.name for variable in settings.secret_variables}
    plain = [{"name": name, "value": value} for name, value in (ours | settings.environment).items() if name not in named]
    variables: list[dict[str, Any]] = [*plain, *from_secrets]
    if wanted.processes > 1:
        first = f"{job_name(spec.attempt)}-0.{_rendezvous(settings)}.{settings.namespace}.svc"
        rank_variables: list[dict[str, Any]] = [
            {"name": ranks.RANK, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}},
            {"name": ranks.RANKS, "value": str(wanted.processes)},
            {"name": ranks.MEET, "value": f"{first}:{MEETING_PORT}"},
        ]
        rank_names = {variable["name"] for variable in rank_variables}
        variables = [variable for variable in variables if variable["name"] not in rank_names] + rank_variables
    return variables


def _rendezvous(settings: JobSettings) -> str:
    if settings.rendezvous is None:
        raise Invalid("model.train.processes: several processes need a headless Service; the operator sets it as 'rendezvous'")
    return settings.rendezvous


def _volumes(settings: JobSettings) -> list[dict[str, Any]]:
    scratch = {"emptyDir": {"sizeLimit": write_memory(settings.scratch)}}
    volumes: list[dict[str, Any]] = [
        {"name": "scratch", **scratch},
        {"name": "tmp", **scratch},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": write_memory(settings.shared_memory)}},
    ]
    if settings.cache is not None:
        volumes.append({"name": "cache", "persistentVolumeClaim": {"claimName": settings.cache}})
    return volumes + [{"name": volume.name, **_source(volume)} for volume in settings.volumes]


def _source(volume: Volume) -> dict[str, Any]:
    if volume.claim is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.config_map is not None:
        return {"configMap": {"name": volume.config_map}}
    return {"secret": {"secretName": volume.secret, "defaultMode": _SECRET_MODE}}


def _mounts(settings: JobSettings) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "scratch", "mountPath": SCRATCH},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  a volume of the pod's own
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if settings.cache is not None:
        mounts.append({"name": "cache", "mountPath": CACHE})
    return mounts + [{"name": volume.name, "mountPath": volume.mount, "readOnly": volume.read_only} for volume in settings.volumes]
