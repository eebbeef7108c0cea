"""Process of a stage: reads spec.json, does the work, publishes one manifest.

Exit codes:
0: published, or published earlier by this attempt
1: any other failure; nothing is published
2: the data or the spec is wrong; the manifest has the reason, and a retry cannot help
3: a rank lost the others; of several ranks (pipelines.training.ranks) only rank 0 publishes
4: a disk is full
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.artifacts import FsspecArtifacts, FsspecLive
from shared.contracts.stage import FULL, Failure, Manifest, StageName, StageSpec
from shared.contracts.strict import read
from shared.contracts.yaml12 import load
from shared.domain.errors import BadData, Conflict, Invalid, Unavailable, is_disk_fault
from shared.telemetry import logs


@dataclass(frozen=True)
class Outcome:
    files: Mapping[str, Path] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One attempt: its spec, the path of spec.json in the scratch folder, the artifact store and the log."""

    spec: StageSpec
    path: Path
    store: FsspecArtifacts
    log: logging.Logger

    @property
    def live(self) -> FsspecLive:
        """Files that this attempt leaves in the store while it works."""
        return FsspecLive(self.spec.artifacts, self.spec.attempt)

    def publish(self, work: Callable[[], Outcome], always: Outcome, leads: bool = True) -> int:
        """Does the work and publishes its manifest; returns the exit code. `always` is published even if the work refuses the data."""
        started, failure, outcome = datetime.now(UTC), None, Outcome()
        try:
            outcome = work()
        except Invalid as error:
            failure = Failure(kind="data" if isinstance(error, BadData) else "spec", message=" ".join(str(error).split()))
            self.log.error("attempt: refused reason=%s", failure.message)
        if leads:
            self._publish(outcome, always, failure, started)
        return 2 if failure else 0

    def _publish(self, outcome: Outcome, always: Outcome, failure: Failure | None, started: datetime) -> None:
        spec, ended = self.spec, datetime.now(UTC)
        seconds = (ended - started).total_seconds()
        manifest = Manifest(
            stage=spec.stage,
            run=spec.run,
            attempt=spec.attempt,
            started=started,
            ended=ended,
            files={name: self.store.put(path) for name, path in sorted({**always.files, **outcome.files}.items())},
            metrics={f"{spec.stage}.stage_seconds": seconds, **outcome.metrics},
            facts={**always.facts, **outcome.facts},
            failure=failure,
        )
        try:
            self.store.publish(manifest)
        except Conflict as error:
            self.log.info("attempt: output dropped reason=%s", error)
            return
        with suppress(OSError):  # garbage collection removes the rest
            self.live.clear()
        if not failure:
            self.log.info("attempt: finished seconds=%.1f", seconds)


def main(stage: StageName, module: str, perform: Callable[[Attempt], int]) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--spec", type=Path, required=True, help="spec.json of the attempt; its folder is the scratch folder")
    path: Path = parser.parse_args().spec.absolute()
    log = logs.stage_log()
    try:
        attempt = _open(stage, path, log)
        code = 0 if attempt is None else perform(attempt)
    except Invalid as error:
        log.error("attempt: refused reason=%s", error)
        code = 2
    except Exception as error:
        full = is_disk_fault(error) or os.strerror(errno.ENOSPC) in str(error)
        with suppress(OSError):  # the log may be on the full disk
            if not (full or isinstance(error, Unavailable)):
                log.error("%s: unexpected error", stage, exc_info=error)
            log.error("%s: failed error=%s: %s", stage, type(error).__name__, " ".join(str(error).split()) or "no message")
        code = FULL if full else 1
    sys.exit(code)


def _open(stage: StageName, path: Path, log: logging.Logger) -> Attempt | None:
    """Opens the attempt of a spec.json; returns None if the attempt is already published, so that nothing is left to do."""
    spec = read(StageSpec, load(path.read_text(), path.name), path.name)
    if spec.stage != stage:
        raise Invalid(f"{path.name}: belongs to the stage '{spec.stage}', not '{stage}'")
    logs.identify_process(run=spec.run, recommender=spec.recommender.name, attempt=spec.attempt)
    store = FsspecArtifacts(spec.artifacts)
    if store.manifest(spec.attempt) is None:
        return Attempt(spec, path, store, log)
    log.info("attempt: already published, nothing to do")
    return None
