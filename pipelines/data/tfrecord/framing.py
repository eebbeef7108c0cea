"""Records in a file: length, its checksum, data, its checksum. Nothing that doesn't match is handed on."""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from pipelines.data.tfrecord.crc import masked_crc
from shared.domain.errors import BadData

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_LONGEST = 1 << 30


def records(path: Path) -> Iterator[bytes]:
    """A file's records; damage and a lost end are named with the record and its place."""
    with _opened(path) as stream:
        place = 0
        for number in range(1, 1 << 62):
            try:
                head = stream.read(12)
                if not head:
                    return
                if len(head) < 12:
                    raise _ends(path, number)
                (length,), (checksum,) = _LENGTH.unpack_from(head), _CHECKSUM.unpack_from(head, 8)
                if _of_length(head[:8]) != checksum or length > _LONGEST:
                    what = "this is no TFRecord" if number == 1 else "its length doesn't match its checksum: the file is damaged"
                    raise BadData(f"{path}: record {number} at byte {place}: {what}")
                data, foot = stream.read(length), stream.read(4)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise BadData(f"{path}: record {number}: it can't be unpacked: {error}") from None
            if len(data) < length or len(foot) < 4:
                raise _ends(path, number)
            if masked_crc(data) != _CHECKSUM.unpack(foot)[0]:
                raise BadData(f"{path}: record {number} at byte {place}: its data don't match their checksum: the file is damaged")
            yield data
            place += 16 + length


def write_records(data: Iterable[bytes], path: Path) -> int:
    """How many there were."""
    count = 0
    with _made(path) as stream:
        for one in data:
            head = _LENGTH.pack(len(one))
            stream.write(b"".join((head, _CHECKSUM.pack(_of_length(head)), one, _CHECKSUM.pack(masked_crc(one)))))
            count += 1
    return count


@functools.lru_cache(maxsize=65_536)
def _of_length(head: bytes) -> int:
    """Records of a file have few lengths."""
    return masked_crc(head)


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.name.endswith(".gz") else path.open("rb")


def _made(path: Path) -> BinaryIO:
    """Without a name and a time in it, so that equal data makes an equal file."""
    return cast(BinaryIO, gzip.GzipFile(path, "wb", mtime=0)) if path.name.endswith(".gz") else path.open("wb")


def _ends(path: Path, number: int) -> BadData:
    return BadData(f"{path}: it ends in the middle of record {number}: it was cut off")
