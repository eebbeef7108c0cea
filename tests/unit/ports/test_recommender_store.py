"""`SqlRecommenders` keeps the promises of its port; a change with its run and a deletion are one transaction each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from services.store.recommenders import SqlRecommenders
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.tables import recommender_history
from shared.contracts.records import RolloutSpec, RunSpec
from shared.domain.errors import QueueFull
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.domain.run import RunStatus
from shared.testing.threads import THREADS, at_once
from tests.support.recommender_suite import DeletionSuite, RecommenderStoreSuite, run_of, spec
from tests.support.resource_suite import NOW


class Deaths:
    """Fails every write after the next `left` writes."""

    def __init__(self) -> None:
        self.left = 1_000

    def reach(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("killed")


@pytest.fixture
def deaths(engine: Engine) -> Iterator[Deaths]:
    deaths = Deaths()
    event.listen(engine, "before_cursor_execute", deaths.reach)
    yield deaths
    event.remove(engine, "before_cursor_execute", deaths.reach)


class TestSqlRecommenders(RecommenderStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlRecommenders:
        return SqlRecommenders(engine)

    @pytest.fixture
    def runs(self, engine: Engine) -> SqlResources[RunStatus, RunSpec]:
        return SqlResources(engine, "run", RunStatus, RunSpec)

    def test_a_spec_and_its_run_are_one_transaction(
        self, engine: Engine, store: SqlRecommenders, runs: SqlResources[RunStatus, RunSpec], deaths: Deaths
    ) -> None:
        writes = 5
        for at in range(writes):
            deaths.left = at
            with pytest.raises(RuntimeError, match="killed"):
                store.put(spec(), NOW, "ada", make_run=run_of("r-0"))
            assert (store.list(), store.writings("films", 1), runs.list("films")) == ([], [], [])
        deaths.left = writes
        assert store.put(spec(), NOW, "ada", make_run=run_of("r-0")).changed
        assert runs.history("r-0")

    @pytest.mark.requirement("C-01")
    def test_every_spec_is_kept_with_who_wrote_it(self, engine: Engine, store: SqlRecommenders) -> None:
        for epochs, actor in ((5, "ada"), (6, "bob"), (6, "eve")):
            store.put(spec(epochs=epochs), NOW, actor)
        query = select(recommender_history.c.generation, recommender_history.c.actor)
        with engine.connect() as connection:
            assert connection.execute(query).all() == [(1, "ada"), (2, "bob")]


class TestSqlDeletion(DeletionSuite):
    @pytest.fixture
    def recommenders(self, engine: Engine) -> SqlRecommenders:
        return SqlRecommenders(engine)

    @pytest.fixture
    def rollouts(self, engine: Engine) -> SqlResources[RolloutStatus, RolloutSpec]:
        return SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)

    @pytest.fixture
    def routes(self, engine: Engine) -> SqlRoutes:
        return SqlRoutes(engine)

    @pytest.mark.requirement("C-01")
    def test_a_deletion_is_one_transaction(self, recommenders: SqlRecommenders, routes: SqlRoutes, deaths: Deaths) -> None:
        """Whatever it dies at, all of it is undone, and the next call does it."""
        made = recommenders.put(spec(), NOW, "ada").recommender
        route = routes.put("films", Route(1), NOW, "ada", "")
        writes = 6
        for at in range(writes):
            deaths.left = at
            with pytest.raises(RuntimeError, match="killed"):
                recommenders.delete("films", NOW)
            assert (recommenders.get("films"), routes.get("films"), routes.history("films")[0].until) == (made, route, None)
        deaths.left = writes
        recommenders.delete("films", NOW)
        assert routes.closed() == {"films": NOW}


MOST = 3


class TestPendingRuns:
    """The count and the new run are one transaction, whichever way the run is asked for."""

    @pytest.fixture
    def store(self, engine: Engine) -> SqlRecommenders:
        return SqlRecommenders(engine, MOST)

    @pytest.fixture
    def runs(self, engine: Engine) -> SqlResources[RunStatus, RunSpec]:
        return SqlResources(engine, "run", RunStatus, RunSpec, MOST)

    @pytest.mark.requirement("U-13")
    def test_one_more_than_may_wait_is_refused_and_nothing_is_stored(
        self, store: SqlRecommenders, runs: SqlResources[RunStatus, RunSpec]
    ) -> None:
        made = store.put(spec(), NOW, "ada", make_run=run_of("r-0")).recommender
        first = runs.create(run_of("r-1")(made), "ada")
        runs.create(run_of("r-2")(made), "ada")
        with pytest.raises(QueueFull, match=r"'films' has 3 pending runs, at most 3 may wait: .* EYAS_MAX_PENDING_RUNS"):
            runs.create(run_of("r-3")(made), "ada")
        with pytest.raises(QueueFull):
            store.put(spec(epochs=6), NOW, "ada", make_run=run_of("r-4"))
        assert (store.get("films"), len(runs.list("films"))) == (made, 3)
        assert runs.create(run_of("r-1")(made), "ada") == first  # sent again
        assert store.put(spec(epochs=6), NOW, "ada").recommender.generation == 2  # without a run
        other = store.put(spec("books"), NOW, "ada", make_run=run_of("r-5"))
        assert other.run is not None

    @pytest.mark.requirement("U-13")
    def test_a_run_that_has_begun_or_ended_makes_room(self, store: SqlRecommenders, runs: SqlResources[RunStatus, RunSpec]) -> None:
        made = store.put(spec(), NOW, "ada").recommender
        waiting = [runs.create(run_of(f"r-{n}")(made), "ada") for n in range(MOST)]
        for n, (state, finished) in enumerate((("etl", False), ("cancelled", True))):
            runs.commit(waiting[n], RunStatus(state), due_at=NOW, entry=None, finished=finished, clear_request=True)
            assert runs.create(run_of(f"s-{n}")(made), "ada").status.state == "pending"
            with pytest.raises(QueueFull):
                runs.create(run_of("t")(made), "ada")

    @pytest.mark.requirement("U-13")
    def test_nobody_gets_past_the_limit_by_asking_at_once(self, store: SqlRecommenders, runs: SqlResources[RunStatus, RunSpec]) -> None:
        made = store.put(spec(), NOW, "ada").recommender

        def ask(n: int) -> bool:
            try:
                if n % 2:
                    runs.create(run_of(f"r-{n}")(made), "ada")
                else:
                    store.put(spec(epochs=10 + n), NOW, "ada", make_run=run_of(f"r-{n}"))
            except QueueFull:
                return False
            return True

        assert sum(at_once(4 * THREADS, ask)) == MOST
        assert len(runs.list("films", states=["pending"])) == MOST
