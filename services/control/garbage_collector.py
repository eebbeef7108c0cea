"""Garbage collector: versions beyond the operator's retention, manifests of ended runs, and blobs that nothing references.

Versions and outputs of runs that may know a forgotten user go earlier, so that none of its data is left when the deadline is over.

One control plane runs it, though two at once would do no harm. For each shelf: list it with ages -> read every reference -> move what is
old and unreferenced to the trash -> read every reference again and restore what is referenced by now. What has been in the trash for the
grace period, still unreferenced, is erased. A crash between two steps needs no repair: the next sweep checks the whole trash.

References are read in the order in which they are handed on: pins, then manifests. Files that a manifest in the trash names stay as long as
the manifest, so a restored manifest has its files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property

from services.control.model_lineage import learned_at, line_of
from shared.contracts.plans import run_plan
from shared.domain.errors import Invalid, NotFound
from shared.domain.naming import aliases
from shared.domain.retention import (
    AttemptFacts,
    Retention,
    Sweep,
    VersionFacts,
    attempts_to_go,
    blobs_to_go,
    pin_holds,
    run_of,
    versions_to_go,
)
from shared.domain.run import MACHINE
from shared.ports import (
    BlobPin,
    Clock,
    ExpiringRows,
    ForgottenUsers,
    LogName,
    Registry,
    RolloutStore,
    RouteStore,
    RunRecord,
    RunStore,
    Shelf,
    Trash,
    TrashItem,
    Version,
)
from shared.run_factory import spec_of, table_place
from shared.telemetry import metrics

log = logging.getLogger(__name__)

_ALL = 1_000_000


@dataclass(frozen=True)
class _References:
    """References of the database, read once."""

    versions: Sequence[Version]
    collected: Mapping[str, Mapping[int, datetime]]
    active: Mapping[str, RunRecord]
    reusable: frozenset[str]
    forgotten_at: Mapping[str, datetime | None]
    """By recommender, the newest forgetting of a user whose removal has begun."""

    @cached_property
    def _by_number(self) -> dict[tuple[str, int], Version]:
        return {(version.recommender, version.number): version for version in self.versions}

    def version(self, recommender: str, number: int) -> Version:
        if (recommender, number) not in self._by_number:
            raise NotFound(f"version {number} of '{recommender}' is not in the registry")
        return self._by_number[recommender, number]

    def uncollected_versions(self) -> list[Version]:
        return [version for version in self.versions if version.number not in self.collected.get(version.recommender, {})]


class GarbageCollector:
    def __init__(
        self,
        attic: Trash,
        registry: Registry,
        routes: RouteStore,
        runs: RunStore,
        rollouts: RolloutStore,
        rows: tuple[ExpiringRows, ForgottenUsers],
        clock: Clock,
        retention: Retention,
    ) -> None:
        self._attic = attic
        self._registry = registry
        self._routes = routes
        self._runs = runs
        self._rollouts = rollouts
        self._leftovers, self._forgotten = rows
        self._clock = clock
        self._hidden: set[tuple[str, int]] = set()
        self._retention = retention

    def sweep(self) -> Sweep:
        done = Sweep()
        for _ in self.steps(done):
            pass
        if done.versions or done.attempts or done.blobs or done.restored or done.erased:
            log.info(
                "garbage collection: finished versions=%d attempts=%d blobs=%d mib=%.1f restored=%d freed_mib=%.1f",
                *(len(done.versions), len(done.attempts), done.blobs, done.bytes / 2**20, done.restored, done.erased_bytes / 2**20),
            )
        return done

    def preview(self) -> Sweep:
        """Returns what would be removed in the end if nothing else happened; changes nothing."""
        now, would = self._clock.now(), Sweep()
        references = self._read()
        going = {name: dict.fromkeys(numbers, now) for name, numbers in self._versions(references, now).items()}
        would.versions = [(name, number) for name, numbers in going.items() for number in numbers]
        gone = {name: {**references.collected.get(name, {}), **going.get(name, {})} for name in {*references.collected, *going}}
        after = replace(references, collected=gone)
        attempts = self._attic.shelf("manifests")
        would.attempts = list(self._attempts(after, [AttemptFacts(manifest.name, manifest.written_at) for manifest in attempts], now))
        staying = {manifest.name for manifest in attempts} - set(would.attempts)
        blobs = {blob.name: blob for blob in self._attic.shelf("blobs")}
        needed = self._files(after, self._attic.pins(), staying, now)
        ages = {name: blob.written_at for name, blob in blobs.items()}
        old = blobs_to_go(ages, needed, self._grace(references), now)
        would.blobs, would.bytes = len(old), sum(blobs[name].size for name in old)
        trash = [discarded for discarded in self._attic.trash() if now - discarded.at > self._grace(references)]
        would.erased, would.erased_bytes = len(trash), sum(discarded.size for discarded in trash)
        return would

    def steps(self, done: Sweep) -> Iterator[str]:
        """Sweeps step by step: between two steps anything may happen, including the collector's crash."""
        now = self._clock.now()
        for name, numbers in self._versions(self._read(), now).items():
            done.versions += [(name, number) for number in numbers if self._registry.collect(name, number, now)]
            yield "versions marked"
        self._hide_tables()
        self._warn_overdue()
        yield from self._manifests(now, done)
        yield from self._restore("manifests", done)
        yield from self._blobs(now, done)
        yield from self._restore("blobs", done)
        yield from self._empty(now, done)
        self._drop_pins(now)
        self._drop_live()
        done.rows += self._leftovers.forget(now - self._retention.runs, now - self._retention.answers)
        logs: dict[LogName, timedelta | None] = {"history": self._retention.history, "audit": self._retention.audit}
        for log_name, horizon in logs.items():
            done.rows += 0 if horizon is None else self._leftovers.forget_log(log_name, now - horizon)

    def export_overdue(self) -> Mapping[str, Sequence[VersionFacts]]:
        """Returns the versions that may know a forgotten user although the deadline is over, and exports their numbers."""
        deadlines = self._forgotten_before(self._retention.forgotten)
        if not deadlines:
            return {}
        references = self._read()
        overdue: dict[str, list[VersionFacts]] = {}
        for name, forgotten_at in deadlines.items():
            versions = [version for version in references.uncollected_versions() if version.recommender == name]
            late = [version for version in versions if _facts_of(version, references).knows(forgotten_at)]
            overdue[name] = self._facts(name, late, references) if late else []
            metrics.FORGOTTEN_OVERDUE.labels(name).set(len(overdue[name]))
        return overdue

    def _warn_overdue(self) -> None:
        for name, versions in self.export_overdue().items():
            for version in versions:
                holders = ", ".join(version.holders) or "none"
                log.warning("forgetting: version is overdue recommender=%s version=%d holders=%s", name, version.number, holders)

    def _hide_tables(self) -> None:
        """Removes the shown batch tables of collected versions, all of them in the first sweep of a process."""
        collected = {(name, number) for name, numbers in self._registry.all_collected().items() for number in numbers}
        for name, number in sorted(collected - self._hidden):
            self._attic.hide(table_place(name, number))
        self._hidden = collected

    def _manifests(self, now: datetime, done: Sweep) -> Iterator[str]:
        manifests = {manifest.name: manifest for manifest in self._attic.shelf("manifests")}
        yield "manifests listed"
        facts = [AttemptFacts(manifest.name, manifest.written_at) for manifest in manifests.values()]
        for attempt in self._attempts(self._read(), facts, now):
            yield "going to move a manifest"
            if self._attic.discard("manifests", manifests[attempt], now):
                done.attempts.append(attempt)

    def _blobs(self, now: datetime, done: Sweep) -> Iterator[str]:
        blobs = {blob.name: blob for blob in self._attic.shelf("blobs")}
        yield "blobs listed"
        needed = yield from self._needed(now)
        ages = {name: blob.written_at for name, blob in blobs.items()}
        for name in blobs_to_go(ages, needed, self._grace(self._read()), now):
            yield "going to move a blob"
            if self._attic.discard("blobs", blobs[name], now):
                done.blobs += 1
                done.bytes += blobs[name].size

    def _restore(self, shelf: Shelf, done: Sweep) -> Iterator[str]:
        """Restores what is referenced by now, also what crashed sweeps moved."""
        yield f"{shelf} moved"
        trash = [discarded for discarded in self._attic.trash() if discarded.shelf == shelf]
        if not trash:
            return
        is_referenced = yield from self._still(shelf)
        for discarded in trash:
            if is_referenced(discarded):
                yield "going to restore"
                self._attic.restore(discarded)
                done.restored += 1

    def _empty(self, now: datetime, done: Sweep) -> Iterator[str]:
        grace = self._grace(self._read())
        shelves: tuple[Shelf, ...] = ("manifests", "blobs")
        for shelf in shelves:
            old = [discarded for discarded in self._attic.trash() if discarded.shelf == shelf and now - discarded.at > grace]
            if not old:
                continue
            is_referenced = yield from self._still(shelf)
            for discarded in old:
                if not is_referenced(discarded):
                    yield "going to erase"
                    self._attic.erase(discarded)
                    done.erased += 1
                    done.erased_bytes += discarded.size

    def _still(self, shelf: Shelf) -> Generator[str, None, Callable[[TrashItem], bool]]:
        """Reads the references of a shelf; returns a function that says whether something in the trash is referenced."""
        now = self._clock.now()
        if shelf == "blobs":
            needed = yield from self._needed(now)
            return lambda discarded: discarded.name in needed
        references = self._read()
        yield "references read"
        needed, ended = self._stages(references), self._ended(references)
        return lambda discarded: not discarded.name.endswith(".part") and (discarded.name in needed or not ended(run_of(discarded.name)))

    def _needed(self, now: datetime) -> Generator[str, None, frozenset[str]]:
        """Returns every referenced blob; reads references in the order in which they are handed on."""
        pins = self._attic.pins()
        yield "pins read"
        attempts = {manifest.name for manifest in self._attic.shelf("manifests")}
        yield "manifests read"
        attempts |= {discarded.name for discarded in self._attic.trash() if discarded.shelf == "manifests"}
        attempts |= {manifest.name for manifest in self._attic.shelf("manifests")}  # what another collector restored meanwhile
        references = self._read()
        yield "rows read"
        return self._files(references, pins, attempts, now)

    def _drop_pins(self, now: datetime) -> None:
        references = self._read()
        ended, grace = self._ended(references), self._grace(references)
        for pin in self._attic.pins():
            if not pin_holds(pin.attempt, pin.written_at, ended, grace, now):
                self._attic.unpin(pin)

    def _drop_live(self) -> None:
        """Removes progress and checkpoints of ended runs: no stage continues from them."""
        attempts, ended = self._attic.live(), self._ended(self._read())
        for attempt in attempts:
            if ended(run_of(attempt)):
                self._attic.drop_live(attempt)

    def _read(self) -> _References:
        active = {run.id: run for run in self._runs.list(active=True, limit=_ALL)}
        forgotten_at = self._forgotten_before(self._retention.forgotten_kept)
        return _References(self._registry.everything(), self._registry.all_collected(), active, self._leftovers.reusable(), forgotten_at)

    def _forgotten_before(self, age: timedelta) -> dict[str, datetime | None]:
        """Returns the newest forgetting of that age, by recommender."""
        until = self._clock.now() - age
        return {name: self._forgotten.newest(name, until) for name in self._forgotten.recommenders()}

    def _versions(self, references: _References, now: datetime) -> dict[str, tuple[int, ...]]:
        of: dict[str, list[Version]] = {}
        for version in references.uncollected_versions():
            of.setdefault(version.recommender, []).append(version)
        closed = self._routes.closed()
        deleted = replace(self._retention, versions=0, served=timedelta(0))
        going = {}
        for name, versions in of.items():
            retention = deleted if name in closed else self._retention
            forgotten_at = references.forgotten_at.get(name)
            # without holders, which take several queries
            if versions_to_go([_facts_of(version, references) for version in versions], retention, now, forgotten_at):
                going[name] = versions_to_go(self._facts(name, versions, references), retention, now, forgotten_at)
        return going

    def _facts(self, name: str, versions: Sequence[Version], references: _References) -> list[VersionFacts]:
        holders: dict[int, list[str]] = {}
        for alias, number in aliases(self._routes.get(name), self._routes.previous(name)).items():
            holders.setdefault(number, []).append(alias)
        for tag, number in self._registry.tags(name).items():
            holders.setdefault(number, []).append(f"tag {tag}")
        for rollout in self._rollouts.list(name, active=True, limit=_ALL):
            holders.setdefault(rollout.spec.version, []).append(f"rollout {rollout.id}")
        for run in references.active.values():
            if run.recommender == name and run.spec.serving is not None:
                holders.setdefault(run.spec.serving, []).append(f"run {run.id}")
        left = self._routes.left(name)
        return [
            replace(_facts_of(version, references), holders=tuple(holders.get(version.number, ())), left_at=left.get(version.number))
            for version in versions
        ]

    def _attempts(self, references: _References, facts: Sequence[AttemptFacts], now: datetime) -> tuple[str, ...]:
        ended, knows_forgotten = self._ended(references), self._knows_forgotten(references)
        return attempts_to_go(facts, self._stages(references), ended, knows_forgotten, self._retention, now)

    def _stages(self, references: _References) -> frozenset[str]:
        """Returns the referenced attempts: of a kept version's run (a warm start reads them), of the last full run in its lineage (later
        full runs are compared with its model before the refit), of active runs, and reusable ones that know no forgotten user."""
        knows_forgotten = self._knows_forgotten(references)
        needed = {attempt for attempt in references.reusable if not knows_forgotten(run_of(attempt))}
        records = list(references.active.values())
        for version in references.uncollected_versions():
            *_, full = line_of(version, references.version)
            for run in {version.run, full.run}:
                with suppress(NotFound):
                    records.append(self._runs.get(run))
        for record in records:
            needed |= {done.attempt for done in record.status.stages}
        for record in references.active.values():
            needed |= {done.attempt for done in (record.spec.adopt or {}).values()}  # adopted from the run that it retries
            if record.status.basis is not None and record.status.basis.attempt:
                needed.add(record.status.basis.attempt)
        return frozenset(needed)

    def _files(self, references: _References, pins: Iterable[BlobPin], attempts: Iterable[str], now: datetime) -> frozenset[str]:
        ended, grace = self._ended(references), self._grace(references)
        needed: set[str] = set()
        for attempt in attempts:
            if not attempt.endswith(".part"):
                needed |= self._attic.named(attempt)
        needed -= self._attic.superseded()
        needed |= {file.sha256 for version in references.uncollected_versions() for file in version.files.values()}
        for pin in pins:
            if pin_holds(pin.attempt, pin.written_at, ended, grace, now):
                needed |= pin.blobs
        return frozenset(needed)

    def _ended(self, references: _References) -> Callable[[str], bool]:
        @cache
        def ended(run: str) -> bool:
            try:
                return run not in references.active and MACHINE.terminal(self._runs.get(run).status.state)
            except NotFound:
                return False

        return ended

    def _knows_forgotten(self, references: _References) -> Callable[[str], bool]:
        """Returns a function that says whether a run may have read a user whose forgetting is due, itself or by what it reused."""

        @cache
        def knows_forgotten(run: str) -> bool:
            if not any(references.forgotten_at.values()):
                return False
            try:
                record = self._runs.get(run)
            except NotFound:
                return False
            forgotten_at = references.forgotten_at.get(record.recommender)
            return forgotten_at is not None and min((record.created_at, *(done.began for done in record.status.stages))) <= forgotten_at

        return knows_forgotten

    def _grace(self, references: _References) -> timedelta:
        """Returns the grace period, never shorter than the timeout of a stage of an active run."""
        longest = self._retention.grace
        for run in references.active.values():
            with suppress(Invalid):  # such a run starts no stage
                longest = max(longest, *run_plan(spec_of(run)).timeouts.values())
        return longest


def _facts_of(version: Version, references: _References) -> VersionFacts:
    """Returns the facts of a version without its holders."""
    return VersionFacts(version.number, version.created_at, learned_at=learned_at(version, references.version))
