"""Conformance suites of RecommenderStore, and of deletion over all stores."""

from __future__ import annotations

from typing import Any

import pytest

from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.entity_ids import UNFIXED, IdKinds
from shared.domain.errors import Changed, Conflict, NotFound
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.ports import MakeRun, PutResult, Recommender, RecommenderStore, RouteStore, RunRecord, RunStore
from shared.run_factory import new_run
from shared.testing.threads import THREADS, at_once
from tests.support.resource_suite import NOW, ROUNDS, SECOND, Rows, moved, rollout


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


def run_of(id: str) -> MakeRun:
    def make_run(changed: Recommender) -> RunRecord:
        return new_run(changed, id, "full", "a test", None, NOW)

    return make_run


class RecommenderStoreSuite:
    """A test module provides `store` and `runs` on one database."""

    def test_a_spec_is_read_back_as_it_was(self, store: RecommenderStore) -> None:
        made = store.put(spec(), NOW, "ada").recommender
        assert (made.name, made.generation, made.spec, made.created_at, made.updated_at) == ("films", 1, spec(), NOW, NOW)
        assert store.get("films") == made

    def test_an_equal_spec_changes_nothing(self, store: RecommenderStore) -> None:
        made = store.put(spec(), NOW, "ada").recommender
        assert store.put(spec(), NOW + SECOND, "bob") == PutResult(made, False)
        assert store.get("films") == made

    def test_each_change_raises_the_generation(self, store: RecommenderStore) -> None:
        store.put(spec(), NOW, "ada")
        result = store.put(spec(epochs=6), NOW + SECOND, "bob")
        changed = result.recommender
        assert (result.changed, result.run) == (True, None)
        assert (changed.generation, changed.spec, changed.created_at, changed.updated_at) == (2, spec(epochs=6), NOW, NOW + SECOND)
        assert store.put(spec(), NOW + 2 * SECOND, "bob").recommender.generation == 3

    def test_kinds_of_ids_are_fixed_once_and_stay_until_the_recommender_is_deleted(self, store: RecommenderStore) -> None:
        assert store.put(spec(), NOW, "ada").recommender.ids == UNFIXED
        assert store.fix_ids("films", IdKinds("text")) == IdKinds("text")
        with pytest.raises(Conflict, match="recommender 'films' has text ids of users, not integer ids"):
            store.fix_ids("films", IdKinds("integer", "integer"))
        assert store.get("films").ids == IdKinds("text"), "nothing of a refused call is fixed"
        assert store.fix_ids("films", IdKinds(None, "integer")) == store.fix_ids("films", IdKinds("text")) == IdKinds("text", "integer")
        assert store.put(spec(epochs=6), NOW, "ada").recommender.ids == store.get("films").ids == IdKinds("text", "integer")
        store.delete("films", NOW)
        with pytest.raises(NotFound):
            store.fix_ids("films", IdKinds("text"))
        assert store.put(spec(), NOW, "ada").recommender.ids == UNFIXED

    def test_of_many_who_fix_the_kinds_at_once_one_does(self, store: RecommenderStore) -> None:
        store.put(spec(), NOW, "ada")
        kinds = IdKinds("text", "integer"), IdKinds("integer", "text")

        def fix(n: int) -> IdKinds | None:
            try:
                return store.fix_ids("films", kinds[n % 2])
            except Conflict:
                return None

        fixed = at_once(THREADS, fix)
        assert {*fixed} == {None, store.get("films").ids} and fixed.count(None) == THREADS // 2

    def test_a_changed_spec_is_stored_with_its_run(self, store: RecommenderStore, runs: RunStore) -> None:
        for n in range(2):
            result = store.put(spec(epochs=5 + n), NOW, "ada", make_run=run_of(f"r-{n}"))
            assert (result.changed, result.recommender.generation) == (True, n + 1)
            assert result.run == run_of(f"r-{n}")(result.recommender) == runs.get(f"r-{n}")
            assert [(entry.target, entry.actor) for entry in runs.history(f"r-{n}")] == [("pending", "ada")]
        assert store.put(spec(epochs=6), NOW, "bob", make_run=run_of("r-2")) == PutResult(store.get("films"), False)
        assert {run.id for run in runs.list("films")} == {"r-0", "r-1"}

    def test_a_call_whose_run_is_stored_changes_nothing(self, store: RecommenderStore, runs: RunStore) -> None:
        first = store.put(spec(), NOW, "ada", make_run=run_of("r-0"))
        again = PutResult(first.recommender, False, first.run)
        assert store.put(spec(), NOW + SECOND, "ada", make_run=run_of("r-0")) == again
        store.put(spec(epochs=6), NOW + SECOND, "bob")
        assert store.put(spec(), NOW + 2 * SECOND, "ada", make_run=run_of("r-0")) == again
        assert store.get("films").generation == 2

    def test_racing_calls_store_one_run_per_generation(self, store: RecommenderStore, runs: RunStore) -> None:
        equal = at_once(THREADS, lambda n: store.put(spec(), NOW, "ada", make_run=run_of(f"equal-{n}")))
        assert [result.changed for result in equal].count(True) == 1
        at_once(THREADS, lambda n: store.put(spec(epochs=10 + n), NOW, "ada", make_run=run_of(f"other-{n}")))
        assert sorted(run.spec.generation for run in runs.list("films")) == list(range(1, THREADS + 2))

    def test_a_generation_that_is_not_the_expected_one_changes_nothing(self, store: RecommenderStore) -> None:
        with pytest.raises(Changed, match="does not exist"):
            store.put(spec(), NOW, "ada", {1})
        made = store.put(spec(), NOW, "ada", {0}).recommender
        with pytest.raises(Changed, match="generation 1"):
            store.put(spec(epochs=6), NOW, "bob", {0})
        assert store.get("films") == made
        assert store.put(spec(epochs=6), NOW + SECOND, "bob", {1}).recommender.generation == 2

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

    @pytest.mark.requirement("C-01")
    def test_every_generation_is_kept_with_who_wrote_it_and_when(self, store: RecommenderStore) -> None:
        for n, (epochs, actor) in enumerate(((5, "ada"), (6, "bob"), (6, "eve"), (5, "ada"))):
            store.put(spec(epochs=epochs), NOW + n * SECOND, actor)
        store.put(spec("books"), NOW, "ada")
        writings = store.writings("films", 10)
        assert [(writing.generation, writing.actor, writing.at) for writing in writings] == [
            (3, "ada", NOW + 3 * SECOND),
            (2, "bob", NOW + SECOND),
            (1, "ada", NOW),
        ]
        assert [writing.document for writing in writings] == [spec().document(), spec(epochs=6).document(), spec().document()]
        assert [writing.generation for writing in store.writings("films", 1)] == [3]
        assert [writing.generation for writing in store.writings("films", 10, before=3)] == [2, 1]
        assert store.writings("music", 10) == []
        assert store.writing("films", 2) == writings[1]
        with pytest.raises(NotFound, match="generation 4"):
            store.writing("films", 4)

    def test_an_unknown_name_is_not_found(self, store: RecommenderStore) -> None:
        with pytest.raises(NotFound, match="films"):
            store.get("films")

    def test_recommenders_are_listed_by_name(self, store: RecommenderStore) -> None:
        assert store.list() == []
        for name in ("music", "books", "films"):
            store.put(spec(name), NOW, "ada")
        assert [recommender.name for recommender in store.list()] == ["books", "films", "music"]

    def test_generations_of_racing_changes_are_consecutive(self, store: RecommenderStore) -> None:
        made = at_once(THREADS, lambda n: store.put(spec(epochs=n + 1), NOW, f"thread {n}").recommender)
        assert sorted(recommender.generation for recommender in made) == list(range(1, THREADS + 1))
        last = max(made, key=lambda recommender: recommender.generation)
        assert store.get("films").spec == last.spec

    def test_heads_say_each_generation_and_are_the_same_object_until_one_changes(self, store: RecommenderStore) -> None:
        assert store.heads() == {}
        store.put(spec("books"), NOW, "ada")
        store.put(spec(), NOW, "ada")
        heads = store.heads()
        assert heads == {"books": 1, "films": 1}
        store.put(spec(), NOW + SECOND, "ada")
        assert store.heads() is heads
        store.put(spec(epochs=6), NOW + SECOND, "ada")
        assert (store.heads(), heads) == ({"books": 1, "films": 2}, {"books": 1, "films": 1})
        store.delete("books", NOW + SECOND)
        assert store.heads() == {"films": 2}
        store.put(spec("books"), NOW + 2 * SECOND, "ada")
        assert store.heads() == {"books": 2, "films": 2}


class DeletionSuite:
    """A test module provides `recommenders`, `rollouts` and `routes` on one database."""

    @pytest.mark.requirement("C-01")
    def test_what_is_deleted_is_seen_by_nobody_and_stays_deleted(self, recommenders: RecommenderStore, routes: RouteStore) -> None:
        remaining = recommenders.put(spec("books"), NOW, "ada").recommender
        recommenders.put(spec(), NOW, "ada")
        for name in ("films", "books"):
            routes.put(name, Route(1), NOW, "ada", "")
        for second in (1, 2):
            recommenders.delete("films", NOW + second * SECOND)
        with pytest.raises(NotFound, match="no recommender is called 'films'"):
            recommenders.get("films")
        assert recommenders.list() == [remaining]
        assert (routes.get("films"), list(routes.all()), routes.previous("films")) == (None, ["books"], None)
        assert list(recommenders.heads()) == ["books"]
        assert routes.closed() == {"films": NOW + SECOND}
        with pytest.raises(NotFound, match="music"):
            recommenders.delete("music", NOW)

    @pytest.mark.requirement("C-01")
    def test_it_is_refused_while_work_is_under_way_and_names_all_of_it(
        self, recommenders: RecommenderStore, rollouts: Rows, routes: RouteStore
    ) -> None:
        made = recommenders.put(spec(), NOW, "ada").recommender
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
        made = recommenders.put(spec(epochs=6), later, "bob").recommender
        assert (made.generation, made.created_at, made.updated_at) == (3, later, later)
        assert (recommenders.get("films"), routes.closed(), routes.get("films")) == (made, {}, None)
        assert routes.put("films", Route(2), later, "bob", "").generation == 3
        assert routes.put("films", Route(3), later + SECOND, "bob", "").generation == 4
        assert recommenders.put(spec(), later + SECOND, "bob").recommender.created_at == later

    @pytest.mark.requirement("G-11")
    def test_the_history_stays_and_says_that_nothing_served_in_between(self, recommenders: RecommenderStore, routes: RouteStore) -> None:
        recommenders.put(spec(), NOW, "ada")
        for second, number in enumerate((1, 2)):
            routes.put("films", Route(number), NOW + second * SECOND, "ada", "")
        recommenders.delete("films", NOW + 5 * SECOND)
        assert [entry.until for entry in routes.history("films")] == [NOW + 5 * SECOND, NOW + SECOND]
        assert routes.left("films") == {1: NOW + SECOND, 2: NOW + 5 * SECOND}
        recommenders.put(spec(), NOW + 9 * SECOND, "bob")
        for second, number in ((9, 2), (10, 3)):
            routes.put("films", Route(number), NOW + second * SECOND, "bob", "")
        assert [entry.until for entry in routes.history("films")] == [None, NOW + 10 * SECOND, NOW + 5 * SECOND, NOW + SECOND]
        serving = [(4, 2), (5, None), (8, None), (9, 2), (10, 3)]
        for second, stable in serving:
            entry = routes.at("films", NOW + second * SECOND)
            assert (entry.route.stable if entry else None) == stable
        assert routes.left("films") == {1: NOW + SECOND, 2: NOW + 10 * SECOND}
        assert routes.serving_since("films", 2) == NOW + 9 * SECOND
        assert routes.previous("films") == 2
        routes.put("films", Route(2), NOW + 11 * SECOND, "bob", "")
        assert routes.previous("films") is None, "no rollback to a version from before the deletion"
