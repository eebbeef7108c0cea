"""How several replicas share rows: claims by lease, and the leases themselves."""

from __future__ import annotations

from datetime import datetime, timedelta

from shared.domain.rollout import RolloutStatus
from shared.ports import (
    Leases,
    replica_lease,
)
from shared.testing.resource_suite import NOW, ROUNDS, SECOND, THREADS, Rows, at_once, full_status, moved, rollout

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
