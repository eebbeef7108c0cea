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
from pipelines.data.forgotten import NOBODY, ForgottenUserFilter
from pipelines.data.lake import TableVersion, open_table
from pipelines.data.partitions import FILE, Partitions
from pipelines.data.recbole import scan_typed
from pipelines.data.spill import spill_chunks
from pipelines.data.text_files import recognised, scan_text
from pipelines.data.tfrecord.layout import beside
from pipelines.data.tfrecord.reader import scan_tfrecord
from shared.contracts.sources import Place, TextFormat
from shared.contracts.validation_report import FaultyFile
from shared.datafiles import data_files, data_objects, is_object, kind_of
from shared.datafiles.delimited import looks_like_data
from shared.datafiles.local import base_folder
from shared.datafiles.object_store import ObjectStore
from shared.datafiles.objects import base_key, layout
from shared.domain.entity_ids import UNFIXED, IdHash, IdKinds
from shared.domain.errors import BadData

_INFERRED = 10_000
_RECOGNISED = TextFormat()


T = TypeVar("T")

LOCAL_IDS = IdHash(b"local")
"""Hash of text ids for work without an installation: its keys are never stored."""


@dataclass(frozen=True)
class ReadableRoots:
    """Roots that a stage may read, the folder for copies, how ids are read, and users whose rows are left out."""

    roots: tuple[str, ...]
    scratch: Path
    kinds: IdKinds = UNFIXED
    ids: IdHash = LOCAL_IDS
    forgotten: ForgottenUserFilter = NOBODY
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
    partitions: Partitions | None = None
    table: TableVersion | None = None

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
        """Returns sha256 over the files' digests, in the order of their names, with their partitions and the version of the table."""
        digest = hashlib.sha256(str(self.table).encode() if self.table else b"")
        for path in self.files:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
            if self.partitions and self.partitions.names:
                digest.update(self.partitions.mark(path))
        return digest.hexdigest()

    def changed_at(self) -> datetime:
        """Returns when the newest of the files, or the version of the table, was written. Rows of a database are as new as their copy."""
        if self.table is not None:
            return self.table.written
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
    if place.query is not None:
        source = _queried(place, reach)
    else:
        source = _table(place, reach) or _filed(place, reach, columns, faulty if spare else None, text)
    scan = _named(source.frame, place)
    _check_columns(scan, place.label, columns)
    with readable(place.label):
        if scan.head(1).collect().is_empty():
            raise BadData(f"{place.label}: header without rows")
    again = source.scan
    return replace(source, frame=scan, scan=None if again is None else lambda files: _named(again(files), place), faulty=tuple(faulty))


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Converts polars' read errors to a one-line BadData that names the file."""
    try:
        yield
    except (PolarsError, PermissionError) as error:
        raise BadData(f"{name}: cannot be read: {_reason(error)}") from error


def scan_files(
    files: Sequence[Path], scratch: Path, as_text: Collection[str] = (), csv: TextFormat = _RECOGNISED, file: str | None = None
) -> pl.LazyFrame:
    """Scans files of one kind; copies them to the scratch if needed. `as_text`: columns of files without types. `file`: name of a further
    column with the path of each row's file."""
    kinds = {kind_of(path.name) for path in files}
    if len(kinds) > 1:
        raise BadData(f"{files[0].parent}: files of different kinds cannot be read together: {', '.join(sorted(map(str, kinds)))}")
    match kinds.pop():
        case "parquet":
            return pl.scan_parquet(list(files), glob=False, include_file_paths=file)
        case "typed":
            return scan_typed(files)
        case "jsonl":
            return pl.scan_ndjson(list(files), infer_schema_length=_INFERRED, include_file_paths=file)
        case "tfrecord":
            return scan_tfrecord(files, scratch / "rows", str(files[0] if len(files) == 1 else files[0].parent))
        case _:
            return _scan_text(files, scratch, as_text, csv, file)


def _scan_text(files: Sequence[Path], scratch: Path, as_text: Collection[str], csv: TextFormat, file: str | None) -> pl.LazyFrame:
    """Scans by the first file's form and column names; a column is integer only if it is integer in every file."""
    scans = scan_text(files, recognised(files[0], csv), scratch, as_text, file)
    if len(scans) == 1:
        return scans[0]
    with readable(str(files[0])):
        names = scans[0].collect_schema().names()
    for path, scan in zip(files, scans, strict=True):
        _check_columns(scan, str(path), names)
    return pl.concat([scan.select(names) for scan in scans], how="vertical_relaxed")


def _queried(place: Place, reach: ReadableRoots) -> SourceRows:
    assert place.query is not None and place.database is not None
    query, database, mark = place.query, place.database, _mark(place)
    spilled = reach.once(f"rows {mark}", lambda: spill_chunks(query_rows(query, database), reach.scratch / mark, place.label))
    return SourceRows(place.label, spilled.files, spilled.frame)


def _table(place: Place, reach: ReadableRoots) -> SourceRows | None:
    mark = _mark(place)
    table = reach.once(f"table {mark}", lambda: open_table(place, reach.roots, reach.scratch / mark))
    return None if table is None else SourceRows(place.label, table.files, table.frame, table=table.version)


def _filed(
    place: Place, reach: ReadableRoots, columns: Sequence[str], faulty: list[FaultyFile] | None, as_text: Collection[str]
) -> SourceRows:
    """Opens files; appends faulty ones to `faulty`, if given."""
    assert place.uri is not None
    uri, mark = place.uri, _mark(place)
    scratch = reach.scratch / mark
    files = reach.once(f"objects {mark}", lambda: _fetched(place, reach)) if is_object(uri) else data_files(uri, reach.roots)
    if kind_of(files[0].name) == "tfrecord":
        rows = reach.once(f"rows {mark}", lambda: scan_files(files, scratch))
        return SourceRows(place.label, (*files, *(beside(path) for path in files if beside(path).exists())), rows)
    partitions = Partitions.of(files, scratch if is_object(uri) else base_folder(uri, reach.roots), uri)
    wanted = [column for column in (place.names.get(name, name) for name in columns) if column not in partitions.names]

    def look(path: Path) -> None:
        _check_columns(scan_files([path], scratch, csv=place.csv), uri if len(files) == 1 else str(path), wanted)

    sound: Sequence[Path] = files
    if faulty is None:
        for path in files:
            look(path)
    else:
        sound, broken = sound_files(files, look)
        faulty += broken
    scan = partial(_scanned, scratch, as_text, place.csv, partitions)
    if partitions.names:
        with readable(uri):
            reach.once(f"partitions {mark}", lambda: partitions.check(scan_files(sound, scratch, as_text, place.csv, FILE)))
    return SourceRows(place.label, tuple(sound), scan(sound), scan, partitions=partitions)


def _scanned(scratch: Path, as_text: Collection[str], csv: TextFormat, partitions: Partitions, files: Sequence[Path]) -> pl.LazyFrame:
    if not partitions.names:
        return scan_files(files, scratch, as_text, csv)
    with readable(partitions.uri):
        return partitions.added(scan_files(files, scratch, as_text, csv, FILE), as_text)


def _fetched(place: Place, reach: ReadableRoots) -> list[Path]:
    """Fetches each object under its own name, below its partitions, and with its own time, into a folder numbered by its position."""
    assert place.uri is not None
    store, base = ObjectStore(), base_key(place.uri)
    paths = []
    for number, data_object in enumerate(data_objects(place.uri, reach.roots, store)):
        name = data_object.key.rsplit("/", 1)[-1]
        inside = [folder for folder in data_object.key.removeprefix(base).split("/")[:-1] if "=" in folder]
        path = Path(reach.scratch, _mark(place), f"{number:06}", *inside, name)
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
    if looks_like_data(names):
        return f"the first line is {', '.join(names[:20])}: if the file has no header line, set csv: {{header: [...]}}"
    if len(names) == 1 and column in names[0]:
        return f"the only column is '{names[0]}': set csv: {{separator: ...}} to the characters between its fields"
    near = get_close_matches(column, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'? columns: {', '.join(names[:20])}" if near else f"columns: {', '.join(names[:20])}"
