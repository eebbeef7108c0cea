"""Compaction, a mode of etl: writes the dumped days of events as Parquet, without the rows that earlier parts hold.

Publishes `TABLE/date=DAY/part-NUMBER.parquet` for each day with new rows, and the number of rows of each part.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pipelines.data.days import unwritten, write_part
from pipelines.stages.runner import Context
from shared.contracts.archive import TABLES, EventTable, PartName, part_name
from shared.stage_process import Outcome


def compact(context: Context) -> Outcome:
    number = int(context.spec.run.rsplit("-", 1)[1])
    named_parts = [(part_name(name), name) for name in sorted(context.spec.inputs.get("parts", {}))]
    files: dict[str, Path] = {}
    rows: dict[str, int] = {}
    for name in sorted(context.spec.inputs["days"]):
        table, day = _of(name)
        parts = [context.fetch("parts", stored) for part, stored in named_parts if (part.table, part.day) == (table, day)]
        dump = context.fetch("days", name)
        new = unwritten(table, name, dump, parts)
        for path in (dump, *parts):  # frees the disk: there are many, and each is read once
            path.unlink()
        if len(new):
            part = str(PartName(table, day, number))
            files[part], rows[part] = context.out(part), len(new)
            write_part(new, files[part])
            context.log.info("event log: part written part=%s rows=%d", part, len(new))
    return Outcome(files, facts={"rows": rows})


def _of(name: str) -> tuple[EventTable, date]:
    table, day = name.removesuffix(".ndjson").split("/")
    return next(event_table for event_table in TABLES if event_table == table), date.fromisoformat(day)
