"""Ports for model servers and for candidate indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from shared.contracts.stage import Files
from shared.domain.traffic import ShadowCounts

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ServedUnit:
    """Version with the files that the model server needs."""

    recommender: str
    number: int
    files: Files


@dataclass(frozen=True)
class ServerReplica:
    """One of the servers behind the port."""

    name: str
    state: Literal["ready", "loading", "down"]
    versions: tuple[tuple[str, int], ...]
    """Served versions: recommender and version."""
    fault: str | None


@dataclass(frozen=True)
class ServerInfo:
    version: str
    models: tuple[Mapping[str, str], ...]
    """Repository index: name, version, state, and the model's recommender; empty for other models."""
    replicas: tuple[ServerReplica, ...] = ()


class Scorer(Protocol):
    def score(
        self, recommender: str, number: int, feed: Mapping[str, np.ndarray[Any, Any]], patience: float | None = None
    ) -> np.ndarray[Any, Any]:
        """Returns one score per row. Raises Unavailable if the version does not respond within `patience` seconds (None: the server's own
        limit). Raises ServerAway if no version can respond: no server is reachable, or all are reloading their versions."""


class ModelServer(Scorer, Protocol):
    """Triton in any deployment. Several versions are loaded at once; the caller always names the version."""

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        """Makes exactly these versions respond, without disturbing those that stay; idempotent.

        Returns the versions that cannot be loaded with their reasons; the others serve. Raises Pending while versions are loading; repeat
        the call then.
        """

    def answering(self, recommender: str) -> frozenset[int]:
        """Returns the versions that just answered a real inference on every replica that must be ready."""

    def successes(self) -> Mapping[tuple[str, int], int]:
        """Counts successful requests by (recommender, version), across restarts and removals of versions."""

    def info(self) -> ServerInfo: ...


@dataclass(frozen=True)
class IngestResult:
    """Result of an ingestion of interactions."""

    new: int = 0
    duplicates: int | None = 0
    """Events with an existing id; they are left out. None if this is found out later: then `new` counts all."""
    conflicts: int | None = 0
    """Duplicates with other content than the first event (except the time)."""
    hits: int | None = 0
    """Impressions that became hits."""
    too_old: int = 0
    """Events that are left out, because their day is refused."""


class CandidateIndex(Protocol):
    """Search index of one version's items by their vectors."""

    def nearest(self, queries: np.ndarray[Any, Any], k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Returns, for each query (a row of float32), the rows of the `k` items with the largest inner products, and these products. Best
        first, equal ones by key; all items if there are fewer than `k`."""


class Indexes(Protocol):
    def open(self, keys: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any], content: bytes | None) -> CandidateIndex:
        """Opens the index of the items with these keys and vectors (float32), row by row. `content` is the index that export built, if any;
        raises BadData if it is damaged or does not match the vectors."""


class ShadowTotals(Protocol):
    """Totals of shadow results from gateways."""

    def add(self, recommender: str, generation: int, gateway: str, mirror: ShadowCounts) -> None:
        """Replaces the gateway's totals; repeats change nothing. A restarted gateway counts from 0 and has another name."""

    def total(self, recommender: str, generation: int) -> ShadowCounts:
        """Returns the sum over all gateways."""
