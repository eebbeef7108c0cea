"""The SQL catalogue keeps its port's promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, update

from services.store.catalogue import SqlCatalogue
from services.store.recommenders import SqlRecommenders
from services.store.tables import catalogue_items
from shared.domain.errors import Unreadable
from shared.testing.catalogue_suite import NOW, CatalogueSuite, write
from tests.support.recommender_suite import spec
from tests.support.sql_rows import damage, empty


@pytest.mark.requirement("G-02")
class TestSqlCatalogue(CatalogueSuite):
    @pytest.fixture
    def catalogue(self, engine: Engine) -> SqlCatalogue:
        return SqlCatalogue(engine)

    @pytest.fixture
    def forget(self, engine: Engine) -> Callable[[str], None]:
        return lambda name: SqlRecommenders(engine).delete(name, NOW)

    @pytest.fixture
    def revive(self, engine: Engine) -> Callable[[str], None]:
        def apply(name: str) -> None:
            SqlRecommenders(engine).put(spec(name), NOW, "ada")

        return apply

    def test_a_damaged_item_has_no_attributes_and_hides_no_other(
        self, engine: Engine, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ) -> None:
        for text in ["{", "[]", "7", '"x"']:
            with subtests.test(text=text):
                caplog.clear()
                empty(engine, "catalogue_items", "catalogues")
                catalogue = SqlCatalogue(engine)
                catalogue.put("films", [write(1, age=1), write(2, age=2)], NOW, True)
                damage(engine, "catalogue_items", "attributes", text, "item = 1")
                for _ in range(2):
                    assert [dict(one.attributes) for one in catalogue.changes("films", 0, 9)] == [{}, {"age": 2}]
                assert caplog.text.count("item: damaged, no attributes until written again recommender=films item=1") == 1
                with pytest.raises(Unreadable, match="item 1 of 'films' is damaged"):
                    catalogue.get("films", 1)
                assert catalogue.put("films", [write(1, age=1)], NOW, True) == 1
                assert catalogue.get("films", 1).attributes == {"age": 1}

    def test_an_item_that_somebody_moved_back_by_hand_is_still_read(self, engine: Engine, catalogue: SqlCatalogue) -> None:
        catalogue.put("films", [write(1), write(2)], NOW, True)
        with engine.begin() as connection:
            connection.execute(update(catalogue_items).where(catalogue_items.c.item == 2).values(available=False))
        assert [one.available for one in catalogue.changes("films", 0, 9)] == [True, False]
