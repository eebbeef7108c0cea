"""The SQL feature store and its history keep the promises of their ports."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from services.featurestore.history import SqlFeatureHistory
from services.featurestore.sql import SqlFeatureStore
from shared.testing.feature_suite import DAY, NOW, FeatureHistorySuite, FeatureStoreSuite, row
from tests.support.sql_rows import damage, empty


@pytest.mark.requirement("G-08")
class TestSqlFeatureStore(FeatureStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlFeatureStore:
        return SqlFeatureStore(engine)

    def test_a_damaged_row_is_absent_and_hides_no_other(
        self, engine: Engine, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
    ) -> None:
        for text in ["{", "[]", "7"]:
            with subtests.test(text=text):
                caplog.clear()
                empty(engine, "feature_values")
                store = SqlFeatureStore(engine)
                store.write("films", "user", [row(1, a=1), row(2, a=2)])
                damage(engine, "feature_values", "body", text, "entity = 1")
                assert list(store.read("films", {"user": None}, [1, 2], NOW).rows) == [("user", 2)]
                assert "feature values: unreadable, count as absent recommender=films view=user key=1" in caplog.text
                store.write("films", "user", [row(1, NOW + DAY, a=3)])
                assert len(store.read("films", {"user": None}, [1, 2], NOW + DAY).rows) == 2


@pytest.mark.requirement("G-08")
class TestSqlFeatureHistory(FeatureHistorySuite):
    @pytest.fixture
    def history(self, engine: Engine) -> SqlFeatureHistory:
        return SqlFeatureHistory(engine)
