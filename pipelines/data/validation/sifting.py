"""Separates good rows from bad ones: counts faults, writes bad rows with their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.ids import PREFIX, text_of
from pipelines.data.sources import SourceRows, readable
from pipelines.data.validation.repeats import mark_repeats
from pipelines.data.validation.rows import RowRule, the_bad
from shared.contracts.schema import NO_LABEL, NO_TIME

REPEATED = "repeats an earlier row"
HELPER = "validation."
"""Prefix of helper columns, which are never written; data columns lack the prefix because of the dot."""
_ROW, _REASON, _PAGE = f"{HELPER}row", f"{HELPER}reason", f"{HELPER}page"


@dataclass(frozen=True)
class RowFault:
    """Fault with its number of rows. `example`: one of the bad values, as text."""

    rule: RowRule | None
    reason: str
    count: int
    example: str = ""

    def says(self, named: Sequence[str] = ()) -> str:
        if self.rule is None:
            return f"{self.count:,} rows repeat an earlier row's {', '.join(named)}, such as {self.example}"
        return self.rule.says.format(count=f"{self.count:,}", example=self.example)


@dataclass(frozen=True)
class RowRules:
    """Rules for rows. `lacking`: applies to otherwise good rows and counts separately. `viewed`: page of a page view, null for other rows;
    replaces the row's item."""

    rules: Sequence[RowRule]
    unique: Sequence[str] = ()
    nulls: Sequence[str] = ()
    lacking: RowRule | None = None
    viewed: pl.Expr | None = None

    @property
    def bad(self) -> pl.Expr:
        return pl.any_horizontal([rule.bad for rule in self.rules]) if self.rules else pl.lit(False)

    @property
    def strange(self) -> pl.Expr:
        """Bad only by `lacking`."""
        return self.lacking.bad & ~self.bad if self.lacking else pl.lit(False)


@dataclass(frozen=True)
class Sifted:
    """Separated rows. `frame` has the good rows in order; `interactions` the good rows without page views."""

    frame: pl.LazyFrame
    interactions: pl.LazyFrame
    read: int
    good: int
    views: int
    """Number of page views among the good rows."""
    faults: tuple[RowFault, ...]
    nulls: Mapping[str, int]
    lacking: RowFault | None = None
    """Separate from `faults`."""

    @property
    def quarantined(self) -> int:
        return self.read - self.good

    @property
    def bad(self) -> int:
        """Rows with at least one of `faults`."""
        return self.quarantined - (self.lacking.count if self.lacking else 0)

    @property
    def reasons(self) -> dict[str, int]:
        return {fault.reason: fault.count for fault in (*self.faults, *([self.lacking] if self.lacking else []))}


def sift(source: SourceRows, wanted: RowRules, quarantine: Path, scratch: Path) -> Sifted:
    """Separates rows. Writes `quarantine` (row, reason, the source's columns) only if rows are bad. Flags of repeats must stay in `scratch`
    as long as the good rows are read."""
    rules, lacking, viewed = wanted.rules, wanted.lacking, wanted.viewed
    facts = _count(source, wanted)
    faults = [
        RowFault(rule, rule.reason, facts[f"bad {n}"], _text(facts[f"worst {n}"])) for n, rule in enumerate(rules) if facts[f"bad {n}"]
    ]
    left_out = [(rule.bad, rule.reason) for rule in rules] if faults else []
    apart = None
    if lacking and facts["strange"]:
        apart = RowFault(lacking, lacking.reason, facts["strange"], _text(facts["strangest"]))
        left_out.append((wanted.strange, lacking.reason))
    read, good_count, views = int(facts["rows"]), int(facts["rows"] - facts["bad"] - facts.get("strange", 0)), int(facts["views"])
    frame = source.frame.filter(~_any(left_out)) if left_out else source.frame
    if wanted.unique and good_count:
        rows = source.frame.with_row_index(_ROW)
        good = rows.filter(~_any(left_out)) if left_out else rows
        unique = wanted.unique if viewed is None else [*wanted.unique, _PAGE]
        with readable(source.name):
            repeats = mark_repeats(good if viewed is None else good.with_columns(viewed.alias(_PAGE)), unique, _ROW, read, scratch)
        if repeats.count:
            faults.append(RowFault(None, REPEATED, repeats.count, repeats.example))
            good_count -= repeats.count
            frame = good.filter(~repeats.marked).drop(_ROW)
            left_out.append((repeats.marked, REPEATED))
            views = views if viewed is None else int(frame.select(viewed.count()).collect(engine="streaming").item())
    if left_out:
        _write(source, left_out, quarantine)
    interactions = frame if viewed is None else frame.filter(viewed.is_null())
    nulls = {column: int(facts[f"null {column}"]) for column in wanted.nulls}
    return Sifted(frame, interactions, read, good_count, views, tuple(faults), nulls, apart)


def _count(source: SourceRows, wanted: RowRules) -> dict[str, Any]:
    """Counts bad rows by rule, with the worst value of each, in one pass."""
    rules, lacking, viewed, bad, strange = wanted.rules, wanted.lacking, wanted.viewed, wanted.bad, wanted.strange
    null = {column: pl.col(column).is_null() & (True if viewed is None else viewed.is_null()) for column in wanted.nulls}
    aggregates = {
        "rows": pl.len(),
        "bad": bad.sum(),
        "views": pl.lit(0) if viewed is None else (viewed.is_not_null() & ~bad & ~strange).sum(),
        **{f"bad {n}": rule.bad.sum() for n, rule in enumerate(rules)},
        **{f"worst {n}": rule.worst for n, rule in enumerate(rules)},
        **{f"null {column}": missing.sum() for column, missing in null.items()},
        **({"strange": strange.sum(), "strangest": the_bad(strange, lacking.worst).min()} if lacking else {}),
    }
    with readable(source.name):
        return source.frame.select(**aggregates).collect(engine="streaming").row(0, named=True)


def _any(left_out: Sequence[tuple[pl.Expr, str]]) -> pl.Expr:
    return pl.any_horizontal([bad for bad, _ in left_out])


def _write(source: SourceRows, left_out: Sequence[tuple[pl.Expr, str]], path: Path) -> None:
    named = [pl.when(bad).then(pl.lit(reason)) for bad, reason in left_out]
    reason = pl.concat_str(named, separator="; ", ignore_nulls=True)
    apart = source.frame.with_row_index(_ROW).filter(_any(left_out)).with_columns(reason.alias(_REASON))
    path.parent.mkdir(parents=True, exist_ok=True)
    with readable(source.name):
        names = source.frame.collect_schema().names()
        shown = {
            name: text_of(name) if text_of(name) in names else name
            for name in names
            if not name.startswith((HELPER, PREFIX, NO_TIME, NO_LABEL))
        }
        columns = [pl.col(column).alias(_apart(name)) for name, column in shown.items()]
        apart.select(pl.col(_ROW).alias("row"), pl.col(_REASON).alias("reason"), *columns).sink_parquet(path)


def _apart(name: str) -> str:
    return f"{name}_of_source" if name in ("row", "reason") else name


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.10g}" if abs(value) < 1e10 else f"{value:.3g}"
    return "" if value is None else str(value)
