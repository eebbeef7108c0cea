"""A row with a damaged text is reported and left out, and affects no other row."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import Engine, insert, update

from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.stage_outputs import SqlStageOutputs
from services.store.tables import recommenders, resources
from services.store.tokens import SqlTokens
from shared.contracts.records import RolloutSpec
from shared.domain.access import Role, Token
from shared.domain.errors import Damaged, Unreadable
from shared.domain.machine import Request
from shared.domain.rollout import RolloutStatus
from shared.domain.stage_reuse import StageOutput
from tests.support.recommender_suite import spec
from tests.support.registry_suite import version
from tests.support.resource_suite import NOW, rollout
from tests.support.sql_rows import damage, empty

NOT_JSON = ["", "{", '{"a": ', "nothing", "[" * 5000]


@pytest.mark.requirement("C-01")
class TestDamagedTexts:
    @pytest.mark.parametrize("column", ["spec", "status", "intent", "request"])
    def test_a_resource_is_left_out_of_lists(
        self, engine: Engine, column: str, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ) -> None:
        for text in [*NOT_JSON, "[]", "7"]:
            with subtests.test(text=text[:9]):
                empty(engine, "resources", "history")
                caplog.clear()
                store = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
                for id in ("ro-1", "ro-2"):
                    store.create(rollout(id), "ada")
                damage(engine, "resources", column, text, "id = 'ro-1'")
                for _ in range(2):
                    assert [one.id for one in store.list()] == [one.id for one in store.list("films", states=["pending"])] == ["ro-2"]
                assert (
                    caplog.text.count("rollout: unreadable, left out of lists id=ro-1 error=rollout 'ro-1' (pending) has a stored form")
                    == 1
                )
                assert [one.id for one in store.due(NOW, 10)] == ["ro-1", "ro-2"]
                assert {one.id for one in store.queued()} == {"ro-1", "ro-2"}
                for act in (partial(store.get, "ro-1"), partial(store.ask, "ro-1", Request("pause", "ada"), NOW)):
                    with pytest.raises(Unreadable, match="ro-1"):
                        act()
                assert store.ask("ro-2", Request("pause", "ada"), NOW).request is not None

    def test_a_recommender_is_left_out_until_it_is_applied_again(
        self, engine: Engine, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ) -> None:
        for text in NOT_JSON:
            with subtests.test(text=text[:9]):
                empty(engine, "recommenders", "recommender_history")
                caplog.clear()
                store = SqlRecommenders(engine)
                for name in ("films", "books"):
                    store.put(spec(name), NOW, "ada")
                damage(engine, "recommenders", "spec", text, "name = 'films'")
                for _ in range(2):
                    assert [one.name for one in store.list()] == ["books"]
                assert [record.levelname for record in caplog.records] == ["ERROR"]
                with pytest.raises(Unreadable, match="films"):
                    store.get("films")
                assert store.put(spec(), NOW, "ada").recommender.generation == 2
                assert [one.name for one in store.list()] == ["books", "films"]

    def test_a_version_is_damaged_like_one_that_was_tampered_with(self, engine: Engine, subtests: pytest.Subtests) -> None:
        for column in ("files", "metrics", "lineage"):
            for text in NOT_JSON:
                with subtests.test(column=column, text=text[:9]):
                    empty(engine, "versions")
                    registry = SqlRegistry(engine)
                    for run in ("run-1", "run-2"):
                        registry.register(version(run))
                    damage(engine, "versions", column, text, "number = 1")
                    assert [one.number for one in registry.list("films")] == [2]
                    with pytest.raises(Damaged, match=f"version 1 of 'films' is damaged: its row cannot be read .{column}"):
                        registry.get("films", 1)
                    with pytest.raises(Damaged):
                        registry.everything()

    def test_a_token_opens_nothing_and_never_everything(
        self, engine: Engine, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ) -> None:
        for text in [*NOT_JSON, "{}", '"films"']:
            with subtests.test(text=text[:9]):
                empty(engine, "tokens")
                caplog.clear()
                tokens = SqlTokens(engine)
                for id in ("t1", "t2"):
                    tokens.add(Token(id, f"name {id}", "", Role.ADMIN, frozenset({"films"}), NOW, "ada"))
                damage(engine, "tokens", "recommenders", text, "id = 't1'")
                for _ in range(2):
                    assert [one.id for one in tokens.list()] == ["t2"]
                assert [record.levelname for record in caplog.records] == ["ERROR"]
                with pytest.raises(Unreadable, match="damaged and not valid"):
                    tokens.get("t1")

    def test_a_stage_output_is_not_reused_and_a_gateway_counts_as_serving_nothing(self, engine: Engine, subtests: pytest.Subtests) -> None:
        for text in [*NOT_JSON, "[]"]:
            with subtests.test(text=text[:9]):
                empty(engine, "stage_outputs", "gateways")
                outputs, routes = SqlStageOutputs(engine), SqlRoutes(engine)
                outputs.put(StageOutput("films", "etl", "d1", {}, "r1-etl-1", NOW))
                damage(engine, "stage_outputs", "parts", text, "digest = 'd1'")
                assert (outputs.find("films", "etl", "d1"), outputs.newest("films", "etl")) == (None, None)
                for gateway in ("a", "b"):
                    routes.report(gateway, {"films": 3}, NOW)
                damage(engine, "gateways", "served", text, "gateway = 'a'")
                assert routes.reports("films", NOW) == {"a": 0, "b": 3}


def test_a_resource_of_an_unknown_form_hides_no_other(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    store = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
    for id in ("ro-1", "ro-2"):
        store.create(rollout(id), "ada")
    with engine.begin() as connection:
        connection.execute(update(resources).where(resources.c.id == "ro-1").values(status={"state": "pending", "step": "many"}))
    for _ in range(2):
        assert [record.id for record in store.list()] == ["ro-2"]
    assert caplog.text.count("rollout 'ro-1' (pending) has a stored form that this release cannot read") == 1
    assert [row.id for row in store.due(NOW, 10)] == ["ro-1", "ro-2"]
    with pytest.raises(Unreadable, match="ro-1"):
        store.get("ro-1")
    assert store.list(before="ro-1") == []


@pytest.mark.requirement("C-01")
def test_a_recommender_of_an_unknown_form_is_left_out_until_it_is_applied_again(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    store = SqlRecommenders(engine)
    good = store.put(spec(), NOW, "ada").recommender
    broken = spec().document() | {"name": "broken", "gates": "none"}
    with engine.begin() as connection:
        row = {"name": "broken", "generation": 3, "spec": broken, "created_at": NOW, "updated_at": NOW}
        connection.execute(insert(recommenders).values(row))
    assert store.list() == [good]
    assert store.list() == [good]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "recommender: left out until its spec is applied again recommender=broken" in caplog.text
    mended = spec().model_copy(update={"name": "broken"})
    assert store.put(mended, NOW, "ada").recommender.generation == 4
    assert [found.name for found in store.list()] == ["broken", good.name]
    assert store.get("broken").spec == mended


@pytest.mark.requirement("G-11")
@pytest.mark.parametrize(
    "change",
    ["files = replace(files, 'abab', 'abac')", "files = replace(files, 'model.onnx', 'other.onnx')", "files = '[]'", "digest = 'x'"],
    ids=["another content", "another name", "no files at all", "another digest"],
)
def test_a_version_that_was_tampered_with_is_refused_and_hides_no_other(
    engine: Engine, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = SqlRegistry(engine)
    for run in ("run-1", "run-2"):
        registry.register(version(run))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE versions SET {change} WHERE number = 1")
    for read in (lambda: registry.get("films", 1), lambda: registry.of_run("run-1")):
        with pytest.raises(Damaged, match="version 1 of 'films' is damaged"):
            read()
    for _ in range(2):
        assert [one.number for one in registry.list("films")] == [2]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
