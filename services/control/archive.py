"""Archive of events as files of days: a log of compactions, each a manifest that names the files it added.

Manifests are numbered, and the store accepts one manifest per number. The first N manifests are the only record of what is archived, so a
crash leaves nothing to repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from shared.contracts.archive import TABLES, EventTable, PartName, part_name
from shared.contracts.stage import File, Manifest
from shared.domain.errors import Conflict, Damaged
from shared.ports import ArtifactStore


@dataclass(frozen=True)
class ArchivePart:
    name: PartName
    file: File
    rows: int


class EventArchive:
    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts = artifacts
        self._manifests: dict[str, tuple[Manifest, ...]] = {}  # manifests never change

    def compactions(self, recommender: str) -> Sequence[Manifest]:
        manifests = list(self._manifests.get(recommender, ()))
        while (manifest := self._artifacts.manifest(_name(recommender, len(manifests)))) is not None:
            manifests.append(manifest)
        self._manifests[recommender] = tuple(manifests)
        return manifests

    def days(self, recommender: str, table: EventTable) -> Mapping[date, Sequence[ArchivePart]]:
        parts_by_day: dict[date, list[ArchivePart]] = {}
        for manifest in self.compactions(recommender):
            for name, file in manifest.files.items():
                parsed = part_name(name)
                if parsed.table == table:
                    parts_by_day.setdefault(parsed.day, []).append(ArchivePart(parsed, file, manifest.facts["rows"][name]))
        return parts_by_day

    def add(self, recommender: str, number: int, done: Manifest) -> bool:
        """Publishes the result of a try as compaction `number`; returns False if another try was first."""
        rows = done.facts.get("rows", {})
        if not all(part_name(file).number == number and isinstance(rows.get(file), int) for file in done.files):
            raise Damaged(f"{done.attempt}: published files are not days of events, or lack their number of rows")
        name = _name(recommender, number)
        try:
            self._artifacts.publish(done.model_copy(update={"attempt": name, "run": name}))
        except Conflict:
            return False
        return True

    def show(self, recommender: str) -> None:
        """Shows each file in a folder of days, for people and their tools."""
        for part in itertools.chain.from_iterable(parts for table in TABLES for parts in self.days(recommender, table).values()):
            self._artifacts.show(part.file, f"events/{recommender}/{part.name}")


def _name(recommender: str, number: int) -> str:
    return f"compacted-{recommender}-{number}"


def rows_of(days: Mapping[date, Sequence[ArchivePart]]) -> Mapping[date, int]:
    return {day: sum(part.rows for part in parts) for day, parts in days.items()}
