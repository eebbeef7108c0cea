"""The index of a large catalogue's vectors, for services/index to search: product quantisation, half a byte a dimension, scanned whole.

Below `FROM` items scoring all of them exactly is as quick (`python -m benchmarks.ann` measures where that ends), so there is no index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.serving.index_file import pack

FROM = 200_000
_TRAINED_ON, _FEWEST = 100_000, 16


def build_index(vectors: NDArray[np.float32], seed: int) -> bytes:
    import faiss

    rows, width = vectors.shape
    scan: Any = faiss.IndexPQFastScan(width, width, 4, faiss.METRIC_INNER_PRODUCT)
    scan.pq.cp.seed = seed % 2**31
    chosen = np.sort(np.random.default_rng((seed, 47)).permutation(rows)[:_TRAINED_ON])
    scan.train(np.ascontiguousarray(vectors[np.resize(chosen, max(_FEWEST, len(chosen)))]))
    scan.add(vectors)
    return pack("faiss-pq4", rows, width, vectors.data, faiss.serialize_index(scan).tobytes())
