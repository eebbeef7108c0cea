"""Retrieval by vectors: recall of the exact candidates, time of a query, and the catalogue size from which an index is faster than exact.

    python -m benchmarks.ann [--sizes 60000,250000,1000000] [--graphs-to 250000]

Equal work: the same vectors, queries and k for all, one thread a search. Each library has the least effort of its settings with which
it finds 97% of the exact 500, or its greatest, if none does; ours chooses by itself, as at an export.

Vectors have the spectrum, lengths and clusters of a model's: synthetic likes are factorised as in a run. Each further item is a trained
item with a deviation of its own, drawn with the trained vectors' covariance, and another length; queries are trained users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.ann_contenders import Array, Built, Contender, Search, contenders
from benchmarks.harness import Outcome, Row, benchmark, say, timed
from pipelines.data.synthetic import LIKED, World
from pipelines.training.als import AlsTerms, Factors, begin, sweeps
from pipelines.training.likes import LikePairs

K, AIM = 500, 0.97
QUERIES, TOGETHER, ROUNDS = 192, 32, 5
USERS, ITEMS, RATINGS, WIDTH = 4_000, 3_000, 400_000, 64
DEVIATION, LENGTHS = 0.35, 0.3
EXACT, INDEX = "eyas exact", "eyas quantised"


@benchmark("ann")
def ann(
    sizes: Annotated[list[int], "items of the catalogues"] = [60_000, 125_000, 250_000, 500_000, 1_000_000],  # noqa: B006  read only
    graphs_to: Annotated[int, "larger graphs of neighbours take too long to build"] = 250_000,
    seed: int = 1,
) -> Iterator[Outcome]:
    trained = train(seed)
    spectrum = np.linalg.svd(trained.items, compute_uv=False)[[0, 1, 3, 7, 15, 31, 63]]
    say(f"trained vectors' singular values (1st, 2nd, 4th .. 64th): {spectrum.round(2).tolist()}")
    queries, recall_queries = (draw_queries(trained, count, seed + at) for at, count in enumerate((QUERIES, 256)))
    rows: list[Row] = []
    for size in sizes:
        vectors = catalogue(trained, size, seed)
        with threadpool_limits(1):
            exact = next(contenders()).build(vectors, queries).efforts[0][1](queries, K)
        for contender in contenders():
            if contender.graph and size > graphs_to:
                say(f"{size:,} items: {contender.name} not measured, its graph would take too long to build")
                continue
            for row in measure(contender, vectors, recall_queries, queries, exact):
                rows.append(row)
                yield row
    yield from crossing(rows)


def train(seed: int) -> Factors:
    ratings = World.create(USERS, ITEMS, seed=seed).ratings(RATINGS, 0, 86_400, seed)
    liked = ratings.rating >= LIKED
    users, items = (np.unique(keys[liked], return_inverse=True)[1] for keys in (ratings.user, ratings.item))
    pairs = LikePairs(users, items, int(users.max()) + 1, int(items.max()) + 1)
    factors = begin(pairs.user_count, pairs.item_count, WIDTH, seed)
    for _ in sweeps(pairs, factors, AlsTerms(0.4, 0.003), 6):
        pass
    return factors


def catalogue(trained: Factors, count: int, seed: int) -> Array:
    random = np.random.default_rng((seed, count))
    root = np.linalg.cholesky(np.cov(trained.items.T) + 1e-6 * np.eye(WIDTH)).astype(np.float32)
    parents = trained.items[random.integers(len(trained.items), size=count)]
    lengths = np.linalg.norm(parents, axis=1, keepdims=True)
    drawn = random.standard_normal((count, WIDTH), dtype=np.float32) @ root.T
    items = parents + DEVIATION * lengths / np.linalg.norm(trained.items, axis=1).mean() * drawn
    return np.ascontiguousarray(items * np.exp(LENGTHS * random.standard_normal((count, 1))), dtype=np.float32)


def draw_queries(trained: Factors, count: int, seed: int) -> Array:
    queries: Array = trained.users[np.random.default_rng((seed, 3)).choice(len(trained.users), count, replace=False)]
    return queries


def measure(contender: Contender, vectors: Array, users: Array, queries: Array, exact: Array) -> Iterator[Row]:
    case = f"{len(vectors):,} items"
    seconds, built = timed(lambda: contender.build(vectors, users))
    with threadpool_limits(1):
        effort, search, recall = least_effort(built, queries, exact)
        name = f"{contender.name}, {effort}" if effort else contender.name
        yield Row(case, name, "recall@500", "", [recall])
        for metric, together in (("one query", 1), (f"of {TOGETHER}", TOGETHER)):
            wall, processor = query_times(search, queries, together)
            yield Row(case, name, f"time, {metric}", "ms a query", wall)
            yield Row(case, name, f"CPU, {metric}", "ms a query", processor)
    yield Row(case, name, "build", "s", [seconds])
    yield Row(case, name, "memory beside the vectors", "MiB", [built.size])


def least_effort(built: Built, queries: Array, exact: Array) -> tuple[str, Search, float]:
    for effort, search in built.efforts:
        items = search(queries, K)
        recall = float(np.mean([len(np.intersect1d(*pair)) / K for pair in zip(items, exact, strict=True)]))
        best = effort, search, recall
        if recall >= AIM:
            break
    return best


def query_times(search: Search, queries: Array, together: int) -> tuple[list[float], list[float]]:
    """Milliseconds a query, of the clock and of the processor; a value a round."""
    some = queries if together > 1 else queries[:48]
    parts = [some[at : at + together] for at in range(0, len(some), together)]
    search(parts[0], K)
    clocks: tuple[Callable[[], float], Callable[[], float]] = (time.perf_counter, time.process_time)
    rounds: list[Any] = []
    for _ in range(ROUNDS):
        before = [clock() for clock in clocks]
        for part in parts:
            search(part, K)
        rounds.append([1000 * (clock() - began) / len(some) for clock, began in zip(clocks, before, strict=True)])
    wall, processor = np.array(rounds).T.tolist()
    return wall, processor


def crossing(rows: Sequence[Row]) -> Iterator[Row]:
    """The least of the measured sizes at which the index needs less processor time than exact."""
    for metric in ("CPU, one query", f"CPU, of {TOGETHER}"):
        exact, index = (
            {row.case: np.median(row.values) for row in rows if row.metric == metric and row.contender.startswith(name)}
            for name in (EXACT, INDEX)
        )
        sizes = [int(case.split(" ")[0].replace(",", "")) for case in exact if index[case] < exact[case]]
        if sizes:
            yield Row("index before exact", INDEX, metric, "items", [float(min(sizes))])


if __name__ == "__main__":
    ann()
