"""Asks a Triton that somebody else places versions on. A gateway of its own owns no placement: it knows a version's model by
the same rule that placed it (name and inputs), so it needs the registry's word and the signature, and nothing of the placing process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from services.triton.client import Client
from services.triton.repository import SIGNATURE, model_name
from services.triton.tensors import Feed, tensors
from shared.contracts.stage import Files
from shared.contracts.strict import read
from shared.domain.errors import Unavailable
from shared.ports import ArtifactStore
from shared.serving.signature import Signature

Key = tuple[str, int]
_KEPT = 1000


class TritonScorer:
    """Implements Scorer. `files_of` gives the files of a registered version. Versions never change: what was read is kept."""

    def __init__(
        self, address: str, metrics_url: str, files_of: Callable[[str, int], Files], artifacts: ArtifactStore, *, timeout: float = 2.0
    ) -> None:
        self._client = Client(address, metrics_url)
        self._files_of = files_of
        self._artifacts = artifacts
        self._timeout = timeout
        self._known: Mapping[Key, tuple[str, Signature]] = {}

    def score(self, recommender: str, number: int, feed: Feed) -> np.ndarray[Any, Any]:
        key = (recommender, number)
        model, signature = self._known.get(key) or self._learn(key)
        return self._client.infer(model, number, tensors(signature, feed), signature.output, self._timeout)

    def close(self) -> None:
        self._client.close()

    def _learn(self, key: Key) -> tuple[str, Signature]:
        recommender, number = key
        what = f"{SIGNATURE} of {recommender} version {number}"
        files = self._files_of(recommender, number)
        if SIGNATURE not in files:
            raise Unavailable(f"{recommender} version {number} has no {SIGNATURE}: it was not exported for serving")
        signature = read(Signature, json.loads(self._artifacts.read(files[SIGNATURE])), what)
        found = (model_name(recommender, signature), signature)
        kept = self._known if len(self._known) < _KEPT else {}
        self._known = {**kept, key: found}  # replaced, never changed: it is read without a lock
        return found
