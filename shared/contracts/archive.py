"""Archive of events by day: the columns and the file names. The control plane writes the rows, etl writes Parquet, and both read it.

Values derived from events (the impression of a click, the hits) are not archived, because they may still change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, cast, get_args

from shared.domain.errors import Damaged

EventTable = Literal["interactions", "impressions"]
TABLES: tuple[EventTable, ...] = get_args(EventTable)

Kind = Literal["int32", "int64", "float", "text", "truth", "moment", "ints", "floats", "texts"]
"""`moment`: whole microseconds since 1970, in Parquet a UTC timestamp."""

COLUMNS: Mapping[EventTable, Mapping[str, Kind]] = {
    "interactions": {
        "seq": "int64",
        "id": "text",
        "user": "int64",
        "item": "int64",
        "kind": "text",
        "value": "float",
        "revenue": "float",
        "positive": "truth",
        "request_id": "text",
        "at": "moment",
        "user_id": "text",
        "item_id": "text",
    },
    "impressions": {
        "request_id": "text",
        "user": "int64",
        "version": "int32",
        "variant": "text",
        "generation": "int32",
        "step": "int32",
        "items": "ints",
        "propensities": "floats",
        "fallback": "text",
        "slices": "texts",
        "bucket": "int32",
        "score": "float",
        "at": "moment",
    },
}
KEYS: Mapping[EventTable, str] = {"interactions": "seq", "impressions": "request_id"}
"""Primary key of each table."""

_PART = re.compile(r"(interactions|impressions)/date=(\d{4}-\d\d-\d\d)/part-(\d{5,})\.parquet")


@dataclass(frozen=True)
class PartName:
    """File of one day, with the number of the compaction that wrote it."""

    table: EventTable
    day: date
    number: int

    def __str__(self) -> str:
        return f"{self.table}/date={self.day}/part-{self.number:05d}.parquet"


def part_name(name: str) -> PartName:
    match = _PART.fullmatch(name)
    if match is None:
        raise Damaged(f"compaction manifest: unexpected file name {name!r}; expected TABLE/date=DAY/part-N.parquet")
    return PartName(cast(EventTable, match[1]), date.fromisoformat(match[2]), int(match[3]))
