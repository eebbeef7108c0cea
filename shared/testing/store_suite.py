"""What every store of state must do, said once: run against each adapter, and against each fake.

A test module makes the store and inherits:

    class TestSqlResources(ResourceStoreSuite):
        @pytest.fixture
        def store(self, ...) -> ResourceStore[RolloutStatus]: ...
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.contracts.codec import decode, encode
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.contracts.stage import File, digest_of
from shared.domain.analysis import StepReport
from shared.domain.errors import Changed, Conflict, Invalid, NotFound
from shared.domain.gate import Verdict
from shared.domain.machine import Request
from shared.domain.reuse import StageOutput
from shared.domain.rollout import RolloutStatus, SetRoute
from shared.domain.route import Route
from shared.domain.verdict import Judgement, Sample
from shared.ports import (
    Due,
    HistoryEntry,
    Leases,
    RecommenderStore,
    Record,
    Registry,
    ResourceStore,
    RouteStore,
    StageOutputs,
    Version,
    replica_lease,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 123457, tzinfo=UTC)
SECOND = timedelta(seconds=1)
THREADS = 8
ROUNDS = 15

Rows = ResourceStore[RolloutStatus]


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Calls `act` with 0 to count - 1, each from a thread of its own."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(act, range(count)))


def rollout(id: str = "ro-1", recommender: str = "films", age: timedelta = SECOND) -> Record[RolloutStatus]:
    """A row that was created, and became due, so long before NOW."""
    return Record(id, recommender, {"version": 3, "document": {"name": "films"}}, RolloutStatus(), NOW - age, NOW - age)


def full_status() -> RolloutStatus:
    """Uses every kind of value that statuses have."""
    judged = Judgement(Verdict.INCONCLUSIVE, "über 5 % \u2192 später", 0.1 + 0.2, None, 1e-17)
    report = StepReport(0, 0.05, NOW - SECOND, Sample(3, 1.5, 1.25, 9, 4), Sample(), judged)
    return RolloutStatus("canary", "5% of the users", NOW, 1, NOW - timedelta(microseconds=1), None, None, (report, report))


def moved(store: Rows, record: Record[RolloutStatus], status: RolloutStatus, **changes: Any) -> Record[RolloutStatus]:
    """Commits with an entry in the history, unless told otherwise."""
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
        found = store.get("ro-1")
        assert found.created_at.utcoffset() == timedelta(0)
        assert found.created_at == NOW - SECOND

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
        found = sorted(store.queued(), key=lambda row: row.id)
        assert [(row.id, row.recommender, row.priority, row.created_at, row.active) for row in found] == [
            ("ro-1", "films", 1, NOW - SECOND, False),
            ("ro-2", "films", 2, NOW - SECOND, True),
            ("ro-3", "films", 3, NOW - SECOND, True),
        ]

    def test_many_who_create_one_row_make_one(self, store: Rows) -> None:
        made = at_once(THREADS, lambda n: store.create(replace(rollout(), spec={"version": n}), f"thread {n}"))
        assert {record.spec["version"] for record in made} == {store.get("ro-1").spec["version"]}
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
        found = store.get("ro-1")
        assert written == found
        assert found.intent is not None
        assert decode(RolloutStatus, found.intent["next"]) == full_status()
        assert [decode(SetRoute, one) for one in found.intent["effects"]] == [effect]
        assert moved(store, found, full_status()).intent is None
        assert store.get("ro-1").intent is None

    def test_a_request_makes_the_row_due_and_waits_for_its_commit(self, store: Rows) -> None:
        later = moved(store, store.create(rollout(), "ada"), full_status(), due_at=NOW + timedelta(hours=1))
        request = Request("pause", "bob", "looks odd")
        asked = store.ask("ro-1", request, NOW)
        assert asked == store.get("ro-1")
        assert store.due(NOW, 10) == [Due("ro-1", asked.revision)]
        assert (asked.asked, asked.due_at) == (request, NOW)
        with pytest.raises(Conflict):
            moved(store, later, full_status())
        kept = moved(store, asked, full_status())
        assert kept.asked == store.get("ro-1").asked == request
        assert moved(store, kept, full_status(), clear_request=True).asked is None
        assert store.get("ro-1").asked is None

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
        assert store.ask("ro-1", Request("pause", "ada"), NOW, {first.revision}).asked == Request("pause", "ada")

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
        asked = store.get("ro-1").asked
        assert asked is not None
        assert asked.actor == f"thread {heard.index(True)}"

    def test_what_has_ended_takes_no_request_and_is_never_due(self, store: Rows) -> None:
        moved(store, store.create(rollout(), "ada"), RolloutStatus("aborted", "by ada"), finished=True, due_at=NOW - SECOND)
        assert store.due(NOW + timedelta(days=999), 10) == []
        with pytest.raises(Conflict, match="ended"):
            store.ask("ro-1", Request("resume", "bob"), NOW)

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
        seen: list[str] = []
        while page := store.list(limit=3, before=seen[-1] if seen else None):
            seen += [record.id for record in page]
        assert seen == newest
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
        whole = store.history("ro-1")
        seen: list[HistoryEntry] = []
        while page := store.history("ro-1", 4, seen[-1].seq if seen else None):
            seen += page
        assert seen == whole
        assert [one.reason for one in whole[1:]] == [f"ro-1 {n}" for n in range(5)]
        back: list[HistoryEntry] = []
        while page := store.latest("ro-1", 4, back[-1].seq if back else None):
            back += page
        assert back == whole[::-1]
        assert store.history("ro-1", after=whole[-1].seq) == store.latest("ro-1", 9, whole[0].seq) == []
        with pytest.raises(NotFound, match="ro-9"):
            store.history("ro-9", 3, 1)
        with pytest.raises(NotFound, match="ro-9"):
            store.latest("ro-9", 3)


TERM = timedelta(seconds=30)


class ClaimSuite:
    """Several control planes on one set of rows; a test module provides `store` and `leases` on one database."""

    def live(self, leases: Leases, *holders: str) -> None:
        for holder in holders:
            assert leases.hold(replica_lease(holder), holder, NOW, TERM)

    def fill(self, store: Rows, count: int) -> None:
        for n in range(count):
            store.create(rollout(f"ro-{n:02}", age=(count - n) * SECOND), "ada")

    def held(self, store: Rows, holder: str, now: datetime = NOW) -> list[str]:
        return [row.id for row in store.due(now, 1000, holder)]

    def test_one_replica_claims_every_row_and_then_rests(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a")
        self.fill(store, 3)
        before = [store.get(f"ro-{n:02}") for n in range(3)]
        assert self.held(store, "a") == []
        assert (store.claim("a", NOW, 1), store.claim("a", NOW, 1)) == (3, 0)
        assert self.held(store, "a") == ["ro-00", "ro-01", "ro-02"]
        assert [store.get(f"ro-{n:02}") for n in range(3)] == before, "a claim changes nothing that is reconciled"
        assert len(store.due(NOW, 10)) == 3

    def test_what_a_claim_moves_does_not_disturb_who_has_read_the_row(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a")
        record = store.create(rollout(), "ada")
        store.claim("a", NOW, 1)
        assert moved(store, record, full_status()).revision == record.revision + 1

    def test_two_replicas_share_the_rows(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 7)
        assert [store.claim(holder, NOW, 2) for holder in "abab"] == [4, 3, 0, 0]
        assert sorted(self.held(store, "a") + self.held(store, "b")) == [f"ro-{n:02}" for n in range(7)]

    def test_a_replica_that_comes_gets_its_share_of_what_others_let_go(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 7)
        assert store.claim("a", NOW, 1) == 7
        assert store.claim("b", NOW, 2) == 0, "nothing is free"
        assert store.claim("a", NOW, 2) == 3, "the surplus"
        assert store.claim("b", NOW, 2) == 3
        assert (len(self.held(store, "a")), len(self.held(store, "b"))) == (4, 3)

    def test_the_rows_of_a_replica_that_died_are_claimed_when_its_lease_is_over(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 4)
        assert (store.claim("a", NOW, 2), store.claim("b", NOW, 2)) == (2, 2)
        later = NOW + TERM
        leases.hold(replica_lease("b"), "b", later, TERM)
        assert store.claim("b", later - SECOND, 1) == 0
        assert store.claim("b", later, 1) == 2
        assert (len(self.held(store, "a")), len(self.held(store, "b"))) == (0, 4)

    def test_the_rows_of_a_replica_that_shut_down_are_free_at_once(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 4)
        assert (store.claim("a", NOW, 2), store.claim("b", NOW, 2)) == (2, 2)
        leases.release(replica_lease("a"), "a")
        assert store.claim("b", NOW, 1) == 2

    def test_what_has_ended_belongs_to_nobodys_share(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 4)
        for n in range(2):
            moved(store, store.get(f"ro-{n:02}"), RolloutStatus("aborted"), finished=True)
        assert (store.claim("a", NOW, 2), store.claim("b", NOW, 2)) == (1, 1)

    def test_replicas_that_claim_at_once_hold_each_row_once(self, store: Rows, leases: Leases) -> None:
        holders = [f"r{n}" for n in range(THREADS)]
        self.live(leases, *holders)
        self.fill(store, 5 * THREADS)
        for _ in range(THREADS):  # rows that another one was just writing are left for the next time
            at_once(THREADS, lambda n: store.claim(holders[n], NOW, THREADS))
        shares = [self.held(store, holder) for holder in holders]
        assert [len(share) for share in shares] == [5] * THREADS
        assert sorted(id for share in shares for id in share) == [f"ro-{n:02}" for n in range(5 * THREADS)]


class LeasesSuite:
    def test_a_lease_is_held_by_one(self, leases: Leases) -> None:
        assert leases.hold("x", "a", NOW, TERM)
        assert not leases.hold("x", "b", NOW, TERM)
        assert leases.hold("y", "b", NOW, TERM)

    def test_a_lease_that_is_over_is_free(self, leases: Leases) -> None:
        assert leases.hold("x", "a", NOW, TERM)
        assert not leases.hold("x", "b", NOW + TERM - SECOND, TERM)
        assert leases.hold("x", "b", NOW + TERM, TERM)
        assert not leases.hold("x", "a", NOW + TERM, TERM)

    def test_a_holder_renews_its_own(self, leases: Leases) -> None:
        assert leases.hold("x", "a", NOW, TERM)
        assert leases.hold("x", "a", NOW + TERM - SECOND, TERM)
        assert not leases.hold("x", "b", NOW + TERM, TERM)

    def test_letting_go_frees_at_once_and_only_ones_own(self, leases: Leases) -> None:
        leases.hold("x", "a", NOW, TERM)
        leases.release("x", "b")
        assert not leases.hold("x", "b", NOW, TERM)
        leases.release("x", "a")
        leases.release("x", "a")
        assert leases.hold("x", "b", NOW, TERM)

    def test_the_living_are_those_that_are_held_now(self, leases: Leases) -> None:
        for name in ("replica/b", "replica/a", "replicas", "step/x", "replica_c"):
            leases.hold(name, "a", NOW, TERM)
        leases.hold("replica/old", "old", NOW - TERM, TERM)
        assert leases.live("replica/", NOW) == ["replica/a", "replica/b"]
        assert leases.live("replica_", NOW) == ["replica_c"]
        assert leases.live("", NOW + TERM) == []

    def test_a_lease_that_was_left_long_ago_is_forgotten_and_harms_nobody(self, leases: Leases) -> None:
        leases.hold("replica/old", "old", NOW - timedelta(days=3), TERM)
        assert leases.hold("x", "a", NOW, TERM)
        assert leases.hold("replica/old", "old", NOW, TERM)

    def test_of_many_who_take_at_once_one_holds(self, leases: Leases) -> None:
        def take(n: int) -> bool:
            return leases.hold("x", f"holder {n}", now, TERM)

        for round in range(ROUNDS):
            now = NOW + round * TERM
            assert at_once(THREADS, take).count(True) == 1


def spec(name: str = "films", epochs: int = 5) -> RecommenderSpec:
    return parse_spec(
        f"""
        name: {name}
        data: {{interactions: {{uri: ratings.csv, since: 30d}}, items: {{uri: films.csv, key: film}}}}
        schema: {{user: person, item: film, time: at, label: {{column: stars, positive: ">= 4"}}}}
        model: {{train: {{epochs: {epochs}}}}}
        gates: [{{metric: hr@10, not_worse_than: serving, by: 1%}}, {{latency_p99: 20ms}}]
        retrain: {{on: [{{kpi: {{hit_rate: -10%}}}}, {{drift: {{psi: 0.3}}}}]}}
        """
    )


class RecommenderStoreSuite:
    def test_a_spec_is_read_back_as_it_was(self, store: RecommenderStore) -> None:
        made = store.put(spec(), NOW, "ada")
        assert (made.name, made.generation, made.spec, made.created_at, made.updated_at) == ("films", 1, spec(), NOW, NOW)
        assert store.get("films") == made

    def test_an_equal_spec_changes_nothing(self, store: RecommenderStore) -> None:
        made = store.put(spec(), NOW, "ada")
        assert store.put(spec(), NOW + SECOND, "bob") == made == store.get("films")

    def test_each_change_raises_the_generation(self, store: RecommenderStore) -> None:
        store.put(spec(), NOW, "ada")
        changed = store.put(spec(epochs=6), NOW + SECOND, "bob")
        assert (changed.generation, changed.spec, changed.created_at, changed.updated_at) == (2, spec(epochs=6), NOW, NOW + SECOND)
        assert store.put(spec(), NOW + 2 * SECOND, "bob").generation == 3

    def test_a_generation_that_is_not_the_expected_one_changes_nothing(self, store: RecommenderStore) -> None:
        with pytest.raises(Changed, match="isn't there"):
            store.put(spec(), NOW, "ada", {1})
        made = store.put(spec(), NOW, "ada", {0})
        with pytest.raises(Changed, match="generation 1"):
            store.put(spec(epochs=6), NOW, "bob", {0})
        assert store.get("films") == made
        assert store.put(spec(epochs=6), NOW + SECOND, "bob", {1}).generation == 2

    def test_of_many_who_expect_the_same_generation_one_changes_it(self, store: RecommenderStore) -> None:
        store.put(spec(), NOW, "ada")

        def change(n: int) -> bool:
            try:
                store.put(spec(epochs=10 + n), NOW + SECOND, f"thread {n}", {1})
            except Changed:
                return False
            return True

        assert at_once(THREADS, change).count(True) == 1
        assert store.get("films").generation == 2

    def test_an_unknown_name_is_not_found(self, store: RecommenderStore) -> None:
        with pytest.raises(NotFound, match="films"):
            store.get("films")

    def test_recommenders_are_listed_by_name(self, store: RecommenderStore) -> None:
        assert store.list() == []
        for name in ("music", "books", "films"):
            store.put(spec(name), NOW, "ada")
        assert [one.name for one in store.list()] == ["books", "films", "music"]

    def test_generations_of_racing_changes_are_consecutive(self, store: RecommenderStore) -> None:
        made = at_once(THREADS, lambda n: store.put(spec(epochs=n + 1), NOW, f"thread {n}"))
        assert sorted(one.generation for one in made) == list(range(1, THREADS + 1))
        last = max(made, key=lambda one: one.generation)
        assert store.get("films").spec == last.spec


class DeletionSuite:
    """A module provides `recommenders`, `rollouts` and `routes` on one database."""

    @pytest.mark.requirement("C-01")
    def test_what_is_deleted_is_seen_by_nobody_and_stays_deleted(self, recommenders: RecommenderStore, routes: RouteStore) -> None:
        kept = recommenders.put(spec("books"), NOW, "ada")
        recommenders.put(spec(), NOW, "ada")
        for name in ("films", "books"):
            routes.put(name, Route(1), NOW, "ada", "")
        for second in (1, 2):
            recommenders.delete("films", NOW + second * SECOND)
        with pytest.raises(NotFound, match="no recommender is called 'films'"):
            recommenders.get("films")
        assert recommenders.list() == [kept]
        assert (routes.get("films"), list(routes.all()), routes.previous("films")) == (None, ["books"], None)
        assert routes.closed() == {"films": NOW + SECOND}
        with pytest.raises(NotFound, match="music"):
            recommenders.delete("music", NOW)

    @pytest.mark.requirement("C-01")
    def test_it_is_refused_while_work_is_under_way_and_names_all_of_it(
        self, recommenders: RecommenderStore, rollouts: Rows, routes: RouteStore
    ) -> None:
        made = recommenders.put(spec(), NOW, "ada")
        route = routes.put("films", Route(1), NOW, "ada", "")
        for id in ("ro-1", "ro-2", "ro-3"):
            rollouts.create(rollout(id), "ada")
        rollouts.create(rollout("ro-4", "books"), "ada")
        moved(rollouts, rollouts.get("ro-2"), RolloutStatus("aborted"), finished=True)
        with pytest.raises(Conflict, match="work under way: rollout ro-1, rollout ro-3; cancel"):
            recommenders.delete("films", NOW)
        assert (recommenders.get("films"), routes.get("films"), routes.closed()) == (made, route, {})
        for id in ("ro-1", "ro-3"):
            moved(rollouts, rollouts.get(id), RolloutStatus("aborted"), finished=True)
        recommenders.delete("films", NOW)

    @pytest.mark.requirement("C-01")
    def test_nothing_begins_for_what_is_deleted(self, recommenders: RecommenderStore, rollouts: Rows, routes: RouteStore) -> None:
        recommenders.put(spec(), NOW, "ada")
        old = rollouts.create(rollout("ro-0"), "ada")
        old = moved(rollouts, old, RolloutStatus("aborted"), finished=True)
        recommenders.delete("films", NOW)
        with pytest.raises(NotFound, match="films"):
            rollouts.create(rollout(), "ada")
        with pytest.raises(NotFound, match="films"):
            routes.put("films", Route(1), NOW, "ada", "")
        assert rollouts.create(rollout("ro-0"), "ada") == old
        assert (rollouts.list("films"), routes.all(), routes.history("films")) == ([old], {}, [])

    @pytest.mark.requirement("C-01")
    def test_of_a_deletion_and_what_begins_at_once_one_wins(
        self, recommenders: RecommenderStore, rollouts: Rows, routes: RouteStore
    ) -> None:
        for n in range(ROUNDS):
            name = f"films-{n}"
            recommenders.put(spec(name), NOW, "ada")
            routes.put(name, Route(1), NOW, "ada", "")
            steps = (
                lambda name=name: recommenders.delete(name, NOW + SECOND),
                lambda name=name, n=n: rollouts.create(rollout(f"ro-{n}", name), "ada"),
                lambda name=name: routes.put(name, Route(2), NOW, "ada", ""),
            )

            def act(which: int, steps: Any = steps) -> bool:
                try:
                    steps[which]()
                except (Conflict, NotFound):
                    return False
                return True

            deleted, began, _ = at_once(3, act)
            assert deleted != began
            assert (name in routes.closed(), name in routes.all()) == (deleted, not deleted)
            assert bool(rollouts.list(name)) == began

    @pytest.mark.requirement("C-01")
    def test_its_name_is_taken_again_and_every_count_goes_on(self, recommenders: RecommenderStore, routes: RouteStore) -> None:
        recommenders.put(spec(), NOW, "ada")
        recommenders.put(spec(epochs=6), NOW, "ada")
        for number in (1, 2):
            routes.put("films", Route(number), NOW + number * SECOND, "ada", "")
        recommenders.delete("films", NOW + 5 * SECOND)
        later = NOW + 9 * SECOND
        made = recommenders.put(spec(epochs=6), later, "bob")
        assert (made.generation, made.created_at, made.updated_at) == (3, later, later)
        assert (recommenders.get("films"), routes.closed(), routes.get("films")) == (made, {}, None)
        assert routes.put("films", Route(2), later, "bob", "").generation == 3
        assert routes.put("films", Route(3), later + SECOND, "bob", "").generation == 4
        assert recommenders.put(spec(), later + SECOND, "bob").created_at == later

    @pytest.mark.requirement("G-11")
    def test_the_history_stays_and_says_that_nothing_served_in_between(self, recommenders: RecommenderStore, routes: RouteStore) -> None:
        recommenders.put(spec(), NOW, "ada")
        for second, number in enumerate((1, 2)):
            routes.put("films", Route(number), NOW + second * SECOND, "ada", "")
        recommenders.delete("films", NOW + 5 * SECOND)
        assert [one.until for one in routes.history("films")] == [NOW + 5 * SECOND, NOW + SECOND]
        assert routes.left("films") == {1: NOW + SECOND, 2: NOW + 5 * SECOND}
        recommenders.put(spec(), NOW + 9 * SECOND, "bob")
        for second, number in ((9, 2), (10, 3)):
            routes.put("films", Route(number), NOW + second * SECOND, "bob", "")
        assert [one.until for one in routes.history("films")] == [None, NOW + 10 * SECOND, NOW + 5 * SECOND, NOW + SECOND]
        serving = [(4, 2), (5, None), (8, None), (9, 2), (10, 3)]
        for second, stable in serving:
            found = routes.at("films", NOW + second * SECOND)
            assert (found.route.stable if found else None) == stable
        assert routes.left("films") == {1: NOW + SECOND, 2: NOW + 10 * SECOND}
        assert routes.serving_since("films", 2) == NOW + 9 * SECOND
        assert routes.previous("films") == 2
        routes.put("films", Route(2), NOW + 11 * SECOND, "bob", "")
        assert routes.previous("films") is None, "what served before the deletion isn't gone back to"


def version(run: str = "run-1", recommender: str = "films") -> Version:
    files = {"model.onnx": File(sha256="ab" * 32, size=7), "items.parquet": File(sha256="cd" * 32, size=0)}
    lineage = {"snapshot": NOW.isoformat(), "stages": {"etl": {"rows": 3, "digests": ["a"]}}, "parent": None}
    return Version(recommender, 0, run, digest_of(files), files, {"candidate.hr@10": 0.1 + 0.2}, lineage, None, NOW)


class RegistrySuite:
    def test_a_version_is_read_back_as_it_was_with_its_number(self, registry: Registry) -> None:
        made = registry.register(version())
        assert made == replace(version(), number=1)
        assert registry.get("films", 1) == registry.of_run("run-1") == made

    def test_numbers_are_consecutive_within_a_recommender(self, registry: Registry) -> None:
        for n in range(3):
            registry.register(replace(version(f"run-{n}"), parent=n or None))
        assert registry.register(version("run-x", "books")).number == 1
        assert [(one.number, one.run, one.parent) for one in registry.list("films")] == [
            (1, "run-0", None),
            (2, "run-1", 1),
            (3, "run-2", 2),
        ]

    def test_a_run_that_has_registered_is_adopted(self, registry: Registry) -> None:
        made = registry.register(version())
        assert registry.register(replace(version(), metrics={})) == made
        assert registry.list("films") == [made]

    def test_many_who_register_one_run_get_one_version(self, registry: Registry) -> None:
        made = at_once(THREADS, lambda _: registry.register(version()))
        assert made == [replace(version(), number=1)] * THREADS
        assert len(registry.list("films")) == 1

    def test_racing_runs_get_consecutive_numbers(self, registry: Registry) -> None:
        made = at_once(THREADS, lambda n: registry.register(version(f"run-{n}")))
        assert sorted(one.number for one in made) == list(range(1, THREADS + 1))

    def test_what_is_not_there_is_said(self, registry: Registry) -> None:
        assert registry.of_run("run-1") is None
        assert registry.list("films") == []
        with pytest.raises(NotFound, match=r"films.* 4"):
            registry.get("films", 4)

    @pytest.mark.requirement("G-11")
    def test_files_that_do_not_match_their_digest_are_not_registered(self, registry: Registry) -> None:
        with pytest.raises(Invalid, match=r"run-1.*digest"):
            registry.register(replace(version(), digest="00" * 32))
        assert registry.list("films") == []

    @pytest.mark.requirement("G-11")
    def test_a_tag_names_one_version_and_moves(self, registry: Registry) -> None:
        for run in ("run-1", "run-2"):
            registry.register(version(run))
        registry.register(version("run-3", "books"))
        assert registry.tag("films", 1, "champion", NOW, "ada") is None
        assert registry.tag("films", 1, "small", NOW, "ada") is None
        assert registry.tag("books", 1, "champion", NOW, "ada") is None
        assert registry.tag("films", 1, "champion", NOW, "ada") == 1
        assert registry.tag("films", 2, "champion", NOW, "bob") == 1
        assert registry.tags("films") == {"champion": 2, "small": 1}
        assert registry.tags("books") == {"champion": 1}
        with pytest.raises(NotFound, match="champion"):
            registry.untag("films", 1, "champion")
        registry.untag("films", 2, "champion")
        assert registry.tags("films") == {"small": 1}
        with pytest.raises(NotFound, match="9"):
            registry.tag("films", 9, "champion", NOW, "ada")

    def test_of_many_who_put_one_tag_one_has_it(self, registry: Registry) -> None:
        for n in range(THREADS):
            registry.register(version(f"run-{n}"))

        def put(n: int) -> None:
            with suppress(Conflict):
                registry.tag("films", n + 1, "champion", NOW, "ada")

        at_once(THREADS, put)
        assert list(registry.tags("films")) == ["champion"]

    @pytest.mark.requirement("G-11")
    def test_a_version_whose_files_were_given_up_stays_and_takes_no_tag(self, registry: Registry) -> None:
        made = registry.register(version())
        assert registry.collected("films") == {}
        assert registry.collect("films", 1, NOW)
        assert registry.collect("films", 1, NOW + SECOND)
        assert registry.collected("films") == {1: NOW}
        assert registry.get("films", 1) == made
        with pytest.raises(Conflict, match="collected"):
            registry.tag("films", 1, "champion", NOW, "ada")
        with pytest.raises(NotFound, match="9"):
            registry.collect("films", 9, NOW)

    @pytest.mark.requirement("G-11")
    def test_what_is_tagged_is_not_given_up(self, registry: Registry) -> None:
        registry.register(version())
        registry.tag("films", 1, "champion", NOW, "ada")
        assert not registry.collect("films", 1, NOW)
        assert registry.collected("films") == {}
        registry.untag("films", 1, "champion")
        assert registry.collect("films", 1, NOW)

    @pytest.mark.requirement("G-11")
    def test_of_a_tag_and_a_collection_at_once_one_wins(self, registry: Registry) -> None:
        for n in range(ROUNDS):
            number = registry.register(version(f"run-{n}")).number

            def either(which: int, number: int = number) -> bool:
                if which:
                    return registry.collect("films", number, NOW)
                try:
                    registry.tag("films", number, f"tag-{number}", NOW, "ada")
                except Conflict:
                    return False
                return True

            assert sorted(at_once(2, either)) == [False, True]
            assert (number in registry.collected("films")) != (f"tag-{number}" in registry.tags("films"))


class StageOutputsSuite:
    def output(self, **changes: Any) -> StageOutput:
        return replace(StageOutput("films", "etl", "d1", {"code": "1.0", "data: a.csv": "1 byte"}, "r1-etl-1", NOW), **changes)

    def test_what_was_put_is_found_by_its_digest_and_nowhere_else(self, outputs: StageOutputs) -> None:
        assert outputs.find("films", "etl", "d1") is None
        outputs.put(self.output())
        assert outputs.find("films", "etl", "d1") == self.output()
        for other in (("books", "etl", "d1"), ("films", "train", "d1"), ("films", "etl", "d2")):
            assert outputs.find(*other) is None

    def test_the_newest_attempt_stands_for_its_digest(self, outputs: StageOutputs) -> None:
        outputs.put(self.output())
        outputs.put(self.output(attempt="r2-etl-1", at=NOW + SECOND))
        found = outputs.find("films", "etl", "d1")
        assert found is not None
        assert found.attempt == "r2-etl-1"

    def test_the_newest_output_is_that_of_the_last_attempt_of_the_stage(self, outputs: StageOutputs) -> None:
        assert outputs.newest("films", "etl") is None
        outputs.put(self.output(at=NOW + SECOND))
        outputs.put(self.output(digest="d2", attempt="r0-etl-1"))
        outputs.put(self.output(stage="train", digest="d3", at=NOW + 2 * SECOND))
        assert outputs.newest("films", "etl") == self.output(at=NOW + SECOND)


class RouteStoreSuite:
    def put(self, routes: RouteStore, route: Route, second: int) -> Route:
        return routes.put("films", route, NOW + second * SECOND, "ada", "a test")

    def test_a_route_is_read_back_with_its_generation_and_time(self, routes: RouteStore) -> None:
        assert routes.get("films") is None
        made = self.put(routes, Route(1, 2, 0.05, "ro-1", 0), 0)
        assert made == Route(1, 2, 0.05, "ro-1", 0, generation=1, since=NOW)
        assert routes.get("films") == made
        assert routes.all() == {"films": made}

    def test_a_shadow_is_kept_and_is_a_change(self, routes: RouteStore) -> None:
        self.put(routes, Route(1, 2, 0.0, "ro-1"), 0)
        made = self.put(routes, Route(1, 2, 0.0, "ro-1", shadow=True), 1)
        assert (made.shadow, made.generation) == (True, 2)
        assert routes.get("films") == routes.all()["films"] == made
        assert [one.route.shadow for one in routes.history("films")] == [True, False]

    def test_each_change_raises_the_generation_by_one(self, routes: RouteStore) -> None:
        changes = [Route(1), Route(1, 2, 0.05, "s", 0), Route(1, 2, 0.25, "s", 1), Route(1), Route(1, 2, 0.25, "t", 1)]
        assert [self.put(routes, route, n).generation for n, route in enumerate(changes)] == [1, 2, 3, 4, 5]
        assert routes.put("books", Route(1), NOW, "ada", "").generation == 1

    def test_an_equal_route_changes_nothing(self, routes: RouteStore) -> None:
        made = self.put(routes, Route(1, 2, 0.05, "s", 0), 0)
        assert self.put(routes, Route(1, 2, 0.05, "s", 0), 9) == made
        assert self.put(routes, made, 9) == made == routes.get("films")

    def test_generations_of_racing_changes_are_consecutive(self, routes: RouteStore) -> None:
        made = at_once(THREADS, lambda n: self.put(routes, Route(n + 1), n))
        assert sorted(one.generation for one in made) == list(range(1, THREADS + 1))
        assert routes.get("films") == max(made, key=lambda one: one.generation)

    @pytest.mark.requirement("G-11")
    def test_the_history_says_what_served_when_and_by_whose_decision(self, routes: RouteStore) -> None:
        changes = [Route(1), Route(1, 2, 0.05, "ro-1", 0), Route(2), Route(1)]
        for n, route in enumerate(changes):
            routes.put("films", route, NOW + n * SECOND, f"actor {n}", f"reason {n}")
        routes.put("books", Route(7), NOW, "ada", "")
        found = routes.history("films")
        assert [replace(one.route, generation=0, since=None) for one in found] == changes[::-1]
        assert [(one.route.generation, one.actor, one.reason) for one in found] == [
            (n + 1, f"actor {n}", f"reason {n}") for n in (3, 2, 1, 0)
        ]
        assert [one.until for one in found] == [None, *(NOW + n * SECOND for n in (3, 2, 1))]
        assert [one.route.generation for one in routes.history("films", 2)] == [4, 3]
        assert [one.route.generation for one in routes.history("films", 2, 3)] == [2, 1]
        assert routes.history("music") == []

    @pytest.mark.requirement("G-11")
    def test_what_served_at_a_time_is_known(self, routes: RouteStore) -> None:
        for n, route in enumerate((Route(1), Route(2), Route(3))):
            self.put(routes, route, 10 * n)
        for second, stable in ((0, 1), (9, 1), (10, 2), (19, 2), (20, 3), (99, 3)):
            found = routes.at("films", NOW + second * SECOND)
            assert found is not None
            assert found.route.stable == stable
        assert routes.at("films", NOW - SECOND) is None
        assert routes.at("books", NOW) is None

    def test_a_version_has_left_when_no_route_names_it_any_more(self, routes: RouteStore) -> None:
        assert routes.left("films") == {}
        for second, route in enumerate((Route(1), Route(1, 2, 0.05), Route(1, 2, 0.25), Route(2), Route(2, 3, 0.05), Route(2))):
            self.put(routes, route, second)
        assert routes.left("films") == {1: NOW + 3 * SECOND, 3: NOW + 5 * SECOND}
        self.put(routes, Route(2, 1, 0.05), 6)
        assert routes.left("films") == {3: NOW + 5 * SECOND}
        self.put(routes, Route(2), 7)
        assert routes.left("films") == {1: NOW + 7 * SECOND, 3: NOW + 5 * SECOND}
        assert routes.left("books") == {}

    def test_a_version_serves_since_it_last_became_stable(self, routes: RouteStore) -> None:
        for second, route in enumerate((Route(1), Route(1, 2, 0.05), Route(2), Route(2, 3, 0.5), Route(1), Route(1, 3, 0.5))):
            self.put(routes, route, second)
        assert routes.serving_since("films", 1) == NOW + 4 * SECOND
        assert routes.serving_since("films", 2) == NOW + 2 * SECOND
        assert routes.serving_since("films", 3) is None
        assert routes.serving_since("books", 1) is None

    def test_going_back_never_leads_forward_again(self, routes: RouteStore) -> None:
        upwards = [(Route(1), None), (Route(1, 2, 0.05), None), (Route(2), 1), (Route(2, 3, 0.05), 1), (Route(3), 2)]
        expected = [*upwards, (Route(2), 1), (Route(1), None), (Route(4), 1)]
        for second, (route, previous) in enumerate(expected):
            self.put(routes, route, second)
            assert routes.previous("films") == previous
        assert routes.previous("books") is None

    def test_gateways_report_what_they_serve(self, routes: RouteStore) -> None:
        routes.report("gate-a", {"films": 3, "books": 1}, NOW)
        routes.report("gate-b", {"films": 2}, NOW + SECOND)
        routes.report("gate-c", {}, NOW + SECOND)
        assert routes.reports("films", NOW) == {"gate-a": 3, "gate-b": 2, "gate-c": 0}
        assert routes.reports("books", NOW + SECOND) == {"gate-b": 0, "gate-c": 0}
        routes.report("gate-b", {"films": 3}, NOW + 2 * SECOND)
        assert routes.reports("films", NOW + 2 * SECOND) == {"gate-b": 3}

    def test_gateways_that_report_at_once_are_all_heard(self, routes: RouteStore) -> None:
        at_once(THREADS, lambda n: routes.report(f"gate-{n % 4}", {"films": 1}, NOW))
        assert routes.reports("films", NOW) == {f"gate-{n}": 1 for n in range(4)}
