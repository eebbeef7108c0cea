"""Runner of the stages: what a stage gets, and how it runs as one process or as several ranks."""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.models.runtime import GPU_MEMORY, gpu_sizes
from pipelines.stages.launcher import end_with_launcher, launch
from pipelines.training.ranks import LeftAlone, Rank, processes_of, rank_of
from shared import stage_process
from shared.artifacts import FsspecArtifacts, FsspecLive
from shared.contracts.gpus import GPUS
from shared.contracts.quantities import write_memory
from shared.contracts.ranks import LEFT
from shared.contracts.stage import StageName, StageSpec
from shared.domain.errors import Damaged, NotFound
from shared.domain.run import RESOURCES
from shared.stage_process import Attempt, Outcome

LIBRARIES = ("polars", "numpy", "keras", "tensorflow", "tensorflow-cpu", "onnx", "onnxruntime", "scipy", "torch", "jax")


@dataclass(frozen=True)
class Context:
    """Inputs and outputs of a stage. Inputs are fetched and verified at first use."""

    spec: StageSpec
    scratch: Path
    store: FsspecArtifacts
    log: logging.Logger
    fetched: set[Path] = field(default_factory=set)
    diagnostic_files: dict[str, Path] = field(default_factory=dict)
    rank: Rank | None = None
    """Rank of this process, if the stage has several."""

    def has(self, origin: str, name: str) -> bool:
        return name in self.spec.inputs.get(origin, {})

    def fetch(self, origin: str, name: str) -> Path:
        if not self.has(origin, name):
            raise NotFound(f"{self.spec.stage}: input '{origin}' has no file '{name}'")
        path = self.scratch / "inputs" / origin / name
        if path in self.fetched:
            return path
        file = self.spec.inputs[origin][name]
        try:
            self.fetched.add(self.store.fetch(file, path))  # doesn't trust a file that an earlier process left
        except Damaged:
            if self.store.set_aside(file):
                self.log.error("input: damaged, moved to damaged/, the next run rebuilds it file=%s origin=%s", name, origin)
            raise
        return path

    def fetcher(self, origin: str) -> Callable[[str], Path]:
        return lambda name: self.fetch(origin, name)

    @property
    def live(self) -> FsspecLive:
        """Files that this attempt leaves in the store while it works."""
        return FsspecLive(self.spec.artifacts, self.spec.attempt)

    @property
    def output(self) -> Path:
        """Folder for output files."""
        folder = self.scratch / "out"
        folder.mkdir(exist_ok=True)
        return folder

    def out(self, name: str) -> Path:
        return self.output / name

    def keep(self, name: str) -> Path:
        """Returns the path of an output file for the caller to write; published even if the stage refuses its data."""
        path = self.diagnostic_files[name] = self.out(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


Work = Callable[[Context], Outcome]


def main(stage: StageName, work: Work) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    stage_process.main(stage, f"pipelines.stages.{stage}", lambda attempt: _perform(attempt, work))


def _perform(attempt: Attempt, work: Work) -> int:
    spec, log, rank = attempt.spec, attempt.log, rank_of(attempt.spec)
    if rank is None and processes_of(spec) > 1:
        return launch(spec, attempt.path, log)
    if rank is not None:
        end_with_launcher()
    resources = spec.recommender.resources.of(spec.stage)
    leads = rank is None or rank.leads
    if leads and resources.gpu and GPUS not in os.environ and not gpu_sizes():
        log.warning("gpu: not found, the stage runs on the CPU setting=%s", f"resources.{RESOURCES.get(spec.stage, spec.stage)}.gpu")
    if resources.gpu_memory is not None:
        os.environ[GPU_MEMORY] = write_memory(resources.gpu_memory)
    context = Context(spec, attempt.path.parent, attempt.store, log, rank=rank)
    try:
        return attempt.publish(lambda: work(context), Outcome(context.diagnostic_files, facts={"libraries": _versions()}), leads)
    except LeftAlone as error:
        log.error("%s: failed error=%s", spec.stage, error)
        os._exit(LEFT)  # threads of a broken group may never end


def _versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
