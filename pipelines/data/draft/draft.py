"""Draft of a spec from files: chooses columns, features and a family, and writes them as commented YAML."""

from __future__ import annotations

import json
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.data.cli_source import open_anywhere
from pipelines.data.draft.facts import ColumnFacts, FileFacts
from pipelines.data.draft.roles import Roles, finds_keys, guess_roles
from pipelines.data.times import is_text
from shared.contracts.columns import COLUMN
from shared.contracts.datatools import Draft, DraftRequest
from shared.contracts.sources import TextFormat
from shared.contracts.spec import parse_spec
from shared.contracts.strict import read
from shared.datafiles.delimited import looks_like_data
from shared.domain.errors import BadData, Invalid

_MOST_EASE_ITEMS = 10_000
_FEW_USERS = 1_000
_MOST_WORDS = 1_000
"""Most distinct values of a text that becomes a feature."""
_LEAST_SHARED = 0.5
"""Share of the interactions' keys that a table must have."""
_WORDS = ("true", "false", "null", "yes", "no", "on", "off")
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")


@dataclass(frozen=True)
class _Table:
    file: FileFacts
    key: str


def draft(arguments: Any) -> Draft:
    """Reads the files and returns the text of a spec, with what was guessed."""
    request = read(DraftRequest, arguments, "the request")
    with tempfile.TemporaryDirectory(prefix="eyas-init-") as scratch:
        files = [_facts(uri, Path(scratch) / str(at)) for at, uri in enumerate(request.files)]
        interactions = _interactions(files)
        roles = guess_roles(interactions, request.columns, request.time_format, request.positive)
        tables = _tables(interactions, [file for file in files if file is not interactions], roles)
        text = "\n".join(_lines(request, interactions, roles, tables)) + "\n"
    parse_spec(text, "the draft")
    return Draft(text=text, guesses=tuple(_guesses(interactions, roles, tables)))


def _facts(uri: str, scratch: Path) -> FileFacts:
    """Opens a file. If its first line can only be data, the columns get numbers as names."""
    file = FileFacts(uri, open_anywhere(uri, scratch))
    names = list(file.columns)
    if not file.source.has_types and looks_like_data(names):
        header = tuple(f"column_{number}" for number in range(1, len(names) + 1))
        return FileFacts(uri, open_anywhere(uri, scratch / "again", TextFormat(header=header)), header)
    return file


def _interactions(files: Sequence[FileFacts]) -> FileFacts:
    """Returns the file with users and items; the one with the most rows if there are several."""
    candidates = [file for file in files if finds_keys(file)] or list(files)
    return max(candidates, key=lambda file: file.rows)


def _tables(interactions: FileFacts, files: Sequence[FileFacts], roles: Roles) -> dict[str, _Table]:
    """Finds by their keys which files describe items and users."""
    tables: dict[str, _Table] = {}
    for file in files:
        keys = [name for name, facts in file.columns.items() if facts.is_id and facts.is_unique]
        shares = {
            (role, key): interactions.share_of(column, file, key)
            for role, column in (("items", roles.item), ("users", roles.user))
            for key in keys
            if role not in tables
        }
        role, key = max(shares, key=lambda pair: shares[pair], default=("", ""))
        if shares.get((role, key), 0.0) < _LEAST_SHARED:
            raise BadData(
                f"{file.name}: no column has one row per item or per user of {interactions.name}; leave the file out, or name "
                "the columns of user and item with --column"
            )
        tables[role] = _Table(file, key)
    return tables


def _lines(request: DraftRequest, interactions: FileFacts, roles: Roles, tables: Mapping[str, _Table]) -> Iterator[str]:
    user, item = _column(roles.user), _column(roles.item)
    time, label = roles.time, roles.label
    used = [name for name in (roles.user, roles.item, time.column if time else None, label.column) if name]
    yield "apiVersion: eyas/v1"
    yield f"name: {request.name}"
    yield "data:"
    yield f"  interactions: {_place(request, interactions, used)}   # {interactions.rows:,} rows"
    for role, table in tables.items():
        columns = [table.key, *(facts.name for facts, _ in _feature_columns(table))]
        place = _place(request, table.file, columns, {"key": _column(table.key)})
        yield f"  {role}: {place}   # {table.file.rows:,} rows"
    if "items" not in tables:
        yield "  # no items table: the items are those of the interactions"
    yield "schema:"
    yield f"  user: {user}   # {interactions.columns[roles.user].distinct:,} users"
    yield f"  item: {item}   # {interactions.columns[roles.item].distinct:,} items"
    if time is None:
        yield f"  # {roles.no_time}"
    else:
        column = _column(time.column)
        yield f"  time: {column if time.format is None else _flow({'column': column, 'format': time.format})}"
    yield f"  # {label.reason}"
    if label.column is not None and label.positive is not None:
        yield f"  label: {_flow({'column': _column(label.column), 'positive': label.positive})}"
    yield from _features(user, item, tables)
    ease = interactions.columns[roles.item].distinct <= _MOST_EASE_ITEMS
    yield "# exact, and fast up to about 10,000 items" if ease else "# factors of users and items; for many items"
    yield f"model: {{family: {'ease' if ease else 'mf'}}}"
    few = ", min_users: 20" if interactions.columns[roles.user].distinct < _FEW_USERS else ""
    yield "gates:"
    yield f"  - {{metric: hr@10, not_worse_than: popularity, by: 10%{few}}}   # likes among the first 10 of the whole catalogue"
    yield "  - {parity: 1e-4}   # served scores equal those of training"


def _features(user: str, item: str, tables: Mapping[str, _Table]) -> Iterator[str]:
    """Yields the operators by the types of the tables' columns. Families that learn from ids alone leave them out."""
    yield "features:"
    yield f"  - {_flow({'categorify': [user, item]})}"
    for role, table in tables.items():
        for facts, operators in _feature_columns(table):
            for operator in operators:
                yield f"  - {_flow(operator)}   # {role}: {facts.kind}" + (f", {facts.distinct:,} values" if facts.distinct else "")


def _feature_columns(table: _Table) -> Iterator[tuple[ColumnFacts, list[dict[str, Any]]]]:
    """Yields the columns of a table that can be features, with their operators."""
    for name, facts in table.file.columns.items():
        column = _column(name)
        if name == table.key or facts.nulls == facts.rows or facts.distinct == 1:
            continue
        if facts.kind == "list":
            yield facts, [{"multi_hot": column}]
        elif facts.dtype.is_float() or (facts.dtype.is_integer() and facts.distinct > _MOST_WORDS):
            yield facts, [{"fill": column, "with": "mean"}, {"normalise": column}]
        elif facts.dtype.is_integer():
            yield facts, [{"categorify": column}]
        elif is_text(facts.dtype) and (separator := table.file.delimiter(name)) is not None:
            yield facts, [{"multi_hot": column, "separator": separator}]
        elif is_text(facts.dtype) and facts.distinct <= min(_MOST_WORDS, facts.rows / 2):
            yield facts, [{"categorify": column}]


def _guesses(interactions: FileFacts, roles: Roles, tables: Mapping[str, _Table]) -> Iterator[str]:
    columns, time, label = interactions.columns, roles.time, roles.label
    yield f"interactions: {interactions.name}, {interactions.rows:,} rows"
    for role, name in (("user", roles.user), ("item", roles.item)):
        yield f"{role}: {name} ({columns[name].kind}, {columns[name].distinct:,} different)"
    yield f"time: {time.column}" + (f" (format {time.format})" if time.format else "") if time else f"time: none ({roles.no_time})"
    yield f"positive: {label.column} {label.positive} ({label.reason})" if label.column else f"positive: any ({label.reason})"
    for role, table in tables.items():
        features = ", ".join(facts.name for facts, _ in _feature_columns(table)) or "none"
        yield f"{role}: {table.file.name}, key {table.key}, features: {features}"


def _place(request: DraftRequest, file: FileFacts, used: Sequence[str], further: Mapping[str, Any] | None = None) -> str:
    renamed = {_column(name): name for name in used if _column(name) != name}
    header = {"csv": {"header": list(file.header)}} if file.header else {}
    names = {"names": renamed} if renamed else {}
    return _flow({"uri": request.uris[request.files.index(file.uri)], **(further or {}), **header, **names})


def _column(name: str) -> str:
    """Returns the name of a column in the spec: letters without accents, digits and underscores."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss")).encode("ascii", "ignore").decode()
    plain = re.sub(r"\W+", "_", plain).strip("_") if not re.fullmatch(COLUMN, name) else name
    column = plain if not plain[:1].isdigit() else f"_{plain}"
    if not re.fullmatch(COLUMN, column):
        raise Invalid(f"column '{name}': cannot be named in a spec; rename it in the file to letters, digits and underscores")
    return column


def _flow(value: Any) -> str:
    """Formats a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if is_plain else json.dumps(value, ensure_ascii=False)
