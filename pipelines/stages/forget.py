"""Forgetting, a mode of etl: writes the files of days again without the rows of forgotten users.

Publishes one new part for each day with such rows, and names the parts that it replaces.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from pathlib import Path

import polars as pl

from pipelines.data.days import write_part
from pipelines.data.forgotten import ForgottenUserFilter
from pipelines.stages.runner import Context
from shared.contracts.archive import KEYS, EventTable, PartName, part_name
from shared.contracts.stage import FORGOTTEN_FACT, FORGOTTEN_USERS
from shared.stage_process import Outcome

_TIME = pl.col("at").dt.epoch("us") / 1e6


def forget(context: Context) -> Outcome:
    number = int(context.spec.run.rsplit("-", 1)[1])
    forgotten = ForgottenUserFilter.read(context.fetch("forgotten", FORGOTTEN_USERS))
    parts_by_day: dict[tuple[EventTable, date], list[str]] = defaultdict(list)
    for name in sorted(context.spec.inputs.get("parts", {})):
        part = part_name(name)
        parts_by_day[part.table, part.day].append(name)
    replaced: list[str] = []
    files: dict[str, Path] = {}
    counts: dict[str, int] = {}
    for (table, day), names in parts_by_day.items():
        written = {name: _without(forgotten, context.fetch("parts", name)) for name in names}
        frames = [frame for frame in written.values() if frame is not None]
        replaced += [name for name, frame in written.items() if frame is not None]
        rows = pl.concat(frames, how="diagonal_relaxed").sort("at", KEYS[table]) if frames else pl.DataFrame()
        if len(rows):
            name = str(PartName(table, day, number))
            files[name], counts[name] = context.out(name), len(rows)
            write_part(rows, files[name])
    context.log.info("event log: forgotten users removed replaced=%d written=%d", len(replaced), len(files))
    return Outcome(files, facts={"rows": counts, "replaces": replaced, FORGOTTEN_FACT: dict(forgotten.users)})


def _without(forgotten: ForgottenUserFilter, path: Path) -> pl.DataFrame | None:
    """Returns the other rows of a part; None if it has no forgotten rows. Deletes the file: there are many, and each is read once."""
    part = pl.scan_parquet(path)
    left = forgotten.without(part, "user", _TIME)
    rows = None if left is part else left.collect()
    has_forgotten = rows is not None and len(rows) < part.select(pl.len()).collect().item()
    path.unlink()
    return rows if has_forgotten else None
