"""Forgetting, a mode of etl: writes the files of days again without the rows of forgotten users.

Publishes one new part for each day with such rows, and names the parts that it replaces.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from pathlib import Path

import polars as pl

from pipelines.data.days import write_part
from pipelines.data.forgotten import ForgottenUsers
from pipelines.stages.runner import Context
from shared.contracts.archive import KEYS, EventTable, PartName, part_name
from shared.contracts.stage import FORGOTTEN, FORGOTTEN_FACT
from shared.stage_process import Outcome

_TIME = pl.col("at").dt.epoch("us") / 1e6


def forget(context: Context) -> Outcome:
    number = int(context.spec.run.rsplit("-", 1)[1])
    forgotten = ForgottenUsers.read(context.fetch("forgotten", FORGOTTEN))
    replaced: list[str] = []
    days: dict[tuple[EventTable, date], list[pl.DataFrame]] = defaultdict(list)
    for name in sorted(context.spec.inputs.get("parts", {})):
        path, part = context.fetch("parts", name), part_name(name)
        times = pl.scan_parquet(path).select("user", "at")
        stored, left = pl.collect_all([times.select(pl.len()), forgotten.without(times, "user", _TIME).select(pl.len())])
        if left.item() < stored.item():
            replaced.append(name)
            days[part.table, part.day].append(forgotten.without(pl.scan_parquet(path), "user", _TIME).collect())
        path.unlink()  # frees the disk: there are many, and each is read once
    files: dict[str, Path] = {}
    counts: dict[str, int] = {}
    for (table, day), frames in days.items():
        rows = pl.concat(frames, how="diagonal_relaxed").sort("at", KEYS[table])
        if len(rows):
            name = str(PartName(table, day, number))
            files[name], counts[name] = context.out(name), len(rows)
            write_part(rows, files[name])
    context.log.info("event log: forgotten users removed replaced=%d written=%d", len(replaced), len(files))
    return Outcome(files, facts={"rows": counts, "replaces": replaced, FORGOTTEN_FACT: dict(forgotten.users)})
