"""Validates the platform's events: intake has checked each event; validation looks up the item."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.data.ids import text_of
from pipelines.data.interactions import plain_events
from pipelines.data.sources import SourceRows
from pipelines.data.validation.figures import item_check
from pipelines.data.validation.rows import unknown_item
from pipelines.data.validation.sifting import RowRules, sift
from pipelines.data.validation.tables import JudgedTables, rows_of
from shared.contracts.spec import RecommenderSpec
from shared.contracts.validation_report import EVENTS_QUARANTINE, Report, Section
from shared.domain.soundness import worst

EVENTS = "events.csv"


@dataclass(frozen=True)
class JudgedEvents:
    """Validated events. `frame`: interactions of known items only."""

    frame: pl.LazyFrame
    section: Section


def judge_events(events: pl.LazyFrame, spec: RecommenderSpec, tables: JudgedTables, folder: Path, scratch: Path) -> JudgedEvents:
    """Validates labelled events. Writes those of unknown items to the quarantine in `folder`."""
    table = tables.items.source.name
    text = text_of("item") if text_of("item") in events.collect_schema().names() else None
    lacking = unknown_item("item", tables.item_keys, table, text) if tables.items.has_rows else None
    sifted = sift(SourceRows(EVENTS, (), events), RowRules((), lacking=lacking), folder / EVENTS_QUARANTINE, scratch)
    if text:
        tables.refuse_equal_keys(sifted.frame, "item", EVENTS)
    checks = (item_check(sifted, "item", table, spec.data.validate_),) if lacking else ()
    section = Section(
        name="events",
        source=EVENTS,
        verdict=worst(check.verdict for check in checks),
        rows=rows_of(sifted),
        reasons=sifted.reasons,
        checks=checks,
        compared=False,
    )
    return JudgedEvents(plain_events(sifted.frame), section)


def joined(report: Report, events: Section) -> Report:
    """Adds the events' section to a file's report."""
    return report.model_copy(update={"sections": (*report.sections, events), "verdict": worst((report.verdict, events.verdict))})


def of_events_alone(recommender: str, events: Section, tables: JudgedTables) -> Report:
    return Report(
        recommender=recommender,
        source=events.source,
        verdict=worst((events.verdict, *(section.verdict for section in tables.sections))),
        rows=events.rows,
        reasons=events.reasons,
        files=(),
        checks=events.checks,
        compared=False,
        sections=tables.sections,
    )
