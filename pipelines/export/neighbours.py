"""The index of a large catalogue's vectors, for services/index to search: product quantisation, half a byte a dimension, scanned whole.

How many rows must be weighed anew for each one that is wanted depends on the vectors, so it is measured on users' own queries, and stands
in the file. Below `FROM` items scoring all of them exactly is as quick (`python -m benchmarks.ann` measures where that ends): no index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.serving.index_file import pack
from shared.serving.nearest import best

FROM = 100_000
RECALL = 0.98
WEIGHED = (2, 4, 8, 16, 32)
_TRAINED_ON, _FEWEST = 100_000, 16
_JUDGED = 64
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Index:
    content: bytes
    weighed: int
    recall: float
    """Of the exact candidates, by the judged queries."""


def build_index(vectors: Floats, queries: Floats, candidates: int, seed: int) -> Index:
    import faiss

    faiss.omp_set_num_threads(1)  # on many small clusterings its threads wait for each other: 8 s of CPU instead of 0.5
    rows, width = vectors.shape
    random = np.random.default_rng((seed, 47))
    scan: Any = faiss.IndexPQFastScan(width, width, 4, faiss.METRIC_INNER_PRODUCT)
    scan.pq.cp.seed = seed % 2**31
    chosen = np.sort(random.permutation(rows)[:_TRAINED_ON])
    scan.train(np.ascontiguousarray(vectors[np.resize(chosen, max(_FEWEST, len(chosen)))]))
    scan.add(vectors)
    judged = np.ascontiguousarray(queries[np.sort(random.permutation(len(queries))[:_JUDGED])])
    weighed, recall = _weighed(scan, vectors, judged, min(candidates, rows))
    return Index(pack("faiss-pq4", rows, width, weighed, candidates, vectors.data, faiss.serialize_index(scan).tobytes()), weighed, recall)


def _weighed(scan: Any, vectors: Floats, queries: Floats, candidates: int) -> tuple[int, float]:
    """The least that finds `RECALL` of the exact candidates: what is fetched and weighed exactly is found."""
    keys = np.arange(len(vectors))
    wanted = [best(vectors @ query, keys, candidates) for query in queries]
    weighed, recall = WEIGHED[0], 1.0
    for weighed in WEIGHED:
        _, fetched = scan.search(queries, min(weighed * candidates, len(vectors)))
        recall = float(np.mean([np.isin(exact, other).mean() for exact, other in zip(wanted, fetched, strict=True)])) if wanted else 1.0
        if recall >= RECALL:
            break
    return weighed, recall
