"""Conformance suites of claims, by which replicas share rows, and of Leases."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from shared.domain.rollout import RolloutStatus
from shared.ports import LONGEST_TERM, Leases, replica_lease
from shared.testing.threads import THREADS, at_once
from tests.support.resource_suite import NOW, ROUNDS, SECOND, Rows, full_status, moved, rollout

TERM = timedelta(seconds=30)
CENTURY = timedelta(days=36_500)


class SetClock:
    """A clock that tests set."""

    def __init__(self, time: datetime = NOW) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time


class ClaimSuite:
    """Several control planes on one set of rows. A test module provides `store` and `leases` on one database, and
    the `clock` of the leases."""

    def live(self, leases: Leases, *holders: str) -> None:
        for holder in holders:
            assert leases.hold(replica_lease(holder), holder, TERM)

    def fill(self, store: Rows, count: int) -> None:
        for n in range(count):
            store.create(rollout(f"ro-{n:02}", age=(count - n) * SECOND), "ada")

    def claimed(self, store: Rows, holder: str, now: datetime = NOW) -> list[str]:
        return [row.id for row in store.due(now, 1000, holder)]

    def test_one_replica_claims_every_row_and_then_rests(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a")
        self.fill(store, 3)
        before = [store.get(f"ro-{n:02}") for n in range(3)]
        assert self.claimed(store, "a") == []
        assert (store.claim("a", 1), store.claim("a", 1)) == (3, 0)
        assert self.claimed(store, "a") == ["ro-00", "ro-01", "ro-02"]
        assert [store.get(f"ro-{n:02}") for n in range(3)] == before, "a claim must not change the records"
        assert len(store.due(NOW, 10)) == 3

    def test_what_a_claim_moves_does_not_disturb_who_has_read_the_row(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a")
        record = store.create(rollout(), "ada")
        store.claim("a", 1)
        assert moved(store, record, full_status()).revision == record.revision + 1

    def test_two_replicas_share_the_rows(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 7)
        assert [store.claim(holder, 2) for holder in "abab"] == [4, 3, 0, 0]
        assert sorted(self.claimed(store, "a") + self.claimed(store, "b")) == [f"ro-{n:02}" for n in range(7)]

    def test_a_replica_that_comes_gets_its_share_of_what_others_let_go(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 7)
        assert store.claim("a", 1) == 7
        assert store.claim("b", 2) == 0, "no free record"
        assert store.claim("a", 2) == 3, "a releases its surplus"
        assert store.claim("b", 2) == 3
        assert (len(self.claimed(store, "a")), len(self.claimed(store, "b"))) == (4, 3)

    def test_the_rows_of_a_replica_that_died_are_claimed_when_its_lease_is_over(self, store: Rows, leases: Leases, clock: SetClock) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 4)
        assert (store.claim("a", 2), store.claim("b", 2)) == (2, 2)
        clock.time = NOW + TERM - SECOND
        leases.hold(replica_lease("b"), "b", TERM)
        assert store.claim("b", 1) == 0
        clock.time += SECOND
        assert store.claim("b", 1) == 2
        assert (len(self.claimed(store, "a")), len(self.claimed(store, "b"))) == (0, 4)

    def test_the_rows_of_a_replica_that_shut_down_are_free_at_once(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 4)
        assert (store.claim("a", 2), store.claim("b", 2)) == (2, 2)
        leases.release(replica_lease("a"), "a")
        assert store.claim("b", 1) == 2

    def test_the_rows_of_a_replica_whose_clock_was_ahead_are_free_at_once(self, store: Rows, leases: Leases, clock: SetClock) -> None:
        clock.time = NOW + CENTURY
        self.live(leases, "a")
        self.fill(store, 2)
        assert store.claim("a", 1) == 2
        clock.time = NOW
        self.live(leases, "b")
        assert store.claim("b", 1) == 2

    def test_what_has_ended_belongs_to_nobodys_share(self, store: Rows, leases: Leases) -> None:
        self.live(leases, "a", "b")
        self.fill(store, 4)
        for n in range(2):
            moved(store, store.get(f"ro-{n:02}"), RolloutStatus("aborted"), finished=True)
        assert (store.claim("a", 2), store.claim("b", 2)) == (1, 1)

    def test_replicas_that_claim_at_once_hold_each_row_once(self, store: Rows, leases: Leases) -> None:
        holders = [f"r{n}" for n in range(THREADS)]
        self.live(leases, *holders)
        self.fill(store, 5 * THREADS)
        for _ in range(THREADS):  # a claim skips rows that another transaction is writing
            at_once(THREADS, lambda n: store.claim(holders[n], THREADS))
        shares = [self.claimed(store, holder) for holder in holders]
        assert [len(share) for share in shares] == [5] * THREADS
        assert sorted(id for share in shares for id in share) == [f"ro-{n:02}" for n in range(5 * THREADS)]


class LeasesSuite:
    """A test module provides `leases`, and the `clock` of the leases."""

    def test_a_lease_is_held_by_one(self, leases: Leases) -> None:
        assert leases.hold("x", "a", TERM)
        assert not leases.hold("x", "b", TERM)
        assert leases.hold("y", "b", TERM)

    def test_a_lease_that_is_over_is_free(self, leases: Leases, clock: SetClock) -> None:
        assert leases.hold("x", "a", TERM)
        clock.time += TERM - SECOND
        assert not leases.hold("x", "b", TERM)
        clock.time += SECOND
        assert leases.hold("x", "b", TERM)
        assert not leases.hold("x", "a", TERM)

    def test_a_holder_renews_its_own(self, leases: Leases, clock: SetClock) -> None:
        assert leases.hold("x", "a", TERM)
        clock.time += TERM - SECOND
        assert leases.hold("x", "a", TERM)
        clock.time += SECOND
        assert not leases.hold("x", "b", TERM)

    def test_letting_go_frees_at_once_and_only_ones_own(self, leases: Leases) -> None:
        leases.hold("x", "a", TERM)
        leases.release("x", "b")
        assert not leases.hold("x", "b", TERM)
        leases.release("x", "a")
        leases.release("x", "a")
        assert leases.hold("x", "b", TERM)

    def test_the_living_are_those_that_are_held_now(self, leases: Leases, clock: SetClock) -> None:
        clock.time = NOW - TERM
        leases.hold("replica/old", "old", TERM)
        clock.time = NOW
        for name in ("replica/b", "replica/a", "replicas", "step/x", "replica_c"):
            leases.hold(name, "a", TERM)
        assert leases.live("replica/") == ["replica/a", "replica/b"]
        assert leases.live("replica_") == ["replica_c"]
        clock.time += TERM
        assert leases.live("") == []

    def test_a_lease_that_was_left_long_ago_is_forgotten_and_harms_nobody(self, leases: Leases, clock: SetClock) -> None:
        clock.time = NOW - timedelta(days=3)
        leases.hold("replica/old", "old", TERM)
        clock.time = NOW
        assert leases.hold("x", "a", TERM)
        assert leases.hold("replica/old", "old", TERM)

    def test_a_lease_that_lasts_longer_than_any_that_is_granted_is_over(self, leases: Leases, clock: SetClock) -> None:
        """The clock was wrong when the lease was granted, or has been set back."""
        clock.time = NOW + CENTURY
        assert leases.hold("x", "a", LONGEST_TERM)
        clock.time = NOW
        assert leases.live("x") == []
        assert leases.hold("x", "b", LONGEST_TERM)
        assert leases.live("x") == ["x"]
        assert not leases.hold("x", "a", LONGEST_TERM)

    def test_a_holder_renews_what_it_took_while_its_clock_was_ahead(self, leases: Leases, clock: SetClock) -> None:
        clock.time = NOW + CENTURY
        assert leases.hold("x", "a", TERM)
        clock.time = NOW
        assert leases.hold("x", "a", TERM)
        assert not leases.hold("x", "b", TERM)

    @pytest.mark.parametrize("term", [LONGEST_TERM + SECOND, timedelta(0), -SECOND])
    def test_no_lease_is_granted_for_longer_or_for_no_time(self, leases: Leases, term: timedelta) -> None:
        with pytest.raises(ValueError, match="a lease lasts up to"):
            leases.hold("x", "a", term)

    def test_of_many_who_take_at_once_one_holds(self, leases: Leases, clock: SetClock) -> None:
        def take(n: int) -> bool:
            return leases.hold("x", f"holder {n}", TERM)

        for _ in range(ROUNDS):
            assert at_once(THREADS, take).count(True) == 1
            clock.time += TERM
