"""Reads files of user-item pairs for evaluations and trainings without a platform.

Formats: text separated by tabs, commas or '::', with a header or with the columns user, item, rating, timestamp; tab-separated text with
a typed header; Parquet. Ids are whole numbers or text. A line of test negatives is `(user,item)` followed by any number of items."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl

from pipelines.data.column_guess import Role, column_called
from pipelines.data.recbole import scan_typed
from pipelines.data.sources import readable
from pipelines.data.times import seconds
from shared.contracts.schema import TimeColumn
from shared.datafiles.kinds import kind_of
from shared.domain.errors import BadData, Invalid

_PLAIN: tuple[Role, ...] = ("user", "item", "label", "time")
"""Columns of a file without a header."""
_SEPARATORS = ("\t", "::", ",")
_WHOLE = re.compile(r"[+-]?\d+")
_CASE = re.compile(r'\s*"?\(\s*([^,()]+?)\s*,\s*([^()]+?)\s*\)"?[\t, ]+(\S.*)')
_BETWEEN = re.compile(r"[\t, ]+")
_SHOWN = 80
"""Longest excerpt of a faulty line in a message, in characters."""


@dataclass(frozen=True)
class PairFile:
    """Rows of a file: `user` and `item` as int64 or text; optionally `time` in seconds and `label` as a number.

    Only labels can be null."""

    name: str
    frame: pl.DataFrame

    @property
    def has_times(self) -> bool:
        return "time" in self.frame.columns


@dataclass(frozen=True)
class NegativesFile:
    """Rows with `user`, `item` and a list of `negatives`, one for each line."""

    name: str
    frame: pl.DataFrame


def read_pairs(path: Path) -> PairFile:
    """Reads all rows in the file's order."""
    _check_there(path)
    kind = kind_of(path.name)
    with readable(str(path)):
        if kind == "parquet":
            frame = _picked(pl.scan_parquet(path, glob=False), str(path))
        elif kind == "typed":
            frame = _picked(scan_typed([path]), str(path))
        else:
            frame = _from_text(path)
    if frame.is_empty():
        raise BadData(f"{path}: no rows")
    return PairFile(str(path), frame.with_columns(_ids(frame["user"], str(path)), _ids(frame["item"], str(path))))


def read_negatives(path: Path) -> NegativesFile:
    _check_there(path)
    with readable(str(path)):
        frame = _wide(path) if kind_of(path.name) == "parquet" else _from_lines(path)
    if frame.is_empty():
        raise BadData(f"{path}: no rows")
    negatives = frame["negatives"]
    inner = negatives.explode(empty_as_null=False, keep_nulls=False)
    typed = _ids(inner.alias("negatives"), str(path))
    if typed.dtype == pl.Int64:
        negatives = negatives.cast(pl.List(pl.Int64))
    return NegativesFile(
        str(path), frame.select(_ids(frame["user"], str(path)), _ids(frame["item"], str(path)), negatives.alias("negatives"))
    )


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise BadData(f"{path}: file not found")


def _from_text(path: Path) -> pl.DataFrame:
    first = list(islice(_lines(path), 2))
    if not first:
        raise BadData(f"{path}: no rows")
    separator = next((candidate for candidate in _SEPARATORS if candidate in first[0]), None)
    if separator is None:
        raise BadData(f"{path}: line 1 has no tab, comma or '::' between a user and an item: {first[0][:_SHOWN]!r}")
    rows = [_fields(line, separator) for line in first]
    header = _has_header(rows)
    names = rows[0] if header else [str(place) for place in range(len(rows[0]))]
    if len(set(names)) < len(names):
        raise BadData(f"{path}: the header has a name twice: {', '.join(names)[:_SHOWN]}")
    fields = names if separator != "::" else [column for name in names for column in (name, f"{name}:")][:-1]
    scan = pl.scan_csv(
        path,
        separator=separator[0],
        has_header=False,
        skip_rows=1 if header else 0,
        schema=dict.fromkeys(fields, pl.String()),
        glob=False,
    )
    return _picked(scan.select(names), str(path), header)


def _fields(line: str, separator: str) -> list[str]:
    return [field.strip().strip('"') for field in line.split(separator)]


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Returns whether the first row has known column names, or words above whole numbers."""
    if column_called("user", rows[0]) and column_called("item", rows[0]):
        return True
    keys = [[bool(_WHOLE.fullmatch(field)) for field in row[:2]] for row in rows]
    return len(rows) > 1 and not any(keys[0]) and all(keys[1])


def _picked(scan: pl.LazyFrame, name: str, named: bool = True) -> pl.DataFrame:
    """Selects columns by their names. A missing user or item is the first remaining column."""
    schema = scan.collect_schema()
    names = schema.names()
    if len(names) < 2:
        raise BadData(f"{name}: only one column; each row needs a user and an item")
    guesses: dict[Role, str | None] = {role: column_called(role, names) for role in _PLAIN}
    if not named:
        guesses = dict(zip(_PLAIN, names, strict=False))
    else:
        rest = (column for column in names if column not in guesses.values())
        guesses |= {role: guesses[role] or next(rest, None) for role in ("user", "item")}
    columns = {role: column for role, column in guesses.items() if column is not None}
    if "item" not in columns:
        raise BadData(f"{name}: no item column; columns: {', '.join(names[:20])}")
    wanted = [pl.col(columns[role]).alias(role) for role in ("user", "item")]
    if "time" in columns:
        wanted.append(_time(columns["time"], schema[columns["time"]]).alias("time"))
    if "label" in columns:
        column = pl.col(columns["label"])
        text = column.str.strip_chars() if schema[columns["label"]] == pl.String else column
        wanted.append(text.cast(pl.Float64, strict=False).alias("label"))
    frame = scan.select(wanted).collect(engine="streaming")
    if "time" in frame.columns and (missing := frame["time"].null_count()):
        raise BadData(f"{name}: column '{columns['time']}' has {missing:,} rows without a time")
    return frame


def _time(column: str, dtype: pl.DataType) -> pl.Expr:
    """Times in seconds; text without types can be seconds or ISO 8601."""
    parsed = seconds(TimeColumn.model_construct(column=column), dtype)
    if dtype == pl.String:
        parsed = pl.col(column).str.strip_chars().cast(pl.Float64, strict=False).fill_null(parsed)
    return pl.when(parsed.cast(pl.Float64).is_finite()).then(parsed)


def _ids(column: pl.Series, name: str) -> pl.Series:
    """Converts ids to int64 if all are canonical whole numbers, else to text."""
    role = column.name
    if column.dtype.is_float():
        integers = column.cast(pl.Int64, strict=False)
        if not (integers.cast(column.dtype) == column).fill_null(False).all():
            raise BadData(f"{name}: column '{role}' has fractions or missing values: ids must be whole numbers or text")
        column = integers
    if column.dtype.is_integer():
        if column.null_count():
            raise BadData(f"{name}: {column.null_count():,} rows have no {role}")
        return column.cast(pl.Int64)
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise BadData(f"{name}: column '{role}' is {column.dtype}: ids must be whole numbers or text")
    text = column.cast(pl.String).str.strip_chars().str.strip_chars('"')
    empty = int((text.is_null() | (text == "").fill_null(True)).sum())
    if empty:
        row = int((text.is_null() | (text == "").fill_null(True)).arg_true()[0]) + 1
        raise BadData(f"{name}: {empty:,} rows have no {role}; the first is row {row:,}")
    number = text.cast(pl.Int64, strict=False)
    return number if not number.null_count() and (number.cast(pl.String) == text).all() else text


def _lines(path: Path) -> Iterator[str]:
    """Yields lines that are not blank."""
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield line.rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadData(f"{path}: not UTF-8 text") from None


def _from_lines(path: Path) -> pl.DataFrame:
    users, items, negatives = [], [], []
    for number, line in enumerate(_lines(path), 1):
        match = _CASE.fullmatch(line.rstrip())
        if match is None:
            raise BadData(f"{path}: line {number}: expected (user,item) followed by negatives, got {line[:_SHOWN]!r}")
        users.append(match[1])
        items.append(match[2])
        negatives.append(_BETWEEN.split(match[3]))
    return pl.DataFrame({"user": users, "item": items, "negatives": negatives}, schema_overrides={"negatives": pl.List(pl.String)})


def _wide(path: Path) -> pl.DataFrame:
    """Reads Parquet with user, item, and a list of negatives or one column for each negative."""
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()
    keys = [column_called(role, schema.names()) or schema.names()[at] for at, role in enumerate(_PLAIN[:2]) if len(schema) > 2]
    rest = [name for name in schema.names() if name not in keys]
    lists = [name for name in rest if isinstance(schema[name], pl.List | pl.Array)]
    if len(keys) < 2 or (len(lists) != 1 and (lists or len({schema[name] for name in rest}) != 1)):
        raise Invalid(f"{path}: expected a user column, an item column, and one list of negatives or one column for each negative")
    negatives = pl.col(lists[0]).cast(pl.List(pl.String)) if lists else pl.concat_list([pl.col(name).cast(pl.String) for name in rest])
    return scan.select(pl.col(keys[0]).alias("user"), pl.col(keys[1]).alias("item"), negatives.alias("negatives")).collect()
