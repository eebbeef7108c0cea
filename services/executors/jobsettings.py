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

from shared.contracts.gpus import RESOURCE_STAGES, gpu_faults, stage_engine
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
GpuEngine = Literal["nvtabular", "torch", "tensorflow", "jax"]
APART = frozenset({"default", "nvtabular", "torch", "jax"})
"""Engines that need no image unless a spec uses them."""
ARTIFACTS = "EYAS_ARTIFACTS_"
TAKEN = frozenset({"scratch", "tmp", "shm", "cache"})


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

    user: int = Field(65532, ge=1, description="User number of the processes.")
    group: int = Field(65532, ge=1, description="Group number of the processes; volumes that can be are given to it.")


class Toleration(Strict):
    key: str | None = Field(None, description="The taint's key; every key if not given.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="How it is compared.")
    value: str | None = Field(None, description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(None, description="Every effect if not given.")


class Volume(Strict):
    """A volume with one source, mounted into every stage."""

    name: Label = Field(description="Within the pod.")
    mount: Folder = Field(description="Where stages see it.")
    read_only: bool = Field(False, description="Whether stages may only read it.")
    claim: Subdomain | None = Field(None, description="A PersistentVolumeClaim.")
    host_path: Folder | None = Field(None, description="A folder of the node: for clusters of one node.")
    config_map: Subdomain | None = Field(None, description="A ConfigMap, as files.")
    secret: Subdomain | None = Field(None, description="A Secret, as files.")

    @model_validator(mode="after")
    def _one_source(self) -> Volume:
        sources = [source for source in ("claim", "host_path", "config_map", "secret") if getattr(self, source) is not None]
        if len(sources) != 1:
            raise ValueError(f"volume '{self.name}': name one of claim, host_path, config_map, secret; it names {len(sources)}")
        if self.name in TAKEN:
            raise ValueError(f"volume '{self.name}': the names {', '.join(sorted(TAKEN))} are taken")
        return self


class SecretVariable(Strict):
    """An environment variable from a key of a Secret."""

    name: Variable = Field(description="Of the variable.")
    secret: Subdomain = Field(description="The Secret.")
    key: str = Field(description="The Secret's key.", pattern=r"^[-._a-zA-Z0-9]{1,253}$")


class Owner(Strict):
    """Owner of the Jobs, which are deleted with it: the control plane's Deployment."""

    kind: Literal["Deployment"] = Field("Deployment", description="Its kind.")
    api_version: Literal["apps/v1"] = Field("apps/v1", alias="apiVersion", description="Its kind's version.")
    name: Subdomain = Field(description="Its name; of the same namespace.")
    uid: str | None = Field(None, min_length=1, description="Its uid; the cluster is asked for it at start if it isn't given.")


class StageDefaults(Strict):
    """Resources of a stage if its spec gives none, and the nodes it runs on."""

    cpu: Cpu = Field(1000, description="Cores.")
    memory: Memory = Field(4 << 30, description="Memory.")
    gpu: int = Field(0, ge=0, le=64, description="Whole GPUs.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Added to that of all stages.")
    tolerations: tuple[Toleration, ...] = Field((), description="Added to those of all stages.")


class JobSettings(Strict):
    namespace: Label = Field(description="Where the Jobs are made.")
    instance: Label = Field("eyas", description="Which platform they are of: two of them may share a namespace.")
    images: dict[str, str] = Field(description=f"Image by engine: {', '.join(ENGINES)}.")
    gpu_engines: tuple[GpuEngine, ...] = Field(
        (), description="Engines whose images have a library for GPUs. Other stages get no GPU, and a spec that asks for one is refused."
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field("IfNotPresent", description="When nodes fetch the image.")
    pull_secrets: tuple[Subdomain, ...] = Field((), description="Secrets to fetch it with.")
    python: str = Field("python", min_length=1, description="The interpreter within the image.")
    service_account: Subdomain = Field("default", description="Of the pods; its token is never mounted.")
    identity: Identity = Field(Identity(), description="Whom stages run as.")
    stages: dict[StageName, StageDefaults] = Field(default_factory=dict, description="Defaults by stage.")
    scratch: Memory = Field(20 << 30, description="The most that a stage may write to its scratch folder; /tmp is as large.")
    shared_memory: Memory = Field(1 << 30, description="The most of /dev/shm; it counts as the stage's memory.")
    cache: Subdomain | None = Field(None, description="A PersistentVolumeClaim for caches, mounted at /cache.")
    volumes: tuple[Volume, ...] = Field((), description="Further volumes: data, the artifact store's folder.")
    environment: dict[Variable, str] = Field(default_factory=dict, description="Plain variables. Secrets don't belong here.")
    secret_variables: tuple[SecretVariable, ...] = Field((), description="Variables from Secrets, by reference.")
    secrets: tuple[Subdomain, ...] = Field((), description="Secrets of which every key becomes a variable.")
    artifacts_secret: Subdomain | None = Field(
        None, description=f"A Secret of which every key becomes a variable that begins with {ARTIFACTS}: the artifact store's AWS_..."
    )
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that a node must have.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that are no hindrance.")
    priority_class: Subdomain | None = Field(None, description="PriorityClass of the pods.")
    owner: Owner | None = Field(None, description="What the Jobs go away with.")
    rendezvous: Label | None = Field(None, description="A headless Service over pods that are labelled eyas.dev/ranks: how ranks meet.")
    grace: Duration = Field(timedelta(seconds=20), description="Between the request to end and the end by force.")
    ttl: Duration = Field(timedelta(days=1), description="How long an ended Job stays to be looked at; its log is kept anyway.")
    longest_wait: Duration = Field(timedelta(days=1), description="After so long without a node a Job ends.")

    @model_validator(mode="after")
    def _fit_together(self) -> JobSettings:
        for engine, image in self.images.items():
            if engine not in ENGINES:
                raise unknown_name("engine", engine, ENGINES)
            if not image or image != image.strip() or " " in image:
                raise ValueError(f"images: '{engine}' needs an image's name, got {image!r}")
        missing = [engine for engine in ENGINES if engine not in self.images and engine not in APART]
        if missing and "default" not in self.images:
            raise ValueError(f"images: there is none for {', '.join(missing)}; name it, or a 'default'")
        for engine in self.gpu_engines:
            if self._image_fault(engine):
                raise ValueError(f"gpu_engines: '{engine}' has no image; name it in images")
        _once("volumes", [volume.name for volume in self.volumes])
        _once("volumes, mount", [volume.mount for volume in self.volumes])
        _once("environment, secret_variables", [*self.environment, *(variable.name for variable in self.secret_variables)])
        return self

    def image(self, engine: str) -> str:
        if fault := self._image_fault(engine):
            raise Invalid(": ".join(fault))
        return self.images.get(engine) or self.images["default"]

    def _image_fault(self, engine: str) -> tuple[str, str] | None:
        """Returns the spec's field that asks for the engine, and why no image has the engine; None if an image has it."""
        if engine in self.images or ("default" in self.images and engine != "nvtabular"):
            return None
        field, other = ("resources.etl.engine", "polars") if engine == "nvtabular" else ("model.framework", "tensorflow")
        return field, f"'{engine}' has no image here: say {other}, or ask the operator for one (images in the values of the chart)"

    def faults(self, recommender: RecommenderSpec) -> dict[str, str]:
        """Returns the fields of a spec that no image can satisfy, each with the reason and what to do."""
        engines = {stage_engine(recommender, stage) for stage in RESOURCE_STAGES}
        faults = dict(fault for engine in engines if (fault := self._image_fault(engine)))
        return faults or gpu_faults(recommender, self.gpu_engines)

    def of(self, stage: StageName) -> StageDefaults:
        other: Any = stage if stage in self.stages else RESOURCES.get(stage, stage)
        return self.stages.get(other, StageDefaults())


def read_settings(path: Path) -> JobSettings:
    """Reads the operator's file; an error is one line with the file and the field."""
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(f"the settings of Jobs can't be read: {path}: {error.strerror}") from None
    value: Any = load(text, str(path))
    if not isinstance(value, Mapping):
        raise Invalid(f"{path}: expected a mapping with namespace and images")
    return read(JobSettings, value, str(path))


def _once(where: str, names: list[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"{where}: '{doubled[0]}' is given twice")
