"""Candidates: how many of the exact ones are found, how long a query takes, and from which size on an index is quicker than exact.

    python -m benchmarks.ann [--sizes 60000,250000,1000000] [--graphs-to 250000]

Equal work: the same vectors, queries and k for all, one thread a search. Each library is given the least effort of its settings with which
it finds 97% of the exact 500, or its greatest, where none does; ours chooses by itself, as at an export.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.ann_contenders import Built, Contender, Search, contenders
from benchmarks.ann_vectors import train
from benchmarks.report import Row, publish

K, AIM = 500, 0.97
QUERIES, TOGETHER, ROUNDS = 192, 32, 5
Array = np.ndarray[Any, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="60000,125000,250000,500000,1000000", help="items of the catalogues")
    parser.add_argument("--graphs-to", type=int, default=250_000, help="larger graphs of neighbours take too long to build")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    console = Console()
    trained = train(asked.seed)
    console.print(f"trained vectors' singular values (1st, 2nd, 4th .. 64th): {trained.spectrum()}")
    queries = trained.queries(QUERIES, asked.seed)
    rows: list[Row] = []
    for size in [int(part) for part in asked.sizes.split(",")]:
        vectors = trained.catalogue(size, asked.seed)
        with threadpool_limits(1):
            wanted = next(contenders()).build(vectors, queries).efforts[0][1](queries, K)
        for one in contenders():
            if one.graph and size > asked.graphs_to:
                console.print(f"{size:,} items: {one.name} not measured, its graph would take too long to build")
                continue
            found = list(_measure(one, vectors, trained.queries(256, asked.seed + 1), queries, wanted))
            rows += found
            console.print(
                f"{size:,} items: {one.name}: " + ", ".join(f"{row.metric} {np.median(row.values):.4g} {row.unit}" for row in found)
            )
    rows += _crossing(rows)
    publish("ann", rows)
    return 0


def _measure(one: Contender, vectors: Array, users: Array, queries: Array, wanted: Array) -> Iterator[Row]:
    case = f"{len(vectors):,} items"
    began = time.perf_counter()
    built = one.build(vectors, users)
    seconds = time.perf_counter() - began
    with threadpool_limits(1):
        effort, search, found = _enough(built, queries, wanted)
        name = f"{one.name}, {effort}" if effort else one.name
        yield Row(case, name, "recall@500", "", [found])
        for metric, together in (("one query", 1), (f"of {TOGETHER}", TOGETHER)):
            wall, processor = _times(search, queries, together)
            yield Row(case, name, f"time, {metric}", "ms a query", wall)
            yield Row(case, name, f"CPU, {metric}", "ms a query", processor)
    yield Row(case, name, "build", "s", [seconds])
    yield Row(case, name, "memory beside the vectors", "MiB", [built.size])


def _enough(built: Built, queries: Array, wanted: Array) -> tuple[str, Search, float]:
    tried = ((effort, search, _recall(search(queries, K), wanted)) for effort, search in built.efforts)
    best = next(tried)
    for one in tried:
        if best[2] >= AIM:
            break
        best = one
    return best


def _recall(found: Array, wanted: Array) -> float:
    return float(np.mean([len(np.intersect1d(one, other)) / len(other) for one, other in zip(found, wanted, strict=True)]))


def _times(search: Search, queries: Array, together: int) -> tuple[list[float], list[float]]:
    """Milliseconds a query, on the clock and of processor time; a value a round."""
    asked = queries if together > 1 else queries[:48]
    parts = [asked[at : at + together] for at in range(0, len(asked), together)]
    search(parts[0], K)
    return tuple(zip(*[_round(search, parts, len(asked)) for _ in range(ROUNDS)], strict=True))  # type: ignore[return-value]


def _round(search: Search, parts: Sequence[Array], count: int) -> tuple[float, float]:
    clocks: tuple[Callable[[], float], Callable[[], float]] = (time.perf_counter, time.process_time)
    before = [clock() for clock in clocks]
    for part in parts:
        search(part, K)
    wall, processor = (1000 * (clock() - then) / count for clock, then in zip(clocks, before, strict=True))
    return wall, processor


def _crossing(rows: Sequence[Row]) -> Iterator[Row]:
    """From which of the measured sizes on the index needs less processor time than exact."""
    for metric in ("CPU, one query", f"CPU, of {TOGETHER}"):
        ours = {
            name: {row.case: np.median(row.values) for row in rows if row.metric == metric and row.contender.startswith(name)}
            for name in _OURS
        }
        exact, quick = (ours[name] for name in _OURS)
        sizes = [int(case.split(" ")[0].replace(",", "")) for case in exact if quick[case] < exact[case]]
        if sizes:
            yield Row("index before exact", "eyas quantised", metric, "items", [float(min(sizes))])


_OURS = ("eyas exact", "eyas quantised")

if __name__ == "__main__":
    raise SystemExit(main())
