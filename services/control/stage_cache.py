"""Stage cache: the parts of each stage, an earlier attempt that can be reused, and the lineage that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from services.control.model_lineage import line_of
from shared.contracts.encoding import EARLIER, ENCODED
from shared.contracts.features import Vector
from shared.contracts.gates import MetricGate
from shared.contracts.items_table import ITEMS_TABLE
from shared.contracts.plans import TAKES, estimators, stage_parts
from shared.contracts.records import AttemptLineage, DataLineage, Lineage
from shared.contracts.refit import REFIT
from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest, digest_of
from shared.contracts.validation_report import ACCEPTED, PROFILE
from shared.domain.errors import EyasError, NotFound
from shared.domain.run import StageDone
from shared.domain.stage_reuse import NEVER, ReuseBasis, StageOutput, digest, part, why_not
from shared.ports import ArtifactStore, DataSource, Registry, RunRecord, RunStore, StageOutputs, Version
from shared.run_factory import adopted, spec_of

_DATA, _INPUT = "data: ", "input: "
_LOG = "the log of answers is read again by each run"
_BESIDE = (ACCEPTED, EARLIER)
"""Inputs that stage reuse ignores."""


class StageCache:
    """Finds attempts to reuse. `code` identifies the sources of the stages: no release reuses another release's output."""

    def __init__(
        self,
        runs: RunStore,
        registry: Registry,
        artifacts: ArtifactStore,
        outputs: StageOutputs,
        data: DataSource,
        code: str,
        has_values: Callable[[str], bool] = lambda _: False,
        forgot_at: Callable[[str], datetime | None] = lambda _: None,
    ) -> None:
        """`has_values` returns whether feature values of users were ever written; `forgot_at`, when a user was last forgotten."""
        self._has_values = has_values
        self._forgot_at = forgot_at
        self.runs = runs
        self.registry = registry
        self.artifacts = artifacts
        self._outputs = outputs
        self._data = data
        self._code = code

    def of(self, record: RunRecord, stage: str, done: tuple[StageDone, ...]) -> ReuseBasis:
        """Returns the basis of a stage that would start now, after the stages in `done`."""
        spec = spec_of(record)
        adopted_stage = adopted(record, stage, done)
        if adopted_stage is not None and self._is_adoptable(record, adopted_stage):
            old = adopted_stage.basis or ReuseBasis()
            return ReuseBasis(old.digest, old.parts, adopted_stage.attempt, f"published by run {record.spec.retry_of}", adopted_stage.began)
        parts = self._parts(record, spec, stage, done)
        if stage in NEVER:
            return ReuseBasis(parts=parts, why=NEVER[stage])
        if stage == "etl":
            if takes_events(record, spec):
                return ReuseBasis(parts=parts, why="the platform's events are read again by each run")
            if spec.data.users is not None and self._has_values(record.recommender):
                return ReuseBasis(parts=parts, why="written user values are read again by each run")
            if any(place.query for place in _places(record, spec)):
                return ReuseBasis(parts=parts, why="the database is queried again by each run")
            if not all(self._fingerprint(place) for place in _places(record, spec)):
                return ReuseBasis(parts=parts, why="the control plane cannot check the data for changes")
        if stage == "evaluate" and estimators(spec):
            return ReuseBasis(parts=parts, why=_LOG)
        basis = ReuseBasis(digest(stage, parts), parts)
        if record.spec.fresh:
            return replace(basis, why="requested with 'fresh': no stage is reused")
        equal = self._outputs.find(record.recommender, stage, basis.digest)
        if equal is None:
            return replace(basis, why=why_not(parts, self._outputs.newest(record.recommender, stage)))
        manifest = self.intact(equal.attempt)
        if manifest is None:
            return replace(basis, why=f"artifacts of {equal.attempt} are missing or damaged")
        if stage == "etl" and not _still_judged(manifest, self._accepted(record)):
            return replace(basis, why=f"other data was accepted after {equal.attempt} was validated")
        return replace(basis, attempt=equal.attempt, why=f"nothing has changed since {equal.attempt}", since=equal.at)

    def _is_adoptable(self, record: RunRecord, stage: StageDone) -> bool:
        """A stage that knows users who were forgotten later is not adopted."""
        forgot_at = self._forgot_at(record.recommender)
        return (forgot_at is None or stage.began > forgot_at) and self.intact(stage.attempt) is not None

    def changed(self, record: RunRecord, stage: str) -> str | None:
        """Returns why a stage runs, as far as is known before its inputs exist; None if they decide."""
        if record.spec.fresh:
            return "requested with 'fresh': no stage is reused"
        if stage == "evaluate" and estimators(spec_of(record)):
            return _LOG
        newest = self._outputs.newest(record.recommender, stage)
        own = self._own_parts(record, spec_of(record), stage)
        if newest is None:
            return why_not(own, None)
        comparable = replace(newest, parts={name: value for name, value in newest.parts.items() if not name.startswith(_INPUT)})
        return why_not(own, comparable) if comparable.parts != own else None

    def _own_parts(self, record: RunRecord, spec: RecommenderSpec, stage: str) -> dict[str, str]:
        return stage_parts(spec, stage, record.spec.mode) | {"code": self._code, "mode": record.spec.mode}

    def _parts(self, record: RunRecord, spec: RecommenderSpec, stage: str, done: Sequence[StageDone]) -> dict[str, str]:
        parts = self._own_parts(record, spec, stage)
        inputs = self.inputs(record, spec, stage, done)
        unread = () if stage == "export" else (ITEMS_TABLE,)  # its time changes with every query of a database
        for origin, files in inputs.items():
            if origin not in _BESIDE:
                read_files = {name: file for name, file in files.items() if name not in unread}
                parts[f"{_INPUT}{origin}"] = f"sha256:{digest_of(read_files)}"
        forgot_at = self._forgot_at(record.recommender) if stage == "etl" else None
        parts |= {"forgotten users": f"until {forgot_at.isoformat()}"} if forgot_at is not None else {}
        return parts | (self.data_parts(record, spec) if stage == "etl" else {})

    def data_parts(self, record: RunRecord, spec: RecommenderSpec) -> dict[str, str]:
        places = _places(record, spec)
        return {f"{_DATA}{name}": mark for place in places for name, mark in self._fingerprint(place).items()}

    def _fingerprint(self, place: Place) -> Mapping[str, str]:
        return {} if place.uri is None else self._data.fingerprint(place.uri, place.contents, place.version)

    def inputs(self, record: RunRecord, spec: RecommenderSpec, stage: str, done: Sequence[StageDone]) -> dict[str, Files]:
        """Returns the files that a stage reads: of earlier stages (only these, so that it can't depend on others), and of the version that
        served when the run was requested, to start from or to compare with. For etl also the profile of the last accepted data, and vectors
        that an earlier etl computed."""
        inputs = self._stage_files(done, TAKES[stage])
        if stage == "etl" and record.spec.mode == "full" and (accepted := self._accepted(record)):
            inputs[ACCEPTED] = accepted
        if stage == "etl" and not record.spec.fresh and (earlier := self._encoded(record, spec)):
            inputs[EARLIER] = earlier
        number = record.spec.serving
        if number is None:
            return inputs
        version = self.registry.get(record.recommender, number)
        warm = record.spec.mode == "warm"
        if warm and stage in ("etl", "train", "evaluate", "refit"):
            parent = self._stage_files(self.runs.get(version.run).status.stages, ("etl", "train", "refit"))
            inputs["parent"] = {**parent["etl"], **parent["train"]}
        compares = any(isinstance(gate, MetricGate) and "serving" in (gate.better_than, gate.not_worse_than) for gate in spec.gates)
        if stage != "evaluate" or not compares:
            return inputs
        return inputs | {"serving": version.files} | ({} if warm else {"serving_before_refit": self._files_before_refit(version)})

    def _stage_files(self, done: Sequence[StageDone], stages: Collection[str]) -> dict[str, Files]:
        """Returns the files of completed stages. Files of a refit replace the model, and etl's files of the same names."""
        files_by_stage = {
            stage_done.stage: published(self.artifacts, stage_done.attempt).files for stage_done in done if stage_done.stage in stages
        }
        refit = files_by_stage.pop("refit", None)
        return files_by_stage if refit is None else {**files_by_stage, "etl": {**files_by_stage["etl"], **refit}, "train": refit}

    def _files_before_refit(self, version: Version) -> Files:
        """Returns what evaluate needs to compare a full run with the version fairly, because the version may have learned rows of the run's
        holdout: features and model of the last full run in its lineage, before the refit, and the version's own refit.json. If that model
        is the version itself, or is no longer kept: only the rows that the version was trained on."""
        own = self._kept_files(version)
        refit = {REFIT: own["refit"][REFIT]} if REFIT in own.get("refit", {}) else {}
        full = list(line_of(version, self.registry.get))[-1]
        before = self._kept_files(full)
        if full.lineage.mode == "warm" or not {"etl", "train"} <= before.keys() or (full == version and not refit):
            return {name: file for name, file in own.get("etl", {}).items() if name == "train.parquet"} | refit
        return {**before["etl"], **before["train"], **refit}

    def _kept_files(self, version: Version) -> dict[str, Files]:
        """Returns the existing manifests' files of the version's run, by stage."""
        try:
            stages = self.runs.get(version.run).status.stages
        except NotFound:
            return {}
        manifests = {done.stage: self.artifacts.manifest(done.attempt) for done in stages}
        return {stage: manifest.files for stage, manifest in manifests.items() if manifest is not None}

    def _accepted(self, record: RunRecord) -> Files:
        """Returns the profile of the data that the newest version has learned from; empty if it is gone."""
        return self._of(self._learned_from(record), PROFILE)

    def _encoded(self, record: RunRecord, spec: RecommenderSpec) -> Files:
        """Returns vectors that the newest etl, or the newest version's, has computed; empty if the spec encodes none."""
        if not any(isinstance(operator, Vector) and operator.vector.encode is not None for operator in spec.operators()):
            return {}
        newest = self._outputs.newest(record.recommender, "etl")
        return self._of(newest.attempt if newest else None, ENCODED) or self._of(self._learned_from(record), ENCODED)

    def _learned_from(self, record: RunRecord) -> str | None:
        """Returns the etl attempt of the newest version."""
        versions = self.registry.list(record.recommender)
        return versions[-1].lineage.attempts["etl"].attempt if versions else None

    def _of(self, attempt: str | None, name: str) -> Files:
        """Returns a file of an attempt, if it exists."""
        manifest = self.intact(attempt) if attempt else None
        return {name: manifest.files[name]} if manifest and name in manifest.files else {}

    def steady(self, record: RunRecord) -> bool:
        """Returns whether the data of the current stage is unchanged since the stage began."""
        status = record.status
        if status.state != "etl" or status.basis is None or status.basis.attempt:
            return True
        before = {name: mark for name, mark in status.basis.parts.items() if name.startswith(_DATA)}
        return before == self.data_parts(record, spec_of(record))

    def intact(self, attempt: str) -> Manifest | None:
        """Returns the manifest of a successful attempt whose files all exist."""
        try:
            manifest = self.artifacts.manifest(attempt)
            if manifest is None or manifest.failure is not None:
                return None
            return manifest if all(self.artifacts.holds(file) for file in manifest.files.values()) else None
        except (EyasError, ValueError):
            return None

    def keep(self, recommender: str, done: StageDone) -> None:
        """Stores the output of a stage for reuse."""
        if done.basis is not None and done.basis.digest:
            output = StageOutput(recommender, done.stage, done.basis.digest, done.basis.parts, done.attempt, done.started_at)
            self._outputs.put(output)

    def lineage(self, record: RunRecord, stages: Sequence[StageDone]) -> Lineage:
        facts = {done.stage: published(self.artifacts, done.attempt).facts for done in stages}
        spec, etl = record.spec, stages[0]
        files = {name.removeprefix(_DATA): mark for name, mark in (etl.basis.parts if etl.basis else {}).items() if name.startswith(_DATA)}
        return Lineage(
            snapshot=etl.began,
            data=DataLineage(facts["etl"].get("snapshot"), part(files), files),
            spec_generation=spec.generation,
            spec_digest=part(spec.document),
            code=self._code,
            mode=spec.mode,
            cause=spec.cause,
            asked_by=spec.by,
            trigger=spec.trigger,
            serving=spec.serving,
            seeds={"train": spec_of(record).model.train.seed},
            retry_of=spec.retry_of,
            attempts={done.stage: _attempt(done, done.basis or ReuseBasis()) for done in stages},
            stages=facts,
        )


def _attempt(done: StageDone, basis: ReuseBasis) -> AttemptLineage:
    return AttemptLineage(done.attempt, done.reused, basis.why, basis.digest or None)


def _places(record: RunRecord, spec: RecommenderSpec) -> tuple[Place, ...]:
    """Returns what etl reads: a warm run takes its interactions from the events alone."""
    warm = record.spec.mode == "warm"
    return tuple(place for name, place in spec.places().items() if not (warm and name.startswith("data.interactions")))


def takes_events(record: RunRecord, spec: RecommenderSpec) -> bool:
    return record.spec.mode == "warm" or spec.data.interactions.also == "events"


def _still_judged(etl: Manifest, accepted: Files) -> bool:
    """Returns whether the data would be judged the same now: it was accepted last, or was compared with the data accepted last."""
    last = accepted[PROFILE].sha256 if accepted else None
    own = etl.files.get(PROFILE)
    compared: str | None = etl.facts.get("validation", {}).get("compared")
    return last is None or (own is not None and own.sha256 == last) or compared == last


def published(artifacts: ArtifactStore, attempt: str) -> Manifest:
    manifest = artifacts.manifest(attempt)
    if manifest is None:
        raise NotFound(f"manifest of {attempt}: not found in {artifacts.url}")
    return manifest
