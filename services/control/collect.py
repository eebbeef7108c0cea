"""Collects garbage: versions beyond the operator's wishes, what ended runs published, and blobs that nobody names any more.

Single among the control planes, though two at once would do no harm. Each shelf goes the same way: list it with ages -> read every
reference -> move what is old and unnamed to the trash -> read every reference again and restore what is named by now. The
trash is emptied of what has lain there for the grace and is still unnamed. Whoever dies between two steps leaves nothing
that the next sweep doesn't put right, for it looks at the whole trash.

References are read in the order in which they are handed on: pins, then manifests. What a manifest in the trash names stays as long
as the manifest does, so a manifest that is restored has its files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property

from services.control.lines import line_of
from shared.contracts.plans import run_plan
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
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
from shared.domain.run import MACHINE, RunStatus
from shared.ports import Attic, Clock, Discarded, Leftovers, Pin, Record, Registry, RolloutStore, RouteStore, RunStore, Shelf, Version

log = logging.getLogger(__name__)

_ALL = 1_000_000


@dataclass(frozen=True)
class _Known:
    """The database's side of the references, read once."""

    versions: Sequence[Version]
    collected: Mapping[str, Mapping[int, datetime]]
    active: Mapping[str, Record[RunStatus]]
    reusable: frozenset[str]

    @cached_property
    def _by_number(self) -> dict[tuple[str, int], Version]:
        return {(version.recommender, version.number): version for version in self.versions}

    def version(self, recommender: str, number: int) -> Version:
        if (recommender, number) not in self._by_number:
            raise NotFound(f"version {number} of '{recommender}' is not in the registry")
        return self._by_number[recommender, number]

    def kept(self) -> list[Version]:
        return [one for one in self.versions if one.number not in self.collected.get(one.recommender, {})]


class Collector:
    def __init__(
        self,
        attic: Attic,
        registry: Registry,
        routes: RouteStore,
        runs: RunStore,
        rollouts: RolloutStore,
        leftovers: Leftovers,
        clock: Clock,
        wish: Retention,
    ) -> None:
        self._attic = attic
        self._registry = registry
        self._routes = routes
        self._runs = runs
        self._rollouts = rollouts
        self._leftovers = leftovers
        self._clock = clock
        self._wish = wish

    def sweep(self) -> Sweep:
        done = Sweep()
        for _ in self.steps(done):
            pass
        if done.versions or done.attempts or done.blobs or done.restored or done.erased:
            log.info(
                "collected %d versions, %d attempts and %d blobs (%.1f MiB) into the trash, restored %d, freed %.1f MiB",
                *(len(done.versions), len(done.attempts), done.blobs, done.bytes / 2**20, done.restored, done.erased_bytes / 2**20),
            )
        return done

    def preview(self) -> Sweep:
        """What would go in the end if nothing else happened; changes nothing."""
        now, would = self._clock.now(), Sweep()
        known = self._read()
        going = {name: dict.fromkeys(numbers, now) for name, numbers in self._versions(known, now).items()}
        would.versions = [(name, number) for name, numbers in going.items() for number in numbers]
        gone = {name: {**known.collected.get(name, {}), **going.get(name, {})} for name in {*known.collected, *going}}
        after = _Known(known.versions, gone, known.active, known.reusable)
        attempts = self._attic.shelf("manifests")
        would.attempts = list(self._attempts(after, [AttemptFacts(one.name, one.written_at) for one in attempts], now))
        staying = {one.name for one in attempts} - set(would.attempts)
        blobs = {one.name: one for one in self._attic.shelf("blobs")}
        needed = self._files(after, self._attic.pins(), staying, now)
        ages = {name: one.written_at for name, one in blobs.items()}
        old = blobs_to_go(ages, needed, self._grace(known), now)
        would.blobs, would.bytes = len(old), sum(blobs[name].size for name in old)
        trash = [one for one in self._attic.trash() if now - one.at > self._grace(known)]
        would.erased, would.erased_bytes = len(trash), sum(one.size for one in trash)
        return would

    def steps(self, done: Sweep) -> Iterator[str]:
        """A sweep, step by step: between two of them anything may happen, the collector's death included."""
        now = self._clock.now()
        for name, numbers in self._versions(self._read(), now).items():
            done.versions += [(name, number) for number in numbers if self._registry.collect(name, number, now)]
            yield "versions marked"
        yield from self._manifests(now, done)
        yield from self._restore("manifests", done)
        yield from self._blobs(now, done)
        yield from self._restore("blobs", done)
        yield from self._empty(now, done)
        self._drop_pins(now)
        self._drop_live()
        done.rows += self._leftovers.forget(now - self._wish.runs, now - self._wish.answers)

    def _manifests(self, now: datetime, done: Sweep) -> Iterator[str]:
        found = {one.name: one for one in self._attic.shelf("manifests")}
        yield "manifests listed"
        facts = [AttemptFacts(one.name, one.written_at) for one in found.values()]
        for attempt in self._attempts(self._read(), facts, now):
            yield "going to move a manifest"
            if self._attic.discard("manifests", found[attempt], now):
                done.attempts.append(attempt)

    def _blobs(self, now: datetime, done: Sweep) -> Iterator[str]:
        found = {one.name: one for one in self._attic.shelf("blobs")}
        yield "blobs listed"
        needed = yield from self._needed(now)
        ages = {name: one.written_at for name, one in found.items()}
        for name in blobs_to_go(ages, needed, self._grace(self._read()), now):
            yield "going to move a blob"
            if self._attic.discard("blobs", found[name], now):
                done.blobs += 1
                done.bytes += found[name].size

    def _restore(self, shelf: Shelf, done: Sweep) -> Iterator[str]:
        """What is named by now comes back: of this sweep, and of those that died."""
        yield f"{shelf} moved"
        trash = [one for one in self._attic.trash() if one.shelf == shelf]
        if not trash:
            return
        kept = yield from self._still(shelf)
        for one in trash:
            if kept(one):
                yield "going to restore"
                self._attic.restore(one)
                done.restored += 1

    def _empty(self, now: datetime, done: Sweep) -> Iterator[str]:
        grace = self._grace(self._read())
        shelves: tuple[Shelf, ...] = ("manifests", "blobs")
        for shelf in shelves:
            old = [one for one in self._attic.trash() if one.shelf == shelf and now - one.at > grace]
            if not old:
                continue
            kept = yield from self._still(shelf)
            for one in old:
                if not kept(one):
                    yield "going to erase"
                    self._attic.erase(one)
                    done.erased += 1
                    done.erased_bytes += one.size

    def _still(self, shelf: Shelf) -> Generator[str, None, Callable[[Discarded], bool]]:
        """Reads the references of a shelf; returns what tells whether something in the trash is named."""
        now = self._clock.now()
        if shelf == "blobs":
            needed = yield from self._needed(now)
            return lambda one: one.name in needed
        known = self._read()
        yield "references read"
        needed, ended = self._stages(known), self._ended(known)
        return lambda one: not one.name.endswith(".part") and (one.name in needed or not ended(run_of(one.name)))

    def _needed(self, now: datetime) -> Generator[str, None, frozenset[str]]:
        """Every blob that something names, read in the order in which references are handed on."""
        pins = self._attic.pins()
        yield "pins read"
        attempts = {one.name for one in self._attic.shelf("manifests")}
        yield "manifests read"
        attempts |= {one.name for one in self._attic.trash() if one.shelf == "manifests"}
        attempts |= {one.name for one in self._attic.shelf("manifests")}  # what another collector restored meanwhile
        known = self._read()
        yield "rows read"
        return self._files(known, pins, attempts, now)

    def _drop_pins(self, now: datetime) -> None:
        known = self._read()
        ended, grace = self._ended(known), self._grace(known)
        for pin in self._attic.pins():
            if not pin_holds(pin.attempt, pin.written_at, ended, grace, now):
                self._attic.unpin(pin)

    def _drop_live(self) -> None:
        """Of a run that has ended no stage goes on from where another one was."""
        attempts, ended = self._attic.live(), self._ended(self._read())
        for attempt in attempts:
            if ended(run_of(attempt)):
                self._attic.drop_live(attempt)

    def _read(self) -> _Known:
        active = {one.id: one for one in self._runs.list(active=True, limit=_ALL)}
        return _Known(self._registry.everything(), self._registry.all_collected(), active, self._leftovers.reusable())

    def _versions(self, known: _Known, now: datetime) -> dict[str, tuple[int, ...]]:
        of: dict[str, list[Version]] = {}
        for one in known.kept():
            of.setdefault(one.recommender, []).append(one)
        closed = self._routes.closed()
        deleted = replace(self._wish, versions=0, served=timedelta(0))
        going = {}
        for name, versions in of.items():
            wish = deleted if name in closed else self._wish
            if versions_to_go([VersionFacts(one.number, one.created_at) for one in versions], wish, now):  # if nobody needed any
                going[name] = versions_to_go(self._facts(name, versions, known), wish, now)
        return going

    def _facts(self, name: str, versions: Sequence[Version], known: _Known) -> list[VersionFacts]:
        holders: dict[int, list[str]] = {}
        for alias, number in aliases(self._routes.get(name), self._routes.previous(name)).items():
            holders.setdefault(number, []).append(alias)
        for tag, number in self._registry.tags(name).items():
            holders.setdefault(number, []).append(f"tag {tag}")
        for rollout in self._rollouts.list(name, active=True, limit=_ALL):
            holders.setdefault(int(rollout.spec["version"]), []).append(f"rollout {rollout.id}")
        for run in known.active.values():
            if run.recommender == name and run.spec["serving"] is not None:
                holders.setdefault(run.spec["serving"], []).append(f"run {run.id}")
        left = self._routes.left(name)
        return [VersionFacts(one.number, one.created_at, tuple(holders.get(one.number, ())), left.get(one.number)) for one in versions]

    def _attempts(self, known: _Known, facts: Sequence[AttemptFacts], now: datetime) -> tuple[str, ...]:
        return attempts_to_go(facts, self._stages(known), self._ended(known), self._wish, now)

    def _stages(self, known: _Known) -> frozenset[str]:
        """Attempts that something names: those of a kept version's run (a warm start reads them) and of the last full run of its line
        (later full runs are compared with its model before the refit), of runs under way, reusable ones."""
        needed = set(known.reusable)
        records = list(known.active.values())
        for version in known.kept():
            *_, full = line_of(version, known.version)
            for run in {version.run, full.run}:
                with suppress(NotFound):
                    records.append(self._runs.get(run))
        for record in records:
            needed |= {done.attempt for done in record.status.stages}
        for record in known.active.values():
            needed |= {str(kept["attempt"]) for kept in record.spec.get("adopt", {}).values()}  # of the run that it retries
            if record.status.basis is not None and record.status.basis.attempt:
                needed.add(record.status.basis.attempt)
        return frozenset(needed)

    def _files(self, known: _Known, pins: Iterable[Pin], attempts: Iterable[str], now: datetime) -> frozenset[str]:
        ended, grace = self._ended(known), self._grace(known)
        needed = {file.sha256 for version in known.kept() for file in version.files.values()}
        for pin in pins:
            if pin_holds(pin.attempt, pin.written_at, ended, grace, now):
                needed |= pin.blobs
        for attempt in attempts:
            if not attempt.endswith(".part"):
                needed |= self._attic.named(attempt)
        return frozenset(needed)

    def _ended(self, known: _Known) -> Callable[[str], bool]:
        @cache
        def ended(run: str) -> bool:
            try:
                return run not in known.active and MACHINE.terminal(self._runs.get(run).status.state)
            except NotFound:
                return False

        return ended

    def _grace(self, known: _Known) -> timedelta:
        """Never shorter than a stage that is under way may take."""
        longest = self._wish.grace
        for one in known.active.values():
            with suppress(Invalid):  # such a run starts no stage
                document = read(RecommenderSpec, one.spec["document"], f"spec of {one.id}")
                longest = max(longest, *run_plan(document).timeouts.values())
        return longest
