"""Snapshots for a run, as files: the platform's events (compacted days, and the rest from the log) and feature values of users.

A day's files are used if they hold as many rows as the database had of that day; so the content doesn't depend on compaction, nor on the
deletion of old days.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from services.control.archive import ArchivePart, EventArchive, rows_of
from shared.contracts.archive import EventTable
from shared.contracts.online import USERS, history_name
from shared.contracts.stage import FORGOTTEN_USERS, ID_KEY, Files
from shared.domain.archive import TimePart, stretches
from shared.domain.entity_ids import IdHash
from shared.domain.errors import Damaged
from shared.domain.forgetting import ForgottenUser, UserDigest
from shared.ports import ArtifactStore, Catalogue, DeletionMarks, EventDays, EventDeletion, EventLog, FeatureHistory, ForgottenUsers

EVENTS = "events.csv"
MOST_ANSWERS = 1_000_000
"""Row limit: whole days, from the newest day backwards; the newest day is always taken."""


@dataclass(frozen=True)
class _Days:
    """Days of a range. `parts`: files of each archived day, without days of which a file is missing. `rows`: number of rows that the
    database has of each day, or had before the day's deletion."""

    parts: Mapping[date, Sequence[ArchivePart]]
    rows: Mapping[date, int]


class Snapshots:
    def __init__(
        self,
        events: EventLog,
        days: EventDays,
        deletion: EventDeletion,
        artifacts: ArtifactStore,
        ids: IdHash,
        forgotten: ForgottenUsers,
        history: FeatureHistory | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        """`history`, `catalogue`: None if there is no such store."""
        self._ids = ids
        self._forgotten = forgotten
        self._history = history
        self._catalogue = catalogue
        self._events = events
        self._days = days
        self._deletion = deletion
        self._artifacts = artifacts
        self._archive = EventArchive(artifacts)

    def take(self, recommender: str, since: datetime | None, until: datetime) -> Files:
        """Returns interactions of [since, until): `events.csv`, or stretches of time with sorted names, each a CSV or the parts of a
        day. The first day may have rows before `since`."""
        return self._settled(recommender, "interactions", partial(self._take, recommender, since, until))

    def _settled(self, recommender: str, table: EventTable, read: Callable[[DeletionMarks], Files]) -> Files:
        """Reads again if days were deleted meanwhile, because a file may lack rows of them."""
        while True:
            marks = self._deletion.marks(recommender, table)
            files = read(marks)
            if self._deletion.marks(recommender, table).deleted_before == marks.deleted_before:
                return files

    def _take(self, recommender: str, since: datetime | None, until: datetime, marks: DeletionMarks) -> Files:
        days = self._days_of(recommender, "interactions", since, until, marks)
        files: Files = {}
        for number, stretch in enumerate(stretches(since, until, days.rows, rows_of(days.parts), marks.deleted_before)):
            if stretch.day is not None:
                files |= {f"{number:05d}/part-{part.name.number:05d}.parquet": part.file for part in days.parts[stretch.day]}
            else:
                files |= self._exported(
                    recommender, stretch, EVENTS if (stretch.since, stretch.until) == (since, until) else f"{number:05d}.csv"
                )
        return files or self._exported(recommender, TimePart(since, until), EVENTS)

    def attributes(self, recommender: str) -> tuple[str, ...] | None:
        """Returns the names of the catalogue's attributes; None without a catalogue."""
        return None if self._catalogue is None else tuple(sorted(self._catalogue.names(recommender)))

    def answers(self, recommender: str, since: datetime, until: datetime, liked_since: datetime | None) -> Files:
        """Returns impressions since `since` and likes since `liked_since`, by days: the parts of compacted days, dumps of the others. Days
        are whole, so both ends have additional rows."""

        def newest(rows: Mapping[date, int]) -> list[date]:
            days: list[date] = []
            for day in sorted((day for day in rows if day >= _day(since)), reverse=True):
                if days and sum(rows[newer] for newer in (*days, day)) > MOST_ANSWERS:
                    break
                days.append(day)
            return days

        def of_likes(rows: Mapping[date, int]) -> list[date]:
            return [day for day in rows if liked_since is None or day >= _day(liked_since)]

        def dumped(table: EventTable, begin: datetime | None, choose: Callable[[Mapping[date, int]], Sequence[date]]) -> Files:
            return self._settled(recommender, table, partial(self._dumped, recommender, table, begin, until, choose))

        return dumped("impressions", since, newest) | dumped("interactions", liked_since, of_likes)

    def _dumped(
        self,
        recommender: str,
        table: EventTable,
        since: datetime | None,
        until: datetime,
        choose: Callable[[Mapping[date, int]], Sequence[date]],
        marks: DeletionMarks,
    ) -> Files:
        days = self._days_of(recommender, table, since, until, marks)
        archived = rows_of(days.parts)
        files: Files = {}
        with tempfile.TemporaryDirectory(prefix="eyas-days-") as folder:
            for day in choose(days.rows):
                if archived.get(day) == days.rows[day]:
                    files |= {str(part.name): part.file for part in days.parts[day]}
                    continue
                path = Path(folder) / f"{day}.ndjson"
                self._days.dump(recommender, table, day, path)
                files[f"{table}/{path.name}"] = self._artifacts.put(path)
                path.unlink()
        return files

    def _days_of(self, recommender: str, table: EventTable, since: datetime | None, until: datetime, marks: DeletionMarks) -> _Days:
        """Raises Damaged if the archive lacks a deleted day that the range contains."""
        compactions = len(self._archive.compactions(recommender))
        if compactions < (marks.compactions or 0):
            raise Damaged(
                f"events of '{recommender}': the artifact store has {compactions} compactions, but the days before {marks.deleted_before} "
                f"were deleted from the database after {marks.compactions}; restore the artifacts from a backup"
            )
        deleted_before = min(marks.deleted_before or date.min, _day(until))
        is_pending = recommender in self._forgotten.pending()  # equal numbers of rows do not mean equal rows
        parts_by_day: dict[date, Sequence[ArchivePart]] = {}
        for day, parts in self._archive.days(recommender, table).items():
            if (since is not None and day < _day(since)) or (is_pending and day >= deleted_before):
                continue
            missing = [part.name for part in parts if not self._artifacts.holds(part.file)]
            if not missing:
                parts_by_day[day] = parts
            elif day < deleted_before:
                raise Damaged(
                    f"events of '{recommender}': the file {missing[0]} is missing, and the database does not have this day any more; "
                    "restore the file from a backup of the artifacts"
                )
        rows = dict(self._days.counts(recommender, table, until))
        rows |= {day: count for day, count in rows_of(parts_by_day).items() if day < deleted_before and count > rows.get(day, 0)}
        return _Days(parts_by_day, rows)

    def has_values(self, recommender: str) -> bool:
        """Returns whether feature values of users were ever written."""
        return self._history is not None and bool(self._history.latest(recommender, USERS, 1))

    def forgotten(self, recommender: str) -> Files:
        """Returns the digests of forgotten users as a file; no file if there are none."""
        users = self._forgotten.all(recommender)
        return forgotten_file(self._artifacts, self._forgotten.digest, users) if users else {}

    def id_key(self) -> Files:
        """Returns the key of the hash of text ids as a file."""
        with tempfile.TemporaryDirectory(prefix="eyas-ids-") as folder:
            path = Path(folder) / ID_KEY
            path.write_text(self._ids.secret.hex())
            return {ID_KEY: self._artifacts.put(path)}

    def values(self, recommender: str, until: datetime) -> Files:
        """Returns all feature values of users before `until`; no file if there are none."""
        if self._history is None:
            return {}
        with tempfile.TemporaryDirectory(prefix="eyas-features-") as folder:
            path = Path(folder) / history_name(USERS)
            return {path.name: self._artifacts.put(path)} if self._history.export(recommender, USERS, until, path) else {}

    def _exported(self, recommender: str, stretch: TimePart, name: str) -> Files:
        with tempfile.TemporaryDirectory(prefix="eyas-events-") as folder:
            path = Path(folder) / EVENTS
            rows = self._events.export(recommender, stretch.since, stretch.until, path)
            return {name: self._artifacts.put(path)} if rows or name == EVENTS else {}


def forgotten_file(artifacts: ArtifactStore, digest: UserDigest, users: Sequence[ForgottenUser]) -> Files:
    document = {"secret": digest.secret.hex(), "users": {user.digest: user.instant for user in users}}
    with tempfile.TemporaryDirectory(prefix="eyas-forgotten-") as folder:
        path = Path(folder) / FORGOTTEN_USERS
        path.write_text(json.dumps(document))
        return {FORGOTTEN_USERS: artifacts.put(path)}


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
