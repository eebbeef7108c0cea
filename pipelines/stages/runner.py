"""Runner of every stage: reads spec.json, fetches inputs, does the work, publishes one manifest.

Exit codes:
0: published, or published earlier by this attempt
1: any other failure; nothing is published
2: the data or the spec is wrong; the manifest has the reason, and a retry can't help
3: a rank lost the others; of several ranks (pipelines.training.ranks) only rank 0 publishes
4: a disk is full
"""

from __future__ import annotations

import argparse
import errno
import importlib.metadata
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.models.runtime import GPU_MEMORY, gpu_sizes
from pipelines.stages.launcher import end_with_launcher, launch
from pipelines.training.ranks import LeftAlone, Rank, processes_of, rank_of
from shared.artifacts import FsspecArtifacts, FsspecLive
from shared.contracts.gpus import GPUS
from shared.contracts.quantities import write_memory
from shared.contracts.ranks import LEFT
from shared.contracts.stage import FULL, Failure, Manifest, StageName, StageSpec
from shared.contracts.strict import read
from shared.contracts.yaml12 import load
from shared.domain.errors import BadData, Conflict, Damaged, Invalid, NotFound, is_disk_fault
from shared.domain.run import RESOURCES

LIBRARIES = ("polars", "numpy", "keras", "tensorflow-cpu", "onnx", "onnxruntime", "scipy", "torch", "jax")


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
            raise NotFound(f"{self.spec.stage}: its input '{origin}' has no file '{name}'")
        path = self.scratch / "inputs" / origin / name
        if path in self.fetched:
            return path
        file = self.spec.inputs[origin][name]
        try:
            self.fetched.add(self.store.fetch(file, path))  # doesn't trust a file that an earlier process left
        except Damaged:
            if self.store.set_aside(file):
                self.log.error("input damaged: moved to damaged/, the next run rebuilds it file=%s origin=%s", name, origin)
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


@dataclass(frozen=True)
class Outcome:
    files: dict[str, Path] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


Work = Callable[[Context], Outcome]


def main(stage: StageName, work: Work) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m pipelines.stages.{stage}")
    parser.add_argument("--spec", type=Path, required=True, help="the attempt's spec.json; its folder is the scratch folder")
    path: Path = parser.parse_args().spec.absolute()
    log = _logger(stage)
    try:
        code = _attempt(stage, work, path, log)
    except Invalid as error:
        log.error("refused: %s", error)
        code = 2
    except LeftAlone as error:
        sys.stderr.write(f"{stage}: failed: {error}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(LEFT)  # threads of a broken group may never end
    except Exception as error:
        full = is_disk_fault(error) or os.strerror(errno.ENOSPC) in str(error)
        reason = " ".join(str(error).split()) or "no message"
        with suppress(OSError):  # the log may be on the full disk
            if not full:
                traceback.print_exc()
            sys.stderr.write(f"{stage}: failed: {type(error).__name__}: {reason}\n")
        code = FULL if full else 1
    sys.exit(code)


def _attempt(stage: StageName, work: Work, path: Path, log: logging.Logger) -> int:
    spec = read(StageSpec, load(path.read_text(), path.name), path.name)
    if spec.stage != stage:
        raise Invalid(f"{path.name}: it is for the stage '{spec.stage}', not '{stage}'")
    store = FsspecArtifacts(spec.artifacts)
    if store.manifest(spec.attempt) is not None:
        log.info("attempt %s is published already; nothing to do", spec.attempt)
        return 0
    rank = rank_of(spec)
    if rank is None and processes_of(spec) > 1:
        return launch(spec, path, log)
    if rank is not None:
        end_with_launcher()
    resources = spec.recommender.resources.of(stage)
    leads = rank is None or rank.leads
    if leads and resources.gpu and GPUS not in os.environ and not gpu_sizes():
        log.warning("resources.%s.gpu: this machine has no GPU: the stage runs on the CPU", RESOURCES.get(stage, stage))
    cap = resources.gpu_memory
    if cap is not None:
        os.environ[GPU_MEMORY] = write_memory(cap)
    started = datetime.now(UTC)
    context, failure, outcome = Context(spec, path.parent, store, log, rank=rank), None, Outcome()
    try:
        outcome = work(context)
    except Invalid as error:
        failure = Failure(kind="data" if isinstance(error, BadData) else "spec", message=" ".join(str(error).split()))
        log.error("refused: %s", failure.message)
    if leads:
        _publish(context, outcome, failure, started)
    return 2 if failure else 0


def _publish(context: Context, outcome: Outcome, failure: Failure | None, started: datetime) -> None:
    spec, store, log, ended = context.spec, context.store, context.log, datetime.now(UTC)
    seconds = (ended - started).total_seconds()
    manifest = Manifest(
        stage=spec.stage,
        run=spec.run,
        attempt=spec.attempt,
        started=started,
        ended=ended,
        files={name: store.put(path) for name, path in sorted({**context.diagnostic_files, **outcome.files}.items())},
        metrics={f"{spec.stage}.stage_seconds": seconds} | outcome.metrics,
        facts={"libraries": _versions()} | outcome.facts,
        failure=failure,
    )
    try:
        store.publish(manifest)
    except Conflict as error:
        log.info("%s; this try's output is dropped", error)
        return
    with suppress(OSError):  # garbage collection removes the rest
        context.live.clear()
    if not failure:
        log.info("done in %.1f s", seconds)


def _logger(stage: str) -> logging.Logger:
    """Logs plain lines to stdout, each flushed; silences libraries."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"{stage}: %(message)s"))
    log = logging.getLogger("eyas.stage")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log


def _versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
