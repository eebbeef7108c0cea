"""Runs in the control loop: observe the stages of a run and carry out its decisions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from services.control.admission import Admissions
from services.control.card import complete
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache, published, takes_events
from shared.contracts.card import CARD, Exported
from shared.contracts.plans import estimators, run_plan
from shared.contracts.records import Lineage, RolloutSpec
from shared.contracts.serving import window
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, LoggedAnswers, Manifest, StageName, StageSpec, digest_of
from shared.contracts.strict import read
from shared.domain import run as domain
from shared.domain.entity_ids import IdKinds
from shared.domain.errors import NotFound
from shared.domain.rollout import RolloutStatus
from shared.domain.run import AttemptResult, RegisterVersion, RunObservation, RunStatus, StageDone, StartStage, StopStage
from shared.ports import Clock, Executor, RecommenderStore, Record, RolloutStore, RunRecord, Version
from shared.run_factory import collected_basis, rests_on, rollout_id, spec_of, stages_of, table_place
from shared.serving.signature import RECOMMENDATIONS
from shared.telemetry import metrics

_INTEGERS = IdKinds("integer", "integer")
LOGGED = timedelta(days=30)
"""Older answers say little about the users of today."""


@dataclass(frozen=True)
class AllowLists:
    """The operator's allow-lists: roots of data, and modules of custom families."""

    data_roots: tuple[str, ...]
    families: tuple[str, ...] = ()


class Runs:
    """Kind of runs."""

    machine = domain.MACHINE
    status_type: Any = RunStatus
    effect_type: Any = domain.RunEffect

    def __init__(
        self,
        rollouts: RolloutStore,
        executor: Executor,
        snapshots: Snapshots,
        clock: Clock,
        allowed: AllowLists,
        bases: StageCache,
        turns: Admissions,
        recommenders: RecommenderStore,
    ) -> None:
        self._recommenders = recommenders
        self.store = bases.runs
        self._rollouts = rollouts
        self._registry = bases.registry
        self._executor = executor
        self._artifacts = bases.artifacts
        self._snapshots = snapshots
        self._clock = clock
        self._allowed = allowed
        self._bases = bases
        self._turns = turns

    def observe(self, record: RunRecord) -> RunObservation:
        try:
            observation = self._look(record)
        except NotFound:
            gone = self._gone(record)
            if gone is None:
                raise
            return RunObservation(gone=gone)
        return observation if observation.ahead is None else replace(observation, gone=self._gone(record))

    def _gone(self, record: RunRecord) -> str | None:
        return None if rests_on(record) is None else collected_basis(record, self._registry.collected(record.recommender))

    def _look(self, record: RunRecord) -> RunObservation:
        status = record.status
        if record.request is not None:  # requests are answered first, whatever artifacts say
            return RunObservation(record.request)
        if status.state == "pending":
            waits = self._turns.wait(record)
            return RunObservation(waits=waits) if waits else RunObservation(ahead=self._bases.of(record, "etl", ()))
        if status.state not in domain.STAGES:
            return RunObservation()
        if status.retry_at is not None:
            due = status.retry_at <= self._clock.now()
            return RunObservation(ahead=self._bases.of(record, status.state, status.stages) if due else None)
        return self._observe_stage(record)

    def _observe_stage(self, record: RunRecord) -> RunObservation:
        status = record.status
        attempt = domain.current(record.id, status)
        if status.basis is not None and status.basis.attempt:
            job, manifest = None, self._bases.intact(attempt)
        else:
            job = self._executor.observe(attempt)  # before the manifest: an ended job has published by now
            manifest = self._artifacts.manifest(attempt)
        if manifest is None:
            ended = job is None or job.phase not in ("waiting", "running")
            return RunObservation(job=job, ahead=self._bases.of(record, status.state, status.stages) if ended else None)
        numbers = {**self._metrics(status), **manifest.metrics}
        failure = manifest.failure.message if manifest.failure else None
        published = AttemptResult(numbers, failure, record.spec.serving is not None, self._bases.steady(record), manifest.silence())
        following = domain.next_stage(stages_of(record), status.state)
        if failure or following is None:
            return RunObservation(job=job, published=published)
        done = StageDone(status.state, attempt, self._clock.now(), self._clock.now())
        return RunObservation(job=job, published=published, ahead=self._bases.of(record, following, (*status.stages, done)))

    def decide(self, record: RunRecord, observation: RunObservation, now: datetime) -> domain.RunDecision:
        plan = run_plan(spec_of(record), record.spec.mode)
        plan = replace(plan, stages=stages_of(record), accepts=record.spec.accepts or "")
        return domain.decide(record.id, record.status, observation, plan, now)

    def act(self, record: RunRecord, following: RunStatus, effect: domain.RunEffect) -> None:
        if isinstance(effect, StartStage):
            if self._artifacts.manifest(effect.attempt) is None and self._executor.observe(effect.attempt) is None:
                stage = self._stage(record, following, effect)
                self._artifacts.pin(stage.attempt, [file for files in stage.inputs.values() for file in files.values()])
                self._executor.start(stage)
        elif isinstance(effect, StopStage):
            self._executor.stop(effect.attempt)
        elif isinstance(effect, RegisterVersion):
            self._register(record, following)

    def committed(self, record: RunRecord, following: RunStatus) -> None:
        if self.machine.terminal(following.state):
            metrics.RUNS.labels(record.recommender, following.state).inc()
        if following.dead_letter:
            metrics.DEAD_LETTERS.labels(record.recommender, following.state).inc()
        for done in following.stages[len(record.status.stages) :]:
            if done.reused:
                metrics.REUSED.labels(record.recommender, done.stage).inc()
                continue
            seconds = (done.ended_at - done.started_at).total_seconds()
            metrics.STAGE_SECONDS.labels(record.recommender, done.stage).observe(seconds)
            self._bases.keep(record.recommender, done)

    def awake(self) -> Collection[str]:
        return self._turns.come()

    def overtaken(self, record: RunRecord, effect: domain.RunEffect) -> None:
        """Stops a stage that started too late, under a name that was free again."""
        if isinstance(effect, StartStage) and effect.attempt not in self._wanted(self.store.get(record.id)):
            self._executor.stop(effect.attempt)

    def give_up(self, record: RunRecord, following: RunStatus | None, why: str) -> domain.RunDecision | None:
        return domain.give_up(record.id, record.status, following, why)

    def _wanted(self, record: RunRecord) -> frozenset[str]:
        """Returns the attempts that are in progress or about to start."""
        effects = record.intent["effects"] if record.intent is not None else ()
        starting = {str(effect["attempt"]) for effect in effects if effect["kind"] == "start_stage"}
        return domain.works(record.id, record.status) | starting

    def _stage(self, record: RunRecord, following: RunStatus, effect: StartStage) -> StageSpec:
        spec = spec_of(record)
        name: StageName = effect.stage  # type: ignore[assignment]
        inputs = self._bases.inputs(record, spec, name, following.stages)
        if name != "etl":
            self._fix_ids(record, following)
        ids = self._recommenders.get(record.recommender).ids
        events_since = None
        if name == "etl" and ids != _INTEGERS:
            inputs["ids"] = self._snapshots.id_key()
        if name == "etl" and (forgotten := self._snapshots.forgotten(record.recommender)):
            inputs["forgotten"] = forgotten
        if name == "etl" and takes_events(record, spec):
            assert following.attempt_since is not None
            events_since = self._events_since(record)
            inputs["events"] = self._snapshots.take(record.recommender, events_since, following.attempt_since)
        if name == "etl" and spec.data.users is not None:
            assert following.attempt_since is not None
            values = self._snapshots.values(record.recommender, following.attempt_since)
            inputs |= {"features": values} if values else {}
        answers = None
        serving = record.spec.serving
        if name == "evaluate" and estimators(spec) and serving is not None:
            assert following.attempt_since is not None
            answers = self._answers(record.recommender, serving, following.attempt_since)
            inputs["answers"] = self._logged(spec, answers)
        return StageSpec(
            stage=name,
            run=record.id,
            attempt=effect.attempt,
            recommender=spec,
            inputs=inputs,
            events_since=events_since,
            mode=record.spec.mode,
            ids=ids,
            answers=answers,
            data_roots=self._allowed.data_roots,
            families=self._allowed.families,
            attributes=self._snapshots.attributes(record.recommender) if name == "etl" else None,
            artifacts=self._artifacts.url,
        )

    def _fix_ids(self, record: RunRecord, following: RunStatus) -> None:
        """Fixes the kinds of ids that etl read in the data; raises Conflict if a client has fixed another kind since etl began."""
        etl = next(done.attempt for done in following.stages if done.stage == "etl")
        fact = self._published(etl).facts.get("ids")
        kinds = IdKinds(**fact) if isinstance(fact, dict) else _INTEGERS  # published before ids could be text
        self._recommenders.fix_ids(record.recommender, kinds)

    def _answers(self, recommender: str, serving: int, until: datetime) -> LoggedAnswers:
        version = self._registry.get(recommender, serving)
        return LoggedAnswers(version=version.number, since=max(version.created_at, until - LOGGED), until=until)

    def _logged(self, spec: RecommenderSpec, answers: LoggedAnswers) -> Files:
        """Includes likes from before the first answer, as far back as `not_seen` hides liked items."""
        not_seen = spec.serve.not_seen
        before = window(not_seen) if not_seen is not None else timedelta(0)
        return self._snapshots.answers(spec.name, answers.since, answers.until, None if before is None else answers.since - before)

    def _events_since(self, record: RunRecord) -> datetime | None:
        """Returns the time from which on a run reads events. A warm run begins where its parent ended; None: a full run reads all."""
        if record.spec.mode == "warm" and record.spec.serving is not None:
            return self._registry.get(record.recommender, record.spec.serving).lineage.snapshot
        return None

    def _register(self, record: RunRecord, following: RunStatus) -> None:
        self._fix_ids(record, following)
        lineage = self._bases.lineage(record, following.stages)
        parent = record.spec.serving if record.spec.mode == "warm" else None
        files = self._with_card(record, following, lineage, parent)
        now = self._clock.now()
        version = self._registry.register(
            Version(
                recommender=record.recommender,
                number=0,
                run=record.id,
                digest=digest_of(files),
                files=files,
                metrics=self._metrics(following),
                lineage=lineage,
                parent=parent,
                created_at=now,
            )
        )
        if RECOMMENDATIONS in files:
            self._artifacts.show(files[RECOMMENDATIONS], table_place(record.recommender, version.number))
        spec = RolloutSpec(version.number, record.spec.document)
        self._rollouts.create(Record(rollout_id(record.id), record.recommender, spec, RolloutStatus(), now, now), "eyas")

    def _with_card(self, record: RunRecord, following: RunStatus, lineage: Lineage, parent: int | None) -> Files:
        """Returns the exported files with the completed card: the same at every call."""
        manifests = {done.stage: self._published(done.attempt) for done in following.stages}
        files = manifests["export"].files
        begun = read(Exported, json.loads(self._artifacts.read(files[CARD])), CARD) if CARD in files else None
        card = complete(record.recommender, record.id, following, manifests, begun, lineage, parent)
        with tempfile.TemporaryDirectory(prefix="eyas-card-") as folder:
            path = Path(folder) / CARD
            path.write_text(card.model_dump_json(indent=1))
            return {**files, CARD: self._artifacts.put(path)}

    def _metrics(self, status: RunStatus) -> dict[str, float]:
        return {name: value for done in status.stages for name, value in self._published(done.attempt).metrics.items()}

    def _published(self, attempt: str) -> Manifest:
        return published(self._artifacts, attempt)
