"""Forecasts a run before it exists: checks each stage as the run itself would. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from services.control.stage_cache import StageCache
from shared.contracts.plans import TAKES, run_plan
from shared.contracts.quantities import write_memory
from shared.contracts.spec import RecommenderSpec
from shared.domain.queue import AdmissionDecision, UnfinishedRun, admit
from shared.domain.run import StageDone
from shared.domain.stage_reuse import NEVER, RunForecast, StageForecast
from shared.ports import Clock, RunRecord, RunStore
from shared.run_factory import spec_of, stages_of

RECENT = 20
"""How many runs are read to estimate the duration of stages."""


class Planner:
    def __init__(self, runs: RunStore, bases: StageCache, clock: Clock, limit: int) -> None:
        self._runs = runs
        self._bases = bases
        self._clock = clock
        self._limit = limit

    def turns(self) -> Mapping[str, AdmissionDecision]:
        """Returns the current queue."""
        return admit(self._runs.queued(), self._limit)

    def plan(self, record: RunRecord) -> RunForecast:
        """Forecasts a run that is in no store."""
        newcomer = UnfinishedRun(record.id, record.recommender, record.priority, record.created_at)
        turn = admit([*self._runs.queued(), newcomer], self._limit)[record.id]
        spec = spec_of(record)
        gates = tuple(str(gate) for gate in run_plan(spec, record.spec.mode).gates)
        stages = self._with_estimates(self._stages(record), record, spec)
        return RunForecast(turn.summary, stages, gates, self._bases.data_parts(record, spec))

    def _with_estimates(self, stages: Sequence[StageForecast], record: RunRecord, spec: RecommenderSpec) -> tuple[StageForecast, ...]:
        seconds = self._seconds(record.recommender, record.spec.mode)
        memory = {forecast.stage: spec.resources.of(forecast.stage).memory for forecast in stages}
        written = {stage: write_memory(size) for stage, size in memory.items() if size is not None}
        return tuple(
            forecast
            if forecast.does == "reuse"
            else replace(forecast, seconds=seconds.get(forecast.stage), memory=written.get(forecast.stage))
            for forecast in stages
        )

    def _seconds(self, recommender: str, mode: str) -> Mapping[str, float]:
        """Returns each stage's duration in the newest run of the mode that ran it. A refit that has never run is estimated as train."""
        seconds: dict[str, float] = {}
        for run in self._runs.list(recommender, limit=RECENT):
            for done in run.status.stages:
                if run.spec.mode == mode and not done.reused:
                    seconds.setdefault(done.stage, (done.ended_at - done.started_at).total_seconds())
        return {"refit": seconds["train"], **seconds} if "train" in seconds else seconds

    def _stages(self, record: RunRecord) -> tuple[StageForecast, ...]:
        done: tuple[StageDone, ...] = ()
        forecasts: list[StageForecast] = []
        for stage in stages_of(record):
            unknown = next((forecast.stage for forecast in forecasts if forecast.stage in TAKES[stage] and forecast.does != "reuse"), None)
            if unknown is not None:
                forecasts.append(self._after(record, stage, unknown))
                continue
            basis = self._bases.of(record, stage, done)
            forecasts.append(StageForecast(stage, "reuse" if basis.attempt else "run", basis.attempt or None, basis.why))
            if basis.attempt:
                now = self._clock.now()
                done = (*done, StageDone(stage, basis.attempt, now, now, basis))
        return tuple(forecasts)

    def _after(self, record: RunRecord, stage: str, unknown: str) -> StageForecast:
        """Forecasts a stage without inputs: its other parts may suffice to say that it runs."""
        if stage in NEVER:
            return StageForecast(stage, "run", None, NEVER[stage])
        why = self._bases.changed(record, stage)
        if why is not None:
            return StageForecast(stage, "run", None, why)
        return StageForecast(stage, "open", None, f"runs if the output of {unknown} changes")
