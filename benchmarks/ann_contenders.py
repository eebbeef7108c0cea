"""Contenders of the retrieval benchmark: ours (exact, and the index that export builds), and libraries, where they are installed.

Graphs of neighbours order by distance: for inner products each item gets another dimension with its missing length (without it they
found a third of the exact items).
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.export.neighbours import build_index
from services.index.exact import ExactIndex
from services.index.opening import OpenIndexes

Array = np.ndarray[Any, Any]
Search = Callable[[Array, int], Array]
EFFORTS = (500, 1000, 2000)
"""Of a graph."""


@dataclass(frozen=True)
class Built:
    """`efforts` are searches with more and more effort, each by the name of its setting; `size` is the memory beside the vectors in MiB."""

    efforts: tuple[tuple[str, Search], ...]
    size: float


@dataclass(frozen=True)
class Contender:
    name: str
    build: Callable[[Array, Array], Built]
    """From the items' vectors, and users' to tune with: others than the queries."""
    graph: bool = False
    """Takes long to build."""


def contenders() -> Iterator[Contender]:
    yield Contender("eyas exact", _exact)
    yield Contender("eyas quantised (faiss pq4, weighed anew)", _quantised)
    yield Contender("faiss IVF-flat", _inverted)
    for name, build in (("hnswlib", _hnswlib), ("usearch", _usearch)):
        if importlib.util.find_spec(name):
            yield Contender(name, build, graph=True)


def _exact(vectors: Array, users: Array) -> Built:
    index = ExactIndex(np.arange(len(vectors)), vectors)
    return Built((("", lambda queries, k: index.nearest(queries, k)[0]),), 0)


def _quantised(vectors: Array, users: Array) -> Built:
    """As export and gateway do: queries of other users determine how many items are weighed."""
    built = build_index(vectors, users, 500, 1)
    index = OpenIndexes().open(np.arange(len(vectors)), vectors, built.content)
    effort = f"{built.weighed} weighed for one"
    return Built(((effort, lambda queries, k: index.nearest(queries, k)[0]),), len(built.content) / 2**20)


def _inverted(vectors: Array, users: Array) -> Built:
    import faiss

    count, width = vectors.shape
    lists = int(2 * count**0.5)
    index: Any = faiss.index_factory(width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[: 50 * lists])
    index.add(vectors)

    def search(share: float) -> Search:
        params: Any = faiss.SearchParametersIVF(nprobe=max(1, int(share * lists)))  # type: ignore[call-arg]
        return lambda queries, k: np.asarray(index.search(queries, k, params=params)[1])

    efforts = tuple((f"{share:.0%} of the lists", search(share)) for share in (0.1, 0.2, 0.4))
    return Built(efforts, len(faiss.serialize_index(index)) / 2**20)


def _hnswlib(vectors: Array, users: Array) -> Built:
    import hnswlib

    longer = _longer(vectors)
    index = hnswlib.Index("l2", longer.shape[1])
    index.init_index(len(vectors), M=16, ef_construction=100)
    index.add_items(longer)
    index.set_num_threads(1)

    def nearest(effort: int, queries: Array, k: int) -> Array:
        index.set_ef(effort)
        return np.asarray(index.knn_query(queries, k)[0], dtype=np.intp)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index.save_index(str(path))
        size = path.stat().st_size
    return _graph(nearest, size)


def _usearch(vectors: Array, users: Array) -> Built:
    from usearch.index import Index

    longer = _longer(vectors)
    index = Index(ndim=longer.shape[1], metric="l2sq", dtype="f32", connectivity=16, expansion_add=100)
    index.add(np.arange(len(vectors)), longer)

    def nearest(effort: int, queries: Array, k: int) -> Array:
        index.expansion_search = effort
        return np.asarray(index.search(queries, k, threads=1).keys, dtype=np.intp).reshape(len(queries), -1)

    return _graph(nearest, index.memory_usage)


def _longer(vectors: Array) -> Array:
    squares = (vectors**2).sum(axis=1)
    longer: Array = np.concatenate([vectors, np.sqrt(squares.max() - squares)[:, None]], axis=1).astype(np.float32)
    return longer


def _graph(nearest: Callable[[int, Array, int], Array], size: float) -> Built:
    def search(effort: int) -> Search:
        return lambda queries, k: nearest(effort, np.concatenate([queries, np.zeros((len(queries), 1), np.float32)], axis=1), k)

    return Built(tuple((f"ef {effort:,}", search(effort)) for effort in EFFORTS), size / 2**20)
