"""Whether etl may use a batch of interactions: it is validated, its report and its bad rows are published whatever is decided."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.data.sources import Source
from pipelines.data.validation.judging import judge, refusal
from pipelines.data.validation.page import page
from pipelines.data.validation.profile import Profile
from pipelines.stages.runner import Context
from shared.contracts.strict import read
from shared.contracts.validation_report import ACCEPTED, PAGE, PROFILE, QUARANTINE, REPORT, Report
from shared.domain.errors import BadData, Invalid

_TOLD = 20


@dataclass(frozen=True)
class Admitted:
    """`source` has the good rows alone."""

    source: Source
    facts: dict[str, Any]


def admit(context: Context, source: Source) -> Admitted:
    """BadData where thresholds say so."""
    spec, accepted = context.spec.recommender, _accepted(context)
    quarantine = context.out(QUARANTINE)
    judged = judge(source, spec, accepted, time.time(), quarantine, context.scratch / "validation")
    report = judged.report
    if report.rows.quarantined:
        context.keep(QUARANTINE)
    context.keep(REPORT).write_text(report.model_dump_json(indent=1))
    context.keep(PAGE).write_text(page(report))
    _tell(context, report)
    refused = refusal(report)
    if refused is not None:
        raise BadData(f"{refused}: see {PAGE} of {context.spec.attempt}")
    if judged.profile is None:
        raise BadData(f"{source.name}: no row of it can be used")
    context.out(PROFILE).write_text(judged.profile.model_dump_json(indent=1))
    compared = context.spec.inputs[ACCEPTED][PROFILE].sha256 if accepted else None
    warned = [f"{one.name} {one.column}" if one.column else one.name for one in report.crossed("warn")]
    return Admitted(judged.source, {"verdict": report.verdict, "warned": warned, **report.rows.model_dump(), "compared": compared})


def remembered(context: Context) -> dict[str, Path]:
    """The profile that the next batch is compared with: of this one, or, where it was of events alone, of the parent's."""
    if context.spec.mode == "full":
        return {PROFILE: context.out(PROFILE)}
    return {PROFILE: context.fetch("parent", PROFILE)} if context.has("parent", PROFILE) else {}


def _accepted(context: Context) -> Profile | None:
    if not context.has(ACCEPTED, PROFILE):
        return None
    try:
        return read(Profile, json.loads(context.fetch(ACCEPTED, PROFILE).read_text()), f"{PROFILE} of the last accepted batch")
    except Invalid as error:  # of another release: the batch is judged by itself
        context.log.warning("nothing to compare with: %s", error)
        return None


def _tell(context: Context, report: Report) -> None:
    rows = report.rows
    context.log.info(
        "%s: %s of %s rows are good, %s quarantined", report.source, *(f"{n:,}" for n in (rows.kept, rows.read, rows.quarantined))
    )
    for verdict in ("stop", "warn"):
        for one in report.crossed(verdict)[:_TOLD]:
            context.log.info("validation: %s: %s", verdict, one.says)
