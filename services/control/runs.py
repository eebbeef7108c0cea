"""Runs in the loop: what is seen of a run's stages, and how its decisions become work."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from shared.contracts.plans import run_plan
from shared.contracts.spec import MetricGate, RecommenderSpec
from shared.contracts.stage import Files, Manifest, StageName, StageSpec, digest_of
from shared.contracts.strict import read
from shared.domain import run as domain
from shared.domain.errors import NotFound
from shared.domain.ids import attempt_name
from shared.domain.rollout import RolloutStatus
from shared.domain.run import Published, RegisterVersion, RunObservation, RunStatus, StartStage, StopStage
from shared.launch import rollout_id
from shared.ports import ArtifactStore, Clock, EventLog, Executor, Record, Registry, RolloutStore, RunStore, Version
from shared.telemetry import metrics


class Runs:
    """The Kind of runs."""

    machine = domain.MACHINE
    status_type: Any = RunStatus
    effect_type: Any = domain.RunEffect

    def __init__(
        self,
        store: RunStore,
        rollouts: RolloutStore,
        registry: Registry,
        executor: Executor,
        artifacts: ArtifactStore,
        events: EventLog,
        clock: Clock,
        data_roots: tuple[str, ...],
    ) -> None:
        self.store = store
        self._rollouts = rollouts
        self._registry = registry
        self._executor = executor
        self._artifacts = artifacts
        self._events = events
        self._clock = clock
        self._data_roots = data_roots

    def observe(self, record: Record[RunStatus]) -> RunObservation:
        state = record.status.state
        if state == "pending":
            return RunObservation(record.asked, blocked_by=self._blocked_by(record))
        if state not in domain.STAGES or record.asked is not None:  # what is asked is answered first, whatever artifacts say
            return RunObservation(record.asked)
        attempt = attempt_name(record.id, state, record.status.attempt)
        job = self._executor.observe(attempt)  # before the manifest: what ended has published by now
        manifest = self._artifacts.manifest(attempt)
        if manifest is None:
            return RunObservation(record.asked, job=job)
        numbers = {**self._metrics(record.status), **manifest.metrics}
        failure = manifest.failure.message if manifest.failure else None
        return RunObservation(record.asked, job=job, published=Published(numbers, failure, record.spec["serving"] is not None))

    def decide(self, record: Record[RunStatus], seen: RunObservation, now: datetime) -> domain.RunDecision:
        return domain.decide(record.id, record.status, seen, run_plan(spec_of(record)), now)

    def act(self, record: Record[RunStatus], following: RunStatus, effect: domain.RunEffect) -> None:
        if isinstance(effect, StartStage):
            if self._artifacts.manifest(effect.attempt) is None and self._executor.observe(effect.attempt) is None:
                self._executor.start(self._stage(record, following, effect))
        elif isinstance(effect, StopStage):
            self._executor.stop(effect.attempt)
        elif isinstance(effect, RegisterVersion):
            self._register(record, following)

    def committed(self, record: Record[RunStatus], following: RunStatus) -> None:
        if self.machine.terminal(following.state):
            metrics.RUNS.labels(record.recommender, following.state).inc()
        for done in following.stages[len(record.status.stages) :]:
            seconds = (done.ended_at - done.started_at).total_seconds()
            metrics.STAGE_SECONDS.labels(record.recommender, done.stage).observe(seconds)

    def _blocked_by(self, record: Record[RunStatus]) -> str | None:
        """Single flight: the oldest active run of a recommender goes first."""
        oldest = self.store.oldest_active(record.recommender)
        return None if oldest == record.id else oldest

    def _stage(self, record: Record[RunStatus], following: RunStatus, effect: StartStage) -> StageSpec:
        spec = spec_of(record)
        name: StageName = effect.stage  # type: ignore[assignment]
        inputs = {done.stage: self._published(done.attempt).files for done in following.stages}
        inputs |= self._from_serving(record, spec, name)
        if name == "etl" and (record.spec["mode"] == "warm" or spec.data.interactions.also == "events"):
            assert following.attempt_since is not None
            inputs["events"] = self._snapshot(record, following.attempt_since)
        return StageSpec(
            stage=name,
            run=record.id,
            attempt=effect.attempt,
            recommender=spec,
            inputs=inputs,
            mode=record.spec["mode"],
            data_roots=self._data_roots,
            artifacts=self._artifacts.url,
        )

    def _from_serving(self, record: Record[RunStatus], spec: RecommenderSpec, stage: StageName) -> dict[str, Files]:
        """Files of the version that served when the run was asked for: to start from, or to compare with."""
        number = record.spec["serving"]
        if number is None:
            return {}
        version = self._registry.get(record.recommender, number)
        if record.spec["mode"] == "warm" and stage in ("etl", "train"):
            parent = self.store.get(version.run).status
            wanted = [done.attempt for done in parent.stages if done.stage in ("etl", "train")]
            return {"parent": {name: file for one in wanted for name, file in self._published(one).files.items()}}
        compares = any(isinstance(gate, MetricGate) and "serving" in (gate.better_than, gate.not_worse_than) for gate in spec.gates)
        return {"serving": version.files} if stage == "evaluate" and compares else {}

    def _snapshot(self, record: Record[RunStatus], until: datetime) -> Files:
        """The platform's own events as a file: all of them, or for a warm run those since the parent's snapshot."""
        since = None
        if record.spec["mode"] == "warm" and record.spec["serving"] is not None:
            parent = self._registry.get(record.recommender, record.spec["serving"])
            since = datetime.fromisoformat(parent.lineage["snapshot"])
        with tempfile.TemporaryDirectory(prefix="eyas-events-") as folder:
            path = Path(folder) / "events.csv"
            self._events.export(record.recommender, since, until, path)
            return {"events.csv": self._artifacts.put(path)}

    def _register(self, record: Record[RunStatus], following: RunStatus) -> None:
        files = self._published(next(done.attempt for done in following.stages if done.stage == "export")).files
        facts = {done.stage: self._published(done.attempt).facts for done in following.stages}
        now = self._clock.now()
        version = self._registry.register(
            Version(
                recommender=record.recommender,
                number=0,
                run=record.id,
                digest=digest_of(files),
                files=files,
                metrics=self._metrics(following),
                lineage={
                    "snapshot": following.stages[0].started_at.isoformat(),
                    "spec_generation": record.spec["generation"],
                    "mode": record.spec["mode"],
                    "cause": record.spec["cause"],
                    "stages": facts,
                },
                parent=record.spec["serving"] if record.spec["mode"] == "warm" else None,
                created_at=now,
            )
        )
        rollout = Record(
            id=rollout_id(record.id),
            recommender=record.recommender,
            spec={"version": version.number, "document": record.spec["document"]},
            status=RolloutStatus(),
            created_at=now,
            due_at=now,
        )
        self._rollouts.create(rollout, "eyas")

    def _metrics(self, status: RunStatus) -> dict[str, float]:
        return {name: value for done in status.stages for name, value in self._published(done.attempt).metrics.items()}

    def _published(self, attempt: str) -> Manifest:
        manifest = self._artifacts.manifest(attempt)
        if manifest is None:
            raise NotFound(f"the manifest of {attempt} is gone from {self._artifacts.url}")
        return manifest


def spec_of(record: Record[Any]) -> RecommenderSpec:
    """The spec as it was when the row was made."""
    return read(RecommenderSpec, record.spec["document"], f"spec of {record.id}")
