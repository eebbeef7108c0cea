"""Reconciler: the loop behind all long-lived rows.

Due rows come as id and revision; a resting row isn't even read. A pass over a row: load it -> observe (read-only) -> decide (pure) -> write
the intent -> act -> commit by compare-and-swap -> metrics. A crash leaves a row that says what was in progress; effects are idempotent, so
the next pass repeats them and commits once. A commit of unknown outcome, because the database failed, counts as a crash. A pass without
changes writes nothing.

A control plane that stalls in a pass may be overtaken: another one does the same step, and more. The commit is then Stale, and the kind
undoes what its late effects started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from services.control.replica import Replica
from shared.contracts.codec import decode, encode
from shared.domain.errors import Damaged, EyasError, Stale, Unavailable, Unreadable, is_explained
from shared.domain.machine import Decision, HasState, Machine, Request
from shared.ports import Clock, Due, HistoryEntry, Record, ResourceStore
from shared.telemetry import logs, metrics

log = logging.getLogger(__name__)

S = TypeVar("S", bound=HasState)
O = TypeVar("O")  # noqa: E741 - an observation
E = TypeVar("E")

_IDLE = timedelta(seconds=1)
_BACKOFF_LIMIT = 30.0
_HOPELESS = 8
"""Consecutive faults, over a minute, of a kind that time doesn't fix."""
_ALL = 1_000_000
_NEVER = datetime.max.replace(tzinfo=UTC)


class Kind(Protocol[S, O, E]):
    """Adapter between the loop and one kind of row."""

    @property
    def machine(self) -> Machine: ...

    @property
    def store(self) -> ResourceStore[S, Any]: ...

    @property
    def status_type(self) -> Any: ...

    @property
    def effect_type(self) -> Any: ...

    def observe(self, record: Record[S, Any]) -> O: ...

    def decide(self, record: Record[S, Any], observation: O, now: datetime) -> Decision[S, E]: ...

    def act(self, record: Record[S, Any], following: S, effect: E) -> None:
        """Performs an effect; idempotent, because a crash repeats it."""

    def committed(self, record: Record[S, Any], following: S) -> None:
        """Updates metrics after the commit."""

    def awake(self) -> Collection[str]:
        """Returns the ids of resting rows to check now."""

    def overtaken(self, record: Record[S, Any], effect: E) -> None:
        """Ends what the effect started too late: another control plane had moved the row on."""

    def give_up(self, record: Record[S, Any], following: S | None, why: str) -> Decision[S, E] | None:
        """Decides how a row ends that can't continue; `following` is the status it was to reach. None: the loop retries forever."""


class Simple(Generic[S, E]):
    """Defaults of the rare cases."""

    def awake(self) -> Collection[str]:
        return ()

    def overtaken(self, record: Record[S, Any], effect: E) -> None:
        pass

    def give_up(self, record: Record[S, Any], following: S | None, why: str) -> Decision[S, E] | None:
        return None


@dataclass(frozen=True)
class _LastPass:
    revision: int
    again: datetime
    faults: int = 0


class Reconciler(Generic[S, O, E]):
    """Passes over the due rows of one kind."""

    def __init__(self, kind: Kind[S, O, E], clock: Clock, replica: Replica | None = None) -> None:
        """With a replica, covers the rows that it has claimed; without, all rows."""
        self._kind = kind
        self._clock = clock
        self._replica = replica
        self._looks: dict[str, _LastPass] = {}
        self._unfinished: frozenset[str] = frozenset()

    def tick(self) -> int:
        """Passes once over every due row; returns how many rows were written. There is no limit: resting rows stay due, so rows beyond a
        limit would never be reached."""
        now = self._clock.now()
        holder = None
        if self._replica is not None:
            if not self._replica.alive:
                return 0
            holder = self._replica.holder
            self._kind.store.claim(holder, self._replica.count())
        rows = self._kind.store.due(now, _ALL, holder)
        self._unfinished = frozenset(row.id for row in rows)
        self._looks = {row.id: self._looks[row.id] for row in rows if row.id in self._looks}
        self._wake()
        return sum(self._guarded(row, now) for row in rows if self._is_due(row, now))

    def due(self) -> float | None:
        """Returns the seconds until a row of the last pass needs a check without any change; None if never."""
        if self._unfinished - self._looks.keys():
            return 0.0
        again = min((look.again for look in self._looks.values()), default=_NEVER)
        return None if again == _NEVER else max(0.0, (again - self._clock.now()).total_seconds())

    def _wake(self) -> None:
        for id in self._kind.awake():
            look = self._looks.get(id)
            if look is not None and not look.faults and look.again != _NEVER:
                del self._looks[id]

    def _is_due(self, row: Due, now: datetime) -> bool:
        """Returns False while a row rests: its last pass found nothing and nobody has written it since. Rest is kept in memory only."""
        look = self._looks.get(row.id)
        return look is None or look.revision != row.revision or look.again <= now

    def _guarded(self, row: Due, now: datetime) -> bool:
        began = time.monotonic()
        name = self._kind.machine.name
        with logs.context(**{name: row.id}):
            try:
                record = self._kind.store.get(row.id)
                with logs.context(recommender=record.recommender):
                    return self.reconcile(record, now)
            except Stale:
                log.debug("%s: changed by another writer, it is read again", name)
            except Unreadable as error:
                self._leave(row, error)
            except Exception as error:
                self._fault(row, now, error)
            finally:
                metrics.RECONCILE_SECONDS.labels(name).observe(time.monotonic() - began)
        return False

    def _leave(self, row: Due, error: Unreadable) -> None:
        """Leaves the row until somebody writes it; logs this once."""
        self._looks[row.id] = _LastPass(row.revision, _NEVER)
        metrics.RECONCILE_FAULTS.labels(self._kind.machine.name).inc()
        log.error("%s: unreadable, it stays unchanged error=%s", self._kind.machine.name, error)

    def _fault(self, row: Due, now: datetime, error: Exception) -> None:
        """Counts faults of an unchanged row. A row that was written since its last fault starts at one: the cause may be gone."""
        look = self._looks.get(row.id)
        name = self._kind.machine.name
        current = self._kind.store.get(row.id)
        faults = look.faults + 1 if look and look.revision == current.revision else 1
        rest = min(0.25 * 2**faults, _BACKOFF_LIMIT)
        self._looks[row.id] = _LastPass(current.revision, now + timedelta(seconds=rest), faults)
        metrics.RECONCILE_FAULTS.labels(name).inc()
        if faults >= _HOPELESS and _lasts(error) and self._give_up(current, now, str(error)):
            return
        if is_explained(error):
            log.warning("%s: pass failed retry_seconds=%.1f error=%s", name, rest, error)
        else:
            log.exception("%s: unexpected error retry_seconds=%.1f", name, rest)

    def reconcile(self, record: Record[S, Any], now: datetime) -> bool:
        """Passes over one row; returns True if it was written."""
        if record.intent is not None:
            log.info("%s: interrupted step is finished", self._kind.machine.name)
            return self._carry_out(record, self._restore(record.intent), now)
        decision = self._kind.decide(record, self._kind.observe(record), now)
        if decision.next == record.status and not decision.effects and not decision.consumes_request:
            self._looks[record.id] = _LastPass(record.revision, now + (decision.requeue_after or _IDLE))
            return False
        self._begin(record, decision, now)
        return True

    def _begin(self, record: Record[S, Any], decision: Decision[S, E], now: datetime) -> None:
        self._kind.machine.check(record.status.state, decision.next.state)
        if decision.effects:
            record = self._kind.store.write_intent(record, self._intent(decision))
        self._carry_out(record, decision, now)

    def _carry_out(self, record: Record[S, Any], decision: Decision[S, E], now: datetime) -> bool:
        for effect in decision.effects:
            self._kind.act(record, decision.next, effect)
        try:
            self._commit(record, decision, now)
        except Stale:
            for effect in decision.effects:
                self._kind.overtaken(record, effect)
            raise
        return True

    def _give_up(self, record: Record[S, Any], now: datetime, why: str) -> bool:
        following = None if record.intent is None else self._restore(record.intent).next
        decision = self._kind.give_up(record, following, why)
        if decision is None:
            return False
        try:
            self._begin(record, decision, now)
        except EyasError as error:
            log.warning("%s: cannot continue, ending it failed error=%s", self._kind.machine.name, error)
        return True

    def _commit(self, record: Record[S, Any], decision: Decision[S, E], now: datetime) -> None:
        before, after = record.status, decision.next
        finished = self._kind.machine.terminal(after.state)
        moved = before.state != after.state or bool(decision.effects)
        entry = None
        if moved or decision.consumes_request or decision.note:
            entry = HistoryEntry(now, before.state, after.state, *_reason_and_actor(record.request, decision, moved, finished))
        clear = decision.consumes_request or finished
        self._kind.store.commit(record, after, due_at=now, entry=entry, finished=finished, clear_request=clear)
        self._looks.pop(record.id, None)
        if before.state != after.state:
            log.info("%s: state changed from=%s to=%s reason=%s", self._kind.machine.name, before.state, after.state, after.reason)
        self._kind.committed(record, after)

    def _intent(self, decision: Decision[S, E]) -> Mapping[str, Any]:
        return {
            "next": encode(self._kind.status_type, decision.next),
            "effects": [encode(self._kind.effect_type, effect) for effect in decision.effects],
            "consumes_request": decision.consumes_request,
        }

    def _restore(self, intent: Mapping[str, Any]) -> Decision[S, E]:
        return Decision(
            next=decode(self._kind.status_type, intent["next"]),
            effects=tuple(decode(self._kind.effect_type, effect) for effect in intent["effects"]),
            consumes_request=bool(intent["consumes_request"]),
        )


def _lasts(error: Exception) -> bool:
    """Returns whether waiting can't fix the error: the component was available and refused."""
    return isinstance(error, EyasError) and (isinstance(error, Damaged) or not isinstance(error, Unavailable))


def _reason_and_actor(request: Request | None, decision: Decision[Any, Any], moved: bool, finished: bool) -> tuple[str, str]:
    """Returns reason and actor of a history entry; the entry also names a request without effect."""
    reason = decision.next.reason if moved else decision.note or decision.next.reason
    if request is None or not (decision.consumes_request or finished):
        return reason, "eyas"
    if decision.consumes_request:
        names_request = moved or request.verb in reason
        return (reason if names_request else f"{request.summary()}: refused in the state {decision.next.state}"), request.actor
    return f"{reason} ({request.summary()} came too late)".lstrip(), "eyas"
