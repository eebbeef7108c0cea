"""Data gate of etl: validates interactions, events and tables. Publishes the report and the bad rows also when it refuses the data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.sources import ReadableRoots, SourceRows
from pipelines.data.validation.events import joined, judge_events, of_events_alone
from pipelines.data.validation.judging import judge, refusal
from pipelines.data.validation.page import page
from pipelines.data.validation.profile import Profile
from pipelines.data.validation.tables import JudgedTables, judge_tables
from pipelines.stages.runner import Context
from shared.contracts.strict import read
from shared.contracts.validation_report import ACCEPTED, PAGE, PROFILE, QUARANTINE, REPORT, Report, Section
from shared.domain.errors import BadData, Invalid

_MOST_REPORTED = 20


@dataclass(frozen=True)
class Admitted:
    """Admitted data. `source` holds only the good rows, `events` only those of known items."""

    source: SourceRows
    events: pl.LazyFrame | None
    facts: dict[str, Any]
    dropped: int
    """Rows of unknown items, in the file and in the events."""


@dataclass(frozen=True)
class AdmittedEvents:
    events: pl.LazyFrame
    facts: dict[str, Any]
    dropped: int


def judged_tables(context: Context, reach: ReadableRoots, further_items: Sequence[pl.LazyFrame]) -> JudgedTables:
    """Validates items and users. Their faults are reported, and refused, together with those of the interactions."""
    accepted = _accepted(context, "parent" if context.spec.mode == "warm" else ACCEPTED)
    accepted_tables = accepted.tables if accepted else {}
    return judge_tables(context.spec.recommender, reach, accepted_tables, context.output, context.scratch / "validation", further_items)


def admit(context: Context, source: SourceRows, tables: JudgedTables, events: pl.LazyFrame | None) -> Admitted:
    """Validates the file and its additional `events`. Raises BadData where a threshold stops the run."""
    spec, accepted, scratch = context.spec.recommender, _accepted(context, ACCEPTED), context.scratch / "validation"
    judged = judge(source, spec, accepted, time.time(), context.out(QUARANTINE), scratch, tables)
    beside = judge_events(events, spec, tables, context.output, scratch / "events") if events is not None else None
    report = joined(judged.report, beside.section) if beside else judged.report
    _publish(context, report, QUARANTINE)
    assert judged.profile is not None, "a batch without a good row is refused"
    context.out(PROFILE).write_text(judged.profile.model_dump_json(indent=1))
    compared = context.spec.inputs[ACCEPTED][PROFILE].sha256 if accepted else None
    dropped = judged.unknown + (beside.section.rows.quarantined if beside else 0)
    return Admitted(judged.source, beside.frame if beside else None, _facts(report, compared), dropped)


def admit_events(context: Context, events: pl.LazyFrame, tables: JudgedTables) -> AdmittedEvents:
    """Validates the events of a warm run, which learns from events alone."""
    spec = context.spec.recommender
    judged = judge_events(events, spec, tables, context.output, context.scratch / "validation" / "events")
    report = of_events_alone(spec.name, judged.section, tables)
    _publish(context, report, judged.section.quarantine)
    return AdmittedEvents(judged.frame, _facts(report, None), judged.section.rows.quarantined)


def remembered(context: Context, tables: JudgedTables) -> dict[str, Path]:
    """Returns the profile for the next batch to compare with; a warm run takes its parent's, with the profiles of these tables."""
    if context.spec.mode == "full":
        return {PROFILE: context.out(PROFILE)}
    if not context.has("parent", PROFILE):
        return {}
    parent = _accepted(context, "parent")
    if parent is None:
        return {PROFILE: context.fetch("parent", PROFILE)}
    path = context.out(PROFILE)
    path.write_text(parent.model_copy(update={"tables": tables.profiles}).model_dump_json(indent=1))
    return {PROFILE: path}


def _publish(context: Context, report: Report, quarantine: str) -> None:
    """Publishes the report. Raises BadData where a threshold stops the run. `quarantine`: file of the report's own bad rows."""
    parts: Mapping[str, Report | Section] = {quarantine: report} | {section.quarantine: section for section in report.sections}
    for name, part in parts.items():
        if part.rows.quarantined:
            context.keep(name)
    context.keep(REPORT).write_text(report.model_dump_json(indent=1))
    context.keep(PAGE).write_text(page(report, quarantine))
    _tell(context, report)
    for section in report.sections:
        _tell(context, section)
    refused = refusal(report)
    if refused is not None:
        raise BadData(f"{refused}: see {PAGE} of {context.spec.attempt}")


def _facts(report: Report, compared: str | None) -> dict[str, Any]:
    warned = [f"{check.name} {check.column}" if check.column else check.name for check in report.crossed("warn")]
    warned += [f"{part.name}: {check.name} {check.column or ''}".rstrip() for part in report.sections for check in part.crossed("warn")]
    sections: dict[str, Any] = {part.name: part.rows.model_dump() for part in report.sections}
    return {"verdict": report.verdict, "warned": warned, **report.rows.model_dump(), "compared": compared, **sections}


def _accepted(context: Context, origin: str) -> Profile | None:
    if not context.has(origin, PROFILE):
        return None
    try:
        return read(Profile, json.loads(context.fetch(origin, PROFILE).read_text()), f"{PROFILE} of the last accepted batch")
    except Invalid as error:  # written by another release: judge the batch without a comparison
        context.log.warning("validation: comparison skipped error=%s", error)
        return None


def _tell(context: Context, part: Report | Section) -> None:
    rows = part.rows
    counts = rows.read, rows.kept, rows.quarantined
    context.log.info("validation: rows checked read=%d good=%d quarantined=%d source=%s", *counts, part.source)
    for verdict in ("stop", "warn"):
        for check in part.crossed(verdict)[:_MOST_REPORTED]:
            context.log.info("validation: threshold crossed verdict=%s reason=%s", verdict, check.says)
