"""Scores on Tritons that another process places versions on. It derives a version's model name by the placing process's rule, so
the registry and the signature suffice.

Each replica's statistics, read about twice a second, list its versions, and none after a restart. They are wrong when a version's process
died: then a request fails, goes to another replica, and the version counts as doubted until a real inference succeeds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from services.triton.addresses import Addresses
from services.triton.certificates import Certificates
from services.triton.client import Client, ServerLost
from services.triton.probe import Key, probe_version
from services.triton.replica_selection import AWAY_PATIENCE, ReplicaSelector, VersionState
from services.triton.repository import SIGNATURE, model_name
from services.triton.tensors import Feed, tensors
from shared.contracts.stage import Files
from shared.contracts.strict import read
from shared.domain.errors import EyasError, Unavailable
from shared.ports import ArtifactStore
from shared.serving.signature import Signature

log = logging.getLogger(__name__)

ModelLookup = Callable[[Key], tuple[str, Signature]]
_CACHED_SIGNATURES = 1000
"""Cached versions beyond the routed ones."""
_LOOKING = 2.0


class TritonScorer:
    """Implements Scorer. `files_of` returns the files of a registered version. Versions are immutable, so signatures are cached.

    The owner calls `refresh` about twice a second.
    """

    def __init__(
        self,
        addresses: Addresses,
        files_of: Callable[[str, int], Files],
        artifacts: ArtifactStore,
        *,
        timeout: float = 2.0,
        certificates: Certificates | None = None,
    ) -> None:
        self._addresses = addresses
        self._certificates = certificates
        self._files_of = files_of
        self._artifacts = artifacts
        self._choice = ReplicaSelector(timeout)
        self._signatures: dict[Key, tuple[str, Signature]] = {}
        self._replicas: Mapping[str, RemoteReplica] = {}

    def score(self, recommender: str, number: int, feed: Feed, patience: float | None = None) -> np.ndarray[Any, Any]:
        key = (recommender, number)
        self.know(key)
        return self._choice.score(tuple(self._replicas.values()), key, feed, patience)

    def refresh(self, routed: Iterable[Key] = ()) -> None:
        """Reads the replicas and their versions. `routed`: versions to cache, so that they score even while the registry is away."""
        routed = set(routed)
        if len(self._signatures) > len(routed) + _CACHED_SIGNATURES:
            self._signatures = {key: entry for key, entry in self._signatures.items() if key in routed}
        for key in routed:
            try:
                self.know(key)
            except EyasError as error:
                log.debug("version: reading the signature failed recommender=%s version=%d error=%s", *key, error)
        addresses = self._addresses.current()
        former = self._replicas
        if set(addresses) != set(former):
            self._replicas = {
                address: former.get(address) or RemoteReplica(address, self.know, self._certificates) for address in addresses
            }
            for name in former.keys() - self._replicas.keys():
                former[name].close()
        wait([replica.look() for replica in self._replicas.values()], _LOOKING)

    def close(self) -> None:
        replicas, self._replicas = self._replicas, {}
        for replica in replicas.values():
            replica.close()

    def know(self, key: Key) -> tuple[str, Signature]:
        """Returns the Triton model of a version and its signature."""
        entry = self._signatures.get(key)
        return self._learn(key) if entry is None else entry

    def _learn(self, key: Key) -> tuple[str, Signature]:
        recommender, number = key
        label = f"{SIGNATURE} of {recommender} version {number}"
        files = self._files_of(recommender, number)
        if SIGNATURE not in files:
            raise Unavailable(f"{recommender} version {number} has no {SIGNATURE}: it was not exported for serving")
        signature = read(Signature, json.loads(self._artifacts.read(files[SIGNATURE])), label)
        entry = (model_name(recommender, signature, number), signature)
        self._signatures[key] = entry
        return entry


class RemoteReplica:
    """A replica for clients that do not place versions."""

    def __init__(self, address: str, know: ModelLookup, certificates: Certificates | None = None) -> None:
        self.name = address
        self._know = know
        self._client = Client(address, certificates=certificates)
        self._has: Set[tuple[str, str]] = frozenset()
        self._doubts: set[Key] = set()
        self._up: bool | None = None
        self._looking: Future[None] | None = None
        self._hand = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"triton-{address}")

    def standing(self, key: Key) -> VersionState:
        if not self._up:
            return VersionState.AWAY
        model, _ = self._know(key)
        if (model, str(key[1])) not in self._has:
            return VersionState.UNSEEN
        return VersionState.DOUBTED if key in self._doubts else VersionState.GOOD

    def ask(self, key: Key, feed: Feed, timeout: float) -> np.ndarray[Any, Any]:
        model, signature = self._know(key)
        try:
            return self._client.infer(model, key[1], tensors(signature, feed), signature.output, timeout)
        except ServerLost:
            self._doubts.add(key)
            raise

    def away(self, recommender: str) -> bool:
        """A server without any version has just started, so it counts as away."""
        return not self._up or not self._has or not self._client.ready(AWAY_PATIENCE)

    def look(self) -> Future[None]:
        if self._looking is None or self._looking.done():
            self._looking = self._hand.submit(self._look)
        return self._looking

    def close(self) -> None:
        self._client.close()
        self._hand.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> None:
        self._client.renew()
        try:
            self._has = self._client.successes(_LOOKING).keys()
        except Unavailable as error:
            if self._up is not False:
                log.warning("replica: no answer, requests skip it until it answers replica=%s error=%s", self.name, error)
            self._up = False
            return
        if self._up is False:
            log.info("replica: answers again replica=%s", self.name)
        self._up = True
        for key in tuple(self._doubts):
            model, signature = self._know(key)
            try:
                if (model, str(key[1])) in self._has:
                    probe_version(self._client, model, key[1], signature, _LOOKING)
            except Unavailable:
                continue
            self._doubts.discard(key)
