"""Good rows and bad ones, apart: what is wrong with how many, and the bad ones written down with their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.data.sources import Source, readable
from pipelines.data.validation.rows import Rule

REPEATED = "repeats an earlier row"
_ROW, _REASON = "validation.row", "validation.reason"
"""Names that no column has, for they have dots."""


@dataclass(frozen=True)
class Fault:
    """Of so many rows. `example`: one of the bad values, as text."""

    rule: Rule | None
    reason: str
    count: int
    example: str = ""

    def says(self, named: Sequence[str] = ()) -> str:
        if self.rule is None:
            return f"{self.count:,} rows repeat an earlier one's {', '.join(named)}"
        return self.rule.says.format(count=f"{self.count:,}", example=self.example)


@dataclass(frozen=True)
class Sifted:
    """`frame` has the good rows alone, in their order."""

    frame: pl.LazyFrame
    read: int
    kept: int
    faults: tuple[Fault, ...]
    nulls: Mapping[str, int]

    @property
    def quarantined(self) -> int:
        return self.read - self.kept


def sift(source: Source, rules: Sequence[Rule], unique: Sequence[str], nulls: Sequence[str], quarantine: Path) -> Sifted:
    """Writes `quarantine` (row, reason and the columns of the source) only where there is something to quarantine."""
    bad = pl.any_horizontal([rule.bad for rule in rules])
    asked = {
        "rows": pl.len(),
        "bad": bad.sum(),
        **{f"bad {n}": rule.bad.sum() for n, rule in enumerate(rules)},
        **{f"worst {n}": rule.worst for n, rule in enumerate(rules)},
        **{f"null {column}": pl.col(column).null_count() for column in nulls},
    }
    with readable(source.name):
        found = source.frame.select(**asked).collect(engine="streaming").row(0, named=True)
    faults = [Fault(rule, rule.reason, found[f"bad {n}"], _text(found[f"worst {n}"])) for n, rule in enumerate(rules) if found[f"bad {n}"]]
    read, kept = int(found["rows"]), int(found["rows"] - found["bad"])
    frame = source.frame.filter(~bad) if faults else source.frame
    repeats: pl.LazyFrame | None = None
    if unique:
        rows = source.frame.with_row_index(_ROW)
        good = rows.filter(~bad) if faults else rows
        firsts = good.group_by(unique).agg(pl.col(_ROW).min()).select(_ROW)
        with readable(source.name):
            distinct = int(firsts.select(pl.len()).collect(engine="streaming").item())
        if distinct < kept:
            faults.append(Fault(None, REPEATED, kept - distinct))
            kept = distinct
            frame = good.join(firsts, on=_ROW, how="semi", maintain_order="left").drop(_ROW)
            repeats = good.join(firsts, on=_ROW, how="anti").select(_ROW)
    if faults:
        _write(source, rules, bad, repeats, quarantine)
    return Sifted(frame, read, kept, tuple(faults), {column: int(found[f"null {column}"]) for column in nulls})


def _write(source: Source, rules: Sequence[Rule], bad: pl.Expr, repeats: pl.LazyFrame | None, path: Path) -> None:
    named = [pl.when(rule.bad).then(pl.lit(rule.reason)) for rule in rules]
    reason = pl.concat_str(named, separator="; ", ignore_nulls=True)
    rows = source.frame.with_row_index(_ROW)
    apart = rows.filter(bad).with_columns(reason.alias(_REASON))
    if repeats is not None:
        again = rows.join(repeats, on=_ROW, how="semi").with_columns(pl.lit(REPEATED).alias(_REASON))
        apart = pl.concat([apart, again]).sort(_ROW)
    path.parent.mkdir(parents=True, exist_ok=True)
    with readable(source.name):
        columns = [pl.col(name).alias(_apart(name)) for name in source.frame.collect_schema().names()]
        apart.select(pl.col(_ROW).alias("row"), pl.col(_REASON).alias("reason"), *columns).sink_parquet(path)


def _apart(name: str) -> str:
    return f"{name}_of_source" if name in ("row", "reason") else name


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.10g}" if abs(value) < 1e10 else f"{value:.3g}"
    return "" if value is None else str(value)
