"""What may tell whether a user liked an item, for negatives that are verified: bytes a like, nanoseconds a draw, and what is called liked
and isn't.

    python -m benchmarks.negatives [--runs 5]

Pairs are drawn as training draws them, users by how often they like, 16,384 at a time; likes have the shape of MovieLens.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Row, publish
from pipelines.inputs.bloom_filter import LikedItems, mixed

Ints = NDArray[np.int64]
SHAPES = {"100K": (943, 1_682, 55_375), "1M": (6_040, 3_706, 575_281), "25M": (162_541, 59_047, 12_452_811)}
"""Users, items and ratings of 4 and more."""
AT_ONCE = 16_384
DRAWS = 64
_FREE = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Contender:
    size: int
    test: Callable[[Ints, Ints], NDArray[np.bool_]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    said = parser.parse_args()
    rows = [row for shape, (users, items, likes) in SHAPES.items() for row in measured(shape, users, items, likes, said.runs)]
    publish("negatives", rows)
    return 0


def measured(shape: str, users: int, items: int, likes: int, runs: int) -> Iterator[Row]:
    pairs, codes = _likes(users, items, likes)
    random = np.random.default_rng(5)
    drawn = [(pairs[0][random.integers(0, len(codes), AT_ONCE)], random.integers(0, items, AT_ONCE)) for _ in range(DRAWS)]
    truth = [_in(codes, user * items + item) for user, item in drawn]
    for name, make in CONTENDERS.items():
        began = time.perf_counter()
        made = make(pairs, codes, users, items)
        built = time.perf_counter() - began
        if made is None:
            continue
        taken = [_timed(made, drawn) for _ in range(runs)]
        found = [made.test(*one) for one in drawn]
        assert all(one[true].all() for one, true in zip(found, truth, strict=True)), f"{name} has forgotten a like"
        wrong = sum(int((one & ~true).sum()) for one, true in zip(found, truth, strict=True)) / sum(int((~one).sum()) for one in truth)
        figures = {
            "time": ("ns a draw", taken),
            "size": ("bytes a like", [made.size / len(codes)]),
            "built in": ("ns a like", [1e9 * built / len(codes)]),
            "called liked wrongly": ("per cent of draws", [100 * wrong]),
        }
        for what, (unit, values) in figures.items():
            yield Row(f"{shape}, {len(codes):,} likes", name, what, unit, values)


def _likes(users: int, items: int, likes: int) -> tuple[tuple[Ints, Ints], Ints]:
    """Some like much and some items are liked much; each pair once."""
    random = np.random.default_rng(3)
    by_user, by_item = (random.lognormal(0, 1.2, count) for count in (users, items))
    ends = [np.cumsum(one) / one.sum() for one in (by_user, by_item)]
    codes = np.empty(0, np.int64)
    while len(codes) < likes:
        user, item = (np.searchsorted(one, random.random(likes)) for one in ends)
        codes = np.unique(np.concatenate([codes, user.astype(np.int64) * items + item]))
    codes = np.sort(random.permutation(codes)[:likes])
    return (codes // items, codes % items), codes


def _timed(made: Contender, drawn: list[tuple[Ints, Ints]]) -> float:
    began = time.perf_counter()
    for users, items in drawn:
        made.test(users, items)
    return 1e9 * (time.perf_counter() - began) / (AT_ONCE * DRAWS)


def _in(codes: Ints, wanted: Ints) -> NDArray[np.bool_]:
    at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.asarray(codes[at] == wanted)


def _sorted(pairs: tuple[Ints, Ints], codes: Ints, users: int, items: int) -> Contender:
    return Contender(codes.nbytes, lambda user, item: _in(codes, user * items + item))


def _bitmap(pairs: tuple[Ints, Ints], codes: Ints, users: int, items: int) -> Contender | None:
    size = -(-users * items // 8)
    if size > 2**31:
        return None
    bits = np.zeros(size, np.uint8)
    np.bitwise_or.at(bits, codes >> 3, np.uint8(1) << (codes & 7).astype(np.uint8))

    def test(user: Ints, item: Ints) -> NDArray[np.bool_]:
        code = user * items + item
        found: NDArray[np.uint8] = (bits.take(code >> 3) >> (code & 7).astype(np.uint8)) & np.uint8(1)
        return found.view(np.bool_)

    return Contender(bits.nbytes, test)


def _hashed(pairs: tuple[Ints, Ints], codes: Ints, users: int, items: int) -> Contender:
    """Open addressing, one place after the other, at most half full."""
    bits = max(4, int(2 * len(codes) - 1).bit_length())
    table = np.full(1 << bits, _FREE, np.uint64)
    last = np.uint64((1 << bits) - 1)
    rest = codes.astype(np.uint64)
    places = mixed(rest) & last
    while len(rest):
        free = table[places] == _FREE
        table[places[free]] = rest[free]
        left = table[places] != rest
        rest, places = rest[left], (places[left] + np.uint64(1)) & last

    def test(user: Ints, item: Ints) -> NDArray[np.bool_]:
        code = (user * items + item).astype(np.uint64)
        found = np.zeros(len(code), np.bool_)
        there, place = np.arange(len(code)), mixed(code) & last
        while len(there):
            value = table.take(place.view(np.int64))
            found[there[value == code[there]]] = True
            on = (value != _FREE) & (value != code[there])
            there, place = there[on], (place[on] + np.uint64(1)) & last
        return found

    return Contender(table.nbytes, test)


def _filtered(pairs: tuple[Ints, Ints], codes: Ints, users: int, items: int) -> Contender:
    made = LikedItems.of([pairs])
    return Contender(made.size, made)


CONTENDERS = {"sorted codes": _sorted, "bitmap": _bitmap, "hash set": _hashed, "blocked Bloom filter": _filtered}


if __name__ == "__main__":
    sys.exit(main())
