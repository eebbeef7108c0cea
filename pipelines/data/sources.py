"""Data sources: files under the operator's roots, local or in an object store, and queries of the operator's databases.

Sources are scanned in place where possible. Others are copied to the stage's scratch first, so that all passes read the same rows: objects
are fetched as listed, queries run once, TFRecord is decoded once. Every fault names the file and, if known, the column.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from polars.exceptions import PolarsError

from pipelines.data.corrupt_files import sound_files
from pipelines.data.databases import query_rows
from pipelines.data.recbole import scan_typed
from pipelines.data.spill import spill_chunks
from pipelines.data.text_files import recognised, scan_text
from pipelines.data.tfrecord.layout import beside
from pipelines.data.tfrecord.reader import scan_tfrecord
from shared.contracts.sources import Place, TextFormat
from shared.contracts.validation_report import FaultyFile
from shared.datafiles import data_files, data_objects, is_object, kind_of
from shared.datafiles.object_store import ObjectStore
from shared.datafiles.objects import layout
from shared.domain.entity_ids import UNFIXED, IdHash, IdKinds
from shared.domain.errors import BadData

_INFERRED = 10_000
_RECOGNISED = TextFormat()


T = TypeVar("T")

LOCAL_IDS = IdHash(b"local")
"""Hash of text ids for work without an installation: its keys are never stored."""


@dataclass(frozen=True)
class ReadableRoots:
    """Roots that a stage may read, the folder for copies, and how ids are read."""

    roots: tuple[str, ...]
    scratch: Path
    kinds: IdKinds = UNFIXED
    ids: IdHash = LOCAL_IDS
    copies: dict[str, Any] = field(default_factory=dict)
    """What `once` has returned: a source that is opened twice is copied once."""

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Returns what `make` returned at the first call with this key."""
        if key not in self.copies:
            self.copies[key] = make()
        copy: T = self.copies[key]
        return copy


@dataclass(frozen=True)
class SourceRows:
    """Rows of one schema, opened lazily. `files`: the files read, or their copies; `faulty`: unreadable files.

    `scan` opens a subset of the files like the whole; None if files aren't read separately.
    """

    uri: str
    files: tuple[Path, ...]
    frame: pl.LazyFrame
    scan: Callable[[Sequence[Path]], pl.LazyFrame] | None = None
    faulty: tuple[FaultyFile, ...] = ()

    @property
    def has_types(self) -> bool:
        """False for CSV and TSV, whose types are guessed."""
        return not self.files or kind_of(self.files[0].name) not in ("csv", "tsv")

    def mapped(self, make: Callable[[pl.LazyFrame], pl.LazyFrame]) -> SourceRows:
        """Returns the source with `make` applied to its rows, also where a subset of the files is opened."""
        scan = self.scan
        return replace(self, frame=make(self.frame), scan=None if scan is None else lambda files: make(scan(files)))

    @property
    def name(self) -> str:
        return self.files[0].name if len(self.files) == 1 and self.uri.endswith(self.files[0].name) else self.uri

    def digest(self) -> str:
        """Returns sha256 over the files' digests, in the order of their names."""
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()

    def changed_at(self) -> datetime:
        """Returns when the newest of the files was changed. Rows of a database are as new as their copy."""
        return datetime.fromtimestamp(max(path.stat().st_mtime for path in self.files), UTC)

    def without_broken(self) -> SourceRows:
        """Reads every file to its end and drops unreadable ones; faults in the middle show only then."""
        if self.scan is None:
            return self
        scan, first = self.scan, self.files[0]

        def look(path: Path) -> None:
            with readable(str(path)):
                scan([path]).select(pl.all().is_not_null().sum()).collect(engine="streaming")
            _check_same(path, first)

        files, faulty = sound_files(self.files, look)
        return replace(self, files=tuple(files), frame=scan(files), faulty=(*self.faulty, *faulty))


def open_source(
    place: Place, reach: ReadableRoots, columns: Sequence[str], *, spare: bool = False, as_text: Collection[str] = ()
) -> SourceRows:
    """Opens a place after checking permission, existence, readability and `columns`. `spare`: drops faulty files to `faulty`, if at least
    one other is good. `as_text`: columns to read as text from files without types (CSV, TSV)."""
    faulty: list[FaultyFile] = []
    text = tuple(place.names.get(column, column) for column in as_text)
    files, scan = _queried(place, reach) if place.query is not None else _filed(place, reach, columns, faulty if spare else None, text)
    scan = _named(scan, place)
    _check_columns(scan, place.label, columns)
    with readable(place.label):
        if scan.head(1).collect().is_empty():
            raise BadData(f"{place.label}: header without rows")
    one_by_one = place.query is None and kind_of(files[0].name) != "tfrecord"
    again = partial(_scanned, place, reach, text) if one_by_one else None
    return SourceRows(place.label, tuple(files), scan, again, tuple(faulty))


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Converts polars' read errors to a one-line BadData that names the file."""
    try:
        yield
    except (PolarsError, PermissionError) as error:
        raise BadData(f"{name}: cannot be read: {_reason(error)}") from error


def scan_files(files: Sequence[Path], scratch: Path, as_text: Collection[str] = (), csv: TextFormat = _RECOGNISED) -> pl.LazyFrame:
    """Scans files of one kind; copies them to the scratch if needed. `as_text`: columns of files without types."""
    kinds = {kind_of(path.name) for path in files}
    if len(kinds) > 1:
        raise BadData(f"{files[0].parent}: files of different kinds cannot be read together: {', '.join(sorted(map(str, kinds)))}")
    match kinds.pop():
        case "parquet":
            return pl.scan_parquet(list(files), glob=False)
        case "typed":
            return scan_typed(files)
        case "jsonl":
            return pl.scan_ndjson(list(files), infer_schema_length=_INFERRED)
        case "tfrecord":
            return scan_tfrecord(files, scratch / "rows", str(files[0] if len(files) == 1 else files[0].parent))
        case _:
            return _scan_text(files, scratch, as_text, csv)


def _scan_text(files: Sequence[Path], scratch: Path, as_text: Collection[str], csv: TextFormat) -> pl.LazyFrame:
    """Scans by the first file's form and column names; a column is integer only if it is integer in every file."""
    scans = scan_text(files, recognised(files[0], csv), scratch, as_text)
    if len(scans) == 1:
        return scans[0]
    with readable(str(files[0])):
        names = scans[0].collect_schema().names()
    for path, scan in zip(files, scans, strict=True):
        _check_columns(scan, str(path), names)
    return pl.concat([scan.select(names) for scan in scans], how="vertical_relaxed")


def _queried(place: Place, reach: ReadableRoots) -> tuple[Sequence[Path], pl.LazyFrame]:
    assert place.query is not None and place.database is not None
    query, database, mark = place.query, place.database, _mark(place)
    spilled = reach.once(f"rows {mark}", lambda: spill_chunks(query_rows(query, database), reach.scratch / mark, place.label))
    return spilled.files, spilled.frame


def _filed(
    place: Place, reach: ReadableRoots, columns: Sequence[str], faulty: list[FaultyFile] | None, as_text: Collection[str]
) -> tuple[Sequence[Path], pl.LazyFrame]:
    """Opens files; appends faulty ones to `faulty`, if given."""
    assert place.uri is not None
    uri, mark = place.uri, _mark(place)
    scratch = reach.scratch / mark
    files = reach.once(f"objects {mark}", lambda: _fetched(place, reach)) if is_object(uri) else data_files(uri, reach.roots)
    if kind_of(files[0].name) == "tfrecord":
        rows = reach.once(f"rows {mark}", lambda: scan_files(files, scratch))
        return [*files, *(beside(path) for path in files if beside(path).exists())], rows

    def look(path: Path) -> None:
        named = uri if len(files) == 1 else str(path)
        _check_columns(scan_files([path], scratch, csv=place.csv), named, [place.names.get(column, column) for column in columns])

    if faulty is None:
        for path in files:
            look(path)
        return files, scan_files(files, scratch, as_text, place.csv)
    sound, others = sound_files(files, look)
    faulty += others
    return sound, scan_files(sound, scratch, as_text, place.csv)


def _scanned(place: Place, reach: ReadableRoots, as_text: Collection[str], files: Sequence[Path]) -> pl.LazyFrame:
    return _named(scan_files(files, reach.scratch / _mark(place), as_text, place.csv), place)


def _fetched(place: Place, reach: ReadableRoots) -> list[Path]:
    """Fetches each object under its own name and with its own time, into a folder numbered by its position."""
    assert place.uri is not None
    store = ObjectStore()
    paths = []
    for number, data_object in enumerate(data_objects(place.uri, reach.roots, store)):
        path = reach.scratch / _mark(place) / f"{number:06}" / data_object.key.rsplit("/", 1)[-1]
        store.fetch(data_object.uri, path, data_object.tag)
        for other in layout(data_object, store):
            store.fetch(other.uri, beside(path), other.tag)
        os.utime(path, (data_object.written.timestamp(),) * 2)
        paths.append(path)
    return paths


def _mark(place: Place) -> str:
    """Returns the name of the place's folder in the scratch."""
    return hashlib.sha256(place.model_dump_json().encode()).hexdigest()[:16]


def _named(scan: pl.LazyFrame, place: Place) -> pl.LazyFrame:
    """Renames columns to the spec's names."""
    if not place.names:
        return scan
    with readable(place.label):
        there = scan.collect_schema().names()
    for wanted, column in place.names.items():
        if column not in there:
            raise BadData(f"{place.label}: column '{column}' (names: {wanted}) is missing; columns: {', '.join(there[:20])}")
        if wanted in there and wanted not in place.names.values():
            raise BadData(f"{place.label}: column '{column}' cannot be named '{wanted}': a column has that name already")
    return scan.rename({column: wanted for wanted, column in place.names.items()})


def _reason(error: Exception) -> str:
    """Returns polars' message without its advice on polars calls."""
    message = str(error)
    if "truncate_ragged_lines" in message:
        return "rows have different lengths: each line needs as many fields as the header; set csv: {separator: ...} if another one is used"
    if "utf-8" in message.lower() or "utf8" in message.lower():
        return "the text is not UTF-8; set csv: {encoding: ...} to the encoding of the file"
    return " ".join(message.split("\n\n", maxsplit=1)[0].split())[:200]


def _check_same(path: Path, first: Path) -> None:
    """Raises BadData unless a Parquet file has the first file's column types: they are read together."""
    if kind_of(path.name) != "parquet":
        return
    types, file_types = (pl.read_parquet_schema(file) for file in (first, path))
    for column, dtype in types.items():
        if file_types.get(column) != dtype:
            there = f"is {file_types[column]}" if column in file_types else "is missing"
            raise BadData(f"{path}: column '{column}' {there}; in {first.name} it is {dtype}")


def _check_columns(scan: pl.LazyFrame, named: str, columns: Sequence[str]) -> None:
    with readable(named):
        names = scan.collect_schema().names()
    for column in columns:
        if column not in names:
            raise BadData(f"{named}: column '{column}' is missing; {columns_hint(column, names)}")


def columns_hint(column: str, names: Sequence[str]) -> str:
    """Returns the nearest name, else all names."""
    if names and all(name.replace(".", "", 1).lstrip("+-").isdigit() for name in names):
        return f"the first line is {', '.join(names[:20])}: if the file has no header line, set csv: {{header: [...]}}"
    if len(names) == 1 and column in names[0]:
        return f"the only column is '{names[0]}': set csv: {{separator: ...}} to the characters between its fields"
    near = get_close_matches(column, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'? columns: {', '.join(names[:20])}" if near else f"columns: {', '.join(names[:20])}"
