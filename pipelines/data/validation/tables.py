"""Validates the tables of items and users: rows, then comparison with the last accepted ones. Only good rows are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.data.catalogue import open_items, open_users
from pipelines.data.ids import refuse_equal_keys, text_of
from pipelines.data.sources import ReadableRoots, SourceRows, readable
from pipelines.data.validation.figures import row_checks
from pipelines.data.validation.moved import bars_of
from pipelines.data.validation.sifting import Sifted, sift
from pipelines.data.validation.tablecomparing import compare_tables
from pipelines.data.validation.tableprofile import TableProfile, table_profile
from pipelines.data.validation.tablerows import table_rules, typed
from shared.contracts.data import Table
from shared.contracts.features import mentioned
from shared.contracts.spec import RecommenderSpec
from shared.contracts.validation import Bounds
from shared.contracts.validation_report import TABLE_QUARANTINE, Check, Distribution, Rows, Section, TableName
from shared.domain.soundness import worst


@dataclass(frozen=True)
class JudgedTable:
    """Validated table. `source` has the good rows. `profile`: None without good rows."""

    name: TableName
    source: SourceRows
    key: str
    section: Section
    profile: TableProfile | None

    @property
    def has_rows(self) -> bool:
        return self.section.rows.kept > 0


@dataclass(frozen=True)
class JudgedTables:
    items: JudgedTable
    users: JudgedTable | None

    def __iter__(self) -> Iterator[JudgedTable]:
        return iter((self.items,) if self.users is None else (self.items, self.users))

    @cached_property
    def item_keys(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Sorted keys of the items table."""
        with readable(self.items.source.name):
            keys = self.items.source.frame.select(pl.col(self.items.key).cast(pl.Int64)).collect(engine="streaming")
        return keys.to_series().sort().to_numpy()

    def refuse_equal_keys(self, rows: pl.LazyFrame, item: str, name: str) -> None:
        """Raises BadData if an item of the rows and another one of the items table have one key. Ids are text."""
        key, table = self.items.key, self.items.source.frame
        pairs = rows.select(key=item, id=text_of(item)), table.select(key=key, id=text_of(key))
        refuse_equal_keys(pl.concat(pairs), f"{name} and {self.items.source.name}")

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(table.section for table in self)

    @property
    def profiles(self) -> dict[TableName, TableProfile]:
        return {table.name: table.profile for table in self if table.profile is not None}


def judge_tables(
    spec: RecommenderSpec,
    reach: ReadableRoots,
    accepted: Mapping[TableName, TableProfile],
    folder: Path,
    scratch: Path,
    further_items: Sequence[pl.LazyFrame] = (),
) -> JudgedTables:
    """Validates the tables. Writes bad rows to the quarantine in `folder`, if there are any. `scratch` must exist as long as the good rows
    are read. `further_items`: items besides those of the interactions, if there is no items table."""
    keys = spec.data.validate_.range
    items = spec.items_table(), open_items(spec, reach, further_items), keys.get(spec.schema_.item, (0.0, None))
    judged = _judge("items", *items, spec, accepted.get("items"), folder, scratch / "items")
    people = open_users(spec, reach)
    if spec.data.users is None or people is None:
        return JudgedTables(judged, None)
    users = spec.data.users, people, keys.get(spec.schema_.user, (0.0, None))
    return JudgedTables(judged, _judge("users", *users, spec, accepted.get("users"), folder, scratch / "users"))


def _judge(
    name: TableName,
    table: Table,
    source: SourceRows,
    bounds: Bounds,
    spec: RecommenderSpec,
    accepted: TableProfile | None,
    folder: Path,
    scratch: Path,
) -> JudgedTable:
    settings, key = table.validate_, table.key
    typed_table = typed(source, key, settings, f"data.{name}.validate")
    looked_at = [column for operator in spec.operators() for column in mentioned(operator)]
    sifted = sift(typed_table.source, table_rules(typed_table, settings, bounds, looked_at), folder / TABLE_QUARANTINE[name], scratch)
    good = typed_table.plain(sifted.frame)
    checks: list[Check] = list(row_checks(sifted, settings, (key,)))
    shown: list[Distribution] = []
    profile = table_profile(good, key, scratch) if sifted.good else None
    if profile is not None and accepted is not None:
        for check, distribution in compare_tables(good, key, profile, accepted, settings, scratch):
            checks.append(check)
            shown += [distribution] if distribution else []
    elif profile is not None:
        shown += [Distribution(column=column, bars=bars_of(column_profile)) for column, column_profile in profile.columns.items()]
    section = Section(
        name=name,
        source=source.name,
        verdict=worst(check.verdict for check in checks),
        rows=rows_of(sifted),
        reasons=sifted.reasons,
        checks=tuple(checks),
        compared=accepted is not None,
        distributions=tuple(shown),
    )
    return JudgedTable(name, replace(source, frame=good), key, section, profile)


def rows_of(sifted: Sifted) -> Rows:
    return Rows(read=sifted.read, kept=sifted.good, quarantined=sifted.quarantined)
