"""CRC-32C (Castagnoli) as TFRecord masks it, in numpy: of many bytes at once, since Python's own loop takes a microsecond for ten.

A CRC is linear: that of a block is the exclusive or of what each byte contributes at its distance from the block's end.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_BLOCK = 1024
_BLOCKS = 256
"""Blocks that are worked on at once: a MiB of distances."""
_ALL = 0xFFFFFFFF


def masked_crcs(data: Sequence[bytes]) -> list[int]:
    """As they stand in a file: turned by 15 bits and moved, so that the CRC of data that holds CRCs is still one."""
    return [((crc >> 15 | crc << 17) + 0xA282EAD8) & _ALL for crc in crcs(data)]


def crcs(data: Sequence[bytes]) -> list[int]:
    """Of many at once: short ones of one length, of which a file has many, together."""
    checksums = [0] * len(data)
    same: dict[int, list[int]] = {}
    for place, record in enumerate(data):
        if 4 <= len(record) < _BLOCK:
            same.setdefault(len(record), []).append(place)
        else:
            checksums[place] = crc32c(record)
    for size, places in same.items():
        start = _after_zeros(_ALL, size) ^ _ALL
        for first in range(0, len(places), _BLOCKS):
            some = places[first : first + _BLOCKS]
            rows = np.frombuffer(b"".join([data[place] for place in some]), np.uint8).reshape(-1, size)
            own = np.bitwise_xor.reduce(np.take(_table(), rows + _places()[_BLOCK - size :]), axis=1)
            for place, crc in zip(some, own.tolist(), strict=True):
                checksums[place] = crc ^ start
    return checksums


def crc32c(data: bytes) -> int:
    """The head that fills no block first, then block by block."""
    table, rows = _table(), np.frombuffer(data, np.uint8)
    head = len(rows) % _BLOCK
    state = _head(rows[:head], table)
    for start in range(head, len(rows), _BLOCK * _BLOCKS):
        blocks = rows[start : start + _BLOCK * _BLOCKS].reshape(-1, _BLOCK)
        for own in np.bitwise_xor.reduce(np.take(table, blocks + _places()), axis=1).tolist():
            state = _after_zeros(state, _BLOCK) ^ own
    return state ^ _ALL


def _head(rows: npt.NDArray[np.uint8], table: npt.NDArray[np.uint32]) -> int:
    size = len(rows)
    if size < 4:
        state, first = _ALL, _firsts(0)
        for byte in rows.tolist():
            state = first[(state ^ byte) & 0xFF] ^ state >> 8
        return state
    return int(np.bitwise_xor.reduce(np.take(table, rows + _places()[_BLOCK - size :]))) ^ _after_zeros(_ALL, size)


def _after_zeros(state: int, size: int) -> int:
    """What a state becomes by so many zero bytes, four at least."""
    first, second, third, fourth = (_firsts(size - n) for n in (1, 2, 3, 4))
    return first[state & 0xFF] ^ second[state >> 8 & 0xFF] ^ third[state >> 16 & 0xFF] ^ fourth[state >> 24]


@functools.cache
def _table() -> npt.NDArray[np.uint32]:
    """By distance from the end and byte, flat: what the byte contributes."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ _POLYNOMIAL, first >> 1).astype(np.uint32)
    tables = [first]
    for _ in range(_BLOCK - 1):
        tables.append(first[tables[-1] & 0xFF] ^ tables[-1] >> 8)
    return np.concatenate(tables)


@functools.cache
def _places() -> npt.NDArray[np.int32]:
    """Where the table of each byte of a block begins."""
    return (np.arange(_BLOCK - 1, -1, -1, dtype=np.int32) * 256).astype(np.int32)


@functools.cache
def _firsts(distance: int) -> list[int]:
    return [int(entry) for entry in _table()[distance * 256 : distance * 256 + 256]]
