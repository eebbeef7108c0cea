"""Records in a file: length, its checksum, data, its checksum; mismatches raise BadData."""

from __future__ import annotations

import functools
import gzip
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from pipelines.data.tfrecord.crc import masked_crcs
from shared.domain.errors import BadData

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_LONGEST = 1 << 30
_TOGETHER, _MUCH = 4_096, 1 << 20


def records(path: Path) -> Iterator[bytes]:
    """Yields a file's records; errors name the damaged or cut-off record and its byte. Verifies many records at a time."""
    number, place = 1, 0
    for some in _framed(path):
        for (data, checksum), actual in zip(some, masked_crcs([data for data, _ in some]), strict=True):
            if actual != checksum:
                raise BadData(f"{path}: record {number} at byte {place}: data do not match the checksum; the file is damaged")
            yield data
            number, place = number + 1, place + 16 + len(data)


def write_records(data: Iterable[bytes], path: Path) -> int:
    """Writes records; returns their number."""
    count, rest = 0, iter(data)
    with _made(path) as stream:
        while some := list(itertools.islice(rest, _TOGETHER)):
            for record, checksum in zip(some, masked_crcs(some), strict=True):
                head = _LENGTH.pack(len(record))
                stream.write(b"".join((head, _CHECKSUM.pack(_of_length(head)), record, _CHECKSUM.pack(checksum))))
            count += len(some)
    return count


def _framed(path: Path) -> Iterator[list[tuple[bytes, int]]]:
    """Yields groups of records with their checksums, up to about a MiB. Yields the records before damage, then raises."""
    some: list[tuple[bytes, int]] = []
    number, place, size = 0, 0, 0
    with _opened(path) as stream:
        while True:
            number += 1
            try:
                record = _next(stream, path, number, place)
            except BadData:
                if some:
                    yield some
                raise
            if record is None:
                break
            some.append(record)
            size, place = size + len(record[0]), place + 16 + len(record[0])
            if len(some) == _TOGETHER or size > _MUCH:
                yield some
                some, size = [], 0
    if some:
        yield some


def _next(stream: BinaryIO, path: Path, number: int, place: int) -> tuple[bytes, int] | None:
    try:
        head = stream.read(12)
        if not head:
            return None
        if len(head) < 12:
            raise _ends(path, number)
        (length,), (checksum,) = _LENGTH.unpack_from(head), _CHECKSUM.unpack_from(head, 8)
        if _of_length(head[:8]) != checksum or length > _LONGEST:
            problem = "not a TFRecord file" if number == 1 else "length does not match the checksum; the file is damaged"
            raise BadData(f"{path}: record {number} at byte {place}: {problem}")
        data, foot = stream.read(length), stream.read(4)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadData(f"{path}: record {number}: cannot be unpacked: {error}") from None
    if len(data) < length or len(foot) < 4:
        raise _ends(path, number)
    return data, _CHECKSUM.unpack(foot)[0]


@functools.lru_cache(maxsize=65_536)
def _of_length(head: bytes) -> int:
    """Caches checksums: a file has few different lengths."""
    return masked_crcs([head])[0]


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.name.endswith(".gz") else path.open("rb")


def _made(path: Path) -> BinaryIO:
    """Omits name and time from gzip headers, so that equal data gives equal files."""
    return cast(BinaryIO, gzip.GzipFile(path, "wb", mtime=0)) if path.name.endswith(".gz") else path.open("wb")


def _ends(path: Path, number: int) -> BadData:
    return BadData(f"{path}: file ends in the middle of record {number}; it is truncated")
