"""Operator's settings of stages as Jobs: one strict YAML file, read once at start.

The file holds no secrets: it names secrets, which stay in the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from shared.contracts.gpus import RESOURCE_STAGES, gpu_faults, on_cuda, stage_engine
from shared.contracts.quantities import Cpu, Duration, Memory
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageName
from shared.contracts.strict import Strict, read, unknown_name
from shared.contracts.yaml12 import load
from shared.domain.errors import Invalid
from shared.domain.run import RESOURCES

STAGES: tuple[StageName, ...] = get_args(StageName)
ENGINES = ("default", "polars", "tensorflow", "torch", "jax", "triton", "nvtabular")
"""Keys of `images`; the `default` image serves every engine without its own image, except nvtabular."""
GpuEngine = Literal["torch", "tensorflow", "jax", "xgboost", "polars", "triton"]
APART = frozenset({"default", "nvtabular", "torch", "jax"})
"""Engines that need no image unless a spec uses them."""
_WITHOUT_DEFAULT = frozenset({"nvtabular", "xgboost"})
ARTIFACTS = "EYAS_ARTIFACTS_"
RESERVED = frozenset({"scratch", "tmp", "shm", "cache", "dask-tls"})


def _matches(pattern: str, wanted: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {wanted}, got {value!r}")
        return value

    return AfterValidator(check)


_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
Label = Annotated[str, _matches(_LABEL, "a name of lower-case letters, digits and dashes, at most 63")]
Subdomain = Annotated[str, _matches(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*", "a name of lower-case letters, digits, dashes and dots")]
Folder = Annotated[str, _matches(r"/(?!.*(?:^|/)\.\.?(?:/|$))[^:\s]+", "an absolute path without '..'")]
Variable = Annotated[str, _matches(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]


class Identity(Strict):
    """User and group of stages. Root is refused here and by the cluster."""

    user: int = Field(65532, ge=1, description="User id of the processes.")
    group: int = Field(65532, ge=1, description="Group id of the processes, and of the volumes that support an owner.")


class Toleration(Strict):
    key: str | None = Field(None, description="Key of the taint. Default: all keys.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="Operator that compares the value.")
    value: str | None = Field(None, description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(None, description="Effect of the taint, or all.")


class Volume(Strict):
    """A volume with one source, mounted into every stage."""

    name: Label = Field(description="Name of the volume in the pod.")
    mount: Folder = Field(description="Path of the volume in stages.")
    read_only: bool = Field(False, description="Whether stages can only read the volume.")
    claim: Subdomain | None = Field(None, description="Source: a PersistentVolumeClaim.")
    host_path: Folder | None = Field(None, description="Source: a folder of the node, for clusters of one node.")
    config_map: Subdomain | None = Field(None, description="Source: a ConfigMap, as files.")
    secret: Subdomain | None = Field(None, description="Source: a Secret, as files.")

    @model_validator(mode="after")
    def _check_source(self) -> Volume:
        sources = [source for source in ("claim", "host_path", "config_map", "secret") if getattr(self, source) is not None]
        if len(sources) != 1:
            raise ValueError(f"volume '{self.name}': expected one of claim, host_path, config_map, secret; got {len(sources)}")
        if self.name in RESERVED:
            raise ValueError(f"volume '{self.name}': the names {', '.join(sorted(RESERVED))} are reserved")
        return self


class SecretVariable(Strict):
    """An environment variable from a key of a Secret."""

    name: Variable = Field(description="Name of the variable.")
    secret: Subdomain = Field(description="Name of the Secret.")
    key: str = Field(description="Key of the Secret.", pattern=r"^[-._a-zA-Z0-9]{1,253}$")


class Owner(Strict):
    """Owner of the Jobs, which are deleted with it: the control plane's Deployment."""

    kind: Literal["Deployment"] = Field("Deployment", description="Kind of the owner.")
    api_version: Literal["apps/v1"] = Field("apps/v1", alias="apiVersion", description="API version of the owner.")
    name: Subdomain = Field(description="Name of the owner, in the same namespace.")
    uid: str | None = Field(None, min_length=1, description="Uid of the owner. Default: read from the cluster at start.")


class StageDefaults(Strict):
    """Resources of a stage if its spec gives none, and the nodes it runs on."""

    cpu: Cpu = Field(1000, description="CPU cores.")
    memory: Memory = Field(4 << 30, description="Memory.")
    gpu: int = Field(0, ge=0, le=64, description="Number of whole GPUs.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Node labels, added to those of all stages.")
    tolerations: tuple[Toleration, ...] = Field((), description="Tolerations, added to those of all stages.")


class DaskCluster(Strict):
    scheduler: str = Field(pattern=r"^tls://[^\s/@]+:[0-9]+$", description="Address of the scheduler: tls://HOST:8786.")
    folder: Folder = Field(description="Folder of a volume that stages and workers mount at the same path.")
    secret: Subdomain = Field(description="Secret with ca.crt, tls.crt and tls.key for mutual TLS, mounted into these stages only.")


class JobSettings(Strict):
    namespace: Label = Field(description="Namespace of the Jobs.")
    instance: Label = Field("eyas", description="Name of the platform: several platforms can share a namespace.")
    images: dict[str, str] = Field(description=f"Image by engine: {', '.join(ENGINES)}.")
    gpu_images: dict[GpuEngine, str] = Field(
        default_factory=dict,
        description="Image of stages with GPUs by engine, and of all stages of an engine that `images` lacks. Other stages get no GPU; a "
        "spec that requests one is rejected.",
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field("IfNotPresent", description="Pull policy of the images.")
    pull_secrets: tuple[Subdomain, ...] = Field((), description="Secrets to pull the images with.")
    python: str = Field("python", min_length=1, description="Python interpreter in the image.")
    service_account: Subdomain = Field("default", description="Service account of the pods; its token is never mounted.")
    identity: Identity = Field(Identity(), description="User and group of the stages.")
    stages: dict[StageName, StageDefaults] = Field(default_factory=dict, description="Defaults by stage.")
    scratch: Memory = Field(20 << 30, description="Size limit of a stage's scratch folder, and of its /tmp.")
    shared_memory: Memory = Field(1 << 30, description="Size limit of /dev/shm; its use counts as the stage's memory.")
    cache: Subdomain | None = Field(None, description="PersistentVolumeClaim for caches, mounted at /cache.")
    volumes: tuple[Volume, ...] = Field((), description="More volumes: data, the folder of the artifact store.")
    environment: dict[Variable, str] = Field(default_factory=dict, description="Plain environment variables, without secrets.")
    secret_variables: tuple[SecretVariable, ...] = Field((), description="Environment variables from keys of Secrets.")
    secrets: tuple[Subdomain, ...] = Field((), description="Secrets whose keys all become environment variables.")
    artifacts_secret: Subdomain | None = Field(
        None, description=f"Secret whose keys all become variables with the prefix {ARTIFACTS}: the artifact store's AWS_..."
    )
    node_selector: dict[str, str] = Field(default_factory=dict, description="Node labels that the pods require.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that the pods tolerate.")
    priority_class: Subdomain | None = Field(None, description="PriorityClass of the pods.")
    owner: Owner | None = Field(None, description="Owner of the Jobs: its deletion deletes them.")
    rendezvous: Label | None = Field(None, description="Headless Service of the pods with the label eyas.dev/ranks, where ranks meet.")
    dask: DaskCluster | None = Field(None, description="Dask cluster for etl by nvtabular.")
    grace: Duration = Field(timedelta(seconds=20), description="Time between SIGTERM and SIGKILL.")
    ttl: Duration = Field(timedelta(days=1), description="Time that an ended Job stays in the cluster; its log is kept longer.")
    longest_wait: Duration = Field(timedelta(days=1), description="Longest wait for a node, after which a Job ends.")

    @model_validator(mode="after")
    def _check_together(self) -> JobSettings:
        for engine in self.images:
            if engine not in ENGINES:
                raise unknown_name("engine", engine, ENGINES)
        for field, images in (("images", self.images), ("gpu_images", self.gpu_images)):
            for engine, image in images.items():
                if not image or image != image.strip() or " " in image:
                    raise ValueError(f"{field}: expected an image name for '{engine}', got {image!r}")
        missing = [engine for engine in ENGINES if engine not in APART and not any(self._images(engine))]
        if missing:
            raise ValueError(f"images: no image for {', '.join(missing)}; set one, or set 'default'")
        _once("volumes", [volume.name for volume in self.volumes])
        _once("volumes, mount", [volume.mount for volume in self.volumes])
        _once("environment, secret_variables", [*self.environment, *(variable.name for variable in self.secret_variables)])
        return self

    def image(self, engine: str, gpus: int = 0) -> str:
        """Returns the image of an engine's stage with a number of GPUs."""
        usual, with_gpus = self._images(engine)
        image = with_gpus if gpus and with_gpus else usual or with_gpus
        if not image:
            raise Invalid(": ".join(_image_fault(engine)))
        return image

    def _images(self, engine: str) -> tuple[str, str]:
        """Returns the image of an engine without GPUs, and with GPUs; empty if there is none."""
        default = self.images.get("default", "") if engine not in _WITHOUT_DEFAULT else ""
        with_gpus: Mapping[Any, str] = self.gpu_images
        return self.images.get(engine, default), with_gpus.get(engine, "")

    def faults(self, recommender: RecommenderSpec) -> dict[str, str]:
        """Returns the fields of a spec that no image can satisfy, each with the reason and what to do."""
        engines = {stage_engine(recommender, stage) for stage in RESOURCE_STAGES}
        faults = dict(_image_fault(engine) for engine in engines if not any(self._images(engine)))
        if not faults and on_cuda(recommender.model):
            requested = recommender.resources.train.gpu
            if not requested and (requested == 0 or self.of("train").gpu != 1):
                faults["model.params.device"] = "cuda needs a GPU; set resources.train.gpu: 1, or leave it out"
        return faults or gpu_faults(recommender, self.gpu_images)

    def of(self, stage: StageName) -> StageDefaults:
        other: Any = stage if stage in self.stages else RESOURCES.get(stage, stage)
        return self.stages.get(other, StageDefaults())


def _image_fault(engine: str) -> tuple[str, str]:
    """Returns the spec's field that asks for an engine without an image, and what to do."""
    fields = {"nvtabular": ("resources.etl.engine", "use polars"), "xgboost": ("model.params.device", "leave it out")}
    field, instead = fields.get(engine, ("model.framework", "use tensorflow"))
    name = "xgboost with CUDA" if engine == "xgboost" else engine
    return field, f"'{name}' has no image here: {instead}, or ask the operator for one (images in the values of the chart)"


def read_settings(path: Path) -> JobSettings:
    """Reads the operator's file; an error is one line with the file and the field."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(f"{path}: cannot read the settings of Jobs: {error.strerror}") from None
    value: Any = load(text, str(path))
    if not isinstance(value, Mapping):
        raise Invalid(f"{path}: expected a mapping with namespace and images")
    return read(JobSettings, value, str(path))


def _once(where: str, names: list[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"{where}: '{doubled[0]}' is given twice")
