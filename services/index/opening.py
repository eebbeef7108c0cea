"""Selects the index of a version: the index that export built, if it exists and faiss is installed; else the exact index."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import numpy as np

from services.index.exact import ExactIndex
from services.index.quantised import QuantisedIndex, read_scan
from shared.ports import CandidateIndex
from shared.serving.index_file import unpack
from shared.serving.signature import INDEX

Array = np.ndarray[Any, Any]
log = logging.getLogger(__name__)


class OpenIndexes:
    """Implements Indexes."""

    def open(self, keys: Array, vectors: Array, content: bytes | None) -> CandidateIndex:
        if content is None:
            return ExactIndex(keys, vectors)
        header, written = unpack(content, len(vectors), vectors.shape[1], vectors.data, INDEX)
        if importlib.util.find_spec("faiss") is None:
            log.warning("index: faiss is not installed (pip install 'eyas[ann]'), using the slower exact search items=%d", len(keys))
            return ExactIndex(keys, vectors)
        return QuantisedIndex(keys, vectors, read_scan(written), header.weighed, header.weighed * header.candidates)
