"""Archive of events as files of days. Each compaction adds a manifest, which names the files that it wrote. If it removed forgotten users,
it also names the older files that these replace.

Manifests are numbered, and the store accepts one manifest per number. The first N manifests are the only record of what is archived, so a
crash leaves nothing to repair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from shared.contracts.archive import EventTable, PartName, part_name
from shared.contracts.stage import File, Manifest
from shared.domain.errors import Conflict, Damaged
from shared.ports import ArtifactStore


@dataclass(frozen=True)
class ArchivePart:
    name: PartName
    file: File
    rows: int


@dataclass(frozen=True)
class ArchiveParts:
    current: Sequence[ArchivePart]
    replaced: Sequence[ArchivePart]
    """Parts with rows of users who were forgotten later."""


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
        for part in self.parts(recommender).current:
            if part.name.table == table:
                parts_by_day.setdefault(part.name.day, []).append(part)
        return parts_by_day

    def parts(self, recommender: str) -> ArchiveParts:
        current: dict[str, ArchivePart] = {}
        replaced: list[ArchivePart] = []
        for manifest in self.compactions(recommender):
            replaced += [current.pop(name) for name in manifest.facts.get("replaces", ())]
            current |= {name: ArchivePart(part_name(name), file, manifest.facts["rows"][name]) for name, file in manifest.files.items()}
        return ArchiveParts(list(current.values()), replaced)

    def add(self, recommender: str, number: int, done: Manifest) -> bool:
        """Publishes the result of a try as compaction `number`; returns False if another try was first."""
        rows, current = done.facts.get("rows", {}), {str(part.name) for part in self.parts(recommender).current}
        if not all(part_name(file).number == number and isinstance(rows.get(file), int) for file in done.files):
            raise Damaged(f"{done.attempt}: published files are not days of events, or lack their number of rows")
        if not current.issuperset(done.facts.get("replaces", ())):
            raise Damaged(f"{done.attempt}: replaces files that the archive does not have")
        name = _name(recommender, number)
        try:
            self._artifacts.publish(done.model_copy(update={"attempt": name, "run": name}))
        except Conflict:
            return False
        return True

    def show(self, recommender: str) -> None:
        """Shows each file in a folder of days, for people and their tools."""
        for part in self.parts(recommender).current:
            self._artifacts.show(part.file, _shown(recommender, part))

    def erase_replaced(self, recommender: str, compaction: Manifest) -> None:
        """Erases the content of the parts that a compaction replaced at once, without the time in the trash."""
        parts = self.parts(recommender)
        digests = {part.file.sha256 for part in parts.current}
        for part in parts.replaced:
            if str(part.name) in compaction.facts["replaces"]:
                self._artifacts.hide(_shown(recommender, part))
                if part.file.sha256 not in digests:
                    self._artifacts.erase(part.file)


def _shown(recommender: str, part: ArchivePart) -> str:
    return f"events/{recommender}/{part.name}"


def _name(recommender: str, number: int) -> str:
    return f"compacted-{recommender}-{number}"


def rows_of(days: Mapping[date, Sequence[ArchivePart]]) -> Mapping[date, int]:
    return {day: sum(part.rows for part in parts) for day, parts in days.items()}
