"""Index of a large catalogue's vectors for services/index: product quantisation, half a byte per dimension, full scan.

The number of rows to rescore per candidate depends on the vectors, so the number is measured on users' queries and stored in the file.
Below `FROM` items exact scoring is as fast (`python -m benchmarks.ann` measures the limit): no index.
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
    """Share of the exact candidates found, for the test queries."""


def build_index(vectors: Floats, queries: Floats, candidates: int, seed: int) -> Index:
    import faiss

    faiss.omp_set_num_threads(1)  # many small clusterings: threads wait for each other, 8 s of CPU instead of 0.5
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
    """Returns the smallest factor that finds `RECALL` of the exact candidates, else the largest; fetched rows are rescored exactly."""
    keys = np.arange(len(vectors))
    wanted = [best(vectors @ query, keys, candidates) for query in queries]
    weighed, recall = WEIGHED[0], 1.0
    for weighed in WEIGHED:
        _, fetched = scan.search(queries, min(weighed * candidates, len(vectors)))
        recall = float(np.mean([np.isin(exact, other).mean() for exact, other in zip(wanted, fetched, strict=True)])) if wanted else 1.0
        if recall >= RECALL:
            break
    return weighed, recall
