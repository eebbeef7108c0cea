"""`SqlRecommenders` keeps the promises of its port; a deletion is one transaction."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from services.store.recommenders import SqlRecommenders
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.tables import recommender_history
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.testing.recommender_suite import DeletionSuite, RecommenderStoreSuite, spec
from shared.testing.resource_suite import NOW


class TestSqlRecommenders(RecommenderStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlRecommenders:
        return SqlRecommenders(engine)

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
    def rollouts(self, engine: Engine) -> SqlResources[RolloutStatus]:
        return SqlResources(engine, "rollout", RolloutStatus)

    @pytest.fixture
    def routes(self, engine: Engine) -> SqlRoutes:
        return SqlRoutes(engine)

    @pytest.mark.requirement("C-01")
    def test_a_deletion_is_one_transaction(self, engine: Engine, recommenders: SqlRecommenders, routes: SqlRoutes) -> None:
        """Whatever it dies at, all of it is undone, and the next call does it."""
        made = recommenders.put(spec(), NOW, "ada")
        route = routes.put("films", Route(1), NOW, "ada", "")
        left = 0

        def die(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            nonlocal left
            if statement.startswith(("UPDATE", "DELETE")):
                left -= 1
                if left < 0:
                    raise RuntimeError("killed")

        event.listen(engine, "before_cursor_execute", die)
        writes = 6
        for at in range(writes):
            left = at
            with pytest.raises(RuntimeError, match="killed"):
                recommenders.delete("films", NOW)
            assert (recommenders.get("films"), routes.get("films"), routes.history("films")[0].until) == (made, route, None)
        left = writes
        recommenders.delete("films", NOW)
        event.remove(engine, "before_cursor_execute", die)
        assert routes.closed() == {"films": NOW}
