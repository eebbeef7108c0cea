"""Model lineage: the ancestors of the serving version and later changes, from which `auto` chooses between warm and full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import LEFT_OUT
from shared.domain.drift.reading import DriftLook
from shared.domain.errors import EyasError
from shared.domain.metric import FORGOTTEN
from shared.domain.warm_or_full import Link, TrainingHistory
from shared.ports import ForgottenUsers, Recommender, Registry, RouteStore, RunStore, Version
from shared.run_factory import spec_of

LONGEST = 1_000
_UNCHANGED_FIELDS = ("schema", "feedback.kinds", "features", "model.family", "model.params")
"""Parts of a spec that a warm run can't change."""
_RECENT = 20
"""How many rejected runs are read."""


def line_of(version: Version, get: Callable[[str, int], Version]) -> Iterator[Version]:
    """Yields the version and its ancestors up to a full run's version; ends earlier if a row is missing."""
    yield version
    while version.lineage.mode == "warm" and version.parent is not None:
        try:
            version = get(version.recommender, version.parent)
        except EyasError:
            return
        yield version


def learned_at(version: Version, get: Callable[[str, int], Version]) -> datetime:
    """Returns when the oldest data of a version was read: by the last full run, from which warm runs continue. The version may know the
    users that were forgotten later; all of them, if etl did not have the ledger: it was empty, or the code was older than the ledger."""
    *_, full = line_of(version, get)
    had_ledger = LEFT_OUT in full.lineage.stages.get("etl", {})
    return full.lineage.snapshot if had_ledger else datetime.min.replace(tzinfo=UTC)


class ModelLineages:
    def __init__(self, registry: Registry, runs: RunStore, routes: RouteStore, forgotten: ForgottenUsers) -> None:
        self._registry, self._runs, self._routes, self._forgotten = registry, runs, routes, forgotten
        self._lineages: dict[str, tuple[int, tuple[Link, ...]]] = {}

    def past(self, recommender: Recommender, drift: DriftLook | None) -> TrainingHistory:
        """Returns the facts for `auto` under the recommender's current spec."""
        route = self._routes.get(recommender.name)
        if route is None:
            return TrainingHistory()
        try:
            version = self._registry.get(recommender.name, route.stable)
            spec = spec_of(self._runs.get(version.run))
        except EyasError:  # its row or run is missing or damaged: no ancestors
            return TrainingHistory()
        line, changed = self._line(version, spec), _changed(spec, recommender.spec)
        return TrainingHistory(line, changed, self._refused(version), _farthest(drift), self._knows_forgotten(version))

    def _knows_forgotten(self, version: Version) -> bool:
        newest = self._forgotten.newest(version.recommender)
        return newest is not None and learned_at(version, self._registry.get) <= newest

    def _line(self, version: Version, spec: RecommenderSpec) -> tuple[Link, ...]:
        """Caches the lineage: versions don't change."""
        name = version.recommender
        cached_line = self._lineages.get(name)
        if cached_line is None or cached_line[0] != version.number:
            cached_line = self._lineages[name] = version.number, self._read(version, (spec.schema_.user, spec.schema_.item))
        return cached_line[1]

    def _read(self, version: Version, columns: tuple[str, str]) -> tuple[Link, ...]:
        return tuple(_link(ancestor, columns) for ancestor in islice(line_of(version, self._registry.get), LONGEST))

    def _refused(self, version: Version) -> str | None:
        rejected = self._runs.list(version.recommender, states={"rejected"}, since=version.created_at, limit=_RECENT)
        return next((run.id for run in rejected if run.spec.mode == "warm" and run.spec.serving == version.number), None)


def _link(version: Version, columns: tuple[str, str]) -> Link:
    stages = version.lineage.stages
    codes = stages.get("refit", stages["etl"]).get("cardinalities", {})
    cardinalities = {name: int(codes[name]) for name in columns if name in codes}
    return Link(version.lineage.mode, cardinalities, version.metrics.get(f"candidate.{FORGOTTEN}"))


def _changed(before: RecommenderSpec, now: RecommenderSpec) -> str | None:
    old, new = before.document(), now.document()
    return next((path for path in _UNCHANGED_FIELDS if _at(old, path) != _at(new, path)), None)


def _at(document: dict[str, Any], path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        value = value[name]
    return value


def _farthest(look: DriftLook | None) -> tuple[str, float] | None:
    """Returns column and size of the largest drift that chance does not explain."""
    significant = (
        [reading for reading in look.readings if reading.detector == "psi" and reading.chance <= reading.limit] if look is not None else []
    )
    farthest = max(significant, key=lambda reading: reading.size, default=None)
    return None if farthest is None else (farthest.column, farthest.size)
