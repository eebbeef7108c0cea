"""Servers of models, and indexes of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from shared.contracts.stage import Files
from shared.domain.traffic import Mirror

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ServedUnit:
    """A version as the model server needs it."""

    recommender: str
    number: int
    files: Files


@dataclass(frozen=True)
class ServerReplica:
    """One of the servers behind the port."""

    name: str
    state: Literal["ready", "loading", "down"]
    versions: tuple[tuple[str, int], ...]
    """What it serves: recommender and version."""
    fault: str | None


@dataclass(frozen=True)
class ServerInfo:
    version: str
    models: tuple[Mapping[str, str], ...]
    """The repository index: name, version, state, and the recommender that the model is of; empty for what is of none."""
    replicas: tuple[ServerReplica, ...] = ()


class Scorer(Protocol):
    def score(
        self, recommender: str, number: int, feed: Mapping[str, np.ndarray[Any, Any]], patience: float | None = None
    ) -> np.ndarray[Any, Any]:
        """One score a row; Unavailable when the version doesn't answer, or not within so many seconds (None: the server's own limit).
        ServerAway when no version would be answered: no server is reachable, or all are being given back their versions."""


class ModelServer(Scorer, Protocol):
    """Triton, whatever form it has. Versions stand side by side; the caller always names one."""

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        """Makes exactly these versions answer, without disturbing those that stay; idempotent.

        Returns the versions that can't be loaded with the reason of each: they are left out, the others serve. Pending while versions
        are still being loaded: the call is to be repeated.
        """

    def answering(self, recommender: str) -> frozenset[int]:
        """The versions that answered a real inference just now, on every replica that is waited for."""

    def successes(self) -> Mapping[tuple[str, int], int]:
        """Successful requests of (recommender, version) so far, over restarts and removals of versions."""

    def info(self) -> ServerInfo: ...


@dataclass(frozen=True)
class IngestResult:
    """What became of interactions that were sent."""

    new: int = 0
    duplicates: int | None = 0
    """Of an id that was there already: left out. None, as below, where that is found out later: then `new` are all."""
    conflicts: int | None = 0
    """Those duplicates that say something else than the first one did (their time aside)."""
    hits: int | None = 0
    """Impressions that became hits."""


class CandidateIndex(Protocol):
    """The items of one version by their vectors: which of them meet a query best."""

    def nearest(self, queries: np.ndarray[Any, Any], k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """For each query (float32, one a row) the rows of the `k` items with the largest inner products, and these; best first, equal
        ones by key. All items where there are fewer than `k`."""


class Indexes(Protocol):
    def open(self, keys: np.ndarray[Any, Any], vectors: np.ndarray[Any, Any], content: bytes | None) -> CandidateIndex:
        """Of the items with these keys and vectors (float32), row by row. `content` is what export built for them, if it did; BadData
        where that is damaged, or of other vectors."""


class ShadowTotals(Protocol):
    """What gateways saw of shadows."""

    def add(self, recommender: str, generation: int, gateway: str, mirror: Mirror) -> None:
        """A gateway's totals so far, in the place of those that it gave before: telling them again changes nothing. A gateway that
        has started anew counts from nothing, so it has another name."""

    def total(self, recommender: str, generation: int) -> Mirror:
        """Of all gateways."""
