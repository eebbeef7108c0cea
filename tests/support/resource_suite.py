"""Conformance suite of ResourceStore.

A test module provides the store and inherits:

    class TestSqlResources(ResourceStoreSuite):
        @pytest.fixture
        def store(self, ...) -> RolloutStore: ...
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.contracts.codec import decode, encode
from shared.contracts.records import RolloutSpec
from shared.domain.errors import Changed, Conflict, NotFound
from shared.domain.gate import Verdict
from shared.domain.machine import Request
from shared.domain.rollout import RolloutStatus, SetRoute
from shared.domain.route import Route
from shared.domain.sequential_test import Judgement, VariantSample
from shared.domain.step_analysis import StepReport
from shared.ports import Due, HistoryEntry, Record, RolloutRecord, RolloutStore
from shared.testing.threads import THREADS, at_once

NOW = datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ROUNDS = 15

Rows = RolloutStore


def rollout(id: str = "ro-1", recommender: str = "films", age: timedelta = SECOND) -> RolloutRecord:
    """Returns a row that was created and became due `age` before NOW."""
    return Record(id, recommender, RolloutSpec(3, {"name": "films"}), RolloutStatus(), NOW - age, NOW - age)


def full_status() -> RolloutStatus:
    """Returns a status with every kind of value that statuses have."""
    judged = Judgement(Verdict.INCONCLUSIVE, "über 5 % \u2192 später", 0.1 + 0.2, None, 1e-17)
    report = StepReport(0, 0.05, NOW - SECOND, VariantSample(3, 1.5, 1.25, 9, 4), VariantSample(), judged)
    return RolloutStatus("canary", "5% of the users", NOW, 1, NOW - timedelta(microseconds=1), None, None, (report, report))


def moved(store: Rows, record: RolloutRecord, status: RolloutStatus, **changes: Any) -> RolloutRecord:
    """Commits a status, by default with a history entry."""
    entry = HistoryEntry(NOW, record.status.state, status.state, status.reason, "eyas")
    values: dict[str, Any] = {"due_at": NOW, "entry": entry, "finished": False, "clear_request": False}
    return store.commit(record, status, **(values | changes))


class ResourceStoreSuite:
    def test_a_created_row_is_read_back_as_it_was(self, store: Rows) -> None:
        record = replace(rollout(), status=full_status())
        assert store.create(record, "ada") == record
        assert store.get("ro-1") == record

    def test_times_come_back_aware_and_to_the_microsecond(self, store: Rows) -> None:
        store.create(rollout(), "ada")
        record = store.get("ro-1")
        assert record.created_at.utcoffset() == timedelta(0)
        assert record.created_at == NOW - SECOND

    def test_an_unknown_row_is_not_found(self, store: Rows) -> None:
        for look in (store.get, store.history, lambda id: store.list(before=id)):
            with pytest.raises(NotFound, match="ro-9"):
                look("ro-9")
        with pytest.raises(NotFound, match="ro-9"):
            store.ask("ro-9", Request("pause", "ada"), NOW)

    def test_creating_a_row_again_adopts_what_is_there(self, store: Rows) -> None:
        first = moved(store, store.create(rollout(), "ada"), full_status())
        assert store.create(rollout(), "bob") == first
        assert [entry.actor for entry in store.history("ro-1")] == ["ada", "eyas"]

    def test_the_oldest_active_row_is_the_first_made_that_is_not_finished(self, store: Rows) -> None:
        assert store.oldest_active("films") is None
        for age, id in enumerate(("ro-3", "ro-2", "ro-1")):
            store.create(replace(rollout(id), created_at=NOW + age * SECOND), "ada")
        assert store.oldest_active("films") == "ro-3"
        entry = HistoryEntry(NOW, "canary", "promoted", "", "eyas")
        store.commit(store.get("ro-3"), full_status(), due_at=NOW, entry=entry, finished=True, clear_request=False)
        assert store.oldest_active("films") == "ro-2"
        assert store.oldest_active("books") is None

    def test_the_queue_is_every_unfinished_row_and_says_which_have_begun(self, store: Rows) -> None:
        for id in ("ro-1", "ro-2", "ro-3", "ro-4"):
            store.create(replace(rollout(id), priority=int(id[-1])), "ada")
        store.write_intent(store.get("ro-2"), {"next": {}, "effects": []})
        moved(store, store.get("ro-3"), full_status())
        store.commit(store.get("ro-4"), full_status(), due_at=NOW, entry=None, finished=True, clear_request=False)
        rows = sorted(store.queued(), key=lambda row: row.id)
        assert [(row.id, row.recommender, row.priority, row.created_at, row.active) for row in rows] == [
            ("ro-1", "films", 1, NOW - SECOND, False),
            ("ro-2", "films", 2, NOW - SECOND, True),
            ("ro-3", "films", 3, NOW - SECOND, True),
        ]

    def test_many_who_create_one_row_make_one(self, store: Rows) -> None:
        made = at_once(THREADS, lambda n: store.create(replace(rollout(), spec=RolloutSpec(n, {})), f"thread {n}"))
        assert {record.spec.version for record in made} == {store.get("ro-1").spec.version}
        assert len(store.history("ro-1")) == 1

    def test_a_commit_writes_the_status_and_raises_the_revision(self, store: Rows) -> None:
        before = store.create(rollout(), "ada")
        after = moved(store, before, full_status(), due_at=NOW + SECOND)
        assert after == store.get("ro-1")
        assert (after.status, after.due_at, after.revision) == (full_status(), NOW + SECOND, before.revision + 1)

    def test_a_commit_from_a_stale_row_is_a_conflict_and_changes_nothing(self, store: Rows) -> None:
        stale = store.create(rollout(), "ada")
        fresh = moved(store, stale, full_status())
        with pytest.raises(Conflict, match="ro-1"):
            moved(store, stale, RolloutStatus("aborted"), finished=True)
        with pytest.raises(Conflict, match="ro-1"):
            store.write_intent(stale, {"next": {}, "effects": []})
        assert store.get("ro-1") == fresh
        assert len(store.history("ro-1")) == 2

    def test_racing_commits_lose_no_update(self, store: Rows) -> None:
        store.create(rollout(), "ada")

        def climb(_: int) -> None:
            done = 0
            while done < ROUNDS:
                record = store.get("ro-1")
                try:
                    moved(store, record, replace(record.status, step=record.status.step + 1))
                    done += 1
                except Conflict:
                    continue

        at_once(THREADS, climb)
        end = store.get("ro-1")
        assert end.status.step == THREADS * ROUNDS - 1  # from -1
        assert end.revision == THREADS * ROUNDS
        assert len(store.history("ro-1")) == THREADS * ROUNDS + 1

    def test_an_intent_survives_until_the_commit_that_ends_it(self, store: Rows) -> None:
        effect = SetRoute(Route(1, 2, 0.05, "ro-1", 0, since=NOW), "eyas", "a step")
        intent = {"next": encode(RolloutStatus, full_status()), "effects": [encode(SetRoute, effect)], "consumes_request": False}
        written = store.write_intent(store.create(rollout(), "ada"), intent)
        record = store.get("ro-1")
        assert written == record
        assert record.intent is not None
        assert decode(RolloutStatus, record.intent["next"]) == full_status()
        assert [decode(SetRoute, encoded) for encoded in record.intent["effects"]] == [effect]
        assert moved(store, record, full_status()).intent is None
        assert store.get("ro-1").intent is None

    def test_a_request_makes_the_row_due_and_waits_for_its_commit(self, store: Rows) -> None:
        later = moved(store, store.create(rollout(), "ada"), full_status(), due_at=NOW + timedelta(hours=1))
        request = Request("pause", "bob", "looks odd")
        record = store.ask("ro-1", request, NOW)
        assert record == store.get("ro-1")
        assert store.due(NOW, 10) == [Due("ro-1", record.revision)]
        assert (record.request, record.due_at) == (request, NOW)
        with pytest.raises(Conflict):
            moved(store, later, full_status())
        next_record = moved(store, record, full_status())
        assert next_record.request == store.get("ro-1").request == request
        assert moved(store, next_record, full_status(), clear_request=True).request is None
        assert store.get("ro-1").request is None

    def test_a_second_request_before_the_first_is_done_is_a_conflict(self, store: Rows) -> None:
        store.create(rollout(), "ada")
        first = store.ask("ro-1", Request("pause", "ada"), NOW)
        with pytest.raises(Conflict, match="pause"):
            store.ask("ro-1", Request("abort", "bob"), NOW)
        assert store.get("ro-1") == first

    def test_a_request_for_a_revision_that_is_gone_is_refused(self, store: Rows) -> None:
        first = moved(store, store.create(rollout(), "ada"), full_status())
        with pytest.raises(Changed, match=f"revision {first.revision}"):
            store.ask("ro-1", Request("pause", "ada"), NOW, {first.revision - 1})
        assert store.get("ro-1") == first
        assert store.ask("ro-1", Request("pause", "ada"), NOW, {first.revision}).request == Request("pause", "ada")

    def test_of_many_who_ask_at_once_one_is_heard(self, store: Rows) -> None:
        store.create(rollout(), "ada")

        def ask(n: int) -> bool:
            try:
                store.ask("ro-1", Request("pause", f"thread {n}"), NOW)
            except Conflict:
                return False
            return True

        heard = at_once(THREADS, ask)
        assert heard.count(True) == 1
        request = store.get("ro-1").request
        assert request is not None
        assert request.actor == f"thread {heard.index(True)}"

    def test_what_has_ended_takes_no_request_and_is_never_due(self, store: Rows) -> None:
        moved(store, store.create(rollout(), "ada"), RolloutStatus("aborted", "by ada"), finished=True, due_at=NOW - SECOND)
        assert store.due(NOW + timedelta(days=999), 10) == []
        with pytest.raises(Conflict, match="ended"):
            store.ask("ro-1", Request("resume", "bob"), NOW)

    def test_a_row_that_a_clock_far_ahead_has_put_off_is_due(self, store: Rows) -> None:
        for id, rest in (("ro-1", timedelta(days=100)), ("ro-2", timedelta(hours=1)), ("ro-3", timedelta(0))):
            moved(store, store.create(rollout(id), "ada"), full_status(), due_at=NOW + rest)
        assert [row.id for row in store.due(NOW, 10)] == ["ro-3", "ro-1"]

    def test_the_longest_waiting_row_is_due_first(self, store: Rows) -> None:
        for id, age in (("ro-b", 5), ("ro-a", 9), ("ro-d", 0), ("ro-c", 7), ("ro-e", -1)):
            store.create(rollout(id, age=age * SECOND), "ada")
        assert [record.id for record in store.due(NOW, 10)] == ["ro-a", "ro-c", "ro-b", "ro-d"]
        assert [record.id for record in store.due(NOW, 2)] == ["ro-a", "ro-c"]

    def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repeat(self, store: Rows) -> None:
        for n in range(7):
            store.create(rollout(f"ro-{n}", "films" if n % 2 else "books", age=(n // 2) * SECOND), "ada")
        newest = ["ro-1", "ro-0", "ro-3", "ro-2", "ro-5", "ro-4", "ro-6"]
        assert [record.id for record in store.list()] == newest
        ids: list[str] = []
        while page := store.list(limit=3, before=ids[-1] if ids else None):
            ids += [record.id for record in page]
        assert ids == newest
        assert [record.id for record in store.list("films", limit=2)] == ["ro-1", "ro-3"]
        assert [record.id for record in store.list("films", before="ro-3")] == ["ro-5"]

    def test_lists_tell_active_rows_from_those_that_ended(self, store: Rows) -> None:
        moved(store, store.create(rollout("ro-1"), "ada"), RolloutStatus("aborted"), finished=True)
        store.create(rollout("ro-2"), "ada")
        assert [record.id for record in store.list("films", active=True)] == ["ro-2"]
        assert [record.id for record in store.list("films", active=False)] == ["ro-1"]
        assert store.list("books") == []

    def test_lists_are_narrowed_to_states(self, store: Rows) -> None:
        for n, state in enumerate(("pending", "canary", "paused", "canary", "pending")):
            record = store.create(rollout(f"ro-{n}", "films" if n else "books", age=-n * SECOND), "ada")
            if state != "pending":
                moved(store, record, RolloutStatus(state))
        assert [record.id for record in store.list(states=["canary"])] == ["ro-3", "ro-1"]
        assert [record.id for record in store.list(states=["pending", "paused", "pending", "unknown"])] == ["ro-4", "ro-2", "ro-0"]
        assert [record.id for record in store.list("films", states={"pending", "canary"}, limit=2)] == ["ro-4", "ro-3"]
        assert [record.id for record in store.list("films", states={"pending", "canary"}, before="ro-3")] == ["ro-1"]
        assert [record.id for record in store.list("films", active=True, states={"paused"})] == ["ro-2"]
        assert store.list(active=False, states={"paused"}) == []
        assert store.list(states=()) == []

    def test_lists_are_narrowed_to_recommenders_and_to_a_time(self, store: Rows) -> None:
        for n, name in enumerate(("films", "books", "music", "books")):
            store.create(rollout(f"ro-{n}", name, age=-n * SECOND), "ada")
        assert [record.id for record in store.list(among={"books", "films"})] == ["ro-3", "ro-1", "ro-0"]
        assert [record.id for record in store.list(among={"books"}, states={"pending"}, limit=1, before="ro-3")] == ["ro-1"]
        assert store.list(among=()) == []
        assert [record.id for record in store.list(since=NOW + SECOND, until=NOW + 3 * SECOND)] == ["ro-2", "ro-1"]

    @pytest.mark.requirement("C-01")
    def test_the_history_says_who_did_what_in_order(self, store: Rows) -> None:
        record = store.create(rollout(), "ada")
        entries = [HistoryEntry(NOW - n * SECOND, "canary", "paused", f"reason {n}", f"actor {n}") for n in range(3)]
        for entry in entries:
            record = moved(store, record, full_status(), entry=entry)
        moved(store, record, full_status(), entry=None)
        first, *rest = store.history("ro-1")
        assert (first.at, first.source, first.target, first.actor) == (NOW - SECOND, "", "pending", "ada")
        assert rest == entries

    def test_a_history_comes_in_pages_from_either_end(self, store: Rows) -> None:
        for id in ("ro-1", "ro-2"):
            store.create(rollout(id), "ada")
        for n in range(5):
            for id in ("ro-1", "ro-2"):
                moved(store, store.get(id), full_status(), entry=HistoryEntry(NOW, "", "", f"{id} {n}", "eyas"))
        history = store.history("ro-1")
        paged: list[HistoryEntry] = []
        while page := store.history("ro-1", 4, paged[-1].seq if paged else None):
            paged += page
        assert paged == history
        assert [entry.reason for entry in history[1:]] == [f"ro-1 {n}" for n in range(5)]
        back: list[HistoryEntry] = []
        while page := store.latest("ro-1", 4, back[-1].seq if back else None):
            back += page
        assert back == history[::-1]
        assert store.history("ro-1", after=history[-1].seq) == store.latest("ro-1", 9, history[0].seq) == []
        with pytest.raises(NotFound, match="ro-9"):
            store.history("ro-9", 3, 1)
        with pytest.raises(NotFound, match="ro-9"):
            store.latest("ro-9", 3)
